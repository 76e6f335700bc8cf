//! The Deployment, StatefulSet and Job controllers, which create and delete pods.

use crate::cluster::pods::{PodOrigin, PodRuntime};
use crate::cluster::{Cluster, ids};
use crate::workload::{DiskRequest, RevisionPods, Rollout, RolloutCounts, Workload, WorkloadKind, surplus};
use jiff::Timestamp;
use napkeeper_core::model::cluster::pod::{Pod, PodOwner, PodShape};
use napkeeper_core::model::names::{ObjectKey, ObjectName};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All workloads, and what their pods are to do.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Workloads {
    pub(in crate::cluster) all: BTreeMap<ObjectKey, WorkloadState>,
    pub(in crate::cluster) runtimes: BTreeMap<ObjectKey, PodRuntime>,
    /// Pods that no controller recreates.
    pub(in crate::cluster) bare: BTreeSet<ObjectKey>,
}

/// A workload and its pods.
#[derive(Debug)]
pub(in crate::cluster) struct WorkloadState {
    pub(in crate::cluster) workload: Workload,
    pub(in crate::cluster) pods: BTreeSet<ObjectKey>,
    pub(in crate::cluster) succeeded: u32,
    /// The latest rolling update.
    rollout: Option<Rollout>,
    /// Pods of older templates, while a rolling update replaces them.
    outdated: BTreeSet<ObjectKey>,
}

impl Workloads {
    /// Adds a workload, or replaces it and keeps its pods.
    pub(in crate::cluster) fn put(&mut self, key: ObjectKey, workload: Workload) {
        if let Some(entry) = self.all.get_mut(&key) {
            entry.workload = workload;
            return;
        }
        let entry =
            WorkloadState { workload, pods: BTreeSet::new(), succeeded: 0, rollout: None, outdated: BTreeSet::new() };
        self.all.insert(key, entry);
    }

    fn owner(&mut self, pod: &ObjectKey) -> Option<&mut WorkloadState> {
        match &self.runtimes.get(pod)?.origin {
            PodOrigin::Workload(key) => self.all.get_mut(key),
            PodOrigin::Unmanaged | PodOrigin::DaemonSet(..) => None,
        }
    }

    pub(in crate::cluster) fn pod_succeeded(&mut self, pod: &ObjectKey) {
        if let Some(entry) = self.owner(pod) {
            entry.succeeded += 1;
        }
    }

    /// Removes a deleted pod, and returns its origin.
    pub(in crate::cluster) fn forget_pod(&mut self, pod: &ObjectKey) -> Option<PodOrigin> {
        if let Some(entry) = self.owner(pod) {
            entry.pods.remove(pod);
            entry.outdated.remove(pod);
        }
        self.bare.remove(pod);
        self.runtimes.remove(pod).map(|runtimes| runtimes.origin)
    }
}

impl Cluster {
    /// Runs the controllers of all changed workloads.
    pub(in crate::cluster) fn run_workloads(&mut self) {
        for key in std::mem::take(&mut self.dirty.workloads) {
            self.run_workload(&key);
            if let Some(entry) = self.workloads.all.get(&key) {
                let shape = Arc::clone(&entry.workload.template.shape);
                self.budgets_changed(&shape);
            }
        }
    }

    fn run_workload(&mut self, key: &ObjectKey) {
        let Some(entry) = self.workloads.all.get(key) else {
            return;
        };
        let workload = entry.workload.clone();
        let wanted = usize::try_from(workload.wanted(entry.succeeded)).unwrap_or(usize::MAX);
        if let WorkloadKind::StatefulSet { disk, .. } = workload.kind {
            return self.run_stateful_set(key, &workload, wanted, disk);
        }
        if !entry.outdated.is_empty() {
            self.continue_rollout(key, &workload, wanted);
            return self.workload_settled(key);
        }
        let active = self.active_pods(key);
        for pod in surplus(active.clone(), active.len().saturating_sub(wanted)) {
            self.end_pod(&pod.key);
        }
        for _ in active.len()..wanted {
            let name = ObjectKey { namespace: key.namespace.clone(), name: self.ids.name(&key.name) };
            self.make_pod(key, &workload, name, Vec::new());
        }
        self.workload_settled(key);
    }

    /// The template of a Deployment changes: new pods replace the old ones step by step. Nothing happens when there is no
    /// such Deployment.
    pub fn roll_out(&mut self, key: &ObjectKey, rollout: Rollout, now: Timestamp) {
        self.advance_clock(now);
        let Some(entry) = self.workloads.all.get_mut(key) else { return };
        if !matches!(entry.workload.kind, WorkloadKind::Deployment { .. }) {
            return;
        }
        if let Some(requests) = &rollout.requests {
            let template = &mut entry.workload.template;
            template.shape = Arc::new(PodShape { requests: requests.clone(), ..PodShape::clone(&template.shape) });
        }
        entry.outdated.clone_from(&entry.pods);
        entry.rollout = Some(rollout);
        self.dirty.workloads.insert(key.clone());
    }

    /// True while a rolling update of the owner of a pod is under way: how it goes on depends on what is ready.
    pub(in crate::cluster) fn is_rolled_out(&self, workload: &ObjectKey) -> bool {
        self.workloads.all.get(workload).is_some_and(|entry| !entry.outdated.is_empty())
    }

    fn continue_rollout(&mut self, key: &ObjectKey, workload: &Workload, wanted: usize) {
        let active = self.active_pods(key);
        let Some(entry) = self.workloads.all.get(key) else { return };
        let Some(rollout) = entry.rollout.clone() else { return };
        let (old, new): (Vec<_>, Vec<_>) = active.into_iter().partition(|pod| entry.outdated.contains(&pod.key));
        let counted =
            |pods: &[Arc<Pod>]| RevisionPods { all: pods.len(), ready: pods.iter().filter(|pod| pod.ready).count() };
        let step = rollout.step(RolloutCounts { wanted, new: counted(&new), old: counted(&old) });
        let (ready, unready): (Vec<_>, Vec<_>) = old.into_iter().partition(|pod| pod.ready);
        let too_many = new.len().saturating_sub(wanted);
        let ending = surplus(unready, step.delete_unready).into_iter();
        let ending = ending.chain(surplus(ready, step.delete_ready)).chain(surplus(new, too_many));
        for pod in ending.collect::<Vec<_>>() {
            self.end_pod(&pod.key);
        }
        for _ in 0..step.create {
            let name = ObjectKey { namespace: key.namespace.clone(), name: self.ids.name(&key.name) };
            self.make_pod(key, workload, name, Vec::new());
        }
    }

    /// Every pod that is wanted exists: an evicted pod counts as wanted only while it still has its replica.
    fn workload_settled(&mut self, key: &ObjectKey) {
        let store = &self.store;
        let is_active =
            |pod: &ObjectKey| store.pods().get(pod).is_some_and(|pod| pod.deleting_at.is_none() && !pod.is_terminal());
        self.measures.workload_settled(key, is_active, self.now);
    }

    /// Pods of a workload that have not ended and are not being deleted.
    pub(in crate::cluster) fn active_pods(&self, workload: &ObjectKey) -> Vec<Arc<Pod>> {
        let Some(entry) = self.workloads.all.get(workload) else {
            return Vec::new();
        };
        entry
            .pods
            .iter()
            .filter_map(|key| self.store.pods().get(key))
            .filter(|pod| pod.deleting_at.is_none() && !pod.is_terminal())
            .map(Arc::clone)
            .collect()
    }

    /// A StatefulSet recreates a pod only when the old one of that name is deleted. (All at once: `Parallel`.)
    fn run_stateful_set(&mut self, key: &ObjectKey, workload: &Workload, wanted: usize, disk: Option<DiskRequest>) {
        let named =
            |suffix: String| ObjectKey { namespace: key.namespace.clone(), name: ids::joined(&key.name, &suffix) };
        let names: BTreeSet<ObjectKey> = (0..wanted).map(|i| named(i.to_string())).collect();
        for pod in self.active_pods(key) {
            if !names.contains(&pod.key) {
                self.end_pod(&pod.key);
            }
        }
        for pod in names.iter().cloned() {
            if self.store.pods().get(&pod).is_some() {
                continue;
            }
            let mut volumes = Vec::new();
            if let Some(disk) = disk {
                let claim = ObjectKey { namespace: pod.namespace.clone(), name: ids::joined(&pod.name, "data") };
                volumes.push(claim.name.clone());
                self.put_volume_claim(claim, disk);
            }
            self.make_pod(key, workload, pod, volumes);
        }
        self.measures.workload_settled(key, |pod| names.contains(pod), self.now);
    }

    fn make_pod(&mut self, owner: &ObjectKey, workload: &Workload, key: ObjectKey, volumes: Vec<ObjectName>) {
        let pod = self.new_pod(key.clone(), &workload.template, PodOwner::Controller, volumes);
        if let Some(entry) = self.workloads.all.get_mut(owner) {
            entry.pods.insert(key.clone());
        }
        let runtime = PodRuntime::of(PodOrigin::Workload(owner.clone()), &workload.template);
        let runtime = PodRuntime { run_for: workload.run_for(), ..runtime };
        self.workloads.runtimes.insert(key, runtime);
        self.put_pod(pod);
    }
}
