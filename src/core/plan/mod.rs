//! Plans: commands with their reasons.
//!
//! A plan is data. `plan` prints it, `explain` prints its reasons, `simulate` applies it to the embedded world, and
//! the executor applies it to Azure and the API server.

mod aks_machine;
mod cloud_request;
mod command;
mod effect;
mod pause;
mod preconditions;
mod script;
mod status_report;

use crate::model::cluster::node::Node;
use crate::model::names::ClaimName;
pub use aks_machine::{AksMachineRequest, AksMachineSpec};
pub use cloud_request::CloudRequest;
pub use command::{
    CheckVm, Command, DrainedNode, IfVmLost, Launch, NothingRuns, ReleaseNode, SignOnNode, SweepDelete, Terminate,
    is_sweep_write, kind_label, one_of_kind,
};
pub use effect::{
    ClaimDraft, ClaimUpdate, ClusterRead, ClusterWrite, Effect, KubeletSpec, NicSpec, NodeUpdate, RecordChange, Reply,
    SecurityProfile, VmSpec,
};
use jiff::Timestamp;
pub use pause::{disruption_scope, is_paused, scope_of_pod};
pub use preconditions::Preconditions;
pub use script::{CommandReport, EffectSequence, EvictionReport, LaunchReport, Script, Step, TerminationReport};
pub use status_report::{
    ClaimReport, ClassReport, NodeRecordChange, OverlayReport, PoolRelease, PoolReport, ResourceTotal, SweepReport,
};
use std::sync::Arc;

/// What to do now, why, and when to decide again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use]
pub struct Plan {
    /// Commands, in the order in which they should be started.
    pub commands: Vec<PlannedCommand>,
    /// Decide again at this time even if nothing changes; `None` is only on change.
    pub next: Option<Timestamp>,
}

/// A command with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedCommand {
    /// What to do.
    pub command: Command,
    /// Why, for people: one sentence without a full stop.
    pub reason: Arc<str>,
    /// What it rests on beside its own object; shared by commands that go together.
    pub preconditions: Option<Arc<Preconditions>>,
}

impl Plan {
    /// Adds a command with its reason.
    pub fn push(&mut self, command: Command, reason: impl AsRef<str>) {
        self.commands.push(PlannedCommand { command, reason: Arc::from(reason.as_ref()), preconditions: None });
    }

    /// Adds a command with its reason, and what it rests on.
    pub fn push_if(&mut self, preconditions: &Arc<Preconditions>, command: Command, reason: impl AsRef<str>) {
        let preconditions = Some(Arc::clone(preconditions));
        self.commands.push(PlannedCommand { command, reason: Arc::from(reason.as_ref()), preconditions });
    }

    /// Adds a change of a Node with its reason.
    pub fn update_node(&mut self, node: &Node, update: NodeUpdate, reason: impl AsRef<str>) {
        let (node, uid) = (node.name.clone(), node.uid.clone());
        self.push(Command::UpdateNode { node, uid, update }, reason);
    }

    /// The NodeClaims that it deletes.
    pub fn deleted_claims(&self) -> impl Iterator<Item = &ClaimName> {
        self.commands.iter().filter_map(|planned| match &planned.command {
            Command::DeleteClaim { claim, .. } => Some(&claim.name),
            _ => None,
        })
    }

    /// Decide again at this time, or earlier if that was requested already.
    pub fn wake_at(&mut self, at: Timestamp) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    /// Adds all of another plan.
    pub fn extend(&mut self, other: Self) {
        self.commands.extend(other.commands);
        if let Some(at) = other.next {
            self.wake_at(at);
        }
    }
}
