//! Prices of VMs, from Azure's public price list.
//!
//! It is on another host and needs no token, so it has a separate client, which never sends a token.

use super::MAX_PAGES;
use crate::arm::error::{invalid, retry_after, unavailable};
use crate::transport::{HttpRequest, HttpResponse, Method, Transport};
use azure_core::Url;
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::catalog::live::Meter;
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::errors::{CloudError, CloudErrorCode};
use napkeeper_core::model::names::Region;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The price list of the public cloud. Other clouds have none.
pub const PRICES_ENDPOINT: &str = "https://prices.azure.com";
/// That of karpenter-provider-azure.
const VERSION: &str = "2023-01-01-preview";
/// Longest wait for one page.
const DEADLINE: Duration = Duration::from_secs(30);
/// Longest that all pages may take.
const LISTING_TIMEOUT: Duration = Duration::from_secs(300);
/// Wait after a 429 without `Retry-After`.
const DEFAULT_RETRY_AFTER: SignedDuration = SignedDuration::from_mins(1);

/// The public price list.
#[derive(Debug)]
pub struct RetailPrices {
    transport: Arc<dyn Transport>,
    endpoint: Url,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Page {
    items: Vec<Item>,
    next_page_link: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Item {
    currency_code: String,
    retail_price: Option<serde_json::Number>,
    arm_region_name: String,
    effective_start_date: String,
    meter_id: String,
    meter_name: String,
    product_name: String,
    sku_name: String,
    unit_of_measure: String,
    #[serde(rename = "type")]
    kind: String,
    is_primary_meter_region: bool,
    arm_sku_name: String,
}

impl RetailPrices {
    /// A client of the price list at an endpoint, for example [`PRICES_ENDPOINT`].
    ///
    /// # Errors
    /// [`CloudError`] where the endpoint is no URL.
    pub fn new(endpoint: &str, transport: Arc<dyn Transport>) -> Result<Self, CloudError> {
        let endpoint =
            endpoint.parse().map_err(|_| invalid(format!("{endpoint:?} is not a valid URL for the price list")))?;
        Ok(Self { transport, endpoint })
    }

    /// The meters of VMs in a region.
    ///
    /// # Errors
    /// [`CloudError`] where any page cannot be read, or all of them take too long.
    pub async fn meters(&self, region: &Region) -> Result<Vec<Meter>, CloudError> {
        let late = || unavailable(format!("the price list was incomplete after {LISTING_TIMEOUT:?}"));
        timeout(LISTING_TIMEOUT, self.pages(region)).await.map_err(|_| late())?
    }

    async fn pages(&self, region: &Region) -> Result<Vec<Meter>, CloudError> {
        let filter = format!(
            "priceType eq 'Consumption' and serviceFamily eq 'Compute' and serviceName eq 'Virtual Machines' \
             and armRegionName eq '{region}'"
        );
        let mut url = self.endpoint.clone();
        url.set_path("/api/retail/prices");
        url.query_pairs_mut()
            .append_pair("api-version", VERSION)
            .append_pair("currencyCode", "USD")
            .append_pair("$filter", &filter);
        let mut meters = Vec::new();
        for _ in 0..MAX_PAGES {
            let page = self.page(&url).await?;
            let in_region = page.items.into_iter().filter(|item| item.arm_region_name == region.as_str());
            meters.extend(in_region.map(Item::meter));
            let Some(next) = page.next_page_link.filter(|next| !next.is_empty()) else { return Ok(meters) };
            url = self.next_page(&next)?;
        }
        Err(invalid(format!("the price list has more than {MAX_PAGES} pages")))
    }

    /// The next page, which is where this one was.
    fn next_page(&self, next: &str) -> Result<Url, CloudError> {
        let url: Url = next.parse().map_err(|_| unavailable("the price list's link to the next page is not a URL"))?;
        // The list names its own host with the port of https written out, which is the same origin.
        if url.origin() == self.endpoint.origin() {
            return Ok(url);
        }
        let host = url.host_str().unwrap_or_default();
        Err(invalid(format!("the price list continues on another host, {host}")))
    }

    async fn page(&self, url: &Url) -> Result<Page, CloudError> {
        let headers = vec![("accept".to_owned(), "application/json".to_owned())];
        let request = HttpRequest { method: Method::GET, url: url.to_string(), headers, body: Vec::new() };
        let sent = timeout(DEADLINE, self.transport.send(request)).await;
        let response = match sent {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(unavailable(format!("the price list: {error}"))),
            Err(_) => return Err(unavailable(format!("the price list: no response within {DEADLINE:?}"))),
        };
        match response.status {
            200 => serde_json::from_slice(&response.body)
                .map_err(|error| unavailable(format!("the price list cannot be read: {error}"))),
            429 => Err(throttled(&response)),
            status => Err(unavailable(format!("the price list: HTTP status {status}"))),
        }
    }
}

fn throttled(response: &HttpResponse) -> CloudError {
    let wait = retry_after(response).filter(|wait| wait.is_positive()).unwrap_or(DEFAULT_RETRY_AFTER);
    let error = CloudError::new(CloudErrorCode::Throttled, "the price list throttled the request");
    CloudError { retry_after: Some(wait), ..error }
}

impl Item {
    fn meter(self) -> Meter {
        Meter {
            price: self.retail_price.as_ref().and_then(serde_json::Number::as_f64).and_then(nanos),
            size: self.arm_sku_name,
            sku: self.sku_name,
            meter: self.meter_name,
            id: self.meter_id,
            product: self.product_name,
            kind: self.kind,
            currency: self.currency_code,
            unit: self.unit_of_measure,
            primary: self.is_primary_meter_region,
            from: self.effective_start_date.parse::<Timestamp>().ok(),
        }
    }
}

/// The list has prices as binary fractions; to a nano-USD they are exact.
#[expect(clippy::cast_possible_truncation, reason = "bounded right before")]
fn nanos(usd: f64) -> Option<HourlyPrice> {
    const HIGHEST: f64 = 1_000_000.0;
    let sane = usd.is_finite() && (0.0..HIGHEST).contains(&usd);
    sane.then(|| HourlyPrice::from_nanos((usd * 1e9).round() as i64))
}

#[cfg(test)]
mod tests;
