//! Tests of the orphan sweep.

mod cases;
mod conduct;
mod doubts;
pub(in crate::orphans) mod fixtures;
mod mistakes;
mod needs;
mod scale;
