//! Sets of candidates that an open node may still become, narrowed pod by pod.
//!
//! A candidate set is the candidates of a pool that are compatible with all pods of a node so far, with their
//! compatible zones. Nodes with the same constraints share one candidate set, so narrowing is mostly a cache lookup,
//! and a node itself stores little more than the requests of its pods.

use crate::model::amounts::resources::Resources;
use crate::model::cluster::pool::NodePool;
use crate::scheduling::offerings::available::{CandidateIndex, InstanceCandidate, PoolOfferings};
use crate::scheduling::offerings::limits::LaunchLimits;
use crate::scheduling::offerings::min_values::{ChosenCandidate, Load};
use crate::scheduling::pods::node_filter::{NodeFilterId, NodeFilters};
use crate::scheduling::topology::domain::{Domain, TopologyKeyId, TopologyKeys};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Index of a candidate set.
pub(crate) type CandidateSetId = u32;

/// What narrows a candidate set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Narrowing {
    /// To what a filter matches.
    Filter(NodeFilterId),
    /// To these zones, by bits.
    Zones(u32),
    /// To a value of a label.
    Label(TopologyKeyId, Domain),
    /// To candidates that a filter matches in the remaining zones, or to those that it does not.
    CountedByFilter(NodeFilterId, bool),
}

/// Pods that are expected on a node when it is chosen for the first of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExpectedPods<'a> {
    /// Requests of one.
    pub(crate) requests: &'a Resources,
    /// How many are expected, the first included.
    pub(crate) count: u32,
}

impl ExpectedPods<'_> {
    /// The share of a price per pod on a node of some capacity, of which `used` is taken.
    pub(crate) fn price_per_pod(&self, price: i64, used: &Resources, capacity: &Resources) -> i64 {
        if price == 0 || self.count <= 1 {
            return price;
        }
        price / (self.requests.copies_that_fit_beside(used, capacity).clamp(0, i64::from(self.count) - 1) + 1)
    }
}

/// A search for the cheapest candidate of a set.
#[derive(Clone, Copy)]
pub(crate) struct CandidateSearch<'a> {
    /// Candidates before this one, which are cheaper, are skipped.
    pub(crate) from: CandidateIndex,
    pub(crate) load: Load<'a>,
    pub(crate) expected: ExpectedPods<'a>,
    pub(crate) limits: &'a LaunchLimits,
    /// The candidate of an open node that the new one replaces: its use of limits and quota counts as free.
    pub(crate) replaced: Option<CandidateIndex>,
}

/// Candidates of one pool.
pub(crate) struct CandidateSet {
    /// Index of the pool among the available offerings.
    pub(crate) pool: usize,
    /// Zones in which at least one candidate remains.
    pub(crate) zones: u32,
    /// Candidates with their zones.
    candidates: Arc<[(CandidateIndex, u32)]>,
    /// Candidates that no cheaper one dominates: only they can be the cheapest for a load.
    pareto_front: Vec<CandidateIndex>,
}

/// All candidate sets in use.
pub(crate) struct CandidateSets {
    pools: Vec<Arc<PoolOfferings>>,
    sets: Vec<CandidateSet>,
    roots: Vec<CandidateSetId>,
    narrowed: BTreeMap<(CandidateSetId, Narrowing), Option<CandidateSetId>>,
    /// By pool and filter: the zones of each candidate that match.
    accepted_zones: BTreeMap<(usize, NodeFilterId), Arc<[u32]>>,
}

impl CandidateSets {
    pub(crate) fn new(pool_offerings: &[Arc<PoolOfferings>]) -> Self {
        let mut sets = Self {
            pools: pool_offerings.to_vec(),
            sets: Vec::new(),
            roots: Vec::new(),
            narrowed: BTreeMap::new(),
            accepted_zones: BTreeMap::new(),
        };
        for (pool, pool_offerings) in pool_offerings.iter().enumerate() {
            let root = sets.add(pool, pool_offerings.all_candidates().into(), pool_offerings.pareto_front.clone());
            sets.roots.push(root);
        }
        sets
    }

    pub(crate) fn pool_offerings(&self, pool: usize) -> &Arc<PoolOfferings> {
        &self.pools[pool]
    }

    /// How many pools there are.
    pub(crate) fn pool_count(&self) -> usize {
        self.pools.len()
    }

    /// All candidates of a pool.
    pub(crate) fn root(&self, pool: usize) -> CandidateSetId {
        self.roots[pool]
    }

    pub(crate) fn get(&self, candidate_set: CandidateSetId) -> &CandidateSet {
        &self.sets[candidate_set as usize]
    }

    pub(crate) fn candidate(&self, candidate_set: CandidateSetId, index: CandidateIndex) -> &InstanceCandidate {
        &self.pools[self.get(candidate_set).pool].candidates[index as usize]
    }

    /// Candidates that remain, with their zones, cheapest first.
    pub(crate) fn candidates_in(
        &self,
        candidate_set: CandidateSetId,
    ) -> impl Iterator<Item = (&InstanceCandidate, u32)> + Clone {
        let candidates = &self.pools[self.get(candidate_set).pool].candidates;
        self.get(candidate_set).candidates.iter().map(|(index, zones)| (&candidates[*index as usize], *zones))
    }

    /// By candidate of the pool: its zones in a candidate set; 0 where it is not in the set.
    pub(crate) fn zones_by_candidate(&self, candidate_set: CandidateSetId) -> Vec<u32> {
        let CandidateSet { pool: pool_offerings, candidates: all, .. } = self.get(candidate_set);
        let mut zones = vec![0; self.pools[*pool_offerings].candidates.len()];
        all.iter().for_each(|(index, of)| zones[*index as usize] = *of);
        zones
    }

    /// By candidate of a pool: its zones that match a filter.
    pub(crate) fn accepted_zones(&mut self, pool: usize, filter: NodeFilterId, filters: &NodeFilters) -> Arc<[u32]> {
        let (pool_offerings, filter_of) = (&self.pools[pool], filters.get(filter));
        Arc::clone(
            self.accepted_zones
                .entry((pool, filter))
                .or_insert_with(|| pool_offerings.accepted_zones(filter_of).into()),
        )
    }

    /// A candidate set narrowed; `None` when nothing remains.
    pub(crate) fn narrow(
        &mut self,
        candidate_set: CandidateSetId,
        by: Narrowing,
        (filters, keys): (&NodeFilters, &TopologyKeys),
    ) -> Option<CandidateSetId> {
        if let Some(known) = self.narrowed.get(&(candidate_set, by)) {
            return *known;
        }
        let pool = self.get(candidate_set).pool;
        let all = Arc::clone(&self.get(candidate_set).candidates);
        let remaining: Option<Vec<(CandidateIndex, u32)>> = match by {
            Narrowing::Zones(mask) => narrowed_zones(&all, |_| mask),
            Narrowing::Filter(filter) => {
                let accepted = self.accepted_zones(pool, filter, filters);
                narrowed_zones(&all, |index| accepted[index as usize])
            }
            Narrowing::Label(topology_key, domain) => {
                let has = |index: CandidateIndex| self.domain_of(pool, index, topology_key, keys) == Some(domain);
                narrowed_zones(&all, |index| if has(index) { u32::MAX } else { 0 })
            }
            Narrowing::CountedByFilter(filter, counted) => {
                let (accepted, zones) = (self.accepted_zones(pool, filter, filters), self.get(candidate_set).zones);
                narrowed_zones(
                    &all,
                    |index| if (accepted[index as usize] & zones != 0) == counted { u32::MAX } else { 0 },
                )
            }
        };
        let narrowed = match remaining {
            None => Some(candidate_set).filter(|_| !all.is_empty()),
            Some(remaining) if remaining.is_empty() => None,
            Some(remaining) => {
                let front = self.pools[pool].pareto_front_of(&remaining, |_| true);
                Some(self.add(pool, remaining.into(), front))
            }
        };
        self.narrowed.insert((candidate_set, by), narrowed);
        narrowed
    }

    /// Domains that nodes of a candidate set may be in; only those that are registered for the topology key.
    pub(crate) fn domains(
        &self,
        candidate_set: CandidateSetId,
        key_id: TopologyKeyId,
        keys: &TopologyKeys,
    ) -> Vec<Domain> {
        let CandidateSet { pool: pool_offerings, candidates: all, .. } = self.get(candidate_set);
        let mut domains: Vec<Domain> =
            all.iter().filter_map(|(index, _)| self.domain_of(*pool_offerings, *index, key_id, keys)).collect();
        domains.sort_unstable();
        domains.dedup();
        domains
    }

    /// The domain of a node that becomes a candidate of a candidate set.
    pub(crate) fn candidate_domain(
        &self,
        candidate_set: CandidateSetId,
        candidate: CandidateIndex,
        key_id: TopologyKeyId,
        keys: &TopologyKeys,
    ) -> Option<Domain> {
        self.domain_of(self.get(candidate_set).pool, candidate, key_id, keys)
    }

    /// Registers the values of a label that nodes of any pool may have.
    pub(crate) fn register_domains(&self, key_id: TopologyKeyId, keys: &mut TopologyKeys) {
        let key = Arc::clone(keys.key(key_id));
        for pool_offerings in &self.pools {
            let own = pool_offerings.labels.get(&key).into_iter();
            let of_sizes = pool_offerings.candidates.iter().filter_map(|c| pool_offerings.candidate_label(c, &key));
            for value in own.cloned().chain(of_sizes) {
                keys.domain_id(key_id, &value);
            }
        }
    }

    /// The cheapest candidate of a set that holds the load and that the limits allow. Where more pods are expected, the
    /// one with the lowest price per pod. Disks and minValues are not shared.
    pub(crate) fn cheapest(
        &mut self,
        candidate_set: CandidateSetId,
        search: CandidateSearch<'_>,
    ) -> Option<CandidateIndex> {
        let CandidateSearch { from, load, expected, limits: launch_limits, replaced } = search;
        if load.disks > 0 || !load.min_values.is_empty() {
            return self.cheapest_by_scan(candidate_set, search);
        }
        if replaced.is_none() && !launch_limits.allows_node(&self.pools[self.get(candidate_set).pool].pool) {
            return None;
        }
        loop {
            let CandidateSet { pool: pool_offerings, pareto_front: front, .. } = &self.sets[candidate_set as usize];
            let PoolOfferings { candidates, pool, .. } = &*self.pools[*pool_offerings];
            let replaced = replaced.map(|replaced| &candidates[replaced as usize]);
            let paid = replaced.map_or(0, InstanceCandidate::cost);
            let start = front.partition_point(|index| *index < from);
            let mut best: Option<(i64, CandidateIndex)> = None;
            for index in &front[start..] {
                let candidate = &candidates[*index as usize];
                let added = candidate.cost() - paid;
                // Those that follow are no cheaper, and shared by no more than the expected pods.
                if best.is_some_and(|(each, _)| added / i64::from(expected.count) >= each) {
                    break;
                }
                if load.requests.fits(&candidate.pod_capacity) {
                    let each = expected.price_per_pod(added, load.requests, &candidate.pod_capacity);
                    best = best.filter(|(least, _)| *least <= each).or(Some((each, *index)));
                }
            }
            let (_, found) = best?;
            if is_allowed(launch_limits, pool, &candidates[found as usize], replaced) {
                return Some(found);
            }
            // It dominates candidates that are allowed: the refreshed front consists of allowed ones only.
            self.refresh_pareto_front(candidate_set, launch_limits);
        }
    }

    /// The same as [`Self::cheapest`] for loads with disks or minValues, which the Pareto front does not consider.
    fn cheapest_by_scan(&self, candidate_set: CandidateSetId, search: CandidateSearch<'_>) -> Option<CandidateIndex> {
        let CandidateSearch { from, load, limits: launch_limits, replaced, .. } = search;
        let CandidateSet { pool: pool_offerings, candidates: all, .. } = &self.sets[candidate_set as usize];
        let PoolOfferings { candidates, pool, .. } = &*self.pools[*pool_offerings];
        let replaced = replaced.map(|replaced| &candidates[replaced as usize]);
        let holds = |index: &CandidateIndex| candidates[*index as usize].holds(load.requests, load.disks);
        let mut indices = all.iter().map(|(index, _)| *index).filter(|index| *index >= from).filter(holds);
        indices.find(|index| {
            is_allowed(launch_limits, pool, &candidates[*index as usize], replaced)
                && self.meets_min_values(candidate_set, *index, load, launch_limits)
        })
    }

    /// True when enough values of each `minValues` label remain for a node that becomes a candidate.
    pub(crate) fn meets_min_values(
        &self,
        candidate_set: CandidateSetId,
        candidate: CandidateIndex,
        load: Load<'_>,
        limits: &LaunchLimits,
    ) -> bool {
        let pool_offerings = &self.pools[self.get(candidate_set).pool];
        load.min_values.is_empty()
            || pool_offerings.meets_min_values(
                self.candidates_in(candidate_set),
                ChosenCandidate { candidate: self.candidate(candidate_set, candidate), load },
                limits,
            )
    }

    /// The lowest cost in a candidate set from a candidate on.
    pub(crate) fn lowest_cost_from(&self, candidate_set: CandidateSetId, from: CandidateIndex) -> Option<i64> {
        let CandidateSet { pool: pool_offerings, candidates: all, .. } = self.get(candidate_set);
        let next = all.get(all.partition_point(|(index, _)| *index < from))?;
        Some(self.pools[*pool_offerings].candidates[next.0 as usize].cost())
    }

    /// Recomputes the front from candidates within resource limits and quotas. The limit on the number of nodes is
    /// ignored: open nodes may still become another candidate.
    fn refresh_pareto_front(&mut self, candidate_set: CandidateSetId, limits: &LaunchLimits) {
        let CandidateSet { pool: pool_offerings, candidates: all, .. } = &self.sets[candidate_set as usize];
        let pool_offerings = &self.pools[*pool_offerings];
        let front =
            pool_offerings.pareto_front_of(all, |candidate| limits.allows_capacity(&pool_offerings.pool, candidate));
        self.sets[candidate_set as usize].pareto_front = front;
    }

    fn add(&mut self, pool: usize, all: Arc<[(CandidateIndex, u32)]>, front: Vec<CandidateIndex>) -> CandidateSetId {
        let zones = all.iter().fold(0, |mask, (_, zones)| mask | zones);
        self.sets.push(CandidateSet { pool, zones, candidates: all, pareto_front: front });
        self.sets.len() as CandidateSetId - 1
    }

    fn domain_of(
        &self,
        pool: usize,
        candidate: CandidateIndex,
        key_id: TopologyKeyId,
        keys: &TopologyKeys,
    ) -> Option<Domain> {
        let pool_offerings = &self.pools[pool];
        let key = keys.key(key_id);
        let value = match pool_offerings.labels.get(key) {
            Some(own) => Arc::clone(own),
            None => pool_offerings.candidate_label(&pool_offerings.candidates[candidate as usize], key)?,
        };
        keys.known_domain(key_id, &value)
    }
}

/// True when the limits allow a candidate, as a replacement of `replaced` if that is given.
fn is_allowed(
    limits: &LaunchLimits,
    pool: &NodePool,
    candidate: &InstanceCandidate,
    replaced: Option<&InstanceCandidate>,
) -> bool {
    limits.allows(pool, candidate) || replaced.is_some_and(|replaced| limits.allows_swap(pool, candidate, replaced))
}

/// Candidates with their zones that are in a mask, without those that have none; `None` where that changes nothing.
fn narrowed_zones(
    all: &[(CandidateIndex, u32)],
    mask: impl Fn(CandidateIndex) -> u32,
) -> Option<Vec<(CandidateIndex, u32)>> {
    let unchanged = all.iter().take_while(|(index, zones)| *zones != 0 && zones & !mask(*index) == 0).count();
    if unchanged == all.len() {
        return None;
    }
    let (same, others) = all.split_at(unchanged);
    let mut remaining = Vec::with_capacity(all.len());
    remaining.extend_from_slice(same);
    let narrowed = others.iter().map(|(index, zones)| (*index, zones & mask(*index)));
    remaining.extend(narrowed.filter(|(_, zones)| *zones != 0));
    Some(remaining)
}
