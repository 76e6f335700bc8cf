//! Offerings: a VM size in a zone at a capacity type, with its price.

use crate::money::HourlyPrice;
use crate::names::{VmSize, Zone};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How capacity is bought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CapacityType {
    /// Cheap, and evicted when Azure wants it back.
    Spot,
    /// At the full price.
    OnDemand,
}

/// The text names no capacity type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("capacity type {0:?}: must be on-demand or spot")]
pub struct CapacityTypeError(pub String);

impl CapacityType {
    /// Both, spot first.
    pub const ALL: [Self; 2] = [Self::Spot, Self::OnDemand];

    /// As the label `karpenter.sh/capacity-type` has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Spot => "spot",
            Self::OnDemand => "on-demand",
        }
    }

    /// As AKS's labels `kubernetes.azure.com/priority` and `…/scalesetpriority` have it.
    #[must_use]
    pub fn priority(self) -> &'static str {
        match self {
            Self::Spot => "spot",
            Self::OnDemand => "regular",
        }
    }
}

impl fmt::Display for CapacityType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for CapacityType {
    type Err = CapacityTypeError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|c| c.as_str() == text).ok_or_else(|| CapacityTypeError(text.to_owned()))
    }
}

/// One way to buy a VM size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offering {
    /// Where.
    pub zone: Zone,
    /// How.
    pub capacity_type: CapacityType,
    /// For how much.
    pub price: HourlyPrice,
}

/// Identity of an offering: VM size × zone × capacity type.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OfferingKey {
    /// The VM size.
    pub size: VmSize,
    /// The zone, or `0`.
    pub zone: Zone,
    /// The capacity type.
    pub capacity_type: CapacityType,
}

impl fmt::Display for OfferingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.size, self.zone, self.capacity_type)
    }
}
