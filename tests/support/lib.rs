//! Shared support for the tests across crates.

#![expect(clippy::expect_used, reason = "test support: a broken fixture should stop the test at once")]

pub mod argo_cd;
pub mod arm;
pub mod azure_roles;
pub mod clock;
pub mod control_plane;
pub mod environment;
pub mod fault_proxy;
pub mod fixtures;
pub mod flux;
pub mod guide;
pub mod installation;
pub mod kube_scheduler;
pub mod manifests;
pub mod node_pools;
pub mod options;
pub mod scenarios;
pub mod wait;
pub mod webhook;
