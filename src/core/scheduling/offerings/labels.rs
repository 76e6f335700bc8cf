//! Labels of an offering against requirements.

use crate::catalog::{CapacityType, InstanceType, OFFERED, Offering, OfferingKey, offered};
use crate::model::cluster::pod::Labels;
use crate::model::cluster::pool::NodePool;
use crate::model::labels;
use crate::model::names::Zone;
use crate::model::requirements::Requirements;
use crate::scheduling::pods::node_filter::NodeFilter;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Requirements of the pool on well-known keys that this size does not have (a GPU name on a size without GPUs).
pub(crate) fn pool_requirements_hold(pool: &NodePool, instance: &InstanceType, own: &Labels) -> bool {
    pool.requirements.iter().all(|(key, asked)| {
        instance.requirements.get(key).is_some()
            || own.contains_key(key)
            || asked.allows_absent()
            || !labels::is_well_known(key)
            || is_class_label(key)
    })
}

/// Keys whose value comes from the class rather than from size or offering.
pub(crate) fn is_class_label(key: &str) -> bool {
    matches!(key, labels::OS_SKU | labels::MODE)
}

/// True when the pool's requirements allow zone and capacity type of an offering.
pub(crate) fn pool_allows_offering(pool: &NodePool, offering: &Offering) -> bool {
    let value = |key| offered(key, offering.capacity_type, Some(&offering.zone));
    OFFERED.iter().all(|key| pool.requirements.allows(key, value(key)))
}

/// The value of a label that a node of an offering has by its size, its capacity type and its zone.
pub(crate) fn offering_label(
    instance: &InstanceType,
    (capacity_type, zone): (CapacityType, Option<&Zone>),
    key: &str,
) -> Option<Arc<str>> {
    let decided = offered(key, capacity_type, zone).map(Arc::from);
    decided.or_else(|| instance.requirements.get(key)?.single().map(Arc::clone))
}

/// True when a node of this offering, with these labels of its pool, accepts the shape.
pub(crate) fn offering_matches_filter(
    filter: &NodeFilter,
    instance: &InstanceType,
    key: &OfferingKey,
    own: &BTreeMap<Arc<str>, Arc<str>>,
) -> bool {
    let fits = |asked: &Requirements| labels_compatible(asked, instance, key.capacity_type, Some(&key.zone), own);
    fits(&filter.selector) && filter.alternatives.iter().all(|list| list.iter().any(fits))
}

/// True when each requirement holds on a node of this size and capacity type; the zone is left open unless given.
pub(crate) fn labels_compatible(
    asked: &Requirements,
    instance: &InstanceType,
    capacity_type: CapacityType,
    zone: Option<&Zone>,
    own: &Labels,
) -> bool {
    asked.iter().all(|(key, asked)| match offered(key, capacity_type, zone) {
        Some(value) => asked.allows(Some(value)),
        None if OFFERED.contains(&&**key) => true,
        None => match (own.get(key), instance.requirements.get(key)) {
            (Some(value), _) => asked.allows(Some(value)),
            (None, Some(offered)) => offered.intersects(asked),
            (None, None) => asked.allows_absent(),
        },
    })
}

/// The first key on which a node that was bought by this offering, with these labels, does not satisfy the pool's
/// requirements: those for which the pool would not buy it now.
pub(crate) fn unmet_requirement(
    pool: &NodePool,
    instance: &InstanceType,
    offering: &OfferingKey,
    own: &Labels,
) -> Option<Arc<str>> {
    let unmet = pool.requirements.iter().find(|(key, asked)| {
        if let Some(value) = offered(key, offering.capacity_type, Some(&offering.zone)) {
            return !asked.allows(Some(value));
        }
        match (own.get(*key), instance.requirements.get(key)) {
            (Some(value), _) => !asked.allows(Some(value)),
            (None, Some(offered)) => !offered.intersects(asked),
            // A key that the pool only wants to exist may have come after the node, and some the class settles.
            (None, None) => !asked.allows_absent() && asked.values().is_some() && !is_class_label(key),
        }
    });
    unmet.map(|(key, _)| Arc::clone(key))
}
