//! Metrics: how often is the webhook asked, how does it answer, and how fast?

use jiff::Timestamp;
use napkeeper_serve::metrics::LATENCY_SECONDS;
use napkeeper_serve::prometheus_client::collector::Collector;
use napkeeper_serve::prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use napkeeper_serve::prometheus_client::metrics::counter::Counter;
use napkeeper_serve::prometheus_client::metrics::family::Family;
use napkeeper_serve::prometheus_client::metrics::gauge::ConstGauge;
use napkeeper_serve::prometheus_client::metrics::histogram::Histogram;
use napkeeper_serve::prometheus_client::registry::{Registry, Unit};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// How old the picture of the cluster is that hints go by. Without one there is no sample.
#[derive(Debug, Clone, Default)]
pub struct SnapshotAge(Arc<AtomicI64>);

impl SnapshotAge {
    /// Exports it as `napkeeper_snapshot_age_seconds`.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let age = Self::default();
        registry.register_collector(Box::new(age.clone()));
        age
    }

    /// Notes when the picture was renewed.
    pub fn renewed(&self, at: Timestamp) {
        self.0.store(at.as_millisecond(), Ordering::Relaxed);
    }
}

impl Collector for SnapshotAge {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let renewed = self.0.load(Ordering::Relaxed);
        if renewed == 0 {
            return Ok(());
        }
        let age = Timestamp::now().as_millisecond().saturating_sub(renewed).max(0);
        let gauge = ConstGauge::new(std::time::Duration::from_millis(age.unsigned_abs()).as_secs_f64());
        let help = "Time since the cluster that hints go by last changed";
        let metric = encoder.encode_descriptor("snapshot_age", help, Some(&Unit::Seconds), gauge.metric_type())?;
        gauge.encode(metric)
    }
}

type Label = (&'static str, &'static str);

/// Counters and histograms of the webhook.
#[derive(Debug)]
pub(crate) struct Metrics {
    requests: Family<[Label; 2], Counter>,
    failures: Family<[Label; 2], Counter>,
    hints: Family<[Label; 1], Counter>,
    duration: Family<[Label; 1], Histogram, fn() -> Histogram>,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            failures: Family::default(),
            hints: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(LATENCY_SECONDS)),
        };
        let help = "Admission requests, by path and outcome: allowed, refused, patched, passed, failed_open, malformed";
        registry.register("admission_requests", help, metrics.requests.clone());
        let help = "Admission requests without a proper answer, by path and reason";
        registry.register("admission_failures", help, metrics.failures.clone());
        let help = "Placement hints, by kind: existing_node, node_in_flight, new_node, nowhere";
        registry.register("placement_hints", help, metrics.hints.clone());
        registry.register("admission_duration_seconds", "Time to answer, by path", metrics.duration.clone());
        metrics
    }

    pub(crate) fn answered(&self, path: &'static str, outcome: &'static str, took: Duration) {
        self.requests.get_or_create(&[("path", path), ("outcome", outcome)]).inc();
        self.duration.get_or_create(&[("path", path)]).observe(took.as_secs_f64());
    }

    pub(crate) fn hinted(&self, kind: &'static str) {
        self.hints.get_or_create(&[("kind", kind)]).inc();
    }

    pub(crate) fn failed(&self, path: &'static str, reason: &'static str) {
        self.failures.get_or_create(&[("path", path), ("reason", reason)]).inc();
    }
}
