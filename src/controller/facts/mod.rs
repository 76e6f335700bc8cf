//! Collects the Azure facts (sizes, quota, prices, images, subnets, reservations, locks) and publishes them.
//!
//! A task beside the control loop, which never waits for it: until a fact is known, the embedded catalogue is used. It
//! works while this replica leads. Each fact has its own schedule and its own age; one that cannot be read keeps its
//! last known value, and the failure is published, logged and counted.

mod fetch;
pub(super) mod kubernetes_version;

use fetch::FetchError;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use napkeeper_api::azure_facts::PublishedFacts;
use napkeeper_azure::{Azure, RetailPrices};
use napkeeper_core::catalog::live::{
    AzureFacts, Fact, FactKind, FactSchedule, InfrastructureFacts, PriceSheet, Quota, catalog_from_facts, format_age,
};
use napkeeper_core::catalog::{Catalog, RegionCatalog};
use napkeeper_core::engine::clock::Clock;
use napkeeper_core::model::names::ArmId;
use napkeeper_kube::{LeaseHandle, publish_facts, read_facts};
use napkeeper_serve::Lifecycle;
use napkeeper_serve::prometheus_client::metrics::counter::Counter;
use napkeeper_serve::prometheus_client::metrics::family::Family;
use napkeeper_serve::prometheus_client::metrics::gauge::Gauge;
use napkeeper_serve::prometheus_client::registry::Registry;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Longest that one fact may take, all its pages together.
const DEADLINE: Duration = Duration::from_secs(360);
/// How often the metrics of ages are set, and it is checked whether to publish.
const TICK: Duration = Duration::from_secs(5);
/// Changes are published at most this often: the object is large, and every watcher receives all of it.
const MIN_PUBLISH_INTERVAL: SignedDuration = SignedDuration::from_secs(30);
/// Without changes the ages are published this often: quotas older than 15 min count as unknown.
const AGES_PUBLISH_INTERVAL: SignedDuration = SignedDuration::from_mins(8);

/// The facts that decisions use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CurrentFacts {
    /// The sizes of the region with zones and prices.
    pub(super) catalog: Arc<RegionCatalog>,
    /// The quota of cores.
    pub(super) quota: Option<Arc<Quota>>,
    /// Free addresses of subnets, reservations, locks, and sizes that have vanished.
    pub(super) infrastructure: Arc<InfrastructureFacts>,
}

/// Which facts are collected, and what is used until they are known.
pub(super) struct FactScope {
    /// `None` where there is no price list.
    pub(super) prices: Option<RetailPrices>,
    /// For the GPUs of sizes.
    pub(super) catalog: Arc<Catalog>,
    /// Used until Azure has answered.
    pub(super) embedded: RegionCatalog,
    pub(super) sheet: PriceSheet,
    /// Subnets that nodes are in, besides those that AKSNodeClasses name.
    pub(super) subnets: Vec<ArmId>,
    /// True if nodes are VMs that may run on reserved capacity; AKS Machines do not.
    pub(super) uses_reservations: bool,
}

/// Where facts are read from and published to.
pub(super) struct FactSources {
    pub(super) scope: FactScope,
    pub(super) azure: Arc<Azure>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) client: Client,
    pub(super) namespace: String,
    pub(super) lease: LeaseHandle,
}

/// Metrics of the ages of facts, and of failures to read them.
#[derive(Debug, Clone, Default)]
pub(super) struct Metrics {
    ages: Family<[(&'static str, &'static str); 1], Gauge>,
    failures: Family<[(&'static str, &'static str); 1], Counter>,
}

impl Metrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("facts_age_seconds", "Age of Azure facts in seconds, by fact", metrics.ages.clone());
        registry.register("facts_failures", "Azure facts that could not be read", metrics.failures.clone());
        metrics
    }
}

/// The task that collects and publishes facts.
pub(super) struct FactCollector {
    sources: FactSources,
    metrics: Metrics,
    known: AzureFacts,
    schedule: FactSchedule,
    current: watch::Sender<Arc<CurrentFacts>>,
    /// True if there are changes that are not published yet.
    has_unpublished: bool,
    last_published: Option<Timestamp>,
}

impl FactCollector {
    /// The task, and the channel of current facts, which begins with the embedded catalogue.
    pub(super) fn new(sources: FactSources, metrics: Metrics) -> (Self, watch::Receiver<Arc<CurrentFacts>>) {
        let known = AzureFacts::default();
        let catalog = Arc::new(catalog_from_facts(&known, &sources.scope.embedded, &sources.scope.sheet));
        let (current, receiver) =
            watch::channel(Arc::new(CurrentFacts { catalog, quota: None, infrastructure: Arc::default() }));
        let collected = FactKind::ALL.into_iter().filter(|kind| match kind {
            FactKind::Prices => sources.scope.prices.is_some(),
            FactKind::Reservations => sources.scope.uses_reservations,
            _ => true,
        });
        let seed = u64::from(uuid::Uuid::new_v4().as_fields().0);
        let schedule = FactSchedule::new(collected, sources.clock.now(), seed);
        (Self { sources, metrics, known, schedule, current, has_unpublished: false, last_published: None }, receiver)
    }

    /// Runs until the process drains.
    pub(super) async fn run(mut self, lifecycle: Lifecycle) {
        tokio::select! {
            () = lifecycle.draining() => {}
            () = self.collect_while_leading() => {}
        }
    }

    async fn collect_while_leading(&mut self) {
        let mut leading = self.sources.lease.leads();
        // Ends with the handle of the Lease, when there is nothing left to lead.
        while leading.wait_for(|leads| *leads).await.is_ok() {
            self.load_published().await;
            while *leading.borrow() {
                match self.schedule.due(self.sources.clock.now()) {
                    Some(kind) => self.refresh(kind).await,
                    None => tokio::time::sleep(self.sleep()).await,
                }
                self.set_age_metrics();
                self.publish().await;
            }
        }
    }

    fn sleep(&self) -> Duration {
        let now = self.sources.clock.now();
        let due = self.schedule.next().and_then(|at| Duration::try_from(at.duration_since(now)).ok());
        due.unwrap_or(TICK).clamp(Duration::from_millis(10), TICK)
    }

    /// Loads the facts published last: after a restart the collection does not begin with nothing, and incomplete
    /// answers are compared with them.
    async fn load_published(&mut self) {
        let FactSources { client, namespace, scope: FactScope { embedded, .. }, .. } = &self.sources;
        let found = match read_facts(client, namespace).await {
            Ok(found) => found.filter(|published| published.region == embedded.region),
            Err(error) => {
                tracing::warn!(%error, "cannot read the previously published facts");
                None
            }
        };
        let Some(PublishedFacts { facts: known, .. }) = found else { return };
        for (kind, as_of) in ages(&known) {
            self.schedule.restore(kind, as_of);
        }
        tracing::info!(facts = ages(&known).len(), "loaded previously published facts");
        self.known = known;
        self.send_current();
    }

    async fn refresh(&mut self, kind: FactKind) {
        let at = self.sources.clock.now();
        let fetched = tokio::time::timeout(DEADLINE, self.fetch(kind, at)).await;
        let failed = match fetched {
            Ok(Ok(new)) => {
                tracing::debug!(fact = kind.as_str(), "fact read");
                self.schedule.record_success(kind, at);
                self.has_unpublished |= !same_values(&self.known, &new);
                self.known = new;
                return self.send_current();
            }
            Ok(Err(failed)) => failed,
            Err(_) => FetchError { reason: format!("no complete response within {DEADLINE:?}"), wait: None },
        };
        let age = ages(&self.known).into_iter().find(|(of, _)| *of == kind);
        let age = age.map_or_else(|| "never known".to_owned(), |(_, as_of)| format!("{} old", format_age(as_of, at)));
        tracing::warn!(fact = kind.as_str(), why = failed.reason, last_good = age, "failed to read the fact");
        self.metrics.failures.get_or_create(&[("fact", kind.as_str())]).inc();
        self.schedule.record_failure(kind, self.sources.clock.now(), failed.reason, failed.wait);
        self.has_unpublished = true;
    }

    /// Sends the current facts to the control loop, if they have changed. The catalogue is replaced only if it differs.
    fn send_current(&self) {
        let FactScope { embedded, sheet, .. } = &self.sources.scope;
        let catalog = catalog_from_facts(&self.known, embedded, sheet);
        self.current.send_if_modified(|live| {
            let same_catalog = *live.catalog == catalog;
            let infrastructure = self.known.infrastructure();
            if same_catalog && live.quota == self.known.quota && *live.infrastructure == infrastructure {
                return false;
            }
            let catalog = if same_catalog { Arc::clone(&live.catalog) } else { Arc::new(catalog) };
            let infrastructure = Arc::new(infrastructure);
            *live = Arc::new(CurrentFacts { catalog, quota: self.known.quota.clone(), infrastructure });
            true
        });
    }

    fn set_age_metrics(&self) {
        let now = self.sources.clock.now();
        for (kind, as_of) in ages(&self.known) {
            let age = now.duration_since(as_of).as_secs().max(0);
            self.metrics.ages.get_or_create(&[("fact", kind.as_str())]).set(age);
        }
    }

    /// Publishes the facts if they have changed or the published ages are old, and only while this replica surely
    /// leads.
    async fn publish(&mut self) {
        let FactSources { clock, client, namespace, lease, scope: FactScope { embedded, .. }, .. } = &self.sources;
        let now = clock.now();
        let since = self.last_published.map(|at| now.duration_since(at));
        let due = since.is_none_or(|since| {
            since >= if self.has_unpublished { MIN_PUBLISH_INTERVAL } else { AGES_PUBLISH_INTERVAL }
        });
        // The first time, all facts are published together.
        let collected = self.last_published.is_some() || self.schedule.due(now).is_none();
        if !due || !collected || !lease.allows_writes() {
            return;
        }
        let failing = self.schedule.entries().filter_map(|(kind, _, failure)| Some((kind, failure?.clone()))).collect();
        let (region, known) = (embedded.region.clone(), self.known.clone());
        let published = PublishedFacts { region, facts: known, failing, unreadable: Vec::new() };
        // A failure is logged by the adapter. Either way the next attempt waits for its interval.
        if publish_facts(client, namespace, &published).await.is_ok() {
            self.has_unpublished = false;
        }
        self.last_published = Some(now);
    }
}

/// When each fact was taken.
fn ages(known: &AzureFacts) -> Vec<(FactKind, Timestamp)> {
    let all = [
        (FactKind::Sizes, known.sizes.as_ref().map(|fact| fact.as_of)),
        (FactKind::Quota, known.quota.as_ref().map(|quota| quota.as_of)),
        (FactKind::Prices, known.prices.as_ref().map(|fact| fact.as_of)),
        (FactKind::Images, known.images.as_ref().map(|fact| fact.as_of)),
        (FactKind::Subnets, known.subnets.as_ref().map(|fact| fact.as_of)),
        (FactKind::Reservations, known.reservations.as_ref().map(|fact| fact.as_of)),
        (FactKind::Locks, known.locks.as_ref().map(|fact| fact.as_of)),
    ];
    all.into_iter().filter_map(|(kind, as_of)| Some((kind, as_of?))).collect()
}

/// True if both have the same values, whatever their ages.
fn same_values(a: &AzureFacts, b: &AzureFacts) -> bool {
    fn value<T>(fact: &Option<Fact<T>>) -> Option<&T> {
        fact.as_ref().map(|fact| &fact.value)
    }
    let quota = match (&a.quota, &b.quota) {
        (Some(a), Some(b)) => a.same_usages(b),
        (a, b) => a.is_none() && b.is_none(),
    };
    quota
        && value(&a.sizes) == value(&b.sizes)
        && value(&a.prices) == value(&b.prices)
        && value(&a.images) == value(&b.images)
        && value(&a.subnets) == value(&b.subnets)
        && value(&a.reservations) == value(&b.reservations)
        && value(&a.locks) == value(&b.locks)
}
