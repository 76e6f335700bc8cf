//! The plan is the same, whether Azure is simulated in this process or served by `napkeeper azure-sim`.
//!
//! The quickstart runs three times: on the simulated Azure itself, on the adapter over it, and on the
//! adapter over HTTP. Over HTTP the world's own Azure is kept in step, and each reply and listing must be its own.

use super::same::{of_get, shown};
use super::world::{assert_same, quickstart};
use jiff::{SignedDuration, Timestamp};
use napkeeper_azure::{Azure, AzureSettings, HttpTransport};
use napkeeper_core::model::azure::cloud::CloudResource;
use napkeeper_core::model::azure::inventory::{ListFailure, Listing};
use napkeeper_core::model::azure::related::RelatedResource;
use napkeeper_core::model::errors::{EffectError, OperationId};
use napkeeper_core::model::names::ArmId;
use napkeeper_core::plan::{CloudRequest, Reply};
use napkeeper_sim::cloud::{Cloud, LedgerEntry};
use napkeeper_sim::scenario::Scenario;
use napkeeper_sim::world::{Action, AzureAccess, World};
use napkeeper_tests::arm::{self, ThroughAdapter};
use napkeeper_tests::control_plane::{Process, Program, napkeeper_binary};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// How long the program may take to start, and an exchange to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// A `napkeeper azure-sim` in a process of its own, on a fixed clock.
#[derive(Debug)]
struct Served {
    /// Ends with this.
    _process: Process,
    azure: Azure,
    control: String,
    client: reqwest::Client,
    runtime: Runtime,
    now: Timestamp,
    /// Operations begun, by their URLs, as the world's own Azure names them.
    operations: BTreeMap<OperationId, OperationId>,
}

impl Served {
    fn start(world: &World) -> Result<Self, Box<dyn Error>> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (cloud, now) = (world.cloud().settings(), world.now());
        let args = [
            "azure-sim".to_owned(),
            "--output=json".to_owned(),
            "--clock=virtual".to_owned(),
            format!("--start={now}"),
            format!("--seed={}", cloud.seed),
            format!("--region={}", cloud.region),
        ];
        let process = Process::spawn("azure-sim", &Program::new(napkeeper_binary()?).args(args))?;
        let output: Value = serde_json::from_str(&runtime.block_on(process.line("\"url\"", PATIENCE))?)?;
        let text = |key: &str| output[key].as_str().ok_or("azure-sim says too little");
        assert_eq!(text("group")?, cloud.group.as_str());
        let settings = AzureSettings { endpoint: Arc::from(text("url")?), ..arm::settings(cloud) };
        let azure =
            Azure::new(settings, Arc::new(HttpTransport::new(PATIENCE)?), arm::credential())?.without_rate_limits();
        let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build()?;
        let control = text("control")?.to_owned();
        Ok(Self { _process: process, azure, control, client, runtime, now, operations: BTreeMap::new() })
    }

    /// Moves the clock to the world's.
    fn follow(&mut self, now: Timestamp) {
        if now > self.now {
            let body = json!({ "by": now.duration_since(self.now).to_string() });
            let request = self.client.post(format!("{}/clock", self.control)).body(body.to_string());
            let answer = self.runtime.block_on(async { request.send().await?.error_for_status()?.text().await });
            let answer: Value = serde_json::from_str(&answer.unwrap()).unwrap();
            assert_eq!(answer["now"], now.to_string());
            self.now = now;
        }
    }

    /// The ledger of the simulated Azure.
    fn ledger(&self) -> Result<Vec<Value>, Box<dyn Error>> {
        let request = self.client.get(format!("{}/ledger", self.control));
        let answer = self.runtime.block_on(async { request.send().await?.error_for_status()?.text().await })?;
        let answer: Value = serde_json::from_str(&answer)?;
        Ok(answer["entries"].as_array().ok_or("there is no ledger")?.clone())
    }
}

/// A world's way to the Azure of another process.
#[derive(Debug, Clone)]
struct OverHttp(Arc<Mutex<Served>>);

impl AzureAccess for OverHttp {
    fn perform(&mut self, cloud: &mut Cloud, request: &CloudRequest, now: Timestamp) -> Result<Reply, EffectError> {
        let mut served = self.0.lock().unwrap();
        served.follow(now);
        let remote = served.runtime.block_on(served.azure.perform(request));
        let own = match request {
            CloudRequest::Poll(url) => CloudRequest::Poll(served.operations[url].clone()),
            other => other.clone(),
        };
        match (cloud.perform(&own, now), &remote) {
            (Ok(Reply::Accepted(own)), Ok(Reply::Accepted(url))) => drop(served.operations.insert(url.clone(), own)),
            (Ok(Reply::Resource(Some(own))), Ok(Reply::Resource(Some(read)))) => {
                assert_eq!(shown(&of_get(&own)), shown(read), "{request:?}");
            }
            (own, remote) => assert_eq!(&own, remote, "{request:?}"),
        }
        remote
    }

    fn list(&mut self, cloud: &mut Cloud, now: Timestamp) -> Listing<CloudResource> {
        let mut served = self.0.lock().unwrap();
        served.follow(now);
        let remote = arm::plain(served.runtime.block_on(served.azure.list()));
        assert_eq!(shown(&cloud.list(now)), shown(&remote));
        remote
    }

    fn list_related(&mut self, cloud: &mut Cloud, now: Timestamp) -> Listing<RelatedResource> {
        let mut served = self.0.lock().unwrap();
        served.follow(now);
        let remote = served.runtime.block_on(served.azure.list_related());
        assert_eq!(shown(&cloud.list_related(now)), shown(&remote));
        remote
    }

    fn group_managed_by(&mut self, cloud: &mut Cloud, now: Timestamp) -> Result<Option<ArmId>, ListFailure> {
        let mut served = self.0.lock().unwrap();
        served.follow(now);
        let remote = served.runtime.block_on(served.azure.group_managed_by());
        assert_eq!(cloud.group_managed_by(now), remote);
        remote
    }
}

/// Only the deciders change Azure: actions would have to be applied to both.
fn pods_up_and_down(scenario: &mut Scenario) {
    scenario.steps.retain(|step| matches!(step.action, Action::Scale { .. } | Action::StartJob { .. }));
    scenario.duration = SignedDuration::from_hours(5);
}

#[test]
fn the_plan_is_the_same_in_process_and_over_http() -> Result<(), Box<dyn Error>> {
    let (mut direct, end) = quickstart(pods_up_and_down)?;
    direct.run_until(end)?;

    let (mut adapted, _) = quickstart(pods_up_and_down)?;
    adapted.set_azure_access(Box::new(ThroughAdapter::new(adapted.cloud().settings())));
    adapted.run_until(end)?;
    assert_same(&direct, &adapted, "in process");

    let (mut remote, _) = quickstart(pods_up_and_down)?;
    let served = Arc::new(Mutex::new(Served::start(&remote)?));
    remote.set_azure_access(Box::new(OverHttp(Arc::clone(&served))));
    remote.run_until(end)?;
    assert_same(&direct, &remote, "over HTTP");

    let mut served = served.lock().unwrap();
    served.follow(end);
    let remote = served.ledger()?;
    let own: Vec<Value> = direct.cloud().ledger().iter().enumerate().map(entry).collect();
    assert_eq!(remote, own, "what Azure has done, by its own account");
    assert!(own.iter().any(|entry| entry["act"] == "deleted"), "nothing went away");
    Ok(())
}

/// An entry of the ledger, as the control endpoint tells it.
fn entry((n, entry): (usize, &LedgerEntry)) -> Value {
    json!({
        "n": n,
        "at": entry.at.to_string(),
        "act": format!("{:?}", entry.change).to_lowercase(),
        "by": format!("{:?}", entry.cause).to_lowercase(),
        "kind": entry.resource.kind().as_str(),
        "id": entry.resource.id.as_str(),
        "incarnation": &*entry.resource.incarnation,
        "tags": entry.resource.tags,
    })
}
