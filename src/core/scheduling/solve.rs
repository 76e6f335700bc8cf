//! Solving: pod by pod, where does each go?
//!
//! Demands go in order. A pod goes to a node that exists or is being made, if one takes it; else to an open node, if that
//! costs no more than a node of its own; else to a node of its own. Pods that ask nothing of their neighbours are left to
//! [`buy`](super::buy), which looks at all of them together. What one pod could not have, it may have after others were
//! placed: demands are tried again while that helps.

use super::Input;
use super::allowance::Allowance;
use super::axes::{Axes, AxisId, Domain, HOST, ZONE};
use super::bins::Bins;
use super::buy::buy;
use super::candidates::{Candidate, MOST_ZONES, Offers};
use super::choice::{Choices, Narrowing};
use super::filter::Filters;
use super::ground::Ground;
use super::kinds::{Demand, Family, KindId, Kinds, Volumes, order};
use super::open::{Growth, NodeId, Shop};
use super::outcome::WhyNot;
use super::search::Search;
use super::topology::{Topology, Unmet, bit, zones};
use super::why::topology_of;
use crate::catalog::OfferingKey;
use crate::cluster::pod::{Pod, PodShape, Taint, TaintEffect};
use crate::names::{ClaimName, ObjectKey};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How often demands without a place are tried again after others found theirs.
const MOST_ROUNDS: usize = 8;

/// What is known of pods, whatever may be bought for them.
pub(super) struct Known {
    pub(super) kinds: Kinds,
    pub(super) filters: Filters,
    pub(super) topology: Topology,
    /// Sites below this are bins, and the others open nodes.
    bins: usize,
}

/// Where a pod was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seat {
    Bin(usize),
    Open(NodeId),
}

/// One simulation.
pub(super) struct Solver {
    pub(super) known: Known,
    pub(super) bins: Bins,
    pub(super) shop: Shop,
    /// In the order in which they are to be bound.
    pub(super) placed: Vec<(Arc<Pod>, KindId, Seat)>,
}

impl Known {
    /// The filters and axes by which choices are narrowed.
    pub(super) fn names(&self) -> (&Filters, &Axes) {
        (&self.filters, &self.topology.axes)
    }

    /// The site of an open node.
    pub(super) fn site_of(&self, node: NodeId) -> Domain {
        (self.bins + node) as Domain
    }
}

impl Solver {
    /// A simulation before its first pod. `leaving` are pods that run and are to be placed anew.
    pub(super) fn new(input: Input<'_>, leaving: &BTreeSet<&ObjectKey>, is_topological: bool) -> Self {
        let mut axes = Axes::new(&input.market.zones);
        let bins = Bins::new(input, &mut axes);
        let ground = if is_topological || Ground::has_apart(input.snapshot) {
            Ground::of(input.snapshot, input.without, leaving)
        } else {
            Ground::default()
        };
        let topology = Topology::new(axes, ground, input.snapshot.namespaces().clone(), &bins);
        let shop = Shop::new(Choices::new(&input.market.offers), Allowance::new(input));
        let (kinds, filters) = (Kinds::default(), Filters::default());
        let known = Known { kinds, filters, topology, bins: bins.len() };
        Self { known, bins, shop, placed: Vec::new() }
    }

    /// Places a pod on the claim that was made for it, if that is in flight and still has the room.
    pub(super) fn keep_promise(&mut self, pod: &Arc<Pod>, volumes: &Volumes, claim: &ClaimName) -> bool {
        let Some(site) = self.bins.site_of_claim(claim) else { return false };
        let kind = self.learn(&pod.shape, volumes.clone()).bare;
        let filter = self.known.kinds.get(kind).filter;
        let kept =
            self.bins.room_for(site, self.known.want(kind)) > 0 && self.bins.accepts(site, filter, &self.known.filters);
        if kept {
            self.take_bin(site, kind, 1);
            self.placed.push((Arc::clone(pod), kind, Seat::Bin(site)));
        }
        kept
    }

    /// The constraint that leaves pods of a kind no place, if it is one.
    pub(super) fn unmet(&self, kind: KindId) -> Option<WhyNot> {
        let topology = &self.known.topology;
        let empty = self.known.site_of(self.shop.nodes.len());
        let lacks = |axis: &AxisId| *axis > ZONE && topology.unmet(kind, *axis, None).is_some();
        for axis in topology.asked_axes(kind).filter(lacks) {
            let choices = &self.shop.choices;
            let all = (0..choices.pools()).flat_map(|pool| choices.domains(choices.root(pool), axis, &topology.axes));
            let unmet: Vec<Option<Unmet>> = all.map(|domain| topology.unmet(kind, axis, Some(domain))).collect();
            match unmet.iter().min() {
                None => return Some(WhyNot::TopologyKey(Arc::clone(topology.axes.key(axis)))),
                Some(Some(unmet)) => return Some(topology_of(*unmet)),
                Some(None) => {}
            }
        }
        let of_zones: Vec<Option<Unmet>> =
            zones(self.all_zones()).map(|zone| topology.unmet(kind, ZONE, Some(zone))).collect();
        let unmet = topology.unmet(kind, HOST, Some(empty)).or_else(|| of_zones.into_iter().min().flatten());
        unmet.map(topology_of)
    }

    /// Places what has a place. The rest comes back.
    pub(super) fn solve(&mut self, pods: Vec<(Arc<Pod>, Volumes)>) -> Vec<Demand> {
        let mut demands = self.demands(pods);
        order(&mut demands, &self.known.kinds, &self.known.topology);
        let mut left: Vec<Demand> = Vec::new();
        for tier in tiers(demands, &self.known.kinds) {
            left.extend(self.round(tier));
        }
        for _ in 0..MOST_ROUNDS {
            let before = self.placed.len();
            if left.is_empty() {
                break;
            }
            left = self.round(left);
            if self.placed.len() == before {
                break;
            }
        }
        left
    }

    /// Tries each demand once; those who find no place come back.
    fn round(&mut self, demands: Vec<Demand>) -> Vec<Demand> {
        let (mut left, mut plain) = (Vec::new(), Vec::new());
        for mut demand in demands {
            if self.is_plain(&demand) {
                self.place_alike(&mut demand);
                plain.extend((!demand.pods.is_empty()).then_some(demand));
            } else {
                self.place_singly(&mut demand);
                left.extend((!demand.pods.is_empty()).then_some(demand));
            }
        }
        buy(self, &mut plain);
        left.extend(plain.into_iter().filter(|demand| !demand.pods.is_empty()));
        left
    }

    /// True when nothing but the node itself matters to the pods.
    fn is_plain(&self, demand: &Demand) -> bool {
        let kind = demand.family.bare;
        demand.family.steps.len() == 1
            && self.known.want(kind).ports.is_empty()
            && self.known.want(kind).disks == 0
            && self.known.topology.asked_axes(kind).next().is_none()
    }

    /// Groups pods by what they ask for; of equals the oldest comes first.
    fn demands(&mut self, mut pods: Vec<(Arc<Pod>, Volumes)>) -> Vec<Demand> {
        // Pods that are watched share equal shapes: by address those need not be compared in depth.
        pods.sort_unstable_by(|(a, v), (b, w)| (Arc::as_ptr(&a.shape), v).cmp(&(Arc::as_ptr(&b.shape), w)));
        let mut by_kind: BTreeMap<KindId, Demand> = BTreeMap::new();
        for alike in pods.chunk_by(|(a, v), (b, w)| Arc::ptr_eq(&a.shape, &b.shape) && v == w) {
            let Some((first, volumes)) = alike.first() else { continue };
            let family = self.learn(&first.shape, volumes.clone());
            let demand = by_kind.entry(family.bare).or_insert_with(|| Demand { family, pods: Vec::new() });
            demand.pods.extend(alike.iter().map(|(pod, _)| Arc::clone(pod)));
        }
        let mut demands: Vec<Demand> = by_kind.into_values().collect();
        for demand in &mut demands {
            demand.pods.sort_by(|a, b| (a.created_at, &a.key).cmp(&(b.created_at, &b.key)));
        }
        demands
    }

    /// The kinds of a shape whose pods have such volumes.
    pub(super) fn learn(&mut self, shape: &Arc<PodShape>, volumes: Volumes) -> Family {
        let Known { kinds, filters, topology, .. } = &mut self.known;
        let (bins, choices) = (&self.bins, &self.shop.choices);
        let avoids = (0..choices.pools()).any(|pool| prefers_none(&choices.offers(pool).pool.taints, shape));
        kinds.of(shape, (volumes, avoids), filters, |asked, own| {
            for key in keys(asked) {
                let (axis, is_new) = topology.axes.axis(key);
                if is_new {
                    choices.teach(axis, &mut topology.axes);
                }
            }
            topology.learn(asked, own, bins);
        })
    }

    /// Works out where new nodes for pods may lie: whatever they prefer, all that they may have is a domain.
    pub(super) fn offer(&mut self, family: &Family) {
        family.steps.iter().for_each(|kind| self.offer_to(*kind, family.bare));
    }

    fn offer_to(&mut self, kind: KindId, bare: KindId) {
        let axes: BTreeSet<AxisId> = self.known.topology.asked_axes(kind).filter(|axis| *axis != HOST).collect();
        for axis in axes {
            let mut domains: BTreeSet<Domain> = BTreeSet::new();
            let (filter, want) = (self.known.kinds.get(bare).filter, self.known.want(bare));
            for pool in 0..self.shop.choices.pools() {
                let by = Narrowing::Filter(filter);
                let Some(choice) = self.shop.choices.narrow(self.shop.choices.root(pool), by, self.known.names())
                else {
                    continue;
                };
                let holds = |candidate: &super::candidates::Candidate| {
                    candidate.holds(want.requests, want.disks) && self.shop.allowance.quota_allows(candidate)
                };
                if axis == ZONE {
                    let open = self.shop.choices.each(choice).filter(|(candidate, _)| holds(candidate));
                    domains.extend(zones(open.fold(0, |mask, (_, zones)| mask | zones)));
                } else {
                    domains.extend(self.shop.choices.domains(choice, axis, &self.known.topology.axes));
                }
            }
            self.known.topology.offer(kind, axis, domains.into_iter().collect());
        }
    }

    /// Places pods one by one, since the place of each matters to the next.
    fn place_singly(&mut self, demand: &mut Demand) {
        self.offer(&demand.family);
        let mut searches: BTreeMap<(KindId, Option<Domain>), Search> = BTreeMap::new();
        let mut from: BTreeMap<Option<Domain>, usize> = BTreeMap::new();
        let pods = std::mem::take(&mut demand.pods);
        let mut pods = pods.into_iter();
        for pod in pods.by_ref() {
            let bare = demand.family.bare;
            let seat = self.seat_in_bins(bare, &mut from).map(|bin| (bare, Seat::Bin(bin)));
            let seat = seat.or_else(|| {
                let mut steps = demand.family.steps.iter();
                steps.find_map(|kind| Some((*kind, self.seat_on_new(*kind, bare, &mut searches)?)))
            });
            let Some((kind, seat)) = seat else {
                // What this one could not have, the others of its kind cannot have either.
                demand.pods.push(pod);
                break;
            };
            self.placed.push((pod, kind, seat));
        }
        demand.pods.extend(pods);
    }

    /// Places pods of a plain kind on nodes that exist or are open, as many as there is room for at a reasonable price.
    fn place_alike(&mut self, demand: &mut Demand) {
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
        let mut search = Search::new(kind, None, &self.known);
        let alone = search.alone(&mut self.shop, &self.known).map(|growth| growth.cost);
        while waiting.peek().is_some() {
            let best = search.best(&mut self.shop, &self.known);
            let worth = |growth: &Growth| growth.cost == 0 || alone.is_none_or(|alone| growth.cost <= alone);
            let Some((node, growth)) = best.filter(|(_, growth)| worth(growth)) else { break };
            self.take_open(node, growth, kind);
            self.placed.extend(waiting.next().map(|pod| (pod, kind, Seat::Open(node))));
        }
        demand.pods.extend(waiting);
    }

    /// A bin for one pod, which is taken.
    fn seat_in_bins(&mut self, kind: KindId, from: &mut BTreeMap<Option<Domain>, usize>) -> Option<usize> {
        for zone in self.zones_in_order(kind, |solver| {
            let zones: BTreeSet<Domain> = (0..solver.bins.len()).filter_map(|site| solver.bins.zone(site)).collect();
            zones.into_iter().collect()
        }) {
            let start = from.entry(zone).or_insert(0);
            if let Some(site) = find_bin(&self.known, &mut self.bins, (kind, zone), start) {
                self.take_bin(site, kind, 1);
                return Some(site);
            }
        }
        None
    }

    /// An open node for one pod, which is taken; opened for it, where that is cheaper.
    fn seat_on_new(
        &mut self,
        kind: KindId,
        bare: KindId,
        searches: &mut BTreeMap<(KindId, Option<Domain>), Search>,
    ) -> Option<Seat> {
        // Each turn either ends or takes a zone from those on offer.
        for _ in 0..=MOST_ZONES {
            let mut barren = Vec::new();
            for zone in self.zones_in_order(kind, |solver| zones(solver.all_zones()).collect()) {
                let search = searches.entry((kind, zone)).or_insert_with(|| Search::new(kind, zone, &self.known));
                let best = search.best(&mut self.shop, &self.known);
                let alone = search.alone(&mut self.shop, &self.known);
                let opened = match (best, alone) {
                    (Some((node, growth)), alone) if alone.is_none_or(|alone| growth.cost <= alone.cost) => {
                        Some((node, growth))
                    }
                    (_, Some(alone)) => self.open(kind, alone),
                    (_, None) => None,
                };
                if let Some((node, growth)) = opened {
                    self.take_open(node, growth, kind);
                    return Some(Seat::Open(node));
                }
                barren.extend(zone);
            }
            // No node can be had in those zones, so that they are empty is no reason to go nowhere else; but for pods that
            // only prefer other zones they could be had.
            if kind != bare {
                return None;
            }
            let withdrawn = barren.into_iter().filter(|zone| self.known.topology.withdraw(kind, ZONE, *zone));
            if withdrawn.count() == 0 {
                return None;
            }
        }
        None
    }

    /// The cheapest node of its own for a pod of a kind, in one zone if one is given.
    pub(super) fn alone(&mut self, kind: KindId, zone: Option<Domain>) -> Option<Growth> {
        let host = self.known.site_of(self.shop.nodes.len());
        let open = self.known.topology.allows(kind, HOST, Some(host));
        open.then(|| Search::new(kind, zone, &self.known).alone(&mut self.shop, &self.known)).flatten()
    }

    /// Thinks of a new node for a pod of a kind, if its constraints allow it an empty host.
    fn open(&mut self, kind: KindId, alone: Growth) -> Option<(NodeId, Growth)> {
        let host = self.known.site_of(self.shop.nodes.len());
        if !self.known.topology.allows(kind, HOST, Some(host)) {
            return None;
        }
        Some((self.shop.open(alone.choice, alone.best), alone))
    }

    /// The zones that are open to the next pod of a kind, best first; once none in particular where no zone matters to it.
    pub(super) fn zones_in_order(&self, kind: KindId, all: impl Fn(&Self) -> Vec<Domain>) -> Vec<Option<Domain>> {
        let topology = &self.known.topology;
        if topology.asked_axes(kind).all(|axis| axis != ZONE) {
            return vec![None];
        }
        let weighed = all(self).into_iter().map(|zone| (self.shop.nodes_in(zone), zone));
        topology.in_order(kind, ZONE, weighed).into_iter().map(Some).collect()
    }

    /// Bits of the zones that bins lie in.
    pub(super) fn zones_of_bins(&self) -> u32 {
        (0..self.bins.len()).fold(0, |mask, site| mask | bit(self.bins.zone(site)))
    }

    /// Adds a node that is as good as bought: a bin from now on.
    pub(super) fn add_bin(&mut self, number: usize, key: &OfferingKey, offers: &Arc<Offers>, of: &Candidate) {
        self.shop.allowance.take(offers, of);
        self.bins.add(number, key.clone(), offers, of);
        self.known.bins = self.bins.len();
        let (bins, site) = (&self.bins, self.bins.len() - 1);
        if let Some(zone) = bins.zone(site) {
            self.known.topology.see(ZONE, zone, |filter| bins.lets(site, filter));
        }
    }

    /// Bits of the zones of everything that may be bought.
    pub(super) fn all_zones(&self) -> u32 {
        let choices = &self.shop.choices;
        (0..choices.pools()).fold(0, |mask, pool| mask | choices.get(choices.root(pool)).zones)
    }

    /// Takes the room of a bin, and counts the pods there.
    pub(super) fn take_bin(&mut self, site: usize, kind: KindId, pods: u32) {
        let Solver { known, bins, .. } = self;
        bins.put(site, (kind as u32, pods), known.want(kind));
        count_in_bin(&mut known.topology, bins, (kind, pods), site);
    }

    /// Puts a pod on an open node, and counts it there.
    pub(super) fn take_open(&mut self, node: NodeId, growth: Growth, kind: KindId) {
        let growth = self.in_one_zone(node, growth, kind);
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
        if let Some(zone_number) = axes[ZONE] {
            self.known.topology.see(ZONE, zone_number, |filter| pool.lets(filter, best, zone));
        }
        self.known.topology.count(kind, pods, |axis| axes[axis], |filter| pool.lets(filter, best, zone));
    }

    /// A node whose pods are counted by zone must be in one: where it may be in several, the one with the fewest nodes.
    pub(super) fn in_one_zone(&mut self, node: NodeId, growth: Growth, kind: KindId) -> Growth {
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
pub(super) fn count_in_bin(topology: &mut Topology, bins: &Bins, (kind, pods): (KindId, u32), site: usize) {
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

/// True when pods of a shape had better not come to nodes with these taints.
fn prefers_none(taints: &[Taint], shape: &PodShape) -> bool {
    let soft = taints.iter().filter(|taint| taint.effect == TaintEffect::PreferNoSchedule);
    soft.into_iter().any(|taint| !shape.tolerations.iter().any(|toleration| toleration.covers(taint)))
}

/// Topology keys that a shape names.
fn keys(shape: &PodShape) -> impl Iterator<Item = &Arc<str>> {
    let affinity = shape.affinity.iter().flat_map(|affinity| affinity.near.iter().chain(&affinity.apart));
    shape.spread.iter().map(|spread| &spread.topology_key).chain(affinity.map(|term| &term.topology_key))
}

/// Demands of one priority each, in order.
fn tiers(demands: Vec<Demand>, kinds: &Kinds) -> Vec<Vec<Demand>> {
    let mut tiers: Vec<(i32, Vec<Demand>)> = Vec::new();
    for demand in demands {
        let priority = kinds.get(demand.family.bare).shape.priority;
        match tiers.last_mut() {
            Some((last, tier)) if *last == priority => tier.push(demand),
            _ => tiers.push((priority, vec![demand])),
        }
    }
    tiers.into_iter().map(|(_, tier)| tier).collect()
}
