//! The offerings that new nodes can be launched as.

pub(crate) mod available;
pub(crate) mod cache;
pub(crate) mod candidate;
pub(crate) mod candidate_sets;
pub mod headroom;
pub(crate) mod label_variants;
pub(crate) mod labels;
pub(crate) mod limits;
pub(crate) mod min_values;
pub(crate) mod node_overlays;
pub(crate) mod unavailable;
