//! Accounts: why did pods go where they went, or nowhere?
//!
//! All of it is worked out after the solve, from what that left behind: [`schedule`](super::schedule) does nothing for
//! it. Pods that are alike and went to places of one sort share one account, and only so many are worked out, so that
//! those of ten thousand pods stay short.

use super::because::because;
use super::finish::finish;
use super::kinds::KindId;
use super::outcome::{Outcome, WhyNot};
use super::relax::Wish;
use super::remedy::{Change, Remedy, remedy};
use super::size::{Size, SizeChoice};
use super::solve::Solver;
use super::waterfall::{PoolWaterfall, waterfalls};
use super::why::{of_pool, why_not};
use super::{Input, Refused, Solved, solve};
use crate::model::amounts::resources::Resources;
use crate::model::cluster::claim::PlannedOffering;
use crate::model::cluster::pod::{Pod, PodShape};
use crate::model::names::{ClaimName, NodeName, NodePoolName, ObjectKey};
use crate::model::requirements::Requirements;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most accounts that are worked out.
const MOST_ACCOUNTS: usize = 32;

/// What is said of some pods.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Accounts {
    /// Pods without a place first.
    pub accounts: Vec<Account>,
    /// Groups of pods beyond, of which nothing is said.
    pub more_groups: usize,
    /// The pods of those groups.
    pub more_pods: usize,
    /// Those of them that have no place.
    pub more_unplaced: usize,
}

/// What is said of pods that are alike and fared alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The pods.
    pub pods: Vec<ObjectKey>,
    /// What each of them asks for.
    pub requests: Resources,
    /// How they fared, and why.
    pub fate: Fate,
}

/// How pods fared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// They have a place.
    Placed(Box<Because>),
    /// They have none.
    Nowhere(Box<Stuck>),
}

/// Why pods have no place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stuck {
    /// Why each pool cannot help; `None` stands for all pools.
    pub why: Vec<(Option<NodePoolName>, WhyNot)>,
    /// What is left of each pool after each thing that they ask for.
    pub waterfalls: Vec<PoolWaterfall>,
    /// The least that would have to change.
    pub remedy: Option<Remedy>,
}

/// Why pods have the place that they have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Because {
    /// Where it is.
    pub place: Place,
    /// What of it follows from constraints on neighbours, or from volumes.
    pub bonds: Vec<Bond>,
    /// What they would have liked, and could not have.
    pub given_up: Vec<Wish>,
    /// How much of what they would have liked they have. On nodes that are there nobody asks for it but kube-scheduler.
    pub granted: usize,
}

/// A sort of places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Nodes that exist have room; the first of them, with the number of pods.
    Nodes {
        /// The first of them, with the number of these pods.
        nodes: Vec<(NodeName, usize)>,
        /// How many there are.
        count: usize,
    },
    /// NodeClaims in flight have room.
    Claims {
        /// The first of them, with the number of these pods.
        claims: Vec<(ClaimName, usize)>,
        /// How many there are.
        count: usize,
        /// How many of the pods these claims were made for.
        promised: usize,
    },
    /// New nodes, of one size and pool.
    New(Box<Purchase>),
}

/// New nodes of one size and pool. What is said of pods and of sizes holds for the first of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Purchase {
    /// How many there are.
    pub nodes: usize,
    /// Their pool.
    pub pool: NodePoolName,
    /// Pools that come before it, and why they cannot help.
    pub passed_over: Vec<(NodePoolName, WhyNot)>,
    /// What will be asked for first.
    pub best: PlannedOffering,
    /// How many offerings will be asked for, one after the other, should Azure refuse it.
    pub offerings: usize,
    /// How many of these pods it holds.
    pub own: usize,
    /// How many others it holds.
    pub others: usize,
    /// What all of them ask for.
    pub requests: Resources,
    /// Why this size.
    pub size: SizeChoice,
    /// What it would be without these pods, where it holds others.
    pub without: Option<Size>,
    /// What one of these pods would get by itself.
    pub alone: Option<Size>,
}

/// What ties pods to a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tie {
    /// A spread constraint.
    Spread,
    /// Affinity to other pods.
    Near,
    /// Anti-affinity to other pods.
    Apart,
    /// Where a volume can be used.
    Volume,
}

/// A label that was chosen because of a tie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bond {
    /// What ties them.
    pub tie: Tie,
    /// The label.
    pub key: Arc<str>,
    /// How many of the pods go to each value; of names of hosts none are given.
    pub values: BTreeMap<Arc<str>, usize>,
}

/// Places pods as [`schedule`](super::schedule) does, and gives an account of some of them.
#[must_use]
pub fn account(input: Input<'_>, pods: &[Arc<Pod>], about: impl Fn(&ObjectKey) -> bool) -> Accounts {
    let Solved { mut solver, homeless, refused } = solve(input, pods);
    let mut told = Accounts::default();
    for (why, pods) in by_reason(refused, &about) {
        told.add(pods, |pods| Some(stuck(pods, why)));
    }
    for demand in homeless {
        let kind = demand.family.bare;
        let pods = demand.pods.into_iter().filter(|pod| about(&pod.key)).collect();
        told.add(pods, |pods| Some(nowhere(pods, &mut solver, kind)));
    }
    told.more_unplaced = told.more_pods;
    let mut outcome = Outcome::default();
    finish(&solver, &mut outcome);
    because(&mut solver, (input, &outcome), about, &mut told);
    told
}

impl Accounts {
    /// True when all pods have a place.
    #[must_use]
    pub fn all_placed(&self) -> bool {
        self.more_unplaced == 0 && self.accounts.iter().all(|account| matches!(account.fate, Fate::Placed(_)))
    }

    /// Takes up a group of pods, which is worked out unless there are too many.
    pub(super) fn add(&mut self, pods: Vec<Arc<Pod>>, work_out: impl FnOnce(&[Arc<Pod>]) -> Option<Account>) {
        if pods.is_empty() {
            return;
        }
        if self.accounts.len() < MOST_ACCOUNTS {
            self.accounts.extend(work_out(&pods));
        } else {
            self.more_groups += 1;
            self.more_pods += pods.len();
        }
    }
}

impl Account {
    pub(super) fn of(pods: &[Arc<Pod>], fate: Fate) -> Self {
        let requests = pods.first().map(|pod| pod.shape.requests.clone()).unwrap_or_default();
        Self { pods: pods.iter().map(|pod| pod.key.clone()).collect(), requests, fate }
    }
}

/// Pods that no node helps, by why that is.
fn by_reason(refused: Vec<Refused>, about: impl Fn(&ObjectKey) -> bool) -> Vec<(WhyNot, Vec<Arc<Pod>>)> {
    let mut groups: Vec<(WhyNot, Vec<Arc<Pod>>)> = Vec::new();
    for (pod, why) in refused.into_iter().filter(|(pod, _)| about(&pod.key)) {
        match groups.iter_mut().find(|(known, _)| *known == why) {
            Some((_, pods)) => pods.push(pod),
            None => groups.push((why, vec![pod])),
        }
    }
    groups
}

fn stuck(pods: &[Arc<Pod>], why: WhyNot) -> Account {
    let stuck = Stuck { why: vec![(None, why)], waterfalls: Vec::new(), remedy: None };
    Account::of(pods, Fate::Nowhere(Box::new(stuck)))
}

fn nowhere(pods: &[Arc<Pod>], solver: &mut Solver, kind: KindId) -> Account {
    let why = why_not(solver, kind);
    let (waterfalls, remedy) = (waterfalls(solver, kind), least_change(solver, kind));
    Account::of(pods, Fate::Nowhere(Box::new(Stuck { why, waterfalls, remedy })))
}

/// The least change that gives pods of a kind a place. Where a pool has nothing against them but their neighbours, it is
/// those.
fn least_change(solver: &mut Solver, kind: KindId) -> Option<Remedy> {
    let pools = solver.shop.choices.pools();
    if let Some(pool) = (0..pools).find(|pool| of_pool(solver, kind, *pool).is_none()) {
        let unmet = solver.unmet(kind, pool);
        let pool = solver.shop.choices.offers(pool).pool.name.clone();
        return Some(Remedy { pool, changes: vec![Change::Soften(unmet)] });
    }
    let shape = &solver.known.kinds.get(kind).shape;
    let places = solver.known.kinds.told(kind).map(|told| told.volumes.places.as_slice()).unwrap_or_default();
    let mut remedy = remedy(&solver.shop, &with_volumes(shape, places))?;
    for change in &mut remedy.changes {
        let Change::Drop(key) = &*change else { continue };
        let asked = shape.selector.get(key);
        let [place] = places else { continue };
        // A volume stays where it is: the pool has to come to it.
        if let Some(there) = place.get(key).filter(|there| asked.is_none_or(|asked| asked == *there)) {
            *change = Change::Offer(Arc::clone(key), there.to_string());
        }
    }
    Some(remedy)
}

/// A shape that asks for the places of its volumes itself.
fn with_volumes(shape: &PodShape, places: &[Requirements]) -> PodShape {
    let mut narrowed = shape.clone();
    match places {
        [] => {}
        [only] => narrowed.selector.add_all(only),
        all if narrowed.alternatives.is_empty() => narrowed.alternatives = all.to_vec(),
        all => {
            let both = shape.alternatives.iter().flat_map(|one| all.iter().map(|place| one.intersect(place)));
            narrowed.alternatives = both.collect();
        }
    }
    narrowed
}
