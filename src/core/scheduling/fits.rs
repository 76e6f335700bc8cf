//! Fits: has a node of an offering the labels that are asked for?

use super::filter::NodeFilter;
use crate::catalog::{CapacityType, InstanceType, Offering, OfferingKey, placement_scope};
use crate::cluster::pod::Labels;
use crate::cluster::pool::NodePool;
use crate::labels;
use crate::names::Zone;
use crate::requirements::Requirements;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Requirements of the pool on well-known keys that this size does not have (a GPU name on a size without GPUs).
pub(super) fn pool_keys_hold(pool: &NodePool, instance: &InstanceType, own: &Labels) -> bool {
    pool.requirements.iter().all(|(key, asked)| {
        instance.requirements.get(key).is_some()
            || own.contains_key(key)
            || asked.allows_absent()
            || !labels::is_well_known(key)
            || offered_by_class(key)
    })
}

/// Keys whose value comes from class or offering rather than from the size.
pub(super) fn offered_by_class(key: &str) -> bool {
    matches!(
        key,
        labels::OS_SKU | labels::MODE | labels::SCALE_SET_PRIORITY | labels::PRIORITY | labels::PLACEMENT_SCOPE
    )
}

/// True when the pool's requirements allow zone and capacity type of an offering.
pub(super) fn allowed(pool: &NodePool, offering: &Offering) -> bool {
    let priority = offering.capacity_type.priority();
    pool.requirements.allows(labels::ZONE, Some(offering.zone.as_str()))
        && pool.requirements.allows(labels::CAPACITY_TYPE, Some(offering.capacity_type.as_str()))
        && pool.requirements.allows(labels::PRIORITY, Some(priority))
        && pool.requirements.allows(labels::SCALE_SET_PRIORITY, Some(priority))
        && pool.requirements.allows(labels::PLACEMENT_SCOPE, Some(placement_scope(&offering.zone)))
}

/// The value of a label that a node of an offering has by its size, its capacity type and the scope of its zone.
pub(super) fn offered_label(
    instance: &InstanceType,
    (capacity_type, zone): (CapacityType, Option<&Zone>),
    key: &str,
) -> Option<Arc<str>> {
    match key {
        labels::CAPACITY_TYPE => Some(Arc::from(capacity_type.as_str())),
        labels::PRIORITY | labels::SCALE_SET_PRIORITY => Some(Arc::from(capacity_type.priority())),
        labels::PLACEMENT_SCOPE => zone.map(|zone| Arc::from(placement_scope(zone))),
        key => instance.requirements.get(key)?.single().map(Arc::clone),
    }
}

/// True when a node of this offering, with these labels of its pool, accepts the shape.
pub(super) fn node_labels_accept(
    filter: &NodeFilter,
    instance: &InstanceType,
    key: &OfferingKey,
    own: &BTreeMap<Arc<str>, Arc<str>>,
) -> bool {
    let fits = |asked: &Requirements| labels_fit(asked, instance, key.capacity_type, Some(&key.zone), own);
    fits(&filter.selector) && filter.alternatives.iter().all(|list| list.iter().any(fits))
}

/// True when each requirement holds on a node of this size and capacity type; the zone is left open unless given.
pub(super) fn labels_fit(
    asked: &Requirements,
    instance: &InstanceType,
    capacity_type: CapacityType,
    zone: Option<&Zone>,
    own: &Labels,
) -> bool {
    asked.iter().all(|(key, asked)| match &**key {
        labels::ZONE | labels::PLACEMENT_SCOPE if zone.is_none() => true,
        labels::ZONE => asked.allows(zone.map(Zone::as_str)),
        labels::PLACEMENT_SCOPE => asked.allows(zone.map(placement_scope)),
        labels::CAPACITY_TYPE => asked.allows(Some(capacity_type.as_str())),
        labels::PRIORITY | labels::SCALE_SET_PRIORITY => asked.allows(Some(capacity_type.priority())),
        key => match (own.get(key), instance.requirements.get(key)) {
            (Some(value), _) => asked.allows(Some(value)),
            (None, Some(offered)) => offered.intersects(asked),
            (None, None) => asked.allows_absent(),
        },
    })
}
