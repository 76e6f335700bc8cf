//! The placement hint: where will a pod probably run?

use jiff::Timestamp;
use napkeeper_core::catalog::OfferingKey;
use napkeeper_core::cluster::Snapshot;
use napkeeper_core::cluster::pod::Pod;
use napkeeper_core::money::HourlyPrice;
use napkeeper_core::names::{ClaimName, NodeName, NodePoolName};
use napkeeper_core::scheduling::{Input, Market, Outcome, Target, Unavailable, Unplaced, schedule};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Annotation on pods: where the pod will probably run. Advisory: kube-scheduler decides.
pub const PLACEMENT_HINT: &str = "napkeeper.io/placement-hint";

/// Longest reason in characters.
const LONGEST_REASON: usize = 400;

/// Where a pod will probably run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fits", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum PlacementHint {
    /// On a node that exists.
    ExistingNode {
        /// Which.
        node: NodeName,
        /// Why, for people.
        reason: String,
    },
    /// On a node that is being made.
    NodeInFlight {
        /// Its NodeClaim.
        claim: ClaimName,
        /// Why, for people.
        reason: String,
    },
    /// On a new node.
    NewNode {
        /// The NodePool that would make it.
        pool: NodePoolName,
        /// VM size, zone and capacity type.
        #[serde(flatten)]
        offering: OfferingKey,
        /// Price in nano-USD per hour.
        price: HourlyPrice,
        /// Why, for people.
        reason: String,
    },
    /// Nowhere: it will stay pending.
    Nowhere {
        /// Why, for people.
        reason: String,
    },
}

/// What pools may buy, for as long as the basis lives. Which offerings Azure refuses now is not known here.
pub(crate) fn market(basis: &Snapshot) -> Market<'_> {
    Market::new(basis, &Unavailable::default(), Timestamp::UNIX_EPOCH)
}

/// Where a new pod will probably run; `None` when that cannot be said.
pub(crate) fn hint<'a>(snapshot: &'a Snapshot, market: &'a Market<'a>, pod: Pod) -> Option<PlacementHint> {
    let (without, promised) = (BTreeSet::new(), BTreeMap::new());
    let input = Input { snapshot, market, without: &without, new_nodes: 1, promised: &promised };
    of_outcome(&schedule(input, &[Arc::new(pod)]))
}

fn of_outcome(outcome: &Outcome) -> Option<PlacementHint> {
    match outcome.placements.first().map(|placement| &placement.target) {
        Some(Target::Node(node)) => {
            return Some(PlacementHint::ExistingNode { node: node.clone(), reason: "it has room".to_owned() });
        }
        Some(Target::Claim(claim)) => {
            let reason = "it is being made, and has room".to_owned();
            return Some(PlacementHint::NodeInFlight { claim: claim.clone(), reason });
        }
        Some(Target::New(_)) | None => {}
    }
    if let Some(node) = outcome.new.first() {
        let best = node.offerings.first()?;
        let reason = match node.offerings.len() {
            1 => "no node has room; this is the only offering that fits".to_owned(),
            n => format!("no node has room; this is the cheapest of {n} offerings that fit"),
        };
        return Some(PlacementHint::NewNode {
            pool: node.pool.clone(),
            offering: best.key.clone(),
            price: best.price,
            reason,
        });
    }
    let unplaced = outcome.unplaced.first()?;
    Some(PlacementHint::Nowhere { reason: shorten(&why_not(unplaced), LONGEST_REASON) })
}

fn why_not(unplaced: &Unplaced) -> String {
    let reasons = unplaced.why.iter().map(|(pool, why)| match pool {
        Some(pool) => format!("NodePool {pool}: {why}"),
        None => why.to_string(),
    });
    reasons.collect::<Vec<_>>().join("; ")
}

/// A text of at most `most` characters; what is cut off ends in `…`.
pub(crate) fn shorten(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use napkeeper_core::catalog::CapacityType;
    use napkeeper_core::names::{VmSize, Zone};

    #[test]
    fn a_hint_is_flat_json_that_reads_back() {
        let hint = PlacementHint::NewNode {
            pool: NodePoolName::new("general").unwrap(),
            offering: OfferingKey {
                size: VmSize::new("Standard_D4s_v5").unwrap(),
                zone: Zone::new("westeurope-1").unwrap(),
                capacity_type: CapacityType::Spot,
            },
            price: HourlyPrice::parse_usd("0.0359").unwrap(),
            reason: "r".to_owned(),
        };
        let json = serde_json::to_value(&hint).unwrap();
        assert_eq!(json["fits"], "newNode");
        assert_eq!(json["capacityType"], "spot");
        assert_eq!(serde_json::from_value::<PlacementHint>(json).unwrap(), hint);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(shorten("äöü", 3), "äöü");
        assert_eq!(shorten("äöüß", 3), "äö…");
    }
}
