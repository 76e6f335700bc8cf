//! Reconstructs which nodes were removed, where nobody records it: from NodeClaims, Nodes and the events of Karpenter.

use napkeeper_core::model::cluster::claim::{Claim, ForcefulReason};
use napkeeper_core::model::cluster::node_record::{MAX_REPLACEMENTS, NodeRemoval, RecordedNode, RemovedBy, entry_text};
use napkeeper_core::model::cluster::offering::OfferingKey;
use napkeeper_core::model::cluster::pool::DisruptionReason;
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{ClaimName, NodePoolName, Uid, VmSize, Zone};
use napkeeper_core::snapshot::Snapshot;
use napkeeper_kube::list::NodeClaimEvent;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The reason of the event of a NodeClaim that Karpenter has deleted to disrupt its node, and what precedes the reason of the
/// disruption in its message (Karpenter core, `disruption/events`).
const TERMINATING: (&str, &str) = ("DisruptionTerminating", "Disrupting NodeClaim: ");
/// The same of one that was created to replace others.
const LAUNCHING: (&str, &str) = ("DisruptionLaunching", "Launching NodeClaim: ");
/// The reason where nothing tells one.
const DELETED: &str = "Deleted";

/// A NodeClaim that was created to replace others. Which ones, Karpenter does not tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Launched {
    /// What it was launched as, as far as it still exists.
    pub(super) node: RecordedNode,
    pub(super) pool: Option<NodePoolName>,
    pub(super) reason: String,
    pub(super) at: jiff::Timestamp,
}

/// What can be told of removals and replacements.
#[derive(Debug, Default)]
pub(super) struct Reconstruction {
    /// The oldest first.
    pub(super) removals: Vec<NodeRemoval>,
    pub(super) launched: Vec<Launched>,
}

/// Reconstructs it.
pub(super) fn reconstruct(snapshot: &Snapshot, events: &[NodeClaimEvent]) -> Reconstruction {
    let mut removals: BTreeMap<Uid, NodeRemoval> = BTreeMap::new();
    for claim in snapshot.claims().values() {
        let Some(started) = claim.deleting_at else { continue };
        let reason = marked(claim);
        let decider = if claim.is_ours() { RemovedBy::Napkeeper } else { RemovedBy::Karpenter };
        let by = if reason.is_some() { decider } else { RemovedBy::Unknown };
        let entry = removal(recorded(snapshot, claim), claim.uid.clone(), (by, reason.unwrap_or(DELETED)), started);
        let replaces = |other: &&Arc<Claim>| other.spec.replaces.contains(&claim.name);
        let replacements = snapshot.claims().values().filter(replaces).take(MAX_REPLACEMENTS);
        let replacements = replacements.map(|new| recorded(snapshot, new)).collect();
        let entry = NodeRemoval { pool: claim.spec.pool.clone(), replacements, ..entry };
        removals.insert(claim.uid.clone(), entry);
    }
    let mut launched: BTreeMap<ClaimName, Launched> = BTreeMap::new();
    for event in events {
        let (Ok(name), Ok(uid)) = (ClaimName::new(&event.claim), Uid::new(&event.uid)) else { continue };
        let known = snapshot.claims().get(&name).filter(|claim| claim.uid == uid);
        let node = || known.map_or_else(|| gone(name.clone()), |claim| recorded(snapshot, claim));
        let pool = || known.map_or_else(|| pool_of(&name, snapshot), |claim| claim.spec.pool.clone());
        let new =
            |by, reason: &str| NodeRemoval { pool: pool(), ..removal(node(), uid.clone(), (by, reason), event.at) };
        if let Some(reason) = reason_in(event, TERMINATING) {
            let entry = removals.entry(uid.clone()).or_insert_with(|| new(RemovedBy::Karpenter, reason));
            (entry.by, entry.reason) = (RemovedBy::Karpenter, entry_text(reason));
        } else if let Some(reason) = reason_in(event, LAUNCHING) {
            let entry = Launched { node: node(), pool: pool(), reason: reason.to_owned(), at: event.at };
            launched.entry(name.clone()).or_insert(entry);
        }
    }
    let (mut removals, mut launched): (Vec<_>, Vec<_>) =
        (removals.into_values().collect(), launched.into_values().collect());
    removals.sort_by(|a, b| (a.started, &a.uid).cmp(&(b.started, &b.uid)));
    launched.sort_by(|a, b| (a.at, &a.node.claim).cmp(&(b.at, &b.node.claim)));
    Reconstruction { removals, launched }
}

fn removal(removed: RecordedNode, uid: Uid, (by, reason): (RemovedBy, &str), started: jiff::Timestamp) -> NodeRemoval {
    NodeRemoval {
        uid,
        removed,
        pool: None,
        replacements: Vec::new(),
        by,
        reason: Arc::from(reason),
        cause: Arc::from(""),
        started,
        ended: None,
        pods: 0,
    }
}

/// The reason of a disruption that an event tells.
fn reason_in<'e>(event: &'e NodeClaimEvent, (reason, before): (&str, &str)) -> Option<&'e str> {
    event.message.strip_prefix(before).filter(|text| event.reason == reason && !text.is_empty())
}

/// The condition `DisruptionReason` of a NodeClaim.
fn marked(claim: &Claim) -> Option<&'static str> {
    let forced = claim.status.forced.map(ForcefulReason::as_str);
    forced.or_else(|| claim.status.disrupted.map(DisruptionReason::as_str))
}

/// A NodeClaim of which only the name is known.
fn gone(claim: ClaimName) -> RecordedNode {
    RecordedNode { claim, node: None, offering: None, price: None }
}

/// A NodeClaim that exists, by its labels and those of its Node.
fn recorded(snapshot: &Snapshot, claim: &Claim) -> RecordedNode {
    let node = snapshot.node_of(claim);
    let label = |key: &str| claim.spec.labels.get(key).map(|value| &**value).or_else(|| node?.label(key));
    let key = || {
        Some(OfferingKey {
            size: VmSize::new(label(labels::INSTANCE_TYPE)?).ok()?,
            zone: Zone::new(label(labels::ZONE)?).ok()?,
            capacity_type: label(labels::CAPACITY_TYPE)?.parse().ok()?,
        })
    };
    let planned = claim.intent.as_ref().map(|intent| &intent.offering);
    RecordedNode {
        claim: claim.name.clone(),
        node: claim.status.node_name.clone(),
        offering: planned.map(|planned| planned.key.clone()).or_else(key),
        price: planned.map(|planned| planned.price),
    }
}

/// The NodePool of a NodeClaim that is gone: Karpenter names one after it, with a hyphen and five characters.
fn pool_of(claim: &ClaimName, snapshot: &Snapshot) -> Option<NodePoolName> {
    let (pool, suffix) = claim.as_str().rsplit_once('-')?;
    let name = NodePoolName::new(pool).ok().filter(|_| suffix.len() == 5)?;
    snapshot.pools().get(&name).map(|pool| pool.name.clone())
}
