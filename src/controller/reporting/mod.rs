//! Writes the log, events and metrics of the controller.
//!
//! A decision is an event on the object that it concerns; so is a failure, with a way to fix it if one is known.

mod blocked;
mod events;
#[cfg(test)]
mod fixtures;
mod karpenter;
mod nodepools;
mod pause;
mod repairs;
mod sweeps;

use blocked::BlockedReporter;
use jiff::Timestamp;
pub(crate) use karpenter::KarpenterMetrics;
use napkeeper_core::engine::decide::Memory;
use napkeeper_core::engine::decision::DecisionKind;
use napkeeper_core::lifecycle::{BlockedDrain, NodeOutage};
use napkeeper_core::model::cluster::launch_hold::LaunchHold;
use napkeeper_core::model::cluster::pool::DisruptionReason;
use napkeeper_core::model::errors::EffectError;
use napkeeper_core::model::names::{ClaimName, NodeName, ObjectKey, Uid};
use napkeeper_core::plan::{Command, CommandReport, Effect, PlannedCommand};
use napkeeper_core::scheduling::UnschedulablePods;
use napkeeper_core::snapshot::{CommandKey, Snapshot};
use napkeeper_kube::{ClockSkew, Events, Regarding};
use napkeeper_serve::prometheus_client::metrics::counter::Counter;
use napkeeper_serve::prometheus_client::metrics::family::Family;
use napkeeper_serve::prometheus_client::metrics::gauge::Gauge;
use napkeeper_serve::prometheus_client::metrics::histogram::Histogram;
use napkeeper_serve::prometheus_client::registry::Registry;
use nodepools::PoolReporter;
use pause::PauseReporter;
use repairs::RepairReporter;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use sweeps::{EndedDeletion, SweepReporter};

/// Writes the log, events and metrics of the controller.
#[derive(Debug)]
pub(super) struct Reporter {
    events: Events,
    commands: Family<Labels<2>, Counter>,
    failures: Family<Labels<1>, Counter>,
    effects: Family<Labels<1>, Counter>,
    decision_seconds: Family<Labels<1>, Histogram, fn() -> Histogram>,
    unschedulable_pods: Gauge,
    deferred_pods: Gauge,
    missing_nodes: Gauge,
    unreadable_sweeps: Gauge,
    claims: Gauge,
    nodes: Gauge,
    node_outage: Gauge,
    launch_hold: Gauge,
    blocked_drains: Gauge,
    clock_skew: Gauge,
    skew: ClockSkew,
    /// Problems that have been reported: unschedulable pods, missing nodes, conflicts of NodeOverlays.
    reported: BTreeSet<String>,
    karpenter: Option<KarpenterMetrics>,
    blocked: BlockedReporter,
    pools: PoolReporter,
    repairs: RepairReporter,
    sweeps: SweepReporter,
    pause: PauseReporter,
}

/// Upper bounds of the buckets of decisions' durations, in seconds.
const DECISION_BUCKETS: [f64; 11] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0];

/// Labels of a metric.
type Labels<const N: usize> = [(&'static str, &'static str); N];

impl Reporter {
    /// With Karpenter's metrics, if they are exported.
    pub(super) fn new(
        events: Events,
        registry: &mut Registry,
        skew: ClockSkew,
        karpenter: Option<KarpenterMetrics>,
    ) -> Self {
        let reporter = Self {
            events,
            commands: Family::default(),
            failures: Family::default(),
            effects: Family::default(),
            decision_seconds: Family::new_with_constructor(|| Histogram::new(DECISION_BUCKETS)),
            unschedulable_pods: Gauge::default(),
            deferred_pods: Gauge::default(),
            missing_nodes: Gauge::default(),
            unreadable_sweeps: Gauge::default(),
            claims: Gauge::default(),
            nodes: Gauge::default(),
            node_outage: Gauge::default(),
            launch_hold: Gauge::default(),
            blocked_drains: Gauge::default(),
            clock_skew: Gauge::default(),
            skew,
            reported: BTreeSet::new(),
            karpenter,
            blocked: BlockedReporter::default(),
            pools: PoolReporter::new(registry),
            repairs: RepairReporter::new(registry),
            sweeps: SweepReporter::new(registry),
            pause: PauseReporter::new(registry),
        };
        registry.register("commands", "Commands finished, by outcome", reporter.commands.clone());
        registry.register("failures", "Effects that failed, by category", reporter.failures.clone());
        registry.register("effects", "Effects performed", reporter.effects.clone());
        registry.register("decision_seconds", "Duration of decisions in seconds", reporter.decision_seconds.clone());
        registry.register("unplaced_pods", "Pods that cannot be scheduled", reporter.unschedulable_pods.clone());
        let deferred = "Pods that were too many for the scheduling passes so far";
        registry.register("deferred_pods", deferred, reporter.deferred_pods.clone());
        let missing = "Nodes missing from static NodePools";
        registry.register("missing_nodes", missing, reporter.missing_nodes.clone());
        let unreadable = "OrphanSweeps that cannot be read: while there is one, nothing is swept";
        registry.register("unreadable_sweeps", unreadable, reporter.unreadable_sweeps.clone());
        registry.register("nodeclaims", "NodeClaims", reporter.claims.clone());
        registry.register("nodes", "Nodes", reporter.nodes.clone());
        let outage = "1 while so many nodes are not ready that nothing is terminated, disrupted or expired";
        registry.register("node_outage", outage, reporter.node_outage.clone());
        let held = "1 while nothing may be launched in this cluster, whatever the pause switch says";
        registry.register("launch_hold", held, reporter.launch_hold.clone());
        let blocked = "Nodes whose drain has not moved for 30 s";
        registry.register("blocked_drains", blocked, reporter.blocked_drains.clone());
        let skew = "Seconds by which this clock is ahead of the API server's; nothing is launched or deleted beyond 60";
        registry.register("clock_skew_seconds", skew, reporter.clock_skew.clone());
        reporter
    }

    /// What this replica knew as a leader is not so any more: another one reports it now.
    pub(super) fn leadership_changed(&mut self) {
        let all = [
            &self.unschedulable_pods,
            &self.deferred_pods,
            &self.missing_nodes,
            &self.unreadable_sweeps,
            &self.claims,
            &self.nodes,
            &self.node_outage,
            &self.launch_hold,
            &self.blocked_drains,
        ];
        for gauge in all {
            gauge.set(0);
        }
        self.pause.clear();
        self.reported.clear();
        self.blocked.clear();
        self.pools.clear();
        self.repairs.clear();
        self.karpenter.iter_mut().for_each(KarpenterMetrics::clear);
        self.sweeps.clear();
    }

    /// False while times cannot be compared with those of the API server: then nothing is decided.
    pub(super) fn clock_is_right(&self) -> bool {
        self.skew.is_tolerable()
    }

    /// How far the clock is wrong, which is known without decisions.
    pub(super) fn report_clock(&self) {
        self.clock_skew.set(self.skew.seconds());
    }

    /// A decision was made.
    pub(super) fn decision_made(&self, kind: DecisionKind, took: Duration) {
        let decider = match kind {
            DecisionKind::Reconciliation => "reconciliation",
            DecisionKind::Disruption => "disruption",
        };
        self.decision_seconds.get_or_create(&[("decider", decider)]).observe(took.as_secs_f64());
        self.karpenter.iter().for_each(|metrics| metrics.decision_made(kind, took));
    }

    /// Reports how many nodes could be disrupted for each reason.
    pub(super) fn report_eligible(&self, eligible: &BTreeMap<DisruptionReason, usize>) {
        self.karpenter.iter().for_each(|metrics| metrics.observe_eligible(eligible));
    }

    /// Reports unschedulable pods, nodes missing from static NodePools and conflicts of NodeOverlays, each once while
    /// it lasts.
    pub(super) fn report_problems(&mut self, snapshot: &Snapshot, memory: &Memory, now: Timestamp) {
        let unplaced: &[UnschedulablePods] = &memory.provision.unplaced;
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.unschedulable_pods.set(count(unplaced.iter().map(|group| group.pods.len()).sum()));
        self.deferred_pods.set(count(memory.provision.deferred));
        self.claims.set(count(snapshot.claims().len()));
        self.nodes.set(count(snapshot.nodes().len()));
        self.unreadable_sweeps.set(count(snapshot.unreadable_sweeps.len()));
        self.report_outage(memory.lifecycle.outage);
        self.pause.report(snapshot, now);
        let mut problems = BTreeSet::new();
        self.report_launch_hold(memory.launch_check.hold.as_ref(), snapshot, &mut problems);
        self.pools.report(memory, snapshot, &self.events, now);
        self.report_blocked_drains(&memory.lifecycle.blocked_drains, snapshot, &mut problems);
        self.karpenter.iter_mut().for_each(|metrics| metrics.observe(snapshot, memory));
        self.repairs.report(&memory.lifecycle.blocked_repairs, snapshot, &self.events);
        self.report_unschedulable(unplaced, snapshot, &mut problems);
        self.missing_nodes.set(count(memory.static_capacity.shortages.iter().map(|short| short.missing).sum()));
        for short in &memory.static_capacity.shortages {
            let (pool, reason) = (&short.pool, short.to_string());
            let key = format!("{pool}: {reason}");
            if let Some(object) = snapshot.pools().get(pool).filter(|_| !self.reported.contains(&key)) {
                tracing::info!(%pool, why = reason, "static NodePool is missing nodes");
                let regarding = cluster_scoped(("karpenter.sh/v1", "NodePool"), pool.as_str(), &object.uid);
                self.events.publish(regarding, "NodesMissing", &reason, true);
            }
            problems.insert(key);
        }
        for conflict in &memory.overlays.conflicts {
            let (overlay, reason) = (&conflict.overlay, conflict.to_string());
            let key = format!("{overlay}: {reason}");
            if let Some(object) = snapshot.overlays().get(overlay).filter(|_| !self.reported.contains(&key)) {
                tracing::warn!(%overlay, why = reason, "NodeOverlay ignored");
                let regarding = cluster_scoped(("karpenter.sh/v1alpha1", "NodeOverlay"), overlay.as_str(), &object.uid);
                self.events.publish(regarding, "Conflict", &reason, true);
            }
            problems.insert(key);
        }
        self.reported = problems;
    }

    /// Reports what keeps nodes that have drifted, after all else: the queue of events may be full.
    pub(super) fn report_kept_nodes(&mut self, snapshot: &Snapshot, now: Timestamp) {
        self.blocked.news(snapshot, now).into_iter().for_each(|event| event.publish(&self.events));
    }

    /// The commands that were running are forgotten: none of them will end.
    pub(super) fn commands_forgotten(&mut self) {
        self.karpenter.iter_mut().for_each(KarpenterMetrics::forget_commands);
    }

    /// Reports unschedulable pods, each group by one of them, and NodePools of which no instance type can be launched.
    fn report_unschedulable(
        &self,
        unplaced: &[UnschedulablePods],
        snapshot: &Snapshot,
        problems: &mut BTreeSet<String>,
    ) {
        for group in unplaced {
            let reason = group.reason();
            if let Some(first) = group.pods.first().filter(|_| !self.reported.contains(&reason)) {
                tracing::info!(pod = %first.key, pods = group.pods.len(), why = reason, "cannot be scheduled");
                events::of_unschedulable(first, &reason).publish(&self.events);
            }
            problems.insert(reason);
            for (pool, why) in group.reasons.iter().filter_map(|(pool, why)| Some((pool.as_ref()?, why))) {
                let Some(event) = events::of_unusable_pool(pool, why, snapshot) else { continue };
                let key = format!("{pool}: no compatible instance types");
                if !self.reported.contains(&key) && !problems.contains(&key) {
                    event.publish(&self.events);
                }
                problems.insert(key);
            }
        }
    }

    /// Reports the beginning and the end of an outage of nodes.
    fn report_outage(&self, outage: Option<NodeOutage>) {
        let lasted = self.node_outage.set(i64::from(outage.is_some())) == 1;
        match outage {
            Some(outage) if !lasted => {
                tracing::warn!(%outage, "node outage: nothing is terminated, disrupted or expired until it is over");
            }
            None if lasted => tracing::info!("the node outage is over"),
            _ => {}
        }
    }

    /// Reports why nothing may be launched, on every NodePool.
    fn report_launch_hold(&self, hold: Option<&LaunchHold>, snapshot: &Snapshot, problems: &mut BTreeSet<String>) {
        self.launch_hold.set(i64::from(hold.is_some()));
        let Some(hold) = hold else { return };
        let reason = hold.to_string();
        // It is answered within a second after the start.
        let is_known = self.reported.contains(&reason) || matches!(hold, LaunchHold::GroupUnread { .. });
        if !is_known {
            tracing::error!(why = reason, "nothing is launched");
            for (name, pool) in snapshot.pools().iter() {
                let regarding = cluster_scoped(("karpenter.sh/v1", "NodePool"), name.as_str(), &pool.uid);
                self.events.publish(regarding, "LaunchesHeld", &reason, true);
            }
        }
        problems.insert(reason);
    }

    /// Reports drains that do not move, on their NodeClaim and their Node.
    fn report_blocked_drains(
        &mut self,
        blocked: &BTreeMap<NodeName, BlockedDrain>,
        snapshot: &Snapshot,
        problems: &mut BTreeSet<String>,
    ) {
        self.blocked_drains.set(i64::try_from(blocked.len()).unwrap_or(i64::MAX));
        for (name, drain) in blocked {
            let key = format!("{name}: {drain}");
            if !self.reported.contains(&key) {
                tracing::warn!(node = %name, why = %drain, "the drain does not move");
                let events = events::of_blocked_drain(name, drain, snapshot);
                events.into_iter().for_each(|event| event.publish(&self.events));
            }
            problems.insert(key);
        }
    }

    /// The watch has delivered an object that cannot be parsed.
    pub(super) fn invalid_object(&self, kind: &'static str, name: &str, reason: &str) {
        tracing::warn!(kind, name, why = reason, "cannot parse the object");
    }

    /// A command has started.
    pub(super) fn command_started(&mut self, planned: &PlannedCommand, snapshot: &Snapshot) {
        let (reason, command) = (&*planned.reason, planned.command.name());
        let about = planned.command.key().to_string();
        tracing::info!(command, about, reason, "started");
        if let Command::ReportSweep(report) = &planned.command {
            self.sweeps.report_written(report, &self.events, snapshot);
        }
        events::of_started(planned, snapshot).into_iter().for_each(|event| event.publish(&self.events));
        self.karpenter.iter_mut().for_each(|metrics| metrics.command_started(&planned.command, snapshot));
    }

    /// An effect is about to be performed.
    pub(super) fn effect_started(&mut self, effect: &Effect, snapshot: &Snapshot) {
        self.effects.get_or_create(&[("effect", effect.name())]).inc();
        self.karpenter.iter_mut().for_each(|metrics| metrics.effect_started(effect, snapshot));
        events::of_effect(effect, snapshot).into_iter().for_each(|event| event.publish(&self.events));
    }

    /// An effect failed.
    pub(super) fn effect_failed(&self, key: &CommandKey, error: &EffectError) {
        let category = error.category();
        match error {
            // Normal while nodes are drained.
            EffectError::Cluster(refusal) if refusal.is_budget() => tracing::debug!(about = %key, category, "refused"),
            _ => tracing::warn!(about = %key, category, %error, "refused"),
        }
        self.failures.get_or_create(&[("category", category)]).inc();
    }

    /// A command has ended.
    pub(super) fn command_ended(
        &mut self,
        key: &CommandKey,
        planned: Option<&PlannedCommand>,
        report: &CommandReport,
        snapshot: &Snapshot,
    ) {
        let command = planned.map_or("unknown", |p| p.command.name());
        let outcome = match (&report.error, report.abort_reason) {
            (Some(_), _) => "failed",
            (None, Some(_)) => "called_off",
            (None, None) => "done",
        };
        self.commands.get_or_create(&[("command", command), ("outcome", outcome)]).inc();
        tracing::debug!(command, about = %key, outcome, "ended");
        self.repairs.command_ended(planned.map(|p| &p.command), report);
        if let Some(planned) = planned {
            self.karpenter.iter_mut().for_each(|metrics| metrics.command_ended(&planned.command, report, snapshot));
        }
        if let Some(planned) = planned
            && let Command::SweepDelete(delete) = &planned.command
        {
            let deletion = EndedDeletion { delete, planned, report };
            self.sweeps.deletion_ended(&deletion, &self.events, snapshot);
        }
        let events = events::of_ended(key, planned, report, snapshot);
        events.into_iter().for_each(|event| event.publish(&self.events));
    }
}

fn claim(snapshot: &Snapshot, name: &ClaimName) -> Option<Regarding> {
    let claim = snapshot.claims().get(name)?;
    Some(cluster_scoped(("karpenter.sh/v1", "NodeClaim"), name.as_str(), &claim.uid))
}

fn cluster_scoped(kind: (&'static str, &'static str), name: &str, uid: &Uid) -> Regarding {
    Regarding { kind, namespace: None, name: name.to_owned(), uid: Some(uid.to_string()) }
}

fn pod(key: &ObjectKey, uid: &Uid) -> Regarding {
    let namespace = Some(key.namespace.to_string());
    Regarding { kind: ("v1", "Pod"), namespace, name: key.name.to_string(), uid: Some(uid.to_string()) }
}
