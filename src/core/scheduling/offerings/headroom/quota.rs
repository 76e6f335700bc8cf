//! Remaining vCPU quota, less launches that Azure's numbers do not include yet.
//!
//! Azure's numbers are some minutes old; a VM that was requested since is not included, so it is counted here.

use crate::catalog::SizeFacts;
use crate::catalog::live::{Quota, QuotaUsage, STALE_AFTER};
use crate::model::cluster::claim::Claim;
use crate::model::cluster::offering::CapacityType;
use crate::scheduling::offerings::headroom::is_in_flight;
use crate::snapshot::Snapshot;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Name of the quota of all cores at full price.
const REGIONAL: &str = "cores";
/// Name of the quota of all spot cores.
const SPOT: &str = "lowprioritycores";

/// A quota without remaining capacity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaShortage {
    /// The quota, with Azure's numbers.
    pub usage: QuotaUsage,
    /// Cores of launches that are not in Azure's numbers.
    pub in_flight: u64,
    /// Cores that are needed.
    pub needed: u64,
}

impl fmt::Display for QuotaShortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { usage: QuotaUsage { name, used, limit }, in_flight, needed } = self;
        match name.to_lowercase().as_str() {
            REGIONAL => f.write_str("regional vCPU quota")?,
            SPOT => f.write_str("spot vCPU quota")?,
            _ => write!(f, "vCPU quota for family {name}")?,
        }
        write!(f, ": {used} of {limit} vCPUs used, {in_flight} launching, {needed} needed")
    }
}

/// Remaining cores of each quota. Without numbers, or with stale ones, nothing is limited.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QuotaHeadroom {
    /// Each quota with the cores of launches that are not in Azure's numbers.
    quotas: Vec<(QuotaUsage, u64)>,
    /// The quotas of families, by the family names of sizes: cached, since they are looked up for every candidate.
    families: Arc<BTreeMap<Arc<str>, usize>>,
    regional: Option<usize>,
    spot: Option<usize>,
}

impl QuotaHeadroom {
    /// The quota of a Snapshot less its NodeClaims in flight.
    #[must_use]
    pub fn of(snapshot: &Snapshot, now: Timestamp) -> Self {
        let fresh = |quota: &&Arc<Quota>| now.duration_since(quota.as_of) <= STALE_AFTER;
        let Some(quota) = snapshot.quota.as_ref().filter(fresh) else { return Self::default() };
        let named: BTreeSet<&Arc<str>> =
            snapshot.instance_types.values().flat_map(|types| types.iter().map(|t| &t.facts.family)).collect();
        let families = named.into_iter().filter_map(|f| Some((Arc::clone(f), quota.position(f)?))).collect();
        let mut headroom = Self {
            quotas: quota.usages().map(|usage| (usage.clone(), 0)).collect(),
            families: Arc::new(families),
            regional: quota.position(REGIONAL),
            spot: quota.position(SPOT),
        };
        for claim in snapshot.claims().values().filter(|claim| is_in_flight(claim, quota.as_of)) {
            if let Some((facts, capacity_type)) = launching_as(snapshot, claim) {
                headroom.take(facts, capacity_type);
            }
        }
        headroom
    }

    /// The quota that does not allow one more VM of a size; `None` when all do.
    #[must_use]
    pub fn shortage(&self, facts: &SizeFacts, capacity_type: CapacityType) -> Option<QuotaShortage> {
        let needed = u64::from(facts.vcpus);
        let quotas =
            self.quota_indices(facts, capacity_type).into_iter().flatten().filter_map(|index| self.quotas.get(index));
        let mut short = quotas
            .filter(|(usage, in_flight)| usage.used.saturating_add(*in_flight).saturating_add(needed) > usage.limit);
        short.next().map(|(usage, in_flight)| QuotaShortage { usage: usage.clone(), in_flight: *in_flight, needed })
    }

    /// True when every quota allows one more VM of a size.
    #[must_use]
    pub fn allows(&self, facts: &SizeFacts, capacity_type: CapacityType) -> bool {
        self.quotas.is_empty() || self.shortage(facts, capacity_type).is_none()
    }

    /// True when every quota allows one VM instead of another that has been counted.
    #[must_use]
    pub fn allows_swap(&self, new: (&SizeFacts, CapacityType), old: (&SizeFacts, CapacityType)) -> bool {
        let freed_quotas = self.quota_indices(old.0, old.1);
        self.quota_indices(new.0, new.1).into_iter().flatten().all(|index| {
            let freed = if freed_quotas.contains(&Some(index)) { u64::from(old.0.vcpus) } else { 0 };
            self.quotas.get(index).is_none_or(|(usage, in_flight)| {
                let used = usage.used.saturating_add(*in_flight).saturating_add(u64::from(new.0.vcpus));
                used <= usage.limit.saturating_add(freed)
            })
        })
    }

    /// Gives back the quota of one VM that has been counted.
    pub fn give_back(&mut self, facts: &SizeFacts, capacity_type: CapacityType) {
        for index in self.quota_indices(facts, capacity_type).into_iter().flatten() {
            if let Some((_, in_flight)) = self.quotas.get_mut(index) {
                *in_flight = in_flight.saturating_sub(u64::from(facts.vcpus));
            }
        }
    }

    /// Counts one more VM of a size.
    pub fn take(&mut self, facts: &SizeFacts, capacity_type: CapacityType) {
        for index in self.quota_indices(facts, capacity_type).into_iter().flatten() {
            if let Some((_, in_flight)) = self.quotas.get_mut(index) {
                *in_flight = in_flight.saturating_add(u64::from(facts.vcpus));
            }
        }
    }

    /// The quotas that a VM counts against: spot against its own alone, all others against family and region.
    fn quota_indices(&self, facts: &SizeFacts, capacity_type: CapacityType) -> [Option<usize>; 2] {
        match capacity_type {
            // The reservation has taken its cores already.
            CapacityType::Reserved => [None, None],
            CapacityType::Spot => [self.spot, None],
            CapacityType::OnDemand => [self.families.get(&facts.family).copied(), self.regional],
        }
    }
}

/// The size that a claim is being launched as, or will be tried as first.
fn launching_as<'a>(snapshot: &'a Snapshot, claim: &Claim) -> Option<(&'a SizeFacts, CapacityType)> {
    let trying = claim.intent.as_ref().map(|intent| &intent.offering);
    let key = &trying.or_else(|| claim.spec.planned.first())?.key;
    let types = snapshot.instance_types.get(&claim.spec.class)?;
    let at = types.binary_search_by(|t| t.facts.name.cmp(&key.size)).ok()?;
    types.get(at).map(|t| (&*t.facts, key.capacity_type))
}
