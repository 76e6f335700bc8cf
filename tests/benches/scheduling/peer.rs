//! The peer: a plain packing that puts each pod on the new node that has fewest pods.
//!
//! As Karpenter packs: pods by CPU and memory, largest first; each to the first existing node that fits, else to the
//! first new node that fits, those with fewest pods first, else to another new one. A new node may still become any
//! size that fits its pods, and ends as the cheapest. It is a reimplementation for the constraints of these pods; it
//! has the choices of Karpenter, not its speed. Equal zones are chosen in turn, where Karpenter chooses any.

use crate::market::{OfferingIndex, SIZES, State, WAYS, ZONES, room};
use crate::plan::{Goes, Plan};
use crate::workload::{Class, LABELS, Row, Work};
use napkeeper_core::model::amounts::resources::Resources;
use std::cmp::Reverse;

/// Bits of zones.
type Zones = u8;
const EVERY_ZONE: Zones = (1 << ZONES.len()) - 1;

/// An existing or new node.
struct Node {
    goes: Goes,
    zones: Zones,
    room: Resources,
    used: Resources,
    /// How many pods this plan adds.
    planned: usize,
    labels: [i64; LABELS],
}

struct Packing<'a> {
    work: &'a Work,
    standing: Vec<Node>,
    new: Vec<Node>,
    /// Pods by zone and label, of nodes whose zone was fixed when they were added.
    zones: [[i64; LABELS]; ZONES.len()],
    /// Whose turn it is among equal zones.
    turn: usize,
}

/// Plans for all pending pods.
pub(crate) fn plan(work: &Work, state: &State) -> Plan {
    let mut packing = Packing::new(work, state);
    let mut waiting = state.waiting();
    waiting.sort_by_key(|pod| (Reverse(work.rows[*pod].cpu), Reverse(work.rows[*pod].memory), *pod));
    let mut plan = Plan::default();
    // By fewest pods; kept over pods, since it stays nearly in order.
    let mut order: Vec<usize> = Vec::new();
    for pod in waiting {
        plan.goes.extend(packing.place(pod, &mut order).map(|goes| (pod, goes)));
    }
    plan.offerings.extend(packing.new.iter().filter_map(cheapest));
    plan
}

impl<'a> Packing<'a> {
    fn new(work: &'a Work, state: &State) -> Self {
        let standing = state.nodes.iter().enumerate().map(|(i, node)| Node {
            goes: Goes::Standing(i),
            zones: 1 << node.offering.zone(),
            room: room(node.offering.size),
            used: Resources::default(),
            planned: 0,
            labels: [0; LABELS],
        });
        let standing = standing.collect();
        let mut packing = Self { work, standing, new: Vec::new(), zones: [[0; LABELS]; ZONES.len()], turn: 0 };
        for (pod, on) in state.on.iter().enumerate() {
            if let Some(node) = on {
                let zones = packing.standing[*node].zones;
                packing.put(pod, Goes::Standing(*node), zones);
            }
        }
        packing
    }

    fn place(&mut self, pod: usize, order: &mut Vec<usize>) -> Option<Goes> {
        let row = &self.work.rows[pod];
        let standing = self.standing.iter().find_map(|node| Some((node.goes, self.takes(node, row)?)));
        let in_flight = || {
            order.sort_by_key(|node| self.new[*node].planned);
            order.iter().find_map(|node| Some((self.new[*node].goes, self.takes(&self.new[*node], row)?)))
        };
        let (goes, zones) = match standing.or_else(in_flight) {
            Some(found) => found,
            None => {
                let goes = Goes::New(self.new.len());
                let (room, used) = (room(SIZES - 1), Resources::default());
                let node = Node { goes, zones: EVERY_ZONE, room, used, planned: 0, labels: [0; LABELS] };
                let zones = self.takes(&node, row)?;
                order.push(self.new.len());
                self.new.push(node);
                (goes, zones)
            }
        };
        self.put(pod, goes, zones);
        self.turn += 1;
        Some(goes)
    }

    fn put(&mut self, pod: usize, goes: Goes, zones: Zones) {
        let row = &self.work.rows[pod];
        let node = match goes {
            Goes::Standing(i) => &mut self.standing[i],
            Goes::New(i) => &mut self.new[i],
        };
        node.zones = zones;
        node.used.add(&requests(row));
        node.planned += 1;
        node.labels[row.label] += 1;
        if zones.count_ones() == 1 {
            self.zones[zones.trailing_zeros() as usize][row.label] += 1;
        }
    }

    /// The zones that are left to a node once it has this pod; `None` when it cannot.
    fn takes(&self, node: &Node, row: &Row) -> Option<Zones> {
        if !node.used.plus(&requests(row)).fits(&node.room) {
            return None;
        }
        let own = |label: usize| i64::from(label == row.label);
        let zones = match row.class {
            Class::Generic => node.zones,
            // A new host is always possible, so that the lowest count of a host is zero.
            Class::SpreadHostname(label) if node.labels[label] + own(label) > 1 => 0,
            Class::SpreadHostname(_) => node.zones,
            Class::AntiHostname if node.labels[row.label] > 0 => 0,
            Class::AntiHostname => node.zones,
            Class::SpreadZone(label) => self.emptiest(node.zones, label, own(label)),
            Class::AffinityZone => {
                let with = self.zones_where(node.zones, |zone| self.zones[zone][row.label] > 0);
                let first = self.zones.iter().all(|zone| zone[row.label] == 0);
                if first { self.turned(node.zones) } else { with }
            }
        };
        (zones != 0).then_some(zones)
    }

    /// The one zone with fewest pods of a label, if that is few enough.
    fn emptiest(&self, among: Zones, label: usize, own: i64) -> Zones {
        let count = |zone: usize| self.zones[zone][label];
        let lowest = (0..ZONES.len()).map(count).min().unwrap_or(0);
        let valid = self.zones_where(among, |zone| count(zone) + own - lowest <= 1);
        let fewest = (0..ZONES.len()).filter(|zone| valid & 1 << zone != 0).map(count).min();
        self.turned(self.zones_where(valid, |zone| Some(count(zone)) == fewest))
    }

    fn zones_where(&self, among: Zones, holds: impl Fn(usize) -> bool) -> Zones {
        (0..ZONES.len()).filter(|zone| among & 1 << zone != 0 && holds(*zone)).fold(0, |all, zone| all | 1 << zone)
    }

    /// One of these zones, in turn.
    fn turned(&self, among: Zones) -> Zones {
        let zones = (0..ZONES.len()).map(|i| (i + self.turn) % ZONES.len());
        zones.map(|zone| 1 << zone).find(|zone| among & zone != 0).unwrap_or(0)
    }
}

fn requests(row: &Row) -> Resources {
    Resources { pods: 1, ..Resources::cpu_memory(row.cpu, row.memory) }
}

/// The smallest size that fits the pods of a node, in the first remaining zone.
fn cheapest(node: &Node) -> Option<OfferingIndex> {
    let size = (0..SIZES).find(|size| node.used.fits(&room(*size)))?;
    let way = WAYS.iter().position(|(zone, _)| node.zones & 1 << zone != 0)?;
    Some(OfferingIndex { size, way })
}
