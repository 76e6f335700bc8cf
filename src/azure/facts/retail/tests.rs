use super::*;
use crate::transport::TransportError;
use serde_json::{Value, json};
use std::sync::Mutex;

/// Answers from a list of pages; records the requests.
#[derive(Debug)]
struct Pages {
    pages: Mutex<Vec<(u16, Value)>>,
    requests: Mutex<Vec<HttpRequest>>,
}

#[async_trait::async_trait]
impl Transport for Pages {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, TransportError> {
        self.requests.lock().unwrap().push(request);
        let (status, body) = self.pages.lock().unwrap().remove(0);
        Ok(HttpResponse {
            status,
            headers: vec![("retry-after".to_owned(), "7".to_owned())],
            body: body.to_string().into_bytes(),
        })
    }
}

fn serving(pages: Vec<(u16, Value)>) -> (RetailPrices, Arc<Pages>) {
    let wire = Arc::new(Pages { pages: Mutex::new(pages), requests: Mutex::default() });
    (RetailPrices::new(PRICES_ENDPOINT, wire.clone()).unwrap(), wire)
}

fn item(size: &str, price: f64) -> Value {
    json!({
        "currencyCode": "USD", "tierMinimumUnits": 0.0, "retailPrice": price, "unitPrice": price,
        "armRegionName": "westeurope", "location": "EU West", "effectiveStartDate": "2021-11-01T00:00:00Z",
        "meterId": "m", "meterName": "D4s v5", "productId": "p", "skuId": "s",
        "productName": "Virtual Machines Dsv5 Series", "skuName": "D4s v5", "serviceName": "Virtual Machines",
        "serviceFamily": "Compute", "unitOfMeasure": "1 Hour", "type": "Consumption",
        "isPrimaryMeterRegion": true, "armSkuName": size,
    })
}

fn page(items: &[Value], next: Option<&str>) -> (u16, Value) {
    (200, json!({ "BillingCurrency": "USD", "Items": items, "NextPageLink": next, "Count": items.len() }))
}

async fn meters(client: &RetailPrices) -> Result<Vec<Meter>, CloudError> {
    client.meters(&Region::new("westeurope").unwrap()).await
}

#[tokio::test]
async fn all_pages_are_read_and_no_token_is_sent() {
    let next = "https://prices.azure.com:443/api/retail/prices?$skip=100";
    let mut elsewhere = item("c", 0.3);
    elsewhere["armRegionName"] = json!("northeurope");
    let (client, wire) =
        serving(vec![page(&[item("a", 0.192)], Some(next)), page(&[item("b", 0.023_04), elsewhere], None)]);
    let meters = meters(&client).await.unwrap();
    let prices: Vec<_> = meters.iter().map(|m| (m.size.as_str(), m.price.unwrap().nanos())).collect();
    assert_eq!(prices, [("a", 192_000_000), ("b", 23_040_000)]);
    let requests = wire.requests.lock().unwrap();
    assert!(requests[0].url.contains("armRegionName+eq+%27westeurope%27"), "{}", requests[0].url);
    assert!(
        requests.iter().all(|r| r.headers.iter().all(|(name, _)| name == "accept")),
        "nothing but what is accepted"
    );
}

#[tokio::test]
async fn an_incomplete_list_is_a_failure() {
    let next = Some("https://prices.azure.com/api/retail/prices?$skip=100");
    let whole = || page(&[item("a", 0.192)], next);
    for (last, code, expected) in [
        ((500, json!({})), CloudErrorCode::Unavailable, "HTTP status 500"),
        ((200, json!({ "Items": 1 })), CloudErrorCode::Unavailable, "the price list cannot be read"),
        (
            page(&[], Some("https://elsewhere.example/")),
            CloudErrorCode::Invalid,
            "continues on another host, elsewhere.example",
        ),
    ] {
        let (client, _) = serving(vec![whole(), last]);
        let error = meters(&client).await.unwrap_err();
        assert_eq!(error.code, code);
        assert!(error.message.contains(expected), "{error}");
    }
    let (client, _) = serving(vec![(429, json!({}))]);
    assert_eq!(meters(&client).await.unwrap_err().retry_after, Some(SignedDuration::from_secs(7)));
    let (client, _) = serving((0..=MAX_PAGES).map(|_| whole()).collect());
    assert!(meters(&client).await.unwrap_err().message.contains("more than 200 pages"));
}

#[test]
fn invalid_prices_are_unknown() {
    assert_eq!([nanos(-0.1), nanos(f64::NAN), nanos(1e9)], [None; 3]);
    assert_eq!(nanos(0.1).map(HourlyPrice::nanos), Some(100_000_000));
}
