//! The simulated Kubernetes: API server, kube-scheduler, kubelets and controllers.
//!
//! Everything happens on a virtual clock: [`Cluster::next_event`] returns the time of the next event, and
//! [`Cluster::advance`] runs events. Edits and effects take place at once; controllers and kube-scheduler react to
//! them in the next `advance`, at the same instant. The same seed and the same calls give the same cluster.

mod api_server;
mod controllers;
mod events;
mod ids;
mod kubelet;
mod new_node;
mod node_conditions;
mod pods;
mod scheduler;
mod timings;

#[cfg(test)]
mod tests;

use crate::measures::PodMeasures;
use crate::workload::PodBudget;
use api_server::ApiServerFaults;
pub use api_server::{ClusterListing, FinalizedObject, Propagation};
pub use events::ClusterEvent;
use ids::IdGenerator;
use jiff::Timestamp;
pub use kubelet::BrokenKubelets;
use napkeeper_core::model::cluster::node_record::{NodeRecordShard, NodeRemoval};
use napkeeper_core::model::names::{NodeName, ObjectKey, ObjectName};
use napkeeper_core::plan::SweepReport;
use napkeeper_core::snapshot::Snapshot;
use napkeeper_core::snapshot::delta::Delta;
pub use new_node::NewNode;
pub(crate) use pods::AGENT_POOL;
use pods::PodTimer;
use scheduler::Scheduler;
pub(crate) use scheduler::{NodeIndex, SchedulingSimulation};
use std::collections::{BTreeMap, BTreeSet};
pub use timings::Timings;

/// A simulated Kubernetes cluster.
#[derive(Debug)]
pub struct Cluster {
    seed: u64,
    timings: Timings,
    now: Timestamp,
    ids: IdGenerator,
    /// The part of the API server's state that the controller sees.
    store: Snapshot,
    /// Changes since the last watch.
    deltas: Vec<Delta>,
    /// Events for the world.
    events: Vec<(Timestamp, ClusterEvent)>,
    timers: BTreeMap<(Timestamp, u64), Timer>,
    timers_set: u64,
    scheduler: Scheduler,
    workloads: controllers::Workloads,
    daemon_sets: controllers::DaemonSets,
    kubelets: kubelet::Kubelets,
    volumes: controllers::Volumes,
    budgets: BTreeMap<ObjectKey, PodBudget>,
    reports: BTreeMap<ObjectName, SweepReport>,
    /// The entries of NodeRecords.
    removals: BTreeMap<NodeRecordShard, Vec<NodeRemoval>>,
    faults: ApiServerFaults,
    /// What finalizers of other controllers hold.
    other_finalizers: BTreeSet<FinalizedObject>,
    /// How pods are disturbed.
    measures: PodMeasures,
    dirty: Dirty,
}

/// Changes that controllers have not processed yet.
#[derive(Debug, Default)]
struct Dirty {
    workloads: BTreeSet<ObjectKey>,
    nodes: BTreeSet<NodeName>,
    volumes: bool,
    /// PodDisruptionBudgets whose pods have changed.
    budgets: BTreeSet<ObjectKey>,
}

/// Something that is going to happen.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Timer {
    Pod(PodTimer, ObjectKey, napkeeper_core::model::names::Uid),
    Node(kubelet::NodeTimer),
    /// A disk leaves its node: by the name of the VolumeAttachment.
    Detach(ObjectName),
}

impl Cluster {
    /// An empty cluster.
    #[must_use]
    pub fn new(seed: u64, timings: Timings) -> Self {
        Self {
            seed,
            timings,
            now: Timestamp::UNIX_EPOCH,
            ids: IdGenerator::new(seed),
            store: Snapshot::default(),
            deltas: Vec::new(),
            events: Vec::new(),
            timers: BTreeMap::new(),
            timers_set: 0,
            scheduler: Scheduler::default(),
            workloads: controllers::Workloads::default(),
            daemon_sets: controllers::DaemonSets::default(),
            kubelets: kubelet::Kubelets::default(),
            volumes: controllers::Volumes::default(),
            budgets: BTreeMap::new(),
            reports: BTreeMap::new(),
            removals: BTreeMap::new(),
            faults: ApiServerFaults::default(),
            other_finalizers: BTreeSet::new(),
            measures: PodMeasures::default(),
            dirty: Dirty::default(),
        }
    }

    /// All changes since the last call, oldest first.
    pub fn watch(&mut self) -> Vec<Delta> {
        std::mem::take(&mut self.deltas)
    }

    /// The whole state: what a controller lists when it starts. It includes changes since the last watch; applying them
    /// again is harmless, as long as all of them are applied. An OrphanSweep that it cannot read is only named.
    #[must_use]
    pub fn relist(&self) -> Snapshot {
        let mut listed = self.store.clone();
        listed.forget_deleted_volumes();
        let names: Vec<_> = self.store.sweeps().iter().map(|(name, _)| name.clone()).collect();
        for name in names.iter().filter(|name| self.store.unreadable_sweeps.contains(name.as_str())) {
            listed.remove_sweep(name);
        }
        listed
    }

    /// The whole state.
    #[must_use]
    pub fn state(&self) -> &Snapshot {
        &self.store
    }

    /// The removals of nodes that NodeRecords hold.
    pub fn removals(&self) -> impl Iterator<Item = &NodeRemoval> {
        self.removals.values().flatten()
    }

    /// How pods have been disturbed so far.
    #[must_use]
    pub fn measures(&self) -> &PodMeasures {
        &self.measures
    }

    /// The policy disrupts a node for this reason: evictions from it count under the reason from now on.
    pub fn set_disruption_reason(&mut self, node: &NodeName, reason: &str) {
        self.measures.set_reason(node, reason);
    }

    /// Events since the last call, oldest first.
    pub fn take_events(&mut self) -> Vec<(Timestamp, ClusterEvent)> {
        std::mem::take(&mut self.events)
    }

    /// The time of the next event; `None` if nothing is scheduled.
    #[must_use]
    pub fn next_event(&self) -> Option<Timestamp> {
        if self.is_settled() { self.timers.keys().next().map(|(at, _)| *at) } else { Some(self.now) }
    }

    /// Runs all events up to `now`, inclusive.
    pub fn advance(&mut self, now: Timestamp) {
        self.settle();
        while let Some(at) = self.timers.keys().next().map(|(at, _)| *at)
            && at <= now
        {
            self.advance_clock(at);
            while let Some(entry) = self.timers.first_entry()
                && entry.key().0 <= at
            {
                match entry.remove() {
                    Timer::Pod(timer, key, uid) => self.pod_timer(timer, &key, &uid),
                    Timer::Node(timer) => self.node_timer(timer),
                    Timer::Detach(attachment) => self.detached(&attachment),
                }
            }
            self.settle();
        }
        self.advance_clock(now);
    }

    /// The report that was last written to a sweep's status.
    #[must_use]
    pub fn report(&self, sweep: &ObjectName) -> Option<&SweepReport> {
        self.reports.get(sweep)
    }

    /// Time never goes back.
    fn advance_clock(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
    }

    fn set_timer(&mut self, after: jiff::SignedDuration, timer: Timer) {
        self.timers_set += 1;
        let at = self.now.saturating_add(after).unwrap_or(Timestamp::MAX);
        self.timers.insert((at, self.timers_set), timer);
    }

    fn emit(&mut self, event: ClusterEvent) {
        self.events.push((self.now, event));
    }

    fn is_settled(&self) -> bool {
        self.dirty.workloads.is_empty()
            && self.dirty.nodes.is_empty()
            && !self.dirty.volumes
            && self.dirty.budgets.is_empty()
            && !self.scheduler.has_work()
    }

    /// Runs controllers and kube-scheduler until they are idle.
    fn settle(&mut self) {
        while !self.is_settled() {
            self.run_workloads();
            self.run_daemon_sets();
            self.run_volumes();
            self.schedule();
            self.run_disruption_budgets();
        }
    }
}
