//! Nodes of a simulation: existing and open ones, and the placement of pods on them.

pub(crate) mod best_open_node;
pub(crate) mod existing;
pub(crate) mod new_node;
pub(crate) mod new_node_domains;
pub(crate) mod place;
pub(crate) mod planned_offerings;
pub(crate) mod pod_needs;
pub(crate) mod simulation_state;
pub(crate) mod utilization_buckets;
