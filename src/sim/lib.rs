//! The embedded world.

pub mod chance;
pub mod cluster;
pub mod workload;
