//! Quota: how many more cores will Azure sell, counting what is under way and not counted there yet?
//!
//! In production nearly all refused launches were refused for quota (karpenter-provider-azure, design 0012). Azure's
//! numbers are some minutes old; a VM that we have asked for since is in none of them, so it is counted here.

use crate::catalog::{CapacityType, SizeFacts};
use crate::cluster::Snapshot;
use crate::cluster::claim::Claim;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Numbers older than this say nothing: then Azure's refusals are the only guide, as they are in
/// karpenter-provider-azure, which forgets them after 15 min.
pub const STALE_AFTER: SignedDuration = SignedDuration::from_mins(15);

/// Cores of a quota, used and allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// The quota's name, as Azure spells it: a family, `cores` or `lowPriorityCores`.
    pub name: Arc<str>,
    /// Cores in use, as Azure counts them.
    pub used: u64,
    /// Most cores.
    pub limit: u64,
}

/// Azure's quotas of cores in a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quota {
    /// When Azure was asked.
    pub as_of: Timestamp,
    by_name: BTreeMap<String, Usage>,
}

/// By then Azure counts a VM that was asked for, whether or not it has come up.
const COUNTED_AFTER: SignedDuration = SignedDuration::from_mins(10);
/// Name of the quota of all cores at full price.
const REGIONAL: &str = "cores";
/// Name of the quota of all spot cores.
const SPOT: &str = "lowprioritycores";

impl Quota {
    /// The quotas of some usages. Names compare without case: the listings of sizes and of usages do not always agree.
    #[must_use]
    pub fn new(as_of: Timestamp, usages: impl IntoIterator<Item = Usage>) -> Self {
        Self { as_of, by_name: usages.into_iter().map(|u| (u.name.to_lowercase(), u)).collect() }
    }

    /// All usages, by name.
    pub fn usages(&self) -> impl Iterator<Item = &Usage> {
        self.by_name.values()
    }

    /// True when both allow the same, whatever their ages.
    #[must_use]
    pub fn same_numbers(&self, other: &Self) -> bool {
        self.by_name == other.by_name
    }
}

/// Which quota leaves no room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaShort {
    /// The quota, with Azure's numbers.
    pub usage: Usage,
    /// Cores that are under way and not in Azure's numbers.
    pub in_flight: u64,
    /// Cores that are asked for.
    pub need: u64,
}

impl fmt::Display for QuotaShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { usage: Usage { name, used, limit }, in_flight, need } = self;
        match name.to_lowercase().as_str() {
            REGIONAL => f.write_str("quota of the region")?,
            SPOT => f.write_str("quota of spot cores")?,
            _ => write!(f, "quota of family {name}")?,
        }
        write!(f, ": {used} of {limit} cores used, {in_flight} in flight, {need} needed")
    }
}

/// Room under the quotas. Without numbers, or with stale ones, there is room for everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Room {
    /// Each quota with the cores that are under way beside Azure's numbers.
    quotas: Vec<(Usage, u64)>,
    /// The quotas of families, by the names that sizes have. Looked up for every candidate of every pass, so nothing is
    /// made anew there.
    families: Arc<BTreeMap<Arc<str>, usize>>,
    regional: Option<usize>,
    spot: Option<usize>,
}

impl Room {
    /// The room that a Snapshot's quota leaves beside its NodeClaims under way.
    #[must_use]
    pub fn of(snapshot: &Snapshot, now: Timestamp) -> Self {
        let fresh = |quota: &&Arc<Quota>| now.duration_since(quota.as_of) <= STALE_AFTER;
        let Some(quota) = snapshot.quota.as_ref().filter(fresh) else { return Self::default() };
        let place = |name: &str| quota.by_name.keys().position(|known| known == name);
        let named: BTreeSet<&Arc<str>> =
            snapshot.instance_types.values().flat_map(|types| types.iter().map(|t| &t.facts.family)).collect();
        let families = named.into_iter().filter_map(|f| Some((Arc::clone(f), place(&f.to_lowercase())?))).collect();
        let mut room = Self {
            quotas: quota.by_name.values().map(|usage| (usage.clone(), 0)).collect(),
            families: Arc::new(families),
            regional: place(REGIONAL),
            spot: place(SPOT),
        };
        for claim in snapshot.claims().values().filter(|claim| is_in_flight(claim, quota.as_of)) {
            if let Some((facts, capacity_type)) = asked_by(snapshot, claim) {
                room.take(facts, capacity_type);
            }
        }
        room
    }

    /// The quota that does not allow one more VM of a size; `None` when all do.
    #[must_use]
    pub fn short(&self, facts: &SizeFacts, capacity_type: CapacityType) -> Option<QuotaShort> {
        let need = u64::from(facts.vcpus);
        let quotas = self.places(facts, capacity_type).into_iter().flatten().filter_map(|place| self.quotas.get(place));
        let mut short = quotas
            .filter(|(usage, in_flight)| usage.used.saturating_add(*in_flight).saturating_add(need) > usage.limit);
        short.next().map(|(usage, in_flight)| QuotaShort { usage: usage.clone(), in_flight: *in_flight, need })
    }

    /// True when every quota allows one more VM of a size.
    #[must_use]
    pub fn allows(&self, facts: &SizeFacts, capacity_type: CapacityType) -> bool {
        self.quotas.is_empty() || self.short(facts, capacity_type).is_none()
    }

    /// True when every quota allows one VM in place of another that has been counted.
    #[must_use]
    pub fn allows_instead(&self, one: (&SizeFacts, CapacityType), of: (&SizeFacts, CapacityType)) -> bool {
        let back = self.places(of.0, of.1);
        self.places(one.0, one.1).into_iter().flatten().all(|place| {
            let given = if back.contains(&Some(place)) { u64::from(of.0.vcpus) } else { 0 };
            self.quotas.get(place).is_none_or(|(usage, in_flight)| {
                let used = usage.used.saturating_add(*in_flight).saturating_add(u64::from(one.0.vcpus));
                used <= usage.limit.saturating_add(given)
            })
        })
    }

    /// Counts one VM of a size less: it was counted here, and another will be asked for instead.
    pub fn give_back(&mut self, facts: &SizeFacts, capacity_type: CapacityType) {
        for place in self.places(facts, capacity_type).into_iter().flatten() {
            if let Some((_, in_flight)) = self.quotas.get_mut(place) {
                *in_flight = in_flight.saturating_sub(u64::from(facts.vcpus));
            }
        }
    }

    /// Counts one more VM of a size.
    pub fn take(&mut self, facts: &SizeFacts, capacity_type: CapacityType) {
        for place in self.places(facts, capacity_type).into_iter().flatten() {
            if let Some((_, in_flight)) = self.quotas.get_mut(place) {
                *in_flight = in_flight.saturating_add(u64::from(facts.vcpus));
            }
        }
    }

    /// The quotas that a VM counts against: spot against its own alone, all others against family and region.
    fn places(&self, facts: &SizeFacts, capacity_type: CapacityType) -> [Option<usize>; 2] {
        match capacity_type {
            // The reservation has taken its cores already.
            CapacityType::Reserved => [None, None],
            CapacityType::Spot => [self.spot, None],
            CapacityType::OnDemand => [self.families.get(&facts.family).copied(), self.regional],
        }
    }
}

/// A NodeClaim of ours whose VM may be asked for, or was asked for, after Azure counted. One that was asked for just
/// before, and does not run yet, is counted twice until Azure is asked again: that refuses a VM for a while, where the
/// other way would send one into a refusal.
pub(super) fn is_in_flight(claim: &Claim, as_of: Timestamp) -> bool {
    let asked_long_ago =
        claim.intent.as_ref().is_some_and(|intent| as_of.duration_since(intent.written_at) > COUNTED_AFTER);
    let uncounted = claim.status.launched.is_none_or(|at| at > as_of) && !asked_long_ago;
    // A claim that goes away without an intent never asked for a VM.
    let asks = claim.deleting_at.is_none() || claim.intent.is_some();
    claim.is_ours() && asks && uncounted && claim.status.launch_failed.is_none()
}

/// The size that a claim is being launched as, or will be tried as first.
fn asked_by<'a>(snapshot: &'a Snapshot, claim: &Claim) -> Option<(&'a SizeFacts, CapacityType)> {
    let trying = claim.intent.as_ref().map(|intent| &intent.offering);
    let key = &trying.or_else(|| claim.spec.planned.first())?.key;
    let types = snapshot.instance_types.get(&claim.spec.class)?;
    let at = types.binary_search_by(|t| t.facts.name.cmp(&key.size)).ok()?;
    types.get(at).map(|t| (&*t.facts, key.capacity_type))
}
