//! Incremental scheduler: places pods one at a time and keeps the remaining capacity between them.
//!
//! [`schedule`](super::schedule) places many pods at once and forgets them. This keeps the capacity that is left
//! between pods, so that each of them costs a look at a few nodes and not at the whole cluster: capacity only shrinks
//! here, and what a shape has found full stays full. It holds for one Snapshot; the next one restarts, with what has
//! been taken. Volumes are not looked at: those of a pod that is just being created are mostly not there yet.

use crate::catalog::OfferingKey;
use crate::model::cluster::claim::PlannedOffering;
use crate::model::cluster::pod::{Pod, PodShape};
use crate::model::names::{ClaimName, NodeName, NodePoolName};
use crate::scheduling::Input;
use crate::scheduling::explain::suggestion::{Suggestion, suggest};
use crate::scheduling::explain::unschedulable::unschedulable_reasons;
use crate::scheduling::nodes::new_node::OpenNode;
use crate::scheduling::nodes::place::find_existing;
use crate::scheduling::nodes::planned_offerings::planned_offerings;
use crate::scheduling::nodes::state::SchedulingState;
use crate::scheduling::offerings::available::{InstanceCandidate, PoolOfferings};
use crate::scheduling::pods::class::{PodClassId, Relaxation};
use crate::scheduling::pods::volume_limits::{PodVolumes, VolumeIndex};
use crate::scheduling::result::{Target, UnschedulableReason};
use crate::scheduling::topology::LateDomains;
use crate::scheduling::topology::domain::{Domain, ZONE_KEY, zones_in_mask};
use crate::snapshot::spread_defaults::SpreadDefaults;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A node that somebody would have to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedNode {
    /// Among the available offerings, the variant of its NodePool.
    pool_index: usize,
    /// Its NodePool.
    pub pool: NodePoolName,
    /// The cheapest offering that holds the pod that it is for.
    pub cheapest: PlannedOffering,
    /// How many offerings hold that pod.
    pub offering_count: usize,
}

/// Where one pod goes.
#[derive(Debug, Clone)]
pub enum Placement {
    /// On a node that exists.
    Node(NodeName),
    /// On a node that is being made.
    Claim(ClaimName),
    /// On a new node: the same for all pods that share it.
    New(Arc<PlannedNode>),
}

/// There is no place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unschedulable {
    /// Why each pool cannot help; `None` stands for all pools.
    pub reasons: Vec<(Option<NodePoolName>, UnschedulableReason)>,
    /// The least that would have to change; `None` where that is not known.
    pub suggestion: Option<Suggestion>,
}

/// What has been found out about a shape.
#[derive(Debug)]
struct ShapeState {
    relaxation: Relaxation,
    /// The zone of its place matters.
    is_zonal: bool,
    /// By zone: the first existing node that may still have room.
    cursors: BTreeMap<Option<Domain>, usize>,
    /// By zone: the node that would be bought, or why none would be, until one is. Of shapes whose zone matters, the entry
    /// without a zone says why no zone will do.
    new_nodes: BTreeMap<Option<Domain>, Result<Arc<PlannedNode>, Unschedulable>>,
}

/// What must be worked out before a pod can be told its place.
enum MissingState {
    /// All about its shape.
    Shape,
    /// What would be bought for it, in one zone if one is given.
    NewNode(Option<Domain>),
}

/// The room that is left in a cluster.
pub struct IncrementalScheduler {
    state: SchedulingState,
    defaults: Option<SpreadDefaults>,
    planned: Vec<Arc<PlannedNode>>,
    shapes: BTreeMap<Arc<PodShape>, ShapeState>,
}

impl IncrementalScheduler {
    /// All the room that there is. Promises of the input do not count.
    #[must_use]
    pub fn new(input: Input<'_>) -> Self {
        let scheduler =
            SchedulingState::new((input, &VolumeIndex::default()), &BTreeSet::new(), true, LateDomains::new());
        Self {
            state: scheduler,
            defaults: SpreadDefaults::of(input.snapshot),
            planned: Vec::new(),
            shapes: BTreeMap::new(),
        }
    }

    /// Where a pod would go now. Nothing is taken.
    ///
    /// # Errors
    /// [`Unschedulable`], where there is no place.
    pub fn find(&mut self, pod: &Arc<Pod>) -> Result<Placement, Unschedulable> {
        let pod = &*self.with_default_spread(pod);
        // Every turn finds out one thing more, and there is one for the shape and one for each zone.
        loop {
            match self.look_up(pod) {
                Ok(found) => return found,
                Err(unknown) => self.compute(pod, unknown),
            }
        }
    }

    /// The same, where that is a matter of looking it up: where nothing has to be bought first, and where pods of this shape
    /// have been here before.
    pub fn find_cached(&mut self, pod: &Arc<Pod>) -> Option<Result<Placement, Unschedulable>> {
        let pod = self.with_default_spread(pod);
        self.look_up(&pod).ok()
    }

    /// True for a new node that pods have been placed on.
    #[must_use]
    pub fn is_shared(&self, placement: &Placement) -> bool {
        matches!(placement, Placement::New(bought) if self.planned.iter().any(|b| Arc::ptr_eq(b, bought)))
    }

    /// Where a pod would go now without another node than those that exist or are thought of already.
    #[must_use]
    pub fn find_without_new_node(&mut self, pod: &Arc<Pod>) -> Option<Placement> {
        let pod = &*self.with_default_spread(pod);
        if !self.shapes.contains_key(&pod.shape) {
            self.register_shape(&pod.shape);
        }
        if self.shapes.get(&pod.shape).is_none_or(|state| state.is_zonal) {
            return None;
        }
        self.find_in(pod, None)
    }

    /// Takes the capacity for a pod. False when its place is no more.
    pub fn take(&mut self, pod: &Arc<Pod>, placement: &Placement) -> bool {
        let pod = self.with_default_spread(pod);
        let target = match placement {
            Placement::Node(name) => Target::Node(name.clone()),
            Placement::Claim(name) => Target::Claim(name.clone()),
            Placement::New(bought) => {
                let Some(number) = self.index_of_planned(bought) else { return false };
                Target::New(number)
            }
        };
        let Some(site) = self.state.existing.index_of_target(&target) else { return false };
        let class = self.state.register_shape(&pod.shape, PodVolumes::default()).required_only;
        self.state.add_to_existing(site, class, 1);
        true
    }

    /// The pod with the spread constraints that the cluster gives it.
    fn with_default_spread<'p>(&self, pod: &'p Arc<Pod>) -> Cow<'p, Arc<Pod>> {
        let completed = self.defaults.as_ref().and_then(|defaults| defaults.complete(pod));
        completed.map_or(Cow::Borrowed(pod), Cow::Owned)
    }

    /// The number of a new node, which is added when it is not known yet.
    fn index_of_planned(&mut self, planned_node: &Arc<PlannedNode>) -> Option<usize> {
        // Who asks for one mostly asks for the last.
        if let Some(number) = self.planned.iter().rposition(|b| Arc::ptr_eq(b, planned_node)) {
            return Some(number);
        }
        let sets = &self.state.open.candidate_sets;
        // It may have been thought of before this standing, when the market was another.
        let of_pool =
            |pool: &usize| *pool < sets.pool_count() && sets.pool_offerings(*pool).pool.name == planned_node.pool;
        let pool = std::iter::once(planned_node.pool_index).chain(0..sets.pool_count()).find(of_pool)?;
        let (pool_offerings, number) = (Arc::clone(sets.pool_offerings(pool)), self.planned.len());
        let candidate = candidate_of(&pool_offerings, &planned_node.cheapest.key)?;
        self.state.add_planned_node(number, &planned_node.cheapest.key, &pool_offerings, candidate);
        self.planned.push(Arc::clone(planned_node));
        // What had no place may have one there, and less may be bought than before.
        self.shapes.values_mut().for_each(|state| state.new_nodes.clear());
        Some(number)
    }

    /// Room that there is, in one zone if one is given.
    fn find_in(&mut self, pod: &Arc<Pod>, zone: Option<Domain>) -> Option<Placement> {
        let state = self.shapes.get_mut(&pod.shape)?;
        let from = state.cursors.entry(zone).or_insert(0);
        let (known, existing_nodes) = (&self.state.constraints, &mut self.state.existing);
        let site = find_existing(known, existing_nodes, (state.relaxation.required_only, zone), from)?;
        Some(match existing_nodes.target(site) {
            Target::Node(name) => Placement::Node(name.clone()),
            Target::Claim(name) => Placement::Claim(name.clone()),
            Target::New(number) => Placement::New(Arc::clone(self.planned.get(*number)?)),
        })
    }

    /// Where a pod would go, or what has to be known for that.
    fn look_up(&mut self, pod: &Arc<Pod>) -> Result<Result<Placement, Unschedulable>, MissingState> {
        if pod.claims_devices {
            return Ok(Err(Unschedulable {
                reasons: vec![(None, UnschedulableReason::DynamicResources)],
                suggestion: None,
            }));
        }
        let Some(state) = self.shapes.get(&pod.shape) else { return Err(MissingState::Shape) };
        if state.is_zonal {
            let class = state.relaxation.required_only;
            return self.look_up_by_zone(pod, class);
        }
        match self.find_in(pod, None) {
            Some(spot) => Ok(Ok(spot)),
            None => self.look_up_new_node(pod, None),
        }
    }

    fn look_up_by_zone(
        &mut self,
        pod: &Arc<Pod>,
        class: PodClassId,
    ) -> Result<Result<Placement, Unschedulable>, MissingState> {
        let mut nowhere = None;
        let all: BTreeSet<Domain> =
            zones_in_mask(self.state.new_node_zones()).chain(self.state.existing.zones().iter().copied()).collect();
        let order =
            self.state.constraints.topology.domains_in_order(class, ZONE_KEY, all.into_iter().map(|zone| (0, zone)));
        // kube-scheduler takes what there is before anybody makes a node.
        if let Some(spot) = order.iter().find_map(|zone| self.find_in(pod, Some(*zone))) {
            return Ok(Ok(spot));
        }
        for zone in order {
            if self.state.constraints.topology.is_new_node_domain(class, ZONE_KEY, zone) {
                match self.look_up_new_node(pod, Some(zone))? {
                    Ok(spot) => return Ok(Ok(spot)),
                    Err(why) => nowhere = nowhere.or(Some(why)),
                }
            }
        }
        nowhere.map_or_else(|| self.look_up_new_node(pod, None), |why| Ok(Err(why)))
    }

    /// A new node, in one zone if one is given.
    fn look_up_new_node(
        &self,
        pod: &Pod,
        zone: Option<Domain>,
    ) -> Result<Result<Placement, Unschedulable>, MissingState> {
        let bought = self.shapes.get(&pod.shape).and_then(|state| state.new_nodes.get(&zone));
        bought.map(|bought| bought.clone().map(Placement::New)).ok_or(MissingState::NewNode(zone))
    }

    fn compute(&mut self, pod: &Arc<Pod>, unknown: MissingState) {
        match unknown {
            MissingState::Shape => self.register_shape(&pod.shape),
            MissingState::NewNode(zone) => {
                let Some(state) = self.shapes.get(&pod.shape) else { return };
                let relaxation = state.relaxation.clone();
                let bought =
                    if state.is_zonal && zone.is_none() { None } else { self.cheapest_new_node(&relaxation, zone) };
                let bought = bought.ok_or_else(|| Unschedulable {
                    reasons: unschedulable_reasons(&mut self.state, relaxation.required_only),
                    suggestion: suggest(&self.state.open, &pod.shape),
                });
                if let Some(state) = self.shapes.get_mut(&pod.shape) {
                    state.new_nodes.insert(zone, bought);
                }
            }
        }
    }

    /// Counts what runs beside pods of a shape.
    fn register_shape(&mut self, shape: &Arc<PodShape>) {
        let relaxation = self.state.register_shape(shape, PodVolumes::default());
        self.state.set_new_node_domains(&relaxation);
        let is_zonal = self
            .state
            .constraints
            .topology
            .constrained_keys(relaxation.required_only)
            .any(|topology_key| topology_key == ZONE_KEY);
        let state = ShapeState { relaxation, is_zonal, cursors: BTreeMap::new(), new_nodes: BTreeMap::new() };
        self.shapes.insert(Arc::clone(shape), state);
    }

    /// The node that would be bought for a pod, with as much of what it prefers as can be had; in one zone if one is given.
    fn cheapest_new_node(&mut self, relaxation: &Relaxation, zone: Option<Domain>) -> Option<Arc<PlannedNode>> {
        let (class, pod_addition) = relaxation.steps.iter().find_map(|class| {
            let zones = match zone {
                Some(zone) => vec![Some(zone)],
                None => self.state.zones_in_order(*class, zones_in_mask(self.state.new_node_zones())),
            };
            zones.into_iter().find_map(|zone| Some((*class, self.state.cheapest_new_node(*class, zone)?)))
        })?;
        let SchedulingState { constraints: known, open: open_nodes, .. } = &self.state;
        let requests = known.classes.requests(class).clone();
        let open = OpenNode {
            candidate_set: pod_addition.candidate_set,
            candidate: pod_addition.candidate,
            requests,
            disks: 0,
            min_values: Arc::from([]),
            version: 0,
            is_closed: false,
        };
        let offerings = planned_offerings(open_nodes, &open, &[]);
        let counter = open_nodes.candidate_sets.get(open.candidate_set).pool;
        let pool = open_nodes.candidate_sets.pool_offerings(counter).pool.name.clone();
        let number = offerings.len();
        Some(Arc::new(PlannedNode {
            pool_index: counter,
            pool,
            cheapest: offerings.into_iter().next()?,
            offering_count: number,
        }))
    }
}

/// What a pool may buy of an offering.
fn candidate_of<'o>(pool_offerings: &'o PoolOfferings, key: &OfferingKey) -> Option<&'o InstanceCandidate> {
    let same = |c: &&InstanceCandidate| c.instance.facts.name == key.size && c.capacity_type == key.capacity_type;
    pool_offerings.candidates.iter().find(same)
}

impl std::fmt::Debug for IncrementalScheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Standing")
            .field("bins", &self.state.existing.len())
            .field("bought", &self.planned.len())
            .finish_non_exhaustive()
    }
}
