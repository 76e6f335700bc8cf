//! One topology constraint: the pods that it counts, by domain.

use crate::karpenter::offerings::is_open;
use crate::karpenter::view::NodeView;
use napkeeper_core::model::cluster::pod::{Labels, PodShape, PodTerm, Taint, TaintEffect, Toleration};
use napkeeper_core::model::labels::{self, NAMESPACE_NAME};
use napkeeper_core::model::names::Namespace;
use napkeeper_core::model::requirements::{Requirement, Requirements};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a constraint wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum GroupKind {
    /// Topology spread.
    Spread { max_skew: u32, min_domains: u32, filter: Box<NodeFilter> },
    /// Affinity to pods.
    Near,
    /// Anti-affinity to pods.
    Apart,
}

/// The nodes that count for a spread constraint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeFilter {
    pub(super) honors_affinity: bool,
    pub(super) honors_taints: bool,
    /// What a pod requires of labels: one of these.
    pub(super) accepted: Vec<Requirements>,
    pub(super) tolerations: Vec<Toleration>,
}

/// The pods that a constraint counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SelectedPods {
    /// Those of a namespace.
    Spread(Namespace, Requirements),
    /// Those of a term.
    Term(PodTerm),
}

/// A constraint with its counts.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) kind: GroupKind,
    pub(super) key: Arc<str>,
    selected: SelectedPods,
    domains: BTreeMap<Arc<str>, u32>,
}

/// What is known of the domain of a node.
#[derive(Debug, Clone, Copy)]
pub(super) enum NodeDomain<'n> {
    /// The labels of an existing node.
    Existing(&'n NodeView, &'n Arc<str>),
    /// The requirements of a new one.
    New(&'n Requirements),
}

/// The domains that a node may be in, for one key.
#[derive(Debug)]
pub(super) enum Domains<'n> {
    /// This one.
    One(&'n Arc<str>),
    /// Those that the requirement allows.
    Some(&'n Requirement),
    /// Any.
    All,
    /// The node lacks the label.
    None,
}

impl<'n> NodeDomain<'n> {
    pub(super) fn of(&self, key: &str) -> Domains<'n> {
        match self {
            Self::Existing(_, host) if key == labels::HOSTNAME => Domains::One(host),
            Self::Existing(node, _) => node.labels.get(key).map_or(Domains::None, Domains::One),
            Self::New(requirements) => requirements.get(key).map_or(Domains::All, Domains::Some),
        }
    }
}

impl Domains<'_> {
    fn allows(&self, domain: &str) -> bool {
        match self {
            Self::One(own) => ***own == *domain,
            Self::Some(requirement) => requirement.allows(Some(domain)),
            Self::All => true,
            Self::None => false,
        }
    }

    /// The single domain, if there is just one.
    fn single(&self) -> Option<&Arc<str>> {
        match self {
            Self::One(own) => Some(own),
            Self::Some(requirement) => requirement.values().filter(|values| values.len() == 1)?.first(),
            Self::All | Self::None => None,
        }
    }
}

impl Group {
    pub(super) fn new(kind: GroupKind, key: &Arc<str>, selected: SelectedPods) -> Self {
        Self { kind, key: Arc::clone(key), selected, domains: BTreeMap::new() }
    }

    /// True when both count the same.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.key == other.key && self.kind == other.kind && self.selected == other.selected
    }

    pub(super) fn register(&mut self, domain: &Arc<str>) {
        if !self.domains.contains_key(domain) {
            self.domains.insert(Arc::clone(domain), 0);
        }
    }

    pub(super) fn record(&mut self, domain: &Arc<str>) {
        *self.domains.entry(Arc::clone(domain)).or_default() += 1;
    }

    pub(super) fn selects(&self, shape: &PodShape) -> bool {
        match &self.selected {
            SelectedPods::Spread(namespace, selector) => {
                shape.namespace == *namespace && selector.satisfied_by(&shape.labels)
            }
            SelectedPods::Term(term) => {
                let own = || Labels::from([(Arc::from(NAMESPACE_NAME), shape.namespace.text())]);
                let own = term.namespace_selector.as_ref().map(|_| own());
                term.means(&shape.namespace, own.as_ref(), &shape.labels)
            }
        }
    }

    /// True when pods on an existing node count.
    pub(super) fn admits_labels(&self, node: &NodeView) -> bool {
        let GroupKind::Spread { filter, .. } = &self.kind else { return true };
        let accepts =
            || filter.accepted.is_empty() || filter.accepted.iter().any(|terms| terms.satisfied_by(&node.labels));
        (!filter.honors_affinity || accepts()) && (!filter.honors_taints || filter.tolerates(&node.taints))
    }

    /// True when pods on a new node with these requirements count.
    pub(super) fn admits(&self, requirements: &Requirements, taints: &[Taint]) -> bool {
        let GroupKind::Spread { filter, .. } = &self.kind else { return true };
        let accepts = || {
            filter.accepted.is_empty() || filter.accepted.iter().any(|terms| requirements.is_compatible(terms, is_open))
        };
        (!filter.honors_affinity || accepts()) && (!filter.honors_taints || filter.tolerates(taints))
    }

    /// The domains that the next pod may go to: one for spread, several for affinity. `wanted` is what the pod itself
    /// requires of the key.
    pub(super) fn next(&self, shape: &PodShape, wanted: Option<&Requirement>, node: &Domains<'_>) -> Vec<Arc<str>> {
        match &self.kind {
            GroupKind::Spread { max_skew, min_domains, .. } => {
                let least = self.least(wanted, *min_domains);
                self.next_spread(shape, node, *max_skew, least).into_iter().collect()
            }
            GroupKind::Near => self.next_near(shape, wanted, node),
            GroupKind::Apart => self.next_apart(wanted, node),
        }
    }

    fn is_by_host(&self) -> bool {
        *self.key == *labels::HOSTNAME
    }

    fn count(&self, domain: &Arc<str>) -> u32 {
        self.domains.get(domain).copied().unwrap_or(0)
    }

    /// The count of the emptiest domain; host names always have an empty one, since a node can be added.
    fn least(&self, wanted: Option<&Requirement>, min_domains: u32) -> u32 {
        if self.is_by_host() {
            return 0;
        }
        let allowed = |(domain, _): &(&Arc<str>, &u32)| wanted.is_none_or(|wanted| wanted.allows(Some(domain)));
        let counts: Vec<u32> = self.domains.iter().filter(allowed).map(|(_, count)| *count).collect();
        if counts.len() < min_domains as usize {
            return 0;
        }
        counts.into_iter().min().unwrap_or(u32::MAX)
    }

    /// The emptiest domain of the node's that keeps the skew; upstream takes any of equals, here the first by name.
    fn next_spread(&self, shape: &PodShape, node: &Domains<'_>, max_skew: u32, least: u32) -> Option<Arc<str>> {
        let own = u32::from(self.selects(shape));
        if let Some(host) = node.single().filter(|_| self.is_by_host()) {
            return (self.count(host) + own <= max_skew).then(|| Arc::clone(host));
        }
        let keeps_skew = |(_, count): &(&Arc<str>, &u32)| (**count + own).saturating_sub(least) <= max_skew;
        let allowed = self.domains.iter().filter(|(domain, _)| node.allows(domain)).filter(keeps_skew);
        allowed.min_by_key(|(_, count)| **count).map(|(domain, _)| Arc::clone(domain))
    }

    /// Domains with such pods; any one while there are none, if the pod itself is such a pod.
    fn next_near(&self, shape: &PodShape, wanted: Option<&Requirement>, node: &Domains<'_>) -> Vec<Arc<str>> {
        let wants = |domain: &Arc<str>| wanted.is_none_or(|wanted| wanted.allows(Some(domain)));
        let is_first = || {
            let occupied = self.domains.iter().any(|(domain, count)| *count > 0 && wants(domain));
            self.selects(shape) && !occupied
        };
        if let Some(host) = node.single().filter(|_| self.is_by_host()) {
            let may = wants(host) && (self.count(host) > 0 || is_first());
            return may.then(|| Arc::clone(host)).into_iter().collect();
        }
        let both = |domain: &&Arc<str>| wants(domain) && node.allows(domain);
        let occupied = self.domains.iter().filter(|(_, count)| **count > 0).map(|(domain, _)| domain);
        let found: Vec<Arc<str>> = occupied.filter(both).cloned().collect();
        if !found.is_empty() || !is_first() {
            return found;
        }
        let of_node = self.domains.keys().find(both);
        of_node.or_else(|| self.domains.keys().find(|domain| wants(domain))).cloned().into_iter().collect()
    }

    /// Domains without such pods.
    fn next_apart(&self, wanted: Option<&Requirement>, node: &Domains<'_>) -> Vec<Arc<str>> {
        if let Some(host) = node.single().filter(|_| self.is_by_host()) {
            return (self.count(host) == 0).then(|| Arc::clone(host)).into_iter().collect();
        }
        let free = self.domains.iter().filter(|(_, count)| **count == 0).map(|(domain, _)| domain);
        let wants = |domain: &&Arc<str>| wanted.is_none_or(|wanted| wanted.allows(Some(domain)));
        free.filter(|domain| node.allows(domain)).filter(wants).cloned().collect()
    }
}

impl NodeFilter {
    fn tolerates(&self, taints: &[Taint]) -> bool {
        taints
            .iter()
            .filter(|taint| taint.effect != TaintEffect::PreferNoSchedule)
            .all(|taint| Toleration::any_covers(&self.tolerations, taint))
    }
}
