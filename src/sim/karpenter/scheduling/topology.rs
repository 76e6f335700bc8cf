//! Counts pods by topology domain, and tells the domains that a pod may go to.

use super::groups::{Group, GroupKind, NodeDomain, NodeFilter, SelectedPods};
use crate::karpenter::view::{NodeSet, NodeView, View};
use napkeeper_core::model::cluster::pod::{Pod, PodShape, PodTerm, Spread, Taint};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::Uid;
use napkeeper_core::model::requirements::Requirements;
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The groups of one simulation.
#[derive(Debug)]
pub(super) struct Topology<'v> {
    view: &'v View,
    /// Nodes that are not used: their labels open no domain.
    unused: &'v NodeSet,
    /// Pods that are to be placed: where they are now does not count. They are looked up only where there are groups.
    moving: OnceCell<BTreeSet<Uid>>,
    pods: Vec<Arc<Pod>>,
    groups: Vec<Group>,
    /// The same for pods with anti-affinity: where they are, or may be.
    repelling: Vec<Group>,
}

/// A domain that a pod must go to, by topology key.
pub(super) type ChosenDomains = Vec<(Arc<str>, Vec<Arc<str>>)>;

impl<'v> Topology<'v> {
    pub(super) fn new(view: &'v View, pods: &[Arc<Pod>], unused: &'v NodeSet) -> Self {
        let (groups, repelling, moving, pods) = (Vec::new(), Vec::new(), OnceCell::new(), pods.to_vec());
        let mut topology = Self { view, unused, moving, pods, groups, repelling };
        let stays = |pod: &&Arc<Pod>| pod.shape.affinity.is_some() && !topology.is_moving(pod);
        let bound = view.nodes.iter().flat_map(|node| node.pods.iter().filter(stays).map(move |pod| (node, pod)));
        let bound: Vec<(&NodeView, &Arc<Pod>)> = bound.filter(|(_, pod)| !pod.is_terminal()).collect();
        for (node, pod) in bound {
            for group in topology.repelling_groups(&pod.shape) {
                let key = Arc::clone(&topology.repelling[group].key);
                if let Some(domain) = domain_of(node, &key) {
                    topology.repelling[group].record(&domain);
                }
            }
        }
        topology
    }

    fn is_moving(&self, pod: &Pod) -> bool {
        self.moving.get_or_init(|| self.pods.iter().map(|pod| pod.uid.clone()).collect()).contains(&pod.uid)
    }

    /// The groups of a shape's own anti-affinity, by which it keeps others away.
    pub(super) fn repelling_groups(&mut self, shape: &PodShape) -> Vec<usize> {
        let terms = shape.affinity.iter().flat_map(|affinity| &affinity.apart);
        terms.map(|term| self.repelling_group(term)).collect()
    }

    fn repelling_group(&mut self, term: &PodTerm) -> usize {
        let group = Group::new(GroupKind::Apart, &term.topology_key, SelectedPods::Term(term.clone()));
        if let Some(known) = self.repelling.iter().position(|other| other.is_same(&group)) {
            return known;
        }
        let group = self.with_pool_domains(group, &[]);
        self.repelling.push(group);
        self.repelling.len() - 1
    }

    pub(super) fn spread_group(&mut self, shape: &PodShape, spread: &Spread, filter: NodeFilter) -> usize {
        let kind =
            GroupKind::Spread { max_skew: spread.max_skew, min_domains: spread.min_domains, filter: Box::new(filter) };
        let selected = SelectedPods::Spread(shape.namespace.clone(), spread.selector.clone());
        self.group(Group::new(kind, &spread.topology_key, selected))
    }

    pub(super) fn term_group(&mut self, kind: GroupKind, term: &PodTerm) -> usize {
        self.group(Group::new(kind, &term.topology_key, SelectedPods::Term(term.clone())))
    }

    fn group(&mut self, group: Group) -> usize {
        if let Some(known) = self.groups.iter().position(|other| other.is_same(&group)) {
            return known;
        }
        let tolerations = match &group.kind {
            GroupKind::Spread { filter, .. } if filter.honors_taints => filter.tolerations.clone(),
            _ => Vec::new(),
        };
        let mut group = self.with_pool_domains(group, &tolerations);
        self.count(&mut group);
        self.groups.push(group);
        self.groups.len() - 1
    }

    /// The domains that new nodes can be in.
    fn with_pool_domains(
        &self,
        mut group: Group,
        tolerations: &[napkeeper_core::model::cluster::pod::Toleration],
    ) -> Group {
        let honors = matches!(&group.kind, GroupKind::Spread { filter, .. } if filter.honors_taints);
        for options in self.view.pools.iter().filter(|options| options.pool.replicas.is_none()) {
            let tolerated =
                |taint: &Taint| napkeeper_core::model::cluster::pod::Toleration::any_covers(tolerations, taint);
            if !honors || options.pool.taints.iter().all(tolerated) {
                options.domains(&group.key).iter().for_each(|domain| group.register(domain));
            }
        }
        group
    }

    /// Counts bound pods, and opens the domains of existing nodes.
    fn count(&self, group: &mut Group) {
        for node in self.view.nodes.iter().filter(|node| node.joined) {
            if !group.admits_labels(node) {
                continue;
            }
            let Some(domain) = domain_of(node, &group.key) else { continue };
            if !self.unused.contains(&node.name) && !node.is_marked() {
                group.register(&domain);
            }
            let counts = |pod: &&Arc<Pod>| !pod.is_terminal() && pod.deleting_at.is_none() && !self.is_moving(pod);
            let counted = node.pods.iter().filter(counts).filter(|pod| group.selects(&pod.shape)).count();
            (0..counted).for_each(|_| group.record(&domain));
        }
    }

    /// A node becomes a domain of every group by host name.
    pub(super) fn open_host(&mut self, host: &Arc<str>) {
        for group in self.groups.iter_mut().chain(&mut self.repelling).filter(|group| *group.key == *labels::HOSTNAME) {
            group.register(host);
        }
    }

    /// True when some anti-affinity of others means such pods.
    pub(super) fn repels(&self, shape: &PodShape) -> bool {
        self.repelling.iter().any(|group| group.selects(shape))
    }

    /// The domains that a pod may go to, given what a node satisfies; `None` when a constraint cannot be met.
    pub(super) fn choose(
        &self,
        shape: &PodShape,
        owned: &[usize],
        strict: &Requirements,
        node: NodeDomain<'_>,
    ) -> Option<ChosenDomains> {
        let own = owned.iter().map(|group| &self.groups[*group]);
        let repelling = self.repelling.iter().filter(|group| group.selects(shape));
        let mut chosen = Vec::new();
        for group in own.chain(repelling) {
            let domains = group.next(shape, strict.get(&group.key), &node.of(&group.key));
            if domains.is_empty() {
                return None;
            }
            chosen.push((Arc::clone(&group.key), domains));
        }
        Some(chosen)
    }

    /// Counts a pod that was placed on an existing node.
    pub(super) fn record_on(&mut self, shape: &PodShape, repelling: &[usize], node: &NodeView) {
        for group in self.groups.iter_mut().filter(|group| group.selects(shape)) {
            if let Some(domain) = domain_of(node, &group.key).filter(|_| group.admits_labels(node)) {
                group.record(&domain);
            }
        }
        for index in repelling {
            let group = &mut self.repelling[*index];
            if let Some(domain) = domain_of(node, &group.key) {
                group.record(&domain);
            }
        }
    }

    /// Counts a pod that was placed on a new node: in a single domain only where it is known, and for anti-affinity in
    /// all where it may be.
    pub(super) fn record_new(
        &mut self,
        shape: &PodShape,
        repelling: &[usize],
        requirements: &Requirements,
        taints: &[Taint],
    ) {
        for group in self.groups.iter_mut().filter(|group| group.selects(shape)) {
            let values = requirements.get(&group.key).and_then(|r| r.values());
            let Some(values) = values.filter(|_| group.admits(requirements, taints)) else { continue };
            if matches!(group.kind, GroupKind::Apart) || values.len() == 1 {
                values.iter().for_each(|value| group.record(value));
            }
        }
        for index in repelling {
            let group = &mut self.repelling[*index];
            let values = requirements.get(&group.key).and_then(|r| r.values());
            values.into_iter().flatten().for_each(|value| group.record(value));
        }
    }
}

/// The domain of a node; a node without the label of its host name has its own name for it.
fn domain_of(node: &NodeView, key: &Arc<str>) -> Option<Arc<str>> {
    if **key == *labels::HOSTNAME { Some(node.hostname()) } else { node.labels.get(key).cloned() }
}
