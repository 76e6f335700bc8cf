//! Records listings of the API server, and replays them.
//!
//! Both sides are a [`Client`], so that a report on files and a live one use the same readers. [`record`] keeps the
//! responses; [`replay`] serves them, or the output of `kubectl get -o json`. Nothing that could be a secret is kept.

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The annotation of `kubectl apply`, with the whole manifest.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Reason of the Status that answers for a kind that was not saved.
pub(crate) const NOT_SAVED: &str = "NotSaved";

type Answer = Result<Response<Body>, Box<dyn std::error::Error + Send + Sync>>;

/// Objects by the plural of their kind, each as `kubectl get -o json` shows it.
pub type Objects = BTreeMap<String, Vec<Value>>;

/// The objects listed through a client of [`record`].
#[derive(Debug, Clone, Default)]
pub struct Recording(Arc<Mutex<Recorded>>);

#[derive(Debug, Default)]
struct Recorded {
    objects: Objects,
    not_served: BTreeSet<String>,
}

impl Recording {
    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All objects so far.
    #[must_use]
    pub fn objects(&self) -> Objects {
        self.recorded().objects.clone()
    }

    /// Plurals of kinds that the server does not serve.
    #[must_use]
    pub fn not_served(&self) -> BTreeSet<String> {
        self.recorded().not_served.clone()
    }

    fn keep(&self, plural: &str, status: u16, body: &[u8], first: bool) {
        if status == 404 {
            self.recorded().not_served.insert(plural.to_owned());
        }
        let Some(Value::Object(list)) = serde_json::from_slice(body).ok().filter(|_| status == 200) else { return };
        let items = typed_items(list);
        let mut recorded = self.recorded();
        let objects = recorded.objects.entry(plural.to_owned()).or_default();
        // A list that starts again replaces the one before.
        if first {
            objects.clear();
        }
        objects.extend(items.filter_map(|item| reduced(plural, item)));
    }
}

/// A client that forwards to another one, and the recording.
#[must_use]
pub fn record(client: Client) -> (Client, Recording) {
    let recording = Recording::default();
    let recorded = recording.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, recorded) = (client.clone(), recorded.clone());
        async move { forward(&client, &recorded, request).await }
    });
    (Client::new(service, "default"), recording)
}

async fn forward(client: &Client, recording: &Recording, request: Request<Body>) -> Answer {
    let plural = (request.method() == Method::GET).then(|| plural(request.uri().path())).flatten();
    let query = request.uri().query().unwrap_or_default();
    // A list of a part, and the next page of one.
    let (of_part, goes_on) = (query.contains("Selector="), query.contains("continue="));
    let response = client.send(request).await?;
    let Some(plural) = plural.filter(|_| !of_part) else { return Ok(response) };
    let (parts, body) = response.into_parts();
    let body = body.collect_bytes().await?;
    recording.keep(&plural, parts.status.as_u16(), &body, !goes_on);
    Ok(Response::from_parts(parts, Body::from(body)))
}

/// The plural of the kind that a path lists in the whole cluster.
fn plural(path: &str) -> Option<String> {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    match segments[..] {
        ["api", _, plural] | ["apis", _, _, plural] => Some(plural.to_owned()),
        _ => None,
    }
}

/// The plural of the kind that a path lists in one namespace.
fn plural_in_namespace(path: &str) -> Option<String> {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    match segments[..] {
        ["api", _, "namespaces", _, plural] | ["apis", _, _, "namespaces", _, plural] => Some(plural.to_owned()),
        _ => None,
    }
}

/// The objects of a list, each with its kind, which the server sends once.
fn typed_items(mut list: Map<String, Value>) -> impl Iterator<Item = Value> {
    let version = list.get("apiVersion").cloned();
    let kind = list.get("kind").and_then(Value::as_str).and_then(|kind| kind.strip_suffix("List"));
    let kind = kind.filter(|kind| !kind.is_empty()).map(Value::from);
    let items = match list.remove("items") {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    items.into_iter().map(move |mut item| {
        if let Some(object) = item.as_object_mut() {
            for (key, value) in [("apiVersion", &version), ("kind", &kind)] {
                if let Some(value) = value {
                    object.entry(key).or_insert_with(|| value.clone());
                }
            }
        }
        item
    })
}

/// An object without unused fields. Of a pod only its inline disks are kept; a pod without one is omitted.
fn reduced(plural: &str, mut object: Value) -> Option<Value> {
    if plural == "pods" {
        return pod(&object);
    }
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.remove("managedFields");
        if let Some(annotations) = meta.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
        }
    }
    if plural == "nodes"
        && let Some(status) = object.get_mut("status").and_then(Value::as_object_mut)
    {
        status.remove("images");
    }
    Some(object)
}

fn pod(object: &Value) -> Option<Value> {
    let volumes = object.pointer("/spec/volumes").and_then(Value::as_array)?;
    let of_disk = |volume: &Value| {
        let disk = volume.get("azureDisk")?;
        Some(json!({ "name": volume["name"], "azureDisk": disk }))
    };
    let volumes: Vec<Value> = volumes.iter().filter_map(of_disk).collect();
    if volumes.is_empty() {
        return None;
    }
    let meta = &object["metadata"];
    Some(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": meta["name"], "namespace": meta["namespace"] },
        "spec": { "containers": [], "volumes": volumes },
    }))
}

/// A client that serves these objects, whatever namespace or selector is asked for, and sends nothing. Kinds in `not_served` are 404; for others that are missing,
/// `missing` is the remedy.
pub fn replay(
    objects: Objects,
    not_served: BTreeSet<String>,
    missing: impl Fn(&str) -> String + Send + Sync + 'static,
) -> Client {
    let state = Arc::new((objects, not_served, missing));
    let service = tower::service_fn(move |request: Request<Body>| {
        let state = Arc::clone(&state);
        async move {
            let (objects, not_served, missing) = &*state;
            let path = request.uri().path();
            let plural = plural(path).or_else(|| plural_in_namespace(path)).unwrap_or_default();
            let (code, body) = match objects.get(&plural) {
                Some(items) => (
                    200,
                    json!({ "kind": "List", "apiVersion": "v1",
                    "metadata": { "resourceVersion": "1" }, "items": items }),
                ),
                None if not_served.contains(&plural) => (404, refusal(404, "the server does not serve this kind")),
                None => (400, refusal(400, &missing(&plural))),
            };
            answer(code, &body)
        }
    });
    Client::new(service, "default")
}

fn refusal(code: u16, message: &str) -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": NOT_SAVED, "code": code,
        "message": message })
}

fn answer(code: u16, body: &Value) -> Answer {
    Ok(Response::builder().status(code).body(Body::from(serde_json::to_vec(body)?))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, Real};
    use crate::list::list_for_inventory;

    const DISK: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d";

    #[tokio::test]
    async fn a_recording_lists_the_same_and_holds_only_the_disks_of_pods() {
        let (nodes, pods) = ("/api/v1/nodes", "/api/v1/pods");
        let others = [
            "/apis/karpenter.sh/v1/nodeclaims",
            "/api/v1/persistentvolumes",
            "/apis/storage.k8s.io/v1/volumeattachments",
        ];
        let fake = Fake::serving(&[&[nodes, pods][..], &others].concat());
        for n in 0..7 {
            let annotations = json!({ LAST_APPLIED: "s3cret" });
            fake.put(
                nodes,
                json!({ "metadata": { "name": format!("n{n}"), "uid": format!("n{n}"), "annotations": annotations },
                "spec": {}, "status": { "images": [{ "names": ["a"] }] } }),
            );
        }
        let disk = json!({ "name": "v", "azureDisk": { "diskName": "d", "diskURI": DISK } });
        let containers = json!([{ "name": "a", "env": [{ "name": "A", "value": "s3cret" }] }]);
        fake.put(
            pods,
            json!({ "metadata": { "name": "with" }, "spec": { "containers": containers, "volumes": [disk] } }),
        );
        fake.put(pods, json!({ "metadata": { "name": "without" }, "spec": { "containers": containers } }));

        let (client, recording) = record(fake.client());
        let live = list_for_inventory(&client, &Real).await;
        // Repeated, as after a failed attempt: everything is recorded once.
        list_for_inventory(&client, &Real).await;
        let (objects, not_served) = (recording.objects(), recording.not_served());
        assert_eq!((objects["nodes"].len(), objects["pods"].len(), objects["nodeclaims"].len()), (7, 1, 0));
        assert!(!format!("{objects:?}").contains("s3cret"), "{objects:?}");
        assert_eq!(not_served, BTreeSet::from(["volumesnapshotcontents".to_owned()]));
        let again = list_for_inventory(&replay(objects, not_served, str::to_owned), &Real).await;
        assert_eq!(again, live);
        assert_eq!(again.disk_uses.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_missing_file_fails_its_listing_with_the_remedy() {
        let objects = Objects::from([("nodes".to_owned(), Vec::new())]);
        let client = replay(objects, BTreeSet::new(), |kind| format!("make {kind}.json"));
        let listing = list_for_inventory(&client, &Real).await;
        assert!(listing.nodes.is_ok());
        assert_eq!(listing.claims.unwrap_err().to_string(), "listing nodeclaims: make nodeclaims.json");
        assert!(listing.disk_uses.is_err(), "nobody knows whether snapshots are served");
    }
}
