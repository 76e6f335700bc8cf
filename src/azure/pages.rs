//! Pages: how is a list read whole that the ARM crates do not know?

use crate::azure::{Azure, parsed};
use crate::error::unavailable;
use crate::wire::Method;
use napkeeper_core::model::errors::CloudError;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// A list, by where it begins.
#[derive(Debug)]
pub(crate) struct List<'a> {
    /// Its path below the endpoint.
    pub(crate) path: &'a str,
    /// The API version, where the transport has none for the path.
    pub(crate) version: Option<&'a str>,
    /// Further parameters of the query.
    pub(crate) parameters: &'a [(&'a str, &'a str)],
    /// Most pages. More means that the links run in circles.
    pub(crate) most: usize,
}

/// A page of a list.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page<T> {
    value: Vec<T>,
    next_link: Option<String>,
}

impl Azure {
    /// Everything of a list: whole, or the failure of the page that ended it.
    pub(crate) async fn pages<T: DeserializeOwned>(&self, list: List<'_>) -> Result<Vec<T>, CloudError> {
        let List { path, version, parameters, most } = list;
        let mut url = self.transport.url(path);
        let version = version.map(|version| ("api-version", version));
        if version.is_some() || !parameters.is_empty() {
            url.query_pairs_mut().extend_pairs(version).extend_pairs(parameters);
        }
        let mut items = Vec::new();
        for read in 0..most {
            let answer = self.transport.call(Method::Get, url, None).await;
            let page: Page<T> = answer.and_then(|answer| parsed(&answer)).map_err(|e| partial(read, e))?;
            items.extend(page.value);
            let Some(next) = page.next_link.filter(|next| !next.is_empty()) else { return Ok(items) };
            url = next.parse().map_err(|_| unavailable("the link to the next page is not a URL"))?;
        }
        Err(endless(most))
    }
}

/// The failure of a listing of which so many pages had been read.
pub(crate) fn partial(pages: usize, error: CloudError) -> CloudError {
    if pages == 0 {
        return error;
    }
    CloudError { message: format!("after {pages} complete pages: {}", error.message).into(), ..error }
}

/// The failure of a listing that does not end.
pub(crate) fn endless(most: usize) -> CloudError {
    unavailable(format!("the listing has more than {most} pages"))
}
