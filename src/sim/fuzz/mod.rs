//! The fault search: plays random histories of faults and checks that the controller does no harm and leaves nothing
//! undone.
//!
//! [`history`] draws a world and its faults from a seed, and [`run`] plays it. When the faults have been over for long
//! enough, [`check_settled`] checks that every pod runs and that every leak is deleted or waits for manual action. Each
//! seed stresses one of [`Hazard::ALL`], so that every hazard comes up every 24 seeds.

mod hazard;
mod history;
mod initial_objects;
#[cfg(test)]
mod node_health;
#[cfg(test)]
mod outdated_nodes;
mod seeds;
mod settled;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::{on_all_processors, requested_seeds};

use crate::world::{SetupError, Violation, World, WorldSetup};
pub use hazard::Hazard;
pub use history::{History, history};
use jiff::SignedDuration;
use napkeeper_core::catalog::Catalog;
use napkeeper_core::model::settings::DeletionRules;
pub use seeds::seeds;
use settled::LONGEST_PENDING;
pub use settled::check_settled;

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The world could not be set up.
    #[error(transparent)]
    Start(#[from] SetupError),
    /// An invariant broke.
    #[error(transparent)]
    Violation(#[from] Violation),
}

/// Plays the history of a seed under these deletion rules, to its end.
///
/// # Errors
/// [`Failure`] with the first invariant that broke.
pub fn run(catalog: &Catalog, seed: u64, rules: DeletionRules) -> Result<World, Failure> {
    run_prepared(catalog, seed, rules, |_| {})
}

/// Plays the history of a seed under these deletion rules, in a world that the caller prepares.
///
/// # Errors
/// [`Failure`] with the first invariant that broke.
pub fn run_prepared(
    catalog: &Catalog,
    seed: u64,
    rules: DeletionRules,
    prepare: impl FnOnce(&mut World),
) -> Result<World, Failure> {
    play(catalog, history(seed), rules, prepare)
}

/// Plays a history under these deletion rules, to its end.
fn play(
    catalog: &Catalog,
    history: History,
    rules: DeletionRules,
    prepare: impl FnOnce(&mut World),
) -> Result<World, Failure> {
    let History { setup, crashes, mode, duration } = history;
    let mut world = World::new(catalog, WorldSetup { deletion_rules: rules, ..setup })?;
    world.set_mode(mode);
    world.plan_crashes(crashes);
    prepare(&mut world);
    world.set_faults_end(world.now() + FAULTS);
    let end = world.now() + duration;
    world.run_until(end)?;
    if world.cluster().state().pending_pods().next().is_some() {
        world.run_until(end + LONGEST_PENDING)?;
    }
    check_settled(&world)?;
    Ok(world)
}

/// How long after its start a history has faults.
pub(crate) const FAULTS: SignedDuration = SignedDuration::from_hours(20);
/// How long a history lasts after that.
pub(crate) const AFTERWARDS: SignedDuration = SignedDuration::from_hours(24 * 4);
