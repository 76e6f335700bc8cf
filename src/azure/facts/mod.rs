//! Facts: how is Azure asked for sizes, quotas, images, subnets, capacity reservations, locks and prices?
//!
//! Each is one whole answer or a failure: whatever goes wrong on any page fails the fact, and the last good one stays.
//! What the answers mean is the domain's to say.

mod images;
mod locks;
mod reservations;
mod retail;
mod sizes;
mod subnets;
mod usages;

use crate::azure::Azure;
use crate::pages::List;
use napkeeper_core::model::errors::CloudError;
pub use retail::{PRICES_ENDPOINT, RetailPrices};
use serde::de::DeserializeOwned;
pub use sizes::sku_rows;

/// Most pages of one fact. More means that the links run in circles.
const MOST_PAGES: usize = 200;

impl Azure {
    /// All pages of a listing below a path, at an API version, with further parameters.
    async fn whole_list<T: DeserializeOwned>(
        &self,
        path: &str,
        version: &str,
        parameters: &[(&str, &str)],
    ) -> Result<Vec<T>, CloudError> {
        let most = MOST_PAGES;
        self.pages(List { path, version: Some(version), parameters, most }).await
    }
}
