//! Conversion of Kubernetes' own kinds besides pods and volumes.

pub(crate) mod kube_scheduler;
pub(crate) mod namespace;
pub(crate) mod node;
mod node_condition;
pub(crate) mod pod_disruption_budget;
pub(crate) mod workload;
