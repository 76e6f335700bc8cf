//! Shared support for the tests across crates.
