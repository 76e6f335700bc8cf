//! Tests across crates in one program, to link only once: each area of tests is a module.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a broken fixture should stop the test at once; what was measured is for whoever runs it"
)]

mod azure;
mod drawn_objects;
mod errors;
mod fuzz;
mod guide;
mod live;
mod manifests;
mod scheduling;
mod simulate;
mod webhook;
