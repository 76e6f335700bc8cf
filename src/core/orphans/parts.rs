//! Parts: what goes when a VM goes, and may it?
//!
//! Azure takes the NICs and the OS disk of a VM along with it (`deleteOption: Delete`), and asks nobody. So the law is
//! asked of each of them: what could not be collected for its own sake keeps its VM. Whether Azure takes a part along is
//! not relied upon: a listing may be older than a change of `deleteOption`, so all that a VM names counts.

use super::index::Index;
use super::links::Links;
use super::ownership::ownership;
use super::reserved::{own_vms, special_disk};
use super::verdict::Case;
use crate::model::azure::cloud::{CloudResource, Detail, ResourceKind, Vm};
use crate::model::names::ArmId;
use crate::model::orphans::finding::Refusal;
use crate::plan::kind_word;
use std::sync::Arc;

/// What goes along with a VM.
#[derive(Debug, Clone)]
pub struct Parts<'a> {
    /// The parts that are listed.
    pub listed: Vec<&'a Arc<CloudResource>>,
    /// Which of them may not go, why, and what a person can do.
    pub kept: Option<Arc<str>>,
}

/// The parts of VMs that nothing alive links to.
#[derive(Debug)]
pub(super) struct Looker<'a, 'l> {
    case: &'l Case<'a>,
    links: &'l Links<'a>,
    listed: Index<'a, &'a Arc<CloudResource>>,
}

impl<'a, 'l> Looker<'a, 'l> {
    /// Looks among these resources.
    pub(super) fn new(case: &'l Case<'a>, links: &'l Links<'a>, resources: &'a [Arc<CloudResource>]) -> Self {
        let parts = resources.iter().filter(|r| r.kind() != ResourceKind::Vm);
        Self { case, links, listed: Index::of(parts.map(|r| (r.id.folded(), r))) }
    }

    /// What goes along with a VM; `None` for what is none.
    pub(super) fn of(&self, resource: &CloudResource) -> Option<Box<Parts<'a>>> {
        let Detail::Vm(vm) = &resource.detail else { return None };
        let ids = || vm.nics.iter().chain(&vm.os_disk).chain(&vm.data_disks);
        let listed = ids().filter_map(|id| self.listed.find(id.folded()).copied()).collect();
        let kept = ids().find_map(|id| self.kept(id, resource, vm)).map(Arc::from);
        Some(Box::new(Parts { listed, kept }))
    }

    /// Why a part may not go with its VM.
    fn kept(&self, id: &ArmId, vm: &CloudResource, detail: &Vm) -> Option<String> {
        let say = |what: &str, why: &str, remedy: &str| {
            Some(format!("{what} {} would go with it, and {why}: {remedy}", id.name()))
        };
        let Some(part) = self.listed.find(id.folded()) else {
            let remedy = "see what it is, and delete the VM by hand if it may go";
            return say("what it names as", "the group's listing does not show it", remedy);
        };
        let word = kind_word(part.kind());
        if part.kind() == ResourceKind::DataDisk || detail.data_disks.contains(id) {
            return say(word, "may hold data", "detach it");
        }
        if let Err(refusal) = ownership(part, self.links, self.case.settings) {
            let why = match refusal {
                Refusal::Retained => "its volume had reclaim policy Retain",
                _ => "no exact tag says that it is this cluster's",
            };
            return say(word, why, "detach it, or delete the VM by hand");
        }
        if let Some(life) = self.links.life_of_part(part) {
            return say(word, &life.by, "detach it, or delete the VM by hand");
        }
        if let Some(other) = own_vms(part).find(|other| **other != vm.id) {
            return say(word, &format!("VM {} has it too", other.name()), "detach it from one of them");
        }
        if let Some(why) = special_disk(part) {
            return say(word, &why, "detach it");
        }
        let lock = self.case.surroundings.locks.iter().find(|lock| lock.covers(id))?;
        say(word, &format!("the lock {} keeps it", lock.id.name()), "remove the lock if it may go")
    }
}
