//! The NodeClaim lifecycle: launch, registration, initialization, liveness, termination.
//!
//! A NodeClaim goes through [`ClaimPhase`]s. Each follows from the Snapshot alone, so that a restart continues where
//! the last run stopped; [`lifecycle`] turns the phase into the next command.

mod aks_machine;
mod billing_extension;
mod claim_report;
mod drain;
mod launch;
mod launch_progress;
mod lost_node;
mod node_health;
mod phase;
mod registration;
mod retry_budget;
mod terminate;
mod unclaimed_node;

use crate::model::azure::cloud::Tags;
use crate::model::cluster::claim::Claim;
use crate::model::cluster::node::Node;
use crate::model::errors::CloudErrorCode;
use crate::model::labels;
use crate::model::names::{ArmId, ClaimName, NodeName};
use crate::model::settings::{ControllerMode, Settings};
use crate::model::support::write_times::WriteTimes;
use crate::plan::{ClaimReport, Command, EvictionReport, Launch, LaunchReport, Plan, SecurityProfile};
use crate::provisioning::ProvisionMemory;
use crate::snapshot::{CommandKey, Snapshot};
pub use aks_machine::AksMachineLaunchScript;
pub use billing_extension::BillingExtensionScript;
use claim_report::ObservedNode;
pub use drain::{BlockedDrain, EvictionScript, FORCE_DRAIN_AFTER};
use drain::{DrainProgress, Evictions, EvictionsInFlight, WrittenConditions};
use jiff::{SignedDuration, Timestamp};
pub use launch::pool_failures::PoolFailures;
use launch::pool_failures::{FailedNode, NodeFailure};
pub use launch::{ClassInstanceTypes, LaunchCheck, LaunchScript};
use lost_node::VM_CHECK_INTERVAL;
pub use lost_node::{CheckVmScript, NodeOutage};
pub use node_health::{DeleteIfUnhealthyScript, RepairBlock, UnhealthyShare};
use node_health::{RecentRepairs, TaintedSince, UnhealthyShares};
pub use phase::ClaimPhase;
use std::collections::BTreeMap;
use std::sync::Arc;
pub use terminate::{TerminateScript, TerminationDenials};
pub use unclaimed_node::ReleaseNodeScript;

/// A VM that Azure is still creating is waited for so long: the create operations of large sizes may take longer than
/// the launch timeout, and a VM that is deleted before it is ready is only created anew.
const CREATION_TIMEOUT: SignedDuration = SignedDuration::from_mins(60);
/// A launch that failed for a passing reason is tried again after this time.
const LAUNCH_RETRY: SignedDuration = SignedDuration::from_secs(15);

/// Memory of the lifecycle. All of it is disposable: after a crash a look-up or an eviction is repeated, and a node
/// counts as quiet only from its next pod event on, or from its initialisation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LifecycleMemory {
    /// The outage of nodes at the last decision, if there was one.
    pub outage: Option<NodeOutage>,
    /// NodePools whose nodes did not come up.
    pub pool_failures: PoolFailures,
    /// What Azure does not let us delete.
    pub termination_denials: TerminationDenials,
    /// Drains that do not move, by their Node.
    pub blocked_drains: BTreeMap<NodeName, BlockedDrain>,
    /// Unhealthy nodes that are not repaired by the last decision, and why.
    pub blocked_repairs: BTreeMap<NodeName, RepairBlock>,
    tainted_since: TaintedSince,
    recent_repairs: RecentRepairs,
    /// When a NodeClaim was last tried to be deleted because of its node.
    forced_deletions_tried: BTreeMap<ClaimName, Timestamp>,
    vm_checked: BTreeMap<ClaimName, Timestamp>,
    evictions: Evictions,
    /// When the deadline of a drain was last written on its NodeClaim.
    deadlines_recorded: BTreeMap<ClaimName, Timestamp>,
    /// Since when pods of a node have had to end, because its deadline is near or over. If lost, they get a little more time.
    expiring_since: BTreeMap<ClaimName, Timestamp>,
    conditions_written: BTreeMap<ClaimName, WrittenConditions>,
    drains: BTreeMap<NodeName, DrainProgress>,
    /// Since when the volumes of a drained Node are waited for.
    volumes_awaited: BTreeMap<NodeName, Timestamp>,
    /// When a Node was last labelled for its drain.
    labels_tried: BTreeMap<NodeName, Timestamp>,
    launched: BTreeMap<ClaimName, Timestamp>,
    /// Launches that have ended, and whether Azure was still creating the VM.
    launches_ended: BTreeMap<ClaimName, bool>,
    billing_attempted: BTreeMap<ClaimName, Timestamp>,
    terminated: BTreeMap<ClaimName, Timestamp>,
    observed: BTreeMap<ClaimName, ObservedNode>,
    reports: WriteTimes<ClaimName, ClaimReport>,
}

/// Decides the next step of every NodeClaim.
pub fn lifecycle(
    snapshot: &Snapshot,
    memory: &mut LifecycleMemory,
    provision: &ProvisionMemory,
    settings: &Settings,
    now: Timestamp,
) -> Plan {
    let mut plan = Plan::default();
    if settings.mode == ControllerMode::Companion {
        return plan;
    }
    memory.forget(snapshot, now);
    memory.outage = NodeOutage::of(snapshot, settings, now);
    // About those that a command is running for nothing is decided.
    memory.blocked_repairs.retain(|node, _| is_claim_in_progress(snapshot, node));
    memory.recent_repairs.update(snapshot, now);
    memory.pool_failures.restore(snapshot, settings, now);
    memory.pool_failures.forget(snapshot);
    let in_flight = EvictionsInFlight::of(snapshot, &memory.evictions);
    let mut reconciler =
        ClaimReconciler { snapshot, memory, provision, settings, now, in_flight, unhealthy: None, plan: &mut plan };
    for claim in snapshot.claims().values().filter(|claim| claim.is_ours()) {
        if !snapshot.in_progress.contains(&CommandKey::Claim(claim.name.clone())) {
            reconciler.reconcile(claim);
        }
    }
    reconciler.release_unclaimed_nodes();
    if let Some(end) = memory.pool_failures.next_end(now) {
        plan.wake_at(end);
    }
    plan
}

/// A command is running for the NodeClaim of a node.
fn is_claim_in_progress(snapshot: &Snapshot, node: &NodeName) -> bool {
    let claim = snapshot.nodes().get(node).and_then(|node| snapshot.claim_of(node));
    claim.is_some_and(|claim| snapshot.in_progress.contains(&CommandKey::Claim(claim.name.clone())))
}

/// Decides for one claim after another.
struct ClaimReconciler<'a> {
    snapshot: &'a Snapshot,
    memory: &'a mut LifecycleMemory,
    provision: &'a ProvisionMemory,
    settings: &'a Settings,
    now: Timestamp,
    in_flight: EvictionsInFlight,
    /// Counted when the first unhealthy node is found.
    unhealthy: Option<UnhealthyShares>,
    plan: &'a mut Plan,
}

impl ClaimReconciler<'_> {
    fn reconcile(&mut self, claim: &Claim) {
        let node = self.snapshot.node_of(claim).cloned();
        let node = node.as_deref();
        let phase = ClaimPhase::of(claim, node);
        if matches!(phase, ClaimPhase::Registered | ClaimPhase::Initialized)
            && node.is_some_and(|node| self.disrupt_forcefully(claim, node))
        {
            return;
        }
        match phase {
            ClaimPhase::Created | ClaimPhase::Launching => self.launch(claim),
            ClaimPhase::LaunchFailed => {
                self.delete_refused(claim);
            }
            ClaimPhase::Launched => self.await_node(claim),
            ClaimPhase::Joined => self.register(claim, node),
            ClaimPhase::Registered => self.initialize(claim, node),
            ClaimPhase::Initialized => self.maintain(claim, node),
            ClaimPhase::NodeMissing => self.replace_missing(claim, node),
            ClaimPhase::Draining => self.drain(claim, node),
        }
    }

    fn launch(&mut self, claim: &Claim) {
        if self.snapshot.holds_launches(self.now) {
            // Afterwards it is checked again, however late it is.
            self.memory.launched.remove(&claim.name);
            self.memory.launches_ended.remove(&claim.name);
            return;
        }
        let ended = self.memory.launches_ended.get(&claim.name);
        let timeout = if ended == Some(&true) { CREATION_TIMEOUT } else { self.settings.launch_timeout };
        let deadline = claim.created_at + timeout.max(self.settings.launch_timeout);
        // After a restart or a pause the result of an intent is unknown: launch once more before it times out.
        if self.now >= deadline && (claim.intent.is_none() || ended.is_some()) {
            let minutes = self.now.duration_since(claim.created_at).as_mins();
            self.delete(claim, "launch_timeout", &format!("no VM after {minutes} minutes"));
            return;
        }
        if self.now < deadline {
            self.plan.wake_at(deadline);
        }
        if let Some(again) =
            self.memory.launched.get(&claim.name).map(|at| *at + LAUNCH_RETRY).filter(|t| *t > self.now)
        {
            self.plan.wake_at(again);
            return;
        }
        let Some(class) = self.snapshot.classes().get(&claim.spec.class) else { return };
        let again = if claim.intent.is_some() { "resuming an interrupted launch" } else { "new NodeClaim" };
        let best = claim.spec.planned.first().map(|o| format!(": {} at {}/h", o.key, o.price)).unwrap_or_default();
        self.memory.launched.insert(claim.name.clone(), self.now);
        let launch = Launch {
            claim: claim.reference(),
            pool: claim.spec.pool.clone(),
            offerings: claim.spec.planned.clone(),
            intent: claim.intent.clone(),
            group: self.settings.cluster.node_resource_group.clone(),
            tags: tags(claim, &class.tags, self.settings),
            os_disk_gb: class.os_disk_gb,
            image: self.snapshot.node_base.image.clone().filter(|_| self.settings.aks_machine_pool.is_none()),
            security: SecurityProfile {
                encryption_at_host: class.encryption_at_host,
                secure_boot: class.secure_boot,
                vtpm: class.vtpm,
            },
            subnet: class.subnet.as_deref().and_then(|id| ArmId::new(id).ok()),
            // A Machine of AKS is on no reservation.
            capacity_reservation_group: class.reservations.clone().filter(|_| self.settings.aks_machine_pool.is_none()),
        };
        self.plan.push(Command::Launch(Box::new(launch)), format!("{again}{best}"));
    }

    /// Reports what is seen of an initialized node, and checks nodes that are not ready.
    fn maintain(&mut self, claim: &Claim, node: Option<&Node>) {
        let Some(node) = node else { return };
        if self.ensure_billing_extension(claim) {
            return;
        }
        self.check_unready(claim, node);
        self.report_node(claim, node);
    }

    /// Deletes the claim of a Node that is being deleted; of one that is gone, if Azure proves that its VM is lost.
    fn replace_missing(&mut self, claim: &Claim, node: Option<&Node>) {
        if node.is_some_and(|n| n.deleting_at.is_some()) {
            self.delete(claim, "node_deleted", "its Node no longer exists: it was deleted, or its VM was");
        } else {
            self.check_vm(claim, node);
        }
    }

    /// Deletes a NodeClaim that Azure refused to launch. What only a correction ends counts against its NodePool.
    fn delete_refused(&mut self, claim: &Claim) {
        let Some(failed) = &claim.status.launch_failed else { return };
        let reason = format!("Azure refused every offering: {}", failed.message);
        if CloudErrorCode::NEEDING_CORRECTION.iter().any(|code| code.category() == &*failed.code) {
            let failed = FailedNode { claim, failure: NodeFailure::Launch, reason: &reason };
            self.memory.pool_failures.record(self.snapshot, &failed, self.now);
        }
        self.delete(claim, "launch_failed", &reason);
    }

    /// Deletes a NodeClaim whose VM was launched in vain.
    fn delete_unjoined(&mut self, claim: &Claim, category: &'static str, reason: &str) {
        let failed = FailedNode { claim, failure: NodeFailure::Join, reason };
        self.memory.pool_failures.record(self.snapshot, &failed, self.now);
        self.delete(claim, category, reason);
    }

    fn delete(&mut self, claim: &Claim, category: &'static str, reason: &str) {
        self.plan.push(Command::delete_claim(claim.reference(), category), reason);
    }

    fn is_in_progress(&self, node: &Node) -> bool {
        self.snapshot.in_progress.contains(&CommandKey::Node(node.name.clone()))
    }
}

impl LifecycleMemory {
    /// Learns how a launch has ended.
    pub(crate) fn record_launch(&mut self, report: &LaunchReport) {
        self.launches_ended.insert(report.claim.clone(), report.is_creating);
    }

    /// Learns what the API server has answered to an eviction.
    pub(crate) fn record_eviction(&mut self, report: &EvictionReport) {
        self.evictions.record(report);
    }

    /// Forgets deleted claims and pods.
    fn forget(&mut self, snapshot: &Snapshot, now: Timestamp) {
        for map in [
            &mut self.launched,
            &mut self.billing_attempted,
            &mut self.terminated,
            &mut self.forced_deletions_tried,
            &mut self.deadlines_recorded,
            &mut self.expiring_since,
        ] {
            map.retain(|name, _| snapshot.claims().get(name).is_some());
        }
        // A Node may have lost its NodeClaim. An older check has no effect.
        self.vm_checked.retain(|_, at| now.duration_since(*at) < VM_CHECK_INTERVAL);
        self.launches_ended.retain(|name, _| snapshot.claims().get(name).is_some());
        self.termination_denials.forget(snapshot);
        self.observed.retain(|name, _| snapshot.claims().get(name).is_some());
        self.reports.retain(|name| snapshot.claims().get(name).is_some());
        self.conditions_written.retain(|name, _| snapshot.claims().get(name).is_some());
        self.drains.retain(|name, _| snapshot.nodes().get(name).is_some());
        let is_tainted =
            |(node, key): &(NodeName, Arc<str>)| snapshot.nodes().get(node).is_some_and(|node| node.is_tainted(key));
        self.tainted_since.retain(|key, _| is_tainted(key));
        for map in [&mut self.labels_tried, &mut self.volumes_awaited] {
            map.retain(|name, _| snapshot.nodes().get(name).is_some());
        }
        self.blocked_drains.retain(|name, blocked| {
            let has_claim = blocked.claim.as_ref().is_none_or(|claim| snapshot.claims().get(claim).is_some());
            has_claim && snapshot.nodes().get(name).is_some()
        });
        self.evictions.forget(now);
    }
}

/// Tags of all resources of a claim: the class's, then ours, which no class can override.
fn tags(claim: &Claim, class: &Tags, settings: &Settings) -> Tags {
    let mut tags: Tags = class.iter().map(|(k, v)| (Arc::from(k.replace('/', "_").as_str()), Arc::clone(v))).collect();
    let mut set = |key: &str, value: Arc<str>| {
        // Azure compares tag names without case: another spelling of one of ours must be replaced.
        tags.retain(|k, _| !k.eq_ignore_ascii_case(key));
        tags.insert(Arc::from(key), value);
    };
    set(labels::TAG_CLUSTER, Arc::clone(&settings.cluster.tag_value));
    set(labels::TAG_CLAIM, claim.name.text());
    set(labels::TAG_CLAIM_UID, claim.uid.text());
    if let Some(pool) = &claim.spec.pool {
        set(labels::TAG_KARPENTER_NODEPOOL, pool.text());
    }
    tags
}

#[cfg(test)]
mod tests;
