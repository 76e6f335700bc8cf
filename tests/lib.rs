//! Shared support for the tests across crates.

#![expect(clippy::expect_used, reason = "test support: a broken fixture should stop the test at once")]

pub mod arm;
pub mod control_plane;
pub mod kube_scheduler;
pub mod lab;
pub mod pools;
pub mod proxy;
pub mod scenarios;
pub mod webhook;
pub mod worlds;
