//! A simulated Azure and a simulated Kubernetes cluster on a virtual clock.
//!
//! It answers two questions. For users: what would napkeeper do with these manifests? For us: does any fault, at any
//! time, make it do harm? Everything is a function of the scenario and the seed.

pub mod arm;
pub mod autoscaler;
pub mod cloud;
pub mod cluster;
pub mod fuzz;
pub mod karpenter;
pub mod measures;
pub mod random;
pub mod scenario;
pub mod workload;
pub mod world;
