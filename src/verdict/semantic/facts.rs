//! Known facts besides the manifests: region, prices, Kubernetes version, network.

use crate::semantic::SizeGroups;
use jiff::Timestamp;
use napkeeper_core::catalog::live::PriceSheet;
use napkeeper_core::catalog::{Catalog, CatalogError, InstanceTypeOptions, RegionCatalog, RegionOfferingsIndex};
use napkeeper_core::model::names::Region;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

/// A value that is computed on first use, and then shared.
pub struct Lazy<T>(Arc<LazyLock<T, Make<T>>>);

type Make<T> = Box<dyn FnOnce() -> T + Send>;

impl<T> Lazy<T> {
    /// Something that `make` will make, once, if it is needed.
    pub fn new(make: impl FnOnce() -> T + Send + 'static) -> Self {
        Self(Arc::new(LazyLock::new(Box::new(make))))
    }
}

impl<T> Clone for Lazy<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for Lazy<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Lazy<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("created on first use")
    }
}

/// The facts by which manifests are validated.
#[derive(Debug, Clone)]
pub struct Facts {
    /// All sizes and regions that exist.
    pub catalog: Lazy<Arc<Catalog>>,
    /// The regions of the nodes: one if it is known, else all; a finding then holds in every one.
    pub regions: Lazy<Vec<Arc<RegionCatalog>>>,
    /// The offerings of those regions, as sets for fast matching. The region with most sizes comes first.
    pub region_offerings: Lazy<RegionOfferingsIndex>,
    /// Sets of those sizes that are the same for all NodePools.
    pub(crate) size_groups: Lazy<SizeGroups>,
    /// Kubernetes version as `1.33` or `1.33.2`, where it is known.
    pub kubernetes: Option<String>,
    /// Node settings of the cluster.
    pub nodes: InstanceTypeOptions,
    /// Sizes, restrictions and prices come from the subscription itself, not from the embedded catalogue.
    pub live: bool,
    /// The current time, for rules about future dates; without it they find nothing.
    pub now: Option<Timestamp>,
}

impl Facts {
    /// The embedded catalogue, for one region or for all. An unknown region counts as none. The
    /// catalogue is read when a rule first needs it.
    ///
    /// # Errors
    /// [`CatalogError`] if the embedded data is no catalogue, which a test rules out.
    pub fn embedded(region: Option<&Region>) -> Result<Self, CatalogError> {
        Self::embedded_at(region, PriceSheet::default())
    }

    /// As [`Facts::embedded`], at the customer's own prices.
    ///
    /// # Errors
    /// As there.
    pub fn embedded_at(region: Option<&Region>, sheet: PriceSheet) -> Result<Self, CatalogError> {
        Catalog::embedded_as_of()?;
        let region = region.cloned();
        // A test reads all of it, so errors in the middle need no handling.
        let catalog = Lazy::new(move || Arc::new(Catalog::embedded().unwrap_or_default().priced_by(sheet)));
        let (of_regions, requested) = (catalog.clone(), region.clone());
        let regions = Lazy::new(move || {
            let known = requested.and_then(|region| of_regions.region(&region)).map(|region| vec![Arc::new(region)]);
            let all = || of_regions.regions().filter_map(|region| of_regions.region(region)).map(Arc::new).collect();
            known.unwrap_or_else(all)
        });
        let of_offerings = catalog.clone();
        let region_offerings = Lazy::new(move || {
            let known = region.filter(|region| of_offerings.regions().any(|r| r == region));
            RegionOfferingsIndex::of_catalog(&of_offerings, known.as_ref(), REGIONAL_BESIDE_ZONES)
        });
        Ok(Self {
            catalog,
            regions,
            size_groups: size_groups_of(&region_offerings),
            region_offerings,
            kubernetes: None,
            nodes: InstanceTypeOptions::default(),
            live: false,
            now: None,
        })
    }

    /// The same, with regions from a live listing of the subscription: restricted sizes are unavailable.
    #[must_use]
    pub fn with_live_regions(self, regions: Vec<Arc<RegionCatalog>>) -> Self {
        let of_offerings = regions.clone();
        let region_offerings = Lazy::new(move || RegionOfferingsIndex::of_regions(of_offerings, REGIONAL_BESIDE_ZONES));
        Self {
            regions: Lazy::new(move || regions),
            size_groups: size_groups_of(&region_offerings),
            region_offerings,
            live: true,
            ..self
        }
    }

    /// The region, when there is just one.
    #[must_use]
    pub fn region(&self) -> Option<&Region> {
        let one = self.region_offerings.region_count() == 1;
        one.then(|| self.region_offerings.regions().next()).flatten().map(|offerings| &offerings.region)
    }
}

fn size_groups_of(region_offerings: &Lazy<RegionOfferingsIndex>) -> Lazy<SizeGroups> {
    let region_offerings = region_offerings.clone();
    Lazy::new(move || SizeGroups::of(region_offerings.index()))
}

/// Node Auto-Provisioning may launch a VM of a zonal size without a zone, so a manifest may require that.
const REGIONAL_BESIDE_ZONES: bool = true;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_region_when_it_is_known_else_all() {
        for (name, regions) in [(Some("westeurope"), 1), (Some("nowhere"), 45), (None, 45)] {
            let region = name.map(|name| Region::new(name).unwrap());
            let facts = Facts::embedded(region.as_ref()).unwrap();
            assert_eq!((facts.regions.len(), facts.region_offerings.region_count()), (regions, regions), "{name:?}");
            assert_eq!(facts.region().is_some(), regions == 1);
        }
    }
}
