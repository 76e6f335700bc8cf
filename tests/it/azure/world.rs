//! Whole worlds: the same history, whether the deciders reach Azure directly or through the adapter.

use jiff::Timestamp;
use napkeeper_core::catalog::Catalog;
use napkeeper_core::model::settings::DeletionRules;
use napkeeper_sim::fuzz;
use napkeeper_sim::scenario::Scenario;
use napkeeper_sim::world::World;
use napkeeper_tests::arm::ThroughAdapter;
use napkeeper_tests::scenarios::shipped;
use std::error::Error;

fn adapt(world: &mut World) {
    world.set_azure_access(Box::new(ThroughAdapter::new(world.cloud().settings())));
}

/// Both have the same history, in every word.
pub(super) fn assert_same(direct: &World, through: &World, case: &str) {
    for (expected, actual) in direct.timeline().iter().zip(through.timeline()) {
        assert_eq!(expected, actual, "{case}");
    }
    assert_eq!(direct.timeline().len(), through.timeline().len(), "{case}");
    assert!(!direct.timeline().is_empty(), "{case}");
    assert_eq!(direct.summary(), through.summary(), "{case}");
    assert_eq!(direct.orphans(), through.orphans(), "{case}");
    assert_eq!(direct.cloud().ledger(), through.cloud().ledger(), "{case}");
}

/// The world of the quickstart, with its scenario changed so, and the end of that scenario.
pub(super) fn quickstart(change: impl FnOnce(&mut Scenario)) -> Result<(World, Timestamp), Box<dyn Error>> {
    let catalog = Catalog::embedded()?;
    let (mut scenario, manifests) = shipped("quickstart", &catalog)?;
    change(&mut scenario);
    let end = scenario.start + scenario.duration;
    Ok((World::new(&catalog, scenario.setup(manifests))?, end))
}

#[test]
fn the_quickstart_is_the_same_through_the_adapter() -> Result<(), Box<dyn Error>> {
    let (mut direct, end) = quickstart(|_| {})?;
    direct.run_until(end)?;
    let (mut through, _) = quickstart(|_| {})?;
    adapt(&mut through);
    through.run_until(end)?;
    assert_same(&direct, &through, "the quickstart");
    Ok(())
}

/// Histories of several hazards, crashes and faults of Azure included; few, since each request is JSON here.
#[test]
fn histories_of_faults_are_the_same_through_the_adapter() -> Result<(), Box<dyn Error>> {
    let catalog = Catalog::embedded()?;
    for seed in [0, 3, 6, 9] {
        let direct = fuzz::run(&catalog, seed, DeletionRules::all())?;
        let through = fuzz::run_prepared(&catalog, seed, DeletionRules::all(), adapt)?;
        assert_same(&direct, &through, &format!("seed {seed} ({:?})", fuzz::Hazard::of(seed)));
    }
    Ok(())
}
