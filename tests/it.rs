//! One integration-test binary: each area of tests is a module.

mod architecture;
mod simulate;
mod sources;
