//! Packing of pods without topology constraints onto new nodes, at the lowest cost.

pub(crate) mod binding_order;
pub(crate) mod binding_queue;
pub(crate) mod fill;
pub(crate) mod greedy;
pub(crate) mod lower_bound;
pub(crate) mod repack;
pub(crate) mod zonal_binding;
