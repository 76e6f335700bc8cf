//! Ownership: is this cluster the one that answers for a resource? (clauses 0 and 1)

use super::links::{Links, rows};
use crate::model::azure::cloud::{CloudResource, ResourceKind};
use crate::model::azure::inventory::Inventory;
use crate::model::cluster::volume::ReclaimPolicy;
use crate::model::names::ArmId;
use crate::model::orphans::finding::Refusal;
use crate::model::orphans::record::SeenVolume;
use crate::model::settings::{Clause, Settings};
use std::sync::{Arc, LazyLock};

/// The evidence of most of a group, so it is kept once.
static BY_TAG: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from("the cluster tag names this cluster"));

/// What clause 0 says of an inventory: is it one of the configured cluster, and is that cluster alive?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    /// The group is ours, and a Node of it is ready.
    Ours,
    /// The group is ours, and no Node of it is ready: what an emptied API server looks like.
    Lifeless,
    /// The group belongs to another cluster, or to none.
    Another,
}

/// Clause 0.
pub(super) fn group(inventory: &Inventory, settings: &Settings) -> Group {
    let managed_by = inventory.group_managed_by.as_ref().ok();
    let ours = managed_by.and_then(Option::as_ref) == Some(&settings.cluster.cluster);
    if settings.law.holds(Clause::GroupManagedByUs) && !ours {
        return Group::Another;
    }
    let live = rows(&inventory.nodes).iter().any(|node| {
        let vm = node.provider_id.as_ref().map(|p| p.vm());
        node.ready && node.deleting_at.is_none() && vm.is_some_and(|vm| lies_in(vm, &settings.cluster.group))
    });
    if settings.law.holds(Clause::LiveNodeInGroup) && !live {
        return Group::Lifeless;
    }
    Group::Ours
}

pub(super) fn lies_in(id: &ArmId, group: &ArmId) -> bool {
    id.folded().strip_prefix(group.folded()).is_some_and(|rest| rest.starts_with('/'))
}

/// Clause 1: the evidence that this cluster owns a resource, or why it does not.
///
/// # Errors
/// The refusal that holds.
pub(super) fn ownership(resource: &CloudResource, links: &Links<'_>, settings: &Settings) -> Result<Arc<str>, Refusal> {
    let volume = || links.recorded(resource);
    // A disk that was a volume is judged as one, whatever its osType: it may hold a restored system.
    match resource.kind() {
        ResourceKind::DataDisk => return disk_ownership(volume(), settings),
        ResourceKind::OsDisk if volume().is_some() => return disk_ownership(volume(), settings),
        _ => {}
    }
    let owner = resource.owner_cluster();
    if settings.law.holds(Clause::OwnedByTag) && owner != Some(&*settings.cluster.tag) {
        return Err(Refusal::NotOwned);
    }
    Ok(Arc::clone(&BY_TAG))
}

fn disk_ownership(volume: Option<&SeenVolume>, settings: &Settings) -> Result<Arc<str>, Refusal> {
    let Some(volume) = volume else {
        if settings.law.holds(Clause::VolumeRecord) {
            return Err(Refusal::NoVolumeRecord);
        }
        return Ok(Arc::from("no volume is asked for"));
    };
    if settings.law.holds(Clause::RetainKeeps) && volume.reclaim == ReclaimPolicy::Retain {
        return Err(Refusal::Retained);
    }
    let evidence = format!("was PersistentVolume {}, last seen {}", volume.name, volume.last_seen);
    Ok(Arc::from(evidence))
}
