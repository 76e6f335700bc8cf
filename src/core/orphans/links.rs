//! Links: what alive points at a cloud resource? (clause 2)
//!
//! Life needs one link of any sort, so every sort is looked at, and a doubt counts as life. Ids are compared without
//! case. The index is built once per inventory. Whatever the last look before a DELETE asks for (the claim, Node and
//! volume that the resource points back at) is a link here too: else it would be called off for ever.

use super::law::{Clause, Law};
use crate::cluster::claim::Claim;
use crate::cluster::cloud::{CloudResource, Detail, DiskState};
use crate::cluster::inventory::{Inventory, Listing};
use crate::cluster::naming::resource_ids;
use crate::cluster::record::Records;
use crate::labels;
use crate::names::{ArmId, ClaimName, NodeName, ObjectName};
use crate::settings::Settings;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A link from something alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignOfLife {
    /// The clause that keeps the resource.
    pub clause: Clause,
    /// Who links to it and how, for people.
    pub by: Arc<str>,
}

/// Index of all links of an inventory.
#[derive(Debug)]
pub struct Links<'a> {
    law: Law,
    group: ArmId,
    records: &'a Records,
    claim_by_uid: BTreeMap<&'a str, &'a ClaimName>,
    claim_by_name: BTreeMap<&'a str, &'a ClaimName>,
    claim_by_id: BTreeMap<ArmId, &'a ClaimName>,
    node_by_vm: BTreeMap<&'a ArmId, &'a NodeName>,
    node_by_name: BTreeMap<&'a str, &'a NodeName>,
    vm_by_part: BTreeMap<&'a ArmId, &'a ArmId>,
    volume_by_disk: BTreeMap<&'a ArmId, &'a ObjectName>,
    volume_names: BTreeSet<&'a ObjectName>,
    attachment_by_disk: BTreeMap<&'a ArmId, &'a ObjectName>,
    user_by_disk: BTreeMap<&'a ArmId, &'a str>,
}

/// One sort of link: a sign of life of a resource, for people.
type Link<'a> = fn(&Links<'a>, &CloudResource) -> Option<String>;

/// The rows of a listing. One that failed gives none: whether every listing is whole is asked before (clause 5).
pub(super) fn rows<T>(listing: &Listing<T>) -> &[Arc<T>] {
    listing.as_deref().unwrap_or(&[])
}

impl<'a> Links<'a> {
    /// Indexes an inventory. The records name the disk of a VolumeAttachment whose volume is gone already.
    #[must_use]
    pub fn of(inventory: &'a Inventory, records: &'a Records, settings: &Settings) -> Self {
        let claims = rows(&inventory.claims);
        let nodes = rows(&inventory.nodes);
        let volumes = rows(&inventory.volumes);
        Self {
            law: settings.law,
            group: settings.cluster.group.clone(),
            records,
            claim_by_uid: claims.iter().map(|c| (c.uid.as_str(), &c.name)).collect(),
            claim_by_name: claims.iter().map(|c| (c.name.as_str(), &c.name)).collect(),
            claim_by_id: claims
                .iter()
                .flat_map(|c| ids_of(c, &settings.cluster.group).map(|id| (id, &c.name)))
                .collect(),
            node_by_vm: nodes.iter().filter_map(|n| Some((n.provider_id.as_ref()?.vm(), &n.name))).collect(),
            node_by_name: nodes.iter().map(|n| (n.name.as_str(), &n.name)).collect(),
            vm_by_part: rows(&inventory.cloud).iter().flat_map(|r| parts_of(r).map(|part| (part, &r.id))).collect(),
            volume_by_disk: volumes.iter().filter_map(|v| Some((v.handle.as_ref()?, &v.name))).collect(),
            volume_names: volumes.iter().map(|v| &v.name).collect(),
            attachment_by_disk: attachments(inventory, records),
            user_by_disk: rows(&inventory.disk_uses).iter().map(|u| (&u.disk, &*u.user)).collect(),
        }
    }

    /// The first sign of life of a resource; `None` when nothing alive links to it.
    #[must_use]
    pub fn life(&self, resource: &CloudResource) -> Option<SignOfLife> {
        let links: [(Clause, Link<'a>); 6] = [
            (Clause::NoClaim, Self::claim),
            (Clause::NoNode, Self::node),
            (Clause::NoVm, Self::vm),
            (Clause::NoVolume, Self::volume),
            (Clause::NicServesNothing, |_, resource| serves(resource)),
            (Clause::DiskUnattached, |_, resource| busy_disk(resource)),
        ];
        let holding = links.iter().filter(|(clause, _)| self.law.holds(*clause));
        holding.copied().find_map(|(clause, link)| {
            let by = Arc::from(link(self, resource)?);
            Some(SignOfLife { clause, by })
        })
    }

    /// A NodeClaim, deleting or not: by the tags' UID or name, by intent or providerID, or by the resource's name.
    fn claim(&self, resource: &CloudResource) -> Option<String> {
        let by_uid = || Some((self.claim_by_uid.get(resource.claim_uid()?)?, "its UID in a tag"));
        let by_tag = || {
            let name = resource.tag(labels::TAG_CLAIM)?;
            Some((self.claim_by_name.get(name)?, "its name in a tag"))
        };
        let by_id = || Some((self.claim_by_id.get(&resource.id)?, "the id it has or derives"));
        let by_name = || {
            let name = claim_in_name(resource)?;
            Some((self.claim_by_name.get(&*name)?, "its name"))
        };
        let (claim, how) = by_uid().or_else(by_tag).or_else(by_id).or_else(by_name)?;
        Some(format!("NodeClaim {claim}, by {how}"))
    }

    /// A Node: by providerID, through the VM that the resource has or would have, or by name.
    fn node(&self, resource: &CloudResource) -> Option<String> {
        let derived = claim_named_by(resource).map(|claim| resource_ids(&self.group, &claim).vm);
        let by_vm = std::iter::once(&resource.id)
            .chain(own_vms(resource))
            .chain(self.vm_by_part.get(&resource.id).copied())
            .chain(&derived)
            .find_map(|vm| self.node_by_vm.get(vm));
        if let Some(node) = by_vm {
            return Some(format!("Node {node}, by its providerID"));
        }
        let name = base_name(resource);
        let node = self.node_by_name.get(&*name)?;
        Some(format!("Node {node}, by its name"))
    }

    /// A VM: the resource says that it is attached, or the VM names it. An orphaned VM counts too: its NIC and OS
    /// disk go with it (`deleteOption`), and are never taken from under it.
    fn vm(&self, resource: &CloudResource) -> Option<String> {
        attached(resource).or_else(|| {
            let vm = self.vm_by_part.get(&resource.id)?;
            Some(format!("VM {} names it", vm.name()))
        })
    }

    /// A PersistentVolume, a VolumeAttachment, an inline volume, a snapshot in progress.
    fn volume(&self, resource: &CloudResource) -> Option<String> {
        let id = &resource.id;
        let recorded = self.records.volumes.get(id).map(|v| &v.name);
        let volume = self.volume_by_disk.get(id).copied();
        let namesake = recorded.filter(|name| self.volume_names.contains(name));
        let attachment = self.attachment_by_disk.get(id);
        let user = self.user_by_disk.get(id);
        volume
            .map(|name| format!("PersistentVolume {name}, by its volumeHandle"))
            .or_else(|| namesake.map(|name| format!("PersistentVolume {name}, by its name")))
            .or_else(|| attachment.map(|name| format!("VolumeAttachment {name}")))
            .or_else(|| user.map(|user| format!("{user} names it")))
    }
}

/// What a resource says of itself that shows it in use: it is attached, serves something, or its disk is not exactly
/// `Unattached`. Asked again right before the DELETE.
pub(super) fn in_use(resource: &CloudResource) -> Option<String> {
    attached(resource).or_else(|| serves(resource)).or_else(|| busy_disk(resource))
}

fn attached(resource: &CloudResource) -> Option<String> {
    let vm = own_vms(resource).next()?;
    Some(format!("attached to VM {}", vm.name()))
}

fn serves(resource: &CloudResource) -> Option<String> {
    match &resource.detail {
        Detail::Nic(nic) => nic.serves.as_ref().map(|what| format!("serves {what}")),
        Detail::Vm(_) | Detail::Disk(_) => None,
    }
}

fn busy_disk(resource: &CloudResource) -> Option<String> {
    match &resource.detail {
        Detail::Disk(disk) if disk.state != DiskState::Unattached => {
            Some(format!("diskState {}", state_word(&disk.state)))
        }
        Detail::Vm(_) | Detail::Nic(_) | Detail::Disk(_) => None,
    }
}

fn state_word(state: &DiskState) -> &str {
    match state {
        DiskState::Unattached => "Unattached",
        DiskState::Attached => "Attached",
        DiskState::Reserved => "Reserved",
        DiskState::Other(word) => word,
    }
}

/// The VMs that a NIC or disk says it is attached to.
fn own_vms(resource: &CloudResource) -> impl Iterator<Item = &ArmId> {
    let (nic, disk) = match &resource.detail {
        Detail::Nic(nic) => (nic.vm.as_ref(), None),
        Detail::Disk(disk) => (None, Some(&disk.managed_by)),
        Detail::Vm(_) => (None, None),
    };
    nic.into_iter().chain(disk.into_iter().flatten())
}

/// The NICs and disks that a VM names.
fn parts_of(resource: &CloudResource) -> impl Iterator<Item = &ArmId> {
    let vm = match &resource.detail {
        Detail::Vm(vm) => Some(vm),
        Detail::Nic(_) | Detail::Disk(_) => None,
    };
    vm.into_iter().flat_map(|vm| vm.nics.iter().chain(&vm.os_disk).chain(&vm.data_disks))
}

/// All ids that a NodeClaim stands for: what its name derives, its intent, its providerID.
fn ids_of(claim: &Claim, group: &ArmId) -> impl Iterator<Item = ArmId> {
    let derived = resource_ids(group, &claim.name);
    let intent = claim.intent.iter();
    let intended = intent.flat_map(|i| [i.vm.clone(), i.nic.clone(), i.os_disk.clone()]);
    let provider = claim.status.provider_id.iter().map(|p| p.vm().clone());
    [derived.vm, derived.nic, derived.os_disk].into_iter().chain(intended).chain(provider)
}

/// VolumeAttachments by disk, through their volume, or through its record when the volume is gone.
fn attachments<'a>(inventory: &'a Inventory, records: &'a Records) -> BTreeMap<&'a ArmId, &'a ObjectName> {
    let recorded = records.volumes.iter().map(|(disk, v)| (&v.name, disk));
    let listed = rows(&inventory.volumes).iter().filter_map(|v| Some((&v.name, v.handle.as_ref()?)));
    let disks: Vec<(&ObjectName, &ArmId)> = recorded.chain(listed).collect();
    let mut by_volume: BTreeMap<&ObjectName, Vec<&ArmId>> = BTreeMap::new();
    for (volume, disk) in disks {
        by_volume.entry(volume).or_default().push(disk);
    }
    rows(&inventory.attachments)
        .iter()
        .flat_map(|a| {
            let disks = a.volume.as_ref().and_then(|v| by_volume.get(v));
            disks.into_iter().flatten().map(|disk| (*disk, &a.name))
        })
        .collect()
}

/// Name up to the suffix that Azure adds to disks (`_OsDisk_1_…`), in lower case. No Kubernetes name has a `_`.
fn base_name(resource: &CloudResource) -> String {
    let name = resource.id.name().to_ascii_lowercase();
    name.split('_').next().unwrap_or_default().to_owned()
}

/// The NodeClaim whose resource this would be by its name.
fn claim_in_name(resource: &CloudResource) -> Option<String> {
    base_name(resource).strip_prefix("aks-").map(str::to_owned)
}

/// The NodeClaim that a resource points back at: by its tag, else by its name.
pub(super) fn claim_named_by(resource: &CloudResource) -> Option<ClaimName> {
    let tagged = resource.tag(labels::TAG_CLAIM).map(str::to_owned);
    let name = tagged.or_else(|| claim_in_name(resource))?;
    ClaimName::new(name).ok()
}
