//! Measures plans over all sizes of westeurope in the embedded catalogue.

use napkeeper_core::model::cluster::pod::{Pod, PodAffinity, PodShape, PodTerm, Preferences, Spread};
use napkeeper_core::model::labels;
use napkeeper_core::model::requirements::{Requirement, Requirements};
use napkeeper_core::scheduling::{
    AvailableOfferings, Input, MAX_NEW_NODES, SchedulingResult, UnavailableOfferings, schedule,
};
use napkeeper_core::snapshot::Snapshot;
use napkeeper_tests::fixtures;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often each is measured; the median counts.
const REPEATS: usize = 5;

/// Measures all three, and prints a line for each.
pub(crate) fn measure() {
    let empty = fixtures::empty_cluster();
    let sizes: usize = empty.instance_types.values().map(|types| types.len()).sum();
    println!("\nthe real catalogue: {sizes} sizes of westeurope");
    measure_one("10,000 mixed pods of 200 apps", &empty, &mixed(200, 50));
    measure_one("100,000 pods in 200 shapes", &empty, &alike(200, 500));
    let busy = fixtures::busy_cluster(1_000, 20_000);
    let one = Arc::new(fixtures::pod(&fixtures::shape("late", 1_000, 1_024, true), "late", None));
    measure_one("one more pod in a cluster of 1,000 nodes and 20,000 pods", &busy, &[one]);
}

fn measure_one(case: &str, snapshot: &Snapshot, pods: &[Arc<Pod>]) {
    let market = AvailableOfferings::new(snapshot, &UnavailableOfferings::default(), fixtures::instant());
    let (without, promised) = (BTreeSet::new(), BTreeMap::new());
    let input = Input {
        snapshot,
        available: &market,
        excluded_nodes: &without,
        max_new_nodes: MAX_NEW_NODES,
        claim_of_pod: &promised,
    };
    let mut times: Vec<(Duration, SchedulingResult)> = (0..REPEATS)
        .map(|_| {
            let begun = Instant::now();
            let outcome = schedule(input, pods);
            (begun.elapsed(), outcome)
        })
        .collect();
    times.sort_by_key(|(time, _)| *time);
    let (time, outcome) = &times[REPEATS / 2];
    let price: i64 = outcome.new_nodes.iter().filter_map(|n| n.offerings.first()).map(|o| o.price.nanos()).sum();
    println!(
        "  {case}: {:.1} ms; {} new nodes for {:.2} USD/h, {} unplaced",
        time.as_secs_f64() * 1000.0,
        outcome.new_nodes.len(),
        price as f64 / 1e9,
        outcome.unschedulable_pods(),
    );
}

/// Pods of apps with different constraints on other pods, or none.
fn mixed(apps: usize, replicas: usize) -> Vec<Arc<Pod>> {
    let shapes = (0..apps).map(|app| {
        let name = format!("app-{app}");
        let plain =
            fixtures::shape(&name, [100, 250, 500, 1_000, 1_500][app % 5], [100, 512, 1_024, 4_096][app % 4], false);
        let mut shape = PodShape::clone(&plain);
        let own = selecting(&name);
        let term = |key: &str| PodTerm {
            topology_key: labels::interned(key),
            namespaces: [shape.namespace.clone()].into(),
            namespace_selector: None,
            selector: own.clone(),
        };
        match app % 8 {
            0 => shape.spread.push(Spread::over(labels::ZONE, 1, own.clone())),
            1 => shape.spread.push(Spread::over(labels::HOSTNAME, 2, own.clone())),
            2 => shape.affinity = Some(Box::new(PodAffinity { near: vec![term(labels::ZONE)], apart: Vec::new() })),
            3 => shape.affinity = Some(Box::new(PodAffinity { near: Vec::new(), apart: vec![term(labels::HOSTNAME)] })),
            4 => {
                let apart = vec![(10, term(labels::HOSTNAME))];
                shape.preferences = Some(Box::new(Preferences { apart, ..Preferences::default() }));
            }
            5 => shape.selector.add(labels::CAPACITY_TYPE, Requirement::any_of(["on-demand"])),
            _ => {}
        }
        shape
    });
    pods(shapes, replicas)
}

/// Pods with different requests, some of them in one zone.
fn alike(shapes: usize, replicas: usize) -> Vec<Arc<Pod>> {
    let shapes = (0..shapes).map(|n| {
        let step = n as i64;
        let shape = fixtures::shape(&format!("app-{n}"), 100 + 37 * step % 4_000, 128 + 211 * step % 16_000, false);
        let mut shape = PodShape::clone(&shape);
        if n % 4 == 0 {
            let zone = format!("westeurope-{}", n % 3 + 1);
            shape.selector.add(labels::ZONE, Requirement::any_of([zone]));
        }
        shape
    });
    pods(shapes, replicas)
}

fn selecting(app: &str) -> Requirements {
    let mut selector = Requirements::new();
    selector.add("app", Requirement::any_of([app]));
    selector
}

fn pods(shapes: impl Iterator<Item = PodShape>, replicas: usize) -> Vec<Arc<Pod>> {
    let replicas = |(n, shape): (usize, PodShape)| {
        let shape = Arc::new(shape);
        (0..replicas).map(move |i| Arc::new(fixtures::pod(&shape, &format!("p-{n}-{i}"), None)))
    };
    shapes.enumerate().flat_map(replicas).collect()
}
