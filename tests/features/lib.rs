//! Unites the features of third-party crates for tests of a single package; it has no code.
