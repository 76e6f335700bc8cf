//! A view: which nodes may one class of pods use, and which of them is the best for the next pod?

use super::book::{Book, Entry, Slot};
use super::neighbours::Neighbours;
use super::who::Who;
use crate::cluster::volumes::Reach;
use napkeeper_core::model::cluster::pod::{PodShape, Spread};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The nodes that a class of pods may use in one pass. Nodes do not change during a pass; what is free on them does.
#[derive(Debug)]
pub(in crate::cluster) struct View {
    /// Nodes that have every topology key and that are open, or count for some spread constraint.
    nodes: Vec<Candidate>,
    spreads: Vec<Domains>,
    neighbours: Neighbours,
}

/// What the pods of a class ask for.
#[derive(Debug, Clone, Copy)]
pub(in crate::cluster) struct Asks<'a> {
    pub(in crate::cluster) shape: &'a PodShape,
    /// The groups of its spread constraints, in their order.
    pub(in crate::cluster) spread_groups: &'a [usize],
    pub(in crate::cluster) neighbours: &'a Neighbours,
    pub(in crate::cluster) volumes: &'a Reach,
}

#[derive(Debug)]
struct Candidate {
    slot: Slot,
    /// Accepted, ready, tolerated, and in reach of the pod's volumes.
    open: bool,
    /// The domain in each spread constraint, and whether the node's pods count there.
    domains: Vec<(usize, bool)>,
}

#[derive(Debug)]
struct Domains {
    group: usize,
    max_skew: i64,
    min_domains: usize,
    honors_affinity: bool,
    honors_taints: bool,
    /// 1 when the pod itself counts, else 0.
    own: i64,
    ids: BTreeMap<Arc<str>, usize>,
}

impl View {
    /// Looks at all nodes, or only at some when the others are known to have no room.
    pub(in crate::cluster) fn new(asks: Asks<'_>, book: &Book, only: Option<&BTreeSet<Slot>>) -> Self {
        let spreads = asks.shape.spread.iter().zip(asks.spread_groups);
        let spreads = spreads.map(|(spread, group)| Domains::of(asks.shape, spread, *group)).collect();
        let mut view = Self { nodes: Vec::new(), spreads, neighbours: asks.neighbours.clone() };
        match only {
            Some(only) => only.iter().for_each(|slot| view.look_at(*slot, asks, book)),
            None => book.entries().for_each(|(slot, _)| view.look_at(slot, asks, book)),
        }
        view
    }

    fn look_at(&mut self, slot: Slot, Asks { shape, volumes, .. }: Asks<'_>, book: &Book) {
        let Some(entry) = book.entry(slot) else {
            return;
        };
        let accepted = shape.accepts_labels(&entry.node.labels);
        if !accepted && self.spreads.iter().all(|s| s.honors_affinity) {
            return;
        }
        let tolerated = shape.untolerated(&entry.node.taints).is_none();
        let open = accepted && entry.is_open() && tolerated && volumes.holds(&entry.node.labels);
        let values: Option<Vec<&Arc<str>>> =
            shape.spread.iter().map(|s| entry.node.labels.get(&s.topology_key)).collect();
        // A node that is closed matters only as a domain.
        let Some(values) = values.filter(|_| open || !self.spreads.is_empty()) else {
            return;
        };
        // A node that is not ready, or cordoned, has a taint of Kubernetes' own.
        let tolerated = tolerated && entry.node.ready && !entry.node.cordoned;
        let domains = self
            .spreads
            .iter_mut()
            .zip(values)
            .map(|(spread, value)| {
                let next = spread.ids.len();
                let counts = (accepted || !spread.honors_affinity) && (tolerated || !spread.honors_taints);
                (*spread.ids.entry(Arc::clone(value)).or_insert(next), counts)
            })
            .collect();
        self.nodes.push(Candidate { slot, open, domains });
    }

    /// The node for the next pod: of those with room that keep every skew, the one with the highest score; among
    /// equals the first by name.
    pub(in crate::cluster) fn best(&self, shape: &PodShape, book: &Book) -> Option<Slot> {
        self.feasible(shape, book)
            .max_by_key(|(_, entry)| (entry.score(&shape.requests), Reverse(&entry.node.name)))
            .map(|(slot, _)| slot)
    }

    /// The first node by number with room that keeps every skew, of those that `among` holds.
    pub(in crate::cluster) fn first(
        &self,
        shape: &PodShape,
        book: &Book,
        among: impl Fn(Slot) -> bool,
    ) -> Option<Slot> {
        self.feasible(shape, book).map(|(slot, _)| slot).find(|slot| among(*slot))
    }

    /// The nodes with room and free ports that keep every skew, next to such pods as may be there.
    fn feasible<'v>(&'v self, shape: &'v PodShape, book: &'v Book) -> impl Iterator<Item = (Slot, &'v Entry)> {
        let room = self.room_in_domains(book);
        let fits_spread = move |c: &Candidate| c.domains.iter().zip(&room).all(|((domain, _), room)| room[*domain]);
        let places = self.neighbours.places(book);
        self.nodes
            .iter()
            .filter(move |c| c.open && fits_spread(c))
            .filter_map(|c| Some((c.slot, book.entry(c.slot)?)))
            .filter(|(_, entry)| shape.requests.fits(&entry.free) && entry.has_ports(&shape.ports))
            .filter(move |(_, entry)| places.admit(&entry.node))
    }

    /// For each spread constraint, the domains that may take one more pod.
    fn room_in_domains(&self, book: &Book) -> Vec<Vec<bool>> {
        let room = |(i, spread): (usize, &Domains)| {
            let mut counts = vec![None; spread.ids.len()];
            for node in &self.nodes {
                if let (domain, true) = node.domains[i] {
                    *counts[domain].get_or_insert(0_i64) += book.count(spread.group, node.slot);
                }
            }
            let some = counts.iter().copied().flatten();
            let enough = some.clone().count() >= spread.min_domains;
            let least = some.min().filter(|_| enough).unwrap_or(0);
            counts.into_iter().map(|n| n.unwrap_or(0) + spread.own - least <= spread.max_skew).collect()
        };
        self.spreads.iter().enumerate().map(room).collect()
    }
}

impl Domains {
    fn of(shape: &PodShape, spread: &Spread, group: usize) -> Self {
        let own = Who::Like(shape.namespace.clone(), spread.selector.clone()).holds(shape);
        Self {
            group,
            max_skew: i64::from(spread.max_skew),
            min_domains: spread.min_domains as usize,
            honors_affinity: spread.honors_affinity,
            honors_taints: spread.honors_taints,
            own: i64::from(own),
            ids: BTreeMap::new(),
        }
    }
}
