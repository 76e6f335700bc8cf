//! Search: which open node takes the next pod of a kind at the least cost?
//!
//! All pods of a kind ask the same, and between two of them only nodes have changed that took a pod since. So every
//! [shelf](super::shelves) is gone through once, the emptiest node first, as far as it may hold the best; and then only
//! nodes that have changed are looked at.

use super::axes::{AxisId, Domain, HOST, ZONE};
use super::choice::{ChoiceId, Narrowing};
use super::kinds::{Kind, KindId};
use super::open::{Growth, NodeId, Shop, Want};
use super::shelves::{ShelfId, Spot};
use super::solve::Known;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// By cost, then by load, then by number; with the version of the node that it was worked out for.
type Entry = Reverse<(i64, u32, NodeId, u32)>;

/// What a place in a search leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Lead {
    /// A node, as long as it is of this version.
    Node(NodeId, u32),
    /// What comes on a shelf, after this if that is given, narrowed to a choice.
    Shelf(ShelfId, Option<Spot>, ChoiceId),
}

/// For how many nodes at the most it is worked out, for one pod, what it would cost to make them larger: those of which it
/// may be least.
const MOST_WORKED_OUT: usize = 16;

/// One kind's look at the open nodes, in one zone if one is given.
pub(super) struct Search {
    kind: KindId,
    zone: Option<Domain>,
    /// Nodes whose cost is worked out.
    exact: BinaryHeap<Entry>,
    /// Shelves whose nodes may take a pod as they are, by how full the next one would be at the least.
    fitting: BinaryHeap<Reverse<(u32, Lead)>>,
    /// Nodes that would have to be larger, by the least that this may cost, the emptiest first.
    rough: BinaryHeap<Reverse<(i64, u32, Lead)>>,
    /// How much of the news of nodes has been looked at; nothing yet.
    seen: Option<usize>,
    /// What a choice is narrowed to for this kind, by number, where that was asked.
    narrowed: Vec<Option<Option<ChoiceId>>>,
    /// Axes, other than hosts and zones, on which the place of these pods matters.
    labelled: Vec<AxisId>,
    /// How many pods of the kind may come to one node.
    in_view: u32,
}

impl Search {
    /// `pods` of the kind are to be placed, as far as that is known.
    pub(super) fn new(kind: KindId, zone: Option<Domain>, known: &Known, pods: usize) -> Self {
        let axes = ZONE + 1..known.topology.axes.len();
        let labelled: Vec<AxisId> = axes.filter(|axis| known.topology.matters(kind, *axis)).collect();
        let in_view = known.topology.in_view(kind, pods);
        Self {
            kind,
            zone,
            exact: BinaryHeap::new(),
            fitting: BinaryHeap::new(),
            rough: BinaryHeap::new(),
            seen: None,
            narrowed: Vec::new(),
            labelled,
            in_view,
        }
    }

    /// Reckons with so many pods from now on, which are fewer: costs that were worked out for more are low estimates.
    pub(super) fn reckon_with(&mut self, pods: usize, known: &Known) {
        self.in_view = known.topology.in_view(self.kind, pods);
    }

    /// The open node that takes a pod at the least cost, if that is at most so much.
    pub(super) fn best(&mut self, shop: &mut Shop, known: &Known, most: i64) -> Option<(NodeId, Growth)> {
        let hosts = known.topology.company(self.kind, HOST);
        let best = match hosts {
            Some(hosts) => self.best_of(hosts.into_iter().filter_map(|host| known.node_at(host)), shop, known),
            // Room alone does not tell which nodes are open to the next pod.
            None if !self.labelled.is_empty() => self.best_of(0..shop.nodes.len(), shop, known),
            None => self.best_known(shop, known, most),
        };
        best.filter(|(_, growth)| growth.cost <= most)
    }

    fn best_known(&mut self, shop: &mut Shop, known: &Known, most: i64) -> Option<(NodeId, Growth)> {
        self.catch_up(shop, known);
        let mut worked_out = 0;
        loop {
            let (cost, load) = self.exact.peek().map_or((i64::MAX, 0), |Reverse((cost, load, ..))| (*cost, *load));
            if let Some(Reverse((emptiest, _))) = self.fitting.peek()
                && (0, *emptiest) <= (cost, load)
            {
                self.next_fitting(shop, known);
                continue;
            }
            if let Some(Reverse((least, ..))) = self.rough.peek()
                && *least <= most
                && *least < cost
                && worked_out < MOST_WORKED_OUT
            {
                worked_out += usize::from(self.next_rough(shop, known));
                continue;
            }
            let Reverse((cost, _, node, version)) = *self.exact.peek()?;
            if shop.nodes[node].version == version {
                if cost > most {
                    return None;
                }
                // What keeps a pod from a host stays in its way: counts only grow.
                if let Some(growth) = self.growth(node, shop, known) {
                    return Some((node, growth));
                }
            }
            // It is gone, or it has changed and was looked at as news.
            self.exact.pop();
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

    fn best_of(
        &mut self,
        nodes: impl Iterator<Item = NodeId>,
        shop: &mut Shop,
        known: &Known,
    ) -> Option<(NodeId, Growth)> {
        let growths = nodes.filter_map(|node| Some((node, self.growth(node, shop, known)?)));
        growths.min_by_key(|(node, growth)| (growth.cost, growth.load, *node))
    }

    /// Looks at all shelves the first time, and then at the nodes that have changed since.
    fn catch_up(&mut self, shop: &mut Shop, known: &Known) {
        let from = self.seen.replace(shop.shelves.news.len());
        let Some(from) = from else {
            (0..shop.shelves.all.len()).for_each(|shelf| self.begin(shelf, shop, known));
            return;
        };
        for news in from..shop.shelves.news.len() {
            let node = shop.shelves.news[news];
            let Some(choice) = self.narrow(shop.nodes[node].choice, shop, known) else { continue };
            if shop.fits(node, choice, self.want(known)) {
                self.work_out(node, shop, known);
            } else if self.is_open(node, known) {
                let (load, lead) = (shop.spot(node).0, Lead::Node(node, shop.nodes[node].version));
                let like = (shop.nodes[node].choice, shop.nodes[node].best);
                let least = shop.least_growth(like, choice, self.want(known));
                self.rough.extend(least.map(|cost| Reverse((cost, load, lead))));
            }
        }
    }

    /// Begins with the emptiest node of a shelf.
    fn begin(&mut self, shelf: ShelfId, shop: &mut Shop, known: &Known) {
        let (before, best) = (shop.shelves.all[shelf].choice, shop.shelves.all[shelf].best);
        let (Some(choice), Some(first)) = (self.narrow(before, shop, known), shop.shelves.all[shelf].after(None))
        else {
            return;
        };
        let lead = Lead::Shelf(shelf, None, choice);
        let load = shop.least_load(shelf, first, self.want(known)).filter(|_| choice == before);
        self.fitting.extend(load.map(|load| Reverse((load, lead))));
        let least = shop.least_growth((before, best), choice, self.want(known));
        self.rough.extend(least.map(|cost| Reverse((cost, first.0, lead))));
    }

    /// Looks at the next node of the shelf that may have the emptiest which takes a pod as it is.
    fn next_fitting(&mut self, shop: &mut Shop, known: &Known) {
        let Some(Reverse((_, Lead::Shelf(shelf, last, choice)))) = self.fitting.pop() else { return };
        let Some(spot) = shop.shelves.all[shelf].after(last) else { return };
        let Some(load) = shop.least_load(shelf, spot, self.want(known)) else { return };
        self.fitting.push(Reverse((load, Lead::Shelf(shelf, Some(spot), choice))));
        if shop.fits(spot.1, choice, self.want(known)) {
            self.work_out(spot.1, shop, known);
        }
    }

    /// Works out the next of the nodes that would have to be larger; says whether there was one.
    fn next_rough(&mut self, shop: &mut Shop, known: &Known) -> bool {
        match self.rough.pop() {
            Some(Reverse((_, _, Lead::Node(node, version)))) => {
                let is_open = shop.nodes[node].version == version && self.is_open(node, known);
                if is_open {
                    self.work_out(node, shop, known);
                }
                is_open
            }
            Some(Reverse((least, _, Lead::Shelf(shelf, last, choice)))) => {
                let Some(spot) = shop.shelves.all[shelf].after(last) else { return false };
                self.rough.push(Reverse((least, spot.0, Lead::Shelf(shelf, Some(spot), choice))));
                let is_larger = self.is_open(spot.1, known) && !shop.fits(spot.1, choice, self.want(known));
                if is_larger {
                    self.work_out(spot.1, shop, known);
                }
                is_larger
            }
            None => false,
        }
    }

    fn work_out(&mut self, node: NodeId, shop: &mut Shop, known: &Known) {
        if let Some(Growth { cost, load, .. }) = self.growth(node, shop, known) {
            self.exact.push(Reverse((cost, load, node, shop.nodes[node].version)));
        }
    }

    /// True when the pods there leave the host to this kind.
    fn is_open(&self, node: NodeId, known: &Known) -> bool {
        known.topology.allows(self.kind, HOST, Some(known.site_of(node)))
    }

    fn growth(&mut self, node: NodeId, shop: &mut Shop, known: &Known) -> Option<Growth> {
        if !self.is_open(node, known) {
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
        let Kind { shape, disks, more, .. } = self.kinds.get(kind);
        Want { requests: &shape.requests, ports: &shape.ports, disks: *disks, more: more.as_deref(), in_view: 1 }
    }
}
