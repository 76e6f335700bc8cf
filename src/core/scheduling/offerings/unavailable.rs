//! Cache of offerings that Azure refused, with their expiry.
//!
//! The map from error to scope and time follows karpenter-provider-azure (its error handlers and
//! `unavailableofferings.go`) with these differences: a later, shorter mark never shortens an earlier one; a quota
//! excludes only sizes that exceed its remainder, each remainder with its own expiry, so that a failure of a large size
//! never prolongs the mark of a small one; regional quotas are recorded too; and `SkuNotAvailable` excludes the size in the
//! zone that was asked for, and in all once two have refused it, as Azure restricts sizes by zone: one zone without spot
//! capacity must not make all pods go to nodes on demand.

use crate::catalog::{CapacityType, OfferingKey, SizeFacts};
use crate::model::errors::{CloudError, CloudErrorCode, LaunchRefusal};
use crate::model::names::{ArmId, VmSize, Zone};
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a refusal makes unavailable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnavailableScope {
    /// Every offering of a capacity type.
    AllOfCapacityType(CapacityType),
    /// Every size with more vCPUs than this remainder of the region's quota.
    RegionalQuota(CapacityType, u32),
    /// Every size of a quota family with more vCPUs than this remainder of its quota.
    FamilyQuota(Arc<str>, CapacityType, u32),
    /// A size in every zone.
    Size(VmSize, CapacityType),
    /// A size in one zone.
    SizeInZone(VmSize, Zone, CapacityType),
    /// The reservation of a size in one zone, in a capacity reservation group.
    Reservation(ArmId, VmSize, Zone),
}

/// An offering with the facts of its size.
#[derive(Debug, Clone, Copy)]
pub struct SizeOffering<'a> {
    /// The size, its family and its vCPUs.
    pub facts: &'a SizeFacts,
    /// The zone.
    pub zone: &'a Zone,
    /// The capacity type.
    pub capacity_type: CapacityType,
}

/// Offerings that Azure has recently refused. Disposable: after a crash it is rebuilt at the cost of one refusal per
/// scope.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnavailableOfferings {
    until: BTreeMap<UnavailableScope, Timestamp>,
    generation: u64,
}

const MINUTE: SignedDuration = SignedDuration::from_mins(1);
const MINUTES_5: SignedDuration = SignedDuration::from_mins(5);
const MINUTES_10: SignedDuration = SignedDuration::from_mins(10);
const HOUR: SignedDuration = SignedDuration::from_hours(1);
const HOURS_23: SignedDuration = SignedDuration::from_hours(23);

/// How long a quota excludes sizes that exceed its remainder: a limit of zero must be raised by a person, any other is
/// freed when a VM is deleted.
fn quota_ttl(error: &CloudError) -> SignedDuration {
    match error.quota {
        Some(quota) if quota.limit == 0 => HOUR,
        None if error.code == CloudErrorCode::SpotQuota => HOUR,
        _ => MINUTES_10,
    }
}

/// True when the reservation may be the cause of the refusal of a VM on reserved capacity.
fn is_reservation_error(code: CloudErrorCode) -> bool {
    code.is_capacity() && code != CloudErrorCode::SizeUnfit
        || matches!(code, CloudErrorCode::Invalid | CloudErrorCode::NotFound | CloudErrorCode::Permission)
}

impl UnavailableOfferings {
    /// Records a refusal. `facts` are those of the size, for its quota family and its cores.
    pub fn record(&mut self, refusal: &LaunchRefusal, facts: Option<&SizeFacts>) {
        let key = &refusal.offering;
        let own = [key.capacity_type];
        let (all, both) = (&CapacityType::ALL[..], &CapacityType::FOR_SALE[..]);
        let size = |c| UnavailableScope::Size(key.size.clone(), c);
        let in_zone = |c| UnavailableScope::SizeInZone(key.size.clone(), key.zone.clone(), c);
        let ttl = quota_ttl(&refusal.error);
        // The remainder of the quota; if Azure does not report it, it is less than the refused size.
        let reported = refusal.error.quota.map(crate::model::errors::QuotaDetails::free);
        let left = facts.map(|f| reported.unwrap_or(f.vcpus).min(f.vcpus.saturating_sub(1)));
        let at = refusal.at;
        if refusal.applies_to_all_offerings && !refusal.error.code.is_transient() {
            // Other offerings would be refused too, until a person intervenes or an address is freed.
            let is_full = refusal.error.code == CloudErrorCode::SubnetFull;
            return self.mark(all, UnavailableScope::AllOfCapacityType, at, if is_full { MINUTES_5 } else { MINUTE });
        }
        if let Some(group) = refusal.reservation.as_ref().filter(|_| is_reservation_error(refusal.error.code)) {
            // It may be caused by the group, and does not concern other groups, on-demand or spot.
            let of_group = UnavailableScope::Reservation(group.clone(), key.size.clone(), key.zone.clone());
            return self.mark_until(of_group, at, MINUTES_10);
        }
        match refusal.error.code {
            CloudErrorCode::SpotQuota => {
                self.mark(&[CapacityType::Spot], |c| UnavailableScope::RegionalQuota(c, left.unwrap_or(0)), at, ttl);
            }
            CloudErrorCode::RegionalQuota => {
                self.mark(&own, |c| UnavailableScope::RegionalQuota(c, left.unwrap_or(0)), at, ttl);
            }
            CloudErrorCode::FamilyQuota => match facts.zip(left) {
                Some((f, left)) => {
                    self.mark(&own, |c| UnavailableScope::FamilyQuota(Arc::clone(&f.family), c, left), at, ttl)
                }
                None => self.mark(&own, size, at, ttl),
            },
            CloudErrorCode::SkuNotAvailable => {
                let ttl = if key.capacity_type == CapacityType::Spot { HOUR } else { HOURS_23 };
                // Two zones make it likely that none sells the size.
                if self.is_refused_in_another_zone(key, at) {
                    self.mark(&own, size, at, ttl);
                } else {
                    self.mark(&own, in_zone, at, ttl);
                }
            }
            CloudErrorCode::AllocationFailed => self.mark(both, size, at, HOUR),
            // The capacity type is one of the constraints: another type may be available.
            CloudErrorCode::Overconstrained => self.mark(&own, size, at, HOUR),
            CloudErrorCode::ZonalAllocationFailed => self.mark(both, in_zone, at, HOUR),
            CloudErrorCode::OverconstrainedZonal => self.mark(&own, in_zone, at, HOUR),
            CloudErrorCode::Permission
            | CloudErrorCode::Locked
            | CloudErrorCode::Lockdown
            | CloudErrorCode::Encryption
            | CloudErrorCode::NotFound => self.mark(all, UnavailableScope::AllOfCapacityType, at, MINUTE),
            // Addresses are freed by sweeps and scale-downs, seldom within a minute.
            CloudErrorCode::SubnetFull => self.mark(all, UnavailableScope::AllOfCapacityType, at, MINUTES_5),
            CloudErrorCode::Reservation => self.mark(&own, in_zone, at, MINUTES_10),
            // Azure rejects this size as we request it, and perhaps others too.
            CloudErrorCode::Invalid | CloudErrorCode::Image | CloudErrorCode::SizeUnfit | CloudErrorCode::Policy => {
                self.mark(all, size, at, MINUTES_10);
            }
            CloudErrorCode::NicReserved
            | CloudErrorCode::InUse
            | CloudErrorCode::Throttled
            | CloudErrorCode::Conflict
            | CloudErrorCode::Unavailable => {}
        }
    }

    /// A size is marked as unavailable in some zone but this one.
    fn is_refused_in_another_zone(&self, key: &OfferingKey, now: Timestamp) -> bool {
        let is_other = |scope: &UnavailableScope| {
            matches!(scope, UnavailableScope::SizeInZone(size, zone, capacity_type)
                if *size == key.size && *capacity_type == key.capacity_type && *zone != key.zone)
        };
        self.until.iter().any(|(scope, until)| *until > now && is_other(scope))
    }

    fn mark(
        &mut self,
        types: &[CapacityType],
        scope: impl Fn(CapacityType) -> UnavailableScope,
        at: Timestamp,
        ttl: SignedDuration,
    ) {
        for capacity_type in types {
            self.mark_until(scope(*capacity_type), at, ttl);
        }
    }

    /// Removes expired entries, and those from before the clock was set back.
    pub fn expire(&mut self, now: Timestamp) {
        let before = self.until.len();
        let longest = now.saturating_add(HOURS_23).unwrap_or(Timestamp::MAX);
        self.until.retain(|_, until| *until > now && *until <= longest);
        self.generation += u64::from(self.until.len() != before);
    }

    /// True when an offering is not worth requesting; a reserved one, from this capacity reservation group.
    #[must_use]
    pub fn is_unavailable(&self, offering: SizeOffering<'_>, group: Option<&ArmId>, now: Timestamp) -> bool {
        if self.until.is_empty() {
            return false;
        }
        let SizeOffering { facts, zone, capacity_type } = offering;
        let group = group.filter(|_| capacity_type == CapacityType::Reserved);
        let of_group = |group: &ArmId| UnavailableScope::Reservation(group.clone(), facts.name.clone(), zone.clone());
        let holds = |scope: &UnavailableScope| self.until.get(scope).is_some_and(|until| *until > now);
        // Quotas whose remainder the size exceeds.
        let short = |least: UnavailableScope, most: UnavailableScope| {
            self.until.range(least..most).any(|(_, until)| *until > now)
        };
        let family = |left| UnavailableScope::FamilyQuota(Arc::clone(&facts.family), capacity_type, left);
        holds(&UnavailableScope::AllOfCapacityType(capacity_type))
            || short(
                UnavailableScope::RegionalQuota(capacity_type, 0),
                UnavailableScope::RegionalQuota(capacity_type, facts.vcpus),
            )
            || short(family(0), family(facts.vcpus))
            || holds(&UnavailableScope::Size(facts.name.clone(), capacity_type))
            || holds(&UnavailableScope::SizeInZone(facts.name.clone(), zone.clone(), capacity_type))
            || group.is_some_and(|group| holds(&of_group(group)))
    }

    /// What is unavailable, and until when.
    pub fn iter(&self) -> impl Iterator<Item = (&UnavailableScope, &Timestamp)> {
        self.until.iter()
    }

    /// When the next entry expires.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Timestamp> {
        self.until.values().min().copied()
    }

    /// Grows with every change.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    fn mark_until(&mut self, scope: UnavailableScope, at: Timestamp, ttl: SignedDuration) {
        let until = at.saturating_add(ttl).unwrap_or(Timestamp::MAX);
        let entry = self.until.entry(scope).or_insert(until);
        *entry = (*entry).max(until);
        self.generation += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::live::CAPACITY_RESERVATION_GROUP_TYPE;
    use crate::fixtures::{at, cluster, offering, pool, start, zone};
    use crate::model::errors::QuotaDetails;

    const SIZE: &str = "Standard_D4s_v5";

    fn facts(name: &str) -> Arc<SizeFacts> {
        let snapshot = cluster([pool("general")]);
        let types = snapshot.instance_types.values().next().unwrap();
        Arc::clone(&types.iter().find(|t| t.facts.name.as_str() == name).unwrap().facts)
    }

    fn refusal(code: CloudErrorCode, quota: Option<(u32, u32)>, spot: bool) -> LaunchRefusal {
        let capacity_type = if spot { CapacityType::Spot } else { CapacityType::OnDemand };
        let quota = quota.map(|(limit, usage)| QuotaDetails { limit, usage });
        let error = CloudError { quota, ..CloudError::new(code, "no") };
        let offering = offering(SIZE, 1, capacity_type).key;
        LaunchRefusal { offering, reservation: None, error, applies_to_all_offerings: false, at: start() }
    }

    /// Minutes for which the size itself is blocked: in its zone, in another, and for the other capacity type.
    fn minutes(refusal: &LaunchRefusal) -> [i64; 3] {
        let mut memory = UnavailableOfferings::default();
        memory.record(refusal, Some(&facts(SIZE)));
        let own = refusal.offering.capacity_type;
        let other = if own == CapacityType::Spot { CapacityType::OnDemand } else { CapacityType::Spot };
        [(1, own), (2, own), (1, other)].map(|(n, c)| {
            let blocked = |m: &i64| {
                memory.is_unavailable(
                    SizeOffering { facts: &facts(SIZE), zone: &zone(n), capacity_type: c },
                    None,
                    at(m * 60),
                )
            };
            i64::try_from((0..3_000).take_while(blocked).count()).unwrap()
        })
    }

    #[test]
    fn each_refusal_excludes_its_scope_for_its_ttl() {
        use CloudErrorCode as C;
        for (code, quota, spot, expected) in [
            (C::SpotQuota, None, true, [60, 60, 0]),
            (C::SpotQuota, Some((10, 8)), true, [10, 10, 0]),
            (C::SpotQuota, Some((0, 0)), true, [60, 60, 0]),
            (C::RegionalQuota, Some((10, 10)), false, [10, 10, 0]),
            (C::RegionalQuota, Some((0, 0)), false, [60, 60, 0]),
            (C::FamilyQuota, None, false, [10, 10, 0]),
            (C::FamilyQuota, Some((0, 0)), false, [60, 60, 0]),
            (C::SkuNotAvailable, None, false, [23 * 60, 0, 0]),
            (C::SkuNotAvailable, None, true, [60, 0, 0]),
            (C::AllocationFailed, None, false, [60, 60, 60]),
            (C::ZonalAllocationFailed, None, false, [60, 0, 60]),
            (C::Overconstrained, None, false, [60, 60, 0]),
            (C::OverconstrainedZonal, None, false, [60, 0, 0]),
            (C::SizeUnfit, None, false, [10, 10, 10]),
            (C::Policy, None, false, [10, 10, 10]),
            (C::Image, None, false, [10, 10, 10]),
            (C::SubnetFull, None, false, [5, 5, 5]),
            (C::Permission, None, false, [1, 1, 1]),
            (C::Locked, None, false, [1, 1, 1]),
            (C::Lockdown, None, false, [1, 1, 1]),
            (C::Encryption, None, false, [1, 1, 1]),
            (C::Throttled, None, false, [0, 0, 0]),
            (C::NicReserved, None, false, [0, 0, 0]),
            (C::Unavailable, None, false, [0, 0, 0]),
        ] {
            assert_eq!(minutes(&refusal(code, quota, spot)), expected, "{code:?} {quota:?}");
        }
        let of_all = LaunchRefusal { applies_to_all_offerings: true, ..refusal(C::Policy, None, false) };
        assert_eq!(minutes(&of_all), [1, 1, 1], "a NIC is not of a size");
    }

    #[test]
    fn a_size_that_two_zones_have_refused_is_available_in_none() {
        let mut memory = UnavailableOfferings::default();
        let refuse = |memory: &mut UnavailableOfferings, n| {
            let offering = offering(SIZE, n, CapacityType::Spot).key;
            let refusal = LaunchRefusal { offering, ..refusal(CloudErrorCode::SkuNotAvailable, None, true) };
            memory.record(&refusal, Some(&facts(SIZE)));
        };
        let open = |memory: &UnavailableOfferings| {
            [1, 2, 3].map(|n| {
                let offering = SizeOffering { facts: &facts(SIZE), zone: &zone(n), capacity_type: CapacityType::Spot };
                !memory.is_unavailable(offering, None, start())
            })
        };
        refuse(&mut memory, 1);
        refuse(&mut memory, 1);
        assert_eq!(open(&memory), [false, true, true]);
        refuse(&mut memory, 2);
        assert_eq!(open(&memory), [false; 3]);
    }

    #[test]
    fn refusals_of_reservations_do_not_exclude_on_demand_or_spot_and_vice_versa() {
        use CloudErrorCode as C;
        let group = |name: &str| {
            let within = ArmId::new("/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/rg").unwrap();
            within.resource(CAPACITY_RESERVATION_GROUP_TYPE, name)
        };
        let recorded = |own, code| {
            let mut memory = UnavailableOfferings::default();
            let reservation = (own == CapacityType::Reserved).then(|| group("a"));
            let offering = offering(SIZE, 1, own).key;
            let refusal = LaunchRefusal { offering, reservation, ..refusal(code, None, false) };
            memory.record(&refusal, Some(&facts(SIZE)));
            memory
        };
        let blocks = |memory: &UnavailableOfferings, name: &str| {
            CapacityType::ALL.map(|c| {
                memory.is_unavailable(
                    SizeOffering { facts: &facts(SIZE), zone: &zone(1), capacity_type: c },
                    Some(&group(name)),
                    at(30),
                )
            })
        };
        let blocked = |own, code| blocks(&recorded(own, code), "a");
        for code in [
            C::Reservation,
            C::AllocationFailed,
            C::FamilyQuota,
            C::RegionalQuota,
            C::SkuNotAvailable,
            C::Invalid,
            C::Permission,
            C::Policy,
        ] {
            assert_eq!(blocked(CapacityType::Reserved, code), [true, false, false], "{code:?}");
            assert_eq!(blocks(&recorded(CapacityType::Reserved, code), "b"), [false; 3], "{code:?} of another group");
        }
        assert_eq!(blocked(CapacityType::OnDemand, C::AllocationFailed), [false, true, true]);
        assert_eq!(blocked(CapacityType::Reserved, C::SizeUnfit), [true; 3], "the size is the same however it is paid");
        assert_eq!(blocked(CapacityType::OnDemand, C::SubnetFull), [true; 3]);
    }

    #[test]
    fn a_quota_excludes_only_sizes_above_its_remainder() {
        let mut memory = UnavailableOfferings::default();
        memory.record(&refusal(CloudErrorCode::FamilyQuota, Some((100, 97)), false), Some(&facts(SIZE)));
        let blocks = |name: &str| {
            memory.is_unavailable(
                SizeOffering { facts: &facts(name), zone: &zone(1), capacity_type: CapacityType::OnDemand },
                None,
                start(),
            )
        };
        assert_eq!(facts("Standard_D2s_v5").family, facts(SIZE).family);
        assert!(!blocks("Standard_D2s_v5"), "two of the three cores that are left");
        assert!(blocks(SIZE));
        assert!(!blocks("Standard_E4s_v5"), "another family");
        memory.record(&refusal(CloudErrorCode::RegionalQuota, Some((100, 97)), false), Some(&facts(SIZE)));
        let blocks = |name: &str| {
            memory.is_unavailable(
                SizeOffering { facts: &facts(name), zone: &zone(1), capacity_type: CapacityType::OnDemand },
                None,
                start(),
            )
        };
        assert!(blocks("Standard_E4s_v5") && !blocks("Standard_D2s_v5"));
    }

    #[test]
    fn neither_a_shorter_mark_nor_a_larger_size_moves_an_earlier_end() {
        let note = |memory: &mut UnavailableOfferings, code, quota, name: &str, minute: i64| {
            let offering = offering(name, 1, CapacityType::OnDemand).key;
            let refusal = LaunchRefusal { offering, at: at(minute * 60), ..refusal(code, quota, false) };
            memory.record(&refusal, Some(&facts(name)));
        };
        let mut memory = UnavailableOfferings::default();
        note(&mut memory, CloudErrorCode::SkuNotAvailable, None, SIZE, 0);
        note(&mut memory, CloudErrorCode::Invalid, None, SIZE, 1);
        assert!(
            memory.is_unavailable(
                SizeOffering { facts: &facts(SIZE), zone: &zone(1), capacity_type: CapacityType::OnDemand },
                None,
                at(22 * 3_600)
            ),
            "23 h, not 10 min"
        );
        // The larger size fails repeatedly; the small one is available again after its own ten minutes.
        let mut memory = UnavailableOfferings::default();
        note(&mut memory, CloudErrorCode::FamilyQuota, Some((10, 9)), "Standard_D2s_v5", 0);
        for minute in [3, 6, 9] {
            note(&mut memory, CloudErrorCode::FamilyQuota, Some((10, 6)), "Standard_D8s_v5", minute);
        }
        let blocks = |name: &str, minute: i64| {
            memory.is_unavailable(
                SizeOffering { facts: &facts(name), zone: &zone(1), capacity_type: CapacityType::OnDemand },
                None,
                at(minute * 60),
            )
        };
        assert!(blocks("Standard_D2s_v5", 9) && !blocks("Standard_D2s_v5", 10));
        assert!(blocks("Standard_D8s_v5", 18) && !blocks("Standard_D8s_v5", 19));
    }
}
