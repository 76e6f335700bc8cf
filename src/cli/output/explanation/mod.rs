//! Explanations of where pods are scheduled and why.
//!
//! As text and as JSON, both bounded whatever the number of pods: names beyond the first few are counted.

pub(crate) mod json;
pub(crate) mod size;
pub(crate) mod text;

use crate::output::first_names;
use napkeeper_core::model::names::{NodePoolName, ObjectKey};
use napkeeper_core::scheduling::{PoolFilterSteps, UnschedulableExplanation, UnschedulableReason};
use std::fmt::Display;

/// Most pools of which the filter steps are shown. A cluster has a handful.
const MAX_POOLS: usize = 16;

/// Why a pool cannot run some pods.
struct RejectedPool<'a> {
    /// `None` for all pools.
    pool: Option<&'a NodePoolName>,
    reason: Option<&'a UnschedulableReason>,
    filter_steps: Option<&'a PoolFilterSteps>,
}

/// Pools that cannot run some pods, the one of the suggestion first, and how many more there are.
fn rejected_pools(unschedulable: &UnschedulableExplanation) -> (Vec<RejectedPool<'_>>, usize) {
    let reason = |filter_steps: &PoolFilterSteps| {
        unschedulable
            .reasons
            .iter()
            .find(|(pool, _)| pool.as_ref() == Some(&filter_steps.pool))
            .map(|(_, reason)| reason)
    };
    let general = unschedulable.reasons.iter().filter(|(pool, _)| pool.is_none());
    let general = general.map(|(_, reason)| RejectedPool { pool: None, reason: Some(reason), filter_steps: None });
    let each = unschedulable.filter_steps.iter().map(|w| RejectedPool {
        pool: Some(&w.pool),
        reason: reason(w),
        filter_steps: Some(w),
    });
    let mut pools: Vec<RejectedPool<'_>> = general.chain(each).collect();
    let nearest = unschedulable.suggestion.as_ref().map(|suggestion| &suggestion.pool);
    pools.sort_by_key(|of| of.pool.is_some() && of.pool != nearest);
    let more = pools.len().saturating_sub(MAX_POOLS);
    pools.truncate(MAX_POOLS);
    (pools, more)
}

/// `default/web-0`, `default/web-0 and 3 more`.
pub(crate) fn subject(pods: &[ObjectKey]) -> String {
    let first = pods.first().map(ToString::to_string).unwrap_or_default();
    match pods.len() {
        0 | 1 => first,
        all => format!("{first} and {} more", all - 1),
    }
}

/// The first few of some names with their numbers, and how many there are beyond: `a (3), b (1) and 4 more`.
fn counted<T: Display>(names: &[(T, usize)], count: usize, most: usize) -> String {
    match names {
        [(only, _)] if count == 1 => only.to_string(),
        names => first_names(names.iter().map(|(name, pods)| format!("{name} ({pods})")), count, most),
    }
}
