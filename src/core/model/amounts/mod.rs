//! Integers with units: quantities of Kubernetes, resources of pods and nodes, money.

pub mod money;
pub mod quantity;
pub mod resources;
