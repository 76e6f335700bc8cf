//! Secrets that napkeeper writes: bootstrap tokens of new nodes, and the webhook's certificates.

pub(crate) mod bootstrap_tokens;
pub(crate) mod webhook_certificates;
