//! Topology keys and their domains, by index.

use crate::model::cluster::pod::Labels;
use crate::model::labels;
use crate::model::names::Zone;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most zones that are distinguished: one bit each. No region has more than three.
pub(crate) const MAX_ZONES: usize = 32;

/// Index of a topology key.
pub(crate) type TopologyKeyId = usize;
/// Index of a domain of its topology key. Of [`HOSTNAME_KEY`]: existing nodes by index, then open nodes.
pub(crate) type Domain = u32;

/// `kubernetes.io/hostname`: every node is a domain.
pub(crate) const HOSTNAME_KEY: TopologyKeyId = 0;
/// `topology.kubernetes.io/zone`: the domains begin with the zones of the available offerings, in the order of their
/// bits.
pub(crate) const ZONE_KEY: TopologyKeyId = 1;

/// Topology keys and their domains, by index.
#[derive(Debug)]
pub(crate) struct TopologyKeys {
    keys: Vec<Arc<str>>,
    domains: Vec<BTreeMap<Arc<str>, Domain>>,
}

impl TopologyKeys {
    pub(crate) fn new(zones: &[Zone]) -> Self {
        let keys = vec![labels::interned(labels::HOSTNAME), labels::interned(labels::ZONE)];
        let mut topology_keys = Self { keys, domains: vec![BTreeMap::new(); 2] };
        for zone in zones {
            topology_keys.domain_id(ZONE_KEY, &zone.text());
        }
        topology_keys
    }

    /// The index of a topology key, which is added if it is new.
    pub(crate) fn key_id(&mut self, key: &Arc<str>) -> TopologyKeyId {
        if let Some(topology_key) = self.keys.iter().position(|known| known == key) {
            return topology_key;
        }
        self.keys.push(Arc::clone(key));
        self.domains.push(BTreeMap::new());
        self.keys.len() - 1
    }

    /// How many topology keys there are.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn key(&self, key_id: TopologyKeyId) -> &Arc<str> {
        &self.keys[key_id]
    }

    /// The index of a value, which is added if it is new.
    pub(crate) fn domain_id(&mut self, key_id: TopologyKeyId, value: &Arc<str>) -> Domain {
        let domains = &mut self.domains[key_id];
        if let Some(known) = domains.get(value) {
            return *known;
        }
        let index = domains.len() as Domain;
        domains.insert(Arc::clone(value), index);
        index
    }

    /// The domain of a node with these labels; `None` without the label.
    pub(crate) fn domain_of_labels(&mut self, key_id: TopologyKeyId, labels: &Labels) -> Option<Domain> {
        let value = labels.get(&self.keys[key_id])?;
        Some(self.domain_id(key_id, value))
    }

    /// The index of a known value.
    pub(crate) fn known_domain(&self, key_id: TopologyKeyId, value: &str) -> Option<Domain> {
        self.domains[key_id].get(value).copied()
    }
}

/// The domains of a mask of zones.
pub(crate) fn zones_in_mask(mask: u32) -> impl Iterator<Item = Domain> + Clone {
    (0..MAX_ZONES as u32).filter(move |bit| mask & (1 << bit) != 0)
}

/// A zone's bit; none where there are too many zones.
pub(crate) fn zone_bit(zone: Option<Domain>) -> u32 {
    zone.filter(|zone| *zone < MAX_ZONES as u32).map_or(0, |zone| 1 << zone)
}
