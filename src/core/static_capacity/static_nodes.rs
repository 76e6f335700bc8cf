//! New nodes of static NodePools (`replicas`).
//!
//! Each is launched as for a pod without requests: the cheapest offering first, within the pool's limits, Azure's
//! quotas and the addresses of its subnet, and of equally cheap ones that of the zone with the fewest nodes of the
//! pool.

use crate::model::amounts::resources::Resources;
use crate::model::names::NodePoolName;
use crate::scheduling::nodes::new_node::OpenNodes;
use crate::scheduling::nodes::planned_offerings::new_node;
use crate::scheduling::nodes::pod_needs::PodNeeds;
use crate::scheduling::offerings::available::PoolOfferings;
use crate::scheduling::offerings::candidate_sets::CandidateSets;
use crate::scheduling::offerings::headroom::{QuotaShortage, ReservationShortage, SubnetShortage};
use crate::scheduling::offerings::limits::{Exhausted, LaunchLimits};
use crate::scheduling::{Input, NewNode, NoReservation};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The nodes that can be launched for a pool.
pub(crate) struct StaticNodes {
    pub(crate) pool: NodePoolName,
    pub(crate) nodes: Vec<NewNode>,
    /// Why they are fewer than needed.
    pub(crate) shortfall: Option<StaticShortfall>,
}

/// Why a pool launches no more nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StaticShortfall {
    /// Its AKSNodeClass does not exist.
    NodeClassNotFound,
    /// Its AKSNodeClass sets these fields, which are not supported.
    UnsupportedClassFields(Arc<str>),
    /// It launches nothing after nodes of it did not come up.
    PoolHeld(Arc<str>),
    /// No offering satisfies its requirements, or Azure has recently refused all of them.
    NoAvailableOffering,
    /// Its limits are reached.
    LimitsExceeded,
    /// Azure's quotas forbid all its offerings; the quota of the cheapest.
    QuotaExceeded(QuotaShortage),
    /// Its reservations are used up, and it allows nothing else; that of the cheapest offering.
    ReservationUsedUp(ReservationShortage),
    /// The pool allows only reserved capacity, and has none.
    NoReservation(NoReservation),
    /// The subnet of its nodes has no address left.
    SubnetFull(SubnetShortage),
    /// The limit of new nodes of one pass is reached.
    NewNodeLimit,
}

impl fmt::Display for StaticShortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeClassNotFound => {
                f.write_str("its AKSNodeClass does not exist: create it, or correct nodeClassRef")
            }
            Self::UnsupportedClassFields(fields) => write!(
                f,
                "its AKSNodeClass sets {fields}, which napkeeper does not support: remove it, or use another \
                 AKSNodeClass"
            ),
            Self::PoolHeld(reason) => f.write_str(reason),
            Self::NoAvailableOffering => {
                f.write_str("no instance type satisfies its requirements, or Azure recently refused all of them")
            }
            Self::LimitsExceeded => f.write_str("its limits are reached: raise limits, or lower replicas"),
            Self::QuotaExceeded(short) => short.fmt(f),
            Self::ReservationUsedUp(short) => short.fmt(f),
            Self::NoReservation(reason) => reason.fmt(f),
            Self::SubnetFull(short) => short.fmt(f),
            Self::NewNodeLimit => f.write_str("the rest are launched in the next pass"),
        }
    }
}

/// Plans nodes for the pools of available offerings, this many for each.
pub(crate) fn plan_static_nodes(input: Input<'_>, counts: &BTreeMap<NodePoolName, usize>) -> Vec<StaticNodes> {
    let pool_offerings = &input.available.pools;
    let mut open_nodes =
        OpenNodes::new(CandidateSets::new(pool_offerings), LaunchLimits::new(input), input.available.min_values_policy);
    let plan = |(pool, count): (&NodePoolName, &usize)| {
        let pool_index = pool_offerings.iter().position(|o| o.pool.name == *pool);
        let (nodes, shortfall) = match pool_index {
            Some(pool_index) => {
                plan_pool_nodes(&mut open_nodes, pool_index, *count, nodes_per_zone(input, &pool_offerings[pool_index]))
            }
            None => (Vec::new(), Some(StaticShortfall::NodeClassNotFound)),
        };
        StaticNodes { pool: pool.clone(), nodes, shortfall }
    };
    counts.iter().map(plan).collect()
}

/// Plans up to `count` nodes of a pool; `in_zone` is how many it has in each zone.
fn plan_pool_nodes(
    open_nodes: &mut OpenNodes,
    pool_index: usize,
    count: usize,
    mut in_zone: Vec<u32>,
) -> (Vec<NewNode>, Option<StaticShortfall>) {
    let no_requests = Resources::default();
    let root = open_nodes.candidate_sets.root(pool_index);
    let mut nodes = Vec::new();
    while nodes.len() < count {
        let needs = PodNeeds { requests: &no_requests, ports: &[], disks: 0, tracked_volumes: None, expected_pods: 1 };
        let Some(pod_addition) = open_nodes.cheapest_new_node(root, needs) else {
            return (nodes, Some(shortfall(open_nodes, pool_index)));
        };
        let open = open_nodes.open(pod_addition.candidate_set, pod_addition.candidate, needs);
        let new = new_node(open_nodes, open, Vec::new(), &in_zone);
        let zones = &open_nodes.candidate_sets.pool_offerings(pool_index).zones;
        let first = new.offerings.first().and_then(|o| zones.iter().position(|zone| *zone == o.key.zone));
        if let Some(nodes) = first.and_then(|bit| in_zone.get_mut(bit)) {
            *nodes += 1;
        }
        nodes.push(new);
    }
    (nodes, None)
}

/// Why a pool cannot launch one more.
fn shortfall(open_nodes: &OpenNodes, pool_index: usize) -> StaticShortfall {
    let (pool_offerings, launch_limits) = (open_nodes.candidate_sets.pool_offerings(pool_index), &open_nodes.limits);
    if let Some(fields) = &pool_offerings.unsupported_class_fields {
        return StaticShortfall::UnsupportedClassFields(Arc::clone(fields));
    }
    if let Some(reason) = &pool_offerings.held {
        return StaticShortfall::PoolHeld(Arc::clone(reason));
    }
    if launch_limits.new_nodes_left == 0 {
        return StaticShortfall::NewNodeLimit;
    }
    let mut within = pool_offerings
        .candidates
        .iter()
        .filter(|c| launch_limits.within_limits(&pool_offerings.pool, &c.instance.capacity));
    match within.next() {
        None if pool_offerings.candidates.is_empty() => pool_offerings
            .no_reservation
            .clone()
            .map_or(StaticShortfall::NoAvailableOffering, StaticShortfall::NoReservation),
        None => StaticShortfall::LimitsExceeded,
        Some(first) => {
            let exhausted = launch_limits.exhausted(std::iter::once(first).chain(within)).map(|e| match e {
                Exhausted::Quota(short) => StaticShortfall::QuotaExceeded(short),
                Exhausted::Reservation(short) => StaticShortfall::ReservationUsedUp(short),
            });
            let subnet =
                || launch_limits.subnets().shortage(&pool_offerings.pool.class).map(StaticShortfall::SubnetFull);
            exhausted.or_else(subnet).unwrap_or(StaticShortfall::NoAvailableOffering)
        }
    }
}

/// How many nodes of the pool are, or will be, in each zone.
fn nodes_per_zone(input: Input<'_>, pool_offerings: &PoolOfferings) -> Vec<u32> {
    let mut counts = vec![0; pool_offerings.zones.len()];
    let claims = input
        .snapshot
        .claims()
        .values()
        .filter(|claim| claim.spec.pool.as_ref() == Some(&pool_offerings.pool.name) && claim.deleting_at.is_none());
    for claim in claims {
        let planned = || claim.spec.planned.first().map(|offering| &offering.key);
        let Some(key) = claim.intent.as_ref().map(|intent| &intent.offering.key).or_else(planned) else { continue };
        if let Some(bit) = pool_offerings.zones.iter().position(|zone| *zone == key.zone) {
            counts[bit] += 1;
        }
    }
    counts
}
