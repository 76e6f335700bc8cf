//! Topology spread, pod affinity and anti-affinity, as kube-scheduler counts them.
//!
//! What is counted is a group: a topology key, and what it counts there. Equal constraints of different pods share one
//! group. Constraints become [`TopologyConstraint`]s on groups, and a pod that is placed counts in the groups that mean
//! it. The semantics are kube-scheduler's (plugins PodTopologySpread and InterPodAffinity).

pub(crate) mod constraint;
pub(crate) mod domain;
pub(crate) mod existing_pods;
pub(crate) mod group;
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
    CountedPods, GroupId, GroupsByLabel, TopologyGroup, TopologyGroupKey, counts_pod, single_label,
};
use crate::snapshot::Table;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All groups, and how pod classes are tied to them. Classes are numbered by who calls.
#[derive(Debug)]
pub(crate) struct Topology {
    pub(crate) keys: TopologyKeys,
    pub(crate) groups: Vec<TopologyGroup>,
    group_ids: BTreeMap<TopologyGroupKey, GroupId>,
    pub(crate) class_constraints: Vec<ClassConstraints>,
    existing_pods: ExistingPods,
    /// Labels of namespaces, for terms that select by them.
    namespaces: Table<Namespace, Labels>,
    /// Groups and classes by a label that must be there: most pairs need not be looked at.
    groups_by_label: GroupsByLabel,
    classes_by_label: BTreeMap<(Arc<str>, Arc<str>), Vec<u32>>,
    /// Domains that an earlier attempt came upon, and those that this one did.
    known_late_domains: LateDomains,
    late_domains: LateDomains,
}

/// Domains that came up after pods had been placed as if they were not there: a plan in which they break what was even
/// before. Whoever plans again knows of them.
pub(crate) type LateDomains = BTreeMap<TopologyGroupKey, BTreeSet<Domain>>;

impl Topology {
    /// The terms of pods that run keep others away from the beginning.
    pub(crate) fn new(
        keys: TopologyKeys,
        existing_pods: ExistingPods,
        namespaces: Table<Namespace, Labels>,
        existing: &ExistingNodes,
        late_domains: LateDomains,
    ) -> Self {
        let mut topology = Self {
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
        };
        let shapes: Vec<Arc<PodShape>> =
            topology.existing_pods.pods.iter().map(|(shape, _)| Arc::clone(shape)).collect();
        for term in shapes.iter().filter_map(|shape| shape.affinity.as_ref()).flat_map(|affinity| &affinity.apart) {
            topology.group_id(&term.topology_key, CountedPods::InverseAntiAffinity(term.clone()), None, existing);
        }
        topology
    }

    /// Ties the next pod class to the groups: `shape` with what is asked for, of pods that are `own` and that share
    /// volumes which are still `to_be_made`.
    pub(crate) fn register_class(
        &mut self,
        shape: &PodShape,
        own: &Arc<PodShape>,
        (to_be_made, existing): (&[SharedVolumeId], &ExistingNodes),
    ) {
        let class = self.class_constraints.len() as u32;
        let (mut asks, mut counted) = (Vec::new(), Vec::new());
        for spread in &shape.spread {
            asks.push(self.spread_constraint(own, spread, existing));
        }
        let affinity = shape.affinity.as_deref();
        // What is preferred stands behind what is required.
        let required = own.affinity.as_deref().map_or((0, 0), |own| (own.near.len(), own.apart.len()));
        let all = affinity.map(|affinity| affinity.near.as_slice()).unwrap_or_default();
        let (near, preferred) = all.split_at(required.0.min(all.len()));
        for term in near {
            let group = self.group_id(&term.topology_key, CountedPods::ByAllTerms(near.to_vec()), None, existing);
            asks.push(TopologyConstraint::Affinity { group, strength: ConstraintStrength::Required });
        }
        for term in preferred {
            let group = self.group_id(&term.topology_key, CountedPods::ByTerm(term.clone()), None, existing);
            asks.push(TopologyConstraint::Affinity {
                group,
                strength: ConstraintStrength::Preferred { counts_self: self.term_selects(term, own) },
            });
        }
        for (n, term) in affinity.into_iter().flat_map(|affinity| &affinity.apart).enumerate() {
            let group = self.group_id(&term.topology_key, CountedPods::ByTerm(term.clone()), None, existing);
            let itself = self.term_selects(term, own);
            let want = if n < required.1 {
                ConstraintStrength::Required
            } else {
                ConstraintStrength::Preferred { counts_self: itself }
            };
            asks.push(TopologyConstraint::AntiAffinity { group, strength: want });
        }
        for term in own.affinity.iter().flat_map(|affinity| &affinity.apart) {
            counted.push(self.group_id(
                &term.topology_key,
                CountedPods::InverseAntiAffinity(term.clone()),
                None,
                existing,
            ));
        }
        for shared in to_be_made {
            // Such a volume is made in the zone of the first that has it; it is not asked for by any other.
            let group =
                self.group_id(&labels::interned(labels::ZONE), CountedPods::SharingVolume(*shared), None, existing);
            asks.push(TopologyConstraint::Affinity { group, strength: ConstraintStrength::SharedVolume });
            counted.push(group);
        }
        let near_itself = near.iter().all(|term| self.term_selects(term, own));
        self.class_constraints.push(ClassConstraints {
            shape: Arc::clone(own),
            constraints: asks,
            counting_groups: counted,
            affinity_selects_self: near_itself,
            new_node_domains: BTreeMap::new(),
        });
        for label in &own.labels {
            self.classes_by_label.entry((Arc::clone(label.0), Arc::clone(label.1))).or_default().push(class);
        }
        for group in self.groups_by_label.matching(&own.labels) {
            self.link(class, group);
        }
    }

    /// A node will be there that was not: its domain counts for those whose filters let it through.
    pub(crate) fn add_domain(&mut self, key_id: TopologyKeyId, domain: Domain, accepts: impl Fn(&NodeFilter) -> bool) {
        let is_news =
            |group: &TopologyGroup| group.key.key == key_id && !group.has_domain(domain) && group.counts_node(&accepts);
        let news: Vec<usize> = (0..self.groups.len()).filter(|number| is_news(&self.groups[*number])).collect();
        for number in news {
            self.groups[number].add_domain(domain);
            let group = &self.groups[number];
            // Pod classes that are still to be placed will reckon with it.
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

    /// Domains that came up too late, together with those that were foreseen; none if there was none.
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

    /// How many groups would see a domain for the first time if such a node were there.
    pub(crate) fn groups_without_domain(
        &self,
        key_id: TopologyKeyId,
        domain: Domain,
        accepts: impl Fn(&NodeFilter) -> bool,
    ) -> u32 {
        let on_axis = self.groups.iter().filter(|group| group.key.key == key_id);
        on_axis.filter(|group| !group.has_domain(domain) && group.counts_node(&accepts)).count() as u32
    }

    /// Counts pods of a class that go to a place: its domain on each topology key, and whether a filter lets its node
    /// through.
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

    /// Filters by which some groups count only part of the nodes.
    pub(crate) fn filters(&self) -> impl Iterator<Item = &Arc<NodeFilter>> {
        self.groups.iter().filter_map(|group| group.key.filter.as_ref())
    }

    /// Gives the domains of a topology key other numbers; those that get none are gone.
    pub(crate) fn renumber(&mut self, key_id: TopologyKeyId, number: impl Fn(Domain) -> Option<Domain>) {
        for group in self.groups.iter_mut().filter(|group| group.key.key == key_id) {
            group.renumber(&number);
        }
    }

    pub(crate) fn key_of(&self, group: GroupId) -> TopologyKeyId {
        self.groups[group as usize].key.key
    }

    fn spread_constraint(&mut self, shape: &PodShape, spread: &Spread, existing: &ExistingNodes) -> TopologyConstraint {
        let counting = CountedPods::BySelector(shape.namespace.clone(), spread.selector.clone());
        // On one host nothing but that host counts, and whoever may go there is let through.
        let filter = (*spread.topology_key != *labels::HOSTNAME).then(|| NodeFilter::for_spread(shape, spread));
        let group = self.group_id(&spread.topology_key, counting, filter.flatten(), existing);
        self.groups[group as usize].spread_classes.push(self.class_constraints.len() as u32);
        let itself = spread.selector.satisfied_by(&shape.labels);
        TopologyConstraint::Spread {
            group,
            max_skew: spread.max_skew,
            counts_self: itself,
            min_domains: spread.min_domains,
        }
    }

    /// The group that counts this; a new one is counted among what runs, and tied to the pod classes that it means.
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
        let classes: Vec<u32> = match identity.counted.selector().iter().find_map(single_label) {
            Some(label) => self.classes_by_label.get(&label).cloned().unwrap_or_default(),
            None => (0..self.class_constraints.len() as u32).collect(),
        };
        self.group_ids.insert(identity, number);
        for class in classes {
            self.link(class, number);
        }
        number
    }

    /// A group with what runs, and with what has been placed so far.
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
        let domains: Vec<Option<Domain>> = self
            .existing_pods
            .nodes
            .iter()
            .map(|node| match topology_key {
                _ if !accepts(&node.labels, &node.taints) => None,
                HOSTNAME_KEY => existing.host_domain(&node.name),
                _ => self.keys.domain_of_labels(topology_key, &node.labels),
            })
            .collect();
        if topology_key != HOSTNAME_KEY {
            domains.iter().flatten().for_each(|domain| group.add_domain(*domain));
        }
        for (_, places) in
            self.existing_pods.pods.iter().filter(|(shape, _)| counts_pod(&self.namespaces, &identity.counted, shape))
        {
            for (place, pods) in places {
                if let Some(domain) = domains[*place as usize] {
                    group.add(domain, *pods);
                }
            }
        }
        existing.each_placed(identity.filter.as_deref(), |site, placed| {
            let Some(domain) = existing.domain(site, topology_key, &mut self.keys) else { return };
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

    /// Ties a pod class to a group that may mean it.
    fn link(&mut self, class: u32, number: GroupId) {
        let own = Arc::clone(&self.class_constraints[class as usize].shape);
        let counting = &self.groups[number as usize].key.counted;
        if let CountedPods::InverseAntiAffinity(term) = counting {
            if self.term_selects(term, &own) {
                self.class_constraints[class as usize]
                    .constraints
                    .push(TopologyConstraint::AntiAffinity { group: number, strength: ConstraintStrength::Required });
            }
        } else if counts_pod(&self.namespaces, counting, &own) {
            self.class_constraints[class as usize].counting_groups.push(number);
        }
    }

    fn term_selects(&self, term: &PodTerm, shape: &PodShape) -> bool {
        term.means(&shape.namespace, self.namespaces.get(&shape.namespace).map(Arc::as_ref), &shape.labels)
    }
}
