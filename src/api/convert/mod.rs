//! How do objects become the domain's types, and back?
//!
//! Every conversion collects all that is wrong, each with the path of its field. Defaults are those that the API
//! server would have put in. A manifest that no API server has seen has no UID; it gets `unsaved-<name>`.

mod budget;
mod buffer;
mod claim;
mod meta;
mod namespace;
mod node;
mod overlay;
mod placement;
mod pod;
mod pod_affinity;
mod pod_neighbours;
mod pod_ports;
mod pod_requests;
mod pod_spread;
mod pool;
mod record;
mod report;
mod scheduler;
mod step;
mod storage;
mod sweep;
mod violations;
mod volume;
mod workload;

#[cfg(test)]
mod tests;

pub use budget::{BudgetLimit, PodDisruptionBudget, disruption_budget};
pub use buffer::{Resolved, buffer_status, capacity_buffer};
pub use claim::{claim, claim_draft, claim_object};
pub use namespace::namespace;
pub use node::node;
pub use overlay::node_overlay;
pub use placement::placement_policy;
pub use pod::{PodTemplate, pod, pod_or_opaque, pod_template};
pub use pool::{node_class, node_pool};
pub use record::{record_objects, records};
pub use report::sweep_status;
pub use scheduler::{scheduler_profiles, service};
pub use step::apply_claim_update;
pub use storage::{attach_limits, attachment, inline_disks, storage_class, volume_claim};
pub use sweep::sweep;
pub use violations::{Violation, Violations};
pub use volume::volume;
pub use workload::{DaemonSet, Deployment, Job, StatefulSet, daemon_set, deployment, job, stateful_set};
