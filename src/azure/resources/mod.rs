//! Resources of the node resource group: listed, read, created and deleted.

mod aks_machines;
mod billing_extension;
mod convert;
mod listing;
mod network;
mod nic;
mod perform;
mod related;
mod vm;
