//! Lists and reads objects from the API server itself, without a cache.
//!
//! Deletions depend on these reads. They have no resourceVersion, which makes them quorum reads. One object that cannot
//! be parsed fails the listing: it may be the reference that protects a resource.

mod git_sources;
mod inventory;
mod node_history;
mod orphan_objects;
mod read;
pub mod recording;

use crate::error::{describe, failure_cause};
use crate::objects::raw_object::{self, RawObject};
pub use git_sources::{GitSource, read_git_sources};
pub use inventory::{ClusterListing, list_for_inventory, reservation_groups_of_classes, subnets_of_classes};
use kube::api::{Api, ListParams};
use kube::core::ObjectList;
use kube::{Client, Resource};
use napkeeper_api::convert::Violations;
use napkeeper_core::model::azure::inventory::ListFailure;
use napkeeper_core::model::errors::FailureCause;
pub use node_history::{NodeClaimEvent, read_node_claim_events, read_removals};
pub use orphan_objects::{read_records, read_sweeps};
pub use read::read;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::time::timeout;

/// Objects in a page.
const PAGE_SIZE: u32 = 500;
/// Most pages of a listing: more means that the server never returns a last one.
const MAX_PAGES: usize = 4000;
/// How long a page may take.
const PAGE_TIMEOUT: Duration = Duration::from_secs(60);

/// Why a listing is not complete.
pub(crate) enum ListError {
    /// A page was rejected, or timed out.
    Refused(kube::Error),
    /// An object does not match the schema of its kind.
    Unreadable(String),
    /// It took too long, or too many pages.
    Incomplete(String),
}

impl ListError {
    /// As the failure of a listing.
    pub(crate) fn of(&self, listing: &str) -> ListFailure {
        let (cause, reason) = match self {
            Self::Refused(error) => (failure_cause(error), describe(error)),
            Self::Unreadable(reason) => (FailureCause::Unreadable, reason.clone()),
            Self::Incomplete(reason) => (FailureCause::Other, reason.clone()),
        };
        ListFailure { cause, ..ListFailure::new(listing, reason) }
    }
}

/// A listing of an optional kind: if it is not installed, there are no objects.
pub(crate) fn none_if_not_served<T>(listed: Result<Vec<T>, ListError>, listing: &str) -> Result<Vec<T>, ListFailure> {
    match listed {
        Err(ListError::Refused(kube::Error::Api(status))) if status.code == 404 => Ok(Vec::new()),
        listed => listed.map_err(|error| error.of(listing)),
    }
}

/// All objects of a kind, converted. `Ok(None)` leaves one out.
pub(crate) async fn all_of<K, T>(
    client: &Client,
    convert: impl Fn(&K) -> Result<Option<T>, Violations>,
) -> Result<Vec<T>, ListError>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    list(&raw_object::all::<K>(client), ListParams::default(), convert).await
}

/// All objects of a selection, converted, page after page. `Ok(None)` leaves one out.
async fn list<K: DeserializeOwned, T>(
    api: &Api<RawObject>,
    selection: ListParams,
    convert: impl Fn(&K) -> Result<Option<T>, Violations>,
) -> Result<Vec<T>, ListError> {
    let mut all = Vec::new();
    let mut params = selection.limit(PAGE_SIZE);
    for _ in 0..MAX_PAGES {
        let page = page(api, &params).await?;
        for object in page.items {
            let unreadable = |reason: &dyn std::fmt::Display| {
                ListError::Unreadable(format!("cannot parse {}: {reason}", object.key()))
            };
            let decoded = object.read().map_err(|reason| unreadable(&reason))?;
            all.extend(convert(&decoded).map_err(|reason| unreadable(&reason))?);
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(all),
        }
    }
    Err(ListError::Incomplete(format!("not complete after {MAX_PAGES} pages")))
}

async fn page(api: &Api<RawObject>, params: &ListParams) -> Result<ObjectList<RawObject>, ListError> {
    let page = timeout(PAGE_TIMEOUT, api.list(params)).await;
    let page = page.map_err(|_| ListError::Incomplete(format!("no page received within {}s", PAGE_TIMEOUT.as_secs())));
    page?.map_err(ListError::Refused)
}

#[cfg(test)]
mod tests;
