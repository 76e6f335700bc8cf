//! Small functions without a domain of their own: hashes, jitter, spelling suggestions.

pub mod hash;
pub mod jitter;
pub mod spelling;
