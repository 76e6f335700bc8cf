//! The hinter: who computes placement hints, and how is that bounded?
//!
//! A hint is taken out of the room that is left, of which each pod takes its part. Where that is a matter of looking it up,
//! whoever asks does so at once, and no thread has to wake another. What takes longer, such as what would be bought for pods
//! of a shape that nobody has asked for, is left to a thread at the desk. The queue before it is short; whoever finds it
//! full, or waits for too long, goes without a hint. Another thread works the room out anew when the cluster has changed,
//! while pods still take from the old one: none of them waits while thousands of others are counted.

use crate::hint::{PlacementHint, hint_for, market};
use crate::mutate::Subject;
use crate::recent::Recent;
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::catalog::InstanceTypes;
use napkeeper_core::engine::clock::Clock;
use napkeeper_core::model::names::{ClaimName, NodeClassName, NodeName, ObjectKey};
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

/// Pods that no longer count give their room back this often, if the cluster does not change before.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// After the room has been worked out, its thread rests for this many times as long, so that it takes a fiftieth of a core;
/// but no longer than [`LONGEST_REST`].
const REFRESH_PAUSE_FACTOR: u32 = 49;
const MAX_REFRESH_PAUSE: Duration = Duration::from_secs(1);

/// Who waits for the first room looks this often whether anybody still waits for the answer.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(20);

static NO_NODES: BTreeSet<NodeName> = BTreeSet::new();
static NO_CLAIM_OF_POD: BTreeMap<ObjectKey, ClaimName> = BTreeMap::new();

/// The cluster as it is known now; `None` until it is known whole.
pub(crate) type Snapshots = watch::Receiver<Option<Arc<Snapshot>>>;

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// Too many pods wait for theirs.
    Overload,
    /// It took too long.
    Deadline,
    /// What would be changed would be refused.
    InvalidPatch,
    /// A bug of ours.
    Internal,
}

impl NoAnswer {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Overload => "overload",
            Self::Deadline => "deadline",
            Self::InvalidPatch => "patch",
            Self::Internal => "internal",
        }
    }
}

struct Ask {
    subject: Subject,
    reply: oneshot::Sender<Result<PlacementHint, NoAnswer>>,
}

/// The way to hints. Its threads end when it is dropped.
pub(crate) struct Hinter {
    queue: mpsc::Sender<Box<Ask>>,
    snapshots: Snapshots,
    state: Arc<Office>,
}

impl fmt::Debug for Hinter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hinter").finish_non_exhaustive()
    }
}

impl Hinter {
    /// Starts the threads, before which at most `queue` pods wait.
    pub(crate) fn start(snapshots: Snapshots, clock: Arc<dyn Clock>, queue: usize) -> io::Result<Self> {
        let (queue_sender, requests) = mpsc::channel(queue.max(1));
        let state = Arc::new(Office { capacity: Mutex::default(), ready: Condvar::new(), clock });
        let responder = Arc::clone(&state);
        std::thread::Builder::new().name("hints".to_owned()).spawn(move || responder.serve(requests))?;
        let (refresher, changes) = (Arc::downgrade(&state), snapshots.clone());
        let runtime = runtime::Builder::new_current_thread().enable_time().build()?;
        let renew = move || runtime.block_on(refresh_loop(&refresher, changes));
        std::thread::Builder::new().name("room".to_owned()).spawn(renew)?;
        Ok(Self { queue: queue_sender, snapshots, state })
    }

    /// Waits until pods are answered by what is known now.
    #[cfg(test)]
    pub(crate) async fn caught_up(&self) {
        let is = || {
            let known = self.snapshots.borrow().clone();
            let room = lock(&self.state.capacity);
            let now = self.state.clock.now();
            room.as_ref()
                .zip(known)
                .is_some_and(|(room, known)| room.is_for(&known) && !room.recent_admissions.has_expired(now))
        };
        while !is() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Where a pod will probably run; `None` when that is not known.
    pub(crate) async fn request_hint(
        &self,
        subject: Subject,
        budget: Duration,
    ) -> Result<Option<PlacementHint>, NoAnswer> {
        if self.snapshots.borrow().is_none() {
            return Ok(None);
        }
        if let Some(hint) = self.state.try_hint(&subject)? {
            return Ok(Some(hint));
        }
        let (answer, answered) = oneshot::channel();
        self.queue.try_send(Box::new(Ask { subject, reply: answer })).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => NoAnswer::Overload,
            mpsc::error::TrySendError::Closed(_) => NoAnswer::Internal,
        })?;
        match tokio::time::timeout(budget, answered).await {
            Ok(Ok(answer)) => answer.map(Some),
            Ok(Err(_)) => Err(NoAnswer::Internal),
            Err(_) => Err(NoAnswer::Deadline),
        }
    }
}

/// The room that is left in one cluster.
struct Room {
    snapshot: Arc<Snapshot>,
    since: Timestamp,
    standing: IncrementalScheduler,
    /// Those who have taken theirs.
    recent_admissions: Recent,
}

/// What all who answer share.
struct Office {
    /// None before the first time, and after a mishap.
    capacity: Mutex<Option<Room>>,
    /// Rings when there is room again.
    ready: Condvar,
    clock: Arc<dyn Clock>,
}

impl Office {
    /// Answers what is asked at the desk, until nobody can ask any more.
    fn serve(&self, mut requests: mpsc::Receiver<Box<Ask>>) {
        while let Some(request) = requests.blocking_recv() {
            let Ask { subject, reply: answer } = *request;
            // Nobody waits any more for one that is closed: the time is better spent on the next.
            while !answer.is_closed() {
                let capacity =
                    self.ready.wait_timeout_while(lock(&self.capacity), CANCEL_POLL_INTERVAL, |room| room.is_none());
                let (mut room, _) = capacity.unwrap_or_else(PoisonError::into_inner);
                let find = |standing: &mut IncrementalScheduler| Some(standing.find(&subject.pod));
                if let Some(hint) = self.hint(&mut room, &subject, find).transpose() {
                    drop(answer.send(hint));
                    break;
                }
            }
        }
    }

    /// The answer, where nobody has to wait for it.
    fn try_hint(&self, subject: &Subject) -> Result<Option<PlacementHint>, NoAnswer> {
        let Ok(mut capacity) = self.capacity.try_lock() else { return Ok(None) };
        self.hint(&mut capacity, subject, |standing| standing.find_cached(&subject.pod))
    }

    /// What is said of a place that is found, which is taken then. `None` when there is no room, or nothing is found out.
    fn hint(
        &self,
        capacity: &mut Option<Room>,
        subject: &Subject,
        find: impl FnOnce(&mut IncrementalScheduler) -> Option<Result<Placement, Unschedulable>>,
    ) -> Result<Option<PlacementHint>, NoAnswer> {
        let Some(current) = capacity else { return Ok(None) };
        let now = self.clock.now();
        let hinted = catch_unwind(AssertUnwindSafe(|| current.hint(now, subject, find)));
        hinted.map_err(|_| {
            // What was stumbled over may be among the recent.
            *capacity = None;
            NoAnswer::Internal
        })
    }

    /// Works the room out anew, and lets pods take from that. False when something went wrong: then there is none.
    fn refresh(&self, snapshot: &Arc<Snapshot>, market: &AvailableOfferings) -> bool {
        let previous = lock(&self.capacity).as_ref().map(|room| room.recent_admissions.clone());
        let (had_capacity, since) = (previous.is_some(), self.clock.now());
        let computed = catch_unwind(|| Room::compute(snapshot, market, since, previous.unwrap_or_default()));
        let mut current = lock(&self.capacity);
        let old = current.take();
        let new = computed.and_then(|room| match &old {
            Some(old) => catch_unwind(AssertUnwindSafe(|| room.caught_up(&old.recent_admissions))),
            None => Ok(room),
        });
        // Where the old one is gone there was a mishap, and what it left behind is in the new one too.
        *current = new.ok().filter(|_| old.is_some() || !had_capacity);
        let is_there = current.is_some();
        drop(current);
        self.ready.notify_all();
        // Nobody needs to wait until the picture of a whole cluster is put away.
        drop(old);
        is_there
    }

    /// True when pods should be answered by this cluster, and are not.
    fn is_stale(&self, snapshot: &Arc<Snapshot>) -> bool {
        let now = self.clock.now();
        let every = SignedDuration::try_from(REFRESH_INTERVAL).unwrap_or(SignedDuration::MAX);
        lock(&self.capacity).as_ref().is_none_or(|room| {
            let is_due = || room.recent_admissions.has_expired(now) && now.duration_since(room.since).abs() >= every;
            !room.is_for(snapshot) || is_due()
        })
    }
}

impl Room {
    /// The room that is left in a cluster when all that were let in lately have theirs.
    fn compute(snapshot: &Arc<Snapshot>, market: &AvailableOfferings, since: Timestamp, mut recent: Recent) -> Self {
        let input = Input {
            snapshot,
            available: market,
            excluded_nodes: &NO_NODES,
            max_new_nodes: MAX_NEW_NODES,
            claim_of_pod: &NO_CLAIM_OF_POD,
        };
        let mut standing = IncrementalScheduler::new(input);
        recent.prune_and_reserve(since, snapshot, &mut standing);
        // What is looked up for the first pod of a shape is not left to whoever asks next.
        recent.shapes().into_values().for_each(|pod| drop(standing.find(pod)));
        Self { snapshot: Arc::clone(snapshot), since, standing, recent_admissions: recent }
    }

    /// The same when those have taken theirs too who were let in meanwhile.
    fn caught_up(mut self, recent: &Recent) -> Self {
        self.recent_admissions.merge_newer(recent, &mut self.standing);
        self
    }

    fn is_for(&self, snapshot: &Arc<Snapshot>) -> bool {
        Arc::ptr_eq(&self.snapshot, snapshot)
    }

    fn hint(
        &mut self,
        now: Timestamp,
        subject: &Subject,
        find: impl FnOnce(&mut IncrementalScheduler) -> Option<Result<Placement, Unschedulable>>,
    ) -> Option<PlacementHint> {
        let Subject { pod, generate_name: prefix, current_hint: noted, dry_run, .. } = subject;
        if let Some(hint) = noted.as_ref().filter(|hint| self.recent_admissions.contains(now, pod, hint)) {
            return Some(hint.clone());
        }
        let found = find(&mut self.standing)?;
        let shared = found.as_ref().is_ok_and(|spot| self.standing.is_shared(spot));
        let hint = hint_for(&found, shared);
        if let Ok(spot) = found
            && !dry_run
            && self.standing.take(pod, &spot)
        {
            self.recent_admissions.record(now, (Arc::clone(pod), prefix.clone()), (spot, hint.clone()));
        }
        Some(hint)
    }
}

/// Keeps the room as new as the cluster, until nobody can ask any more.
async fn refresh_loop(state: &Weak<Office>, mut snapshots: Snapshots) {
    let mut sold: Option<Sold> = None;
    loop {
        let Some(office) = state.upgrade() else { return };
        let begun = Instant::now();
        let snapshot = snapshots.borrow_and_update().clone().filter(|snapshot| office.is_stale(snapshot));
        let refreshed = snapshot.map(|snapshot| {
            sold = sold
                .take()
                .filter(|cached| cached.is_current(&snapshot))
                .or_else(|| catch_unwind(|| Sold::from_snapshot(&snapshot)).ok());
            sold.as_ref().is_some_and(|sold| office.refresh(&snapshot, &sold.market))
        });
        let pause = match refreshed {
            None => Duration::ZERO,
            Some(true) => begun.elapsed().saturating_mul(REFRESH_PAUSE_FACTOR).min(MAX_REFRESH_PAUSE),
            // Whoever stumbles may stumble over the same again at once.
            Some(false) => MAX_REFRESH_PAUSE,
        };
        drop(office);
        tokio::time::sleep(pause).await;
        let ended = tokio::time::timeout(REFRESH_INTERVAL, snapshots.changed()).await.is_ok_and(|seen| seen.is_err());
        if ended {
            tokio::time::sleep(REFRESH_INTERVAL).await;
        }
    }
}

/// What is left after a mishap is put right by whoever caught it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What pools may buy, and what that was worked out of.
struct Sold {
    market: AvailableOfferings,
    generations: [u64; 4],
    types: BTreeMap<NodeClassName, InstanceTypes>,
}

impl Sold {
    fn from_snapshot(snapshot: &Snapshot) -> Self {
        let (generations, types) = (generations(snapshot), snapshot.instance_types.clone());
        Self { market: market(snapshot), generations, types }
    }

    /// True while nothing has changed that it was worked out of.
    fn is_current(&self, snapshot: &Snapshot) -> bool {
        let types = &snapshot.instance_types;
        self.generations == generations(snapshot)
            && self.types.len() == types.len()
            && self.types.iter().zip(types).all(|(x, y)| x.0 == y.0 && Arc::ptr_eq(x.1, y.1))
    }
}

fn generations(snapshot: &Snapshot) -> [u64; 4] {
    let (pools, classes, daemon_sets) = (snapshot.pools(), snapshot.classes(), snapshot.daemon_sets());
    [pools.generation(), classes.generation(), daemon_sets.generation(), snapshot.facts_generation()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod as WirePod;
    use napkeeper_api::convert;
    use serde_json::json;

    fn subject(name: &str) -> Subject {
        let wire = json!({ "metadata": { "name": name, "namespace": "web" }, "spec": { "containers": [] } });
        let pod = convert::pod(&serde_json::from_value::<WirePod>(wire).unwrap()).unwrap();
        Subject { pod: Arc::new(pod), generate_name: None, annotations: None, current_hint: None, dry_run: false }
    }

    fn office() -> Office {
        let clock = Arc::new(crate::tests::HandClock::default());
        Office { capacity: Mutex::default(), ready: Condvar::new(), clock }
    }

    #[test]
    fn a_mishap_empties_the_room_and_also_the_one_that_is_being_worked_out() {
        let (office, snapshot) = (office(), Arc::new(Snapshot::default()));
        let market = market(&snapshot);
        let stumble = || {
            let mut room = lock(&office.capacity);
            let answer = office.hint(&mut room, &subject("a"), |_| panic!("on purpose"));
            assert_eq!((answer, room.is_none()), (Err(NoAnswer::Internal), true));
        };
        assert!(office.is_stale(&snapshot) && office.refresh(&snapshot, &market) && !office.is_stale(&snapshot));
        stumble();
        assert!(office.is_stale(&snapshot) && office.refresh(&snapshot, &market));
        assert_eq!(office.try_hint(&subject("a")), Ok(None), "no such pod has been here");
        stumble();
        assert_eq!(office.try_hint(&subject("a")), Ok(None));
    }

    #[tokio::test]
    async fn who_finds_the_queue_full_or_waits_for_too_long_goes_without() {
        let (_cluster, snapshots) = watch::channel(Some(Arc::new(Snapshot::default())));
        let (queue, received) = mpsc::channel(1);
        let hinter = Hinter { queue, snapshots, state: Arc::new(office()) };
        let ask = || hinter.request_hint(subject("a"), Duration::from_millis(5));
        assert_eq!(ask().await, Err(NoAnswer::Deadline));
        assert_eq!(ask().await, Err(NoAnswer::Overload), "the first is still in the queue");
        drop(received);
        assert_eq!(ask().await, Err(NoAnswer::Internal));
    }
}
