//! Incremental scheduler: places pods one at a time and keeps the remaining capacity between them.
//!
//! [`schedule`](super::schedule) places many pods at once and keeps nothing. This retains the remaining capacity
//! between pods, so that each of them examines a few nodes and not the whole cluster: capacity only shrinks, so a node
//! that is full for a shape remains full. It is valid for one Snapshot. Volumes are ignored: those of a pod that is
//! being created mostly do not exist yet.

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
use crate::scheduling::nodes::simulation_state::SchedulingState;
use crate::scheduling::offerings::available::{InstanceCandidate, PoolOfferings};
use crate::scheduling::pods::pod_class::{PodClassId, Relaxation};
use crate::scheduling::pods::volume_limits::{PodVolumes, VolumeIndex};
use crate::scheduling::result::{Target, UnschedulableReason};
use crate::scheduling::topology::LateDomains;
use crate::scheduling::topology::domain::{Domain, ZONE_KEY, zones_in_mask};
use crate::snapshot::spread_defaults::SpreadDefaults;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A new node that is planned but not launched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedNode {
    /// Index of the variant of its NodePool among the available offerings.
    pool_index: usize,
    /// Its NodePool.
    pub pool: NodePoolName,
    /// The cheapest offering that holds the pod that it is planned for.
    pub cheapest: PlannedOffering,
    /// How many offerings hold that pod.
    pub offering_count: usize,
}

/// Where one pod goes.
#[derive(Debug, Clone)]
pub enum Placement {
    /// On a node that exists.
    Node(NodeName),
    /// On a NodeClaim in flight.
    Claim(ClaimName),
    /// On a new node: the same for all pods that share it.
    New(Arc<PlannedNode>),
}

/// A pod cannot be placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unschedulable {
    /// Why each pool cannot help; `None` stands for all pools.
    pub reasons: Vec<(Option<NodePoolName>, UnschedulableReason)>,
    /// The smallest change that would help; `None` where none is known.
    pub suggestion: Option<Suggestion>,
}

/// Cached state of a shape.
#[derive(Debug)]
struct ShapeState {
    relaxation: Relaxation,
    /// It has constraints on its zone.
    is_zonal: bool,
    /// By zone: the first existing node that may still have capacity.
    cursors: BTreeMap<Option<Domain>, usize>,
    /// By zone: the new node that would be planned, or why none can be. For zonal shapes the entry without a zone says
    /// why no zone is possible.
    new_nodes: BTreeMap<Option<Domain>, Result<Arc<PlannedNode>, Unschedulable>>,
}

/// What must be computed before a pod can be placed.
enum MissingState {
    /// The state of its shape.
    Shape,
    /// The new node for it, in one zone if one is given.
    NewNode(Option<Domain>),
}

/// The remaining capacity of a cluster.
pub struct IncrementalScheduler {
    state: SchedulingState,
    defaults: Option<SpreadDefaults>,
    planned: Vec<Arc<PlannedNode>>,
    shapes: BTreeMap<Arc<PodShape>, ShapeState>,
}

impl IncrementalScheduler {
    /// The whole free capacity; `claim_of_pod` of the input is ignored.
    #[must_use]
    pub fn new(input: Input<'_>) -> Self {
        let state = SchedulingState::new((input, &VolumeIndex::default()), &BTreeSet::new(), true, LateDomains::new());
        Self { state, defaults: SpreadDefaults::of(input.snapshot), planned: Vec::new(), shapes: BTreeMap::new() }
    }

    /// Where a pod would go now. No capacity is taken.
    ///
    /// # Errors
    /// [`Unschedulable`], where it cannot be placed.
    pub fn find(&mut self, pod: &Arc<Pod>) -> Result<Placement, Unschedulable> {
        let pod = &*self.with_default_spread(pod);
        // Every iteration computes one missing state: one for the shape, and one for each zone.
        loop {
            match self.look_up(pod) {
                Ok(found) => return found,
                Err(missing) => self.compute(pod, missing),
            }
        }
    }

    /// The same, if the cached state suffices; `None` if something must be computed first.
    pub fn find_cached(&mut self, pod: &Arc<Pod>) -> Option<Result<Placement, Unschedulable>> {
        let pod = self.with_default_spread(pod);
        self.look_up(&pod).ok()
    }

    /// True for a new node that pods have been placed on.
    #[must_use]
    pub fn is_shared(&self, placement: &Placement) -> bool {
        matches!(placement, Placement::New(planned) if self.planned.iter().any(|p| Arc::ptr_eq(p, planned)))
    }

    /// Where a pod would go now without a further new node.
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

    /// Takes the capacity for a pod. False when its placement no longer exists.
    pub fn take(&mut self, pod: &Arc<Pod>, placement: &Placement) -> bool {
        let pod = self.with_default_spread(pod);
        let target = match placement {
            Placement::Node(name) => Target::Node(name.clone()),
            Placement::Claim(name) => Target::Claim(name.clone()),
            Placement::New(planned) => {
                let Some(index) = self.index_of_planned(planned) else { return false };
                Target::New(index)
            }
        };
        let Some(index) = self.state.existing.index_of_target(&target) else { return false };
        let class = self.state.register_shape(&pod.shape, PodVolumes::default()).required_only;
        self.state.add_to_existing(index, class, 1);
        true
    }

    /// The pod with the cluster's default spread constraints.
    fn with_default_spread<'p>(&self, pod: &'p Arc<Pod>) -> Cow<'p, Arc<Pod>> {
        let completed = self.defaults.as_ref().and_then(|defaults| defaults.complete(pod));
        completed.map_or(Cow::Borrowed(pod), Cow::Owned)
    }

    /// The index of a planned node, which is added when it is not known yet.
    fn index_of_planned(&mut self, planned_node: &Arc<PlannedNode>) -> Option<usize> {
        // It is mostly the last one.
        if let Some(index) = self.planned.iter().rposition(|b| Arc::ptr_eq(b, planned_node)) {
            return Some(index);
        }
        let sets = &self.state.open.candidate_sets;
        // It may have been planned for an earlier Snapshot, with other offerings.
        let of_pool =
            |pool: &usize| *pool < sets.pool_count() && sets.pool_offerings(*pool).pool.name == planned_node.pool;
        let pool = std::iter::once(planned_node.pool_index).chain(0..sets.pool_count()).find(of_pool)?;
        let (pool_offerings, index) = (Arc::clone(sets.pool_offerings(pool)), self.planned.len());
        let candidate = candidate_of(&pool_offerings, &planned_node.cheapest.key)?;
        self.state.add_planned_node(index, &planned_node.cheapest.key, &pool_offerings, candidate);
        self.planned.push(Arc::clone(planned_node));
        // Unschedulable pods may fit on it, and less headroom remains for others.
        self.shapes.values_mut().for_each(|state| state.new_nodes.clear());
        Some(index)
    }

    /// Existing capacity, in one zone if one is given.
    fn find_in(&mut self, pod: &Arc<Pod>, zone: Option<Domain>) -> Option<Placement> {
        let state = self.shapes.get_mut(&pod.shape)?;
        let from = state.cursors.entry(zone).or_insert(0);
        let (constraints, existing_nodes) = (&self.state.constraints, &mut self.state.existing);
        let index = find_existing(constraints, existing_nodes, (state.relaxation.required_only, zone), from)?;
        Some(match existing_nodes.target(index) {
            Target::Node(name) => Placement::Node(name.clone()),
            Target::Claim(name) => Placement::Claim(name.clone()),
            Target::New(index) => Placement::New(Arc::clone(self.planned.get(*index)?)),
        })
    }

    /// Where a pod would go, or which state is missing.
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
            Some(placement) => Ok(Ok(placement)),
            None => self.look_up_new_node(pod, None),
        }
    }

    fn look_up_by_zone(
        &mut self,
        pod: &Arc<Pod>,
        class: PodClassId,
    ) -> Result<Result<Placement, Unschedulable>, MissingState> {
        let mut unschedulable = None;
        let all: BTreeSet<Domain> =
            zones_in_mask(self.state.new_node_zones()).chain(self.state.existing.zones().iter().copied()).collect();
        let order =
            self.state.constraints.topology.domains_in_order(class, ZONE_KEY, all.into_iter().map(|zone| (0, zone)));
        // kube-scheduler uses existing capacity before a node is launched.
        if let Some(placement) = order.iter().find_map(|zone| self.find_in(pod, Some(*zone))) {
            return Ok(Ok(placement));
        }
        for zone in order {
            if self.state.constraints.topology.is_new_node_domain(class, ZONE_KEY, zone) {
                match self.look_up_new_node(pod, Some(zone))? {
                    Ok(placement) => return Ok(Ok(placement)),
                    Err(error) => unschedulable = unschedulable.or(Some(error)),
                }
            }
        }
        unschedulable.map_or_else(|| self.look_up_new_node(pod, None), |error| Ok(Err(error)))
    }

    /// A new node, in one zone if one is given.
    fn look_up_new_node(
        &self,
        pod: &Pod,
        zone: Option<Domain>,
    ) -> Result<Result<Placement, Unschedulable>, MissingState> {
        let planned = self.shapes.get(&pod.shape).and_then(|state| state.new_nodes.get(&zone));
        planned.map(|planned| planned.clone().map(Placement::New)).ok_or(MissingState::NewNode(zone))
    }

    fn compute(&mut self, pod: &Arc<Pod>, missing: MissingState) {
        match missing {
            MissingState::Shape => self.register_shape(&pod.shape),
            MissingState::NewNode(zone) => {
                let Some(state) = self.shapes.get(&pod.shape) else { return };
                let relaxation = state.relaxation.clone();
                let planned =
                    if state.is_zonal && zone.is_none() { None } else { self.cheapest_new_node(&relaxation, zone) };
                let planned = planned.ok_or_else(|| Unschedulable {
                    reasons: unschedulable_reasons(&mut self.state, relaxation.required_only),
                    suggestion: suggest(&self.state.open, &pod.shape),
                });
                if let Some(state) = self.shapes.get_mut(&pod.shape) {
                    state.new_nodes.insert(zone, planned);
                }
            }
        }
    }

    /// Registers a shape and its topology constraints.
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

    /// The cheapest new node for a pod, with as many of its preferences as possible; in one zone if one is given.
    fn cheapest_new_node(&mut self, relaxation: &Relaxation, zone: Option<Domain>) -> Option<Arc<PlannedNode>> {
        let (class, pod_addition) = relaxation.steps.iter().find_map(|class| {
            let zones = match zone {
                Some(zone) => vec![Some(zone)],
                None => self.state.zones_in_order(*class, zones_in_mask(self.state.new_node_zones())),
            };
            zones.into_iter().find_map(|zone| Some((*class, self.state.cheapest_new_node(*class, zone)?)))
        })?;
        let SchedulingState { constraints, open: open_nodes, .. } = &self.state;
        let requests = constraints.classes.requests(class).clone();
        let open = OpenNode {
            candidate_set: pod_addition.candidate_set,
            candidate: pod_addition.candidate,
            requests,
            disks: 0,
            min_values: Arc::from([]),
            version: 0,
            holds_any: false,
            is_closed: false,
        };
        let offerings = planned_offerings(open_nodes, &open, &[]);
        let pool_index = open_nodes.candidate_sets.get(open.candidate_set).pool;
        let pool = open_nodes.candidate_sets.pool_offerings(pool_index).pool.name.clone();
        let offering_count = offerings.len();
        Some(Arc::new(PlannedNode { pool_index, pool, cheapest: offerings.into_iter().next()?, offering_count }))
    }
}

/// The candidate of a pool for an offering.
fn candidate_of<'o>(pool_offerings: &'o PoolOfferings, key: &OfferingKey) -> Option<&'o InstanceCandidate> {
    let same = |c: &&InstanceCandidate| c.instance.facts.name == key.size && c.capacity_type == key.capacity_type;
    pool_offerings.candidates.iter().find(same)
}

impl std::fmt::Debug for IncrementalScheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IncrementalScheduler")
            .field("existing", &self.state.existing.len())
            .field("planned", &self.planned.len())
            .finish_non_exhaustive()
    }
}
