//! Limits that are raised for all pods together.

use crate::model::cluster::pool::{NodePool, amount};
use crate::model::names::NodePoolName;
use crate::scheduling::explain::suggestion::{SuggestedChange, Suggestion};
use crate::scheduling::explain::{ExplainedResult, Explanations};
use crate::scheduling::offerings::limits::{LaunchLimits, PoolUsage};
use crate::snapshot::Snapshot;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Explanations {
    /// The pools whose limits are all that keeps some pods from a new node.
    pub(crate) fn pools_with_low_limits(&mut self) -> BTreeSet<NodePoolName> {
        self.limit_suggestions().map(|suggestion| suggestion.pool.clone()).collect()
    }

    /// Raises limits as far as a plan without them has used of each pool.
    pub(crate) fn raise_limits(&mut self, snapshot: &Snapshot, unlimited: &LaunchLimits) {
        for suggestion in self.limit_suggestions() {
            if let (Some(pool), Some(used)) =
                (snapshot.pools().get(&suggestion.pool), unlimited.usage(&suggestion.pool))
            {
                suggestion.changes = raised(pool, used, &suggestion.changes);
            }
        }
    }

    fn limit_suggestions(&mut self) -> impl Iterator<Item = &mut Suggestion> {
        let suggestions = self.explanations.iter_mut().filter_map(|explanation| match &mut explanation.result {
            ExplainedResult::Unschedulable(result) => result.suggestion.as_mut(),
            ExplainedResult::Placed(_) => None,
        });
        let raises = |change: &SuggestedChange| matches!(change, SuggestedChange::RaiseLimit(..));
        suggestions.filter(move |suggestion| suggestion.changes.iter().all(raises))
    }
}

/// The limits that must be raised for what is used, and at least as far as one pod needs.
fn raised(pool: &NodePool, used: &PoolUsage, for_one: &[SuggestedChange]) -> Vec<SuggestedChange> {
    let nodes = pool.limits.nodes.map(|limit| (Arc::from("nodes"), limit, used.nodes));
    let resources = pool.limits.resources.iter();
    let resources = resources.map(|(name, limit)| (Arc::clone(name), *limit, amount(&used.capacity, name)));
    let raise = |(name, limit, used): (Arc<str>, i64, i64)| {
        let least = for_one.iter().find_map(|change| match change {
            SuggestedChange::RaiseLimit(of, to) if *of == name => Some(*to),
            _ => None,
        });
        let to = used.max(least.unwrap_or(limit));
        (to > limit).then_some(SuggestedChange::RaiseLimit(name, to))
    };
    nodes.into_iter().chain(resources).filter_map(raise).collect()
}
