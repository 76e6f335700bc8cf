//! The embedded world.

pub mod arm;
pub mod chance;
pub mod cloud;
