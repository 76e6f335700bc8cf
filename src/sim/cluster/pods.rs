//! The life of a pod, from creation to deletion.

use super::{Cluster, ClusterEvent, Delta, Timer, scheduler};
use crate::measures::{PodGroup, ReplicaName};
use crate::workload::{PodTemplate, WorkloadKind};
use jiff::SignedDuration;
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::pod::{Pod, PodOwner, PodPhase};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{NodeName, ObjectKey, ObjectName, Uid};
use std::sync::Arc;

/// Label of AKS that names the node pool of a node.
pub(crate) const AGENT_POOL: &str = "kubernetes.azure.com/agentpool";

/// Events in the life of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PodTimer {
    /// Its containers start.
    Start,
    /// Its readiness probes succeed.
    Ready,
    /// Its work is done.
    Succeed,
    /// Its grace is over.
    End,
    /// It ended long ago.
    Forget,
}

/// The origin of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PodOrigin {
    /// No controller recreates it.
    Unmanaged,
    /// A workload.
    Workload(ObjectKey),
    /// A DaemonSet, on this node.
    DaemonSet(ObjectKey, NodeName),
}

/// How a pod runs and ends, which the controller does not see.
#[derive(Debug, Clone)]
pub(super) struct PodRuntime {
    pub(super) origin: PodOrigin,
    pub(super) grace: SignedDuration,
    pub(super) ready_after: SignedDuration,
    pub(super) run_for: Option<SignedDuration>,
}

impl PodRuntime {
    /// Of a pod that runs until it is deleted.
    pub(super) fn of(origin: PodOrigin, template: &PodTemplate) -> Self {
        Self { origin, grace: template.grace, ready_after: template.ready_after, run_for: None }
    }
}

impl Cluster {
    /// Adds or replaces a pod: the only way in which one changes.
    pub(super) fn put_pod(&mut self, pod: Pod) {
        let pod = Arc::new(pod);
        let old = self.store.pods().get(&pod.key).map(Arc::clone);
        // The scheduler first: for a new selector it counts existing pods.
        self.scheduler.pod_changed(old.as_deref(), Some(&pod), self.store.pods().values());
        self.store.put_pod(Arc::clone(&pod));
        self.measures.pod_changed(&pod, self.group_of(&pod), self.now);
        self.pod_seen(&pod, pod.deleting_at.is_some() || pod.is_terminal());
        self.budgets_changed(&pod.shape);
        self.deltas.push(Delta::Pod(pod));
    }

    /// Removes a pod: the only function that does.
    pub(super) fn take_pod(&mut self, key: &ObjectKey) {
        let Some(old) = self.store.pods().get(key).map(Arc::clone) else {
            return;
        };
        self.store.remove_pod(key);
        self.measures.pod_removed(&old, self.now);
        self.scheduler.pod_changed(Some(&old), None, self.store.pods().values());
        self.pod_seen(&old, true);
        self.budgets_changed(&old.shape);
        self.dirty.nodes.extend(old.node.clone());
        self.volumes.pods.remove(key);
        match self.workloads.forget_pod(key) {
            Some(PodOrigin::DaemonSet(set, node)) => self.daemon_sets.forget_pod(set, node),
            Some(PodOrigin::Workload(_) | PodOrigin::Unmanaged) | None => {}
        }
        self.deltas.push(Delta::PodGone(key.clone()));
    }

    /// What a pod is measured with.
    fn group_of(&self, pod: &Pod) -> PodGroup {
        let workload = match self.workloads.runtimes.get(&pod.key).map(|runtime| &runtime.origin) {
            Some(PodOrigin::Workload(key)) => self.workloads.all.get(key).map(|entry| {
                let named = matches!(entry.workload.kind, WorkloadKind::StatefulSet { .. });
                (key.clone(), if named { ReplicaName::Same } else { ReplicaName::New })
            }),
            Some(PodOrigin::Unmanaged | PodOrigin::DaemonSet(..)) | None => None,
        };
        let node = pod.node.as_ref().and_then(|name| self.store.nodes().get(name));
        PodGroup { workload, pool: node.and_then(|node| node_group(node)) }
    }

    /// Notifies the controllers of a pod; its owner only if the pod is terminating or deleted.
    fn pod_seen(&mut self, pod: &Pod, leaving: bool) {
        let runtime = self.workloads.runtimes.get(&pod.key).filter(|_| leaving);
        match runtime.map(|o| &o.origin) {
            Some(PodOrigin::Workload(workload)) => {
                self.dirty.workloads.insert(workload.clone());
            }
            Some(PodOrigin::DaemonSet(_, node)) => {
                self.dirty.nodes.insert(node.clone());
            }
            Some(PodOrigin::Unmanaged) | None => {}
        }
        if !pod.volumes.is_empty() {
            self.dirty.volumes = true;
            self.volumes.pods.entry(pod.key.clone()).or_default();
        }
    }

    /// A new pod of a template, on no node.
    pub(super) fn new_pod(
        &mut self,
        key: ObjectKey,
        template: &PodTemplate,
        owner: PodOwner,
        volumes: Vec<ObjectName>,
    ) -> Pod {
        Pod {
            created_at: self.now,
            unschedulable: false,
            do_not_disrupt: template.do_not_disrupt,
            deletion_cost: template.deletion_cost,
            termination_grace: template.grace,
            volumes,
            ..Pod::waiting(key, self.ids.uid(), &template.shape, owner)
        }
    }

    /// Binds a pod to a node. It starts when its volumes are attached.
    pub(super) fn bind(&mut self, mut pod: Pod, node: NodeName) {
        pod.node = Some(node);
        pod.unschedulable = false;
        if pod.volumes.is_empty() {
            self.start_soon(&pod);
        }
        self.put_pod(pod);
    }

    /// The kubelet starts a pod of its node.
    pub(super) fn start_soon(&mut self, pod: &Pod) {
        let name = pod.uid.as_str();
        let delay = self.timings.pod_starts.of(self.seed, "start", name);
        self.set_pod_timer(delay, PodTimer::Start, pod);
    }

    fn set_pod_timer(&mut self, after: SignedDuration, timer: PodTimer, pod: &Pod) {
        self.set_timer(after, Timer::Pod(timer, pod.key.clone(), pod.uid.clone()));
    }

    pub(super) fn pod_timer(&mut self, timer: PodTimer, key: &ObjectKey, uid: &Uid) {
        let Some(pod) = self.store.pods().get(key).filter(|p| p.uid == *uid) else {
            return;
        };
        let pod = Arc::clone(pod);
        // Nothing happens on a node whose machine is lost.
        let lost = pod.node.as_ref().is_some_and(|n| self.kubelets.is_lost(n));
        match timer {
            PodTimer::Forget => self.take_pod(key),
            _ if lost => {}
            _ if pod.node.as_ref().is_some_and(|n| self.kubelets.hold_back(n, timer, key, uid)) => {}
            PodTimer::End => self.take_pod(key),
            PodTimer::Start if pod.deleting_at.is_none() => self.pod_starts(&pod),
            PodTimer::Ready if pod.deleting_at.is_none() && !pod.is_terminal() => self.pod_ready(&pod),
            PodTimer::Succeed if pod.deleting_at.is_none() => self.pod_succeeds(&pod),
            PodTimer::Start | PodTimer::Ready | PodTimer::Succeed => {}
        }
    }

    fn pod_starts(&mut self, pod: &Pod) {
        let runtime = self.workloads.runtimes.get(&pod.key);
        let (ready_after, run_for) = runtime.map_or((SignedDuration::ZERO, None), |o| (o.ready_after, o.run_for));
        if let Some(run_for) = run_for {
            self.set_pod_timer(run_for, PodTimer::Succeed, pod);
        }
        let started = Pod { phase: PodPhase::Running, started_at: Some(self.now), ..pod.clone() };
        if ready_after > SignedDuration::ZERO {
            self.set_pod_timer(ready_after, PodTimer::Ready, pod);
            self.put_pod(started);
        } else {
            self.pod_ready(&started);
        }
    }

    fn pod_ready(&mut self, pod: &Pod) {
        self.put_pod(Pod { ready: true, ..pod.clone() });
        if let Some(PodOrigin::Workload(workload)) = self.workloads.runtimes.get(&pod.key).map(|o| o.origin.clone())
            && self.is_rolled_out(&workload)
        {
            self.dirty.workloads.insert(workload);
        }
    }

    fn pod_succeeds(&mut self, pod: &Pod) {
        self.workloads.pod_succeeded(&pod.key);
        self.set_pod_timer(self.timings.ended_pods_retention, PodTimer::Forget, pod);
        self.emit(ClusterEvent::PodSucceeded { pod: pod.key.clone() });
        self.put_pod(Pod { phase: PodPhase::Succeeded, ready: false, ..pod.clone() });
    }

    /// Deletes a pod: after its grace period, or at once if no kubelet runs it.
    pub(super) fn end_pod(&mut self, key: &ObjectKey) {
        self.end_pod_within(key, SignedDuration::MAX);
    }

    /// Deletes a pod, with no more time to end than this.
    pub(super) fn end_pod_within(&mut self, key: &ObjectKey, longest: SignedDuration) {
        let Some(pod) = self.store.pods().get(key).map(Arc::clone) else {
            return;
        };
        // A later request can only shorten the time, which counts from the first as far as the API server tells it.
        if pod.deleting_at.is_some() && longest >= pod.termination_grace {
            return;
        }
        if pod.node.is_none() || pod.is_terminal() {
            self.take_pod(key);
            return;
        }
        let termination_grace = self.grace_of(key).min(longest);
        self.set_pod_timer(termination_grace, PodTimer::End, &pod);
        let deleting_at = pod.deleting_at.or(Some(self.now));
        self.put_pod(Pod { deleting_at, termination_grace, ..Pod::clone(&pod) });
    }

    /// How long the containers of a pod take to end.
    pub(super) fn grace_of(&self, key: &ObjectKey) -> SignedDuration {
        self.workloads.runtimes.get(key).map_or(PodTemplate::GRACE, |o| o.grace)
    }

    /// Runs kube-scheduler.
    pub(super) fn schedule(&mut self) {
        if !self.scheduler.has_work() {
            return;
        }
        loop {
            let (volumes, store) = (&self.volumes, &self.store);
            let verdict = self.scheduler.next(|shape, names| volumes.topology_of(store, &shape.namespace, names));
            match verdict {
                None => return,
                Some(scheduler::Decision::Bind(key, node)) => {
                    if let Some(pod) = self.store.pods().get(&key) {
                        self.bind(Pod::clone(pod), node);
                    }
                }
                Some(scheduler::Decision::Unschedulable(keys)) => {
                    keys.iter().for_each(|key| self.mark_unschedulable(key));
                }
            }
        }
    }

    fn mark_unschedulable(&mut self, key: &ObjectKey) {
        if let Some(pod) = self.store.pods().get(key) {
            let pod = Pod { unschedulable: true, ..Pod::clone(pod) };
            self.put_pod(pod);
        }
    }
}

/// The NodePool of a node, or its node pool of AKS.
fn node_group(node: &Node) -> Option<Arc<str>> {
    let label = |key: &str| node.labels.get(key).map(Arc::clone);
    label(labels::NODEPOOL).or_else(|| label(AGENT_POOL))
}
