//! Metrics of what is done with NodeClaims and Nodes: creation, disruption, drains, and their end.

use super::summary::Summary;
use super::{Counters, Histograms, KnownClaim, Label, Registered};
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::model::cluster::claim::{Claim, ForcefulReason, TerminationConditions};
use napkeeper_core::model::cluster::pool::DisruptionReason;
use napkeeper_core::model::errors::ClusterError;
use napkeeper_core::model::names::{ClaimName, NodePoolName, Uid};
use napkeeper_core::model::settings::NodeSign;
use napkeeper_core::plan::{ClaimDraft, ClaimUpdate, ClusterWrite, Command, CommandReport, Effect, SignOnNode};
use napkeeper_core::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Where a NodeClaim is replaced whatever its node does, its pods' drain has this reason (Karpenter, `eviction.go`).
const FORCEFUL: &str = "Forceful Termination";

/// Metrics of what is done with NodeClaims and Nodes.
#[derive(Debug)]
pub(super) struct CommandMetrics {
    claims_created: Counters,
    claims_disrupted: Counters,
    claims_repaired: Counters,
    decisions: Counters,
    pool_decisions: Counters,
    failed_decisions: Counters,
    nodes_drained: Counters,
    pods_drained: Counters,
    evictions: Counters,
    claim_terminations: Histograms,
    instance_terminations: Histograms,
    node_lifetimes: Histograms,
    pub(super) node_terminations: Arc<Summary>,
    /// Of NodeClaims whose VM is being deleted: since when their Node has been terminating, and when it was created. It is
    /// deleted before the NodeClaim.
    nodes: BTreeMap<ClaimName, (Timestamp, Timestamp)>,
    /// NodeClaims whose finalizer is being removed, with what is observed once it is.
    leaving: BTreeMap<ClaimName, Leaving>,
    /// NodeClaims whose nodes have been counted as drained.
    drained: BTreeSet<ClaimName>,
    /// Why the nodes are drained of pods that are being evicted or deleted.
    asked: BTreeMap<Uid, &'static str>,
    /// NodeClaims whose replacement is being given up, and why they were to be replaced.
    given_up: BTreeMap<ClaimName, DisruptionReason>,
    /// Why NodeClaims are deleted, where they have no condition that tells it.
    reasons: BTreeMap<ClaimName, &'static str>,
}

/// What is observed of a NodeClaim that goes.
#[derive(Debug)]
struct Leaving {
    pool: Arc<str>,
    terminating_for: SignedDuration,
    /// Of its node: for how long it has been terminating, and its age.
    node: Option<(SignedDuration, SignedDuration)>,
}

impl CommandMetrics {
    pub(super) fn new(registered: &mut Registered<'_>) -> Self {
        let terminations = "The time from the deletion of a node, or of its NodeClaim, until it is gone";
        Self {
            claims_created: registered.counters("nodeclaims_created", "NodeClaims created"),
            claims_disrupted: registered
                .counters("nodeclaims_disrupted", "NodeClaims whose deletion has begun, by reason"),
            claims_repaired: registered
                .counters("nodeclaims_unhealthy_disrupted", "NodeClaims deleted because their node is unhealthy"),
            decisions: registered.counters("voluntary_disruption_decisions", "Disruptions that have begun"),
            pool_decisions: registered
                .counters("voluntary_disruption_decisions_by_nodepool", "Disruptions that have begun, by NodePool"),
            failed_decisions: registered
                .counters("voluntary_disruption_queue_failures", "Nodes whose replacement was given up"),
            nodes_drained: registered.counters("nodes_drained", "Nodes whose pods have left"),
            pods_drained: registered.counters("pods_drained", "Pods evicted or deleted from nodes, by reason"),
            evictions: registered.counters("pods_eviction_requests", "Evictions by the code of their answer"),
            claim_terminations: registered.terminations(
                "nodeclaims_termination_duration_seconds",
                "The time from the deletion of a NodeClaim until it is gone",
            ),
            instance_terminations: registered.terminations(
                "nodeclaims_instance_termination_duration_seconds",
                "The time that the deletion of the VM of a NodeClaim takes",
            ),
            node_lifetimes: registered.lifetimes("nodes_lifetime_duration_seconds", "Age of nodes when they go"),
            node_terminations: Arc::new(Summary::new("nodes_termination_duration_seconds", terminations)),
            nodes: BTreeMap::new(),
            leaving: BTreeMap::new(),
            drained: BTreeSet::new(),
            asked: BTreeMap::new(),
            given_up: BTreeMap::new(),
            reasons: BTreeMap::new(),
        }
    }

    /// What this replica knew as a leader is not so any more.
    pub(super) fn clear(&mut self) {
        self.nodes.clear();
        self.leaving.clear();
        self.drained.clear();
        self.reasons.clear();
    }

    /// The commands that were running are forgotten: none of them will end.
    pub(super) fn forget_running(&mut self) {
        self.asked.clear();
        self.given_up.clear();
        self.nodes.clear();
        self.leaving.clear();
    }

    /// Forgets NodeClaims that are gone, but for what the command that removes them still has to tell: the watch may be sooner than
    /// its end.
    pub(super) fn forget(&mut self, snapshot: &Snapshot) {
        let exists = |name: &ClaimName| snapshot.claims().get(name).is_some();
        self.drained.retain(exists);
        self.reasons.retain(|name, _| exists(name));
    }

    /// A command has started.
    pub(super) fn command_started(&mut self, command: &Command, snapshot: &Snapshot, now: Timestamp) {
        match command {
            Command::Terminate(terminate) => {
                let claim = snapshot.claims().get(&terminate.claim.name);
                if let Some((claim, node)) = claim.and_then(|claim| Some((claim, snapshot.node_of(claim)?))) {
                    let since = claim.deleting_at.into_iter().chain(node.deleting_at).min().unwrap_or(now);
                    self.nodes.insert(claim.name.clone(), (since, node.created_at));
                }
            }
            Command::UpdateClaim { claim, update: ClaimUpdate::NotDisrupted } => {
                if let Some(reason) = snapshot.claims().get(&claim.name).and_then(|claim| claim.status.disrupted) {
                    self.given_up.insert(claim.name.clone(), reason);
                }
            }
            Command::Evict { pod, uid } | Command::DeletePod { pod, uid, .. } => {
                let node = snapshot.pods().get(pod).and_then(|pod| snapshot.nodes().get(pod.node.as_ref()?));
                let claim = node.and_then(|node| snapshot.claim_of(node));
                self.asked.insert(uid.clone(), claim.map_or(FORCEFUL, |claim| self.drain_reason(claim)));
            }
            _ => {}
        }
    }

    /// An effect is about to be performed.
    pub(super) fn effect_started(&mut self, effect: &Effect, snapshot: &Snapshot, now: Timestamp) {
        if let Effect::Cluster(ClusterWrite::UpdateClaim(claim, ClaimUpdate::Terminating(conditions))) = effect {
            self.count_drained(&claim.name, conditions, snapshot);
        }
        let Effect::Cluster(ClusterWrite::RemoveFinalizer(reference)) = effect else { return };
        if let Some(claim) = snapshot.claims().get(&reference.name) {
            let since = claim.deleting_at.unwrap_or(now);
            let node = self.nodes.get(&claim.name);
            let leaving = Leaving {
                pool: pool_text(claim.spec.pool.as_ref()),
                terminating_for: now.duration_since(since),
                node: node.map(|(since, created)| (now.duration_since(*since), now.duration_since(*created))),
            };
            self.leaving.insert(claim.name.clone(), leaving);
        }
    }

    /// A command has ended, which took so long.
    pub(super) fn command_ended(
        &mut self,
        command: &Command,
        report: &CommandReport,
        snapshot: &Snapshot,
        took: Option<Duration>,
    ) {
        self.pod_left(command, report);
        if let Command::Terminate(terminate) = command {
            self.nodes.remove(&terminate.claim.name);
        }
        if report.error.is_some() {
            return;
        }
        match command {
            Command::CreateClaim(draft) => self.claim_created(draft, snapshot),
            Command::DeleteClaim { claim, category, only_if } => {
                if let Some(claim) = snapshot.claims().get(&claim.name) {
                    self.claim_deleted(claim, category, only_if.as_deref(), snapshot);
                }
            }
            Command::UpdateClaim { claim, update: ClaimUpdate::NotDisrupted } => {
                if let Some(reason) = self.given_up.remove(&claim.name) {
                    // As Karpenter has it, which gives both the same value.
                    let labels = of_decision("replace", reason.category(), "replace");
                    self.failed_decisions.get_or_create(&labels).inc();
                }
            }
            Command::Terminate(terminate) => self.claim_gone(&terminate.claim.name, took),
            Command::RemoveFinalizer { claim } => self.claim_gone(&claim.name, None),
            _ => {}
        }
    }

    /// A NodeClaim was created, for pods or to replace others.
    fn claim_created(&self, draft: &ClaimDraft, snapshot: &Snapshot) {
        let sources: Vec<&Arc<Claim>> =
            draft.spec.replaces.iter().filter_map(|name| snapshot.claims().get(name)).collect();
        let disrupted = draft.reason;
        let reason = disrupted.map_or("provisioned", |reason| reason_of(reason.category()));
        let pool = pool_text(draft.spec.pool.as_ref());
        let labels = [("reason", Arc::from(reason)), ("nodepool", pool), ("min_values_relaxed", Arc::from("false"))];
        self.claims_created.get_or_create(&labels.into()).inc();
        // One decision for all that are created together.
        let is_first = draft.spec.replaces_with.iter().all(|other| draft.name < *other);
        if let Some(reason) = disrupted.filter(|_| is_first) {
            let pools = sources.iter().filter_map(|claim| claim.spec.pool.as_ref()).collect();
            self.count_decision("replace", reason, sources.len(), pools);
        }
    }

    /// The deletion of a NodeClaim has begun.
    fn claim_deleted(
        &mut self,
        claim: &Arc<Claim>,
        category: &'static str,
        sign: Option<&SignOnNode>,
        snapshot: &Snapshot,
    ) {
        let KnownClaim { pool, capacity_type, .. } = KnownClaim::of(claim, snapshot);
        let of_claim = [("nodepool", pool), ("capacity_type", capacity_type)];
        let labels = of_claim.iter().cloned().chain([("reason", Arc::from(reason_of(category)))]).collect();
        self.claims_disrupted.get_or_create(&labels).inc();
        if let Some(sign) = sign.filter(|_| category == ForcefulReason::Unhealthy.category()) {
            let condition = match &sign.rule.sign {
                NodeSign::Condition { kind, .. } => snake_case(kind),
                NodeSign::Taint(key) => Arc::clone(key),
            };
            let more = [("condition", condition), ("image_id", claim.status.image.clone().unwrap_or_default())];
            self.claims_repaired.get_or_create(&of_claim.into_iter().chain(more).collect()).inc();
        }
        let Some(reason) = DisruptionReason::of_category(category) else { return };
        self.reasons.insert(claim.name.clone(), reason.as_str());
        let is_replaced = snapshot.claims().values().any(|other| other.spec.replaces.contains(&claim.name));
        if !is_replaced {
            self.count_decision("delete", reason, 1, claim.spec.pool.iter().collect());
        }
    }

    /// Counts a decision to disrupt so many nodes of these pools together.
    fn count_decision(
        &self,
        decision: &'static str,
        reason: DisruptionReason,
        nodes: usize,
        pools: BTreeSet<&NodePoolName>,
    ) {
        let kind = match reason {
            DisruptionReason::Empty => "empty",
            DisruptionReason::Underutilized if nodes > 1 => "multi",
            DisruptionReason::Underutilized => "single",
            DisruptionReason::Drifted | DisruptionReason::Expiring | DisruptionReason::NodePoolDeleted => "",
        };
        let labels = of_decision(decision, reason.category(), kind);
        self.decisions.get_or_create(&labels).inc();
        for pool in pools {
            let labels = labels.iter().cloned().chain([("nodepool", pool.text())]).collect();
            self.pool_decisions.get_or_create(&labels).inc();
        }
    }

    /// An eviction, or the deletion of a pod, was answered.
    fn pod_left(&mut self, command: &Command, report: &CommandReport) {
        let (Command::Evict { uid, .. } | Command::DeletePod { uid, .. }) = command else { return };
        let reason = self.asked.remove(uid).unwrap_or(FORCEFUL);
        let Some(answer) = &report.eviction else { return };
        if let (Command::Evict { .. }, Some(code)) = (command, code_of(answer.refusal)) {
            self.evictions.get_or_create(&vec![("code", Arc::from(code))]).inc();
        }
        if answer.refusal.is_none() {
            self.pods_drained.get_or_create(&vec![("reason", Arc::from(reason))]).inc();
        }
    }

    /// Why a node is drained.
    fn drain_reason(&self, claim: &Claim) -> &'static str {
        let disrupted = claim.status.disrupted.map(DisruptionReason::as_str);
        let told = disrupted.or_else(|| claim.status.forced.map(ForcefulReason::as_str));
        told.or_else(|| self.reasons.get(&claim.name).copied()).unwrap_or(FORCEFUL)
    }

    /// Counts the node of a NodeClaim once as drained, before the watch tells that it is.
    fn count_drained(&mut self, name: &ClaimName, conditions: &TerminationConditions, snapshot: &Snapshot) {
        let is_drained = |all: &TerminationConditions| all.drained.as_ref().is_some_and(|one| one.holds == Some(true));
        let Some(claim) = snapshot.claims().get(name) else { return };
        let is_news = is_drained(conditions) && !is_drained(&claim.status.termination);
        if is_news && self.drained.insert(name.clone()) {
            self.nodes_drained.get_or_create(&vec![("nodepool", pool_text(claim.spec.pool.as_ref()))]).inc();
        }
    }

    /// The finalizer of a NodeClaim was removed, by a command that took so long to delete its VM.
    fn claim_gone(&mut self, name: &ClaimName, took: Option<Duration>) {
        let Some(Leaving { pool, terminating_for, node }) = self.leaving.remove(name) else { return };
        let labels = vec![("nodepool", pool)];
        self.claim_terminations.get_or_create(&labels).observe(terminating_for.as_secs_f64());
        if let Some(took) = took {
            self.instance_terminations.get_or_create(&labels).observe(took.as_secs_f64());
        }
        if let Some((terminating_for, age)) = node {
            self.node_terminations.observe(&labels, terminating_for.as_secs_f64());
            self.node_lifetimes.get_or_create(&labels).observe(age.as_secs_f64());
        }
    }
}

fn of_decision(decision: &'static str, reason: &'static str, kind: &'static str) -> Vec<Label> {
    [("decision", decision), ("reason", reason), ("consolidation_type", kind)].map(|(k, v)| (k, Arc::from(v))).into()
}

pub(super) fn pool_text(pool: Option<&NodePoolName>) -> Arc<str> {
    pool.map(NodePoolName::text).unwrap_or_default()
}

/// The HTTP status of an answer to an eviction; `None` where there was none.
fn code_of(refusal: Option<ClusterError>) -> Option<&'static str> {
    match refusal {
        None => Some("200"),
        Some(ClusterError::Budget { .. } | ClusterError::Overloaded { .. }) => Some("429"),
        Some(ClusterError::SeveralBudgets) => Some("500"),
        Some(ClusterError::Conflict) => Some("409"),
        Some(ClusterError::NotFound) => Some("404"),
        Some(ClusterError::Forbidden | ClusterError::Denied) => Some("403"),
        Some(ClusterError::NamesExhausted | ClusterError::Unavailable | ClusterError::NotLeader) => None,
    }
}

/// Karpenter's word for a reason, where it has one.
fn reason_of(category: &'static str) -> &'static str {
    match category {
        "expiring" => "expired",
        "launch_failed" => "insufficient_capacity",
        "node_deleted" => "garbage_collected",
        other => other,
    }
}

/// As Karpenter spells the types of conditions (`pkg/utils/pretty/pretty.go`, `ToSnakeCase`): a word begins at a capital after a
/// small letter or a digit, and at the last of several capitals if a small letter follows.
fn snake_case(kind: &str) -> Arc<str> {
    let (mut text, mut before) = (String::new(), None);
    let mut rest = kind.chars().peekable();
    while let Some(c) = rest.next() {
        let follows = before.is_some_and(|before: char| before.is_ascii_lowercase() || before.is_ascii_digit());
        let begins = rest.peek().is_some_and(char::is_ascii_lowercase);
        if c.is_ascii_uppercase() && before.is_some() && (follows || begins) {
            text.push('_');
        }
        text.push(c.to_ascii_lowercase());
        before = Some(c);
    }
    Arc::from(text)
}

#[cfg(test)]
mod tests {
    use super::snake_case;

    #[test]
    fn types_of_conditions_are_spelt_as_karpenter_does() {
        for (kind, spelt) in [
            ("Ready", "ready"),
            ("VMEventScheduled", "vm_event_scheduled"),
            ("PIDPressure", "pid_pressure"),
            ("FilesystemCorruptionProblem", "filesystem_corruption_problem"),
            ("GPU2Broken", "gpu2_broken"),
            ("NVMe", "nv_me"),
            ("DiskIO", "disk_io"),
        ] {
            assert_eq!(&*snake_case(kind), spelt);
        }
    }
}
