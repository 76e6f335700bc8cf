//! Scheduling: on which nodes, existing or new, will the waiting pods run?
//!
//! A simulation of what kube-scheduler will do, and of what it could do with new nodes. It tries, in this order:
//! nodes that exist (those that nobody manages too), NodeClaims in flight, and new nodes of each NodePool by weight.
//! New nodes are bought greedily: of all offerings, the one whose price is lowest against the value of the waiting
//! pods it would hold. Nothing is read but the Snapshot, and nothing is written but the [`Outcome`].

mod bins;
mod candidates;
mod demand;
mod outcome;
mod pack;
mod remedy;
mod spread;
mod standing;
mod unavailable;

pub use candidates::Market;
pub(crate) use candidates::claim_requirements;
pub use outcome::{NewNode, Outcome, Placement, Target, Unplaced, WhyNot};
pub use remedy::{Change, Remedy};
pub use standing::{Bought, Nowhere, Spot, Standing};
pub use unavailable::{Scope, Unavailable};

use crate::cluster::Snapshot;
use crate::cluster::pod::Pod;
use crate::names::{ClaimName, NodeName, ObjectKey};
use bins::Bins;
use demand::Demand;
use pack::Packer;
use spread::SpreadBook;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

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

/// Most new nodes of one simulation.
pub const MOST_NEW_NODES: usize = 5_000;

/// Places pods: existing nodes first, then NodeClaims in flight, then new nodes.
#[must_use]
pub fn schedule(input: Input<'_>, pods: &[Arc<Pod>]) -> Outcome {
    let mut outcome = Outcome::default();
    let mut spread = SpreadBook::new(input.snapshot, input.without, pods);
    let mut bins = Bins::new(input);
    let promised = |pod: &&Arc<Pod>| {
        let claim = input.promised.get(&pod.key);
        claim.is_some_and(|claim| bins.keep_promise(pod, claim, &mut spread, &mut outcome))
    };
    let (_, others): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) = pods.iter().partition(promised);
    let demands = Demand::group(others);
    let mut rest = Vec::new();
    let mut packer = Packer::new(input);
    for demand in demands {
        if let Some(why) = SpreadBook::unsupported(&demand.shape) {
            outcome.refuse(demand.pods, vec![(None, why)]);
        } else if SpreadBook::is_zonal(&demand.shape) {
            place_by_zone(demand, &mut bins, &mut spread, &packer, &mut outcome, &mut rest);
        } else {
            let left = bins.place(demand, None, &mut spread, &mut outcome);
            rest.extend((!left.pods.is_empty()).then_some(left));
        }
    }
    let homeless = packer.pack(rest, &mut outcome);
    spread.settle(&homeless, &mut outcome);
    outcome
}

/// Places pods with zone spread constraints one by one, each in the zone that has fewest; what needs a new node is
/// pinned to its zone.
#[expect(clippy::too_many_arguments, reason = "the parts of one simulation, which only this loop needs together")]
fn place_by_zone(
    demand: Demand,
    bins: &mut Bins,
    spread: &mut SpreadBook,
    packer: &Packer,
    outcome: &mut Outcome,
    rest: &mut Vec<Demand>,
) {
    let offered = packer.zones_for(&demand.shape);
    let mut zones = offered.clone();
    let promised = bins.zones_for(&demand.shape);
    spread.add_domains(&demand.shape, &promised);
    zones.extend(promised);
    let first_pinned = rest.len();
    for pod in &demand.pods {
        let mut homeless = true;
        for zone in spread.order(&demand.shape, &zones) {
            if bins.place(demand.only(pod), Some(&zone), spread, outcome).pods.is_empty() {
                homeless = false;
                break;
            }
            if offered.contains(&zone) {
                spread.count(&demand.shape, &zone, 1);
                match rest[first_pinned..].iter_mut().find(|d| d.zone.as_ref() == Some(&zone)) {
                    Some(pinned) => pinned.pods.push(Arc::clone(pod)),
                    None => rest.push(Demand { zone: Some(zone), ..demand.only(pod) }),
                }
                homeless = false;
                break;
            }
        }
        if homeless {
            outcome.refuse(vec![Arc::clone(pod)], vec![(None, WhyNot::Spread)]);
        }
    }
}

#[cfg(test)]
mod tests;
