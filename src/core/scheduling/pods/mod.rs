//! Pods of a simulation: classes of equal pods, their preferences, node filters, volumes and weights.

pub(crate) mod node_filter;
pub(crate) mod pod_class;
pub(crate) mod preferences;
pub(crate) mod volume_limits;
pub(crate) mod weight;
