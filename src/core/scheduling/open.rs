//! Open nodes: which nodes have been thought of in this pass, and what would it cost to put one more pod on one of them?
//!
//! A node that is not bought yet grows with its pods: it is always the cheapest candidate of its choice that holds them.

use super::allowance::Allowance;
use super::axes::{Axes, AxisId, Domain, ZONE};
use super::candidates::{MOST_ZONES, Place};
use super::choice::{ChoiceId, Choices, Next};
use super::shelves::{Shelf, ShelfId, Shelves, Spot};
use super::variety::Load;
use super::volumes::{Attached, More};
use crate::model::amounts::resources::Resources;
use crate::model::cluster::pod::HostPort;
use crate::model::settings::MinValuesPolicy;
use std::collections::BTreeMap;
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
    pub(super) min_values: MinValuesPolicy,
    pub(super) nodes: Vec<OpenNode>,
    /// Those that are not closed.
    pub(super) shelves: Shelves,
    /// Ports that pods take on open nodes, where there are any.
    ports: Vec<(NodeId, HostPort)>,
    /// What is attached to open nodes, of which there is more to say than how many data disks; and to any other.
    attached: BTreeMap<NodeId, Attached>,
    fresh: Attached,
    /// Open nodes that lie in each zone for certain.
    in_zone: Vec<u32>,
}

/// What one pod takes of a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Want<'a> {
    pub(super) requests: &'a Resources,
    pub(super) ports: &'a [HostPort],
    /// Data disks, where no pod has them yet.
    pub(super) disks: u32,
    /// What more there is to say of its volumes.
    pub(super) more: Option<&'a More>,
    /// How many such pods may come to the same node, this one included.
    pub(super) in_view: u32,
}

impl<'a> Want<'a> {
    /// True when it is nothing but what it asks for that decides whether there is room for a pod.
    pub(super) fn is_plain(&self) -> bool {
        self.ports.is_empty() && self.disks == 0 && self.more.is_none()
    }

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
    pub(super) fn new(choices: Choices, allowance: Allowance, min_values: MinValuesPolicy) -> Self {
        Self {
            choices,
            allowance,
            min_values,
            nodes: Vec::new(),
            shelves: Shelves::default(),
            ports: Vec::new(),
            attached: BTreeMap::new(),
            fresh: Attached::default(),
            in_zone: vec![0; MOST_ZONES],
        }
    }

    /// The same, where new nodes take so many volumes.
    pub(super) fn with_volumes(self, fresh: Attached) -> Self {
        Self { fresh, ..self }
    }

    /// True when an open node of a choice takes one more pod without becoming another candidate, whatever ports it wants.
    pub(super) fn fits(&self, node: NodeId, choice: ChoiceId, want: Want<'_>) -> bool {
        let OpenNode { choice: before, best, requests, disks, .. } = &self.nodes[node];
        let candidate = self.choices.candidate(choice, *best);
        *before == choice
            && want.requests.copies_that_fit_beside(requests, &candidate.room) > 0
            && disks + self.new_disks(node, want) <= candidate.instance.facts.max_data_disks
    }

    /// How full a node of a shelf would be at the least with one more pod; `None` when it cannot take it as it is.
    pub(super) fn least_load(&self, shelf: ShelfId, (load, _): Spot, want: Want<'_>) -> Option<u32> {
        let Shelf { choice, best, .. } = self.shelves.all[shelf];
        let share = least_share(want.requests, &self.choices.candidate(choice, best).room);
        load.checked_add(share).filter(|load| *load <= WHOLE)
    }

    /// What it would cost at the least to make an open node larger for one more pod, which is one candidate of a choice and
    /// narrowed to another.
    pub(super) fn least_growth(
        &self,
        (before, best): (ChoiceId, Place),
        choice: ChoiceId,
        want: Want<'_>,
    ) -> Option<i64> {
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
        if !self.ports_are_free(node, want.ports)
            || want.more.is_some_and(|more| !self.attached(node).has_room_for(more))
        {
            return None;
        }
        let disks = self.nodes[node].disks + self.new_disks(node, want);
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
        let has_room = want.more.is_none_or(|more| self.fresh.has_room_for(more));
        if self.allowance.nodes == 0 || !has_room || !HostPort::all_free(want.ports, &offers.daemon_ports) {
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
        let node = self.nodes.len() - 1;
        self.shelve(node);
        node
    }

    /// Thinks of an open node no more: its pods go elsewhere.
    pub(super) fn close(&mut self, node: NodeId) {
        self.unshelve(node);
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
        let attached = std::mem::take(&mut self.attached).into_iter();
        self.attached = attached.filter_map(|(node, attached)| Some((numbers[node]?, attached))).collect();
        self.shelves = Shelves::default();
        (0..self.nodes.len()).for_each(|node| self.shelve(node));
        numbers
    }

    /// Makes an open node no larger than its pods ask for: those that were in view may not have come.
    pub(super) fn shrink(&mut self, node: NodeId) {
        let OpenNode { choice, best, requests, disks, needed, .. } = &self.nodes[node];
        let (choice, best) = (*choice, *best);
        let load = Load { requests, disks: *disks, needed };
        let least = self.choices.cheapest(choice, 0, load, (&self.allowance, Some(best)));
        if let Some(least) = least.filter(|least| *least < best) {
            self.unshelve(node);
            self.turn_into(node, choice, least);
            self.nodes[node].version += 1;
            self.shelve(node);
        }
    }

    /// How full an open node is, and which.
    pub(super) fn spot(&self, node: NodeId) -> Spot {
        let OpenNode { choice, best, requests, .. } = &self.nodes[node];
        (fullness(requests, &self.choices.candidate(*choice, *best).room), node)
    }

    fn shelve(&mut self, node: NodeId) {
        let OpenNode { choice, best, .. } = self.nodes[node];
        self.shelves.put((choice, best), self.spot(node));
    }

    fn unshelve(&mut self, node: NodeId) {
        let OpenNode { choice, best, .. } = self.nodes[node];
        self.shelves.take((choice, best), self.spot(node));
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
        self.unshelve(node);
        let disks = self.new_disks(node, want);
        if let Some(more) = want.more {
            self.attached.entry(node).or_insert_with(|| self.fresh.clone()).take(more);
        }
        let open = &mut self.nodes[node];
        let was = open.choice;
        open.requests.add(&want.requests.times(i64::from(pods)));
        open.disks += disks * pods;
        open.version += 1;
        self.turn_into(node, growth.choice, growth.best);
        if self.choices.get(was).zones != self.choices.get(growth.choice).zones {
            self.settled(growth.choice);
        }
        self.ports.extend(want.ports.iter().map(|port| (node, port.clone())));
        self.shelve(node);
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

    /// What a new node takes of volumes, so far as its size does not decide.
    pub(super) fn fresh(&self) -> &Attached {
        &self.fresh
    }

    fn attached(&self, node: NodeId) -> &Attached {
        self.attached.get(&node).unwrap_or(&self.fresh)
    }

    /// How many data disks would have to be attached to an open node for such a pod.
    fn new_disks(&self, node: NodeId, want: Want<'_>) -> u32 {
        want.more.map_or(want.disks, |more| want.disks - self.attached(node).disks_of(more))
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

/// What shares of a room are parts of.
const WHOLE: u32 = 1_000;

/// The greater share of a room that is asked for, of CPU and memory, in thousandths.
fn fullness(requests: &Resources, room: &Resources) -> u32 {
    shares(requests, room).into_iter().fold(0, u32::max)
}

/// The lesser share.
fn least_share(requests: &Resources, room: &Resources) -> u32 {
    shares(requests, room).into_iter().fold(u32::MAX, u32::min)
}

fn shares(requests: &Resources, room: &Resources) -> [u32; 2] {
    [(requests.cpu_millis, room.cpu_millis), (requests.memory, room.memory)].map(|(need, room)| {
        let share = if need > 0 { need.saturating_mul(WHOLE.into()) / room.max(1) } else { 0 };
        u32::try_from(share).unwrap_or(u32::MAX)
    })
}
