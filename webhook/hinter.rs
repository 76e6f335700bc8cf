//! The hinter: who computes placement hints, and how is that bounded?
//!
//! Two threads take turns. One answers out of the room that is left, from which each pod takes its part; the other waits
//! until the cluster has changed, works the room out anew, and relieves the first. So no pod waits while thousands of
//! others are counted. The queue is short; whoever finds it full, or waits for too long, goes without a hint.

use crate::hint::{PlacementHint, market, of_place};
use crate::mutate::Subject;
use crate::recent::Recent;
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::clock::Clock;
use napkeeper_core::cluster::Snapshot;
use napkeeper_core::names::{ClaimName, NodeName, ObjectKey};
use napkeeper_core::scheduling::{Input, MOST_NEW_NODES, Market, Standing};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime;
use tokio::sync::{mpsc, oneshot, watch};

/// Pods that no longer count give their room back this often, if the cluster does not change before.
const RENEWED_EVERY: Duration = Duration::from_secs(1);

/// After a thread has worked the room out, it rests for this many times as long, so that both together take a twenty-fifth
/// of a core; but no longer than [`LONGEST_REST`].
const REST: u32 = 49;
const LONGEST_REST: Duration = Duration::from_secs(1);

/// Who waits for the desk looks this often whether it still should.
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
    answer: oneshot::Sender<Option<PlacementHint>>,
}

/// What comes over the desk.
enum Message {
    Ask(Box<Ask>),
    /// Look up: somebody may have come to relieve you.
    Look,
}

/// The way to the threads that compute hints. They end when this is dropped.
pub(crate) struct Hinter {
    desk: mpsc::Sender<Message>,
    snapshots: Snapshots,
    #[cfg(test)]
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
        let (sender, desk) = mpsc::channel(queue.max(1));
        let office = Arc::new(Office::new(&sender, desk, clock));
        for name in ["hints-1", "hints-2"] {
            let (office, mut snapshots) = (Arc::clone(&office), snapshots.clone());
            let runtime = runtime::Builder::new_current_thread().enable_time().build()?;
            let work = move || office.work(&runtime, &mut snapshots);
            std::thread::Builder::new().name(name.to_owned()).spawn(work)?;
        }
        Ok(Self {
            desk: sender,
            snapshots,
            #[cfg(test)]
            office,
        })
    }

    /// Waits until pods are answered by what is known now.
    #[cfg(test)]
    pub(crate) async fn caught_up(&self) {
        let is = || {
            let known = self.snapshots.borrow().clone();
            let now = self.office.clock.now();
            let old = lock(&self.office.recent).has_old(now);
            !old && lock(&self.office.current).as_ref().is_some_and(|current| {
                current.serves && known.is_some_and(|known| Arc::ptr_eq(&known, &current.snapshot))
            })
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
        let (answer, answered) = oneshot::channel();
        self.desk.try_send(Message::Ask(Box::new(Ask { subject, answer }))).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => NoAnswer::Overload,
            mpsc::error::TrySendError::Closed(_) => NoAnswer::Internal,
        })?;
        match tokio::time::timeout(budget, answered).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(NoAnswer::Internal),
            Err(_) => Err(NoAnswer::Deadline),
        }
    }
}

/// A cluster that nobody answers by yet, and the turn in which somebody will.
struct News {
    snapshot: Arc<Snapshot>,
    turn: u64,
}

/// What the room was worked out of.
struct Current {
    snapshot: Arc<Snapshot>,
    /// Grows from one to the next.
    turn: u64,
    since: Timestamp,
    /// Somebody answers by it.
    serves: bool,
}

/// What the two threads share.
struct Office {
    /// Wakes whoever sits at the desk. Gone when nobody can ask any more.
    bell: mpsc::WeakSender<Message>,
    /// Whoever has it answers; it is here while nobody does.
    desk: Mutex<Option<mpsc::Receiver<Message>>>,
    /// Rings when the desk is free.
    free: Condvar,
    recent: Mutex<Recent>,
    /// What the room was last worked out of; none before the first time, and after a mishap.
    current: Mutex<Option<Current>>,
    /// How many turns have been given.
    turns: AtomicU64,
    /// The last turn that somebody has come to the desk for.
    turn: AtomicU64,
    clock: Arc<dyn Clock>,
}

impl Office {
    fn new(bell: &mpsc::Sender<Message>, desk: mpsc::Receiver<Message>, clock: Arc<dyn Clock>) -> Self {
        Self {
            bell: bell.downgrade(),
            desk: Mutex::new(Some(desk)),
            free: Condvar::new(),
            recent: Mutex::default(),
            current: Mutex::default(),
            turns: AtomicU64::new(0),
            turn: AtomicU64::new(0),
            clock,
        }
    }

    /// Works until nobody can ask any more.
    fn work(&self, runtime: &runtime::Runtime, snapshots: &mut Snapshots) {
        let mut news = runtime.block_on(self.change(snapshots));
        while let Some(first) = news {
            let worked = catch_unwind(AssertUnwindSafe(|| self.work_in_market(first, runtime, snapshots)));
            news = worked.unwrap_or_else(|_| {
                // Whoever asked finds its way back closed. What was stumbled over may be among the recent.
                lock(&self.recent).clear();
                *lock(&self.current) = None;
                runtime.block_on(async {
                    // It may be stumbled over again at once.
                    tokio::time::sleep(LONGEST_REST).await;
                    self.change(snapshots).await
                })
            });
        }
    }

    /// Works while pools, classes and DaemonSets stay as they are; returns the first news of others.
    fn work_in_market(&self, first: News, runtime: &runtime::Runtime, snapshots: &mut Snapshots) -> Option<News> {
        let basis = first.snapshot.market_only();
        let market = market(&basis);
        let mut news = first;
        while same_market(&news.snapshot, &basis) {
            let News { snapshot, turn } = news;
            let begun = Instant::now();
            let standing = self.work_out(&snapshot, &market);
            let rest = begun.elapsed().saturating_mul(REST).min(LONGEST_REST);
            self.serve(turn, standing);
            // It may be long until the next, and each keeps a picture of the whole cluster.
            drop(snapshot);
            news = runtime.block_on(async {
                tokio::time::sleep(rest.saturating_sub(begun.elapsed())).await;
                self.change(snapshots).await
            })?;
        }
        Some(news)
    }

    /// Waits for a cluster other than the current one, or until pods no longer count that do in it. `None` when nobody can
    /// ask any more.
    async fn change(&self, snapshots: &mut Snapshots) -> Option<News> {
        loop {
            self.bell.upgrade()?;
            let snapshot = snapshots.borrow_and_update().clone();
            if let Some(news) = snapshot.and_then(|snapshot| self.news(snapshot)) {
                return Some(news);
            }
            let ended = tokio::time::timeout(RENEWED_EVERY, snapshots.changed()).await.is_ok_and(|seen| seen.is_err());
            if ended {
                tokio::time::sleep(RENEWED_EVERY).await;
            }
        }
    }

    /// The turn in which a cluster is answered by, if nobody has taken that yet.
    fn news(&self, snapshot: Arc<Snapshot>) -> Option<News> {
        let now = self.clock.now();
        let has_old = lock(&self.recent).has_old(now);
        let mut current = lock(&self.current);
        let is_due = |since: Timestamp| {
            let every = SignedDuration::try_from(RENEWED_EVERY).unwrap_or(SignedDuration::MAX);
            has_old && now.duration_since(since).abs() >= every
        };
        if current.as_ref().is_some_and(|known| Arc::ptr_eq(&known.snapshot, &snapshot) && !is_due(known.since)) {
            return None;
        }
        let turn = self.turns.fetch_add(1, Ordering::SeqCst) + 1;
        *current = Some(Current { snapshot: Arc::clone(&snapshot), turn, since: now, serves: false });
        Some(News { snapshot, turn })
    }

    /// The room that is left when all that were let in lately have theirs.
    fn work_out<'a>(&self, snapshot: &'a Snapshot, market: &'a Market<'a>) -> (Standing<'a>, Recent) {
        let input = Input { snapshot, market, without: &NO_NODES, new_nodes: MOST_NEW_NODES, promised: &NO_PROMISES };
        let mut standing = Standing::new(input);
        let mut recent = lock(&self.recent).clone();
        recent.settle(self.clock.now(), snapshot, &mut standing);
        // What is looked up for the first pod of a shape is not left to whoever asks next.
        recent.shapes().into_values().for_each(|pod| drop(standing.find(pod)));
        (standing, recent)
    }

    /// Relieves the other thread, and answers until that comes back.
    fn serve(&self, turn: u64, (mut standing, mut settled): (Standing<'_>, Recent)) {
        if self.turn.fetch_max(turn, Ordering::SeqCst) > turn {
            // The other one was quicker, and knows something newer.
            return;
        }
        if let Some(bell) = self.bell.upgrade() {
            // A full desk needs no bell.
            drop(bell.try_send(Message::Look));
        }
        let Some(mut seat) = self.sit(turn) else { return };
        settled.catch_up(&lock(&self.recent), &mut standing);
        *lock(&self.recent) = settled;
        if let Some(current) = lock(&self.current).as_mut() {
            current.serves = current.turn == turn;
        }
        while let Some(message) = seat.desk.as_mut().and_then(mpsc::Receiver::blocking_recv) {
            // Nobody waits any more for one that is closed: the time is better spent on the next.
            if let Message::Ask(ask) = message
                && !ask.answer.is_closed()
            {
                let Ask { subject, answer } = *ask;
                drop(answer.send(Some(self.answer(subject, &mut standing))));
            }
            if self.turn.load(Ordering::SeqCst) > turn {
                return;
            }
        }
    }

    /// Waits for the desk; `None` when somebody with something newer comes too: that one sits down, and stays.
    fn sit(&self, turn: u64) -> Option<Seat<'_>> {
        let mut desk = lock(&self.desk);
        loop {
            if self.turn.load(Ordering::SeqCst) > turn {
                return None;
            }
            if let Some(desk) = desk.take() {
                return Some(Seat { office: self, desk: Some(desk) });
            }
            desk = self.free.wait_timeout(desk, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn answer(&self, subject: Subject, standing: &mut Standing<'_>) -> PlacementHint {
        let Subject { pod, prefix, noted, dry_run, .. } = subject;
        let now = self.clock.now();
        if let Some(hint) = noted.filter(|hint| lock(&self.recent).has(now, &pod, hint)) {
            return hint;
        }
        let pod = Arc::new(pod);
        let found = standing.find(&pod);
        let shared = found.as_ref().is_ok_and(|spot| standing.shares(spot));
        let hint = of_place(&found, shared);
        if let Ok(spot) = found
            && !dry_run
            && standing.take(&pod, &spot)
        {
            lock(&self.recent).note(now, (pod, prefix), (spot, hint.clone()));
        }
        hint
    }
}

/// Whoever sits here answers. The desk is given back however that ends.
struct Seat<'o> {
    office: &'o Office,
    desk: Option<mpsc::Receiver<Message>>,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        *lock(&self.office.desk) = self.desk.take();
        self.office.free.notify_all();
    }
}

/// What one thread has left behind in a mishap is put right by [`Office::work`].
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn same_market(a: &Snapshot, b: &Snapshot) -> bool {
    let generations = |s: &Snapshot| {
        [s.pools().generation(), s.classes().generation(), s.daemon_sets().generation(), s.facts_generation()]
    };
    let same_types = || {
        a.instance_types.len() == b.instance_types.len()
            && a.instance_types.iter().zip(&b.instance_types).all(|(x, y)| x.0 == y.0 && Arc::ptr_eq(x.1, y.1))
    };
    generations(a) == generations(b) && same_types()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod as WirePod;
    use napkeeper_api::convert;
    use serde_json::json;

    #[test]
    fn who_is_overtaken_on_the_way_to_the_desk_leaves_it_to_the_other() {
        let (bell, desk) = mpsc::channel(1);
        let office = Office::new(&bell, desk, Arc::new(crate::tests::HandClock::default()));
        office.turn.store(2, Ordering::SeqCst);
        let seat = office.sit(2);
        assert!(seat.is_some() && office.sit(1).is_none(), "whoever is older does not even wait");
        std::thread::scope(|scope| {
            let later = scope.spawn(|| office.sit(2).is_some());
            drop(seat);
            assert!(later.join().unwrap(), "the desk is given back");
        });
        assert!(office.sit(1).is_none() && office.sit(2).is_some());
    }

    #[tokio::test]
    async fn who_finds_the_queue_full_or_waits_for_too_long_goes_without() {
        let (_cluster, snapshots) = watch::channel(Some(Arc::new(Snapshot::default())));
        let (desk, received) = mpsc::channel(1);
        let office = Arc::new(Office::new(&desk, mpsc::channel(1).1, Arc::new(crate::tests::HandClock::default())));
        let hinter = Hinter { desk, snapshots, office };
        let wire = json!({ "metadata": { "name": "a" }, "spec": { "containers": [] } });
        let pod = convert::pod(&serde_json::from_value::<WirePod>(wire).unwrap()).unwrap();
        let subject = || Subject { pod: pod.clone(), prefix: None, annotations: None, noted: None, dry_run: false };
        let ask = || hinter.ask(subject(), Duration::from_millis(5));
        assert_eq!(ask().await, Err(NoAnswer::Deadline));
        assert_eq!(ask().await, Err(NoAnswer::Overload), "the first is still in the queue");
        drop(received);
        assert_eq!(ask().await, Err(NoAnswer::Internal));
    }
}
