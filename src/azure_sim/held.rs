//! Held requests: who waits for an answer, and until when?
//!
//! A request is held until it is released, or until its caller goes away: then the server drops its future, and the
//! [`Hold`] with it.

use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// Nobody is held for longer.
const LONGEST: Duration = Duration::from_secs(600);

/// A request that is being held.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Since when.
    pub(crate) since: Timestamp,
    /// `before` it takes effect, or `after`.
    pub(crate) when: &'static str,
    /// Its method.
    pub(crate) method: String,
    /// Its path and query.
    pub(crate) path: String,
}

/// All that are being held.
#[derive(Debug, Default)]
pub(crate) struct Held {
    waiting: Mutex<BTreeMap<u64, (Waiting, oneshot::Sender<()>)>>,
}

/// Takes its request off the list, however its wait ends.
struct Hold<'a> {
    held: &'a Held,
    id: u64,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.held.lock().remove(&self.id);
    }
}

impl Held {
    /// Waits until somebody releases the request.
    pub(crate) async fn hold(self: &Arc<Self>, id: u64, waiting: Waiting) {
        let (sender, receiver) = oneshot::channel();
        self.lock().insert(id, (waiting, sender));
        let _hold = Hold { held: self, id };
        // Released, or held for long enough: either way it goes on.
        drop(tokio::time::timeout(LONGEST, receiver).await);
    }

    /// Lets one go on, or all; how many.
    pub(crate) fn release(&self, id: Option<u64>) -> usize {
        let mut waiting = self.lock();
        let ids: Vec<u64> = waiting.keys().copied().filter(|held| id.is_none_or(|id| id == *held)).collect();
        let released = ids.iter().filter_map(|id| waiting.remove(id));
        released.filter_map(|(_, sender)| sender.send(()).ok()).count()
    }

    /// Who is being held, by the request's number.
    pub(crate) fn show(&self) -> serde_json::Value {
        let show = |(id, (waiting, _)): (&u64, &(Waiting, oneshot::Sender<()>))| {
            let mut shown = serde_json::json!({ "id": id });
            shown["since"] = waiting.since.to_string().into();
            shown["when"] = waiting.when.into();
            shown["method"] = waiting.method.as_str().into();
            shown["path"] = waiting.path.as_str().into();
            shown
        };
        self.lock().iter().map(show).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, (Waiting, oneshot::Sender<()>)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
