//! Open nodes: which nodes have been thought of in this pass, and what would it cost to put one more pod on one of them?
//!
//! A node that is not bought yet grows with its pods: it is always the cheapest candidate of its choice that holds them.

use super::allowance::Allowance;
use super::axes::{Axes, AxisId, Domain, ZONE};
use super::candidates::{MOST_ZONES, Place};
use super::choice::{ChoiceId, Choices, Next};
use super::variety::{Load, MinValues};
use crate::cluster::pod::HostPort;
use crate::resources::Resources;
use std::sync::Arc;

/// Number of an open node, in the order in which they were thought of.
pub(super) type NodeId = usize;

/// A node that is not bought yet.
#[derive(Debug)]
pub(super) struct OpenNode {
    pub(super) choice: ChoiceId,
    /// The candidate that it would be now.
    pub(super) best: Place,
    /// What its pods ask for, without daemons.
    pub(super) requests: Resources,
    /// Data disks that are attached to it.
    pub(super) disks: u32,
    /// How many values of the labels that its pool names must remain on offer.
    pub(super) needed: Arc<[u32]>,
    /// Grows with every pod.
    pub(super) version: u32,
    /// It is not thought of any more.
    pub(super) is_closed: bool,
}

/// What would become of an open node with one more pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Growth {
    /// How much dearer it becomes for each of the pods in view that then have room, in nano-USD per hour.
    pub(super) cost: i64,
    /// How full it would be, in thousandths of the resource that is scarcest.
    pub(super) load: u32,
    pub(super) choice: ChoiceId,
    pub(super) best: Place,
}

/// All that may be bought, and what of it has been thought of.
pub(super) struct Shop {
    pub(super) choices: Choices,
    pub(super) allowance: Allowance,
    /// What becomes of pods for which there is less variety than a pool asks for.
    pub(super) min_values: MinValues,
    pub(super) nodes: Vec<OpenNode>,
    /// Ports that pods take on open nodes, where there are any.
    ports: Vec<(NodeId, HostPort)>,
    /// Open nodes that lie in each zone for certain.
    in_zone: Vec<u32>,
}

/// What one pod takes of a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Want<'a> {
    pub(super) requests: &'a Resources,
    pub(super) ports: &'a [HostPort],
    pub(super) disks: u32,
    /// How many such pods may come to the same node, this one included.
    pub(super) in_view: u32,
}

impl<'a> Want<'a> {
    fn next(&self) -> Next<'a> {
        Next { requests: self.requests, pods: self.in_view }
    }

    /// What a node must hold that has one such pod and nothing else, whatever remains on offer.
    pub(super) fn load(&self) -> Load<'a> {
        Load { requests: self.requests, disks: self.disks, needed: &[] }
    }
}

/// A node more is a VM more to run and to look after: it is thought of only where it saves more than this part of its
/// price. Without it, prices that are rounded would decide.
pub(super) const NODE_MORE: i64 = 32;

impl Growth {
    /// The most that another may cost if it is to be better than this one, a node of its own; anything is where there is none.
    pub(super) fn most_beside(alone: Option<&Self>) -> i64 {
        alone.map_or(i64::MAX, |alone| alone.cost.saturating_add(alone.cost / NODE_MORE))
    }
}

impl Shop {
    pub(super) fn new(choices: Choices, allowance: Allowance, min_values: MinValues) -> Self {
        Self { choices, allowance, min_values, nodes: Vec::new(), ports: Vec::new(), in_zone: vec![0; MOST_ZONES] }
    }

    /// True when an open node of a choice takes one more pod without becoming another candidate, whatever ports it wants.
    pub(super) fn fits(&self, node: NodeId, choice: ChoiceId, want: Want<'_>) -> bool {
        let OpenNode { choice: before, best, requests, disks, .. } = &self.nodes[node];
        let candidate = self.choices.candidate(choice, *best);
        *before == choice
            && want.requests.times_beside(requests, &candidate.room) > 0
            && disks + want.disks <= candidate.instance.facts.max_data_disks
    }

    /// What it would cost at the least to make an open node larger for one more pod.
    pub(super) fn least_growth(&self, node: NodeId, choice: ChoiceId, want: Want<'_>) -> Option<i64> {
        let OpenNode { choice: before, best, .. } = self.nodes[node];
        // One that is narrowed may become a candidate at the same price.
        let from = if before == choice { best + 1 } else { best };
        let more = self.choices.next_price(choice, from)? - self.choices.candidate(choice, best).price.nanos();
        Some((more / i64::from(want.in_view)).max(0))
    }

    /// What an open node would become with one more pod, narrowed to `choice` for it; `None` when it cannot take it.
    pub(super) fn growth(&mut self, node: NodeId, choice: ChoiceId, want: Want<'_>) -> Option<Growth> {
        let open = &self.nodes[node];
        let (best, mut requests) = (open.best, open.requests.clone());
        requests.add(want.requests);
        if !self.ports_are_free(node, want.ports) {
            return None;
        }
        let disks = self.nodes[node].disks + want.disks;
        let load = Load { requests: &requests, disks, needed: &self.nodes[node].needed };
        let fits = self.fits(node, choice, want) && self.choices.has_variety(choice, best, load, &self.allowance);
        let all = (load, want.next());
        let grown =
            if fits { best } else { self.choices.best_value(choice, best, all, (&self.allowance, Some(best)))? };
        let [old, new] = [best, grown].map(|place| self.choices.candidate(choice, place));
        let cost = want.next().price_each(new.price.nanos() - old.price.nanos(), &requests, &new.room);
        Some(Growth { cost, load: fullness(&requests, &new.room), choice, best: grown })
    }

    /// The cheapest new node of a pool for one pod, narrowed to `choice` for it: what it would be, and its price.
    pub(super) fn alone(&mut self, choice: ChoiceId, want: Want<'_>) -> Option<Growth> {
        let offers = self.choices.offers(self.choices.get(choice).offers);
        if self.allowance.nodes == 0 || !HostPort::all_free(want.ports, &offers.daemon_ports) {
            return None;
        }
        let needed = offers.needed(self.min_values);
        let load = Load { needed: &needed, ..want.load() };
        let best = self.choices.best_value(choice, 0, (load, want.next()), (&self.allowance, None))?;
        let candidate = self.choices.candidate(choice, best);
        let cost = want.next().price_each(candidate.price.nanos(), want.requests, &candidate.room);
        Some(Growth { cost, load: fullness(want.requests, &candidate.room), choice, best })
    }

    /// Thinks of one more node, for such a pod.
    pub(super) fn open(&mut self, choice: ChoiceId, best: Place, first: Want<'_>) -> NodeId {
        let pool = self.choices.get(choice).offers;
        let offers = self.choices.offers(pool);
        let chosen = &offers.candidates[best as usize];
        let all = self.choices.each(choice);
        let needed = offers.needed_from(self.min_values, all, (chosen, first.load()), &self.allowance).into();
        self.allowance.take(offers, chosen);
        self.nodes.push(OpenNode {
            choice,
            best,
            requests: Resources::default(),
            disks: 0,
            needed,
            version: 0,
            is_closed: false,
        });
        self.settled(choice);
        self.nodes.len() - 1
    }

    /// Thinks of an open node no more: its pods go elsewhere.
    pub(super) fn close(&mut self, node: NodeId) {
        let OpenNode { choice, best, .. } = self.nodes[node];
        let offers = Arc::clone(self.choices.offers(self.choices.get(choice).offers));
        self.allowance.give_back(&offers, &offers.candidates[best as usize]);
        if let Some(zone) = self.zone(node) {
            self.in_zone[zone as usize] -= 1;
        }
        self.nodes[node].is_closed = true;
    }

    /// Forgets nodes that are closed: the new number of each, if it is still there.
    pub(super) fn forget_closed(&mut self) -> Vec<Option<NodeId>> {
        let mut left = 0..;
        let numbers: Vec<Option<NodeId>> =
            self.nodes.iter().map(|node| if node.is_closed { None } else { left.next() }).collect();
        self.nodes.retain(|node| !node.is_closed);
        self.ports.retain_mut(|(node, _)| {
            let number = numbers[*node];
            *node = number.unwrap_or_default();
            number.is_some()
        });
        numbers
    }

    /// Makes an open node no larger than its pods ask for: those that were in view may not have come.
    pub(super) fn shrink(&mut self, node: NodeId) {
        let OpenNode { choice, best, requests, disks, needed, .. } = &self.nodes[node];
        let (choice, best) = (*choice, *best);
        let load = Load { requests, disks: *disks, needed };
        let least = self.choices.cheapest(choice, 0, load, (&self.allowance, Some(best)));
        if let Some(least) = least.filter(|least| *least < best) {
            self.turn_into(node, choice, least);
            self.nodes[node].version += 1;
        }
    }

    /// Makes an open node another candidate.
    fn turn_into(&mut self, node: NodeId, choice: ChoiceId, best: Place) {
        let open = &mut self.nodes[node];
        let before = open.best;
        (open.choice, open.best) = (choice, best);
        if before != best {
            let offers = self.choices.offers(self.choices.get(choice).offers);
            let [old, new] = [before, best].map(|place| &offers.candidates[place as usize]);
            self.allowance.swap(offers, new, old);
        }
    }

    /// Puts pods on an open node, which becomes what it must for them.
    pub(super) fn put(&mut self, node: NodeId, growth: Growth, want: Want<'_>, pods: u32) {
        let open = &mut self.nodes[node];
        let was = open.choice;
        open.requests.add(&want.requests.times(i64::from(pods)));
        open.disks += want.disks * pods;
        open.version += 1;
        self.turn_into(node, growth.choice, growth.best);
        if self.choices.get(was).zones != self.choices.get(growth.choice).zones {
            self.settled(growth.choice);
        }
        self.ports.extend(want.ports.iter().map(|port| (node, port.clone())));
    }

    /// The zone of an open node, once it has only one.
    pub(super) fn zone(&self, node: NodeId) -> Option<Domain> {
        only(self.zones(node))
    }

    /// Bits of the zones that an open node may still be in.
    fn zones(&self, node: NodeId) -> u32 {
        self.choices.get(self.nodes[node].choice).zones
    }

    /// How many open nodes lie in a zone for certain.
    pub(super) fn nodes_in(&self, zone: Domain) -> u32 {
        self.in_zone.get(zone as usize).copied().unwrap_or(0)
    }

    /// Of the zones that a choice has left, the one with the fewest nodes of this pass.
    pub(super) fn emptiest(&self, zones: u32) -> Option<Domain> {
        super::topology::zones(zones).min_by_key(|zone| (self.in_zone[*zone as usize], *zone))
    }

    /// Where an open node lies on an axis; `None` when that is open, or its nodes have no such label.
    pub(super) fn domain(&self, node: NodeId, axis: AxisId, axes: &Axes) -> Option<Domain> {
        if axis == ZONE {
            return self.zone(node);
        }
        let domains = self.choices.domains(self.nodes[node].choice, axis, axes);
        domains.first().copied().filter(|_| domains.len() == 1)
    }

    fn ports_are_free(&self, node: NodeId, ports: &[HostPort]) -> bool {
        let pool = self.choices.get(self.nodes[node].choice).offers;
        let daemons = self.choices.offers(pool).daemon_ports.iter();
        let pods = self.ports.iter().filter(|(other, _)| *other == node).map(|(_, port)| port);
        HostPort::all_free(ports, daemons.chain(pods))
    }

    fn settled(&mut self, choice: ChoiceId) {
        if let Some(zone) = only(self.choices.get(choice).zones) {
            self.in_zone[zone as usize] += 1;
        }
    }
}

/// The only zone of a mask.
fn only(zones: u32) -> Option<Domain> {
    zones.is_power_of_two().then(|| zones.trailing_zeros())
}

/// The greatest share of a room that is asked for, in thousandths.
pub(super) fn fullness(requests: &Resources, room: &Resources) -> u32 {
    let share = |need: i64, room: i64| if need > 0 { need.saturating_mul(1_000) / room.max(1) } else { 0 };
    let shares = [share(requests.cpu_millis, room.cpu_millis), share(requests.memory, room.memory)];
    shares.into_iter().max().and_then(|share| u32::try_from(share).ok()).unwrap_or(u32::MAX)
}
