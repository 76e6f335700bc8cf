//! Unavailable offerings: what has Azure refused lately, and until when is it not worth asking again?
//!
//! The map from error to scope and time follows karpenter-provider-azure (its error handlers and
//! `unavailableofferings.go`) with two differences: a later, shorter mark never shortens an earlier one, and a quota
//! refusal of the whole region is remembered too.

use crate::catalog::{CapacityType, SizeFacts};
use crate::names::{VmSize, Zone};
use crate::ports::{CloudErrorCode, LaunchRefusal};
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a refusal makes unavailable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Every offering of a capacity type.
    All(CapacityType),
    /// Every size of a quota family.
    Family(Arc<str>, CapacityType),
    /// A size in every zone.
    Size(VmSize, CapacityType),
    /// A size in one zone.
    SizeInZone(VmSize, Zone, CapacityType),
}

/// Offerings that Azure has refused lately. Disposable: lost in a crash, it is learnt again at the cost of one refusal
/// per scope.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Unavailable {
    until: BTreeMap<Scope, Timestamp>,
    generation: u64,
}

const MINUTE: SignedDuration = SignedDuration::from_mins(1);
const MINUTES_10: SignedDuration = SignedDuration::from_mins(10);
const HOUR: SignedDuration = SignedDuration::from_hours(1);
const HOURS_23: SignedDuration = SignedDuration::from_hours(23);

impl Unavailable {
    /// Remembers a refusal. `facts` are those of the size, for its quota family.
    pub fn note(&mut self, refusal: &LaunchRefusal, facts: Option<&SizeFacts>) {
        let key = &refusal.offering;
        let own = key.capacity_type;
        let both = CapacityType::ALL;
        let size = |c| Scope::Size(key.size.clone(), c);
        match refusal.error.code {
            CloudErrorCode::SpotQuota => self.block(Scope::All(CapacityType::Spot), refusal.at, HOUR),
            CloudErrorCode::RegionalQuota => self.block(Scope::All(own), refusal.at, MINUTES_10),
            CloudErrorCode::FamilyQuota => {
                let family = facts.map(|f| Scope::Family(Arc::clone(&f.family), own));
                self.block(family.unwrap_or_else(|| size(own)), refusal.at, MINUTES_10);
            }
            CloudErrorCode::SkuNotAvailable => {
                let time = if own == CapacityType::Spot { HOUR } else { HOURS_23 };
                self.block(size(own), refusal.at, time);
            }
            CloudErrorCode::AllocationFailed | CloudErrorCode::Overconstrained => {
                both.into_iter().for_each(|c| self.block(size(c), refusal.at, HOUR))
            }
            CloudErrorCode::ZonalAllocationFailed | CloudErrorCode::OverconstrainedZonal => {
                for c in both {
                    self.block(Scope::SizeInZone(key.size.clone(), key.zone.clone(), c), refusal.at, HOUR);
                }
            }
            // Every other offering would meet the same; but not for long, for a person may lift it at any time.
            CloudErrorCode::Permission
            | CloudErrorCode::Locked
            | CloudErrorCode::Lockdown
            | CloudErrorCode::Policy
            | CloudErrorCode::Encryption
            | CloudErrorCode::NotFound
            | CloudErrorCode::SubnetFull => {
                both.into_iter().for_each(|c| self.block(Scope::All(c), refusal.at, MINUTE));
            }
            // Azure does not want this size as we ask for it, and perhaps no other.
            CloudErrorCode::Invalid | CloudErrorCode::Image => {
                both.into_iter().for_each(|c| self.block(size(c), refusal.at, MINUTES_10))
            }
            CloudErrorCode::NicReserved
            | CloudErrorCode::InUse
            | CloudErrorCode::Throttled
            | CloudErrorCode::Conflict
            | CloudErrorCode::Unavailable => {}
        }
    }

    /// Forgets what has run out.
    pub fn expire(&mut self, now: Timestamp) {
        let before = self.until.len();
        self.until.retain(|_, until| *until > now);
        self.generation += u64::from(self.until.len() != before);
    }

    /// True when an offering is not worth asking for.
    #[must_use]
    pub fn blocks(&self, facts: &SizeFacts, zone: &Zone, capacity_type: CapacityType, now: Timestamp) -> bool {
        if self.until.is_empty() {
            return false;
        }
        let holds = |scope: &Scope| self.until.get(scope).is_some_and(|until| *until > now);
        holds(&Scope::All(capacity_type))
            || holds(&Scope::Family(Arc::clone(&facts.family), capacity_type))
            || holds(&Scope::Size(facts.name.clone(), capacity_type))
            || holds(&Scope::SizeInZone(facts.name.clone(), zone.clone(), capacity_type))
    }

    /// What is unavailable, and until when.
    pub fn iter(&self) -> impl Iterator<Item = (&Scope, &Timestamp)> {
        self.until.iter()
    }

    /// When the next entry runs out.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Timestamp> {
        self.until.values().min().copied()
    }

    /// Grows with every change.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    fn block(&mut self, scope: Scope, at: Timestamp, time: SignedDuration) {
        let until = at.saturating_add(time).unwrap_or(Timestamp::MAX);
        let entry = self.until.entry(scope).or_insert(until);
        *entry = (*entry).max(until);
        self.generation += 1;
    }
}
