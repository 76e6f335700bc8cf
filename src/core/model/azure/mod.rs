//! Resources in the node resource group, and their names.

pub mod cloud;
pub mod inventory;
pub mod naming;
pub mod related;
