//! The hinter: who computes placement hints, and how is that bounded?
//!
//! A hint is taken out of the room that is left, of which each pod takes its part. Where that is a matter of looking it up,
//! whoever asks does so at once, and no thread has to wake another. What takes longer, such as what would be bought for pods
//! of a shape that nobody has asked for, is left to a thread at the desk. The queue before it is short; whoever finds it
//! full, or waits for too long, goes without a hint. Another thread works the room out anew when the cluster has changed,
//! while pods still take from the old one: none of them waits while thousands of others are counted.

use crate::hint::{PlacementHint, market, of_place};
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
const RENEWED_EVERY: Duration = Duration::from_secs(1);

/// After the room has been worked out, its thread rests for this many times as long, so that it takes a fiftieth of a core;
/// but no longer than [`LONGEST_REST`].
const REST: u32 = 49;
const LONGEST_REST: Duration = Duration::from_secs(1);

/// Who waits for the first room looks this often whether anybody still waits for the answer.
const LOOK_EVERY: Duration = Duration::from_millis(20);

static NO_NODES: BTreeSet<NodeName> = BTreeSet::new();
static NO_PROMISES: BTreeMap<ObjectKey, ClaimName> = BTreeMap::new();

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
    Patch,
    /// A bug of ours.
    Internal,
}

impl NoAnswer {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Overload => "overload",
            Self::Deadline => "deadline",
            Self::Patch => "patch",
            Self::Internal => "internal",
        }
    }
}

struct Ask {
    subject: Subject,
    answer: oneshot::Sender<Result<PlacementHint, NoAnswer>>,
}

/// The way to hints. Its threads end when it is dropped.
pub(crate) struct Hinter {
    desk: mpsc::Sender<Box<Ask>>,
    snapshots: Snapshots,
    office: Arc<Office>,
}

impl fmt::Debug for Hinter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hinter").finish_non_exhaustive()
    }
}

impl Hinter {
    /// Starts the threads, before which at most `queue` pods wait.
    pub(crate) fn start(snapshots: Snapshots, clock: Arc<dyn Clock>, queue: usize) -> io::Result<Self> {
        let (desk, asked) = mpsc::channel(queue.max(1));
        let office = Arc::new(Office { room: Mutex::default(), ready: Condvar::new(), clock });
        let serving = Arc::clone(&office);
        std::thread::Builder::new().name("hints".to_owned()).spawn(move || serving.serve(asked))?;
        let (renewing, changes) = (Arc::downgrade(&office), snapshots.clone());
        let runtime = runtime::Builder::new_current_thread().enable_time().build()?;
        let renew = move || runtime.block_on(keep_new(&renewing, changes));
        std::thread::Builder::new().name("room".to_owned()).spawn(renew)?;
        Ok(Self { desk, snapshots, office })
    }

    /// Waits until pods are answered by what is known now.
    #[cfg(test)]
    pub(crate) async fn caught_up(&self) {
        let is = || {
            let known = self.snapshots.borrow().clone();
            let room = lock(&self.office.room);
            let now = self.office.clock.now();
            room.as_ref().zip(known).is_some_and(|(room, known)| room.is_of(&known) && !room.recent.has_old(now))
        };
        while !is() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Where a pod will probably run; `None` when that is not known.
    pub(crate) async fn ask(&self, subject: Subject, budget: Duration) -> Result<Option<PlacementHint>, NoAnswer> {
        if self.snapshots.borrow().is_none() {
            return Ok(None);
        }
        if let Some(hint) = self.office.answer_at_once(&subject)? {
            return Ok(Some(hint));
        }
        let (answer, answered) = oneshot::channel();
        self.desk.try_send(Box::new(Ask { subject, answer })).map_err(|error| match error {
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
    recent: Recent,
}

/// What all who answer share.
struct Office {
    /// None before the first time, and after a mishap.
    room: Mutex<Option<Room>>,
    /// Rings when there is room again.
    ready: Condvar,
    clock: Arc<dyn Clock>,
}

impl Office {
    /// Answers what is asked at the desk, until nobody can ask any more.
    fn serve(&self, mut asked: mpsc::Receiver<Box<Ask>>) {
        while let Some(ask) = asked.blocking_recv() {
            let Ask { subject, answer } = *ask;
            // Nobody waits any more for one that is closed: the time is better spent on the next.
            while !answer.is_closed() {
                let room = self.ready.wait_timeout_while(lock(&self.room), LOOK_EVERY, |room| room.is_none());
                let (mut room, _) = room.unwrap_or_else(PoisonError::into_inner);
                let find = |standing: &mut IncrementalScheduler| Some(standing.find(&subject.pod));
                if let Some(hint) = self.hint(&mut room, &subject, find).transpose() {
                    drop(answer.send(hint));
                    break;
                }
            }
        }
    }

    /// The answer, where nobody has to wait for it.
    fn answer_at_once(&self, subject: &Subject) -> Result<Option<PlacementHint>, NoAnswer> {
        let Ok(mut room) = self.room.try_lock() else { return Ok(None) };
        self.hint(&mut room, subject, |standing| standing.find_cached(&subject.pod))
    }

    /// What is said of a place that is found, which is taken then. `None` when there is no room, or nothing is found out.
    fn hint(
        &self,
        room: &mut Option<Room>,
        subject: &Subject,
        find: impl FnOnce(&mut IncrementalScheduler) -> Option<Result<Placement, Unschedulable>>,
    ) -> Result<Option<PlacementHint>, NoAnswer> {
        let Some(there) = room else { return Ok(None) };
        let now = self.clock.now();
        let hinted = catch_unwind(AssertUnwindSafe(|| there.hint(now, subject, find)));
        hinted.map_err(|_| {
            // What was stumbled over may be among the recent.
            *room = None;
            NoAnswer::Internal
        })
    }

    /// Works the room out anew, and lets pods take from that. False when something went wrong: then there is none.
    fn renew(&self, snapshot: &Arc<Snapshot>, market: &AvailableOfferings) -> bool {
        let known = lock(&self.room).as_ref().map(|room| room.recent.clone());
        let (had_room, since) = (known.is_some(), self.clock.now());
        let worked_out = catch_unwind(|| Room::work_out(snapshot, market, since, known.unwrap_or_default()));
        let mut current = lock(&self.room);
        let old = current.take();
        let new = worked_out.and_then(|room| match &old {
            Some(old) => catch_unwind(AssertUnwindSafe(|| room.caught_up(&old.recent))),
            None => Ok(room),
        });
        // Where the old one is gone there was a mishap, and what it left behind is in the new one too.
        *current = new.ok().filter(|_| old.is_some() || !had_room);
        let is_there = current.is_some();
        drop(current);
        self.ready.notify_all();
        // Nobody needs to wait until the picture of a whole cluster is put away.
        drop(old);
        is_there
    }

    /// True when pods should be answered by this cluster, and are not.
    fn is_behind(&self, snapshot: &Arc<Snapshot>) -> bool {
        let now = self.clock.now();
        let every = SignedDuration::try_from(RENEWED_EVERY).unwrap_or(SignedDuration::MAX);
        lock(&self.room).as_ref().is_none_or(|room| {
            let is_due = || room.recent.has_old(now) && now.duration_since(room.since).abs() >= every;
            !room.is_of(snapshot) || is_due()
        })
    }
}

impl Room {
    /// The room that is left in a cluster when all that were let in lately have theirs.
    fn work_out(snapshot: &Arc<Snapshot>, market: &AvailableOfferings, since: Timestamp, mut recent: Recent) -> Self {
        let input = Input {
            snapshot,
            available: market,
            excluded_nodes: &NO_NODES,
            max_new_nodes: MAX_NEW_NODES,
            claim_of_pod: &NO_PROMISES,
        };
        let mut standing = IncrementalScheduler::new(input);
        recent.settle(since, snapshot, &mut standing);
        // What is looked up for the first pod of a shape is not left to whoever asks next.
        recent.shapes().into_values().for_each(|pod| drop(standing.find(pod)));
        Self { snapshot: Arc::clone(snapshot), since, standing, recent }
    }

    /// The same when those have taken theirs too who were let in meanwhile.
    fn caught_up(mut self, recent: &Recent) -> Self {
        self.recent.catch_up(recent, &mut self.standing);
        self
    }

    fn is_of(&self, snapshot: &Arc<Snapshot>) -> bool {
        Arc::ptr_eq(&self.snapshot, snapshot)
    }

    fn hint(
        &mut self,
        now: Timestamp,
        subject: &Subject,
        find: impl FnOnce(&mut IncrementalScheduler) -> Option<Result<Placement, Unschedulable>>,
    ) -> Option<PlacementHint> {
        let Subject { pod, prefix, noted, dry_run, .. } = subject;
        if let Some(hint) = noted.as_ref().filter(|hint| self.recent.has(now, pod, hint)) {
            return Some(hint.clone());
        }
        let found = find(&mut self.standing)?;
        let shared = found.as_ref().is_ok_and(|spot| self.standing.is_shared(spot));
        let hint = of_place(&found, shared);
        if let Ok(spot) = found
            && !dry_run
            && self.standing.take(pod, &spot)
        {
            self.recent.note(now, (Arc::clone(pod), prefix.clone()), (spot, hint.clone()));
        }
        Some(hint)
    }
}

/// Keeps the room as new as the cluster, until nobody can ask any more.
async fn keep_new(office: &Weak<Office>, mut snapshots: Snapshots) {
    let mut sold: Option<Sold> = None;
    loop {
        let Some(office) = office.upgrade() else { return };
        let begun = Instant::now();
        let snapshot = snapshots.borrow_and_update().clone().filter(|snapshot| office.is_behind(snapshot));
        let renewed = snapshot.map(|snapshot| {
            sold =
                sold.take().filter(|sold| sold.holds(&snapshot)).or_else(|| catch_unwind(|| Sold::of(&snapshot)).ok());
            sold.as_ref().is_some_and(|sold| office.renew(&snapshot, &sold.market))
        });
        let rest = match renewed {
            None => Duration::ZERO,
            Some(true) => begun.elapsed().saturating_mul(REST).min(LONGEST_REST),
            // Whoever stumbles may stumble over the same again at once.
            Some(false) => LONGEST_REST,
        };
        drop(office);
        tokio::time::sleep(rest).await;
        let ended = tokio::time::timeout(RENEWED_EVERY, snapshots.changed()).await.is_ok_and(|seen| seen.is_err());
        if ended {
            tokio::time::sleep(RENEWED_EVERY).await;
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
    fn of(snapshot: &Snapshot) -> Self {
        let (generations, types) = (generations(snapshot), snapshot.instance_types.clone());
        Self { market: market(snapshot), generations, types }
    }

    /// True while nothing has changed that it was worked out of.
    fn holds(&self, snapshot: &Snapshot) -> bool {
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
        Subject { pod: Arc::new(pod), prefix: None, annotations: None, noted: None, dry_run: false }
    }

    fn office() -> Office {
        let clock = Arc::new(crate::tests::HandClock::default());
        Office { room: Mutex::default(), ready: Condvar::new(), clock }
    }

    #[test]
    fn a_mishap_empties_the_room_and_also_the_one_that_is_being_worked_out() {
        let (office, snapshot) = (office(), Arc::new(Snapshot::default()));
        let market = market(&snapshot);
        let stumble = || {
            let mut room = lock(&office.room);
            let answer = office.hint(&mut room, &subject("a"), |_| panic!("on purpose"));
            assert_eq!((answer, room.is_none()), (Err(NoAnswer::Internal), true));
        };
        assert!(office.is_behind(&snapshot) && office.renew(&snapshot, &market) && !office.is_behind(&snapshot));
        stumble();
        assert!(office.is_behind(&snapshot) && office.renew(&snapshot, &market));
        assert_eq!(office.answer_at_once(&subject("a")), Ok(None), "no such pod has been here");
        stumble();
        assert_eq!(office.answer_at_once(&subject("a")), Ok(None));
    }

    #[tokio::test]
    async fn who_finds_the_queue_full_or_waits_for_too_long_goes_without() {
        let (_cluster, snapshots) = watch::channel(Some(Arc::new(Snapshot::default())));
        let (desk, received) = mpsc::channel(1);
        let hinter = Hinter { desk, snapshots, office: Arc::new(office()) };
        let ask = || hinter.ask(subject("a"), Duration::from_millis(5));
        assert_eq!(ask().await, Err(NoAnswer::Deadline));
        assert_eq!(ask().await, Err(NoAnswer::Overload), "the first is still in the queue");
        drop(received);
        assert_eq!(ask().await, Err(NoAnswer::Internal));
    }
}
