//! The control loop: makes decisions, performs commands, and takes in their results.

pub mod clock;
mod concurrency;
pub mod controller;
pub mod decide;
pub mod executor;
pub mod leader_election;
