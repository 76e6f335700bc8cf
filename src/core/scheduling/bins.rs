//! Bins: which room is there on nodes that exist and on NodeClaims in flight?

use super::Input;
use super::candidates::{Candidate, Offers, daemon_overhead, node_labels_accept};
use super::demand::Demand;
use super::outcome::{Outcome, Placement, Target};
use super::spread::{SpreadBook, cap_per_node, counts_per_node};
use crate::catalog::{InstanceType, OfferingKey};
use crate::cluster::claim::Claim;
use crate::cluster::node::Node;
use crate::cluster::pod::{Pod, PodShape};
use crate::cluster::{NodeUsage, Snapshot};
use crate::labels;
use crate::names::{ClaimName, Zone};
use crate::resources::Resources;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Room on one node or claim.
struct Bin {
    target: Target,
    promise: Promise,
    free: Resources,
    zone: Option<Zone>,
    /// Pods placed here in this pass, by shape: for caps per node.
    placed: BTreeMap<Arc<PodShape>, i64>,
}

/// Which labels and taints the node has or will have.
enum Promise {
    /// Its own.
    Node(Arc<Node>),
    /// Those of the claim, and of one of these offerings.
    Claim(Arc<Claim>, Vec<(Arc<InstanceType>, OfferingKey)>),
    /// Those of the pool, and of this offering.
    Bought(Arc<Offers>, Arc<InstanceType>, OfferingKey),
}

/// All bins, in the order in which they are filled: nodes by name, then claims by name.
pub(super) struct Bins {
    bins: Vec<Bin>,
    by_claim: BTreeMap<ClaimName, usize>,
    usage: Snapshot,
}

impl Bins {
    pub(super) fn new(input: Input<'_>) -> Self {
        let snapshot = input.snapshot;
        let in_flight: Vec<&Arc<Claim>> = snapshot.claims().values().filter(|c| is_in_flight(c)).collect();
        let settling: BTreeSet<_> = in_flight.iter().filter_map(|c| c.status.provider_id.as_ref()).collect();
        let leaving: BTreeSet<_> = snapshot
            .claims()
            .values()
            .filter(|c| c.deleting_at.is_some())
            .filter_map(|c| c.status.provider_id.as_ref())
            .collect();
        let usable = |n: &&Arc<Node>| {
            let moving = n.provider_id.as_ref().is_some_and(|id| settling.contains(id) || leaving.contains(id));
            n.ready && !n.cordoned && n.deleting_at.is_none() && !moving && !input.without.contains(&n.name)
        };
        let nodes = snapshot.nodes().values().filter(usable).map(|n| node_bin(n, snapshot.usage(&n.name)));
        let claims = in_flight.iter().filter_map(|c| claim_bin(c, snapshot));
        let bins: Vec<Bin> = nodes.chain(claims).collect();
        let claim = |(i, bin): (usize, &Bin)| match &bin.target {
            Target::Claim(name) => Some((name.clone(), i)),
            Target::Node(_) | Target::New(_) => None,
        };
        let by_claim = bins.iter().enumerate().filter_map(claim).collect();
        Self { bins, by_claim, usage: snapshot.clone() }
    }

    /// Places as many pods of a demand as there is room for, in one zone if one is given; the rest comes back.
    pub(super) fn place(
        &mut self,
        mut demand: Demand,
        zone: Option<&Zone>,
        spread: &mut SpreadBook,
        outcome: &mut Outcome,
    ) -> Demand {
        let cap = cap_per_node(&demand.shape);
        let snapshot = &self.usage;
        for bin in &mut self.bins {
            if demand.pods.is_empty() {
                break;
            }
            if zone.is_some() && bin.zone.as_ref() != zone {
                continue;
            }
            let Some(room) = demand.shape.requests.times_in(&bin.free).filter(|n| *n > 0) else { continue };
            if !bin.accepts(&demand.shape) {
                continue;
            }
            let room = cap.map_or(room, |cap| room.min(cap - bin.alike(&demand.shape, snapshot)));
            let taken = usize::try_from(room).unwrap_or(0).min(demand.pods.len());
            bin.take(&demand, taken, outcome);
            demand.pods.drain(..taken);
            if let Some(zone) = bin.zone.as_ref().filter(|_| taken > 0) {
                spread.count(&demand.shape, zone, taken as i64);
            }
        }
        demand
    }

    /// Places a pod on the claim that was made for it, if that is in flight and still has the room.
    pub(super) fn keep_promise(
        &mut self,
        pod: &Arc<Pod>,
        claim: &ClaimName,
        spread: &mut SpreadBook,
        outcome: &mut Outcome,
    ) -> bool {
        let Some(bin) = self.by_claim.get(claim).and_then(|i| self.bins.get_mut(*i)) else { return false };
        if !pod.shape.requests.fits(&bin.free) || !bin.accepts(&pod.shape) {
            return false;
        }
        bin.take(&Demand { shape: Arc::clone(&pod.shape), pods: vec![Arc::clone(pod)], zone: None }, 1, outcome);
        if let Some(zone) = &bin.zone {
            spread.count(&pod.shape, zone, 1);
        }
        true
    }

    /// The first bin from the place `from` on with room for one pod of a shape, in one zone if one is given.
    pub(super) fn find(&self, shape: &PodShape, zone: Option<&Zone>, from: usize) -> Option<usize> {
        let cap = cap_per_node(shape);
        let fits = |bin: &Bin| {
            (zone.is_none() || bin.zone.as_ref() == zone)
                && shape.requests.fits(&bin.free)
                && bin.accepts(shape)
                && cap.is_none_or(|cap| bin.alike(shape, &self.usage) < cap)
        };
        (from..self.bins.len()).find(|i| fits(&self.bins[*i]))
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.bins.len()
    }

    /// What a bin stands for, and its zone.
    pub(super) fn at(&self, place: usize) -> Option<(&Target, Option<&Zone>)> {
        self.bins.get(place).map(|bin| (&bin.target, bin.zone.as_ref()))
    }

    /// The place of what a bin stands for: they are in the order of their targets.
    pub(super) fn place_of(&self, target: &Target) -> Option<usize> {
        self.bins.binary_search_by(|bin| bin.target.cmp(target)).ok()
    }

    /// Counts one pod of a shape in a bin.
    pub(super) fn put(&mut self, place: usize, shape: &Arc<PodShape>) {
        if let Some(bin) = self.bins.get_mut(place) {
            bin.free.sub(&shape.requests);
            *bin.placed.entry(Arc::clone(shape)).or_insert(0) += 1;
        }
    }

    /// Adds a node that is yet to be made, after all others. Its number must be larger than those before.
    pub(super) fn add(&mut self, number: usize, offering: OfferingKey, offers: &Arc<Offers>, of: &Candidate) {
        self.bins.push(Bin {
            target: Target::New(number),
            zone: Some(offering.zone.clone()),
            promise: Promise::Bought(Arc::clone(offers), Arc::clone(&of.instance), offering),
            free: of.room.clone(),
            placed: BTreeMap::new(),
        });
    }

    /// Pods that were placed in this pass: shape, zone, how many.
    pub(super) fn placed(&self) -> impl Iterator<Item = (&Arc<PodShape>, &Zone, i64)> {
        self.bins
            .iter()
            .filter_map(|bin| Some((bin, bin.zone.as_ref()?)))
            .flat_map(|(bin, zone)| bin.placed.iter().map(move |(shape, pods)| (shape, zone, *pods)))
    }

    /// Zones with a node or claim that accepts the shape, full or not.
    pub(super) fn zones_for(&self, shape: &PodShape) -> BTreeSet<Zone> {
        self.bins.iter().filter(|b| b.accepts(shape)).filter_map(|b| b.zone.clone()).collect()
    }
}

impl Bin {
    fn accepts(&self, shape: &PodShape) -> bool {
        let (labels, taints) = match &self.promise {
            Promise::Node(node) => (shape.accepts_labels(&node.labels), &node.taints),
            Promise::Claim(claim, offerings) => {
                let fits = |(instance, key): &(Arc<InstanceType>, OfferingKey)| {
                    node_labels_accept(shape, instance, key, &claim.spec.labels)
                };
                (offerings.iter().all(fits), &claim.spec.taints)
            }
            Promise::Bought(offers, instance, key) => {
                (node_labels_accept(shape, instance, key, &offers.labels), &offers.pool.taints)
            }
        };
        labels && shape.untolerated(taints).is_none()
    }

    /// Pods here that the shape's own host name constraints count.
    fn alike(&self, shape: &PodShape, snapshot: &Snapshot) -> i64 {
        let running = match &self.target {
            Target::Node(name) => snapshot.usage(name).map_or(0, |usage| {
                let shapes = usage.pods.iter().filter_map(|key| snapshot.pods().get(key));
                shapes.filter(|pod| counts_per_node(shape, &pod.shape)).count() as i64
            }),
            Target::Claim(_) | Target::New(_) => 0,
        };
        let placed: i64 = self.placed.iter().filter(|(other, _)| counts_per_node(shape, other)).map(|(_, n)| n).sum();
        running + placed
    }

    fn take(&mut self, demand: &Demand, pods: usize, outcome: &mut Outcome) {
        if pods == 0 {
            return;
        }
        self.free.sub(&demand.shape.requests.times(pods as i64));
        *self.placed.entry(Arc::clone(&demand.shape)).or_insert(0) += pods as i64;
        outcome
            .placements
            .extend(demand.pods[..pods].iter().map(|p| Placement { pod: p.key.clone(), target: self.target.clone() }));
    }
}

/// It will have a node that is not yet ready for pods.
fn is_in_flight(claim: &Claim) -> bool {
    claim.deleting_at.is_none() && claim.status.launch_failed.is_none() && claim.status.initialized.is_none()
}

fn node_bin(node: &Arc<Node>, usage: Option<&NodeUsage>) -> Bin {
    let free = usage.map_or_else(|| node.allocatable.clone(), |u| node.allocatable.minus(&u.requested));
    Bin {
        target: Target::Node(node.name.clone()),
        promise: Promise::Node(Arc::clone(node)),
        free,
        zone: node.label(labels::ZONE).and_then(|z| Zone::new(z).ok()),
        placed: BTreeMap::new(),
    }
}

/// The bin of a claim in flight: the least room that any offering it may end on has, less daemons and pods that are
/// bound to its node already. `None` when none of its offerings is known any more.
fn claim_bin(claim: &Arc<Claim>, snapshot: &Snapshot) -> Option<Bin> {
    let types = snapshot.instance_types.get(&claim.spec.class)?;
    let wanted: Vec<&OfferingKey> = match &claim.intent {
        Some(intent) => vec![&intent.offering.key],
        None => claim.spec.planned.iter().map(|p| &p.key).collect(),
    };
    let known = |key: &&OfferingKey| {
        let instance = types.iter().find(|t| t.facts.name == key.size)?;
        Some((Arc::clone(instance), (*key).clone()))
    };
    let offerings: Vec<(Arc<InstanceType>, OfferingKey)> = wanted.iter().filter_map(known).collect();
    let mut free: Option<Resources> = None;
    for (instance, _) in &offerings {
        let daemons = daemon_overhead(snapshot, instance, &claim.spec.labels, &claim.spec.taints);
        let room = instance.allocatable.minus(&daemons);
        free = Some(match free {
            Some(least) => least_of(&least, &room),
            None => room,
        });
    }
    let mut free = free?;
    let node = claim.status.provider_id.as_ref().and_then(|id| snapshot.node_of(id));
    if let Some(usage) = node.and_then(|n| snapshot.usage(&n.name)) {
        free.sub(&usage.requested.minus(&usage.daemons));
    }
    let first = wanted.first().map(|key| &key.zone);
    let zone = first.filter(|z| wanted.iter().all(|key| key.zone == **z)).cloned();
    Some(Bin {
        target: Target::Claim(claim.name.clone()),
        promise: Promise::Claim(Arc::clone(claim), offerings),
        free,
        zone,
        placed: BTreeMap::new(),
    })
}

/// The lesser amount of each resource.
fn least_of(a: &Resources, b: &Resources) -> Resources {
    let mut extended = Resources::default();
    for (name, amount) in &a.extended {
        extended.set_extended(name, (*amount).min(b.extended(name)));
    }
    Resources {
        cpu_millis: a.cpu_millis.min(b.cpu_millis),
        memory: a.memory.min(b.memory),
        ephemeral_storage: a.ephemeral_storage.min(b.ephemeral_storage),
        pods: a.pods.min(b.pods),
        ..extended
    }
}
