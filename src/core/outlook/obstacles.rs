//! Finds what moves and nodes wait for, by the functions that the decider asks.

use super::budgets::BudgetsAhead;
use super::nodes::{is_of_fixed_size, unseen_drift};
use super::obstacle::Obstacle;
use super::run::{BegunMove, count_being_replaced};
use super::{NextMoveReason, OutlookInput, consolidatable_from};
use crate::disruption::{
    DisruptionBlocker, Drift, DriftDetector, Expiry, PossibleDisruption, ReplacementLoops, budget_left, counted_nodes,
    disruption_blockers, passes_blockers,
};
use crate::lifecycle::NodeOutage;
use crate::model::cluster::claim::Claim;
use crate::model::cluster::pod::{DoNotDisrupt, Pod};
use crate::model::cluster::pool::{DisruptionReason, NodePool};
use crate::model::names::{ClaimName, NodePoolName};
use crate::model::settings::{DisruptionScope, Pause, PauseEnd, PauseSwitch};
use crate::snapshot::Snapshot;
use crate::static_capacity::nodes_being_replaced;
use jiff::Timestamp;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How often the earliest time of a move is looked for again, since at that at which one obstacle ends another may begin.
const MAX_TRIES: usize = 16;

/// What of the cluster holds moves and nodes up.
pub(super) struct Obstacles<'a> {
    pub(super) input: OutlookInput<'a>,
    budgets: &'a BudgetsAhead<'a>,
    /// The cluster once the moves that begin now have begun, without the pause.
    after: Snapshot,
    /// How many nodes of each NodePool may be disrupted in it.
    left: RefCell<BTreeMap<(NodePoolName, DisruptionReason), u32>>,
    /// How NodeClaims have drifted.
    drifts: BTreeMap<ClaimName, Drift>,
    /// NodeClaims of NodePools of fixed size that are being replaced.
    being_replaced: BTreeMap<NodePoolName, Vec<ClaimName>>,
    loops: ReplacementLoops,
    /// Nodes have drifted by what cannot be seen from here, and may be replaced now.
    is_drift_first: bool,
}

impl<'a> Obstacles<'a> {
    /// `after`: the cluster once the moves that begin now have begun.
    pub(super) fn new(input: OutlookInput<'a>, budgets: &'a BudgetsAhead<'a>, mut after: Snapshot) -> Self {
        // The pause is an obstacle of its own. While it holds, budgets allow no disruption.
        after.pause = Pause::default();
        let (mut drifts, mut being_replaced) = (BTreeMap::new(), BTreeMap::new());
        for pool in input.snapshot.pools().values() {
            let detector = DriftDetector::new(pool, input.snapshot, input.now);
            let of_pool = input.snapshot.claims().values().filter(|claim| claim.spec.pool.as_ref() == Some(&pool.name));
            drifts.extend(of_pool.filter_map(|claim| Some((claim.name.clone(), detector.drift_of(claim)?))));
            let replaced = nodes_being_replaced(input.snapshot, pool, input.settings, input.now);
            being_replaced.insert(pool.name.clone(), replaced);
        }
        let (loops, left) = (ReplacementLoops::of(input.snapshot, input.now), RefCell::default());
        let mut found = Self { input, budgets, after, left, drifts, being_replaced, loops, is_drift_first: false };
        let is_first = |claim: &Arc<Claim>| {
            claim.is_ours() && !is_of_fixed_size(input.snapshot, claim) && found.is_replaced_first(claim)
        };
        found.is_drift_first = input.snapshot.claims().values().any(is_first);
        found
    }

    /// A node has drifted by what cannot be seen from here, and may be replaced now.
    fn is_replaced_first(&self, claim: &Arc<Claim>) -> bool {
        let OutlookInput { snapshot, now, .. } = self.input;
        let reason = DisruptionReason::Drifted;
        let pool = claim.spec.pool.as_ref().and_then(|name| self.pool(name));
        unseen_drift(snapshot, claim).is_some()
            && pool.is_some_and(|pool| budget_left(snapshot, pool, reason, now) > 0)
            && disruption_blockers(snapshot, claim, self.possible(claim, reason), now).is_empty()
    }

    fn possible(&self, claim: &Claim, reason: DisruptionReason) -> PossibleDisruption<'_> {
        PossibleDisruption { reason, drift: self.drift_of(claim), loops: &self.loops }
    }

    /// What keeps all nodes.
    pub(super) fn of_all(&self) -> Vec<Obstacle> {
        let OutlookInput { snapshot, settings, now, .. } = self.input;
        NodeOutage::of(snapshot, settings, now).map(Obstacle::Outage).into_iter().collect()
    }

    /// What a move waits for although the decider begins it now.
    pub(super) fn of_begun(&self, one: &BegunMove) -> Vec<Obstacle> {
        let is_consolidation = one.reason == NextMoveReason::Disrupted(DisruptionReason::Underutilized);
        (is_consolidation && self.is_drift_first).then_some(Obstacle::DriftFirst).into_iter().collect()
    }

    /// What a move waits for that begins at this time, or now if nothing held it up. It is never nothing.
    pub(super) fn of_move(&self, one: &BegunMove, at: Timestamp) -> Vec<Obstacle> {
        let claims: Vec<&Arc<Claim>> =
            one.sources.iter().filter_map(|name| self.input.snapshot.claims().get(name)).collect();
        let mut found = match one.reason {
            NextMoveReason::Expired => self.of_expired(&claims),
            NextMoveReason::ScaledDown => self.of_all().into_iter().chain(self.paused(&claims)).collect(),
            NextMoveReason::Disrupted(reason) => self.of_replaced(one, &claims, (reason, at)),
        };
        // The order in which they are found is kept.
        let mut known: Vec<Obstacle> = Vec::new();
        found.retain(|obstacle| {
            let is_new = !known.contains(obstacle);
            known.extend(is_new.then(|| obstacle.clone()));
            is_new
        });
        if found.is_empty() {
            found.push(Obstacle::EarlierMoves);
        }
        found
    }

    /// When a move begins that waits for these, at the earliest; `None` where that depends on something whose end is not known.
    /// `earlier`: nodes of moves before it, by NodePool.
    pub(super) fn earliest(
        &self,
        reason: Option<DisruptionReason>,
        nodes: &BTreeMap<NodePoolName, u32>,
        obstacles: &[Obstacle],
        earlier: &BTreeMap<NodePoolName, u32>,
    ) -> Option<Timestamp> {
        let ended = |latest: Timestamp, one: &Obstacle| Some(latest.max(one.until()?));
        let mut at = obstacles.iter().try_fold(self.input.now, ended)?;
        for _ in 0..MAX_TRIES {
            let mut next = at;
            for (name, nodes) in nodes {
                let Some(reason) = reason else { continue };
                let pool = self.pool(name)?;
                let needed = nodes + earlier.get(name).copied().unwrap_or_default() + self.unready(pool);
                next = next.max(self.budgets.next(pool, reason, (needed, at))?);
                let paused = self.input.snapshot.pause.disruption_pause(&DisruptionScope::new(name, reason), at);
                match paused.map(|paused| paused.end) {
                    Some(PauseEnd::At(end)) => next = next.max(end),
                    Some(PauseEnd::OnChange) => return None,
                    None => {}
                }
            }
            if next == at {
                return Some(at);
            }
            at = next;
        }
        None
    }

    /// Nodes of a NodePool that are not ready, or are being replaced already, and count against its budgets until they are ready or
    /// gone.
    fn unready(&self, pool: &NodePool) -> u32 {
        let snapshot = self.input.snapshot;
        let leaving = |claim: &&Arc<Claim>| {
            claim.spec.pool.as_ref() == Some(&pool.name) && claim.status.initialized.is_some() && claim.is_leaving()
        };
        let leaving = u32::try_from(snapshot.claims().values().filter(leaving).count()).unwrap_or(u32::MAX);
        let replaced = u32::try_from(self.being_replaced(&pool.name).len()).unwrap_or(u32::MAX);
        counted_nodes(snapshot, pool).saturating_sub(leaving).saturating_add(replaced)
    }

    /// What the deletion of nodes waits for that expire: neither budgets nor what is on them.
    fn of_expired(&self, claims: &[&Arc<Claim>]) -> Vec<Obstacle> {
        let OutlookInput { settings, now, .. } = self.input;
        let expiries = claims.iter().filter_map(|claim| Expiry::replaced_from(claim, settings.expiry_lead, now));
        self.paused(claims).chain(expiries.map(|(_, expiry)| Obstacle::Expires(expiry.at))).collect()
    }

    /// The pause switch, where it holds the deletion of nodes back that budgets do not limit.
    fn paused(&self, claims: &[&Arc<Claim>]) -> impl Iterator<Item = Obstacle> {
        let OutlookInput { snapshot, now, .. } = self.input;
        let paused = claims.iter().filter_map(move |claim| {
            let scope = DisruptionScope::of(claim, None);
            snapshot.pause.disruption_pause(&scope, now)
        });
        paused.map(|paused| Obstacle::Blocked(DisruptionBlocker::Paused(paused)))
    }

    fn of_replaced(
        &self,
        one: &BegunMove,
        claims: &[&Arc<Claim>],
        (reason, at): (DisruptionReason, Timestamp),
    ) -> Vec<Obstacle> {
        let OutlookInput { snapshot, settings, now, .. } = self.input;
        let mut found = self.of_all();
        found.extend(self.of_launches(one));
        found.extend(self.of_budgets(claims, reason));
        match reason {
            DisruptionReason::Empty | DisruptionReason::Underutilized => {
                let after = claims.iter().filter_map(|claim| consolidatable_from(snapshot, claim)).max();
                found.extend(after.filter(|from| *from > now).map(Obstacle::ConsolidateAfter));
                found.extend(one.worth_from.filter(|from| *from > now).map(Obstacle::WorthFrom));
                found.extend(self.of_begun(one));
            }
            DisruptionReason::Drifted => found.extend(claims.iter().filter_map(|claim| self.maintenance(claim))),
            DisruptionReason::Expiring if at > now => {
                let from = claims.iter().filter_map(|claim| Expiry::replaced_from(claim, settings.expiry_lead, now));
                found.extend(from.map(|(from, _)| from).max().filter(|from| *from > now).map(Obstacle::ReplacedFrom));
            }
            DisruptionReason::Expiring | DisruptionReason::NodePoolDeleted => {}
        }
        found.extend(claims.iter().flat_map(|claim| self.blockers(claim, reason)));
        found.retain(|obstacle| !(one.deletes_only() && obstacle.is_replacement_loop()));
        found
    }

    /// What of a node and its pods keeps it.
    pub(super) fn blockers(&self, claim: &Claim, reason: DisruptionReason) -> Vec<Obstacle> {
        let OutlookInput { snapshot, now, .. } = self.input;
        let obstacle = |blocker: DisruptionBlocker| match &blocker {
            DisruptionBlocker::PodRefuses(key) => match snapshot.pods().get(key).and_then(|pod| refuses_until(pod)) {
                Some(end) => Obstacle::PodRefusesUntil(key.clone(), end),
                None => Obstacle::Blocked(blocker),
            },
            _ => Obstacle::Blocked(blocker),
        };
        let mut blockers = disruption_blockers(snapshot, claim, self.possible(claim, reason), now);
        // Karpenter evicts pods without a controller, and knows neither the pause switch nor loops of replacements.
        let is_of_ours = |blocker: &DisruptionBlocker| {
            use DisruptionBlocker::{Paused, PodWithoutController, ReplacementLoop};
            matches!(blocker, PodWithoutController(_) | Paused(_) | ReplacementLoop(_))
        };
        blockers.retain(|blocker| claim.is_ours() || !is_of_ours(blocker));
        if is_of_fixed_size(snapshot, claim) && reason.is_outdated() {
            let passes = passes_blockers(claim, reason);
            blockers.retain(|blocker| keeps_fixed_size(blocker, passes));
        }
        blockers.into_iter().map(obstacle).collect()
    }

    /// What keeps the replacements of a move from being launched.
    fn of_launches(&self, one: &BegunMove) -> Vec<Obstacle> {
        let snapshot = self.input.snapshot;
        if one.replacements.is_empty() {
            return Vec::new();
        }
        let is_paused = snapshot.pause.blocks(PauseSwitch::Launch, self.input.now);
        let paused = is_paused.then(|| "launches are paused".to_owned());
        let held = paused.or_else(|| snapshot.launch_hold.as_ref().map(ToString::to_string));
        let of_pools = one.replacements.iter().filter_map(|(pool, _)| {
            let why = snapshot.pool_hold(pool)?;
            Some(Obstacle::PoolHeld(pool.clone(), why))
        });
        held.map(Obstacle::LaunchesHeld).into_iter().chain(of_pools).collect()
    }

    /// The budgets that do not allow all of these nodes to be disrupted for a reason now.
    pub(super) fn of_budgets(&self, claims: &[&Arc<Claim>], reason: DisruptionReason) -> Vec<Obstacle> {
        let pools = nodes_by_pool(claims.iter().copied());
        let pools = pools.into_iter().filter_map(|(pool, nodes)| Some((self.pool(&pool)?, nodes)));
        pools.filter_map(|(pool, nodes)| self.of_budget(pool, reason, nodes)).collect()
    }

    fn of_budget(&self, pool: &NodePool, reason: DisruptionReason, nodes: u32) -> Option<Obstacle> {
        let mut left = self.left.borrow_mut();
        let left = left.entry((pool.name.clone(), reason.in_budgets()));
        let now = self.input.now;
        let of_pool = || {
            let left = budget_left(&self.after, pool, reason, now);
            left.saturating_sub(count_being_replaced(self.input, &self.after, pool))
        };
        if *left.or_insert_with(of_pool) >= nodes {
            return None;
        }
        let opens = self.budgets.next(pool, reason, (nodes, now)).filter(|opens| *opens > now);
        Some(Obstacle::Budget { pool: pool.name.clone(), reason: reason.in_budgets(), opens })
    }

    /// The maintenance window for which the replacement of a node waits.
    pub(super) fn maintenance(&self, claim: &Claim) -> Option<Obstacle> {
        let hold = self.drift_of(claim)?.maintenance_hold(&self.input.settings.maintenance_windows, self.input.now);
        hold.map(Obstacle::Maintenance)
    }

    /// The NodeClaims of a NodePool of fixed size that are being replaced.
    pub(super) fn being_replaced(&self, pool: &NodePoolName) -> &[ClaimName] {
        self.being_replaced.get(pool).map_or(&[], Vec::as_slice)
    }

    /// How a NodeClaim has drifted.
    pub(super) fn drift_of(&self, claim: &Claim) -> Option<&Drift> {
        self.drifts.get(&claim.name)
    }

    /// A NodePool with its own budgets.
    pub(super) fn pool(&self, name: &NodePoolName) -> Option<&NodePool> {
        self.input.snapshot.pools().get(name).map(|pool| &**pool)
    }
}

/// It keeps an outdated node of a NodePool of fixed size, which is replaced whether or not it is ready, and drained as
/// PodDisruptionBudgets allow. `passes`: `karpenter.sh/do-not-disrupt` does not keep it.
const fn keeps_fixed_size(blocker: &DisruptionBlocker, passes: bool) -> bool {
    use DisruptionBlocker as B;
    match blocker {
        B::NotReady | B::PodProtected(..) => false,
        B::DoNotDisrupt | B::PodRefuses(_) | B::PodUnreadable(_) | B::PodWithoutController(_) => !passes,
        B::NotInitialized | B::BeingDeleted | B::Paused(_) | B::ReplacementLoop(_) => true,
    }
}

/// How many of these NodeClaims each NodePool has.
pub(super) fn nodes_by_pool<'c>(claims: impl Iterator<Item = &'c Arc<Claim>>) -> BTreeMap<NodePoolName, u32> {
    let mut of_pools: BTreeMap<NodePoolName, u32> = BTreeMap::new();
    claims.filter_map(|claim| claim.spec.pool.clone()).for_each(|pool| *of_pools.entry(pool).or_default() += 1);
    of_pools
}

/// When the annotation `karpenter.sh/do-not-disrupt` of a pod ends, if it has a duration.
fn refuses_until(pod: &Pod) -> Option<Timestamp> {
    match pod.do_not_disrupt {
        Some(DoNotDisrupt::For(time)) => pod.started_at?.checked_add(time).ok(),
        _ => None,
    }
}
