//! Admission webhook: how does an AdmissionReview become a verdict or a placement hint, and back?
//!
//! Today it holds the placement hint; router and review will join it. Its process builds no Azure credential.

use napkeeper_core::catalog::OfferingKey;
use napkeeper_core::money::HourlyPrice;
use napkeeper_core::names::{NodeName, NodePoolName};
use serde::{Deserialize, Serialize};

/// Annotation on pods: where the pod will probably run. Advisory: kube-scheduler decides.
pub const PLACEMENT_HINT: &str = "napkeeper.io/placement-hint";

/// Where a pod will probably run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fits", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum PlacementHint {
    /// On a node that exists.
    ExistingNode {
        /// Which.
        node: NodeName,
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
    },
    /// Nowhere: it will stay pending.
    Nowhere {
        /// Why, for people.
        reason: String,
    },
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
        };
        let json = serde_json::to_value(&hint).unwrap();
        assert_eq!(json["fits"], "newNode");
        assert_eq!(json["capacityType"], "spot");
        assert_eq!(serde_json::from_value::<PlacementHint>(json).unwrap(), hint);
    }
}
