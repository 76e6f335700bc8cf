//! What is known beside the manifests: region, prices, Kubernetes version, network?

use napkeeper_core::catalog::{Catalog, CatalogError, InstanceTypeOptions, RegionCatalog};
use napkeeper_core::names::Region;
use std::sync::Arc;

/// What manifests are judged by, beside themselves.
#[derive(Debug, Clone)]
pub struct Facts {
    /// All sizes and regions that exist.
    pub catalog: Arc<Catalog>,
    /// Where the nodes would be: one region when it is known, else all; what is reported then fails in every one.
    pub regions: Vec<Arc<RegionCatalog>>,
    /// Kubernetes version as `1.33` or `1.33.2`, where it is known.
    pub kubernetes: Option<String>,
    /// What the cluster decides about nodes.
    pub nodes: InstanceTypeOptions,
    /// Sizes, restrictions and prices come from the subscription itself, not from the embedded catalogue.
    pub live: bool,
}

impl Facts {
    /// What the embedded catalogue says of one region, or of all. A region that it lacks is as good as none.
    ///
    /// # Errors
    /// [`CatalogError`] when the catalogue cannot be read, which a test rules out.
    pub fn embedded(region: Option<&Region>) -> Result<Self, CatalogError> {
        let catalog = Catalog::embedded()?;
        let known = region.and_then(|region| catalog.region(region)).map(|region| vec![Arc::new(region)]);
        let all = || catalog.regions().filter_map(|region| catalog.region(region)).map(Arc::new).collect();
        let regions = known.unwrap_or_else(all);
        Ok(Self {
            catalog: Arc::new(catalog),
            regions,
            kubernetes: None,
            nodes: InstanceTypeOptions::default(),
            live: false,
        })
    }
}
