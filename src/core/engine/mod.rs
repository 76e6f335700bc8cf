//! The control loop: decides, performs commands, and processes their results.

pub mod clock;
mod concurrency;
pub mod control_loop;
pub mod decide;
pub mod decision;
pub mod executor;
pub mod expectations;
pub mod leader_election;
