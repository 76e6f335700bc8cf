//! Adapter to Azure Resource Manager: what exists in the node resource group, and how is it created and deleted?
//!
//! Thin: it performs [`napkeeper_core::plan::Effect`]s and lists, and decides nothing. Everything passes one transport.
//! The ARM crates give models, URLs and serialisation, always through `.send()`: awaiting their builders of long
//! operations would repeat the PUT at each look and lose the error. Retries belong to the deciders.

mod azure;
mod bystanders;
mod credential;
mod error;
mod extension;
mod facts;
mod identity;
mod listing;
mod machines;
mod meaning;
mod network;
mod nic;
mod operation;
mod pace;
mod pages;
mod place;
mod preflight;
mod read;
mod saved;
mod settings;
mod transport;
mod wire;
mod write;

pub use azure::Azure;
pub use bystanders::AksCluster;
pub use credential::{Chain, Credential, CredentialError, Token};
pub use facts::{PRICES_ENDPOINT, RetailPrices, sku_rows};
pub use meaning::classify;
pub use preflight::{AtCluster, Denial, Permission, Policy, Preflight, matches};
pub use saved::{Pages, Recorder, Saved, listing_name};
pub use settings::{AzureCloud, AzureSettings, Machines, SettingsError, on_this_machine};
pub use wire::{HttpWire, Method, Wire, WireError, WireRequest, WireResponse};
