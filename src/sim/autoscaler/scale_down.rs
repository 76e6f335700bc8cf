//! Scale-down: finds unneeded nodes, drains and removes them.

use super::Autoscaler;
use super::vms::VmPhase;
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::pod::{DoNotDisrupt, Pod, PodOwner};
use napkeeper_core::model::names::NodeName;
use napkeeper_core::plan::ClusterWrite;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A node is a candidate below this share (`--scale-down-utilization-threshold`), in percent.
const THRESHOLD_PERCENT: i64 = 50;
/// A node is removed when it has been unneeded for this long (`--scale-down-unneeded-time`).
const UNNEEDED_TIME: SignedDuration = SignedDuration::from_mins(10);
/// Nothing is removed for this long after a scale-up (`--scale-down-delay-after-add`).
const DELAY_AFTER_ADD: SignedDuration = SignedDuration::from_mins(10);
/// At most this many nodes are removed at once (`--max-scale-down-parallelism`), one of them with pods
/// (`--max-drain-parallelism`).
const MOST_AT_ONCE: usize = 10;
/// A drain is given up when pods still refuse to be evicted after this time (`--max-pod-eviction-time`).
const EVICTION_TIME: SignedDuration = SignedDuration::from_mins(2);
/// Pods that are being deleted get at most this time (`--max-graceful-termination-sec`).
const GRACEFUL_TERMINATION: SignedDuration = SignedDuration::from_mins(10);

impl Autoscaler {
    /// Continues drains, finds unneeded nodes, and removes those whose time is up.
    pub(super) fn scale_down(&mut self) {
        self.continue_draining();
        self.find_unneeded();
        if let Some(end) = self.scaled_up_at.map(|at| at + DELAY_AFTER_ADD).filter(|end| self.now < *end) {
            if !self.unneeded.is_empty() {
                self.wake_at(end);
            }
            return;
        }
        let (ripe, green): (Vec<_>, Vec<_>) =
            self.unneeded.clone().into_iter().partition(|(_, since)| *since + UNNEEDED_TIME <= self.now);
        if let Some(at) = green.into_iter().map(|(_, since)| since + UNNEEDED_TIME).min() {
            self.wake_at(at);
        }
        self.remove(ripe.into_iter().map(|(name, _)| name).collect());
    }

    /// Empty nodes first, as many as may go at once; then one with pods.
    fn remove(&mut self, ripe: Vec<NodeName>) {
        let going = |phase: &VmPhase| matches!(phase, VmPhase::Draining(_) | VmPhase::Deleting);
        let mut room = MOST_AT_ONCE.saturating_sub(self.vms.values().filter(|m| going(&m.phase)).count());
        let draining = self.vms.values().any(|m| matches!(m.phase, VmPhase::Draining(_)));
        let (empty, busy): (Vec<_>, Vec<_>) = ripe.into_iter().partition(|name| self.pods_on(name).is_empty());
        for name in empty {
            if room == 0 {
                return self.wake_at(self.now);
            }
            room -= 1;
            self.cordon(&name, true);
            self.unneeded.remove(&name);
            self.delete(&name);
        }
        if let Some(name) = busy.first() {
            self.wake_at(self.now);
            if room > 0 && !draining {
                self.cordon(name, true);
                self.unneeded.remove(name);
                self.set_phase(name, VmPhase::Draining(self.now));
                self.cluster.set_disruption_reason(name, "underutilized");
                self.continue_draining();
            }
        }
    }

    /// Evicts the remaining pods of draining nodes, and deletes or keeps the nodes at the end.
    fn continue_draining(&mut self) {
        let draining: Vec<(NodeName, Timestamp)> = self
            .vms
            .iter()
            .filter_map(
                |(name, m)| if let VmPhase::Draining(since) = m.phase { Some((name.clone(), since)) } else { None },
            )
            .collect();
        for (name, since) in draining {
            let lasted = self.now.duration_since(since);
            let mut refused = false;
            for pod in self.pods_on(&name).iter().filter(|p| p.deleting_at.is_none()) {
                let evict = ClusterWrite::Evict(pod.key.clone(), pod.uid.clone());
                refused |= self.cluster.write(&evict, self.now).is_err();
            }
            if refused && lasted >= EVICTION_TIME {
                self.cordon(&name, false);
                self.set_phase(&name, VmPhase::Serving);
            } else if lasted >= GRACEFUL_TERMINATION || self.pods_on(&name).is_empty() {
                self.delete(&name);
            }
            self.wake_at(self.now);
        }
    }

    fn cordon(&mut self, name: &NodeName, on: bool) {
        self.cluster.edit_node(name, |node| node.cordoned = on, self.now);
    }

    fn set_phase(&mut self, name: &NodeName, phase: VmPhase) {
        if let Some(vm) = self.vms.get_mut(name) {
            vm.phase = phase;
        }
    }

    /// Notes the nodes that are underutilized and whose pods fit elsewhere, one after the other, so that capacity is
    /// not counted twice. Empty nodes come first, then those of the last time.
    fn find_unneeded(&mut self) {
        let mut candidates: Vec<(bool, bool, NodeName, Vec<Arc<Pod>>)> = Vec::new();
        for (name, vm) in self.vms.iter().filter(|(_, m)| m.phase == VmPhase::Serving) {
            if self.cluster.state().nodes().get(name).is_some_and(|node| self.is_little_used(node)) {
                let pods = self.pods_on(&vm.node.name);
                candidates.push((!pods.is_empty(), !self.unneeded.contains_key(name), name.clone(), pods));
            }
        }
        candidates.sort_by(|a, b| (a.0, a.1, &a.2).cmp(&(b.0, b.1, &b.2)));
        let mut found = BTreeMap::new();
        let mut ends = Vec::new();
        let mut simulation = self.cluster.simulation();
        for (.., name, pods) in candidates {
            ends.extend(pods.iter().filter_map(|pod| refusal_ends(pod, self.now)));
            if pods.iter().any(|pod| pod.owner == PodOwner::Nobody || pod.refuses_disruption(self.now)) {
                continue;
            }
            let mut trial = simulation.clone();
            trial.take_node(&name);
            if pods.iter().filter(|p| p.is_reschedulable()).all(|pod| trial.place(pod, None).is_some()) {
                simulation = trial;
                let since = self.unneeded.get(&name).copied().unwrap_or(self.now);
                found.insert(name, since);
            }
        }
        self.unneeded = found;
        ends.into_iter().for_each(|at| self.wake_at(at));
    }

    /// The larger of the requested shares of CPU and memory, DaemonSets included, is below the threshold; on nodes with
    /// GPUs it is the share of these alone that counts.
    fn is_little_used(&self, node: &Node) -> bool {
        let Some(usage) = self.cluster.state().node_usage(&node.name) else { return true };
        let (has, used) = (&node.allocatable, &usage.pod_requests);
        let is_little = |used: i64, has: i64| i128::from(used) * 100 < i128::from(has) * i128::from(THRESHOLD_PERCENT);
        let gpus = has.extended.iter().find(|(name, _)| name.ends_with(".com/gpu"));
        match gpus {
            Some((name, gpus)) => is_little(used.extended(name), *gpus),
            None => is_little(used.cpu_millis, has.cpu_millis) && is_little(used.memory, has.memory),
        }
    }
}

/// When a pod that refuses to be disrupted for a while stops to.
fn refusal_ends(pod: &Pod, now: Timestamp) -> Option<Timestamp> {
    match (pod.do_not_disrupt, pod.started_at) {
        (Some(DoNotDisrupt::For(time)), Some(start)) => Some(start + time).filter(|at| now < *at),
        _ => None,
    }
}
