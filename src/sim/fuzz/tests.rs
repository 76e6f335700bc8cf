//! Two hundred histories hold every invariant, and no rule of the law can be spared.

use super::*;
use std::sync::OnceLock;

fn catalog() -> &'static Catalog {
    static CATALOG: OnceLock<Catalog> = OnceLock::new();
    CATALOG.get_or_init(|| Catalog::embedded().unwrap())
}

/// Seeds of the search, `NAPKEEPER_SEEDS=from..to` for more of them.
fn seeds() -> std::ops::Range<u64> {
    let asked = std::env::var("NAPKEEPER_SEEDS").ok();
    let range = asked.as_deref().and_then(|text| text.split_once(".."));
    let parsed = range.and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    parsed.unwrap_or(0..200)
}

fn asked_for_a_timeline() -> bool {
    std::env::var_os("NAPKEEPER_TIMELINE").is_some()
}

/// The world of a failing seed, up to its failure.
fn replay(seed: u64) -> Option<World> {
    let History { start, crashes, mode, lasting } = history(seed);
    let mut world = World::begin(catalog(), start).ok()?;
    world.set_mode(mode);
    world.plan_crashes(crashes);
    let end = world.now() + lasting;
    drop(world.run_until(end));
    Some(world)
}

#[test]
fn two_hundred_histories_hold_every_invariant() {
    let mut failures = Vec::new();
    for seed in seeds() {
        if let Err(failure) = run(catalog(), seed, Law::whole()) {
            println!("seed {seed} ({:?}): {failure}", Theme::of(seed));
            if let Some(world) = asked_for_a_timeline().then(|| replay(seed)).flatten() {
                world.timeline().iter().for_each(|e| println!("{} {:<10} {:<30} {}", e.at, e.kind, e.subject, e.text));
            }
            failures.push(seed);
        }
    }
    assert!(failures.is_empty(), "failing seeds: {failures:?}");
}

#[test]
fn a_history_is_a_function_of_its_seed() {
    for seed in [1, 5, 9] {
        let tell = |world: &World| world.timeline().to_vec();
        let once = run(catalog(), seed, Law::whole()).map(|w| tell(&w)).unwrap();
        let again = run(catalog(), seed, Law::whole()).map(|w| tell(&w)).unwrap();
        assert_eq!(once, again, "seed {seed}");
    }
}
