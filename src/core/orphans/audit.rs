//! Classification of every resource by a single inventory, for an audit.
//!
//! Classifications are those of a sweep. In addition a suspect that is old enough by Azure's own timestamps is
//! [`AuditStatus::Unproven`], since a single inventory confirms nothing and nothing is deleted because of it.

use crate::model::azure::cloud::{CloudResource, ResourceDetail, ResourceKind};
use crate::model::names::{ArmId, NameError, ObjectName, Uid};
use crate::model::orphans::finding::{Classification, DeletionRefusal, Finding};
use crate::model::orphans::sweep::{Sweep, SweepMode};
use crate::orphans::assessment::{Assessment, SweepContext, findings_for};
use crate::orphans::deletion_cap::DeletionCap;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The status of a resource in an audit, in the order of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuditStatus {
    /// Without references for long enough, according to records.
    Orphan,
    /// Without references and old enough according to Azure, but not observed twice by the controller.
    Unproven,
    /// Without references, but too young or of unknown age.
    Suspect,
    /// A listing is incomplete.
    Unknown,
    /// Not owned by this cluster.
    Foreign,
    /// Protected by an exclusion, a volume, a snapshot or AKS.
    Protected,
    /// Its node is being launched.
    InFlight,
    /// In use by this cluster.
    Owned,
}

impl AuditStatus {
    /// All of them, in order.
    pub const ALL: [Self; 8] = [
        Self::Orphan,
        Self::Unproven,
        Self::Suspect,
        Self::Unknown,
        Self::Foreign,
        Self::Protected,
        Self::InFlight,
        Self::Owned,
    ];

    /// As reports spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Orphan => "orphan",
            Self::Unproven => "unproven",
            Self::Suspect => "suspect",
            Self::Unknown => "unknown",
            Self::Foreign => "foreign",
            Self::Protected => "protected",
            Self::InFlight => "in-flight",
            Self::Owned => "owned",
        }
    }

    /// True when it is in use or about to be.
    #[must_use]
    pub fn is_in_use(self) -> bool {
        matches!(self, Self::InFlight | Self::Owned)
    }

    /// True for orphans, confirmed or not.
    #[must_use]
    pub fn is_orphan(self) -> bool {
        matches!(self, Self::Orphan | Self::Unproven)
    }

    /// True when nothing is known to use it; a VM or NIC of another cluster may be in use.
    fn is_idle(self, kind: ResourceKind) -> bool {
        match self {
            Self::Orphan | Self::Unproven | Self::Suspect => true,
            Self::Foreign => kind == ResourceKind::DataDisk,
            Self::Unknown | Self::Protected | Self::InFlight | Self::Owned => false,
        }
    }

    /// True for a refusal that explains why a resource of this status is not deleted: foreign resources and those in
    /// use need no other reason, and a VM that is never deleted needs no permission.
    fn is_explained_by(self, refusal: DeletionRefusal, reported_only: bool) -> bool {
        use DeletionRefusal as R;
        match self {
            Self::Owned | Self::InFlight => refusal == R::SignOfLife,
            Self::Protected => matches!(refusal, R::SignOfLife | R::Excluded | R::Retained),
            Self::Foreign => matches!(refusal, R::OtherCluster | R::NotOwned | R::NoVolumeRecord | R::Retained),
            Self::Unknown => refusal == R::PartialListing,
            Self::Orphan | Self::Unproven | Self::Suspect => {
                !reported_only || !matches!(refusal, R::Mode | R::Approval | R::Cap)
            }
        }
    }
}

/// The finding of an audit about one resource.
#[derive(Debug, Clone)]
pub struct AuditFinding<'a> {
    /// The resource.
    pub resource: &'a CloudResource,
    /// The verdict of the sweep that would be the first to collect it.
    pub finding: Finding,
    /// That sweep; `None` where no sweep includes its kind.
    pub sweep: Option<&'a Sweep>,
    /// Its status.
    pub status: AuditStatus,
    /// True where this inventory has no reference to it, whatever records say.
    pub is_unreferenced: bool,
    /// The refusals that explain why it is not deleted.
    pub refusals: Vec<DeletionRefusal>,
    /// True for a VM beside managed NAP.
    pub reported_only: bool,
    /// True where an approval would help.
    pub needs_approval: bool,
    /// The earliest time since when nothing has used it, by Azure's timestamps; `None` if it may be in use.
    pub unused_since: Option<Timestamp>,
    /// How long it must have been an orphan.
    pub minimum_age: SignedDuration,
    /// When it will have been an orphan for that long, according to records.
    pub eligible_at: Option<Timestamp>,
    /// In how many observations it had no references, according to records.
    pub sightings: u32,
}

/// Classifies every resource of an inventory by the sweeps, or by their defaults where none includes its kind.
///
/// Where `records_known` is false nothing is an orphan, since earlier observations are unknown.
///
/// # Errors
/// Never: the default sweep has a valid name.
pub fn audit<'a>(
    context: &SweepContext<'_>,
    assessed: &[Assessment<'a>],
    sweeps: &'a [Sweep],
    records_known: bool,
) -> Result<Vec<AuditFinding<'a>>, NameError> {
    let default = default_sweep()?;
    let resources: BTreeMap<&ArmId, &Arc<CloudResource>> =
        assessed.iter().map(|one| (&one.resource.id, one.resource)).collect();
    let audited = verdicts(context, assessed, sweeps, &default).into_iter().filter_map(|(id, (finding, sweep))| {
        let resource: &'a CloudResource = resources.get(&id)?;
        let mut audited = audit_finding(context, resource, finding, sweep.unwrap_or(&default));
        audited.sweep = sweep;
        if !records_known && audited.status.is_orphan() {
            audited.status = AuditStatus::Unknown;
            audited.reported_only = false;
            audited.needs_approval = false;
        }
        Some(audited)
    });
    Ok(audited.collect())
}

/// The verdict on each resource, of the sweep that refuses it for the fewest reasons; `None` is the default sweep.
fn verdicts<'a>(
    context: &SweepContext<'_>,
    assessed: &[Assessment<'_>],
    sweeps: &'a [Sweep],
    default: &Sweep,
) -> BTreeMap<ArmId, (Finding, Option<&'a Sweep>)> {
    let owned = assessed.iter().filter(|one| one.ownership.is_ok()).count();
    let owned = u32::try_from(owned).unwrap_or(u32::MAX);
    let mut budget = DeletionCap::from_records(context.records, owned, context.now);
    let mut best: BTreeMap<ArmId, (Finding, Option<&'a Sweep>)> = BTreeMap::new();
    let included: BTreeSet<ResourceKind> = sweeps.iter().flat_map(|sweep| sweep.kinds.iter().copied()).collect();
    for sweep in sweeps.iter().map(Some).chain([None]) {
        for finding in findings_for(context, assessed, sweep.unwrap_or(default), &mut budget) {
            if sweep.is_none() && included.contains(&finding.kind) {
                continue;
            }
            if best.get(&finding.id).is_none_or(|(known, _)| finding.refusals.len() < known.refusals.len()) {
                best.insert(finding.id.clone(), (finding, sweep));
            }
        }
    }
    best
}

/// The defaults of a sweep, without permission to delete.
fn default_sweep() -> Result<Sweep, NameError> {
    Ok(Sweep {
        name: ObjectName::new("audit")?,
        uid: Uid::new("audit")?,
        inventory_interval: SignedDuration::from_mins(10),
        schedule: None,
        mode: SweepMode::Report,
        kinds: ResourceKind::ALL.into_iter().collect(),
        minimum_age: BTreeMap::new(),
        approval_required: BTreeSet::from([ResourceKind::Vm, ResourceKind::DataDisk]),
        cap: None,
        exclusions: Vec::new(),
        approvals: Vec::new(),
        breaker_cleared_at: None,
        generation: None,
    })
}

fn audit_finding<'a>(
    context: &SweepContext<'_>,
    resource: &'a CloudResource,
    finding: Finding,
    sweep: &Sweep,
) -> AuditFinding<'a> {
    let unused_since = unused_since(resource);
    let minimum_age = sweep.minimum_age(finding.kind);
    let is_old = unused_since.is_some_and(|at| context.now.duration_since(at) >= minimum_age);
    let status = status(&finding, is_old);
    let reported_only = finding.refusals.contains(&DeletionRefusal::Companion);
    let refusals = finding.refusals.iter().copied().filter(|refusal| status.is_explained_by(*refusal, reported_only));
    AuditFinding {
        resource,
        sweep: None,
        status,
        is_unreferenced: matches!(status, AuditStatus::Orphan | AuditStatus::Unproven | AuditStatus::Suspect),
        refusals: refusals.collect(),
        reported_only,
        needs_approval: status.is_orphan() && !reported_only && finding.refusals.contains(&DeletionRefusal::Approval),
        unused_since: unused_since.filter(|_| status.is_idle(finding.kind)),
        minimum_age,
        eligible_at: context.eligible_at(resource, sweep),
        sightings: context.records.sightings.get(&resource.id).map_or(0, |sighting| sighting.times),
        finding,
    }
}

/// The status by classification and by Azure's own timestamps.
fn status(finding: &Finding, is_old: bool) -> AuditStatus {
    let refused_as = |refusal| finding.refusals.contains(&refusal);
    let young = refused_as(DeletionRefusal::TooYoung) || refused_as(DeletionRefusal::SeenOnce);
    let classification = match finding.classification {
        // An exclusion protects it; report the status that it would have otherwise.
        Classification::Protected
            if refused_as(DeletionRefusal::Excluded) && !refused_as(DeletionRefusal::SignOfLife) =>
        {
            if young {
                Classification::Suspect
            } else {
                Classification::Orphan
            }
        }
        other => other,
    };
    match classification {
        Classification::Unknown => AuditStatus::Unknown,
        Classification::Owned => AuditStatus::Owned,
        Classification::InFlight => AuditStatus::InFlight,
        Classification::Protected => AuditStatus::Protected,
        Classification::Foreign => AuditStatus::Foreign,
        Classification::Suspect | Classification::Orphan if refused_as(DeletionRefusal::OtherCluster) => {
            AuditStatus::Suspect
        }
        Classification::Orphan => AuditStatus::Orphan,
        Classification::Suspect if is_old => AuditStatus::Unproven,
        Classification::Suspect => AuditStatus::Suspect,
    }
}

/// The earliest time since when nothing can have used a resource: its creation, or when it was last attached or
/// detached.
fn unused_since(resource: &CloudResource) -> Option<Timestamp> {
    let created = resource.created_at?;
    match &resource.detail {
        ResourceDetail::Disk(disk) => Some(disk.last_ownership_update.map_or(created, |at| at.max(created))),
        ResourceDetail::Vm(_) | ResourceDetail::Nic(_) => Some(created),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::amounts::money::HourlyPrice;
    use crate::orphans::tests::fixtures::group;

    #[test]
    fn the_status_considers_azures_timestamps_and_what_an_exclusion_hides() {
        use AuditStatus as A;
        use Classification as C;
        use DeletionRefusal as R;
        for (classification, refusals, is_old, expected) in [
            (C::Orphan, &[R::Approval][..], false, A::Orphan),
            (C::Suspect, &[R::TooYoung, R::SeenOnce], true, A::Unproven),
            (C::Suspect, &[R::TooYoung, R::SeenOnce], false, A::Suspect),
            (C::Orphan, &[R::OtherCluster], true, A::Suspect),
            (C::Suspect, &[R::OtherCluster, R::TooYoung], true, A::Suspect),
            (C::Protected, &[R::Excluded], true, A::Orphan),
            (C::Protected, &[R::Excluded, R::TooYoung], true, A::Unproven),
            (C::Protected, &[R::Excluded, R::SignOfLife], true, A::Protected),
            (C::Protected, &[R::SignOfLife], true, A::Protected),
            (C::Foreign, &[R::NotOwned], true, A::Foreign),
            (C::Unknown, &[R::PartialListing], true, A::Unknown),
        ] {
            let finding = Finding {
                id: group(),
                kind: ResourceKind::Nic,
                incarnation: Arc::from("1"),
                classification,
                evidence: Vec::new(),
                refusals: refusals.to_vec(),
                price: HourlyPrice::ZERO,
                addresses: 0,
                first_seen: None,
            };
            assert_eq!(status(&finding, is_old), expected, "{classification:?} {refusals:?} {is_old}");
        }
    }
}
