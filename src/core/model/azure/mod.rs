//! What Azure holds in the node resource group, and how the resources of a node are named.

pub mod cloud;
pub mod inventory;
pub mod naming;
pub mod related;
