//! Tests of the manifests that ship, without a cluster.

mod hooks;
pub(crate) mod policies;
mod probes;
mod pruning;
