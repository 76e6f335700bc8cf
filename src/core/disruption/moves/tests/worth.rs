//! Tests of what is not simulated because it cannot be worth it.

use super::super::components::{Component, MoveFilter};
use super::*;
use crate::disruption::balanced::BalancedPools;
use crate::disruption::candidate::{Candidate, disruption_candidates};
use crate::model::amounts::money::HourlyPrice;
use crate::model::amounts::resources::Resources;
use crate::model::cluster::claim::PlannedOffering;
use crate::plan::Plan;
use crate::scheduling::{AvailableOfferings, NewNode, UnavailableOfferings};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Nodes by the size of each, the CPU of its pod, and for how many seconds nothing has changed there.
fn world(nodes: &[(&str, i64, i64)]) -> World {
    let mut world = World::new(SMALL, 0);
    for (n, (size, cpu, quiet_for)) in nodes.iter().enumerate() {
        let name = format!("c{n:02}");
        let (mut claim, node) = managed(&name, &world.pool, offering(size, 1, OnDemand));
        claim.status.initialized = Some(at(-8_000));
        claim.status.last_pod_event = Some(at(-quiet_for));
        put(&mut world.snapshot, (claim, node));
        world.run_pod(&format!("p{n}"), &name, *cpu);
    }
    world
}

fn candidates(world: &World) -> Vec<Candidate<'_>> {
    disruption_candidates(&world.snapshot, &world.provision, &BTreeMap::new(), at(0), &mut Plan::default())
}

/// A new node at a price.
fn new_node(world: &World, price: HourlyPrice) -> NewNode {
    NewNode {
        pool: world.pool.name.clone(),
        class: world.pool.class.clone(),
        offerings: vec![PlannedOffering { price, ..offering(SMALL, 1, OnDemand) }],
        requests: Resources::default(),
        labels: BTreeMap::new(),
        pods: Vec::new(),
    }
}

proptest! {
    #[test]
    fn nothing_that_pays_back_is_ruled_out(
        nodes in prop::collection::vec(
            (prop::sample::select(vec![SMALL, MEDIUM, LARGE]), 1_i64..2_000, 30_i64..5_000),
            1..5,
        ),
        surcharges in prop::collection::vec(0_i64..400_000_000, 1..4),
        picked in 1_usize..16,
    ) {
        let world = world(&nodes);
        let candidates = candidates(&world);
        prop_assert_eq!(candidates.len(), nodes.len());
        let all: Vec<&Candidate<'_>> = candidates.iter().collect();
        let available = AvailableOfferings::new(&world.snapshot, &UnavailableOfferings::default(), at(0));
        let (balanced_pools, lowest) = (BalancedPools::default(), available.lowest_price().unwrap());
        let filter = MoveFilter::new(&available, &balanced_pools);
        for candidate in &all {
            // Of one node and the cheapest new one nothing is estimated.
            let component = Component { sources: vec![*candidate], new_nodes: vec![new_node(&world, lowest)] };
            prop_assert_eq!(component.pays_back(), filter.may_be_worthwhile(&[*candidate]));
        }
        let sources: Vec<&Candidate<'_>> =
            all.iter().enumerate().filter(|(n, _)| picked & (1 << n) != 0).map(|(_, candidate)| *candidate).collect();
        prop_assume!(!sources.is_empty());
        let prices = surcharges.into_iter().map(|surcharge| lowest + HourlyPrice::from_nanos(surcharge));
        let component = Component { sources, new_nodes: prices.map(|price| new_node(&world, price)).collect() };
        prop_assert!(!component.pays_back() || filter.may_be_worthwhile(&all));
    }
}

#[test]
fn nodes_together_may_pay_back_although_each_alone_does_not() {
    let hour = 3_600;
    let cases = [
        (vec![(SMALL, 100, hour)], false),
        (vec![(SMALL, 100, hour), (SMALL, 100, hour)], true),
        (vec![(SMALL, 100, 60), (SMALL, 100, 60)], false),
    ];
    for (nodes, expected) in cases {
        let world = world(&nodes);
        let candidates = candidates(&world);
        let available = AvailableOfferings::new(&world.snapshot, &UnavailableOfferings::default(), at(0));
        let balanced_pools = BalancedPools::default();
        let filter = MoveFilter::new(&available, &balanced_pools);
        assert_eq!(filter.may_be_worthwhile(&candidates.iter().collect::<Vec<_>>()), expected, "{nodes:?}");
    }
}
