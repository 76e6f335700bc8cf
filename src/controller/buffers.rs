//! The keeper of buffers: which CapacityBuffers are there, and what is told of them?
//!
//! A task of its own beside the controller, which learns of chunks by a channel and says by another where they have their
//! room. It works while this replica leads.

use jiff::Timestamp;
use kube::{Client, ResourceExt};
use napkeeper_api::buffer::CapacityBuffer;
use napkeeper_api::convert::Resolved;
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

/// How often all of them are looked at; Karpenter does so every 30 s, and at once when one changes.
const EVERY: Duration = Duration::from_secs(10);
/// Most CapacityBuffers that are followed: each is a request or two.
const MOST_BUFFERS: usize = 200;
/// Most chunks of all of them together.
const MOST_CHUNKS: usize = 5_000;
/// What must be left of the Lease when a status is written.
const LEASE_LEFT: Duration = Duration::from_secs(5);

/// All that are ready, once all have been read.
pub(super) type Buffers = BTreeMap<ObjectKey, Arc<Buffer>>;
/// Where their chunks have their room.
pub(super) type Cushions = BTreeMap<ObjectKey, BufferPlacement>;

/// The task.
pub(super) struct BufferKeeper {
    client: Client,
    clock: Arc<dyn Clock>,
    lease: LeaseHandle,
    buffers: watch::Sender<Option<Arc<Buffers>>>,
    cushions: watch::Receiver<Arc<Cushions>>,
}

/// Where a controller hears of buffers, and where it tells of them.
pub(super) type Ends = (watch::Receiver<Option<Arc<Buffers>>>, watch::Sender<Arc<Cushions>>);

impl BufferKeeper {
    /// The task, and the controller's ends of its channels.
    pub(super) fn new(client: Client, clock: Arc<dyn Clock>, lease: LeaseHandle) -> (Self, Ends) {
        let (buffers, buffers_now) = watch::channel(None);
        let (cushions, cushions_now) = watch::channel(Arc::default());
        (Self { client, clock, lease, buffers, cushions: cushions_now }, (buffers_now, cushions))
    }

    /// Works until the process drains. Beside managed NAP buffers are not ours: then it only waits.
    pub(super) async fn run(mut self, mode: ControllerMode, lifecycle: Lifecycle) -> Result<(), ComponentError> {
        if mode == ControllerMode::Companion {
            lifecycle.draining().await;
            return Ok(());
        }
        tokio::select! {
            () = lifecycle.draining() => {}
            () = self.keep() => {}
        }
        Ok(())
    }

    async fn keep(&mut self) {
        let mut leading = self.lease.leads();
        let mut said = None;
        // Ends with the handle of the Lease, when there is nothing left to lead.
        while leading.wait_for(|leads| *leads).await.is_ok() {
            while *leading.borrow() {
                let failed = self.look().await.err();
                if let Some(why) = failed.as_ref().filter(|why| said.as_ref() != Some(*why)) {
                    tracing::warn!(
                        why,
                        "reading CapacityBuffers failed: keeping the last known ones; no consolidation before the \
                         first successful read"
                    );
                }
                said = failed;
                tokio::time::sleep(EVERY).await;
            }
            // Whoever leads meanwhile may see others: what we know will be old.
            self.buffers.send_replace(None);
        }
    }

    /// Looks at all of them once.
    async fn look(&mut self) -> Result<(), String> {
        let found = capacity_buffers(&self.client).await.map_err(|failure| failure.to_string())?;
        let (mut ready, mut all, mut chunks) = (Buffers::new(), Vec::new(), 0);
        let known = self.buffers.borrow().clone();
        let mut is_whole = true;
        for (n, object) in found.into_iter().enumerate() {
            let resolved = if n < MOST_BUFFERS { resolve_buffer(&self.client, &object).await } else { Ok(too_many()) };
            match resolved {
                Ok(Resolved::Ready(buffer, _)) if chunks + buffer.pods.len() > MOST_CHUNKS => {
                    all.push((object, too_many()))
                }
                Ok(resolved) => {
                    if let Resolved::Ready(buffer, _) = &resolved {
                        chunks += buffer.pods.len();
                        ready.insert(buffer.key.clone(), Arc::new(buffer.clone()));
                    }
                    all.push((object, resolved));
                }
                // What could not be read says nothing: what is known of it stays.
                Err(error) => {
                    is_whole = false;
                    ready.extend(known.as_ref().and_then(|known| of(known, &object)));
                    let why =
                        format!("cannot read the object it refers to: {error}; check the controller's permissions");
                    all.push((object, Resolved::failed(why)));
                }
            }
        }
        if known.is_some() || is_whole {
            self.learnt(known.as_deref(), ready);
        }
        let now = whole_seconds(self.clock.now());
        let cushions = Arc::clone(&self.cushions.borrow());
        for (object, resolved) in &all {
            if !self.lease.held_for(LEASE_LEFT) {
                break;
            }
            let cushion = match resolved {
                Resolved::Ready(buffer, _) => cushions.get(&buffer.key),
                Resolved::NotReady(..) => None,
            };
            // A refusal is logged where it happens, and it is tried again.
            let _ = update_buffer_status(&self.client, object, resolved, cushion, now).await;
        }
        if is_whole { Ok(()) } else { Err("some CapacityBuffers could not be resolved".to_owned()) }
    }

    /// Tells the controller, where there is news.
    fn learnt(&self, known: Option<&Buffers>, now: Buffers) {
        if known != Some(&now) {
            self.buffers.send_replace(Some(Arc::new(now)));
        }
    }
}

fn too_many() -> Resolved {
    let why = format!("at most {MOST_BUFFERS} CapacityBuffers with {MOST_CHUNKS} chunks in total are supported");
    Resolved::failed(why)
}

/// What is known of a CapacityBuffer.
fn of(known: &Buffers, object: &CapacityBuffer) -> Option<(ObjectKey, Arc<Buffer>)> {
    let namespace = Namespace::new(object.namespace()?).ok()?;
    let key = ObjectKey { namespace, name: ObjectName::new(object.name_any()).ok()? };
    let buffer = Arc::clone(known.get(&key)?);
    Some((key, buffer))
}

/// Conditions have no fractions of a second.
fn whole_seconds(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}
