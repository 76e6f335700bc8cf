//! Tests of the admission webhook behind a real API server.

mod certificates;
mod rule_examples;
