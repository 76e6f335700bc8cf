//! What plans cost once kube-scheduler has bound the pods, over random workloads.

use crate::fixtures::{Dice, at};
use crate::scheduling::schedule_with_cost;
use crate::scheduling::tests::repack::workload;
use crate::scheduling::tests::*;

/// What a workload costs until kube-scheduler has bound all pods.
struct Bound {
    /// The price of all nodes, in thousandths above what the first plan costs at least.
    above_permille: i64,
    /// Pods that wait for a second launch, in thousandths.
    later_permille: i64,
}

/// Plans nodes for these pods, lets the nodes become ready in any order, fills each with what waits, and plans again for the
/// pods that are left.
fn bind(input: Input<'_>, workload: &[Arc<Pod>], dice: &mut Dice) -> Bound {
    let types = &input.snapshot.instance_types[&pool("general").class];
    let (plan, least) = schedule_with_cost(input, workload);
    let (mut waiting, mut plan, mut price) = (workload.to_vec(), plan, least.price.nanos());
    let mut later = None;
    loop {
        assert_eq!(plan.unschedulable_pods(), 0);
        let mut nodes: Vec<&str> = plan.new_nodes.iter().map(|node| node.offerings[0].key.size.as_str()).collect();
        (1..nodes.len()).rev().for_each(|last| nodes.swap(last, dice.roll(last + 1)));
        for size in nodes {
            let mut free = types.iter().find(|t| t.facts.name.as_str() == size).unwrap().allocatable.clone();
            waiting.retain(|pod| {
                let fits = pod.shape.requests.fits(&free);
                if fits {
                    free.sub(&pod.shape.requests);
                }
                !fits
            });
        }
        later.get_or_insert(waiting.len() * 1_000 / workload.len());
        if waiting.is_empty() {
            break;
        }
        let (next, cost) = schedule_with_cost(input, &waiting);
        plan = next;
        price += cost.price.nanos();
    }
    let above_permille = price * 1_000 / least.lower_bound.nanos() - 1_000;
    Bound { above_permille, later_permille: later.unwrap_or(0) as i64 }
}

#[test]
fn mixed_pods_cost_little_more_once_they_are_bound() {
    let on_demand = requirements_in(&[(labels::CAPACITY_TYPE, &["on-demand"])]);
    let snapshot = cluster([NodePool { requirements: on_demand, ..pool("general") }]);
    let available = AvailableOfferings::new(&snapshot, &UnavailableOfferings::default(), start());
    let input = Input {
        snapshot: &snapshot,
        available: &available,
        excluded_nodes: &BTreeSet::new(),
        max_new_nodes: MAX_NEW_NODES,
        claim_of_pod: &BTreeMap::new(),
    };
    let means = [false, true].map(|in_turn| {
        [2, 6, 20, 60, 200].map(|most| {
            let mut dice = Dice(most as u64);
            let bound: Vec<Bound> = (1..=60)
                .map(|seed| {
                    let workload = workload(seed, most, false);
                    let workload = if in_turn { created_in_turn(workload, &mut dice) } else { workload };
                    bind(input, &workload, &mut dice)
                })
                .collect();
            let mean = |of: fn(&Bound) -> i64| bound.iter().map(of).sum::<i64>() / 60;
            (mean(|bound| bound.above_permille), mean(|bound| bound.later_permille))
        })
    });
    // Measured: one kind after another, and all kinds in turn. With plans of different sizes the first are 467, 376, 324, 327
    // and 322 above the bound, and 63, 66, 64, 72 and 74 of the pods wait for a second launch.
    let measured =
        [[(423, 22), (354, 12), (298, 5), (302, 5), (297, 3)], [(397, 10), (291, 5), (237, 4), (225, 1), (216, 1)]];
    let holds = |((above, later), (most_above, most_later)): (&(i64, i64), (i64, i64))| {
        *above <= most_above && *later <= most_later
    };
    assert!(means.as_flattened().iter().zip(measured.as_flattened().iter().copied()).all(holds), "{means:?}");
}

/// The same pods, of which one of any kind is created each second.
fn created_in_turn(mut workload: Vec<Arc<Pod>>, dice: &mut Dice) -> Vec<Arc<Pod>> {
    (1..workload.len()).rev().for_each(|last| workload.swap(last, dice.roll(last + 1)));
    let created = |(pod, second): (Arc<Pod>, i64)| Arc::new(Pod { created_at: at(second), ..Pod::clone(&pod) });
    workload.into_iter().zip(0..).map(created).collect()
}
