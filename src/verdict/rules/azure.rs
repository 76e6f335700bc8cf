//! NK2xxx: would Azure launch what is asked for?

rules! {}
