//! The on-demand capacity reservations of groups: so many VMs of some sizes, each in one zone or in none.

use super::quota::STALE_AFTER;
use super::{Fact, InfrastructureFacts};
use crate::catalog::ReservedPlaces;
use crate::model::cluster::pool::NodeClass;
use crate::model::errors::{CloudError, CloudErrorCode};
use crate::model::names::{ArmId, VmSize, Zone};
use jiff::{SignedDuration, Timestamp};

/// What the ids of groups of reservations have between resource group and name.
pub const CAPACITY_RESERVATION_GROUP_TYPE: &str = "Microsoft.Compute/capacityReservationGroups";

/// The group of capacity reservations that a text names.
///
/// # Errors
/// What the id of such a group looks like, where this is none.
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

/// VMs of one size in one place that a group has reserved.
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
    /// VMs that name the group and are of that size and place, running or not.
    pub used: u64,
}

impl CapacityReservation {
    /// VMs that may still be had.
    #[must_use]
    pub fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.used)
    }
}

/// How long what is known of all groups is kept because one of them cannot be read: half of the time for which it serves at
/// all, so that the others are never without numbers.
const LAST_GOOD_TTL: SignedDuration = SignedDuration::from_secs(STALE_AFTER.as_secs() / 2);

/// What is known of groups once each has been asked. One that is not there is left out. Where one cannot be read, all that
/// is known stays for a while; then it has nothing left, so that it does not hide what others have, and what runs on it stays
/// what it is.
///
/// # Errors
/// Why what is known stays as it is: a group cannot be read whose numbers still serve, or none can be.
pub fn merge_reservations(
    known: Option<&Fact<Vec<CapacityReservation>>>,
    answers: Vec<(ArmId, Result<Vec<CapacityReservation>, CloudError>)>,
    at: Timestamp,
) -> Result<Vec<CapacityReservation>, CloudError> {
    let (mut rooms, mut failed) = (Vec::new(), None);
    let all_failed =
        !answers.is_empty() && answers.iter().all(|(_, answer)| answer.as_ref().is_err_and(is_indeterminate));
    for (group, answer) in answers {
        match answer {
            Ok(own) => rooms.extend(own),
            Err(error) if is_indeterminate(&error) => {
                let own = known.iter().flat_map(|fact| &fact.value).filter(|room| room.group == group);
                let is_fresh = known.is_some_and(|fact| at.duration_since(fact.as_of) <= LAST_GOOD_TTL);
                if all_failed || is_fresh && own.clone().any(|room| room.capacity > 0) {
                    failed.get_or_insert(error);
                }
                rooms.extend(own.map(|room| CapacityReservation { capacity: 0, ..room.clone() }));
            }
            Err(_) => {}
        }
    }
    failed.map_or(Ok(rooms), Err)
}

/// Nothing is known from an error but that there was one; others say that a group is not there.
fn is_indeterminate(error: &CloudError) -> bool {
    !matches!(error.code, CloudErrorCode::NotFound | CloudErrorCode::Reservation)
}

impl InfrastructureFacts {
    /// The sizes and places that the group of a class has reserved, whatever is left of them. They are the same while
    /// numbers change or grow old: what runs there keeps its labels and its price.
    #[must_use]
    pub fn reserved_for(&self, class: &NodeClass) -> ReservedPlaces {
        let mut places = ReservedPlaces::new();
        let rooms = self.reservations.iter().flat_map(|fact| &fact.value);
        for room in rooms.filter(|room| class.reservations.as_ref() == Some(&room.group)) {
            places.entry(room.size.clone()).or_default().insert(room.zone.clone());
        }
        places
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

    /// What becomes of groups `a` and `b`, of which 4 and 6 VMs were reserved so many minutes ago.
    fn learnt(known_since: Option<i64>, a: Result<u64, CloudErrorCode>, b: Result<u64, CloudErrorCode>) -> String {
        let room = |group: &str, capacity| CapacityReservation {
            group: ArmId::new(format!(
                "/subscriptions/s/resourceGroups/r/providers/{CAPACITY_RESERVATION_GROUP_TYPE}/{group}"
            ))
            .unwrap(),
            size: VmSize::new("Standard_D4s_v5").unwrap(),
            zone: Zone::regional(),
            capacity,
            used: 1,
        };
        let known =
            known_since.map(|minutes| Fact { as_of: at(-60 * minutes), value: vec![room("a", 4), room("b", 6)] });
        let answer = |group: &str, answer: Result<u64, CloudErrorCode>| {
            let id = room(group, 0).group;
            (id, answer.map(|n| vec![room(group, n)]).map_err(|code| CloudError::new(code, "no")))
        };
        match merge_reservations(known.as_ref(), vec![answer("a", a), answer("b", b)], at(0)) {
            Ok(rooms) => {
                let told = rooms.iter().map(|room| format!("{} {}", room.group.name(), room.capacity));
                told.collect::<Vec<_>>().join(", ")
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
            // Numbers of a while ago serve on, those of the others too.
            (Some(2), Err(Unavailable), Ok(7), "as it was: Unavailable"),
            (Some(7), Err(Permission), Ok(7), "as it was: Permission"),
            // Then nothing is left there.
            (Some(8), Err(Permission), Ok(7), "a 0, b 7"),
            (Some(8), Err(Permission), Err(NotFound), "a 0"),
            // Of what nobody has ever read nothing is known.
            (None, Err(Unavailable), Ok(7), "b 7"),
            (None, Err(Unavailable), Err(Permission), "as it was: Unavailable"),
            (Some(8), Err(Unavailable), Err(Permission), "as it was: Unavailable"),
        ] {
            assert_eq!(learnt(since, a, b), expected, "{since:?} {a:?} {b:?}");
        }
    }
}
