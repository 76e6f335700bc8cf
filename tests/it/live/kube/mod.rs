//! Tests of the Kubernetes adapter against a real API server.

mod bootstrap_tokens;
mod evictions;
mod node_records;
mod record_sizes;
mod writer;
