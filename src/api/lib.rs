//! Wire types of the Kubernetes objects that napkeeper reads and writes.
//!
//! [`karpenter`], [`overlay`], [`azure`], [`sweep`], [`record`] and [`placement`] are the kinds. [`yaml`] reads files and knows where each value
//! stands, [`convert`] turns objects into the domain's types and back, [`manifests`] does both for a folder.

pub mod azure;
pub mod bootstrap;
pub mod buffer;
pub mod cel_rules;
pub mod config;
pub mod convert;
pub mod crds;
pub mod decode;
pub mod duration;
pub mod facts;
pub mod karpenter;
pub mod manifests;
pub mod overlay;
pub mod path;
pub mod placement;
pub mod record;
pub mod scheduler;
pub mod sweep;
pub mod wire;
pub mod yaml;
