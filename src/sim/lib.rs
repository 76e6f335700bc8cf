//! The embedded world.

pub mod chance;
pub mod cloud;
