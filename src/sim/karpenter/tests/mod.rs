//! Tests of Karpenter's policy.

mod balanced;
mod candidates;
mod consolidation;
mod emptiness;
mod fixtures;
mod objects;
mod scheduling;
mod validation;
mod worlds;
