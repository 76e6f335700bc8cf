//! The graph of references from live objects to Azure resources (rule 2).
//!
//! NodeClaims, Nodes, AKS Machines, VMs, scale-set instances, volumes, attachments and snapshots are one graph, joined
//! by UID, providerID, id, name and tag. One link of any kind means that a resource is in use, so all are checked, and a
//! doubtful one counts. Ids are compared without case. The index is built once per inventory. Objects that are read right
//! before a DELETE (claim, Node and volume of the resource) are links too, or it would be aborted every time.

pub(in crate::orphans) mod back_references;
pub(in crate::orphans) mod in_use;
pub(in crate::orphans) mod string_index;

use crate::model::azure::cloud::{CloudResource, ProvisioningState, ResourceDetail, ResourceKind};
use crate::model::azure::inventory::{Inventory, Listing};
use crate::model::azure::related::{RelatedDetail, RelatedResource};
use crate::model::cluster::claim::Claim;
use crate::model::cluster::node::Node;
use crate::model::cluster::volume::{Attachment, Volume};
use crate::model::labels;
use crate::model::names::{ArmId, ObjectName};
use crate::model::orphans::finding::Classification;
use crate::model::orphans::record::{OrphanRecords, VolumeRecord};
use crate::model::settings::{DeletionRule, DeletionRules, Settings};
use crate::orphans::references::back_references::{
    aks_machine_claim, aks_machine_vm, aks_machine_vm_stem, attached_ids, base_name, claim_from_name,
    claim_resource_ids, last_segment, referenced_claim, scale_set_instance_attached_ids, snapshot_source,
    vm_stem_from_name,
};
use crate::orphans::references::in_use::{attached_vms, busy_disk, managed_by_aks, serves};
use crate::orphans::references::string_index::{Index, Key};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// A link from something alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignOfLife {
    /// The clause that keeps the resource.
    pub rule: DeletionRule,
    /// The resulting classification: owned, in flight or protected.
    pub classification: Classification,
    /// For people: the chain from the object to the resource. Empty if terse.
    pub chain: Arc<str>,
}

/// The chain if terse.
static NO_TEXT: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(""));

/// Whether text for people is needed. In a large group nearly everything is alive, and its chains are not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verbosity {
    Detailed,
    Terse,
}

impl Verbosity {
    fn text(self, make: impl FnOnce() -> String) -> String {
        match self {
            Self::Detailed => make(),
            Self::Terse => String::new(),
        }
    }
}

/// Index of all links of an inventory.
#[derive(Debug)]
pub struct ReferenceGraph<'a> {
    rules: DeletionRules,
    claim_by_uid: Index<'a, &'a Claim>,
    claim_by_name: Index<'a, &'a Claim>,
    claim_by_id: Index<'a, &'a Claim>,
    node_by_vm: Index<'a, &'a Node>,
    node_by_vm_name: Index<'a, &'a Node>,
    node_by_name: Index<'a, &'a Node>,
    vm_by_id: Index<'a, &'a CloudResource>,
    vm_by_part: Index<'a, &'a CloudResource>,
    aks_machine_by_vm: Index<'a, &'a RelatedResource>,
    aks_machine_by_claim: Index<'a, &'a RelatedResource>,
    aks_machine_by_name: BTreeMap<String, &'a RelatedResource>,
    instance_by_part: Index<'a, &'a RelatedResource>,
    snapshot_by_disk: Index<'a, &'a RelatedResource>,
    volume_by_disk: Index<'a, &'a Volume>,
    volume_by_name: Index<'a, &'a Volume>,
    volume_record_by_disk: Index<'a, &'a VolumeRecord>,
    attachment_by_disk: Index<'a, &'a Attachment>,
    attachment_by_node: Index<'a, &'a Attachment>,
    user_by_disk: Index<'a, &'a str>,
}

/// One kind of link: the classification and chain of a reference.
type ReferenceCheck<'a> =
    fn(&ReferenceGraph<'a>, &CloudResource, Key<'_>, Verbosity) -> Option<(Classification, String)>;

/// The items of a listing; none if it failed: completeness is checked before (clause 5).
pub(in crate::orphans) fn items<T>(listing: &Listing<T>) -> &[Arc<T>] {
    listing.as_deref().unwrap_or(&[])
}

impl<'a> ReferenceGraph<'a> {
    /// Indexes an inventory. The records name the disk of a VolumeAttachment whose volume is deleted already.
    #[must_use]
    pub fn of(inventory: &'a Inventory, records: &'a OrphanRecords, settings: &Settings) -> Self {
        let claims = || items(&inventory.claims).iter().map(|c| &**c);
        let nodes = || items(&inventory.nodes).iter().map(|n| &**n);
        let volumes = || items(&inventory.volumes).iter().map(|v| &**v);
        let vms = || items(&inventory.resources).iter().filter(|r| r.kind() == ResourceKind::Vm).map(|r| &**r);
        let others = || items(&inventory.related).iter().map(|b| &**b);
        let with_vm = || nodes().filter_map(|n| Some((n.provider_id.as_ref()?.vm(), n)));
        Self {
            rules: settings.deletion_rules,
            claim_by_uid: Index::of(claims().map(|c| (c.uid.as_str(), c))),
            claim_by_name: Index::of(claims().map(|c| (c.name.as_str(), c))),
            claim_by_id: Index::of(claims().flat_map(|c| claim_resource_ids(c).map(move |id| (id.folded(), c)))),
            node_by_vm: Index::of(with_vm().map(|(vm, n)| (vm.folded(), n))),
            node_by_vm_name: Index::of(with_vm().map(|(vm, n)| (last_segment(vm.folded()), n))),
            node_by_name: Index::of(nodes().map(|n| (n.name.as_str(), n))),
            vm_by_id: Index::of(vms().map(|vm| (vm.id.folded(), vm))),
            vm_by_part: Index::of(vms().flat_map(|vm| attached_ids(vm).map(move |part| (part.folded(), vm)))),
            aks_machine_by_vm: Index::of(others().filter_map(|m| Some((aks_machine_vm(m)?.folded(), m)))),
            aks_machine_by_claim: Index::of(others().filter_map(|m| Some((aks_machine_claim(m)?, m)))),
            aks_machine_by_name: others().filter_map(|m| Some((aks_machine_vm_stem(m)?, m))).collect(),
            instance_by_part: Index::of(
                others().flat_map(|i| scale_set_instance_attached_ids(i).map(move |id| (id.folded(), i))),
            ),
            snapshot_by_disk: Index::of(others().filter_map(|s| Some((snapshot_source(s)?.folded(), s)))),
            volume_by_disk: Index::of(volumes().filter_map(|v| Some((v.handle.as_ref()?.folded(), v)))),
            volume_by_name: Index::of(volumes().map(|v| (v.name.as_str(), v))),
            volume_record_by_disk: Index::of(records.volumes.iter().map(|(disk, v)| (disk.folded(), v))),
            attachment_by_disk: attachments_by_disk(inventory, records),
            attachment_by_node: Index::of(items(&inventory.attachments).iter().map(|a| (a.node.as_str(), &**a))),
            user_by_disk: Index::of(items(&inventory.disk_uses).iter().map(|u| (u.disk.folded(), &*u.user))),
        }
    }

    /// The first reference to a resource; `None` if no object that exists refers to it.
    #[must_use]
    pub fn sign_of_life(&self, resource: &CloudResource) -> Option<SignOfLife> {
        self.find_any(resource, Verbosity::Detailed)
    }

    /// As [`ReferenceGraph::sign_of_life`], without text, which is most of the work where nearly everything is alive.
    pub(in crate::orphans) fn sign_of_life_terse(&self, resource: &CloudResource) -> Option<SignOfLife> {
        self.find_any(resource, Verbosity::Terse)
    }

    /// The record of the volume that a resource was.
    pub(in crate::orphans) fn volume_record(&self, resource: &CloudResource) -> Option<&'a VolumeRecord> {
        self.volume_record_by_disk.find(resource.id.folded()).copied()
    }

    /// As [`ReferenceGraph::sign_of_life`], of a NIC or disk of a VM: its VM is no sign of life.
    pub(in crate::orphans) fn sign_of_life_besides_vm(&self, resource: &CloudResource) -> Option<SignOfLife> {
        let of_vm = |clause| matches!(clause, DeletionRule::NoVm | DeletionRule::DiskUnattached);
        self.find_first(resource, Verbosity::Detailed, |clause| !of_vm(clause))
    }

    fn find_any(&self, resource: &CloudResource, level: Verbosity) -> Option<SignOfLife> {
        self.find_first(resource, level, |_| true)
    }

    /// The first sign of life by the clauses that count.
    fn find_first(
        &self,
        resource: &CloudResource,
        level: Verbosity,
        counts: impl Fn(DeletionRule) -> bool,
    ) -> Option<SignOfLife> {
        let links: [(DeletionRule, ReferenceCheck<'a>); 10] = [
            (DeletionRule::NoClaim, Self::claim_reference),
            (DeletionRule::NoNode, Self::node_reference),
            (DeletionRule::NoAksMachine, Self::aks_machine_reference),
            (DeletionRule::NoScaleSetInstance, Self::scale_set_instance_reference),
            (DeletionRule::NoVm, Self::vm_reference),
            (DeletionRule::NoVolume, Self::volume_reference),
            (DeletionRule::NoSnapshot, Self::snapshot_reference),
            (DeletionRule::NicServesNothing, |_, resource, _, _| Some((Classification::Protected, serves(resource)?))),
            (DeletionRule::DiskUnattached, |_, resource, _, _| Some((Classification::Protected, busy_disk(resource)?))),
            (DeletionRule::AksManaged, |_, resource, _, _| {
                Some((Classification::Protected, managed_by_aks(resource)?))
            }),
        ];
        let key = Key::of(resource.id.folded());
        let enforced = links.iter().filter(|(clause, _)| self.rules.enforces(*clause) && counts(*clause));
        enforced.copied().find_map(|(clause, link)| {
            let (classification, chain) = link(self, resource, key, level)?;
            let chain = if level == Verbosity::Detailed { Arc::from(chain) } else { Arc::clone(&NO_TEXT) };
            Some(SignOfLife { rule: clause, classification, chain })
        })
    }

    /// A NodeClaim, deleting or not: by the tags' UID or name, by intent or providerID, or by the resource's name.
    fn claim_reference(
        &self,
        resource: &CloudResource,
        key: Key<'_>,
        level: Verbosity,
    ) -> Option<(Classification, String)> {
        let by_uid = || {
            let mut uids = resource.tags_any_case(labels::TAG_CLAIM_UID);
            Some((uids.find_map(|uid| self.claim_by_uid.find(uid))?, "its UID in a tag"))
        };
        let by_tag = || {
            let mut names = resource.tags_any_case(labels::TAG_CLAIM);
            Some((names.find_map(|name| self.claim_by_name.find(name))?, "its name in a tag"))
        };
        let by_id = || Some((self.claim_by_id.get(key)?, "the VM id it has or planned"));
        let by_name = || {
            let name = claim_from_name(resource)?;
            Some((self.claim_by_name.find(name)?, "its name"))
        };
        let by_machine = || {
            let mut names = resource.tags_any_case(labels::TAG_MACHINE_CLAIM);
            let claim = names.find_map(|name| self.claim_by_name.find(name))?;
            Some((claim, "its name in the tag of an AKS Machine"))
        };
        let (claim, how) = by_uid().or_else(by_tag).or_else(by_id).or_else(by_name).or_else(by_machine)?;
        Some(self.describe_claim_chain(claim, how, resource, level))
    }

    /// The chain from a NodeClaim to its resource. Without a Node it is in flight, unless the claim is being deleted.
    fn describe_claim_chain(
        &self,
        claim: &Claim,
        how: &str,
        resource: &CloudResource,
        level: Verbosity,
    ) -> (Classification, String) {
        let settled = claim.deleting_at.is_some() || claim.status.registered.is_some();
        if settled && level == Verbosity::Terse {
            return (Classification::Owned, String::new());
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
        text.push_str(target_suffix(resource));
        (if node.is_none() && !settled { Classification::InFlight } else { Classification::Owned }, text)
    }

    /// A Node: by providerID, through the VM that the resource has or would have, or by name.
    fn node_reference(
        &self,
        resource: &CloudResource,
        key: Key<'_>,
        level: Verbosity,
    ) -> Option<(Classification, String)> {
        let vm = attached_vms(resource).next().or_else(|| self.vm_by_part.get(key).map(|vm| &vm.id));
        let direct = self.node_by_vm.get(key);
        if let Some(node) =
            direct.or_else(|| attached_vms(resource).chain(vm).find_map(|vm| self.node_by_vm.find(vm.folded())))
        {
            let through =
                || vm.filter(|_| direct.is_none()).map(|vm| format!(" → VM {}", vm.name())).unwrap_or_default();
            let text =
                level.text(|| format!("Node {}, by its providerID{}{}", node.name, through(), target_suffix(resource)));
            return Some((Classification::Owned, text));
        }
        if let Some(claim) = referenced_claim(resource)
            && let Some(node) = self.node_by_vm_name.find(&format!("aks-{claim}"))
        {
            let text = format!("Node {}, by the planned VM of NodeClaim {claim}{}", node.name, target_suffix(resource));
            return Some((Classification::Owned, text));
        }
        let Some(node) = self.node_by_name.find(base_name(resource)) else {
            return self.vm_storage_reference(resource);
        };
        Some((Classification::Owned, format!("Node {}, by its name{}", node.name, target_suffix(resource))))
    }

    /// Use of a VM without a Node by volumes: one is attached to the Node of its name, or is on its disk.
    fn vm_storage_reference(&self, resource: &CloudResource) -> Option<(Classification, String)> {
        let ResourceDetail::Vm(vm) = &resource.detail else { return None };
        let attachment = self.attachment_by_node.find(last_segment(resource.id.folded()));
        let attachment = attachment.map(|a| format!("VolumeAttachment {} to Node {}", a.name, a.node));
        let mut volumes = vm.data_disks.iter().filter_map(|disk| self.volume_by_disk.find(disk.folded()));
        let text = attachment.or_else(|| Some(format!("PersistentVolume {}, by its disk", volumes.next()?.name)))?;
        Some((Classification::Owned, format!("{text}{}", target_suffix(resource))))
    }

    /// An AKS Machine: by the VM that it stands for, by the NodeClaim that both name, or by the name that AKS gives
    /// its VM, `aks-<pool>-<machine>-########-vm`.
    fn aks_machine_reference(
        &self,
        resource: &CloudResource,
        key: Key<'_>,
        level: Verbosity,
    ) -> Option<(Classification, String)> {
        let by_vm = || {
            let vms = attached_vms(resource).chain(self.vm_by_part.get(key).map(|vm| &vm.id));
            let by_own = || vms.into_iter().find_map(|vm| self.aks_machine_by_vm.find(vm.folded()));
            Some((self.aks_machine_by_vm.get(key).or_else(by_own)?, "the VM it represents"))
        };
        let by_claim = || {
            let tagged = |key| resource.tags_any_case(key);
            let mut claims = tagged(labels::TAG_MACHINE_CLAIM).chain(tagged(labels::TAG_CLAIM));
            Some((claims.find_map(|claim| self.aks_machine_by_claim.find(claim))?, "the NodeClaim in its tag"))
        };
        let by_name = || Some((self.aks_machine_by_name.get(&vm_stem_from_name(resource)?)?, "the name of its VM"));
        let (machine, how) = by_vm().or_else(by_claim).or_else(by_name)?;
        let creating = matches!(machine.detail, RelatedDetail::AksMachine { state: ProvisioningState::Creating, .. });
        let text = level.text(|| format!("AKS Machine {}, by {how}{}", machine.id.name(), target_suffix(resource)));
        Some((if creating { Classification::InFlight } else { Classification::Owned }, text))
    }

    /// A scale-set instance: it names the resource, or is its parent.
    fn scale_set_instance_reference(
        &self,
        resource: &CloudResource,
        key: Key<'_>,
        level: Verbosity,
    ) -> Option<(Classification, String)> {
        if let Some(instance) = self.instance_by_part.get(key) {
            let id = instance.id.as_str();
            let short = || id.rsplit("virtualMachineScaleSets/").next().unwrap_or(id);
            let text = level.text(|| format!("scale set instance {}{}", short(), target_suffix(resource)));
            return Some((Classification::Protected, text));
        }
        let beneath = resource.id.folded().contains("/virtualmachinescalesets/");
        beneath.then(|| (Classification::Protected, level.text(|| "part of a scale set instance".to_owned())))
    }

    /// A VM: the resource is attached to it, or the VM names it. An orphaned VM counts too: its NIC and OS disk are
    /// deleted with it (`deleteOption`), never before it.
    fn vm_reference(
        &self,
        resource: &CloudResource,
        key: Key<'_>,
        level: Verbosity,
    ) -> Option<(Classification, String)> {
        let attached = attached_vms(resource).next().map(|vm| level.text(|| format!("attached to VM {}", vm.name())));
        let named = || {
            let vm = self.vm_by_part.get(key)?;
            Some(level.text(|| format!("VM {} refers to it", vm.id.name())))
        };
        Some((Classification::Owned, attached.or_else(named)?))
    }

    /// A PersistentVolume, a VolumeAttachment, an inline volume.
    fn volume_reference(
        &self,
        resource: &CloudResource,
        key: Key<'_>,
        level: Verbosity,
    ) -> Option<(Classification, String)> {
        let by_handle = || Some((self.volume_by_disk.get(key)?, "its volumeHandle"));
        let by_record =
            || Some((self.volume_by_name.find(self.volume_record_by_disk.get(key)?.name.as_str())?, "its name"));
        let by_tag = || {
            let mut names = resource.tags_any_case(labels::TAG_CSI_VOLUME);
            Some((names.find_map(|name| self.volume_by_name.find(name))?, "its name in a tag"))
        };
        if let Some((volume, how)) = by_handle().or_else(by_record).or_else(by_tag) {
            let claim = || volume.claim.as_ref().map(|c| format!("PersistentVolumeClaim {c} → ")).unwrap_or_default();
            let text = || format!("{}PersistentVolume {}, by {how}{}", claim(), volume.name, target_suffix(resource));
            return Some((Classification::Protected, level.text(text)));
        }
        let attachment = self.attachment_by_disk.get(key);
        let attachment = attachment.map(|a| format!("VolumeAttachment {} to Node {}", a.name, a.node));
        let user = || Some(format!("{} refers to it", self.user_by_disk.get(key)?));
        Some((Classification::Protected, attachment.or_else(user)?))
    }

    /// A snapshot whose data is still being copied from the disk.
    fn snapshot_reference(
        &self,
        resource: &CloudResource,
        key: Key<'_>,
        level: Verbosity,
    ) -> Option<(Classification, String)> {
        let snapshot = self.snapshot_by_disk.get(key)?;
        let text = level.text(|| format!("snapshot {} is being copied{}", snapshot.id.name(), target_suffix(resource)));
        Some((Classification::Protected, text))
    }
}

/// The end of a chain.
fn target_suffix(resource: &CloudResource) -> &'static str {
    match &resource.detail {
        ResourceDetail::Vm(_) => " → this VM",
        ResourceDetail::Nic(_) => " → this NIC",
        ResourceDetail::Disk(_) => " → this disk",
    }
}

/// VolumeAttachments by disk, through their volume, or through its record when the volume is deleted.
fn attachments_by_disk<'a>(inventory: &'a Inventory, records: &'a OrphanRecords) -> Index<'a, &'a Attachment> {
    let attachments = items(&inventory.attachments);
    let by_volume = Index::of(attachments.iter().filter_map(|a| Some((a.volume.as_ref()?.as_str(), &**a))));
    let recorded = records.volumes.iter().map(|(disk, v)| (&v.name, disk));
    let listed = items(&inventory.volumes).iter().filter_map(|v| Some((&v.name, v.handle.as_ref()?)));
    let attached = |(volume, disk): (&ObjectName, &'a ArmId)| Some((disk.folded(), *by_volume.find(volume.as_str())?));
    Index::of(recorded.chain(listed).filter_map(attached))
}
