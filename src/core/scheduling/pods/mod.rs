//! Pods of a simulation: classes of equal pods, their preferences, node filters and volumes.

pub(crate) mod node_filter;
pub(crate) mod pod_class;
pub(crate) mod preferences;
pub(crate) mod volume_limits;
