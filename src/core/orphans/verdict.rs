//! The verdict: what is each resource, and by which clauses is it kept?

use super::allowance::Allowance;
use super::links::{Links, SignOfLife, rows};
use super::mark::same_but_for_marks;
use super::order::Order;
use super::ownership::{Group, group, ownership};
use super::parts::{Looker, Parts};
use super::price::{Prices, price};
use super::{breaker, evidence};
use crate::catalog::live::Surroundings;
use crate::model::azure::cloud::{CloudResource, Detail, ResourceKind};
use crate::model::azure::inventory::Inventory;
use crate::model::cron::Schedule;
use crate::model::orphans::finding::{Finding, Refusal, Standing};
use crate::model::orphans::record::{Records, Sighting};
use crate::model::orphans::sweep::{Approval, Exclusion, Sweep, SweepMode};
use crate::model::settings::{Clause, Mode, Settings};
use crate::plan::kind_word;
use jiff::{SignedDuration, Timestamp};
use std::fmt;
use std::sync::Arc;

/// All that verdicts rest on.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    /// The last pair of listings.
    pub inventory: &'a Inventory,
    /// What has been written durably. Nothing else proves age or repetition.
    pub records: &'a Records,
    /// Which cluster this is, and the law.
    pub settings: &'a Settings,
    /// Prices of VMs.
    pub prices: &'a dyn Prices,
    /// Room in subnets, and locks, as last known.
    pub surroundings: &'a Surroundings,
    /// Until when Git has cleared the breaker: [`breaker::cleared_at`].
    pub cleared_at: Option<Timestamp>,
    /// The pause switch holds deletes back.
    pub paused: bool,
    /// Now.
    pub now: Timestamp,
}

/// What holds of a resource whoever asks: clauses 1 and 2.
#[derive(Debug, Clone)]
pub struct Assessed<'a> {
    /// The resource.
    pub resource: &'a Arc<CloudResource>,
    /// The evidence that this cluster owns it, or why it does not.
    pub ownership: Result<Arc<str>, Refusal>,
    /// What alive links to it.
    pub life: Option<SignOfLife>,
    /// What goes along with a VM that nothing alive links to.
    pub parts: Option<Box<Parts<'a>>>,
}

impl Assessed<'_> {
    /// True when this cluster owns it and nothing alive links to it.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        self.ownership.is_ok() && self.life.is_none()
    }
}

impl fmt::Debug for Case<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("now", &self.now).finish_non_exhaustive()
    }
}

impl<'a> Case<'a> {
    /// Looks at every resource of the inventory, and says of each by what it is known.
    #[must_use]
    pub fn assess(&self) -> Vec<Assessed<'a>> {
        self.assessed(Links::life)
    }

    /// As [`Case::assess`], without words for what is alive: a sweep only counts that.
    #[must_use]
    pub fn assess_in_brief(&self) -> Vec<Assessed<'a>> {
        self.assessed(Links::life_in_brief)
    }

    fn assessed(&self, life: impl Fn(&Links<'a>, &CloudResource) -> Option<SignOfLife>) -> Vec<Assessed<'a>> {
        let links = Links::of(self.inventory, self.records, self.settings);
        let assess = |resource: &'a Arc<CloudResource>| {
            let ownership = ownership(resource, &links, self.settings);
            Assessed { resource, ownership, life: life(&links, resource), parts: None }
        };
        let resources = rows(&self.inventory.cloud);
        let mut assessed: Vec<Assessed<'a>> = resources.iter().map(assess).collect();
        let vms = assessed.iter_mut().filter(|a| a.resource.kind() == ResourceKind::Vm && a.is_suspect());
        let vms: Vec<_> = vms.collect();
        if !vms.is_empty() {
            let parts = Looker::new(self, &links, resources);
            vms.into_iter().for_each(|vm| vm.parts = parts.of(vm.resource));
        }
        assessed
    }

    /// Clause 5: true when every listing is whole.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !self.settings.law.holds(Clause::WholeListings) || self.inventory.failure().is_none()
    }

    /// The durable sighting of this very incarnation with these very tags (but for our own mark).
    pub(super) fn sighting(&self, resource: &CloudResource) -> Option<&'a Sighting> {
        let seen = self.records.sightings.get(&resource.id)?;
        let same_tags = same_but_for_marks(&seen.tags, &resource.tags);
        (seen.incarnation == resource.incarnation && same_tags).then_some(seen)
    }

    /// Clause 0.
    pub(super) fn group(&self) -> Group {
        group(self.inventory, self.settings)
    }

    /// Why the inventory is not one of the configured cluster, alive: clause 0 for people.
    #[must_use]
    pub fn cluster_missing(&self) -> Option<String> {
        let cluster = &self.settings.cluster;
        match self.group() {
            Group::Ours => None,
            Group::Lifeless => Some(format!("no ready Node lies in {}", cluster.group)),
            Group::Another => {
                Some(format!("{} is not managed by {}: check the configured group", cluster.group, cluster.cluster))
            }
        }
    }

    /// When a suspect will have been an orphan for long enough; `None` before its first durable sighting. A disk's
    /// time starts anew when it is attached or detached.
    #[must_use]
    pub fn of_age_at(&self, resource: &CloudResource, sweep: &Sweep) -> Option<Timestamp> {
        let first_seen = self.sighting(resource)?.first_seen;
        let since = match &resource.detail {
            Detail::Disk(disk) => disk.last_ownership_update.map_or(first_seen, |at| at.max(first_seen)),
            Detail::Vm(_) | Detail::Nic(_) => first_seen,
        };
        since.checked_add(sweep.minimum_age(resource.kind())).ok()
    }

    /// Reasons that keep everything: clauses 0 and 5, the pause switch, the mode.
    fn general(&self, sweep: &Sweep) -> Vec<Refusal> {
        let law = self.settings.law;
        let too_old = self.now.duration_since(self.inventory.started_at) > longest_use(sweep);
        let mut refusals = Vec::new();
        let mut refuse = |when: bool, refusal| refusals.extend(when.then_some(refusal));
        refuse(self.group() != Group::Ours, Refusal::OtherCluster);
        refuse(!self.is_whole() || law.holds(Clause::WholeListings) && too_old, Refusal::PartialListing);
        refuse(
            law.holds(Clause::Breaker) && breaker::open_trip(self.records, self.cleared_at).is_some(),
            Refusal::Breaker,
        );
        refuse(law.holds(Clause::Pause) && self.paused, Refusal::Paused);
        refuse(
            law.holds(Clause::Mode) && (sweep.mode != SweepMode::Collect || !self.in_schedule(sweep)),
            Refusal::Mode,
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
            fired <= self.inventory.finished_at && self.now.duration_since(fired) <= longest_use(sweep)
        })
    }

    /// What of a VM may not go with it, and what a person can do: clause 2 for its parts.
    pub(super) fn kept_part(&self, assessed: &Assessed<'_>, sweep: &Sweep) -> Option<Arc<str>> {
        let parts = assessed.parts.as_ref().filter(|_| self.settings.law.holds(Clause::TakesAlong))?;
        let excluded = || {
            let part = parts.listed.iter().find(|part| sweep.exclusions.iter().any(|e| excludes(e, part)))?;
            let (word, name) = (kind_word(part.kind()), part.id.name());
            Some(Arc::from(format!("{word} {name} would go with it, and an exclusion names that: detach it")))
        };
        parts.kept.clone().or_else(excluded)
    }

    /// Reasons that keep one suspect: clauses 2 to 4 and 7, and exclusions.
    fn particular(&self, assessed: &Assessed<'_>, sweep: &Sweep) -> Vec<Refusal> {
        let law = self.settings.law;
        let resource = assessed.resource;
        // By the inventory's own time: one that did not show it old enough never does.
        let seen_at = self.inventory.finished_at;
        let kind = resource.kind();
        let mut refusals = Vec::new();
        let mut refuse = |when: bool, refusal| refusals.extend(when.then_some(refusal));
        refuse(self.kept_part(assessed, sweep).is_some(), Refusal::TakesAlong);
        refuse(
            law.holds(Clause::OldEnough) && self.of_age_at(resource, sweep).is_none_or(|at| seen_at < at),
            Refusal::TooYoung,
        );
        refuse(law.holds(Clause::SeenTwice) && self.sighting(resource).is_none_or(|s| s.times < 2), Refusal::SeenOnce);
        refuse(
            law.holds(Clause::CompanionVm) && self.settings.mode == Mode::Companion && kind == ResourceKind::Vm,
            Refusal::Companion,
        );
        refuse(
            law.holds(Clause::Approval)
                && sweep.approval_required.contains(&kind)
                && !sweep.approvals.iter().any(|a| self.approves(a, resource)),
            Refusal::Approval,
        );
        refuse(
            law.holds(Clause::Exclusion) && sweep.exclusions.iter().any(|e| excludes(e, resource)),
            Refusal::Excluded,
        );
        refusals
    }

    fn approves(&self, approval: &Approval, resource: &CloudResource) -> bool {
        let ahead = approval.expires_at.duration_since(self.now);
        let exact = approval.incarnation == resource.incarnation
            && ahead > SignedDuration::ZERO
            && ahead <= Sweep::LONGEST_APPROVAL;
        approval.id == resource.id && (exact || !self.settings.law.holds(Clause::ApprovalExact))
    }

    fn finding(&self, assessed: &Assessed<'_>, sweep: &Sweep, general: &[Refusal]) -> Finding {
        let resource = assessed.resource;
        let mut refusals = general.to_vec();
        refusals.extend(assessed.ownership.as_ref().err());
        refusals.extend(assessed.life.iter().map(|_| Refusal::SignOfLife));
        if assessed.is_suspect() {
            refusals.extend(self.particular(assessed, sweep));
        }
        refusals.sort_unstable();
        let sighting = if assessed.is_suspect() { self.sighting(resource) } else { None };
        Finding {
            id: resource.id.clone(),
            kind: resource.kind(),
            incarnation: Arc::clone(&resource.incarnation),
            standing: self.standing(assessed, &refusals),
            evidence: evidence::of(self, assessed, sweep, sighting),
            refusals,
            price: price(resource, self.prices),
            addresses: match &resource.detail {
                Detail::Nic(nic) => nic.addresses,
                Detail::Vm(_) | Detail::Disk(_) => 0,
            },
            first_seen: sighting.map(|s| s.first_seen),
        }
    }

    fn standing(&self, assessed: &Assessed<'_>, refusals: &[Refusal]) -> Standing {
        // What only Azure knows to be in use is this cluster's only where the tag says so.
        let by_azure = |clause| matches!(clause, Clause::NoVm | Clause::NicServesNothing | Clause::DiskUnattached);
        let foreign = matches!(assessed.ownership, Err(Refusal::NotOwned | Refusal::NoVolumeRecord));
        let young = |r: &Refusal| matches!(r, Refusal::TooYoung | Refusal::SeenOnce);
        match &assessed.life {
            _ if !self.is_whole() => Standing::Unknown,
            Some(life) if foreign && by_azure(life.clause) => Standing::Foreign,
            Some(life) => life.standing,
            None if foreign => Standing::Foreign,
            None if assessed.ownership.is_err() || refusals.contains(&Refusal::Excluded) => Standing::Protected,
            None if refusals.iter().any(young) => Standing::Suspect,
            None => Standing::Orphan,
        }
    }
}

/// How long after it was taken, or after a scheduled time, an inventory may serve to collect: until the next one
/// should have come, with as much again for one that failed, and never for longer than 2 h.
fn longest_use(sweep: &Sweep) -> SignedDuration {
    sweep.observe_every.saturating_mul(2).clamp(SignedDuration::from_hours(1), SignedDuration::from_hours(2))
}

pub(super) fn excludes(exclusion: &Exclusion, resource: &CloudResource) -> bool {
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
pub fn judge(case: &Case<'_>, assessed: &[Assessed<'_>], sweep: &Sweep, allowance: &mut Allowance) -> Vec<Finding> {
    let general = case.general(sweep);
    // Most of a great group is alive: its findings are made where they stay.
    let (mut proven, mut findings) = (Vec::new(), Vec::with_capacity(assessed.len()));
    for one in assessed.iter().filter(|a| sweep.kinds.contains(&a.resource.kind())) {
        let finding = case.finding(one, sweep, &general);
        if finding.standing == Standing::Orphan && finding.refusals.is_empty() {
            proven.push((finding, &**one.resource));
        } else {
            findings.push(finding);
        }
    }
    let order = Order::of(case);
    proven.sort_by_cached_key(|(finding, resource)| {
        (allowance.called_off(resource), order.turn(resource), finding.first_seen, finding.id.clone())
    });
    let allowed = proven.into_iter().map(|(mut finding, resource)| {
        finding.refusals.extend(allowance.take(resource, sweep, case.settings).err());
        finding
    });
    findings.splice(..0, allowed.collect::<Vec<_>>());
    findings
}
