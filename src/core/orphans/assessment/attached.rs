//! The NICs and disks that Azure deletes with a VM, and whether each may be deleted.
//!
//! Azure deletes the NICs and the OS disk of a VM with it (`deleteOption: Delete`). So the deletion rules apply to each
//! of them: a part that must not be deleted protects its VM. `deleteOption` itself is not relied upon: a listing may be
//! older than a change of it, so all parts that a VM names count.

use crate::model::azure::cloud::{CloudResource, ResourceDetail, ResourceKind, Vm};
use crate::model::names::ArmId;
use crate::model::orphans::finding::DeletionRefusal;
use crate::orphans::assessment::SweepContext;
use crate::orphans::assessment::ownership::ownership;
use crate::orphans::references::ReferenceGraph;
use crate::orphans::references::in_use::{attached_vms, reserved_disk};
use crate::orphans::references::string_index::Index;
use crate::plan::kind_label;
use std::sync::Arc;

/// Resources that are deleted with a VM.
#[derive(Debug, Clone)]
pub struct AttachedResources<'a> {
    /// The parts that are listed.
    pub listed: Vec<&'a Arc<CloudResource>>,
    /// Which of them must not be deleted, why, and what a person can do.
    pub undeletable: Option<Arc<str>>,
}

/// Finds the parts of VMs that nothing alive refers to.
#[derive(Debug)]
pub(in crate::orphans) struct AttachedResourceFinder<'a, 'l> {
    case: &'l SweepContext<'a>,
    links: &'l ReferenceGraph<'a>,
    listed: Index<'a, &'a Arc<CloudResource>>,
}

impl<'a, 'l> AttachedResourceFinder<'a, 'l> {
    /// Looks among these resources.
    pub(in crate::orphans) fn new(
        case: &'l SweepContext<'a>,
        links: &'l ReferenceGraph<'a>,
        resources: &'a [Arc<CloudResource>],
    ) -> Self {
        let parts = resources.iter().filter(|r| r.kind() != ResourceKind::Vm);
        Self { case, links, listed: Index::of(parts.map(|r| (r.id.folded(), r))) }
    }

    /// The resources that are deleted with a VM; `None` for other kinds.
    pub(in crate::orphans) fn of(&self, resource: &CloudResource) -> Option<Box<AttachedResources<'a>>> {
        let ResourceDetail::Vm(vm) = &resource.detail else { return None };
        let ids = || vm.nics.iter().chain(&vm.os_disk).chain(&vm.data_disks);
        let listed = ids().filter_map(|id| self.listed.find(id.folded()).copied()).collect();
        let undeletable = ids().find_map(|id| self.undeletable(id, resource, vm)).map(Arc::from);
        Some(Box::new(AttachedResources { listed, undeletable }))
    }

    /// Why a part must not be deleted with its VM.
    fn undeletable(&self, id: &ArmId, vm: &CloudResource, detail: &Vm) -> Option<String> {
        let describe = |part: &str, reason: &str, remedy: &str| {
            Some(format!("{part} {} would be deleted with it, and {reason}: {remedy}", id.name()))
        };
        let Some(part) = self.listed.find(id.folded()) else {
            let remedy = "check what it is, and delete the VM manually if that is safe";
            return describe("the resource named", "it is not in the listing of the group", remedy);
        };
        let kind = kind_label(part.kind());
        if part.kind() == ResourceKind::DataDisk || detail.data_disks.contains(id) {
            return describe(kind, "may hold data", "detach it");
        }
        if let Err(refusal) = ownership(part, self.links, self.case.settings) {
            let reason = match refusal {
                DeletionRefusal::Retained => "its volume had reclaim policy Retain",
                _ => "no tag identifies it as owned by this cluster",
            };
            return describe(kind, reason, "detach it, or delete the VM manually");
        }
        if let Some(life) = self.links.sign_of_life_besides_vm(part) {
            return describe(kind, &life.chain, "detach it, or delete the VM manually");
        }
        if let Some(other) = attached_vms(part).find(|other| **other != vm.id) {
            return describe(kind, &format!("VM {} also uses it", other.name()), "detach it from one of them");
        }
        if let Some(reason) = reserved_disk(part) {
            return describe(kind, &reason, "detach it");
        }
        let lock = self.case.infrastructure.locks.iter().find(|lock| lock.covers(id))?;
        describe(kind, &format!("the lock {} protects it", lock.id.name()), "remove the lock if it may be deleted")
    }
}
