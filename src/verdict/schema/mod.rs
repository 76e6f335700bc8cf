//! Judges an object by the schema of its kind, as the API server does.

pub(crate) mod builtin;
pub(crate) mod crds;
pub(crate) mod lookup;
pub(crate) mod structural;
