//! Measures the passes of provisioning while thousands of different pods wait.

use napkeeper_core::model::cluster::claim::{Claim, ClaimStatus};
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::pod::{
    HostPort, Pod, PodAffinity, PodShape, PodTerm, Preferences, Spread, Taint, TaintEffect, Toleration,
};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::Uid;
use napkeeper_core::model::requirements::{Requirement, Requirements};
use napkeeper_core::plan::{ClaimDraft, Command};
use napkeeper_core::provisioning::{ProvisionMemory, provision};
use napkeeper_core::snapshot::Snapshot;
use napkeeper_tests::fixtures;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Passes of one case at most.
const MAX_PASSES: usize = 2_000;

/// Measures all kinds of pods, and prints a line for each.
pub(crate) fn measure() {
    println!("\npasses of provisioning, one second apart; no node joins meanwhile");
    // As many as an object of 1.5 MiB holds.
    measure_one("3 pods, each with 8,000 required affinity terms", 3, |n, shape| required(n, shape, true));
    measure_one("3 pods, each with 8,000 required anti-affinity terms", 3, |n, shape| required(n, shape, false));
    println!("  beside 1,000 tainted nodes with 20,000 running pods:");
    let apart_from_own = |n: usize, shape: &mut PodShape| {
        shape.affinity = Some(Box::new(PodAffinity { apart: vec![own_app(n, shape)], ..PodAffinity::default() }));
    };
    measure_in(
        busy_cluster(apart_from_own),
        "1,000 pods, all different, if those that run must each be alone",
        1_000,
        |_, _| {},
    );
    let busy = busy_cluster(apart);
    measure_in(busy.clone(), "5,000 pods, all different", 5_000, |_, _| {});
    measure_in(busy.clone(), "1,000 pods, each with a filter, a port and a spread over all pods", 1_000, filtered);
    measure_in(busy.clone(), "1,000 pods, each with 8 preferences to be apart from all others", 1_000, apart);
    measure_in(busy.clone(), "1,000 pods, each with 1,000 tolerations", 1_000, tolerant);
    measure_in(busy, "50 pods, each with 20,000 tolerations", 50, |n, shape| {
        (0..20).for_each(|i| tolerant(20 * n + i, shape));
    });
    println!("  in an empty cluster:");
    for pods in [1_000, 5_000, 20_000] {
        measure_one(&format!("{pods} pods, all different"), pods, |_, _| {});
        measure_one(&format!("{pods} pods, each with a filter, a port and a spread over all pods"), pods, filtered);
        measure_one(&format!("{pods} pods, each with 8 preferences to be apart from all others"), pods, apart);
    }
}

/// Nodes with taints that no pod tolerates, and running pods.
fn busy_cluster(constrain: impl Fn(usize, &mut PodShape)) -> Snapshot {
    let mut snapshot = fixtures::busy_cluster(1_000, 0);
    let nodes: Vec<_> = snapshot.nodes().values().cloned().collect();
    for node in &nodes {
        let taint = |n: usize| Taint {
            key: Arc::from(format!("taint-{n}")),
            value: Arc::from("x"),
            effect: TaintEffect::NoSchedule,
        };
        snapshot.put_node(Node { taints: (0..3).map(taint).collect(), ..Node::clone(node) });
    }
    for n in 0..20_000 {
        let mut shape = PodShape::clone(&fixtures::shape(&format!("running-{n}"), 100, 128, false));
        constrain(n, &mut shape);
        snapshot.put_pod(fixtures::pod(&Arc::new(shape), &format!("r-{n}"), Some(&nodes[n % nodes.len()].name)));
    }
    snapshot
}

/// Selects the pods of a running pod's app.
fn own_app(n: usize, shape: &PodShape) -> PodTerm {
    let mut selector = Requirements::new();
    selector.add("app", Requirement::any_of([format!("running-{n}")]));
    let topology_key = labels::interned(labels::HOSTNAME);
    PodTerm { topology_key, namespaces: [shape.namespace.clone()].into(), namespace_selector: None, selector }
}

fn tolerant(n: usize, shape: &mut PodShape) {
    let toleration = |i: usize| Toleration {
        key: Some(Arc::from(format!("other-{n}-{i}"))),
        value: Some(Arc::from("x")),
        effect: Some(TaintEffect::NoSchedule),
    };
    shape.tolerations.extend((0..1_000).map(toleration));
}

fn measure_one(case: &str, pods: usize, constrain: impl Fn(usize, &mut PodShape)) {
    measure_in(fixtures::empty_cluster(), case, pods, constrain);
}

fn measure_in(mut snapshot: Snapshot, case: &str, pods: usize, constrain: impl Fn(usize, &mut PodShape)) {
    for n in 0..pods {
        let step = n as i64;
        let plain = fixtures::shape(&format!("app-{n}"), 100 + 37 * step % 4_000, 128 + 211 * step % 16_000, false);
        let mut shape = PodShape::clone(&plain);
        constrain(n, &mut shape);
        snapshot.put_pod(Pod { unschedulable: true, ..fixtures::pod(&Arc::new(shape), &format!("p-{n}"), None) });
    }
    let settings = fixtures::settings();
    let (mut memory, mut now) = (ProvisionMemory::default(), fixtures::instant());
    let (mut times, mut nodes) = (Vec::new(), 0);
    let _ = provision(&snapshot, &mut memory, &settings, now, 7);
    for _ in 0..MAX_PASSES {
        now += settings.batch_max_duration;
        let begun = Instant::now();
        let plan = provision(&snapshot, &mut memory, &settings, now, 7);
        times.push(begun.elapsed());
        for planned in plan.commands {
            let Command::CreateClaim(draft) = planned.command else { continue };
            nodes += 1;
            snapshot.put_claim(created(&draft, now));
        }
        if memory.deferred == 0 {
            break;
        }
    }
    let (longest, sum) = (times.iter().max().copied().unwrap_or_default(), times.iter().sum::<Duration>());
    println!(
        "  {case}: {} passes, the longest {:.0} ms, all {:.0} ms; {nodes} new nodes",
        times.len(),
        longest.as_secs_f64() * 1000.0,
        sum.as_secs_f64() * 1000.0,
    );
}

fn filtered(n: usize, shape: &mut PodShape) {
    shape.selector.add(labels::INSTANCE_TYPE, Requirement::none_of([format!("size-{n}")]));
    shape.ports.push(HostPort { port: n as u16, protocol: Arc::from("TCP"), address: None });
    shape.spread.push(Spread::over(labels::ZONE, 1, Requirements::new()));
}

fn required(n: usize, shape: &mut PodShape, near: bool) {
    let term = |i: usize| {
        let mut selector = Requirements::new();
        let others = if near { format!("none-{n}-{i}") } else { format!("app-{}", n + i) };
        selector.add("app", Requirement::none_of([others]));
        let topology_key = labels::interned(if i.is_multiple_of(2) { labels::HOSTNAME } else { labels::ZONE });
        PodTerm { topology_key, namespaces: [shape.namespace.clone()].into(), namespace_selector: None, selector }
    };
    let terms = (0..8_000).map(term).collect();
    let affinity = if near {
        PodAffinity { near: terms, ..PodAffinity::default() }
    } else {
        PodAffinity { apart: terms, ..PodAffinity::default() }
    };
    shape.affinity = Some(Box::new(affinity));
}

fn apart(n: usize, shape: &mut PodShape) {
    let term = |i: usize| {
        let mut selector = Requirements::new();
        selector.add("app", Requirement::none_of([format!("other-{n}-{i}")]));
        let topology_key = labels::interned(if i.is_multiple_of(2) { labels::HOSTNAME } else { labels::ZONE });
        PodTerm { topology_key, namespaces: [shape.namespace.clone()].into(), namespace_selector: None, selector }
    };
    let apart = (0..8).map(|i| (1 + i as i32, term(i))).collect();
    shape.preferences = Some(Box::new(Preferences { apart, ..Preferences::default() }));
}

/// The NodeClaim that a draft becomes.
fn created(draft: &ClaimDraft, now: jiff::Timestamp) -> Claim {
    Claim {
        name: draft.name.clone(),
        uid: Uid::new(draft.name.as_str()).unwrap_or_else(|_| unreachable!("names are UIDs")),
        created_at: now,
        deleting_at: None,
        termination_at: None,
        owned_by_pool: false,
        has_finalizer: true,
        spec: draft.spec.clone(),
        intent: None,
        status: ClaimStatus::default(),
    }
}
