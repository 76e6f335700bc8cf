//! The figures of a run.

use super::waits::WaitFigures;
use jiff::SignedDuration;
use napkeeper_core::model::amounts::money::Money;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How pods were disturbed: all of them, and by NodePool and workload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DisruptionFigures {
    /// All pods.
    #[serde(flatten)]
    pub all: PodFigures,
    /// By the NodePool, or node group, of the pod's node.
    pub by_pool: BTreeMap<Arc<str>, PodFigures>,
    /// By `namespace/name` of the workload.
    pub by_workload: BTreeMap<String, PodFigures>,
}

/// How the pods of a group were disturbed. Pods of DaemonSets and static pods are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodFigures {
    /// Pods that the policy evicted, or ended by force, while they were wanted.
    pub voluntary_evictions: u64,
    /// The same by the reason that the policy gave for the disruption of the node.
    pub evictions_by_reason: BTreeMap<Arc<str>, u64>,
    /// Those of them that hit the replacement of an evicted pod within an hour of its eviction.
    pub re_evictions: u64,
    /// The sum of the times that pods ran.
    pub running_pod_seconds: i64,
    /// The sum of the times from an eviction until the replacement was ready.
    pub unavailable_pod_seconds: i64,
    /// How long new pods were pending.
    pub pending_new: WaitFigures,
    /// How long the replacements of evicted pods were pending.
    pub pending_evicted: WaitFigures,
}

/// The nodes of a NodePool or node group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolFigures {
    /// Nodes that were launched.
    pub nodes_launched: u32,
    /// Sum of the nodes' times, in hours.
    pub node_hours: i64,
    /// Cost in nano-USD.
    pub cost: Money,
}

impl PodFigures {
    /// Voluntary evictions of each pod in a day of running.
    #[must_use]
    pub fn evictions_per_pod_day(&self) -> f64 {
        per_day(self.voluntary_evictions as f64, SignedDuration::from_secs(self.running_pod_seconds))
    }
}

/// A number of events in each day of a time.
pub(crate) fn per_day(events: f64, time: SignedDuration) -> f64 {
    let days = time.as_secs_f64() / 86_400.0;
    if days > 0.0 { events / days } else { 0.0 }
}
