//! One region's catalogue: its VM sizes, their zones and prices.

pub(in crate::catalog) mod offerings;

use crate::catalog::SizeFacts;
use crate::model::amounts::money::HourlyPrice;
use crate::model::names::{Region, VmSize, Zone};
use std::sync::Arc;

/// What a region offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionCatalog {
    /// The region.
    pub region: Region,
    /// Its sizes, sorted by name.
    pub sizes: Vec<OfferedSize>,
}

/// A VM size in a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferedSize {
    /// Facts of the size, the same in every region.
    pub facts: Arc<SizeFacts>,
    /// The zones that have it; empty when it is regional.
    pub zones: Vec<Zone>,
    /// The subscription may not launch it in this region. In the embedded catalogue this is an example, taken from the
    /// subscription of the listing; a live listing is of the actual one.
    pub restricted: bool,
    /// Pay-as-you-go price for Linux, when one is known. The same in all zones.
    pub on_demand: Option<HourlyPrice>,
    /// Spot price for Linux, when one is known. The same in all zones.
    pub spot: Option<HourlyPrice>,
}

impl RegionCatalog {
    /// A size of this region.
    #[must_use]
    pub fn size(&self, name: &VmSize) -> Option<&OfferedSize> {
        let at = self.sizes.binary_search_by(|s| s.facts.name.cmp(name)).ok()?;
        self.sizes.get(at)
    }
}
