//! Reports the NodeClaims that are deleted, and unhealthy nodes that are not repaired.

use super::Labels;
use super::events::of_blocked_repair;
use napkeeper_core::lifecycle::RepairBlock;
use napkeeper_core::model::names::{NodeName, NodePoolName};
use napkeeper_core::plan::{Command, CommandReport};
use napkeeper_core::snapshot::Snapshot;
use napkeeper_kube::Events;
use napkeeper_serve::prometheus_client::metrics::counter::Counter;
use napkeeper_serve::prometheus_client::metrics::family::Family;
use napkeeper_serve::prometheus_client::metrics::gauge::Gauge;
use napkeeper_serve::prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The same reason for the same NodePool is reported at most this often.
const REPORT_INTERVAL: Duration = Duration::from_mins(10);

/// Reports the NodeClaims that are deleted, and unhealthy nodes that are not repaired.
#[derive(Debug)]
pub(super) struct RepairReporter {
    deletions: Family<Labels<1>, Counter>,
    blocked: Gauge,
    /// When each kind of reason was last reported, by NodePool.
    reported: BTreeMap<(&'static str, Option<NodePoolName>), Instant>,
    was_blocked: bool,
}

impl RepairReporter {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let (deletions, blocked) = Default::default();
        let reporter = Self { deletions, blocked, reported: BTreeMap::new(), was_blocked: false };
        let deletions = "NodeClaims deleted, by reason: expired, unhealthy, interrupted and so on";
        registry.register("nodeclaims_deleted", deletions, reporter.deletions.clone());
        let blocked =
            "Unhealthy nodes that are not repaired now: too many are, or no node would be launched in their place";
        registry.register("blocked_repairs", blocked, reporter.blocked.clone());
        reporter
    }

    /// What this replica knew as a leader is not so any more.
    pub(super) fn clear(&mut self) {
        self.blocked.set(0);
        self.reported.clear();
        self.was_blocked = false;
    }

    /// Reports unhealthy nodes that are not repaired: in the log and by an event on one of them, for each NodePool and kind of
    /// reason at most every ten minutes.
    pub(super) fn report(&mut self, blocked: &BTreeMap<NodeName, RepairBlock>, snapshot: &Snapshot, events: &Events) {
        self.blocked.set(i64::try_from(blocked.len()).unwrap_or(i64::MAX));
        if blocked.is_empty() && self.was_blocked {
            tracing::info!("no repair is held back any more");
        }
        self.was_blocked = !blocked.is_empty();
        let mut groups: BTreeMap<_, (usize, &NodeName, &RepairBlock)> = BTreeMap::new();
        for (name, why) in blocked {
            groups.entry(why.key()).or_insert((0, name, why)).0 += 1;
        }
        let now = Instant::now();
        self.reported.retain(|_, at| now.duration_since(*at) < REPORT_INTERVAL);
        for ((kind, pool), (nodes, first, why)) in groups {
            let key = (kind, pool.cloned());
            if self.reported.contains_key(&key) {
                continue;
            }
            tracing::warn!(nodes, %first, %why, "unhealthy nodes are not repaired");
            if let Some(node) = snapshot.nodes().get(first) {
                let others = if nodes > 1 { format!(" ({nodes} unhealthy nodes wait)") } else { String::new() };
                of_blocked_repair(node, format!("{why}{others}")).publish(events);
            }
            self.reported.insert(key, now);
        }
    }

    /// Counts the NodeClaims that were deleted.
    pub(super) fn command_ended(&self, command: Option<&Command>, report: &CommandReport) {
        if let Some(Command::DeleteClaim { category, .. }) = command.filter(|_| report.error.is_none()) {
            self.deletions.get_or_create(&[("reason", category)]).inc();
        }
    }
}
