//! The fields of a pod that kube-scheduler uses. Pods with equal fields form a class.

use super::requests::Requests;
use super::selector::{Labels, NodeTerm, RequiredNode, Selector};
use super::volumes::{ClaimKey, claims_of};
use k8s_openapi::api::core::v1::{
    Affinity, Container, Pod, PodAffinityTerm, PodSpec, Taint, Toleration as WireToleration, TopologySpreadConstraint,
};
use std::collections::BTreeSet;

/// Constraints of a pod on a node alone: the result changes only with the node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Fixed {
    /// `spec.nodeName`.
    pub(super) node: Option<String>,
    pub(super) required: RequiredNode,
    pub(super) tolerations: Vec<Toleration>,
    /// Preferred terms of node affinity, with their weights.
    pub(super) preferred: Vec<(i64, NodeTerm)>,
}

/// A toleration.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Toleration {
    key: String,
    /// `None`: any value.
    value: Option<String>,
    effect: String,
}

impl Toleration {
    fn read(wire: &WireToleration) -> Option<Self> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let value = match wire.operator.as_deref().unwrap_or_default() {
            "Exists" => None,
            "" | "Equal" => Some(text(&wire.value)),
            // The comparisons Lt and Gt are behind a gate that is closed.
            _ => return None,
        };
        Some(Self { key: text(&wire.key), value, effect: text(&wire.effect) })
    }

    pub(super) fn covers(&self, taint: &Taint) -> bool {
        (self.effect.is_empty() || self.effect == taint.effect)
            && (self.key.is_empty() || self.key == taint.key)
            && self.value.as_ref().is_none_or(|value| *value == taint.value.clone().unwrap_or_default())
    }
}

/// A port of the node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Port {
    address: String,
    protocol: String,
    number: i32,
}

impl Port {
    const EVERY: &'static str = "0.0.0.0";

    /// No node can give both.
    pub(super) fn conflicts(&self, other: &Self) -> bool {
        let meet = self.address == other.address || self.address == Self::EVERY || other.address == Self::EVERY;
        meet && self.protocol == other.protocol && self.number == other.number
    }
}

/// A topology spread constraint.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Constraint {
    pub(super) key: String,
    pub(super) max_skew: i64,
    pub(super) min_domains: usize,
    pub(super) selector: Selector,
    pub(super) honors_affinity: bool,
    pub(super) honors_taints: bool,
}

/// A term of pod affinity or anti-affinity.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Term {
    pub(super) key: String,
    namespaces: BTreeSet<String>,
    namespace_selector: Selector,
    selector: Selector,
}

impl Term {
    /// It means pods of this class. The labels are those of the class's namespace.
    pub(super) fn means(&self, class: &PodClass, of_namespace: &Labels) -> bool {
        let reached = self.namespaces.contains(&class.namespace) || self.namespace_selector.matches(of_namespace);
        reached && self.selector.matches(&class.labels)
    }
}

/// All that matters of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct PodClass {
    pub(super) namespace: String,
    pub(super) labels: Labels,
    /// It is on its way out, and spread constraints do not count it.
    pub(super) leaving: bool,
    pub(super) requests: Requests,
    pub(super) fixed: Fixed,
    pub(super) ports: Vec<Port>,
    /// PersistentVolumeClaims.
    pub(super) claims: Vec<ClaimKey>,
    /// Spread constraints that must hold.
    pub(super) spread: Vec<Constraint>,
    /// Spread constraints that are preferred.
    pub(super) soft_spread: Vec<Constraint>,
    /// Its preferred spread constraints are the built-in ones, which also score nodes without some of their labels.
    pub(super) spreads_without_labels: bool,
    /// Required affinity.
    pub(super) near: Vec<Term>,
    /// Required anti-affinity.
    pub(super) apart: Vec<Term>,
    /// Preferred affinity, and anti-affinity with negative weights.
    pub(super) likes: Vec<(i64, Term)>,
}

impl PodClass {
    pub(super) fn read(pod: &Pod) -> Self {
        let nothing = PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&nothing);
        let namespace = pod.metadata.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        let mut class = Self {
            leaving: pod.metadata.deletion_timestamp.is_some(),
            requests: Requests::read(spec),
            fixed: fixed(spec),
            ports: ports(spec),
            claims: claims_of(pod),
            spread: spread(spec, &labels, "DoNotSchedule"),
            soft_spread: spread(spec, &labels, "ScheduleAnyway"),
            spreads_without_labels: false,
            near: Vec::new(),
            apart: Vec::new(),
            likes: Vec::new(),
            namespace,
            labels,
        };
        if let Some(affinity) = &spec.affinity {
            class.read_terms(affinity);
        }
        class
    }

    fn read_terms(&mut self, affinity: &Affinity) {
        let term = |wire: &PodAffinityTerm| self.term(wire);
        let (mut near, mut apart, mut likes) = (Vec::new(), Vec::new(), Vec::new());
        if let Some(to) = &affinity.pod_affinity {
            near.extend(to.required_during_scheduling_ignored_during_execution.iter().flatten().map(term));
            let preferred = to.preferred_during_scheduling_ignored_during_execution.iter().flatten();
            likes.extend(preferred.map(|w| (i64::from(w.weight), term(&w.pod_affinity_term))));
        }
        if let Some(from) = &affinity.pod_anti_affinity {
            apart.extend(from.required_during_scheduling_ignored_during_execution.iter().flatten().map(term));
            let preferred = from.preferred_during_scheduling_ignored_during_execution.iter().flatten();
            likes.extend(preferred.map(|w| (-i64::from(w.weight), term(&w.pod_affinity_term))));
        }
        (self.near, self.apart, self.likes) = (near, apart, likes);
    }

    /// A term that names no namespace at all means the pod's own.
    fn term(&self, wire: &PodAffinityTerm) -> Term {
        let mut namespaces: BTreeSet<String> = wire.namespaces.iter().flatten().cloned().collect();
        if namespaces.is_empty() && wire.namespace_selector.is_none() {
            namespaces.insert(self.namespace.clone());
        }
        let selector = Selector::read(wire.label_selector.as_ref());
        Term {
            key: wire.topology_key.clone(),
            namespaces,
            namespace_selector: Selector::read(wire.namespace_selector.as_ref()),
            selector: selector.like(&self.labels, wire.match_label_keys.as_ref(), wire.mismatch_label_keys.as_ref()),
        }
    }
}

fn fixed(spec: &PodSpec) -> Fixed {
    let affinity = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref());
    let preferred = affinity.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref());
    Fixed {
        node: spec.node_name.clone().filter(|name| !name.is_empty()),
        required: RequiredNode::read(spec),
        tolerations: spec.tolerations.iter().flatten().filter_map(Toleration::read).collect(),
        preferred: preferred
            .into_iter()
            .flatten()
            .map(|p| (i64::from(p.weight), NodeTerm::read(&p.preference)))
            .collect(),
    }
}

/// Ports of the containers that run as long as the pod does.
fn ports(spec: &PodSpec) -> Vec<Port> {
    let restartable = |c: &&Container| c.restart_policy.as_deref() == Some("Always");
    let lasting = spec.init_containers.iter().flatten().filter(restartable).chain(&spec.containers);
    let ports = lasting.flat_map(|c| c.ports.iter().flatten());
    let or = |text: &Option<String>, default: &str| {
        text.clone().filter(|t| !t.is_empty()).unwrap_or_else(|| default.to_owned())
    };
    ports
        .filter_map(|p| {
            let number = p.host_port.filter(|n| *n > 0)?;
            Some(Port { address: or(&p.host_ip, Port::EVERY), protocol: or(&p.protocol, "TCP"), number })
        })
        .collect()
}

fn spread(spec: &PodSpec, labels: &Labels, when: &str) -> Vec<Constraint> {
    let wanted = spec.topology_spread_constraints.iter().flatten().filter(|c| c.when_unsatisfiable == when);
    wanted.map(|c| constraint(c, labels)).collect()
}

fn constraint(wire: &TopologySpreadConstraint, labels: &Labels) -> Constraint {
    let selector = Selector::read(wire.label_selector.as_ref());
    Constraint {
        key: wire.topology_key.clone(),
        max_skew: i64::from(wire.max_skew),
        min_domains: wire.min_domains.and_then(|n| usize::try_from(n).ok()).unwrap_or(1),
        selector: selector.like(labels, wire.match_label_keys.as_ref(), None),
        honors_affinity: wire.node_affinity_policy.as_deref() != Some("Ignore"),
        honors_taints: wire.node_taints_policy.as_deref() == Some("Honor"),
    }
}
