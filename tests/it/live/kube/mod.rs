//! Tests of the Kubernetes adapter against a real API server.

mod bootstrap_tokens;
mod evictions;
mod record_sizes;
mod writer;
