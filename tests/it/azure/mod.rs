//! The adapter to Azure: the outcome is the same, whether the simulation is used directly or through it.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests: a broken fixture should stop the test at once"
)]

mod agreement;
mod facts;
mod http;
mod launches;
mod rights;
mod same;
mod seeds;
mod world;
