//! Checks whether nodes may be launched in this cluster at all.
//!
//! The configuration names a cluster and its node resource group. Where it was copied to a second cluster, VMs of both
//! would be created in one group, and each would take the other's for orphans. So before the first launch of a term of
//! leadership Azure must say that the group is managed by the configured cluster, and this cluster must have a ready
//! Node in that group that no NodeClaim stands for. And as long as another Karpenter has a NodeClaim here, nothing is
//! launched: two controllers would launch nodes for the same pods.

use crate::model::cluster::launch_hold::LaunchHold;
use crate::model::names::ArmId;
use crate::model::settings::{ControllerMode, DeletionRule, Settings};
use crate::plan::{Command, CommandReport, Plan};
use crate::snapshot::{CommandKey, Snapshot};
use jiff::{SignedDuration, Timestamp};

/// Wait before Azure is asked again, doubled each time.
const RETRY: SignedDuration = SignedDuration::from_secs(15);
/// Longest wait before Azure is asked again.
const MAX_RETRY: SignedDuration = SignedDuration::from_mins(5);
/// Doublings after which the wait no longer grows.
const MAX_DOUBLINGS: u32 = 5;

/// Memory of the check. Disposable: each term of leadership checks anew.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LaunchCheck {
    /// Why nothing was launched at the last decision, if so.
    pub hold: Option<LaunchHold>,
    /// `managedBy` of the group, as last read.
    managed_by: Option<Option<ArmId>>,
    /// When Azure was last asked.
    asked_at: Option<Timestamp>,
    /// How often Azure was asked.
    asked: u32,
    /// Group and Node were right once in this term.
    is_proven: bool,
}

impl LaunchCheck {
    /// Decides whether nodes may be launched now, and has Azure asked where it must be.
    pub fn decide(&mut self, snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        if settings.mode == ControllerMode::Companion {
            return plan;
        }
        self.ask(snapshot, settings, now, &mut plan);
        self.hold = foreign_claim(snapshot, settings).or_else(|| self.unproven(snapshot, settings));
        plan
    }

    /// Records which cluster the group belongs to, if a command has read it.
    pub fn record(&mut self, report: &CommandReport) {
        if let Some(owner) = &report.group_owner {
            self.managed_by = Some(owner.clone());
        }
    }

    fn ask(&mut self, snapshot: &Snapshot, settings: &Settings, now: Timestamp, plan: &mut Plan) {
        let is_ours = self.managed_by.as_ref().is_some_and(|owner| owner.as_ref() == Some(&settings.cluster.id));
        if is_ours || snapshot.in_progress.contains(&CommandKey::GroupOwner) {
            return;
        }
        let wait = MAX_RETRY.min(RETRY * (1 << self.asked.saturating_sub(1).min(MAX_DOUBLINGS)));
        if let Some(due) = self.asked_at.map(|at| at + wait).filter(|due| *due > now) {
            plan.wake_at(due);
            return;
        }
        (self.asked_at, self.asked) = (Some(now), self.asked.saturating_add(1));
        plan.push(Command::ReadGroupOwner, "nothing was launched since this replica leads");
    }

    /// Why it is not proven that the group is this cluster's; `None` once it was.
    fn unproven(&mut self, snapshot: &Snapshot, settings: &Settings) -> Option<LaunchHold> {
        if self.is_proven || !settings.deletion_rules.enforces(DeletionRule::LaunchIntoOwnGroup) {
            return None;
        }
        let (cluster, group) = (&settings.cluster.id, &settings.cluster.node_resource_group);
        match &self.managed_by {
            None => return Some(LaunchHold::GroupUnread { group: group.clone() }),
            Some(owner) if owner.as_ref() != Some(cluster) => {
                return Some(LaunchHold::OtherGroup { group: group.clone(), managed_by: owner.clone() });
            }
            Some(_) => {}
        }
        let claimed = |id: &_| snapshot.claim_by_provider_id(id).is_some();
        self.is_proven = snapshot.nodes().values().any(|node| node.is_ready_agent_node(group, claimed));
        (!self.is_proven).then(|| LaunchHold::NoAgentNode { group: group.clone() })
    }
}

/// A NodeClaim of another Karpenter.
fn foreign_claim(snapshot: &Snapshot, settings: &Settings) -> Option<LaunchHold> {
    if !settings.deletion_rules.enforces(DeletionRule::NoOtherKarpenter) {
        return None;
    }
    let claim = snapshot.claims().values().find(|claim| claim.is_foreign())?;
    Some(LaunchHold::ForeignClaim { claim: claim.name.clone() })
}
