//! Computes placement hints, within a bounded time.
//!
//! Each pod reserves part of the free capacity. A quick lookup runs on the thread of the request. A slow one, such as
//! the offerings for pods of a new shape, is queued for another thread. The queue is short: if it is full or the wait
//! too long, the pod gets no hint. A third thread recomputes the free capacity when the cluster has changed; meanwhile
//! pods use the old one.

use super::recent_admissions::{Admission, RecentAdmissions};
use super::{IncomingPod, OfferingsCache, PlacementHint, hint_for};
use crate::unable::UnableReason;
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::engine::clock::Clock;
use napkeeper_core::model::names::{ClaimName, NodeName, ObjectKey};
use napkeeper_core::scheduling::{
    AvailableOfferings, IncrementalScheduler, Input, MAX_NEW_NODES, Placement, Unschedulable,
};
use napkeeper_core::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use std::{fmt, io};
use tokio::runtime;
use tokio::sync::{mpsc, oneshot, watch};

/// How often capacity of outdated admissions is released, if the cluster does not change before.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// After the capacity has been computed, its thread rests for this many times as long, so that it takes a fiftieth of a
/// core; but no longer than [`MAX_REFRESH_PAUSE`].
const REFRESH_PAUSE_FACTOR: u32 = 49;
const MAX_REFRESH_PAUSE: Duration = Duration::from_secs(1);

/// Until the first capacity is computed, requests are checked this often for cancellation.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(20);

static NO_NODES: BTreeSet<NodeName> = BTreeSet::new();
static NO_CLAIM_OF_POD: BTreeMap<ObjectKey, ClaimName> = BTreeMap::new();

/// The current snapshot; `None` until it is complete.
pub(crate) type Snapshots = watch::Receiver<Option<Arc<Snapshot>>>;

struct HintRequest {
    subject: IncomingPod,
    reply: oneshot::Sender<Result<PlacementHint, UnableReason>>,
}

/// Answers requests for hints. Its threads end when it is dropped.
pub(crate) struct HintService {
    queue: mpsc::Sender<Box<HintRequest>>,
    snapshots: Snapshots,
    state: Arc<HintState>,
}

impl fmt::Debug for HintService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HintService").finish_non_exhaustive()
    }
}

impl HintService {
    /// Starts the threads. At most `queue` pods wait for them.
    pub(crate) fn start(
        snapshots: Snapshots,
        clock: Arc<dyn Clock>,
        queue: usize,
        offerings: Arc<OfferingsCache>,
    ) -> io::Result<Self> {
        let (queue_sender, requests) = mpsc::channel(queue.max(1));
        let state = Arc::new(HintState { capacity: Mutex::default(), ready: Condvar::new(), clock });
        let responder = Arc::clone(&state);
        std::thread::Builder::new().name("hints".to_owned()).spawn(move || responder.serve(requests))?;
        let (refresher, changes) = (Arc::downgrade(&state), snapshots.clone());
        let runtime = runtime::Builder::new_current_thread().enable_time().build()?;
        let renew = move || runtime.block_on(refresh_loop(&refresher, changes, &offerings));
        std::thread::Builder::new().name("capacity".to_owned()).spawn(renew)?;
        Ok(Self { queue: queue_sender, snapshots, state })
    }

    /// Waits until hints use the current snapshot.
    #[cfg(test)]
    pub(crate) async fn caught_up(&self) {
        let is = || {
            let known = self.snapshots.borrow().clone();
            let capacity = lock(&self.state.capacity);
            let now = self.state.clock.now();
            capacity
                .as_ref()
                .zip(known)
                .is_some_and(|(capacity, known)| capacity.is_of(&known) && !capacity.recent_admissions.has_expired(now))
        };
        while !is() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Where a pod will probably run; `None` when that is not known.
    pub(crate) async fn request_hint(
        &self,
        subject: IncomingPod,
        budget: Duration,
    ) -> Result<Option<PlacementHint>, UnableReason> {
        if self.snapshots.borrow().is_none() {
            return Ok(None);
        }
        if let Some(hint) = self.state.try_hint(&subject)? {
            return Ok(Some(hint));
        }
        let (answer, answered) = oneshot::channel();
        self.queue.try_send(Box::new(HintRequest { subject, reply: answer })).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => UnableReason::Overload,
            mpsc::error::TrySendError::Closed(_) => UnableReason::Internal,
        })?;
        match tokio::time::timeout(budget, answered).await {
            Ok(Ok(answer)) => answer.map(Some),
            Ok(Err(_)) => Err(UnableReason::Internal),
            Err(_) => Err(UnableReason::Deadline),
        }
    }
}

/// The free capacity of a cluster.
struct FreeCapacity {
    snapshot: Arc<Snapshot>,
    since: Timestamp,
    scheduler: IncrementalScheduler,
    /// Pods that have taken their part.
    recent_admissions: RecentAdmissions,
}

/// The shared state of the threads.
struct HintState {
    /// None before the first time, and after a panic.
    capacity: Mutex<Option<FreeCapacity>>,
    /// Notified when there is capacity again.
    ready: Condvar,
    clock: Arc<dyn Clock>,
}

impl HintState {
    /// Answers queued requests, until the queue is closed.
    fn serve(&self, mut requests: mpsc::Receiver<Box<HintRequest>>) {
        while let Some(request) = requests.blocking_recv() {
            let HintRequest { subject, reply: answer } = *request;
            // Skip cancelled requests.
            while !answer.is_closed() {
                let capacity = self
                    .ready
                    .wait_timeout_while(lock(&self.capacity), CANCEL_POLL_INTERVAL, |capacity| capacity.is_none());
                let (mut capacity, _) = capacity.unwrap_or_else(PoisonError::into_inner);
                let find = |scheduler: &mut IncrementalScheduler| Some(scheduler.find(&subject.pod));
                if let Some(hint) = self.hint(&mut capacity, &subject, find).transpose() {
                    drop(answer.send(hint));
                    break;
                }
            }
        }
    }

    /// The hint, where it needs no waiting.
    fn try_hint(&self, subject: &IncomingPod) -> Result<Option<PlacementHint>, UnableReason> {
        let Ok(mut capacity) = self.capacity.try_lock() else { return Ok(None) };
        self.hint(&mut capacity, subject, |scheduler| scheduler.find_cached(&subject.pod))
    }

    /// The hint for a placement that is found, and then taken. `None` when there is no capacity, or nothing is found.
    fn hint(
        &self,
        capacity: &mut Option<FreeCapacity>,
        subject: &IncomingPod,
        find: impl FnOnce(&mut IncrementalScheduler) -> Option<Result<Placement, Unschedulable>>,
    ) -> Result<Option<PlacementHint>, UnableReason> {
        let Some(current) = capacity else { return Ok(None) };
        let now = self.clock.now();
        let hinted = catch_unwind(AssertUnwindSafe(|| current.hint(now, subject, find)));
        hinted.map_err(|_| {
            // The pod that caused the panic may be among the recent ones.
            *capacity = None;
            UnableReason::Internal
        })
    }

    /// Recomputes the capacity. False if that panicked: then there is none.
    fn refresh(&self, snapshot: &Arc<Snapshot>, offerings: &AvailableOfferings) -> bool {
        let previous = lock(&self.capacity).as_ref().map(|capacity| capacity.recent_admissions.clone());
        let (had_capacity, since) = (previous.is_some(), self.clock.now());
        let computed = catch_unwind(|| FreeCapacity::compute(snapshot, offerings, since, previous.unwrap_or_default()));
        let mut current = lock(&self.capacity);
        let old = current.take();
        let new = computed.and_then(|capacity| match &old {
            Some(old) => catch_unwind(AssertUnwindSafe(|| capacity.with_admissions(&old.recent_admissions))),
            None => Ok(capacity),
        });
        // If the old capacity was dropped by a panic, its cause is in the new one too.
        *current = new.ok().filter(|_| old.is_some() || !had_capacity);
        let has_capacity = current.is_some();
        drop(current);
        self.ready.notify_all();
        // Deallocating a large cluster is slow, so the lock is released before.
        drop(old);
        has_capacity
    }

    /// True if hints should use this snapshot, and do not.
    fn is_stale(&self, snapshot: &Arc<Snapshot>) -> bool {
        let now = self.clock.now();
        let every = SignedDuration::try_from(REFRESH_INTERVAL).unwrap_or(SignedDuration::MAX);
        lock(&self.capacity).as_ref().is_none_or(|capacity| {
            let is_due =
                || capacity.recent_admissions.has_expired(now) && now.duration_since(capacity.since).abs() >= every;
            !capacity.is_of(snapshot) || is_due()
        })
    }
}

impl FreeCapacity {
    /// The free capacity of a cluster after placing all recently admitted pods.
    fn compute(
        snapshot: &Arc<Snapshot>,
        offerings: &AvailableOfferings,
        since: Timestamp,
        mut recent: RecentAdmissions,
    ) -> Self {
        let input = Input {
            snapshot,
            available: offerings,
            excluded_nodes: &NO_NODES,
            max_new_nodes: MAX_NEW_NODES,
            claim_of_pod: &NO_CLAIM_OF_POD,
        };
        let mut scheduler = IncrementalScheduler::new(input);
        recent.prune_and_reserve(since, snapshot, &mut scheduler);
        // Computes the offerings of each shape in advance.
        recent.shapes().into_values().for_each(|pod| drop(scheduler.find(pod)));
        Self { snapshot: Arc::clone(snapshot), since, scheduler, recent_admissions: recent }
    }

    /// The same, after placing pods that were admitted meanwhile.
    fn with_admissions(mut self, recent: &RecentAdmissions) -> Self {
        self.recent_admissions.merge_newer(recent, &mut self.scheduler);
        self
    }

    fn is_of(&self, snapshot: &Arc<Snapshot>) -> bool {
        Arc::ptr_eq(&self.snapshot, snapshot)
    }

    fn hint(
        &mut self,
        now: Timestamp,
        subject: &IncomingPod,
        find: impl FnOnce(&mut IncrementalScheduler) -> Option<Result<Placement, Unschedulable>>,
    ) -> Option<PlacementHint> {
        let IncomingPod { pod, generate_name, current_hint, dry_run, .. } = subject;
        if let Some(hint) = current_hint.as_ref().filter(|hint| self.recent_admissions.contains(now, pod, hint)) {
            return Some(hint.clone());
        }
        let found = find(&mut self.scheduler)?;
        let shared = found.as_ref().is_ok_and(|placement| self.scheduler.is_shared(placement));
        let hint = hint_for(&found, shared);
        if let Ok(placement) = found
            && !dry_run
            && self.scheduler.take(pod, &placement)
        {
            let (pod, generate_name) = (Arc::clone(pod), generate_name.clone());
            self.recent_admissions.record(now, Admission { pod, generate_name, placement, hint: hint.clone() });
        }
        Some(hint)
    }
}

/// Updates the capacity with the cluster, until the service is dropped.
async fn refresh_loop(state: &Weak<HintState>, mut snapshots: Snapshots, offerings: &OfferingsCache) {
    loop {
        let Some(state) = state.upgrade() else { return };
        let begun = Instant::now();
        let snapshot = snapshots.borrow_and_update().clone().filter(|snapshot| state.is_stale(snapshot));
        let refreshed = snapshot.map(|snapshot| {
            let offerings = catch_unwind(AssertUnwindSafe(|| offerings.get(&snapshot)));
            offerings.is_ok_and(|offerings| state.refresh(&snapshot, &offerings))
        });
        let pause = match refreshed {
            None => Duration::ZERO,
            Some(true) => begun.elapsed().saturating_mul(REFRESH_PAUSE_FACTOR).min(MAX_REFRESH_PAUSE),
            // What panicked may panic again at once.
            Some(false) => MAX_REFRESH_PAUSE,
        };
        drop(state);
        tokio::time::sleep(pause).await;
        let ended = tokio::time::timeout(REFRESH_INTERVAL, snapshots.changed()).await.is_ok_and(|seen| seen.is_err());
        if ended {
            tokio::time::sleep(REFRESH_INTERVAL).await;
        }
    }
}

/// Ignores poisoning: callers that catch panics repair the state.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod as WirePod;
    use napkeeper_api::convert;
    use serde_json::json;

    fn subject(name: &str) -> IncomingPod {
        let wire = json!({ "metadata": { "name": name, "namespace": "web" }, "spec": { "containers": [] } });
        let pod = convert::pod(&serde_json::from_value::<WirePod>(wire).unwrap()).unwrap();
        IncomingPod { pod: Arc::new(pod), generate_name: None, annotations: None, current_hint: None, dry_run: false }
    }

    fn state() -> HintState {
        let clock = Arc::new(crate::tests::HandClock::default());
        HintState { capacity: Mutex::default(), ready: Condvar::new(), clock }
    }

    #[test]
    fn a_panic_discards_the_capacity_and_the_one_that_is_being_computed() {
        let (state, snapshot) = (state(), Arc::new(Snapshot::default()));
        let offerings = OfferingsCache::default().get(&snapshot);
        let stumble = || {
            let mut capacity = lock(&state.capacity);
            let answer = state.hint(&mut capacity, &subject("a"), |_| panic!("on purpose"));
            assert_eq!((answer, capacity.is_none()), (Err(UnableReason::Internal), true));
        };
        assert!(state.is_stale(&snapshot) && state.refresh(&snapshot, &offerings) && !state.is_stale(&snapshot));
        stumble();
        assert!(state.is_stale(&snapshot) && state.refresh(&snapshot, &offerings));
        assert_eq!(state.try_hint(&subject("a")), Ok(None), "no such pod has been here");
        stumble();
        assert_eq!(state.try_hint(&subject("a")), Ok(None));
    }

    #[tokio::test]
    async fn pods_get_no_hint_if_the_queue_is_full_or_slow() {
        let (_cluster, snapshots) = watch::channel(Some(Arc::new(Snapshot::default())));
        let (queue, received) = mpsc::channel(1);
        let hinter = HintService { queue, snapshots, state: Arc::new(state()) };
        let ask = || hinter.request_hint(subject("a"), Duration::from_millis(5));
        assert_eq!(ask().await, Err(UnableReason::Deadline));
        assert_eq!(ask().await, Err(UnableReason::Overload), "the first is still in the queue");
        drop(received);
        assert_eq!(ask().await, Err(UnableReason::Internal));
    }
}
