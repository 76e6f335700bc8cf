//! Each scenario that ships runs without breaking an invariant, and what it is for happens.

use napkeeper_core::catalog::Catalog;
use napkeeper_sim::world::{EventKind, World};
use napkeeper_tests::scenarios::shipped;
use std::error::Error;

/// Runs a folder of `manifests` to its end.
fn run(folder: &str) -> Result<World, Box<dyn Error>> {
    let catalog = Catalog::embedded()?;
    let (scenario, manifests) = shipped(folder, &catalog)?;
    let mut world = World::new(&catalog, scenario.setup(manifests))?;
    world.run_until(scenario.start + scenario.duration)?;
    assert!(world.cluster().state().pending().is_empty(), "pods wait at the end of {folder}");
    Ok(world)
}

fn count_logged(world: &World, kind: EventKind, words: &str) -> usize {
    world.timeline().iter().filter(|e| e.kind == kind && (e.subject.contains(words) || e.text.contains(words))).count()
}

#[test]
fn the_quickstart_collects_proven_orphans_and_retains_the_rest() -> Result<(), Box<dyn Error>> {
    let world = run("quickstart")?;
    let orphans = world.orphans();
    let collected: Vec<&str> = orphans.collected.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(collected, ["aks-general-purpose-gone0-nic", "pvc-scratch"]);
    let retained = |name: &str| orphans.retained.iter().any(|k| k.name == name);
    assert!(retained("bastion") && retained("pvc-archive") && retained("pvc-database"), "{orphans:#?}");
    assert!(orphans.halted.is_some(), "the emptied API server has tripped the breaker");
    assert_eq!(count_logged(&world, EventKind::Evicted, ""), 1);
    assert!(count_logged(&world, EventKind::Refused, "family_quota") > 0);
    assert!(count_logged(&world, EventKind::Gone, "the NIC of the failed launch") > 0);
    assert_eq!(count_logged(&world, EventKind::Ready, "aks-gpu-"), 1, "the job runs once the quota is lifted");
    Ok(())
}

#[test]
fn the_shopping_day_grows_and_shrinks_again() -> Result<(), Box<dyn Error>> {
    let world = run("scenarios/shopping-day")?;
    let summary = world.summary();
    assert!(summary.nodes_most >= 5 * summary.nodes_now.max(1), "{summary:?}");
    assert_eq!(summary.spot_evictions, 3);
    assert_eq!(world.orphans().found, 0, "nothing is left behind");
    Ok(())
}

#[test]
fn the_nightly_batch_has_gpus_only_while_jobs_run() -> Result<(), Box<dyn Error>> {
    let world = run("scenarios/nightly-batch")?;
    let ready = count_logged(&world, EventKind::Ready, "aks-gpu-");
    assert!(ready >= 16, "{ready} GPU nodes in three nights");
    assert_eq!(
        count_logged(&world, EventKind::Gone, "aks-gpu-") - count_logged(&world, EventKind::Gone, "the NIC of"),
        ready
    );
    assert!(count_logged(&world, EventKind::Refused, "Standard_NC4as_T4_v3") > 0, "Azure lacks T4 in the second night");
    assert_eq!(world.orphans().found, 0, "nothing is left behind");
    Ok(())
}

#[test]
fn the_week_follows_day_and_night() -> Result<(), Box<dyn Error>> {
    let world = run("scenarios/week")?;
    let summary = world.summary();
    assert_eq!(
        count_logged(&world, EventKind::Scenario, "app/worker"),
        13,
        "up each night, down each morning but the last"
    );
    assert!(summary.cpu_utilisation_percent >= 60, "{summary:?}");
    assert!(summary.spot_percent >= 50, "{summary:?}");
    assert_eq!(world.orphans().found, 0, "nothing is left behind");
    Ok(())
}

#[test]
fn a_pool_of_fixed_size_follows_git() -> Result<(), Box<dyn Error>> {
    let world = run("scenarios/fixed-size")?;
    let launched = |text: &str| count_logged(&world, EventKind::Provision, text);
    assert_eq!(launched("the NodePool wants"), 6, "three at first, two more, and one for the Node that was deleted");
    assert_eq!(launched("NodePool spec.template.metadata.labels[desk.example.com/tier]:"), 5);
    assert_eq!(count_logged(&world, EventKind::Disrupt, "drifted: "), 5, "each goes once its replacement is ready");
    assert_eq!(count_logged(&world, EventKind::Disrupt, "scaled_down: "), 3);
    let state = world.cluster().state();
    let fixed = state.nodes().values().filter(|n| n.label("desk.example.com/tier") == Some("gold"));
    assert_eq!(fixed.count(), 2);
    assert_eq!(world.orphans().found, 0, "nothing is left behind");
    Ok(())
}

#[test]
fn reserved_capacity_is_used_first_and_replaces_on_demand() -> Result<(), Box<dyn Error>> {
    let world = run("scenarios/reserved")?;
    assert!(
        count_logged(&world, EventKind::Provision, "Standard_D4s_v5 westeurope-1 reserved") >= 8,
        "four, and four again"
    );
    assert!(count_logged(&world, EventKind::Provision, "on-demand") > 0, "the sale wants more than is reserved");
    let nodes = world.cluster().state().nodes();
    let launched_as = |way: &str| nodes.values().filter(|n| n.label("karpenter.sh/capacity-type") == Some(way)).count();
    assert_eq!((launched_as("on-demand"), launched_as("spot")), (0, 0), "all of it fits on what is reserved now");
    let reservations = world.cloud().reserved();
    let reserved = u64::try_from(launched_as("reserved"))?;
    assert!(
        reservations.iter().all(|reservation| reservation.used == reserved && reservation.used <= reservation.capacity),
        "{reservations:?}"
    );
    assert_eq!(count_logged(&world, EventKind::Refused, ""), 0);
    Ok(())
}
