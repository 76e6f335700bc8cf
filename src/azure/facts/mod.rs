//! Facts: how is Azure asked for sizes, quotas, images, subnets, locks and prices?
//!
//! Each is one whole answer or a failure: whatever goes wrong on any page fails the fact, and the last good one stays.
//! What the answers mean is the domain's to say.

mod images;
mod locks;
mod retail;
mod sizes;
mod subnets;
mod usages;

pub use retail::{PRICES_ENDPOINT, RetailPrices};
pub use sizes::sku_rows;

use crate::azure::{Azure, parsed};
use crate::error::{invalid, unavailable};
use crate::wire::Method;
use napkeeper_core::ports::CloudError;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Most pages of one fact. More means that the links run in circles.
const MOST_PAGES: usize = 200;

/// A page of a listing.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page<T> {
    value: Vec<T>,
    next_link: Option<String>,
}

impl Azure {
    /// All pages of a listing below a path, at an API version, with further parameters.
    async fn whole_list<T: DeserializeOwned>(
        &self,
        path: &str,
        version: &str,
        parameters: &[(&str, &str)],
    ) -> Result<Vec<T>, CloudError> {
        let mut url = self.transport.url(path);
        url.query_pairs_mut().append_pair("api-version", version).extend_pairs(parameters);
        let mut all = Vec::new();
        for _ in 0..MOST_PAGES {
            let page: Page<T> = parsed(&self.transport.call(Method::Get, url, None).await?)?;
            all.extend(page.value);
            let Some(next) = page.next_link.filter(|next| !next.is_empty()) else { return Ok(all) };
            url = next.parse().map_err(|_| unavailable("the link to the next page is no URL"))?;
        }
        Err(invalid(format!("{path}: the listing has more than {MOST_PAGES} pages")))
    }
}
