//! Invariants that no fault may violate.

use crate::world::World;
mod ground_truth;
mod moves;
mod nodes;
mod pod_budgets;

pub(super) use ground_truth::{GroundTruth, Usage, named_by_intents};
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::catalog::CapacityType;
use napkeeper_core::disruption::allowed_disruptions;
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::azure::cloud::{CloudResource, ProvisioningState, ResourceDetail, ResourceKind};
use napkeeper_core::model::cluster::claim::Claim;
use napkeeper_core::model::cluster::pool::{DisruptionReason, amount};
use napkeeper_core::model::names::{ArmId, ClaimName, Uid};
use napkeeper_core::model::orphans::sweep::{Exclusion, Sweep, SweepMode};
use napkeeper_core::model::settings::ControllerMode;
use napkeeper_core::plan::{CloudRequest, ClusterWrite, Command, Effect, NodeUpdate, disruption_scope, is_paused};
use napkeeper_core::snapshot::CommandKey;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A deletion counts from its durable record, which is written before the DELETE: the controller may be frozen, and the
/// request be slow, in between.
const DELETE_AFTER_RECORD: SignedDuration = SignedDuration::from_secs(90);

/// An invariant is broken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invariant {invariant} broken at {at} (seed {seed}): {message}")]
pub struct Violation {
    /// Which invariant.
    pub invariant: &'static str,
    /// When.
    pub at: Timestamp,
    /// The seed of the world.
    pub seed: u64,
    /// What happened.
    pub message: String,
}

impl World {
    pub(crate) fn violation(&self, invariant: &'static str, message: impl Into<String>) -> Violation {
        Violation { invariant, at: self.now, seed: self.seed, message: message.into() }
    }

    /// Checks an effect right before it is performed.
    pub(in crate::world) fn check_effect(&self, key: &CommandKey, effect: &Effect) -> Result<(), Violation> {
        let (cluster, planned) = (self.cluster.state(), self.controller.inner.running(key));
        let disrupted = disruption_scope(key, planned.map(|planned| &planned.command), cluster);
        if is_paused(effect, &disrupted, &cluster.pause, self.now) {
            return Err(self.violation("pause", format!("{effect:?} of {disrupted:?} while paused: {}", cluster.pause)));
        }
        if effect.is_launch() {
            self.check_launch(effect)?;
        }
        match (key, effect) {
            (CommandKey::Claim(claim), Effect::Cloud(CloudRequest::Delete(id, _))) => {
                self.check_lifecycle_delete(claim, id)
            }
            (CommandKey::Resource(_), Effect::Cloud(CloudRequest::Delete(id, kind))) => {
                self.check_sweep_delete(id, *kind)
            }
            (
                CommandKey::Resource(_),
                Effect::Cloud(CloudRequest::Tag(id, _)) | Effect::Cloud(CloudRequest::Untag(id, _)),
            ) => self.check_not_foreign(id),
            (CommandKey::Claim(claim), Effect::Cluster(ClusterWrite::DeleteClaim(_))) => {
                self.check_no_outage_at_disruption(claim)?;
                self.check_few_repairs(claim)?;
                self.check_replaced(claim)?;
                self.check_budget(claim)
            }
            (_, Effect::Cluster(ClusterWrite::CreateClaim(draft))) => self.check_replaced_once(draft),
            (CommandKey::Claim(_), Effect::Cluster(ClusterWrite::DeleteNode(name, _))) => self.check_node_delete(name),
            (_, Effect::Cluster(ClusterWrite::DeleteNode(name, _))) => self.check_node_release(name),
            (_, Effect::Cluster(ClusterWrite::UpdateNode(name, _, NodeUpdate::TaintOutOfService))) => {
                self.check_node_delete(name)
            }
            (_, Effect::Cluster(ClusterWrite::RemoveFinalizer(claim))) => self.check_no_leak(&claim.uid),
            _ => Ok(()),
        }
    }

    /// A released NodeClaim leaves nothing behind but what a user has given other tags.
    fn check_no_leak(&self, claim: &Uid) -> Result<(), Violation> {
        let cluster = self.cluster.state();
        let left = self.cloud.resources().values().find(|r| {
            self.truth.creator(r) == Some(claim)
                && self.truth.usage_of(r, cluster) != Usage::Foreign
                && !self.truth.is_retagged(r)
        });
        match left {
            Some(resource) => {
                Err(self.violation("leak", format!("{} still exists after its NodeClaim was removed", resource.id)))
            }
            None => Ok(()),
        }
    }

    /// Nothing is created in the group of another cluster, nor beside another Karpenter.
    fn check_launch(&self, effect: &Effect) -> Result<(), Violation> {
        if self.truth.was_second_cluster_at_start {
            return Err(self.violation("second-cluster", format!("{} in a second cluster", effect.name())));
        }
        if self.truth.other_karpenter_since.is_some_and(|since| since < self.now) {
            return Err(self.violation("other-karpenter", format!("{} beside another Karpenter", effect.name())));
        }
        self.check_failed_launches()
    }

    fn check_not_foreign(&self, id: &ArmId) -> Result<(), Violation> {
        let Some(resource) = self.cloud.resources().get(id) else { return Ok(()) };
        match self.truth.usage_of(resource, self.cluster.state()) {
            Usage::Foreign => {
                Err(self.violation("foreign", format!("{id} is not owned by this cluster, and is changed")))
            }
            Usage::InUse | Usage::Unused => Ok(()),
        }
    }

    /// Lifecycle delete: only resources of the NodeClaim's own launch, and a running VM only once the NodeClaim is
    /// being deleted and its pods have left.
    fn check_lifecycle_delete(&self, claim: &ClaimName, id: &ArmId) -> Result<(), Violation> {
        self.check_not_foreign(id)?;
        let Some(resource) = self.cloud.resources().get(id) else { return Ok(()) };
        let cluster = self.cluster.state();
        let claim_object = cluster.claims().get(claim);
        let own = claim_object.is_some_and(|c| self.truth.creator(resource) == Some(&c.uid));
        if claim_object.is_some() && !own {
            return Err(
                self.violation("foreign", format!("lifecycle of {claim} deletes {id}, which it did not create"))
            );
        }
        let failed = matches!(&resource.detail, ResourceDetail::Vm(vm) if vm.state == ProvisioningState::Failed);
        let leaving = claim_object.is_none_or(|c| c.deleting_at.is_some());
        if matches!(resource.detail, ResourceDetail::Vm(_)) && !failed && !leaving {
            return Err(self.violation("alive", format!("the VM of {claim} is deleted before the NodeClaim")));
        }
        self.check_no_outage_at_termination(id)?;
        self.check_drained(id)
    }

    /// Sweep delete: dead by the world's truth, for long enough, seen twice, allowed by mode, approval and cap.
    fn check_sweep_delete(&self, id: &ArmId, kind: ResourceKind) -> Result<(), Violation> {
        self.check_not_foreign(id)?;
        let Some(resource) = self.cloud.resources().get(id) else { return Ok(()) };
        let cluster = self.cluster.state();
        if self.truth.usage_of(resource, cluster) == Usage::InUse {
            return Err(self.violation("alive", format!("{kind} {id} is swept while in use or protected")));
        }
        // Azure deletes NICs and disks with their VM without a check.
        if let ResourceDetail::Vm(vm) = &resource.detail {
            vm.nics
                .iter()
                .chain(&vm.os_disk)
                .chain(&vm.data_disks)
                .try_for_each(|part| self.check_not_foreign(part))?;
        }
        if self.truth.listed_as_foreign {
            return Err(self.violation("other-cluster", format!("{id} is swept in a group of another cluster")));
        }
        if self.truth.listed_in_second_cluster {
            return Err(self.violation("second-cluster", format!("{id} is swept by a second cluster")));
        }
        if !self.truth.last_was_complete() {
            return Err(self.violation("whole-listing", format!("{id} is swept after an incomplete listing")));
        }
        let sweeps: Vec<&Arc<Sweep>> = cluster.sweeps().values().filter(|s| s.kinds.contains(&kind)).collect();
        let minimum = sweeps.iter().map(|s| s.minimum_age(kind)).min().unwrap_or(Sweep::MIN_AGE);
        match self.truth.unused_since(resource) {
            None => {
                return Err(self.violation("age", format!("{id} is swept, but no complete inventory showed it unused")));
            }
            Some((first, times)) => {
                if self.now.duration_since(first) + self.truth.clock_error < minimum {
                    return Err(self.violation(
                        "age",
                        format!("{id} is swept {:#} after it was first seen unused", self.now.duration_since(first)),
                    ));
                }
                if times < 2 {
                    return Err(self.violation("seen-twice", format!("{id} is swept after one observation")));
                }
            }
        }
        if kind == ResourceKind::Vm && self.settings.mode == ControllerMode::Companion {
            return Err(self.violation("companion", format!("{id} is swept in companion mode")));
        }
        if !sweeps.iter().any(|s| s.mode == SweepMode::Collect) {
            return Err(self.violation("mode", format!("{id} is swept, and no sweep is in mode Collect")));
        }
        self.check_permitted(resource, &sweeps)
    }

    fn check_permitted(&self, resource: &CloudResource, sweeps: &[&Arc<Sweep>]) -> Result<(), Violation> {
        let (id, kind) = (&resource.id, resource.kind());
        // An exclusion of one sweep applies to all, whether or not the controller can read it.
        let mut exclusions = self.cluster.state().sweeps().values().flat_map(|sweep| &sweep.exclusions);
        if exclusions.any(|exclusion| excludes(exclusion, resource)) {
            return Err(self.violation("exclusion", format!("{id} is excluded, and is swept")));
        }
        let approved = |s: &Sweep| {
            s.approvals.iter().any(|a| {
                a.id == *id
                    && a.incarnation == resource.incarnation
                    && a.expires_at + self.truth.clock_error > self.now
                    && a.expires_at.duration_since(self.now) <= Sweep::MAX_APPROVAL_VALIDITY + self.truth.clock_error
            })
        };
        if !sweeps.iter().any(|s| !s.approval_required.contains(&kind) || approved(s)) {
            return Err(self.violation("approval", format!("{kind} {id} is swept without a valid approval")));
        }
        let day = SignedDuration::from_hours(24) - DELETE_AFTER_RECORD - self.truth.clock_error;
        // A restore loses the records of those since the backup.
        let is_lost = |at: &Timestamp| self.truth.records_lost.as_ref().is_some_and(|lost| lost.contains(at));
        let known = self.truth.sweeps.iter().filter(|(at, ..)| !is_lost(at));
        let in_window = known.filter(|(at, swept, _)| self.now.duration_since(*at) < day && swept != id);
        // A DELETE that is repeated, because its answer was lost, counts once.
        let recent = in_window.map(|(_, swept, _)| swept).collect::<BTreeSet<_>>().len();
        let cap =
            sweeps.iter().filter_map(|s| s.cap).min().map_or(usize::MAX, |c| c as usize).min(self.truth.default_cap());
        if recent >= cap {
            return Err(
                self.violation("cap", format!("{id} is swept as number {} of 24 h, and the cap is {cap}", recent + 1))
            );
        }
        Ok(())
    }

    /// Voluntary disruption stays within the pool's budgets.
    fn check_budget(&self, claim: &ClaimName) -> Result<(), Violation> {
        let planned = self.controller.inner.running(&CommandKey::Claim(claim.clone()));
        let Some(Command::DeleteClaim { category, .. }) = planned.map(|p| &p.command) else { return Ok(()) };
        let Some(reason) = DisruptionReason::of_category(category) else { return Ok(()) };
        let cluster = self.cluster.state();
        // Of what others delete after a restore of etcd the controller knows nothing until it lists everything anew.
        if self.controller.watches.is_silent(self.now) {
            return Ok(());
        }
        // A delete that is repeated disrupts nothing more.
        let known = cluster.claims().get(claim).filter(|claim| claim.deleting_at.is_none());
        let pool = known.and_then(|claim| cluster.pools().get(claim.spec.pool.as_ref()?));
        let Some(pool) = pool else { return Ok(()) };
        let nodes = cluster
            .claims()
            .values()
            .filter(|c| c.spec.pool.as_ref() == Some(&pool.name) && c.status.initialized.is_some());
        let seen = self.controller.inner.snapshot().claims();
        let is_unknown = |other: &Claim| {
            let is_seen = seen.get(&other.name).is_none_or(|seen| seen.deleting_at.is_some());
            self.truth.deleted_by_others.contains(&other.name) && !is_seen
        };
        let (mut total, mut going) = (0, 0);
        for other in nodes {
            total += 1;
            // What others delete is known once the watch has told of it.
            going += u32::from(other.deleting_at.is_some() && !is_unknown(other));
        }
        let most = allowed_disruptions(&pool.disruption.budgets, total, reason, self.now);
        if going >= most {
            let message = format!(
                "{claim} is disrupted while {going} of {total} nodes of {} are already being disrupted; the budget \
                 is {most}",
                pool.name
            );
            return Err(self.violation("budget", message));
        }
        Ok(())
    }

    /// Checks the invariants at the end of every instant.
    pub(in crate::world) fn check(&mut self) -> Result<(), Violation> {
        self.truth.record_creators(self.cluster.state(), self.cloud.ledger());
        self.check_one_vm_per_claim()?;
        self.check_marks()?;
        self.check_limits()
    }

    /// Once the faults are over, unused resources are deleted in time, or a report says which manual action they wait
    /// for.
    pub(in crate::world) fn check_in_time(&self) -> Result<(), Violation> {
        let Some(faults_end) = self.injected.faults_end.filter(|end| *end < self.now) else { return Ok(()) };
        for sweep in self.cluster.state().sweeps().values() {
            for resource in self.unused_resources().iter().filter(|r| sweep.kinds.contains(&r.kind())) {
                let Some(since) = self.truth.overdue_since(resource) else { continue };
                let allowed = sweep.minimum_age(resource.kind()).max(sweep.inventory_interval * 2)
                    + SignedDuration::from_hours(1);
                let late = self.now.duration_since(since.max(faults_end));
                if late > allowed && !self.cloud.is_deleting(&resource.id) {
                    let message = format!("{} has been an orphan for {late:#}, allowed are {allowed:#}", resource.id);
                    return Err(self.violation("in-time", message));
                }
            }
        }
        Ok(())
    }

    fn check_one_vm_per_claim(&self) -> Result<(), Violation> {
        let mut seen: BTreeMap<&str, &ArmId> = BTreeMap::new();
        for resource in self.cloud.resources().values().filter(|r| r.kind() == ResourceKind::Vm) {
            let Some(uid) = self.truth.creator(resource) else { continue };
            if let Some(other) = seen.insert(uid.as_str(), &resource.id) {
                return Err(
                    self.violation("one-vm-per-claim", format!("{other} and {} belong to one NodeClaim", resource.id))
                );
            }
        }
        Ok(())
    }

    /// The capacity of a NodePool's VMs stays within its limits.
    fn check_limits(&self) -> Result<(), Violation> {
        let cluster = self.cluster.state();
        for pool in cluster.pools().values().filter(|p| !p.limits.resources.is_empty() || p.limits.nodes.is_some()) {
            let mut used = Resources::default();
            let mut nodes = 0;
            for claim in cluster.claims().values().filter(|c| c.spec.pool.as_ref() == Some(&pool.name)) {
                used.add(&claim.status.capacity);
                nodes += i64::from(claim.status.launch_failed.is_none());
            }
            let over = pool.limits.resources.iter().find(|(name, most)| amount(&used, name) > **most);
            if let Some((name, most)) = over {
                let message = format!("NodePool {} has {} {name}, its limit is {most}", pool.name, amount(&used, name));
                return Err(self.violation("limits", message));
            }
            if pool.limits.nodes.is_some_and(|most| nodes > most) {
                return Err(self.violation("limits", format!("NodePool {} has {nodes} nodes", pool.name)));
            }
        }
        Ok(())
    }
}

fn excludes(exclusion: &Exclusion, resource: &CloudResource) -> bool {
    match exclusion {
        Exclusion::Tag { key, value } => {
            resource.tags.get(key).is_some_and(|v| value.as_ref().is_none_or(|wanted| wanted == v))
        }
        Exclusion::Name(name) => resource.id.name().eq_ignore_ascii_case(name),
    }
}

/// The capacity type of a VM.
pub(in crate::world) fn capacity_type(resource: &CloudResource) -> Option<CapacityType> {
    match &resource.detail {
        ResourceDetail::Vm(vm) => Some(vm.capacity_type),
        ResourceDetail::Nic(_) | ResourceDetail::Disk(_) => None,
    }
}
