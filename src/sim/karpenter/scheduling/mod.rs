//! Karpenter's scheduling simulation: where pods would go, on existing nodes and on new ones.
//!
//! Pods are taken by CPU and memory, the largest first, each to the first existing node that takes it, else to the
//! planned NodeClaim with the fewest pods, else to a new one of the first NodePool that can.

mod constraints;
mod groups;
mod new_claim;
mod topology;

use super::offerings::{OfferingFilter, PoolOptions};
use super::view::{NodeSet, NodeView, View};
use constraints::{Constraints, PodNeeds};
use groups::NodeDomain;
use napkeeper_core::catalog::InstanceType;
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::cluster::pod::{HostPort, Pod, PodPhase, PodShape, TaintEffect};
use napkeeper_core::model::cluster::pool::amount;
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{NodeName, NodePoolName, Uid};
use napkeeper_core::model::requirements::Requirements;
pub(super) use new_claim::has_min_values;
use new_claim::{Narrowed, NewClaim};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use topology::Topology;

/// Most instance types that a NodeClaim names.
const MOST_TYPES: usize = 600;

/// What is to be simulated.
#[derive(Debug)]
pub(super) struct Request<'v> {
    /// Pods that need a node.
    pub(super) pods: Vec<Arc<Pod>>,
    /// Nodes that are not used, beside those that are marked for deletion.
    pub(super) without: &'v NodeSet,
    /// Pods of nodes that would be disrupted do not go to nodes inside their `consolidateAfter`.
    pub(super) spares_fresh: bool,
    /// With more new NodeClaims than this the answer does not matter, and the rest is not simulated.
    pub(super) most_new: usize,
}

/// Where the pods would go.
#[derive(Debug, Clone, Default)]
pub(super) struct Results {
    pub(super) new_claims: Vec<PlannedClaim>,
    /// Pods on existing nodes.
    pub(super) placed: BTreeMap<NodeName, Vec<Arc<Pod>>>,
    /// Pods that can go nowhere.
    pub(super) unplaced: Vec<Arc<Pod>>,
}

/// A NodeClaim to create.
#[derive(Debug, Clone)]
pub(super) struct PlannedClaim {
    pub(super) pool: NodePoolName,
    pub(super) requirements: Requirements,
    /// Cheapest first.
    pub(super) types: Vec<Arc<InstanceType>>,
    /// The pods that it is for.
    pub(super) pods: Vec<Arc<Pod>>,
}

/// Simulates.
pub(super) fn simulate(view: &View, request: Request<'_>) -> Results {
    let topology = Topology::new(view, &request.pods, request.without);
    let mut solver = Solver::new(view, &request, topology);
    let unplaced = solver.solve(request.pods);
    solver.results(unplaced)
}

/// An existing node while pods are added to it.
#[derive(Debug)]
struct ExistingNode<'v> {
    node: &'v NodeView,
    hostname: Arc<str>,
    room: Resources,
    ports: Vec<HostPort>,
    /// It is inside its `consolidateAfter`.
    is_fresh: bool,
    placed: Vec<Arc<Pod>>,
}

/// What is left of a NodePool.
#[derive(Debug)]
struct PoolRoom<'v> {
    options: &'v Arc<PoolOptions>,
    /// Types with an offering that can be had.
    types: Vec<usize>,
    /// What its limits leave, by resource.
    left: BTreeMap<Arc<str>, i64>,
}

struct Solver<'v> {
    view: &'v View,
    topology: Topology<'v>,
    existing: Vec<ExistingNode<'v>>,
    leaving: BTreeSet<&'v NodeName>,
    claims: Vec<NewClaim>,
    pools: Vec<PoolRoom<'v>>,
    tolerates: bool,
    needs: BTreeMap<(*const PodShape, usize), Rc<PodNeeds>>,
    /// For shapes that nothing but room decides about: the first existing node that may still take one, by whether
    /// fresh nodes are open to them.
    first: BTreeMap<(*const PodShape, bool), usize>,
    /// Shapes of the same kind that nothing takes any more.
    hopeless: Vec<*const PodShape>,
    opened: usize,
    most_new: usize,
}

impl<'v> Solver<'v> {
    fn new(view: &'v View, request: &Request<'v>, mut topology: Topology<'v>) -> Self {
        let used = view.nodes.iter().filter(|node| !node.is_marked() && !request.without.contains(&node.name));
        let existing: Vec<ExistingNode<'v>> = used
            .map(|node| ExistingNode {
                node,
                hostname: node.hostname(),
                room: node.room.clone(),
                ports: node.ports.clone(),
                is_fresh: request.spares_fresh && is_under_consolidate_after(view, node),
                placed: Vec::new(),
            })
            .collect();
        existing.iter().for_each(|node| topology.open_host(&node.hostname));
        let pools = view.pools.iter().filter(|options| options.pool.replicas.is_none());
        let pools: Vec<PoolRoom<'v>> = pools.map(|options| PoolRoom::new(view, options, &existing)).collect();
        let advises = |room: &PoolRoom<'_>| {
            room.options.pool.taints.iter().any(|taint| taint.effect == TaintEffect::PreferNoSchedule)
        };
        Self {
            view,
            topology,
            existing,
            leaving: view.nodes.iter().filter(|node| node.is_marked()).map(|node| &node.name).collect(),
            claims: Vec::new(),
            tolerates: pools.iter().any(advises),
            pools,
            needs: BTreeMap::new(),
            first: BTreeMap::new(),
            hopeless: Vec::new(),
            opened: 0,
            most_new: request.most_new,
        }
    }

    /// Places pods as long as that makes progress; the rest is returned.
    fn solve(&mut self, mut pods: Vec<Arc<Pod>>) -> Vec<Arc<Pod>> {
        pods.sort_by(|a, b| order(a).cmp(&order(b)));
        // Counting the groups of all pods first, as upstream does, makes domains known before the first is placed.
        for pod in &pods {
            self.needs_of(pod, &Constraints::of(&pod.shape), 0);
        }
        let mut queue: VecDeque<Arc<Pod>> = pods.into();
        let mut length_at_last_try: BTreeMap<Uid, usize> = BTreeMap::new();
        while let Some(pod) = queue.pop_front() {
            if length_at_last_try.get(&pod.uid) == Some(&(queue.len() + 1)) {
                queue.push_front(pod);
                break;
            }
            if self.claims.len() > self.most_new {
                break;
            }
            if !self.place(&pod) {
                queue.push_back(Arc::clone(&pod));
                length_at_last_try.insert(pod.uid.clone(), queue.len());
            }
        }
        queue.into()
    }

    /// Places a pod, and gives up its preferences one by one until that succeeds.
    fn place(&mut self, pod: &Arc<Pod>) -> bool {
        if self.hopeless.contains(&Arc::as_ptr(&pod.shape)) {
            return false;
        }
        let mut constraints = Constraints::of(&pod.shape);
        let mut relaxed = 0;
        loop {
            let needs = self.needs_of(pod, &constraints, relaxed);
            if self.add(pod, &needs) {
                return true;
            }
            if !constraints.relax(self.tolerates) {
                if relaxed == 0 && self.is_plain(pod, &needs) {
                    self.hopeless.push(Arc::as_ptr(&pod.shape));
                }
                return false;
            }
            relaxed += 1;
        }
    }

    fn needs_of(&mut self, pod: &Arc<Pod>, constraints: &Constraints, relaxed: usize) -> Rc<PodNeeds> {
        let key = (Arc::as_ptr(&pod.shape), relaxed);
        if let Some(known) = self.needs.get(&key) {
            return Rc::clone(known);
        }
        let needs = Rc::new(constraints.needs(&mut self.topology));
        self.needs.insert(key, Rc::clone(&needs));
        needs
    }

    /// Nothing but room decides about it: where it does not fit now, an equal pod will not fit later.
    fn is_plain(&self, pod: &Pod, needs: &PodNeeds) -> bool {
        needs.is_plain && pod.volumes.is_empty() && !self.topology.repels(&pod.shape)
    }

    fn add(&mut self, pod: &Arc<Pod>, needs: &PodNeeds) -> bool {
        let view = self.view;
        let volumes = view.volumes.get(&pod.key).map_or(&[][..], Vec::as_slice);
        if self.add_to_existing(pod, needs, volumes) {
            return true;
        }
        self.claims.sort_by_key(|claim| claim.pods.len());
        let (topology, unavailable) = (&self.topology, &view.unavailable);
        let fit = |claim: &NewClaim| claim.with(needs, volumes, topology, unavailable);
        let found = self.claims.iter().enumerate().find_map(|(index, claim)| Some((index, fit(claim)?)));
        if let Some((index, narrowed)) = found {
            self.claims[index].add(pod, needs, narrowed, &mut self.topology);
            return true;
        }
        let found = (0..self.pools.len()).find_map(|index| Some((index, self.open(index, needs, volumes)?)));
        let Some((index, (mut claim, narrowed))) = found else { return false };
        claim.add(pod, needs, narrowed, &mut self.topology);
        self.pools[index].reserve(&claim.types);
        self.claims.push(claim);
        true
    }

    fn add_to_existing(&mut self, pod: &Arc<Pod>, needs: &PodNeeds, volumes: &[Requirements]) -> bool {
        let leaves = || pod.node.as_ref().is_some_and(|name| self.leaving.contains(name));
        let may_join_fresh = pod.phase == PodPhase::Pending || leaves();
        let is_plain = self.is_plain(pod, needs);
        let key = (Arc::as_ptr(&pod.shape), may_join_fresh);
        let first = if is_plain { self.first.get(&key).copied().unwrap_or(0) } else { 0 };
        let topology = &self.topology;
        let takes = |existing: &ExistingNode<'_>| {
            (may_join_fresh || !existing.is_fresh) && existing.takes(needs, volumes, topology)
        };
        let found = (first..self.existing.len()).find(|index| takes(&self.existing[*index]));
        if is_plain {
            self.first.insert(key, found.unwrap_or(self.existing.len()));
        }
        let Some(existing) = found.and_then(|index| self.existing.get_mut(index)) else { return false };
        existing.room.sub(&pod.shape.requests);
        existing.ports.extend(pod.shape.ports.iter().cloned());
        existing.placed.push(Arc::clone(pod));
        self.topology.record_on(&needs.shape, &needs.repelling, existing.node);
        true
    }

    /// A new NodeClaim of a pool that takes the pod.
    fn open(&mut self, pool: usize, needs: &PodNeeds, volumes: &[Requirements]) -> Option<(NewClaim, Narrowed)> {
        let room = &self.pools[pool];
        if room.left.get("nodes").is_some_and(|left| *left == 0) {
            return None;
        }
        let types: Vec<usize> = room.types.iter().filter(|index| room.holds(**index)).copied().collect();
        self.opened += 1;
        let claim = NewClaim::new(room.options, types, self.opened);
        let narrowed = claim.with(needs, volumes, &self.topology, &self.view.unavailable)?;
        Some((claim, narrowed))
    }

    fn results(self, unplaced: Vec<Arc<Pod>>) -> Results {
        let placed = self.existing.into_iter().filter(|existing| !existing.placed.is_empty());
        let placed = placed.map(|existing| (existing.node.name.clone(), existing.placed)).collect();
        let new_claims = self.claims.into_iter().map(|claim| planned(self.view, claim)).collect();
        Results { new_claims, placed, unplaced }
    }
}

impl ExistingNode<'_> {
    fn takes(&self, needs: &PodNeeds, volumes: &[Requirements], topology: &Topology<'_>) -> bool {
        let labels = &self.node.labels;
        !self.node.cordoned
            && needs.shape.requests.fits(&self.room)
            && needs.tolerates(&self.node.taints)
            && HostPort::all_free(&needs.shape.ports, &self.ports)
            && needs.requirements.satisfied_by(labels)
            && (volumes.is_empty() || volumes.iter().any(|volume| volume.satisfied_by(labels)))
            && self.keeps_topology(needs, topology)
    }

    fn keeps_topology(&self, needs: &PodNeeds, topology: &Topology<'_>) -> bool {
        let domain = NodeDomain::Existing(self.node, &self.hostname);
        let Some(chosen) = topology.choose(&needs.shape, &needs.groups, &needs.strict, domain) else { return false };
        chosen.into_iter().all(|(key, domains)| {
            let own = if *key == *labels::HOSTNAME { Some(&self.hostname) } else { self.node.labels.get(&key) };
            own.is_some_and(|own| domains.contains(own))
        })
    }
}

impl<'v> PoolRoom<'v> {
    fn new(view: &View, options: &'v Arc<PoolOptions>, existing: &[ExistingNode<'_>]) -> Self {
        let filter = OfferingFilter::of(&options.template);
        let can_be_had = |index: &usize| {
            let instance = &options.types[*index].instance;
            view.unavailable.is_empty() || view.unavailable.offerings(instance, &filter).next().is_some()
        };
        let types = (0..options.types.len()).filter(can_be_had).collect();
        let limits = &options.pool.limits;
        let mut left = limits.resources.clone();
        let own = existing.iter().filter(|e| e.node.claim.as_ref().is_some_and(|c| c.pool == options.pool.name));
        for existing in own {
            left.iter_mut().for_each(|(name, left)| *left -= amount(&existing.node.capacity, name));
        }
        // Nodes are no resource of a node, so that this limit is never used up: upstream only looks for a limit of 0.
        left.extend(limits.nodes.map(|nodes| (Arc::from("nodes"), nodes)));
        Self { options, types, left }
    }

    /// Its limits have room for a node of this type.
    fn holds(&self, index: usize) -> bool {
        let capacity = &self.options.types[index].instance.capacity;
        self.left.iter().all(|(name, left)| amount(capacity, name) <= *left)
    }

    /// Subtracts the largest of these types, which is what may be launched.
    fn reserve(&mut self, types: &[usize]) {
        for (name, left) in &mut self.left {
            let largest = types.iter().map(|index| amount(&self.options.types[*index].instance.capacity, name)).max();
            *left -= largest.unwrap_or(0);
        }
    }
}

fn planned(view: &View, mut claim: NewClaim) -> PlannedClaim {
    claim.requirements.remove(labels::HOSTNAME);
    let types = claim.types.iter().map(|index| Arc::clone(&claim.options.types[*index].instance)).collect();
    let mut types = by_price(view, types, &claim.requirements);
    types.truncate(MOST_TYPES);
    PlannedClaim { pool: claim.options.pool.name.clone(), requirements: claim.requirements, types, pods: claim.pods }
}

/// Instance types by the cheapest offering that satisfies the requirements.
pub(super) fn by_price(
    view: &View,
    mut types: Vec<Arc<InstanceType>>,
    requirements: &Requirements,
) -> Vec<Arc<InstanceType>> {
    let filter = OfferingFilter::of(requirements);
    types.sort_by_cached_key(|instance| {
        let price = view.unavailable.cheapest(instance, &filter);
        (price.is_none(), price, instance.facts.name.clone())
    });
    types
}

/// The largest pods first, then the oldest.
fn order(pod: &Pod) -> impl Ord + '_ {
    let requests = &pod.shape.requests;
    (Reverse(requests.cpu_millis), Reverse(requests.memory), pod.created_at, &pod.uid)
}

/// The last event of a pod on the node, or its initialization, is less than `consolidateAfter` ago.
pub(super) fn is_under_consolidate_after(view: &View, node: &NodeView) -> bool {
    let Some(claim) = &node.claim else { return false };
    let after = view.pool(&claim.pool).and_then(|options| options.pool.disruption.consolidate_after);
    let (Some(after), Some(initialized)) = (after, claim.initialized_at) else { return false };
    view.now.duration_since(claim.last_pod_event.unwrap_or(initialized)) < after
}
