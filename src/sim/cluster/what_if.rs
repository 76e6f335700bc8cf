//! What if: where would kube-scheduler put pods if some nodes came, or went?
//!
//! It asks the scheduler's own filters, on a copy of its book, so that no simulation differs from what then happens.

use super::scheduler::{Asks, Book, Neighbours, Slot, View, Who};
use super::volumes::Reach;
use super::{Cluster, NewNode};
use napkeeper_core::model::cluster::pod::{Pod, Spread};
use napkeeper_core::model::names::NodeName;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A cluster that is thought through and never touched.
#[derive(Debug, Clone)]
pub(crate) struct WhatIf<'c> {
    cluster: &'c Cluster,
    book: Book,
}

impl Cluster {
    /// Thinks the cluster through, as it is now.
    pub(crate) fn what_if(&self) -> WhatIf<'_> {
        WhatIf { cluster: self, book: self.scheduler.book().clone() }
    }
}

impl WhatIf<'_> {
    /// If this node were there and ready, with a pod of every DaemonSet that it accepts.
    pub(crate) fn add_node(&mut self, node: NewNode) -> Slot {
        let node = node.into_node(self.cluster.ids.clone().uid(), self.cluster.now);
        let daemons = self.cluster.daemons.requests_on(&node);
        let slot = self.book.put(&Arc::new(node));
        self.book.occupy(slot, &daemons);
        slot
    }

    /// If this node and its pods were not there.
    pub(crate) fn take_node(&mut self, name: &NodeName) {
        self.book.take(name);
    }

    /// If this pod were on the first of these nodes that takes it (`None`: of all); says which one it is.
    pub(crate) fn place(&mut self, pod: &Pod, among: Option<&BTreeSet<Slot>>) -> Option<Slot> {
        let shape = &*pod.shape;
        let store = &self.cluster.store;
        let volumes = match &*pod.volumes {
            [] => Reach::default(),
            names => self.cluster.volumes.reach(store, &shape.namespace, names)?,
        };
        let all: Vec<&Arc<Pod>> = store.pods().values().collect();
        let like = |spread: &Spread| Who::Like(shape.namespace.clone(), spread.selector.clone());
        let groups = shape.spread.iter().map(|s| self.book.group(like(s), all.iter().copied()));
        let spread_groups: Vec<usize> = groups.collect();
        let neighbours = &Neighbours::of(&mut self.book, shape, &all);
        // Other nodes matter only as domains of spread constraints.
        let only = among.filter(|_| spread_groups.is_empty());
        let asks = Asks { shape, spread_groups: &spread_groups, neighbours, volumes: &volumes };
        let view = View::new(asks, &self.book, only);
        let slot = view.first(shape, &self.book, |slot| among.is_none_or(|a| a.contains(&slot)))?;
        self.book.occupy(slot, &shape.requests);
        self.book.take_ports(slot, &shape.ports);
        let counted = self.book.groups_of(shape);
        self.book.tally(&counted, slot, true, false);
        Some(slot)
    }
}
