//! What admission needs of the domain: placement policies, and what blocks a change.

pub mod pdb_blockers;
pub mod placement_policy;
