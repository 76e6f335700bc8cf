//! How long pods were pending.

use jiff::SignedDuration;
use serde::Serialize;
use std::collections::BTreeMap;

/// Times that pods were pending: how many pods for each time.
#[derive(Debug, Clone, Default)]
pub(super) struct Waits {
    times: BTreeMap<SignedDuration, u64>,
    never_bound: u64,
}

/// Times from the creation of pods until they were bound to a node, in whole seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitFigures {
    /// Pods.
    pub pods: u64,
    /// Those of them that were deleted while pending, or are pending at the end: they count with their age.
    pub never_bound: u64,
    /// Half of the pods were bound within this time.
    pub p50_seconds: i64,
    /// 95 % of them.
    pub p95_seconds: i64,
    /// 99 % of them.
    pub p99_seconds: i64,
    /// All of them.
    pub max_seconds: i64,
}

impl Waits {
    /// A pod was bound after this time.
    pub(super) fn bound(&mut self, after: SignedDuration) {
        *self.times.entry(after).or_default() += 1;
    }

    /// A pod was not bound within its age.
    pub(super) fn unbound(&mut self, age: SignedDuration) {
        self.bound(age);
        self.never_bound += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (time, pods) in &other.times {
            *self.times.entry(*time).or_default() += pods;
        }
        self.never_bound += other.never_bound;
    }

    pub(super) fn figures(&self) -> WaitFigures {
        let pods = self.times.values().sum();
        WaitFigures {
            pods,
            never_bound: self.never_bound,
            p50_seconds: self.percentile(pods, 50),
            p95_seconds: self.percentile(pods, 95),
            p99_seconds: self.percentile(pods, 99),
            max_seconds: self.percentile(pods, 100),
        }
    }

    /// The least time within which so many percent of the pods were bound (nearest rank).
    fn percentile(&self, pods: u64, percent: u64) -> i64 {
        let rank = (pods * percent).div_ceil(100);
        let mut counted = 0;
        let reached = self.times.iter().find(|(_, pods)| {
            counted += **pods;
            counted >= rank
        });
        reached.map_or(0, |(time, _)| time.as_secs())
    }
}
