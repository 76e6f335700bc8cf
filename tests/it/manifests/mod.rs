//! Tests of the manifests that ship, without a cluster.

mod hooks;
mod network;
pub(crate) mod policies;
mod probes;
mod pruning;
