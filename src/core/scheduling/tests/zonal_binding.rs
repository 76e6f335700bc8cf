//! How many pods wait for a second launch where some spread over zones.

use crate::fixtures::Dice;
use crate::scheduling::schedule_with_cost;
use crate::scheduling::tests::repack::workload;
use crate::scheduling::tests::*;

/// Nodes that are ready, and the pods of each app in each zone.
#[derive(Default)]
struct Ready {
    nodes: Vec<(Resources, usize)>,
    pods: BTreeMap<Arc<str>, [u32; 3]>,
}

impl Ready {
    /// Binds a pod to a node with room, where it spreads in the zone that has the fewest of its app.
    fn bind(&mut self, pod: &Pod) -> bool {
        let shape = &pod.shape;
        let counts = self.pods.entry(Arc::clone(&shape.labels["app"])).or_default();
        let least = counts.iter().min().copied().unwrap_or(0);
        let allows = |zone: usize| shape.spread.is_empty() || counts[zone] <= least;
        let fitting = self.nodes.iter_mut().filter(|(free, zone)| allows(*zone) && shape.requests.fits(free));
        let Some((free, zone)) = fitting.min_by_key(|(_, zone)| counts[*zone]) else { return false };
        free.sub(&shape.requests);
        counts[*zone] += 1;
        true
    }
}

/// What the plan costs, in thousandths above the least, and how many pods find no room on it, in thousandths.
fn plan_and_bind(input: Input<'_>, seed: u64, most: usize) -> (i64, i64) {
    let mut dice = Dice(seed);
    let mut waiting = workload(seed, most, true);
    dice.shuffle(&mut waiting);
    let (pods, types) = (waiting.len(), &input.snapshot.instance_types[&pool("general").class]);
    let (plan, cost) = schedule_with_cost(input, &waiting);
    assert_eq!(plan.unschedulable_pods(), 0);
    let mut nodes: Vec<_> = plan.new_nodes.iter().map(|node| node.offerings[0].key.clone()).collect();
    dice.shuffle(&mut nodes);
    let mut ready = Ready::default();
    for key in nodes {
        let room = types.iter().find(|t| t.facts.name == key.size).unwrap().allocatable.clone();
        ready.nodes.push((room, (1..=3).position(|n| zone(n) == key.zone).unwrap()));
        loop {
            let before = waiting.len();
            waiting.retain(|pod| !ready.bind(pod));
            if waiting.len() == before {
                break;
            }
        }
    }
    (cost.gap_permille().unwrap(), (waiting.len() * 1_000 / pods) as i64)
}

#[test]
fn few_pods_wait_for_a_second_launch_where_some_spread_over_zones() {
    let means = [6, 20, 60].map(|most| {
        let plan_all = |input: Input<'_>| (1..=60).map(|seed| plan_and_bind(input, seed, most)).collect();
        let all: Vec<(i64, i64)> = with_on_demand_pool(plan_all);
        (all.iter().map(|(above, _)| above).sum::<i64>() / 60, all.iter().map(|(_, left)| left).sum::<i64>() / 60)
    });
    // Measured. Without further nodes, plans are 318, 261 and 230 above the bound, and 46, 42 and 45 of the pods wait.
    let measured = [(378, 24), (332, 22), (300, 18)];
    let holds = |((above, later), (most_above, most_later)): (&(i64, i64), (i64, i64))| {
        *above <= most_above && *later <= most_later
    };
    assert!(means.iter().zip(measured).all(holds), "{means:?}");
}
