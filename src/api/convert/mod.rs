//! Conversion of Kubernetes objects into types of the domain, and back.
//!
//! Every conversion collects all violations, each with the path of its field. Defaults are those of the API server. A
//! manifest that was never created has no UID; it gets `unsaved-<name>`.

mod capacity_buffer;
mod common;
mod karpenter;
mod kubernetes;
mod node_record;
mod orphans;
mod placement_policy;
mod pods;
mod storage;
mod violations;

#[cfg(test)]
mod tests;

pub use capacity_buffer::{Resolved, buffer_status, capacity_buffer};
pub use karpenter::conditions::{StatusConditions, merged_conditions};
pub use karpenter::invalid::{WithoutSpec, invalid_class, invalid_overlay, invalid_pool};
pub use karpenter::node_claim::{claim, claim_draft, claim_object, is_node_pool};
pub use karpenter::node_claim_status::apply_claim_update;
pub use karpenter::node_overlay::node_overlay;
pub use karpenter::node_pool::{node_class, node_pool};
pub use karpenter::node_pool_status::pool_status;
pub use kubernetes::kube_scheduler::{scheduler_profiles, service};
pub use kubernetes::namespace::namespace;
pub use kubernetes::node::node;
pub use kubernetes::pod_disruption_budget::{
    BudgetLimit, PodDisruptionBudget, disruption_budget, disruption_budget_state,
};
pub use kubernetes::workload::{DaemonSet, Deployment, Job, StatefulSet, daemon_set, deployment, job, stateful_set};
pub use node_record::{node_record, node_removals};
pub use orphans::orphan_record::{record_objects, records};
pub use orphans::orphan_sweep::sweep;
pub use orphans::sweep_status::sweep_status;
pub use placement_policy::placement_policy;
pub use pods::{PodTemplate, pod, pod_or_opaque, pod_template};
pub use storage::volume::volume;
pub use storage::{attach_limits, attachment, inline_disks, storage_class, volume_claim};
pub use violations::{Violation, Violations};
