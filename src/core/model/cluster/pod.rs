//! Pods.

pub use super::pod_status::{PodDetails, PodPhase};
pub use super::topology::{PodAffinity, PodTerm, Preferences, Spread};
use crate::model::amounts::resources::Resources;
use crate::model::labels;
use crate::model::names::{Namespace, NodeName, ObjectKey, ObjectName, Uid};
use crate::model::requirements::Requirements;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Labels of an object.
pub type Labels = BTreeMap<Arc<str>, Arc<str>>;

/// All of a pod that matters for where it can run. Pods of one workload share one shape.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodShape {
    /// Namespace.
    pub namespace: Namespace,
    /// Labels: what spread constraints select by.
    pub labels: Labels,
    /// Its requests, `pods: 1` included.
    pub requests: Resources,
    /// `nodeSelector` and required node affinity terms with a single alternative.
    pub selector: Requirements,
    /// Alternatives of required node affinity: one must hold. Empty means none is required.
    pub alternatives: Vec<Requirements>,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
    /// Hard topology spread constraints (`DoNotSchedule`).
    pub spread: Vec<Spread>,
    /// Priority; higher goes first.
    pub priority: i32,
    /// Required affinity to other pods; `None` where there is none, as mostly.
    pub affinity: Option<Box<PodAffinity>>,
    /// Its preferences beside its requirements; `None` if it has none.
    pub preferences: Option<Box<Preferences>>,
    /// Ports of the node that its containers take, restartable init containers among them.
    pub ports: Vec<HostPort>,
}

/// A host port of a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// Number.
    pub port: u16,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: Arc<str>,
    /// The host IP that it is bound to; `None` is all of them (`0.0.0.0`, `::` or unset).
    pub address: Option<Arc<str>>,
}

impl HostPort {
    /// True when no node can give both.
    #[must_use]
    pub fn conflicts(&self, other: &Self) -> bool {
        let meet = match (&self.address, &other.address) {
            (Some(own), Some(other)) => own == other,
            (None, _) | (_, None) => true,
        };
        self.port == other.port && self.protocol == other.protocol && meet
    }

    /// True when none of these ports conflicts with those in use on a node.
    #[must_use]
    pub fn all_free<'t>(wanted: &[Self], taken: impl IntoIterator<Item = &'t Self>) -> bool {
        wanted.is_empty() || !taken.into_iter().any(|taken| wanted.iter().any(|port| port.conflicts(taken)))
    }
}

/// Effect of a taint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum TaintEffect {
    /// Pods that do not tolerate it are not placed.
    NoSchedule,
    /// Pods that do not tolerate it are placed elsewhere if they can be.
    PreferNoSchedule,
    /// Pods that do not tolerate it are evicted.
    NoExecute,
}

/// A taint of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Taint {
    /// Key.
    pub key: Arc<str>,
    /// Value; empty if none.
    #[serde(default)]
    pub value: Arc<str>,
    /// Effect.
    pub effect: TaintEffect,
}

/// A toleration of a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Toleration {
    /// Key; `None` tolerates every key.
    pub key: Option<Arc<str>>,
    /// Value; `None` tolerates every value (operator `Exists`).
    pub value: Option<Arc<str>>,
    /// Effect; `None` tolerates every effect.
    pub effect: Option<TaintEffect>,
}

impl Taint {
    /// The taint of a node that is drained. Karpenter's value is empty.
    #[must_use]
    pub fn disrupted() -> Self {
        Self { key: Arc::from(labels::TAINT_DISRUPTED), value: Arc::from(""), effect: TaintEffect::NoSchedule }
    }

    /// The taint of a node that may soon be deleted: kube-scheduler prefers others.
    #[must_use]
    pub fn underutilized() -> Self {
        let effect = TaintEffect::PreferNoSchedule;
        Self { key: Arc::from(labels::TAINT_UNDERUTILIZED), value: Arc::from(""), effect }
    }

    /// The taint of a node that does not run, for certain (Kubernetes' non-graceful node shutdown).
    #[must_use]
    pub fn out_of_service() -> Self {
        let (key, value) = (Arc::from(labels::TAINT_OUT_OF_SERVICE), Arc::from("nodeshutdown"));
        Self { key, value, effect: TaintEffect::NoExecute }
    }
}

impl Toleration {
    /// True when this toleration covers the taint.
    #[must_use]
    pub fn covers(&self, taint: &Taint) -> bool {
        self.key.as_ref().is_none_or(|k| *k == taint.key)
            && self.value.as_ref().is_none_or(|v| *v == taint.value)
            && self.effect.is_none_or(|e| e == taint.effect)
    }

    /// True when one of these covers the taint.
    #[must_use]
    pub fn any_covers(tolerations: &[Self], taint: &Taint) -> bool {
        tolerations.iter().any(|toleration| toleration.covers(taint))
    }
}

impl PodShape {
    /// A pod with resource requests and no constraints.
    #[must_use]
    pub fn plain(namespace: Namespace, labels: Labels, requests: Resources) -> Self {
        Self {
            namespace,
            labels,
            requests,
            selector: Requirements::new(),
            alternatives: Vec::new(),
            tolerations: Vec::new(),
            spread: Vec::new(),
            priority: 0,
            affinity: None,
            preferences: None,
            ports: Vec::new(),
        }
    }

    /// The first taint that keeps the pod away. `PreferNoSchedule` never does.
    #[must_use]
    pub fn untolerated<'t>(&self, taints: impl IntoIterator<Item = &'t Taint>) -> Option<&'t Taint> {
        taints
            .into_iter()
            .filter(|t| t.effect != TaintEffect::PreferNoSchedule)
            .find(|t| !Toleration::any_covers(&self.tolerations, t))
    }

    /// True when the pod prefers nodes without this taint: a `PreferNoSchedule` taint that it does not tolerate.
    #[must_use]
    pub fn avoids(&self, taint: &Taint) -> bool {
        taint.effect == TaintEffect::PreferNoSchedule && !Toleration::any_covers(&self.tolerations, taint)
    }

    /// True when a node with these labels satisfies selector and affinity.
    #[must_use]
    pub fn accepts_labels(&self, labels: &Labels) -> bool {
        self.selector.satisfied_by(labels)
            && (self.alternatives.is_empty() || self.alternatives.iter().any(|a| a.satisfied_by(labels)))
    }
}

/// Who made the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodOwner {
    /// Nobody: it is not recreated when evicted.
    Nobody,
    /// A DaemonSet: it belongs to its node and is no reason for a new one.
    DaemonSet,
    /// A controller that replaces it (ReplicaSet, StatefulSet, Job, …).
    Controller,
    /// The kubelet, from a file (mirror pod).
    Static,
    /// Nobody: it is a chunk of a CapacityBuffer, in a simulation.
    Buffer,
}

/// How long a pod must not be disrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DoNotDisrupt {
    /// For as long as it lives.
    Always,
    /// For this long after its start.
    For(SignedDuration),
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Namespace and name.
    pub key: ObjectKey,
    /// UID.
    pub uid: Uid,
    /// Its scheduling constraints.
    pub shape: Arc<PodShape>,
    /// Who made it.
    pub owner: PodOwner,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it started to run.
    pub started_at: Option<Timestamp>,
    /// When its deletion was requested.
    pub deleting_at: Option<Timestamp>,
    /// How long its containers may take to end after that.
    pub termination_grace: SignedDuration,
    /// The node that it is bound to.
    pub node: Option<NodeName>,
    /// Phase.
    pub phase: PodPhase,
    /// Its condition Ready.
    pub ready: bool,
    /// kube-scheduler has found no node (`PodScheduled=False`, reason `Unschedulable`).
    pub unschedulable: bool,
    /// It must not be disrupted.
    pub do_not_disrupt: Option<DoNotDisrupt>,
    /// Annotation `controller.kubernetes.io/pod-deletion-cost`: those with less go first. 0 where it is absent or invalid, as
    /// for Kubernetes.
    pub deletion_cost: i32,
    /// PersistentVolumeClaims that it uses.
    pub volumes: Vec<ObjectName>,
    /// The node that kube-scheduler has nominated by preemption.
    pub nominated: Option<NodeName>,
    /// The profile of kube-scheduler that places it; `None` is the default one.
    pub scheduler: Option<Arc<str>>,
    /// It was created by a ReplicaSet, ReplicationController or StatefulSet, whose pods have the same labels.
    pub of_set: bool,
    /// It has ResourceClaims, which are not simulated.
    pub claims_devices: bool,
    /// It could not be parsed completely. It keeps its node in use, is never disrupted, and no node is launched for it.
    pub opaque: bool,
    /// What is told of it: nothing is decided by this.
    pub details: PodDetails,
}

impl Pod {
    /// How long containers may take to end, unless their pod says otherwise (Kubernetes' default).
    pub const TERMINATION_GRACE: SignedDuration = SignedDuration::from_secs(30);
    /// A pod that still exists so long after its end on a node that is ready will not end by itself (Karpenter's
    /// `IsStuckTerminating`).
    const STUCK_TERMINATING_AFTER: SignedDuration = SignedDuration::from_mins(1);
    /// Priority of `system-cluster-critical`. Classes of users end at half of it (kubernetes
    /// `pkg/apis/scheduling/types.go`).
    const SYSTEM_CRITICAL_PRIORITY: i32 = 2_000_000_000;
    /// What the eviction of an ordinary pod costs, in the unit of [`eviction_cost`](Self::eviction_cost).
    pub const EVICTION_COST: i64 = 1 << 27;

    /// A pending, unschedulable pod without volumes, created at the epoch.
    #[must_use]
    pub fn waiting(key: ObjectKey, uid: Uid, shape: &Arc<PodShape>, owner: PodOwner) -> Self {
        Self {
            key,
            uid,
            shape: Arc::clone(shape),
            owner,
            created_at: Timestamp::UNIX_EPOCH,
            started_at: None,
            deleting_at: None,
            termination_grace: Self::TERMINATION_GRACE,
            node: None,
            phase: PodPhase::Pending,
            ready: false,
            unschedulable: true,
            do_not_disrupt: None,
            deletion_cost: 0,
            volumes: Vec::new(),
            nominated: None,
            scheduler: None,
            of_set: false,
            claims_devices: false,
            opaque: false,
            details: PodDetails::default(),
        }
    }

    /// The PersistentVolumeClaims that it uses.
    pub fn claims(&self) -> impl Iterator<Item = ObjectKey> {
        let namespace = &self.key.namespace;
        self.volumes.iter().map(|name| ObjectKey { namespace: namespace.clone(), name: name.clone() })
    }

    /// It has ended: it uses nothing.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    /// It waits for a node, and a new node may help.
    #[must_use]
    pub fn is_provisionable(&self) -> bool {
        self.node.is_none()
            && self.unschedulable
            && self.nominated.is_none()
            && !self.opaque
            && self.deleting_at.is_none()
            && !self.is_terminal()
            && !matches!(self.owner, PodOwner::DaemonSet | PodOwner::Static)
    }

    /// It runs on a node and must be rescheduled before the node is deleted.
    #[must_use]
    pub fn is_reschedulable(&self) -> bool {
        self.node.is_some()
            && !self.is_terminal()
            && self.deleting_at.is_none()
            && !matches!(self.owner, PodOwner::DaemonSet | PodOwner::Static)
    }

    /// Its controller replaces it once it is evicted, and what it needs is known: it will need another node.
    #[must_use]
    pub(crate) fn needs_another_node(&self) -> bool {
        !self.opaque && self.is_reschedulable() && self.owner == PodOwner::Controller
    }

    /// It tolerates the taint of a node that is drained: a successor could come back to that node, so it is not evicted,
    /// and ends with the VM (Karpenter core, `IsDrainable`).
    #[must_use]
    pub fn tolerates_disruption(&self) -> bool {
        self.shape.untolerated([&Taint::disrupted()]).is_none()
    }

    /// It is of the priority class `system-cluster-critical` or `system-node-critical`.
    #[must_use]
    pub fn is_critical(&self) -> bool {
        self.shape.priority >= Self::SYSTEM_CRITICAL_PRIORITY
    }

    /// What its eviction costs, in 2^-27 of what that of an ordinary pod costs: more for a higher priority or
    /// `pod-deletion-cost`, −10 to 10 times as much (Karpenter core, `EvictionCost`).
    #[must_use]
    pub fn eviction_cost(&self) -> i64 {
        let by_priority = i64::from(self.shape.priority) * 4;
        let cost = Self::EVICTION_COST + i64::from(self.deletion_cost) + by_priority;
        cost.clamp(-10 * Self::EVICTION_COST, 10 * Self::EVICTION_COST)
    }

    /// It must be gone from its node before the VM is deleted; `node_ready_since` is `None` if the node is not ready.
    /// One that is stuck while terminating does not count, but only where a kubelet reports: elsewhere nobody knows
    /// whether its containers have ended. A DaemonSet's pod counts only where a kubelet can end it: it moves nowhere.
    #[must_use]
    pub fn holds_drain(&self, node_ready_since: Option<Timestamp>, now: Timestamp) -> bool {
        let stays = match self.owner {
            PodOwner::Static => true,
            PodOwner::DaemonSet => node_ready_since.is_none(),
            PodOwner::Nobody | PodOwner::Controller | PodOwner::Buffer => false,
        };
        !self.is_terminal()
            && !stays
            && node_ready_since.and_then(|since| self.stuck_terminating_at(since)).is_none_or(|at| at > now)
            && !self.tolerates_disruption()
    }

    /// When it counts as stuck if it still exists, on a node that has been ready since this time; `None` while its
    /// deletion is not requested. A kubelet that has just come back gives it its whole grace period first.
    #[must_use]
    pub fn stuck_terminating_at(&self, node_ready_since: Timestamp) -> Option<Timestamp> {
        let longest = self.termination_grace.saturating_add(Self::STUCK_TERMINATING_AFTER);
        self.deleting_at?.max(node_ready_since).saturating_add(longest).ok()
    }

    /// It refuses to be disrupted at this time.
    #[must_use]
    pub fn refuses_disruption(&self, now: Timestamp) -> bool {
        match self.do_not_disrupt {
            _ if self.opaque => !self.is_terminal(),
            None => false,
            Some(DoNotDisrupt::Always) => !self.is_terminal(),
            Some(DoNotDisrupt::For(time)) => {
                !self.is_terminal() && self.started_at.is_none_or(|start| now.duration_since(start) < time)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{pod, shape};
    use proptest::prelude::*;

    fn eviction_cost(priority: i32, deletion_cost: i32) -> i64 {
        let shape = PodShape { priority, ..shape("app", 100, 1) };
        Pod { deletion_cost, ..pod("p", &Arc::new(shape)) }.eviction_cost()
    }

    #[test]
    fn the_cost_of_an_eviction_is_karpenters() {
        // Priority 2^25 doubles it, and so does a deletion cost of 2^27; the extremes are cut off at ten.
        for (priority, deletion_cost, tenths) in [
            (0, 0, 10),
            (1 << 25, 0, 20),
            (-(1 << 25), 0, 0),
            (i32::MAX, 0, 100),
            (i32::MIN, 0, -100),
            (0, 1 << 27, 20),
            (0, -(1 << 27), 0),
            (1 << 25, -(1 << 27), 10),
            (0, i32::MAX, 100),
            (0, i32::MIN, -100),
        ] {
            let expected = Pod::EVICTION_COST * tenths / 10;
            assert_eq!(eviction_cost(priority, deletion_cost), expected, "{priority} {deletion_cost}");
        }
    }

    proptest! {
        #[test]
        fn a_higher_priority_never_costs_less(a in any::<i32>(), b in any::<i32>(), other in any::<i32>()) {
            prop_assert!(eviction_cost(a.min(b), other) <= eviction_cost(a.max(b), other));
            prop_assert!(eviction_cost(other, a.min(b)) <= eviction_cost(other, a.max(b)));
        }
    }

    /// Every toleration of a small world against every taint of it; what Kubernetes says of each, in its own words:
    /// "the keys are the same and the effects are the same, and the operator is Exists, or it is Equal and the values
    /// are equal", an empty key with Exists matches all, an empty effect matches all effects.
    #[test]
    fn a_toleration_covers_the_taints_that_kubernetes_says() {
        let effects = [TaintEffect::NoSchedule, TaintEffect::PreferNoSchedule, TaintEffect::NoExecute];
        let mut cases = 0;
        for (key, value) in
            [(None, None), (Some("k"), None), (Some("k"), Some("v")), (Some("k"), Some("")), (Some("l"), None)]
        {
            for effect in std::iter::once(None).chain(effects.map(Some)) {
                let toleration = Toleration { key: key.map(Arc::from), value: value.map(Arc::from), effect };
                for (taint_key, taint_value) in [("k", "v"), ("k", "w"), ("k", ""), ("l", "v"), ("kk", "")] {
                    for taint_effect in effects {
                        let taint =
                            Taint { key: Arc::from(taint_key), value: Arc::from(taint_value), effect: taint_effect };
                        let keys = key.is_none() || key == Some(taint_key);
                        let values = value.is_none() || value == Some(taint_value);
                        let effects = effect.is_none() || effect == Some(taint_effect);
                        assert_eq!(toleration.covers(&taint), keys && values && effects, "{toleration:?} of {taint:?}");
                        let shape = PodShape {
                            tolerations: vec![toleration.clone()],
                            ..PodShape::plain(Namespace::new("n").unwrap(), Labels::new(), Resources::default())
                        };
                        let excluded = taint_effect != TaintEffect::PreferNoSchedule && !(keys && values && effects);
                        assert_eq!(shape.untolerated([&taint]).is_some(), excluded, "{toleration:?} of {taint:?}");
                        cases += 1;
                    }
                }
            }
        }
        assert_eq!(cases, 300);
    }
}
