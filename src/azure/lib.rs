//! Adapter to Azure Resource Manager: what exists in the node resource group, and how is it created and deleted?
//!
//! Will hold authentication, one HTTP transport below the ARM crates, polling of long-running operations,
//! pacing, and the map from ARM error codes to [`napkeeper_core::ports::CloudError`]. It decides nothing.
