//! Fetches each Azure fact with its requests, and checks that the answer is complete.

use super::{FactCollector, FactScope, FactSources};
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::catalog::RegionCatalog;
use napkeeper_core::catalog::live::{
    AzureFacts, CapacityReservation, Fact, FactKind, ImageDefinition, Quota, SizeListing, SubnetAddresses,
    merge_reservations, price_list,
};
use napkeeper_core::model::errors::{CloudError, CloudErrorCode};
use napkeeper_core::model::names::VmSize;
use napkeeper_kube::list;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Share of the known prices that a price list must have to be accepted, in per cent.
const MIN_PRICES_PERCENT: usize = 90;
/// Most subnets of AKSNodeClasses that are read; each is a request.
const MAX_SUBNETS: usize = 32;
/// Most capacity reservation groups that are read; each is a request.
const MAX_RESERVATION_GROUPS: usize = 16;
/// Minor versions of Kubernetes whose images are read: those on both sides of each change of image definitions.
const KUBERNETES_MINORS: [u32; 3] = [31, 33, 34];

/// Why a fact could not be fetched, and how long Azure wants no further request.
pub(super) struct FetchError {
    pub(super) reason: String,
    pub(super) wait: Option<SignedDuration>,
}

impl From<CloudError> for FetchError {
    fn from(error: CloudError) -> Self {
        Self { reason: error.to_string(), wait: error.retry_after }
    }
}

impl FactCollector {
    /// The known facts with one of them fetched again.
    pub(super) async fn fetch(&self, kind: FactKind, at: Timestamp) -> Result<AzureFacts, FetchError> {
        let FactSources { azure, .. } = &self.sources;
        let mut known = self.known.clone();
        match kind {
            FactKind::Sizes => known.sizes = Some(Fact { as_of: at, value: Arc::new(self.sizes(at).await?) }),
            FactKind::Quota => known.quota = Some(Arc::new(Quota::new(at, azure.usages().await?))),
            FactKind::Prices => self.prices(&mut known, at).await?,
            FactKind::Images => {
                let mut definitions: Vec<_> = KUBERNETES_MINORS.into_iter().flat_map(ImageDefinition::all).collect();
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

    /// Free addresses of the subnets that nodes are in; `None` where no subnet is configured. A subnet of an
    /// AKSNodeClass that does not exist or cannot be read is left out: it must not hide the others.
    async fn subnets(&self) -> Result<Option<Vec<SubnetAddresses>>, FetchError> {
        let FactSources { azure, client, scope: FactScope { subnets, .. }, .. } = &self.sources;
        let named = list::subnets_of_classes(client, MAX_SUBNETS).await;
        let named = named.map_err(|failure| FetchError { reason: failure.to_string(), wait: None })?;
        let mut found = azure.subnets(subnets).await?;
        found.iter_mut().for_each(|subnet| subnet.is_default = true);
        for subnet in named.into_iter().filter(|id| !subnets.contains(id)) {
            match azure.subnets(std::slice::from_ref(&subnet)).await {
                Ok(addresses) => found.extend(addresses),
                Err(error) if error.code == CloudErrorCode::Throttled => return Err(error.into()),
                Err(error) => {
                    tracing::warn!(%subnet, %error, "cannot determine the free addresses of an AKSNodeClass's subnet")
                }
            }
        }
        Ok((!found.is_empty()).then_some(found))
    }

    /// Reservations of the groups that AKSNodeClasses name; `None` where none is named.
    async fn reservations(&self, at: Timestamp) -> Result<Option<Vec<CapacityReservation>>, FetchError> {
        let FactSources { azure, client, scope: FactScope { embedded, .. }, .. } = &self.sources;
        let groups = list::reservation_groups_of_classes(client, MAX_RESERVATION_GROUPS).await;
        let groups = groups.map_err(|failure| FetchError { reason: failure.to_string(), wait: None })?;
        let mut answers = Vec::with_capacity(groups.len());
        for group in groups {
            let mut answer = azure.reservations(&group, &embedded.region).await;
            match &mut answer {
                Ok(reservations) => {
                    reservations.iter_mut().for_each(|one| normalize_size_name(&mut one.size, embedded));
                }
                Err(error) if error.code == CloudErrorCode::Throttled => return Err(error.clone().into()),
                Err(error) => {
                    tracing::warn!(%group, %error, "cannot determine the reservations of an AKSNodeClass's capacity \
                                                    reservation group")
                }
            }
            answers.push((group, answer));
        }
        let has_groups = !answers.is_empty();
        let reservations = merge_reservations(self.known.reservations.as_ref(), answers, at)?;
        Ok(has_groups.then_some(reservations))
    }

    async fn sizes(&self, at: Timestamp) -> Result<SizeListing, FetchError> {
        let FactSources { azure, scope: FactScope { catalog, embedded, .. }, .. } = &self.sources;
        let gpus = |name: &VmSize| catalog.size(name).and_then(|facts| facts.gpu.clone());
        let (mut sizes, mut unreadable) = (Vec::new(), BTreeSet::new());
        for row in azure.sizes().await? {
            match row.read(&embedded.region, gpus) {
                Ok(size) => sizes.push(size),
                // Its last known state stays.
                Err(error) => {
                    tracing::warn!(%error, "cannot parse a VM size of the listing");
                    unreadable.extend(VmSize::new(&row.name));
                }
            }
        }
        let nothing = SizeListing::default();
        let last = self.known.sizes.as_ref().map_or(&nothing, |fact| &*fact.value);
        // The embedded catalogue is of another month and subscription: half of it is a reasonable minimum.
        let listing = last
            .merge(sizes, &unreadable, embedded.sizes.len() / 2, at)
            .map_err(|e| FetchError { reason: e.to_string(), wait: None })?;
        for (size, since) in listing.missing() {
            tracing::warn!(%size, %since, "the size is no longer listed; keeping it for now");
        }
        Ok(listing)
    }

    async fn prices(&self, known: &mut AzureFacts, at: Timestamp) -> Result<(), FetchError> {
        let Some(client) = &self.sources.scope.prices else { return Ok(()) };
        let meters = client.meters(&self.sources.scope.embedded.region).await?;
        let list = price_list(&meters, at);
        let before = known.prices.as_ref().map_or(0, |fact| fact.value.len());
        if list.is_empty() || list.len() * 100 < before * MIN_PRICES_PERCENT {
            let reason = format!(
                "the price list has prices of {} sizes, expected about {before}: ignored as incomplete",
                list.len()
            );
            return Err(FetchError { reason, wait: None });
        }
        known.prices = Some(Fact { as_of: at, value: Arc::new(list) });
        Ok(())
    }
}

/// Spells a size as the catalogue does: Azure keeps the user's spelling, and ignores case.
fn normalize_size_name(size: &mut VmSize, catalog: &RegionCatalog) {
    let mut known = catalog.sizes.iter().map(|size| &size.facts.name);
    if let Some(name) = known.find(|name| name.as_str().eq_ignore_ascii_case(size.as_str())) {
        size.clone_from(name);
    }
}
