//! Records ARM's listings, and replays them as if Azure had just answered.
//!
//! Both sides are a [`Transport`], so that a report on files and a live one use the same readers. A [`Recorder`] keeps
//! pages; [`Replay`] answers from them. Files of the Azure CLI are accepted as well: it writes properties one level up.

use crate::transport::{HttpRequest, HttpResponse, Method, Transport, TransportError};
use async_trait::async_trait;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Fields that may hold a secret. Azure does not return most of them; none of them is kept.
const SECRET: [&str; 7] =
    ["customData", "userData", "adminPassword", "protectedSettings", "secrets", "accessSAS", "keyData"];

/// Fields of ARM beside `properties` in VMs, disks, NICs and similar resources.
const ENVELOPE: [&str; 18] = [
    "id",
    "name",
    "type",
    "kind",
    "location",
    "tags",
    "zones",
    "sku",
    "identity",
    "plan",
    "etag",
    "managedBy",
    "managedByExtended",
    "extendedLocation",
    "systemData",
    "resourceGroup",
    "resources",
    "instanceId",
];

/// Fields that the Azure CLI writes in another case than ARM.
const SPELLED: [(&str, &str); 6] = [
    ("backendIpConfigurations", "backendIPConfigurations"),
    ("diskSizeGb", "diskSizeGB"),
    ("frontendIpConfiguration", "frontendIPConfiguration"),
    ("frontendIpConfigurations", "frontendIPConfigurations"),
    ("lastOwnershipUpdateTime", "LastOwnershipUpdateTime"),
    ("publicIpAddress", "publicIPAddress"),
];

/// Code of the error that answers for a listing that was not saved.
pub(crate) const NOT_SAVED: &str = "NotSaved";

/// Pages by the name of their listing, in order.
pub type Pages = BTreeMap<String, Vec<Value>>;

/// The name of the listing, or of the one object, that a URL reads: `virtualMachines`, `resourceGroup`,
/// `resources.networkInterfaces`. It serves as the name of a file.
#[must_use]
pub fn listing_name(url: &str) -> String {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let path = base.split_once("://").map_or(base, |(_, rest)| rest.split_once('/').map_or("", |(_, path)| path));
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    let is = |at: usize, word: &str| segments.get(at).is_some_and(|s| s.eq_ignore_ascii_case(word));
    let provider = segments.iter().rposition(|s| s.eq_ignore_ascii_case("providers"));
    let name = match provider {
        Some(at) => segments.iter().skip(at + 2).copied().collect::<Vec<_>>().join("."),
        None if segments.len() == 4 && is(2, "resourceGroups") => "resourceGroup".to_owned(),
        None => {
            let of = filtered_type(query).map(|of| format!(".{of}")).unwrap_or_default();
            format!("{}{of}", segments.last().copied().unwrap_or_default())
        }
    };
    let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '_' };
    name.trim_start_matches('.').chars().map(safe).collect()
}

/// The last segment of the resource type in the filter of a listing.
fn filtered_type(query: &str) -> Option<String> {
    let filter = query.split('&').find_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        matches!(key, "$filter" | "%24filter").then_some(value)
    })?;
    let plain = filter.replace("%27", "'").replace("%2F", "/").replace("%2f", "/");
    let of = plain.split('\'').nth(1)?.rsplit('/').next()?.to_owned();
    Some(of)
}

/// A transport that keeps what Azure answers to reads.
pub struct Recorder {
    transport: Arc<dyn Transport>,
    keeps: fn(&str) -> bool,
    recorded: Mutex<Recorded>,
}

#[derive(Default)]
struct Recorded {
    /// By listing, the URL and body of each page. A repeated read replaces the previous one.
    pages: BTreeMap<String, Vec<(String, Value)>>,
    calls: BTreeMap<String, u32>,
}

impl Recorder {
    /// Keeps the pages of listings whose name is wanted.
    #[must_use]
    pub fn new(transport: Arc<dyn Transport>, keeps: fn(&str) -> bool) -> Self {
        Self { transport, keeps, recorded: Mutex::default() }
    }

    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All pages so far, without secrets.
    #[must_use]
    pub fn pages(&self) -> Pages {
        let bodies = |pages: &Vec<(String, Value)>| pages.iter().map(|(_, body)| body.clone()).collect();
        self.recorded().pages.iter().map(|(name, pages)| (name.clone(), bodies(pages))).collect()
    }

    /// How many requests each listing has taken, those that failed included.
    #[must_use]
    pub fn calls(&self) -> BTreeMap<String, u32> {
        self.recorded().calls.clone()
    }

    fn keep(&self, url: String, response: &HttpResponse) {
        let name = listing_name(&url);
        if !(200..300).contains(&response.status) || !(self.keeps)(&name) {
            return;
        }
        let Ok(mut body) = serde_json::from_slice::<Value>(&response.body) else { return };
        scrub(&mut body);
        let mut recorded = self.recorded();
        let pages = recorded.pages.entry(name).or_default();
        // A single object, not a page: a repeated read, by any API version, replaces the previous one.
        if body.get("value").is_none() {
            pages.clear();
        }
        match pages.iter_mut().find(|(known, _)| *known == url) {
            Some((_, page)) => *page = body,
            None => pages.push((url, body)),
        }
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("transport", &self.transport).finish_non_exhaustive()
    }
}

#[async_trait]
impl Transport for Recorder {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, TransportError> {
        let read = (request.method == Method::GET).then(|| request.url.clone());
        if let Some(url) = &read {
            *self.recorded().calls.entry(listing_name(url)).or_default() += 1;
        }
        let response = self.transport.send(request).await?;
        if let Some(url) = read {
            self.keep(url, &response);
        }
        Ok(response)
    }
}

/// Removes potential secrets from a body.
fn scrub(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, _| !SECRET.iter().any(|secret| secret.eq_ignore_ascii_case(key)));
            map.values_mut().for_each(scrub);
        }
        Value::Array(list) => list.iter_mut().for_each(scrub),
        _ => {}
    }
}

/// A transport that answers reads from recorded pages, and sends nothing.
pub struct Replay {
    pages: Pages,
    refused: BTreeSet<String>,
    missing: Box<dyn Fn(&str) -> String + Send + Sync>,
}

impl Replay {
    /// Answers by these pages. `missing` is the remedy for a listing that is not among them.
    pub fn new(pages: Pages, missing: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        Self { pages, refused: BTreeSet::new(), missing: Box::new(missing) }
    }

    /// The same, with listings whose pages are incomplete: `missing` is the remedy for them.
    #[must_use]
    pub fn refusing(self, refused: BTreeSet<String>) -> Self {
        Self { refused, ..self }
    }

    fn answer(&self, name: &str) -> (u16, Value) {
        let refused = self.refused.contains(name);
        let Some(pages) = self.pages.get(name).filter(|_| !refused) else {
            // The creation times of NICs come from the listing of the whole group, and are unknown without it.
            if name.starts_with("resources") && !refused {
                return (200, json!({ "value": [] }));
            }
            return (400, json!({ "error": { "code": NOT_SAVED, "message": (self.missing)(name) } }));
        };
        if let [Value::Object(one)] = &pages[..]
            && !one.contains_key("value")
        {
            return (200, as_arm(Value::Object(one.clone())));
        }
        let items = pages.iter().flat_map(|page| page.get("value").unwrap_or(page).as_array().into_iter().flatten());
        // `az resource list` has nothing below `properties`, and needs nothing.
        let flat = !name.starts_with("resources");
        let item = |item: &Value| if flat { as_arm(item.clone()) } else { without_nulls(item.clone()) };
        (200, json!({ "value": items.map(item).collect::<Vec<_>>() }))
    }
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay").field("listings", &self.pages.keys()).finish_non_exhaustive()
    }
}

#[async_trait]
impl Transport for Replay {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, TransportError> {
        if request.method != Method::GET {
            return Err(TransportError::Url("saved listings are read-only"));
        }
        let (status, body) = self.answer(&listing_name(&request.url));
        Ok(HttpResponse { status, headers: Vec::new(), body: body.to_string().into_bytes() })
    }
}

/// A resource in ARM's form: fields that the Azure CLI writes beside the envelope move to `properties`.
fn as_arm(item: Value) -> Value {
    let Value::Object(map) = without_nulls(item) else { return Value::Null };
    if map.get("properties").is_some_and(Value::is_object) {
        return Value::Object(map);
    }
    let is_envelope = |key: &String| ENVELOPE.contains(&key.as_str());
    let (mut whole, rest): (Map<_, _>, Map<_, _>) = map.into_iter().partition(|(key, _)| is_envelope(key));
    let spelled = |key: String| {
        let known = SPELLED.iter().find(|(cli, _)| *cli == key);
        known.map_or(key, |(_, arm)| (*arm).to_owned())
    };
    let properties: Map<_, _> = rest.into_iter().map(|(key, value)| (spelled(key), parts(value))).collect();
    whole.insert("properties".to_owned(), Value::Object(properties));
    Value::Object(whole)
}

/// Subresources with their own id and name, such as load balancer frontends, are flattened too.
fn parts(value: Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.into_iter().map(parts).collect()),
        Value::Object(map) if map.contains_key("id") && map.contains_key("name") => as_arm(Value::Object(map)),
        other => other,
    }
}

/// The Azure CLI writes a null for each field that is absent, which not every reader takes for absent.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let set = map.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(set.map(|(key, value)| (key, without_nulls(value))).collect())
        }
        Value::Array(list) => Value::Array(list.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: &str = "https://management.azure.com/subscriptions/s/resourceGroups/MC_g";

    #[test]
    fn each_listing_has_its_name() {
        let cluster =
            "https://a/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/c";
        for (url, name) in [
            (GROUP.to_owned(), "resourceGroup"),
            (format!("{GROUP}?api-version=1"), "resourceGroup"),
            (
                format!("{GROUP}/providers/Microsoft.Compute/virtualMachines?api-version=1&$skiptoken=2"),
                "virtualMachines",
            ),
            (
                format!("{GROUP}/resources?%24filter=resourceType%20eq%20%27Microsoft.Network%2FnetworkInterfaces%27"),
                "resources.networkInterfaces",
            ),
            (
                format!("{GROUP}/resources?$filter=resourceType+eq+'Microsoft.Network/networkInterfaces'"),
                "resources.networkInterfaces",
            ),
            (format!("{GROUP}/resources"), "resources"),
            (format!("{cluster}/agentPools/p1/machines"), "managedClusters.c.agentPools.p1.machines"),
            ("https://a/providers/x/../..".to_owned(), ""),
            ("https://a/providers/x/..%2f/a".to_owned(), "_2f.a"),
        ] {
            assert_eq!(listing_name(&url), name, "{url}");
        }
    }

    /// Answers with a page of a listing, each with a secret in it.
    #[derive(Debug)]
    struct Azure;

    #[async_trait]
    impl Transport for Azure {
        async fn send(&self, request: HttpRequest) -> Result<HttpResponse, TransportError> {
            let status = if request.url.contains("broken") { 503 } else { 200 };
            let body =
                json!({ "value": [{ "id": request.url, "properties": { "osProfile": { "customData": "s3cret" } } }] });
            Ok(HttpResponse { status, headers: Vec::new(), body: body.to_string().into_bytes() })
        }
    }

    async fn get(wire: &dyn Transport, url: &str) -> (u16, Value) {
        let request = HttpRequest { method: Method::GET, url: url.to_owned(), headers: Vec::new(), body: Vec::new() };
        let response = wire.send(request).await.unwrap();
        (response.status, serde_json::from_slice(&response.body).unwrap())
    }

    #[tokio::test]
    async fn a_recording_replays_in_one_page_without_secrets() {
        let recorder = Recorder::new(Arc::new(Azure), |_| true);
        let vms = format!("{GROUP}/providers/Microsoft.Compute/virtualMachines");
        for url in [vms.clone(), format!("{vms}?$skiptoken=1"), vms.clone(), format!("{vms}?broken")] {
            get(&recorder, &url).await;
        }
        assert_eq!(recorder.calls(), BTreeMap::from([("virtualMachines".to_owned(), 4)]));
        let pages = recorder.pages();
        assert_eq!(pages["virtualMachines"].len(), 2, "a repeated page counts once, one that failed not at all");
        assert!(!format!("{pages:?}").contains("s3cret"));
        let saved = Replay::new(pages, |name| format!("no {name}"));
        let (status, body) = get(&saved, &vms).await;
        assert_eq!((status, body["value"].as_array().unwrap().len(), body.get("nextLink")), (200, 2, None));
        let (status, body) = get(&saved, &format!("{GROUP}/providers/Microsoft.Compute/disks")).await;
        assert_eq!((status, &body["error"]["message"]), (400, &json!("no disks")));
        let ages = get(&saved, &format!("{GROUP}/resources")).await;
        assert_eq!(ages, (200, json!({ "value": [] })), "an age that nobody saved is unknown");
        let refused = BTreeSet::from(["resources".to_owned(), "virtualMachines".to_owned()]);
        let saved = saved.refusing(refused);
        for url in [vms, format!("{GROUP}/resources")] {
            assert_eq!(get(&saved, &url).await.0, 400, "{url} is there and is not whole");
        }
    }

    #[tokio::test]
    async fn output_of_the_azure_cli_reads_as_responses_of_arm() {
        let disk = json!({ "id": "/d", "name": "d", "zones": null, "managedBy": null, "tags": {"a": "b"}, "diskSizeGb": 8,
            "diskState": "Unattached", "lastOwnershipUpdateTime": "2026-01-01T00:00:00+00:00", "sku": {"name": "Premium_LRS"} });
        let saved = Replay::new(Pages::from([("disks".to_owned(), vec![json!([disk])])]), |_| String::new());
        let (_, body) =
            get(&saved, "https://a/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks").await;
        let properties = json!({ "diskSizeGB": 8, "diskState": "Unattached",
            "LastOwnershipUpdateTime": "2026-01-01T00:00:00+00:00" });
        let whole = json!({ "id": "/d", "name": "d", "tags": {"a": "b"}, "sku": {"name": "Premium_LRS"}, "properties": properties });
        assert_eq!(body["value"], json!([whole]));
    }
}
