//! Which process may write: leader election, the pause switch, ownership of Karpenter's CRDs, and the check before writes.

pub(crate) mod clock_skew;
pub(crate) mod crd_owner;
pub(crate) mod lease;
pub(crate) mod pause;
pub(crate) mod write_check;
