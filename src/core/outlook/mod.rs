//! What disruption and static capacity do next, and what keeps each node from it.
//!
//! The deciders themselves are run on copies of the cluster (`run`): as it is; without what holds it up, and with budgets that allow
//! more; at later times; and without what keeps pods where they are. A move that begins only in a later one of these waits for
//! what was lifted. No node is in two moves. What is found so holds if nothing else changes.

mod budgets;
mod nodes;
mod obstacle;
mod obstacles;
mod run;
#[cfg(test)]
mod tests;

use crate::disruption::{Expiry, current_price, is_in_progress};
use crate::model::amounts::money::HourlyPrice;
use crate::model::cluster::claim::{Claim, PlannedOffering};
use crate::model::cluster::pod::PodOwner;
use crate::model::cluster::pool::DisruptionReason;
use crate::model::names::{ClaimName, NodeName, NodePoolName};
use crate::model::settings::{DisruptionScope, Settings};
use crate::provisioning::ProvisionMemory;
use crate::scheduling::OverlaidInstanceTypes;
use crate::snapshot::Snapshot;
use crate::static_capacity::SCALED_DOWN;
use budgets::BudgetsAhead;
use jiff::{SignedDuration, Timestamp};
use nodes::{Found, node_outlooks};
pub use obstacle::Obstacle;
use obstacles::{Obstacles, nodes_by_pool};
use run::{BegunMove, Run};
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Times ahead at which moves are looked for. Nothing is worth it later that is not worth it after the last of them without a
/// change; what begins in between is found at the next.
const LATER: [SignedDuration; 3] =
    [SignedDuration::from_mins(40), SignedDuration::from_hours(4), SignedDuration::from_hours(24)];
/// About how many nodes the passes of the decider look at, all together: so that it takes seconds.
const NODE_PASSES: usize = 200_000;
/// The fewest passes.
const MIN_PASSES: usize = 150;
/// The most passes.
const MAX_PASSES: usize = 2_000;
/// How often budgets allow more at one time. As many moves of a NodePool are found as its budgets allow at once, times this.
const MAX_ROUNDS: usize = 4;

/// What disruption decides by.
#[derive(Debug, Clone, Copy)]
pub struct OutlookInput<'a> {
    /// The cluster.
    pub snapshot: &'a Snapshot,
    /// The memory of provisioning; the default where it is not known.
    pub provision: &'a ProvisionMemory,
    /// The settings.
    pub settings: &'a Settings,
    /// The time.
    pub now: Timestamp,
    /// The source of randomness.
    pub seed: u64,
}

/// What disruption does next.
#[derive(Debug)]
pub struct Outlook {
    /// Those that begin now in the order of the decider, then the others by their earliest time; of those
    /// that consolidate nodes in use, the largest saving first.
    pub moves: Vec<NextMove>,
    /// All NodeClaims whose node has joined, by name.
    pub nodes: Vec<NodeOutlook>,
    /// False where the search was ended before all moves were found.
    pub is_complete: bool,
}

/// Nodes that are taken away together.
#[derive(Debug, Clone)]
pub struct NextMove {
    /// Why.
    pub reason: NextMoveReason,
    /// What is taken away.
    pub sources: Vec<Source>,
    /// The NodePools and cheapest offerings of the nodes that are launched first; none where the pods fit on others.
    pub replacements: Vec<(NodePoolName, PlannedOffering)>,
    /// Why, for people.
    pub why: Arc<str>,
    /// What it waits for; none where it begins now.
    pub obstacles: Vec<Obstacle>,
    /// When it begins at the earliest if nothing else changes; `None` where that depends on something whose end is not known.
    pub earliest: Option<Timestamp>,
}

/// Why nodes are taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextMoveReason {
    /// Within the budgets for this reason.
    Disrupted(DisruptionReason),
    /// `expireAfter` has passed. No budget limits it.
    Expired,
    /// Its NodePool has more nodes than its `replicas`. No budget limits it.
    ScaledDown,
}

impl NextMoveReason {
    /// The reason by which budgets limit it, if they do.
    #[must_use]
    pub const fn disruption(self) -> Option<DisruptionReason> {
        match self {
            Self::Disrupted(reason) => Some(reason),
            Self::Expired | Self::ScaledDown => None,
        }
    }

    /// As on NodeClaims.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Disrupted(reason) => reason.as_str(),
            Self::Expired => "Expired",
            Self::ScaledDown => "ScaledDown",
        }
    }

    /// The reason of deletions of this category.
    fn of_category(category: &str) -> Self {
        match DisruptionReason::of_category(category) {
            Some(reason) => Self::Disrupted(reason),
            None if category == SCALED_DOWN => Self::ScaledDown,
            None => Self::Expired,
        }
    }
}

/// A node that is taken away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Its NodeClaim.
    pub claim: ClaimName,
    /// Its node.
    pub node: Option<NodeName>,
    /// Its NodePool.
    pub pool: Option<NodePoolName>,
    /// What it costs, with its OS disk.
    pub price: HourlyPrice,
    /// Pods that are evicted; not those of DaemonSets.
    pub evictions: usize,
}

/// A node, and what keeps it from being disrupted.
#[derive(Debug)]
pub struct NodeOutlook {
    /// Its NodeClaim.
    pub claim: Arc<Claim>,
    /// The number of its move among [`Outlook::moves`].
    pub next_move: Option<usize>,
    /// Why it would be taken away.
    pub reason: NextMoveReason,
    /// All that keeps it.
    pub obstacles: Vec<Obstacle>,
    /// When it is deleted whatever keeps it, since it expires.
    pub expires_at: Option<Timestamp>,
}

impl NextMove {
    /// What it saves per hour, at the prices of the cheapest offerings; negative where it costs more.
    #[must_use]
    pub fn saving(&self) -> HourlyPrice {
        let old: HourlyPrice = self.sources.iter().map(|source| source.price).sum();
        old - self.replacements.iter().map(|(_, offering)| offering.price).sum()
    }

    /// How many pods it evicts.
    #[must_use]
    pub fn evictions(&self) -> usize {
        self.sources.iter().map(|source| source.evictions).sum()
    }
}

/// What disruption does next, and what keeps each node from it.
#[must_use]
pub fn outlook(input: OutlookInput<'_>) -> Outlook {
    let nodes = input.snapshot.nodes().values().count().max(1);
    outlook_within(input, &Cell::new((NODE_PASSES / nodes).clamp(MIN_PASSES, MAX_PASSES)))
}

/// The same with at most so many passes of the decider.
fn outlook_within(input: OutlookInput<'_>, passes: &Cell<usize>) -> Outlook {
    let mut run = Run::new(input, passes);
    let begun = run.begin(input.now);
    let awaits_launch = run.awaits_launch == Some(true);
    let mut found = FoundMoves { input, overlaid: OverlaidInstanceTypes::of(input.snapshot), moves: Vec::new() };
    let budgets = BudgetsAhead::new(input.snapshot, input.now);
    let obstacles = Obstacles::new(input, &budgets, run.snapshot.clone());
    found.add(begun, |one| obstacles.of_begun(one));
    run.lift_holds();
    let mut begin_all = |run: &mut Run<'_>, at| {
        for _ in 0..MAX_ROUNDS {
            run.lift_budgets(&budgets);
            let begun = run.begin(at);
            if begun.is_empty() {
                break;
            }
            found.add(begun, |one| obstacles.of_move(one, at));
        }
    };
    begin_all(&mut run, input.now);
    let mut unblocked = run.clone();
    LATER.iter().filter_map(|after| input.now.checked_add(*after).ok()).for_each(|at| begin_all(&mut run, at));
    unblocked.lift_blockers();
    begin_all(&mut unblocked, input.now);
    let moves = found.ranked(&obstacles);
    let shortages = [run.static_capacity.shortages, unblocked.static_capacity.shortages].concat();
    let nodes = node_outlooks(&obstacles, &Found { moves: &moves, shortages: &shortages, awaits_launch });
    Outlook { moves, nodes, is_complete: passes.get() > 0 }
}

/// From when on `consolidateAfter` allows it to consolidate a node; `None` where it never does.
fn consolidatable_from(snapshot: &Snapshot, claim: &Claim) -> Option<Timestamp> {
    let pool = snapshot.pools().get(claim.spec.pool.as_ref()?)?;
    pool.consolidatable_from(claim.status.quiet_since()?)
}

/// When a node is deleted whatever keeps it, since it expires; `None` where that does not come or is paused then.
fn expires_at(input: OutlookInput<'_>, claim: &Claim) -> Option<Timestamp> {
    let (_, Expiry { at }) = Expiry::replaced_from(claim, input.settings.expiry_lead, input.now)?;
    let snapshot = input.snapshot;
    let is_paused = snapshot.pause.blocks_disruption(&DisruptionScope::of(claim, None), at);
    let is_unreadable = claim.spec.pool.as_ref().is_some_and(|name| snapshot.is_unreadable_pool(name));
    (claim.is_ours() && !is_paused && !is_unreadable).then_some(at)
}

/// Moves, none of which shares a node with another.
struct FoundMoves<'a> {
    input: OutlookInput<'a>,
    overlaid: OverlaidInstanceTypes,
    moves: Vec<NextMove>,
}

impl FoundMoves<'_> {
    fn add(&mut self, begun: Vec<BegunMove>, obstacles: impl Fn(&BegunMove) -> Vec<Obstacle>) {
        for one in begun {
            let is_known = |name: &ClaimName| self.moves.iter().flat_map(|m| &m.sources).any(|s| s.claim == *name);
            // Not a node that a run has begun to launch.
            let sources: Vec<Source> = one.sources.iter().filter_map(|name| self.source(name)).collect();
            if sources.len() < one.sources.len() || one.sources.iter().any(is_known) {
                continue;
            }
            let obstacles = obstacles(&one);
            let BegunMove { reason, replacements, why, .. } = one;
            self.moves.push(NextMove { reason, sources, replacements, why, obstacles, earliest: None });
        }
    }

    /// All, with their earliest times: those that begin now in the order of the decider, then the others by their time. Of those that wait for the same budgets, the first uses what these allow.
    fn ranked(self, obstacles: &Obstacles<'_>) -> Vec<NextMove> {
        let (mut ranked, mut waiting): (Vec<_>, Vec<_>) =
            self.moves.into_iter().partition(|one| one.obstacles.is_empty());
        ranked.iter_mut().for_each(|one| one.earliest = Some(self.input.now));
        // Outdated nodes go in the order of the deciders; only of what is done for its price the largest saving comes first.
        let order = |one: &NextMove| match one.reason {
            NextMoveReason::Disrupted(DisruptionReason::Underutilized) => (true, Reverse(one.saving())),
            _ => (false, Reverse(HourlyPrice::ZERO)),
        };
        waiting.sort_by_key(order);
        let mut earlier: BTreeMap<NodePoolName, u32> = BTreeMap::new();
        for one in &mut waiting {
            let claims = one.sources.iter().filter_map(|source| self.input.snapshot.claims().get(&source.claim));
            let claims: Vec<&Arc<Claim>> = claims.collect();
            let nodes = nodes_by_pool(claims.iter().copied());
            let alone = obstacles.earliest(one.reason.disruption(), &nodes, &one.obstacles, &BTreeMap::new());
            one.earliest = obstacles.earliest(one.reason.disruption(), &nodes, &one.obstacles, &earlier);
            if alone.is_some() && one.earliest != alone && !one.obstacles.contains(&Obstacle::EarlierMoves) {
                // When they have ended is not known.
                one.obstacles.push(Obstacle::EarlierMoves);
                one.earliest = None;
            } else if one.earliest.is_some() && one.reason.disruption().is_some() {
                nodes.into_iter().for_each(|(pool, nodes)| *earlier.entry(pool).or_default() += nodes);
            }
            if one.reason == NextMoveReason::Disrupted(DisruptionReason::Expiring) {
                let deadline = claims.iter().filter_map(|claim| expires_at(self.input, claim)).min();
                one.earliest = one.earliest.into_iter().chain(deadline).min();
            }
        }
        waiting.sort_by_key(|one| (one.earliest.is_none(), one.earliest));
        ranked.extend(waiting);
        ranked
    }

    fn source(&self, name: &ClaimName) -> Option<Source> {
        let snapshot = self.input.snapshot;
        let claim = snapshot.claims().get(name)?;
        Some(Source {
            claim: name.clone(),
            node: snapshot.node_of(claim).map(|node| node.name.clone()),
            pool: claim.spec.pool.clone(),
            price: current_price(&self.overlaid, claim).unwrap_or_default(),
            evictions: evictions(snapshot, claim),
        })
    }
}

/// How many pods leave the node of a NodeClaim if it is taken away.
fn evictions(snapshot: &Snapshot, claim: &Claim) -> usize {
    let Some(node) = snapshot.node_of(claim) else { return 0 };
    let is_evicted = |owner: PodOwner| matches!(owner, PodOwner::Controller | PodOwner::Nobody);
    snapshot.pods_on(&node.name).filter(|pod| is_evicted(pod.owner)).count()
}
