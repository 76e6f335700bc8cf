//! Provisioning: schedules pending pods in batches, and creates NodeClaims for them.
//!
//! Pods are gathered in a batch window; then [`schedule_with_cost`] places them.

mod batch_window;
pub mod capacity_buffers;
mod drafts;
mod pass_selection;
mod waiting_pods;

use self::batch_window::BatchWindow;
use self::capacity_buffers::{BufferPlacement, buffer_chunks, buffer_placements};
use self::pass_selection::{PassSelection, Turns, running_pods, select_pods};
use crate::catalog::live::STALE_AFTER;
use crate::model::cluster::pod::Pod;
use crate::model::names::{ClaimName, NodeName, NodePoolName, ObjectKey, Uid};
use crate::model::settings::{ControllerMode, Settings};
use crate::plan::{Command, Plan};
use crate::scheduling::{
    Input, MAX_NEW_NODES, NewNode, NoReservation, OfferingsCache, PlanCost, PodPlacement, SchedulingResult, Target,
    UnavailableOfferings, UnschedulableReason, schedule_with_cost,
};
use crate::snapshot::{CommandKey, Snapshot};
pub(crate) use drafts::{CLAIM_SUFFIX_LENGTH, claim_draft};
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
pub(crate) use waiting_pods::pods_to_schedule;

/// How long a node that pods were placed on counts as wanted, twice the longest batch as in Karpenter.
pub(crate) const NOMINATION_PERIOD: SignedDuration = SignedDuration::from_secs(20);
/// Unschedulable pods are tried again after this time, if anything relevant has changed.
const UNPLACED_RETRY: SignedDuration = SignedDuration::from_secs(10);

/// Memory of provisioning. All of it is disposable: after a crash the batch window restarts, and the pods of a lost
/// pass fit the claims that it created, which are in flight.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProvisionMemory {
    batch_window: BatchWindow,
    last_pass: Option<LastPass>,
    turns: Turns,
    /// How many waiting pods were too many for the passes so far.
    pub deferred: usize,
    /// Nodes and claims that are nominated for pods, and until when.
    pub nominated: BTreeMap<Target, Timestamp>,
    /// The NodeClaims in flight that waiting pods were planned for. Lost: pods are planned again, and may be planned
    /// for each other's claims, at the worst for one claim more.
    claim_of_pod: BTreeMap<ObjectKey, ClaimName>,
    /// Pods of nodes that are being removed for which the last pass found room on nodes in use. If lost, it is found again.
    with_room: BTreeSet<Uid>,
    /// Placements of the chunks of each CapacityBuffer in the last pass.
    pub buffer_statuses: BTreeMap<ObjectKey, BufferPlacement>,
    /// Unschedulable pods of the last pass that each was in, with the reasons.
    pub unplaced: Vec<crate::scheduling::UnschedulablePods>,
    /// Some pod or chunk was unschedulable because of quota, addresses or reservations.
    blocked_by_azure_counts: bool,
    /// Offerings that Azure has recently refused.
    pub unavailable: UnavailableOfferings,
    /// The offerings of the last pass.
    offerings: OfferingsCache,
    /// Price of the nodes of all passes when they were planned, and its lower bound. If lost, it is counted again.
    pub planned_cost: PlanCost,
}

/// The last pass, and the state in which all waiting pods have been tried: without changes there is nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LastPass {
    at: Timestamp,
    /// When the first pass of that state was.
    since: Timestamp,
    state: StateGenerations,
}

/// Generations of all that a placement depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StateGenerations([u64; 12]);

impl StateGenerations {
    pub(crate) fn of(snapshot: &Snapshot, unavailable: &UnavailableOfferings) -> Self {
        Self([
            snapshot.pods().generation(),
            snapshot.nodes().generation(),
            snapshot.claims().generation(),
            snapshot.pools().generation(),
            snapshot.classes().generation(),
            snapshot.daemon_sets().generation(),
            snapshot.disruption_budgets().generation(),
            unavailable.generation(),
            snapshot.facts_generation(),
            snapshot.needs_generation(),
            snapshot.buffers().generation(),
            snapshot.pool_holds_hash(),
        ])
    }
}

/// Decides which NodeClaims to create now.
pub fn provision(
    snapshot: &Snapshot,
    memory: &mut ProvisionMemory,
    settings: &Settings,
    now: Timestamp,
    seed: u64,
) -> Plan {
    let mut plan = Plan::default();
    if settings.mode == ControllerMode::Companion || snapshot.holds_launches(now) {
        // No pass looks for it.
        memory.with_room.clear();
        return plan;
    }
    memory.unavailable.expire(now);
    // Later ones are from before the clock was set back.
    memory.nominated.retain(|_, until| *until > now && *until <= now + NOMINATION_PERIOD);
    let pods: Vec<Arc<Pod>> = pods_to_schedule(snapshot, now).into_iter().chain(buffer_chunks(snapshot)).collect();
    if pods.is_empty() {
        memory.forget_pods();
        return plan;
    }
    memory.forget_room(&pods);
    let window_end = memory.batch_window.closes_at(&pods, settings, now);
    match memory.pass_due(window_end, snapshot, settings, now) {
        Some(at) if at <= now => {}
        Some(at) => {
            plan.wake_at(at);
            return plan;
        }
        None => return plan,
    }
    if has_unobserved_claims(snapshot) {
        plan.wake_at(now + settings.batch_idle_duration);
        return plan;
    }
    let available_offerings =
        memory.offerings.get(snapshot, &memory.unavailable, now).with_min_values(settings.min_values_policy);
    let input = Input {
        snapshot,
        available: &available_offerings,
        excluded_nodes: &BTreeSet::new(),
        max_new_nodes: MAX_NEW_NODES,
        claim_of_pod: &memory.claim_of_pod,
    };
    let selection = memory.select_pods(snapshot, &pods);
    let (outcome, cost) = schedule_with_cost(input, &selection.pods);
    let had_room = memory.with_room.clone();
    memory.planned_cost = memory.planned_cost.plus(cost);
    memory.record_pass(snapshot, &outcome, &Pass { waiting: &pods, selection, retries_all: window_end.is_none() }, now);
    for at in memory.next_passes(&had_room, settings, now) {
        plan.wake_at(at);
    }
    let mut tried: BTreeSet<NodePoolName> = BTreeSet::new();
    for (i, node) in outcome.new_nodes.into_iter().enumerate() {
        // The pods of the others are placed again once it is known whether the one comes up.
        if snapshot.tries_one_node(&node.pool) && !tried.insert(node.pool.clone()) {
            continue;
        }
        let reason = launch_reason(&node);
        if let Some(draft) = claim_draft(snapshot, node, seed, now, i) {
            memory.nominated.insert(Target::Claim(draft.name.clone()), now + NOMINATION_PERIOD);
            memory.claim_of_pod.extend(draft.pods.iter().map(|pod| (pod.clone(), draft.name.clone())));
            plan.push(Command::CreateClaim(Box::new(draft)), reason);
        }
    }
    plan
}

/// A NodeClaim is being created, and not yet to be seen: its pods would be paid for twice.
pub(crate) fn has_unobserved_claims(snapshot: &Snapshot) -> bool {
    let unseen = |key: &CommandKey| matches!(key, CommandKey::Claim(name) if snapshot.claims().get(name).is_none());
    snapshot.in_progress.iter().any(unseen)
}

/// A pass that has been made.
struct Pass<'a> {
    waiting: &'a [Arc<Pod>],
    selection: PassSelection,
    /// No pod is new: all are tried again.
    retries_all: bool,
}

impl ProvisionMemory {
    /// The NodeClaims in flight that pods were planned for.
    pub(crate) fn claim_of_pod(&self) -> &BTreeMap<ObjectKey, ClaimName> {
        &self.claim_of_pod
    }

    /// Pods of nodes that are being removed for which the last pass found room on nodes in use. All others wait for a new node, or
    /// cannot be scheduled.
    pub(crate) fn with_room(&self) -> &BTreeSet<Uid> {
        &self.with_room
    }

    /// The NodeClaims that were created for pods that still wait for them: those of nodes that are being removed leave when they
    /// may. If lost, an empty one may be deleted once, and launched again.
    pub(crate) fn awaited_claims(&self, snapshot: &Snapshot) -> BTreeSet<ClaimName> {
        let waits = |pod: &ObjectKey| {
            let Some(pod) = snapshot.pods().get(pod) else { return false };
            let Some(node) = &pod.node else { return true };
            let claim = snapshot.nodes().get(node).and_then(|node| snapshot.claim_of(node));
            claim.is_some_and(|claim| claim.deleting_at.is_some())
        };
        self.claim_of_pod.iter().filter(|(pod, _)| waits(pod)).map(|(_, claim)| claim.clone()).collect()
    }

    /// True when a claim or its node is nominated for pending pods.
    pub(crate) fn is_nominated(&self, claim: &ClaimName, node: Option<&NodeName>, now: Timestamp) -> bool {
        let node = node.map(|node| Target::Node(node.clone()));
        let mut targets = node.into_iter().chain([Target::Claim(claim.clone())]);
        targets.any(|target| self.nominated.get(&target).is_some_and(|until| *until > now))
    }

    /// When the next nomination ends.
    pub(crate) fn next_nomination_end(&self, now: Timestamp) -> Option<Timestamp> {
        self.nominated.values().copied().filter(|until| *until > now).min()
    }

    /// No pods wait.
    fn forget_pods(&mut self) {
        self.batch_window = BatchWindow::default();
        self.turns = Turns::default();
        self.unplaced.clear();
        self.with_room.clear();
        self.deferred = 0;
        self.buffer_statuses.clear();
    }

    /// When to decide again after a pass: at once where pods that are held back have found room, and soon where pods were left
    /// out or are unschedulable.
    fn next_passes(&self, had_room: &BTreeSet<Uid>, settings: &Settings, now: Timestamp) -> Vec<Timestamp> {
        let is_new = !self.with_room.is_subset(had_room);
        let is_unplaced = !self.unplaced.is_empty() || self.buffer_statuses.values().any(|buffer| buffer.unplaced > 0);
        let times = [
            (is_new, now),
            (self.deferred > 0, now + settings.batch_idle_duration),
            (is_unplaced, now + UNPLACED_RETRY),
        ];
        times.into_iter().filter(|(is_due, _)| *is_due).map(|(_, at)| at).collect()
    }

    /// Forgets the room of pods that wait no longer.
    fn forget_room(&mut self, waiting: &[Arc<Pod>]) {
        if !self.with_room.is_empty() {
            let waiting: BTreeSet<&Uid> = waiting.iter().map(|pod| &pod.uid).collect();
            self.with_room.retain(|pod| waiting.contains(pod));
        }
    }

    /// Waiting pods that may take capacity of existing nodes: all but those that are known to be unschedulable.
    pub(crate) fn placeable_pods(&self, snapshot: &Snapshot, now: Timestamp) -> Vec<Arc<Pod>> {
        let unplaced: BTreeSet<&ObjectKey> = self.unplaced.iter().flat_map(|u| &u.pods).map(|pod| &pod.key).collect();
        let mut pods = pods_to_schedule(snapshot, now);
        pods.retain(|pod| !unplaced.contains(&pod.key));
        self.select_pods(snapshot, &pods).pods
    }

    fn select_pods(&self, snapshot: &Snapshot, pods: &[Arc<Pod>]) -> PassSelection {
        let is_planned = |pod: &Pod| {
            let claim = self.claim_of_pod.get(&pod.key).and_then(|claim| snapshot.claims().get(claim));
            // Not a later pod of the same name.
            claim.is_some_and(|claim| claim.is_in_flight()) && self.batch_window.has_considered(pod)
        };
        select_pods(pods, running_pods(snapshot), &self.turns, is_planned)
    }

    /// When the next pass is due: at the end of the batch window, and soon after a pass that left pods out.
    fn pass_due(
        &self,
        window_end: Option<Timestamp>,
        snapshot: &Snapshot,
        settings: &Settings,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let Some(window_end) = window_end else { return self.retry_at(snapshot, now) };
        let last = self.last_pass.filter(|_| self.deferred > 0);
        Some(last.map_or(window_end, |last| last.at + settings.batch_idle_duration))
    }

    /// When unschedulable pods are tried again; `None` while nothing relevant has changed.
    fn retry_at(&self, snapshot: &Snapshot, now: Timestamp) -> Option<Timestamp> {
        let Some(LastPass { at, since, state }) = self.last_pass else { return Some(now) };
        let changed = state != StateGenerations::of(snapshot, &self.unavailable);
        if changed || self.azure_counts_updated(snapshot, since) {
            return Some(at + UNPLACED_RETRY);
        }
        // A pass with stale counts need not be repeated.
        let too_old = self.azure_counts_stale_at(snapshot).filter(|due| *due > since);
        [self.unavailable.next_expiry(), too_old].into_iter().flatten().min()
    }

    /// True when Azure's counts were read again since a pass that found pods unschedulable because of them: even the
    /// same numbers may now include launches that were counted separately.
    fn azure_counts_updated(&self, snapshot: &Snapshot, than: Timestamp) -> bool {
        self.blocked_by_azure_counts && azure_counts_as_of(snapshot).is_some_and(|at| at > than)
    }

    /// When Azure's counts are stale and no longer limit launches.
    fn azure_counts_stale_at(&self, snapshot: &Snapshot) -> Option<Timestamp> {
        let old = azure_counts_as_of(snapshot).filter(|_| self.blocked_by_azure_counts)?;
        old.checked_add(STALE_AFTER + SignedDuration::from_secs(1)).ok()
    }

    fn record_pass(&mut self, snapshot: &Snapshot, outcome: &SchedulingResult, pass: &Pass<'_>, now: Timestamp) {
        let Pass { waiting, selection, retries_all } = pass;
        let PassSelection { pods, deferred, .. } = selection;
        self.batch_window.close(pods, *retries_all);
        self.turns.record(selection);
        let is_left_out = |pod: &&Arc<Pod>| deferred.contains(&pod.uid) && !self.batch_window.has_considered(pod);
        self.deferred = waiting.iter().filter(is_left_out).count();
        let waiting: BTreeSet<&ObjectKey> = waiting.iter().map(|p| &p.key).collect();
        self.claim_of_pod.retain(|pod, claim| snapshot.claims().get(claim).is_some() && waiting.contains(pod));
        let fresh = || LastPass { at: now, since: now, state: StateGenerations::of(snapshot, &self.unavailable) };
        let before = self.last_pass.filter(|_| !deferred.is_empty() && !retries_all);
        self.last_pass = Some(before.map_or_else(fresh, |before| LastPass { at: now, ..before }));
        self.buffer_statuses = buffer_placements(snapshot, outcome);
        self.unplaced.iter_mut().for_each(|group| group.pods.retain(|pod| deferred.contains(&pod.uid)));
        self.unplaced.extend(outcome.unschedulable.iter().cloned());
        let mut reasons = self.unplaced.iter().filter(|group| !group.pods.is_empty()).flat_map(|group| &group.reasons);
        self.blocked_by_azure_counts = reasons.any(|(_, reason)| depends_on_azure_counts(reason));
        self.unplaced.iter_mut().for_each(|group| group.pods.retain(|pod| !pod.is_chunk()));
        self.unplaced.retain(|group| !group.pods.is_empty());
        // Chunks nominate no node: disruption checks their capacity when a node is to be deleted.
        let chunks: BTreeSet<&ObjectKey> = pods.iter().filter(|pod| pod.is_chunk()).map(|pod| &pod.key).collect();
        let bound: BTreeMap<&ObjectKey, &Uid> =
            pods.iter().filter(|pod| pod.node.is_some()).map(|pod| (&pod.key, &pod.uid)).collect();
        for uid in bound.values() {
            self.with_room.remove(*uid);
        }
        let placed = outcome.placements.iter().filter(|placement| !chunks.contains(&placement.pod));
        for PodPlacement { pod, target } in placed.filter(|placement| !matches!(placement.target, Target::New(_))) {
            let until = self.nominated.entry(target.clone()).or_insert(now);
            *until = (*until).max(now + NOMINATION_PERIOD);
            if let (Target::Node(_), Some(uid)) = (target, bound.get(pod)) {
                self.with_room.insert((*uid).clone());
            }
            // The next pass has other pods: it must not take the capacity that these were placed on.
            if let Target::Claim(claim) = target
                && !deferred.is_empty()
            {
                self.claim_of_pod.insert(pod.clone(), claim.clone());
            }
        }
    }
}

/// True for a reason that newer counts of Azure may resolve.
fn depends_on_azure_counts(reason: &UnschedulableReason) -> bool {
    // A missing group, or one without such sizes, does not depend on counts.
    let unknown = matches!(reason, UnschedulableReason::NoReservation(NoReservation::Unknown(_)));
    unknown
        || matches!(
            reason,
            UnschedulableReason::QuotaExceeded(_)
                | UnschedulableReason::SubnetFull(_)
                | UnschedulableReason::ReservationUsedUp(_)
        )
}

/// When Azure's counts were last read: cores, addresses or reservations.
fn azure_counts_as_of(snapshot: &Snapshot) -> Option<Timestamp> {
    let quota = snapshot.quota.as_ref().map(|quota| quota.as_of);
    let subnets = snapshot.infrastructure.subnets.as_ref().map(|fact| fact.as_of);
    let reservations = snapshot.infrastructure.reservations.as_ref().map(|fact| fact.as_of);
    quota.into_iter().chain(subnets).chain(reservations).max()
}

fn launch_reason(node: &NewNode) -> String {
    let chunks = node.pods.iter().filter(|pod| pod.is_chunk()).count();
    let counted = |count: usize, noun: &str, of: &str| {
        let s = if count == 1 { "" } else { "s" };
        (count > 0).then(|| format!("{count} {noun}{s}{of}"))
    };
    let parts = [counted(node.pods.len() - chunks, "pending pod", ""), counted(chunks, "chunk", " of CapacityBuffers")];
    let pods = parts.into_iter().flatten().collect::<Vec<_>>().join(" and ");
    match node.offerings.first() {
        Some(best) => format!("{pods}; cheapest of {} offerings: {}", node.offerings.len(), best.key),
        None => pods,
    }
}

#[cfg(test)]
mod tests;
