//! The conditions of NodeClaims, Nodes and NodePools, and for how long those that are being deleted have been, by the names of
//! the library that Karpenter reports them with (`operatorpkg`).

use super::Label;
use super::cluster_state::{ClusterState, Gauge, Sample, encode};
use jiff::Timestamp;
use napkeeper_core::model::cluster::claim::{Claim, ForcefulReason, TerminationCondition};
use napkeeper_core::model::cluster::node::{ConditionStatus, Node};
use napkeeper_core::model::cluster::pool::{DisruptionReason, NodePool};
use napkeeper_core::model::cluster::status::StatusCondition;
use napkeeper_core::model::labels;
use napkeeper_core::snapshot::Snapshot;
use napkeeper_serve::prometheus_client::collector::Collector;
use napkeeper_serve::prometheus_client::encoding::DescriptorEncoder;
use std::fmt;
use std::sync::Arc;

const COUNT_HELP: &str = "1 for each condition of each object, by its status and reason";
const TERMINATION_HELP: &str = "For how long an object has been being deleted";
/// Labels of objects that are labels of their metrics.
const POOL_LABEL: &str = "karpenter_sh_nodepool";
const CLASS_LABEL: &str = "karpenter_azure_com_aksnodeclass";

/// Reads the conditions of objects when they are scraped.
#[derive(Debug)]
pub(super) struct ObjectConditions(pub(super) Arc<ClusterState>);

impl Collector for ObjectConditions {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some((snapshot, now)) = self.0.fresh() else { return Ok(()) };
        encode(&mut encoder, gauges(&snapshot, now))
    }
}

/// A condition: its type, status and reason.
type Condition = (&'static str, &'static str, Arc<str>);

fn gauges(snapshot: &Snapshot, now: Timestamp) -> Vec<Gauge> {
    let claims = || snapshot.claims().values().filter(|claim| claim.is_ours());
    let (nodes, pools) = (|| snapshot.nodes().values(), || snapshot.pools().values());
    vec![
        (
            "nodeclaim_status_condition_count",
            COUNT_HELP,
            claims().flat_map(|claim| counts(&claim_labels(claim), conditions_of(claim))).collect(),
        ),
        (
            "nodeclaim_termination_current_time_seconds",
            TERMINATION_HELP,
            claims().filter_map(|claim| terminating(claim_labels(claim), claim.deleting_at, now)).collect(),
        ),
        (
            "node_status_condition_count",
            COUNT_HELP,
            nodes().flat_map(|node| counts(&node_labels(node), conditions_of_node(node))).collect(),
        ),
        (
            "node_termination_current_time_seconds",
            TERMINATION_HELP,
            nodes().filter_map(|node| terminating(node_labels(node), node.deleting_at, now)).collect(),
        ),
        (
            "nodepool_status_condition_count",
            COUNT_HELP,
            pools().flat_map(|pool| counts(&pool_labels(pool), conditions_of_pool(pool))).collect(),
        ),
        (
            "nodepool_termination_current_time_seconds",
            TERMINATION_HELP,
            pools().filter_map(|pool| terminating(pool_labels(pool), pool.deletion.requested_at, now)).collect(),
        ),
    ]
}

fn counts(object: &[Label], conditions: Vec<Condition>) -> Vec<Sample> {
    let sample = |(kind, status, reason): Condition| {
        let own = [("type", Arc::from(kind)), ("status", Arc::from(status)), ("reason", reason)];
        (object.iter().cloned().chain(own).collect(), 1.0)
    };
    conditions.into_iter().map(sample).collect()
}

fn terminating(labels: Vec<Label>, since: Option<Timestamp>, now: Timestamp) -> Option<Sample> {
    Some((labels, now.duration_since(since?).as_secs_f64()))
}

/// An object of the whole cluster.
fn named(name: Arc<str>) -> Vec<Label> {
    vec![("namespace", Arc::from("")), ("name", name)]
}

fn claim_labels(claim: &Claim) -> Vec<Label> {
    let pool = claim.spec.pool.as_ref().map(|pool| pool.text()).unwrap_or_default();
    named(claim.name.text()).into_iter().chain([(POOL_LABEL, pool), (CLASS_LABEL, claim.spec.class.text())]).collect()
}

fn node_labels(node: &Node) -> Vec<Label> {
    let value = |key: &str| node.labels.get(key).cloned().unwrap_or_default();
    let of_labels = [
        (POOL_LABEL, value(labels::NODEPOOL)),
        (CLASS_LABEL, value(labels::NODECLASS)),
        ("karpenter_sh_initialized", value(labels::INITIALIZED)),
    ];
    named(node.name.text()).into_iter().chain(of_labels).collect()
}

fn pool_labels(pool: &NodePool) -> Vec<Label> {
    named(pool.name.text())
}

/// As they are written on the NodeClaim.
fn conditions_of(claim: &Claim) -> Vec<Condition> {
    let status = &claim.status;
    let step = |kind: &'static str, at: Option<Timestamp>| at.map(|_| (kind, "True", Arc::from(kind)));
    let failed = status.launch_failed.as_ref().map(|failure| Arc::clone(&failure.code));
    let launched = step("Launched", status.launched);
    let launched = launched.or_else(|| failed.clone().map(|code| ("Launched", "False", code)));
    let disrupted =
        status.forced.map(ForcefulReason::as_str).or_else(|| status.disrupted.map(DisruptionReason::as_str));
    let ended = &status.termination;
    let termination = |kind: &'static str, condition: &Option<TerminationCondition>| {
        let found = condition.as_ref()?;
        let status = found.holds.map_or("Unknown", |holds| if holds { "True" } else { "False" });
        Some((kind, status, Arc::clone(&found.reason)))
    };
    let ready = match (failed, status.launched.and(status.registered).and(status.initialized)) {
        (Some(code), _) => ("Ready", "False", code),
        (None, Some(_)) => ("Ready", "True", Arc::from("Ready")),
        (None, None) => ("Ready", "Unknown", Arc::from("InProgress")),
    };
    let all = [
        launched,
        step("Registered", status.registered),
        step("Initialized", status.initialized),
        step("Billed", status.billed),
        status.drifted.as_ref().map(|drifted| ("Drifted", "True", Arc::clone(&drifted.reason))),
        disrupted.map(|reason| ("DisruptionReason", "True", Arc::from(reason))),
        status.consolidatable.then(|| ("Consolidatable", "True", Arc::from("Consolidatable"))),
        status.consistent_state.as_ref().map(|found| of_status("ConsistentStateFound", found)),
        termination("Drained", &ended.drained),
        termination("VolumesDetached", &ended.volumes_detached),
        termination("InstanceTerminating", &ended.instance_terminating),
        Some(ready),
    ];
    all.into_iter().flatten().collect()
}

/// Ready: no other condition is kept of every Node.
fn conditions_of_node(node: &Node) -> Vec<Condition> {
    let told = node.conditions.iter().find(|condition| &*condition.kind == "Ready");
    let status = told.map_or(if node.ready { ConditionStatus::True } else { ConditionStatus::False }, |one| one.status);
    // The kubelet gives a node that is ready no other reason.
    let reason =
        told.map_or_else(|| Arc::from(if node.ready { "KubeletReady" } else { "" }), |one| Arc::clone(&one.reason));
    vec![("Ready", status.as_str(), reason)]
}

fn conditions_of_pool(pool: &NodePool) -> Vec<Condition> {
    let conditions = &pool.status.conditions.by_type;
    conditions.iter().map(|(kind, found)| of_status(kind.as_str(), found)).collect()
}

fn of_status(kind: &'static str, found: &StatusCondition) -> Condition {
    (kind, if found.holds { "True" } else { "False" }, Arc::clone(&found.reason))
}

#[cfg(test)]
mod tests {
    use super::super::super::fixtures::{at, claim};
    use super::*;
    use napkeeper_api::convert::{apply_claim_update, claim_object};
    use napkeeper_core::model::amounts::resources::Resources;
    use napkeeper_core::model::cluster::claim::{ClaimStatus, DriftedCondition, LaunchFailure, TerminationConditions};
    use napkeeper_core::plan::ClaimUpdate;

    /// Has every condition; a field that is new is missing here.
    fn full() -> ClaimStatus {
        let ended = |reason| Some(TerminationCondition::new(None, reason));
        ClaimStatus {
            launched: Some(at(1)),
            billed: Some(at(2)),
            launch_failed: None,
            registered: Some(at(3)),
            initialized: Some(at(4)),
            drifted: Some(DriftedCondition {
                since: at(5),
                reason: Arc::from("NodePoolDrifted"),
                message: Arc::from("labels"),
            }),
            disrupted: Some(DisruptionReason::Drifted),
            forced: None,
            provider_id: None,
            node_name: None,
            image: None,
            capacity: Resources::default(),
            allocatable: Resources::default(),
            last_pod_event: None,
            consolidatable: true,
            consistent_state: Some(StatusCondition::failing("ConsistencyCheckFailed", "too little")),
            termination: TerminationConditions {
                drained: ended("Draining"),
                volumes_detached: ended("AwaitingVolumeDetachment"),
                instance_terminating: ended("InstanceTerminating"),
            },
        }
    }

    #[test]
    fn the_conditions_of_a_nodeclaim_are_those_that_are_written() {
        let refused = LaunchFailure { at: at(1), code: Arc::from("zonal_allocation_failed"), message: Arc::from("no") };
        let failed = ClaimStatus { launch_failed: Some(refused.clone()), ..ClaimStatus::default() };
        let joining = ClaimStatus { launched: Some(at(1)), registered: None, ..ClaimStatus::default() };
        for (status, update) in [
            (full(), ClaimUpdate::Initialized),
            (failed, ClaimUpdate::LaunchFailed(refused)),
            (joining, ClaimUpdate::NotDrifted),
        ] {
            let claim = Claim { status, ..claim("general-a") };
            // This one writes Ready, too.
            let written = apply_claim_update(&claim_object(&claim).unwrap(), &update, at(4));
            let mut written: Vec<(String, String, String)> = written
                .conditions
                .into_iter()
                .flatten()
                .map(|one| (one.kind, one.status, one.reason.unwrap_or_default()))
                .collect();
            let found = conditions_of(&claim).into_iter();
            let mut found: Vec<(String, String, String)> =
                found.map(|(kind, status, reason)| (kind.to_owned(), status.to_owned(), reason.to_string())).collect();
            written.sort();
            found.sort();
            assert_eq!(found, written);
        }
    }
}
