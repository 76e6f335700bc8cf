//! The circuit breaker: stops deletion when many resources turn suspect at once (rule 5).
//!
//! A restored or emptied API server makes healthy resources look like orphans all at once. Orphans come one by one.

use crate::model::azure::cloud::{CloudResource, ResourceKind};
use crate::model::names::{ClaimName, Uid};
use crate::model::orphans::record::{BreakerTrip, OrphanRecords};
use crate::model::orphans::sweep::Sweep;
use crate::orphans::assessment::ownership::GroupState;
use crate::orphans::assessment::{Assessment, SweepContext};
use crate::orphans::references::back_references::referenced_claim;
use crate::plan::kind_label;
use crate::snapshot::Snapshot;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;

/// Resources that turn suspect within this time are counted together.
pub const WINDOW: SignedDuration = SignedDuration::from_hours(1);
/// How long a deleted resource may still be listed. Azure guarantees no bound: users have seen 20 minutes.
const LIST_LAG: SignedDuration = SignedDuration::from_mins(30);
/// Most future clearances that are recorded with a trip, which limits the size of the record.
const MAX_VOID_CLEARANCES: usize = 20;
/// So many may turn suspect together in any cluster.
const MAX_NEW_SUSPECTS: u32 = 3;
/// So many of a hundred owned ones may, in a greater cluster.
const MAX_NEW_SUSPECTS_PERCENT: u32 = 10;

/// Until when Git has cleared the breaker: the latest `breaker.clearedAt` of any sweep. One in the future is rejected,
/// since it would switch the breaker off; and it remains void for every trip before its time.
#[must_use]
pub fn cleared_at<'a>(
    sweeps: impl IntoIterator<Item = &'a Sweep>,
    records: &OrphanRecords,
    now: Timestamp,
) -> Option<Timestamp> {
    let given = sweeps.into_iter().filter_map(|s| s.breaker_cleared_at);
    given.filter(|at| *at <= now && !is_void(records, *at)).max()
}

/// True when a clearance lay in the future when the breaker tripped.
pub(in crate::orphans) fn is_void(records: &OrphanRecords, cleared_at: Timestamp) -> bool {
    records.trips.iter().any(|trip| trip.void.contains(&cleared_at))
}

/// Clearances in the future.
pub(in crate::orphans) fn future_clearances(sweeps: &[Sweep], now: Timestamp) -> Vec<Timestamp> {
    let mut to_come: Vec<Timestamp> =
        sweeps.iter().filter_map(|s| s.breaker_cleared_at.filter(|at| *at > now)).collect();
    to_come.sort_unstable();
    to_come.dedup();
    to_come.truncate(MAX_VOID_CLEARANCES);
    to_come
}

/// A trip that Git has not cleared.
#[must_use]
pub fn open_trip(records: &OrphanRecords, cleared_at: Option<Timestamp>) -> Option<&BreakerTrip> {
    let open = |trip: &&BreakerTrip| cleared_at.is_none_or(|cleared| trip.at >= cleared);
    records.trips.iter().find(open)
}

/// A trip in a report, with the line that clears it.
#[must_use]
pub fn describe_trip(trip: &BreakerTrip) -> String {
    describe("the breaker tripped", trip)
}

/// A trip of [`would_trip`] in a report, with the line that would clear it.
#[must_use]
pub fn describe_possible_trip(trip: &BreakerTrip) -> String {
    describe("the breaker would trip", trip)
}

fn describe(event: &str, trip: &BreakerTrip) -> String {
    let BreakerTrip { at, kind, suspects, owned, .. } = trip;
    let after = Timestamp::from_second(at.as_second() + 1).unwrap_or(*at);
    format!(
        "{event} at {at}: {suspects} of {owned} {} resources became suspect within an hour. If this is expected, commit \
         `breaker: {{clearedAt: \"{after}\"}}` to the OrphanSweep's spec",
        kind_label(*kind)
    )
}

/// NodeClaims that were seen being deleted, each with the last time. By name as well as by UID: beside managed NAP,
/// resources of Karpenter's Azure provider have no UID tag, and are named after their claim.
#[derive(Debug, Clone, Default)]
pub(in crate::orphans) struct DeletingClaims {
    uids: BTreeMap<Uid, Timestamp>,
    names: BTreeMap<ClaimName, Timestamp>,
}

impl DeletingClaims {
    /// Records which of the current NodeClaims are being deleted.
    pub(in crate::orphans) fn observe(&mut self, snapshot: &Snapshot, now: Timestamp) {
        for claim in snapshot.claims().values().filter(|claim| claim.deleting_at.is_some()) {
            self.uids.insert(claim.uid.clone(), now);
            self.names.insert(claim.name.clone(), now);
        }
        self.uids.retain(|_, at| now.duration_since(*at) <= WINDOW);
        self.names.retain(|_, at| now.duration_since(*at) <= WINDOW);
    }

    /// When the claim of a resource was last seen being deleted. Where the resource has the UID of its claim, the name
    /// is no evidence.
    fn last_seen_deleting(&self, resource: &CloudResource) -> Option<Timestamp> {
        match resource.claim_uid() {
            Some(uid) => self.uids.get(&Uid::new(uid).ok()?).copied(),
            None => self.names.get(&referenced_claim(resource)?).copied(),
        }
    }
}

/// The trips of an inventory that the records do not have yet.
///
/// `leaving` are the NodeClaims that were seen being deleted: Kubernetes is listed after the cloud, so in a nightly
/// scale-down some claims are released between the two, and their resources in the cloud listing are no evidence of a
/// lost API server. Azure may list them for a while; one that is listed after that has leaked, counts, and only then
/// gets a sighting.
pub(in crate::orphans) fn trips(
    case: &SweepContext<'_>,
    assessed: &[Assessment<'_>],
    leaving: &DeletingClaims,
) -> Vec<BreakerTrip> {
    if case.group_state() == GroupState::OtherCluster {
        return Vec::new();
    }
    let trip = |kind| {
        let of_kind = || assessed.iter().filter(move |a| a.resource.kind() == kind);
        let owned = count(of_kind().filter(|a| a.ownership.is_ok()));
        let suspects = of_kind().filter(|a| a.is_suspect() && !was_claim_deleting_recently(case, a, leaving));
        let suspects = count(suspects.filter(|a| is_new_suspect(case, a)));
        let many = suspects > MAX_NEW_SUSPECTS && suspects * 100 > owned * MAX_NEW_SUSPECTS_PERCENT;
        let all = owned >= 2 && suspects == owned;
        (many || all).then_some(BreakerTrip { at: case.inventory.finished_at, kind, suspects, owned, void: Vec::new() })
    };
    let known = |kind: &ResourceKind| {
        let cleared = |t: &BreakerTrip| case.cleared_at.is_some_and(|c| t.at < c);
        case.records.trips.iter().any(|t| t.kind == *kind && !cleared(t))
    };
    let fresh = ResourceKind::ALL.into_iter().filter(|kind| !known(kind));
    fresh.filter_map(trip).collect()
}

/// The trips that this inventory would cause if it were recorded now.
#[must_use]
pub fn would_trip(case: &SweepContext<'_>, assessed: &[Assessment<'_>]) -> Vec<BreakerTrip> {
    trips(case, assessed, &DeletingClaims::default())
}

/// True when a suspect's first sighting is this one, or within the window and after the last clearance.
fn is_new_suspect(case: &SweepContext<'_>, assessed: &Assessment<'_>) -> bool {
    let at = case.inventory.finished_at;
    case.sighting(assessed.resource).is_none_or(|sighting| {
        let after_clearance = case.cleared_at.is_none_or(|at| sighting.first_seen > at);
        sighting.first_seen > at - WINDOW && after_clearance
    })
}

/// True while a resource may still be listed only because its NodeClaim has just been deleted.
pub(in crate::orphans) fn was_claim_deleting_recently(
    case: &SweepContext<'_>,
    assessed: &Assessment<'_>,
    leaving: &DeletingClaims,
) -> bool {
    let seen = leaving.last_seen_deleting(assessed.resource);
    seen.is_some_and(|seen| case.inventory.finished_at.duration_since(seen) < LIST_LAG)
}

fn count<T>(items: impl Iterator<Item = T>) -> u32 {
    u32::try_from(items.count()).unwrap_or(u32::MAX)
}

/// How many resources of an inventory this cluster owns.
pub(in crate::orphans) fn count_owned(assessed: &[Assessment<'_>]) -> u32 {
    count(assessed.iter().filter(|a| a.ownership.is_ok()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::orphans::tests::fixtures::*;

    /// A world with this many NICs of deleted claims among 40 that are owned.
    fn trips_with(suspects: usize, at_once: bool) -> Vec<BreakerTrip> {
        let mut world = SweepWorld::new();
        for n in 4..=40 - suspects {
            world.add_claim(&format!("live-{n}"), &format!("uid-{n}"));
        }
        for n in 0..suspects {
            world.add(nic(&format!("leaked-{n}"), tags("gone", "uid-gone")));
            if !at_once {
                world.observe();
                world.now += MINUTES(20);
            }
        }
        world.observe();
        world.snapshot.records.trips.clone()
    }

    #[test]
    fn more_than_a_tenth_within_an_hour_trip_it() {
        assert_eq!(trips_with(4, true), []);
        let trips = trips_with(5, true);
        assert_eq!((trips[0].suspects, trips[0].owned), (5, 40));
        assert_eq!(trips_with(5, false), [], "three an hour are no burst");
    }

    #[test]
    fn a_clearance_in_the_future_clears_nothing_that_comes_before_its_time() {
        let mut world = SweepWorld::new();
        world.sweep.approval_required.clear();
        world.sweep.breaker_cleared_at = Some(start() + HOURS(5));
        (0..4).for_each(|n| world.add(nic(&format!("leaked-{n}"), tags("gone", "uid-gone"))));
        let halted = |world: &SweepWorld| world.report.as_ref().unwrap().halted.clone().unwrap_or_default();
        world.run(HOURS(4));
        assert_eq!(world.snapshot.records.trips[0].void, [start() + HOURS(5)]);
        assert!(halted(&world).contains("is in the future"), "{}", halted(&world));
        world.crash();
        world.run(HOURS(8));
        assert_eq!(world.deleted_names(), [""; 0], "its time has come, but it was written before the trip");
        assert!(halted(&world).contains("was set before the breaker tripped"), "{}", halted(&world));
        world.sweep.breaker_cleared_at = Some(world.now - MINUTES(1));
        world.run(HOURS(1));
        assert_eq!((world.deleted.len(), halted(&world).as_ref()), (1, ""), "it was written after the trip");
    }

    #[test]
    fn one_trip_is_recorded_once() {
        let mut world = SweepWorld::new();
        for n in 0..4 {
            world.add(nic(&format!("leaked-{n}"), tags("gone", "uid-gone")));
        }
        world.run(MINUTES(50));
        assert_eq!(world.snapshot.records.trips.len(), 1);
    }
}
