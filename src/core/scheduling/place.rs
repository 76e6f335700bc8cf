//! Placing: where does the next pod of a kind go, and what does it take there?

use super::axes::{Domain, HOST, ZONE};
use super::bins::Bins;
use super::choice::Narrowing;
use super::kinds::{Demand, Family, KindId};
use super::open::{Growth, NodeId};
use super::search::Search;
use super::solve::{Known, Seat, Solver};
use super::topology::{Topology, bit, zones};
use std::collections::{BTreeMap, BTreeSet};

/// What kinds know of the open nodes, by zone.
struct Searches {
    by: BTreeMap<(KindId, Option<Domain>), Search>,
    /// How many pods they reckon with.
    pods: usize,
}
/// By zone: the first bin that may still have room.
type Cursors = BTreeMap<Option<Domain>, usize>;

impl Searches {
    fn new(pods: usize) -> Self {
        Self { by: BTreeMap::new(), pods }
    }

    /// Reckons with fewer when only half of the pods are left.
    fn left(&mut self, pods: usize, known: &Known) {
        if pods * 2 <= self.pods {
            self.pods = pods;
            self.by.values_mut().for_each(|search| search.reckon_with(pods, known));
        }
    }
}

impl Solver {
    /// Places pods one by one, since the place of each matters to the next.
    pub(super) fn place_singly(&mut self, demand: &mut Demand) {
        self.offer(&demand.family);
        let (mut searches, mut from) = (Searches::new(demand.pods.len()), Cursors::new());
        let pods = std::mem::take(&mut demand.pods);
        let mut pods = pods.into_iter();
        let first = self.placed.len();
        while let Some(pod) = pods.next() {
            searches.left(pods.len() + 1, &self.known);
            let mut seat = self.seat(&demand.family, &mut from, &mut searches);
            // Where no node can be had, that nobody is there is no reason to go nowhere else. Every turn but the last takes a
            // domain from those on offer.
            while seat.is_none() && self.known.topology.withdraw_barren(&demand.family.steps) {
                seat = self.seat(&demand.family, &mut from, &mut searches);
            }
            let Some((kind, seat)) = seat else {
                // What this one could not have, the others of its kind cannot have either.
                demand.pods.push(pod);
                break;
            };
            self.placed.push((pod, kind, seat));
        }
        demand.pods.extend(pods);
        self.shrink(first);
    }

    /// Makes open nodes that took a pod, of those placed from `first` on, no larger than they must be.
    fn shrink(&mut self, first: usize) {
        let seats = self.placed[first..].iter().filter_map(|(_, _, seat)| match seat {
            Seat::Open(node) => Some(*node),
            Seat::Bin(_) => None,
        });
        let nodes: BTreeSet<NodeId> = seats.collect();
        nodes.into_iter().for_each(|node| self.shop.shrink(node));
    }

    /// A place for one pod, which is taken: where there is room, or else on a new node with as much of what it prefers as can
    /// be had.
    fn seat(&mut self, family: &Family, from: &mut Cursors, searches: &mut Searches) -> Option<(KindId, Seat)> {
        if let Some(bin) = self.seat_in_bins(family.bare, from) {
            return Some((family.bare, Seat::Bin(bin)));
        }
        family.steps.iter().find_map(|kind| Some((*kind, self.seat_on_new(*kind, searches)?)))
    }

    /// Places pods of a plain kind on nodes that exist or are open, as many as there is room for at a reasonable price.
    pub(super) fn place_alike(&mut self, demand: &mut Demand) {
        let kind = demand.family.bare;
        let filter = self.known.kinds.get(kind).filter;
        let pods = std::mem::take(&mut demand.pods);
        let mut waiting = pods.into_iter().peekable();
        for site in 0..self.bins.len() {
            if waiting.peek().is_none() {
                return;
            }
            let room = self.bins.room_for(site, self.known.want(kind));
            if room <= 0 || !self.bins.accepts(site, filter, &self.known.filters) {
                continue;
            }
            let taken = usize::try_from(room).unwrap_or(usize::MAX).min(waiting.len());
            self.take_bin(site, kind, taken as u32);
            self.placed.extend(waiting.by_ref().take(taken).map(|pod| (pod, kind, Seat::Bin(site))));
        }
        let (first, pods) = (self.placed.len(), waiting.len());
        let mut search = Search::new(kind, None, &self.known, pods);
        let most = Growth::most_beside(search.alone(&mut self.shop, &self.known).as_ref());
        while waiting.peek().is_some() {
            let Some((node, growth)) = search.best(&mut self.shop, &self.known, most) else { break };
            self.take_open(node, growth, kind);
            self.placed.extend(waiting.next().map(|pod| (pod, kind, Seat::Open(node))));
        }
        demand.pods.extend(waiting);
        self.shrink(first);
    }

    /// A bin for one pod, which is taken.
    fn seat_in_bins(&mut self, kind: KindId, from: &mut Cursors) -> Option<usize> {
        for zone in self.zones_in_order(kind, self.bins.zones().iter().copied()) {
            let start = from.entry(zone).or_insert(0);
            if let Some(site) = find_bin(&self.known, &mut self.bins, (kind, zone), start) {
                self.take_bin(site, kind, 1);
                return Some(site);
            }
        }
        None
    }

    /// An open node for one pod, which is taken; opened for it, where that is cheaper.
    fn seat_on_new(&mut self, kind: KindId, searches: &mut Searches) -> Option<Seat> {
        for zone in self.zones_in_order(kind, zones(self.all_zones())) {
            let search = {
                let (by, pods) = (&mut searches.by, searches.pods);
                by.entry((kind, zone)).or_insert_with(|| Search::new(kind, zone, &self.known, pods))
            };
            let alone = search.alone(&mut self.shop, &self.known);
            let best = search.best(&mut self.shop, &self.known, Growth::most_beside(alone.as_ref()));
            let opened = best.or_else(|| self.open(kind, alone?));
            if let Some((node, growth)) = opened {
                self.take_open(node, growth, kind);
                return Some(Seat::Open(node));
            }
        }
        None
    }

    /// The cheapest node of its own for a pod of a kind, in one zone if one is given.
    pub(super) fn alone(&mut self, kind: KindId, zone: Option<Domain>) -> Option<Growth> {
        let open = self.known.topology.allows(kind, HOST, Some(self.empty_host()));
        open.then(|| Search::new(kind, zone, &self.known, 1).alone(&mut self.shop, &self.known)).flatten()
    }

    /// Thinks of a new node for a pod of a kind, if its constraints allow it an empty host.
    fn open(&mut self, kind: KindId, alone: Growth) -> Option<(NodeId, Growth)> {
        let open = self.known.topology.allows(kind, HOST, Some(self.empty_host()));
        open.then(|| (self.shop.open(alone.choice, alone.best, self.known.want(kind)), alone))
    }

    /// The host that the next new node would be.
    pub(super) fn empty_host(&self) -> Domain {
        self.known.site_of(self.shop.nodes.len())
    }

    /// The zones that are open to the next pod of a kind, best first; once none in particular where no zone matters to it.
    pub(super) fn zones_in_order(&self, kind: KindId, all: impl Iterator<Item = Domain>) -> Vec<Option<Domain>> {
        let topology = &self.known.topology;
        if topology.asked_axes(kind).all(|axis| axis != ZONE) {
            return vec![None];
        }
        let weighed = all.map(|zone| (self.shop.nodes_in(zone), zone));
        topology.in_order(kind, ZONE, weighed).into_iter().map(Some).collect()
    }

    /// Takes the room of a bin, and counts the pods there.
    pub(super) fn take_bin(&mut self, site: usize, kind: KindId, pods: u32) {
        let Solver { known, bins, .. } = self;
        bins.put(site, (kind as u32, pods), known.want(kind));
        count_in_bin(&mut known.topology, bins, (kind, pods), site);
    }

    /// Puts a pod on an open node, and counts it there.
    pub(super) fn take_open(&mut self, node: NodeId, growth: Growth, kind: KindId) {
        let growth = self.settled(node, growth, kind);
        self.shop.put(node, growth, self.known.want(kind), 1);
        self.count_on_open(node, kind, 1);
    }

    /// Counts pods that were put on an open node.
    pub(super) fn count_on_open(&mut self, node: NodeId, kind: KindId, pods: u32) {
        let (host, shop) = (self.known.site_of(node), &self.shop);
        let axes: Vec<Option<Domain>> = (0..self.known.topology.axes.len())
            .map(|axis| match axis {
                HOST => Some(host),
                ZONE => shop.zone(node),
                _ => shop.domain(node, axis, &self.known.topology.axes),
            })
            .collect();
        let pool = shop.choices.offers(shop.choices.get(shop.nodes[node].choice).offers);
        let best = &pool.candidates[shop.nodes[node].best as usize];
        let zone = bit(axes[ZONE]);
        for (axis, domain) in axes.iter().enumerate().skip(ZONE) {
            domain.iter().for_each(|domain| {
                self.known.topology.see(axis, *domain, |filter| pool.lets(filter, best, zone));
            });
        }
        self.known.topology.count(kind, pods, |axis| axes[axis], |filter| pool.lets(filter, best, zone));
    }

    /// A node is one domain of every label that pods spread or gather by, of zones where that matters to its pods, and counts
    /// or does not.
    pub(super) fn settled(&mut self, node: NodeId, growth: Growth, kind: KindId) -> Growth {
        let mut growth = self.in_one_zone(node, growth, kind);
        for axis in ZONE + 1..self.known.topology.axes.len() {
            let choices = &mut self.shop.choices;
            let Some(domain) = choices.label_of(growth.choice, growth.best, axis, &self.known.topology.axes) else {
                continue;
            };
            let narrowed = choices.narrow(growth.choice, Narrowing::Label(axis, domain), self.known.names());
            growth.choice = narrowed.unwrap_or(growth.choice);
        }
        growth.choice = self.counted_alike(growth.choice, growth.best);
        growth
    }

    /// A node whose pods are counted by zone must be in one: where it may be in several, the one with the fewest nodes.
    fn in_one_zone(&mut self, node: NodeId, growth: Growth, kind: KindId) -> Growth {
        let open = self.shop.choices.get(growth.choice).zones;
        if open.is_power_of_two() || !self.known.topology.matters(kind, ZONE) {
            return growth;
        }
        let Some(zone) = self.shop.emptiest(open) else { return growth };
        let by = Narrowing::Zones(1 << zone);
        let narrowed = self.shop.choices.narrow(growth.choice, by, self.known.names());
        let again = narrowed.and_then(|choice| self.shop.growth(node, choice, self.known.want(kind)));
        again.unwrap_or(growth)
    }
}

/// Counts pods that were put in a bin.
fn count_in_bin(topology: &mut Topology, bins: &Bins, (kind, pods): (KindId, u32), site: usize) {
    let axes: Vec<Option<Domain>> =
        (0..topology.axes.len()).map(|axis| bins.domain(site, axis, &mut topology.axes)).collect();
    topology.count(kind, pods, |axis| axes[axis], |filter| bins.lets(site, filter));
}

/// The first bin from the site `from` on that takes a pod of a kind. Those that never will again are left behind.
pub(super) fn find_bin(
    known: &Known,
    bins: &mut Bins,
    (kind, zone): (KindId, Option<Domain>),
    from: &mut usize,
) -> Option<usize> {
    let (want, filter) = (known.want(kind), known.kinds.get(kind).filter);
    let mut all_full = true;
    for site in *from..bins.len() {
        let hopeless = zone.is_some() && bins.zone(site) != zone
            || bins.room_for(site, want) <= 0
            || !bins.accepts(site, filter, &known.filters);
        if !hopeless {
            let open = known.topology.asked_axes(kind).all(|axis| match axis {
                HOST => known.topology.allows(kind, HOST, Some(site as Domain)),
                ZONE => known.topology.allows(kind, ZONE, bins.zone(site)),
                _ => known.topology.allows(kind, axis, bins.known_domain(site, axis, &known.topology.axes)),
            });
            if open {
                return Some(site);
            }
            all_full = false;
        }
        if all_full {
            *from = site + 1;
        }
    }
    None
}
