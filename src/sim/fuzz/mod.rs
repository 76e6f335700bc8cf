//! The search for faults: does any history of faults make the deciders do harm, or leave something undone?
//!
//! [`history`] draws a world and its misfortunes from a seed; [`run`] plays it, and [`settle`] checks, when the faults
//! have been over for long enough, that every pod runs and that every leak is gone or waits for a person. Each seed
//! stresses one of [`Theme::ALL`], so that every hazard comes up every fifteen seeds.

mod furniture;
mod history;
mod settle;
#[cfg(test)]
mod tests;
mod theme;

use crate::world::{Start, StartError, Violation, World};
pub use history::{History, history};
use jiff::SignedDuration;
use napkeeper_core::catalog::Catalog;
use napkeeper_core::model::settings::DeletionRules;
pub use settle::settle;
pub use theme::Theme;

/// How a run ended that should not have ended so.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The world could not begin.
    #[error(transparent)]
    Start(#[from] StartError),
    /// An invariant broke.
    #[error(transparent)]
    Violation(#[from] Violation),
}

/// Plays the history of a seed under a law, to its end.
///
/// # Errors
/// [`Failure`] with the first invariant that broke.
pub fn run(catalog: &Catalog, seed: u64, law: DeletionRules) -> Result<World, Failure> {
    run_prepared(catalog, seed, law, |_| {})
}

/// Plays the history of a seed under a law, in a world that the caller prepares.
///
/// # Errors
/// [`Failure`] with the first invariant that broke.
pub fn run_prepared(
    catalog: &Catalog,
    seed: u64,
    law: DeletionRules,
    prepare: impl FnOnce(&mut World),
) -> Result<World, Failure> {
    let History { start, crashes, mode, lasting } = history(seed);
    let mut world = World::begin(catalog, Start { law, ..start })?;
    world.set_mode(mode);
    world.plan_crashes(crashes);
    prepare(&mut world);
    world.expect_order_after(world.now() + FAULTS);
    let end = world.now() + lasting;
    world.run_until(end)?;
    settle(&world)?;
    Ok(world)
}

/// How long after its start a history lets faults happen.
pub(crate) const FAULTS: SignedDuration = SignedDuration::from_hours(20);
/// How long a history lasts after that.
pub(crate) const AFTERWARDS: SignedDuration = SignedDuration::from_hours(24 * 4);
