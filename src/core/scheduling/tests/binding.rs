//! What plans cost once kube-scheduler has bound the pods, over random workloads.

use crate::catalog::{Catalog, InstanceTypeOptions, instance_types};
use crate::fixtures::{Dice, at, class, region};
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
        dice.shuffle(&mut nodes);
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
    let means = Order::ALL.map(|order| {
        [2, 6, 20, 60, 200].map(|most| {
            let mut dice = Dice(most as u64);
            let bind_all = |input: Input<'_>| {
                let bind_one = |seed| {
                    let workload = order.of(workload(seed, most, false), &mut dice);
                    bind(input, &workload, &mut dice)
                };
                (1..=60).map(bind_one).collect()
            };
            let bound: Vec<Bound> = with_on_demand_pool(bind_all);
            let mean = |of: fn(&Bound) -> i64| bound.iter().map(of).sum::<i64>() / 60;
            (mean(|bound| bound.above_permille), mean(|bound| bound.later_permille))
        })
    });
    // Measured. With plans of different sizes the first are 467, 376, 324, 326 and 323 above the bound, and 63, 66, 64, 71 and
    // 74 of the pods wait for a second launch; the others 427, 335, 249, 229 and 223, and 51, 47, 34, 30 and 25.
    let measured = [
        [(467, 44), (366, 46), (307, 46), (310, 50), (313, 63)],
        [(423, 35), (302, 20), (238, 10), (220, 6), (213, 6)],
        [(397, 10), (290, 4), (236, 2), (220, 0), (209, 1)],
    ];
    let holds = |((above, later), (most_above, most_later)): (&(i64, i64), (i64, i64))| {
        *above <= most_above && *later <= most_later
    };
    assert!(means.as_flattened().iter().zip(measured.as_flattened().iter().copied()).all(holds), "{means:?}");
}

/// In which order pods of several kinds are created and bound.
#[derive(Clone, Copy)]
enum Order {
    /// One kind after another within a second.
    KindByKind,
    /// In any order within a second.
    Mixed,
    /// In any order, one each second.
    InTurn,
}

impl Order {
    const ALL: [Self; 3] = [Self::KindByKind, Self::Mixed, Self::InTurn];

    fn of(self, mut workload: Vec<Arc<Pod>>, dice: &mut Dice) -> Vec<Arc<Pod>> {
        if let Self::Mixed | Self::InTurn = self {
            dice.shuffle(&mut workload);
        }
        let created = |(pod, second): (Arc<Pod>, i64)| Arc::new(Pod { created_at: at(second), ..Pod::clone(&pod) });
        let seconds = (0..).map(|second| if let Self::InTurn = self { second } else { 0 });
        workload.into_iter().zip(seconds).map(created).collect()
    }
}

/// Ten kinds of pods, as many of each: CPU in thousandths of a core, memory in MiB.
fn ten_kinds(of_each: usize) -> Vec<Arc<Pod>> {
    const KINDS: [(i64, i64); 10] = [
        (250, 256),
        (500, 512),
        (500, 1_024),
        (1_000, 1_024),
        (1_000, 4_096),
        (2_000, 2_048),
        (100, 128),
        (1_500, 3_072),
        (750, 1_536),
        (300, 2_048),
    ];
    let kind = |(n, (cpu, mib)): (usize, &(i64, i64))| {
        let app = format!("app{n}");
        let mut shape = shape(&app, *cpu, 1);
        shape.requests.memory = mib << 20;
        pods(&app, shape, of_each)
    };
    KINDS.iter().enumerate().flat_map(kind).collect()
}

/// Nodes of a plan for these pods on sizes of so many vCPU, and what they cost with `perNode`, in USD per hour.
fn planned_on(cpus: &[&str], workload: &[Arc<Pod>]) -> (usize, f64) {
    let requirements = requirements_in(&[
        (labels::CAPACITY_TYPE, &["on-demand"]),
        (labels::ARCH, &["amd64"]),
        (labels::SKU_FAMILY, &["D"]),
        (labels::SKU_CPU, cpus),
    ]);
    let mut snapshot = cluster([NodePool { requirements, ..pool("general") }]);
    let region = Catalog::embedded().unwrap().region(&region()).unwrap();
    let types = instance_types(&region, &class(), &InstanceTypeOptions::default());
    snapshot.instance_types.insert(class().name, types.into());
    let (plan, cost) = plan_for(&snapshot, |input| schedule_with_cost(input, workload));
    assert_eq!(plan.unschedulable_pods(), 0);
    let nodes = plan.new_nodes.len();
    let cost = cost.price + InstanceTypeOptions::DEFAULT_PER_NODE * nodes as i64;
    (nodes, cost.nanos() as f64 / 1e9)
}

#[test]
fn of_sizes_that_cost_nearly_the_same_the_fewest_nodes_are_planned() {
    let workload = ten_kinds(250);
    let each = ["4", "8", "16"].map(|cpu| planned_on(&[cpu], &workload));
    let (nodes, cost) = planned_on(&["4", "8", "16"], &workload);
    let least = each.iter().map(|(_, cost)| *cost).fold(f64::INFINITY, f64::min);
    let cheap = each.iter().filter(|(_, cost)| *cost < least * 1.01);
    let fewest = cheap.map(|(nodes, _)| *nodes).min().unwrap();
    assert!(nodes <= fewest && cost < least * 1.01, "{nodes} nodes at {cost}; with one size each: {each:?}");
}

#[test]
fn thousands_of_nodes_are_planned_like_dozens() {
    let sizes = ["4", "8", "16"];
    let (few, cost_of_few) = planned_on(&sizes, &ten_kinds(250));
    let (many, cost_of_many) = planned_on(&sizes, &ten_kinds(2_000));
    assert!(
        many <= 8 * few && cost_of_many <= 8.0 * cost_of_few,
        "{few} nodes at {cost_of_few}, and for eight times the pods {many} at {cost_of_many}"
    );
}
