//! Conversion of OrphanSweeps.

use crate::convert::common;
use crate::convert::violations::Violations;
use crate::field_path::Path;
use crate::types::duration;
use crate::types::orphan_sweep::{
    Approval as WireApproval, DEFAULT_APPROVAL_REQUIRED, DEFAULT_MODE, DEFAULT_OBSERVE_EVERY,
    Exclusion as WireExclusion, MinimumAge, OrphanSweep,
};
use jiff::SignedDuration;
use napkeeper_core::model::azure::cloud::ResourceKind;
use napkeeper_core::model::cron::Schedule;
use napkeeper_core::model::names::{ArmId, ObjectName};
use napkeeper_core::model::orphans::sweep::{Approval, Exclusion, Sweep, SweepMode};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Reads an OrphanSweep.
///
/// # Errors
/// [`Violations`]: all that is wrong with it.
pub fn sweep(object: &OrphanSweep) -> Result<Sweep, Violations> {
    let mut found = Violations::default();
    let at = Path::from_dotted("spec");
    let spec = &object.spec;
    let name = common::name(&object.metadata, &mut found, |n| ObjectName::new(n));
    let uid = common::uid(&object.metadata, &mut found);
    let every = spec.observe_every.as_deref().unwrap_or(DEFAULT_OBSERVE_EVERY);
    let every = found.take(&at.key("observeEvery"), duration::parse(every));
    let mode = self::mode(spec.mode.as_deref().unwrap_or(DEFAULT_MODE));
    let mode = found.take(&at.key("mode"), mode);
    let all = ResourceKind::ALL.map(ResourceKind::as_str);
    let kinds = kinds(spec.kinds.as_deref(), &all, &at.key("kinds"), &mut found);
    let approval_path = at.key("approvalRequired");
    let approval = spec.approval_required.as_deref();
    let approval_required = self::kinds(approval, &DEFAULT_APPROVAL_REQUIRED, &approval_path, &mut found);
    let minimum_age = minimum_age(spec.minimum_age.as_ref(), &at.key("minimumAge"), &mut found);
    let cap = spec.caps.as_ref().and_then(|c| c.deletions_per_day);
    let cap = found.take_some(&Path::from_dotted("spec.caps.deletionsPerDay"), cap.as_ref(), |n| {
        u32::try_from(*n).map_err(|_| "must not be negative")
    });
    let exclusions = list(spec.exclusions.as_deref(), &at.key("exclusions"), &mut found, exclusion);
    let approvals = list(spec.approvals.as_deref(), &at.key("approvals"), &mut found, approval_of);
    let cleared = spec.breaker.as_ref().and_then(|b| b.cleared_at.as_deref());
    let cleared = found.take_some(&Path::from_dotted("spec.breaker.clearedAt"), cleared, common::time);
    let schedule = spec.schedule.as_deref();
    found.take_some(&at.key("schedule"), schedule, |text| Schedule::parse(text).map(drop));
    let built = name.zip(uid).zip(every).zip(mode);
    let built = built.map(|(((name, uid), observe_every), mode)| Sweep {
        name,
        uid,
        inventory_interval: observe_every,
        schedule: schedule.map(Arc::from),
        mode,
        kinds,
        minimum_age,
        approval_required,
        cap,
        exclusions,
        approvals,
        breaker_cleared_at: cleared,
        generation: object.metadata.generation,
    });
    found.finish(built)
}

fn mode(text: &str) -> Result<SweepMode, &'static str> {
    match text {
        "Report" => Ok(SweepMode::Report),
        "Mark" => Ok(SweepMode::Mark),
        "Collect" => Ok(SweepMode::Collect),
        _ => Err("must be Report, Mark or Collect"),
    }
}

/// A kind of cloud resource, as manifests spell it.
pub(crate) fn kind(text: &str) -> Result<ResourceKind, &'static str> {
    ResourceKind::ALL.into_iter().find(|k| k.as_str() == text).ok_or("must be Nic, OsDisk, Vm or DataDisk")
}

fn kinds(list: Option<&[String]>, default: &[&str], path: &Path, found: &mut Violations) -> BTreeSet<ResourceKind> {
    let default: Vec<String> = default.iter().map(ToString::to_string).collect();
    let list = list.unwrap_or(&default).iter().enumerate();
    list.filter_map(|(i, text)| found.take(&path.index(i), kind(text))).collect()
}

/// Ages as given; the domain knows the defaults and the floor. A setting below the floor is a violation.
fn minimum_age(
    wire: Option<&MinimumAge>,
    path: &Path,
    found: &mut Violations,
) -> BTreeMap<ResourceKind, SignedDuration> {
    let Some(wire) = wire else {
        return BTreeMap::new();
    };
    let given = [
        (ResourceKind::Nic, "nic", &wire.nic),
        (ResourceKind::OsDisk, "osDisk", &wire.os_disk),
        (ResourceKind::Vm, "vm", &wire.vm),
        (ResourceKind::DataDisk, "dataDisk", &wire.data_disk),
    ];
    let mut ages = BTreeMap::new();
    for (kind, field, text) in given {
        let age = found.take_some(&path.key(field), text.as_deref(), duration::parse);
        if age.is_some_and(|age| age < Sweep::MIN_AGE) {
            found.add(&path.key(field), "must be at least 10m");
        }
        ages.extend(age.map(|age| (kind, age)));
    }
    ages
}

fn list<W, T>(
    wire: Option<&[W]>,
    path: &Path,
    found: &mut Violations,
    read: fn(&W, &Path, &mut Violations) -> Option<T>,
) -> Vec<T> {
    let items = wire.unwrap_or_default().iter().enumerate();
    items.filter_map(|(i, item)| read(item, &path.index(i), found)).collect()
}

fn exclusion(wire: &WireExclusion, path: &Path, found: &mut Violations) -> Option<Exclusion> {
    match (&wire.tag, &wire.name) {
        (Some(tag), None) => {
            Some(Exclusion::Tag { key: Arc::from(tag.key.as_str()), value: tag.value.as_deref().map(Arc::from) })
        }
        (None, Some(name)) => Some(Exclusion::Name(Arc::from(name.as_str()))),
        _ => {
            found.add(path, "must have exactly one of tag and name");
            None
        }
    }
}

fn approval_of(wire: &WireApproval, path: &Path, found: &mut Violations) -> Option<Approval> {
    let id = found.take(&path.key("id"), ArmId::new(&wire.id));
    let expires_at = found.take(&path.key("expiresAt"), common::time(&wire.expires_at));
    Some(Approval { id: id?, incarnation: Arc::from(wire.incarnation.as_str()), expires_at: expires_at? })
}
