//! One integration-test binary: each area of tests is a module.

mod azure;
mod errors;
mod fuzz;
mod live;
mod scheduling;
mod simulate;
