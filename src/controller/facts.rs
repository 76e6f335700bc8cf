//! The keeper of facts: when is Azure asked what it offers, and who is told?
//!
//! A task of its own beside the controller, which never waits for it: what is not known yet is what the embedded
//! catalogue says. It works while this replica leads. Each fact has its own schedule and its own age; one that fails
//! stays as it was last known, with the failure said, logged and counted.

use jiff::{SignedDuration, Timestamp};
use kube::Client;
use napkeeper_api::facts::Published;
use napkeeper_azure::{Azure, RetailPrices};
use napkeeper_core::catalog::live::{
    AzureFacts, CapacityReservation, Fact, FactKind, FactSchedule, ImageDefinition, InfrastructureFacts, PriceSheet,
    Quota, SizeListing, SubnetAddresses, catalog_from_facts, format_age, merge_reservations, price_list,
};
use napkeeper_core::catalog::{Catalog, RegionCatalog};
use napkeeper_core::engine::clock::Clock;
use napkeeper_core::model::errors::{CloudError, CloudErrorCode};
use napkeeper_core::model::names::{ArmId, VmSize};
use napkeeper_kube::{LeaseHandle, list, publish_facts, read_facts};
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
/// How often ages are told and the object is looked after.
const BEAT: Duration = Duration::from_secs(5);
/// News is published at most this often: the object is large, and everybody who follows it gets it whole.
const BETWEEN: SignedDuration = SignedDuration::from_secs(30);
/// Without news the ages are published this often: quotas older than 15 min count as unknown.
const AGES_EVERY: SignedDuration = SignedDuration::from_mins(8);
/// What must be left of the Lease when the object is written.
const LEASE_LEFT: Duration = Duration::from_secs(5);
/// Part of the known prices that a list must have to be taken, in per cent.
const PRICES_AT_LEAST: usize = 90;
/// Most subnets of AKSNodeClasses that are asked for; each is a request.
const MOST_SUBNETS: usize = 32;
/// Most groups of capacity reservations that are asked for; each is a request.
const MOST_GROUPS: usize = 16;
/// Minor versions of Kubernetes whose images are asked for: those on both sides of each change of definitions.
const MINORS: [u32; 3] = [31, 33, 34];

/// What decisions are made by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Live {
    /// What the region offers.
    pub(super) catalog: Arc<RegionCatalog>,
    /// How many cores Azure sells.
    pub(super) quota: Option<Arc<Quota>>,
    /// Room in subnets, and locks.
    pub(super) surroundings: Arc<InfrastructureFacts>,
}

/// What facts are asked for, and what serves until they are known.
pub(super) struct Asked {
    /// None where there is no price list.
    pub(super) prices: Option<RetailPrices>,
    /// Knows the GPUs of sizes.
    pub(super) catalog: Arc<Catalog>,
    /// What serves until Azure has answered.
    pub(super) embedded: RegionCatalog,
    pub(super) sheet: PriceSheet,
    /// Subnets that nodes are in, besides those that AKSNodeClasses name.
    pub(super) subnets: Vec<ArmId>,
    /// Nodes are VMs of our own making, which may lie on reserved capacity. AKS makes none there.
    pub(super) reserves: bool,
}

/// What facts are taken and told with.
pub(super) struct Sources {
    pub(super) asked: Asked,
    pub(super) azure: Arc<Azure>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) client: Client,
    pub(super) namespace: String,
    pub(super) lease: LeaseHandle,
}

/// Ages and failures.
#[derive(Debug, Clone, Default)]
pub(super) struct Metrics {
    ages: Family<[(&'static str, &'static str); 1], Gauge>,
    failures: Family<[(&'static str, &'static str); 1], Counter>,
}

/// Spells a size as the catalogue does: Azure keeps what somebody has typed, and reads sizes without case.
fn spell(size: &mut VmSize, catalog: &RegionCatalog) {
    let mut known = catalog.sizes.iter().map(|size| &size.facts.name);
    if let Some(name) = known.find(|name| name.as_str().eq_ignore_ascii_case(size.as_str())) {
        size.clone_from(name);
    }
}

impl Metrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("facts_age_seconds", "Age of Azure facts in seconds, by fact", metrics.ages.clone());
        registry.register("facts_failures", "Azure facts that could not be read", metrics.failures.clone());
        metrics
    }
}

/// The task.
pub(super) struct FactKeeper {
    sources: Sources,
    metrics: Metrics,
    known: AzureFacts,
    book: FactSchedule,
    live: watch::Sender<Arc<Live>>,
    /// News that is not published yet.
    news: bool,
    published: Option<Timestamp>,
}

impl FactKeeper {
    /// The task, and where it tells what it knows; at first that is the embedded catalogue.
    pub(super) fn new(sources: Sources, metrics: Metrics) -> (Self, watch::Receiver<Arc<Live>>) {
        let known = AzureFacts::default();
        let catalog = Arc::new(catalog_from_facts(&known, &sources.asked.embedded, &sources.asked.sheet));
        let (live, receiver) = watch::channel(Arc::new(Live { catalog, quota: None, surroundings: Arc::default() }));
        let asked = FactKind::ALL.into_iter().filter(|kind| match kind {
            FactKind::Prices => sources.asked.prices.is_some(),
            FactKind::Reservations => sources.asked.reserves,
            _ => true,
        });
        let seed = u64::from(uuid::Uuid::new_v4().as_fields().0);
        let book = FactSchedule::new(asked, sources.clock.now(), seed);
        (Self { sources, metrics, known, book, live, news: false, published: None }, receiver)
    }

    /// Works until the process drains.
    pub(super) async fn run(mut self, lifecycle: Lifecycle) {
        tokio::select! {
            () = lifecycle.draining() => {}
            () = self.keep() => {}
        }
    }

    async fn keep(&mut self) {
        let mut leading = self.sources.lease.leads();
        // Ends with the handle of the Lease, when there is nothing left to lead.
        while leading.wait_for(|leads| *leads).await.is_ok() {
            self.remember().await;
            while *leading.borrow() {
                match self.book.due(self.sources.clock.now()) {
                    Some(kind) => self.take(kind).await,
                    None => tokio::time::sleep(self.sleep()).await,
                }
                self.tell_ages();
                self.publish().await;
            }
        }
    }

    fn sleep(&self) -> Duration {
        let now = self.sources.clock.now();
        let due = self.book.next().and_then(|at| Duration::try_from(at.duration_since(now)).ok());
        due.unwrap_or(BEAT).clamp(Duration::from_millis(10), BEAT)
    }

    /// What was published last is known still: after a restart nothing begins with a short answer, or from nothing.
    async fn remember(&mut self) {
        let Sources { client, namespace, asked: Asked { embedded, .. }, .. } = &self.sources;
        let found = match read_facts(client, namespace).await {
            Ok(found) => found.filter(|published| published.region == embedded.region),
            Err(error) => {
                tracing::warn!(%error, "cannot read the previously published facts");
                None
            }
        };
        let Some(Published { facts: known, .. }) = found else { return };
        for (kind, as_of) in ages(&known) {
            self.book.restore(kind, as_of);
        }
        tracing::info!(facts = ages(&known).len(), "loaded previously published facts");
        self.known = known;
        self.tell();
    }

    async fn take(&mut self, kind: FactKind) {
        let at = self.sources.clock.now();
        let taken = tokio::time::timeout(DEADLINE, self.ask(kind, at)).await;
        let failed = match taken {
            Ok(Ok(new)) => {
                tracing::debug!(fact = kind.as_str(), "taken");
                self.book.record_success(kind, at);
                self.news |= !same(&self.known, &new);
                self.known = new;
                return self.tell();
            }
            Ok(Err(failed)) => failed,
            Err(_) => Failed { why: format!("no complete response within {DEADLINE:?}"), wait: None },
        };
        let age = ages(&self.known).into_iter().find(|(of, _)| *of == kind);
        let age = age.map_or_else(|| "never known".to_owned(), |(_, as_of)| format!("{} old", format_age(as_of, at)));
        tracing::warn!(fact = kind.as_str(), why = failed.why, last_good = age, "failed to read the fact");
        self.metrics.failures.get_or_create(&[("fact", kind.as_str())]).inc();
        self.book.record_failure(kind, self.sources.clock.now(), failed.why, failed.wait);
        self.news = true;
    }

    /// What is known with one fact asked anew.
    async fn ask(&self, kind: FactKind, at: Timestamp) -> Result<AzureFacts, Failed> {
        let Sources { azure, .. } = &self.sources;
        let mut known = self.known.clone();
        match kind {
            FactKind::Sizes => known.sizes = Some(Fact { as_of: at, value: Arc::new(self.sizes(at).await?) }),
            FactKind::Quota => known.quota = Some(Arc::new(Quota::new(at, azure.usages().await?))),
            FactKind::Prices => self.prices(&mut known, at).await?,
            FactKind::Images => {
                let mut definitions: Vec<_> = MINORS.into_iter().flat_map(ImageDefinition::all).collect();
                definitions.sort();
                definitions.dedup();
                known.images = Some(Fact { as_of: at, value: azure.images(&definitions).await? });
            }
            FactKind::Subnets => known.subnets = self.subnets().await?.map(|value| Fact { as_of: at, value }),
            FactKind::Reservations => {
                known.reservations = self.reservations(at).await?.map(|value| Fact { as_of: at, value });
            }
            FactKind::Locks => known.locks = Some(Fact { as_of: at, value: azure.group_locks().await? }),
        }
        Ok(known)
    }

    /// Room in the subnets that nodes are in; none where nobody names one. A class's subnet that cannot be read, or is
    /// not there, is left out: it must not hide the others.
    async fn subnets(&self) -> Result<Option<Vec<SubnetAddresses>>, Failed> {
        let Sources { azure, client, asked: Asked { subnets, .. }, .. } = &self.sources;
        let named = list::subnets_of_classes(client, MOST_SUBNETS).await;
        let named = named.map_err(|failure| Failed { why: failure.to_string(), wait: None })?;
        let mut rooms = azure.subnets(subnets).await?;
        rooms.iter_mut().for_each(|room| room.is_default = true);
        for subnet in named.into_iter().filter(|id| !subnets.contains(id)) {
            match azure.subnets(std::slice::from_ref(&subnet)).await {
                Ok(room) => rooms.extend(room),
                Err(error) if error.code == CloudErrorCode::Throttled => return Err(error.into()),
                Err(error) => {
                    tracing::warn!(%subnet, %error, "cannot determine the free addresses of an AKSNodeClass's subnet")
                }
            }
        }
        Ok((!rooms.is_empty()).then_some(rooms))
    }

    /// What the groups have reserved that AKSNodeClasses name; none where nobody names one.
    async fn reservations(&self, at: Timestamp) -> Result<Option<Vec<CapacityReservation>>, Failed> {
        let Sources { azure, client, asked: Asked { embedded, .. }, .. } = &self.sources;
        let groups = list::reservation_groups_of_classes(client, MOST_GROUPS).await;
        let groups = groups.map_err(|failure| Failed { why: failure.to_string(), wait: None })?;
        let mut answers = Vec::with_capacity(groups.len());
        for group in groups {
            let mut answer = azure.reservations(&group, &embedded.region).await;
            match &mut answer {
                Ok(rooms) => rooms.iter_mut().for_each(|room| spell(&mut room.size, embedded)),
                Err(error) if error.code == CloudErrorCode::Throttled => return Err(error.clone().into()),
                Err(error) => {
                    tracing::warn!(%group, %error, "cannot determine the reservations of an AKSNodeClass's capacity \
                                                    reservation group")
                }
            }
            answers.push((group, answer));
        }
        let is_asked = !answers.is_empty();
        let rooms = merge_reservations(self.known.reservations.as_ref(), answers, at)?;
        Ok(is_asked.then_some(rooms))
    }

    async fn sizes(&self, at: Timestamp) -> Result<SizeListing, Failed> {
        let Sources { azure, asked: Asked { catalog, embedded, .. }, .. } = &self.sources;
        let gpus = |name: &VmSize| catalog.size(name).and_then(|facts| facts.gpu.clone());
        let mut sizes = Vec::new();
        for row in azure.sizes().await? {
            match row.read(&embedded.region, gpus) {
                Ok(size) => sizes.push(size),
                // It counts as missing, so what was known of it stays for a while.
                Err(error) => tracing::warn!(%error, "cannot parse a VM size of the listing"),
            }
        }
        let nothing = SizeListing::default();
        let last = self.known.sizes.as_ref().map_or(&nothing, |fact| &*fact.value);
        // The embedded catalogue is of another month and subscription; half of it is a fair least.
        let listing =
            last.merge(sizes, embedded.sizes.len() / 2, at).map_err(|e| Failed { why: e.to_string(), wait: None })?;
        for (size, since) in listing.missing() {
            tracing::warn!(%size, %since, "the size is no longer listed; keeping it for now");
        }
        Ok(listing)
    }

    async fn prices(&self, known: &mut AzureFacts, at: Timestamp) -> Result<(), Failed> {
        let Some(client) = &self.sources.asked.prices else { return Ok(()) };
        let meters = client.meters(&self.sources.asked.embedded.region).await?;
        let list = price_list(&meters, at);
        let before = known.prices.as_ref().map_or(0, |fact| fact.value.len());
        if list.is_empty() || list.len() * 100 < before * PRICES_AT_LEAST {
            let why = format!(
                "the price list has prices of {} sizes, expected about {before}: ignored as incomplete",
                list.len()
            );
            return Err(Failed { why, wait: None });
        }
        known.prices = Some(Fact { as_of: at, value: Arc::new(list) });
        Ok(())
    }

    /// Tells the controller what is known now; it hears of a catalogue only where that has changed.
    fn tell(&self) {
        let Asked { embedded, sheet, .. } = &self.sources.asked;
        let catalog = catalog_from_facts(&self.known, embedded, sheet);
        self.live.send_if_modified(|live| {
            let same_catalog = *live.catalog == catalog;
            let surroundings = self.known.infrastructure();
            if same_catalog && live.quota == self.known.quota && *live.surroundings == surroundings {
                return false;
            }
            let catalog = if same_catalog { Arc::clone(&live.catalog) } else { Arc::new(catalog) };
            let surroundings = Arc::new(surroundings);
            *live = Arc::new(Live { catalog, quota: self.known.quota.clone(), surroundings });
            true
        });
    }

    fn tell_ages(&self) {
        let now = self.sources.clock.now();
        for (kind, as_of) in ages(&self.known) {
            let age = now.duration_since(as_of).as_secs().max(0);
            self.metrics.ages.get_or_create(&[("fact", kind.as_str())]).set(age);
        }
    }

    /// Publishes what is known, if there is news or the ages are old, and only while this replica surely leads.
    async fn publish(&mut self) {
        let Sources { clock, client, namespace, lease, asked: Asked { embedded, .. }, .. } = &self.sources;
        let now = clock.now();
        let since = self.published.map(|at| now.duration_since(at));
        let due = since.is_none_or(|since| since >= if self.news { BETWEEN } else { AGES_EVERY });
        // The first time, everything that can be had quickly goes together.
        let begun = self.published.is_some() || self.book.due(now).is_none();
        if !due || !begun || !lease.held_for(LEASE_LEFT) {
            return;
        }
        let failing = self.book.entries().filter_map(|(kind, _, failure)| Some((kind, failure?.clone()))).collect();
        let (region, known) = (embedded.region.clone(), self.known.clone());
        let published = Published { region, facts: known, failing, unreadable: Vec::new() };
        // A refusal is logged where it happens. Either way the next attempt waits its turn.
        if publish_facts(client, namespace, &published).await.is_ok() {
            self.news = false;
        }
        self.published = Some(now);
    }
}

/// Why a fact could not be taken, and how long Azure wants to be left alone.
struct Failed {
    why: String,
    wait: Option<SignedDuration>,
}

impl From<CloudError> for Failed {
    fn from(error: CloudError) -> Self {
        Self { why: error.to_string(), wait: error.retry_after }
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

/// True when both say the same, whatever their ages.
fn same(a: &AzureFacts, b: &AzureFacts) -> bool {
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
