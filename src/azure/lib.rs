//! Adapter to Azure Resource Manager: lists the node resource group, and creates and deletes resources in it.
//!
//! Thin: it performs [`napkeeper_core::plan::CloudRequest`]s and decides nothing. Every request passes `arm`. The ARM
//! crates give models, URLs and serialisation, always through `.send()`: awaiting their builders of long operations
//! would repeat the PUT at each poll and lose the error. Retries belong to the deciders.

mod arm;
mod auth;
mod client;
mod facts;
mod preflight;
mod recording;
mod resources;
mod settings;
mod transport;

pub use arm::error_codes::known_code;
pub use auth::{Credential, CredentialChain, CredentialError, CredentialSource, Token};
pub use client::Azure;
pub use facts::{PRICES_ENDPOINT, RetailPrices};
pub use preflight::{ClusterPermissions, DenyAssignment, Permission, PolicyAssignment, Preflight};
pub use recording::{Pages, Recorder, Replay, listing_name};
pub use settings::{AksCluster, AzureCloud, AzureSettings, SettingsError, VmSettings, is_loopback_endpoint};
pub use transport::{HttpRequest, HttpResponse, HttpTransport, Method, Transport, TransportError};
