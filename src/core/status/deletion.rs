//! How far the deletion of a NodePool is, and what holds it up.

use super::Reporter;
use super::usage::PoolUsage;
use crate::disruption::{DisruptionBlocker, budget_left, disruption_blockers};
use crate::model::cluster::claim::Claim;
use crate::model::cluster::pool::{DisruptionReason, NodePool};
use crate::model::cluster::status::StatusCondition;
use crate::model::labels::NODEPOOL;
use crate::model::names::ClaimName;
use crate::model::settings::DisruptionScope;
use crate::snapshot::Snapshot;
use jiff::Timestamp;
use std::collections::BTreeMap;
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
    /// Which, why, and what to do, for people.
    pub message: String,
}

impl KeptNodes {
    /// Those of this NodePool; `None` if there are none, or it is not being deleted. `irreplaceable`: nodes with pods that can be
    /// scheduled nowhere else, and why.
    #[must_use]
    pub fn of(
        pool: &NodePool,
        snapshot: &Snapshot,
        irreplaceable: &BTreeMap<ClaimName, Arc<str>>,
        now: Timestamp,
    ) -> Option<Self> {
        let (waiting, is_going) = waiting(pool, snapshot);
        let kept = waiting.iter().filter_map(|claim| {
            let blocker = blocker(snapshot, claim, is_going, now).map(|blocker| blocker.to_string());
            let why = blocker.or_else(|| irreplaceable.get(&claim.name).map(ToString::to_string))?;
            Some(format!("node {}: {why}", snapshot.node_of(claim)?.name))
        });
        let mut texts: Vec<String> = kept.collect();
        let count = texts.len();
        if count == 0 {
            return None;
        }
        texts.truncate(MAX_NAMED);
        let (stay, more) = (if count == 1 { "stays" } else { "stay" }, count - texts.len());
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        let message = format!(
            "{count} {stay}: {}{more}. Nothing is evicted there: let these pods go or run elsewhere, or evict them with kubectl \
             delete nodeclaims -l {NODEPOOL}={}",
            texts.join("; "),
            pool.name
        );
        Some(Self { count, message })
    }
}

/// The NodeClaims of a deleted NodePool that nothing has begun to take away, and whether there are others.
fn waiting<'s>(pool: &NodePool, snapshot: &'s Snapshot) -> (Vec<&'s Arc<Claim>>, bool) {
    let is_going = |claim: &Claim| claim.is_leaving() || claim.status.disrupted.is_some();
    let is_of_pool = |claim: &&Arc<Claim>| {
        claim.is_ours() && claim.spec.pool.as_ref() == Some(&pool.name) && claim.status.initialized.is_some()
    };
    let is_deleted = pool.deletion.takes_nodes();
    let all = snapshot.claims().values().filter(|_| is_deleted).filter(is_of_pool);
    let (going, waiting): (Vec<_>, Vec<_>) = all.partition(|claim| is_going(claim));
    (waiting, !going.is_empty())
}

/// What of a node or its pods keeps it; not the pause switch, which keeps all of them. A PodDisruptionBudget that allows nothing
/// while nodes are going may allow it soon.
fn blocker(snapshot: &Snapshot, claim: &Claim, is_going: bool, now: Timestamp) -> Option<DisruptionBlocker> {
    let blockers = disruption_blockers(snapshot, claim, REASON, now);
    blockers.into_iter().find(|blocker| match blocker {
        DisruptionBlocker::Paused(_) => false,
        DisruptionBlocker::PodProtected(..) => !is_going,
        _ => true,
    })
}

/// The condition [`ConditionType::NodesRemoved`](crate::model::cluster::status::ConditionType::NodesRemoved): False while nodes
/// of a deleted NodePool are left. `None` where it is not being deleted.
pub(super) fn nodes_removed(pool: &NodePool, usage: &PoolUsage, reporter: &Reporter<'_>) -> Option<StatusCondition> {
    let Reporter { snapshot, now, irreplaceable, .. } = *reporter;
    if !pool.deletion.takes_nodes() {
        return None;
    }
    let (waiting, _) = waiting(pool, snapshot);
    let kept = KeptNodes::of(pool, snapshot, irreplaceable, now);
    let left = usage.nodes;
    let going = left.saturating_sub(i64::try_from(waiting.len()).unwrap_or(i64::MAX));
    let are = if left == 1 { "node is" } else { "nodes are" };
    let mut message = format!("{left} {are} left, of which {going} {} going", if going == 1 { "is" } else { "are" });
    let others = waiting.len().saturating_sub(kept.as_ref().map_or(0, |kept| kept.count));
    if let Some(why) = hold(pool, reporter).filter(|_| others > 0) {
        message.push_str(&format!("; {others} {} waiting: {why}", if others == 1 { "is" } else { "are" }));
    }
    let reason = if kept.is_some() { "NodesKept" } else { "NodesLeft" };
    kept.into_iter().for_each(|kept| message.push_str(&format!("; {}", kept.message)));
    Some(StatusCondition::failing(reason, &message))
}

/// What keeps all nodes of a deleted NodePool now.
fn hold(pool: &NodePool, reporter: &Reporter<'_>) -> Option<String> {
    let Reporter { snapshot, now, .. } = *reporter;
    if let Some(paused) = snapshot.pause.disruption_pause(&DisruptionScope::new(&pool.name, REASON), now) {
        return Some(format!("disruption is paused: {paused}"));
    }
    let is_used_up = budget_left(snapshot, pool, REASON, now) == 0;
    is_used_up.then(|| "spec.disruption.budgets allow no more nodes to be disrupted now".to_owned())
}
