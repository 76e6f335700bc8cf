//! Tests of the admission webhook behind a real API server.

mod certificates;
mod fail_closed;
mod issuer;
mod rule_examples;
mod service;
