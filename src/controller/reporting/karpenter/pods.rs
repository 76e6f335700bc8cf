//! Metrics of pods: their state, and how long they take to be bound and to start.

use super::cluster_state::Gauge;
use super::summary::Summary;
use super::{Histograms, Label};
use jiff::Timestamp;
use napkeeper_core::model::cluster::pod::{Pod, PodPhase};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::Uid;
use napkeeper_core::snapshot::Snapshot;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Labels of a pod's node that are labels of its metric, and their names there.
const HOST_LABELS: [(&str, &str); 5] = [
    (labels::NODEPOOL, "nodepool"),
    (labels::ZONE, "zone"),
    (labels::ARCH, "arch"),
    (labels::CAPACITY_TYPE, "capacity_type"),
    (labels::INSTANCE_TYPE, "instance_type"),
];

/// Gauges of pods.
pub(super) fn gauges(snapshot: &Snapshot, now: Timestamp) -> Vec<Gauge> {
    let pods = || snapshot.pods().values();
    let waited = |pod: &Arc<Pod>| (name_labels(pod), now.duration_since(pod.created_at).as_secs_f64());
    let is_pending = |pod: &&Arc<Pod>| pod.phase == PodPhase::Pending;
    let is_unbound = |pod: &&Arc<Pod>| is_pending(pod) && pod.node.is_none();
    // One for all pods, of which there are many.
    let (yes, no) = (Arc::from("true"), Arc::from("false"));
    let boolean = |value: bool| Arc::clone(if value { &yes } else { &no });
    let states = pods().map(|pod| (state(snapshot, pod, boolean), 1.0)).collect();
    vec![
        ("pods_state", "1 for each pod, with its state", states),
        (
            "pods_unbound_time_seconds",
            "For how long a pod has existed that is on no node",
            pods().filter(is_unbound).map(waited).collect(),
        ),
        (
            "pods_unstarted_time_seconds",
            "For how long a pod has existed that has not started",
            pods().filter(is_pending).map(waited).collect(),
        ),
    ]
}

fn name_labels(pod: &Pod) -> Vec<Label> {
    vec![("name", pod.key.name.text()), ("namespace", pod.key.namespace.text())]
}

fn state(snapshot: &Snapshot, pod: &Pod, boolean: impl Fn(bool) -> Arc<str>) -> Vec<Label> {
    let node = pod.node.as_ref().and_then(|name| snapshot.nodes().get(name));
    let is_managed = node.is_some_and(|node| node.label(labels::NODEPOOL).is_some());
    let host = HOST_LABELS.map(|(key, name)| {
        let value = node.and_then(|node| node.labels.get(key).cloned());
        (name, value.unwrap_or_default())
    });
    let own = [
        ("owner", Arc::clone(&pod.details.owner)),
        ("node", pod.node.as_ref().map(|node| node.text()).unwrap_or_default()),
        ("scheduled", boolean(pod.node.is_some())),
        ("phase", Arc::from(pod.phase.as_str())),
        ("ready", boolean(pod.ready)),
        ("managed", boolean(is_managed)),
    ];
    name_labels(pod).into_iter().chain(own).chain(host).collect()
}

/// Observes how long pods take until they are bound, and until they are ready.
#[derive(Debug)]
pub(super) struct PodDurations {
    pub(super) startup: Arc<Summary>,
    pub(super) bound: Histograms,
    /// Pods that had never been ready when they were last looked at.
    unstarted: BTreeSet<Uid>,
}

impl PodDurations {
    pub(super) fn new(bound: Histograms) -> Self {
        let help = "The time from a pod's creation until it is ready";
        let startup = Arc::new(Summary::new("pods_startup_duration_seconds", help));
        Self { startup, bound, unstarted: BTreeSet::new() }
    }

    /// What this replica knew as a leader is not so any more.
    pub(super) fn clear(&mut self) {
        self.unstarted.clear();
    }

    /// Observes the pods that have become bound or ready since the last look, which was at `before`, those that have come since
    /// among them. At the first look it is not known of those that run whether they have been ready.
    pub(super) fn observe(&mut self, snapshot: &Snapshot, before: Option<&Snapshot>) {
        let unstarted = std::mem::take(&mut self.unstarted);
        for pod in snapshot.pods().values().filter(|pod| !pod.is_terminal()) {
            let known = before.and_then(|before| before.pods().get(&pod.key)).filter(|known| known.uid == pod.uid);
            let is_new = before.is_some() && known.is_none();
            let was_unstarted = is_new || unstarted.contains(&pod.uid);
            let was_unbound = is_new || known.is_some_and(|known| known.node.is_none());
            let after = |at: Timestamp| at.duration_since(pod.created_at).as_secs_f64().max(0.0);
            match pod.details.ready_at {
                Some(at) if was_unstarted => self.startup.observe(&[], after(at)),
                None if was_unstarted || pod.phase == PodPhase::Pending => drop(self.unstarted.insert(pod.uid.clone())),
                Some(_) | None => {}
            }
            if let Some(at) = pod.details.scheduled_at.filter(|_| was_unbound) {
                self.bound.get_or_create(&Vec::new()).observe(after(at));
            }
        }
    }
}
