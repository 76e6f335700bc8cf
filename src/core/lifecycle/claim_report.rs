//! Writes on NodeClaims what is to be seen of their initialized nodes: when their pods last changed, whether they may be
//! consolidated by `consolidateAfter`, and whether they have the resources that they were launched for.

use super::ClaimReconciler;
use crate::model::amounts::resources::{cpu, memory};
use crate::model::cluster::claim::Claim;
use crate::model::cluster::node::Node;
use crate::model::cluster::pod::{Pod, PodOwner};
use crate::model::cluster::status::StatusCondition;
use crate::model::support::hash::fnv1a;
use crate::model::support::write_times::WRITE_INTERVAL;
use crate::plan::{ClaimReport, ClaimUpdate, Command};
use crate::snapshot::{CommandKey, Snapshot};
use jiff::{SignedDuration, Timestamp};

/// How often a node is compared with what was launched, as in Karpenter.
const CONSISTENCY_INTERVAL: SignedDuration = SignedDuration::from_mins(10);
/// How long the event of a pod that could not be written waits at most: consolidation goes by it.
const EVENT_RETRY: SignedDuration = SignedDuration::from_mins(1);
/// What a node must have of each resource that its pods request, in thousandths of what its size should have, as in Karpenter.
const LEAST_PERMILLE: i128 = 900;

/// What was seen of a node. Disposable: if lost, it is compared again, and a change of its pods that is not written yet is not
/// recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ObservedNode {
    /// Its pods, as a hash.
    pods: u64,
    /// When they last changed, if they have.
    changed_at: Option<Timestamp>,
    /// When that was last written, or the node first seen.
    event_written_at: Timestamp,
    /// When it was last compared with what was launched.
    compared_at: Timestamp,
    /// With which result.
    consistent_state: StatusCondition,
}

impl ClaimReconciler<'_> {
    /// Has what is seen of a node written where its NodeClaim says something else. All of it is one write, at most once in a
    /// while; only a change of pods does not wait for what else was written, since consolidation goes by it.
    pub(super) fn report_node(&mut self, claim: &Claim, node: &Node) {
        let report = self.report_of(claim, node);
        let (name, now) = (&claim.name, self.now);
        if report.is_on(&claim.status) {
            return self.memory.reports.settled(name, now);
        }
        if self.snapshot.in_progress.contains(&CommandKey::ClaimReport(name.clone())) {
            return;
        }
        let observed =
            self.memory.observed.get_mut(name).filter(|_| report.last_pod_event != claim.status.last_pod_event);
        let written_at = observed.as_ref().map(|observed| observed.event_written_at);
        let event_due = written_at.map(|at| at + WRITE_INTERVAL);
        let event_retry = written_at.map(|at| at + EVENT_RETRY);
        let is_urgent = event_due.is_some_and(|due| due <= now);
        if event_retry.is_some_and(|due| due <= now) {
            self.memory.reports.forget(name);
        }
        match self.memory.reports.begin(name, report.clone(), is_urgent, now) {
            Ok(()) => {
                observed.into_iter().for_each(|observed| observed.event_written_at = now);
                let reason = changes(&report, claim);
                let update = ClaimUpdate::Report(Box::new(report));
                self.plan.push(Command::UpdateClaim { claim: claim.reference(), update }, reason);
            }
            Err(due) => {
                let events = [event_due, event_retry].into_iter().flatten().filter(|event| *event > now);
                self.plan.wake_at(events.fold(due, Timestamp::min));
            }
        }
    }

    fn report_of(&mut self, claim: &Claim, node: &Node) -> ClaimReport {
        let (pods, now) = (pods_hash(self.snapshot, node), self.now);
        let first = || ObservedNode {
            pods,
            changed_at: None,
            event_written_at: now,
            compared_at: now,
            consistent_state: consistent_state(claim, node),
        };
        let observed = self.memory.observed.entry(claim.name.clone()).or_insert_with(first);
        if observed.pods != pods {
            (observed.pods, observed.changed_at) = (pods, Some(now));
        }
        let state = consistent_state(claim, node);
        // The clock may have been set back since.
        if !(SignedDuration::ZERO..CONSISTENCY_INTERVAL).contains(&now.duration_since(observed.compared_at)) {
            (observed.compared_at, observed.consistent_state) = (now, state);
        } else if observed.consistent_state != state {
            self.plan.wake_at(observed.compared_at + CONSISTENCY_INTERVAL);
        }
        let last_pod_event = observed.changed_at.or(claim.status.last_pod_event);
        let consistent_state = observed.consistent_state.clone();
        let consolidatable = self.is_consolidatable(claim, last_pod_event);
        ClaimReport { last_pod_event, consolidatable, consistent_state }
    }

    /// Whether the pods of a node that last changed at this time have not changed for `consolidateAfter`. Of a NodePool that is
    /// not known nothing new is said.
    fn is_consolidatable(&mut self, claim: &Claim, last_pod_event: Option<Timestamp>) -> bool {
        let pool = claim.spec.pool.as_ref().and_then(|name| self.snapshot.pools().get(name));
        let Some(pool) = pool else { return claim.status.consolidatable };
        let quiet_since = claim.status.quiet_after(last_pod_event);
        let Some(from) = quiet_since.and_then(|since| pool.consolidatable_from(since)) else { return false };
        if from > self.now {
            self.plan.wake_at(from);
        }
        from <= self.now
    }
}

/// What a report says anew, for people.
fn changes(report: &ClaimReport, claim: &Claim) -> String {
    let status = &claim.status;
    let pods = report.last_pod_event != status.last_pod_event;
    let consolidation = match (report.consolidatable, status.consolidatable) {
        (true, false) => Some("consolidateAfter has passed"),
        (false, true) => Some("consolidateAfter has not passed"),
        _ => None,
    };
    let consistent_state = Some(&report.consistent_state).filter(|new| status.consistent_state.as_ref() != Some(new));
    let consistent_state = consistent_state.map(|new| match &*new.message {
        "" => "its node has the resources that it was launched for",
        message => message,
    });
    let pods = pods.then_some("pods came, ended or are leaving");
    pods.into_iter().chain(consolidation).chain(consistent_state).collect::<Vec<_>>().join("; ")
}

/// A hash of the pods of a node, and which of them are being deleted: it changes with every pod that is bound, ends or is
/// asked to, as `lastPodEventTime` does in Karpenter. Pods of DaemonSets and static pods belong to the node.
fn pods_hash(snapshot: &Snapshot, node: &Node) -> u64 {
    let belongs = |pod: &Pod| matches!(pod.owner, PodOwner::DaemonSet | PodOwner::Static);
    let pods = snapshot.pods_on(&node.name).filter(|pod| !belongs(pod));
    fnv1a(pods.flat_map(|pod| pod.uid.as_str().bytes().chain([u8::from(pod.deleting_at.is_some())])))
}

/// Whether a node has at least nine tenths of what its size should have of each resource that was requested of it.
fn consistent_state(claim: &Claim, node: &Node) -> StatusCondition {
    let (requests, expected, found) = (&claim.spec.requests, &claim.status.capacity, &node.capacity);
    let whole: fn(i64) -> String = |amount| amount.to_string();
    let extended = requests
        .extended
        .iter()
        .map(|(name, requested)| (&**name, *requested, [expected.extended(name), found.extended(name)], whole));
    let basic = [
        ("cpu", requests.cpu_millis, [expected.cpu_millis, found.cpu_millis], cpu as fn(i64) -> String),
        ("memory", requests.memory, [expected.memory, found.memory], memory),
        (
            "ephemeral-storage",
            requests.ephemeral_storage,
            [expected.ephemeral_storage, found.ephemeral_storage],
            memory,
        ),
        ("pods", requests.pods, [expected.pods, found.pods], whole),
    ];
    let issues: Vec<String> = basic
        .into_iter()
        .chain(extended)
        .filter(|(_, requested, [expected, _], _)| *requested > 0 && *expected > 0)
        .filter_map(|(name, _, [expected, found], text)| {
            let permille = i128::from(found) * 1000 / i128::from(expected);
            let (percent, tenths) = (permille / 10, permille % 10);
            let (expected, found) = (text(expected), text(found));
            let issue = || {
                format!("expected {expected} of resource {name}, but found {found} ({percent}.{tenths}% of expected)")
            };
            (permille < LEAST_PERMILLE).then(issue)
        })
        .collect();
    if issues.is_empty() {
        return StatusCondition::holding("ConsistentStateFound");
    }
    StatusCondition::failing("ConsistencyCheckFailed", &issues.join("; "))
}
