//! Tests that a real API server takes the manifests that ship, and enforces them.

pub(super) mod argo_cd;
pub(super) mod crds;
mod delete_guards;
mod images;
mod overlays;
mod pods;
mod upgrades;
