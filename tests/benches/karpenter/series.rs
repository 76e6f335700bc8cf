//! Samples of a cluster over time.

use crate::sizes::Sizes;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How often a cluster is sampled.
pub(crate) const INTERVAL: Duration = Duration::from_secs(2);

/// What a cluster looks like at an instant.
#[derive(Debug, Default)]
pub(crate) struct Observation {
    /// The offering of each Node, by the Node's UID.
    pub(crate) nodes: BTreeMap<String, String>,
    /// Whether each pod that is not being deleted is bound, by its UID.
    pub(crate) pods: BTreeMap<String, bool>,
}

/// One sample.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sample {
    /// Since the start.
    pub(crate) seconds: f64,
    /// Priced Nodes.
    pub(crate) nodes: usize,
    /// What they cost together, in nano-USD per hour.
    pub(crate) price: i64,
    /// Bound pods.
    bound: usize,
    /// Pods without a node.
    pub(crate) waiting: usize,
    /// Pods seen so far.
    pods_seen: usize,
    /// Nodes by offering.
    by_offering: BTreeMap<String, usize>,
}

/// All samples of a run, and what they add up to.
#[derive(Debug, Default)]
pub(crate) struct Series {
    pub(crate) samples: Vec<Sample>,
    /// UIDs of all priced Nodes.
    pub(crate) nodes_seen: BTreeSet<String>,
    /// UIDs of all pods.
    pub(crate) pods_seen: BTreeSet<String>,
}

impl Series {
    /// Adds a sample.
    pub(crate) fn record(&mut self, seconds: f64, seen: Observation, sizes: &Sizes) {
        let (mut price, mut by_offering) = (0, BTreeMap::new());
        for (uid, offering) in seen.nodes {
            if let Some(of_node) = sizes.price(&offering) {
                price += of_node;
                *by_offering.entry(offering).or_insert(0) += 1;
                self.nodes_seen.insert(uid);
            }
        }
        let bound = seen.pods.values().filter(|bound| **bound).count();
        let waiting = seen.pods.len() - bound;
        self.pods_seen.extend(seen.pods.into_keys());
        let (nodes, pods_seen) = (by_offering.values().sum(), self.pods_seen.len());
        self.samples.push(Sample { seconds, nodes, price, bound, waiting, pods_seen, by_offering });
    }

    /// The integral of a value over time, from zero at the start: a sample stands for the time since the one before it.
    pub(crate) fn integral(&self, value: impl Fn(&Sample) -> f64) -> f64 {
        let mut last = 0.0;
        let part = |sample: &Sample| {
            let time = sample.seconds - last;
            last = sample.seconds;
            value(sample) * time
        };
        self.samples.iter().map(part).sum()
    }

    /// The samples from one time to another, in seconds after the start.
    pub(crate) fn between(&self, from: u32, to: u32) -> &[Sample] {
        let first = self.samples.partition_point(|sample| sample.seconds < f64::from(from));
        let end = self.samples.partition_point(|sample| sample.seconds < f64::from(to));
        self.samples.get(first..end).unwrap_or_default()
    }
}
