//! Standing: where will pods run that come one at a time, each after the last?
//!
//! [`schedule`](super::schedule) places many pods at once and forgets them. This keeps the room that is left between
//! pods, so that each of them costs a look at a few nodes and not at the whole cluster: room only shrinks here, and what
//! a shape has found full stays full. It holds for one Snapshot; the next one begins anew, with what has been taken.
//! Volumes are not looked at: those of a pod that is just being created are mostly not there yet.

use super::Input;
use super::axes::{Domain, ZONE};
use super::candidates::{Candidate, Offers};
use super::finish::offerings;
use super::kinds::{Family, KindId};
use super::open::OpenNode;
use super::outcome::{Target, WhyNot};
use super::place::find_bin;
use super::remedy::{Remedy, remedy};
use super::solve::Solver;
use super::topology::{Surprises, zones};
use super::volumes::{Book, Volumes};
use super::why::why_not;
use crate::catalog::OfferingKey;
use crate::model::cluster::claim::PlannedOffering;
use crate::model::cluster::pod::{Pod, PodShape};
use crate::model::names::{ClaimName, NodeName, NodePoolName};
use crate::snapshot::spread_defaults::SpreadDefaults;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A node that somebody would have to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bought {
    /// Among what is on the market, the variant of its NodePool.
    counter: usize,
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
#[derive(Debug)]
struct State {
    family: Family,
    /// The zone of its place matters.
    is_zonal: bool,
    /// By zone: the first bin that may still have room.
    from: BTreeMap<Option<Domain>, usize>,
    /// By zone: the node that would be bought, or why none would be, until one is. Of shapes whose zone matters, the entry
    /// without a zone says why no zone will do.
    new: BTreeMap<Option<Domain>, Result<Arc<Bought>, Nowhere>>,
}

/// What must be worked out before a pod can be told its place.
enum Unknown {
    /// All about its shape.
    Shape,
    /// What would be bought for it, in one zone if one is given.
    Purchase(Option<Domain>),
}

/// The room that is left in a cluster.
pub struct Standing {
    solver: Solver,
    defaults: Option<SpreadDefaults>,
    bought: Vec<Arc<Bought>>,
    known: BTreeMap<Arc<PodShape>, State>,
}

impl Standing {
    /// All the room that there is. Promises of the input do not count.
    #[must_use]
    pub fn new(input: Input<'_>) -> Self {
        let solver = Solver::new((input, &Book::default()), &BTreeSet::new(), true, Surprises::new());
        Self { solver, defaults: SpreadDefaults::of(input.snapshot), bought: Vec::new(), known: BTreeMap::new() }
    }

    /// Where a pod would go now. Nothing is taken.
    ///
    /// # Errors
    /// [`Nowhere`], where there is no place.
    pub fn find(&mut self, pod: &Arc<Pod>) -> Result<Spot, Nowhere> {
        let pod = &*self.complete(pod);
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
        let pod = self.complete(pod);
        self.look_up(&pod).ok()
    }

    /// True for a new node that pods have been placed on.
    #[must_use]
    pub fn shares(&self, spot: &Spot) -> bool {
        matches!(spot, Spot::New(bought) if self.bought.iter().any(|b| Arc::ptr_eq(b, bought)))
    }

    /// Where a pod would go now without another node than those that exist or are thought of already.
    #[must_use]
    pub fn find_room(&mut self, pod: &Arc<Pod>) -> Option<Spot> {
        let pod = &*self.complete(pod);
        if !self.known.contains_key(&pod.shape) {
            self.learn(&pod.shape);
        }
        if self.known.get(&pod.shape).is_none_or(|state| state.is_zonal) {
            return None;
        }
        self.find_in(pod, None)
    }

    /// Takes the room for a pod. False when its place is no more.
    pub fn take(&mut self, pod: &Arc<Pod>, spot: &Spot) -> bool {
        let pod = self.complete(pod);
        let target = match spot {
            Spot::Node(name) => Target::Node(name.clone()),
            Spot::Claim(name) => Target::Claim(name.clone()),
            Spot::New(bought) => {
                let Some(number) = self.number_of(bought) else { return false };
                Target::New(number)
            }
        };
        let Some(site) = self.solver.bins.place_of(&target) else { return false };
        let kind = self.solver.learn(&pod.shape, Volumes::default()).bare;
        self.solver.take_bin(site, kind, 1);
        true
    }

    /// The pod with the spread constraints that the cluster gives it.
    fn complete<'p>(&self, pod: &'p Arc<Pod>) -> Cow<'p, Arc<Pod>> {
        let completed = self.defaults.as_ref().and_then(|defaults| defaults.complete(pod));
        completed.map_or(Cow::Borrowed(pod), Cow::Owned)
    }

    /// The number of a new node, which is added when it is not known yet.
    fn number_of(&mut self, bought: &Arc<Bought>) -> Option<usize> {
        // Who asks for one mostly asks for the last.
        if let Some(number) = self.bought.iter().rposition(|b| Arc::ptr_eq(b, bought)) {
            return Some(number);
        }
        let choices = &self.solver.shop.choices;
        // It may have been thought of before this standing, when the market was another.
        let of_pool = |pool: &usize| *pool < choices.pools() && choices.offers(*pool).pool.name == bought.pool;
        let pool = std::iter::once(bought.counter).chain(0..choices.pools()).find(of_pool)?;
        let (offers, number) = (Arc::clone(choices.offers(pool)), self.bought.len());
        let candidate = candidate_of(&offers, &bought.best.key)?;
        self.solver.add_bin(number, &bought.best.key, &offers, candidate);
        self.bought.push(Arc::clone(bought));
        // What had no place may have one there, and less may be bought than before.
        self.known.values_mut().for_each(|state| state.new.clear());
        Some(number)
    }

    /// Room that there is, in one zone if one is given.
    fn find_in(&mut self, pod: &Arc<Pod>, zone: Option<Domain>) -> Option<Spot> {
        let state = self.known.get_mut(&pod.shape)?;
        let from = state.from.entry(zone).or_insert(0);
        let (known, bins) = (&self.solver.known, &mut self.solver.bins);
        let site = find_bin(known, bins, (state.family.bare, zone), from)?;
        Some(match bins.target(site) {
            Target::Node(name) => Spot::Node(name.clone()),
            Target::Claim(name) => Spot::Claim(name.clone()),
            Target::New(number) => Spot::New(Arc::clone(self.bought.get(*number)?)),
        })
    }

    /// Where a pod would go, or what has to be known for that.
    fn look_up(&mut self, pod: &Arc<Pod>) -> Result<Result<Spot, Nowhere>, Unknown> {
        if pod.claims_devices {
            return Ok(Err(Nowhere { why: vec![(None, WhyNot::Devices)], remedy: None }));
        }
        let Some(state) = self.known.get(&pod.shape) else { return Err(Unknown::Shape) };
        if state.is_zonal {
            let kind = state.family.bare;
            return self.look_up_by_zone(pod, kind);
        }
        match self.find_in(pod, None) {
            Some(spot) => Ok(Ok(spot)),
            None => self.look_up_purchase(pod, None),
        }
    }

    fn look_up_by_zone(&mut self, pod: &Arc<Pod>, kind: KindId) -> Result<Result<Spot, Nowhere>, Unknown> {
        let mut nowhere = None;
        let all: BTreeSet<Domain> =
            zones(self.solver.all_zones()).chain(self.solver.bins.zones().iter().copied()).collect();
        let order = self.solver.known.topology.in_order(kind, ZONE, all.into_iter().map(|zone| (0, zone)));
        // kube-scheduler takes what there is before anybody makes a node.
        if let Some(spot) = order.iter().find_map(|zone| self.find_in(pod, Some(*zone))) {
            return Ok(Ok(spot));
        }
        for zone in order {
            if self.solver.known.topology.is_offered(kind, ZONE, zone) {
                match self.look_up_purchase(pod, Some(zone))? {
                    Ok(spot) => return Ok(Ok(spot)),
                    Err(why) => nowhere = nowhere.or(Some(why)),
                }
            }
        }
        nowhere.map_or_else(|| self.look_up_purchase(pod, None), |why| Ok(Err(why)))
    }

    /// A new node, in one zone if one is given.
    fn look_up_purchase(&self, pod: &Pod, zone: Option<Domain>) -> Result<Result<Spot, Nowhere>, Unknown> {
        let bought = self.known.get(&pod.shape).and_then(|state| state.new.get(&zone));
        bought.map(|bought| bought.clone().map(Spot::New)).ok_or(Unknown::Purchase(zone))
    }

    fn work_out(&mut self, pod: &Arc<Pod>, unknown: Unknown) {
        match unknown {
            Unknown::Shape => self.learn(&pod.shape),
            Unknown::Purchase(zone) => {
                let Some(state) = self.known.get(&pod.shape) else { return };
                let family = state.family.clone();
                let bought = if state.is_zonal && zone.is_none() { None } else { self.best(&family, zone) };
                let bought = bought.ok_or_else(|| Nowhere {
                    why: why_not(&mut self.solver, family.bare),
                    remedy: remedy(&self.solver.shop, &pod.shape),
                });
                if let Some(state) = self.known.get_mut(&pod.shape) {
                    state.new.insert(zone, bought);
                }
            }
        }
    }

    /// Counts what runs beside pods of a shape.
    fn learn(&mut self, shape: &Arc<PodShape>) {
        let family = self.solver.learn(shape, Volumes::default());
        self.solver.offer(&family);
        let is_zonal = self.solver.known.topology.asked_axes(family.bare).any(|axis| axis == ZONE);
        let state = State { family, is_zonal, from: BTreeMap::new(), new: BTreeMap::new() };
        self.known.insert(Arc::clone(shape), state);
    }

    /// The node that would be bought for a pod, with as much of what it prefers as can be had; in one zone if one is given.
    fn best(&mut self, family: &Family, zone: Option<Domain>) -> Option<Arc<Bought>> {
        let (kind, growth) = family.steps.iter().find_map(|kind| {
            let zones = match zone {
                Some(zone) => vec![Some(zone)],
                None => self.solver.zones_in_order(*kind, zones(self.solver.all_zones())),
            };
            zones.into_iter().find_map(|zone| Some((*kind, self.solver.alone(*kind, zone)?)))
        })?;
        let Solver { known, shop, .. } = &self.solver;
        let requests = known.kinds.requests(kind).clone();
        let open = OpenNode {
            choice: growth.choice,
            best: growth.best,
            requests,
            disks: 0,
            needed: Arc::from([]),
            version: 0,
            is_closed: false,
        };
        let offerings = offerings(shop, &open, &[]);
        let counter = shop.choices.get(open.choice).offers;
        let pool = shop.choices.offers(counter).pool.name.clone();
        let number = offerings.len();
        Some(Arc::new(Bought { counter, pool, best: offerings.into_iter().next()?, offerings: number }))
    }
}

/// What a pool may buy of an offering.
fn candidate_of<'o>(offers: &'o Offers, key: &OfferingKey) -> Option<&'o Candidate> {
    let same = |c: &&Candidate| c.instance.facts.name == key.size && c.capacity_type == key.capacity_type;
    offers.candidates.iter().find(same)
}

impl std::fmt::Debug for Standing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Standing")
            .field("bins", &self.solver.bins.len())
            .field("bought", &self.bought.len())
            .finish_non_exhaustive()
    }
}
