//! Looks at a command again after 15 s: it is begun only if it would be found again.

use super::budgets::{allowed, take};
use super::candidates::{Candidate, candidates};
use super::command::{Command, Method};
use super::consolidation::{command as command_for, without};
use crate::karpenter::Rules;
use crate::karpenter::scheduling::Results;
use crate::karpenter::view::View;

/// Why a command is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::karpenter) enum Invalid {
    /// Nodes are no candidates any more: pods came, or somebody else disrupts them.
    Changed,
    /// A budget does not allow it any more.
    Budget,
    /// Its pods would need other nodes than planned.
    Scheduling,
}

/// The command as it may be begun now. Of empty nodes those that are left go; any other command stands or falls as a
/// whole.
pub(in crate::karpenter) fn validate(
    view: &View,
    rules: Rules,
    method: Method,
    command: Command,
) -> Result<Command, Invalid> {
    let found = candidates(view);
    let may_go = |candidate: &Candidate<'_>| match method {
        Method::Emptiness => candidate.may_be_deleted_empty(view),
        Method::MultiNode | Method::SingleNode => candidate.may_be_consolidated(view),
    };
    let mut still: Vec<Candidate<'_>> =
        found.into_iter().filter(|c| command.nodes.contains(&c.node.name) && may_go(c)).collect();
    let mut allowed = allowed(view, method.reason());
    if method == Method::Emptiness {
        if still.is_empty() {
            return Err(Invalid::Changed);
        }
        still.retain(|candidate| take(&mut allowed, candidate.pool()));
        let left = command_for(&still, None, &Results::default(), view);
        return if still.is_empty() { Err(Invalid::Budget) } else { Ok(left) };
    }
    if still.len() < command.nodes.len() {
        return Err(Invalid::Changed);
    }
    if !still.iter().all(|candidate| take(&mut allowed, candidate.pool())) {
        return Err(Invalid::Budget);
    }
    let results = without(view, rules, &still).map_err(|_| Invalid::Scheduling)?;
    if is_as_planned(&command, &results) { Ok(command) } else { Err(Invalid::Scheduling) }
}

/// As many new nodes as planned, none or one, and of at least the types that were planned.
fn is_as_planned(command: &Command, results: &Results) -> bool {
    match (&command.replacement, &*results.new_claims) {
        (None, []) => true,
        (Some(planned), [now]) => {
            planned.types.iter().all(|t| now.types.iter().any(|other| other.facts.name == t.facts.name))
        }
        _ => false,
    }
}
