//! The public price list.

use crate::arm::responses::ok;
use crate::arm::route::Query;
use crate::arm::{Request, Response};
use crate::cloud::Cloud;
use napkeeper_core::catalog::{CapacityType, OfferingKey};
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::names::VmSize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The path of the price list, which really is on a separate host.
pub const PRICES: &str = "/api/retail/prices";
/// Items on a page of the price list, as there.
const PRICES_ON_PAGE: usize = 100;
/// What Windows costs more per vCPU and hour, in nano-USD.
const WINDOWS: i64 = 46_000_000;

/// The public price list, which needs no token; `None` for another path.
pub(in crate::arm) fn prices(cloud: &Cloud, request: &Request<'_>) -> Option<Response> {
    let (path, query) = request.path_and_query.split_once('?').unwrap_or((request.path_and_query, ""));
    (path == PRICES && request.method == "GET").then(|| {
        let query = Query::parse(query);
        let filter = query.get("$filter").unwrap_or_default().replace('+', " ");
        let in_region = filter.contains(&format!("armRegionName eq '{}'", cloud.settings().region));
        let meters = if in_region { meters(cloud) } else { Vec::new() };
        let from: usize = query.get("$skip").and_then(|n| n.parse().ok()).unwrap_or(0);
        let region = cloud.settings().region.as_str();
        let page: Vec<Value> = meters.iter().skip(from).take(PRICES_ON_PAGE).map(|meter| meter.item(region)).collect();
        let next = from.saturating_add(PRICES_ON_PAGE);
        let link = (next < meters.len()).then(|| {
            let query: Vec<&str> = request.path_and_query.split_once('?').map_or("", |(_, q)| q).split('&').collect();
            let query = query.into_iter().filter(|pair| !Query::names(pair, "$skip")).collect::<Vec<_>>().join("&");
            format!("{}{PRICES}?{query}&$skip={next}", request.origin)
        });
        ok(json!({
            "BillingCurrency": "USD", "CustomerEntityId": "Default", "CustomerEntityType": "Retail",
            "Count": page.len(), "Items": page, "NextPageLink": link,
        }))
    })
}

/// One price of a size.
struct Meter<'c> {
    size: &'c VmSize,
    product: &'static str,
    /// What follows the size in the name of the SKU.
    suffix: &'static str,
    price: HourlyPrice,
}

/// The meters of every size: the price on Linux, and similar ones that callers must not confuse with it.
fn meters(cloud: &Cloud) -> Vec<Meter<'_>> {
    const PRODUCT: &str = "Virtual Machines Series";
    let settings = cloud.settings();
    let mut prices: BTreeMap<(&VmSize, CapacityType), HourlyPrice> = BTreeMap::new();
    for (OfferingKey { size, capacity_type, .. }, price) in &settings.prices {
        prices.insert((size, *capacity_type), *price);
    }
    let mut meters = Vec::new();
    for ((size, capacity_type), price) in prices {
        let vcpus = settings.sizes.get(size).map_or(0, |facts| i64::from(facts.vcpus));
        let windows = price + HourlyPrice::from_nanos(WINDOWS) * vcpus;
        let half = HourlyPrice::from_nanos(price.nanos() / 2);
        let suffix = if capacity_type == CapacityType::Spot { " Spot" } else { "" };
        let mut add = |product, suffix, price| meters.push(Meter { size, product, suffix, price });
        add("Virtual Machines Series Windows", suffix, windows);
        add(PRODUCT, suffix, price);
        if capacity_type == CapacityType::OnDemand {
            add(PRODUCT, " Low Priority", half);
            add("Series Cloud Services", suffix, windows);
            add(PRODUCT, suffix, HourlyPrice::ZERO);
        }
    }
    meters
}

impl Meter<'_> {
    /// The item of the list.
    #[expect(clippy::cast_precision_loss, reason = "prices are far below 2^53 nano-USD")]
    fn item(&self, region: &str) -> Value {
        let Self { size, product, suffix, price } = self;
        let name = size.as_str().split_once('_').map_or(size.as_str(), |(_, rest)| rest).replace('_', " ");
        let sku = format!("{name}{suffix}");
        let usd = price.nanos() as f64 / 1e9;
        json!({
            "currencyCode": "USD", "tierMinimumUnits": 0.0, "retailPrice": usd, "unitPrice": usd,
            "armRegionName": region, "effectiveStartDate": "2023-01-01T00:00:00Z",
            "meterId": format!("{product}/{sku}"), "meterName": sku, "productName": product, "skuName": sku,
            "serviceName": "Virtual Machines", "serviceFamily": "Compute", "unitOfMeasure": "1 Hour",
            "type": "Consumption", "isPrimaryMeterRegion": true, "armSkuName": size.as_str(),
        })
    }
}
