//! Whether some nodes can be deleted, or replaced by a single cheaper one.

use super::candidates::Candidate;
use super::command::Command;
use crate::karpenter::Rules;
use crate::karpenter::offerings::OfferingFilter;
use crate::karpenter::scheduling::{PlannedClaim, Request, Results, has_min_values, simulate};
use crate::karpenter::view::{NodeSet, View};
use napkeeper_core::catalog::CapacityType;
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{NodeName, ObjectKey};
use napkeeper_core::model::requirements::Requirement;
use std::collections::BTreeMap;

/// A single spot node is replaced by a spot node only when so many instance types are cheaper, and by one of the
/// cheapest of them.
pub(in crate::karpenter) const SPOT_FLEXIBILITY: usize = 15;

/// Why nodes stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::karpenter) enum Refusal {
    /// Some of their pods would find no node, or only one that is not initialized.
    Unplaced,
    /// It would take several new nodes.
    SeveralNodes,
    NotCheaper,
    /// Too few distinct values would be left for `minValues`.
    MinValues,
    /// Spot is not replaced by spot.
    SpotToSpotOff,
    /// Fewer than [`SPOT_FLEXIBILITY`] instance types are cheaper.
    TooFewSpotTypes,
}

/// Simulates what happens to pods when the candidates are gone. They stay when a pod that runs now would find no node
/// that is known to come up, or when several new nodes would be needed.
pub(super) fn without(view: &View, rules: Rules, candidates: &[Candidate<'_>]) -> Result<Results, Refusal> {
    let gone: NodeSet = candidates.iter().map(|candidate| candidate.node.name.clone()).collect();
    let leaving = view.pods_of_leaving_nodes();
    let mut pods = view.pending.clone();
    pods.extend(candidates.iter().flat_map(|candidate| candidate.moving_pods(view)));
    pods.extend(leaving.iter().cloned());
    let results = simulate(view, Request { pods, without: &gone, spares_fresh: rules.fresh_destinations, most_new: 1 });
    if results.new_claims.len() > 1 {
        return Err(Refusal::SeveralNodes);
    }
    let has_waited = |key: &ObjectKey| view.pending.iter().any(|pod| pod.key == *key);
    if results.unplaced.iter().any(|pod| !has_waited(&pod.key)) {
        return Err(Refusal::Unplaced);
    }
    let is_uncertain = |name: &NodeName| view.node(name).is_some_and(|node| !node.is_initialized());
    let uncertain = results.placed.iter().filter(|(name, _)| is_uncertain(name)).flat_map(|(_, pods)| pods);
    let is_leaving = |key: &ObjectKey| leaving.iter().any(|pod| pod.key == *key);
    let stays = uncertain.into_iter().all(|pod| has_waited(&pod.key) || is_leaving(&pod.key));
    if stays { Ok(results) } else { Err(Refusal::Unplaced) }
}

/// The command that deletes or replaces all of these candidates.
pub(in crate::karpenter) fn consolidate(
    view: &View,
    rules: Rules,
    candidates: &[Candidate<'_>],
) -> Result<Command, Refusal> {
    let mut results = without(view, rules, candidates)?;
    let Some(replacement) = results.new_claims.pop() else { return Ok(command(candidates, None, &results, view)) };
    let price = candidates.iter().map(|candidate| candidate.node.price()).sum();
    let all_spot = candidates.iter().all(|candidate| candidate.capacity_type == Some(CapacityType::Spot));
    let allows =
        |claim: &PlannedClaim, how: CapacityType| claim.requirements.allows(labels::CAPACITY_TYPE, Some(how.as_str()));
    let replacement = if all_spot && allows(&replacement, CapacityType::Spot) {
        spot_to_spot(view, rules, replacement, price, candidates.len() == 1)?
    } else {
        let mut cheaper = below(view, replacement, price)?;
        // Prices were compared as if spot were launched: what would then be on-demand must not be.
        if allows(&cheaper, CapacityType::Spot) && allows(&cheaper, CapacityType::OnDemand) {
            cheaper.requirements.add(labels::CAPACITY_TYPE, only(CapacityType::Spot));
        }
        cheaper
    };
    Ok(command(candidates, Some(replacement), &results, view))
}

fn only(how: CapacityType) -> Requirement {
    Requirement::any_of([how.as_str()])
}

fn spot_to_spot(
    view: &View,
    rules: Rules,
    mut claim: PlannedClaim,
    price: HourlyPrice,
    is_single: bool,
) -> Result<PlannedClaim, Refusal> {
    if !rules.spot_to_spot {
        return Err(Refusal::SpotToSpotOff);
    }
    claim.requirements.add(labels::CAPACITY_TYPE, only(CapacityType::Spot));
    let mut cheaper = below(view, claim, price)?;
    if !is_single {
        return Ok(cheaper);
    }
    if cheaper.types.len() < SPOT_FLEXIBILITY {
        return Err(Refusal::TooFewSpotTypes);
    }
    // As many as are needed for `minValues`, if these are more.
    let enough = |count: &usize| has_min_values(&cheaper.requirements, types(&cheaper, *count));
    let least = (1..=cheaper.types.len()).find(enough).unwrap_or(cheaper.types.len());
    cheaper.types.truncate(least.max(SPOT_FLEXIBILITY));
    Ok(cheaper)
}

fn types(claim: &PlannedClaim, count: usize) -> impl Iterator<Item = &napkeeper_core::catalog::InstanceType> + Clone {
    claim.types.iter().take(count).map(|instance| &**instance)
}

/// The claim with only those types of which the most expensive offering that may be launched is cheaper.
pub(super) fn below(view: &View, mut claim: PlannedClaim, price: HourlyPrice) -> Result<PlannedClaim, Refusal> {
    let filter = OfferingFilter::of(&claim.requirements);
    let worst =
        |instance: &napkeeper_core::catalog::InstanceType| view.unavailable.worst_launch_price(instance, &filter);
    claim.types.retain(|instance| worst(instance).is_some_and(|worst| worst < price));
    if !has_min_values(&claim.requirements, types(&claim, usize::MAX)) {
        return Err(Refusal::MinValues);
    }
    if claim.types.is_empty() { Err(Refusal::NotCheaper) } else { Ok(claim) }
}

/// The command for these candidates.
pub(super) fn command(
    candidates: &[Candidate<'_>],
    replacement: Option<PlannedClaim>,
    results: &Results,
    view: &View,
) -> Command {
    let mut prices = BTreeMap::new();
    let mut costs = BTreeMap::new();
    for candidate in candidates {
        *prices.entry(candidate.pool().clone()).or_default() += candidate.price;
        *costs.entry(candidate.pool().clone()).or_default() += candidate.cost;
    }
    let replacement_price = replacement.as_ref().map_or(0.0, |claim| cheapest(view, claim));
    Command {
        nodes: candidates.iter().map(|candidate| candidate.node.name.clone()).collect(),
        replacement,
        destinations: results.placed.keys().cloned().collect(),
        prices,
        costs,
        replacement_price,
    }
}

/// What the first type of a claim would cost.
#[expect(clippy::cast_precision_loss, reason = "prices are far below 2^53 nano-USD")]
pub(super) fn cheapest(view: &View, claim: &PlannedClaim) -> f64 {
    let filter = OfferingFilter::of(&claim.requirements);
    let first = claim.types.first();
    let price = first.and_then(|instance| view.unavailable.cheapest(instance, &filter));
    price.map_or(0.0, |price| price.nanos() as f64)
}
