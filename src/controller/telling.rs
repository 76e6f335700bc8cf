//! Telling: what do logs, events and metrics say of what the controller does?
//!
//! What is decided is an event on the object it is about; what fails is one too, with what to do where that is known.

use super::sweeping::SweepTeller;
use napkeeper_core::engine::decide::Memory;
use napkeeper_core::model::errors::{ClusterError, EffectError};
use napkeeper_core::model::names::{ClaimName, ObjectKey, Uid};
use napkeeper_core::plan::{Command, CommandReport, Effect, PlannedCommand};
use napkeeper_core::scheduling::UnschedulablePods;
use napkeeper_core::snapshot::{CommandKey, Snapshot};
use napkeeper_kube::{Events, Regarding};
use napkeeper_serve::prometheus_client::metrics::counter::Counter;
use napkeeper_serve::prometheus_client::metrics::family::Family;
use napkeeper_serve::prometheus_client::metrics::gauge::Gauge;
use napkeeper_serve::prometheus_client::metrics::histogram::Histogram;
use napkeeper_serve::prometheus_client::registry::Registry;
use std::collections::BTreeSet;
use std::time::Duration;

/// Logs, events and metrics of the controller.
#[derive(Debug)]
pub(super) struct Teller {
    events: Events,
    commands: Family<Labels<2>, Counter>,
    failures: Family<Labels<1>, Counter>,
    effects: Family<Labels<1>, Counter>,
    deciding: Histogram,
    waiting: Gauge,
    missing: Gauge,
    claims: Gauge,
    nodes: Gauge,
    /// Why pods have no place and pools not all their nodes, as last told.
    told: BTreeSet<String>,
    sweeps: SweepTeller,
}

/// Labels of a metric.
type Labels<const N: usize> = [(&'static str, &'static str); N];

impl Teller {
    pub(super) fn new(events: Events, registry: &mut Registry) -> Self {
        let buckets = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0];
        let teller = Self {
            events,
            commands: Family::default(),
            failures: Family::default(),
            effects: Family::default(),
            deciding: Histogram::new(buckets),
            waiting: Gauge::default(),
            missing: Gauge::default(),
            claims: Gauge::default(),
            nodes: Gauge::default(),
            told: BTreeSet::new(),
            sweeps: SweepTeller::new(registry),
        };
        registry.register("commands", "Commands finished, by outcome", teller.commands.clone());
        registry.register("failures", "Effects that failed, by category", teller.failures.clone());
        registry.register("effects", "Effects performed", teller.effects.clone());
        registry.register("decision_seconds", "Duration of decisions in seconds", teller.deciding.clone());
        registry.register("unplaced_pods", "Pods that cannot be scheduled", teller.waiting.clone());
        let missing = "Nodes missing from static NodePools";
        registry.register("missing_nodes", missing, teller.missing.clone());
        registry.register("nodeclaims", "NodeClaims", teller.claims.clone());
        registry.register("nodes", "Nodes", teller.nodes.clone());
        teller
    }

    /// A decision was made.
    pub(super) fn decided(&self, took: Duration) {
        self.deciding.observe(took.as_secs_f64());
    }

    /// Tells why pods have no place, and pools not all their nodes, once per reason for as long as it lasts.
    pub(super) fn waiting(&mut self, snapshot: &Snapshot, memory: &Memory) {
        let unplaced: &[UnschedulablePods] = &memory.provision.unplaced;
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.waiting.set(count(unplaced.iter().map(|group| group.pods.len()).sum()));
        self.claims.set(count(snapshot.claims().len()));
        self.nodes.set(count(snapshot.nodes().len()));
        let mut told = BTreeSet::new();
        for group in unplaced {
            let why = group.reason();
            if let Some(pod) = group.pods.first().filter(|_| !self.told.contains(&why)) {
                tracing::info!(pod = %pod.key, pods = group.pods.len(), why, "cannot be scheduled");
                let regarding = pod_of(&pod.key, &pod.uid);
                self.events.publish(regarding, "NoPlace", &format!("no NodePool can run it: {why}"), true);
            }
            told.insert(why);
        }
        self.missing.set(count(memory.static_capacity.shortages.iter().map(|short| short.missing).sum()));
        for short in &memory.static_capacity.shortages {
            let (pool, why) = (&short.pool, short.to_string());
            let key = format!("{pool}: {why}");
            if let Some(object) = snapshot.pools().get(pool).filter(|_| !self.told.contains(&key)) {
                tracing::info!(%pool, why, "static NodePool is missing nodes");
                let regarding = of_cluster(("karpenter.sh/v1", "NodePool"), pool.as_str(), &object.uid);
                self.events.publish(regarding, "NodesMissing", &why, true);
            }
            told.insert(key);
        }
        for conflict in &memory.overlays.conflicts {
            let (overlay, why) = (&conflict.overlay, conflict.to_string());
            let key = format!("{overlay}: {why}");
            if let Some(object) = snapshot.overlays().get(overlay).filter(|_| !self.told.contains(&key)) {
                tracing::warn!(%overlay, why, "NodeOverlay ignored");
                let regarding = of_cluster(("karpenter.sh/v1alpha1", "NodeOverlay"), overlay.as_str(), &object.uid);
                self.events.publish(regarding, "Conflict", &why, true);
            }
            told.insert(key);
        }
        self.told = told;
    }

    /// An object that cannot be understood.
    pub(super) fn unreadable(&self, kind: &'static str, name: &str, why: &str) {
        tracing::warn!(kind, name, why, "cannot parse the object");
    }

    /// A command has started.
    pub(super) fn started(&mut self, planned: &PlannedCommand, snapshot: &Snapshot) {
        let (reason, command) = (&*planned.reason, planned.command.name());
        let about = planned.command.key().to_string();
        tracing::info!(command, about, reason, "started");
        let event = match &planned.command {
            Command::Launch(launch) => Some((claim(snapshot, &launch.claim.name), "Launching")),
            Command::DeleteClaim { claim: of, .. } => Some((claim(snapshot, &of.name), "Disrupting")),
            Command::Terminate(terminate) => Some((claim(snapshot, &terminate.claim.name), "Terminating")),
            Command::Evict { pod, uid } => Some((Some(pod_of(pod, uid)), "Evicting")),
            Command::SweepDelete(delete) => {
                let sweep = snapshot.sweeps().get(&delete.sweep);
                Some((
                    sweep.map(|s| of_cluster(("napkeeper.io/v1alpha1", "OrphanSweep"), s.name.as_str(), &s.uid)),
                    "Collecting",
                ))
            }
            _ => None,
        };
        if let Command::ReportSweep(report) = &planned.command {
            self.sweeps.reported(report, &self.events, snapshot);
        }
        if let Some((Some(regarding), word)) = event {
            self.events.publish(regarding, word, &format!("{about}: {reason}"), false);
        }
        if let Command::CreateClaim(draft) = &planned.command {
            for key in draft.pods.iter().take(MOST_POD_EVENTS) {
                let Some(pod) = snapshot.pods().get(key) else { continue };
                let text = format!("should run on NodeClaim {}: {reason}", draft.name);
                self.events.publish(pod_of(key, &pod.uid), "Nominated", &text, false);
            }
        }
    }

    /// An effect is about to be performed.
    pub(super) fn performing(&self, effect: &Effect) {
        self.effects.get_or_create(&[("effect", effect.name())]).inc();
    }

    /// An effect failed.
    pub(super) fn refused(&self, key: &CommandKey, error: &EffectError) {
        let category = error.category();
        match error {
            // The daily business of a drain.
            EffectError::Cluster(ClusterError::Budget) => tracing::debug!(about = %key, category, "refused"),
            _ => tracing::warn!(about = %key, category, %error, "refused"),
        }
        self.failures.get_or_create(&[("category", category)]).inc();
    }

    /// A command has ended.
    pub(super) fn ended(
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
        if let Some(planned) = planned
            && let Command::SweepDelete(delete) = &planned.command
        {
            self.sweeps.ended((delete, planned), report, &self.events, snapshot);
        }
        let regarding = match key {
            CommandKey::Claim(name) => claim(snapshot, name),
            CommandKey::Pod(key) => snapshot.pods().get(key).map(|p| pod_of(key, &p.uid)),
            _ => None,
        };
        let Some(regarding) = regarding else { return };
        for refusal in &report.launch_refusals {
            let text = format!("Azure rejected {}: {}", refusal.offering, refusal.error);
            self.events.publish(regarding.clone(), "OfferingRefused", &text, true);
        }
        if let Some(error) = &report.error {
            self.events.publish(regarding, "Failed", &format!("{command}: {error}; will retry"), true);
        }
    }
}

/// Most pods of a NodeClaim that an event says so of.
const MOST_POD_EVENTS: usize = 20;

fn claim(snapshot: &Snapshot, name: &ClaimName) -> Option<Regarding> {
    let claim = snapshot.claims().get(name)?;
    Some(of_cluster(("karpenter.sh/v1", "NodeClaim"), name.as_str(), &claim.uid))
}

fn of_cluster(kind: (&'static str, &'static str), name: &str, uid: &Uid) -> Regarding {
    Regarding { kind, namespace: None, name: name.to_owned(), uid: Some(uid.to_string()) }
}

fn pod_of(key: &ObjectKey, uid: &Uid) -> Regarding {
    let namespace = Some(key.namespace.to_string());
    Regarding { kind: ("v1", "Pod"), namespace, name: key.name.to_string(), uid: Some(uid.to_string()) }
}
