//! Verdicts: does the API server say of an object what we say?

pub(super) mod bases;
pub(super) mod rules;
pub(super) mod server;
