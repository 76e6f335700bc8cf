//! Small parts without a domain of their own: hashes, jitter, a parallel map, spelling suggestions, times of writes.

pub mod hash;
pub mod jitter;
pub mod name_syntax;
pub mod parallel;
pub mod spelling;
pub mod write_times;
