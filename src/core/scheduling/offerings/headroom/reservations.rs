//! Remaining VMs of capacity reservations, less launches that Azure's numbers do not include yet.
//!
//! Reserved VMs are paid for whether or not they are used. Azure also accepts VMs beyond the reservation, at full price
//! and without guarantee: those are not planned.

use crate::catalog::live::{CapacityReservation, STALE_AFTER};
use crate::model::cluster::claim::Claim;
use crate::model::cluster::offering::CapacityType;
use crate::model::names::{ArmId, NodeClassName, VmSize, Zone};
use crate::scheduling::offerings::headroom::is_in_flight;
use crate::snapshot::Snapshot;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A reservation that is used up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservationShortage {
    /// The reservation, with Azure's numbers.
    pub reservation: CapacityReservation,
    /// Nodes in flight that are not in Azure's numbers.
    pub in_flight: u64,
}

impl fmt::Display for ReservationShortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reservation: CapacityReservation { group, size, zone, capacity, used }, in_flight } = self;
        let in_zone = if zone.is_regional() { String::new() } else { format!(" in {zone}") };
        let name = group.name();
        write!(
            f,
            "capacity reservation for {size}{in_zone} in group {name}: {used} of {capacity} VMs used, {in_flight} \
             launching"
        )
    }
}

/// Remaining VMs of each reservation. Without numbers, or with stale ones, there are none, and on-demand or spot is
/// launched instead.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReservationHeadroom {
    /// Each reservation with the nodes in flight that are not in Azure's numbers.
    reservations: Vec<(CapacityReservation, u64)>,
    /// The group of each class that names one.
    groups: Arc<BTreeMap<NodeClassName, ArmId>>,
}

impl ReservationHeadroom {
    /// The reservations of a Snapshot less its NodeClaims in flight.
    #[must_use]
    pub fn of(snapshot: &Snapshot, now: Timestamp) -> Self {
        let classes = snapshot.classes().values();
        let groups = classes.filter_map(|class| Some((class.name.clone(), class.reservations.clone()?)));
        let groups: Arc<BTreeMap<NodeClassName, ArmId>> = Arc::new(groups.collect());
        let known = snapshot.infrastructure.reservations.as_ref();
        let Some(known) = known.filter(|fact| now.duration_since(fact.as_of) <= STALE_AFTER) else {
            return Self { reservations: Vec::new(), groups };
        };
        let reservations = known.value.iter().map(|reservation| (reservation.clone(), 0)).collect();
        let mut all = Self { reservations, groups };
        let in_flight = snapshot.claims().values().filter(|claim| is_in_flight(claim, known.as_of));
        in_flight
            .filter_map(|claim| all.reservation_of(claim))
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|at| all.take(at));
        all
    }

    /// The reservation that a claim takes a VM of, or will try to.
    fn reservation_of(&self, claim: &Claim) -> Option<usize> {
        let trying = claim.intent.as_ref().map(|intent| &intent.offering);
        let key = &trying.or_else(|| claim.spec.planned.first())?.key;
        let group = claim.intent.as_ref().and_then(|intent| intent.reservation.as_ref());
        let group =
            group.or_else(|| self.group(&claim.spec.class)).filter(|_| key.capacity_type == CapacityType::Reserved);
        self.index_in_group(group?, &key.size, &key.zone)
    }

    /// The group that a class names.
    #[must_use]
    pub fn group(&self, class: &NodeClassName) -> Option<&ArmId> {
        self.groups.get(class)
    }

    /// True when recent numbers of a group are known.
    #[must_use]
    pub fn knows(&self, group: &ArmId) -> bool {
        self.reservations.iter().any(|(reservation, _)| reservation.group == *group)
    }

    /// The index of the reservation of a size in a zone for nodes of a class.
    #[must_use]
    pub fn reservation_index(&self, class: &NodeClassName, size: &VmSize, zone: &Zone) -> Option<usize> {
        self.index_in_group(self.group(class)?, size, zone)
    }

    fn index_in_group(&self, group: &ArmId, size: &VmSize, zone: &Zone) -> Option<usize> {
        self.reservations.iter().position(|(r, _)| r.group == *group && r.size == *size && r.zone == *zone)
    }

    /// True when one more node may take a VM of a reservation.
    #[must_use]
    pub fn allows(&self, index: usize) -> bool {
        self.reservations.get(index).is_some_and(|(reservation, in_flight)| *in_flight < reservation.free())
    }

    /// The reservation, if it is used up.
    #[must_use]
    pub fn shortage(&self, index: usize) -> Option<ReservationShortage> {
        let (reservation, in_flight) = self.reservations.get(index)?;
        (!self.allows(index)).then(|| ReservationShortage { reservation: reservation.clone(), in_flight: *in_flight })
    }

    /// Counts one more node.
    pub fn take(&mut self, index: usize) {
        if let Some((_, in_flight)) = self.reservations.get_mut(index) {
            *in_flight = in_flight.saturating_add(1);
        }
    }

    /// Gives back one node that has been counted.
    pub fn give_back(&mut self, index: usize) {
        if let Some((_, in_flight)) = self.reservations.get_mut(index) {
            *in_flight = in_flight.saturating_sub(1);
        }
    }
}
