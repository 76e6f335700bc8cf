//! Bounds of small worlds, beside each other and beside what policies pay.

use super::*;
use crate::families::ALL;
use crate::policy;
use crate::world::{BenchWorld, WorldBuilder, minutes};
use jiff::SignedDuration;

/// The first hours of the first day of a family.
fn first_hours(family: &str, hours: i64) -> BenchWorld {
    let family = ALL.into_iter().find(|one| one.name == family).unwrap();
    let world = family.world(1, 1).unwrap();
    BenchWorld { duration: SignedDuration::from_hours(hours), ..world }
}

#[test]
fn bounds_of_families_are_in_order() {
    let catalog = Catalog::embedded().unwrap();
    for family in ["diurnal", "requests", "long-jobs", "spot-storms", "gpu-reserved"] {
        let Bounds { fluid, constrained, configurations, whole, repacked, .. } =
            Bounds::of(&catalog, &first_hours(family, 2)).unwrap();
        assert!(fluid > 0.0 && fluid <= constrained * 1.000_001, "{family}: B1 {fluid}, B2 {constrained}");
        assert!(constrained <= configurations * 1.001, "{family}: B2 {constrained}, B3 {configurations}");
        assert!(configurations <= whole * 1.000_001, "{family}: B3 {configurations}, in whole nodes {whole}");
        assert!(configurations <= repacked * 1.000_001, "{family}: B3 {configurations}, B5 {repacked}");
    }
}

#[test]
fn load_of_the_start_counts_though_nothing_changes() {
    let mut builder = WorldBuilder::new("bounds", 1, 1).unwrap();
    builder.pool("general", 0, &["on-demand"]).unwrap();
    let load = builder.deployments(1).unwrap().remove(0);
    let stretches = demand::stretches(&builder.finish());
    let pods = |stretch: &demand::Stretch| stretch.wanted.iter().map(|wanted| wanted.pods).sum::<u32>();
    let counted: Vec<_> = stretches.iter().map(|stretch| (stretch.from, pods(stretch))).collect();
    assert_eq!(counted, [(SignedDuration::ZERO, 0), (demand::LASTED, load.replicas)]);
}

/// A few Deployments whose load changes every half hour, for four hours.
fn small(seed: u64) -> BenchWorld {
    let mut builder = WorldBuilder::new("bounds", seed, 1).unwrap();
    builder.pool("general", 0, &["spot", "on-demand"]).unwrap();
    let loads = builder.deployments(4).unwrap();
    builder.follow_the_day(&loads, minutes(30), 30);
    BenchWorld { duration: SignedDuration::from_hours(4), ..builder.finish() }
}

#[test]
fn no_policy_pays_less_than_whole_pods_on_fractions_of_nodes() {
    let catalog = Catalog::embedded().unwrap();
    for seed in 1..=3 {
        let world = small(seed);
        let bounds = Bounds::of(&catalog, &world).unwrap();
        let series = bounds_at(&catalog, &world);
        for policy in policy::ALL {
            let summary = (policy.run)(&catalog, world.setup.clone(), world.duration).unwrap();
            let cost = summary.cost.nanos() as f64 / 1e9;
            assert!(cost >= bounds.configurations, "{} {seed}: {cost}, B3 {}", policy.name, bounds.configurations);
            let paid =
                |(after, _): &(SignedDuration, f64)| summary.prices.at(world.setup.at + *after).nanos() as f64 / 1e9;
            let (paid, least): (f64, f64) =
                (series.iter().map(paid).sum(), series.iter().map(|(_, least)| least).sum());
            assert!(paid >= least, "{} {seed}: {paid} at all instants, B3 {least}", policy.name);
        }
    }
}

/// B3 every ten minutes, in USD per hour.
fn bounds_at(catalog: &Catalog, world: &BenchWorld) -> Vec<(SignedDuration, f64)> {
    let region = catalog.region(&world.setup.region).unwrap();
    let stretches = demand::stretches(world);
    let (program, demands) = market::program(&region, world, &stretches).unwrap();
    let (mut configurations, fluid) = (Configurations::new(&program), fluid::Prices::new(&region, world));
    let mut series = Vec::new();
    let mut after = minutes(10);
    while after < world.duration {
        let now = stretches.partition_point(|stretch| stretch.from <= after) - 1;
        let least = configurations.bound(&demands[now]).unwrap();
        let split = fluid.least_per_hour(&stretches[now].wanted);
        assert!(split <= least * 1.001, "after {after:#}: B1 {split}, B3 {least}");
        series.push((after, least));
        after += minutes(10);
    }
    series
}
