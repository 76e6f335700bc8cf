//! The embedded world.

pub mod chance;
