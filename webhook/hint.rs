//! The placement hint: where will a pod probably run?

use jiff::Timestamp;
use napkeeper_core::catalog::OfferingKey;
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::names::{ClaimName, NodeName, NodePoolName};
use napkeeper_core::scheduling::{Market, Nowhere, Spot, Unavailable, WhyNot};
use napkeeper_core::snapshot::Snapshot;
use serde::{Deserialize, Serialize};

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
        /// The same for people, such as `$0.0359/h`.
        #[serde(default)]
        cost: String,
        /// Why, for people.
        reason: String,
    },
    /// Nowhere: it will stay pending.
    Nowhere {
        /// Why, for people.
        reason: String,
        /// The least that would have to change, for people; absent when that is not known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        change: Option<String>,
    },
}

/// What pools may buy. Which offerings Azure refuses now is not known here.
pub(crate) fn market(snapshot: &Snapshot) -> Market {
    Market::new(snapshot, &Unavailable::default(), Timestamp::UNIX_EPOCH)
}

impl PlacementHint {
    /// What it says, for a metric.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::ExistingNode { .. } => "existing_node",
            Self::NodeInFlight { .. } => "node_in_flight",
            Self::NewNode { .. } => "new_node",
            Self::Nowhere { .. } => "nowhere",
        }
    }

    /// The annotation's value.
    pub(crate) fn text(&self) -> Option<String> {
        serde_json::to_string(&Advisory { advisory: true, hint: self }).ok()
    }

    /// Reads an annotation's value; `None` when it is none of ours.
    pub(crate) fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

/// A hint as it is written: whoever reads it is told first what it is worth.
#[derive(Serialize)]
struct Advisory<'h> {
    advisory: bool,
    #[serde(flatten)]
    hint: &'h PlacementHint,
}

/// What is said about a place that was found, or about why there is none. `shared`: other pods need that new node too.
pub(crate) fn of_place(found: &Result<Spot, Nowhere>, shared: bool) -> PlacementHint {
    match found {
        Ok(Spot::Node(node)) => {
            PlacementHint::ExistingNode { node: node.clone(), reason: "it has enough free capacity".to_owned() }
        }
        Ok(Spot::Claim(claim)) => {
            let reason = "it is being made, and has room".to_owned();
            PlacementHint::NodeInFlight { claim: claim.clone(), reason }
        }
        Ok(Spot::New(bought)) => PlacementHint::NewNode {
            pool: bought.pool.clone(),
            offering: bought.best.key.clone(),
            price: bought.best.price,
            cost: format!("{}/h", bought.best.price),
            reason: match (shared, bought.offerings) {
                (true, _) => "no node has capacity; it shares a new node with recently created pods".to_owned(),
                (false, 1) => "no node has capacity; this is the only offering that fits".to_owned(),
                (false, n) => format!("no node has capacity; this is the cheapest of {n} offerings that fit"),
            },
        },
        Err(nowhere) => PlacementHint::Nowhere {
            reason: shorten(&why_not(&nowhere.why), LONGEST_REASON),
            change: nowhere.remedy.as_ref().map(|remedy| shorten(&remedy.to_string(), LONGEST_REASON)),
        },
    }
}

fn why_not(why: &[(Option<NodePoolName>, WhyNot)]) -> String {
    let reasons = why.iter().map(|(pool, why)| match pool {
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
    use napkeeper_core::model::names::{VmSize, Zone};

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
            cost: "$0.0359/h".to_owned(),
            reason: "r".to_owned(),
        };
        let text = hint.text().unwrap();
        assert_eq!(
            text,
            r#"{"advisory":true,"fits":"newNode","pool":"general","size":"Standard_D4s_v5","zone":"westeurope-1","capacityType":"spot","price":35900000,"cost":"$0.0359/h","reason":"r"}"#
        );
        assert_eq!(PlacementHint::read(&text), Some(hint));
        assert_eq!(PlacementHint::read(r#"{"fits":"moon"}"#), None);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(shorten("äöü", 3), "äöü");
        assert_eq!(shorten("äöüß", 3), "äö…");
    }
}
