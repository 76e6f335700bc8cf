//! Types of custom resources as they are on the wire, and the formats of their fields.

pub mod aks_node_class;
pub mod capacity_buffer;
pub mod common;
pub mod decode;
pub mod duration;
pub mod karpenter;
pub mod node_overlay;
pub mod node_record;
pub mod orphan_record;
pub mod orphan_sweep;
pub mod placement_policy;
pub mod scheduler_configuration;
