//! The cluster as the deciders see it: what is there at one instant?
//!
//! Every type here is a value, parsed once at the edge. [`Snapshot`] holds them with their indexes.

pub mod buffer;
pub mod bystander;
pub mod claim;
pub mod cloud;
pub mod delta;
pub mod inventory;
pub mod naming;
pub mod node;
pub mod pod;
pub mod pool;
pub mod record;
pub mod spread_defaults;
pub mod sweep;
pub mod topology;
pub mod volume;
pub mod volume_needs;

mod index;
mod pending;
mod snapshot;

pub use index::{NodeUsage, PendingShapes};
pub use snapshot::{Snapshot, Table};
