//! minValues of a NodePool.
//!
//! A node that can only become one size in one zone is not launched at all when that is out of stock. `minValues` of a
//! label requires that many different values among the offerings that hold the node's pods.

use crate::catalog::OfferingKey;
use crate::model::amounts::resources::Resources;
use crate::model::cluster::pool::{NodePool, amount};
use crate::model::labels;
use crate::model::names::Zone;
use crate::model::settings::MinValuesPolicy;
use crate::scheduling::offerings::available::{AvailableOfferings, InstanceCandidate, PoolOfferings};
use crate::scheduling::offerings::limits::LaunchLimits;
use crate::scheduling::result::NewNode;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a node must hold, and how many label values must remain for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load<'a> {
    pub(crate) requests: &'a Resources,
    pub(crate) disks: u32,
    /// How many values of each label of [`PoolOfferings::min_values`]; empty where none are required.
    pub(crate) min_values: &'a [u32],
}

/// A candidate as which a node is to be launched, and what the node must hold.
#[derive(Clone, Copy)]
pub(crate) struct ChosenCandidate<'a> {
    pub(crate) candidate: &'a InstanceCandidate,
    pub(crate) load: Load<'a>,
}

/// Labels with `minValues` above 1.
pub(crate) fn min_values_of(pool: &NodePool) -> Vec<(Arc<str>, u32)> {
    let min_values =
        pool.requirements.iter().filter_map(|(key, requirement)| Some((Arc::clone(key), requirement.min_values()?)));
    min_values.filter(|(_, least)| *least > 1).collect()
}

impl PoolOfferings {
    /// How many values of each label must remain for a node without pods; empty for best effort.
    pub(crate) fn required_values(&self, policy: MinValuesPolicy) -> Vec<u32> {
        match policy {
            MinValuesPolicy::Strict => self.min_values.iter().map(|(_, least)| *least).collect(),
            MinValuesPolicy::BestEffort => Vec::new(),
        }
    }

    /// How many values of each label must remain for a node that is opened as `chosen` for its first pod.
    pub(crate) fn required_values_for_first_pod<'c>(
        &self,
        policy: MinValuesPolicy,
        all: impl Iterator<Item = (&'c InstanceCandidate, u32)> + Clone,
        chosen: ChosenCandidate<'_>,
        limits: &LaunchLimits,
    ) -> Vec<u32> {
        match policy {
            MinValuesPolicy::BestEffort if !self.min_values.is_empty() => {
                let found = self.distinct_values(all, chosen, limits);
                self.min_values.iter().zip(found).map(|((_, least), found)| found.min(*least)).collect()
            }
            _ => self.required_values(MinValuesPolicy::Strict),
        }
    }

    /// True when enough values remain among candidates of `all`, with their zones, that can substitute `chosen`.
    pub(crate) fn meets_min_values<'c>(
        &self,
        all: impl Iterator<Item = (&'c InstanceCandidate, u32)> + Clone,
        chosen: ChosenCandidate<'_>,
        limits: &LaunchLimits,
    ) -> bool {
        chosen.load.min_values.is_empty() || {
            let found = self.distinct_values(all, chosen, limits);
            found.iter().zip(chosen.load.min_values).all(|(found, needed)| found >= needed)
        }
    }

    /// How many values of each label remain.
    pub(crate) fn distinct_values<'c>(
        &self,
        all: impl Iterator<Item = (&'c InstanceCandidate, u32)> + Clone,
        chosen: ChosenCandidate<'_>,
        limits: &LaunchLimits,
    ) -> Vec<u32> {
        let count = |(key, _): &(Arc<str>, u32)| {
            let mut values: BTreeSet<Arc<str>> = BTreeSet::new();
            let substitutes = all.clone().filter(|(candidate, _)| self.can_substitute(candidate, chosen, limits));
            substitutes.for_each(|(candidate, zones)| values.extend(self.label_values(candidate, zones, key)));
            values.len() as u32
        };
        self.min_values.iter().map(count).collect()
    }

    /// True when a candidate can be launched instead of `chosen`, within limits and quotas. It has no more of any
    /// limited resource than the chosen one, so that the limits hold whichever is launched.
    pub(crate) fn can_substitute(
        &self,
        candidate: &InstanceCandidate,
        chosen: ChosenCandidate<'_>,
        limits: &LaunchLimits,
    ) -> bool {
        let ChosenCandidate { candidate: chosen, load } = chosen;
        if std::ptr::eq(candidate, chosen) {
            return true;
        }
        let (capacity, chosen_capacity) = (&candidate.instance.capacity, &chosen.instance.capacity);
        // Reserved capacity is no substitute: it is counted for the node that is planned on it.
        candidate.reservation.is_none()
            && candidate.holds(load.requests, load.disks)
            && self.pool.limits.resources.keys().all(|name| amount(capacity, name) <= amount(chosen_capacity, name))
            && limits.quota_allows(candidate)
    }

    /// The values of a label that nodes of a candidate may have in these zones.
    pub(crate) fn label_values(&self, candidate: &InstanceCandidate, zones: u32, key: &str) -> Vec<Arc<str>> {
        if let Some(own) = self.labels.get(key) {
            return vec![Arc::clone(own)];
        }
        if key == labels::ZONE {
            let open = self.zones.iter().enumerate().filter(|(bit, _)| zones & (1 << bit) != 0);
            return open.map(|(_, zone)| Zone::text(zone)).collect();
        }
        self.candidate_label(candidate, key).into_iter().collect()
    }
}

impl AvailableOfferings {
    /// True when the offerings of a node have as many values of each label as its pool requires under the policy.
    pub(crate) fn meets_min_values(&self, node: &NewNode) -> bool {
        let Some(pool_offerings) = self.pools.iter().find(|pool_offerings| pool_offerings.pool.name == node.pool)
        else {
            return true;
        };
        let needed = pool_offerings.required_values(self.min_values_policy);
        pool_offerings.min_values.iter().zip(needed).all(|((key, _), needed)| {
            let values: BTreeSet<Arc<str>> =
                node.offerings.iter().flat_map(|offering| pool_offerings.offering_values(&offering.key, key)).collect();
            values.len() >= needed as usize
        })
    }
}

impl PoolOfferings {
    /// The values of a label that a node of one offering may have.
    fn offering_values(&self, offering: &OfferingKey, key: &str) -> Vec<Arc<str>> {
        let same = |c: &&InstanceCandidate| {
            c.instance.facts.name == offering.size && c.capacity_type == offering.capacity_type
        };
        let bit = self.zones.iter().position(|zone| *zone == offering.zone);
        let candidate = self.candidates.iter().find(same);
        candidate.zip(bit).map(|(candidate, bit)| self.label_values(candidate, 1 << bit, key)).unwrap_or_default()
    }
}
