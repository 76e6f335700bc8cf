//! New nodes of static NodePools (`replicas`).
//!
//! Each is bought as for a pod that asks for nothing: the cheapest offering first, within the pool's limits, Azure's
//! quotas and the addresses of its subnet, and of equally cheap ones that of the zone with the fewest nodes of the pool.

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

/// What can be had for a pool.
pub(crate) struct StaticNodes {
    pub(crate) pool: NodePoolName,
    pub(crate) nodes: Vec<NewNode>,
    /// Why it is not as many as are wanted.
    pub(crate) shortfall: Option<StaticShortfall>,
}

/// Why a pool buys no more nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StaticShortfall {
    /// Its AKSNodeClass is not there.
    NodeClassNotFound,
    /// Its AKSNodeClass asks for what nodes of our own making do not get: these fields.
    UnsupportedClassFields(Arc<str>),
    /// No offering satisfies its requirements, or Azure has refused all of them lately.
    NoAvailableOffering,
    /// Its limits are reached.
    LimitsExceeded,
    /// Azure's quotas leave no capacity for any of its offerings; the one of the cheapest.
    QuotaExceeded(QuotaShortage),
    /// What is reserved for its nodes is used up, and it may buy nothing else; the cheapest.
    ReservationUsedUp(ReservationShortage),
    /// The pool may have nothing but what is reserved, and has nothing.
    NoReservation(NoReservation),
    /// The subnet of its nodes has no address left.
    SubnetFull(SubnetShortage),
    /// As many nodes as one pass makes are made.
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
            Self::NoAvailableOffering => {
                f.write_str("no instance type satisfies its requirements, or Azure recently refused all of them")
            }
            Self::LimitsExceeded => f.write_str("its limits are reached: raise limits, or lower replicas"),
            Self::QuotaExceeded(short) => short.fmt(f),
            Self::ReservationUsedUp(short) => short.fmt(f),
            Self::NoReservation(why) => why.fmt(f),
            Self::SubnetFull(short) => short.fmt(f),
            Self::NewNodeLimit => f.write_str("the rest are launched in the next pass"),
        }
    }
}

/// Buys nodes for the pools of available offerings, so many for each.
pub(crate) fn plan_static_nodes(input: Input<'_>, wanted: &BTreeMap<NodePoolName, usize>) -> Vec<StaticNodes> {
    let pool_offerings = &input.available.pools;
    let mut open_nodes =
        OpenNodes::new(CandidateSets::new(pool_offerings), LaunchLimits::new(input), input.available.min_values_policy);
    let buy = |(pool, count): (&NodePoolName, &usize)| {
        let place = pool_offerings.iter().position(|o| o.pool.name == *pool);
        let (nodes, why) = match place {
            Some(place) => {
                plan_pool_nodes(&mut open_nodes, place, *count, nodes_per_zone(input, &pool_offerings[place]))
            }
            None => (Vec::new(), Some(StaticShortfall::NodeClassNotFound)),
        };
        StaticNodes { pool: pool.clone(), nodes, shortfall: why }
    };
    wanted.iter().map(buy).collect()
}

/// Buys up to `count` nodes of a pool; `in_zone` is how many it has in each zone.
fn plan_pool_nodes(
    open_nodes: &mut OpenNodes,
    place: usize,
    count: usize,
    mut in_zone: Vec<u32>,
) -> (Vec<NewNode>, Option<StaticShortfall>) {
    let nothing = Resources::default();
    let root = open_nodes.candidate_sets.root(place);
    let mut nodes = Vec::new();
    while nodes.len() < count {
        let want = PodNeeds { requests: &nothing, ports: &[], disks: 0, tracked_volumes: None, expected_pods: 1 };
        let Some(pod_addition) = open_nodes.cheapest_new_node(root, want) else {
            return (nodes, Some(shortfall(open_nodes, place)));
        };
        let open = open_nodes.open(pod_addition.candidate_set, pod_addition.candidate, want);
        let new = new_node(open_nodes, open, Vec::new(), &in_zone);
        let zones = &open_nodes.candidate_sets.pool_offerings(place).zones;
        let first = new.offerings.first().and_then(|o| zones.iter().position(|zone| *zone == o.key.zone));
        if let Some(nodes) = first.and_then(|bit| in_zone.get_mut(bit)) {
            *nodes += 1;
        }
        nodes.push(new);
    }
    (nodes, None)
}

/// What keeps a pool from buying one more.
fn shortfall(open_nodes: &OpenNodes, place: usize) -> StaticShortfall {
    let (pool_offerings, launch_limits) = (open_nodes.candidate_sets.pool_offerings(place), &open_nodes.limits);
    if let Some(fields) = &pool_offerings.unsupported_class_fields {
        return StaticShortfall::UnsupportedClassFields(Arc::clone(fields));
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
            let barred = launch_limits.exhausted(std::iter::once(first).chain(within)).map(|barred| match barred {
                Exhausted::Quota(short) => StaticShortfall::QuotaExceeded(short),
                Exhausted::Reservation(short) => StaticShortfall::ReservationUsedUp(short),
            });
            let subnet =
                || launch_limits.subnets().shortage(&pool_offerings.pool.class).map(StaticShortfall::SubnetFull);
            barred.or_else(subnet).unwrap_or(StaticShortfall::NoAvailableOffering)
        }
    }
}

/// How many nodes of the pool stand, or will, in each zone.
fn nodes_per_zone(input: Input<'_>, pool_offerings: &PoolOfferings) -> Vec<u32> {
    let mut counts = vec![0; pool_offerings.zones.len()];
    let stands = input
        .snapshot
        .claims()
        .values()
        .filter(|claim| claim.spec.pool.as_ref() == Some(&pool_offerings.pool.name) && claim.deleting_at.is_none());
    for claim in stands {
        let planned = || claim.spec.planned.first().map(|offering| &offering.key);
        let Some(key) = claim.intent.as_ref().map(|intent| &intent.offering.key).or_else(planned) else { continue };
        if let Some(bit) = pool_offerings.zones.iter().position(|zone| *zone == key.zone) {
            counts[bit] += 1;
        }
    }
    counts
}
