//! Finds the signs of a node by which it is unhealthy or about to be lost.

use super::TaintedSince;
use crate::model::cluster::node::{ConditionStatus, Node, NodeCondition};
use crate::model::settings::{NODE_READY, NodeHealthRule, NodeSign, PREEMPTION_SCHEDULED, VM_EVENT_SCHEDULED};
use jiff::Timestamp;
use std::fmt;
use std::sync::Arc;

/// The event that is the eviction of a spot VM begins so.
const PREEMPT: &str = "Preempt";
/// Longest part of a message that is repeated.
const MAX_MESSAGE: usize = 200;

/// A sign that is seen on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sign {
    /// What it is, for people.
    what: String,
    /// Since when it has been seen.
    pub(super) since: Timestamp,
    /// When it is tolerated no longer.
    pub(super) due: Timestamp,
    /// The rule that it is a sign by.
    pub(super) rule: NodeHealthRule,
    /// Before which time an event of Azure does not begin.
    pub(super) not_before: Option<Timestamp>,
    /// It announces the eviction of a spot VM.
    pub(super) is_preemption: bool,
}

impl fmt::Display for Sign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, since, rule: NodeHealthRule { tolerated, .. }, .. } = self;
        write!(f, "{what} since {since:.0}")?;
        if tolerated.is_zero() { Ok(()) } else { write!(f, ", tolerated for {tolerated:#}") }
    }
}

/// The sign of a rule, if it is seen on a node.
pub(super) fn seen(rule: &NodeHealthRule, node: &Node, tainted: &TaintedSince, now: Timestamp) -> Option<Sign> {
    let mut is_preemption = false;
    let (what, since, not_before) = match &rule.sign {
        NodeSign::Taint(key) if node.is_tainted(key) => {
            let since = tainted.get(&(node.name.clone(), Arc::clone(key))).copied().unwrap_or(now);
            (format!("taint {key}"), since, None)
        }
        NodeSign::Taint(_) => return None,
        NodeSign::Condition { kind, status, words } if **kind == *NODE_READY => {
            let since = node.unready_from()?;
            // Ready is kept apart from other conditions: without one, a kubelet has never reported.
            let found = node.conditions.iter().find(|found| *found.kind == *NODE_READY);
            let is = found.map_or(ConditionStatus::Unknown, |found| found.status);
            let has_word = words.is_empty() || found.is_some_and(|found| has_word(found, words));
            (*status == is && has_word).then_some(())?;
            (format!("{kind} is {}", status.as_str()), since, None)
        }
        NodeSign::Condition { kind, status, words } => {
            let is_it = |found: &&NodeCondition| {
                found.kind == *kind && found.status == *status && (words.is_empty() || has_word(found, words))
            };
            let found = node.conditions.iter().find(is_it)?;
            is_preemption = self::is_preemption(found);
            let message: String = found.message.chars().take(MAX_MESSAGE).collect();
            let what = format!("{kind} is {} ({}: {message})", status.as_str(), found.reason);
            (what, found.since, found.not_before)
        }
    };
    // Conditions have the times of the node's clock, which may be ahead.
    let since = since.min(now);
    let due = since.saturating_add(rule.tolerated).unwrap_or(Timestamp::MAX);
    Some(Sign { what, since, due, rule: rule.clone(), not_before, is_preemption })
}

/// The reason or the message of a condition begins with one of these.
fn has_word(condition: &NodeCondition, words: &[Arc<str>]) -> bool {
    words.iter().any(|word| begins_with(condition, word))
}

/// Azure announces the eviction of a spot VM.
fn is_preemption(condition: &NodeCondition) -> bool {
    match &*condition.kind {
        PREEMPTION_SCHEDULED => true,
        VM_EVENT_SCHEDULED => begins_with(condition, PREEMPT),
        _ => false,
    }
}

/// The reason or the message of a condition begins with this word, in any case.
fn begins_with(condition: &NodeCondition, word: &str) -> bool {
    let begins = |text: &str| text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    begins(&condition.reason) || begins(&condition.message)
}
