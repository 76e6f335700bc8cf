//! Adapter to Kubernetes: watches and lists the cluster, and writes to it.
//!
//! [`watch`] feeds a [`napkeeper_core::snapshot::Snapshot`], [`list`] reads without that cache; both convert the times
//! that the API server stamped to the controller's clock ([`napkeeper_core::engine::clock`]). [`Writer`] performs the
//! writes of the executor, after [`WriteCheck`] has allowed them.

pub mod client;
mod error;
#[cfg(test)]
mod fake;
mod informers;
pub mod list;
mod objects;
mod preconditions;
mod secrets;
pub mod watch;
mod write;

pub use client::{ConnectError, connect, connect_with_clock};
pub use informers::blockers::follow_blockers;
pub use informers::facts::{follow_facts, publish_facts, read_facts};
pub use informers::placement::follow_placement;
pub use preconditions::clock_skew::ClockSkew;
pub use preconditions::crd_owner::CrdOwner;
pub use preconditions::lease::{LEASE, LeaseHandle, WEBHOOK_LEASE, elect, elect_for, lease_identity};
pub use preconditions::pause::{PAUSE_CONFIG_MAP, pause_switch_exists, read_pause};
pub use preconditions::write_check::{WriteCheck, WriteHolds};
pub use secrets::bootstrap_tokens::BootstrapTokens;
pub use secrets::webhook_certificates::{
    CA_SECRET, HookBundle, TLS_SECRET, TlsSecret, publish_bundle, read_bundles, read_secret, write_secret,
};
pub use write::Writer;
pub use write::capacity_buffers::{capacity_buffers, resolve_buffer, update_buffer_status};
pub use write::events::{Events, Regarding};

/// Who owns the fields of a server-side apply. One for each use, so that no two of our writes take fields from each
/// other, and a user sees in `managedFields` which part of napkeeper wrote what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FieldManager {
    /// NodeClaims: creation, launch intent, finalizer.
    Provisioner,
    /// Status of NodeClaims.
    Lifecycle,
    /// Status of NodePools, and their finalizer.
    Pools,
    /// Conditions of AKSNodeClasses.
    Classes,
    /// Conditions of NodeOverlays.
    Overlays,
    /// Labels, taints and finalizer of Nodes.
    Registration,
    /// OrphanRecords.
    Records,
    /// NodeRecords.
    History,
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
            Self::Pools => "napkeeper-pools",
            Self::Classes => "napkeeper-classes",
            Self::Overlays => "napkeeper-overlays",
            Self::Registration => "napkeeper-registration",
            Self::Records => "napkeeper-records",
            Self::History => "napkeeper-history",
            Self::Sweeps => "napkeeper-sweeps",
            Self::Facts => "napkeeper-facts",
            Self::Buffers => "napkeeper-buffers",
            Self::WebhookCa => "napkeeper-webhook-ca",
        }
    }
}
