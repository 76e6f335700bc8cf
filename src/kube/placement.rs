//! PlacementPolicies and Namespaces: how does whoever gives pods their defaults follow them?

use futures::{Stream, StreamExt, stream};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Namespace;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt};
use napkeeper_api::convert::placement_policy;
use napkeeper_api::placement::PlacementPolicy;
use napkeeper_core::placement::{NamespaceFacts, PLACEMENT, Placement, Policy};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::watch;

/// A watch that fails says so this often at the most.
const COMPLAIN_EVERY: SignedDuration = SignedDuration::from_mins(10);

/// What a watch says: a row of the whole list begun anew, its end, a row, or the end of a row.
enum News<V> {
    Begin,
    Listed(Arc<str>, Option<Arc<V>>),
    Whole,
    Put(Arc<str>, Option<Arc<V>>),
    Gone(Arc<str>),
    Failed(String),
}

/// One of the two kinds, as it was last known whole.
struct Rows<V> {
    what: &'static str,
    listing: BTreeMap<Arc<str>, Arc<V>>,
    known: BTreeMap<Arc<str>, Arc<V>>,
    complained: Option<std::time::Instant>,
}

impl<V> Rows<V> {
    fn new(what: &'static str) -> Self {
        Self { what, listing: BTreeMap::new(), known: BTreeMap::new(), complained: None }
    }

    /// Takes news in; true when what is known has changed. What was seen last stays while the API server is away.
    fn learn(&mut self, news: News<V>) -> bool {
        match news {
            News::Begin => self.listing.clear(),
            News::Listed(name, row) => drop(row.map(|row| self.listing.insert(name, row))),
            News::Whole => {
                self.known = std::mem::take(&mut self.listing);
                return true;
            }
            News::Put(name, Some(row)) => {
                self.known.insert(name, row);
                return true;
            }
            // What cannot be understood gives nobody anything.
            News::Put(name, None) | News::Gone(name) => return self.known.remove(&name).is_some(),
            News::Failed(error) => {
                let quiet = COMPLAIN_EVERY.unsigned_abs();
                if self.complained.is_none_or(|at| at.elapsed() > quiet) {
                    tracing::warn!(what = self.what, error, "cannot be watched: what was seen last stays");
                    self.complained = Some(std::time::Instant::now());
                }
            }
        }
        false
    }
}

/// Either of the two.
enum Either {
    Policy(News<Policy>),
    Namespace(News<NamespaceFacts>),
}

/// Follows policies and namespaces for as long as somebody listens. While a kind has not been listed it is as if there
/// were none of it.
pub async fn follow_placement(client: Client, sender: watch::Sender<Arc<Placement>>) {
    let policies: Api<PlacementPolicy> = Api::all(client.clone());
    let namespaces: Api<PartialObjectMeta<Namespace>> = Api::all(client);
    let config = watcher::Config::default;
    let policies = news(watcher::watcher(policies, config()).default_backoff(), understood).map(Either::Policy);
    let namespaces = news(watcher::watcher(namespaces, config()).default_backoff(), |object| Some(facts(object)));
    let mut all = pin!(stream::select(policies, namespaces.map(Either::Namespace)));
    let (mut policies, mut namespaces) = (Rows::new("PlacementPolicies"), Rows::new("Namespaces"));
    while let Some(either) = all.next().await {
        let changed = match either {
            Either::Policy(news) => policies.learn(news),
            Either::Namespace(news) => namespaces.learn(news),
        };
        if sender.is_closed() {
            return;
        }
        if changed {
            let (policies, namespaces) = (policies.known.clone(), namespaces.known.clone());
            sender.send_replace(Arc::new(Placement { policies, namespaces }));
        }
    }
}

fn news<K: ResourceExt, V>(
    events: impl Stream<Item = Result<Event<K>, watcher::Error>>,
    read: impl Fn(&K) -> Option<V>,
) -> impl Stream<Item = News<V>> {
    let row = move |object: &K| (Arc::from(object.name_any()), read(object).map(Arc::new));
    events.map(move |event| match event {
        Ok(Event::Init) => News::Begin,
        Ok(Event::InitApply(object)) => {
            let (name, row) = row(&object);
            News::Listed(name, row)
        }
        Ok(Event::InitDone) => News::Whole,
        Ok(Event::Apply(object)) => {
            let (name, row) = row(&object);
            News::Put(name, row)
        }
        Ok(Event::Delete(object)) => News::Gone(Arc::from(object.name_any())),
        Err(error) => News::Failed(error.to_string()),
    })
}

fn understood(object: &PlacementPolicy) -> Option<Policy> {
    match placement_policy(object) {
        Ok(policy) => Some(policy),
        Err(violations) => {
            let why = violations.0.first().map(|v| format!("{}: {}", v.path, v.message)).unwrap_or_default();
            tracing::warn!(name = object.name_any(), why, "the PlacementPolicy cannot be understood: it gives nothing");
            None
        }
    }
}

fn facts<K: ResourceExt>(object: &K) -> NamespaceFacts {
    let text = |(key, value): (&String, &String)| (Arc::from(key.as_str()), Arc::from(value.as_str()));
    NamespaceFacts {
        labels: object.labels().iter().map(text).collect(),
        asks: object.annotations().get(PLACEMENT).map(|name| Arc::from(name.as_str())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_replaces_what_is_known_when_it_is_whole() {
        let mut rows: Rows<u8> = Rows::new("x");
        let name = |text: &str| Arc::from(text);
        let row = |n| Some(Arc::new(n));
        assert!(!rows.learn(News::Begin));
        assert!(!rows.learn(News::Listed(name("a"), row(1))));
        assert!(!rows.learn(News::Listed(name("broken"), None)));
        assert!(rows.known.is_empty(), "not whole yet");
        assert!(rows.learn(News::Whole));
        assert!(rows.learn(News::Put(name("b"), row(2))));
        assert_eq!(rows.known.len(), 2);
        assert!(!rows.learn(News::Begin));
        assert!(!rows.learn(News::Failed("away".to_owned())));
        assert_eq!(rows.known.len(), 2, "what was seen last stays");
        assert!(rows.learn(News::Put(name("a"), None)), "it can no longer be understood");
        assert!(rows.learn(News::Gone(name("b"))));
        assert!(!rows.learn(News::Gone(name("b"))));
        assert!(rows.known.is_empty());
    }
}
