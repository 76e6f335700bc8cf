//! Small functions without a domain of their own: hashes, jitter, a parallel map, spelling suggestions.

pub mod hash;
pub mod jitter;
pub mod parallel;
pub mod spelling;
