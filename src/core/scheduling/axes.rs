//! Axes: which topology keys matter here, and which domains has each?

use crate::model::cluster::pod::Labels;
use crate::model::labels;
use crate::model::names::Zone;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Number of a topology key.
pub(super) type AxisId = usize;
/// Number of a domain on its axis. On [`HOST`] it is the number of the site.
pub(super) type Domain = u32;

/// `kubernetes.io/hostname`: every site is a domain.
pub(super) const HOST: AxisId = 0;
/// `topology.kubernetes.io/zone`: the domains begin with the zones of the market, in the order of their bits.
pub(super) const ZONE: AxisId = 1;

/// Topology keys and their domains, by number.
#[derive(Debug)]
pub(super) struct Axes {
    keys: Vec<Arc<str>>,
    domains: Vec<BTreeMap<Arc<str>, Domain>>,
}

impl Axes {
    pub(super) fn new(zones: &[Zone]) -> Self {
        let keys = vec![labels::interned(labels::HOSTNAME), labels::interned(labels::ZONE)];
        let mut axes = Self { keys, domains: vec![BTreeMap::new(); 2] };
        for zone in zones {
            axes.domain(ZONE, &zone.text());
        }
        axes
    }

    /// The number of a topology key.
    pub(super) fn axis(&mut self, key: &Arc<str>) -> AxisId {
        if let Some(axis) = self.keys.iter().position(|known| known == key) {
            return axis;
        }
        self.keys.push(Arc::clone(key));
        self.domains.push(BTreeMap::new());
        self.keys.len() - 1
    }

    /// How many axes there are.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn key(&self, axis: AxisId) -> &Arc<str> {
        &self.keys[axis]
    }

    /// The number of a value, which gets one if it has none.
    pub(super) fn domain(&mut self, axis: AxisId, value: &Arc<str>) -> Domain {
        let domains = &mut self.domains[axis];
        if let Some(known) = domains.get(value) {
            return *known;
        }
        let number = domains.len() as Domain;
        domains.insert(Arc::clone(value), number);
        number
    }

    /// The domain that labels put a place in; `None` without the label.
    pub(super) fn of_labels(&mut self, axis: AxisId, labels: &Labels) -> Option<Domain> {
        let value = labels.get(&self.keys[axis])?;
        Some(self.domain(axis, value))
    }

    /// The number of a value that is known.
    pub(super) fn known(&self, axis: AxisId, value: &str) -> Option<Domain> {
        self.domains[axis].get(value).copied()
    }
}
