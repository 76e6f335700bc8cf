//! Summaries: quantiles of what was observed during the last ten minutes, as Karpenter's client library exports them.

use super::Label;
use napkeeper_serve::prometheus_client::collector::Collector;
use napkeeper_serve::prometheus_client::encoding::DescriptorEncoder;
use napkeeper_serve::prometheus_client::metrics::MetricType;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Quantiles are those of the observations of this time (`prometheus.DefMaxAge` of client_golang).
const MAX_AGE: Duration = Duration::from_mins(10);
/// Most observations that are kept for each set of labels.
const MAX_KEPT: usize = 10_000;
/// The quantiles (Karpenter, `pkg/metrics/constants.go`, `SummaryObjectives`), and their labels.
const QUANTILES: [(f64, &str); 5] = [(0.0, "0"), (0.5, "0.5"), (0.9, "0.9"), (0.99, "0.99"), (1.0, "1")];

/// A summary of durations in seconds, by labels. Encoded as gauges, which is all that the client library has for it.
#[derive(Debug)]
pub(super) struct Summary {
    name: &'static str,
    help: &'static str,
    by_labels: Mutex<BTreeMap<Vec<Label>, Observations>>,
}

/// What was observed with one set of labels.
#[derive(Debug, Default)]
struct Observations {
    recent: VecDeque<(Instant, f64)>,
    sum: f64,
    count: f64,
}

impl Summary {
    pub(super) fn new(name: &'static str, help: &'static str) -> Self {
        Self { name, help, by_labels: Mutex::default() }
    }

    /// Adds an observation.
    pub(super) fn observe(&self, labels: &[Label], seconds: f64) {
        let mut by_labels = self.by_labels.lock().unwrap_or_else(PoisonError::into_inner);
        let observed = by_labels.entry(labels.to_vec()).or_default();
        observed.forget(Instant::now());
        if observed.recent.len() >= MAX_KEPT {
            observed.recent.pop_front();
        }
        observed.recent.push_back((Instant::now(), seconds));
        observed.sum += seconds;
        observed.count += 1.0;
    }
}

impl Observations {
    fn forget(&mut self, now: Instant) {
        while self.recent.front().is_some_and(|(at, _)| now.duration_since(*at) > MAX_AGE) {
            self.recent.pop_front();
        }
    }

    /// The value of each quantile; none where nothing was observed.
    fn quantiles(&self) -> Vec<(&'static str, f64)> {
        let mut values: Vec<f64> = self.recent.iter().map(|(_, value)| *value).collect();
        values.sort_by(f64::total_cmp);
        let at = |(quantile, label): (f64, &'static str)| Some((label, *values.get(rank(quantile, values.len()))?));
        QUANTILES.into_iter().filter_map(at).collect()
    }
}

/// The index of a quantile among so many sorted values: of the least that so large a share does not exceed.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at most MAX_KEPT values, and a share of them"
)]
fn rank(quantile: f64, count: usize) -> usize {
    ((quantile * count as f64).ceil() as usize).saturating_sub(1)
}

impl Collector for Summary {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut by_labels = self.by_labels.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        by_labels.values_mut().for_each(|observed| observed.forget(now));
        let mut quantiles = encoder.encode_descriptor(self.name, self.help, None, MetricType::Gauge)?;
        for (labels, observed) in by_labels.iter() {
            for (quantile, value) in observed.quantiles() {
                let labels: Vec<Label> = labels.iter().cloned().chain([("quantile", quantile.into())]).collect();
                quantiles.encode_family(&labels)?.encode_gauge(&value)?;
            }
        }
        for part in ["sum", "count"] {
            let name = format!("{}_{part}", self.name);
            let mut metric = encoder.encode_descriptor(&name, self.help, None, MetricType::Gauge)?;
            for (labels, observed) in by_labels.iter() {
                let value = if part == "sum" { observed.sum } else { observed.count };
                metric.encode_family(labels)?.encode_gauge(&value)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_what_was_observed_and_counts_are_of_all() {
        let summary = Summary::new("a", "help");
        (1..=100).for_each(|seconds| summary.observe(&[], f64::from(seconds)));
        let mut by_labels = summary.by_labels.lock().unwrap();
        let observed = by_labels.get_mut(&Vec::new()).unwrap();
        let wanted = [("0", 1.0), ("0.5", 50.0), ("0.9", 90.0), ("0.99", 99.0), ("1", 100.0)];
        assert_eq!(observed.quantiles(), wanted);
        observed.forget(Instant::now() + MAX_AGE + Duration::from_secs(1));
        assert_eq!(observed.quantiles(), []);
        assert_eq!((observed.sum, observed.count), (5050.0, 100.0));
    }
}
