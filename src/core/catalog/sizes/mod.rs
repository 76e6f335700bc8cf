//! VM sizes: their names, retirement, and sets of them.

pub(in crate::catalog) mod index;
pub(in crate::catalog) mod name;
pub(in crate::catalog) mod retirement;
pub(in crate::catalog) mod set;
