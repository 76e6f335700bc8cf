//! Classification of each resource, and the rules that forbid its deletion.

pub(in crate::orphans) mod attached;
pub(in crate::orphans) mod evidence;
mod minimum_age;
pub(in crate::orphans) mod ownership;
pub(in crate::orphans) mod price;

use crate::catalog::live::InfrastructureFacts;
use crate::model::azure::cloud::{CloudResource, ResourceDetail, ResourceKind};
use crate::model::azure::inventory::Inventory;
use crate::model::cron::Schedule;
use crate::model::orphans::finding::{Classification, DeletionRefusal, Finding};
use crate::model::orphans::record::{OrphanRecords, Sighting};
use crate::model::orphans::sweep::{Approval, Exclusion, Sweep, SweepMode, UnreadableSweeps};
use crate::model::settings::{ControllerMode, DeletionRule, Settings};
use crate::orphans::assessment::attached::{AttachedResourceFinder, AttachedResources};
use crate::orphans::assessment::ownership::{GroupState, group_state, ownership};
use crate::orphans::assessment::price::{VmPrices, price};
use crate::orphans::breaker;
use crate::orphans::deletion_cap::DeletionCap;
use crate::orphans::references::{ReferenceGraph, SignOfLife, items};
use crate::orphans::sweep::deletion_order::DeletionOrder;
use crate::orphans::sweep::mark::equal_ignoring_marks;
use crate::plan::kind_label;
use jiff::{SignedDuration, Timestamp};
use std::fmt;
use std::sync::Arc;

/// All that verdicts rest on.
#[derive(Clone, Copy)]
pub struct SweepContext<'a> {
    /// The last pair of listings.
    pub inventory: &'a Inventory,
    /// The durable records, the only evidence of age and repetition.
    pub records: &'a OrphanRecords,
    /// Which cluster this is, and the deletion rules.
    pub settings: &'a Settings,
    /// Prices of VMs.
    pub prices: &'a dyn VmPrices,
    /// Free subnet addresses, and locks, as last known.
    pub infrastructure: &'a InfrastructureFacts,
    /// Until when Git has cleared the breaker: [`breaker::cleared_at`].
    pub cleared_at: Option<Timestamp>,
    /// OrphanSweeps whose current version cannot be read.
    pub unreadable_sweeps: &'a UnreadableSweeps,
    /// The pause switch holds deletes back.
    pub paused: bool,
    /// Now.
    pub now: Timestamp,
}

/// Facts about a resource that do not depend on a sweep: clauses 1 and 2.
#[derive(Debug, Clone)]
pub struct Assessment<'a> {
    /// The resource.
    pub resource: &'a Arc<CloudResource>,
    /// The evidence that this cluster owns it, or why it does not.
    pub ownership: Result<Arc<str>, DeletionRefusal>,
    /// A live object that refers to it.
    pub sign_of_life: Option<SignOfLife>,
    /// Resources that are deleted with a VM that nothing alive refers to.
    pub attached: Option<Box<AttachedResources<'a>>>,
}

impl Assessment<'_> {
    /// True when this cluster owns it and nothing alive refers to it.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        self.ownership.is_ok() && self.sign_of_life.is_none()
    }
}

impl fmt::Debug for SweepContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("now", &self.now).finish_non_exhaustive()
    }
}

impl<'a> SweepContext<'a> {
    /// Assesses every resource of the inventory, with evidence.
    #[must_use]
    pub fn assess(&self) -> Vec<Assessment<'a>> {
        self.assess_with(ReferenceGraph::sign_of_life)
    }

    /// As [`SweepContext::assess`], without text for live resources: a sweep only counts them.
    #[must_use]
    pub fn assess_terse(&self) -> Vec<Assessment<'a>> {
        self.assess_with(ReferenceGraph::sign_of_life_terse)
    }

    fn assess_with(
        &self,
        life: impl Fn(&ReferenceGraph<'a>, &CloudResource) -> Option<SignOfLife>,
    ) -> Vec<Assessment<'a>> {
        let links = ReferenceGraph::of(self.inventory, self.records, self.settings);
        let assess = |resource: &'a Arc<CloudResource>| {
            let ownership = ownership(resource, &links, self.settings);
            Assessment { resource, ownership, sign_of_life: life(&links, resource), attached: None }
        };
        let resources = items(&self.inventory.resources);
        let mut assessed: Vec<Assessment<'a>> = resources.iter().map(assess).collect();
        let vms = assessed.iter_mut().filter(|a| a.resource.kind() == ResourceKind::Vm && a.is_suspect());
        let vms: Vec<_> = vms.collect();
        if !vms.is_empty() {
            let parts = AttachedResourceFinder::new(self, &links, resources);
            vms.into_iter().for_each(|vm| vm.attached = parts.of(vm.resource));
        }
        assessed
    }

    /// Clause 5: true when every listing is whole.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !self.settings.deletion_rules.enforces(DeletionRule::CompleteListings) || self.inventory.failure().is_none()
    }

    /// Clause 5: true when an OrphanSweep cannot be read, and may exclude anything.
    pub(in crate::orphans) fn has_unreadable_sweep(&self) -> bool {
        self.settings.deletion_rules.enforces(DeletionRule::ReadableSweeps) && !self.unreadable_sweeps.is_empty()
    }

    /// The durable sighting of this very incarnation with these very tags (but for our own mark).
    pub(in crate::orphans) fn sighting(&self, resource: &CloudResource) -> Option<&'a Sighting> {
        let seen = self.records.sightings.get(&resource.id)?;
        let same_tags = equal_ignoring_marks(&seen.tags, &resource.tags);
        (seen.incarnation == resource.incarnation && same_tags).then_some(seen)
    }

    /// Clause 0.
    pub(in crate::orphans) fn group_state(&self) -> GroupState {
        group_state(self.inventory, self.settings)
    }

    /// Why the inventory is not one of the configured cluster, alive: clause 0 for people.
    #[must_use]
    pub fn cluster_mismatch(&self) -> Option<String> {
        let cluster = &self.settings.cluster;
        match self.group_state() {
            GroupState::Ours => None,
            GroupState::NoReadyNode => Some(format!(
                "no ready Node of an agent pool, without a NodeClaim, is in {}",
                cluster.node_resource_group
            )),
            GroupState::OtherCluster => Some(format!(
                "{} is not managed by {}: check the configured group",
                cluster.node_resource_group, cluster.id
            )),
        }
    }

    /// Reasons that keep everything: clauses 0 and 5, the pause switch, the mode.
    fn general_refusals(&self, sweep: &Sweep) -> Vec<DeletionRefusal> {
        let rules = self.settings.deletion_rules;
        let too_old = self.now.duration_since(self.inventory.started_at) > max_inventory_age(sweep);
        let mut refusals = Vec::new();
        let mut refuse = |when: bool, refusal| refusals.extend(when.then_some(refusal));
        refuse(self.group_state() != GroupState::Ours, DeletionRefusal::OtherCluster);
        refuse(
            !self.is_complete() || rules.enforces(DeletionRule::CompleteListings) && too_old,
            DeletionRefusal::PartialListing,
        );
        refuse(
            rules.enforces(DeletionRule::Breaker) && breaker::open_trip(self.records, self.cleared_at).is_some(),
            DeletionRefusal::Breaker,
        );
        refuse(self.has_unreadable_sweep(), DeletionRefusal::UnreadableSweep);
        refuse(rules.enforces(DeletionRule::Pause) && self.paused, DeletionRefusal::Paused);
        refuse(
            rules.enforces(DeletionRule::Mode) && (sweep.mode != SweepMode::Collect || !self.in_schedule(sweep)),
            DeletionRefusal::Mode,
        );
        refusals
    }

    /// True when the inventory is the first, or one of the first, at or after a scheduled time.
    fn in_schedule(&self, sweep: &Sweep) -> bool {
        let Some(text) = &sweep.schedule else {
            return true;
        };
        let Ok(schedule) = Schedule::parse(text) else {
            return false;
        };
        schedule.at_or_before(self.now).is_some_and(|fired| {
            fired <= self.inventory.finished_at && self.now.duration_since(fired) <= max_inventory_age(sweep)
        })
    }

    /// A part of a VM that must not be deleted with it, and what a person can do: clause 2 for its parts.
    pub(in crate::orphans) fn undeletable_attached(
        &self,
        assessed: &Assessment<'_>,
        sweep: &Sweep,
    ) -> Option<Arc<str>> {
        let parts =
            assessed.attached.as_ref().filter(|_| self.settings.deletion_rules.enforces(DeletionRule::TakesAlong))?;
        let excluded = || {
            let part = parts.listed.iter().find(|part| sweep.exclusions.iter().any(|e| is_excluded_by(e, part)))?;
            let (kind, name) = (kind_label(part.kind()), part.id.name());
            Some(Arc::from(format!("{kind} {name} would be deleted with it, and is excluded: detach it")))
        };
        parts.undeletable.clone().or_else(excluded)
    }

    /// Reasons that keep one suspect: clauses 2 to 4 and 7, and exclusions.
    fn resource_refusals(&self, assessed: &Assessment<'_>, sweep: &Sweep) -> Vec<DeletionRefusal> {
        let rules = self.settings.deletion_rules;
        let resource = assessed.resource;
        // By the inventory's own time: one that did not show it old enough never does.
        let seen_at = self.inventory.finished_at;
        let kind = resource.kind();
        let mut refusals = Vec::new();
        let mut refuse = |when: bool, refusal| refusals.extend(when.then_some(refusal));
        refuse(self.undeletable_attached(assessed, sweep).is_some(), DeletionRefusal::TakesAlong);
        refuse(
            rules.enforces(DeletionRule::OldEnough) && self.eligible_at(resource, sweep).is_none_or(|at| seen_at < at),
            DeletionRefusal::TooYoung,
        );
        refuse(
            rules.enforces(DeletionRule::SeenTwice) && self.sighting(resource).is_none_or(|s| s.times < 2),
            DeletionRefusal::SeenOnce,
        );
        refuse(
            rules.enforces(DeletionRule::CompanionVm)
                && self.settings.mode == ControllerMode::Companion
                && kind == ResourceKind::Vm,
            DeletionRefusal::Companion,
        );
        refuse(
            rules.enforces(DeletionRule::Approval)
                && sweep.approval_required.contains(&kind)
                && !sweep.approvals.iter().any(|a| self.approves(a, resource)),
            DeletionRefusal::Approval,
        );
        refuse(
            rules.enforces(DeletionRule::Exclusion) && sweep.exclusions.iter().any(|e| is_excluded_by(e, resource)),
            DeletionRefusal::Excluded,
        );
        refusals
    }

    fn approves(&self, approval: &Approval, resource: &CloudResource) -> bool {
        let ahead = approval.expires_at.duration_since(self.now);
        let exact = approval.incarnation == resource.incarnation
            && ahead > SignedDuration::ZERO
            && ahead <= Sweep::MAX_APPROVAL_VALIDITY;
        approval.id == resource.id && (exact || !self.settings.deletion_rules.enforces(DeletionRule::ApprovalExact))
    }

    fn finding(&self, assessed: &Assessment<'_>, sweep: &Sweep, general: &[DeletionRefusal]) -> Finding {
        let resource = assessed.resource;
        let mut refusals = general.to_vec();
        refusals.extend(assessed.ownership.as_ref().err());
        refusals.extend(assessed.sign_of_life.iter().map(|_| DeletionRefusal::SignOfLife));
        if assessed.is_suspect() {
            refusals.extend(self.resource_refusals(assessed, sweep));
        }
        refusals.sort_unstable();
        let sighting = if assessed.is_suspect() { self.sighting(resource) } else { None };
        Finding {
            id: resource.id.clone(),
            kind: resource.kind(),
            incarnation: Arc::clone(&resource.incarnation),
            classification: self.classification(assessed, &refusals),
            evidence: evidence::evidence_of(self, assessed, sweep, sighting),
            refusals,
            price: price(resource, self.prices),
            addresses: match &resource.detail {
                ResourceDetail::Nic(nic) => nic.addresses,
                ResourceDetail::Vm(_) | ResourceDetail::Disk(_) => 0,
            },
            first_seen: sighting.map(|s| s.first_seen),
        }
    }

    fn classification(&self, assessed: &Assessment<'_>, refusals: &[DeletionRefusal]) -> Classification {
        // A resource that only Azure reports in use is this cluster's only by tag.
        let by_azure = |clause| {
            matches!(clause, DeletionRule::NoVm | DeletionRule::NicServesNothing | DeletionRule::DiskUnattached)
        };
        let foreign = matches!(assessed.ownership, Err(DeletionRefusal::NotOwned | DeletionRefusal::NoVolumeRecord));
        let young = |r: &DeletionRefusal| matches!(r, DeletionRefusal::TooYoung | DeletionRefusal::SeenOnce);
        match &assessed.sign_of_life {
            _ if !self.is_complete() => Classification::Unknown,
            Some(life) if foreign && by_azure(life.rule) => Classification::Foreign,
            Some(life) => life.classification,
            None if foreign => Classification::Foreign,
            None if assessed.ownership.is_err() || refusals.contains(&DeletionRefusal::Excluded) => {
                Classification::Protected
            }
            None if refusals.iter().any(young) => Classification::Suspect,
            None => Classification::Orphan,
        }
    }
}

/// How long after it was taken, or after a scheduled time, an inventory may serve to collect: until the next one
/// should have come, with as much again for one that failed, and never for longer than 2 h.
fn max_inventory_age(sweep: &Sweep) -> SignedDuration {
    sweep.inventory_interval.saturating_mul(2).clamp(SignedDuration::from_hours(1), SignedDuration::from_hours(2))
}

pub(in crate::orphans) fn is_excluded_by(exclusion: &Exclusion, resource: &CloudResource) -> bool {
    match exclusion {
        Exclusion::Tag { key, value } => {
            resource.tags_any_case(key).any(|has| value.as_ref().is_none_or(|v| **v == *has))
        }
        Exclusion::Name(name) => resource.id.name().eq_ignore_ascii_case(name),
    }
}

/// The verdict on every resource of the sweep's kinds. First those that only the allowance may still keep, in the order
/// in which they may be collected (`Order`), the longest suspect first; then all others, as listed. A finding without a
/// refusal is proven, allowed, and has its share of the allowance.
#[must_use]
pub fn findings_for(
    case: &SweepContext<'_>,
    assessed: &[Assessment<'_>],
    sweep: &Sweep,
    allowance: &mut DeletionCap,
) -> Vec<Finding> {
    let general = case.general_refusals(sweep);
    // Most of a large group is alive: findings are collected in place.
    let (mut proven, mut findings) = (Vec::new(), Vec::with_capacity(assessed.len()));
    for one in assessed.iter().filter(|a| sweep.kinds.contains(&a.resource.kind())) {
        let finding = case.finding(one, sweep, &general);
        if finding.classification == Classification::Orphan && finding.refusals.is_empty() {
            proven.push((finding, &**one.resource));
        } else {
            findings.push(finding);
        }
    }
    let order = DeletionOrder::of(case);
    proven.sort_by_cached_key(|(finding, resource)| {
        (allowance.aborted_at(resource), order.priority(resource), finding.first_seen, finding.id.clone())
    });
    let allowed = proven.into_iter().map(|(mut finding, resource)| {
        finding.refusals.extend(allowance.reserve(resource, sweep, case.settings).err());
        finding
    });
    findings.splice(..0, allowed.collect::<Vec<_>>());
    findings
}
