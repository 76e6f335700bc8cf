//! Admission webhook: how does an AdmissionReview become a verdict or a placement hint, and back?
//!
//! `/validate` runs the same rules as `napkeeper validate`; `/mutate` notes on a new pod where it will probably run.
//! Neither may hold a cluster up: what cannot be answered in time is allowed, with a warning, and counted. The process
//! builds no Azure credential.

mod basis;
mod checked;
mod cluster;
mod defaults;
mod guard;
mod hint;
mod hinter;
mod metrics;
mod mutate;
mod object;
mod policies;
mod recent;
mod review;
mod router;
mod size;
mod validate;

#[cfg(test)]
mod tests;

pub use basis::Basis;
pub use guard::{DELETE_ACKNOWLEDGED_ANNOTATION, Guard};
pub use hint::{PLACEMENT_HINT_ANNOTATION, PlacementHint};
pub use router::{Limits, StartError, Webhook, router};
