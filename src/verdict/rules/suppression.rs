//! NK8xxx: are ignores and baselines still needed?

rules! {}
