//! Readings of NodePools, AKSNodeClasses and NodeOverlays: what is wrong with one is written in its status, so it is not just left out.

use super::object::WatchedObject;
use super::reflector::Reading;
use crate::objects::raw_object::RawObject;
use napkeeper_api::convert::{self, Violations, WithoutSpec};
use napkeeper_core::snapshot::delta::Delta;
use serde::de::DeserializeOwned;

/// The reading of a NodePool.
pub(super) fn read_pool(object: RawObject) -> Reading {
    let invalid = |object: WithoutSpec<_>, reason: &str| {
        convert::invalid_pool(&object, reason).map(|pool| Delta::InvalidPool(pool.into()))
    };
    read(&object, |pool| convert::node_pool(pool).map(|pool| Delta::Pool(pool.into())), invalid)
}

/// The reading of an AKSNodeClass.
pub(super) fn read_class(object: RawObject) -> Reading {
    let invalid = |object: WithoutSpec<_>, reason: &str| {
        convert::invalid_class(&object, reason).map(|class| Delta::InvalidClass(class.into()))
    };
    read(&object, |class| convert::node_class(class).map(|class| Delta::Class(class.into())), invalid)
}

/// The reading of a NodeOverlay.
pub(super) fn read_overlay(object: RawObject) -> Reading {
    let invalid = |object: WithoutSpec<_>, reason: &str| {
        convert::invalid_overlay(&object, reason).map(|overlay| Delta::InvalidOverlay(overlay.into()))
    };
    read(&object, |overlay| convert::node_overlay(overlay).map(|overlay| Delta::Overlay(overlay.into())), invalid)
}

fn read<K: DeserializeOwned, S: DeserializeOwned>(
    object: &RawObject,
    valid: impl FnOnce(&K) -> Result<Delta, Violations>,
    invalid: impl FnOnce(WithoutSpec<S>, &str) -> Option<Delta>,
) -> Reading {
    let reason = match object.read::<K>().map(|found| valid(&found)) {
        Ok(Ok(put)) => return (Some(put.into()), None),
        Ok(Err(violations)) => violations.to_string(),
        Err(error) => error.to_string(),
    };
    let put = object.read().ok().and_then(|found| invalid(found, &reason));
    (put.map(WatchedObject::from), Some(reason))
}
