//! The writer against a real API server: writes read back, and other fields are unchanged.
//!
//! Needs our CRDs and Karpenter's, no other objects of the names that it uses, and a client that does not retry.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use napkeeper_api::convert;
use napkeeper_api::types::karpenter::{NodeClaim, NodePool};
use napkeeper_api::types::orphan_record::OrphanRecord;
use napkeeper_api::types::orphan_sweep::OrphanSweep;
use napkeeper_core::catalog::{CapacityType, OfferingKey};
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::azure::cloud::ResourceKind;
use napkeeper_core::model::cluster::claim::{
    Claim, ClaimRef, ClaimSpec, LaunchIntent, PlannedOffering, TerminationCondition, TerminationConditions,
};
use napkeeper_core::model::cluster::pod::{Labels, Taint, TaintEffect};
use napkeeper_core::model::cluster::status::StatusCondition;
use napkeeper_core::model::errors::{ClusterError, EffectError};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{
    ArmId, ClaimName, Namespace, NodeClassName, NodeName, NodePoolName, ObjectKey, ObjectName, ProviderId, Uid, VmSize,
    Zone,
};
use napkeeper_core::model::orphans::finding::{Classification, DeletionRefusal, Finding};
use napkeeper_core::model::orphans::record::Sighting;
use napkeeper_core::plan::{
    ClaimDraft, ClaimReport, ClaimUpdate, ClusterWrite, NodeUpdate, RecordChange, Reply, ResourceTotal, SweepReport,
};
use napkeeper_kube::Writer;
use napkeeper_tests::clock::SystemClock;
use napkeeper_tests::control_plane::{ControlPlane, Mode};
use napkeeper_tests::manifests::repository;
use serde_json::{Value, json};
use std::sync::Arc;

type Outcome = Result<Reply, EffectError>;

async fn perform(writer: &Writer, write: ClusterWrite) -> Outcome {
    writer.perform(&write).await
}

fn failed(error: ClusterError) -> Outcome {
    Err(EffectError::Cluster(error))
}

fn arm(rest: &str) -> ArmId {
    ArmId::new(format!("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/{rest}")).unwrap()
}

async fn create<K>(api: &Api<K>, object: Value) -> K
where
    K: kube::Resource
        + Clone
        + std::fmt::Debug
        + k8s_openapi::serde::Serialize
        + k8s_openapi::serde::de::DeserializeOwned,
{
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
}

/// Plays a claim's, a node's, a pod's and the records' life.
async fn everything_reads_back(client: Client) {
    let writer = Writer::new(client.clone(), Arc::new(SystemClock));
    claims(&client, &writer).await;
    nodes(&client, &writer).await;
    pods(&client, &writer).await;
    records(&client, &writer).await;
    sweeps(&client, &writer).await;
}

async fn read_claim(client: &Client) -> Claim {
    let api: Api<NodeClaim> = Api::all(client.clone());
    convert::claim(&api.get("live-a").await.unwrap()).unwrap()
}

fn draft() -> ClaimDraft {
    let text = |t: &str| Arc::<str>::from(t);
    let key = OfferingKey {
        size: VmSize::new("Standard_D4s_v5").unwrap(),
        zone: Zone::new("1").unwrap(),
        capacity_type: CapacityType::Spot,
    };
    let pool = NodePoolName::new("live").unwrap();
    ClaimDraft {
        name: ClaimName::new("live-a").unwrap(),
        spec: ClaimSpec {
            requests: Resources { cpu_millis: 1500, memory: 1 << 30, ..Resources::default() },
            labels: Labels::from([(text("team"), text("x")), (text(labels::NODEPOOL), pool.text())]),
            taints: vec![Taint { key: text("a"), value: text("b"), effect: TaintEffect::NoSchedule }],
            termination_grace_period: Some(SignedDuration::from_mins(5)),
            planned: vec![PlannedOffering { key, price: HourlyPrice::parse_usd("0.1").unwrap() }],
            pool: Some(pool),
            ..ClaimSpec::of_class(NodeClassName::new("default").unwrap())
        },
        reason: None,
        pods: vec![],
    }
}

async fn claims(client: &Client, writer: &Writer) {
    let pools: Api<NodePool> = Api::all(client.clone());
    let create_claim = || ClusterWrite::CreateClaim(Box::new(draft()));
    assert_eq!(perform(writer, create_claim()).await, failed(ClusterError::NotFound), "no such pool");
    let reference = json!({ "group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "default" });
    let template = json!({ "spec": { "nodeClassRef": reference, "requirements": [] } });
    create(&pools, json!({ "metadata": { "name": "live" }, "spec": { "template": template } })).await;
    assert_eq!(perform(writer, create_claim()).await, Ok(Reply::Done));
    assert_eq!(perform(writer, create_claim()).await, failed(ClusterError::Conflict));
    let claim = read_claim(client).await;
    assert_eq!((&claim.spec, claim.has_finalizer), (&draft().spec, true));
    let (us, other) = (claim.reference(), ClaimRef { uid: Uid::new("other").unwrap(), ..claim.reference() });
    let intent = LaunchIntent {
        offering: claim.spec.planned[0].clone(),
        vm: arm("virtualMachines/a"),
        nic: arm("networkInterfaces/a"),
        os_disk: arm("disks/a"),
        machine: None,
        reservation: None,
        written_at: Timestamp::now(),
        refused: 0,
        operation: None,
    };
    let write = |claim: &ClaimRef| ClusterWrite::WriteIntent(claim.clone(), Box::new(intent.clone()));
    assert_eq!(perform(writer, write(&other)).await, failed(ClusterError::Conflict));
    assert_eq!(perform(writer, write(&us)).await, Ok(Reply::Done));
    assert_eq!(read_claim(client).await.intent, Some(intent.clone()));
    statuses(client, writer, &us, &intent).await;
    deadlines(client, writer, &us).await;
    for (claim, outcome) in [(&other, failed(ClusterError::Conflict)), (&us, Ok(Reply::Done))] {
        assert_eq!(perform(writer, ClusterWrite::DeleteClaim(claim.clone())).await, outcome);
    }
    assert_eq!(perform(writer, write(&us)).await, failed(ClusterError::Conflict), "it is being deleted");
    for _ in 0..2 {
        assert_eq!(perform(writer, ClusterWrite::RemoveFinalizer(us.clone())).await, Ok(Reply::Done));
    }
    assert_eq!(perform(writer, write(&us)).await, failed(ClusterError::NotFound));
    pools.delete("live", &DeleteParams::default()).await.unwrap();
}

async fn statuses(client: &Client, writer: &Writer, us: &ClaimRef, intent: &LaunchIntent) {
    let amounts = Resources { cpu_millis: 3860, memory: 14 << 30, pods: 110, ..Resources::default() };
    let (provider_id, node) = (ProviderId::of_vm(&intent.vm), NodeName::new("live-n").unwrap());
    let event = Timestamp::now();
    let drained =
        TerminationCondition { message: Arc::from("pod a/b: no"), ..TerminationCondition::new(Some(false), "Blocked") };
    let blocked = TerminationConditions { drained: Some(drained), ..TerminationConditions::default() };
    let consistent_state =
        StatusCondition::failing("ConsistencyCheckFailed", "expected 4 of resource cpu, but found 3");
    let report = ClaimReport { last_pod_event: Some(event), consolidatable: true, consistent_state };
    for step in [
        ClaimUpdate::Launched {
            provider_id: provider_id.clone(),
            offering: intent.offering.key.clone(),
            image: Some(Arc::from("/CommunityGalleries/g/images/i/versions/1.0.0")),
            capacity: amounts.clone(),
            allocatable: amounts.clone(),
        },
        ClaimUpdate::Registered { node: node.clone() },
        ClaimUpdate::Initialized,
        ClaimUpdate::Report(Box::new(report.clone())),
        ClaimUpdate::Terminating(Box::new(blocked.clone())),
    ] {
        assert_eq!(perform(writer, ClusterWrite::UpdateClaim(us.clone(), step)).await, Ok(Reply::Done));
    }
    let status = read_claim(client).await.status;
    assert!(status.launched <= status.registered && status.registered <= status.initialized);
    assert!(status.launched.is_some() && status.initialized.is_some());
    assert!(report.is_on(&status), "{status:?}");
    assert_eq!((status.provider_id, status.node_name, status.allocatable), (Some(provider_id), Some(node), amounts));
    assert_eq!(status.termination, blocked);
}

async fn deadlines(client: &Client, writer: &Writer, us: &ClaimRef) {
    let (later, earlier) =
        (Timestamp::from_second(2_000_000_000).unwrap(), Timestamp::from_second(1_900_000_000).unwrap());
    for (deadline, recorded) in [(later, later), (earlier, earlier), (later, earlier)] {
        assert_eq!(perform(writer, ClusterWrite::RecordDeadline(us.clone(), deadline)).await, Ok(Reply::Done));
        assert_eq!(read_claim(client).await.termination_at, Some(recorded), "it only tightens");
    }
}

async fn nodes(client: &Client, writer: &Writer) {
    let api: Api<Node> = Api::all(client.clone());
    let taints = json!([{ "key": "karpenter.sh/unregistered", "effect": "NoExecute" }]);
    let node = json!({ "metadata": { "name": "live-n" }, "spec": { "taints": taints } });
    let uid = Uid::new(create(&api, node).await.metadata.uid.unwrap()).unwrap();
    let name = NodeName::new("live-n").unwrap();
    let register = NodeUpdate::Register {
        labels: Labels::from([(Arc::from("team"), Arc::from("x"))]),
        annotations: Labels::from([(Arc::from("example.com/owner"), Arc::from("y"))]),
        taints: vec![Taint { key: Arc::from("a"), value: Arc::from("b"), effect: TaintEffect::NoSchedule }],
    };
    let other = Uid::new("other").unwrap();
    let wrong = ClusterWrite::UpdateNode(name.clone(), other.clone(), NodeUpdate::Initialize);
    assert_eq!(perform(writer, wrong).await, failed(ClusterError::Conflict));
    for step in [
        register,
        NodeUpdate::Initialize,
        NodeUpdate::AddTaint(Taint::disrupted()),
        NodeUpdate::RemoveTaint(Taint::disrupted()),
        NodeUpdate::AddTaint(Taint::underutilized()),
        NodeUpdate::RemoveTaint(Taint::underutilized()),
        NodeUpdate::BeginDrain,
        NodeUpdate::BeginDrain,
    ] {
        let effect = ClusterWrite::UpdateNode(name.clone(), uid.clone(), step);
        assert_eq!(perform(writer, effect).await, Ok(Reply::Done));
    }
    let node = api.get("live-n").await.unwrap();
    assert_eq!(node.metadata.annotations.unwrap_or_default()["example.com/owner"], "y");
    let own = node.metadata.labels.unwrap_or_default();
    assert!(["karpenter.sh/registered", "karpenter.sh/initialized"].iter().all(|key| own[*key] == "true"));
    assert_eq!(own[labels::EXCLUDE_FROM_LOAD_BALANCERS], "karpenter");
    assert_eq!((own["team"].as_str(), node.metadata.finalizers), ("x", Some(vec![labels::FINALIZER.to_owned()])));
    let taints = node.spec.unwrap().taints.unwrap_or_default();
    let mut keys: Vec<&str> = taints.iter().map(|t| t.key.as_str()).filter(|k| !k.starts_with("node.")).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["a", "karpenter.sh/disrupted"]);
    assert_eq!(perform(writer, ClusterWrite::DeleteNode(name.clone(), other)).await, failed(ClusterError::Conflict));
    for _ in 0..2 {
        assert_eq!(perform(writer, ClusterWrite::DeleteNode(name.clone(), uid.clone())).await, Ok(Reply::Done));
    }
    assert!(api.get_opt("live-n").await.unwrap().is_none());
}

async fn pods(client: &Client, writer: &Writer) {
    let api: Api<Pod> = Api::namespaced(client.clone(), "default");
    let spec = json!({ "containers": [{ "name": "c", "image": "i" }], "automountServiceAccountToken": false });
    let pod = create(&api, json!({ "metadata": { "name": "live-p" }, "spec": spec })).await;
    let key = ObjectKey { namespace: Namespace::new("default").unwrap(), name: ObjectName::new("live-p").unwrap() };
    let evict = |uid: &str| ClusterWrite::Evict(key.clone(), Uid::new(uid).unwrap());
    let uid = pod.metadata.uid.unwrap();
    assert_eq!(perform(writer, evict("other")).await, failed(ClusterError::Conflict));
    assert!(api.get_opt("live-p").await.unwrap().is_some(), "another incarnation was not evicted");
    assert_eq!(perform(writer, evict(&uid)).await, Ok(Reply::Done));
    assert_eq!(perform(writer, evict(&uid)).await, failed(ClusterError::NotFound));
}

async fn records(client: &Client, writer: &Writer) {
    let api: Api<OrphanRecord> = Api::all(client.clone());
    let list = async || api.list(&ListParams::default()).await.unwrap().items;
    let sighting = |n: u32| {
        let sighting = Sighting {
            kind: ResourceKind::OsDisk,
            incarnation: Arc::from("i"),
            tags: [(Arc::from("napkeeper.io_cluster"), Arc::from("c"))].into(),
            first_seen: Timestamp::UNIX_EPOCH,
            last_seen: Timestamp::UNIX_EPOCH,
            times: 1,
        };
        (arm(&format!("disks/d{n:05}")), sighting)
    };
    let observed = Timestamp::now();
    let change = RecordChange {
        sightings: (0..1234).map(sighting).collect(),
        inventory_at: Some(observed),
        ..Default::default()
    };
    for _ in 0..2 {
        assert_eq!(perform(writer, ClusterWrite::WriteRecords(Box::new(change.clone()))).await, Ok(Reply::Done));
    }
    let objects = list().await;
    let read = convert::records(objects.iter().map(|o| &o.spec)).unwrap();
    assert_eq!((objects.len(), read.sightings.len(), read.last_inventory_at), (3, 1234, Some(observed)));
    let removed: Vec<ArmId> = change.sightings.iter().map(|(id, _)| id.clone()).collect();
    let clear = RecordChange { removed_sightings: removed, ..Default::default() };
    assert_eq!(perform(writer, ClusterWrite::WriteRecords(Box::new(clear))).await, Ok(Reply::Done));
    let objects = list().await;
    assert_eq!(objects.len(), 1, "{:?}", objects.iter().map(|o| &o.metadata.name).collect::<Vec<_>>());
    assert_eq!(convert::records(objects.iter().map(|o| &o.spec)).unwrap().last_inventory_at, Some(observed));
}

async fn sweeps(client: &Client, writer: &Writer) {
    let api: Api<OrphanSweep> = Api::all(client.clone());
    let finding = |n: u32| Finding {
        id: arm(&format!("disks/d{n}")),
        kind: ResourceKind::OsDisk,
        incarnation: Arc::from("i"),
        classification: Classification::Orphan,
        evidence: vec![Arc::from("no link")],
        refusals: vec![DeletionRefusal::Mode, DeletionRefusal::TooYoung],
        price: HourlyPrice::parse_usd("0.01").unwrap(),
        addresses: 0,
        first_seen: Some(Timestamp::now()),
    };
    let total = ResourceTotal { resources: 60, price: HourlyPrice::parse_usd("0.6").unwrap(), addresses: 0 };
    let mut report = SweepReport {
        sweep: ObjectName::new("live").unwrap(),
        uid: napkeeper_core::model::names::Uid::new("u").unwrap(),
        generation: Some(1),
        observed_at: Some(Timestamp::now()),
        findings: (0..60).map(finding).collect(),
        totals: [((ResourceKind::OsDisk, Classification::Orphan), total)].into(),
        report_only: Vec::new(),
        discrepancies: Vec::new(),
        halted: None,
        summary: Default::default(),
    };
    let send = |report: &SweepReport| ClusterWrite::ReportSweep(Box::new(report.clone()));
    assert_eq!(perform(writer, send(&report)).await, failed(ClusterError::NotFound));
    create(&api, json!({ "metadata": { "name": "live" }, "spec": {} })).await;
    assert_eq!(perform(writer, send(&report)).await, Ok(Reply::Done));
    let first = api.get("live").await.unwrap();
    let status = first.status.unwrap();
    assert_eq!((status.orphans, status.observed_generation), (Some(60), first.metadata.generation));
    assert_eq!((status.findings.unwrap().len(), status.conditions.unwrap().len()), (50, 3));
    report.observed_at = report.observed_at.map(|at| at + SignedDuration::from_secs(60));
    assert_eq!(perform(writer, send(&report)).await, Ok(Reply::Done));
    let same = api.get("live").await.unwrap();
    assert_eq!(same.metadata.resource_version, first.metadata.resource_version, "time alone is not written so soon");
    report.halted = Some(Arc::from("the breaker has tripped"));
    assert_eq!(perform(writer, send(&report)).await, Ok(Reply::Done));
    let conditions = api.get("live").await.unwrap().status.unwrap().conditions.unwrap();
    let words: Vec<String> = conditions.iter().map(|c| format!("{}={}", c.kind, c.status)).collect();
    assert_eq!(words, ["Ready=True", "Halted=True", "Degraded=False"]);
    // Another version of it is ready as soon as it is accepted; what was found stays.
    let accepted = SweepReport { generation: Some(2), observed_at: None, ..report.clone() };
    assert_eq!(perform(writer, send(&accepted)).await, Ok(Reply::Done));
    let status = api.get("live").await.unwrap().status.unwrap();
    let ready = &status.conditions.unwrap()[0];
    assert_eq!((&*ready.kind, &*ready.reason, ready.observed_generation), ("Ready", "Accepted", Some(2)));
    assert_eq!((status.orphans, status.observed_generation), (Some(60), Some(2)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_read_back_and_change_only_their_fields() -> anyhow::Result<()> {
    drop(rustls::crypto::ring::default_provider().install_default());
    let plane = ControlPlane::start(Mode::Api).await?;
    for folder in ["karpenter", "napkeeper"] {
        let path = repository("manifests/crds").join(folder).display().to_string();
        plane.kubectl(&["apply", "--server-side", "--kustomize", &path]).await?;
    }
    plane.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]).await?;
    // The first request for a kind may be 429 while its storage starts; kubectl retries, our writer does not.
    let kinds = "nodepools,nodeclaims,aksnodeclasses,orphansweeps,orphanrecords";
    plane.kubectl(&["get", kinds]).await?;
    let client = napkeeper_kube::connect(Some(&plane.admin_kubeconfig())).await?;
    everything_reads_back(client).await;
    Ok(())
}
