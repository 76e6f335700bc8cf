//! Links: what alive points at a cloud resource? (clause 2)
//!
//! NodeClaims, Nodes, AKS Machines, VMs, scale-set instances, volumes, attachments and snapshots are one graph, joined by
//! UID, providerID, id, name and tag. Life needs one link of any sort, so every sort is looked at, and a doubt counts as
//! life. Ids are compared without case. The index is built once per inventory. Whatever the last look before a DELETE
//! asks for (the claim, Node and volume that the resource points back at) is a link here too: else it would be called
//! off for ever.

use super::index::{Index, Key};
use super::pointers::{
    base_name, claim_in_name, claim_named_by, ids_of, instance_parts, last, machine_claim, machine_stem, machine_vm,
    parts_of, snapshot_source, stem_in_name,
};
use super::reserved::{busy_disk, managed_by_aks, own_vms, serves};
use crate::model::azure::bystander::{Bystander, Role};
use crate::model::azure::cloud::{CloudResource, Detail, ProvisioningState, ResourceKind};
use crate::model::azure::inventory::{Inventory, Listing};
use crate::model::cluster::claim::Claim;
use crate::model::cluster::node::Node;
use crate::model::cluster::volume::{Attachment, Volume};
use crate::model::labels;
use crate::model::names::{ArmId, ObjectName};
use crate::model::orphans::finding::Standing;
use crate::model::orphans::record::{Records, SeenVolume};
use crate::model::settings::{Clause, Law, Settings};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// A link from something alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignOfLife {
    /// The clause that keeps the resource.
    pub clause: Clause,
    /// What that makes of it: owned, in flight or protected.
    pub standing: Standing,
    /// Who links to it and how, for people: the chain from the object to the resource. Empty where nobody asked for it.
    pub by: Arc<str>,
}

/// Where nobody asked for words.
static NO_WORDS: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(""));

/// Are words for people asked for? In a great group nearly everything is alive, and nobody reads why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Say {
    Words,
    Nothing,
}

impl Say {
    fn words(self, make: impl FnOnce() -> String) -> String {
        match self {
            Self::Words => make(),
            Self::Nothing => String::new(),
        }
    }
}

/// Index of all links of an inventory.
#[derive(Debug)]
pub struct Links<'a> {
    law: Law,
    claim_by_uid: Index<'a, &'a Claim>,
    claim_by_name: Index<'a, &'a Claim>,
    claim_by_id: Index<'a, &'a Claim>,
    node_by_vm: Index<'a, &'a Node>,
    node_by_vm_name: Index<'a, &'a Node>,
    node_by_name: Index<'a, &'a Node>,
    vm_by_id: Index<'a, &'a CloudResource>,
    vm_by_part: Index<'a, &'a CloudResource>,
    machine_by_vm: Index<'a, &'a Bystander>,
    machine_by_claim: Index<'a, &'a Bystander>,
    machine_by_name: BTreeMap<String, &'a Bystander>,
    instance_by_part: Index<'a, &'a Bystander>,
    snapshot_by_disk: Index<'a, &'a Bystander>,
    volume_by_disk: Index<'a, &'a Volume>,
    volume_by_name: Index<'a, &'a Volume>,
    recorded: Index<'a, &'a SeenVolume>,
    attachment_by_disk: Index<'a, &'a Attachment>,
    attachment_by_node: Index<'a, &'a Attachment>,
    user_by_disk: Index<'a, &'a str>,
}

/// One sort of link: a sign of life of a resource, and what that makes of it.
type Link<'a> = fn(&Links<'a>, &CloudResource, Key<'_>, Say) -> Option<(Standing, String)>;

/// The rows of a listing. One that failed gives none: whether every listing is whole is asked before (clause 5).
pub(super) fn rows<T>(listing: &Listing<T>) -> &[Arc<T>] {
    listing.as_deref().unwrap_or(&[])
}

impl<'a> Links<'a> {
    /// Indexes an inventory. The records name the disk of a VolumeAttachment whose volume is gone already.
    #[must_use]
    pub fn of(inventory: &'a Inventory, records: &'a Records, settings: &Settings) -> Self {
        let claims = || rows(&inventory.claims).iter().map(|c| &**c);
        let nodes = || rows(&inventory.nodes).iter().map(|n| &**n);
        let volumes = || rows(&inventory.volumes).iter().map(|v| &**v);
        let vms = || rows(&inventory.cloud).iter().filter(|r| r.kind() == ResourceKind::Vm).map(|r| &**r);
        let others = || rows(&inventory.bystanders).iter().map(|b| &**b);
        let with_vm = || nodes().filter_map(|n| Some((n.provider_id.as_ref()?.vm(), n)));
        Self {
            law: settings.law,
            claim_by_uid: Index::of(claims().map(|c| (c.uid.as_str(), c))),
            claim_by_name: Index::of(claims().map(|c| (c.name.as_str(), c))),
            claim_by_id: Index::of(claims().flat_map(|c| ids_of(c).map(move |id| (id.folded(), c)))),
            node_by_vm: Index::of(with_vm().map(|(vm, n)| (vm.folded(), n))),
            node_by_vm_name: Index::of(with_vm().map(|(vm, n)| (last(vm.folded()), n))),
            node_by_name: Index::of(nodes().map(|n| (n.name.as_str(), n))),
            vm_by_id: Index::of(vms().map(|vm| (vm.id.folded(), vm))),
            vm_by_part: Index::of(vms().flat_map(|vm| parts_of(vm).map(move |part| (part.folded(), vm)))),
            machine_by_vm: Index::of(others().filter_map(|m| Some((machine_vm(m)?.folded(), m)))),
            machine_by_claim: Index::of(others().filter_map(|m| Some((machine_claim(m)?, m)))),
            machine_by_name: others().filter_map(|m| Some((machine_stem(m)?, m))).collect(),
            instance_by_part: Index::of(others().flat_map(|i| instance_parts(i).map(move |id| (id.folded(), i)))),
            snapshot_by_disk: Index::of(others().filter_map(|s| Some((snapshot_source(s)?.folded(), s)))),
            volume_by_disk: Index::of(volumes().filter_map(|v| Some((v.handle.as_ref()?.folded(), v)))),
            volume_by_name: Index::of(volumes().map(|v| (v.name.as_str(), v))),
            recorded: Index::of(records.volumes.iter().map(|(disk, v)| (disk.folded(), v))),
            attachment_by_disk: attachments(inventory, records),
            attachment_by_node: Index::of(rows(&inventory.attachments).iter().map(|a| (a.node.as_str(), &**a))),
            user_by_disk: Index::of(rows(&inventory.disk_uses).iter().map(|u| (u.disk.folded(), &*u.user))),
        }
    }

    /// The first sign of life of a resource; `None` when nothing alive links to it.
    #[must_use]
    pub fn life(&self, resource: &CloudResource) -> Option<SignOfLife> {
        self.look(resource, Say::Words)
    }

    /// As [`Links::life`], without the words: which is the most of the work where nearly everything is alive.
    pub(super) fn life_in_brief(&self, resource: &CloudResource) -> Option<SignOfLife> {
        self.look(resource, Say::Nothing)
    }

    /// The record of the volume that a resource was.
    pub(super) fn recorded(&self, resource: &CloudResource) -> Option<&'a SeenVolume> {
        self.recorded.find(resource.id.folded()).copied()
    }

    /// As [`Links::life`], of a NIC or disk of a VM: that a VM has it is no sign of life.
    pub(super) fn life_of_part(&self, resource: &CloudResource) -> Option<SignOfLife> {
        let of_vm = |clause| matches!(clause, Clause::NoVm | Clause::DiskUnattached);
        self.first(resource, Say::Words, |clause| !of_vm(clause))
    }

    fn look(&self, resource: &CloudResource, say: Say) -> Option<SignOfLife> {
        self.first(resource, say, |_| true)
    }

    /// The first sign of life by the clauses that count.
    fn first(&self, resource: &CloudResource, say: Say, counts: impl Fn(Clause) -> bool) -> Option<SignOfLife> {
        let links: [(Clause, Link<'a>); 10] = [
            (Clause::NoClaim, Self::claim),
            (Clause::NoNode, Self::node),
            (Clause::NoMachine, Self::machine),
            (Clause::NoInstance, Self::instance),
            (Clause::NoVm, Self::vm),
            (Clause::NoVolume, Self::volume),
            (Clause::NoSnapshot, Self::snapshot),
            (Clause::NicServesNothing, |_, resource, _, _| Some((Standing::Protected, serves(resource)?))),
            (Clause::DiskUnattached, |_, resource, _, _| Some((Standing::Protected, busy_disk(resource)?))),
            (Clause::AksManaged, |_, resource, _, _| Some((Standing::Protected, managed_by_aks(resource)?))),
        ];
        let key = Key::of(resource.id.folded());
        let holding = links.iter().filter(|(clause, _)| self.law.holds(*clause) && counts(*clause));
        holding.copied().find_map(|(clause, link)| {
            let (standing, by) = link(self, resource, key, say)?;
            let by = if say == Say::Words { Arc::from(by) } else { Arc::clone(&NO_WORDS) };
            Some(SignOfLife { clause, standing, by })
        })
    }

    /// A NodeClaim, deleting or not: by the tags' UID or name, by intent or providerID, or by the resource's name.
    fn claim(&self, resource: &CloudResource, key: Key<'_>, say: Say) -> Option<(Standing, String)> {
        let by_uid = || {
            let mut uids = resource.tags_any_case(labels::TAG_CLAIM_UID);
            Some((uids.find_map(|uid| self.claim_by_uid.find(uid))?, "its UID in a tag"))
        };
        let by_tag = || {
            let mut names = resource.tags_any_case(labels::TAG_CLAIM);
            Some((names.find_map(|name| self.claim_by_name.find(name))?, "its name in a tag"))
        };
        let by_id = || Some((self.claim_by_id.get(key)?, "the id it has or intends"));
        let by_name = || {
            let name = claim_in_name(resource)?;
            Some((self.claim_by_name.find(name)?, "its name"))
        };
        let by_machine = || {
            let mut names = resource.tags_any_case(labels::TAG_MACHINE_CLAIM);
            let claim = names.find_map(|name| self.claim_by_name.find(name))?;
            Some((claim, "its name in the tag of an AKS Machine"))
        };
        let (claim, how) = by_uid().or_else(by_tag).or_else(by_id).or_else(by_name).or_else(by_machine)?;
        Some(self.chain(claim, how, resource, say))
    }

    /// The chain from a NodeClaim to a resource of it. Without a Node it is in flight, unless the claim is going.
    fn chain(&self, claim: &Claim, how: &str, resource: &CloudResource, say: Say) -> (Standing, String) {
        let settled = claim.deleting_at.is_some() || claim.status.registered.is_some();
        if settled && say == Say::Nothing {
            return (Standing::Owned, String::new());
        }
        let provider = claim.status.provider_id.as_ref().map(|p| p.vm());
        let vm = provider.or_else(|| claim.intent.as_ref().map(|i| &i.vm));
        let named = || self.node_by_name.find(claim.status.node_name.as_ref()?.as_str());
        let node = vm.and_then(|vm| self.node_by_vm.find(vm.folded())).or_else(named);
        let mut text = format!("NodeClaim {}, by {how}", claim.name);
        if let Some(node) = node {
            text.push_str(" → Node ");
            text.push_str(node.name.as_str());
        }
        if let Some(vm) = vm.filter(|vm| **vm != resource.id).and_then(|vm| self.vm_by_id.find(vm.folded())) {
            text.push_str(" → VM ");
            text.push_str(vm.id.name());
        }
        text.push_str(this(resource));
        (if node.is_none() && !settled { Standing::InFlight } else { Standing::Owned }, text)
    }

    /// A Node: by providerID, through the VM that the resource has or would have, or by name.
    fn node(&self, resource: &CloudResource, key: Key<'_>, say: Say) -> Option<(Standing, String)> {
        let vm = own_vms(resource).next().or_else(|| self.vm_by_part.get(key).map(|vm| &vm.id));
        let direct = self.node_by_vm.get(key);
        if let Some(node) =
            direct.or_else(|| own_vms(resource).chain(vm).find_map(|vm| self.node_by_vm.find(vm.folded())))
        {
            let through =
                || vm.filter(|_| direct.is_none()).map(|vm| format!(" → VM {}", vm.name())).unwrap_or_default();
            let text = say.words(|| format!("Node {}, by its providerID{}{}", node.name, through(), this(resource)));
            return Some((Standing::Owned, text));
        }
        if let Some(claim) = claim_named_by(resource)
            && let Some(node) = self.node_by_vm_name.find(&format!("aks-{claim}"))
        {
            let text = format!("Node {}, by the VM that NodeClaim {claim} would have{}", node.name, this(resource));
            return Some((Standing::Owned, text));
        }
        let Some(node) = self.node_by_name.find(base_name(resource)) else { return self.storage(resource) };
        Some((Standing::Owned, format!("Node {}, by its name{}", node.name, this(resource))))
    }

    /// What a VM without a Node still does for volumes: one is attached to the Node of its name, or lies on its disk.
    fn storage(&self, resource: &CloudResource) -> Option<(Standing, String)> {
        let Detail::Vm(vm) = &resource.detail else { return None };
        let attachment = self.attachment_by_node.find(last(resource.id.folded()));
        let attachment = attachment.map(|a| format!("VolumeAttachment {} to Node {}", a.name, a.node));
        let mut volumes = vm.data_disks.iter().filter_map(|disk| self.volume_by_disk.find(disk.folded()));
        let text = attachment.or_else(|| Some(format!("PersistentVolume {}, by its disk", volumes.next()?.name)))?;
        Some((Standing::Owned, format!("{text}{}", this(resource))))
    }

    /// An AKS Machine: by the VM that it stands for, by the NodeClaim that both name, or by the name that AKS gives
    /// its VM, `aks-<pool>-<machine>-########-vm`.
    fn machine(&self, resource: &CloudResource, key: Key<'_>, say: Say) -> Option<(Standing, String)> {
        let by_vm = || {
            let vms = own_vms(resource).chain(self.vm_by_part.get(key).map(|vm| &vm.id));
            let by_own = || vms.into_iter().find_map(|vm| self.machine_by_vm.find(vm.folded()));
            Some((self.machine_by_vm.get(key).or_else(by_own)?, "the VM that it stands for"))
        };
        let by_claim = || {
            let tagged = |key| resource.tags_any_case(key);
            let mut claims = tagged(labels::TAG_MACHINE_CLAIM).chain(tagged(labels::TAG_CLAIM));
            Some((claims.find_map(|claim| self.machine_by_claim.find(claim))?, "the NodeClaim in its tag"))
        };
        let by_name = || Some((self.machine_by_name.get(&stem_in_name(resource)?)?, "the name of its VM"));
        let (machine, how) = by_vm().or_else(by_claim).or_else(by_name)?;
        let creating = matches!(machine.role, Role::Machine { state: ProvisioningState::Creating, .. });
        let text = say.words(|| format!("AKS Machine {}, by {how}{}", machine.id.name(), this(resource)));
        Some((if creating { Standing::InFlight } else { Standing::Owned }, text))
    }

    /// A scale-set instance: it names the resource, or the resource lies beneath it.
    fn instance(&self, resource: &CloudResource, key: Key<'_>, say: Say) -> Option<(Standing, String)> {
        if let Some(instance) = self.instance_by_part.get(key) {
            let id = instance.id.as_str();
            let short = || id.rsplit("virtualMachineScaleSets/").next().unwrap_or(id);
            let text = say.words(|| format!("scale-set instance {}{}", short(), this(resource)));
            return Some((Standing::Protected, text));
        }
        let beneath = resource.id.folded().contains("/virtualmachinescalesets/");
        beneath.then(|| (Standing::Protected, say.words(|| "it is part of a scale-set instance".to_owned())))
    }

    /// A VM: the resource says that it is attached, or the VM names it. An orphaned VM counts too: its NIC and OS
    /// disk go with it (`deleteOption`), and are never taken from under it.
    fn vm(&self, resource: &CloudResource, key: Key<'_>, say: Say) -> Option<(Standing, String)> {
        let attached = own_vms(resource).next().map(|vm| say.words(|| format!("attached to VM {}", vm.name())));
        let named = || {
            let vm = self.vm_by_part.get(key)?;
            Some(say.words(|| format!("VM {} names it", vm.id.name())))
        };
        Some((Standing::Owned, attached.or_else(named)?))
    }

    /// A PersistentVolume, a VolumeAttachment, an inline volume.
    fn volume(&self, resource: &CloudResource, key: Key<'_>, say: Say) -> Option<(Standing, String)> {
        let by_handle = || Some((self.volume_by_disk.get(key)?, "its volumeHandle"));
        let by_record = || Some((self.volume_by_name.find(self.recorded.get(key)?.name.as_str())?, "its name"));
        let by_tag = || {
            let mut names = resource.tags_any_case(labels::TAG_CSI_VOLUME);
            Some((names.find_map(|name| self.volume_by_name.find(name))?, "its name in a tag"))
        };
        if let Some((volume, how)) = by_handle().or_else(by_record).or_else(by_tag) {
            let claim = || volume.claim.as_ref().map(|c| format!("PersistentVolumeClaim {c} → ")).unwrap_or_default();
            let text = || format!("{}PersistentVolume {}, by {how}{}", claim(), volume.name, this(resource));
            return Some((Standing::Protected, say.words(text)));
        }
        let attachment = self.attachment_by_disk.get(key);
        let attachment = attachment.map(|a| format!("VolumeAttachment {} to Node {}", a.name, a.node));
        let user = || Some(format!("{} names it", self.user_by_disk.get(key)?));
        Some((Standing::Protected, attachment.or_else(user)?))
    }

    /// A snapshot whose data is still being copied from the disk.
    fn snapshot(&self, resource: &CloudResource, key: Key<'_>, say: Say) -> Option<(Standing, String)> {
        let snapshot = self.snapshot_by_disk.get(key)?;
        let text = say.words(|| format!("snapshot {} is being copied{}", snapshot.id.name(), this(resource)));
        Some((Standing::Protected, text))
    }
}

/// The end of a chain.
fn this(resource: &CloudResource) -> &'static str {
    match &resource.detail {
        Detail::Vm(_) => " → this VM",
        Detail::Nic(_) => " → this NIC",
        Detail::Disk(_) => " → this disk",
    }
}

/// VolumeAttachments by disk, through their volume, or through its record when the volume is gone.
fn attachments<'a>(inventory: &'a Inventory, records: &'a Records) -> Index<'a, &'a Attachment> {
    let attachments = rows(&inventory.attachments);
    let by_volume = Index::of(attachments.iter().filter_map(|a| Some((a.volume.as_ref()?.as_str(), &**a))));
    let recorded = records.volumes.iter().map(|(disk, v)| (&v.name, disk));
    let listed = rows(&inventory.volumes).iter().filter_map(|v| Some((&v.name, v.handle.as_ref()?)));
    let attached = |(volume, disk): (&ObjectName, &'a ArmId)| Some((disk.folded(), *by_volume.find(volume.as_str())?));
    Index::of(recorded.chain(listed).filter_map(attached))
}
