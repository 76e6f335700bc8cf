//! Conversion of Nodes.

use super::node_condition::node_conditions;
use crate::convert::common;
use crate::convert::violations::Violations;
use crate::field_path::Path;
use k8s_openapi::api::core::v1::{Node as WireNode, NodeSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::pod::Taint;
use napkeeper_core::model::labels::{DO_NOT_DISRUPT, FINALIZER};
use napkeeper_core::model::names::{NodeName, ProviderId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Reads a Node, with all of its conditions but that it is ready. The `providerID` of another cloud, or of none, is no VM of
/// Azure: it is left out.
///
/// # Errors
/// [`Violations`]: all that is wrong with it.
pub fn node(object: &WireNode) -> Result<Node, Violations> {
    let mut found = Violations::default();
    let meta = &object.metadata;
    let name = common::name(meta, &mut found, |n| NodeName::new(n));
    let uid = common::uid(meta, &mut found);
    let default = NodeSpec::default();
    let spec = object.spec.as_ref().unwrap_or(&default);
    let provider = spec.provider_id.as_deref().filter(|id| id.starts_with("azure://"));
    let provider_id = found.take_some(&Path::from_dotted("spec.providerID"), provider, ProviderId::parse);
    let taints = taints(spec, &mut found);
    let status = object.status.as_ref();
    let mut amounts = |list: Option<&BTreeMap<String, Quantity>>, path: &str| -> Resources {
        let list = list.into_iter().flatten().map(|(name, quantity)| (name, &quantity.0));
        common::resources(list, &Path::from_dotted(path), &mut found)
    };
    let capacity = amounts(status.and_then(|s| s.capacity.as_ref()), "status.capacity");
    let allocatable = amounts(status.and_then(|s| s.allocatable.as_ref()), "status.allocatable");
    let conditions = status.and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    let ready = conditions.iter().find(|c| c.type_ == "Ready");
    let kubelet = status.and_then(|s| s.node_info.as_ref()).map(|info| info.kubelet_version.as_str());
    let created_at = common::created_at(meta);
    let annotation = meta.annotations.as_ref().and_then(|a| a.get(DO_NOT_DISRUPT));
    let built = name.zip(uid).map(|(name, uid)| Node {
        name,
        uid,
        provider_id,
        labels: common::labels(meta.labels.as_ref()),
        taints,
        capacity,
        allocatable,
        ready: ready.is_some_and(|c| c.status == "True"),
        // Without a Ready condition the node has not been ready since its creation.
        ready_since: ready.and_then(|c| c.last_transition_time.as_ref()).map_or(created_at, |t| t.0),
        created_at,
        deleting_at: meta.deletion_timestamp.as_ref().map(|t| t.0),
        cordoned: spec.unschedulable.unwrap_or(false),
        kubelet_version: kubelet.filter(|version| !version.is_empty()).map(Arc::from),
        has_finalizer: meta.finalizers.iter().flatten().any(|f| f == FINALIZER),
        do_not_disrupt: annotation.is_some_and(|value| value == "true"),
        conditions: node_conditions(conditions, created_at),
    });
    found.finish(built)
}

fn taints(spec: &NodeSpec, found: &mut Violations) -> Vec<Taint> {
    let at = Path::from_dotted("spec.taints");
    let list = spec.taints.iter().flatten().enumerate();
    list.filter_map(|(i, taint)| {
        Some(Taint {
            key: Arc::from(taint.key.as_str()),
            value: Arc::from(taint.value.as_deref().unwrap_or_default()),
            effect: found.take(&at.index(i).key("effect"), common::effect(&taint.effect))?,
        })
    })
    .collect()
}
