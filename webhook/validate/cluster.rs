//! Findings about the effect of a write on the nodes and pods that run now.
//!
//! All of them are warnings: the cluster may have changed a moment later.

use crate::review::Request;
use crate::text::{pluralize, truncate};
use crate::validate::impact::{Impact, over_limits, overlap};
use jiff::Timestamp;
use napkeeper_api::manifests::{self, Object};
use napkeeper_core::admission::pdb_blockers::{ClusterBlockers, NodeClassNotReady};
use napkeeper_core::model::cluster::claim::Claim;
use napkeeper_core::model::cluster::pod::Labels;
use napkeeper_core::model::cluster::pool::NodePool;
use napkeeper_core::model::names::NodeClassName;
use napkeeper_core::snapshot::Snapshot;
use napkeeper_verdict::Finding;
use napkeeper_verdict::rules::{Rule, cluster as rules};
use serde_json::Value;

/// Most pools that one finding names.
const MAX_NAMED_POOLS: usize = 5;
/// Longest reason of a class in characters: a warning has room for 256, and says more than that.
const MAX_REASON_CHARS: usize = 90;
/// Fields of an AKSNodeClass that change nodes in place.
const IN_PLACE_FIELD: &str = "tags";
/// The field of a pool's template that is compared by the values it allows.
const REQUIREMENTS_FIELD: &str = "requirements";

/// What the cluster has to say about a NodePool or AKSNodeClass that is written. What cannot be read says nothing.
pub(crate) fn findings(state: &ClusterState<'_>, request: &Request) -> Vec<Finding> {
    let Request { kind, object, old_object: old, .. } = request;
    match &*kind.kind {
        "NodePool" => match read_pool(object) {
            Some(pool) => node_pool_findings(state, &pool, object, old),
            None => Vec::new(),
        },
        "AKSNodeClass" => node_class_findings(state, object, old).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// The cluster as it is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClusterState<'a> {
    pub(crate) snapshot: &'a Snapshot,
    /// What stands in the way of nodes.
    pub(crate) blockers: &'a ClusterBlockers,
    pub(crate) now: Timestamp,
}

/// A finding of the request, which has no lines.
pub(crate) fn finding(rule: &Rule, path: &str, message: String, fix: Option<String>) -> Finding {
    let (file, path) = ("request".to_owned(), path.to_owned());
    Finding { rule: rule.id, severity: rule.severity, file, line: 1, column: 1, path, message, fix }
}

fn read_pool(object: &Value) -> Option<NodePool> {
    match manifests::object(object).ok()? {
        Object::NodePool(pool) => Some(*pool),
        _ => None,
    }
}

/// The name of a class that can be read.
fn class_name(object: &Value) -> Option<NodeClassName> {
    match manifests::object(object).ok()? {
        Object::NodeClass(class) => Some(class.name),
        _ => None,
    }
}

fn node_pool_findings(state: &ClusterState<'_>, pool: &NodePool, object: &Value, old: &Value) -> Vec<Finding> {
    let ClusterState { snapshot, now, .. } = *state;
    let before = read_pool(old);
    let changed = |same: &dyn Fn(&NodePool) -> bool| before.as_ref().is_none_or(|before| !same(before));
    let mut found = Vec::new();
    if changed(&|b| b.class == pool.class) {
        found.extend(missing_node_class(snapshot, pool));
        found.extend(unready_node_class(state.blockers, pool));
    }
    if changed(&|b| (b.weight, &b.requirements, &b.taints) == (pool.weight, &pool.requirements, &pool.taints)) {
        found.extend(overlapping_pools(snapshot, pool));
    }
    if before.is_none() {
        return found;
    }
    if changed(&|b| b.limits == pool.limits) {
        let impact = Impact::of_pool(snapshot, now, &pool.name);
        found.extend(over_limits(pool, &impact).into_iter().map(|(name, used, limit)| {
            let unit = if &*name == "cpu" { " (thousandths of a core)" } else { "" };
            let message = format!(
                "the nodes of this pool use {used} {name}{unit}, more than the limit of {limit}: no node can be created"
            );
            let fix = "raise the limit, or scale the pool down first".to_owned();
            finding(&rules::LIMITS, &format!("spec.limits.{name}"), message, Some(fix))
        }));
    }
    found.extend(node_pool_drift(state, pool, object, old));
    found
}

fn missing_node_class(snapshot: &Snapshot, pool: &NodePool) -> Option<Finding> {
    if snapshot.classes().get(&pool.class).is_some() {
        return None;
    }
    let message =
        format!("AKSNodeClass {:?} not found in the cluster: the pool cannot launch nodes until it exists", pool.class);
    let known: Vec<&str> = snapshot.classes().values().map(|class| class.name.as_str()).take(MAX_NAMED_POOLS).collect();
    let fix = (!known.is_empty()).then(|| format!("use one that exists: {}", known.join(", ")));
    Some(finding(&rules::CLASS, "spec.template.spec.nodeClassRef.name", message, fix))
}

fn unready_node_class(blockers: &ClusterBlockers, pool: &NodePool) -> Option<Finding> {
    let NodeClassNotReady { reason, message } = &**blockers.unready_classes.get(&pool.class)?;
    let reason = if message.is_empty() { reason.to_string() } else { format!("{reason}: {message}") };
    let reason = truncate(&reason, MAX_REASON_CHARS);
    let message =
        format!("AKSNodeClass {} is not ready ({reason}): the pool cannot launch nodes until it is", pool.class);
    let fix = format!("see kubectl describe aksnodeclass {}", pool.class);
    Some(finding(&rules::READY, "spec.template.spec.nodeClassRef.name", message, Some(fix)))
}

fn overlapping_pools(snapshot: &Snapshot, pool: &NodePool) -> Option<Finding> {
    let others = snapshot.pools().values().filter(|other| other.name != pool.name && overlap(pool, other));
    let names: Vec<&str> = others.map(|other| other.name.as_str()).take(MAX_NAMED_POOLS + 1).collect();
    if names.is_empty() {
        return None;
    }
    let more = if names.len() > MAX_NAMED_POOLS { ", and more" } else { "" };
    let named = names.iter().take(MAX_NAMED_POOLS).copied().collect::<Vec<_>>().join(", ");
    let message = format!("{named}{more} can create the same nodes, with the same weight of {}", pool.weight);
    let fix = "give one of them another weight, or separate them by requirements or a taint".to_owned();
    Some(finding(&rules::OVERLAP, "spec.weight", message, Some(fix)))
}

/// An object without a field.
fn without_field<'v>(object: &'v Value, field: &str) -> Vec<(&'v String, &'v Value)> {
    object.as_object().into_iter().flatten().filter(|(name, _)| *name != field).collect()
}

fn node_pool_drift(state: &ClusterState<'_>, pool: &NodePool, object: &Value, old: &Value) -> Option<Finding> {
    let ClusterState { snapshot, now, .. } = *state;
    let (new, old) = (&object["spec"]["template"], &old["spec"]["template"]);
    let is_static = new["metadata"] != old["metadata"]
        || without_field(&new["spec"], REQUIREMENTS_FIELD) != without_field(&old["spec"], REQUIREMENTS_FIELD);
    let of_pool = Impact::of(snapshot, now, |claim| {
        let is_of_pool = claim.spec.pool.as_ref() == Some(&pool.name);
        is_of_pool && (is_static || !pool.requirements.satisfied_by(&node_labels(snapshot, claim)))
    });
    let reason = if is_static { "the node template changes" } else { "they no longer satisfy its requirements" };
    drift_finding(state, &of_pool, "spec.template", reason)
}

/// The labels by which a node is held against requirements: those of the Node, as far as there is one.
fn node_labels(snapshot: &Snapshot, claim: &Claim) -> Labels {
    let node = claim.status.provider_id.as_ref().and_then(|id| snapshot.node_by_provider_id(id));
    node.map_or_else(|| claim.spec.labels.clone(), |node| node.labels.clone())
}

fn node_class_findings(state: &ClusterState<'_>, object: &Value, old: &Value) -> Option<Finding> {
    if old.is_null() || without_field(&object["spec"], IN_PLACE_FIELD) == without_field(&old["spec"], IN_PLACE_FIELD) {
        return None;
    }
    let class = class_name(object)?;
    let impact = Impact::of(state.snapshot, state.now, |claim| claim.spec.class == class);
    drift_finding(state, &impact, "spec", "their AKSNodeClass changes")
}

/// The finding about nodes that a change replaces.
fn drift_finding(state: &ClusterState<'_>, impact: &Impact, path: &str, reason: &str) -> Option<Finding> {
    let Impact { claims, pods, do_not_disrupt_pods: refusing, price, .. } = impact;
    if *claims == 0 {
        return None;
    }
    let protected: Vec<_> = pods.iter().filter_map(|pod| Some((pod, state.blockers.pdb_blocking(pod)?))).collect();
    let budgets = match protected.first() {
        None => String::new(),
        Some((pod, budget)) => format!(
            ", {} currently blocked by a PodDisruptionBudget (such as {}/{})",
            protected.len(),
            pod.key.namespace,
            budget.name
        ),
    };
    let (nodes, pods) = (pluralize(*claims, "node"), pluralize(pods.len(), "pod"));
    let holding =
        if *refusing == 0 { String::new() } else { format!(", {refusing} of which are marked do-not-disrupt") };
    let message = format!(
        "{nodes} will be replaced within the disruption budgets, affecting {pods}{holding}{budgets}: {reason}; they cost \
         {price}/h, and each is paid twice while its replacement starts"
    );
    Some(finding(&rules::REPLACED, path, message, None))
}
