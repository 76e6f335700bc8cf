//! On-demand capacity reservations of groups: a number of VMs of a size, zonal or regional.

use super::quota::STALE_AFTER;
use super::{Fact, InfrastructureFacts};
use crate::catalog::ReservedZones;
use crate::model::cluster::pool::NodeClass;
use crate::model::errors::{CloudError, CloudErrorCode};
use crate::model::names::{ArmId, VmSize, Zone};
use jiff::{SignedDuration, Timestamp};

/// Resource type of capacity reservation groups.
pub const CAPACITY_RESERVATION_GROUP_TYPE: &str = "Microsoft.Compute/capacityReservationGroups";

/// The group of capacity reservations that a text names.
///
/// # Errors
/// The expected format of such an id.
pub fn parse_reservation_group(text: &str) -> Result<ArmId, &'static str> {
    const EXPECTED: &str = "must be /subscriptions/<subscription id>/resourceGroups/<name>/providers/Microsoft.Compute/\
                            capacityReservationGroups/<name>";
    let words: Vec<&str> = text.split('/').collect();
    let [_, _, subscription, _, resources, _, _, _, name] = words[..] else { return Err(EXPECTED) };
    let named = [subscription, resources, name].iter().all(|word| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '(' | ')'))
    });
    let (Ok(id), Ok(within)) =
        (ArmId::new(text), ArmId::new(format!("/subscriptions/{subscription}/resourceGroups/{resources}")))
    else {
        return Err(EXPECTED);
    };
    (named && id == within.resource(CAPACITY_RESERVATION_GROUP_TYPE, name)).then_some(id).ok_or(EXPECTED)
}

/// VMs of one size in one zone that a group has reserved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapacityReservation {
    /// The group.
    pub group: ArmId,
    /// The size.
    pub size: VmSize,
    /// The zone, or `0`.
    pub zone: Zone,
    /// VMs that are reserved.
    pub capacity: u64,
    /// VMs of that size and zone that name the group, running or not.
    pub used: u64,
}

impl CapacityReservation {
    /// VMs that are still available.
    #[must_use]
    pub fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.used)
    }
}

/// How long the known reservations are retained because one group cannot be read: half of the time until they are
/// stale, so that the others are never without numbers.
const LAST_GOOD_TTL: SignedDuration = SignedDuration::from_secs(STALE_AFTER.as_secs() / 2);

/// Reservations after each group has been read. A group that does not exist is left out. Where one cannot be read, all
/// known reservations are retained for a while; then its capacity counts as 0, so that the others are up to date and
/// its nodes keep their capacity type.
///
/// # Errors
/// Why the known reservations are retained: a group cannot be read whose numbers are not stale, or none can be.
pub fn merge_reservations(
    known: Option<&Fact<Vec<CapacityReservation>>>,
    answers: Vec<(ArmId, Result<Vec<CapacityReservation>, CloudError>)>,
    at: Timestamp,
) -> Result<Vec<CapacityReservation>, CloudError> {
    let (mut reservations, mut failed) = (Vec::new(), None);
    let all_failed =
        !answers.is_empty() && answers.iter().all(|(_, answer)| answer.as_ref().is_err_and(is_indeterminate));
    for (group, answer) in answers {
        match answer {
            Ok(own) => reservations.extend(own),
            Err(error) if is_indeterminate(&error) => {
                let own = known.iter().flat_map(|fact| &fact.value).filter(|reservation| reservation.group == group);
                let is_fresh = known.is_some_and(|fact| at.duration_since(fact.as_of) <= LAST_GOOD_TTL);
                if all_failed || is_fresh && own.clone().any(|reservation| reservation.capacity > 0) {
                    failed.get_or_insert(error);
                }
                reservations.extend(own.map(|known| CapacityReservation { capacity: 0, ..known.clone() }));
            }
            Err(_) => {}
        }
    }
    failed.map_or(Ok(reservations), Err)
}

/// True for errors that do not mean that the group does not exist.
fn is_indeterminate(error: &CloudError) -> bool {
    !matches!(error.code, CloudErrorCode::NotFound | CloudErrorCode::Reservation)
}

impl InfrastructureFacts {
    /// The sizes and zones that the group of a class has reserved, used or not. They do not change with the numbers or
    /// their age, so that running nodes keep their labels and price.
    #[must_use]
    pub fn reserved_for(&self, class: &NodeClass) -> ReservedZones {
        let mut zones = ReservedZones::new();
        let reservations = self.reservations.iter().flat_map(|fact| &fact.value);
        for reserved in reservations.filter(|r| class.reservations.as_ref() == Some(&r.group)) {
            zones.entry(reserved.size.clone()).or_default().insert(reserved.zone.clone());
        }
        zones
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::at;

    #[test]
    fn only_the_id_of_a_group_is_one() {
        let id = "/subscriptions/s-1/resourceGroups/rg_1/providers/Microsoft.Compute/capacityReservationGroups/g";
        assert_eq!(parse_reservation_group(id).unwrap().name(), "g");
        assert_eq!(
            parse_reservation_group(&id.to_lowercase()).unwrap(),
            parse_reservation_group(id).unwrap(),
            "case is no difference"
        );
        let wrong = [
            "",
            "g",
            &id[1..],
            &id.replace("Groups/g", "Groups/"),
            &id.replace("s-1", ""),
            &id.replace("Compute", "Network"),
            &format!("{id}/"),
            &format!("{id}/capacityReservations/a"),
            &format!("{id}?x=1"),
            &format!(" {id}"),
        ];
        for text in wrong {
            assert!(parse_reservation_group(text).is_err(), "{text}");
        }
    }

    /// Groups `a` and `b` after a read; 4 and 6 VMs were reserved `known_since` minutes ago.
    fn merged(known_since: Option<i64>, a: Result<u64, CloudErrorCode>, b: Result<u64, CloudErrorCode>) -> String {
        let reservation = |group: &str, capacity| CapacityReservation {
            group: ArmId::new(format!(
                "/subscriptions/s/resourceGroups/r/providers/{CAPACITY_RESERVATION_GROUP_TYPE}/{group}"
            ))
            .unwrap(),
            size: VmSize::new("Standard_D4s_v5").unwrap(),
            zone: Zone::regional(),
            capacity,
            used: 1,
        };
        let known = known_since
            .map(|minutes| Fact { as_of: at(-60 * minutes), value: vec![reservation("a", 4), reservation("b", 6)] });
        let answer = |group: &str, answer: Result<u64, CloudErrorCode>| {
            let id = reservation(group, 0).group;
            (id, answer.map(|n| vec![reservation(group, n)]).map_err(|code| CloudError::new(code, "no")))
        };
        match merge_reservations(known.as_ref(), vec![answer("a", a), answer("b", b)], at(0)) {
            Ok(reservations) => {
                let parts = reservations.iter().map(|r| format!("{} {}", r.group.name(), r.capacity));
                parts.collect::<Vec<_>>().join(", ")
            }
            Err(error) => format!("as it was: {:?}", error.code),
        }
    }

    #[test]
    fn one_group_that_cannot_be_read_neither_hides_the_others_nor_is_lost() {
        use CloudErrorCode::{NotFound, Permission, Reservation, Unavailable};
        for (since, a, b, expected) in [
            (Some(2), Ok(5), Ok(7), "a 5, b 7"),
            (Some(2), Err(NotFound), Ok(7), "b 7"),
            (Some(2), Err(Reservation), Ok(7), "b 7"),
            (Some(2), Err(NotFound), Err(NotFound), ""),
            // Recent numbers are retained, those of the others too.
            (Some(2), Err(Unavailable), Ok(7), "as it was: Unavailable"),
            (Some(7), Err(Permission), Ok(7), "as it was: Permission"),
            // Its capacity counts as 0.
            (Some(8), Err(Permission), Ok(7), "a 0, b 7"),
            (Some(8), Err(Permission), Err(NotFound), "a 0"),
            // A group that was never read is unknown.
            (None, Err(Unavailable), Ok(7), "b 7"),
            (None, Err(Unavailable), Err(Permission), "as it was: Unavailable"),
            (Some(8), Err(Unavailable), Err(Permission), "as it was: Unavailable"),
        ] {
            assert_eq!(merged(since, a, b), expected, "{since:?} {a:?} {b:?}");
        }
    }
}
