//! The validator of the webhook, with the sources and ages of its facts.

use jiff::Timestamp;
use napkeeper_core::catalog::live::{AzureFacts, FactSource, PriceSheet, catalog_from_facts};
use napkeeper_core::catalog::{Catalog, InstanceTypeOptions, Month, RegionCatalog};
use napkeeper_core::model::names::Region;
use napkeeper_verdict::{Facts, SchemaError, Validator};
use std::sync::Arc;

/// Rules and facts, and the ages of the facts.
#[derive(Debug)]
pub struct SourcedValidator {
    pub(crate) validator: Validator,
    size_source: FactSource,
    price_source: FactSource,
}

impl SourcedValidator {
    /// The embedded facts, for every region.
    ///
    /// # Errors
    /// [`SchemaError`] if they are broken, which a test rules out.
    pub fn embedded() -> Result<Self, SchemaError> {
        let month = Catalog::embedded_as_of()?;
        Ok(Self {
            validator: Validator::embedded()?,
            size_source: FactSource::Embedded(month),
            price_source: FactSource::Embedded(month),
        })
    }

    /// The embedded facts, for one region, to save memory.
    ///
    /// # Errors
    /// As [`SourcedValidator::embedded`].
    pub fn embedded_in(region: &Region) -> Result<Self, SchemaError> {
        let validator = Self::embedded()?;
        Ok(Self { validator: validator.validator.with_facts(Facts::embedded(Some(region))?), ..validator })
    }

    /// The live facts of a region, completed by the `embedded` ones.
    ///
    /// # Errors
    /// As [`SourcedValidator::embedded`].
    pub fn live(known: &AzureFacts, embedded: &RegionCatalog, month: Month) -> Result<Self, SchemaError> {
        let region: &Region = &embedded.region;
        let facts = Facts::embedded(Some(region))?;
        // Restrictions are those of the subscription only if they come from Azure.
        let facts = match known.sizes {
            Some(_) => {
                let catalog = catalog_from_facts(known, embedded, &PriceSheet::default());
                facts.with_live_regions(vec![Arc::new(catalog)])
            }
            None => facts,
        };
        let verdict = Validator::embedded()?.with_facts(facts);
        Ok(Self { validator: verdict, size_source: known.sizes_from(month), price_source: known.prices_from(month) })
    }

    /// The same, for the cluster's version of Kubernetes, such as `1.33.2`.
    #[must_use]
    pub fn for_kubernetes(self, version: Option<String>) -> Self {
        Self { validator: self.validator.with_kubernetes(version), ..self }
    }

    /// The same, for these settings of nodes: who launches them, among others.
    #[must_use]
    pub fn for_nodes(self, nodes: InstanceTypeOptions) -> Self {
        Self { validator: self.validator.with_nodes(nodes), ..self }
    }

    /// True when it is made of these facts, or of others of the same age.
    #[must_use]
    pub fn matches(&self, known: &AzureFacts, month: Month) -> bool {
        self.size_source == known.sizes_from(month) && self.price_source == known.prices_from(month)
    }

    /// The facts in use and their age, as text.
    #[must_use]
    pub fn describe_sources(&self, now: Timestamp) -> String {
        let Self { size_source: sizes, price_source: prices, .. } = self;
        format!("catalogue: {}; prices: {}", sizes.describe(now), prices.describe(now))
    }
}
