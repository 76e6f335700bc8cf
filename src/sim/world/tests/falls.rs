//! Load that falls on many nodes: how soon the bill follows, and how many nodes go at a time.

use super::*;
use crate::workload::{BudgetLimit, PodBudget};
use napkeeper_core::model::amounts::money::HourlyPrice;

/// When load falls, in minutes.
const FALL: i64 = 10;

/// Nodes of one size with 4 vCPU that are full of Deployments of 20 pods per node in all, of which every second pod goes.
fn half_gone(nodes: u32, budget: BudgetNodes) -> WorldSetup {
    const DEPLOYMENTS: u32 = 20;
    let mut start = mk_start(7);
    let mut pool = mk_pool("general", 0, &["on-demand"], i64::from(nodes) * 8);
    pool.requirements.add_entry(labels::INSTANCE_TYPE, Operator::In, &["Standard_D4s_v5"]).unwrap();
    pool.disruption.budgets = vec![Budget { nodes: budget, reasons: None, window: None }];
    start.manifests.pools = vec![pool];
    start.manifests.sweeps = Vec::new();
    let of_each = nodes * 20 / DEPLOYMENTS;
    let names = (0..DEPLOYMENTS).map(|n| format!("app-{n}"));
    start.manifests.workloads = names.clone().map(|name| mk_deployment(&name, of_each, 185, 512)).collect();
    let fall = |name: String| after(FALL, Action::Scale { workload: key(&name), replicas: of_each / 2 });
    start.actions = names.map(fall).collect();
    start
}

/// The instant of a minute.
fn minute(start: &WorldSetup, minute: i64) -> Timestamp {
    start.at + SignedDuration::from_mins(minute)
}

/// Times at which nodes begin to be disrupted, and at which each of these is gone.
fn goings(world: &World) -> Vec<(Timestamp, Timestamp)> {
    let timeline = world.timeline();
    let gone = |claim: &str, from: Timestamp| {
        let is_it = |e: &&crate::world::TimelineEntry| e.kind == EventKind::Gone && e.at >= from;
        timeline.iter().filter(is_it).find(|e| e.subject.ends_with(claim)).map(|e| e.at)
    };
    let disrupted = timeline.iter().filter(|e| e.kind == EventKind::Disrupt);
    disrupted.map(|e| (e.at, gone(&e.subject, e.at).unwrap_or(Timestamp::MAX))).collect()
}

/// The most nodes that go at a time.
fn most_at_a_time(goings: &[(Timestamp, Timestamp)]) -> usize {
    let at = |now: Timestamp| goings.iter().filter(|(from, to)| *from <= now && now < *to).count();
    goings.iter().map(|(from, _)| at(*from)).max().unwrap_or(0)
}

/// How many rounds that is: one ends when all nodes that went first in it are gone.
fn rounds(goings: &[(Timestamp, Timestamp)]) -> usize {
    let (mut rounds, mut end) = (0, Timestamp::MIN);
    for (from, _) in goings {
        if *from >= end {
            rounds += 1;
            end = goings.iter().filter(|(other, _)| other == from).map(|(_, to)| *to).max().unwrap_or(end);
        }
    }
    rounds
}

/// Minutes after the fall until the bill stays within 10 % of what it is in the end.
fn settled_after(world: &World, start: &WorldSetup) -> i64 {
    let summary = world.summary();
    let end = summary.prices.steps().last().map_or(HourlyPrice::ZERO, |(_, price)| *price);
    let is_off = |price: &HourlyPrice| (price.nanos() - end.nanos()).abs() * 10 > end.nanos();
    let last_off = summary.prices.steps().iter().rposition(|(_, price)| is_off(price));
    let settled = last_off.and_then(|at| summary.prices.steps().get(at + 1)).map_or(start.at, |(at, _)| *at);
    (settled.duration_since(minute(start, FALL)).as_secs() + 59) / 60
}

/// Runs a world until so many minutes after the fall; and how many nodes were ready just before it.
fn run_past_the_fall(start: &WorldSetup, mins: i64) -> (World, usize) {
    let mut world = run_to(start, FALL - 1);
    let before = nodes(&world, true).len();
    if let Err(violation) = world.run_until(minute(start, FALL + mins)) {
        panic!("{violation}");
    }
    (world, before)
}

/// Half of the nodes go, and no more than so many at a time; returns in how many rounds, and the minutes until the bill has
/// settled.
fn half_goes(start: &WorldSetup, (all, most): (usize, usize), mins: i64) -> (usize, i64) {
    let (world, before) = run_past_the_fall(start, mins);
    let (goings, left) = (goings(&world), nodes(&world, true).len());
    assert!(before * 100 >= all * 98 && left * 100 <= all * 55, "{left} of {before} nodes are left");
    assert!(most_at_a_time(&goings) <= most, "{} nodes go at a time", most_at_a_time(&goings));
    (rounds(&goings), settled_after(&world, start))
}

#[test]
fn a_hundred_half_empty_nodes_go_within_the_budget_in_few_rounds() {
    let start = half_gone(100, BudgetNodes::Count(10));
    let (rounds, _) = half_goes(&start, (100, 10), 25);
    assert!(rounds <= 12, "{rounds} rounds");
}

/// One pod that may not be evicted holds its own node, and no other.
#[test]
fn one_blocking_budget_leaves_the_rest_as_it_would_be() {
    let free = half_gone(30, BudgetNodes::Percent(10));
    let mut blocked = free.clone();
    blocked.manifests.workloads.push(mk_deployment("held", 1, 185, 512));
    let mut selector = Requirements::new();
    selector.add_entry("app", Operator::In, &["held"]).unwrap();
    let namespace = Namespace::new("default").unwrap();
    let budget =
        PodBudget { namespace, selector, limit: BudgetLimit::MaxUnavailablePercent(0), always_allows_unready: false };
    blocked.manifests.budgets.push((key("held"), budget));
    let [free, blocked] = [free, blocked].map(|start| {
        let world = run_past_the_fall(&start, 60).0;
        (nodes(&world, true).len(), settled_after(&world, &start))
    });
    assert!(blocked.0 <= free.0 + 1 && blocked.1 <= free.1 + 5, "nodes and minutes: {blocked:?} instead of {free:?}");
}

#[test]
#[ignore = "it takes minutes"]
fn a_thousand_nodes_half_of_whose_load_is_gone_cost_half_within_three_quarters_of_an_hour() {
    let start = half_gone(1_000, BudgetNodes::Percent(10));
    let (_, settled) = half_goes(&start, (1_000, 100), 60);
    assert!(settled <= 45, "{settled} min");
}
