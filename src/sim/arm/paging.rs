//! Listings and their pages.

use super::related_resources::RelatedListing;
use super::responses::{error_response, ok, refused};
use super::route::{Query, ResourceType};
use super::{Call, Request, Response, facts, resource_json};
use crate::cloud::{ListedKind, ListingFault, Refusal};
use crate::random::Random;
use serde_json::{Value, json};

/// Most resources on a page, whatever `$top` requests.
const MOST_PER_PAGE: usize = 1_000;

impl Call<'_> {
    pub(super) fn list(&mut self, of: Option<ResourceType>) -> Result<Response, Response> {
        let kinds: Vec<ListedKind> = of.map_or_else(|| ListedKind::RESOURCES.to_vec(), |of| vec![of.kind()]);
        self.check_listing(&kinds)?;
        let shown = self.cloud.shown(of.map(ResourceType::kind), self.now);
        let broken = self.is_broken(&kinds);
        self.page(&shown, broken, |call, resource| match of {
            Some(_) => resource_json::resource(call.cloud, resource),
            None => resource_json::summary(call.cloud, resource, call.query.get("$expand").unwrap_or_default()),
        })
    }

    pub(super) fn others(&mut self, others: &RelatedListing) -> Result<Response, Response> {
        self.check_listing(&[others.kind()])?;
        let version = self.query.get("api-version").unwrap_or_default();
        let Some(items) = others.items(self.cloud, version, self.now) else {
            return Err(error_response(404, "NotFound", "The agent pool could not be found."));
        };
        let broken = self.is_broken(&[others.kind()]);
        self.page(&items, broken, |_, item| item.clone())
    }

    /// Refuses a listing that is refused as a whole.
    fn check_listing(&self, kinds: &[ListedKind]) -> Result<(), Response> {
        for kind in kinds {
            match self.cloud.faults.listing_fault(*kind, self.now) {
                Some(ListingFault::BrokenPage) | None => {}
                Some(_) => self.cloud.check_listing(*kind, self.now).map_err(|refusal| refused(&refusal))?,
            }
        }
        Ok(())
    }

    /// True when the last page of such a listing cannot be read.
    fn is_broken(&self, kinds: &[ListedKind]) -> bool {
        let fault = |kind: &ListedKind| self.cloud.faults.listing_fault(*kind, self.now);
        kinds.iter().any(|kind| fault(kind) == Some(ListingFault::BrokenPage))
    }

    /// A page of a list, with the link to the next one.
    fn page<T>(&self, all: &[T], broken: bool, write: impl Fn(&Self, &T) -> Value) -> Result<Response, Response> {
        let from: usize = self.query.get("$skiptoken").and_then(|token| token.parse().ok()).unwrap_or(0);
        // A token beyond the end returns an empty page.
        let from = from.min(all.len());
        let next = from + self.page_size(from);
        let is_last = next >= all.len();
        if broken && is_last {
            return Err(refused(&Refusal::Unavailable));
        }
        let value: Vec<Value> = all[from..next.min(all.len())].iter().map(|one| write(self, one)).collect();
        let mut body = json!({ "value": value });
        if !is_last {
            body["nextLink"] = Value::from(self.next_link(next));
        }
        Ok(ok(body))
    }

    /// The sizes. A listing of VMs that breaks off does so here too.
    pub(super) fn skus(&self) -> Result<Response, Response> {
        let all = facts::skus::skus(self.cloud, self.query.get("$filter"), self.now);
        self.page(&all, self.is_broken(&[ListedKind::Vms]), |_, sku| sku.clone())
    }

    /// How much is on the page that begins here. Ragged pages differ: Azure filters pages after it has cut them.
    fn page_size(&self, from: usize) -> usize {
        let most = self.cloud.page_size.clamp(1, MOST_PER_PAGE);
        let requested = self.query.get("$top").and_then(|top| top.parse().ok());
        let size = requested.map_or(most, |top: usize| top.clamp(1, most));
        if !self.cloud.faults.ragged_pages {
            return size;
        }
        let most = u64::try_from(size).unwrap_or(1);
        let drawn = Random::of(self.cloud.settings().seed, &format!("page {from}")).between(1, most);
        usize::try_from(drawn).unwrap_or(size)
    }

    fn next_link(&self, from: usize) -> String {
        let Request { origin, path_and_query, .. } = self.request;
        let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
        let pairs = query.split('&').filter(|pair| !Query::names(pair, "$skiptoken"));
        let pairs: Vec<&str> = pairs.collect();
        format!("{origin}{path}?{}&%24skiptoken={from}", pairs.join("&"))
    }
}
