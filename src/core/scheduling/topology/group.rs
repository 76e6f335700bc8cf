//! Topology groups: what they count, per domain.

use crate::model::cluster::pod::{Labels, PodShape, PodTerm};
use crate::model::names::Namespace;
use crate::model::requirements::Requirements;
use crate::scheduling::pods::node_filter::NodeFilter;
use crate::scheduling::pods::volume_limits::SharedVolumeId;
use crate::scheduling::topology::domain::{Domain, HOSTNAME_KEY, TopologyKeyId};
use crate::snapshot::Table;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Index of a group.
pub(crate) type GroupId = u32;

/// The pods that a group counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CountedPods {
    /// Pods of a namespace that a spread constraint selects.
    BySelector(Namespace, Requirements),
    /// Pods that match all terms of a pod's affinity, as kube-scheduler counts them.
    ByAllTerms(Arc<[PodTerm]>),
    /// Pods that match an affinity or anti-affinity term.
    ByTerm(PodTerm),
    /// Pods that have this anti-affinity term themselves.
    InverseAntiAffinity(PodTerm),
    /// Pods that share an unprovisioned volume.
    SharingVolume(SharedVolumeId),
}

/// The identity of a group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TopologyGroupKey {
    pub(crate) key: TopologyKeyId,
    pub(crate) counted: CountedPods,
    /// Only pods on matching nodes count, and only their domains.
    pub(crate) filter: Option<Arc<NodeFilter>>,
}

#[derive(Debug)]
pub(crate) struct TopologyGroup {
    pub(crate) key: TopologyGroupKey,
    /// Number of pods, by domain.
    pub(crate) counts: Vec<u32>,
    /// Number of pods in all domains.
    pub(crate) total: u32,
    /// Domains of existing and open nodes, except for hostnames.
    pub(crate) domains: Vec<bool>,
    /// Pod classes that spread over its domains.
    pub(crate) spread_classes: Vec<u32>,
}

/// Groups by a label that their pods must have; groups without such a label are listed separately.
#[derive(Debug, Default)]
pub(crate) struct GroupsByLabel {
    by_label: BTreeMap<(Arc<str>, Arc<str>), Vec<GroupId>>,
    unindexed: Vec<GroupId>,
}

/// True when a group counts pods of a shape.
pub(crate) fn counts_pod(namespaces: &Table<Namespace, Labels>, counting: &CountedPods, shape: &PodShape) -> bool {
    let means =
        |term: &PodTerm| term.means(&shape.namespace, namespaces.get(&shape.namespace).map(Arc::as_ref), &shape.labels);
    match counting {
        CountedPods::BySelector(namespace, selector) => {
            *namespace == shape.namespace && selector.satisfied_by(&shape.labels)
        }
        CountedPods::ByAllTerms(terms) => terms.iter().all(means),
        CountedPods::ByTerm(term) => means(term),
        CountedPods::InverseAntiAffinity(term) => {
            shape.affinity.as_ref().is_some_and(|affinity| affinity.apart.contains(term))
        }
        // This does not depend on the shape.
        CountedPods::SharingVolume(_) => false,
    }
}

impl CountedPods {
    /// Labels of the pods that it counts or, for inverse anti-affinity, of those they exclude.
    pub(crate) fn selector(&self) -> &Requirements {
        static ALL: Requirements = Requirements::ALL;
        match self {
            Self::BySelector(_, selector) => selector,
            Self::ByAllTerms(terms) => terms.first().map_or(&ALL, |term| &term.selector),
            Self::ByTerm(term) | Self::InverseAntiAffinity(term) => &term.selector,
            Self::SharingVolume(_) => &ALL,
        }
    }
}

impl GroupsByLabel {
    pub(crate) fn add(&mut self, selector: &Requirements, group: GroupId) {
        match selector.single_label() {
            Some(label) => self.by_label.entry(label).or_default().push(group),
            None => self.unindexed.push(group),
        }
    }

    /// Groups that may count pods with these labels.
    pub(crate) fn matching(&self, labels: &Labels) -> Vec<GroupId> {
        let mut found = self.unindexed.clone();
        for (key, value) in labels {
            found.extend(self.by_label.get(&(Arc::clone(key), Arc::clone(value))).into_iter().flatten());
        }
        found
    }
}

impl TopologyGroup {
    /// True when pods on a node count; `accepts` says which filters the node matches.
    pub(crate) fn counts_node(&self, accepts: impl Fn(&NodeFilter) -> bool) -> bool {
        self.key.filter.as_deref().is_none_or(accepts)
    }

    /// True when a node is, or will be, in a domain.
    pub(crate) fn has_domain(&self, domain: Domain) -> bool {
        self.domains.get(domain as usize).is_some_and(|exists| *exists)
    }

    pub(crate) fn count(&self, domain: Domain) -> u32 {
        self.counts.get(domain as usize).copied().unwrap_or(0)
    }

    pub(crate) fn add(&mut self, domain: Domain, pods: u32) {
        let domain = domain as usize;
        if self.counts.len() <= domain {
            self.counts.resize(domain + 1, 0);
        }
        self.counts[domain] += pods;
        self.total += pods;
    }

    pub(crate) fn remove(&mut self, domain: Domain, pods: u32) {
        if let Some(count) = self.counts.get_mut(domain as usize) {
            *count = count.saturating_sub(pods);
            self.total = self.total.saturating_sub(pods);
        }
    }

    /// Renumbers the domains; those without a new index are removed.
    pub(crate) fn renumber(&mut self, number: impl Fn(Domain) -> Option<Domain>) {
        let counts = std::mem::take(&mut self.counts);
        self.total = 0;
        for (domain, pods) in counts.into_iter().enumerate().filter(|(_, pods)| *pods > 0) {
            if let Some(domain) = number(domain as Domain) {
                self.add(domain, pods);
            }
        }
    }

    pub(crate) fn add_domain(&mut self, domain: Domain) {
        let domain = domain as usize;
        if self.domains.len() <= domain {
            self.domains.resize(domain + 1, false);
        }
        self.domains[domain] = true;
    }

    /// Pods in the emptiest domain. A new host is always empty.
    pub(crate) fn min_count(&self, offered: impl Iterator<Item = Domain>, min_domains: u32) -> u32 {
        if self.key.key == HOSTNAME_KEY {
            return 0;
        }
        let existing =
            self.domains.iter().enumerate().filter(|(_, exists)| **exists).map(|(domain, _)| domain as Domain);
        let additional = offered.filter(|domain| !self.has_domain(*domain));
        let (mut least, mut domains) = (u32::MAX, 0);
        for domain in existing.chain(additional) {
            least = least.min(self.count(domain));
            domains += 1;
        }
        if domains < min_domains || domains == 0 { 0 } else { least }
    }
}
