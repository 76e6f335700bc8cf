//! Keeps the available offerings from one pass to the next, while nothing that they depend on changes: filtering the
//! instance types of all pools is the slowest part of a small simulation.

use super::available::AvailableOfferings;
use super::label_variants::{NamedValues, values_named_by_pods};
use super::unavailable::UnavailableOfferings;
use crate::model::cluster::launch_hold::PoolHold;
use crate::model::names::NodePoolName;
use crate::snapshot::Snapshot;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The available offerings of the last pass. If lost, they are computed again: it does not count for equality.
#[derive(Debug, Clone, Default)]
pub(crate) struct OfferingsCache(Option<(CacheKey, Arc<AvailableOfferings>)>);

/// All that the offerings of pools depend on, but for reservations.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CacheKey {
    generations: [u64; 5],
    /// How many refusals still count: what has expired since stays in the list until provisioning takes it out.
    refusals: usize,
    /// NodePools that launch nothing, with the reasons that pods are told.
    holds: BTreeMap<NodePoolName, PoolHold>,
    /// Addresses of the instance types, which are replaced and never changed.
    instance_types: Vec<usize>,
    named: NamedValues,
}

impl PartialEq for OfferingsCache {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for OfferingsCache {}

impl OfferingsCache {
    /// The available offerings, as [`AvailableOfferings::new`] gives them.
    pub(crate) fn get(
        &mut self,
        snapshot: &Snapshot,
        unavailable: &UnavailableOfferings,
        now: Timestamp,
    ) -> AvailableOfferings {
        // What is left of reservations changes with every node and with time.
        if snapshot.infrastructure.reservations.is_some() {
            return AvailableOfferings::new(snapshot, unavailable, now);
        }
        let key = CacheKey::of(snapshot, unavailable, now);
        if let Some((known, offerings)) = &self.0
            && *known == key
        {
            return offerings.without_pools(&[], snapshot, now);
        }
        let offerings = AvailableOfferings::new(snapshot, unavailable, now);
        self.0 = Some((key, Arc::new(offerings.without_pools(&[], snapshot, now))));
        offerings
    }
}

impl CacheKey {
    fn of(snapshot: &Snapshot, unavailable: &UnavailableOfferings, now: Timestamp) -> Self {
        let generations = [
            snapshot.pools().generation(),
            snapshot.classes().generation(),
            snapshot.daemon_sets().generation(),
            snapshot.facts_generation(),
            unavailable.generation(),
        ];
        let instance_types = snapshot.instance_types.values().map(|types| Arc::as_ptr(types).addr()).collect();
        let refusals = unavailable.iter().filter(|(_, until)| **until > now).count();
        let (holds, named) = (snapshot.pool_holds.clone(), values_named_by_pods(snapshot));
        Self { generations, refusals, holds, instance_types, named }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::CapacityType;
    use crate::fixtures::{at, cluster, offering, pool, requirements_in};
    use crate::model::errors::{CloudError, CloudErrorCode, LaunchRefusal};
    use crate::model::labels;

    fn offered(offerings: &AvailableOfferings) -> Vec<(NodePoolName, usize)> {
        offerings.pools.iter().map(|pool| (pool.pool.name.clone(), pool.candidates.len())).collect()
    }

    #[test]
    fn what_a_change_affects_is_computed_again() {
        let mut snapshot = cluster([pool("general")]);
        let mut unavailable = UnavailableOfferings::default();
        let mut cache = OfferingsCache::default();
        let first = cache.get(&snapshot, &unavailable, at(0));
        let again = cache.get(&snapshot, &unavailable, at(10));
        assert!(Arc::ptr_eq(&first.pools[0], &again.pools[0]), "nothing has changed");
        let before = offered(&again);
        assert_eq!(before, offered(&AvailableOfferings::new(&snapshot, &unavailable, at(10))));
        let mut narrow = pool("general");
        narrow.requirements = requirements_in(&[(labels::INSTANCE_TYPE, &["Standard_D2s_v5"])]);
        snapshot.put_pool(narrow.name.clone(), narrow);
        let after = offered(&cache.get(&snapshot, &unavailable, at(20)));
        assert!(after[0].1 < before[0].1 && after[0].1 > 0, "{after:?}");
        let key = offering("Standard_D2s_v5", 1, CapacityType::Spot).key;
        let error = CloudError::new(CloudErrorCode::AllocationFailed, "none left");
        let refusal =
            LaunchRefusal { offering: key, reservation: None, error, applies_to_all_offerings: false, at: at(20) };
        unavailable.record(&refusal, None);
        let offerings = cache.get(&snapshot, &unavailable, at(21));
        assert_eq!(offered(&offerings), offered(&AvailableOfferings::new(&snapshot, &unavailable, at(21))));
        assert!(!Arc::ptr_eq(&offerings.pools[0], &again.pools[0]));
        let expired = unavailable.next_expiry().unwrap();
        assert_eq!(offered(&cache.get(&snapshot, &unavailable, expired)), after, "nothing is refused any more");
        let holds = ["2 nodes did not come up", "3 nodes did not come up"].map(|reason| {
            let hold = PoolHold::Held { reason: Arc::from(reason) };
            snapshot.pool_holds.insert(NodePoolName::new("general").unwrap(), hold);
            cache.get(&snapshot, &unavailable, at(22)).pools[0].held.clone()
        });
        assert_ne!(holds[0], holds[1], "pods are told the reason of now");
    }
}
