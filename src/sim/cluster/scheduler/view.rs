//! A view: which nodes may one class of pods use, and which of them is the best for the next pod?

use super::book::{Book, Entry, Slot, selects};
use napkeeper_core::cluster::pod::PodShape;
use napkeeper_core::requirements::Requirements;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The nodes that a class of pods may use in one pass. Nodes do not change during a pass; what is free on them does.
#[derive(Debug)]
pub(in crate::cluster) struct View {
    /// Nodes that selector and affinity accept and that have every topology key.
    nodes: Vec<Candidate>,
    spreads: Vec<Domains>,
}

#[derive(Debug)]
struct Candidate {
    slot: Slot,
    /// Ready, tolerated, and in reach of the pod's volumes.
    open: bool,
    /// The domain in each spread constraint.
    domains: Vec<usize>,
}

#[derive(Debug)]
struct Domains {
    group: usize,
    max_skew: i64,
    /// 1 when the pod itself counts, else 0.
    own: i64,
    ids: BTreeMap<Arc<str>, usize>,
}

impl View {
    /// Looks at all nodes, or only at some when the others are known to have no room.
    pub(in crate::cluster) fn new(
        shape: &PodShape,
        groups: &[usize],
        volumes: &Requirements,
        (book, only): (&Book, Option<&BTreeSet<Slot>>),
    ) -> Self {
        let mut view =
            Self { nodes: Vec::new(), spreads: shape.spread.iter().zip(groups).map(domains(shape)).collect() };
        match only {
            Some(only) => only.iter().for_each(|slot| view.look_at(*slot, shape, volumes, book)),
            None => book.entries().for_each(|(slot, _)| view.look_at(slot, shape, volumes, book)),
        }
        view
    }

    fn look_at(&mut self, slot: Slot, shape: &PodShape, volumes: &Requirements, book: &Book) {
        let Some(entry) = book.entry(slot) else {
            return;
        };
        if !shape.accepts_labels(&entry.node.labels) {
            return;
        }
        let open = entry.is_open()
            && shape.untolerated(&entry.node.taints).is_none()
            && volumes.satisfied_by(&entry.node.labels);
        let values: Option<Vec<&Arc<str>>> =
            shape.spread.iter().map(|s| entry.node.labels.get(&s.topology_key)).collect();
        // A node that is closed matters only as a domain.
        let Some(values) = values.filter(|_| open || !self.spreads.is_empty()) else {
            return;
        };
        let domains = self
            .spreads
            .iter_mut()
            .zip(values)
            .map(|(spread, value)| {
                let next = spread.ids.len();
                *spread.ids.entry(Arc::clone(value)).or_insert(next)
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

    /// The nodes with room that keep every skew.
    fn feasible<'v>(&'v self, shape: &'v PodShape, book: &'v Book) -> impl Iterator<Item = (Slot, &'v Entry)> {
        let room = self.room_in_domains(book);
        let fits_spread = move |c: &Candidate| c.domains.iter().zip(&room).all(|(domain, room)| room[*domain]);
        self.nodes
            .iter()
            .filter(move |c| c.open && fits_spread(c))
            .filter_map(|c| Some((c.slot, book.entry(c.slot)?)))
            .filter(|(_, entry)| shape.requests.fits(&entry.free))
    }

    /// For each spread constraint, the domains that may take one more pod.
    fn room_in_domains(&self, book: &Book) -> Vec<Vec<bool>> {
        let room = |(i, spread): (usize, &Domains)| {
            let mut counts = vec![0_i64; spread.ids.len()];
            for node in &self.nodes {
                counts[node.domains[i]] += book.count(spread.group, node.slot);
            }
            let least = counts.iter().copied().min().unwrap_or(0);
            counts.into_iter().map(|count| count + spread.own - least <= spread.max_skew).collect()
        };
        self.spreads.iter().enumerate().map(room).collect()
    }
}

fn domains(shape: &PodShape) -> impl Fn((&napkeeper_core::cluster::pod::Spread, &usize)) -> Domains {
    |(spread, group)| Domains {
        group: *group,
        max_skew: i64::from(spread.max_skew),
        own: i64::from(selects(&shape.namespace, &spread.selector, shape)),
        ids: BTreeMap::new(),
    }
}
