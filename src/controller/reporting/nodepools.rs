//! Reports NodePools whose nodes do not come up, or are replaced again and again.

use super::cluster_scoped;
use jiff::Timestamp;
use napkeeper_core::disruption::ReplacementLoops;
use napkeeper_core::lifecycle::PoolFailures;
use napkeeper_core::model::names::NodePoolName;
use napkeeper_core::snapshot::Snapshot;
use napkeeper_kube::Events;
use napkeeper_serve::prometheus_client::metrics::gauge::Gauge;
use napkeeper_serve::prometheus_client::registry::Registry;
use std::collections::BTreeSet;

/// Reports NodePools whose nodes do not come up, or are replaced again and again, each once while it lasts.
#[derive(Debug)]
pub(super) struct PoolReporter {
    failing: Gauge,
    loops: Gauge,
    reported: BTreeSet<(NodePoolName, String)>,
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

    pub(super) fn report(&mut self, failures: &PoolFailures, snapshot: &Snapshot, events: &Events, now: Timestamp) {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let loops = ReplacementLoops::of(snapshot, now);
        self.failing.set(count(failures.held().count()));
        self.loops.set(count(loops.iter().count()));
        let held = failures.held().map(|(name, reason)| (name, "LaunchesHeld", reason));
        let loops = loops.iter().map(|(name, found)| (name, "ReplacementLoop", found.to_string()));
        let mut found = BTreeSet::new();
        for (name, event, why) in held.chain(loops) {
            let key = (name.clone(), why);
            if let Some(pool) = snapshot.pools().get(name).filter(|_| !self.reported.contains(&key)) {
                tracing::warn!(pool = %name, event, why = key.1, "NodePool is held");
                let regarding = cluster_scoped(("karpenter.sh/v1", "NodePool"), name.as_str(), &pool.uid);
                events.publish(regarding, event, &key.1, true);
            }
            found.insert(key);
        }
        self.reported = found;
    }
}
