//! The domain of napkeeper: which nodes should exist, what belongs to nobody, and why?
//!
//! Everything here is a pure function of its arguments. Time, chance and ids come in as arguments; there is no I/O,
//! no clock and no async. [`cluster::Snapshot`] is what is known, [`plan::Plan`] is what is decided.

mod ahead;
pub mod catalog;
pub mod certificates;
pub mod clock;
pub mod cluster;
pub mod controller;
pub mod cushion;
pub mod decide;
pub mod disruption;
pub mod executor;
pub mod facts;
#[cfg(test)]
pub(crate) mod fixtures;
pub mod fleets;
pub mod hash;
pub mod hindrances;
pub mod impact;
mod jitter;
pub mod labels;
mod lanes;
pub mod leadership;
pub mod lifecycle;
pub mod money;
pub mod names;
pub mod orphans;
pub mod placement;
pub mod plan;
pub mod ports;
pub mod provisioning;
pub mod quantity;
pub mod requirements;
pub mod resources;
pub mod schedule;
pub mod scheduling;
pub mod settings;
pub mod suggest;
