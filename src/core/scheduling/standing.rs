//! Standing: where will pods run that come one at a time, each after the last?
//!
//! [`schedule`](super::schedule) places many pods at once and forgets them. This keeps the room that is left between
//! pods, so that each of them costs a look at a few nodes and not at the whole cluster: room only shrinks here, and what
//! a shape has found full stays full. It holds for one Snapshot; the next one begins anew, with what has been taken.

use super::Input;
use super::bins::Bins;
use super::candidates::{Candidate, Offers};
use super::demand::Demand;
use super::outcome::{Outcome, Target, WhyNot};
use super::pack::Packer;
use super::remedy::{Remedy, remedy};
use super::spread::{Running, SpreadBook};
use crate::catalog::OfferingKey;
use crate::cluster::claim::PlannedOffering;
use crate::cluster::pod::{Pod, PodShape};
use crate::names::{ClaimName, NodeName, NodePoolName, Zone};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A node that somebody would have to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bought {
    /// Its NodePool.
    pub pool: NodePoolName,
    /// The cheapest offering that holds the pod that it is for.
    pub best: PlannedOffering,
    /// How many offerings hold that pod.
    pub offerings: usize,
}

/// Where one pod goes.
#[derive(Debug, Clone)]
pub enum Spot {
    /// On a node that exists.
    Node(NodeName),
    /// On a node that is being made.
    Claim(ClaimName),
    /// On a new node: the same for all pods that share it.
    New(Arc<Bought>),
}

/// There is no place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nowhere {
    /// Why each pool cannot help; `None` stands for all pools.
    pub why: Vec<(Option<NodePoolName>, WhyNot)>,
    /// The least that would have to change; `None` where that is not known.
    pub remedy: Option<Remedy>,
}

/// What has been found out about a shape.
#[derive(Debug, Default)]
struct Known {
    /// By zone: the place of the first bin that may still have room.
    from: BTreeMap<Option<Zone>, usize>,
    /// Only for shapes that are spread over zones.
    zones: Option<Arc<Zones>>,
    /// By zone: the node that would be bought, or why none would be, until one is. Of shapes that are spread over zones,
    /// the entry without a zone says why no zone will do.
    new: BTreeMap<Option<Zone>, Result<Arc<Bought>, Nowhere>>,
}

/// Where pods of a shape may run.
#[derive(Debug)]
struct Zones {
    /// Where a node may be bought.
    offered: BTreeSet<Zone>,
    /// These, and those with nodes.
    all: BTreeSet<Zone>,
}

/// What must be worked out before a pod can be told its place.
enum Unknown {
    /// All about its shape.
    Shape,
    /// What would be bought for it, in one zone if one is given.
    Purchase(Option<Zone>),
}

/// The room that is left in a cluster.
pub struct Standing {
    bins: Bins,
    packer: Packer,
    running: Running,
    spread: SpreadBook,
    bought: Vec<Arc<Bought>>,
    known: BTreeMap<Arc<PodShape>, Known>,
}

impl Standing {
    /// All the room that there is. Promises of the input do not count.
    #[must_use]
    pub fn new(input: Input<'_>) -> Self {
        let (bins, packer) = (Bins::new(input), Packer::new(input));
        let running = Running::of(input.snapshot, input.without, input.snapshot.pods().values());
        let spread = SpreadBook::default();
        Self { bins, packer, running, spread, bought: Vec::new(), known: BTreeMap::new() }
    }

    /// Where a pod would go now. Nothing is taken.
    ///
    /// # Errors
    /// [`Nowhere`], where there is no place.
    pub fn find(&mut self, pod: &Arc<Pod>) -> Result<Spot, Nowhere> {
        // Every turn finds out one thing more, and there is one for the shape and one for each zone.
        loop {
            match self.look_up(pod) {
                Ok(found) => return found,
                Err(unknown) => self.work_out(pod, unknown),
            }
        }
    }

    /// The same, where that is a matter of looking it up: where nothing has to be bought first, and where pods of this shape
    /// have been here before.
    pub fn find_at_once(&mut self, pod: &Arc<Pod>) -> Option<Result<Spot, Nowhere>> {
        self.look_up(pod).ok()
    }

    /// True for a new node that pods have been placed on.
    #[must_use]
    pub fn shares(&self, spot: &Spot) -> bool {
        matches!(spot, Spot::New(bought) if self.bought.iter().any(|b| Arc::ptr_eq(b, bought)))
    }

    /// Where a pod would go now without another node than those that exist or are thought of already.
    #[must_use]
    pub fn find_room(&mut self, pod: &Arc<Pod>) -> Option<Spot> {
        if SpreadBook::unsupported(&pod.shape).is_some() || SpreadBook::is_zonal(&pod.shape) {
            return None;
        }
        self.find_in(pod, None)
    }

    /// Takes the room for a pod. False when its place is no more.
    pub fn take(&mut self, pod: &Pod, spot: &Spot) -> bool {
        let target = match spot {
            Spot::Node(name) => Target::Node(name.clone()),
            Spot::Claim(name) => Target::Claim(name.clone()),
            Spot::New(bought) => {
                let Some(number) = self.number_of(bought) else { return false };
                Target::New(number)
            }
        };
        let Some(place) = self.bins.place_of(&target) else { return false };
        self.bins.put(place, &pod.shape);
        if let Some((_, Some(zone))) = self.bins.at(place) {
            self.spread.count(&pod.shape, zone, 1);
        }
        true
    }

    /// The number of a new node, which is added when it is not known yet.
    fn number_of(&mut self, bought: &Arc<Bought>) -> Option<usize> {
        // Who asks for one mostly asks for the last.
        if let Some(number) = self.bought.iter().rposition(|b| Arc::ptr_eq(b, bought)) {
            return Some(number);
        }
        let offers = &self.packer.pools.iter().find(|pool| pool.offers.pool.name == bought.pool)?.offers;
        let (offers, number) = (Arc::clone(offers), self.bought.len());
        let candidate = candidate_of(&offers, &bought.best.key)?;
        self.bins.add(number, bought.best.key.clone(), &offers, candidate);
        count(&mut self.packer, &bought.pool, candidate);
        self.bought.push(Arc::clone(bought));
        // What had no place may have one there, and less may be bought than before.
        self.known.values_mut().for_each(|known| known.new.clear());
        Some(number)
    }

    /// Room that there is, in one zone if one is given.
    fn find_in(&mut self, pod: &Arc<Pod>, zone: Option<&Zone>) -> Option<Spot> {
        let known = self.known.entry(Arc::clone(&pod.shape)).or_default();
        let from = known.from.entry(zone.cloned()).or_insert(0);
        let place = self.bins.find(&pod.shape, zone, *from);
        *from = place.unwrap_or_else(|| self.bins.len());
        let (target, _) = self.bins.at(place?)?;
        Some(match target {
            Target::Node(name) => Spot::Node(name.clone()),
            Target::Claim(name) => Spot::Claim(name.clone()),
            Target::New(number) => Spot::New(Arc::clone(self.bought.get(*number)?)),
        })
    }

    /// Where a pod would go, or what has to be known for that.
    fn look_up(&mut self, pod: &Arc<Pod>) -> Result<Result<Spot, Nowhere>, Unknown> {
        if let Some(why) = SpreadBook::unsupported(&pod.shape) {
            return Ok(Err(Nowhere { why: vec![(None, why)], remedy: None }));
        }
        let Some(known) = self.known.get(&pod.shape) else { return Err(Unknown::Shape) };
        match known.zones.clone() {
            Some(zones) => self.look_up_by_zone(pod, &zones),
            None => match self.find_in(pod, None) {
                Some(spot) => Ok(Ok(spot)),
                None => self.look_up_purchase(pod, None),
            },
        }
    }

    fn look_up_by_zone(&mut self, pod: &Arc<Pod>, zones: &Zones) -> Result<Result<Spot, Nowhere>, Unknown> {
        let mut nowhere = None;
        for zone in self.spread.order(&pod.shape, &zones.all) {
            if let Some(spot) = self.find_in(pod, Some(&zone)) {
                return Ok(Ok(spot));
            }
            if zones.offered.contains(&zone) {
                match self.look_up_purchase(pod, Some(&zone))? {
                    Ok(spot) => return Ok(Ok(spot)),
                    Err(why) => nowhere = nowhere.or(Some(why)),
                }
            }
        }
        nowhere.map_or_else(|| self.look_up_purchase(pod, None), |why| Ok(Err(why)))
    }

    /// A new node, in one zone if one is given.
    fn look_up_purchase(&self, pod: &Pod, zone: Option<&Zone>) -> Result<Result<Spot, Nowhere>, Unknown> {
        let bought = self.known.get(&pod.shape).and_then(|known| known.new.get(&zone.cloned()));
        bought.map(|bought| bought.clone().map(Spot::New)).ok_or_else(|| Unknown::Purchase(zone.cloned()))
    }

    fn work_out(&mut self, pod: &Arc<Pod>, unknown: Unknown) {
        let is_zonal = SpreadBook::is_zonal(&pod.shape);
        match unknown {
            Unknown::Shape => {
                let zones = is_zonal.then(|| Arc::new(self.zones_of(&pod.shape)));
                self.known.entry(Arc::clone(&pod.shape)).or_default().zones = zones;
            }
            Unknown::Purchase(zone) => {
                let bought = if is_zonal && zone.is_none() {
                    Err(Nowhere { why: vec![(None, WhyNot::Spread)], remedy: remedy(&self.packer, &pod.shape) })
                } else {
                    best(&self.packer, pod, zone.as_ref())
                };
                self.known.entry(Arc::clone(&pod.shape)).or_default().new.insert(zone, bought);
            }
        }
    }

    /// Counts what runs beside pods of a shape, and lists the zones where they may run.
    fn zones_of(&mut self, shape: &Arc<PodShape>) -> Zones {
        let mut fresh = SpreadBook::of([shape], &self.running);
        for (other, zone, pods) in self.bins.placed() {
            fresh.count(other, zone, pods);
        }
        self.spread.learn(fresh);
        let offered = self.packer.zones_for(shape);
        let mut all = self.bins.zones_for(shape);
        self.spread.add_domains(shape, &all);
        all.extend(offered.iter().cloned());
        Zones { offered, all }
    }
}

/// The node that would be bought for a pod, in one zone if one is given.
fn best(packer: &Packer, pod: &Arc<Pod>, zone: Option<&Zone>) -> Result<Arc<Bought>, Nowhere> {
    let mut outcome = Outcome::default();
    let demand = Demand { shape: Arc::clone(&pod.shape), pods: vec![Arc::clone(pod)], zone: zone.cloned() };
    packer.clone().pack(vec![demand], &mut outcome);
    let bought = outcome.new.pop().and_then(|node| {
        let (offerings, best) = (node.offerings.len(), node.offerings.into_iter().next()?);
        Some(Arc::new(Bought { pool: node.pool, best, offerings }))
    });
    bought.ok_or_else(|| {
        let why = outcome.unplaced.pop().map(|group| group.why).unwrap_or_default();
        Nowhere { why, remedy: remedy(packer, &pod.shape) }
    })
}

/// What a pool may buy of an offering.
fn candidate_of<'o>(offers: &'o Offers, key: &OfferingKey) -> Option<&'o Candidate> {
    let same = |c: &&Candidate| c.instance.facts.name == key.size && c.capacity_type == key.capacity_type;
    offers.candidates.iter().find(same)
}

/// Counts a node of a pool against its limits and all quotas.
fn count(packer: &mut Packer, pool: &NodePoolName, candidate: &Candidate) {
    for state in &mut packer.pools {
        state.room.take(&candidate.instance.facts, candidate.capacity_type);
        if state.offers.pool.name == *pool {
            state.used.add(&candidate.instance.capacity);
            state.nodes += 1;
        }
    }
    packer.budget = packer.budget.saturating_sub(1);
}

impl std::fmt::Debug for Standing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Standing").field("bins", &self.bins.len()).field("bought", &self.bought.len()).finish()
    }
}
