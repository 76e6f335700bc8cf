//! What NodePools may launch, computed once until what it was computed from changes.

use jiff::Timestamp;
use napkeeper_core::catalog::InstanceTypes;
use napkeeper_core::model::names::NodeClassName;
use napkeeper_core::scheduling::{AvailableOfferings, UnavailableOfferings};
use napkeeper_core::snapshot::Snapshot;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The offerings of the newest snapshot that was asked for.
#[derive(Debug, Default)]
pub(crate) struct OfferingsCache {
    cached: Mutex<Option<CachedOfferings>>,
}

/// Offerings that pools may launch, and what they were computed from.
#[derive(Debug)]
struct CachedOfferings {
    offerings: Arc<AvailableOfferings>,
    generations: [u64; 4],
    types: BTreeMap<NodeClassName, InstanceTypes>,
}

impl OfferingsCache {
    /// Offerings that pools may launch. Which of them Azure refuses now is not known here, and label values that only
    /// newer pods name may be missing.
    pub(crate) fn get(&self, snapshot: &Snapshot) -> Arc<AvailableOfferings> {
        // Whoever waits here needs the same.
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(current) = cached.as_ref().filter(|cached| cached.is_current(snapshot)) {
            return Arc::clone(&current.offerings);
        }
        let offerings = AvailableOfferings::new(snapshot, &UnavailableOfferings::default(), Timestamp::UNIX_EPOCH);
        let (offerings, types) = (Arc::new(offerings), snapshot.instance_types.clone());
        let computed = CachedOfferings { offerings: Arc::clone(&offerings), generations: generations(snapshot), types };
        *cached = Some(computed);
        offerings
    }
}

impl CachedOfferings {
    /// True while nothing has changed that they were computed from.
    fn is_current(&self, snapshot: &Snapshot) -> bool {
        let types = &snapshot.instance_types;
        self.generations == generations(snapshot)
            && self.types.len() == types.len()
            && self.types.iter().zip(types).all(|(x, y)| x.0 == y.0 && Arc::ptr_eq(x.1, y.1))
    }
}

fn generations(snapshot: &Snapshot) -> [u64; 4] {
    let (pools, classes, daemon_sets) = (snapshot.pools(), snapshot.classes(), snapshot.daemon_sets());
    [pools.generation(), classes.generation(), daemon_sets.generation(), snapshot.facts_generation()]
}
