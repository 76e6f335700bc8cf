//! Domain logic of admission: placement policies, and blockers of a change.

pub mod pdb_blockers;
pub mod placement_policy;
