//! References in the ids, tags and names of a resource.

use crate::model::azure::cloud::{CloudResource, ResourceDetail};
use crate::model::azure::naming::claim_in_name;
use crate::model::azure::related::{RelatedDetail, RelatedResource};
use crate::model::cluster::claim::Claim;
use crate::model::labels;
use crate::model::names::{ArmId, ClaimName};

/// The NICs and disks that a VM names.
pub(in crate::orphans) fn attached_ids(resource: &CloudResource) -> impl Iterator<Item = &ArmId> {
    let vm = match &resource.detail {
        ResourceDetail::Vm(vm) => Some(vm),
        ResourceDetail::Nic(_) | ResourceDetail::Disk(_) => None,
    };
    vm.into_iter().flat_map(|vm| vm.nics.iter().chain(&vm.os_disk).chain(&vm.data_disks))
}

/// All ids that a NodeClaim names: in its intent, and as its providerID. Ids derived from its name are found by name.
pub(in crate::orphans) fn claim_resource_ids(claim: &Claim) -> impl Iterator<Item = &ArmId> {
    let intended = claim.intent.iter().flat_map(|i| [&i.vm, &i.nic, &i.os_disk]);
    let has = claim.status.provider_id.as_ref().map(|p| p.vm());
    intended.chain(has.filter(|vm| claim.intent.as_ref().is_none_or(|i| i.vm != **vm)))
}

pub(in crate::orphans) fn aks_machine_vm(other: &RelatedResource) -> Option<&ArmId> {
    match &other.detail {
        RelatedDetail::AksMachine { vm, .. } => vm.as_ref(),
        _ => None,
    }
}

/// The NodeClaim that an AKS Machine was created for, by its tag.
pub(in crate::orphans) fn aks_machine_claim(other: &RelatedResource) -> Option<&str> {
    matches!(other.detail, RelatedDetail::AksMachine { .. })
        .then_some(&other.tags)?
        .get(labels::TAG_MACHINE_CLAIM)
        .map(|name| &**name)
}

/// `<pool>-<machine>`, as the name of the Machine's VM has it.
pub(in crate::orphans) fn aks_machine_vm_stem(machine: &RelatedResource) -> Option<String> {
    matches!(machine.detail, RelatedDetail::AksMachine { .. }).then_some(())?;
    let mut segments = machine.id.folded().rsplit('/');
    let (name, _, pool) = (segments.next()?, segments.next()?, segments.next()?);
    Some(format!("{pool}-{name}"))
}

/// The `<pool>-<machine>` of a name `aks-<pool>-<machine>-########` and anything after it.
pub(in crate::orphans) fn vm_stem_from_name(resource: &CloudResource) -> Option<String> {
    let name = claim_from_name(resource)?;
    let is_number = |part: &str| part.len() == 8 && part.bytes().all(|b| b.is_ascii_digit());
    let parts: Vec<&str> = name.split('-').collect();
    let number = parts.iter().rposition(|part| is_number(part))?;
    (number > 0).then(|| parts[..number].join("-"))
}

pub(in crate::orphans) fn scale_set_instance_attached_ids(other: &RelatedResource) -> impl Iterator<Item = &ArmId> {
    let parts = match &other.detail {
        RelatedDetail::ScaleSetInstance { nics, disks } => Some(nics.iter().chain(disks)),
        _ => None,
    };
    parts.into_iter().flatten()
}

pub(in crate::orphans) fn snapshot_source(other: &RelatedResource) -> Option<&ArmId> {
    match &other.detail {
        RelatedDetail::Snapshot { source, in_progress: true } => source.as_ref(),
        _ => None,
    }
}

pub(in crate::orphans) fn last_segment(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or(id)
}

/// Name up to the suffix that Azure adds to disks (`_OsDisk_1_…`), in lower case. No Kubernetes name has a `_`.
pub(in crate::orphans) fn base_name(resource: &CloudResource) -> &str {
    last_segment(resource.id.folded()).split('_').next().unwrap_or_default()
}

/// The NodeClaim of a resource by the resource's name.
pub(in crate::orphans) fn claim_from_name(resource: &CloudResource) -> Option<&str> {
    claim_in_name(base_name(resource))
}

/// The NodeClaim that a resource refers to: by the tag of its AKS Machine, whose VM is named differently; by its own
/// tag; else by its name.
pub(in crate::orphans) fn referenced_claim(resource: &CloudResource) -> Option<ClaimName> {
    let tagged = |key| resource.tags_any_case(key).find_map(|name| ClaimName::new(name).ok());
    let by_tag = tagged(labels::TAG_MACHINE_CLAIM).or_else(|| tagged(labels::TAG_CLAIM));
    by_tag.or_else(|| ClaimName::new(claim_from_name(resource)?).ok())
}
