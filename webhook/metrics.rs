//! Metrics of the webhook: requests, failures, denials, hints, durations.

use napkeeper_serve::metrics::LATENCY_SECONDS;
use napkeeper_serve::prometheus_client::metrics::counter::Counter;
use napkeeper_serve::prometheus_client::metrics::family::Family;
use napkeeper_serve::prometheus_client::metrics::histogram::Histogram;
use napkeeper_serve::prometheus_client::registry::Registry;
use std::collections::BTreeSet;
use std::time::Duration;

type Label = (&'static str, &'static str);

/// Counters and histograms of the webhook.
#[derive(Debug)]
pub(crate) struct Metrics {
    requests: Family<[Label; 2], Counter>,
    failures: Family<[Label; 2], Counter>,
    denials: Family<[Label; 1], Counter>,
    hints: Family<[Label; 1], Counter>,
    duration: Family<[Label; 2], Histogram, fn() -> Histogram>,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            failures: Family::default(),
            hints: Family::default(),
            denials: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(LATENCY_SECONDS)),
        };
        let help = "Admission requests, by path and outcome: allowed, refused, patched, passed, failed_open, failed_closed, malformed";
        registry.register("admission_requests", help, metrics.requests.clone());
        let help = "Admission requests without a regular response, by path and reason";
        registry.register("admission_failures", help, metrics.failures.clone());
        let help = "Rules that denied writes; a denial by two rules counts for both";
        registry.register("admission_denials", help, metrics.denials.clone());
        let help = "Placement hints, by kind: existing_node, node_in_flight, new_node, nowhere";
        registry.register("placement_hints", help, metrics.hints.clone());
        let help = "Time to answer, by path and outcome";
        registry.register("admission_duration_seconds", help, metrics.duration.clone());
        metrics
    }

    pub(crate) fn answered(&self, path: &'static str, outcome: &'static str, took: Duration) {
        let labels = [("path", path), ("outcome", outcome)];
        self.requests.get_or_create(&labels).inc();
        self.duration.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// The rules bound the cardinality of the label.
    pub(crate) fn denied(&self, rules: &BTreeSet<&'static str>) {
        for rule in rules {
            self.denials.get_or_create(&[("rule", *rule)]).inc();
        }
    }

    pub(crate) fn hinted(&self, kind: &'static str) {
        self.hints.get_or_create(&[("kind", kind)]).inc();
    }

    pub(crate) fn failed(&self, path: &'static str, reason: &'static str) {
        self.failures.get_or_create(&[("path", path), ("reason", reason)]).inc();
    }
}
