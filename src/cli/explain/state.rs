//! The state of a cluster in which pods are scheduled.

use anyhow::{Context, bail};
use jiff::{SignedDuration, Timestamp};
use napkeeper_api::azure_facts::PublishedFacts;
use napkeeper_core::catalog::live::{Fact, InfrastructureFacts, PriceSheet, Quota, catalog_from_facts};
use napkeeper_core::catalog::{Catalog, InstanceTypeOptions, RegionCatalog, instance_types, with_reserved};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::Region;
use napkeeper_core::scheduling::UnavailableOfferings;
use napkeeper_core::snapshot::Snapshot;
use std::sync::Arc;

/// Everything that scheduling depends on.
pub(super) struct SchedulingState {
    pub(super) snapshot: Snapshot,
    /// Offerings that Azure has refused recently.
    pub(super) unavailable: UnavailableOfferings,
    pub(super) now: Timestamp,
    /// Its origin, as text.
    pub(super) from: String,
    /// The time since the start of a scenario.
    pub(super) at: Option<SignedDuration>,
}

/// The sources of VM sizes and prices.
pub(super) struct CatalogSources<'a> {
    pub(super) catalog: &'a Catalog,
    /// That of the command line.
    pub(super) region: Option<&'a Region>,
    /// The facts published by the controller.
    pub(super) published: Option<PublishedFacts>,
    pub(super) sheet: &'a PriceSheet,
    /// How instance types are computed.
    pub(super) options: InstanceTypeOptions,
}

impl CatalogSources<'_> {
    /// Adds the instance types, quotas and other facts to a snapshot.
    pub(super) fn add_to(&self, snapshot: &mut Snapshot, now: Timestamp) -> anyhow::Result<()> {
        let region = self.region.cloned().or_else(|| region_of(snapshot));
        let Some(region) = region.or_else(|| self.published.as_ref().map(|p| p.region.clone())) else {
            bail!(
                "region unknown: no node has the label {}; pass it with --region, for example --region westeurope",
                labels::REGION
            )
        };
        let region = self.catalog.find_region(region.as_str())?;
        let known =
            self.catalog.region(&region).with_context(|| format!("region {region} is missing from the catalogue"))?;
        let sizes = self.sizes(known, snapshot, now)?;
        let classes: Vec<_> = snapshot.classes().values().cloned().collect();
        for class in classes {
            let types = instance_types(&sizes, &class, &self.options);
            let types = with_reserved(types, &snapshot.infrastructure.reserved_for(&class));
            snapshot.instance_types.insert(class.name.clone(), Arc::new(types));
        }
        Ok(())
    }

    /// The sizes of a region by the published facts, which are added to the snapshot.
    fn sizes(&self, embedded: RegionCatalog, snapshot: &mut Snapshot, now: Timestamp) -> anyhow::Result<RegionCatalog> {
        let Some(PublishedFacts { region, facts: known, .. }) = &self.published else {
            return Ok(self.sheet.applied(embedded));
        };
        if *region != embedded.region {
            bail!(
                "the facts are for {region}, but the cluster is in {}: use the facts of that region",
                embedded.region
            );
        }
        // Facts that are passed explicitly apply whatever their age.
        let quota = known.quota.as_ref().map(|quota| Arc::new(Quota::new(now, quota.usages().cloned())));
        snapshot.set_quota(quota);
        let subnets = known.subnets.as_ref().map(|fact| Fact { as_of: now, value: fact.value.clone() });
        let reservations = known.reservations.as_ref().map(|fact| Fact { as_of: now, value: fact.value.clone() });
        snapshot.set_infrastructure(Arc::new(InfrastructureFacts { subnets, reservations, ..known.infrastructure() }));
        Ok(catalog_from_facts(known, &embedded, self.sheet))
    }
}

fn region_of(snapshot: &Snapshot) -> Option<Region> {
    snapshot.nodes().values().find_map(|node| Region::new(node.label(labels::REGION)?).ok())
}
