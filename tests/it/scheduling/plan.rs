//! Our plan for a workload: the new nodes, and the node of each pod.

use super::spread_owners::{SpreadOwners, profiles};
use super::storage::{Storage, classes};
use super::workload::Workload;
use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{Node as WireNode, Pod as WirePod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use napkeeper_api::convert;
use napkeeper_api::types::scheduler_configuration::{SchedulerConfiguration, SchedulerConfigurationSpec};
use napkeeper_core::model::cluster::pod::Pod;
use napkeeper_core::model::cluster::pool::DaemonSet;
use napkeeper_core::model::names::ObjectKey;
use napkeeper_core::scheduling::{
    AvailableOfferings, Input, MAX_NEW_NODES, SchedulingResult, Target, UnavailableOfferings, schedule,
};
use napkeeper_core::snapshot::Snapshot;
use napkeeper_tests::fixtures;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// A plan, in the words of the wire.
#[derive(Debug)]
pub(super) struct Plan {
    /// New nodes.
    pub(super) new: Vec<WireNode>,
    /// Pending pods by their index in the workload, and the node of each, in the order of binding.
    pub(super) goes: Vec<(usize, String)>,
    /// Unplaced pods, with the reason.
    pub(super) unplaced: Vec<(usize, String)>,
}

/// Plans for pods as the API server has them, with these volumes.
pub(super) fn plan(
    (work, storage): (&Workload, &Storage),
    nodes: &[WireNode],
    running: &[WirePod],
    waiting: &[WirePod],
) -> Result<Plan> {
    let mut snapshot = work.offerings.snapshot();
    for (name, labels) in &work.namespaces {
        let metadata = ObjectMeta { name: Some(name.clone()), labels: Some(labels.clone()), ..ObjectMeta::default() };
        let (name, labels) = convert::namespace(&metadata).map_err(|v| anyhow::anyhow!("{v}"))?;
        snapshot.put_namespace(name, labels);
    }
    for node in nodes {
        snapshot.put_node(convert::node(node).map_err(|v| anyhow::anyhow!("{v}"))?);
    }
    for pod in running {
        snapshot.put_pod(read(pod)?);
    }
    put_storage(&mut snapshot, (work, storage), nodes)?;
    put_spread_owners(&mut snapshot, &work.spread_owners)?;
    for set in &work.daemon_sets.sets {
        let set = convert::daemon_set(set).map_err(|v| anyhow::anyhow!("{v}"))?;
        snapshot.put_daemon_set(set.key, DaemonSet { shape: set.template.shape });
    }
    let pods = waiting.iter().map(|pod| read(pod).map(Arc::new)).collect::<Result<Vec<_>>>()?;
    pods.iter().for_each(|pod| snapshot.put_pod(Arc::clone(pod)));
    let offerings = AvailableOfferings::new(&snapshot, &UnavailableOfferings::default(), fixtures::instant());
    let (without, promised) = (BTreeSet::new(), BTreeMap::new());
    let input = Input {
        snapshot: &snapshot,
        available: &offerings,
        excluded_nodes: &without,
        max_new_nodes: MAX_NEW_NODES,
        claim_of_pod: &promised,
    };
    plan_of(&schedule(input, &pods), work, &pods, nodes.len())
}

fn put_storage(snapshot: &mut Snapshot, (work, storage): (&Workload, &Storage), nodes: &[WireNode]) -> Result<()> {
    for class in classes()?.iter().filter(|_| storage.exists()) {
        let class = convert::storage_class(class).map_err(|v| anyhow::anyhow!("{v}"))?;
        snapshot.put_storage_class(class.name.clone(), class);
    }
    for volume in &storage.volumes {
        let volume = convert::volume(volume).map_err(|v| anyhow::anyhow!("{v}"))?;
        snapshot.put_volume(volume.name.clone(), volume);
    }
    for claim in &storage.claims {
        let claim = convert::volume_claim(claim).map_err(|v| anyhow::anyhow!("{v}"))?;
        snapshot.put_volume_claim(claim.key.clone(), claim);
    }
    for node in storage.csi_nodes(&work.offerings, nodes)? {
        let limits = convert::attach_limits(&node).map_err(|v| anyhow::anyhow!("{v}"))?;
        snapshot.put_attach_limits(limits.node.clone(), limits);
    }
    Ok(())
}

/// The profiles of kube-scheduler, as configured in AKS, and the Services; ReplicaSets are known by their pods alone.
fn put_spread_owners(snapshot: &mut Snapshot, spread_owners: &SpreadOwners) -> Result<()> {
    let raw_config = json!({ "profiles": profiles() }).to_string();
    let upstream = SchedulerConfiguration::new("upstream", SchedulerConfigurationSpec { raw_config });
    let (name, profiles) = convert::scheduler_profiles(&upstream).map_err(|v| anyhow::anyhow!("{v}"))?;
    snapshot.put_scheduler(name, profiles);
    for service in &spread_owners.services {
        let (key, selector) = convert::service(service).map_err(|v| anyhow::anyhow!("{v}"))?;
        snapshot.put_service(key, selector);
    }
    Ok(())
}

fn read(pod: &WirePod) -> Result<Pod> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    convert::pod(pod).map_err(|v| anyhow::anyhow!("{v}")).with_context(|| format!("reading the pod {name}"))
}

/// Converts a result; new nodes are numbered after the existing ones.
fn plan_of(outcome: &SchedulingResult, work: &Workload, pods: &[Arc<Pod>], before: usize) -> Result<Plan> {
    let index: HashMap<&ObjectKey, usize> = pods.iter().enumerate().map(|(i, pod)| (&pod.key, i)).collect();
    let of = |key: &ObjectKey| index.get(key).copied().with_context(|| format!("nobody asked about {key:?}"));
    let name = |n: usize| format!("w{}-new-{}", work.seed, before + n);
    let mut plan = Plan { new: Vec::new(), goes: Vec::new(), unplaced: Vec::new() };
    for (n, node) in outcome.new_nodes.iter().enumerate() {
        let first = node.offerings.first().context("a node without offerings")?;
        let labels = node.labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let purchased = work.offerings.purchased_node(&first.key, node.pool.as_str(), labels)?;
        plan.new.push(purchased.node(&name(n))?);
    }
    for placement in &outcome.placements {
        let node = match &placement.target {
            Target::Node(node) => node.as_str().to_owned(),
            Target::New(n) => name(*n),
            Target::Claim(claim) => bail!("there is no NodeClaim {claim}"),
        };
        plan.goes.push((of(&placement.pod)?, node));
    }
    for unplaced in &outcome.unschedulable {
        let reasons: Vec<String> =
            unplaced.reasons.iter().map(|(pool, reason)| format!("{pool:?}: {reason}")).collect();
        for pod in &unplaced.pods {
            plan.unplaced.push((of(&pod.key)?, reasons.join("; ")));
        }
    }
    Ok(plan)
}
