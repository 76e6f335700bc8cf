//! Placement hints: where a new pod will probably run.

mod offerings_cache;
mod recent_admissions;
mod service;

use crate::text::truncate;
use napkeeper_core::catalog::OfferingKey;
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::cluster::pod::Pod;
use napkeeper_core::model::names::{ClaimName, NodeName, NodePoolName};
use napkeeper_core::scheduling::{Placement, Unschedulable, UnschedulableReason};
pub(crate) use offerings_cache::OfferingsCache;
use serde::{Deserialize, Serialize};
pub(crate) use service::{HintService, Snapshots};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Annotation on pods: where the pod will probably run. Advisory: kube-scheduler decides.
pub const PLACEMENT_HINT_ANNOTATION: &str = "napkeeper.io/placement-hint";

/// Longest reason in characters.
const MAX_REASON_CHARS: usize = 400;

/// A pod that is being created, and may have a hint.
#[derive(Debug, Clone)]
pub(crate) struct IncomingPod {
    /// The pod, with a name that it could have.
    pub(crate) pod: Arc<Pod>,
    /// Its `generateName`, if it has no name.
    pub(crate) generate_name: Option<Arc<str>>,
    /// Its annotations, if it has the field.
    pub(crate) annotations: Option<BTreeMap<String, String>>,
    /// The hint that it carries already.
    pub(crate) current_hint: Option<PlacementHint>,
    /// Nothing will be written.
    pub(crate) dry_run: bool,
}

/// Where a pod will probably run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fits", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum PlacementHint {
    /// On a node that exists.
    ExistingNode {
        /// Which.
        node: NodeName,
        /// The reason, as text.
        reason: String,
    },
    /// On a node that is being made.
    NodeInFlight {
        /// Its NodeClaim.
        claim: ClaimName,
        /// The reason, as text.
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
        /// The same as text, such as `$0.0359/h`.
        #[serde(default)]
        cost: String,
        /// The reason, as text.
        reason: String,
    },
    /// It cannot be scheduled and remains pending.
    Unschedulable {
        /// The reason, as text.
        reason: String,
        /// The smallest necessary change, as text; absent if unknown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        change: Option<String>,
    },
}

impl PlacementHint {
    /// The label value of metrics.
    pub(crate) fn metric_label(&self) -> &'static str {
        match self {
            Self::ExistingNode { .. } => "existing_node",
            Self::NodeInFlight { .. } => "node_in_flight",
            Self::NewNode { .. } => "new_node",
            Self::Unschedulable { .. } => "unschedulable",
        }
    }

    /// The annotation's value.
    pub(crate) fn to_annotation(&self) -> Option<String> {
        serde_json::to_string(&Advisory { advisory: true, hint: self }).ok()
    }

    /// Reads an annotation's value; `None` if it is not a hint.
    pub(crate) fn from_annotation(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

/// A hint as written, with its disclaimer first.
#[derive(Serialize)]
struct Advisory<'h> {
    advisory: bool,
    #[serde(flatten)]
    hint: &'h PlacementHint,
}

/// The hint for a placement, or for an unschedulable pod. `shared`: other pods need that new node too.
pub(crate) fn hint_for(found: &Result<Placement, Unschedulable>, shared: bool) -> PlacementHint {
    match found {
        Ok(Placement::Node(node)) => {
            PlacementHint::ExistingNode { node: node.clone(), reason: "it has enough free capacity".to_owned() }
        }
        Ok(Placement::Claim(claim)) => {
            let reason = "it is launching, and has enough free capacity".to_owned();
            PlacementHint::NodeInFlight { claim: claim.clone(), reason }
        }
        Ok(Placement::New(node)) => PlacementHint::NewNode {
            pool: node.pool.clone(),
            offering: node.cheapest.key.clone(),
            price: node.cheapest.price,
            cost: format!("{}/h", node.cheapest.price),
            reason: match (shared, node.offering_count) {
                (true, _) => "no node has capacity; it shares a new node with recently created pods".to_owned(),
                (false, 1) => "no node has capacity; this is the only offering that fits".to_owned(),
                (false, n) => format!("no node has capacity; this is the cheapest of {n} offerings that fit"),
            },
        },
        Err(unschedulable) => PlacementHint::Unschedulable {
            reason: truncate(&describe_reasons(&unschedulable.reasons), MAX_REASON_CHARS),
            change: unschedulable
                .suggestion
                .as_ref()
                .map(|suggestion| truncate(&suggestion.to_string(), MAX_REASON_CHARS)),
        },
    }
}

fn describe_reasons(reasons: &[(Option<NodePoolName>, UnschedulableReason)]) -> String {
    let reasons = reasons.iter().map(|(pool, reason)| match pool {
        Some(pool) => format!("NodePool {pool}: {reason}"),
        None => reason.to_string(),
    });
    reasons.collect::<Vec<_>>().join("; ")
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
        let text = hint.to_annotation().unwrap();
        assert_eq!(
            text,
            r#"{"advisory":true,"fits":"newNode","pool":"general","size":"Standard_D4s_v5","zone":"westeurope-1","capacityType":"spot","price":35900000,"cost":"$0.0359/h","reason":"r"}"#
        );
        assert_eq!(PlacementHint::from_annotation(&text), Some(hint));
        assert_eq!(PlacementHint::from_annotation(r#"{"fits":"moon"}"#), None);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(truncate("äöü", 3), "äöü");
        assert_eq!(truncate("äöüß", 3), "äö…");
    }
}
