//! Writes to the API server.
//!
//! *Guarantees*: every write but a creation is guarded by the object's UID, and if it depends on the old object, by its
//! resourceVersion; a conflict is retried a few times with a new read; every request has a deadline; an effect may
//! be repeated. *Caveats*: a client that retries requests on its own would turn the rejection by a PodDisruptionBudget
//! into a timeout: [`Writer::new`] needs one that does not (`Config::default_retry`).

pub(crate) mod capacity_buffers;
mod claims;
mod conditions;
pub(crate) mod events;
mod history;
mod nodes;
mod pods;
mod pools;
mod records;
mod shards;
mod sweeps;

#[cfg(test)]
mod tests;

use crate::FieldManager;
use crate::error::{ApiRequest, call};
use crate::preconditions::lease::LeaseHandle;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client, Resource};
use napkeeper_core::engine::clock::Clock;
use napkeeper_core::model::errors::{ClusterError, EffectError};
use napkeeper_core::model::names::Uid;
use napkeeper_core::plan::{ClusterWrite, Reply};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// How often a write is tried when others keep writing to the same object.
const MAX_ATTEMPTS: u32 = 5;
/// Wait before the second attempt; it doubles for each further one.
const FIRST_WAIT: Duration = Duration::from_millis(50);

/// Performs effects on Kubernetes. Cheap to clone.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    clock: Arc<dyn Clock>,
    /// Needed for every request that writes; `None` where nobody else could lead.
    lease: Option<LeaseHandle>,
    /// The records are read, changed and written as a whole: one at a time.
    records: Arc<Mutex<()>>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("clock", &self.clock).finish_non_exhaustive()
    }
}

impl Writer {
    /// A writer that uses this clock for timestamps. The client must not retry requests.
    #[must_use]
    pub fn new(client: Client, clock: Arc<dyn Clock>) -> Self {
        Self { client, clock, lease: None, records: Arc::default() }
    }

    /// The same writer, which writes only while this Lease is held. That is checked before every request: an effect may
    /// read first, write several objects, and repeat itself after a conflict.
    #[must_use]
    pub fn with_lease(self, lease: LeaseHandle) -> Self {
        Self { lease: Some(lease), ..self }
    }

    /// Writes to Kubernetes. Replies `Done`.
    ///
    /// # Errors
    /// [`EffectError::Cluster`] as the API server refused it.
    pub async fn perform(&self, write: &ClusterWrite) -> Result<Reply, EffectError> {
        let done = match write {
            ClusterWrite::CreateClaim(draft) => self.create_claim(draft).await,
            ClusterWrite::WriteIntent(claim, intent) => self.write_intent(claim, intent).await,
            ClusterWrite::UpdateClaim(claim, step) => self.update_claim(claim, step).await,
            ClusterWrite::UpdateNode(name, uid, step) => self.update_node(name, uid, step).await,
            ClusterWrite::DeleteClaim(claim) => self.delete_claim(claim).await,
            ClusterWrite::RemoveFinalizer(claim) => self.remove_finalizer(claim).await,
            ClusterWrite::DeleteNode(name, uid) => self.delete_node(name, uid).await,
            ClusterWrite::Evict(pod, uid) => self.evict(pod, uid).await,
            ClusterWrite::DeletePod(pod, uid, grace) => self.delete_pod(pod, uid, *grace).await,
            ClusterWrite::RecordDeadline(claim, deadline) => self.record_deadline(claim, *deadline).await,
            ClusterWrite::WriteRecords(change) => self.write_records(change).await,
            ClusterWrite::ReportSweep(report) => self.report_sweep(report).await,
            ClusterWrite::HoldPool(pool, uid) => self.hold_pool(pool, uid).await,
            ClusterWrite::ReleasePool(release) => self.release_pool(release).await,
            ClusterWrite::DisownClaim(claim) => self.disown_claim(claim).await,
            ClusterWrite::ReportPool(report) => self.report_pool(report).await,
            ClusterWrite::ReportClass(report) => self.report_class(report).await,
            ClusterWrite::ReportOverlay(report) => self.report_overlay(report).await,
            ClusterWrite::RecordRemovals(change) => self.record_removals(change).await,
        };
        done.map(|()| Reply::Done).map_err(EffectError::Cluster)
    }

    /// Sends a request that writes.
    async fn send<T>(
        &self,
        request: ApiRequest<'_>,
        response: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, ClusterError> {
        if self.lease.as_ref().is_some_and(|lease| !lease.allows_writes()) {
            return Err(ClusterError::NotLeader);
        }
        call(request, response).await
    }

    /// Reads an object, and writes the merge patch of `change`, if any. If the object was changed in between, it is
    /// read again.
    ///
    /// # Errors
    /// `NotFound` if it was deleted, `Conflict` if it was recreated or others keep writing.
    async fn update<K>(
        &self,
        target: &Target<'_, K>,
        change: impl Fn(&K) -> Result<Option<Value>, ClusterError>,
    ) -> Result<(), ClusterError>
    where
        K: Resource + Clone + DeserializeOwned + fmt::Debug,
    {
        let params = PatchParams { field_manager: Some(target.manager.as_str().to_owned()), ..PatchParams::default() };
        for attempt in 1..=MAX_ATTEMPTS {
            let found = call(target.request("get"), target.api.get_opt(target.name)).await?;
            let found = found.ok_or(ClusterError::NotFound)?;
            if found.meta().uid.as_deref() != Some(target.uid.as_str()) {
                return Err(ClusterError::Conflict);
            }
            let Some(mut patch) = change(&found)? else { return Ok(()) };
            guard(&mut patch, target.uid, found.meta().resource_version.as_deref());
            let patch = Patch::Merge(patch);
            let written = if target.status {
                self.send(target.request("patch status"), target.api.patch_status(target.name, &params, &patch)).await
            } else {
                self.send(target.request("patch"), target.api.patch(target.name, &params, &patch)).await
            };
            match written {
                Err(ClusterError::Conflict) if attempt < MAX_ATTEMPTS => pause_before(attempt).await,
                other => return other.map(drop),
            }
        }
        Err(ClusterError::Conflict)
    }
}

/// An object to change.
struct Target<'a, K> {
    api: Api<K>,
    kind: &'static str,
    name: &'a str,
    uid: &'a Uid,
    manager: FieldManager,
    /// The status subresource is written.
    status: bool,
}

impl<K> Target<'_, K> {
    fn request(&self, verb: &'static str) -> ApiRequest<'_> {
        ApiRequest { verb, kind: self.kind, name: self.name }
    }
}

/// Makes a patch apply only to this incarnation and version of the object.
fn guard(patch: &mut Value, uid: &Uid, version: Option<&str>) {
    patch["metadata"]["uid"] = json!(uid.as_str());
    patch["metadata"]["resourceVersion"] = json!(version);
}

/// Deletes only this incarnation.
fn delete_of(uid: &Uid) -> DeleteParams {
    let preconditions = Preconditions { uid: Some(uid.as_str().to_owned()), resource_version: None };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }
}

/// Waits before the next attempt, with exponential backoff and jitter.
async fn pause_before(attempt: u32) {
    let wait = FIRST_WAIT * 2_u32.pow(attempt.min(8).saturating_sub(1));
    tokio::time::sleep(jittered(wait)).await;
}

/// Between the wait and twice the wait.
pub(crate) fn jittered(wait: Duration) -> Duration {
    // The keys of a new hasher are random.
    let random = u32::try_from(RandomState::new().hash_one(0_u8) % 1000).unwrap_or_default();
    wait + wait * random / 1000
}
