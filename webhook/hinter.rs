//! The hinter: who computes placement hints, and how is that bounded?
//!
//! One thread of its own: hints never take more than one core, and what the pools may buy is worked out once for many
//! pods. The queue to it is short; whoever finds it full, or waits for too long, goes without a hint.

use crate::hint::{PlacementHint, hint, market};
use napkeeper_core::cluster::Snapshot;
use napkeeper_core::cluster::pod::Pod;
use napkeeper_core::scheduling::Market;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// The cluster as it is known now; `None` until it is known whole.
pub(crate) type Snapshots = watch::Receiver<Option<Arc<Snapshot>>>;

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// Too many pods wait for theirs.
    Overload,
    /// It took too long.
    Deadline,
    /// A bug of ours.
    Internal,
}

impl NoAnswer {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Overload => "overload",
            Self::Deadline => "deadline",
            Self::Internal => "internal",
        }
    }
}

struct Ask {
    pod: Pod,
    answer: oneshot::Sender<Result<Option<PlacementHint>, NoAnswer>>,
}

/// The way to the thread that computes hints. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Hinter {
    asks: mpsc::Sender<Ask>,
}

impl Hinter {
    /// Starts the thread, before which at most `queue` pods wait.
    pub(crate) fn start(snapshots: Snapshots, queue: usize) -> io::Result<Self> {
        let (asks, received) = mpsc::channel(queue.max(1));
        std::thread::Builder::new().name("hints".to_owned()).spawn(move || serve(received, &snapshots))?;
        Ok(Self { asks })
    }

    /// Where a pod will probably run; `None` when that is not known.
    pub(crate) async fn ask(&self, pod: Pod, budget: Duration) -> Result<Option<PlacementHint>, NoAnswer> {
        let (answer, answered) = oneshot::channel();
        self.asks.try_send(Ask { pod, answer }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => NoAnswer::Overload,
            mpsc::error::TrySendError::Closed(_) => NoAnswer::Internal,
        })?;
        match tokio::time::timeout(budget, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(NoAnswer::Internal),
            Err(_) => Err(NoAnswer::Deadline),
        }
    }
}

fn serve(mut asks: mpsc::Receiver<Ask>, snapshots: &Snapshots) {
    let mut next = asks.blocking_recv();
    while let Some(ask) = next {
        let Some(basis) = snapshots.borrow().clone() else {
            // Whoever has stopped waiting needs no answer.
            drop(ask.answer.send(Ok(None)));
            next = asks.blocking_recv();
            continue;
        };
        next = match catch_unwind(AssertUnwindSafe(|| market(&basis))) {
            Ok(market) => serve_market(ask, &mut asks, snapshots, (&basis, &market)),
            Err(_) => {
                drop(ask.answer.send(Err(NoAnswer::Internal)));
                asks.blocking_recv()
            }
        };
    }
}

/// Answers while pools, classes and DaemonSets stay as they are; returns the first ask that finds them changed.
fn serve_market(
    first: Ask,
    asks: &mut mpsc::Receiver<Ask>,
    snapshots: &Snapshots,
    (basis, market): (&Snapshot, &Market<'_>),
) -> Option<Ask> {
    let mut next = Some(first);
    while let Some(Ask { pod, answer }) = next {
        let current = snapshots.borrow().clone();
        let Some(snapshot) = current.filter(|now| same_market(now, basis)) else {
            return Some(Ask { pod, answer });
        };
        // Nobody waits any more: the time is better spent on the next.
        if !answer.is_closed() {
            let hint = catch_unwind(AssertUnwindSafe(|| hint(&snapshot, market, pod)));
            drop(answer.send(hint.map_err(|_| NoAnswer::Internal)));
        }
        next = asks.blocking_recv();
    }
    None
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
        let ask = || hinter.ask(pod.clone(), Duration::from_millis(5));
        assert_eq!(ask().await, Err(NoAnswer::Deadline));
        assert_eq!(ask().await, Err(NoAnswer::Overload), "the first is still in the queue");
        drop(received);
        assert_eq!(ask().await, Err(NoAnswer::Internal));
    }
}
