//! Reports what keeps nodes that have drifted from being replaced.

use super::events::Event;
use super::{claim, cluster_scoped};
use jiff::Timestamp;
use napkeeper_core::disruption::{
    DisruptionBlocker, PossibleDisruption, ReplacementLoops, allowed_disruptions, disruption_blockers,
};
use napkeeper_core::model::cluster::claim::Claim;
use napkeeper_core::model::cluster::pool::{DisruptionReason, NodePool};
use napkeeper_core::model::names::{ClaimName, NodePoolName};
use napkeeper_core::model::settings::DisruptionScope;
use napkeeper_core::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often it is looked for.
const INTERVAL: Duration = Duration::from_secs(10);
/// What keeps a node is told again at most this often, however it changes (Karpenter, `events/recorder.go`).
const REPEAT_INTERVAL: Duration = Duration::from_mins(2);
/// Most NodeClaims that are examined at once, since each takes all pods of its node; the next time it goes on with the others.
const MAX_EXAMINED: usize = 100;
/// Most events at once, so that the queue of events has room for others; the next time it goes on with the rest.
const MAX_EVENTS: usize = 20;
/// Most blockers that an event names.
const MAX_BLOCKERS: usize = 3;

/// Reports what keeps nodes that have drifted from being replaced, each once while it lasts.
#[derive(Debug, Default)]
pub(super) struct BlockedReporter {
    looked_at: Option<Instant>,
    /// The NodeClaim that was examined last.
    last: Option<ClaimName>,
    claims: Told<ClaimName>,
    pools: Told<NodePoolName>,
}

impl BlockedReporter {
    /// What this replica knew as a leader is not so any more.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// As if so much more time had passed.
    #[cfg(test)]
    pub(super) fn pass(&mut self, time: Duration) {
        let earlier = |at: Instant| at.checked_sub(time).unwrap();
        self.looked_at = self.looked_at.map(earlier);
        self.claims.0.values_mut().chain(self.pools.0.values_mut()).for_each(|(_, at)| *at = earlier(*at));
    }

    /// What has not been told yet. Nothing is looked for more often than every ten seconds.
    pub(super) fn news(&mut self, snapshot: &Snapshot, now: Timestamp) -> Vec<Event> {
        if self.looked_at.is_some_and(|at| at.elapsed() < INTERVAL) {
            return Vec::new();
        }
        self.looked_at = Some(Instant::now());
        let mut kept: Vec<&Arc<Claim>> = snapshot.claims().values().filter(|claim| is_kept(claim)).collect();
        let mut news = self.news_of_pools(snapshot, &kept, now);
        self.claims.forget_others(|name| snapshot.claims().get(name).is_some_and(|claim| is_kept(claim)));
        let examined = kept.partition_point(|one| Some(&one.name) <= self.last.as_ref());
        kept.rotate_left(examined);
        // The NodePool's event tells of a loop of replacements.
        let loops = ReplacementLoops::default();
        for one in kept.into_iter().take(MAX_EXAMINED) {
            if news.len() >= MAX_EVENTS {
                break;
            }
            self.last = Some(one.name.clone());
            let why = PossibleDisruption { reason: DisruptionReason::Drifted, drift: None, loops: &loops };
            match blockers(&disruption_blockers(snapshot, one, why, now)) {
                Some(text) if self.claims.tell(&one.name, &text) => {
                    news.extend(claim(snapshot, &one.name).map(|of| Event::normal(of, "DisruptionBlocked", text)));
                }
                Some(_) => {}
                None => self.claims.forget(&one.name),
            }
        }
        news
    }

    /// What keeps all nodes of a NodePool.
    fn news_of_pools(&mut self, snapshot: &Snapshot, kept: &[&Arc<Claim>], now: Timestamp) -> Vec<Event> {
        let pools: BTreeSet<&NodePoolName> = kept.iter().filter_map(|one| one.spec.pool.as_ref()).collect();
        let pools = pools.into_iter().filter_map(|name| snapshot.pools().get(name));
        let closed: BTreeMap<&NodePoolName, (&Arc<NodePool>, String)> =
            pools.filter_map(|pool| Some((&pool.name, (pool, blocker_of_pool(snapshot, pool, now)?)))).collect();
        self.pools.forget_others(|name| closed.contains_key(name));
        let mut news = Vec::new();
        for (name, (pool, text)) in closed {
            if news.len() < MAX_EVENTS && self.pools.tell(name, &text) {
                let regarding = cluster_scoped(("karpenter.sh/v1", "NodePool"), name.as_str(), &pool.uid);
                news.push(Event::normal(regarding, "DisruptionBlocked", text));
            }
        }
        news
    }
}

/// What was told of objects, and when.
#[derive(Debug)]
struct Told<K>(BTreeMap<K, (String, Instant)>);

impl<K> Default for Told<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Clone> Told<K> {
    /// True where this is to be told of an object now, which counts as done.
    fn tell(&mut self, name: &K, text: &str) -> bool {
        let is_known = |(told, at): &(String, Instant)| told == text || at.elapsed() < REPEAT_INTERVAL;
        let is_news = !self.0.get(name).is_some_and(is_known);
        if is_news {
            self.0.insert(name.clone(), (text.to_owned(), Instant::now()));
        }
        is_news
    }

    /// Nothing keeps an object any more. Until it may be told again, what was told of it is not forgotten.
    fn forget(&mut self, name: &K) {
        if self.0.get(name).is_some_and(|(_, at)| at.elapsed() >= REPEAT_INTERVAL) {
            self.0.remove(name);
        }
    }

    /// Likewise of all objects but these.
    fn forget_others(&mut self, stay: impl Fn(&K) -> bool) {
        self.0.retain(|name, (_, at)| at.elapsed() < REPEAT_INTERVAL || stay(name));
    }
}

/// It has drifted, and is not being replaced.
fn is_kept(claim: &Claim) -> bool {
    let status = &claim.status;
    claim.is_ours() && !claim.is_leaving() && status.drifted.is_some() && status.disrupted.is_none()
}

/// What keeps a node, as text; `None` if nothing does. A pause is told of its NodePool.
fn blockers(found: &[DisruptionBlocker]) -> Option<String> {
    let passes = |one: &&DisruptionBlocker| {
        matches!(
            one,
            DisruptionBlocker::NotInitialized | DisruptionBlocker::BeingDeleted | DisruptionBlocker::Paused(_)
        )
    };
    let told: Vec<String> =
        found.iter().filter(|one| !passes(one)).take(MAX_BLOCKERS).map(ToString::to_string).collect();
    (!told.is_empty()).then(|| format!("Cannot disrupt Node: {}", told.join("; ")))
}

/// What keeps all nodes of a NodePool that have drifted, as text; `None` if nothing does.
fn blocker_of_pool(snapshot: &Snapshot, pool: &NodePool, now: Timestamp) -> Option<String> {
    let drifted = DisruptionScope::new(&pool.name, DisruptionReason::Drifted);
    let why = match snapshot.pause.disruption_pause(&drifted, now) {
        Some(paused) => format!("pause: {paused}"),
        None if is_closed(snapshot, pool, now) => "blocking budget".to_owned(),
        None => return None,
    };
    Some(format!("No allowed disruptions for disruption reason Drifted due to {why}"))
}

/// No budget of a NodePool allows a node to be replaced that has drifted.
fn is_closed(snapshot: &Snapshot, pool: &NodePool, now: Timestamp) -> bool {
    let of_pool = snapshot.claims().values().filter(|claim| claim.spec.pool.as_ref() == Some(&pool.name));
    let total = of_pool.filter(|claim| claim.status.initialized.is_some()).count();
    let total = u32::try_from(total).unwrap_or(u32::MAX);
    total > 0 && allowed_disruptions(&pool.disruption.budgets, total, DisruptionReason::Drifted, now) == 0
}
