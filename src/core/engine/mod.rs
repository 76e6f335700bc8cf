//! The loop around the deciders: decisions are made, commands are performed, and what came of them is learned.

pub mod clock;
mod concurrency;
pub mod controller;
pub mod decide;
pub mod executor;
pub mod leader_election;
