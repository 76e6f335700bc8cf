//! Resources that are in use or reserved by their own properties (rule 2).
//!
//! A NIC that serves something, a disk that is not exactly unattached, a resource that AKS or Site Recovery manages.
//! Checked in the listing, and again by a GET right before the DELETE.

use crate::model::azure::cloud::{CloudResource, DiskState, ResourceDetail};
use crate::model::names::ArmId;

/// Prefix of tags and names of resources that AKS manages.
const AKS_MANAGED_PREFIX: &str = "aks-managed-";
/// Names of disks that Azure Site Recovery replicates to. Their `diskState` may be `Unattached`.
const SITE_RECOVERY_NAME_PARTS: [&str; 3] = ["-asrreplica", "ms-asr-", "asrseeddisk-"];

/// Why a resource is in use or reserved by its own properties: it is attached, serves something, its disk is not
/// exactly `Unattached` and for one VM at a time, or AKS manages it. Checked again right before the DELETE.
pub(in crate::orphans) fn in_use(resource: &CloudResource) -> Option<String> {
    let attached = attached_vms(resource).next().map(|vm| format!("attached to VM {}", vm.name()));
    attached.or_else(|| serves(resource)).or_else(|| busy_disk(resource)).or_else(|| managed_by_aks(resource))
}

/// The use of a NIC besides a VM.
pub(in crate::orphans) fn serves(resource: &CloudResource) -> Option<String> {
    match &resource.detail {
        ResourceDetail::Nic(nic) => nic.serves.as_ref().map(|user| format!("used by {user}")),
        ResourceDetail::Vm(_) | ResourceDetail::Disk(_) => None,
    }
}

/// The use of a disk that is not attached to a VM.
pub(in crate::orphans) fn busy_disk(resource: &CloudResource) -> Option<String> {
    let ResourceDetail::Disk(disk) = &resource.detail else { return None };
    if disk.state != DiskState::Unattached {
        return Some(format!("diskState {}", state_word(&disk.state)));
    }
    reserved_disk(resource)
}

/// The use of a disk besides its VM: shared, being copied, or for Site Recovery.
pub(in crate::orphans) fn reserved_disk(resource: &CloudResource) -> Option<String> {
    let ResourceDetail::Disk(disk) = &resource.detail else { return None };
    if let DiskState::Other(state) = &disk.state {
        return Some(format!("diskState {state}"));
    }
    if disk.max_shares > 1 {
        return Some(format!("shared disk (maxShares {})", disk.max_shares));
    }
    let name = resource.id.folded().rsplit('/').next().unwrap_or_default();
    let replica = SITE_RECOVERY_NAME_PARTS.iter().any(|part| name.contains(part));
    replica.then(|| "its name is that of an Azure Site Recovery replica".to_owned())
}

/// The tag or name by which AKS manages a resource. Azure compares the keys of tags without case.
pub(in crate::orphans) fn managed_by_aks(resource: &CloudResource) -> Option<String> {
    let begins = |text: &str| {
        text.get(..AKS_MANAGED_PREFIX.len()).is_some_and(|head| head.eq_ignore_ascii_case(AKS_MANAGED_PREFIX))
    };
    let tag = resource.tags.keys().find(|key| begins(key)).map(|key| format!("managed by AKS, according to tag {key}"));
    tag.or_else(|| begins(resource.id.name()).then(|| "managed by AKS, according to its name".to_owned()))
}

fn state_word(state: &DiskState) -> &str {
    match state {
        DiskState::Unattached => "Unattached",
        DiskState::Attached => "Attached",
        DiskState::Reserved => "Reserved",
        DiskState::Other(state) => state,
    }
}

/// The VMs that a NIC or disk is attached to.
pub(in crate::orphans) fn attached_vms(resource: &CloudResource) -> impl Iterator<Item = &ArmId> {
    let (nic, disk) = match &resource.detail {
        ResourceDetail::Nic(nic) => (nic.vm.as_ref(), None),
        ResourceDetail::Disk(disk) => (None, Some(&disk.managed_by)),
        ResourceDetail::Vm(_) => (None, None),
    };
    nic.into_iter().chain(disk.into_iter().flatten())
}
