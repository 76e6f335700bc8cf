//! Reports NodePools whose nodes do not come up, or are replaced again and again, or hold up their deletion.

use super::cluster_scoped;
use jiff::Timestamp;
use napkeeper_core::disruption::ReplacementLoop;
use napkeeper_core::engine::decide::Memory;
use napkeeper_core::model::cluster::replacement::RecurringCause;
use napkeeper_core::model::names::NodePoolName;
use napkeeper_core::snapshot::Snapshot;
use napkeeper_core::status::{KeptBy, KeptNodes};
use napkeeper_kube::Events;
use napkeeper_serve::prometheus_client::metrics::gauge::Gauge;
use napkeeper_serve::prometheus_client::registry::Registry;
use std::collections::BTreeSet;

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
    /// What keeps nodes although it is being deleted: which nodes these are changes with each that goes.
    Kept(BTreeSet<KeptBy>),
}

impl Told {
    /// The reason of its event.
    fn event(&self) -> &'static str {
        match self {
            Self::Failing(_) => "LaunchesHeld",
            Self::Loop(..) => "ReplacementLoop",
            Self::Kept(_) => "NodesKept",
        }
    }

    /// The text of its log line.
    fn log_text(&self) -> &'static str {
        match self {
            Self::Failing(_) => "NodePool is held",
            Self::Loop(..) => "nodes are replaced again and again",
            Self::Kept(_) => "nodes hold up the deletion of the NodePool",
        }
    }
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
        let (failures, loops) = (&memory.lifecycle.pool_failures, &memory.status.loops);
        let irreplaceable = &memory.status.irreplaceable;
        let kept = snapshot.pools().values();
        let kept = kept.filter_map(|pool| Some((&pool.name, KeptNodes::of(pool, snapshot, irreplaceable, now)?)));
        self.failing.set(count(failures.held().count()));
        self.loops.set(count(loops.iter().count()));
        for (name, told, why) in self.news(failures.held(), loops.iter(), kept) {
            let Some(pool) = snapshot.pools().get(&name) else { continue };
            let event = told.event();
            tracing::warn!(pool = %name, event, why, "{}", told.log_text());
            let regarding = cluster_scoped(("karpenter.sh/v1", "NodePool"), name.as_str(), &pool.uid);
            events.publish(regarding, event, &why, true);
        }
    }

    /// What has not been told yet of NodePools that are held, of loops and of nodes that are kept, and its text.
    fn news<'f>(
        &mut self,
        held: impl Iterator<Item = (&'f NodePoolName, String)>,
        loops: impl Iterator<Item = (&'f NodePoolName, &'f ReplacementLoop)>,
        kept: impl Iterator<Item = (&'f NodePoolName, KeptNodes)>,
    ) -> Vec<(NodePoolName, Told, String)> {
        let held = held.map(|(name, why)| (name, Told::Failing(why.clone()), why));
        let loops =
            loops.map(|(name, found)| (name, Told::Loop(found.cause.clone(), found.in_a_row), found.to_string()));
        let kept = kept.map(|(name, kept)| (name, Told::Kept(kept.by), kept.message));
        let before = std::mem::take(&mut self.reported);
        let mut news = Vec::new();
        for (name, told, why) in held.chain(loops).chain(kept) {
            let key = (name.clone(), told.clone());
            if !before.contains(&key) {
                news.push((name.clone(), told, why));
            }
            self.reported.insert(key);
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::{SignedDuration, Timestamp};
    use napkeeper_core::model::names::ClaimName;
    use std::sync::Arc;

    #[test]
    fn a_loop_is_told_once_for_each_time_that_it_goes_on() {
        let mut reporter = PoolReporter::new(&mut Registry::default());
        let name = NodePoolName::new("general").unwrap();
        let next_at = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1);
        let (cause, claim) = (RecurringCause::CONSOLIDATION, ClaimName::new("general-a").unwrap());
        let third = ReplacementLoop { cause, in_a_row: 3, claim, next_at, waits: true, drift: None };
        let due = ReplacementLoop { waits: false, drift: Some(Arc::from("labels")), ..third.clone() };
        let fourth = ReplacementLoop { in_a_row: 4, ..third.clone() };
        let mut told = |found: &[&ReplacementLoop]| {
            let loops = found.iter().map(|found| (&name, *found));
            let news = reporter.news(std::iter::empty(), loops, std::iter::empty());
            news.into_iter().map(|(_, told, why)| (told.event(), why)).collect::<Vec<_>>()
        };
        assert!(third.to_string().contains("NodeClaim general-a"), "which node waits");
        let event = |found: &ReplacementLoop| ("ReplacementLoop", found.to_string());
        assert_eq!(told(&[&third]), [event(&third)]);
        assert_eq!(told(&[&due]), [], "time has passed, and it is known how the last one has drifted");
        assert_eq!(told(&[&third]), []);
        assert_eq!(told(&[&fourth]), [event(&fourth)]);
        assert_eq!(told(&[]), []);
        assert_eq!(told(&[&fourth]), [event(&fourth)], "it has ended, and begun again");
    }

    #[test]
    fn nodes_that_are_kept_are_told_once_for_what_keeps_them() {
        let mut reporter = PoolReporter::new(&mut Registry::default());
        let name = NodePoolName::new("general").unwrap();
        let kept = |by: &[KeptBy], message: &str| {
            let by = by.iter().copied().collect();
            Some(KeptNodes { count: 1, by, message: message.to_owned() })
        };
        let mut told = |kept: Option<KeptNodes>| {
            let kept = kept.into_iter().map(|kept| (&name, kept));
            let news = reporter.news(std::iter::empty(), std::iter::empty(), kept);
            news.into_iter().map(|(_, told, why)| (told.event(), told.log_text(), why)).collect::<Vec<_>>()
        };
        let event = |why: &str| ("NodesKept", "nodes hold up the deletion of the NodePool", why.to_owned());
        assert_eq!(told(kept(&[KeptBy::Room], "2 stay")), [event("2 stay")]);
        assert_eq!(told(kept(&[KeptBy::Room], "1 stays")), [], "one of them has gone");
        assert_eq!(told(kept(&[KeptBy::Room, KeptBy::Pod], "2 stay")), [event("2 stay")]);
        assert_eq!(told(None), []);
        assert_eq!(told(kept(&[KeptBy::Room], "1 stays")), [event("1 stays")]);
    }
}
