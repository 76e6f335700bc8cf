//! Adapter to Kubernetes: which objects does the cluster hold, and how are ours written?
//!
//! [`watch`] feeds a [`napkeeper_core::snapshot::Snapshot`], [`list`] reads past that cache; both turn the times that the
//! API server stamped into ours ([`napkeeper_core::engine::clock`]). [`Writer`] performs what the executor asks for. It decides
//! nothing.

mod buffers;
pub mod client;
mod error;
mod events;
mod facts;
#[cfg(test)]
mod fake;
mod gate;
mod hindrances;
mod lease;
pub mod list;
pub mod memory;
mod ours;
mod owner;
mod pause;
mod placement;
mod raw;
mod rows;
pub mod saved;
mod tls_secret;
mod tokens;
pub mod watch;
mod write;

pub use buffers::{capacity_buffers, resolve_buffer, tell_buffer};
pub use client::{ConnectError, connect};
pub use events::{Events, Regarding};
pub use facts::{follow_facts, publish_facts, read_facts};
pub use gate::Gate;
pub use hindrances::follow_hindrances;
pub use lease::{LEASE, LeaseHandle, WEBHOOK_LEASE, lease_identity, stand, stand_for};
pub use owner::foreign_definitions;
pub use pause::{PAUSE_CONFIG_MAP, read_pause};
pub use placement::follow_placement;
pub use tls_secret::{HookBundle, TLS_SECRET, TlsSecret, publish_bundle, read_bundles, read_secret, write_secret};
pub use tokens::JoinTokens;
pub use write::Writer;

/// Who owns the fields of a server-side apply. One for each use, so that no two of our writes take fields from each
/// other, and a user sees in `managedFields` which part of napkeeper wrote what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FieldManager {
    /// NodeClaims: creation, launch intent, finalizer.
    Provisioner,
    /// Status of NodeClaims.
    Lifecycle,
    /// Labels, taints and finalizer of Nodes.
    Registration,
    /// OrphanRecords.
    Records,
    /// Status of OrphanSweeps.
    Sweeps,
    /// The ConfigMap `napkeeper-facts`.
    Facts,
    /// Status of CapacityBuffers.
    Buffers,
    /// `caBundle` of the hooks, and the Secret with the certificates.
    WebhookCa,
}

impl FieldManager {
    /// The name as `managedFields` shows it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Provisioner => "napkeeper-provisioner",
            Self::Lifecycle => "napkeeper-lifecycle",
            Self::Registration => "napkeeper-registration",
            Self::Records => "napkeeper-records",
            Self::Sweeps => "napkeeper-sweeps",
            Self::Facts => "napkeeper-facts",
            Self::Buffers => "napkeeper-buffers",
            Self::WebhookCa => "napkeeper-webhook-ca",
        }
    }
}
