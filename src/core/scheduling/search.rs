//! Search: which open node takes the next pod of a kind at the least cost?
//!
//! All pods of a kind ask the same, and between two of them only the node that took the last one has changed. So every
//! open node is looked at once for a kind, and then only those again that took a pod.

use super::axes::{AxisId, Domain, HOST, ZONE};
use super::choice::{ChoiceId, Narrowing};
use super::kinds::{Kind, KindId};
use super::open::{Growth, NodeId, Shop, Want};
use super::solve::Known;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// By cost, then by load, then by number; with the version of the node that it was worked out for.
type Entry = Reverse<(i64, u32, NodeId, u32)>;

/// For how many nodes at the most it is worked out, for one pod, what it would cost to make them larger: those of which it
/// may be least.
const MOST_WORKED_OUT: usize = 16;

/// One kind's look at the open nodes, in one zone if one is given.
pub(super) struct Search {
    kind: KindId,
    zone: Option<Domain>,
    /// Nodes whose cost is worked out.
    exact: BinaryHeap<Entry>,
    /// Nodes that would have to be larger, by the least that this may cost.
    rough: BinaryHeap<Entry>,
    /// Open nodes that have been looked at.
    seen: usize,
    /// What a choice is narrowed to for this kind, by number, where that was asked.
    narrowed: Vec<Option<Option<ChoiceId>>>,
    /// Axes, other than hosts and zones, on which the place of these pods matters.
    labelled: Vec<AxisId>,
    /// Room alone does not tell which nodes are open to the next pod.
    fickle: bool,
    /// How many pods of the kind may come to one node.
    in_view: u32,
}

impl Search {
    /// `pods` of the kind are to be placed, as far as that is known.
    pub(super) fn new(kind: KindId, zone: Option<Domain>, known: &Known, pods: usize) -> Self {
        let axes = ZONE + 1..known.topology.axes.len();
        let labelled: Vec<AxisId> = axes.filter(|axis| known.topology.matters(kind, *axis)).collect();
        let fickle = !labelled.is_empty() || known.topology.wants_company(kind, HOST);
        let in_view = known.topology.in_view(kind, pods);
        Self {
            kind,
            zone,
            exact: BinaryHeap::new(),
            rough: BinaryHeap::new(),
            seen: 0,
            narrowed: Vec::new(),
            labelled,
            fickle,
            in_view,
        }
    }

    /// Reckons with so many pods from now on, which are fewer: costs that were worked out for more are low estimates.
    pub(super) fn reckon_with(&mut self, pods: usize, known: &Known) {
        self.in_view = known.topology.in_view(self.kind, pods);
    }

    /// The open node that takes a pod at the least cost, if that is at most so much.
    pub(super) fn best(&mut self, shop: &mut Shop, known: &Known, most: i64) -> Option<(NodeId, Growth)> {
        let best = if self.fickle { self.best_of_all(shop, known) } else { self.best_known(shop, known, most) };
        best.filter(|(_, growth)| growth.cost <= most)
    }

    fn best_known(&mut self, shop: &mut Shop, known: &Known, most: i64) -> Option<(NodeId, Growth)> {
        while self.seen < shop.nodes.len() {
            self.look_at(self.seen, shop, known);
            self.seen += 1;
        }
        let mut worked_out = 0;
        loop {
            let known_cost = self.exact.peek().map_or(i64::MAX, |Reverse((cost, ..))| *cost);
            match self.rough.peek() {
                Some(Reverse((least, ..))) if *least <= most && *least < known_cost && worked_out < MOST_WORKED_OUT => {
                    let Reverse((_, _, node, version)) = self.rough.pop()?;
                    if shop.nodes[node].version == version {
                        worked_out += 1;
                        self.work_out(node, shop, known);
                    } else {
                        self.look_at(node, shop, known);
                    }
                    continue;
                }
                _ => {}
            }
            let Reverse((cost, _, node, version)) = *self.exact.peek()?;
            if cost > most {
                return None;
            }
            if shop.nodes[node].version != version {
                self.exact.pop();
                self.look_at(node, shop, known);
                continue;
            }
            // What keeps a pod from a host stays in its way: counts only grow.
            match self.growth(node, shop, known) {
                Some(growth) => return Some((node, growth)),
                None => drop(self.exact.pop()),
            }
        }
    }

    /// The cheapest new node, of the first pool that has one.
    pub(super) fn alone(&mut self, shop: &mut Shop, known: &Known) -> Option<Growth> {
        let want = self.want(known);
        (0..shop.choices.pools()).find_map(|pool| {
            let root = shop.choices.root(pool);
            let choice = self.narrow(root, shop, known)?;
            shop.alone(choice, want)
        })
    }

    fn best_of_all(&mut self, shop: &mut Shop, known: &Known) -> Option<(NodeId, Growth)> {
        let growths = (0..shop.nodes.len()).filter_map(|node| Some((node, self.growth(node, shop, known)?)));
        growths.min_by_key(|(node, growth)| (growth.cost, growth.load, *node))
    }

    /// Notes a node. What it would cost to make it larger is worked out when no node takes the pod as it is.
    fn look_at(&mut self, node: NodeId, shop: &mut Shop, known: &Known) {
        let host = known.site_of(node);
        if !known.topology.allows(self.kind, HOST, Some(host)) {
            return;
        }
        let Some(choice) = self.narrow(shop.nodes[node].choice, shop, known) else { return };
        if shop.fits(node, choice, self.want(known)) {
            self.work_out(node, shop, known);
        } else {
            let least = shop.least_growth(node, choice, self.want(known));
            self.rough.extend(least.map(|cost| Reverse((cost, 0, node, shop.nodes[node].version))));
        }
    }

    fn work_out(&mut self, node: NodeId, shop: &mut Shop, known: &Known) {
        if let Some(Growth { cost, load, .. }) = self.growth(node, shop, known) {
            self.exact.push(Reverse((cost, load, node, shop.nodes[node].version)));
        }
    }

    fn growth(&mut self, node: NodeId, shop: &mut Shop, known: &Known) -> Option<Growth> {
        let host = known.site_of(node);
        if !known.topology.allows(self.kind, HOST, Some(host)) {
            return None;
        }
        let choice = self.narrow(shop.nodes[node].choice, shop, known)?;
        shop.growth(node, choice, self.want(known))
    }

    fn want<'k>(&self, known: &'k Known) -> Want<'k> {
        Want { in_view: self.in_view, ..known.want(self.kind) }
    }

    /// What a choice becomes with a pod of this kind.
    fn narrow(&mut self, choice: ChoiceId, shop: &mut Shop, known: &Known) -> Option<ChoiceId> {
        if self.narrowed.len() <= choice as usize {
            self.narrowed.resize(choice as usize + 1, None);
        }
        let plain = if let Some(narrowed) = self.narrowed[choice as usize] {
            narrowed
        } else {
            let by = [Narrowing::Filter(known.kinds.get(self.kind).filter)].into_iter();
            let mut by = by.chain(self.zone.map(|zone| Narrowing::Zones(1 << zone)));
            let narrowed = by.try_fold(choice, |choice, by| shop.choices.narrow(choice, by, known.names()));
            self.narrowed[choice as usize] = Some(narrowed);
            narrowed
        };
        self.labelled.iter().try_fold(plain?, |choice, axis| self.settle(choice, *axis, shop, known))
    }

    /// Settles on one value of a label, where a node may have several.
    fn settle(&self, choice: ChoiceId, axis: AxisId, shop: &mut Shop, known: &Known) -> Option<ChoiceId> {
        let domains = shop.choices.domains(choice, axis, &known.topology.axes);
        if domains.is_empty() {
            return known.topology.allows(self.kind, axis, None).then_some(choice);
        }
        let order = known.topology.in_order(self.kind, axis, domains.into_iter().map(|domain| (0, domain)));
        shop.choices.narrow(choice, Narrowing::Label(axis, *order.first()?), known.names())
    }
}

impl Known {
    /// What a pod of a kind takes of a node, whoever comes after it.
    pub(super) fn want(&self, kind: KindId) -> Want<'_> {
        let Kind { shape, disks, .. } = self.kinds.get(kind);
        Want { requests: &shape.requests, ports: &shape.ports, disks: *disks, in_view: 1 }
    }
}
