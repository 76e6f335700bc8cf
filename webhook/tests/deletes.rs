//! Deletes in a large cluster: how long they take, and whether they hold up other reviews.

use crate::Limits;
use crate::tests::cluster::run;
use crate::tests::{Rig, good_pool, review, world};
use napkeeper_api::manifests::{Object, object};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const NODES: usize = 500;
const PODS_OF_A_NODE: usize = 20;
/// Clients that send deletes one after the other.
const CLIENTS: usize = 32;
const LASTS: Duration = Duration::from_secs(4);
/// Pause of a client after each answer.
const PAUSE: Duration = Duration::from_millis(2);

/// Times in milliseconds: median, 99th percentile, longest.
fn figures(took: &mut [Duration]) -> (f64, f64, f64) {
    took.sort();
    let ms = |at: usize| took.get(at).or_else(|| took.last()).map_or(f64::NAN, |time| time.as_secs_f64() * 1000.0);
    (ms(took.len() / 2), ms(took.len() * 99 / 100), ms(took.len().saturating_sub(1)))
}

/// Sends a review again and again until it is stopped; the answers' times, and the last answer.
async fn repeat(rig: Arc<Rig>, review: Value, stop: Arc<AtomicBool>) -> (Vec<Duration>, Vec<Value>) {
    let (mut took, mut answers) = (Vec::new(), Vec::new());
    while !stop.load(Ordering::SeqCst) {
        // A thread that is busy with something else delays the beginning.
        let due = Instant::now() + PAUSE;
        tokio::time::sleep_until(due.into()).await;
        answers.push(rig.ask("/validate", &review).await);
        took.push(due.elapsed());
    }
    (took, answers)
}

/// The times of writes while deletes are sent, or are not.
async fn writes(rig: &Arc<Rig>, deletes: usize) -> (Vec<Duration>, Vec<Duration>, Vec<Value>) {
    let stop = Arc::new(AtomicBool::new(false));
    let delete = review("DELETE", "karpenter.sh", &Value::Null, &good_pool());
    let deleting: Vec<_> =
        (0..deletes).map(|_| tokio::spawn(repeat(Arc::clone(rig), delete.clone(), Arc::clone(&stop)))).collect();
    let write = review("CREATE", "karpenter.sh", &good_pool(), &Value::Null);
    let writing = tokio::spawn(repeat(Arc::clone(rig), write, Arc::clone(&stop)));
    tokio::time::sleep(LASTS).await;
    stop.store(true, Ordering::SeqCst);
    let (mut deleted, mut answers) = (Vec::new(), Vec::new());
    for task in deleting {
        let (took, answered) = task.await.unwrap();
        deleted.extend(took);
        answers.extend(answered);
    }
    (writing.await.unwrap().0, deleted, answers)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_deletes_is_denied_in_time_and_holds_up_no_write() {
    let mut snapshot = world();
    // Where the pods could go.
    let mut other = good_pool();
    other["metadata"]["name"] = json!("other");
    match object(&other).unwrap() {
        Object::NodePool(pool) => snapshot.put_pool(pool.name.clone(), *pool),
        other => panic!("{other:?}"),
    }
    (0..NODES).for_each(|n| run(&mut snapshot, &format!("n{n}"), PODS_OF_A_NODE));
    let limits = Limits::default();
    let rig = Arc::new(Rig::new(Some(snapshot), limits));
    let general = review("DELETE", "karpenter.sh", &Value::Null, &good_pool());
    let empty = review("DELETE", "karpenter.sh", &Value::Null, &other);
    let mut alone = [Vec::new(), Vec::new()];
    for _ in 0..10 {
        for (delete, took) in [&general, &empty].into_iter().zip(&mut alone) {
            let start = Instant::now();
            rig.ask("/validate", delete).await;
            took.push(start.elapsed());
        }
    }
    let [mut with_nodes, mut without] = alone;
    let (one, two) = (figures(&mut with_nodes), figures(&mut without));
    println!("a delete of a NodePool with {NODES} nodes: {:.1} ms, without nodes: {:.2} ms (median)", one.0, two.0);
    assert!(two.0 * 5.0 < one.0, "a delete of a NodePool without nodes runs the scheduler");

    let (mut quiet, _, _) = writes(&rig, 0).await;
    let (mut during, mut deleted, answers) = writes(&rig, CLIENTS).await;
    let (before, after, deletes) = (figures(&mut quiet), figures(&mut during), figures(&mut deleted));
    let complete = answers.iter().filter(|answer| answer.to_string().contains("rescheduled")).count();
    println!("writes: p50 {:.1}, p99 {:.1}, max {:.1} ms", before.0, before.1, before.2);
    println!(
        "writes during deletes of {CLIENTS} clients: p50 {:.1}, p99 {:.1}, max {:.1} ms",
        after.0, after.1, after.2
    );
    println!(
        "deletes: {} in {LASTS:?}, {complete} of them with consequences: p50 {:.1}, p99 {:.1}, max {:.1} ms",
        answers.len(),
        deletes.0,
        deletes.1,
        deletes.2
    );
    for answer in &answers {
        let message = answer["status"]["message"].as_str().unwrap();
        assert!(answer["allowed"] == false && message.contains(&format!("has {NODES} nodes")), "{answer}");
    }
    assert!(complete > 0, "no delete was answered with its consequences");
    assert!(deletes.2 < 2_000.0, "the API server waits for 2 s");
    // Most are answered at once, without their consequences.
    assert!(deletes.0 < one.0 * 10.0, "a delete waited for the others");
    assert!(after.1 < (one.0 / 2.0).max(50.0), "a write waited for the scheduler");
}
