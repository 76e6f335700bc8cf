//! How many more nodes of a NodePool its budgets allow to be disrupted now, as text and as JSON.

use jiff::Timestamp;
use napkeeper_core::disruption::budget_left;
use napkeeper_core::model::cluster::pool::{DisruptionReason, NodePool};
use napkeeper_core::snapshot::Snapshot;
use serde_json::{Value, json};
use std::fmt;

/// How many more nodes of a NodePool may be disrupted now for each reason; `u32::MAX` is any number.
#[derive(Debug, Default)]
pub(crate) struct BudgetsLeft(Vec<(DisruptionReason, u32)>);

/// The reasons that budgets know, in the order in which they are shown.
pub(crate) const REASONS: [DisruptionReason; 3] =
    [DisruptionReason::Drifted, DisruptionReason::Underutilized, DisruptionReason::Empty];

impl BudgetsLeft {
    pub(crate) fn of(snapshot: &Snapshot, pool: &NodePool, now: Timestamp) -> Self {
        Self(REASONS.map(|reason| (reason, budget_left(snapshot, pool, reason, now))).to_vec())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn to_json(&self) -> Value {
        self.0.iter().map(|(reason, left)| (reason.as_str().to_owned(), number(*left))).collect()
    }
}

/// A number of nodes; `null` is any.
pub(crate) fn number(nodes: u32) -> Value {
    if nodes == u32::MAX { Value::Null } else { json!(nodes) }
}

impl fmt::Display for BudgetsLeft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = |(reason, left): &(DisruptionReason, u32)| match *left {
            u32::MAX => format!("{}: any number", reason.as_str()),
            left => format!("{}: {left} more", reason.as_str()),
        };
        f.write_str(&self.0.iter().map(left).collect::<Vec<_>>().join(", "))
    }
}
