//! Reads whole listings, page by page.

use super::client::{ArmClient, cloud_error, parse_body};
use super::error::unavailable;
use crate::transport::Method;
use azure_core::{Continuable, Pageable};
use futures::StreamExt;
use napkeeper_core::model::errors::CloudError;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Most pages of a listing. More means that its links form a circle.
pub(crate) const MAX_PAGES: usize = 1_000;

/// A listing that the ARM crates do not know.
#[derive(Debug)]
pub(crate) struct ListRequest<'a> {
    /// Its path below the endpoint.
    pub(crate) path: &'a str,
    /// The API version, where the client has none for the path.
    pub(crate) version: Option<&'a str>,
    /// Further parameters of the query.
    pub(crate) parameters: &'a [(&'a str, &'a str)],
    /// Most pages.
    pub(crate) max_pages: usize,
}

/// A page of a listing.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page<T> {
    value: Vec<T>,
    next_link: Option<String>,
}

impl ArmClient {
    /// Everything in a listing, or the failure of the page that ended it.
    pub(crate) async fn list<T: DeserializeOwned>(&self, list: ListRequest<'_>) -> Result<Vec<T>, CloudError> {
        let ListRequest { path, version, parameters, max_pages } = list;
        let mut url = self.url(path, version);
        if !parameters.is_empty() {
            url.query_pairs_mut().extend_pairs(parameters);
        }
        let mut items = Vec::new();
        for read in 0..max_pages {
            let response = self.call(Method::GET, url, None).await;
            let page: Page<T> = response.and_then(|r| parse_body(&r)).map_err(|e| incomplete(read, e))?;
            items.extend(page.value);
            let Some(next) = page.next_link.filter(|next| !next.is_empty()) else { return Ok(items) };
            url = next.parse().map_err(|_| unavailable("the link to the next page is not a URL"))?;
        }
        Err(too_many_pages(max_pages))
    }
}

/// All pages of a listing of the ARM crates, or the failure of the page that ended it.
pub(crate) async fn all_pages<T: Continuable>(pages: Pageable<T, azure_core::Error>) -> Result<Vec<T>, CloudError> {
    let mut pages = std::pin::pin!(pages);
    let mut all = Vec::new();
    while let Some(page) = pages.next().await {
        all.push(page.map_err(|error| incomplete(all.len(), cloud_error(error)))?);
        if all.len() == MAX_PAGES {
            return Err(too_many_pages(MAX_PAGES));
        }
    }
    Ok(all)
}

/// The failure of a listing after this many pages.
fn incomplete(pages: usize, error: CloudError) -> CloudError {
    if pages == 0 {
        return error;
    }
    CloudError { message: format!("after {pages} complete pages: {}", error.message).into(), ..error }
}

fn too_many_pages(most: usize) -> CloudError {
    unavailable(format!("the listing has more than {most} pages"))
}
