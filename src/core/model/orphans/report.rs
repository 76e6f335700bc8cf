//! The report of a sweep, besides its findings.

use super::attempt::SweepAction;
use super::finding::DeletionRefusal;
use crate::model::azure::cloud::ResourceKind;
use crate::model::errors::CloudErrorCode;
use crate::model::names::ArmId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// An object in Kubernetes or AKS that represents nothing in Azure, or cannot be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discrepancy {
    /// The kind.
    pub kind: DiscrepancyKind,
    /// The object: its kind and name.
    pub object: Arc<str>,
    /// Since when, as far as known.
    pub since: Option<Timestamp>,
    /// Evidence, for people.
    pub evidence: Vec<Arc<str>>,
    /// What a person can do.
    pub remedy: Arc<str>,
}

/// The kind of a discrepancy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum DiscrepancyKind {
    /// A launched NodeClaim without a VM.
    ClaimWithoutVm,
    /// The VM of a NodeClaim runs, and its Node has not joined.
    NeverJoined,
    /// An AKS Machine without a VM.
    MachineWithoutVm,
    /// A Node without a VM.
    NodeWithoutVm,
    /// A Node of a NodePool has a VM and no NodeClaim.
    NodeWithoutClaim,
    /// An object is being deleted, and a finalizer holds it.
    StuckFinalizer,
}

impl DiscrepancyKind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::ClaimWithoutVm,
        Self::NeverJoined,
        Self::MachineWithoutVm,
        Self::NodeWithoutVm,
        Self::NodeWithoutClaim,
        Self::StuckFinalizer,
    ];

    /// As reports spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClaimWithoutVm => "ClaimWithoutVm",
            Self::NeverJoined => "NeverJoined",
            Self::MachineWithoutVm => "MachineWithoutVm",
            Self::NodeWithoutVm => "NodeWithoutVm",
            Self::NodeWithoutClaim => "NodeWithoutClaim",
            Self::StuckFinalizer => "StuckFinalizer",
        }
    }
}

/// A public IP or a frontend that a person should check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportOnlyFinding {
    /// The resource.
    pub id: ArmId,
    /// `PublicIp` or `Frontend`.
    pub kind: &'static str,
    /// What it is used for.
    pub usage: IpUsage,
    /// The Services that it was created for, `namespace/name` with commas between, by the tag of the public IP.
    pub service: Option<Arc<str>>,
    /// When Azure created it, where known.
    pub created_at: Option<Timestamp>,
    /// Evidence, for people.
    pub evidence: Vec<Arc<str>>,
}

/// What a public IP or a frontend is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum IpUsage {
    /// Nodes reach the internet by it, or AKS keeps it for that.
    Outbound,
    /// Something uses it: rules, backends, a NIC, a gateway.
    InUse,
    /// No listed resource uses it.
    Unused,
}

impl IpUsage {
    /// As reports spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Outbound => "Outbound",
            Self::InUse => "InUse",
            Self::Unused => "Unused",
        }
    }
}

/// An approval and its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalStatus {
    /// The resource that it names.
    pub id: ArmId,
    /// The incarnation that it names.
    pub incarnation: Arc<str>,
    /// When it expires.
    pub expires_at: Timestamp,
    /// Its state.
    pub state: ApprovalState,
    /// What to do about it, for people; empty when nothing.
    pub advice: Arc<str>,
}

/// The state of an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ApprovalState {
    /// It matches nothing that this sweep could delete.
    Unmatched,
    /// It would be valid for more than 14 days, so it does not count.
    TooFarAhead,
    /// Its time is over.
    Expired,
    /// The resource was deleted.
    Spent,
    /// It lifts the clause of approval for its resource.
    Active,
}

impl fmt::Display for ApprovalState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Unmatched => "Unmatched",
            Self::TooFarAhead => "TooFarAhead",
            Self::Expired => "Expired",
            Self::Spent => "Spent",
            Self::Active => "Active",
        })
    }
}

/// Azure does not let us do something to resources of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// The denied action.
    pub action: SweepAction,
    /// To resources of this kind.
    pub kind: ResourceKind,
    /// Which answer: permission, lock, lockdown or policy.
    pub code: CloudErrorCode,
    /// Azure's message.
    pub message: Arc<str>,
    /// Since when, without a success in between.
    pub since: Timestamp,
    /// When it is tried again.
    pub retry_at: Timestamp,
}

/// The next steps of a sweep, and other information for people.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SweepStatusSummary {
    /// Time of the last complete inventory; `None` when there has been none.
    pub last_complete_inventory_at: Option<Timestamp>,
    /// When the next inventory is due.
    pub next_inventory: Option<Timestamp>,
    /// When orphans may next be collected; `None` when the mode does not collect.
    pub next_collection: Option<Timestamp>,
    /// Deletions of the cluster over the last 24 h that count for the cap.
    pub deletions_in_window: u32,
    /// Most deletions over 24 h that this sweep may have a part in.
    pub cap: u32,
    /// How many orphans of each kind are not deleted, by refusal. One may have several.
    pub orphans_by_refusal: BTreeMap<(ResourceKind, DeletionRefusal), u32>,
    /// The approvals of the spec, with their states.
    pub approvals: Vec<ApprovalStatus>,
    /// Actions that Azure denies: the sweep only reports there.
    pub denials: Vec<Denial>,
}
