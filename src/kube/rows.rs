//! Rows: what is known of a kind that is followed, while its watch comes and goes?

use crate::raw::{self, RawObject};
use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::SignedDuration;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A watch that fails says so this often at the most.
const COMPLAIN_EVERY: SignedDuration = SignedDuration::from_mins(10);

/// What a watch says: a row of the whole list begun anew, its end, a row, or the end of a row.
pub(crate) enum News<V> {
    Begin,
    Listed(Arc<str>, Option<Arc<V>>),
    Whole,
    Put(Arc<str>, Option<Arc<V>>),
    Gone(Arc<str>),
    Failed(String),
}

/// One kind, as it was last known whole.
pub(crate) struct Rows<V> {
    what: &'static str,
    listing: BTreeMap<Arc<str>, Arc<V>>,
    pub(crate) known: BTreeMap<Arc<str>, Arc<V>>,
    complained: Option<std::time::Instant>,
}

impl<V> Rows<V> {
    pub(crate) fn new(what: &'static str) -> Self {
        Self { what, listing: BTreeMap::new(), known: BTreeMap::new(), complained: None }
    }

    /// Takes news in; true when what is known has changed. What was seen last stays while the API server is away.
    pub(crate) fn learn(&mut self, news: News<V>) -> bool {
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
                    tracing::warn!(what = self.what, error, "watch failed: keeping the last known state");
                    self.complained = Some(std::time::Instant::now());
                }
            }
        }
        false
    }
}

/// Watches all objects of a kind, for as long as somebody listens; rows are by namespace and name. One that cannot be
/// read as its kind is as if it were not there.
pub(crate) fn news<K, V>(
    client: &Client,
    read: impl Fn(&K) -> Option<V> + Send + 'static,
) -> BoxStream<'static, News<V>>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
    V: 'static,
{
    let events = watcher(raw::all::<K>(client), watcher::Config::default()).default_backoff();
    let row =
        move |object: RawObject| (Arc::from(object.key()), object.read().ok().and_then(|o| read(&o)).map(Arc::new));
    let news = move |event| match event {
        Ok(Event::Init) => News::Begin,
        Ok(Event::InitApply(object)) => {
            let (name, row) = row(object);
            News::Listed(name, row)
        }
        Ok(Event::InitDone) => News::Whole,
        Ok(Event::Apply(object)) => {
            let (name, row) = row(object);
            News::Put(name, row)
        }
        Ok(Event::Delete(object)) => News::Gone(Arc::from(object.key())),
        Err(error) => News::Failed(watcher::Error::to_string(&error)),
    };
    events.map(news).boxed()
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
        assert_eq!(rows.known.len(), 2, "keeping the last known state");
        assert!(rows.learn(News::Put(name("a"), None)), "it can no longer be understood");
        assert!(rows.learn(News::Gone(name("b"))));
        assert!(!rows.learn(News::Gone(name("b"))));
        assert!(rows.known.is_empty());
    }
}
