//! Tests of Karpenter's policy.

mod worlds;
