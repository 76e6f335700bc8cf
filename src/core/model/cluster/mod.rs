//! Kubernetes objects, as values that are parsed once at the edge.

pub mod buffer;
pub mod claim;
pub mod disruption_budget;
pub mod launch_hold;
pub mod node;
pub mod node_base;
pub mod node_record;
pub mod node_template;
pub mod offering;
pub mod pod;
mod pod_status;
pub mod pool;
pub mod replacement;
pub mod status;
pub mod topology;
pub mod volume;
