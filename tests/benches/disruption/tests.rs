//! The bounds of the benchmark, on small worlds and beside optima.

#![expect(dead_code, reason = "the benchmark uses the rest of its modules")]

mod bounds;
mod families;
mod policy;
mod world;
