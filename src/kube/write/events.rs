//! Publishes Kubernetes Events.
//!
//! Publishing does not block: events that do not fit into the queue are counted and dropped, and repetitions within
//! some minutes are only counted.

use crate::error::{ApiRequest, call};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use napkeeper_core::model::errors::ClusterError;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Most queued events.
const QUEUE_LENGTH: usize = 256;
/// Most events that are remembered for repetitions.
const MAX_REMEMBERED: usize = 2048;
/// The same event within this time is only counted.
const REPEAT_WINDOW: SignedDuration = SignedDuration::from_mins(5);
/// The API server deletes events after about an hour: a later repetition is a new event.
const EVENT_TTL: SignedDuration = SignedDuration::from_mins(50);
/// Longest reason and note that an event may have, in bytes.
const MAX_REASON: usize = 128;
const MAX_NOTE: usize = 1024;
/// Who reports.
pub(crate) const CONTROLLER: &str = "napkeeper.io/controller";

/// The object of an event.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Regarding {
    /// Kind, with its API version, for example `karpenter.sh/v1` and `NodeClaim`.
    pub kind: (&'static str, &'static str),
    /// Namespace; none for an object of the whole cluster.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// UID; none for one that is not known.
    pub uid: Option<String>,
}

/// Publishes events. Cheap to clone; the task that writes them ends when the last one is dropped.
#[derive(Debug, Clone)]
pub struct Events {
    queue: mpsc::Sender<NewEvent>,
    dropped: Arc<AtomicU64>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct NewEvent {
    regarding: Regarding,
    reason: String,
    message: String,
    warning: bool,
}

impl Events {
    /// Starts the task that writes events; `instance` is this process, for example its pod.
    #[must_use]
    pub fn start(client: Client, instance: &str) -> (Self, JoinHandle<()>) {
        let (queue, mut events) = mpsc::channel(QUEUE_LENGTH);
        let mut writer = EventWriter { client, instance: truncated(instance, MAX_REASON), known: BTreeMap::new() };
        let task = tokio::spawn(async move {
            while let Some(event) = events.recv().await {
                writer.write(event, Timestamp::now()).await;
            }
        });
        (Self { queue, dropped: Arc::default() }, task)
    }

    /// Publishes an event. The reason is a word in CamelCase; a warning may need action.
    pub fn publish(&self, regarding: Regarding, reason: &str, message: &str, warning: bool) {
        let (reason, message) = (truncated(reason, MAX_REASON), truncated(message, MAX_NOTE));
        if self.queue.try_send(NewEvent { regarding, reason, message, warning }).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many events were dropped because too many waited.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// A written event.
#[derive(Debug, Clone, PartialEq, Eq)]
struct WrittenEvent {
    name: String,
    count: i32,
    written: Timestamp,
}

struct EventWriter {
    client: Client,
    instance: String,
    known: BTreeMap<NewEvent, WrittenEvent>,
}

impl EventWriter {
    async fn write(&mut self, news: NewEvent, now: Timestamp) {
        self.known.retain(|_, known| now.duration_since(known.written) < EVENT_TTL);
        if let Some(known) = self.known.get_mut(&news) {
            known.count = known.count.saturating_add(1);
            if now.duration_since(known.written) < REPEAT_WINDOW {
                return;
            }
            known.written = now;
            let known = known.clone();
            if self.repeat(&news, &known, now).await != Err(ClusterError::NotFound) {
                return;
            }
        }
        self.create(news, now).await;
    }

    async fn repeat(&self, news: &NewEvent, known: &WrittenEvent, now: Timestamp) -> Result<(), ClusterError> {
        let series = EventSeries { count: known.count, last_observed_time: MicroTime(now) };
        let patch = Patch::Merge(json!({ "series": series }));
        let request = ApiRequest { verb: "patch", kind: "Event", name: &known.name };
        call(request, self.api(news).patch(&known.name, &PatchParams::default(), &patch)).await.map(drop)
    }

    async fn create(&mut self, news: NewEvent, now: Timestamp) {
        let event = event(&news, &self.instance, now);
        let name = event.metadata.name.clone().unwrap_or_default();
        let request = ApiRequest { verb: "create", kind: "Event", name: &name };
        let created = call(request, self.api(&news).create(&PostParams::default(), &event)).await;
        if created.is_ok() && (self.known.len() < MAX_REMEMBERED || self.known.contains_key(&news)) {
            self.known.insert(news, WrittenEvent { name, count: 1, written: now });
        }
    }

    fn api(&self, news: &NewEvent) -> Api<Event> {
        Api::namespaced(self.client.clone(), namespace(&news.regarding))
    }
}

/// Events of cluster-scoped objects are in `default`.
fn namespace(regarding: &Regarding) -> &str {
    regarding.namespace.as_deref().unwrap_or("default")
}

fn event(news: &NewEvent, instance: &str, now: Timestamp) -> Event {
    let Regarding { kind: (version, kind), namespace: of, name, uid } = &news.regarding;
    Event {
        action: Some(news.reason.clone()),
        event_time: Some(MicroTime(now)),
        metadata: ObjectMeta {
            name: Some(format!("{}.{:x}", truncated(name, 200), now.as_nanosecond())),
            namespace: Some(namespace(&news.regarding).to_owned()),
            ..ObjectMeta::default()
        },
        note: Some(news.message.clone()),
        reason: Some(news.reason.clone()),
        regarding: Some(ObjectReference {
            api_version: Some((*version).to_owned()),
            kind: Some((*kind).to_owned()),
            name: Some(name.clone()),
            namespace: of.clone(),
            uid: uid.clone(),
            ..ObjectReference::default()
        }),
        reporting_controller: Some(CONTROLLER.to_owned()),
        reporting_instance: Some(instance.to_owned()),
        type_: Some(if news.warning { "Warning" } else { "Normal" }.to_owned()),
        ..Event::default()
    }
}

/// Truncates a text to this many bytes.
fn truncated(text: &str, most: usize) -> String {
    text[..text.floor_char_boundary(most)].to_owned()
}
