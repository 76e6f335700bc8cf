//! Measures the two promises of the deciders on this machine: placing a thousand waiting pods, and deciding after one
//! event in a large cluster. Prints what it ran; `cargo run --release -p napkeeper-tests --example bench`.

#![expect(clippy::print_stdout, reason = "its output is its purpose")]

use jiff::SignedDuration;
use napkeeper_core::engine::decide::{Memory, decide};
use napkeeper_core::scheduling::{AvailableOfferings, Input, MAX_NEW_NODES, UnavailableOfferings, schedule};
use napkeeper_tests::fixtures;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

fn main() {
    place_a_thousand();
    decide_after_one_event();
}

fn place_a_thousand() {
    let snapshot = fixtures::empty_cluster();
    let pods = fixtures::waiting_pods(1000, 50);
    let offerings: usize = snapshot.instance_types.values().flat_map(|t| t.iter()).map(|t| t.offerings.len()).sum();
    let (unavailable, without, promised) = (UnavailableOfferings::default(), BTreeSet::new(), BTreeMap::new());
    let (times, outcome) = measured(11, || {
        let market = AvailableOfferings::new(&snapshot, &unavailable, fixtures::instant());
        let (snapshot, market, without, promised) = (&snapshot, &market, &without, &promised);
        let input = Input {
            snapshot,
            available: market,
            excluded_nodes: without,
            max_new_nodes: MAX_NEW_NODES,
            claim_of_pod: promised,
        };
        schedule(input, &pods)
    });
    let price: i64 = outcome.new_nodes.iter().filter_map(|n| n.offerings.first()).map(|o| o.price.nanos()).sum();
    println!("schedule: 1000 pods in 50 shapes with zone spread, {offerings} offerings of westeurope");
    println!(
        "  {} new nodes, {} unplaced, ${:.4}/h",
        outcome.new_nodes.len(),
        outcome.unschedulable_pods(),
        price as f64 / 1e9
    );
    report(&times);
}

fn decide_after_one_event() {
    let mut snapshot = fixtures::busy_cluster(1000, 20_000);
    let settings = fixtures::settings();
    let shape = fixtures::shape("late", 1000, 1024, true);
    println!("decide: one more waiting pod in a cluster of 1000 nodes and 20000 pods");
    let mut times = Vec::new();
    for i in 0..11_i64 {
        let mut memory = Memory::default();
        let now = fixtures::instant() + SignedDuration::from_mins(i);
        let _first = decide(&snapshot, &mut memory, &settings, now, 1);
        let pod = fixtures::pod(&shape, &format!("late-{i}"), None);
        let key = pod.key.clone();
        snapshot.put_pod(pod);
        let start = Instant::now();
        let _waits = decide(&snapshot, &mut memory, &settings, now, 1);
        let plan = decide(&snapshot, &mut memory, &settings, now + SignedDuration::from_secs(2), 1);
        times.push(start.elapsed());
        assert!(!plan.commands.is_empty(), "a waiting pod asks for a node");
        snapshot.remove_pod(&key);
    }
    report(&times);
}

fn measured<T>(runs: usize, mut run: impl FnMut() -> T) -> (Vec<Duration>, T) {
    let mut times = Vec::new();
    let mut last = run();
    for _ in 0..runs {
        let start = Instant::now();
        last = run();
        times.push(start.elapsed());
    }
    (times, last)
}

fn report(times: &[Duration]) {
    let mut times = times.to_vec();
    times.sort();
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    println!(
        "  {} runs: min {:.2} ms, median {:.2} ms, max {:.2} ms",
        times.len(),
        ms(times[0]),
        ms(times[times.len() / 2]),
        ms(times[times.len() - 1])
    );
}
