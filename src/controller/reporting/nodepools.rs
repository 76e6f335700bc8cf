//! Reports NodePools whose nodes do not come up, or are replaced again and again, or hold up their deletion.

use super::cluster_scoped;
use jiff::Timestamp;
use napkeeper_core::disruption::{ReplacementLoop, ReplacementLoops};
use napkeeper_core::engine::decide::Memory;
use napkeeper_core::model::cluster::pool::NodePool;
use napkeeper_core::model::cluster::replacement::RecurringCause;
use napkeeper_core::model::names::NodePoolName;
use napkeeper_core::snapshot::Snapshot;
use napkeeper_core::status::KeptNodes;
use napkeeper_kube::Events;
use napkeeper_serve::prometheus_client::metrics::gauge::Gauge;
use napkeeper_serve::prometheus_client::registry::Registry;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The event of a NodePool whose deletion nodes hold up.
const NODES_KEPT: &str = "NodesKept";

/// Reports NodePools whose nodes do not come up, or are replaced again and again, or hold up their deletion, each once while it
/// lasts.
#[derive(Debug)]
pub(super) struct PoolReporter {
    failing: Gauge,
    loops: Gauge,
    reported: BTreeSet<(NodePoolName, Told)>,
}

/// What has been told of a NodePool.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    /// Why its nodes do not come up.
    Failing(String),
    /// For which cause they are replaced again and again, and how often in a row: what else is said of it changes with time.
    Loop(RecurringCause, u32),
    /// Which nodes stay although it is being deleted, and why.
    Kept(String),
}

impl PoolReporter {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let (failing, loops) = Default::default();
        let reporter = Self { failing, loops, reported: BTreeSet::new() };
        let failing = "NodePools whose last nodes did not come up: they are held, or try one node at a time";
        registry.register("failing_nodepools", failing, reporter.failing.clone());
        let loops = "Causes for which nodes of a NodePool are replaced again and again without effect";
        registry.register("replacement_loops", loops, reporter.loops.clone());
        reporter
    }

    /// What this replica knew as a leader is not so any more.
    pub(super) fn clear(&mut self) {
        self.failing.set(0);
        self.loops.set(0);
        self.reported.clear();
    }

    pub(super) fn report(&mut self, memory: &Memory, snapshot: &Snapshot, events: &Events, now: Timestamp) {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let failures = &memory.lifecycle.pool_failures;
        let kept = |pool: &Arc<NodePool>| {
            let kept = KeptNodes::of(pool, snapshot, &memory.status.irreplaceable, now)?;
            Some((pool.name.clone(), kept.message))
        };
        let kept: Vec<(NodePoolName, String)> = snapshot.pools().values().filter_map(kept).collect();
        let loops = ReplacementLoops::of(snapshot, now);
        self.failing.set(count(failures.held().count()));
        self.loops.set(count(loops.iter().count()));
        for (name, event, why) in self.news(failures.held(), loops.iter(), &kept) {
            let Some(pool) = snapshot.pools().get(&name) else { continue };
            let what =
                if event == NODES_KEPT { "nodes hold up the deletion of the NodePool" } else { "NodePool is held" };
            tracing::warn!(pool = %name, event, why, "{what}");
            let regarding = cluster_scoped(("karpenter.sh/v1", "NodePool"), name.as_str(), &pool.uid);
            events.publish(regarding, event, &why, true);
        }
    }

    /// What has not been told yet of NodePools that are held, of loops and of nodes that are kept: the NodePool, the event and its
    /// text.
    fn news<'f>(
        &mut self,
        held: impl Iterator<Item = (&'f NodePoolName, String)>,
        loops: impl Iterator<Item = (&'f NodePoolName, &'f ReplacementLoop)>,
        kept: &'f [(NodePoolName, String)],
    ) -> Vec<(NodePoolName, &'static str, String)> {
        let held = held.map(|(name, why)| (name, Told::Failing(why.clone()), "LaunchesHeld", why));
        let loops = loops.map(|(name, found)| {
            (name, Told::Loop(found.cause.clone(), found.in_a_row), "ReplacementLoop", found.to_string())
        });
        let kept = kept.iter().map(|(name, why)| (name, Told::Kept(why.clone()), NODES_KEPT, why.clone()));
        let before = std::mem::take(&mut self.reported);
        let mut news = Vec::new();
        for (name, told, event, why) in held.chain(loops).chain(kept) {
            let key = (name.clone(), told);
            if !before.contains(&key) {
                news.push((name.clone(), event, why));
            }
            self.reported.insert(key);
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;
    use std::sync::Arc;

    #[test]
    fn a_loop_is_told_once_for_each_time_that_it_goes_on() {
        let mut reporter = PoolReporter::new(&mut Registry::default());
        let name = NodePoolName::new("general").unwrap();
        let next_at = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1);
        let third =
            ReplacementLoop { cause: RecurringCause::CONSOLIDATION, in_a_row: 3, next_at, waits: true, drift: None };
        let due = ReplacementLoop { waits: false, drift: Some(Arc::from("labels")), ..third.clone() };
        let fourth = ReplacementLoop { in_a_row: 4, ..third.clone() };
        let mut told = |found: &[&ReplacementLoop]| {
            let loops = found.iter().map(|found| (&name, *found));
            reporter
                .news(std::iter::empty(), loops, &[])
                .into_iter()
                .map(|(_, event, why)| (event, why))
                .collect::<Vec<_>>()
        };
        let event = |found: &ReplacementLoop| ("ReplacementLoop", found.to_string());
        assert_eq!(told(&[&third]), [event(&third)]);
        assert_eq!(told(&[&due]), [], "time has passed, and it is known how the last one has drifted");
        assert_eq!(told(&[&third]), []);
        assert_eq!(told(&[&fourth]), [event(&fourth)]);
        assert_eq!(told(&[]), []);
        assert_eq!(told(&[&fourth]), [event(&fourth)], "it has ended, and begun again");
    }
}
