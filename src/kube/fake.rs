//! API servers for tests: a small one that lists, watches and writes, and one that answers from a list.

use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use napkeeper_core::engine::clock::Clock;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// How long a watch lasts without an event.
const WATCH: Duration = Duration::from_millis(200);
/// Objects in a page, whatever limit the client requests.
const PAGE: usize = 3;

/// How requests for a collection fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// With this status.
    Status(u16),
    /// There is no answer.
    Unreachable,
    /// Pages after the first fail.
    SecondPage,
}

/// The server. Clones are the same server.
#[derive(Clone, Default)]
pub(crate) struct Fake(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    version: u64,
    /// Objects by collection and name.
    objects: BTreeMap<String, BTreeMap<String, Value>>,
    log: Vec<(u64, String, Value)>,
    /// Versions before this one are too old to watch from.
    oldest: u64,
    faults: BTreeMap<String, Fault>,
    requests: Vec<String>,
}

/// Real time.
#[derive(Debug)]
pub(crate) struct Real;

impl Clock for Real {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn shifted(&self, real: Timestamp) -> Timestamp {
        real
    }
}

/// The requests: method and path, and the body.
pub(crate) type SentRequests = Arc<Mutex<Vec<(String, Value)>>>;

/// A client whose requests get these answers, one after the other.
pub(crate) fn scripted(answers: impl IntoIterator<Item = (u16, Value)>) -> (Client, SentRequests) {
    let requests = SentRequests::default();
    let log = Arc::clone(&requests);
    let answers: Vec<_> = answers.into_iter().collect();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (log, answers) = (Arc::clone(&log), answers.clone());
        async move {
            let line = format!("{} {}", request.method(), request.uri().path());
            let bytes = request.into_body().collect_bytes().await?;
            let body = serde_json::from_slice(&bytes).unwrap_or_default();
            let mut log = log.lock().unwrap();
            let (code, object) = answers.get(log.len()).cloned().expect("no more requests");
            log.push((line, body));
            answer(code, serde_json::to_vec(&object)?)
        }
    });
    (Client::new(service, "default"), requests)
}

type Answer = Result<http::Response<Body>, Box<dyn std::error::Error + Send + Sync>>;

fn answer(status: u16, body: Vec<u8>) -> Answer {
    Ok(http::Response::builder().status(status).body(Body::from(body))?)
}

/// A `Status` that refuses.
pub(crate) fn refusal(code: u16, details: Value) -> Value {
    let reason = match code {
        404 => "NotFound",
        410 => "Expired",
        _ => "Other",
    };
    json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": format!("code {code}"),
        "reason": reason, "details": details })
}

impl Fake {
    /// A server that serves these collections.
    pub(crate) fn serving(collections: &[&str]) -> Self {
        let fake = Self::default();
        fake.state().objects = collections.iter().map(|c| ((*c).to_owned(), BTreeMap::new())).collect();
        fake
    }

    pub(crate) fn client(&self) -> Client {
        let fake = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let fake = fake.clone();
            async move { fake.answer(request).await }
        });
        Client::new(service, "default")
    }

    /// Creates or replaces an object.
    pub(crate) fn put(&self, collection: &str, mut object: Value) {
        let mut state = self.state();
        state.version += 1;
        let version = state.version;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let old = state.objects.entry(collection.to_owned()).or_default().insert(name, object.clone());
        let kind = if old.is_some() { "MODIFIED" } else { "ADDED" };
        state.log.push((version, collection.to_owned(), json!({ "type": kind, "object": object })));
    }

    pub(crate) fn delete(&self, collection: &str, name: &str) {
        let mut state = self.state();
        state.version += 1;
        let version = state.version;
        let mut object = state.objects.get_mut(collection).unwrap().remove(name).unwrap();
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        state.log.push((version, collection.to_owned(), json!({ "type": "DELETED", "object": object })));
    }

    /// Forgets its history: watches get 410 and must list again.
    pub(crate) fn compact(&self) {
        let mut state = self.state();
        state.version += 1;
        state.oldest = state.version;
        state.log.clear();
    }

    /// Versions are greater by this much from now on.
    pub(crate) fn skip_versions(&self, count: u64) {
        self.state().version += count;
    }

    /// etcd is restored at this version; a collection is older, or empty.
    pub(crate) fn restore(&self, collection: &str, version: u64, is_empty: bool) {
        let mut state = self.state();
        state.version = version;
        let objects = state.objects.get_mut(collection).unwrap();
        if is_empty {
            objects.clear();
        }
        objects.values_mut().for_each(|object| object["metadata"]["resourceVersion"] = json!(version.to_string()));
    }

    pub(crate) fn fail(&self, collection: &str, fault: Option<Fault>) {
        let mut state = self.state();
        match fault {
            Some(fault) => state.faults.insert(collection.to_owned(), fault),
            None => state.faults.remove(collection),
        };
    }

    /// Paths and queries of all requests so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.state().requests.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    async fn answer(&self, request: http::Request<Body>) -> Answer {
        if request.method() != http::Method::GET {
            return self.write(request).await;
        }
        let uri = request.uri();
        let path = uri.path().to_owned();
        let query: BTreeMap<String, String> = uri.query().into_iter().flat_map(|q| q.split('&')).map(pair).collect();
        self.state().requests.push(uri.to_string());
        if query.get("watch").is_some_and(|w| w == "true") {
            return self.watch(&path, query["resourceVersion"].parse()?).await;
        }
        let state = self.state();
        let collection = if state.objects.contains_key(&path) { &path } else { path.rsplit_once('/').unwrap().0 };
        if let Some(failure) = state.failure(collection, query.contains_key("continue")) {
            return failure;
        }
        let Some(objects) = state.objects.get(collection) else {
            return answer(404, refusal(404, json!({})).to_string().into_bytes());
        };
        if *collection == path {
            return answer(200, state.page(objects, query.get("continue")).to_string().into_bytes());
        }
        let name = &path[collection.len() + 1..];
        match objects.get(name) {
            Some(object) => answer(200, object.to_string().into_bytes()),
            None => answer(404, refusal(404, json!({ "name": name })).to_string().into_bytes()),
        }
    }

    /// Creates an object, or replaces one of the same resourceVersion.
    async fn write(&self, request: http::Request<Body>) -> Answer {
        let (parts, body) = request.into_parts();
        let object: Value = serde_json::from_slice(&body.collect_bytes().await?)?;
        let name = object["metadata"]["name"].as_str().unwrap();
        let path = parts.uri.path();
        let collection = if parts.method == http::Method::POST { path } else { path.rsplit_once('/').unwrap().0 };
        let existing = {
            let state = self.state();
            if let Some(failure) = state.failure(collection, false) {
                return failure;
            }
            state.objects.get(collection).and_then(|objects| objects.get(name)).cloned()
        };
        let version = existing.as_ref().map_or(&Value::Null, |existing| &existing["metadata"]["resourceVersion"]);
        if *version != object["metadata"]["resourceVersion"] {
            return answer(409, refusal(409, json!({})).to_string().into_bytes());
        }
        self.put(collection, object.clone());
        let written = self.state().objects[collection][name].clone();
        answer(200, written.to_string().into_bytes())
    }

    async fn watch(&self, path: &str, from: u64) -> Answer {
        let end = tokio::time::Instant::now() + WATCH;
        loop {
            {
                let state = self.state();
                if let Some(failure) = state.failure(path, false) {
                    return failure;
                }
                if from < state.oldest {
                    let event = json!({ "type": "ERROR", "object": refusal(410, json!({})) });
                    return answer(200, format!("{event}\n").into_bytes());
                }
                let events = state.log.iter().filter(|(version, p, _)| *version > from && p == path);
                let text: String = events.map(|(_, _, event)| format!("{event}\n")).collect();
                if !text.is_empty() || tokio::time::Instant::now() >= end {
                    return answer(200, text.into_bytes());
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl State {
    fn failure(&self, collection: &str, later_page: bool) -> Option<Answer> {
        match self.faults.get(collection)? {
            Fault::Status(code) => Some(answer(*code, refusal(*code, json!({})).to_string().into_bytes())),
            Fault::Unreachable => Some(Err("connection refused".into())),
            Fault::SecondPage => later_page.then(|| answer(500, refusal(500, json!({})).to_string().into_bytes())),
        }
    }

    /// A page after the name that the token has; the token also has the version of the first page.
    fn page(&self, objects: &BTreeMap<String, Value>, token: Option<&String>) -> Value {
        let (version, after) = match token {
            Some(token) => token.split_once(':').unwrap(),
            None => ("", ""),
        };
        let version = if version.is_empty() { self.version.to_string() } else { version.to_owned() };
        let rest: Vec<_> = objects.iter().filter(|(name, _)| name.as_str() > after).collect();
        let page: Vec<_> = rest.iter().take(PAGE).map(|(_, object)| object).collect();
        let last = rest.get(PAGE - 1).filter(|_| rest.len() > PAGE);
        let token = last.map_or_else(String::new, |(name, _)| format!("{version}:{name}"));
        json!({ "kind": "List", "apiVersion": "v1", "metadata": { "resourceVersion": version, "continue": token },
            "items": page })
    }
}

fn pair(text: &str) -> (String, String) {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    (key.to_owned(), value.replace("%3A", ":"))
}
