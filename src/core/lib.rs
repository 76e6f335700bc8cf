//! The domain of napkeeper, as pure functions: which nodes should exist, and which Azure resources have no owner.
//!
//! Time, randomness and ids come in as arguments; there is no I/O, no clock and no async. A folder imports only folders
//! that come before it here:
//!
//! | folder | contents |
//! |---|---|
//! | [`model`] | objects of Kubernetes and Azure, amounts, names, requirements, settings |
//! | [`catalog`] | VM sizes with zones and prices, and live facts from Azure |
//! | [`snapshot`] | everything that is known at one moment, with indexes |
//! | [`scheduling`] | which pods run on which nodes, and which new nodes they need |
//! | [`admission`] | placement defaults, and the effects of a write or a delete |
//! | [`plan`] | commands with their preconditions: the output of every decider |
//! | [`provisioning`] | NodeClaims for pods that cannot be scheduled, and for CapacityBuffers |
//! | [`lifecycle`] | launch, registration, initialization and termination of a NodeClaim |
//! | [`disruption`] | consolidation, drift and expiration within budgets |
//! | [`static_capacity`] | NodePools with a fixed number of nodes |
//! | [`outlook`] | what disruption and static capacity do next, and what keeps each node |
//! | [`status`] | the status of NodePools and AKSNodeClasses |
//! | [`orphans`] | resources without an owner, the proof of it, and their deletion |
//! | [`history`] | which nodes were removed, why, and by what they were replaced |
//! | [`engine`] | one pass over all deciders, and the execution of their plans |

pub mod admission;
pub mod catalog;
pub mod disruption;
pub mod engine;
pub mod history;
pub mod lifecycle;
pub mod model;
pub mod orphans;
pub mod outlook;
pub mod plan;
pub mod provisioning;
pub mod scheduling;
pub mod snapshot;
pub mod static_capacity;
pub mod status;

#[cfg(test)]
pub(crate) mod fixtures;
