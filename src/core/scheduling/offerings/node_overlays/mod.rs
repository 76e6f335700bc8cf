//! Instance types with NodeOverlays applied.
//!
//! An overlay applies to an offering if all its requirements hold; on a label that a node would not have, only those
//! that allow its absence do. Of several overlays the one of the greatest weight decides, separately for the price and
//! each resource. One that sets the same field at the same weight is ignored as a whole, and reported as a conflict.

use crate::catalog::overlay::{Overlay, PriceAdjustment};
use crate::catalog::{InstanceType, InstanceTypes, OFFERED, Offering, OfferingKey};
use crate::model::amounts::money::HourlyPrice;
use crate::model::cluster::pod::Labels;
use crate::model::cluster::pool::NodePool;
use crate::model::labels;
use crate::model::names::{NodePoolName, ObjectName, VmSize};
use crate::model::requirements::Requirements;
use crate::scheduling::offerings::labels::labels_compatible;
use crate::snapshot::Snapshot;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Instance types of the pools that an overlay applies to.
#[derive(Debug, Clone, Default)]
pub struct OverlaidInstanceTypes {
    types: BTreeMap<NodePoolName, InstanceTypes>,
    /// Ignored overlays, each with its first conflict.
    pub conflicts: Vec<OverlayConflict>,
}

/// Two overlays of one weight that set the same field of an instance type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverlayConflict {
    /// The one that is ignored.
    pub overlay: ObjectName,
    /// The one that applies.
    pub winner: ObjectName,
    /// The pool.
    pub pool: NodePoolName,
    /// The size.
    pub size: VmSize,
    /// `price`, or the name of a resource.
    pub field: Arc<str>,
}

impl fmt::Display for OverlayConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { winner, pool, size, field, .. } = self;
        write!(
            f,
            "ignored: NodeOverlay {winner} has the same weight and also sets {field} of {size} in NodePool {pool}; give \
             one of them another weight, or narrower requirements"
        )
    }
}

/// Cached conflicts of overlays. Disposable: they are computed again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OverlayMemory {
    /// Generations of all that conflicts depend on.
    seen_generations: [u64; 4],
    /// Ignored overlays.
    pub conflicts: Vec<OverlayConflict>,
}

impl OverlayMemory {
    /// Computes which overlays are ignored, if anything relevant has changed.
    pub fn refresh(&mut self, snapshot: &Snapshot) {
        let seen = [
            snapshot.overlays().generation(),
            snapshot.pools().generation(),
            snapshot.classes().generation(),
            snapshot.facts_generation(),
        ];
        if seen != self.seen_generations {
            *self = Self { seen_generations: seen, conflicts: OverlaidInstanceTypes::of(snapshot).conflicts };
        }
    }
}

/// What overlays set of one instance type of one pool.
#[derive(Default)]
struct OverlayEffects<'a> {
    /// By index of the offering.
    prices: BTreeMap<usize, (&'a Overlay, PriceAdjustment)>,
    capacity: BTreeMap<&'a Arc<str>, (&'a Overlay, i64)>,
}

/// By pool and index of the instance type.
type EffectsByInstance<'a> = BTreeMap<(&'a NodePoolName, usize), OverlayEffects<'a>>;

/// An instance type that an overlay applies to, and the indices of those of its offerings.
struct OverlayMatch<'a> {
    instance_index: (&'a NodePoolName, usize),
    instance: &'a InstanceType,
    offerings: Vec<usize>,
}

impl OverlaidInstanceTypes {
    /// The instance types of a Snapshot with its overlays applied. Without overlays it is free.
    #[must_use]
    pub fn of(snapshot: &Snapshot) -> Self {
        if snapshot.overlays().is_empty() {
            return Self::default();
        }
        let mut overlays: Vec<&Overlay> = snapshot.overlays().values().map(|overlay| &**overlay).collect();
        overlays.sort_by_key(|overlay| overlay.precedence());
        let mut effects = EffectsByInstance::new();
        let mut conflicts = Vec::new();
        for overlay in overlays {
            let matches: Vec<OverlayMatch<'_>> = matches_of(overlay, snapshot);
            match matches.iter().find_map(|found| find_conflict(overlay, found, &effects)) {
                Some(conflict) => conflicts.push(conflict),
                None => matches.into_iter().for_each(|found| record_effects(overlay, found, &mut effects)),
            }
        }
        Self { types: overlaid_types(snapshot, &effects), conflicts }
    }

    /// The instance types of a pool: those of its class, with overlays applied.
    #[must_use]
    pub fn instance_types<'t>(&'t self, snapshot: &'t Snapshot, pool: &NodePool) -> Option<&'t InstanceTypes> {
        self.types.get(&pool.name).or_else(|| snapshot.instance_types.get(&pool.class))
    }

    /// The same, where overlays have changed them.
    pub(crate) fn changed_types(&self, pool: Option<&NodePoolName>) -> Option<&InstanceTypes> {
        self.types.get(pool?)
    }

    /// The current price of a node of an offering of a pool, where an overlay applies to that pool.
    #[must_use]
    pub fn price(&self, pool: &NodePoolName, key: &OfferingKey) -> Option<HourlyPrice> {
        let instance = self.types.get(pool)?.iter().find(|t| t.facts.name == key.size)?;
        let same = |o: &&Offering| o.zone == key.zone && o.capacity_type == key.capacity_type;
        instance.offerings.iter().find(same).map(|offering| instance.node_price(offering))
    }
}

/// All instance types that an overlay applies to.
fn matches_of<'a>(overlay: &'a Overlay, snapshot: &'a Snapshot) -> Vec<OverlayMatch<'a>> {
    // Requirements on offerings are checked for each offering.
    let mut of_type = overlay.requirements.clone();
    for key in OFFERED {
        of_type.remove(key);
    }
    let mut found = Vec::new();
    for pool in snapshot.pools().values() {
        let own = pool_labels(pool);
        let types = snapshot.instance_types.get(&pool.class).into_iter().flat_map(|types| types.iter());
        for (index, instance) in types.enumerate() {
            if !requirements_hold(&of_type, instance, &own) {
                continue;
            }
            let fits =
                |o: &Offering| labels_compatible(&overlay.requirements, instance, o.capacity_type, Some(&o.zone), &own);
            let all = instance.offerings.iter().enumerate();
            let offerings: Vec<usize> = all.filter(|(_, offering)| fits(offering)).map(|(n, _)| n).collect();
            if !offerings.is_empty() {
                found.push(OverlayMatch { instance_index: (&pool.name, index), instance, offerings });
            }
        }
    }
    found
}

/// True when requirements hold on every node of a size, whatever its offering.
fn requirements_hold(requirements: &Requirements, instance: &InstanceType, own: &Labels) -> bool {
    requirements.iter().all(|(key, requirement)| match (own.get(key), instance.requirements.get(key)) {
        (Some(value), _) => requirement.allows(Some(value)),
        (None, Some(offered)) => offered.intersects(requirement),
        (None, None) => requirement.allows_absent(),
    })
}

/// Labels that every node of a pool has.
fn pool_labels(pool: &NodePool) -> Labels {
    let mut own = pool.labels.clone();
    own.insert(Arc::from(labels::NODEPOOL), pool.name.text());
    own.insert(Arc::from(labels::NODECLASS), pool.class.text());
    own
}

/// The conflict with an overlay of the same weight that sets the same field, if there is one.
fn find_conflict(
    overlay: &Overlay,
    found: &OverlayMatch<'_>,
    effects: &EffectsByInstance<'_>,
) -> Option<OverlayConflict> {
    let before = effects.get(&found.instance_index)?;
    let rival = |by: &Overlay| (by.weight == overlay.weight).then(|| by.name.clone());
    let of_price = overlay
        .price
        .iter()
        .flat_map(|_| &found.offerings)
        .filter_map(|offering| Some((rival(before.prices.get(offering)?.0)?, Arc::from("price"))));
    let of_capacity =
        overlay.capacity.keys().filter_map(|name| Some((rival(before.capacity.get(name)?.0)?, Arc::clone(name))));
    let (winner, field) = of_price.chain(of_capacity).next()?;
    let (pool, size) = (found.instance_index.0.clone(), found.instance.facts.name.clone());
    Some(OverlayConflict { overlay: overlay.name.clone(), winner, pool, size, field })
}

/// Records what an overlay sets of an instance type, unless an earlier overlay has set it.
fn record_effects<'a>(overlay: &'a Overlay, found: OverlayMatch<'a>, effects: &mut EffectsByInstance<'a>) {
    let entry = effects.entry(found.instance_index).or_default();
    if let Some(change) = overlay.price {
        for offering in &found.offerings {
            entry.prices.entry(*offering).or_insert((overlay, change));
        }
    }
    for (name, amount) in &overlay.capacity {
        entry.capacity.entry(name).or_insert((overlay, *amount));
    }
}

/// The instance types of all pools that overlays apply to.
fn overlaid_types(snapshot: &Snapshot, effects: &EffectsByInstance<'_>) -> BTreeMap<NodePoolName, InstanceTypes> {
    let mut all: BTreeMap<NodePoolName, Vec<Arc<InstanceType>>> = BTreeMap::new();
    for ((pool, index), effects) in effects {
        let types = snapshot.pools().get(pool).and_then(|pool| snapshot.instance_types.get(&pool.class));
        let Some(types) = types else { continue };
        let own = all.entry((*pool).clone()).or_insert_with(|| types.to_vec());
        if let Some(instance) = own.get_mut(*index) {
            *instance = Arc::new(with_effects(instance, effects));
        }
    }
    all.into_iter().map(|(pool, types)| (pool, Arc::new(types))).collect()
}

fn with_effects(instance: &InstanceType, effects: &OverlayEffects<'_>) -> InstanceType {
    let mut changed = instance.clone();
    for (offering, (_, change)) in &effects.prices {
        if let Some(offering) = changed.offerings.get_mut(*offering) {
            offering.price = change.apply(offering.price);
        }
    }
    changed.offerings.sort_by_key(|offering| offering.price);
    for (name, (_, amount)) in &effects.capacity {
        changed.capacity.set_extended(name, *amount);
        changed.allocatable.set_extended(name, *amount);
    }
    changed
}

#[cfg(test)]
mod tests;
