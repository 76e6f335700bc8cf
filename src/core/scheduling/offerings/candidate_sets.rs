//! Sets of candidates that an open node may still become, narrowed pod by pod.
//!
//! A candidate set is a pool's candidates that suit all pods that were considered for the node so far, in the zones
//! that suit them. Nodes with the same history of constraints share one candidate set, so narrowing it is mostly a
//! matter of looking it up, and a node itself remembers little more than what its pods ask for.

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
    /// What a filter lets through.
    Filter(NodeFilterId),
    /// One of these zones, by bits.
    Zones(u32),
    /// A value of a label.
    Label(TopologyKeyId, Domain),
    /// What a filter lets through in the zones that are left, or what it does not.
    CountedByFilter(NodeFilterId, bool),
}

/// Pods that are in view when a node is chosen for the first of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExpectedPods<'a> {
    /// Of one.
    pub(crate) requests: &'a Resources,
    /// How many may come to the node, the first included.
    pub(crate) count: u32,
}

impl ExpectedPods<'_> {
    /// What each pod pays of a price where the first has its place, so much of a capacity being used.
    pub(crate) fn price_per_pod(&self, price: i64, used: &Resources, room: &Resources) -> i64 {
        if price == 0 || self.count <= 1 {
            return price;
        }
        price / (self.requests.copies_that_fit_beside(used, room).clamp(0, i64::from(self.count) - 1) + 1)
    }
}

/// What the cheapest candidate of a set is looked for.
#[derive(Clone, Copy)]
pub(crate) struct CandidateSearch<'a> {
    /// Candidates before this one, which are cheaper, are left out.
    pub(crate) from: CandidateIndex,
    pub(crate) load: Load<'a>,
    pub(crate) expected: ExpectedPods<'a>,
    pub(crate) limits: &'a LaunchLimits,
    /// The candidate of an open node that the new one replaces: its use of limits and quota counts as free.
    pub(crate) replaced: Option<CandidateIndex>,
}

/// Candidates of one pool.
pub(crate) struct CandidateSet {
    /// The pool, by its place among the available offerings.
    pub(crate) pool: usize,
    /// Zones in which at least one candidate remains.
    pub(crate) zones: u32,
    /// Candidates with their zones.
    candidates: Arc<[(CandidateIndex, u32)]>,
    /// Those that no cheaper one beats: only they are ever the cheapest for anything.
    pareto_front: Vec<CandidateIndex>,
}

/// All candidate sets in use.
pub(crate) struct CandidateSets {
    pools: Vec<Arc<PoolOfferings>>,
    sets: Vec<CandidateSet>,
    roots: Vec<CandidateSetId>,
    narrowed: BTreeMap<(CandidateSetId, Narrowing), Option<CandidateSetId>>,
    /// By pool and filter: the zones of each candidate that the filter lets through.
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
        for (number, pool_offerings) in pool_offerings.iter().enumerate() {
            let root = sets.add(number, pool_offerings.all_candidates().into(), pool_offerings.pareto_front.clone());
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

    /// All that a pool may buy.
    pub(crate) fn root(&self, pool: usize) -> CandidateSetId {
        self.roots[pool]
    }

    pub(crate) fn get(&self, candidate_set: CandidateSetId) -> &CandidateSet {
        &self.sets[candidate_set as usize]
    }

    pub(crate) fn candidate(&self, candidate_set: CandidateSetId, place: CandidateIndex) -> &InstanceCandidate {
        &self.pools[self.get(candidate_set).pool].candidates[place as usize]
    }

    /// Candidates that remain, with their zones, cheapest first.
    pub(crate) fn candidates_in(
        &self,
        candidate_set: CandidateSetId,
    ) -> impl Iterator<Item = (&InstanceCandidate, u32)> + Clone {
        let candidates = &self.pools[self.get(candidate_set).pool].candidates;
        self.get(candidate_set).candidates.iter().map(|(place, zones)| (&candidates[*place as usize], *zones))
    }

    /// The zones that each candidate of the pool of a candidate set has there, by its place; none where it is not among
    /// them.
    pub(crate) fn zones_by_candidate(&self, candidate_set: CandidateSetId) -> Vec<u32> {
        let CandidateSet { pool: pool_offerings, candidates: all, .. } = self.get(candidate_set);
        let mut zones = vec![0; self.pools[*pool_offerings].candidates.len()];
        all.iter().for_each(|(place, of)| zones[*place as usize] = *of);
        zones
    }

    /// The zones of each candidate of a pool that a filter lets through.
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
        (filters, known_keys): (&NodeFilters, &TopologyKeys),
    ) -> Option<CandidateSetId> {
        if let Some(known) = self.narrowed.get(&(candidate_set, by)) {
            return *known;
        }
        let pool = self.get(candidate_set).pool;
        let all = Arc::clone(&self.get(candidate_set).candidates);
        let kept: Vec<(CandidateIndex, u32)> = match by {
            Narrowing::Zones(mask) => with_zones_in(&all, |_| mask),
            Narrowing::Filter(filter) => {
                let accepted = self.accepted_zones(pool, filter, filters);
                with_zones_in(&all, |place| accepted[place as usize])
            }
            Narrowing::Label(topology_key, domain) => {
                let has = |place: CandidateIndex| self.domain_of(pool, place, topology_key, known_keys) == Some(domain);
                with_zones_in(&all, |place| if has(place) { u32::MAX } else { 0 })
            }
            Narrowing::CountedByFilter(filter, counted) => {
                let (accepted, zones) = (self.accepted_zones(pool, filter, filters), self.get(candidate_set).zones);
                with_zones_in(
                    &all,
                    |place| if (accepted[place as usize] & zones != 0) == counted { u32::MAX } else { 0 },
                )
            }
        };
        let narrowed = if kept.is_empty() {
            None
        } else if kept[..] == all[..] {
            Some(candidate_set)
        } else {
            let front = self.pools[pool].pareto_front_of(&kept, |_| true);
            Some(self.add(pool, kept.into(), front))
        };
        self.narrowed.insert((candidate_set, by), narrowed);
        narrowed
    }

    /// Values of a label that nodes of a candidate set may have, by number; only those that a topology key knows.
    pub(crate) fn domains(
        &self,
        candidate_set: CandidateSetId,
        key_id: TopologyKeyId,
        keys: &TopologyKeys,
    ) -> Vec<Domain> {
        let CandidateSet { pool: pool_offerings, candidates: all, .. } = self.get(candidate_set);
        let mut domains: Vec<Domain> =
            all.iter().filter_map(|(place, _)| self.domain_of(*pool_offerings, *place, key_id, keys)).collect();
        domains.sort_unstable();
        domains.dedup();
        domains
    }

    /// Where a node lies on a topology key if it becomes one of the candidates of a candidate set.
    pub(crate) fn candidate_domain(
        &self,
        candidate_set: CandidateSetId,
        candidate: CandidateIndex,
        key_id: TopologyKeyId,
        keys: &TopologyKeys,
    ) -> Option<Domain> {
        self.domain_of(self.get(candidate_set).pool, candidate, key_id, keys)
    }

    /// Makes the values of a label known that nodes of any pool may have.
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

    /// The cheapest candidate of a set that holds the load and that the limits allow. Where more pods are expected, the one
    /// at which each of them pays least, since they share its price. Disks and minValues are not shared.
    pub(crate) fn cheapest(
        &mut self,
        candidate_set: CandidateSetId,
        search: CandidateSearch<'_>,
    ) -> Option<CandidateIndex> {
        let CandidateSearch { from, load, expected: next, limits: launch_limits, replaced: own } = search;
        if load.disks > 0 || !load.min_values.is_empty() {
            return self.cheapest_by_scan(candidate_set, search);
        }
        if own.is_none() && !launch_limits.allows_node(&self.pools[self.get(candidate_set).pool].pool) {
            return None;
        }
        loop {
            let CandidateSet { pool: pool_offerings, pareto_front: front, .. } = &self.sets[candidate_set as usize];
            let PoolOfferings { candidates, pool, .. } = &*self.pools[*pool_offerings];
            let own = own.map(|own| &candidates[own as usize]);
            let paid = own.map_or(0, |own| own.price.nanos());
            let start = front.partition_point(|place| *place < from);
            let mut best: Option<(i64, CandidateIndex)> = None;
            for place in &front[start..] {
                let candidate = &candidates[*place as usize];
                let more = candidate.price.nanos() - paid;
                // Those that follow are no cheaper, and shared by no more pods than are in view.
                if best.is_some_and(|(each, _)| more / i64::from(next.count) >= each) {
                    break;
                }
                if load.requests.fits(&candidate.pod_capacity) {
                    let each = next.price_per_pod(more, load.requests, &candidate.pod_capacity);
                    best = best.filter(|(least, _)| *least <= each).or(Some((each, *place)));
                }
            }
            let (_, found) = best?;
            if is_allowed(launch_limits, pool, &candidates[found as usize], own) {
                return Some(found);
            }
            // It beats others that may be bought: they come to the fore without it, and of those all are allowed.
            self.refresh_pareto_front(candidate_set, launch_limits);
        }
    }

    /// The same as [`Self::cheapest`] for loads with disks or minValues, which the Pareto front does not look at.
    fn cheapest_by_scan(&self, candidate_set: CandidateSetId, search: CandidateSearch<'_>) -> Option<CandidateIndex> {
        let CandidateSearch { from, load, limits: launch_limits, replaced: own, .. } = search;
        let CandidateSet { pool: pool_offerings, candidates: all, .. } = &self.sets[candidate_set as usize];
        let PoolOfferings { candidates, pool, .. } = &*self.pools[*pool_offerings];
        let own = own.map(|own| &candidates[own as usize]);
        let holds = |place: &CandidateIndex| candidates[*place as usize].holds(load.requests, load.disks);
        let mut places = all.iter().map(|(place, _)| *place).filter(|place| *place >= from).filter(holds);
        places.find(|place| {
            is_allowed(launch_limits, pool, &candidates[*place as usize], own)
                && self.meets_min_values(candidate_set, *place, load, launch_limits)
        })
    }

    /// True when a node of a candidate set that becomes a candidate keeps as many values on offer as it needs.
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

    /// The lowest price from a candidate of a candidate set on.
    pub(crate) fn lowest_price_from(&self, candidate_set: CandidateSetId, from: CandidateIndex) -> Option<i64> {
        let CandidateSet { pool: pool_offerings, candidates: all, .. } = self.get(candidate_set);
        let next = all.get(all.partition_point(|(place, _)| *place < from))?;
        Some(self.pools[*pool_offerings].candidates[next.0 as usize].price.nanos())
    }

    /// Drops what there is no room for any more from the front, and those that it beat come to the fore. Whether there is a
    /// place for one node more is not asked: nodes that have one may still become another candidate.
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

/// True when a candidate may be bought; in place of `own`, if that is given.
fn is_allowed(
    limits: &LaunchLimits,
    pool: &NodePool,
    candidate: &InstanceCandidate,
    own: Option<&InstanceCandidate>,
) -> bool {
    limits.allows(pool, candidate) || own.is_some_and(|own| limits.allows_swap(pool, candidate, own))
}

/// Candidates with those of their zones that are in a mask, as far as there are any.
fn with_zones_in(all: &[(CandidateIndex, u32)], mask: impl Fn(CandidateIndex) -> u32) -> Vec<(CandidateIndex, u32)> {
    all.iter().map(|(place, zones)| (*place, zones & mask(*place))).filter(|(_, zones)| *zones != 0).collect()
}
