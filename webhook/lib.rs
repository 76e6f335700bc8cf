//! Admission webhook: answers AdmissionReviews with findings, placement defaults and placement hints.
//!
//! `/validate` runs the same rules as `napkeeper validate`; `/mutate` annotates a new pod with a placement hint.
//! Neither may block a cluster: a request that cannot be answered in time is allowed, with a warning, and counted, unless
//! [`WhenUnable::Refuse`] was asked for. The process has no Azure credential.

mod cluster_view;
mod hints;
mod metrics;
mod mutate;
mod review;
mod router;
#[cfg(test)]
mod tests;
mod text;
mod unable;
mod validate;

pub use cluster_view::{ClusterView, ViewMetrics, ViewOutputs, ViewSettings};
pub use hints::{PLACEMENT_HINT_ANNOTATION, PlacementHint};
pub use router::{Limits, StartError, Webhook, router};
pub use unable::WhenUnable;
pub use validate::{DELETE_ACKNOWLEDGED_ANNOTATION, DeletionProtection, SourcedValidator};
