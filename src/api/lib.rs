//! Wire types of the Kubernetes objects that napkeeper reads and writes.
//!
//! [`karpenter`], [`overlay`], [`azure`], [`sweep`], [`record`] and [`placement`] are the kinds. [`yaml`] reads files and knows where each value
//! stands, [`convert`] turns objects into the domain's types and back, [`manifests`] does both for a folder.

pub mod azure_facts;
pub mod bootstrap;
pub mod config;
pub mod convert;
pub mod crds;
pub mod field_path;
pub mod manifests;
pub mod types;
pub mod yaml;
