//! Holds requests until a test releases them.
//!
//! A request is also released when its caller disconnects: then the server drops its future, and the [`HoldGuard`] with
//! it.

use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// Longest time that a request is held.
const MAX_HOLD: Duration = Duration::from_secs(600);

/// A request that is being held.
#[derive(Debug)]
pub(crate) struct HeldRequest {
    /// Since when.
    pub(crate) since: Timestamp,
    /// `before` it takes effect, or `after`.
    pub(crate) when: &'static str,
    /// Its method.
    pub(crate) method: String,
    /// Its path and query.
    pub(crate) path: String,
}

/// All requests that are being held, by number.
#[derive(Debug, Default)]
pub(crate) struct HeldRequests {
    requests: Mutex<BTreeMap<u64, (HeldRequest, oneshot::Sender<()>)>>,
}

/// Removes its request from the list when it is dropped.
struct HoldGuard<'a> {
    held: &'a HeldRequests,
    id: u64,
}

impl Drop for HoldGuard<'_> {
    fn drop(&mut self) {
        self.held.lock().remove(&self.id);
    }
}

impl HeldRequests {
    /// Waits until the request is released.
    pub(crate) async fn hold(self: &Arc<Self>, id: u64, request: HeldRequest) {
        let (sender, receiver) = oneshot::channel();
        self.lock().insert(id, (request, sender));
        let _guard = HoldGuard { held: self, id };
        // It continues whether it was released or its time is over.
        drop(tokio::time::timeout(MAX_HOLD, receiver).await);
    }

    /// Releases one request, or all; returns how many.
    pub(crate) fn release(&self, id: Option<u64>) -> usize {
        let mut requests = self.lock();
        let ids: Vec<u64> = requests.keys().copied().filter(|held| id.is_none_or(|id| id == *held)).collect();
        let released = ids.iter().filter_map(|id| requests.remove(id));
        released.filter_map(|(_, sender)| sender.send(()).ok()).count()
    }

    /// The held requests, as JSON.
    pub(crate) fn show(&self) -> serde_json::Value {
        let show = |(id, (request, _)): (&u64, &(HeldRequest, oneshot::Sender<()>))| {
            let mut shown = serde_json::json!({ "id": id });
            shown["since"] = request.since.to_string().into();
            shown["when"] = request.when.into();
            shown["method"] = request.method.as_str().into();
            shown["path"] = request.path.as_str().into();
            shown
        };
        self.lock().iter().map(show).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, (HeldRequest, oneshot::Sender<()>)>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
