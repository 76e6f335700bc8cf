//! Wire types of the Kubernetes objects that napkeeper reads and writes.
//!
//! [`types`] has the kinds. [`yaml`] reads files and knows the position of each value, [`convert`] turns objects into the
//! domain's types and back, [`manifests`] does both for a folder.

pub mod azure_facts;
pub mod bootstrap;
pub mod config;
pub mod convert;
pub mod crds;
pub mod field_path;
pub mod maintenance_window;
pub mod manifests;
pub mod types;
pub mod yaml;
