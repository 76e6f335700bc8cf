//! Price of plans for mixed pods against a fractional lower bound, over random workloads.

use crate::fixtures::Dice;
use crate::scheduling::schedule_with_cost;
use crate::scheduling::tests::*;

/// Two to eleven kinds of pods, up to `most` of each; half of them spread over zones if `zonal`.
pub(super) fn workload(seed: u64, most: usize, zonal: bool) -> Vec<Arc<Pod>> {
    let mut dice = Dice(seed * 7919);
    let mut all = Vec::new();
    for sort in 0..2 + dice.roll(10) {
        let cpu = [100, 250, 500, 900, 1000, 1500, 2000, 3000, 6000][dice.roll(9)];
        let gib = [1, 1, 2, 4, 6, 8, 12, 16, 24][dice.roll(9)];
        let app = format!("app{sort}");
        let mut shape = shape(&app, cpu, gib);
        if zonal && dice.roll(2) == 0 {
            shape.spread.push(spread(labels::ZONE, &app, 1));
        }
        all.extend(pods(&format!("p{sort}"), shape, 1 + dice.roll(most)));
    }
    all
}

#[test]
fn mixed_pods_cost_little_more_than_the_lower_bound() {
    let on_demand = requirements_in(&[(labels::CAPACITY_TYPE, &["on-demand"])]);
    let snapshot = cluster([NodePool { requirements: on_demand, ..pool("general") }]);
    let available_offerings = AvailableOfferings::new(&snapshot, &UnavailableOfferings::default(), start());
    let (excluded_nodes, claim_of_pod) = (BTreeSet::new(), BTreeMap::new());
    let new_nodes = MAX_NEW_NODES;
    let input = Input {
        snapshot: &snapshot,
        available: &available_offerings,
        excluded_nodes: &excluded_nodes,
        max_new_nodes: new_nodes,
        claim_of_pod: &claim_of_pod,
    };
    // The bound is that of a fluid: how much of the distance no packing could avoid is not known.
    let means = [(6, false), (60, false), (6, true), (60, true)].map(|(most, zonal)| {
        let above = |seed| {
            let (outcome, cost) = schedule_with_cost(input, &workload(seed, most, zonal));
            assert_eq!(outcome.unschedulable_pods(), 0);
            cost.gap_permille().unwrap()
        };
        (1..=60).map(above).sum::<i64>() / 60
    });
    // Measured, in thousandths above the bound. Plans without regard to how kube-scheduler binds the pods are cheaper, but cost
    // more, or leave pods without room, once it has: see `binding` and `zonal_binding`.
    let measured = [252, 206, 378, 300];
    assert!(means.iter().zip(measured).all(|(mean, most)| *mean <= most), "{means:?}");
}
