//! What the budgets of NodePools allow in the time to come.

use crate::disruption::budget_calendar::{AllowedSpan, CALENDAR, allowed_spans};
use crate::disruption::initialized_nodes;
use crate::model::cluster::pool::{DisruptionReason, NodePool};
use crate::model::names::NodePoolName;
use crate::snapshot::Snapshot;
use jiff::Timestamp;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

type AllowedSpans = Arc<[AllowedSpan]>;

/// What the budgets of each NodePool allow in the next 90 days, computed on first use.
pub(super) struct BudgetsAhead<'a> {
    snapshot: &'a Snapshot,
    now: Timestamp,
    spans: RefCell<BTreeMap<(NodePoolName, DisruptionReason), AllowedSpans>>,
}

impl<'a> BudgetsAhead<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, now: Timestamp) -> Self {
        Self { snapshot, now, spans: RefCell::default() }
    }

    /// The most nodes that may be disrupted at once at any time; `None` is any number.
    pub(super) fn most(&self, pool: &NodePool, reason: DisruptionReason) -> Option<u32> {
        let most = self.of(pool, reason).iter().map(|span| span.allowed).max().unwrap_or_default();
        (most < u32::MAX).then_some(most)
    }

    /// From this time on, the first at which so many nodes may be disrupted by the schedules; `None` where that does not come.
    pub(super) fn next(
        &self,
        pool: &NodePool,
        reason: DisruptionReason,
        (nodes, from): (u32, Timestamp),
    ) -> Option<Timestamp> {
        let spans = self.of(pool, reason);
        spans.iter().find(|span| span.until > from && span.allowed >= nodes).map(|span| span.from.max(from))
    }

    fn of(&self, pool: &NodePool, reason: DisruptionReason) -> AllowedSpans {
        let mut known = self.spans.borrow_mut();
        let spans = known.entry((pool.name.clone(), reason.in_budgets())).or_insert_with(|| {
            let until = self.now.saturating_add(CALENDAR).unwrap_or(Timestamp::MAX);
            let total = initialized_nodes(self.snapshot, pool);
            allowed_spans(&pool.disruption.budgets, total, reason, (self.now, until)).into()
        });
        Arc::clone(spans)
    }
}
