//! The entry of a NodeClaim whose deletion has begun, from what is written on the objects.

use super::HistoryMemory;
use super::own_deletions::{OwnDeletion, VM_LOST};
use crate::model::cluster::claim::{Claim, ForcefulReason};
use crate::model::cluster::node_record::{MAX_REPLACEMENTS, NodeRemoval, RecordedNode, RemovedBy, entry_text};
use crate::model::cluster::pod::{Pod, PodOwner};
use crate::model::cluster::pool::DisruptionReason;
use crate::snapshot::Snapshot;
use jiff::Timestamp;
use std::sync::Arc;

/// The reason where there is none: its NodeClaim was deleted, and nothing tells why.
const DELETED: &str = "Deleted";

/// The entry of a NodeClaim that is being deleted since this time.
pub(super) fn removal(snapshot: &Snapshot, memory: &HistoryMemory, claim: &Claim, started: Timestamp) -> NodeRemoval {
    let own = memory.own_deletions.get(&claim.uid);
    let replaces = |other: &&Arc<Claim>| other.spec.replaces.contains(&claim.name);
    let replacements = snapshot.claims().values().filter(replaces).take(MAX_REPLACEMENTS);
    let replacements: Vec<RecordedNode> = replacements.map(|claim| recorded(claim)).collect();
    NodeRemoval {
        uid: claim.uid.clone(),
        removed: recorded(claim),
        pool: claim.spec.pool.clone(),
        by: removed_by(claim, own, memory.alive.contains(&claim.uid)),
        reason: reason(claim, own),
        // One that takes the place of another node than its own is only named in the reason of the deletion.
        cause: cause(claim, own, replacements.is_empty()),
        replacements,
        started,
        ended: None,
        pods: pods_to_leave(snapshot, claim),
    }
}

fn recorded(claim: &Claim) -> RecordedNode {
    let offering = claim.intent.as_ref().map(|intent| &intent.offering);
    RecordedNode {
        claim: claim.name.clone(),
        node: claim.status.node_name.clone(),
        offering: offering.map(|offering| offering.key.clone()),
        price: offering.map(|offering| offering.price),
    }
}

/// Who has deleted a NodeClaim. `was_seen`: this run of the controller has seen it before its deletion, so that it knows
/// whether that was its own.
fn removed_by(claim: &Claim, own: Option<&OwnDeletion>, was_seen: bool) -> RemovedBy {
    let is_announced = matches!(claim.status.forced, Some(ForcefulReason::Interrupted | ForcefulReason::Preempted));
    match own {
        _ if is_announced => RemovedBy::Azure,
        Some(own) if own.category == VM_LOST => RemovedBy::Azure,
        // It follows the deletion of its Node.
        Some(own) if own.category == "node_deleted" => RemovedBy::Other,
        Some(_) => RemovedBy::Napkeeper,
        None if was_seen => RemovedBy::Other,
        None if claim.status.disrupted.is_some() || claim.status.forced.is_some() => RemovedBy::Napkeeper,
        None => RemovedBy::Unknown,
    }
}

/// The condition `DisruptionReason`, else the category of our deletion in the same spelling.
fn reason(claim: &Claim, own: Option<&OwnDeletion>) -> Arc<str> {
    let marked = claim.status.forced.map(ForcefulReason::as_str);
    let marked = marked.or_else(|| claim.status.disrupted.map(DisruptionReason::as_str));
    match (marked, own) {
        (Some(marked), _) => Arc::from(marked),
        (None, Some(own)) => match DisruptionReason::of_category(own.category) {
            Some(reason) => Arc::from(reason.as_str()),
            None => Arc::from(camel_case(own.category)),
        },
        (None, None) => Arc::from(DELETED),
    }
}

/// For drift what the NodeClaim says of it, since the text of the deletion names only the replacement.
fn cause(claim: &Claim, own: Option<&OwnDeletion>, is_unlinked: bool) -> Arc<str> {
    let is_drifted = claim.status.disrupted == Some(DisruptionReason::Drifted)
        || own.is_some_and(|own| own.category == DisruptionReason::Drifted.category());
    match claim.status.drifted.as_ref().filter(|_| is_drifted) {
        Some(drifted) => {
            // That the drift itself is the reason is told already.
            let tells_more = |own: &&OwnDeletion| is_unlinked && !own.reason.starts_with("because of drift");
            let more = own.filter(tells_more).map(|own| format!("; {}", own.reason)).unwrap_or_default();
            entry_text(&format!("{}: {}{more}", drifted.reason, drifted.message))
        }
        None => entry_text(own.map_or("", |own| &own.reason)),
    }
}

fn camel_case(category: &str) -> String {
    let word = |word: &str| {
        let mut chars = word.chars();
        chars.next().map(|first| first.to_uppercase().chain(chars).collect::<String>()).unwrap_or_default()
    };
    category.split('_').map(word).collect()
}

/// Pods on the node of a NodeClaim that have to leave it.
fn pods_to_leave(snapshot: &Snapshot, claim: &Claim) -> u32 {
    let Some(node) = snapshot.node_of(claim) else { return 0 };
    let leaves = |pod: &&Arc<Pod>| {
        !pod.is_terminal() && !matches!(pod.owner, PodOwner::DaemonSet | PodOwner::Static | PodOwner::Buffer)
    };
    u32::try_from(snapshot.pods_on(&node.name).filter(leaves).count()).unwrap_or(u32::MAX)
}
