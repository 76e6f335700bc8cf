//! Follows objects by separate watches, whose failures affect nothing else.

pub(crate) mod blockers;
pub(crate) mod facts;
pub(crate) mod placement;

use crate::objects::raw_object::{self, RawObject};
use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::SignedDuration;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch;

/// A failing watch is logged this often at most.
const LOG_EVERY: SignedDuration = SignedDuration::from_mins(10);

/// Converted objects by namespace and name.
type Objects<V> = BTreeMap<Arc<str>, Arc<V>>;

/// Converts an object; none where it cannot be decoded or converted.
type Convert<V> = Box<dyn Fn(&RawObject) -> Option<V> + Send>;

/// The objects of a kind, as of its last complete listing and the changes since. They are kept while the API server
/// cannot be reached; before the first listing there are none.
struct Followed<V> {
    /// For the log.
    kind: &'static str,
    events: BoxStream<'static, watcher::Result<Event<RawObject>>>,
    convert: Convert<V>,
    /// The listing in progress.
    listing: Objects<V>,
    objects: Objects<V>,
    logged: Option<Instant>,
}

impl<V> Followed<V> {
    /// All objects of a kind. Those that cannot be decoded or converted are left out.
    fn all<K>(client: &Client, kind: &'static str, convert: impl Fn(&K) -> Option<V> + Send + 'static) -> Self
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        Self::of(raw_object::all::<K>(client), watcher::Config::default(), kind, convert)
    }

    fn of<K: DeserializeOwned>(
        api: Api<RawObject>,
        config: watcher::Config,
        kind: &'static str,
        convert: impl Fn(&K) -> Option<V> + Send + 'static,
    ) -> Self {
        let events = watcher(api, config).default_backoff().boxed();
        let convert = Box::new(move |object: &RawObject| convert(&object.read().ok()?));
        Self { kind, events, convert, listing: BTreeMap::new(), objects: BTreeMap::new(), logged: None }
    }

    /// Waits for the next event; true when it has changed the objects.
    async fn changed(&mut self) -> bool {
        match self.events.next().await {
            Some(event) => self.apply(event),
            // A watcher retries and never ends.
            None => std::future::pending().await,
        }
    }

    fn apply(&mut self, event: watcher::Result<Event<RawObject>>) -> bool {
        match event {
            Ok(Event::Init) => self.listing.clear(),
            Ok(Event::InitApply(object)) => {
                if let Some(value) = (self.convert)(&object) {
                    self.listing.insert(object.key().into(), Arc::new(value));
                }
            }
            Ok(Event::InitDone) => {
                self.objects = std::mem::take(&mut self.listing);
                return true;
            }
            Ok(Event::Apply(object)) => {
                let key = Arc::from(object.key());
                return match (self.convert)(&object) {
                    Some(value) => {
                        self.objects.insert(key, Arc::new(value));
                        true
                    }
                    None => self.objects.remove(&key).is_some(),
                };
            }
            Ok(Event::Delete(object)) => return self.objects.remove(&*object.key()).is_some(),
            Err(error) => self.log(&error),
        }
        false
    }

    fn log(&mut self, error: &watcher::Error) {
        if self.logged.is_none_or(|at| at.elapsed() > LOG_EVERY.unsigned_abs()) {
            tracing::warn!(kind = self.kind, %error, "watch failed: keeping the last known state");
            self.logged = Some(Instant::now());
        }
    }
}

/// Combines two kinds, and sends the result whenever one of them changes, until the receivers are dropped.
async fn follow_both<A, B, T>(
    mut one: Followed<A>,
    mut other: Followed<B>,
    sender: watch::Sender<Arc<T>>,
    combine: impl Fn(&Objects<A>, &Objects<B>) -> T,
) {
    loop {
        let changed = tokio::select! {
            changed = one.changed() => changed,
            changed = other.changed() => changed,
        };
        if sender.is_closed() {
            return;
        }
        if changed {
            sender.send_replace(Arc::new(combine(&one.objects, &other.objects)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    fn object(name: &str, number: Option<u8>) -> RawObject {
        let data = number.map(|n| json!({ "n": n.to_string() }));
        serde_json::from_value(json!({ "metadata": { "name": name }, "data": data })).unwrap()
    }

    #[tokio::test]
    async fn a_listing_replaces_what_is_known_when_it_is_complete() {
        let number = |map: &ConfigMap| map.data.as_ref()?.get("n")?.parse::<u8>().ok();
        let mut followed = Followed::all(&Fake::serving(&[]).client(), "x", number);
        assert!(!followed.apply(Ok(Event::Init)));
        assert!(!followed.apply(Ok(Event::InitApply(object("a", Some(1))))));
        assert!(!followed.apply(Ok(Event::InitApply(object("broken", None)))));
        assert!(followed.objects.is_empty(), "not complete yet");
        assert!(followed.apply(Ok(Event::InitDone)));
        assert!(followed.apply(Ok(Event::Apply(object("b", Some(2))))));
        assert_eq!(followed.objects.values().map(|n| **n).collect::<Vec<_>>(), [1, 2]);
        assert!(!followed.apply(Ok(Event::Init)));
        assert!(!followed.apply(Err(watcher::Error::NoResourceVersion)));
        assert_eq!(followed.objects.len(), 2, "keeping the last known state");
        assert!(followed.apply(Ok(Event::Apply(object("a", None)))), "it can no longer be converted");
        assert!(followed.apply(Ok(Event::Delete(object("b", Some(2))))));
        assert!(!followed.apply(Ok(Event::Delete(object("b", Some(2))))));
        assert!(followed.objects.is_empty());
    }
}
