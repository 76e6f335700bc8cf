//! Adapter to Azure Resource Manager: what exists in the node resource group, and how is it created and deleted?
//!
//! Today it holds the map from ARM's errors to [`napkeeper_core::ports::CloudErrorCode`]. Authentication, one HTTP
//! transport below the ARM crates, polling of long-running operations and pacing will join it. It decides nothing.

mod error;

pub use error::classify;
