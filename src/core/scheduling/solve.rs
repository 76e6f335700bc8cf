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
use super::candidates::{Candidate, Offers, Place};
use super::choice::{ChoiceId, Choices, Narrowing};
use super::filter::{FilterId, Filters, NodeFilter};
use super::ground::Ground;
use super::improve::improve;
use super::kinds::{Demand, Family, KindId, Kinds, order};
use super::open::{NodeId, Shop};
use super::topology::{Surprises, Topology};
use super::volumes::{Book, Volumes};
use crate::catalog::OfferingKey;
use crate::model::cluster::pod::{Pod, PodShape, Taint, TaintEffect, Toleration};
use crate::model::names::{ClaimName, ObjectKey};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How often demands without a place are tried again after others found theirs.
const MOST_ROUNDS: usize = 8;

/// What is known of pods, whatever may be bought for them.
pub(super) struct Known {
    pub(super) kinds: Kinds,
    pub(super) filters: Filters,
    pub(super) topology: Topology,
    /// Axes that know what labels new nodes may have.
    taught: BTreeSet<AxisId>,
    /// Sites below this are bins, and the others open nodes.
    bins: usize,
    /// By pool: filters of groups, by which some of its candidates count and others do not.
    counted_by: Vec<Vec<FilterId>>,
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

    /// True when it is all the same to pods of a kind, and to all others, on which of several nodes they are.
    pub(super) fn is_free(&self, kind: KindId) -> bool {
        let want = self.want(kind);
        want.is_plain() && !self.topology.matters(kind, HOST)
    }

    /// The open node at a site, if one is there.
    pub(super) fn node_at(&self, site: Domain) -> Option<NodeId> {
        (site as usize).checked_sub(self.bins)
    }

    /// The site of an open node.
    pub(super) fn site_of(&self, node: NodeId) -> Domain {
        (self.bins + node) as Domain
    }
}

impl Solver {
    /// A simulation before its first pod. `leaving` are pods that run and are to be placed anew; `foreseen` are domains that
    /// an earlier attempt came upon.
    pub(super) fn new(
        (input, book): (Input<'_>, &Book),
        leaving: &BTreeSet<&ObjectKey>,
        is_topological: bool,
        foreseen: Surprises,
    ) -> Self {
        let mut axes = Axes::new(&input.market.zones);
        let bins = Bins::new((input, book), &mut axes);
        let ground = if is_topological || Ground::has_apart(input.snapshot) {
            Ground::of(input.snapshot, input.without, leaving)
        } else {
            Ground::default()
        };
        let topology = Topology::new(axes, ground, input.snapshot.namespaces().clone(), &bins, foreseen);
        let shop = Shop::new(Choices::new(&input.market.offers), Allowance::new(input), input.market.min_values)
            .with_volumes(book.fresh.clone());
        let (kinds, filters) = (Kinds::default(), Filters::default());
        let known = Known {
            kinds,
            filters,
            topology,
            taught: BTreeSet::new(),
            bins: bins.len(),
            counted_by: Default::default(),
        };
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

    /// Places what has a place. The rest comes back.
    pub(super) fn solve(&mut self, pods: Vec<(Arc<Pod>, Volumes)>) -> Vec<Demand> {
        let (chunks, pods): (Vec<_>, Vec<_>) = pods.into_iter().partition(|(pod, _)| pod.is_chunk());
        let mut left = self.place_all(pods);
        if !chunks.is_empty() {
            // After all pods, which are not tried again: a chunk is nobody's neighbour.
            left.extend(self.place_all(chunks));
        }
        left
    }

    fn place_all(&mut self, pods: Vec<(Arc<Pod>, Volumes)>) -> Vec<Demand> {
        let mut demands = self.demands(pods);
        self.learn_counted();
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
        if improve(self) && !left.is_empty() {
            // Cheaper nodes may have left room below a limit.
            left = self.round(left);
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
        let choices = &self.shop.choices;
        let varied = (0..choices.pools()).any(|pool| !choices.offers(pool).least.is_empty());
        for mut demand in plain.into_iter().filter(|demand| !demand.pods.is_empty()) {
            // A node that is filled to the brim may have too few others that would do in its place.
            if varied {
                self.place_singly(&mut demand);
            }
            left.extend((!demand.pods.is_empty()).then_some(demand));
        }
        left
    }

    /// True when nothing but the node itself matters to the pods.
    fn is_plain(&self, demand: &Demand) -> bool {
        let kind = demand.family.bare;
        demand.family.steps.len() == 1
            && self.known.want(kind).is_plain()
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
        let Known { kinds, filters, topology, taught, .. } = &mut self.known;
        let (bins, choices) = (&self.bins, &self.shop.choices);
        let avoids = (0..choices.pools()).any(|pool| prefers_none(&choices.offers(pool).pool.taints, shape));
        let to_be_made = volumes.more.as_ref().map_or_else(Vec::new, |more| more.to_be_made.clone());
        kinds.of(shape, (volumes, avoids), filters, |asked, own| {
            for key in keys(asked) {
                let axis = topology.axes.axis(key);
                if taught.insert(axis) {
                    choices.teach(axis, &mut topology.axes);
                }
            }
            topology.learn(asked, own, (&to_be_made, bins));
        })
    }

    /// Finds out for which groups it matters what a node of each pool becomes.
    fn learn_counted(&mut self) {
        let Self { known: Known { topology, filters, counted_by, .. }, shop: Shop { choices, .. }, .. } = self;
        let distinct: BTreeSet<&Arc<NodeFilter>> = topology.filters().collect();
        let all: BTreeSet<FilterId> = distinct.into_iter().map(|f| filters.number(NodeFilter::clone(f))).collect();
        *counted_by = (0..choices.pools())
            .map(|pool| {
                let mut splits = |filter: FilterId| {
                    let accepted = choices.accepted(pool, filter, filters);
                    accepted.contains(&0) && accepted.iter().any(|zones| *zones != 0)
                };
                all.iter().copied().filter(|filter| splits(*filter)).collect()
            })
            .collect();
    }

    /// What a choice becomes when a node is a candidate of it: a group that counts the one, or does not, does so whatever it
    /// becomes.
    pub(super) fn counted_alike(&mut self, choice: ChoiceId, best: Place) -> ChoiceId {
        let Self { known: Known { counted_by, .. }, shop: Shop { choices, .. }, .. } = self;
        let pool = choices.get(choice).offers;
        let Some(filters) = counted_by.get(pool).filter(|filters| !filters.is_empty()).cloned() else { return choice };
        filters.into_iter().fold(choice, |choice, filter| {
            let names = self.known.names();
            let choices = &mut self.shop.choices;
            let zones = choices.get(choice).zones;
            let counted = choices.accepted(pool, filter, names.0)[best as usize] & zones != 0;
            choices.narrow(choice, Narrowing::Counted(filter, counted), names).unwrap_or(choice)
        })
    }

    /// Forgets open nodes that are thought of no more: the others get new numbers.
    pub(super) fn forget_closed(&mut self) {
        let numbers = self.shop.forget_closed();
        for (_, _, seat) in &mut self.placed {
            if let Seat::Open(node) = seat {
                *node = numbers[*node].unwrap_or_default();
            }
        }
        let bins = self.known.bins;
        self.known.topology.renumber(HOST, |host| match (host as usize).checked_sub(bins) {
            Some(node) => numbers[node].map(|node| (bins + node) as Domain),
            None => Some(host),
        });
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
}

/// True when pods of a shape had better not come to nodes with these taints.
fn prefers_none(taints: &[Taint], shape: &PodShape) -> bool {
    let soft = taints.iter().filter(|taint| taint.effect == TaintEffect::PreferNoSchedule);
    soft.into_iter().any(|taint| !Toleration::any_covers(&shape.tolerations, taint))
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
