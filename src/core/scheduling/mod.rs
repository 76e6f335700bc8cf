//! Scheduling: on which nodes, existing or new, will the waiting pods run?
//!
//! A simulation of what kube-scheduler will do, and of what it could do with new nodes. It tries, in this order:
//! nodes that exist (those that nobody manages too), NodeClaims in flight, and new nodes of each NodePool by weight.
//! Nothing is read but the Snapshot, and nothing is written but the [`Outcome`].
//!
//! `solve` goes through the pods; `kinds` says which are alike, `topology` counts neighbours, `bins` is the room
//! that there is, `open` the nodes that are thought of, `choice` what those may become, `buy` what is bought for
//! pods that ask nothing of each other.

mod account;
mod allowance;
mod asks;
mod axes;
mod because;
mod bins;
mod bound;
mod buy;
mod candidates;
mod choice;
mod fill;
mod filter;
mod finish;
mod fits;
mod ground;
mod group;
mod improve;
mod kinds;
mod offer;
pub mod offerings;
mod open;
mod outcome;
mod overlaid;
mod place;
mod relax;
mod remedy;
mod search;
mod shelves;
mod size;
mod solve;
mod standing;
mod stock;
mod topology;
mod unavailable;
mod variants;
mod variety;
mod volumes;
mod waterfall;
mod why;
mod words;

use crate::model::cluster::pod::Pod;
use crate::model::names::{ClaimName, NodeName, ObjectKey};
use crate::snapshot::Snapshot;
use crate::snapshot::spread_defaults::SpreadDefaults;
pub use account::{Account, Accounts, Because, Bond, Fate, Place, Purchase, Stuck, Tie, account};
pub use bound::Cost;
pub use candidates::Market;
pub(crate) use candidates::claim_requirements;
use kinds::Demand;
pub use outcome::{NewNode, NoReservation, Outcome, Placement, Target, Unplaced, WhyNot};
pub use overlaid::{Conflict, Overlaid, OverlayMemory};
pub use relax::Wish;
pub use remedy::{Change, Remedy};
pub use size::{Size, SizeChoice};
use solve::Solver;
pub use standing::{Bought, Nowhere, Spot, Standing};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
pub use stock::Lack;
pub(crate) use stock::{stock, unmet_requirement};
use topology::Surprises;
pub use unavailable::{Scope, Unavailable};
use volumes::{Book, Volumes};
pub use waterfall::{PoolStep, PoolWaterfall, StepWhat};

/// What is to be simulated.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// The cluster.
    pub snapshot: &'a Snapshot,
    /// What its pools may buy.
    pub market: &'a Market,
    /// Nodes that are to be taken as gone.
    pub without: &'a BTreeSet<NodeName>,
    /// How many new nodes may be bought at the most.
    pub new_nodes: usize,
    /// The NodeClaims in flight that pods were planned for before: what was bought for a pod is kept for it.
    pub promised: &'a BTreeMap<ObjectKey, ClaimName>,
}

/// How often a plan is made anew because a domain came up after pods had been placed as if it were not there.
const MOST_ATTEMPTS: usize = 4;

/// Most new nodes of one simulation.
pub const MOST_NEW_NODES: usize = 5_000;

/// Places pods: existing nodes first, then NodeClaims in flight, then new nodes.
#[must_use]
pub fn schedule(input: Input<'_>, pods: &[Arc<Pod>]) -> Outcome {
    outcome_of(&mut solve(input, pods))
}

/// The same, and says how dear the new nodes are beside the least that they could cost.
#[must_use]
pub fn schedule_with_cost(input: Input<'_>, pods: &[Arc<Pod>]) -> (Outcome, Cost) {
    let mut solved = solve(input, pods);
    (outcome_of(&mut solved), bound::cost(&mut solved.solver))
}

/// A simulation that is over.
struct Solved {
    solver: Solver,
    /// What found no place.
    homeless: Vec<Demand>,
    refused: Vec<Refused>,
}

fn solve(input: Input<'_>, pods: &[Arc<Pod>]) -> Solved {
    match SpreadDefaults::of(input.snapshot) {
        Some(defaults) => {
            let complete = |pod: &Arc<Pod>| defaults.complete(pod).unwrap_or_else(|| Arc::clone(pod));
            attempt(input, &pods.iter().map(complete).collect::<Vec<_>>())
        }
        None => attempt(input, pods),
    }
}

fn attempt(input: Input<'_>, pods: &[Arc<Pod>]) -> Solved {
    // Pods that are to be placed anew leave the place where they run now.
    let leaving: BTreeSet<&ObjectKey> = pods.iter().filter(|p| p.node.is_some()).map(|p| &p.key).collect();
    let is_topological = pods.iter().any(|pod| {
        let shape = &pod.shape;
        shape.affinity.is_some() || shape.preferences.is_some() || !shape.spread.is_empty()
    });
    let book = Book::of(input, pods);
    let mut foreseen = Surprises::new();
    let mut attempts = 1..=MOST_ATTEMPTS;
    loop {
        attempts.next();
        let mut solver = Solver::new((input, &book), &leaving, is_topological, foreseen);
        let (waiting, refused) = waiting((input, &book), pods, &mut solver);
        let homeless = solver.solve(waiting);
        match solver.known.topology.surprises().filter(|_| !attempts.is_empty()) {
            Some(surprises) => foreseen = surprises,
            None => return Solved { solver, homeless, refused },
        }
    }
}

fn outcome_of(Solved { solver, homeless, refused }: &mut Solved) -> Outcome {
    let mut outcome = Outcome::default();
    refused.drain(..).for_each(|(pod, why)| outcome.refuse(vec![pod], vec![(None, why)]));
    finish::finish(solver, &mut outcome);
    for demand in homeless.drain(..) {
        let why = why::why_not(solver, demand.family.bare);
        outcome.refuse(demand.pods, why);
    }
    outcome
}

/// A pod for which nothing can be done, and why.
type Refused = (Arc<Pod>, WhyNot);

/// Pods that are to be placed, with what their volumes ask for, without those that keep the claim they were promised; and
/// those that no node helps.
fn waiting(
    (input, book): (Input<'_>, &Book),
    pods: &[Arc<Pod>],
    solver: &mut Solver,
) -> (Vec<(Arc<Pod>, Volumes)>, Vec<Refused>) {
    let (mut waiting, mut refused) = (Vec::with_capacity(pods.len()), Vec::new());
    for pod in pods {
        match book.volumes_of(input.snapshot, pod) {
            _ if pod.claims_devices => refused.push((Arc::clone(pod), WhyNot::Devices)),
            Err(trouble) => refused.push((Arc::clone(pod), WhyNot::Volume(trouble))),
            Ok(volumes) => {
                let promised = input.promised.get(&pod.key);
                if !promised.is_some_and(|claim| solver.keep_promise(pod, &volumes, claim)) {
                    waiting.push((Arc::clone(pod), volumes));
                }
            }
        }
    }
    (waiting, refused)
}

#[cfg(test)]
mod tests;
