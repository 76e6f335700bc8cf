//! Topology spread, pod affinity and anti-affinity, as kube-scheduler counts them.
//!
//! A group counts pods per domain of a topology key. Equal constraints of different pods share one group. Constraints
//! become [`TopologyConstraint`]s on groups, and a placed pod is counted in the groups that select it. The semantics
//! are kube-scheduler's (plugins PodTopologySpread and InterPodAffinity).

pub(crate) mod constraint;
pub(crate) mod domain;
pub(crate) mod existing_pods;
pub(crate) mod group;
use crate::model::cluster::node::Node;
use crate::model::cluster::pod::{Labels, PodShape, PodTerm, Spread};
use crate::model::labels;
use crate::model::names::Namespace;
use crate::scheduling::nodes::existing::ExistingNodes;
use crate::scheduling::pods::node_filter::NodeFilter;
use crate::scheduling::pods::volume_limits::SharedVolumeId;
use crate::scheduling::topology::constraint::{ClassConstraints, ConstraintStrength, TopologyConstraint};
use crate::scheduling::topology::domain::{Domain, HOSTNAME_KEY, TopologyKeyId, TopologyKeys};
use crate::scheduling::topology::existing_pods::ExistingPods;
use crate::scheduling::topology::group::{
    CountedPods, GroupId, GroupsByLabel, TopologyGroup, TopologyGroupKey, counts_pod,
};
use crate::snapshot::Table;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What each group of a topology key counts: pods by domain, and in all domains.
pub(crate) type GroupCounts = Vec<(Vec<u32>, u32)>;

/// All groups, and the constraints of pod classes on them. Classes are numbered by the caller.
#[derive(Debug)]
pub(crate) struct Topology {
    pub(crate) keys: TopologyKeys,
    pub(crate) groups: Vec<TopologyGroup>,
    group_ids: BTreeMap<TopologyGroupKey, GroupId>,
    pub(crate) class_constraints: Vec<ClassConstraints>,
    existing_pods: ExistingPods,
    /// Labels of namespaces, for terms that select by them.
    namespaces: Table<Namespace, Labels>,
    /// Groups and classes by a required label: most pairs need not be compared.
    groups_by_label: GroupsByLabel,
    classes_by_label: BTreeMap<(Arc<str>, Arc<str>), Vec<u32>>,
    /// Late domains of earlier attempts, and those of this one.
    known_late_domains: LateDomains,
    late_domains: LateDomains,
}

/// Domains that appeared after pods had been spread without them. The next attempt counts them from the start.
pub(crate) type LateDomains = BTreeMap<TopologyGroupKey, BTreeSet<Domain>>;

impl Topology {
    /// Topology without pod classes.
    pub(crate) fn new(
        keys: TopologyKeys,
        existing_pods: ExistingPods,
        namespaces: Table<Namespace, Labels>,
        late_domains: LateDomains,
    ) -> Self {
        Self {
            keys,
            known_late_domains: late_domains,
            late_domains: LateDomains::new(),
            groups: Vec::new(),
            group_ids: BTreeMap::new(),
            class_constraints: Vec::new(),
            existing_pods,
            namespaces,
            groups_by_label: GroupsByLabel::default(),
            classes_by_label: BTreeMap::new(),
        }
    }

    /// Registers the next pod class: `shape` at its relaxation step, of pods with shape `own` that share
    /// `unprovisioned` volumes.
    pub(crate) fn register_class(
        &mut self,
        shape: &PodShape,
        own: &Arc<PodShape>,
        (unprovisioned, existing): (&[SharedVolumeId], &ExistingNodes),
    ) {
        self.register_anti_affinity_about(own, existing);
        let class = self.class_constraints.len() as u32;
        let (mut constraints, mut counting_groups) = (Vec::new(), Vec::new());
        for spread in &shape.spread {
            constraints.push(self.spread_constraint(own, spread, existing));
        }
        let affinity = shape.affinity.as_deref();
        // Preferred terms follow the required ones.
        let required = own.affinity.as_deref().map_or((0, 0), |own| (own.near.len(), own.apart.len()));
        let all = affinity.map(|affinity| affinity.near.as_slice()).unwrap_or_default();
        let (near, preferred) = all.split_at(required.0.min(all.len()));
        constraints.extend(self.required_affinity(near, existing));
        for term in preferred {
            let group = self.group_id(&term.topology_key, CountedPods::ByTerm(term.clone()), None, existing);
            constraints.push(TopologyConstraint::Affinity {
                group,
                strength: ConstraintStrength::Preferred { counts_self: self.term_selects(term, own) },
            });
        }
        for (n, term) in affinity.into_iter().flat_map(|affinity| &affinity.apart).enumerate() {
            let group = self.group_id(&term.topology_key, CountedPods::ByTerm(term.clone()), None, existing);
            let counts_self = self.term_selects(term, own);
            let strength = if n < required.1 {
                ConstraintStrength::Required
            } else {
                ConstraintStrength::Preferred { counts_self }
            };
            constraints.push(TopologyConstraint::AntiAffinity { group, strength });
        }
        for term in own.affinity.iter().flat_map(|affinity| &affinity.apart) {
            counting_groups.push(self.group_id(
                &term.topology_key,
                CountedPods::InverseAntiAffinity(term.clone()),
                None,
                existing,
            ));
        }
        for shared in unprovisioned {
            // Such a volume is provisioned in the zone of the first pod that uses it.
            let group =
                self.group_id(&labels::interned(labels::ZONE), CountedPods::SharingVolume(*shared), None, existing);
            constraints.push(TopologyConstraint::Affinity { group, strength: ConstraintStrength::SharedVolume });
            counting_groups.push(group);
        }
        let keys = self.distinct_keys(&constraints);
        let affinity_selects_self = near.iter().all(|term| self.term_selects(term, own));
        self.class_constraints.push(ClassConstraints {
            shape: Arc::clone(own),
            constraints,
            keys,
            counting_groups,
            affinity_selects_self,
            new_node_domains: BTreeMap::new(),
        });
        for label in &own.labels {
            self.classes_by_label.entry((Arc::clone(label.0), Arc::clone(label.1))).or_default().push(class);
        }
        for group in self.groups_by_label.matching(&own.labels) {
            self.link(class, group);
        }
    }

    /// Groups for the anti-affinity of running pods that excludes pods of this shape.
    fn register_anti_affinity_about(&mut self, shape: &PodShape, existing: &ExistingNodes) {
        let about = self.existing_pods.anti_affinity_about(shape);
        let terms: Vec<PodTerm> = about.filter(|term| self.term_selects(term, shape)).cloned().collect();
        for term in terms {
            let key = Arc::clone(&term.topology_key);
            self.group_id(&key, CountedPods::InverseAntiAffinity(term), None, existing);
        }
    }

    /// Adds the domain of a new node to the groups whose filters match it.
    pub(crate) fn add_domain(&mut self, key_id: TopologyKeyId, domain: Domain, accepts: impl Fn(&NodeFilter) -> bool) {
        let is_new =
            |group: &TopologyGroup| group.key.key == key_id && !group.has_domain(domain) && group.counts_node(&accepts);
        let affected: Vec<usize> = (0..self.groups.len()).filter(|number| is_new(&self.groups[*number])).collect();
        for number in affected {
            self.groups[number].add_domain(domain);
            let group = &self.groups[number];
            // Spread classes that did not consider it as a possible domain.
            let unaware = |class: &u32| {
                let links = &self.class_constraints[*class as usize];
                links.new_node_domains.contains_key(&key_id)
                    && self.allowed_domains(links, key_id).all(|open| open != domain)
            };
            if group.total > 0 && group.spread_classes.iter().any(unaware) {
                self.late_domains.entry(group.key.clone()).or_default().insert(domain);
            }
        }
    }

    /// All late domains of this and earlier attempts; `None` if this one had none.
    pub(crate) fn late_domains(&self) -> Option<LateDomains> {
        if self.late_domains.is_empty() {
            return None;
        }
        let mut all = self.known_late_domains.clone();
        for (group, domains) in &self.late_domains {
            all.entry(group.clone()).or_default().extend(domains);
        }
        Some(all)
    }

    /// How many groups a node in this domain would add a domain to.
    pub(crate) fn groups_without_domain(
        &self,
        key_id: TopologyKeyId,
        domain: Domain,
        accepts: impl Fn(&NodeFilter) -> bool,
    ) -> u32 {
        let of_key = self.groups.iter().filter(|group| group.key.key == key_id);
        of_key.filter(|group| !group.has_domain(domain) && group.counts_node(&accepts)).count() as u32
    }

    /// Counts pods of a class on a node, given by its domain per topology key, and by whether it matches a filter.
    pub(crate) fn count(
        &mut self,
        class: usize,
        pods: u32,
        domain: impl Fn(TopologyKeyId) -> Option<Domain>,
        accepts: impl Fn(&NodeFilter) -> bool,
    ) {
        for group in &self.class_constraints[class].counting_groups {
            let group = &mut self.groups[*group as usize];
            if let Some(domain) = domain(group.key.key).filter(|_| group.counts_node(&accepts)) {
                group.add(domain, pods);
            }
        }
    }

    /// Takes back what [`Self::count`] counted in a domain.
    pub(crate) fn uncount(&mut self, class: usize, pods: u32, (key_id, domain): (TopologyKeyId, Domain)) {
        for group in &self.class_constraints[class].counting_groups {
            let group = &mut self.groups[*group as usize];
            if group.key.key == key_id {
                group.remove(domain, pods);
            }
        }
    }

    /// What the groups of a topology key count, for [`Self::set_counts`].
    pub(crate) fn counts(&self, key_id: TopologyKeyId) -> GroupCounts {
        let of_key = self.groups.iter().filter(|group| group.key.key == key_id);
        of_key.map(|group| (group.counts.clone(), group.total)).collect()
    }

    /// Sets what the groups of a topology key count.
    pub(crate) fn set_counts(&mut self, key_id: TopologyKeyId, counts: GroupCounts) {
        let of_key = self.groups.iter_mut().filter(|group| group.key.key == key_id);
        of_key.zip(counts).for_each(|(group, counts)| (group.counts, group.total) = counts);
    }

    /// Filters by which some groups count only part of the nodes.
    pub(crate) fn filters(&self) -> impl Iterator<Item = &Arc<NodeFilter>> {
        self.groups.iter().filter_map(|group| group.key.filter.as_ref())
    }

    /// Renumbers the domains of a topology key; those without a new index are removed.
    pub(crate) fn renumber(&mut self, key_id: TopologyKeyId, number: impl Fn(Domain) -> Option<Domain>) {
        for group in self.groups.iter_mut().filter(|group| group.key.key == key_id) {
            group.renumber(&number);
        }
    }

    pub(crate) fn key_of(&self, group: GroupId) -> TopologyKeyId {
        self.groups[group as usize].key.key
    }

    /// The constraints of required affinity terms. All of them count the same pods, so that terms of one topology key are
    /// one constraint.
    fn required_affinity(&mut self, near: &[PodTerm], existing: &ExistingNodes) -> Vec<TopologyConstraint> {
        let terms: Arc<[PodTerm]> = near.into();
        let mut known = BTreeSet::new();
        let distinct = near.iter().filter(|term| known.insert(&term.topology_key));
        let constraint = |term: &PodTerm| {
            let group = self.group_id(&term.topology_key, CountedPods::ByAllTerms(Arc::clone(&terms)), None, existing);
            TopologyConstraint::Affinity { group, strength: ConstraintStrength::Required }
        };
        distinct.map(constraint).collect()
    }

    /// The topology keys of constraints, each once.
    fn distinct_keys(&self, constraints: &[TopologyConstraint]) -> Vec<TopologyKeyId> {
        let mut known = BTreeSet::new();
        let keys = constraints.iter().map(|constraint| self.key_of(constraint.group()));
        keys.filter(|key| known.insert(*key)).collect()
    }

    fn spread_constraint(&mut self, shape: &PodShape, spread: &Spread, existing: &ExistingNodes) -> TopologyConstraint {
        let counting = CountedPods::BySelector(shape.namespace.clone(), spread.selector.clone());
        // By hostname only the node itself counts, and it matches the pod's filter anyway.
        let filter = (*spread.topology_key != *labels::HOSTNAME).then(|| NodeFilter::for_spread(shape, spread));
        let group = self.group_id(&spread.topology_key, counting, filter.flatten(), existing);
        self.groups[group as usize].spread_classes.push(self.class_constraints.len() as u32);
        let counts_self = spread.selector.satisfied_by(&shape.labels);
        TopologyConstraint::Spread { group, max_skew: spread.max_skew, counts_self, min_domains: spread.min_domains }
    }

    /// The group that counts these pods; a new one counts existing pods, and is linked to the pod classes that it
    /// selects.
    fn group_id(
        &mut self,
        key: &Arc<str>,
        counting: CountedPods,
        filter: Option<NodeFilter>,
        existing: &ExistingNodes,
    ) -> GroupId {
        let topology_key = self.keys.key_id(key);
        let identity = TopologyGroupKey { key: topology_key, counted: counting, filter: filter.map(Arc::new) };
        if let Some(known) = self.group_ids.get(&identity) {
            return *known;
        }
        let number = self.groups.len() as GroupId;
        let group = self.build_group(identity.clone(), existing);
        self.groups.push(group);
        self.groups_by_label.add(identity.counted.selector(), number);
        let classes: Vec<u32> = match identity.counted.selector().single_label() {
            Some(label) => self.classes_by_label.get(&label).cloned().unwrap_or_default(),
            None => (0..self.class_constraints.len() as u32).collect(),
        };
        self.group_ids.insert(identity, number);
        for class in classes {
            self.link(class, number);
        }
        number
    }

    /// A group that counts running pods and those placed so far.
    fn build_group(&mut self, identity: TopologyGroupKey, existing: &ExistingNodes) -> TopologyGroup {
        let topology_key = identity.key;
        let accepts = |labels: &Labels, taints: &[_]| {
            identity.filter.as_deref().is_none_or(|filter| filter.accepts(labels, taints))
        };
        let mut group = TopologyGroup {
            key: identity.clone(),
            counts: Vec::new(),
            total: 0,
            domains: Vec::new(),
            spread_classes: Vec::new(),
        };
        self.known_late_domains.get(&identity).into_iter().flatten().for_each(|domain| group.add_domain(*domain));
        let mut domain_of = |node: &Node| match topology_key {
            _ if !accepts(&node.labels, &node.taints) => None,
            HOSTNAME_KEY => existing.host_domain(&node.name),
            _ => self.keys.domain_of_labels(topology_key, &node.labels),
        };
        let nodes = &self.existing_pods.nodes;
        if topology_key != HOSTNAME_KEY {
            nodes.iter().filter_map(|node| domain_of(node)).for_each(|domain| group.add_domain(domain));
        }
        let mut domains: Vec<Option<Option<Domain>>> = vec![None; nodes.len()];
        let candidates = self.existing_pods.candidates(&identity.counted);
        for (_, pods_per_node) in candidates.filter(|(shape, _)| counts_pod(&self.namespaces, &identity.counted, shape))
        {
            for (node, pods) in pods_per_node {
                let node = *node as usize;
                if let Some(domain) = *domains[node].get_or_insert_with(|| domain_of(&nodes[node])) {
                    group.add(domain, *pods);
                }
            }
        }
        existing.each_placed(identity.filter.as_deref(), |index, placed| {
            let Some(domain) = existing.domain(index, topology_key, &mut self.keys) else { return };
            if topology_key != HOSTNAME_KEY {
                group.add_domain(domain);
            }
            for (class, pods) in placed {
                let own = &self.class_constraints[*class as usize].shape;
                if counts_pod(&self.namespaces, &identity.counted, own) {
                    group.add(domain, *pods);
                }
            }
        });
        group
    }

    /// Links a pod class to a group that may select it.
    fn link(&mut self, class: u32, number: GroupId) {
        let own = Arc::clone(&self.class_constraints[class as usize].shape);
        let counting = &self.groups[number as usize].key.counted;
        if let CountedPods::InverseAntiAffinity(term) = counting {
            if self.term_selects(term, &own) {
                let key = self.key_of(number);
                let links = &mut self.class_constraints[class as usize];
                links
                    .constraints
                    .push(TopologyConstraint::AntiAffinity { group: number, strength: ConstraintStrength::Required });
                if !links.keys.contains(&key) {
                    links.keys.push(key);
                }
            }
        } else if counts_pod(&self.namespaces, counting, &own) {
            self.class_constraints[class as usize].counting_groups.push(number);
        }
    }

    fn term_selects(&self, term: &PodTerm, shape: &PodShape) -> bool {
        term.means(&shape.namespace, self.namespaces.get(&shape.namespace).map(Arc::as_ref), &shape.labels)
    }
}
