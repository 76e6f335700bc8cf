//! Reports what the pause switch holds back.

use jiff::Timestamp;
use napkeeper_core::model::names::NodePoolName;
use napkeeper_core::model::settings::{DisruptionScope, Pause, PauseKey, PauseSwitch, Paused};
use napkeeper_core::snapshot::Snapshot;
use napkeeper_serve::prometheus_client::metrics::family::Family;
use napkeeper_serve::prometheus_client::metrics::gauge::Gauge;
use napkeeper_serve::prometheus_client::registry::Registry;
use std::collections::BTreeSet;

/// The labels of a key; what it does not name is empty, which to Prometheus is a label that is not there.
type PauseLabels = [(&'static str, String); 3];

/// Reports what is paused, when that changes or ends.
#[derive(Debug)]
pub(super) struct PauseReporter {
    paused: Family<PauseLabels, Gauge>,
    /// What was paused when it was last reported; `None` before the first time.
    last: Option<Pause>,
    /// The pauses that were there when it was last reported, over or not.
    seen: BTreeSet<Paused>,
    /// The NodePools in keys that do not exist.
    unknown: BTreeSet<NodePoolName>,
}

impl PauseReporter {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let reporter = Self { paused: Family::default(), last: None, seen: BTreeSet::new(), unknown: BTreeSet::new() };
        let help =
            "1 while launches, disruptions or deletions are paused, by switch; of disruptions, by NodePool and reason";
        registry.register("paused", help, reporter.paused.clone());
        reporter
    }

    /// Another replica reports from now on.
    pub(super) fn clear(&mut self) {
        self.paused.clear();
        self.last = None;
        self.seen.clear();
        self.unknown.clear();
    }

    /// Reports what the pause switch holds back, when that changes, and NodePools in it that do not exist.
    pub(super) fn report(&mut self, snapshot: &Snapshot, now: Timestamp) {
        let pause = snapshot.pause.at(now);
        if self.last.as_ref() != Some(&pause) {
            if self.last.is_some() || pause != Pause::default() {
                tracing::warn!(paused = %pause, "what is paused has changed");
            }
            self.paused.clear();
            PauseSwitch::ALL.into_iter().for_each(|switch| self.set(&PauseKey::Switch(switch), 0));
            pause.active(now).for_each(|paused| self.set(&paused.key, 1));
        }
        self.report_unknown(&pause, snapshot, now);
        self.report_ended(&snapshot.pause, now);
        self.last = Some(pause);
    }

    fn set(&self, key: &PauseKey, value: i64) {
        let (switch, scope) = match key {
            PauseKey::Switch(switch) => (*switch, DisruptionScope::default()),
            PauseKey::Disruptions(scope) => (PauseSwitch::Disrupt, scope.clone()),
        };
        let pool = scope.pool.map(|pool| pool.to_string()).unwrap_or_default();
        let reason = scope.reason.map(|reason| reason.as_str().to_owned()).unwrap_or_default();
        let labels = [("switch", switch.name().to_owned()), ("nodepool", pool), ("reason", reason)];
        self.paused.get_or_create(&labels).set(value);
    }

    /// Logs once each end that was over when it was first seen, as by a wrong year or a local time: it pauses nothing.
    fn report_ended(&mut self, pause: &Pause, now: Timestamp) {
        let known = |paused: &Paused| self.seen.contains(paused);
        for paused in pause.all().filter(|paused| !paused.end.is_after(now) && !known(paused)) {
            tracing::warn!(%paused, "a pause pauses nothing, since its end is over");
        }
        self.seen = pause.all().collect();
    }

    /// Logs each NodePool that does not exist once, while a key names it.
    fn report_unknown(&mut self, pause: &Pause, snapshot: &Snapshot, now: Timestamp) {
        let pools = pause.active(now).filter_map(|paused| match paused.key {
            PauseKey::Disruptions(scope) => scope.pool,
            PauseKey::Switch(_) => None,
        });
        let is_unknown =
            |pool: &NodePoolName| snapshot.pools().get(pool).is_none() && !snapshot.is_unreadable_pool(pool);
        let unknown: BTreeSet<NodePoolName> = pools.filter(is_unknown).collect();
        for pool in unknown.difference(&self.unknown) {
            tracing::warn!(%pool, "a key of the pause switch names a NodePool that does not exist");
        }
        self.unknown = unknown;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use napkeeper_serve::prometheus_client::encoding::text::encode;

    /// The samples of the metric, without their name.
    fn samples(registry: &Registry) -> Vec<String> {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        let mut samples: Vec<String> =
            text.lines().filter_map(|line| Some(line.strip_prefix("paused{")?.to_owned())).collect();
        samples.sort();
        samples
    }

    #[test]
    fn what_is_paused_is_told_with_its_scope_and_ends_by_itself() {
        let mut registry = Registry::default();
        let mut reporter = PauseReporter::new(&mut registry);
        let (pause, _) = Pause::read([
            ("disrupt.reason.Drifted.nodepool.general", Some("until 2026-08-03T12:00:00Z")),
            ("launch", Some("true")),
        ]);
        let mut snapshot = Snapshot::default();
        snapshot.pause = pause;
        let none = |switch| format!("switch=\"{switch}\",nodepool=\"\",reason=\"\"}}");
        let switches =
            || vec![format!("{} 0", none("delete")), format!("{} 0", none("disrupt")), format!("{} 1", none("launch"))];
        reporter.report(&snapshot, "2026-08-03T11:59:59Z".parse().unwrap());
        let mut with_scope = switches();
        with_scope.push("switch=\"disrupt\",nodepool=\"general\",reason=\"Drifted\"} 1".to_owned());
        with_scope.sort();
        assert_eq!(samples(&registry), with_scope);
        assert_eq!(reporter.unknown.len(), 1, "there is no such NodePool");
        reporter.report(&snapshot, "2026-08-03T12:00:00Z".parse().unwrap());
        assert_eq!(samples(&registry), switches());
        assert!(reporter.unknown.is_empty());
        reporter.clear();
        assert_eq!(samples(&registry), Vec::<String>::new());
    }
}
