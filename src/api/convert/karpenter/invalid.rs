//! NodePools, AKSNodeClasses and NodeOverlays that cannot be used.

use crate::convert::karpenter::conditions::{StatusConditions, read_conditions};
use crate::convert::karpenter::node_pool::pool_deletion;
use crate::convert::karpenter::node_pool_status::read_status;
use crate::types::karpenter::NodePoolStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use napkeeper_core::model::cluster::status::{InvalidClass, InvalidObject, InvalidOverlay, InvalidPool};
use napkeeper_core::model::names::{NodeClassName, NodePoolName, ObjectName, Uid};
use serde::Deserialize;
use std::sync::Arc;

/// An object without its spec, which may be unreadable.
#[derive(Debug, Clone, Deserialize)]
pub struct WithoutSpec<S> {
    /// Its metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Its status.
    #[serde(default = "Option::default")]
    pub status: Option<S>,
}

/// A NodePool that cannot be used for this reason; `None` if it has not even a name.
#[must_use]
pub fn invalid_pool(object: &WithoutSpec<NodePoolStatus>, reason: &str) -> Option<InvalidPool> {
    let name = NodePoolName::new(object.metadata.name.as_deref()?).ok()?;
    let found = invalid(&object.metadata, name, read_status(object.status.as_ref()), reason)?;
    Some(found.with_deletion(pool_deletion(&object.metadata)))
}

/// An AKSNodeClass that cannot be used for this reason; likewise.
#[must_use]
pub fn invalid_class(object: &WithoutSpec<StatusConditions>, reason: &str) -> Option<InvalidClass> {
    let name = NodeClassName::new(object.metadata.name.as_deref()?).ok()?;
    let conditions = object.status.as_ref().and_then(|status| status.conditions.as_deref());
    invalid(&object.metadata, name, read_conditions(conditions), reason)
}

/// A NodeOverlay that cannot be used for this reason; likewise.
#[must_use]
pub fn invalid_overlay(object: &WithoutSpec<StatusConditions>, reason: &str) -> Option<InvalidOverlay> {
    let name = ObjectName::new(object.metadata.name.as_deref()?).ok()?;
    let conditions = object.status.as_ref().and_then(|status| status.conditions.as_deref());
    invalid(&object.metadata, name, read_conditions(conditions), reason)
}

fn invalid<N, S>(meta: &ObjectMeta, name: N, status: S, reason: &str) -> Option<InvalidObject<N, S>> {
    let uid = Uid::new(meta.uid.as_deref()?).ok()?;
    Some(InvalidObject {
        name,
        uid,
        generation: meta.generation.unwrap_or_default(),
        reason: Arc::from(reason),
        status,
        deletion: (),
    })
}
