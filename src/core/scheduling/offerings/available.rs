//! Available offerings of each NodePool, as candidates for new nodes.

use crate::catalog::{
    CapacityType, InstanceType, Offering, OfferingKey, SizeFacts, names_reserved, names_reserved_alone, offered,
};
use crate::model::amounts::money::HourlyPrice;
use crate::model::amounts::resources::Resources;
use crate::model::cluster::pod::{HostPort, Labels, Taint};
use crate::model::cluster::pool::NodePool;
use crate::model::labels;
use crate::model::names::{NodePoolName, Zone};
use crate::model::requirements::{Requirement, Requirements};
use crate::model::settings::MinValuesPolicy;
use crate::scheduling::SizeOffering;
use crate::scheduling::UnavailableOfferings;
pub(crate) use crate::scheduling::offerings::candidate::InstanceCandidate;
use crate::scheduling::offerings::headroom::{QuotaHeadroom, ReservationHeadroom, SubnetHeadroom};
use crate::scheduling::offerings::label_variants::{label_variants, values_named_by_pods};
use crate::scheduling::offerings::labels::{
    labels_compatible, offering_label, pool_allows_offering, pool_requirements_hold,
};
use crate::scheduling::offerings::min_values::min_values_of;
use crate::scheduling::offerings::node_overlays::OverlaidInstanceTypes;
use crate::scheduling::pods::node_filter::NodeFilter;
use crate::scheduling::result::NoReservation;
use crate::scheduling::topology::domain::MAX_ZONES;
use crate::snapshot::Snapshot;
use jiff::Timestamp;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Index of a candidate among those of its pool.
pub(crate) type CandidateIndex = u32;

/// All that a NodePool may launch now.
#[derive(Debug)]
pub(crate) struct PoolOfferings {
    pub(crate) pool: Arc<NodePool>,
    /// Labels that the pool gives every node.
    pub(crate) labels: Labels,
    /// Zones, in the order of their bits: the same for all pools.
    pub(crate) zones: Arc<[Zone]>,
    /// Cheapest first.
    pub(crate) candidates: Vec<InstanceCandidate>,
    /// Candidates that no cheaper one dominates.
    pub(crate) pareto_front: Vec<CandidateIndex>,
    /// Labels with the number of values that must remain (`minValues`).
    pub(crate) min_values: Vec<(Arc<str>, u32)>,
    /// Host ports of DaemonSets on every node.
    pub(crate) daemon_set_ports: Vec<HostPort>,
    /// Fields of the class because of which the pool launches nothing.
    pub(crate) unsupported_class_fields: Option<Arc<str>>,
    /// Why the pool launches nothing after nodes of it did not come up.
    pub(crate) held: Option<Arc<str>>,
    /// Why the pool has no offerings, where it allows only reserved capacity.
    pub(crate) no_reservation: Option<NoReservation>,
}

/// What every pool may launch now, by weight, once per label variant: the same for all simulations of one Snapshot at
/// one instant.
#[derive(Debug)]
pub struct AvailableOfferings {
    pub(crate) pools: Vec<Arc<PoolOfferings>>,
    /// Zones of all offerings, in the order of their bits.
    pub(crate) zones: Arc<[Zone]>,
    /// Remaining quotas.
    pub(crate) quota: QuotaHeadroom,
    /// Remaining subnet addresses.
    pub(crate) subnets: SubnetHeadroom,
    /// Remaining reserved capacity.
    pub(crate) reservations: ReservationHeadroom,
    /// How `minValues` of pools are applied.
    pub(crate) min_values_policy: MinValuesPolicy,
    /// Instance types with NodeOverlays applied.
    pub(crate) overlaid_types: OverlaidInstanceTypes,
}

impl AvailableOfferings {
    /// Filters the instance types of every dynamic pool by its requirements and by what is available.
    #[must_use]
    pub fn new(snapshot: &Snapshot, unavailable: &UnavailableOfferings, now: Timestamp) -> Self {
        Self::of_pools(snapshot, unavailable, now, |pool| pool.replicas.is_none())
    }

    /// The same, of selected pools.
    pub(crate) fn of_pools(
        snapshot: &Snapshot,
        unavailable: &UnavailableOfferings,
        now: Timestamp,
        selected: impl Fn(&NodePool) -> bool,
    ) -> Self {
        let (zones, named, overlaid) =
            (offered_zones(snapshot), values_named_by_pods(snapshot), OverlaidInstanceTypes::of(snapshot));
        let reservations = ReservationHeadroom::of(snapshot, now);
        let sources =
            |pool, types| OfferingSources { pool, types, zones: &zones, snapshot, reservations: &reservations };
        let pools = snapshot.pools().values().filter(|pool| selected(pool));
        let mut pool_offerings: Vec<Arc<PoolOfferings>> = pools
            .filter_map(|pool| Some((pool, overlaid.instance_types(snapshot, pool)?)))
            .flat_map(|(pool, types)| {
                let group = reservations.group(&pool.class);
                let available = |facts: &SizeFacts, offering: &Offering| {
                    let (zone, capacity_type) = (&offering.zone, offering.capacity_type);
                    !unavailable.is_unavailable(SizeOffering { facts, zone, capacity_type }, group, now)
                };
                let variants = label_variants(pool, &named).into_iter();
                variants
                    .map(|labels| Arc::new(PoolOfferings::new(sources(pool, types), labels, available)))
                    .collect::<Vec<_>>()
            })
            .collect();
        // Stable: the variants of a pool remain in order.
        pool_offerings.sort_by_key(|o| (Reverse(o.pool.weight), o.pool.name.clone()));
        let (quota, subnets) = (QuotaHeadroom::of(snapshot, now), SubnetHeadroom::of(snapshot, now));
        Self {
            pools: pool_offerings,
            zones,
            quota,
            subnets,
            reservations,
            min_values_policy: MinValuesPolicy::default(),
            overlaid_types: overlaid,
        }
    }

    /// The lowest price of any new node of such a capacity type.
    pub(crate) fn lowest_price(&self, of: impl Fn(CapacityType) -> bool) -> Option<HourlyPrice> {
        // Each pool's are sorted by price.
        let first = |pool: &Arc<PoolOfferings>| pool.candidates.iter().find(|c| of(c.capacity_type)).map(|c| c.price);
        self.pools.iter().filter_map(first).min()
    }

    /// The same without some pools, with the quota and subnet addresses that remain in a Snapshot: computing all of it
    /// anew is the slowest part of a small simulation.
    #[must_use]
    pub fn without_pools(&self, without: &[NodePoolName], snapshot: &Snapshot, now: Timestamp) -> Self {
        let remains = |offerings: &&Arc<PoolOfferings>| !without.contains(&offerings.pool.name);
        Self {
            pools: self.pools.iter().filter(remains).cloned().collect(),
            zones: Arc::clone(&self.zones),
            quota: QuotaHeadroom::of(snapshot, now),
            subnets: SubnetHeadroom::of(snapshot, now),
            // Candidates refer to it by index.
            reservations: self.reservations.clone(),
            min_values_policy: self.min_values_policy,
            overlaid_types: self.overlaid_types.clone(),
        }
    }

    /// Sets how `minValues` of pools are applied.
    #[must_use]
    pub fn with_min_values(self, min_values: MinValuesPolicy) -> Self {
        Self { min_values_policy: min_values, ..self }
    }
}

/// The inputs of a pool's offerings.
#[derive(Clone, Copy)]
struct OfferingSources<'a> {
    pool: &'a Arc<NodePool>,
    /// Instance types of its class.
    types: &'a [Arc<InstanceType>],
    zones: &'a Arc<[Zone]>,
    snapshot: &'a Snapshot,
    reservations: &'a ReservationHeadroom,
}

impl PoolOfferings {
    /// Filters the instance types of the pool's class by its requirements and by what is available, for nodes with
    /// these labels.
    fn new(sources: OfferingSources<'_>, labels: Labels, available: impl Fn(&SizeFacts, &Offering) -> bool) -> Self {
        let OfferingSources { pool, types, zones, snapshot, reservations } = sources;
        let mut candidates = Vec::new();
        let held = snapshot.pool_hold(&pool.name);
        let may_reserve = pool.requirements.get(labels::CAPACITY_TYPE).is_some_and(names_reserved);
        for instance in types.iter().filter(|_| held.is_none()) {
            if !pool.requirements.intersects(&instance.requirements) || !pool_requirements_hold(pool, instance, &labels)
            {
                continue;
            }
            let daemons = daemon_set_overhead(snapshot, instance, &labels, &pool.taints);
            if !daemons.fits(&instance.allocatable) {
                continue;
            }
            let available_capacity = instance.allocatable.minus(&daemons);
            let bit = |zone: &Zone| zones.iter().position(|z| z == zone).map_or(0, |bit| 1 << bit);
            let launchable = |o: &&Offering| pool_allows_offering(pool, o) && available(&instance.facts, o);
            let mut add = |capacity_type, reservation, zones, price| {
                let (instance, pod_capacity) = (Arc::clone(instance), available_capacity.clone());
                let candidate = InstanceCandidate { instance, capacity_type, reservation, zones, price, pod_capacity };
                candidates.push(candidate);
            };
            // Reserved capacity is per zone: each zone is a separate candidate.
            let reserved = |o: &&Offering| may_reserve && o.capacity_type == CapacityType::Reserved;
            for offering in instance.offerings.iter().filter(reserved).filter(launchable) {
                if let Some(index) = reservations.reservation_index(&pool.class, &instance.facts.name, &offering.zone) {
                    add(CapacityType::Reserved, Some(index), bit(&offering.zone), instance.node_price(offering));
                }
            }
            for capacity_type in CapacityType::FOR_SALE {
                let of_type = instance.offerings.iter().filter(|o| o.capacity_type == capacity_type).filter(launchable);
                let (mut mask, mut price): (u32, Option<HourlyPrice>) = (0, None);
                for offering in of_type {
                    mask |= bit(&offering.zone);
                    let node_price = instance.node_price(offering);
                    price = Some(price.map_or(node_price, |p| p.min(node_price)));
                }
                price.into_iter().for_each(|price| add(capacity_type, None, mask, price));
            }
        }
        candidates.sort_by(|a, b| {
            (a.price, a.capacity_type, &a.instance.facts.name).cmp(&(b.price, b.capacity_type, &b.instance.facts.name))
        });
        let class =
            snapshot.classes().get(&pool.class).filter(|class| types.is_empty() && !class.unhonoured.is_empty());
        let unsupported_class_fields = class.map(|class| Arc::from(class.unhonoured.join(", ")));
        let no_reservation =
            candidates.is_empty().then(|| no_reservation_reason(pool, snapshot, reservations)).flatten();
        let mut offerings = Self {
            pool: Arc::clone(pool),
            daemon_set_ports: daemon_set_ports(snapshot, &labels, &pool.taints),
            labels,
            zones: Arc::clone(zones),
            candidates,
            pareto_front: Vec::new(),
            min_values: min_values_of(pool),
            unsupported_class_fields,
            held,
            no_reservation,
        };
        offerings.pareto_front = offerings.pareto_front_of(&offerings.all_candidates(), |_| true);
        offerings
    }

    /// All candidates with their zones.
    pub(crate) fn all_candidates(&self) -> Vec<(CandidateIndex, u32)> {
        self.candidates.iter().zip(0..).map(|(candidate, index)| (index, candidate.zones)).collect()
    }

    /// Candidates that no other dominates: at most its price, at least its capacity, in all its zones. Cheapest first.
    pub(crate) fn pareto_front_of(
        &self,
        all: &[(CandidateIndex, u32)],
        allowed: impl Fn(&InstanceCandidate) -> bool,
    ) -> Vec<CandidateIndex> {
        let mut front: Vec<(CandidateIndex, u32)> = Vec::new();
        for (index, zones) in all {
            let candidate = &self.candidates[*index as usize];
            let dominates = |(other, in_zones): &(CandidateIndex, u32)| {
                zones & !in_zones == 0 && candidate.pod_capacity.fits(&self.candidates[*other as usize].pod_capacity)
            };
            if !front.iter().rev().any(dominates) && allowed(candidate) {
                front.push((*index, *zones));
            }
        }
        front.into_iter().map(|(index, _)| index).collect()
    }

    /// By candidate: bits of the zones in which its nodes match a filter; 0 where a taint of the pool is not tolerated.
    pub(crate) fn accepted_zones(&self, filter: &NodeFilter) -> Vec<u32> {
        let untolerated = filter.untolerated(&self.pool.taints).is_some();
        let mask = if untolerated { 0 } else { self.filter_zones(filter) };
        self.candidates.iter().map(|candidate| self.candidate_zones(filter, candidate, mask)).collect()
    }

    /// True when a node of a candidate matches a filter in one of these zones; 0 stands for all of its zones.
    pub(crate) fn matches_filter(&self, filter: &NodeFilter, candidate: &InstanceCandidate, zones: u32) -> bool {
        let zones = if zones == 0 { candidate.zones } else { zones };
        let zones = zones & self.filter_zones(filter);
        filter.untolerated(&self.pool.taints).is_none() && self.candidate_zones(filter, candidate, zones) != 0
    }

    /// Bits of the zones that a filter's selector allows, by zone and by placement scope.
    fn filter_zones(&self, filter: &NodeFilter) -> u32 {
        // Neither label depends on the capacity type.
        let any = CapacityType::OnDemand;
        let keys = [labels::ZONE, labels::PLACEMENT_SCOPE];
        self.zone_mask(|zone| keys.iter().all(|key| filter.selector.allows(key, offered(key, any, Some(zone)))))
    }

    /// Bits of those zones of `mask` in which a node of this candidate has the labels that a filter requires.
    fn candidate_zones(&self, filter: &NodeFilter, candidate: &InstanceCandidate, mask: u32) -> u32 {
        let fits = |requirements: &Requirements, zone: Option<&Zone>| {
            labels_compatible(requirements, &candidate.instance, candidate.capacity_type, zone, &self.labels)
        };
        let mask = mask & candidate.zones;
        if mask == 0 || !fits(&filter.selector, None) {
            return 0;
        }
        // An alternative may name zone and size together, so each zone is checked separately.
        let in_zone = |list: &Vec<Requirements>| self.zone_mask(|zone| list.iter().any(|term| fits(term, Some(zone))));
        filter.alternatives.iter().fold(mask, |mask, list| if mask == 0 { 0 } else { mask & in_zone(list) })
    }

    /// The value of a label that a candidate gives its nodes; `None` for zones, of which it may have several.
    pub(crate) fn candidate_label(&self, candidate: &InstanceCandidate, key: &str) -> Option<Arc<str>> {
        if key == labels::ZONE {
            return None;
        }
        // All zones of a candidate have one scope: a size is not offered both regionally and zonally, except reserved
        // capacity, where each zone is a separate candidate.
        let any_zone = self.zones.get(candidate.zones.trailing_zeros() as usize);
        offering_label(&candidate.instance, (candidate.capacity_type, any_zone), key)
    }

    fn zone_mask(&self, holds: impl Fn(&Zone) -> bool) -> u32 {
        self.zones.iter().enumerate().filter(|(_, z)| holds(z)).fold(0, |mask, (bit, _)| mask | 1 << bit)
    }
}

/// Why a pool that allows only reserved capacity has no offerings.
fn no_reservation_reason(
    pool: &NodePool,
    snapshot: &Snapshot,
    reservations: &ReservationHeadroom,
) -> Option<NoReservation> {
    let requirement = pool.requirements.get(labels::CAPACITY_TYPE)?;
    if !names_reserved_alone(requirement) {
        return None;
    }
    Some(match reservations.group(&pool.class) {
        None => NoReservation::NoGroup(pool.class.clone()),
        Some(group) if !reservations.knows(group) => NoReservation::Unknown(group.clone()),
        // The group is known, so its reservations are refused or do not satisfy the pool.
        Some(_) if snapshot.instance_types.get(&pool.class).is_none_or(|types| types.is_empty()) => return None,
        Some(group) => NoReservation::NoneSuitable(group.clone()),
    })
}

fn offered_zones(snapshot: &Snapshot) -> Arc<[Zone]> {
    let types = snapshot.instance_types.values().flat_map(|types| types.iter());
    let all: BTreeSet<&Zone> = types.flat_map(|t| &t.offerings).map(|offering| &offering.zone).collect();
    all.into_iter().take(MAX_ZONES).cloned().collect()
}

/// The requests of DaemonSet pods on a node of this size.
pub(crate) fn daemon_set_overhead(
    snapshot: &Snapshot,
    instance: &InstanceType,
    own: &Labels,
    taints: &[Taint],
) -> Resources {
    let mut sum = Resources::default();
    for daemon in snapshot.daemon_sets().values() {
        let shape = &daemon.shape;
        let fits = |requirements: &Requirements| {
            requirements.iter().all(|(key, requirement)| match (own.get(key), instance.requirements.get(key)) {
                (Some(value), _) => requirement.allows(Some(value)),
                (None, Some(offered)) => offered.intersects(requirement),
                (None, None) => requirement.allows_absent(),
            })
        };
        let chosen = fits(&shape.selector) && (shape.alternatives.is_empty() || shape.alternatives.iter().any(fits));
        if chosen && shape.untolerated(taints).is_none() {
            sum.add(&shape.requests);
        }
    }
    sum
}

/// Host ports of DaemonSets that may run on nodes with these labels.
fn daemon_set_ports(snapshot: &Snapshot, own: &Labels, taints: &[Taint]) -> Vec<HostPort> {
    let daemons = snapshot.daemon_sets().values().map(|daemon| &daemon.shape);
    let with_ports = daemons.filter(|shape| !shape.ports.is_empty() && shape.untolerated(taints).is_none());
    let may = with_ports.filter(|shape| {
        let may_match =
            |(key, requirement): (&Arc<str>, &Requirement)| own.get(key).is_none_or(|v| requirement.allows(Some(v)));
        shape.selector.iter().all(may_match)
    });
    may.flat_map(|shape| shape.ports.iter().cloned()).collect()
}

/// The requirements of a NodeClaim: those of its pool, narrowed to some offerings.
pub(crate) fn claim_requirements(pool: &NodePool, offerings: &[OfferingKey]) -> Requirements {
    let mut requirements = pool.requirements.clone();
    let sizes = offerings.iter().map(|o| o.size.as_str());
    let zones = offerings.iter().map(|o| o.zone.as_str());
    let types = offerings.iter().map(|o| o.capacity_type.as_str());
    requirements.add(labels::INSTANCE_TYPE, Requirement::any_of(sizes));
    requirements.add(labels::ZONE, Requirement::any_of(zones));
    requirements.add(labels::CAPACITY_TYPE, Requirement::any_of(types));
    requirements
}
