//! Tests of the orphan sweep.

mod execution;
pub(in crate::orphans) mod fixtures;
mod known_mistakes;
mod reported_losses;
mod rules;
mod scale;
mod unproven;
