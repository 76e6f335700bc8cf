//! Topology: how many pods are in each domain that others want to be near to, apart from or even with?
//!
//! What is counted is a group: an axis, and what it counts there. Equal constraints of different pods share one group.
//! Constraints become [`Ask`]s on groups, and a pod that is placed counts in the groups that mean it. The semantics are
//! kube-scheduler's (plugins PodTopologySpread and InterPodAffinity).

use super::asks::{Ask, Degree, Links};
use super::axes::{Axes, AxisId, Domain, HOST};
use super::bins::Bins;
use super::candidates::MOST_ZONES;
use super::filter::NodeFilter;
use super::ground::Ground;
use super::group::{ByLabel, Counting, Group, GroupId, Identity, counts, exact};
use super::volumes::SharedId;
use crate::model::cluster::pod::{Labels, PodShape, PodTerm, Spread};
use crate::model::labels;
use crate::model::names::Namespace;
use crate::snapshot::Table;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All groups, and how kinds of pods are tied to them. Kinds are numbered by who calls.
#[derive(Debug)]
pub(super) struct Topology {
    pub(super) axes: Axes,
    pub(super) groups: Vec<Group>,
    numbers: BTreeMap<Identity, GroupId>,
    pub(super) links: Vec<Links>,
    ground: Ground,
    /// Labels of namespaces, for terms that select by them.
    namespaces: Table<Namespace, Labels>,
    /// Groups and kinds by a label that must be there: most pairs need not be looked at.
    groups_by_label: ByLabel,
    kinds_by_label: BTreeMap<(Arc<str>, Arc<str>), Vec<u32>>,
    /// Domains that an earlier attempt came upon, and those that this one did.
    foreseen: Surprises,
    surprises: Surprises,
}

/// Domains that came up after pods had been placed as if they were not there: a plan in which they break what was even
/// before. Whoever plans again knows of them.
pub(super) type Surprises = BTreeMap<Identity, BTreeSet<Domain>>;

impl Topology {
    /// The terms of pods that run keep others away from the beginning.
    pub(super) fn new(
        axes: Axes,
        ground: Ground,
        namespaces: Table<Namespace, Labels>,
        bins: &Bins,
        foreseen: Surprises,
    ) -> Self {
        let mut topology = Self {
            axes,
            foreseen,
            surprises: Surprises::new(),
            groups: Vec::new(),
            numbers: BTreeMap::new(),
            links: Vec::new(),
            ground,
            namespaces,
            groups_by_label: ByLabel::default(),
            kinds_by_label: BTreeMap::new(),
        };
        let shapes: Vec<Arc<PodShape>> = topology.ground.pods.iter().map(|(shape, _)| Arc::clone(shape)).collect();
        for term in shapes.iter().filter_map(|shape| shape.affinity.as_ref()).flat_map(|affinity| &affinity.apart) {
            topology.group(&term.topology_key, Counting::Owners(term.clone()), None, bins);
        }
        topology
    }

    /// Ties the next kind of pods to the groups: `shape` with what is asked for, of pods that are `own` and that share
    /// volumes which are still `to_be_made`.
    pub(super) fn learn(&mut self, shape: &PodShape, own: &Arc<PodShape>, (to_be_made, bins): (&[SharedId], &Bins)) {
        let kind = self.links.len() as u32;
        let (mut asks, mut counted) = (Vec::new(), Vec::new());
        for spread in &shape.spread {
            asks.push(self.even(own, spread, bins));
        }
        let affinity = shape.affinity.as_deref();
        // What is preferred stands behind what is required.
        let required = own.affinity.as_deref().map_or((0, 0), |own| (own.near.len(), own.apart.len()));
        let all = affinity.map(|affinity| affinity.near.as_slice()).unwrap_or_default();
        let (near, preferred) = all.split_at(required.0.min(all.len()));
        for term in near {
            let group = self.group(&term.topology_key, Counting::MeantByAll(near.to_vec()), None, bins);
            asks.push(Ask::Near { group, want: Degree::Required });
        }
        for term in preferred {
            let group = self.group(&term.topology_key, Counting::Meant(term.clone()), None, bins);
            asks.push(Ask::Near { group, want: Degree::Preferred { itself: self.means(term, own) } });
        }
        for (n, term) in affinity.into_iter().flat_map(|affinity| &affinity.apart).enumerate() {
            let group = self.group(&term.topology_key, Counting::Meant(term.clone()), None, bins);
            let itself = self.means(term, own);
            let want = if n < required.1 { Degree::Required } else { Degree::Preferred { itself } };
            asks.push(Ask::Apart { group, want });
        }
        for term in own.affinity.iter().flat_map(|affinity| &affinity.apart) {
            counted.push(self.group(&term.topology_key, Counting::Owners(term.clone()), None, bins));
        }
        for shared in to_be_made {
            // Such a volume is made in the zone of the first that has it; it is not asked for by any other.
            let group = self.group(&labels::interned(labels::ZONE), Counting::Sharing(*shared), None, bins);
            asks.push(Ask::Near { group, want: Degree::Shared });
            counted.push(group);
        }
        let near_itself = near.iter().all(|term| self.means(term, own));
        self.links.push(Links { own: Arc::clone(own), asks, counted, near_itself, offered: BTreeMap::new() });
        for label in &own.labels {
            self.kinds_by_label.entry((Arc::clone(label.0), Arc::clone(label.1))).or_default().push(kind);
        }
        for group in self.groups_by_label.of(&own.labels) {
            self.tie(kind, group);
        }
    }

    /// A node will be there that was not: its domain counts for those whose filters let it through.
    pub(super) fn see(&mut self, axis: AxisId, domain: Domain, accepts: impl Fn(&NodeFilter) -> bool) {
        let is_news = |group: &Group| group.identity.axis == axis && !group.knows(domain) && group.takes(&accepts);
        let news: Vec<usize> = (0..self.groups.len()).filter(|number| is_news(&self.groups[*number])).collect();
        for number in news {
            self.groups[number].see(domain);
            let group = &self.groups[number];
            // Kinds that are still to be placed will reckon with it.
            let unaware = |kind: &u32| {
                let links = &self.links[*kind as usize];
                links.offered.contains_key(&axis) && self.open_to(links, axis).all(|open| open != domain)
            };
            if group.total > 0 && group.even.iter().any(unaware) {
                self.surprises.entry(group.identity.clone()).or_default().insert(domain);
            }
        }
    }

    /// Domains that came up too late, together with those that were foreseen; none if there was none.
    pub(super) fn surprises(&self) -> Option<Surprises> {
        if self.surprises.is_empty() {
            return None;
        }
        let mut all = self.foreseen.clone();
        for (group, domains) in &self.surprises {
            all.entry(group.clone()).or_default().extend(domains);
        }
        Some(all)
    }

    /// How many groups would see a domain for the first time if such a node were there.
    pub(super) fn would_be_new(&self, axis: AxisId, domain: Domain, accepts: impl Fn(&NodeFilter) -> bool) -> u32 {
        let on_axis = self.groups.iter().filter(|group| group.identity.axis == axis);
        on_axis.filter(|group| !group.knows(domain) && group.takes(&accepts)).count() as u32
    }

    /// Counts pods of a kind that go to a place: its domain on each axis, and whether a filter lets its node through.
    pub(super) fn count(
        &mut self,
        kind: usize,
        pods: u32,
        domain: impl Fn(AxisId) -> Option<Domain>,
        accepts: impl Fn(&NodeFilter) -> bool,
    ) {
        for group in &self.links[kind].counted {
            let group = &mut self.groups[*group as usize];
            if let Some(domain) = domain(group.identity.axis).filter(|_| group.takes(&accepts)) {
                group.add(domain, pods);
            }
        }
    }

    /// Filters by which some groups count only part of the nodes.
    pub(super) fn filters(&self) -> impl Iterator<Item = &Arc<NodeFilter>> {
        self.groups.iter().filter_map(|group| group.identity.filter.as_ref())
    }

    /// Gives the domains of an axis other numbers; those that get none are gone.
    pub(super) fn renumber(&mut self, axis: AxisId, number: impl Fn(Domain) -> Option<Domain>) {
        for group in self.groups.iter_mut().filter(|group| group.identity.axis == axis) {
            group.renumber(&number);
        }
    }

    pub(super) fn axis_of(&self, group: GroupId) -> AxisId {
        self.groups[group as usize].identity.axis
    }

    fn even(&mut self, shape: &PodShape, spread: &Spread, bins: &Bins) -> Ask {
        let counting = Counting::Selected(shape.namespace.clone(), spread.selector.clone());
        // On one host nothing but that host counts, and whoever may go there is let through.
        let filter = (*spread.topology_key != *labels::HOSTNAME).then(|| NodeFilter::counted(shape, spread));
        let group = self.group(&spread.topology_key, counting, filter.flatten(), bins);
        self.groups[group as usize].even.push(self.links.len() as u32);
        let itself = spread.selector.satisfied_by(&shape.labels);
        Ask::Even { group, skew: spread.max_skew, itself, min_domains: spread.min_domains }
    }

    /// The group that counts this; a new one is counted among what runs, and tied to the kinds that it means.
    fn group(&mut self, key: &Arc<str>, counting: Counting, filter: Option<NodeFilter>, bins: &Bins) -> GroupId {
        let axis = self.axes.axis(key);
        let identity = Identity { axis, counting, filter: filter.map(Arc::new) };
        if let Some(known) = self.numbers.get(&identity) {
            return *known;
        }
        let number = self.groups.len() as GroupId;
        let group = self.counted(identity.clone(), bins);
        self.groups.push(group);
        self.groups_by_label.add(identity.counting.selector(), number);
        let kinds: Vec<u32> = match identity.counting.selector().iter().find_map(exact) {
            Some(label) => self.kinds_by_label.get(&label).cloned().unwrap_or_default(),
            None => (0..self.links.len() as u32).collect(),
        };
        self.numbers.insert(identity, number);
        for kind in kinds {
            self.tie(kind, number);
        }
        number
    }

    /// A group with what runs, and with what has been placed so far.
    fn counted(&mut self, identity: Identity, bins: &Bins) -> Group {
        let axis = identity.axis;
        let accepts = |labels: &Labels, taints: &[_]| {
            identity.filter.as_deref().is_none_or(|filter| filter.accepts(labels, taints))
        };
        let mut group =
            Group { identity: identity.clone(), counts: Vec::new(), total: 0, domains: Vec::new(), even: Vec::new() };
        self.foreseen.get(&identity).into_iter().flatten().for_each(|domain| group.see(*domain));
        let domains: Vec<Option<Domain>> = self
            .ground
            .nodes
            .iter()
            .map(|node| match axis {
                _ if !accepts(&node.labels, &node.taints) => None,
                HOST => bins.site_of(&node.name),
                _ => self.axes.of_labels(axis, &node.labels),
            })
            .collect();
        if axis != HOST {
            domains.iter().flatten().for_each(|domain| group.see(*domain));
        }
        for (_, places) in
            self.ground.pods.iter().filter(|(shape, _)| counts(&self.namespaces, &identity.counting, shape))
        {
            for (place, pods) in places {
                if let Some(domain) = domains[*place as usize] {
                    group.add(domain, *pods);
                }
            }
        }
        bins.each_placed(identity.filter.as_deref(), |site, placed| {
            let Some(domain) = bins.domain(site, axis, &mut self.axes) else { return };
            if axis != HOST {
                group.see(domain);
            }
            for (kind, pods) in placed {
                let own = &self.links[*kind as usize].own;
                if counts(&self.namespaces, &identity.counting, own) {
                    group.add(domain, *pods);
                }
            }
        });
        group
    }

    /// Ties a kind to a group that may mean it.
    fn tie(&mut self, kind: u32, number: GroupId) {
        let own = Arc::clone(&self.links[kind as usize].own);
        let counting = &self.groups[number as usize].identity.counting;
        if let Counting::Owners(term) = counting {
            if self.means(term, &own) {
                self.links[kind as usize].asks.push(Ask::Apart { group: number, want: Degree::Required });
            }
        } else if counts(&self.namespaces, counting, &own) {
            self.links[kind as usize].counted.push(number);
        }
    }

    fn means(&self, term: &PodTerm, shape: &PodShape) -> bool {
        term.means(&shape.namespace, self.namespaces.get(&shape.namespace).map(Arc::as_ref), &shape.labels)
    }
}

/// The domains of a mask of zones.
pub(super) fn zones(mask: u32) -> impl Iterator<Item = Domain> + Clone {
    (0..MOST_ZONES as u32).filter(move |bit| mask & (1 << bit) != 0)
}

/// A zone's bit; none where there are too many zones.
pub(super) fn bit(zone: Option<Domain>) -> u32 {
    zone.filter(|zone| *zone < MOST_ZONES as u32).map_or(0, |zone| 1 << zone)
}
