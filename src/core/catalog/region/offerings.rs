//! Sizes offered in a region, by zone and capacity type.

use crate::catalog::{CapacityType, Catalog, RegionCatalog, SizeIndex, SizeSet};
use crate::model::names::{Region, Zone};
use std::fmt;
use std::sync::{Arc, LazyLock};

/// The zones of a region, and regional.
pub(in crate::catalog) const ZONE_SLOTS: usize = 4;

/// The offerings of a region, as sets of one [`SizeIndex`].
#[derive(Debug)]
pub struct RegionOfferings {
    /// The region.
    pub region: Region,
    /// Zone label values: `0` (regional), then the zones.
    pub(in crate::catalog) zones: [Zone; ZONE_SLOTS],
    /// All sizes of the region.
    pub(in crate::catalog) sizes: SizeSet,
    /// By zone and capacity type: the sizes that Azure offers, whether or not a price is known.
    offered_by_zone: [[SizeSet; 2]; ZONE_SLOTS],
    /// Sizes that are restricted for the subscription.
    pub(in crate::catalog) restricted: SizeSet,
    /// Sizes with a known spot price, and with a known on-demand price.
    pub(in crate::catalog) priced: [SizeSet; 2],
}

impl RegionOfferings {
    /// The offerings of a region. `regional_beside_zones`: a size with zones is also offered as regional, as
    /// Karpenter's Azure provider does and napkeeper's own launches do not.
    #[must_use]
    pub fn new(index: &SizeIndex, catalog: &RegionCatalog, regional_beside_zones: bool) -> Self {
        let none = || SizeSet::none(index.sizes().len());
        let region = catalog.region.clone();
        let mut offerings = Self {
            zones: [Zone::regional(), Zone::of(&region, 1), Zone::of(&region, 2), Zone::of(&region, 3)],
            region,
            sizes: none(),
            offered_by_zone: std::array::from_fn(|_| std::array::from_fn(|_| none())),
            restricted: none(),
            priced: std::array::from_fn(|_| none()),
        };
        // Both are sorted by name, so each index is found from the last one on.
        let mut indices = index.sizes().iter().enumerate().peekable();
        for size in &catalog.sizes {
            while indices.next_if(|(_, facts)| facts.name < size.facts.name).is_some() {}
            let Some((size_index, _)) = indices.next_if(|(_, facts)| facts.name == size.facts.name) else { continue };
            offerings.sizes.insert(size_index);
            let regional = size.zones.is_empty() || regional_beside_zones;
            let at =
                offerings.zones.each_ref().map(|z| if z.is_regional() { regional } else { size.zones.contains(z) });
            for (in_zone, _) in offerings.offered_by_zone.iter_mut().zip(at).filter(|(_, offered)| *offered) {
                let [spot, on_demand] = in_zone;
                on_demand.insert(size_index);
                if size.facts.spot_eligible {
                    spot.insert(size_index);
                }
            }
            let [spot, on_demand] = &mut offerings.priced;
            if size.on_demand.is_some() {
                on_demand.insert(size_index);
                if size.spot.is_some() {
                    spot.insert(size_index);
                }
            }
            if size.restricted {
                offerings.restricted.insert(size_index);
            }
        }
        offerings
    }

    /// Offered sizes, with zone index and capacity type.
    pub(in crate::catalog) fn offered(&self) -> impl Iterator<Item = (usize, CapacityType, &SizeSet)> {
        self.offered_by_zone.iter().enumerate().flat_map(|(zone, [spot, on_demand])| {
            let of = |capacity_type, sizes| (zone, capacity_type, sizes);
            // The sizes that can be reserved are those offered on demand.
            [of(CapacityType::Reserved, on_demand), of(CapacityType::Spot, spot), of(CapacityType::OnDemand, on_demand)]
        })
    }

    /// Those of some sizes that are unrestricted and have a known price.
    #[must_use]
    pub fn available(&self, sizes: &SizeSet) -> SizeSet {
        let mut sure = sizes.clone();
        let [_, on_demand] = &self.priced;
        sure.retain_all(on_demand);
        sure.remove_all(&self.restricted);
        sure
    }

    /// Those of some sizes that are restricted for the subscription.
    #[must_use]
    pub fn restricted_of(&self, sizes: &SizeSet) -> SizeSet {
        let mut restricted = sizes.clone();
        restricted.retain_all(&self.restricted);
        restricted
    }
}

/// A region's offerings, built on first use.
type LazyRegionOfferings = LazyLock<RegionOfferings, Box<dyn FnOnce() -> RegionOfferings + Send>>;

/// The offerings of some regions.
pub struct RegionOfferingsIndex {
    index: Arc<SizeIndex>,
    regions: Vec<LazyRegionOfferings>,
}

impl RegionOfferingsIndex {
    /// All regions of a catalogue, or one of them; those with most sizes first, because they suit most NodePools.
    /// For `regional_beside_zones` see [`RegionOfferings::new`].
    #[must_use]
    pub fn of_catalog(catalog: &Arc<Catalog>, region: Option<&Region>, regional_beside_zones: bool) -> Self {
        let index = Arc::new(SizeIndex::new(catalog.sizes().to_vec()));
        let known = catalog.by_number_of_sizes();
        let regions = known.into_iter().filter(|r| region.is_none_or(|only| r == only)).map(|region| {
            let (index, catalog) = (Arc::clone(&index), Arc::clone(catalog));
            let make: Box<dyn FnOnce() -> RegionOfferings + Send> = Box::new(move || {
                let empty = RegionCatalog { region: region.clone(), sizes: Vec::new() };
                RegionOfferings::new(&index, &catalog.region(&region).unwrap_or(empty), regional_beside_zones)
            });
            LazyLock::new(make)
        });
        let regions = regions.collect();
        Self { index, regions }
    }

    /// Regions as a live listing has them.
    #[must_use]
    pub fn of_regions(regions: Vec<Arc<RegionCatalog>>, regional_beside_zones: bool) -> Self {
        let sizes = regions.iter().flat_map(|r| &r.sizes).map(|s| (s.facts.name.clone(), Arc::clone(&s.facts)));
        let sizes: std::collections::BTreeMap<_, _> = sizes.collect();
        let index = Arc::new(SizeIndex::new(sizes.into_values().collect()));
        let offerings = |region: Arc<RegionCatalog>| {
            let index = Arc::clone(&index);
            let make: Box<dyn FnOnce() -> RegionOfferings + Send> =
                Box::new(move || RegionOfferings::new(&index, &region, regional_beside_zones));
            LazyLock::new(make)
        };
        let regions = regions.into_iter().map(offerings).collect();
        Self { index, regions }
    }

    /// The sizes.
    #[must_use]
    pub fn index(&self) -> &SizeIndex {
        &self.index
    }

    /// The regions. Advancing to the next one may build its offerings, so stop early.
    pub fn regions(&self) -> impl Iterator<Item = &RegionOfferings> {
        self.regions.iter().map(|offerings| &**offerings)
    }

    /// How many regions there are.
    #[must_use]
    pub fn region_count(&self) -> usize {
        self.regions.len()
    }
}

impl fmt::Debug for RegionOfferingsIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Offerings of {} regions and {} sizes", self.regions.len(), self.index.sizes().len())
    }
}
