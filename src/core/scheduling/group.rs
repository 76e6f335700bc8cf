//! Groups: what is counted for topology constraints, and how many of it is where?

use super::axes::{AxisId, Domain, HOST};
use super::filter::NodeFilter;
use super::volumes::SharedId;
use crate::model::cluster::pod::{Labels, PodShape, PodTerm};
use crate::model::names::Namespace;
use crate::model::requirements::Requirements;
use crate::snapshot::Table;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Number of a group.
pub(super) type GroupId = u32;

/// What a group counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Counting {
    /// Pods of a namespace that a spread constraint selects.
    Selected(Namespace, Requirements),
    /// Pods that all terms of a pod's affinity mean, as kube-scheduler counts them.
    MeantByAll(Vec<PodTerm>),
    /// Pods that a term of anti-affinity means.
    Meant(PodTerm),
    /// Pods that have this term of anti-affinity themselves.
    Owners(PodTerm),
    /// Pods that have a volume which is still to be made, whatever they are.
    Sharing(SharedId),
}

/// What tells one group from another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    pub(super) axis: AxisId,
    pub(super) counting: Counting,
    /// Only pods on such nodes count, and only their domains.
    pub(super) filter: Option<Arc<NodeFilter>>,
}

#[derive(Debug)]
pub(super) struct Group {
    pub(super) identity: Identity,
    /// By domain.
    pub(super) counts: Vec<u32>,
    /// In all domains.
    pub(super) total: u32,
    /// Domains of nodes that exist or are being made, but for hosts.
    pub(super) domains: Vec<bool>,
    /// Kinds that are to be even over its domains.
    pub(super) even: Vec<u32>,
}

/// Groups by a label that their pods must have; those that ask for no single one stand by themselves.
#[derive(Debug, Default)]
pub(super) struct ByLabel {
    by: BTreeMap<(Arc<str>, Arc<str>), Vec<GroupId>>,
    rest: Vec<GroupId>,
}

/// True when a group of this sort counts pods of a shape.
pub(super) fn counts(namespaces: &Table<Namespace, Labels>, counting: &Counting, shape: &PodShape) -> bool {
    let means =
        |term: &PodTerm| term.means(&shape.namespace, namespaces.get(&shape.namespace).map(Arc::as_ref), &shape.labels);
    match counting {
        Counting::Selected(namespace, selector) => {
            *namespace == shape.namespace && selector.satisfied_by(&shape.labels)
        }
        Counting::MeantByAll(terms) => terms.iter().all(means),
        Counting::Meant(term) => means(term),
        Counting::Owners(term) => shape.affinity.as_ref().is_some_and(|affinity| affinity.apart.contains(term)),
        // A shape does not tell.
        Counting::Sharing(_) => false,
    }
}

impl Counting {
    /// Labels that the pods have that it counts or, for owners, that they keep away.
    pub(super) fn selector(&self) -> &Requirements {
        static ALL: Requirements = Requirements::ALL;
        match self {
            Self::Selected(_, selector) => selector,
            Self::MeantByAll(terms) => terms.first().map_or(&ALL, |term| &term.selector),
            Self::Meant(term) | Self::Owners(term) => &term.selector,
            Self::Sharing(_) => &ALL,
        }
    }
}

/// The label that a requirement allows and nothing else.
pub(super) fn exact(
    (key, asked): (&Arc<str>, &crate::model::requirements::Requirement),
) -> Option<(Arc<str>, Arc<str>)> {
    Some((Arc::clone(key), Arc::clone(asked.single()?)))
}

impl ByLabel {
    pub(super) fn add(&mut self, selector: &Requirements, group: GroupId) {
        match selector.iter().find_map(exact) {
            Some(label) => self.by.entry(label).or_default().push(group),
            None => self.rest.push(group),
        }
    }

    /// Groups that may mean pods with these labels.
    pub(super) fn of(&self, labels: &Labels) -> Vec<GroupId> {
        let mut found = self.rest.clone();
        for (key, value) in labels {
            found.extend(self.by.get(&(Arc::clone(key), Arc::clone(value))).into_iter().flatten());
        }
        found
    }
}

impl Group {
    /// True when pods on a node count, of which it is said which filters let it through.
    pub(super) fn takes(&self, accepts: impl Fn(&NodeFilter) -> bool) -> bool {
        self.identity.filter.as_deref().is_none_or(accepts)
    }

    /// True when a node is, or will be, in a domain.
    pub(super) fn knows(&self, domain: Domain) -> bool {
        self.domains.get(domain as usize).is_some_and(|there| *there)
    }

    pub(super) fn at(&self, domain: Domain) -> u32 {
        self.counts.get(domain as usize).copied().unwrap_or(0)
    }

    pub(super) fn add(&mut self, domain: Domain, pods: u32) {
        let domain = domain as usize;
        if self.counts.len() <= domain {
            self.counts.resize(domain + 1, 0);
        }
        self.counts[domain] += pods;
        self.total += pods;
    }

    /// Gives the domains other numbers; those that get none are gone.
    pub(super) fn renumber(&mut self, number: impl Fn(Domain) -> Option<Domain>) {
        let counts = std::mem::take(&mut self.counts);
        self.total = 0;
        for (domain, pods) in counts.into_iter().enumerate().filter(|(_, pods)| *pods > 0) {
            if let Some(domain) = number(domain as Domain) {
                self.add(domain, pods);
            }
        }
    }

    pub(super) fn see(&mut self, domain: Domain) {
        let domain = domain as usize;
        if self.domains.len() <= domain {
            self.domains.resize(domain + 1, false);
        }
        self.domains[domain] = true;
    }

    /// Pods in the emptiest domain. A new host is always empty.
    pub(super) fn least(&self, offered: impl Iterator<Item = Domain>, min_domains: u32) -> u32 {
        if self.identity.axis == HOST {
            return 0;
        }
        let seen = self.domains.iter().enumerate().filter(|(_, there)| **there).map(|(domain, _)| domain as Domain);
        let more = offered.filter(|domain| !self.knows(*domain));
        let (mut least, mut number) = (u32::MAX, 0);
        for domain in seen.chain(more) {
            least = least.min(self.at(domain));
            number += 1;
        }
        if number < min_domains || number == 0 { 0 } else { least }
    }
}
