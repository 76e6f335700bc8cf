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
use napkeeper_core::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often it is looked for.
const INTERVAL: Duration = Duration::from_secs(10);
/// What keeps a node is told again at most this often, however it changes (Karpenter, `events/recorder.go`).
const REPEAT_INTERVAL: Duration = Duration::from_mins(2);
/// Most blockers that an event names.
const MAX_BLOCKERS: usize = 3;

/// Reports what keeps nodes that have drifted from being replaced, each once while it lasts.
#[derive(Debug, Default)]
pub(super) struct BlockedReporter {
    looked_at: Option<Instant>,
    /// What was told of each, and when.
    claims: BTreeMap<ClaimName, (String, Instant)>,
    pools: BTreeSet<NodePoolName>,
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
        self.claims.values_mut().for_each(|(_, at)| *at = earlier(*at));
    }

    /// What has not been told yet. Nothing is looked for more often than every ten seconds.
    pub(super) fn news(&mut self, snapshot: &Snapshot, loops: &ReplacementLoops, now: Timestamp) -> Vec<Event> {
        if self.looked_at.is_some_and(|at| at.elapsed() < INTERVAL) {
            return Vec::new();
        }
        self.looked_at = Some(Instant::now());
        let is_kept = |claim: &&Arc<Claim>| {
            let status = &claim.status;
            claim.is_ours() && !claim.is_leaving() && status.drifted.is_some() && status.disrupted.is_none()
        };
        let drifted: Vec<&Arc<Claim>> = snapshot.claims().values().filter(is_kept).collect();
        let before = std::mem::take(&mut self.claims);
        let mut news = Vec::new();
        for one in &drifted {
            let why = PossibleDisruption { reason: DisruptionReason::Drifted, drift: None, loops };
            let Some(text) = blockers(&disruption_blockers(snapshot, one, why, now)) else { continue };
            let is_known = |(told, at): &&(String, Instant)| *told == text || at.elapsed() < REPEAT_INTERVAL;
            let told = before.get(&one.name).filter(is_known).cloned();
            if told.is_none() {
                let regarding = claim(snapshot, &one.name);
                news.extend(regarding.map(|of| Event::normal(of, "DisruptionBlocked", text.clone())));
            }
            self.claims.insert(one.name.clone(), told.unwrap_or_else(|| (text, Instant::now())));
        }
        let pools: BTreeSet<&NodePoolName> = drifted.iter().filter_map(|one| one.spec.pool.as_ref()).collect();
        let pools = pools.into_iter().filter_map(|name| snapshot.pools().get(name));
        let closed: Vec<&Arc<NodePool>> = pools.filter(|pool| is_closed(snapshot, pool, now)).collect();
        let before = std::mem::replace(&mut self.pools, closed.iter().map(|pool| pool.name.clone()).collect());
        for pool in closed.into_iter().filter(|pool| !before.contains(&pool.name)) {
            let regarding = cluster_scoped(("karpenter.sh/v1", "NodePool"), pool.name.as_str(), &pool.uid);
            let text = "No allowed disruptions for disruption reason Drifted due to blocking budget".to_owned();
            news.push(Event::normal(regarding, "DisruptionBlocked", text));
        }
        news
    }
}

/// What keeps a node, as text; `None` if nothing does.
fn blockers(found: &[DisruptionBlocker]) -> Option<String> {
    let passes =
        |one: &&DisruptionBlocker| matches!(one, DisruptionBlocker::NotInitialized | DisruptionBlocker::BeingDeleted);
    let told: Vec<String> =
        found.iter().filter(|one| !passes(one)).take(MAX_BLOCKERS).map(ToString::to_string).collect();
    (!told.is_empty()).then(|| format!("Cannot disrupt Node: {}", told.join("; ")))
}

/// No budget of a NodePool allows a node to be replaced that has drifted.
fn is_closed(snapshot: &Snapshot, pool: &NodePool, now: Timestamp) -> bool {
    let of_pool = snapshot.claims().values().filter(|claim| claim.spec.pool.as_ref() == Some(&pool.name));
    let total = of_pool.filter(|claim| claim.status.initialized.is_some()).count();
    let total = u32::try_from(total).unwrap_or(u32::MAX);
    total > 0 && allowed_disruptions(&pool.disruption.budgets, total, DisruptionReason::Drifted, now) == 0
}
