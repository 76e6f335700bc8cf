//! Why no NodePool can launch a node for a pod class.

use crate::model::names::NodePoolName;
use crate::scheduling::nodes::simulation_state::SchedulingState;
use crate::scheduling::offerings::available::{InstanceCandidate, PoolOfferings};
use crate::scheduling::offerings::candidate_sets::Narrowing;
use crate::scheduling::offerings::limits::Exhausted;
use crate::scheduling::offerings::min_values::ChosenCandidate;
use crate::scheduling::offerings::min_values::Load;
use crate::scheduling::pods::node_filter::NodeFilter;
use crate::scheduling::pods::pod_class::{PodClass, PodClassId};
use crate::scheduling::result::UnschedulableReason;
use crate::scheduling::topology::constraint::UnmetConstraint;
use crate::scheduling::topology::domain::{Domain, HOSTNAME_KEY, ZONE_KEY, zones_in_mask};
use std::sync::Arc;

/// Why each pool launches nothing for pods of a class; `None` stands for all pools.
pub(crate) fn unschedulable_reasons(
    state: &mut SchedulingState,
    class: PodClassId,
) -> Vec<(Option<NodePoolName>, UnschedulableReason)> {
    let pools = state.open.candidate_sets.pool_count();
    if pools == 0 || state.open.limits.new_nodes_left == 0 {
        let reason = if state.open.limits.new_nodes_left == 0 {
            UnschedulableReason::NewNodeLimit
        } else {
            UnschedulableReason::NoNodePool
        };
        return vec![(None, reason)];
    }
    let mut reasons: Vec<(Option<NodePoolName>, UnschedulableReason)> = Vec::new();
    for pool in 0..pools {
        let name = Some(state.open.candidate_sets.pool_offerings(pool).pool.name.clone());
        let reason = pool_reason(state, class, pool).unwrap_or_else(|| state.topology_reason(class, pool));
        match reasons.last_mut().filter(|(known, _)| *known == name) {
            // Variants of a pool are adjacent; it is represented by the one that passes the most criteria.
            Some((_, before)) if filter_depth(before) < filter_depth(&reason) => *before = reason,
            Some(_) => {}
            None => reasons.push((name, reason)),
        }
    }
    match reasons.split_first() {
        // A reason that does not depend on the pools is reported once.
        Some(((_, reason), rest)) if filter_depth(reason) > 8 && rest.iter().all(|(_, other)| other == reason) => {
            vec![(None, reason.clone())]
        }
        _ => reasons,
    }
}

/// The public reason for an unmet topology constraint.
pub(crate) fn reason_of(unmet: UnmetConstraint) -> UnschedulableReason {
    match unmet {
        UnmetConstraint::PodAffinity => UnschedulableReason::PodAffinity,
        UnmetConstraint::PodAntiAffinity => UnschedulableReason::PodAntiAffinity,
        UnmetConstraint::TopologySpread => UnschedulableReason::TopologySpread,
        UnmetConstraint::SharedVolume => UnschedulableReason::SharedVolume,
    }
}

/// How many criteria of the pool itself are checked before this one.
fn filter_depth(reason: &UnschedulableReason) -> usize {
    match reason {
        UnschedulableReason::UnsupportedClassFields(_)
        | UnschedulableReason::PoolHeld(_)
        | UnschedulableReason::NoReservation(_) => 0,
        UnschedulableReason::UntoleratedTaint(_) => 1,
        UnschedulableReason::IncompatibleRequirements(_) => 2,
        UnschedulableReason::NoCompatibleOffering(_) => 3,
        UnschedulableReason::TooLarge => 4,
        UnschedulableReason::LimitsExceeded => 5,
        UnschedulableReason::QuotaExceeded(_) | UnschedulableReason::ReservationUsedUp(_) => 6,
        UnschedulableReason::SubnetFull(_) => 7,
        UnschedulableReason::MinValues { .. } => 8,
        _ => 9,
    }
}

/// Description of the labels that pods require.
fn required_labels(filter: &NodeFilter) -> String {
    let required = filter.unconditional().filter(|requirements| !requirements.is_empty());
    let required: Vec<String> = required.map(|requirements| format!("`{requirements}`")).collect();
    match required.is_empty() {
        true => "the node affinity terms or volume zones".to_owned(),
        false => format!("nodeSelector or node affinity {}", required.join(", ")),
    }
}

/// Why the pool launches nothing for any pod; `None` when it may.
fn reason_of_any_pod(offerings: &PoolOfferings) -> Option<UnschedulableReason> {
    if let Some(fields) = &offerings.unsupported_class_fields {
        return Some(UnschedulableReason::UnsupportedClassFields(fields.clone()));
    }
    if let Some(reason) = &offerings.held {
        return Some(UnschedulableReason::PoolHeld(Arc::clone(reason)));
    }
    if !offerings.candidates.is_empty() {
        return None;
    }
    let unreserved = offerings.no_reservation.clone().map(UnschedulableReason::NoReservation);
    unreserved.or(Some(UnschedulableReason::NoAvailableOffering))
}

/// Why the pool itself excludes the pods; `None` when it does not.
pub(crate) fn pool_reason(state: &mut SchedulingState, class: PodClassId, pool: usize) -> Option<UnschedulableReason> {
    let filter = state.constraints.classes.get(class).filter;
    let accepted = state.open.candidate_sets.accepted_zones(pool, filter, &state.constraints.filters);
    let (filter, requests) = (state.constraints.filters.get(filter), state.constraints.classes.requests(class));
    let offerings: &PoolOfferings = state.open.candidate_sets.pool_offerings(pool);
    let launch_limits = &state.open.limits;
    if let Some(reason) = reason_of_any_pod(offerings) {
        return Some(reason);
    }
    if let Some(taint) = filter.untolerated(&offerings.pool.taints) {
        return Some(UnschedulableReason::UntoleratedTaint(taint.key.clone()));
    }
    for requirements in filter.unconditional() {
        if let Err(incompatible) = offerings.pool.requirements.compatible(requirements, |_| true) {
            return Some(UnschedulableReason::IncompatibleRequirements(incompatible));
        }
    }
    let compatible = offerings.candidates.iter().zip(accepted.iter()).filter(|(_, zones)| **zones != 0);
    let labels: Vec<&InstanceCandidate> = compatible.map(|(candidate, _)| candidate).collect();
    if labels.is_empty() {
        return Some(UnschedulableReason::NoCompatibleOffering(required_labels(filter)));
    }
    let PodClass { disks, tracked_volumes, .. } = state.constraints.classes.get(class);
    if let Some((driver, requested, limit)) =
        tracked_volumes.as_ref().and_then(|tracked| state.open.new_node_volumes().exceeded_limit(tracked))
    {
        return Some(UnschedulableReason::VolumeLimit { driver: Arc::clone(driver), requested, limit });
    }
    let large: Vec<&InstanceCandidate> = labels.into_iter().filter(|c| c.holds(requests, *disks)).collect();
    if large.is_empty() {
        return Some(UnschedulableReason::TooLarge);
    }
    let within = |c: &&&InstanceCandidate| launch_limits.within_limits(&offerings.pool, &c.instance.capacity);
    let in_limits = large.iter().filter(within).copied();
    let Some(first) = in_limits.clone().next() else { return Some(UnschedulableReason::LimitsExceeded) };
    match launch_limits.exhausted(in_limits) {
        Some(Exhausted::Quota(short)) => return Some(UnschedulableReason::QuotaExceeded(short)),
        Some(Exhausted::Reservation(short)) => return Some(UnschedulableReason::ReservationUsedUp(short)),
        None => {}
    }
    if let Some(short) = launch_limits.subnets().shortage(&offerings.pool.class) {
        return Some(UnschedulableReason::SubnetFull(short));
    }
    let compatible = offerings.candidates.iter().zip(accepted.iter().copied()).filter(|(_, zones)| *zones != 0);
    let needed = offerings.required_values(state.open.min_values_policy);
    let load = Load { requests, disks: *disks, min_values: &needed };
    let chosen = |candidate| ChosenCandidate { candidate, load };
    if large.iter().any(|candidate| offerings.meets_min_values(compatible.clone(), chosen(candidate), launch_limits)) {
        return None;
    }
    let variety = offerings.distinct_values(compatible, chosen(first), launch_limits);
    let lacking = offerings.min_values.iter().zip(variety).find(|((_, least), found)| found < least);
    lacking.map(|((key, least), found)| UnschedulableReason::MinValues {
        key: Arc::clone(key),
        found,
        required: *least,
    })
}

impl SchedulingState {
    /// The topology constraint that excludes pods of a class from every node that a pool could launch for them.
    pub(crate) fn topology_reason(&mut self, class: PodClassId, pool: usize) -> UnschedulableReason {
        let by = Narrowing::Filter(self.constraints.classes.get(class).filter);
        let sets = &mut self.open.candidate_sets;
        let candidate_set = sets.narrow(sets.root(pool), by, self.constraints.filters_and_keys());
        let topology = &self.constraints.topology;
        let mut worst = topology.unmet_constraint(class, HOSTNAME_KEY, Some(self.next_new_host()));
        if let Some(unmet) = worst {
            return reason_of(unmet);
        }
        for topology_key in topology.constrained_keys(class).filter(|topology_key| *topology_key != HOSTNAME_KEY) {
            let sets = &self.open.candidate_sets;
            let domains: Vec<Domain> = match candidate_set {
                Some(set) if topology_key == ZONE_KEY => zones_in_mask(sets.get(set).zones).collect(),
                Some(set) => sets.domains(set, topology_key, &topology.keys),
                None => Vec::new(),
            };
            if domains.is_empty() && topology.unmet_constraint(class, topology_key, None).is_some() {
                return UnschedulableReason::MissingTopologyKey(Arc::clone(topology.keys.key(topology_key)));
            }
            let unmet: Vec<Option<UnmetConstraint>> =
                domains.iter().map(|d| topology.unmet_constraint(class, topology_key, Some(*d))).collect();
            if let Some(unmet) = unmet.iter().copied().min().flatten() {
                return reason_of(unmet);
            }
            worst = worst.max(unmet.into_iter().flatten().max());
        }
        // Each topology key has an allowed domain, but no node is in all of them.
        worst.map_or(UnschedulableReason::TopologySpread, reason_of)
    }
}
