//! Nothing is leaked or doubled when the controller is killed right before or after a write.
//!
//! For every kind of side effect it is killed twice: before the effect, when the request never arrives, and after it,
//! when the effect has taken place and is not recorded. Then it is started again.

use anyhow::{Context, Result, ensure};
use http::Method;
use jiff::SignedDuration;
use napkeeper_tests::environment::Environment;
use napkeeper_tests::environment::state::{scale, vms_created};
use napkeeper_tests::fault_proxy::{Fate, Rule};
use napkeeper_tests::manifests::quickstart;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const STEP: Duration = Duration::from_secs(240);

/// A kind of side effect on Kubernetes: its method, parts of its path, parts that must be absent, part of its body.
type Kind = (&'static str, Method, &'static [&'static str], &'static [&'static str], &'static str);

/// Side effects on Kubernetes.
fn kinds() -> Vec<Kind> {
    vec![
        ("create the NodeClaim", Method::POST, &["/nodeclaims"], &[], ""),
        ("write the intent", Method::PATCH, &["/nodeclaims/"], &["/status"], "launch-intent"),
        ("create the bootstrap token", Method::POST, &["/namespaces/kube-system/secrets"], &[], ""),
        ("delete the bootstrap token", Method::DELETE, &["/namespaces/kube-system/secrets"], &[], ""),
        ("note the billing", Method::PATCH, &["/nodeclaims/", "/status"], &[], "Billed"),
        ("note the launch", Method::PATCH, &["/nodeclaims/", "/status"], &[], "providerID"),
        ("register the Node", Method::PATCH, &["/api/v1/nodes/"], &[], "karpenter.sh/registered"),
        ("note the registration", Method::PATCH, &["/nodeclaims/", "/status"], &[], "nodeName"),
        ("initialise the Node", Method::PATCH, &["/api/v1/nodes/"], &[], "karpenter.sh/initialized"),
        ("delete the NodeClaim", Method::DELETE, &["/nodeclaims/"], &[], ""),
        ("taint the Node", Method::PATCH, &["/api/v1/nodes/"], &[], "karpenter.sh/disrupted"),
        ("note the drain", Method::PATCH, &["/nodeclaims/", "/status"], &[], "\"Drained\""),
        ("evict a pod", Method::POST, &["/eviction"], &[], ""),
        ("note the termination", Method::PATCH, &["/nodeclaims/", "/status"], &[], "InstanceTerminating"),
        ("delete the Node", Method::DELETE, &["/api/v1/nodes/"], &[], ""),
        ("release the NodeClaim", Method::PATCH, &["/nodeclaims/"], &["/status"], "\"finalizers\""),
        ("write the records", Method::PUT, &["/orphanrecords/"], &[], ""),
        ("report a sweep", Method::PATCH, &["/orphansweeps/", "/status"], &[], ""),
    ]
}

/// Side effects on Azure: their methods, and what their paths match.
const AZURE: [(&str, &str, &str); 8] = [
    ("create the NIC", "PUT", "networkInterfaces/aks-[^/]*$"),
    ("create the VM", "PUT", "virtualMachines/aks-[^/]*$"),
    ("bill the VM", "PUT", "virtualMachines/aks-[^/]*/extensions/"),
    ("delete the NIC", "DELETE", "networkInterfaces/aks-[^/]*$"),
    ("delete the disk", "DELETE", "disks/aks-[^/]*$"),
    ("delete the VM", "DELETE", "virtualMachines/aks-[^/]*$"),
    ("sweep a NIC", "DELETE", "networkInterfaces/leaked[?]"),
    ("mark a disk", "PATCH", "disks/leaked-disk/.*tags"),
];

/// A controller that is killed whenever a request is held.
struct Mortal {
    controller: napkeeper_tests::control_plane::Process,
    /// What it was killed at.
    deaths: Vec<String>,
    /// Requests to Azure that were held.
    held: BTreeSet<String>,
}

impl Mortal {
    /// Kills and starts again if a request is held now.
    async fn check(&mut self, env: &Environment) -> Result<()> {
        let mut cause =
            env.proxy.met(Duration::from_millis(1)).await.map(|met| format!("{:?} {}", met.fate, met.request));
        for held in env.azure("held").await?["held"].as_array().into_iter().flatten() {
            if self.held.insert(held["id"].to_string()) {
                cause.get_or_insert_with(|| held.to_string());
            }
        }
        if let Some(cause) = cause {
            self.controller.kill();
            self.controller.exited(Duration::from_secs(10)).await?;
            self.controller = env.controller()?;
            self.deaths.push(cause);
        }
        ensure!(
            self.controller.exit_status().is_none(),
            "the controller ended by itself: {}",
            self.controller.tail(30)
        );
        Ok(())
    }

    /// Lets time run fast, killing on the way, until something is so.
    async fn until(
        &mut self,
        condition: &str,
        env: &mut Environment,
        mut so: impl AsyncFnMut(&Environment) -> Result<bool>,
    ) -> Result<()> {
        let end = Instant::now() + STEP;
        while !so(env).await? {
            self.check(env).await?;
            env.jump(SignedDuration::from_secs(2))?;
            tokio::time::sleep(Duration::from_millis(100)).await;
            ensure!(
                Instant::now() < end,
                "no {condition}; killed at {:#?}; in Azure {:?}; log: {}",
                self.deaths,
                env.resources().await?,
                self.controller.tail(40)
            );
        }
        Ok(())
    }
}

fn arm(env: &Environment) {
    for fate in [Fate::HeldBefore, Fate::HeldAfter] {
        for (_, method, path, not, body) in kinds() {
            let (path, not) = (path.to_vec(), not.to_vec());
            env.proxy.rule(Rule { method, path, not, body, fate, times: 1 });
        }
    }
}

async fn arm_azure(env: &Environment) -> Result<()> {
    for when in ["before", "after"] {
        for (_, method, path) in AZURE {
            let requests = json!({ "method": method, "path": path, "times": 1 });
            env.fault(&json!({ "hang": { "when": when, "requests": requests } })).await?;
        }
    }
    Ok(())
}

async fn is_running(env: &Environment) -> Result<bool> {
    let phases = napkeeper_tests::environment::state::phases(env, "inflate").await?;
    Ok(phases.len() == 1 && phases.get("Running") == Some(&1))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_that_dies_around_any_side_effect_leaks_and_doubles_nothing() -> Result<()> {
    let mut env = Environment::start("provisioner").await?;
    env.join_with_tokens()?;
    // So that NICs and disks are deleted by the controller, and not by Azure with their VM.
    env.fault_inside(&json!({ "keepChildren": { "on": true } })).await?;
    env.plane.apply(&quickstart()?).await?;
    scale(&env, "inflate", 1).await?;
    arm(&env);
    arm_azure(&env).await?;
    let controller = env.controller()?;
    let mut mortal = Mortal { controller, deaths: Vec::new(), held: BTreeSet::new() };

    mortal.until("running pod", &mut env, is_running).await?;
    // The NodeClaim under the pod is deleted: the node drains, and another is launched.
    env.plane.kubectl(&["delete", "nodeclaims", "--all", "--wait=false"]).await?;
    let two = async |env: &Environment| {
        Ok(vms_created(env).await? == 2 && is_running(env).await? && env.resources().await?.len() == 3)
    };
    mortal.until("second node alone", &mut env, two).await?;
    stage_orphans(&env).await?;
    let swept = async |env: &Environment| Ok(!env.resources().await?.iter().any(|id| id.ends_with("/leaked")));
    mortal.until("swept NIC", &mut env, swept).await?;
    let marked = async |env: &Environment| Ok(env.azure("state").await?.to_string().contains("suspect-since"));
    mortal.until("marked disk", &mut env, marked).await?;
    take_marks_off(&env).await?;
    let unmarked = async |env: &Environment| Ok(!env.azure("state").await?.to_string().contains("suspect-since"));
    mortal.until("unmarked disk", &mut env, unmarked).await?;
    scale(&env, "inflate", 0).await?;
    let empty = async |env: &Environment| {
        Ok(env.resources().await?.iter().all(|id| id.ends_with("/leaked-disk"))
            && napkeeper_tests::environment::state::claims(env).await?.is_empty())
    };
    mortal.until("end of all nodes", &mut env, empty).await?;
    // The deletion of a bootstrap token is not repeated, for it expires: it takes another node to be killed there again.
    mortal.until("kill at a token's deletion", &mut env, async |env| Ok(env.proxy.unmet().len() <= 1)).await?;
    scale(&env, "inflate", 1).await?;
    mortal.until("kill at every kind", &mut env, async |env| Ok(env.proxy.unmet().is_empty())).await?;
    mortal.until("running pod at the end", &mut env, is_running).await?;
    scale(&env, "inflate", 0).await?;
    mortal.until("end of the last node", &mut env, empty).await?;
    ensure!(vms_created(&env).await? == 3, "VMs were doubled: {}", env.azure("ledger").await?);
    every_kind_was_met(&mortal, &env).await
}

/// A test that killed nothing would prove nothing.
async fn every_kind_was_met(mortal: &Mortal, env: &Environment) -> Result<()> {
    eprintln!("killed and started {} times:", mortal.deaths.len());
    mortal.deaths.iter().for_each(|cause| eprintln!("  {cause}"));
    let left = env.proxy.unmet();
    ensure!(left.is_empty(), "these were never met: {left:#?}");
    let faults = env.azure("faults").await?;
    let waiting = faults["requests"].as_array().context("the faults are no list")?;
    ensure!(waiting.is_empty(), "these were never met: {waiting:?}");
    Ok(())
}

/// The mode is Report again: the mark is removed, with a kill before and after.
async fn take_marks_off(env: &Environment) -> Result<()> {
    for when in ["before", "after"] {
        let requests = json!({ "method": "PATCH", "path": "disks/leaked-disk/.*tags", "times": 1 });
        env.fault(&json!({ "hang": { "when": when, "requests": requests } })).await?;
    }
    let report = json!({ "spec": { "mode": "Report" } }).to_string();
    env.plane.kubectl(&["patch", "orphansweep", "marker", "--type=merge", "--patch", &report]).await?;
    Ok(())
}

async fn stage_orphans(env: &Environment) -> Result<()> {
    let tags = json!({ "napkeeper.io_cluster": env.cluster() });
    env.tell_azure("stage", &json!({ "leakNic": { "name": "leaked", "tags": tags } })).await?;
    env.tell_azure("stage", &json!({ "leakOsDisk": { "name": "leaked-disk", "tags": tags } })).await?;
    let marker = "apiVersion: napkeeper.io/v1alpha1\nkind: OrphanSweep\nmetadata: {name: marker}\nspec: {mode: Mark, kinds: [OsDisk]}\n";
    env.plane.apply(marker).await?;
    let only_nics = json!({ "spec": { "kinds": ["Nic"] } }).to_string();
    env.plane.kubectl(&["patch", "orphansweep", "default", "--type=merge", "--patch", &only_nics]).await?;
    Ok(())
}
