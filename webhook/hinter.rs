//! The hinter: who computes placement hints, and how is that bounded?
//!
//! One thread of its own: hints never take more than one core. What the pools may buy is worked out once for many pods,
//! and the room that is left once for each Snapshot; from then on each pod takes its part of it. The queue to it is
//! short; whoever finds it full, or waits for too long, goes without a hint.

use crate::hint::{PlacementHint, market, of_place};
use crate::mutate::Subject;
use crate::recent::Recent;
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::clock::Clock;
use napkeeper_core::cluster::Snapshot;
use napkeeper_core::scheduling::{Input, MOST_NEW_NODES, Market, Standing};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// Pods that no longer count give their room back this often, if the cluster does not change before.
const RENEWED_EVERY: SignedDuration = SignedDuration::from_secs(1);

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

/// The way to the thread that computes hints. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Hinter {
    asks: mpsc::Sender<Ask>,
}

impl Hinter {
    /// Starts the thread, before which at most `queue` pods wait.
    pub(crate) fn start(snapshots: Snapshots, clock: Arc<dyn Clock>, queue: usize) -> io::Result<Self> {
        let (asks, received) = mpsc::channel(queue.max(1));
        let world = World { snapshots, clock };
        std::thread::Builder::new().name("hints".to_owned()).spawn(move || serve(received, &world))?;
        Ok(Self { asks })
    }

    /// Where a pod will probably run; `None` when that is not known.
    pub(crate) async fn ask(&self, subject: Subject, budget: Duration) -> Result<Option<PlacementHint>, NoAnswer> {
        let (answer, answered) = oneshot::channel();
        self.asks.try_send(Ask { subject, answer }).map_err(|error| match error {
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

/// What the thread looks at.
struct World {
    snapshots: Snapshots,
    clock: Arc<dyn Clock>,
}

fn serve(mut asks: mpsc::Receiver<Ask>, world: &World) {
    let mut recent = Recent::default();
    let mut next = asks.blocking_recv();
    while let Some(ask) = next {
        let served = catch_unwind(AssertUnwindSafe(|| serve_market(ask, &mut asks, world, &mut recent)));
        next = served.unwrap_or_else(|_| {
            // Whoever asked finds its way back closed. What it stumbled over may be among these.
            recent = Recent::default();
            asks.blocking_recv()
        });
    }
}

/// Answers while pools, classes and DaemonSets stay as they are; returns the first ask that finds them changed.
fn serve_market(first: Ask, asks: &mut mpsc::Receiver<Ask>, world: &World, recent: &mut Recent) -> Option<Ask> {
    let Some(basis) = world.snapshots.borrow().clone() else {
        // Whoever has stopped waiting needs no answer.
        drop(first.answer.send(None));
        return asks.blocking_recv();
    };
    let market = market(&basis);
    let mut next = Some(first);
    while let Some(ask) = next {
        let current = world.snapshots.borrow().clone();
        let Some(snapshot) = current.filter(|now| same_market(now, &basis)) else {
            return Some(ask);
        };
        next = serve_snapshot(ask, asks, world, (&snapshot, &market), recent);
    }
    None
}

/// Answers while the cluster stays as it is; returns the first ask that finds it changed.
fn serve_snapshot(
    first: Ask,
    asks: &mut mpsc::Receiver<Ask>,
    world: &World,
    (snapshot, market): (&Arc<Snapshot>, &Market<'_>),
    recent: &mut Recent,
) -> Option<Ask> {
    let (without, promised) = (BTreeSet::new(), BTreeMap::new());
    let mut standing =
        Standing::new(Input { snapshot, market, without: &without, new_nodes: MOST_NEW_NODES, promised: &promised });
    let built = world.clock.now();
    recent.settle(built, snapshot, &mut standing);
    let mut next = Some(first);
    while let Some(Ask { subject, answer }) = next {
        let now = world.clock.now();
        // Nobody waits any more: the time is better spent on the next.
        if !answer.is_closed() {
            drop(answer.send(Some(answer_to(subject, now, &mut standing, recent))));
        }
        next = asks.blocking_recv();
        let now = world.clock.now();
        let is_current = world.snapshots.borrow().as_ref().is_some_and(|current| Arc::ptr_eq(current, snapshot));
        let is_fresh = now.duration_since(built).abs() < RENEWED_EVERY || !recent.has_old(now);
        if !is_current || !is_fresh {
            return next;
        }
    }
    None
}

fn answer_to(subject: Subject, now: Timestamp, standing: &mut Standing<'_>, recent: &mut Recent) -> PlacementHint {
    let Subject { pod, prefix, noted, dry_run } = subject;
    if let Some(hint) = noted.filter(|hint| recent.has(now, &pod, hint)) {
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
        recent.note(now, (pod, prefix), (spot, hint.clone()));
    }
    hint
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

    #[tokio::test]
    async fn who_finds_the_queue_full_or_waits_for_too_long_goes_without() {
        let (asks, received) = mpsc::channel(1);
        let hinter = Hinter { asks };
        let wire = json!({ "metadata": { "name": "a" }, "spec": { "containers": [] } });
        let pod = convert::pod(&serde_json::from_value::<WirePod>(wire).unwrap()).unwrap();
        let subject = || Subject { pod: pod.clone(), prefix: None, noted: None, dry_run: false };
        let ask = || hinter.ask(subject(), Duration::from_millis(5));
        assert_eq!(ask().await, Err(NoAnswer::Deadline));
        assert_eq!(ask().await, Err(NoAnswer::Overload), "the first is still in the queue");
        drop(received);
        assert_eq!(ask().await, Err(NoAnswer::Internal));
    }
}
