//! Tests of what is not simulated because it cannot be worth it.

use super::super::components::{Component, MoveFilter};
use super::*;
use crate::catalog::CapacityType::{self, OnDemand, Spot};
use crate::disruption::balanced::BalancedPools;
use crate::disruption::candidate::{Candidate, disruption_candidates};
use crate::model::amounts::money::HourlyPrice;
use crate::model::amounts::resources::Resources;
use crate::model::cluster::claim::PlannedOffering;
use crate::plan::Plan;
use crate::scheduling::{AvailableOfferings, NewNode, UnavailableOfferings};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Nodes by the size and capacity type of each, the CPU of its pod, and for how many seconds nothing has changed there; in a
/// pool of these capacity types.
pub(super) fn world(capacity_types: &[&str], nodes: &[(&str, CapacityType, i64, i64)]) -> World {
    let mut world = World::new(SMALL, 0);
    let requirements = [(labels::CAPACITY_TYPE, capacity_types), (labels::INSTANCE_TYPE, &[SMALL, MEDIUM, LARGE])];
    world.pool.requirements = requirements_in(&requirements);
    world.snapshot.put_pool(world.pool.name.clone(), world.pool.clone());
    for (n, (size, capacity_type, cpu, quiet_for)) in nodes.iter().enumerate() {
        let name = format!("c{n:02}");
        let (mut claim, node) = managed(&name, &world.pool, offering(size, 1, *capacity_type));
        claim.status.initialized = Some(at(-200_000));
        claim.status.last_pod_event = Some(at(-quiet_for));
        put(&mut world.snapshot, (claim, node));
        world.run_pod(&format!("p{n}"), &name, *cpu);
    }
    world
}

pub(super) fn candidates(world: &World) -> Vec<Candidate<'_>> {
    disruption_candidates(&world.snapshot, &world.provision, &BTreeMap::new(), at(0), &mut Plan::default())
}

/// A new node of a capacity type at a price.
pub(super) fn new_node(world: &World, capacity_type: CapacityType, price: HourlyPrice) -> NewNode {
    NewNode {
        pool: world.pool.name.clone(),
        class: world.pool.class.clone(),
        offerings: vec![PlannedOffering { price, ..offering(SMALL, 1, capacity_type) }],
        requests: Resources::default(),
        labels: BTreeMap::new(),
        pods: Vec::new(),
    }
}

proptest! {
    #[test]
    fn nothing_that_pays_back_is_ruled_out(
        capacity_types in prop::sample::select(vec![&["on-demand"][..], &["spot", "on-demand"], &["spot"]]),
        nodes in prop::collection::vec(
            (
                prop::sample::select(vec![SMALL, MEDIUM, LARGE]),
                prop::sample::select(vec![OnDemand, Spot]),
                1_i64..2_000,
                prop_oneof![30_i64..5_000, 5_000_i64..150_000],
            ),
            1..5,
        ),
        new in prop::collection::vec((any::<prop::sample::Index>(), 0_i64..400_000_000), 1..4),
        picked in 1_usize..16,
    ) {
        let world = world(capacity_types, &nodes);
        let candidates = candidates(&world);
        prop_assert_eq!(candidates.len(), nodes.len());
        let all: Vec<&Candidate<'_>> = candidates.iter().collect();
        let available = AvailableOfferings::new(&world.snapshot, &UnavailableOfferings::default(), at(0));
        let balanced_pools = BalancedPools::default();
        let filter = MoveFilter::new(&available, &balanced_pools);
        let lowest_of = |of| Some((of, available.lowest_price(|capacity_type| capacity_type == of)?));
        let lowest: Vec<(CapacityType, HourlyPrice)> = [OnDemand, Spot].into_iter().filter_map(lowest_of).collect();
        for candidate in &all {
            // Of one node and the cheapest new one of a capacity type nothing is estimated.
            let pays_back = lowest.iter().any(|(of, price)| {
                Component { sources: vec![*candidate], new_nodes: vec![new_node(&world, *of, *price)] }.pays_back()
            });
            prop_assert_eq!(pays_back, filter.may_be_worthwhile(&[*candidate]));
        }
        let sources: Vec<&Candidate<'_>> =
            all.iter().enumerate().filter(|(n, _)| picked & (1 << n) != 0).map(|(_, candidate)| *candidate).collect();
        prop_assume!(!sources.is_empty());
        let new_node = |(of, surcharge): (prop::sample::Index, i64)| {
            let (capacity_type, price) = of.get(&lowest);
            new_node(&world, *capacity_type, *price + HourlyPrice::from_nanos(surcharge))
        };
        let component = Component { sources, new_nodes: new.into_iter().map(new_node).collect() };
        prop_assert!(!component.pays_back() || filter.may_be_worthwhile(&all));
    }
}

#[test]
fn nodes_together_may_pay_back_although_each_alone_does_not() {
    let hour = 3_600;
    let cases = [
        (vec![(SMALL, OnDemand, 100, hour)], false),
        (vec![(SMALL, OnDemand, 100, hour), (SMALL, OnDemand, 100, hour)], true),
        (vec![(SMALL, OnDemand, 100, 60), (SMALL, OnDemand, 100, 60)], false),
    ];
    for (nodes, expected) in cases {
        let world = world(&["on-demand"], &nodes);
        let candidates = candidates(&world);
        let available = AvailableOfferings::new(&world.snapshot, &UnavailableOfferings::default(), at(0));
        let balanced_pools = BalancedPools::default();
        let filter = MoveFilter::new(&available, &balanced_pools);
        assert_eq!(filter.may_be_worthwhile(&candidates.iter().collect::<Vec<_>>()), expected, "{nodes:?}");
    }
}

#[test]
fn replacements_are_worth_it_when_the_docs_say_so() {
    let page = include_str!("../../../../../docs/scheduling.md");
    let (_, table) = page.split_once("| worth it after |\n|---|---|---|\n").unwrap();
    let rows: Vec<&str> = table.lines().take_while(|line| line.starts_with('|')).collect();
    assert!(rows.len() >= 8, "{rows:?}");
    for row in rows {
        let [_, requested, price, expected, _] = row.split('|').map(str::trim).collect::<Vec<_>>()[..] else {
            panic!()
        };
        let permille = |text: &str| text.split_once(" %").unwrap().0.parse::<i64>().unwrap() * 10;
        let capacity_type = if price.contains("spot") { Spot } else { OnDemand };
        // The least that is so much of the 1.9 cores that are allocatable.
        let cpu = (permille(requested) * 1_900 + 999) / 1_000;
        let world = world(&["spot", "on-demand"], &[(SMALL, OnDemand, cpu, 100_000)]);
        let [candidate] = &candidates(&world)[..] else { panic!() };
        assert_eq!(candidate.node.allocatable.cpu_millis, 1_900);
        let price = HourlyPrice::from_nanos(candidate.price.nanos() * permille(price) / 1_000);
        let component = Component { sources: vec![candidate], new_nodes: vec![new_node(&world, capacity_type, price)] };
        assert_eq!(in_words(component.pays_back_after()), expected, "{row}");
    }
}

fn in_words(after: Option<SignedDuration>) -> String {
    // The first whole minute.
    match after.map(|after| (after.as_secs() + 59) / 60) {
        None => "never".to_owned(),
        Some(minutes @ ..60) => format!("{minutes} min"),
        Some(minutes) => format!("{} h {} min", minutes / 60, minutes % 60),
    }
}

/// A node of 16 cores of which nearly half is used: spot saves enough after 4 min, and would after 18 if an eviction counted 35 min.
/// Of the time before the start of the controller a quarter counts.
#[test]
fn what_is_worth_it_by_its_capacity_type_alone_is_launched_as_no_other() {
    for (quiet_for, on_demand_too) in [(2_400, false), (9_600, true)] {
        let mut world = world(&["spot", "on-demand"], &[(LARGE, OnDemand, 7_000, quiet_for)]);
        world.all(60);
        let [draft] = &world.drafts[..] else { panic!("{:?}", world.drafts) };
        let capacity_types = draft.spec.planned.iter().map(|offering| offering.key.capacity_type);
        let is_any = |of| capacity_types.clone().any(|capacity_type| capacity_type == of);
        assert_eq!((is_any(Spot), is_any(OnDemand)), (true, on_demand_too), "{:?}", draft.spec.planned);
    }
}
