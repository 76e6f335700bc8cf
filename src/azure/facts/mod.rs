//! Reads Azure facts: sizes, quotas, images, subnets, capacity reservations, locks and prices.
//!
//! Each is complete or a failure: an error on any page fails the fact, and the last good one is kept.

mod images;
mod locks;
mod reservations;
mod retail;
mod sizes;
mod subnets;
mod usages;

use crate::arm::pages::ListRequest;
use crate::client::Azure;
use napkeeper_core::model::errors::CloudError;
pub use retail::{PRICES_ENDPOINT, RetailPrices};
use serde::de::DeserializeOwned;

/// Most pages of one fact. More means that its links form a circle.
const MAX_PAGES: usize = 200;

impl Azure {
    /// All pages of a listing below a path, at an API version, with further parameters.
    async fn list_fact<T: DeserializeOwned>(
        &self,
        path: &str,
        version: &str,
        parameters: &[(&str, &str)],
    ) -> Result<Vec<T>, CloudError> {
        self.arm.list(ListRequest { path, version: Some(version), parameters, max_pages: MAX_PAGES }).await
    }
}
