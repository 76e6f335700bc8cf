//! The size listing, guarded against truncated answers.
//!
//! Truncated listings have cost others healthy nodes. So a missing size is retained for [`MISSING_SIZE_RETENTION`],
//! with the time when it was first missing, and an answer that lacks a tenth of all sizes is rejected.

use crate::catalog::OfferedSize;
use crate::model::names::VmSize;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// How long a size that whole listings no longer name is still believed in: two listings at Karpenter's period of 12 h.
pub const MISSING_SIZE_RETENTION: SignedDuration = SignedDuration::from_hours(24);
/// The part of known sizes, in per cent, that may be missing at once.
const MISSING_PERCENT: usize = 10;
/// Sizes that may always be missing at once.
const MISSING_AT_LEAST: usize = 5;
/// Names of missing sizes that an error gives.
const MAX_NAMED_SIZES: usize = 5;

/// A size of the listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedSize {
    /// The size, without prices.
    pub size: OfferedSize,
    /// Since when whole listings do not name it any more.
    pub missing_since: Option<Timestamp>,
}

/// The sizes of a region, as the last whole listings have them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SizeListing {
    /// By name.
    pub sizes: BTreeMap<VmSize, ListedSize>,
    /// Those that whole listings have lacked for [`MISSING_SIZE_RETENTION`] or longer, and which was the first.
    pub vanished: BTreeMap<VmSize, Timestamp>,
}

/// An answer has so few sizes that it is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TruncatedListing {
    /// Sizes that it names.
    pub listed: usize,
    /// Sizes that were known, or the minimum.
    pub known: usize,
    /// Some of the missing sizes.
    pub missing: Vec<VmSize>,
}

impl std::error::Error for TruncatedListing {}

impl fmt::Display for TruncatedListing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { listed: has, known, missing: lacks } = self;
        write!(f, "the listing has {has} sizes, expected about {known}: treated as incomplete")?;
        if !lacks.is_empty() {
            let names: Vec<&str> = lacks.iter().map(VmSize::as_str).collect();
            write!(f, " (missing {} and possibly others)", names.join(", "))?;
        }
        f.write_str("; if these sizes no longer exist, delete the ConfigMap napkeeper-facts and restart the controller")
    }
}

impl SizeListing {
    /// The listing after a new answer. `unreadable`: sizes that it names and that could not be read; what was known of them stays.
    /// `at_least`: fewer sizes are rejected where nothing is known yet.
    ///
    /// # Errors
    /// [`TruncatedListing`]: the answer is rejected; the known sizes are retained.
    pub fn merge(
        &self,
        answer: Vec<OfferedSize>,
        unreadable: &BTreeSet<VmSize>,
        at_least: usize,
        now: Timestamp,
    ) -> Result<Self, TruncatedListing> {
        let mut sizes: BTreeMap<VmSize, ListedSize> = answer
            .into_iter()
            .map(|size| (size.facts.name.clone(), ListedSize { size, missing_since: None }))
            .collect();
        let has = sizes.len();
        if self.sizes.is_empty() && has < at_least.max(1) {
            return Err(TruncatedListing { listed: has, known: at_least, missing: Vec::new() });
        }
        let present = self.sizes.iter().filter(|(_, old)| old.missing_since.is_none()).count();
        let newly: Vec<&VmSize> = self
            .sizes
            .iter()
            .filter(|(name, old)| old.missing_since.is_none() && !sizes.contains_key(*name))
            .map(|(name, _)| name)
            .collect();
        // An empty listing is truncated, however few sizes there were.
        let most = MISSING_AT_LEAST.max(present * MISSING_PERCENT / 100);
        if newly.len() > most || (has == 0 && present > 0) {
            let lacks = newly.into_iter().take(MAX_NAMED_SIZES).cloned().collect();
            return Err(TruncatedListing { listed: has, known: present, missing: lacks });
        }
        let mut vanished = self.vanished.clone();
        for (name, old) in &self.sizes {
            if sizes.contains_key(name) {
                continue;
            }
            let since = old.missing_since.unwrap_or(now);
            if unreadable.contains(name) {
                sizes.insert(name.clone(), ListedSize { size: old.size.clone(), missing_since: None });
            } else if now.duration_since(since) < MISSING_SIZE_RETENTION {
                sizes.insert(name.clone(), ListedSize { size: old.size.clone(), missing_since: Some(since) });
            } else {
                vanished.insert(name.clone(), since);
            }
        }
        vanished.retain(|name, _| !sizes.contains_key(name) && !unreadable.contains(name));
        Ok(Self { sizes, vanished })
    }

    /// Sizes that the last listing did not name, with the time that they were missed first.
    pub fn missing(&self) -> impl Iterator<Item = (&VmSize, Timestamp)> {
        self.sizes.iter().filter_map(|(name, listed)| Some((name, listed.missing_since?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;
    use crate::fixtures::start;
    use crate::model::names::Region;

    fn all() -> Vec<OfferedSize> {
        Catalog::embedded().unwrap().region(&Region::new("westeurope").unwrap()).unwrap().sizes
    }

    fn none() -> BTreeSet<VmSize> {
        BTreeSet::new()
    }

    fn hours(n: i64) -> Timestamp {
        start() + SignedDuration::from_hours(n)
    }

    #[test]
    fn a_missing_size_is_retained_for_a_day_of_complete_listings() {
        let all = all();
        let known = SizeListing::default().merge(all.clone(), &none(), 1, hours(0)).unwrap();
        let lost = all[3].facts.name.clone();
        let without: Vec<_> = all.iter().filter(|s| s.facts.name != lost).cloned().collect();
        let soon = known.merge(without.clone(), &none(), 1, hours(12)).unwrap();
        assert_eq!(soon.missing().collect::<Vec<_>>(), [(&lost, hours(12))]);
        let later = soon.merge(without.clone(), &none(), 1, hours(35)).unwrap();
        assert!(later.sizes.contains_key(&lost), "23 h");
        assert_eq!(later.merge(all.clone(), &none(), 1, hours(35)).unwrap().missing().count(), 0, "it is back");
        assert!(later.vanished.is_empty(), "23 h");
        let gone = later.merge(without.clone(), &none(), 1, hours(36)).unwrap();
        assert!(!gone.sizes.contains_key(&lost));
        let vanished = BTreeMap::from([(lost, hours(12))]);
        assert_eq!(gone.vanished, vanished);
        let gone = gone.merge(without, &none(), 1, hours(48)).unwrap();
        assert_eq!(gone.vanished, vanished, "it is remembered");
        assert!(gone.merge(all, &none(), 1, hours(60)).unwrap().vanished.is_empty(), "it is back");
    }

    #[test]
    fn a_size_that_cannot_be_read_is_there() {
        let all = all();
        let known = SizeListing::default().merge(all.clone(), &none(), 1, hours(0)).unwrap();
        let unreadable = BTreeSet::from([all[3].facts.name.clone()]);
        let without: Vec<_> = all.iter().filter(|s| !unreadable.contains(&s.facts.name)).cloned().collect();
        let weeks = (1..30).fold(known.clone(), |listing, day| {
            listing.merge(without.clone(), &unreadable, 1, hours(24 * day)).unwrap()
        });
        assert_eq!(weeks, known);
        let missed = weeks.merge(without.clone(), &none(), 1, hours(1_000)).unwrap();
        assert!(missed.vanished.is_empty(), "only then it begins to be missed");
        let vanished = missed.merge(without.clone(), &none(), 1, hours(1_024)).unwrap();
        assert_eq!(vanished.vanished.len(), 1);
        assert!(vanished.merge(without, &unreadable, 1, hours(1_036)).unwrap().vanished.is_empty());
    }

    #[test]
    fn a_truncated_answer_is_rejected_with_the_missing_sizes() {
        let all = all();
        let known = SizeListing::default().merge(all.clone(), &none(), 1, hours(0)).unwrap();
        let most = all.len() / 10;
        assert!(known.merge(all[most..].to_vec(), &none(), 1, hours(12)).is_ok());
        let error = known.merge(all[most + 1..].to_vec(), &none(), 1, hours(12)).unwrap_err();
        assert_eq!((error.listed, error.known, error.missing.len()), (all.len() - most - 1, all.len(), 5));
        assert!(error.to_string().contains(all[0].facts.name.as_str()), "{error}");
        assert!(known.merge(Vec::new(), &none(), 0, hours(12)).is_err());
        assert!(
            SizeListing::default().merge(all[..10].to_vec(), &none(), 300, hours(0)).is_err(),
            "the first answer too"
        );
    }

    #[test]
    fn losing_a_tenth_each_day_is_still_seen_size_by_size() {
        let all = all();
        let known = SizeListing::default().merge(all.clone(), &none(), 1, hours(0)).unwrap();
        let first = known.merge(all[all.len() / 10..].to_vec(), &none(), 1, hours(12)).unwrap();
        assert_eq!(first.missing().count(), all.len() / 10);
        let second = first.merge(all[all.len() / 6..].to_vec(), &none(), 1, hours(24)).unwrap();
        assert_eq!(second.missing().count(), all.len() / 6);
        assert!(second.missing().any(|(_, at)| at == hours(12)) && second.missing().any(|(_, at)| at == hours(24)));
    }
}
