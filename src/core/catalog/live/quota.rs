//! Azure's quotas of cores in a region.
//!
//! In production nearly all refused launches were refused for quota (karpenter-provider-azure, design 0012).

use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Numbers older than this are ignored: then Azure's refusals are the only guide, as they are in
/// karpenter-provider-azure, which forgets them after 15 min.
pub const STALE_AFTER: SignedDuration = SignedDuration::from_mins(15);

/// Cores of a quota, used and allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaUsage {
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
    /// When Azure was queried.
    pub as_of: Timestamp,
    by_name: BTreeMap<String, QuotaUsage>,
}

impl Quota {
    /// The quotas of some usages. Names compare without case: the listings of sizes and of usages do not always agree.
    #[must_use]
    pub fn new(as_of: Timestamp, usages: impl IntoIterator<Item = QuotaUsage>) -> Self {
        Self { as_of, by_name: usages.into_iter().map(|u| (u.name.to_lowercase(), u)).collect() }
    }

    /// All usages, by name.
    pub fn usages(&self) -> impl Iterator<Item = &QuotaUsage> {
        self.by_name.values()
    }

    /// True when both allow the same, whatever their ages.
    #[must_use]
    pub fn same_usages(&self, other: &Self) -> bool {
        self.by_name == other.by_name
    }

    /// Where the usage with a name is among [`Quota::usages`]; names compare without case.
    #[must_use]
    pub fn position(&self, name: &str) -> Option<usize> {
        let name = name.to_lowercase();
        self.by_name.keys().position(|known| *known == name)
    }
}
