//! How far the deletion of a NodePool is, and what holds it up.

use super::Reporter;
use super::usage::PoolUsage;
use crate::disruption::{
    DisruptionBlocker, PodWithoutRoom, PossibleDisruption, ReplacementLoops, budget_left, disruption_blockers,
};
use crate::model::cluster::claim::Claim;
use crate::model::cluster::pool::{DisruptionReason, NodePool};
use crate::model::cluster::status::{InvalidPool, StatusCondition};
use crate::model::labels::NODEPOOL;
use crate::model::names::{ClaimName, NodePoolName};
use crate::model::settings::DisruptionScope;
use crate::snapshot::Snapshot;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most nodes that a message names.
const MAX_NAMED: usize = 5;
/// By which reason nodes go.
const REASON: DisruptionReason = DisruptionReason::NodePoolDeleted;

/// Nodes of a deleted NodePool that stay, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptNodes {
    /// How many.
    pub count: usize,
    /// By what: unlike the message it seldom changes.
    pub by: BTreeSet<KeptBy>,
    /// Which, why, and what to do, for people.
    pub message: String,
}

/// What keeps a node of a deleted NodePool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeptBy {
    /// Its own annotation.
    Node,
    /// A pod that must not be disrupted.
    Pod,
    /// A pod that can be scheduled nowhere else.
    Room,
}

impl KeptNodes {
    /// Those of this NodePool; `None` if there are none, or it is not being deleted. `irreplaceable`: nodes with pods that can be
    /// scheduled nowhere else.
    #[must_use]
    pub fn of(
        pool: &NodePool,
        snapshot: &Snapshot,
        irreplaceable: &BTreeMap<ClaimName, PodWithoutRoom>,
        now: Timestamp,
    ) -> Option<Self> {
        Self::among(&standing(pool, snapshot).waiting, pool, irreplaceable, (snapshot, now))
    }

    fn among(
        waiting: &[&Arc<Claim>],
        pool: &NodePool,
        irreplaceable: &BTreeMap<ClaimName, PodWithoutRoom>,
        (snapshot, now): (&Snapshot, Timestamp),
    ) -> Option<Self> {
        let kept = waiting.iter().filter_map(|claim| {
            let (by, why) = what_keeps(snapshot, claim, irreplaceable, now)?;
            Some((by, format!("node {}: {why}", snapshot.node_of(claim)?.name)))
        });
        let (by, mut texts): (BTreeSet<KeptBy>, Vec<String>) = kept.unzip();
        let count = texts.len();
        if count == 0 {
            return None;
        }
        texts.truncate(MAX_NAMED);
        let (stay, more) = (if count == 1 { "stays" } else { "stay" }, count - texts.len());
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        let message = format!(
            "{count} {stay}: {}{more}. Nothing is evicted there: let these pods go or run elsewhere, or evict them with {}",
            texts.join("; "),
            deletion_of_claims(&pool.name)
        );
        Some(Self { count, by, message })
    }
}

/// How the nodes of a NodePool are deleted all the same.
fn deletion_of_claims(pool: &NodePoolName) -> String {
    format!("kubectl delete nodeclaims -l {NODEPOOL}={pool}")
}

/// The nodes of a deleted NodePool that are ours.
#[derive(Default)]
struct Standing<'s> {
    /// Those in use that nothing has begun to take away.
    waiting: Vec<&'s Arc<Claim>>,
    /// How many something has begun to take away.
    going: usize,
}

fn standing<'s>(pool: &NodePool, snapshot: &'s Snapshot) -> Standing<'s> {
    if !pool.deletion.takes_nodes() {
        return Standing::default();
    }
    let is_of_pool = |claim: &&Arc<Claim>| {
        claim.is_ours() && claim.spec.pool.as_ref() == Some(&pool.name) && claim.status.provider_id.is_some()
    };
    let is_going = |claim: &&Arc<Claim>| claim.is_leaving() || claim.status.disrupted.is_some();
    let (going, others): (Vec<_>, Vec<_>) = snapshot.claims().values().filter(is_of_pool).partition(is_going);
    let waiting = others.into_iter().filter(|claim| claim.status.initialized.is_some()).collect();
    Standing { waiting, going: going.len() }
}

/// All that keeps a node of a deleted NodePool, as it would a drifted one, but for loops of replacements.
fn blockers(snapshot: &Snapshot, claim: &Claim, now: Timestamp) -> Vec<DisruptionBlocker> {
    let loops = &ReplacementLoops::default();
    disruption_blockers(snapshot, claim, PossibleDisruption { reason: REASON, drift: None, loops }, now)
}

/// What of a node or its pods keeps it until somebody does something; not the pause switch, which keeps all of them, and not a
/// PodDisruptionBudget that allows nothing now: between two nodes of a drain that is usual.
fn lasting_blocker(snapshot: &Snapshot, claim: &Claim, now: Timestamp) -> Option<(KeptBy, String)> {
    let by = |blocker: &DisruptionBlocker| match blocker {
        DisruptionBlocker::DoNotDisrupt => Some(KeptBy::Node),
        DisruptionBlocker::PodProtected(_, blocker) => blocker.is_permanent().then_some(KeptBy::Pod),
        DisruptionBlocker::PodRefuses(_)
        | DisruptionBlocker::PodUnreadable(_)
        | DisruptionBlocker::PodWithoutController(_) => Some(KeptBy::Pod),
        DisruptionBlocker::NotInitialized
        | DisruptionBlocker::BeingDeleted
        | DisruptionBlocker::NotReady
        | DisruptionBlocker::Paused(_)
        | DisruptionBlocker::ReplacementLoop(_) => None,
    };
    blockers(snapshot, claim, now).iter().find_map(|blocker| Some((by(blocker)?, blocker.to_string())))
}

/// What keeps a node until somebody does something: itself, one of its pods, or that one can be scheduled nowhere else.
pub(super) fn what_keeps(
    snapshot: &Snapshot,
    claim: &Claim,
    irreplaceable: &BTreeMap<ClaimName, PodWithoutRoom>,
    now: Timestamp,
) -> Option<(KeptBy, String)> {
    let node = &snapshot.node_of(claim)?.name;
    let without_room = || {
        let found = irreplaceable.get(&claim.name)?;
        let is_there = snapshot.pods_on(node).any(|pod| pod.key == found.pod);
        is_there.then(|| (KeptBy::Room, found.to_string()))
    };
    lasting_blocker(snapshot, claim, now).or_else(without_room)
}

/// The condition [`ConditionType::NodesRemoved`](crate::model::cluster::status::ConditionType::NodesRemoved): False while nodes
/// of a deleted NodePool are left. `None` where it is not being deleted.
pub(super) fn nodes_removed(pool: &NodePool, usage: &PoolUsage, reporter: &Reporter<'_>) -> Option<StatusCondition> {
    let Reporter { snapshot, now, irreplaceable, .. } = *reporter;
    if !pool.deletion.takes_nodes() {
        return None;
    }
    let Standing { waiting, going } = standing(pool, snapshot);
    let kept = KeptNodes::among(&waiting, pool, irreplaceable, (snapshot, now));
    let are = if going == 1 { "is" } else { "are" };
    let mut message = format!("{}, of which {going} {are} going", left(usage));
    let others = waiting.len().saturating_sub(kept.as_ref().map_or(0, |kept| kept.count));
    if let Some(why) = hold(pool, &waiting, reporter) {
        message.push_str("; ");
        if others > 0 {
            message.push_str(&format!("{others} {} waiting: ", if others == 1 { "is" } else { "are" }));
        }
        message.push_str(&why);
    }
    let reason = if kept.is_some() { "NodesKept" } else { "NodesLeft" };
    kept.into_iter().for_each(|kept| message.push_str(&format!("; {}", kept.message)));
    Some(StatusCondition::failing(reason, &message))
}

/// The same of a NodePool of which nothing is known but that it cannot be read.
pub(super) fn nodes_of_unreadable(pool: &InvalidPool, usage: &PoolUsage) -> Option<StatusCondition> {
    if !pool.deletion.takes_nodes() {
        return None;
    }
    let message = format!(
        "{}, of which none goes: the NodePool cannot be read, so its budgets are not known. Correct its spec, or evict all pods \
         with {}",
        left(usage),
        deletion_of_claims(&pool.name)
    );
    Some(StatusCondition::failing("NodesLeft", &message))
}

fn left(usage: &PoolUsage) -> String {
    format!("{} {} left", usage.nodes, if usage.nodes == 1 { "node is" } else { "nodes are" })
}

/// What keeps all of these waiting nodes of a deleted NodePool now, or one of them for a moment.
fn hold(pool: &NodePool, waiting: &[&Arc<Claim>], reporter: &Reporter<'_>) -> Option<String> {
    let Reporter { snapshot, now, irreplaceable, .. } = *reporter;
    if waiting.is_empty() {
        return None;
    }
    if let Some(paused) = snapshot.pause.disruption_pause(&DisruptionScope::new(&pool.name, REASON), now) {
        return Some(format!("disruption is paused: {paused}"));
    }
    if budget_left(snapshot, pool, REASON, now) == 0 {
        return Some("spec.disruption.budgets allow no more nodes to be disrupted now".to_owned());
    }
    let passes = |blocker: &DisruptionBlocker| match blocker {
        DisruptionBlocker::PodProtected(_, by) => !by.is_permanent(),
        DisruptionBlocker::NotReady => true,
        _ => false,
    };
    let is_kept = |claim: &Claim| what_keeps(snapshot, claim, irreplaceable, now).is_some();
    let others: Vec<&&Arc<Claim>> = waiting.iter().filter(|claim| !is_kept(claim)).collect();
    let among = if others.len() > 1 { "among them " } else { "" };
    others.into_iter().find_map(|claim| {
        let blocker = blockers(snapshot, claim, now).into_iter().find(passes)?;
        let node = snapshot.node_of(claim).map_or("", |node| node.name.as_str());
        Some(format!("{among}node {node}: {blocker}"))
    })
}
