//! The policy `Balanced`: a move must save a share of its NodePool's cost that is worth the share of its pods disrupted.
//!
//! As in Karpenter: the share of the pool's price that is saved, by the share of the cost of disrupting the whole pool, is at
//! least a half. Of a move of several pools each that has the policy must agree, and what is saved is split by the prices of
//! their nodes.

use super::candidate::{Candidate, current_price, eviction_cost};
use crate::model::amounts::money::HourlyPrice;
use crate::model::cluster::claim::Claim;
use crate::model::cluster::pod::{Pod, PodOwner};
use crate::model::cluster::pool::{ConsolidationPolicy, NodePool};
use crate::model::names::{ClaimName, NodePoolName};
use crate::scheduling::OverlaidInstanceTypes;
use crate::snapshot::Snapshot;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The share that is saved may be so much smaller than the share that is disrupted (Karpenter's `k`).
const K: f64 = 2.0;

/// Price and disruption cost of some nodes of a pool.
#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    /// In nano-USD per hour.
    price: f64,
    /// In the unit of [`Pod::eviction_cost`].
    cost: f64,
}

impl Totals {
    fn add(&mut self, price: HourlyPrice, cost: i64) {
        self.price += as_float(price.nanos());
        self.cost += as_float(cost);
    }
}

/// All nodes of each NodePool with the policy `Balanced`.
#[derive(Debug, Default)]
pub(super) struct BalancedPools<'a>(BTreeMap<&'a NodePoolName, Totals>);

impl<'a> BalancedPools<'a> {
    /// Nodes that are no candidates count too.
    pub(super) fn of(snapshot: &'a Snapshot, candidates: &[Candidate<'a>]) -> Self {
        let is_balanced = |pool: &&Arc<NodePool>| pool.disruption.policy == ConsolidationPolicy::Balanced;
        let balanced = snapshot.pools().values().filter(is_balanced);
        let mut pools: BTreeMap<&NodePoolName, Totals> = balanced.map(|pool| (&pool.name, Totals::default())).collect();
        if pools.is_empty() {
            return Self(pools);
        }
        let by_name: BTreeMap<&ClaimName, &Candidate<'_>> = candidates.iter().map(|c| (&c.claim.name, c)).collect();
        let overlaid = OverlaidInstanceTypes::of(snapshot);
        for claim in snapshot.claims().values() {
            let Some(totals) = claim.spec.pool.as_ref().and_then(|pool| pools.get_mut(pool)) else { continue };
            match by_name.get(&claim.name) {
                Some(candidate) => totals.add(candidate.price, candidate.disruption_cost()),
                None => {
                    let price = current_price(&overlaid, claim).unwrap_or_default();
                    totals.add(price, disruption_cost(snapshot, claim));
                }
            }
        }
        Self(pools)
    }

    /// True when each NodePool of these nodes that has the policy finds their disruption worth what it saves.
    pub(super) fn approve(&self, sources: &[&Candidate<'_>], saving: HourlyPrice) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let (mut all, mut of_pools) = (Totals::default(), BTreeMap::<&NodePoolName, Totals>::new());
        for source in sources {
            all.add(source.price, source.disruption_cost());
            of_pools.entry(&source.pool.name).or_default().add(source.price, source.disruption_cost());
        }
        of_pools.into_iter().all(|(pool, disrupted)| {
            let share = if all.price > 0.0 { disrupted.price / all.price } else { 1.0 };
            let saved = as_float(saving.nanos()) * share;
            self.0.get(pool).is_none_or(|totals| is_worth(saved, disrupted.cost, *totals))
        })
    }
}

/// The share saved, by the share disrupted, is large enough.
fn is_worth(saved: f64, cost: f64, totals: Totals) -> bool {
    totals.price > 0.0 && totals.cost > 0.0 && saved > 0.0 && saved / totals.price * K >= cost / totals.cost
}

/// What disrupting a node costs that is no candidate: all pods but those of DaemonSets count.
fn disruption_cost(snapshot: &Snapshot, claim: &Claim) -> i64 {
    let usage = snapshot.node_of(claim).and_then(|node| snapshot.node_usage(&node.name));
    let pods = usage.into_iter().flat_map(|usage| &usage.pods).filter_map(|key| snapshot.pods().get(key));
    let counted = pods.filter(|pod| pod.owner != PodOwner::DaemonSet && !pod.is_terminal());
    Pod::EVICTION_COST + eviction_cost(counted)
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn as_float(number: i64) -> f64 {
    number as f64
}
