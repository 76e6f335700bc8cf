//! Ownership of a resource by tag or volume record (rules 0 and 1).

use crate::model::azure::cloud::{CloudResource, ResourceKind};
use crate::model::azure::inventory::Inventory;
use crate::model::cluster::volume::ReclaimPolicy;
use crate::model::names::ProviderId;
use crate::model::orphans::finding::DeletionRefusal;
use crate::model::orphans::record::VolumeRecord;
use crate::model::settings::{DeletionRule, Settings};
use crate::orphans::references::{ReferenceGraph, items};
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

/// The evidence of most of a group, so it is allocated once.
static OWNED_BY_TAG: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from("the cluster tag names this cluster"));

/// Clause 0: whether an inventory is one of the configured cluster, and that cluster is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::orphans) enum GroupState {
    /// The group is ours, and a Node of one of its agent pools is ready.
    Ours,
    /// The group is ours, and no such Node is ready, as after the loss of the API server's data.
    NoReadyNode,
    /// The group belongs to another cluster, or to none.
    OtherCluster,
}

/// Clause 0.
pub(in crate::orphans) fn group_state(inventory: &Inventory, settings: &Settings) -> GroupState {
    let managed_by = inventory.group_managed_by.as_ref().ok();
    let is_ours = managed_by.and_then(Option::as_ref) == Some(&settings.cluster.id);
    if settings.deletion_rules.enforces(DeletionRule::GroupManagedByUs) && !is_ours {
        return GroupState::OtherCluster;
    }
    let group = &settings.cluster.node_resource_group;
    let nodes = || items(&inventory.nodes).iter();
    let live = if settings.deletion_rules.enforces(DeletionRule::NodeWithoutClaim) {
        let claims: BTreeSet<&ProviderId> =
            items(&inventory.claims).iter().filter_map(|claim| claim.status.provider_id.as_ref()).collect();
        nodes().any(|node| node.is_ready_agent_node(group, |id| claims.contains(id)))
    } else {
        nodes().any(|node| node.ready && node.deleting_at.is_none() && node.is_in_group(group))
    };
    if settings.deletion_rules.enforces(DeletionRule::LiveNodeInGroup) && !live {
        return GroupState::NoReadyNode;
    }
    GroupState::Ours
}

/// Clause 1: the evidence that this cluster owns a resource, or why it does not.
///
/// # Errors
/// The refusal that holds.
pub(in crate::orphans) fn ownership(
    resource: &CloudResource,
    links: &ReferenceGraph<'_>,
    settings: &Settings,
) -> Result<Arc<str>, DeletionRefusal> {
    let volume = || links.volume_record(resource);
    // A disk that was a volume is assessed as one, whatever its osType: it may hold a restored system.
    match resource.kind() {
        ResourceKind::DataDisk => return disk_ownership(resource, volume(), settings),
        ResourceKind::OsDisk if volume().is_some() => return disk_ownership(resource, volume(), settings),
        _ => {}
    }
    let owner = resource.owner_cluster();
    if settings.deletion_rules.enforces(DeletionRule::OwnedByTag) && owner != Some(&*settings.cluster.tag_value) {
        return Err(DeletionRefusal::NotOwned);
    }
    Ok(Arc::clone(&OWNED_BY_TAG))
}

fn disk_ownership(
    disk: &CloudResource,
    volume: Option<&VolumeRecord>,
    settings: &Settings,
) -> Result<Arc<str>, DeletionRefusal> {
    let any_incarnation = !settings.deletion_rules.enforces(DeletionRule::VolumeIncarnation);
    let Some(volume) = volume.filter(|record| any_incarnation || record.is_of(disk)) else {
        if settings.deletion_rules.enforces(DeletionRule::VolumeRecord) {
            return Err(DeletionRefusal::NoVolumeRecord);
        }
        return Ok(Arc::from("no volume is requested"));
    };
    if settings.deletion_rules.enforces(DeletionRule::RetainKeeps) && volume.reclaim == ReclaimPolicy::Retain {
        return Err(DeletionRefusal::Retained);
    }
    let evidence = format!("was PersistentVolume {}, last seen {:.0}", volume.name, volume.last_seen);
    Ok(Arc::from(evidence))
}
