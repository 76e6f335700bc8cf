//! The view of the cluster that hints and verdicts use: objects, Azure facts and the rules that follow from them.
//!
//! It is updated with the changes of watches and with published facts. Without either, verdicts use the embedded facts,
//! and there are no hints.

use crate::validate::SourcedValidator;
use jiff::Timestamp;
use napkeeper_api::azure_facts::PublishedFacts;
use napkeeper_core::catalog::live::{AzureFacts, PriceSheet, Quota, STALE_AFTER, catalog_from_facts};
use napkeeper_core::catalog::{Catalog, InstanceTypeOptions, RegionCatalog};
use napkeeper_core::engine::control_loop::Controller;
use napkeeper_core::model::labels;
use napkeeper_core::model::names::Region;
use napkeeper_core::snapshot::Snapshot;
use napkeeper_core::snapshot::delta::Delta;
use napkeeper_serve::prometheus_client::metrics::gauge::Gauge;
use napkeeper_serve::prometheus_client::registry::Registry;
use napkeeper_verdict::SchemaError;
use std::sync::Arc;
use tokio::sync::watch;

/// Metrics of the ages of the view.
#[derive(Debug, Clone, Default)]
pub struct ViewMetrics {
    snapshot: Gauge,
    facts: Gauge,
}

impl ViewMetrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "Time when all watches were last in sync, in seconds since the Unix epoch; 0 for never";
        registry.register("webhook_snapshot_timestamp_seconds", help, metrics.snapshot.clone());
        let help = "Time of the oldest of the sizes, quota and prices published by the controller, in seconds since the Unix epoch; 0 for none";
        registry.register("webhook_facts_timestamp_seconds", help, metrics.facts.clone());
        metrics
    }

    fn set_facts(&self, facts: &AzureFacts) {
        let times = [
            facts.sizes.as_ref().map(|fact| fact.as_of),
            facts.quota.as_ref().map(|quota| quota.as_of),
            facts.prices.as_ref().map(|fact| fact.as_of),
        ];
        self.facts.set(times.into_iter().flatten().min().map_or(0, Timestamp::as_second));
    }
}

/// The receivers of a view.
#[derive(Debug)]
pub struct ViewOutputs {
    /// The latest Snapshot with its instance types, once all kinds have been listed and the region is known.
    pub snapshots: watch::Sender<Option<Arc<Snapshot>>>,
    /// The rules and facts of verdicts.
    pub validator: watch::Sender<Arc<SourcedValidator>>,
    /// Why the cluster is not known, if it is not.
    pub unreadable: watch::Sender<Option<String>>,
}

/// What is known of a cluster without reading its objects.
#[derive(Debug)]
pub struct ViewSettings {
    /// The configured region; without one it is that of the nodes' labels.
    pub region: Option<Region>,
    /// The cluster's version of Kubernetes, if known.
    pub kubernetes: Option<String>,
    /// Settings of its nodes: who launches them, among others.
    pub nodes: InstanceTypeOptions,
}

/// The view of one cluster.
#[derive(Debug)]
pub struct ClusterView {
    settings: ViewSettings,
    catalog: Catalog,
    /// Sizes of the region, once it is known.
    sizes: Option<RegionCatalog>,
    controller: Controller,
    outputs: ViewOutputs,
    metrics: ViewMetrics,
    /// Why there is no Snapshot, while there is none.
    missing: &'static str,
    /// What keeps the view from being current.
    failing: Option<String>,
    has_changes: bool,
    has_warned: bool,
}

impl ClusterView {
    /// An empty view. Verdicts use the embedded facts.
    ///
    /// # Errors
    /// When the embedded catalogue or CRDs cannot be read.
    pub fn new(settings: ViewSettings, outputs: ViewOutputs, metrics: ViewMetrics) -> Result<Self, SchemaError> {
        let view = Self {
            settings,
            catalog: Catalog::embedded()?,
            sizes: None,
            controller: Controller::default(),
            outputs,
            metrics,
            missing: "its objects have not been listed yet",
            failing: None,
            has_changes: false,
            has_warned: false,
        };
        view.report();
        view.use_validator(SourcedValidator::embedded()?);
        Ok(view)
    }

    /// Applies a change of the cluster.
    pub fn apply(&mut self, delta: &Delta) {
        self.controller.apply(delta);
        self.has_changes = true;
    }

    /// All watches are in sync.
    pub fn mark_in_sync(&self) {
        self.metrics.snapshot.set(Timestamp::now().as_second());
    }

    /// All kinds have been listed: the next [`Self::publish`] has something to publish, even of an empty cluster.
    pub fn mark_listed(&mut self) {
        self.has_changes = true;
    }

    /// Publishes the Snapshot, if it has changed since the last call and the region is known. True if it has changed.
    ///
    /// # Errors
    /// When the embedded facts cannot be read.
    pub fn publish(&mut self) -> Result<bool, SchemaError> {
        if !std::mem::take(&mut self.has_changes) {
            return Ok(false);
        }
        if self.sizes.is_none() {
            self.sizes = self.embedded_sizes()?;
            self.has_warned = true;
        }
        // Without sizes no pod could be scheduled on a new node.
        if let Some(sizes) = &self.sizes {
            self.controller.refresh_instance_types(sizes, &self.settings.nodes);
            self.outputs.snapshots.send_replace(Some(Arc::new(self.controller.snapshot().clone())));
        }
        self.missing = "its region is not known: set --region";
        self.report();
        Ok(true)
    }

    /// True once there is a Snapshot.
    #[must_use]
    pub fn is_published(&self) -> bool {
        self.outputs.snapshots.borrow().is_some()
    }

    /// Sets what keeps the view from being current, such as a watch that fails; `None` if nothing does.
    pub fn set_failing(&mut self, failing: Option<String>) {
        if self.failing != failing {
            self.failing = failing;
            self.report();
        }
    }

    /// Reports whether the cluster is known.
    fn report(&self) {
        let missing = (!self.is_published()).then_some(self.missing);
        let reasons: Vec<&str> = missing.into_iter().chain(self.failing.as_deref()).collect();
        self.outputs.unreadable.send_replace((!reasons.is_empty()).then(|| reasons.join("; ")));
    }

    /// Uses the facts that the controller has published, or the embedded ones if there are none for this region.
    ///
    /// # Errors
    /// When the embedded facts cannot be read.
    pub fn set_facts(&mut self, published: Option<&PublishedFacts>) -> Result<(), SchemaError> {
        let is_of_region = |published: &&PublishedFacts| {
            self.settings.region.as_ref().is_none_or(|region| *region == published.region)
        };
        let found = published.filter(is_of_region).and_then(|p| Some((&p.facts, self.catalog.region(&p.region)?)));
        let none = AzureFacts::default();
        let facts = found.as_ref().map_or(&none, |(facts, _)| *facts);
        self.metrics.set_facts(facts);
        // Outdated quota must not make a hint say that a pod cannot be scheduled.
        let is_fresh = |quota: &&Arc<Quota>| Timestamp::now().duration_since(quota.as_of) <= STALE_AFTER;
        self.controller.set_quota(facts.quota.as_ref().filter(is_fresh).cloned());
        self.controller.set_infrastructure(Arc::new(facts.infrastructure()));
        self.has_changes = true;
        if found.is_none() {
            tracing::info!("no published facts for this region: using the embedded catalogue");
        }
        if self.uses(facts) {
            return Ok(());
        }
        self.sizes = match found {
            None => {
                self.use_validator(SourcedValidator::embedded()?);
                None
            }
            Some((facts, embedded)) => {
                let validator = SourcedValidator::live(facts, &embedded, self.catalog.as_of())?;
                tracing::info!(facts = validator.describe_sources(Timestamp::now()), "using published facts");
                self.use_validator(validator);
                Some(catalog_from_facts(facts, &embedded, &PriceSheet::default()))
            }
        };
        self.has_warned = false;
        self.controller.invalidate_instance_types();
        Ok(())
    }

    /// The embedded sizes of the region, once it is known. If no newer facts are in use, verdicts use them as well.
    fn embedded_sizes(&self) -> Result<Option<RegionCatalog>, SchemaError> {
        let region = self.current_region();
        let sizes = region.as_ref().and_then(|region| self.catalog.region(region));
        if let Some(sizes) = &sizes {
            if self.uses(&AzureFacts::default()) {
                self.use_validator(SourcedValidator::embedded_in(&sizes.region)?);
            }
            tracing::info!(region = sizes.region.as_str(), "placement hints enabled");
        } else if !self.has_warned {
            tracing::warn!(
                region = region.as_ref().map(Region::as_str),
                "unknown region: no hints until a node has a region label; see --region"
            );
        }
        Ok(sizes)
    }

    fn current_region(&self) -> Option<Region> {
        let nodes = self.controller.snapshot().nodes();
        let of_nodes = || nodes.values().find_map(|node| Region::new(node.label(labels::REGION)?).ok());
        self.settings.region.clone().or_else(of_nodes)
    }

    /// True if verdicts use these facts already.
    fn uses(&self, facts: &AzureFacts) -> bool {
        self.outputs.validator.borrow().matches(facts, self.catalog.as_of())
    }

    fn use_validator(&self, validator: SourcedValidator) {
        let ViewSettings { kubernetes, nodes, .. } = &self.settings;
        self.outputs.validator.send_replace(Arc::new(validator.for_kubernetes(kubernetes.clone()).for_nodes(*nodes)));
    }
}
