//! Offerings: a VM size in a zone at a capacity type, with its price.

use crate::model::amounts::money::HourlyPrice;
use crate::model::labels;
use crate::model::names::{VmSize, Zone};
use crate::model::requirements::Requirement;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The capacity type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CapacityType {
    /// From a capacity reservation, which is paid for whether or not it is used.
    Reserved,
    /// Spot: cheaper, and evicted when Azure needs the capacity.
    Spot,
    /// At the full price.
    OnDemand,
}

/// The text names no capacity type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("capacity type {0:?}: must be on-demand, reserved or spot")]
pub struct CapacityTypeError(pub String);

impl CapacityType {
    /// All of them, the cheapest first.
    pub const ALL: [Self; 3] = [Self::Reserved, Self::Spot, Self::OnDemand];
    /// Those without a reservation, spot first.
    pub const FOR_SALE: [Self; 2] = [Self::Spot, Self::OnDemand];

    /// As the label `karpenter.sh/capacity-type` has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Spot => "spot",
            Self::OnDemand => "on-demand",
        }
    }

    /// As AKS's labels `kubernetes.azure.com/priority` and `…/scalesetpriority` have it.
    #[must_use]
    pub fn priority(self) -> &'static str {
        match self {
            Self::Spot => "spot",
            Self::Reserved | Self::OnDemand => "regular",
        }
    }
}

/// The price of a node on reserved capacity in comparisons, since it adds no cost. It is a fraction of the full price
/// instead of 0, so that of two reserved sizes the smaller one is cheaper and prices have ratios. It is below any spot
/// price and, in whole nano-USD, large enough to distinguish sizes.
#[must_use]
pub fn reserved_price(on_demand: HourlyPrice) -> HourlyPrice {
    HourlyPrice::from_nanos((on_demand.nanos() / RESERVED_PART).max(1))
}

/// True when a requirement on the capacity type has `reserved` among its values. Not excluding it is not enough:
/// reservations of a class are used only by pools that name `reserved`.
#[must_use]
pub fn names_reserved(requirement: &Requirement) -> bool {
    requirement.values().is_some() && requirement.allows(Some(CapacityType::Reserved.as_str()))
}

/// True when it names `reserved` and neither on-demand nor spot.
#[must_use]
pub fn names_reserved_alone(requirement: &Requirement) -> bool {
    names_reserved(requirement) && !CapacityType::FOR_SALE.iter().any(|other| requirement.allows(Some(other.as_str())))
}

/// Labels that an offering decides: nodes of one size may differ in them.
pub const OFFERED: [&str; 5] =
    [labels::ZONE, labels::CAPACITY_TYPE, labels::PRIORITY, labels::SCALE_SET_PRIORITY, labels::PLACEMENT_SCOPE];

/// The value of one of the labels of [`OFFERED`] by capacity type and zone; `None` for any other label, and for those
/// that only the zone decides where that is left open.
#[must_use]
pub fn offered<'z>(key: &str, capacity_type: CapacityType, zone: Option<&'z Zone>) -> Option<&'z str> {
    match key {
        labels::ZONE => zone.map(Zone::as_str),
        labels::CAPACITY_TYPE => Some(capacity_type.as_str()),
        labels::PRIORITY | labels::SCALE_SET_PRIORITY => Some(capacity_type.priority()),
        labels::PLACEMENT_SCOPE => zone.map(|zone| if zone.is_regional() { "regional" } else { "zonal" }),
        _ => None,
    }
}

/// The full price is this many times the price of reserved capacity. Karpenter divides by ten million, in floats.
const RESERVED_PART: i64 = 100_000;

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

/// An offering of a VM size.
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

impl OfferingKey {
    /// The labels that a NodeClaim of it has, as with Karpenter: columns of `kubectl get nodeclaims` show them.
    #[must_use]
    pub fn labels(&self) -> [(&'static str, &str); 3] {
        [
            (labels::INSTANCE_TYPE, self.size.as_str()),
            (labels::ZONE, self.zone.as_str()),
            (labels::CAPACITY_TYPE, self.capacity_type.as_str()),
        ]
    }

    /// Size and capacity type: what a node costs but for its zone.
    #[must_use]
    pub fn size_and_type(&self) -> String {
        format!("{} {}", self.size, self.capacity_type)
    }
}

impl fmt::Display for OfferingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.size, self.zone, self.capacity_type)
    }
}
