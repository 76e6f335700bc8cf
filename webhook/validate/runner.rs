//! Runs validations within limits of time and concurrency.
//!
//! What is fast whatever the cluster holds runs on the thread of the request. Everything else is left to threads for
//! blocking work, of which the process has a few, behind slots, and is waited for until the deadline.

use crate::hints::OfferingsCache;
use crate::review::{AdmissionResponse, Request, RequestSize};
use crate::unable::UnableReason;
use crate::validate::deletion_protection::{Consequences, UnacknowledgedDelete};
use crate::validate::{DeletionProtection, SourcedValidator, ValidationContext, is_judged, validate};
use jiff::Timestamp;
use napkeeper_core::admission::pdb_blockers::ClusterBlockers;
use napkeeper_core::snapshot::Snapshot;
use napkeeper_verdict::policy::Policies;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// Deletes whose consequences may wait to be computed. Further ones are answered without.
const MAX_WAITING_DELETES: usize = 8;

/// What objects are judged by.
#[derive(Debug)]
pub(crate) struct Inputs {
    pub(crate) validator: Arc<SourcedValidator>,
    /// The cluster; `None` while it is not known.
    pub(crate) snapshot: Option<Arc<Snapshot>>,
    pub(crate) blockers: Arc<ClusterBlockers>,
    pub(crate) policies: Arc<Policies>,
    pub(crate) deletion_protection: DeletionProtection,
}

/// The slots of validations. A review past its deadline keeps its slots until it ends.
#[derive(Debug)]
pub(crate) struct ValidationRunner {
    timeout: Duration,
    slots: Arc<Semaphore>,
    large_slot: Arc<Semaphore>,
    /// One delete at a time runs the scheduler, so that deletes do not keep writes from the threads.
    consequences_slot: Arc<Semaphore>,
    waiting_deletes: Arc<Semaphore>,
    offerings: Arc<OfferingsCache>,
}

/// The slot that a large review holds while it runs; none for a small one.
pub(crate) type LargeReviewSlot = Option<OwnedSemaphorePermit>;

/// Large reviews are not worked on two at a time: each may take much memory, and more than its time.
pub(crate) fn acquire_large_slot(large: &Arc<Semaphore>, size: RequestSize) -> Result<LargeReviewSlot, UnableReason> {
    if size <= RequestSize::Medium {
        return Ok(None);
    }
    Arc::clone(large).try_acquire_owned().map(Some).map_err(|_| UnableReason::Overload)
}

impl ValidationRunner {
    pub(crate) fn new(max_concurrency: usize, timeout: Duration, offerings: Arc<OfferingsCache>) -> Self {
        let slots = |n: usize| Arc::new(Semaphore::new(n));
        Self {
            timeout,
            slots: slots(max_concurrency),
            large_slot: slots(1),
            consequences_slot: slots(1),
            waiting_deletes: slots(MAX_WAITING_DELETES),
            offerings,
        }
    }

    /// Validates a request; `None` when no rule and no policy applies.
    pub(crate) async fn run(
        &self,
        inputs: Inputs,
        request: Request,
        size: RequestSize,
    ) -> Result<Option<AdmissionResponse>, UnableReason> {
        let deadline = Instant::now() + self.timeout;
        if request.is_delete() && is_judged(&request) {
            return self.run_delete(&inputs, &request, deadline).await;
        }
        let large_slot = acquire_large_slot(&self.large_slot, size)?;
        let slot = Arc::clone(&self.slots).try_acquire_owned().map_err(|_| UnableReason::Overload)?;
        // How long the policies of others take is unknown, and a change is held against all nodes.
        let concerns_nodes = request.operation == "UPDATE" && inputs.snapshot.is_some();
        let is_fast = inputs.policies.is_empty() && size == RequestSize::Small && !concerns_nodes;
        let validation = move || {
            let context = ValidationContext {
                validator: &inputs.validator,
                snapshot: inputs.snapshot.as_deref(),
                blockers: &inputs.blockers,
                policies: &inputs.policies,
            };
            let answer = validate(&context, request);
            drop((slot, large_slot));
            answer
        };
        if is_fast { inline(validation) } else { on_thread(validation, deadline).await }
    }

    /// The answer to a delete rests on the number of NodeClaims. Its consequences are computed if there is time.
    async fn run_delete(
        &self,
        inputs: &Inputs,
        request: &Request,
        deadline: Instant,
    ) -> Result<Option<AdmissionResponse>, UnableReason> {
        let protection = inputs.deletion_protection;
        let Some(snapshot) = inputs.snapshot.as_ref().filter(|_| protection != DeletionProtection::Off) else {
            return Ok(None);
        };
        let Some(delete) = inline(|| UnacknowledgedDelete::find(snapshot, request))? else { return Ok(None) };
        let delete = Arc::new(delete);
        let consequences = self.consequences(Arc::clone(&delete), Arc::clone(snapshot), deadline).await;
        Ok(Some(delete.answer(protection, consequences.as_ref())))
    }

    /// `None` if it takes too long, too many wait, or it panics.
    async fn consequences(
        &self,
        delete: Arc<UnacknowledgedDelete>,
        snapshot: Arc<Snapshot>,
        deadline: Instant,
    ) -> Option<Consequences> {
        let _waiting = self.waiting_deletes.try_acquire().ok()?;
        let turn = timeout_at(deadline, Arc::clone(&self.consequences_slot).acquire_owned());
        let slot = turn.await.ok()?.ok()?;
        let offerings = Arc::clone(&self.offerings);
        let computation = move || {
            let consequences = delete.consequences(&snapshot, &offerings, Timestamp::now());
            drop(slot);
            consequences
        };
        on_thread(computation, deadline).await.ok()
    }
}

/// Runs work that is fast on this thread.
fn inline<T>(work: impl FnOnce() -> T) -> Result<T, UnableReason> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| UnableReason::Internal)
}

/// Runs work on a thread for blocking work. Past the deadline it goes on, and nobody waits for it.
async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
    deadline: Instant,
) -> Result<T, UnableReason> {
    match timeout_at(deadline, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => Err(UnableReason::Internal),
        Err(_) => Err(UnableReason::Deadline),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_internal_error_wherever_it_happens() {
        let soon = Instant::now() + Duration::from_secs(30);
        assert_eq!(inline::<()>(|| panic!("on purpose")), Err(UnableReason::Internal));
        assert_eq!(on_thread::<()>(|| panic!("on purpose"), soon).await, Err(UnableReason::Internal));
        assert_eq!(on_thread(|| 1, soon).await, Ok(1));
    }
}
