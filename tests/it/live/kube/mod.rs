//! Tests of the Kubernetes adapter against a real API server.

mod bootstrap_tokens;
mod record_sizes;
mod writer;
