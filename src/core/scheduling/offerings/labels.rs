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

/// False when the pool requires a well-known label that this size does not have (a GPU name on a size without GPUs).
pub(crate) fn pool_requirements_hold(pool: &NodePool, instance: &InstanceType, own: &Labels) -> bool {
    pool.requirements.iter().all(|(key, requirement)| {
        instance.requirements.get(key).is_some()
            || own.contains_key(key)
            || requirement.allows_absent()
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
    let fits = |requirements: &Requirements| {
        labels_compatible(requirements, instance, key.capacity_type, Some(&key.zone), own)
    };
    fits(&filter.selector) && filter.alternatives.iter().all(|list| list.iter().any(fits))
}

/// True when each requirement holds on a node of this size and capacity type; the zone is left open unless given.
pub(crate) fn labels_compatible(
    requirements: &Requirements,
    instance: &InstanceType,
    capacity_type: CapacityType,
    zone: Option<&Zone>,
    own: &Labels,
) -> bool {
    requirements.iter().all(|(key, requirement)| match offered(key, capacity_type, zone) {
        Some(value) => requirement.allows(Some(value)),
        None if OFFERED.contains(&&**key) => true,
        None => match (own.get(key), instance.requirements.get(key)) {
            (Some(value), _) => requirement.allows(Some(value)),
            (None, Some(offered)) => offered.intersects(requirement),
            (None, None) => requirement.allows_absent(),
        },
    })
}

/// The first key by which a node that was launched as this offering, with these labels, does not satisfy the pool's
/// current requirements.
pub(crate) fn unmet_requirement(
    pool: &NodePool,
    instance: &InstanceType,
    offering: &OfferingKey,
    own: &Labels,
) -> Option<Arc<str>> {
    let unmet = pool.requirements.iter().find(|(key, requirement)| {
        if let Some(value) = offered(key, offering.capacity_type, Some(&offering.zone)) {
            return !requirement.allows(Some(value));
        }
        match (own.get(*key), instance.requirements.get(key)) {
            (Some(value), _) => !requirement.allows(Some(value)),
            (None, Some(offered)) => !offered.intersects(requirement),
            // `Exists` may have been added after the node was launched, and some keys are set by the class.
            (None, None) => !requirement.allows_absent() && requirement.values().is_some() && !is_class_label(key),
        }
    });
    unmet.map(|(key, _)| Arc::clone(key))
}
