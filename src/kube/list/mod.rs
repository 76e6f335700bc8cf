//! Lists and reads objects from the API server itself, without a cache.
//!
//! What is deleted rests on these reads. They name no resourceVersion, which makes them quorum reads. One object that
//! cannot be parsed makes a listing a failure: it may be the sign of life that is looked for.

mod inventory;
mod orphan_objects;
mod read;
pub mod recording;

use crate::error::{describe, failure_cause};
use crate::objects::raw_object::{self, RawObject};
pub use inventory::{ClusterListing, list_for_inventory, reservation_groups_of_classes, subnets_of_classes};
use kube::api::{Api, ListParams};
use kube::core::ObjectList;
use kube::{Client, Resource};
use napkeeper_api::convert::Violations;
use napkeeper_core::model::azure::inventory::ListFailure;
use napkeeper_core::model::errors::FailureCause;
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
    /// A page was refused, or never came.
    Refused(kube::Error),
    /// An object does not match the schema of its kind.
    Unreadable(String),
    /// It took too long, or too many pages.
    Incomplete(String),
}

impl ListError {
    /// The same of a listing, for people.
    pub(crate) fn of(&self, listing: &str) -> ListFailure {
        let (cause, why) = match self {
            Self::Refused(error) => (failure_cause(error), describe(error)),
            Self::Unreadable(why) => (FailureCause::Unreadable, why.clone()),
            Self::Incomplete(why) => (FailureCause::Other, why.clone()),
        };
        ListFailure { cause, ..ListFailure::new(listing, why) }
    }
}

/// A listing of a kind that need not be installed: where it is not, there are no objects.
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
            let unreadable =
                |why: &dyn std::fmt::Display| ListError::Unreadable(format!("cannot parse {}: {why}", object.key()));
            let decoded = object.read().map_err(|why| unreadable(&why))?;
            all.extend(convert(&decoded).map_err(|why| unreadable(&why))?);
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
