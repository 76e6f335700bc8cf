//! Conversion of NodePools, AKSNodeClasses, NodeOverlays and NodeClaims.

pub(crate) mod conditions;
pub(crate) mod invalid;
pub(crate) mod node_claim;
pub(crate) mod node_claim_status;
pub(crate) mod node_overlay;
pub(crate) mod node_pool;
pub(crate) mod node_pool_status;
mod refusals;
