//! The policies that are measured.

use anyhow::{Result, anyhow};
use jiff::SignedDuration;
use napkeeper_core::catalog::Catalog;
use napkeeper_core::model::cluster::pool::ConsolidationPolicy;
use napkeeper_sim::autoscaler;
use napkeeper_sim::karpenter::{Karpenter, Launches, Variant};
use napkeeper_sim::world::{Summary, World, WorldSetup};

/// A policy on the simulated cluster.
#[derive(Clone, Copy)]
pub(crate) struct Policy {
    /// As it is called on the command line and in the table.
    pub(crate) name: &'static str,
    /// Runs it on a world for a time.
    pub(crate) run: fn(&Catalog, WorldSetup, SignedDuration) -> Result<Summary>,
}

/// All of them. The first is what the others are compared with.
pub(crate) const ALL: &[Policy] = &[
    Policy { name: "napkeeper", run: napkeeper },
    Policy { name: "karpenter", run: |catalog, setup, time| karpenter(catalog, &setup, time, None) },
    Policy {
        name: "karpenter-balanced",
        run: |catalog, setup, time| karpenter(catalog, &setup, time, Some(ConsolidationPolicy::Balanced)),
    },
    Policy { name: "karpenter-provisioning", run: karpenter_provisioning },
    Policy { name: "autoscaler", run: |catalog, setup, time| Ok(autoscaler::simulate(catalog, &setup, time)?) },
];

fn napkeeper(catalog: &Catalog, setup: WorldSetup, time: SignedDuration) -> Result<Summary> {
    run(World::new(catalog, setup)?, time)
}

fn run(mut world: World, time: SignedDuration) -> Result<Summary> {
    let end = world.now() + time;
    world.run_until(end).map_err(|violation| anyhow!("{violation}"))?;
    Ok(world.summary())
}

/// napkeeper's disruption of nodes that Karpenter has chosen.
fn karpenter_provisioning(catalog: &Catalog, setup: WorldSetup, time: SignedDuration) -> Result<Summary> {
    let provisioner = Box::new(Launches::new(catalog, &setup)?);
    let mut world = World::new(catalog, setup)?;
    world.set_provisioner(provisioner);
    run(world, time)
}

/// Karpenter, with a consolidation policy instead of those of the NodePools.
fn karpenter(
    catalog: &Catalog,
    setup: &WorldSetup,
    time: SignedDuration,
    consolidation: Option<ConsolidationPolicy>,
) -> Result<Summary> {
    let variant = Variant { consolidation, ..Variant::default() };
    let mut karpenter = Karpenter::new(catalog, setup, &variant)?;
    karpenter.run_until(setup.at + time)?;
    Ok(karpenter.summary())
}
