//! Accounts: how does it read where pods go, and why?
//!
//! As text and as JSON, both short whatever the number of pods: names beyond the first few are counted.

pub(super) mod json;
pub(super) mod size;
pub(super) mod text;

use napkeeper_core::model::names::{NodePoolName, ObjectKey};
use napkeeper_core::scheduling::{PoolFilterSteps, UnschedulableExplanation, UnschedulableReason};
use std::fmt::Display;

/// Most pools of which it is told what is left of them. A cluster has a handful.
const POOLS: usize = 16;

/// What is said of a pool that cannot help.
struct OfPool<'a> {
    /// `None` stands for all pools.
    pool: Option<&'a NodePoolName>,
    why: Option<&'a UnschedulableReason>,
    waterfall: Option<&'a PoolFilterSteps>,
}

/// Pools that cannot help, the nearest first, and how many more there are.
fn pools(stuck: &UnschedulableExplanation) -> (Vec<OfPool<'_>>, usize) {
    let why = |waterfall: &PoolFilterSteps| {
        stuck.reasons.iter().find(|(pool, _)| pool.as_ref() == Some(&waterfall.pool)).map(|(_, why)| why)
    };
    let general = stuck.reasons.iter().filter(|(pool, _)| pool.is_none());
    let general = general.map(|(_, why)| OfPool { pool: None, why: Some(why), waterfall: None });
    let each = stuck.filter_steps.iter().map(|w| OfPool { pool: Some(&w.pool), why: why(w), waterfall: Some(w) });
    let mut pools: Vec<OfPool<'_>> = general.chain(each).collect();
    let nearest = stuck.suggestion.as_ref().map(|remedy| &remedy.pool);
    pools.sort_by_key(|of| of.pool.is_some() && of.pool != nearest);
    let more = pools.len().saturating_sub(POOLS);
    pools.truncate(POOLS);
    (pools, more)
}

/// `default/web-0`, `default/web-0 and 3 more`.
pub(super) fn subject(pods: &[ObjectKey]) -> String {
    let first = pods.first().map(ToString::to_string).unwrap_or_default();
    match pods.len() {
        0 | 1 => first,
        all => format!("{first} and {} more", all - 1),
    }
}

/// The first few of some names with their numbers, and how many there are beyond: `a (3), b (1) and 4 more`.
fn counted<T: Display>(names: &[(T, usize)], count: usize, most: usize) -> String {
    let shown: Vec<String> = match names {
        [(only, _)] if count == 1 => vec![only.to_string()],
        names => names.iter().take(most).map(|(name, pods)| format!("{name} ({pods})")).collect(),
    };
    let more = count.saturating_sub(shown.len());
    if more > 0 { format!("{} and {more} more", shown.join(", ")) } else { shown.join(", ") }
}
