//! Reads the CapacityBuffers of the cluster and writes their status.
//!
//! A task beside the control loop: it sends the chunks over one channel, and receives over another on which nodes
//! capacity is reserved for them. It works while this replica leads.

use jiff::Timestamp;
use kube::{Client, ResourceExt};
use napkeeper_api::convert::Resolved;
use napkeeper_api::types::capacity_buffer::CapacityBuffer;
use napkeeper_core::engine::clock::Clock;
use napkeeper_core::model::cluster::buffer::Buffer;
use napkeeper_core::model::names::{Namespace, ObjectKey, ObjectName};
use napkeeper_core::model::settings::ControllerMode;
use napkeeper_core::provisioning::capacity_buffers::BufferPlacement;
use napkeeper_kube::{LeaseHandle, capacity_buffers, resolve_buffer, update_buffer_status};
use napkeeper_serve::{ComponentError, Lifecycle};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How often all of them are read; Karpenter does so every 30 s, and at once when one changes.
const READ_INTERVAL: Duration = Duration::from_secs(10);
/// Most CapacityBuffers that are read: each needs a request or two.
const MOST_BUFFERS: usize = 200;
/// Most chunks of all of them in total.
const MOST_CHUNKS: usize = 5_000;
/// Most chunks of one namespace: no tenant uses up what others could have, or buys that many nodes.
const MOST_CHUNKS_OF_NAMESPACE: usize = 1_000;

/// All CapacityBuffers that are ready.
pub(super) type Buffers = BTreeMap<ObjectKey, Arc<Buffer>>;
/// The nodes that reserve capacity for their chunks.
pub(super) type BufferPlacements = BTreeMap<ObjectKey, BufferPlacement>;

/// The task that reads CapacityBuffers and writes their status.
pub(super) struct BufferSync {
    client: Client,
    clock: Arc<dyn Clock>,
    lease: LeaseHandle,
    buffers: watch::Sender<Option<Arc<Buffers>>>,
    placements: watch::Receiver<Arc<BufferPlacements>>,
}

/// The control loop's ends of the channels.
pub(super) type BufferChannels = (watch::Receiver<Option<Arc<Buffers>>>, watch::Sender<Arc<BufferPlacements>>);

impl BufferSync {
    /// The task, and the control loop's ends of its channels.
    pub(super) fn new(client: Client, clock: Arc<dyn Clock>, lease: LeaseHandle) -> (Self, BufferChannels) {
        let (buffers, buffers_now) = watch::channel(None);
        let (placements, placements_now) = watch::channel(Arc::default());
        (Self { client, clock, lease, buffers, placements: placements_now }, (buffers_now, placements))
    }

    /// Runs until the process drains. In companion mode buffers are Karpenter's: then it only waits.
    pub(super) async fn run(mut self, mode: ControllerMode, lifecycle: Lifecycle) -> Result<(), ComponentError> {
        if mode == ControllerMode::Companion {
            lifecycle.draining().await;
            return Ok(());
        }
        tokio::select! {
            () = lifecycle.draining() => {}
            () = self.sync_while_leading() => {}
        }
        Ok(())
    }

    async fn sync_while_leading(&mut self) {
        let mut leading = self.lease.leads();
        let mut last_failure = None;
        // Ends with the handle of the Lease, when there is nothing left to lead.
        while leading.wait_for(|leads| *leads).await.is_ok() {
            while *leading.borrow() {
                let failed = self.sync().await.err();
                if let Some(reason) = failed.as_ref().filter(|reason| last_failure.as_ref() != Some(*reason)) {
                    tracing::warn!(
                        why = reason,
                        "reading CapacityBuffers failed: keeping the last known ones; no consolidation before the \
                         first successful read"
                    );
                }
                last_failure = failed;
                // A replica may stop leading for a moment.
                if tokio::time::timeout(READ_INTERVAL, leading.changed()).await.is_ok() {
                    break;
                }
            }
            // While another replica leads they may change: what we know will be outdated.
            self.buffers.send_replace(None);
        }
    }

    /// Reads all of them once, and writes their status.
    async fn sync(&mut self) -> Result<(), String> {
        let found = capacity_buffers(&self.client).await.map_err(|failure| failure.to_string())?;
        let (mut ready, mut all, mut chunks) = (Buffers::new(), Vec::new(), Chunks::default());
        let known = self.buffers.borrow().clone();
        let mut is_complete = true;
        for (n, object) in in_fair_order(found).into_iter().enumerate() {
            let resolved = if n < MOST_BUFFERS { resolve_buffer(&self.client, &object).await } else { Ok(too_many()) };
            match resolved {
                Ok(Resolved::Ready(buffer, _)) if !chunks.admit(&buffer) => all.push((object, too_many())),
                Ok(resolved) => {
                    if let Resolved::Ready(buffer, _) = &resolved {
                        ready.insert(buffer.key.clone(), Arc::new(buffer.clone()));
                    }
                    all.push((object, resolved));
                }
                // The last known state of an unreadable buffer is kept.
                Err(error) => {
                    is_complete = false;
                    ready.extend(known.as_ref().and_then(|known| find(known, &object)));
                    let message =
                        format!("cannot read the object it refers to: {error}; check the controller's permissions");
                    all.push((object, Resolved::failed(message)));
                }
            }
        }
        if known.is_some() || is_complete {
            self.send(known.as_deref(), ready);
        }
        let now = whole_seconds(self.clock.now());
        let placements = Arc::clone(&self.placements.borrow());
        for (object, resolved) in &all {
            if !self.lease.allows_writes() {
                break;
            }
            let placement = match resolved {
                Resolved::Ready(buffer, _) => placements.get(&buffer.key),
                Resolved::NotReady(..) => None,
            };
            // A failed write is logged by the adapter, and repeated with the next read.
            let _ = update_buffer_status(&self.client, object, resolved, placement, now).await;
        }
        if is_complete { Ok(()) } else { Err("some CapacityBuffers could not be resolved".to_owned()) }
    }

    /// Sends the buffers to the control loop, if they have changed.
    fn send(&self, known: Option<&Buffers>, now: Buffers) {
        if known != Some(&now) {
            self.buffers.send_replace(Some(Arc::new(now)));
        }
    }
}

fn too_many() -> Resolved {
    let message = format!(
        "at most {MOST_BUFFERS} CapacityBuffers with {MOST_CHUNKS} chunks in total, {MOST_CHUNKS_OF_NAMESPACE} of them \
         in one namespace, are supported"
    );
    Resolved::failed(message)
}

/// Chunks that are in use.
#[derive(Debug, Default)]
struct Chunks {
    total: usize,
    by_namespace: BTreeMap<Namespace, usize>,
}

impl Chunks {
    /// Counts the chunks of a buffer; `false` if they are too many.
    fn admit(&mut self, buffer: &Buffer) -> bool {
        let of_namespace = self.by_namespace.entry(buffer.key.namespace.clone()).or_default();
        let (total, own) = (self.total + buffer.pods.len(), *of_namespace + buffer.pods.len());
        let fits = total <= MOST_CHUNKS && own <= MOST_CHUNKS_OF_NAMESPACE;
        if fits {
            (self.total, *of_namespace) = (total, own);
        }
        fits
    }
}

/// One buffer of each namespace, then a second of each, and so on; of a namespace the oldest first. So a namespace with
/// many leaves others theirs.
fn in_fair_order(mut buffers: Vec<CapacityBuffer>) -> Vec<CapacityBuffer> {
    buffers.sort_by_cached_key(|b| (b.creation_timestamp(), b.namespace(), b.name_any()));
    let mut seen: BTreeMap<Option<String>, usize> = BTreeMap::new();
    let mut ranked: Vec<(usize, CapacityBuffer)> = Vec::with_capacity(buffers.len());
    for buffer in buffers {
        let rank = seen.entry(buffer.namespace()).or_default();
        ranked.push((*rank, buffer));
        *rank += 1;
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, buffer)| buffer).collect()
}

/// The last known state of a CapacityBuffer.
fn find(known: &Buffers, object: &CapacityBuffer) -> Option<(ObjectKey, Arc<Buffer>)> {
    let namespace = Namespace::new(object.namespace()?).ok()?;
    let key = ObjectKey { namespace, name: ObjectName::new(object.name_any()).ok()? };
    let buffer = Arc::clone(known.get(&key)?);
    Some((key, buffer))
}

/// Times of conditions have no fractions of a second.
fn whole_seconds(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use napkeeper_api::convert::capacity_buffer;
    use serde_json::{Value, json};

    fn object(namespace: &str, name: &str, second: u32, replicas: i32) -> CapacityBuffer {
        let object: Value = json!({
            "metadata": {
                "namespace": namespace, "name": name, "uid": name,
                "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
            },
            "spec": { "podTemplateRef": { "name": "t" }, "replicas": replicas },
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_namespace_with_many_buffers_leaves_others_theirs() {
        let mut found: Vec<_> = (0..9).map(|n| object("greedy", &format!("g{n}"), n, 1)).collect();
        found.extend([object("modest", "m1", 50, 1), object("modest", "m0", 40, 1), object("other", "o0", 59, 1)]);
        let order: Vec<String> = in_fair_order(found).iter().map(ResourceExt::name_any).collect();
        assert_eq!(order[..6], ["g0", "m0", "o0", "g1", "m1", "g2"]);
        assert_eq!(order.len(), 12);
    }

    #[test]
    fn chunks_are_limited_by_namespace_and_in_total() {
        let buffer = |namespace: &str, replicas: i32| {
            let template = serde_json::from_value(json!({ "spec": { "containers": [{ "name": "a" }] } })).unwrap();
            capacity_buffer(&object(namespace, "b", 0, replicas), (&template, "t"), None).unwrap()
        };
        let mut chunks = Chunks::default();
        assert!(chunks.admit(&buffer("a", 600)) && !chunks.admit(&buffer("a", 401)) && chunks.admit(&buffer("a", 400)));
        for other in ["b", "c", "d", "e"] {
            assert!(chunks.admit(&buffer(other, 1_000)), "{other}");
        }
        assert!(!chunks.admit(&buffer("f", 1)), "5,000 in total");
    }
}
