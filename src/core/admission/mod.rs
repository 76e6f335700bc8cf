//! What admission needs of the domain: placement policies, what blocks a change, what a change affects.

pub mod blockers;
pub mod impact;
pub mod placement_policy;
