//! Events of what is done. Where Karpenter or its Azure provider tells the same, the reason is theirs (docs/karpenter.md), so that
//! what is made for their events keeps working; the other reasons are napkeeper's own.

use super::karpenter::is_capacity;
use super::{claim, cluster_scoped, pod};
use napkeeper_core::lifecycle::BlockedDrain;
use napkeeper_core::model::cluster::claim::{Claim, ClaimRef, LaunchFailure, TerminationConditions};
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::pod::Pod;
use napkeeper_core::model::cluster::pool::DisruptionReason;
use napkeeper_core::model::labels::{REGISTERED, TAINT_UNREGISTERED};
use napkeeper_core::model::names::{NodeName, NodePoolName};
use napkeeper_core::plan::{
    ClaimDraft, ClaimUpdate, ClusterWrite, Command, CommandReport, Effect, NodeUpdate, PlannedCommand,
};
use napkeeper_core::scheduling::UnschedulableReason;
use napkeeper_core::snapshot::{CommandKey, Snapshot};
use napkeeper_kube::{Events, Regarding};
use std::sync::Arc;

/// Most pods of a NodeClaim that get an event.
const MAX_POD_EVENTS: usize = 20;
/// Most VolumeAttachments that an event names.
const MAX_ATTACHMENTS: usize = 5;
/// The code on NodeClaims that napkeeper does not launch, which their condition tells.
const STANDALONE: &str = "StandaloneNodeClaim";

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    regarding: Regarding,
    reason: &'static str,
    text: String,
    is_warning: bool,
}

impl Event {
    pub(super) fn normal(regarding: Regarding, reason: &'static str, text: String) -> Self {
        Self { regarding, reason, text, is_warning: false }
    }

    pub(super) fn warning(regarding: Regarding, reason: &'static str, text: String) -> Self {
        Self { is_warning: true, ..Self::normal(regarding, reason, text) }
    }

    pub(super) fn publish(self, events: &Events) {
        events.publish(self.regarding, self.reason, &self.text, self.is_warning);
    }
}

/// Of a command that has started.
pub(super) fn of_started(planned: &PlannedCommand, snapshot: &Snapshot) -> Vec<Event> {
    let (why, about) = (&*planned.reason, planned.command.key());
    let on_claim = |of: &ClaimRef, reason, text| Some(Event::normal(claim(snapshot, &of.name)?, reason, text));
    let event = match &planned.command {
        Command::Launch(launch) => {
            match snapshot.claims().get(&launch.claim.name).and_then(|of| replaced_for(of, snapshot)) {
                Some(reason) => {
                    let text = format!("Launching NodeClaim: {}: {why}", reason.as_str());
                    on_claim(&launch.claim, "DisruptionLaunching", text)
                }
                None => on_claim(&launch.claim, "Launching", format!("{about}: {why}")),
            }
        }
        // Its failed launch has been told.
        Command::DeleteClaim { category: "launch_failed", .. } => None,
        Command::DeleteClaim { claim, category, .. } => match DisruptionReason::of_category(category) {
            Some(reason) => {
                let text = format!("Disrupting NodeClaim: {}: {why}", reason.as_str());
                on_claim(claim, "DisruptionTerminating", text)
            }
            None => on_claim(claim, "Disrupting", format!("{about}: {why}")),
        },
        Command::UpdateClaim { claim, update: ClaimUpdate::Drifted { .. } } => {
            on_claim(claim, "Drifted", format!("{about}: {why}"))
        }
        Command::UpdateClaim { claim, update: ClaimUpdate::Terminating(conditions) } => {
            snapshot.claims().get(&claim.name).and_then(|claim| volumes_awaited(claim, conditions, snapshot))
        }
        Command::UpdateClaim { claim: of, update: ClaimUpdate::Report(report) } => {
            let known = snapshot.claims().get(&of.name).and_then(|claim| claim.status.consistent_state.as_ref());
            let found = &report.consistent_state;
            let is_new = !found.holds && known != Some(found);
            let regarding = claim(snapshot, &of.name).filter(|_| is_new);
            regarding.map(|of| Event::warning(of, "FailedConsistencyCheck", found.message.to_string()))
        }
        Command::RecordDeadline { claim: of, deadline } => {
            let text = format!("All pods will be deleted by {deadline:.0}");
            claim(snapshot, &of.name).map(|of| Event::warning(of, "TerminationGracePeriodExpiring", text))
        }
        Command::Terminate(terminate) => on_claim(&terminate.claim, "Terminating", format!("{about}: {why}")),
        Command::UpdateNode { node, update: NodeUpdate::Register { .. }, .. } => {
            snapshot.nodes().get(node).and_then(|node| taint_missing(node, snapshot))
        }
        Command::DeletePod { pod: key, uid, .. } => {
            Some(Event::normal(pod(key, uid), "Disrupted", format!("{about}: {why}")))
        }
        Command::SweepDelete(delete) => snapshot.sweeps().get(&delete.sweep).map(|sweep| {
            let kind = ("napkeeper.io/v1alpha1", "OrphanSweep");
            Event::normal(
                cluster_scoped(kind, sweep.name.as_str(), &sweep.uid),
                "Collecting",
                format!("{about}: {why}"),
            )
        }),
        Command::CreateClaim(draft) => return nominated(draft, why, snapshot),
        _ => None,
    };
    event.into_iter().collect()
}

/// Of an effect that is about to be performed.
pub(super) fn of_effect(effect: &Effect, snapshot: &Snapshot) -> Option<Event> {
    let Effect::Cluster(ClusterWrite::UpdateClaim(of, update)) = effect else { return None };
    let found = snapshot.claims().get(&of.name)?;
    let regarding = claim(snapshot, &of.name)?;
    match update {
        ClaimUpdate::Launched { .. } if !found.spec.replaces.is_empty() => {
            let text = "Waiting on readiness to continue disruption".to_owned();
            Some(Event::normal(regarding, "DisruptionWaitingReadiness", text))
        }
        ClaimUpdate::LaunchFailed(failure) => launch_failed(regarding, failure),
        _ => None,
    }
}

/// Of a command that has ended.
pub(super) fn of_ended(
    key: &CommandKey,
    planned: Option<&PlannedCommand>,
    report: &CommandReport,
    snapshot: &Snapshot,
) -> Vec<Event> {
    let command = planned.map_or("unknown", |planned| planned.command.name());
    let regarding = match key {
        CommandKey::Claim(name) | CommandKey::ClaimReport(name) | CommandKey::Drain(name) => claim(snapshot, name),
        CommandKey::Pod(key) => snapshot.pods().get(key).map(|found| pod(key, &found.uid)),
        _ => None,
    };
    let on = |reason, text| Some(Event::warning(regarding.clone()?, reason, text));
    let refused = report
        .launch_refusals
        .iter()
        .filter_map(|refusal| on("OfferingRefused", format!("Azure rejected {}: {}", refusal.offering, refusal.error)));
    let failed = report.error.as_ref().and_then(|error| on("Failed", format!("{command}: {error}; will retry")));
    let evicted = planned.filter(|_| report.error.is_none()).and_then(|planned| {
        let Command::Evict { pod: key, uid } = &planned.command else { return None };
        report.eviction.as_ref().filter(|answer| answer.refusal.is_none())?;
        Some(Event::normal(pod(key, uid), "Evicted", format!("Evicted pod: {}", planned.reason)))
    });
    refused.chain(failed).chain(evicted).collect()
}

/// Of pods that cannot be scheduled, on one of them.
pub(super) fn of_unschedulable(first: &Pod, reason: &str) -> Event {
    let text = format!("Failed to schedule pod, no NodePool can run it: {reason}");
    Event::warning(pod(&first.key, &first.uid), "FailedScheduling", text)
}

/// Of a drain that does not move, on its NodeClaim and its Node.
pub(super) fn of_blocked_drain(name: &NodeName, drain: &BlockedDrain, snapshot: &Snapshot) -> Vec<Event> {
    let node = snapshot.nodes().get(name).map(|node| on_node(name, node));
    let claim = drain.claim.as_ref().and_then(|name| claim(snapshot, name));
    let text = format!("Failed to drain node, {drain}");
    claim.into_iter().chain(node).map(|of| Event::warning(of, "FailedDraining", text.clone())).collect()
}

/// Of unhealthy nodes that are not repaired, on one of them.
pub(super) fn of_blocked_repair(first: &Node, text: String) -> Event {
    Event::warning(on_node(&first.name, first), "NodeRepairBlocked", text)
}

/// Of a NodePool none of whose instance types can be launched; `None` for any other reason why pods cannot be scheduled.
pub(super) fn of_unusable_pool(name: &NodePoolName, why: &UnschedulableReason, snapshot: &Snapshot) -> Option<Event> {
    let text = match why {
        UnschedulableReason::NoAvailableOffering => "",
        UnschedulableReason::MinValues { .. } => " due to minValues incompatibility",
        _ => return None,
    };
    let pool = snapshot.pools().get(name)?;
    let regarding = cluster_scoped(("karpenter.sh/v1", "NodePool"), name.as_str(), &pool.uid);
    let text = format!("NodePool requirements filtered out all compatible available instance types{text}");
    Some(Event::warning(regarding, "NoCompatibleInstanceTypes", text))
}

/// On the pods that a NodeClaim is created for.
fn nominated(draft: &ClaimDraft, why: &str, snapshot: &Snapshot) -> Vec<Event> {
    let pods = draft.pods.iter().take(MAX_POD_EVENTS).filter_map(|key| snapshot.pods().get(key));
    let text = format!("Pod should schedule on: nodeclaim/{}: {why}", draft.name);
    pods.map(|found| Event::normal(pod(&found.key, &found.uid), "Nominated", text.clone())).collect()
}

/// Why the nodes are disrupted that a NodeClaim replaces; `None` if it replaces none.
fn replaced_for(claim: &Claim, snapshot: &Snapshot) -> Option<DisruptionReason> {
    let mut sources = claim.spec.replaces.iter().filter_map(|name| snapshot.claims().get(name));
    sources.find_map(|source| source.status.disrupted)
}

/// A launch has failed for good.
fn launch_failed(regarding: Regarding, failure: &LaunchFailure) -> Option<Event> {
    let reason = if is_capacity(&failure.code) { "InsufficientCapacityError" } else { "AsyncProvisioningError" };
    let text = format!("NodeClaim {} event: {}: {}", regarding.name, failure.code, failure.message);
    (*failure.code != *STANDALONE).then(|| Event::warning(regarding, reason, text))
}

/// The volumes of a drained node are waited for, which was not known before.
fn volumes_awaited(claim: &Claim, conditions: &TerminationConditions, snapshot: &Snapshot) -> Option<Event> {
    let is_waiting = |all: &TerminationConditions| all.volumes_detached.as_ref().is_some_and(|one| one.holds.is_none());
    let node = snapshot.node_of(claim)?;
    let names = snapshot.attachments_of(&node.name).take(MAX_ATTACHMENTS).map(|one| one.name.to_string());
    let names: Vec<String> = names.collect();
    let text = format!("Awaiting deletion of bound volumeattachments ({})", names.join(", "));
    let event = Event::normal(on_node(&node.name, node), "AwaitingVolumeDetachment", text);
    (is_waiting(conditions) && !is_waiting(&claim.status.termination)).then_some(event)
}

/// A node has joined without the taint that keeps pods away until it is registered.
fn taint_missing(node: &Arc<Node>, snapshot: &Snapshot) -> Option<Event> {
    let name = &snapshot.claim_of(node)?.name;
    let is_missing = node.label(REGISTERED).is_none() && !node.is_tainted(TAINT_UNREGISTERED);
    let text = format!("Missing {TAINT_UNREGISTERED} taint which prevents registration related race conditions");
    let event = Event::warning(claim(snapshot, name)?, "UnregisteredTaintMissing", text);
    is_missing.then_some(event)
}

fn on_node(name: &NodeName, node: &Node) -> Regarding {
    cluster_scoped(("v1", "Node"), name.as_str(), &node.uid)
}

#[cfg(test)]
mod tests {
    use super::super::blocked::BlockedReporter;
    use super::super::fixtures::{at, claim, cluster, launch, node, offering, planned, pod};
    use super::*;
    use napkeeper_core::model::cluster::claim::TerminationCondition;
    use napkeeper_core::model::cluster::status::StatusCondition;
    use napkeeper_core::model::cluster::volume::Attachment;
    use napkeeper_core::model::names::{ClaimName, ObjectName};
    use napkeeper_core::plan::{ClaimReport, EvictionReport};
    use std::collections::BTreeSet;

    const DOCS: &str = include_str!("../../../docs/karpenter.md");

    fn deleted(name: &str, category: &'static str) -> Command {
        Command::delete_claim(claim(name).reference(), category)
    }

    fn update(name: &str, update: ClaimUpdate) -> Effect {
        Effect::Cluster(ClusterWrite::UpdateClaim(claim(name).reference(), update))
    }

    fn failure(code: &str) -> ClaimUpdate {
        ClaimUpdate::LaunchFailed(LaunchFailure { at: at(9), code: Arc::from(code), message: Arc::from("no") })
    }

    fn evicted(accepted: bool) -> (PlannedCommand, CommandReport) {
        let pod = pod("on-general-a");
        let refusal = (!accepted).then_some(napkeeper_core::model::errors::ClusterError::Budget { retry_after: 0 });
        let eviction = Some(Box::new(EvictionReport { pod: pod.uid.clone(), refusal, at: at(9) }));
        let command = Command::Evict { pod: pod.key, uid: pod.uid };
        (planned(command), CommandReport { eviction, ..CommandReport::default() })
    }

    fn awaiting_volumes() -> ClaimUpdate {
        let volumes_detached = Some(TerminationCondition::new(None, "AwaitingVolumeDetachment"));
        ClaimUpdate::Terminating(Box::new(TerminationConditions { volumes_detached, ..Default::default() }))
    }

    fn register(name: &str) -> Command {
        let node = node(&claim(name));
        let update = NodeUpdate::Register { labels: [].into(), annotations: [].into(), taints: Vec::new() };
        Command::UpdateNode { node: node.name, uid: node.uid, update }
    }

    fn inconsistent() -> ClaimReport {
        let consistent_state = StatusCondition::failing("ConsistencyCheckFailed", "expected 4 cores, found 2");
        ClaimReport { last_pod_event: None, consolidatable: false, consistent_state }
    }

    /// The commands that events tell of when they start.
    fn commands() -> Vec<Command> {
        let (of, pod) = (claim("general-a").reference(), pod("waiting"));
        let drifted = ClaimUpdate::Drifted { reason: Arc::from("NodePoolDrifted"), message: Arc::from("labels") };
        let draft = ClaimDraft {
            name: ClaimName::new("general-c").unwrap(),
            spec: claim("general-c").spec,
            reason: None,
            pods: vec![pod.key.clone()],
        };
        vec![
            launch("general-a"),
            launch("general-b"),
            deleted("general-a", "drifted"),
            deleted("general-a", "expired"),
            Command::UpdateClaim { claim: of.clone(), update: drifted },
            Command::UpdateClaim { claim: of.clone(), update: awaiting_volumes() },
            Command::UpdateClaim { claim: of.clone(), update: ClaimUpdate::Report(Box::new(inconsistent())) },
            Command::RecordDeadline { claim: of, deadline: at(600) },
            register("general-b"),
            Command::DeletePod { pod: pod.key, uid: pod.uid, grace: jiff::SignedDuration::ZERO },
            Command::CreateClaim(Box::new(draft)),
        ]
    }

    /// The reason, kind and text of events.
    fn told(events: impl IntoIterator<Item = Event>) -> Vec<(&'static str, &'static str, String)> {
        events.into_iter().map(|event| (event.reason, event.regarding.kind.1, event.text)).collect()
    }

    fn of_starts(snapshot: &Snapshot) -> Vec<(&'static str, &'static str, String)> {
        told(commands().into_iter().flat_map(|command| of_started(&planned(command), snapshot)))
    }

    /// A cluster in which a volume is attached to the node of `general-a`.
    fn with_volume() -> Snapshot {
        let mut snapshot = cluster();
        let name = ObjectName::new("csi-1").unwrap();
        let node = node(&claim("general-a")).name;
        snapshot.put_attachment(name.clone(), Attachment { name, volume: None, node });
        snapshot
    }

    /// The same, with a NodeClaim that has drifted and that nothing replaces.
    fn kept() -> Snapshot {
        let mut snapshot = with_volume();
        let mut kept = (**snapshot.claims().get(&claim("general-a").name).unwrap()).clone();
        kept.status.disrupted = None;
        let node = Node { do_not_disrupt: true, ..node(&kept) };
        snapshot.put_node(node);
        snapshot.put_claim(kept);
        snapshot
    }

    #[test]
    fn every_reason_that_the_docs_promise_is_emitted_on_that_object() {
        let snapshot = with_volume();
        let mut found = of_starts(&snapshot);
        let launched = ClaimUpdate::Launched {
            provider_id: claim("general-b").status.provider_id.unwrap(),
            offering: offering().key,
            capacity: Default::default(),
            allocatable: Default::default(),
            image: None,
        };
        let updates = [launched, failure("zonal_allocation_failed"), failure("image")];
        found.extend(told(updates.into_iter().filter_map(|one| of_effect(&update("general-b", one), &snapshot))));
        let (command, report) = evicted(true);
        found.extend(told(of_ended(&command.command.key(), Some(&command), &report, &snapshot)));
        let pool = claim("general-a").spec.pool.unwrap();
        let reasons = [UnschedulableReason::NoAvailableOffering, UnschedulableReason::TooLarge];
        found.extend(told(reasons.iter().filter_map(|why| of_unusable_pool(&pool, why, &snapshot))));
        found.extend(told([of_unschedulable(&pod("waiting"), "too large")]));
        found.extend(told([of_blocked_repair(&node(&claim("general-a")), "too many".to_owned())]));
        let drain = BlockedDrain {
            claim: Some(claim("general-a").name),
            pod: pod("on-general-a").key,
            reason: Arc::from("it has a budget"),
        };
        found.extend(told(of_blocked_drain(&node(&claim("general-a")).name, &drain, &snapshot)));
        let kept = kept();
        found.extend(told(BlockedReporter::default().news(&kept, at(100))));
        let found: BTreeSet<(&str, &str)> = found.iter().map(|(reason, kind, _)| (*reason, *kind)).collect();

        let table = DOCS.split_once("| reason | on | when |").unwrap().1.split_once("\n\n").unwrap().0;
        let rows = table.lines().filter(|row| row.starts_with("| `"));
        let promised: BTreeSet<(&str, &str)> = rows
            .flat_map(|row| {
                let cells: Vec<&str> = row.split('|').map(str::trim).collect();
                let reason = cells[1].trim_matches('`');
                cells[2].split(", ").map(move |kind| (reason, kind)).collect::<Vec<_>>()
            })
            .collect();
        let own = [("Launching", "NodeClaim"), ("Disrupting", "NodeClaim")].into();
        assert_eq!(found, promised.union(&own).copied().collect());
        for (reason, _) in &own {
            assert!(DOCS.contains(&format!("`{reason}` (")), "{reason} is told as napkeeper's own");
        }
    }

    #[test]
    fn an_event_begins_as_karpenters_and_says_why() {
        let text =
            |events: Vec<Event>| told(events).into_iter().next().map(|(reason, _, text)| format!("{reason}: {text}"));
        let snapshot = cluster();
        let started = |command: Command| text(of_started(&planned(command), &snapshot)).unwrap_or_default();
        let replacing = started(launch("general-b"));
        assert_eq!(replacing, "DisruptionLaunching: Launching NodeClaim: Drifted: so it is");
        assert_eq!(started(launch("general-a")), "Launching: general-a: so it is");
        let terminating = started(deleted("general-a", "underutilized"));
        assert_eq!(terminating, "DisruptionTerminating: Disrupting NodeClaim: Underutilized: so it is");
        assert_eq!(started(deleted("general-a", "unhealthy")), "Disrupting: general-a: so it is");
        assert_eq!(started(deleted("general-a", "launch_failed")), "", "its failure has been told");
    }

    #[test]
    fn what_is_not_new_or_not_so_is_no_event() {
        let snapshot = with_volume();
        let report = |snapshot: &Snapshot, report: ClaimReport| {
            let update = ClaimUpdate::Report(Box::new(report));
            of_started(&planned(Command::UpdateClaim { claim: claim("general-a").reference(), update }), snapshot)
        };
        let consistent = StatusCondition { holds: true, ..inconsistent().consistent_state };
        assert_eq!(report(&snapshot, ClaimReport { consistent_state: consistent, ..inconsistent() }), []);
        let mut told_before = claim("general-a");
        told_before.status.consistent_state = Some(inconsistent().consistent_state);
        let mut known = snapshot.clone();
        known.put_claim(told_before);
        assert_eq!(report(&known, ClaimReport { consolidatable: true, ..inconsistent() }), []);
        let (command, report) = evicted(false);
        assert_eq!(of_ended(&command.command.key(), Some(&command), &report, &snapshot), [], "refused by a budget");
        let of_volumes = Command::UpdateClaim { claim: claim("general-a").reference(), update: awaiting_volumes() };
        let mut known = snapshot.clone();
        let mut waiting = claim("general-a");
        waiting.status.termination.volumes_detached = Some(TerminationCondition::new(None, "AwaitingVolumeDetachment"));
        known.put_claim(waiting);
        assert_eq!(of_started(&planned(of_volumes.clone()), &known), []);
        let told_once = told(of_started(&planned(of_volumes), &snapshot));
        assert!(told_once[0].2.ends_with("(csi-1)"), "{told_once:?}");
        let mut tainted = snapshot.clone();
        let mut node = node(&claim("general-b"));
        node.taints = vec![napkeeper_core::model::cluster::pod::Taint {
            key: Arc::from(TAINT_UNREGISTERED),
            value: Arc::from(""),
            effect: napkeeper_core::model::cluster::pod::TaintEffect::NoExecute,
        }];
        tainted.put_node(node);
        assert_eq!(of_started(&planned(register("general-b")), &tainted), []);
        assert_eq!(of_effect(&update("general-b", failure(STANDALONE)), &snapshot), None, "its condition tells it");
    }

    /// What a reporter tells of a cluster so much later: the kind of the object, and the text.
    fn kept_by(reporter: &mut BlockedReporter, snapshot: &Snapshot, seconds: u64) -> Vec<(&'static str, String)> {
        reporter.pass(std::time::Duration::from_secs(seconds));
        told(reporter.news(snapshot, at(100))).into_iter().map(|(_, kind, text)| (kind, text)).collect()
    }

    /// The same cluster, whose node that has drifted is or is not ready and kept by its annotation.
    fn with_node(snapshot: &Snapshot, ready: bool, do_not_disrupt: bool) -> Snapshot {
        let mut changed = snapshot.clone();
        changed.put_node(Node { ready, do_not_disrupt, ..node(&claim("general-a")) });
        changed
    }

    #[test]
    fn what_keeps_a_node_is_told_once_and_again_when_it_changes() {
        let (mut reporter, snapshot) = (BlockedReporter::default(), kept());
        let mut news = |snapshot: &Snapshot, seconds| kept_by(&mut reporter, snapshot, seconds);
        let annotated =
            || ("NodeClaim", "Cannot disrupt Node: the node has the annotation karpenter.sh/do-not-disrupt".to_owned());
        let budget = "No allowed disruptions for disruption reason Drifted due to blocking budget".to_owned();
        assert_eq!(news(&snapshot, 0), [("NodePool", budget), annotated()]);
        assert_eq!(news(&snapshot, 300), []);
        let other = with_node(&snapshot, false, false);
        assert_eq!(news(&other, 5), [], "it is looked for every ten seconds");
        let not_ready = ("NodeClaim", "Cannot disrupt Node: the node is not ready".to_owned());
        assert_eq!(news(&other, 20), [not_ready], "more than two minutes later");
        assert_eq!(news(&snapshot, 20), [], "not so soon again");
        assert_eq!(news(&snapshot, 120), [annotated()], "the budget is as it was");
        let free = with_node(&snapshot, true, false);
        assert_eq!(news(&free, 20), []);
        assert_eq!(news(&snapshot, 20), [], "not so soon again, though nothing kept it for a while");
        assert_eq!(news(&other, 20), [], "nor if it is something else");
        assert_eq!(news(&free, 120), []);
        assert_eq!(news(&snapshot, 20), [annotated()]);
    }

    #[test]
    fn a_pause_is_told_once_for_a_nodepool() {
        let (mut reporter, mut snapshot) = (BlockedReporter::default(), kept());
        snapshot = with_node(&snapshot, true, false);
        snapshot.pause = napkeeper_core::model::settings::Pause::read([("disrupt", Some("true"))]).0;
        let text = "No allowed disruptions for disruption reason Drifted due to pause: disrupt".to_owned();
        assert_eq!(kept_by(&mut reporter, &snapshot, 0), [("NodePool", text)]);
        snapshot.pause = Default::default();
        assert_eq!(kept_by(&mut reporter, &snapshot, 20), [], "not so soon again");
        assert_eq!(kept_by(&mut reporter, &snapshot, 120).len(), 1, "the budget");
    }

    /// So many NodeClaims more that have drifted, whose nodes are kept or not.
    fn with_drifted(mut snapshot: Snapshot, names: impl Iterator<Item = usize>, kept: bool) -> Snapshot {
        for name in names {
            let mut drifted = claim(&format!("z-{name:03}"));
            drifted.status.drifted = claim_of(&snapshot, "general-a").status.drifted.clone();
            snapshot.put_node(Node { do_not_disrupt: kept, ..node(&drifted) });
            snapshot.put_claim(drifted);
        }
        snapshot
    }

    fn claim_of<'s>(snapshot: &'s Snapshot, name: &str) -> &'s Claim {
        snapshot.claims().get(&claim(name).name).unwrap()
    }

    #[test]
    fn what_keeps_many_nodes_is_told_of_a_few_at_a_time() {
        let (mut reporter, snapshot) = (BlockedReporter::default(), with_drifted(kept(), 0..50, true));
        let mut found: Vec<usize> = Vec::new();
        for _ in 0..5 {
            found.push(kept_by(&mut reporter, &snapshot, 10).len());
        }
        assert_eq!(found, [20, 20, 12, 0, 0], "51 NodeClaims and their NodePool");
    }

    #[test]
    fn of_many_nodes_only_some_are_examined_at_a_time() {
        let free = with_drifted(with_node(&kept(), true, false), 0..249, false);
        let (mut reporter, snapshot) = (BlockedReporter::default(), with_drifted(free, 249..250, true));
        let mut found: Vec<usize> = Vec::new();
        for _ in 0..6 {
            found.push(kept_by(&mut reporter, &snapshot, 10).len());
        }
        assert_eq!(found, [1, 0, 1, 0, 0, 0], "the NodePool, and the last of 251 NodeClaims");
    }
}
