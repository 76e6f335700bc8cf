//! The cluster: what does a write mean for what runs now, which no file can say?
//!
//! All of it is told as warnings: the cluster may be another one a moment later.

use crate::hint::shorten;
use crate::review::Request;
use jiff::Timestamp;
use napkeeper_api::azure::AKSNodeClass;
use napkeeper_api::convert;
use napkeeper_api::karpenter::NodePool as WirePool;
use napkeeper_core::admission::blockers::{ClusterBlockers, NodeClassNotReady};
use napkeeper_core::admission::impact::{Impact, over_limits, overlap};
use napkeeper_core::model::cluster::claim::Claim;
use napkeeper_core::model::cluster::pod::Labels;
use napkeeper_core::model::cluster::pool::NodePool;
use napkeeper_core::model::names::NodeClassName;
use napkeeper_core::snapshot::Snapshot;
use napkeeper_verdict::Finding;
use napkeeper_verdict::rules::{Rule, cluster as rules};
use serde::Deserialize;
use serde_json::Value;

/// Most pools that one finding names.
const MOST_NAMED: usize = 5;
/// Longest reason of a class in characters: a warning has room for 256, and says more than that.
const LONGEST_REASON: usize = 90;
/// Fields of an AKSNodeClass that change nodes in place.
const IN_PLACE: &str = "tags";
/// The field of a pool's template that is compared by what it allows.
const COMPARED: &str = "requirements";

/// What the cluster has to say about a NodePool or AKSNodeClass that is written. What cannot be read says nothing.
pub(crate) fn findings(live: &Live<'_>, request: &Request) -> Vec<Finding> {
    let Request { kind, object, old_object: old, .. } = request;
    match &*kind.kind {
        "NodePool" => match read_pool(object) {
            Some(pool) => of_pool(live, &pool, (object, old)),
            None => Vec::new(),
        },
        "AKSNodeClass" => of_class(live, (object, old)).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// The cluster as it is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Live<'a> {
    pub(crate) snapshot: &'a Snapshot,
    /// What stands in the way of nodes.
    pub(crate) hindrances: &'a ClusterBlockers,
    pub(crate) now: Timestamp,
}

/// A finding of the request, which has no lines.
pub(crate) fn finding(rule: &Rule, path: &str, message: String, fix: Option<String>) -> Finding {
    let (file, path) = ("request".to_owned(), path.to_owned());
    Finding { rule: rule.id, severity: rule.severity, file, line: 1, column: 1, path, message, fix }
}

fn read_pool(object: &Value) -> Option<NodePool> {
    convert::node_pool(&WirePool::deserialize(object).ok()?).ok()
}

/// The name of a class that can be read.
fn class_name(object: &Value) -> Option<NodeClassName> {
    Some(convert::node_class(&AKSNodeClass::deserialize(object).ok()?).ok()?.name)
}

fn of_pool(live: &Live<'_>, pool: &NodePool, (object, old): (&Value, &Value)) -> Vec<Finding> {
    let Live { snapshot, now, .. } = *live;
    let before = read_pool(old);
    let changed = |same: &dyn Fn(&NodePool) -> bool| before.as_ref().is_none_or(|before| !same(before));
    let mut found = Vec::new();
    if changed(&|b| b.class == pool.class) {
        found.extend(no_class(snapshot, pool));
        found.extend(not_ready(live.hindrances, pool));
    }
    if changed(&|b| (b.weight, &b.requirements, &b.taints) == (pool.weight, &pool.requirements, &pool.taints)) {
        found.extend(overlapping(snapshot, pool));
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
    found.extend(drift_of_pool(live, pool, (object, old)));
    found
}

fn no_class(snapshot: &Snapshot, pool: &NodePool) -> Option<Finding> {
    if snapshot.classes().get(&pool.class).is_some() {
        return None;
    }
    let message =
        format!("AKSNodeClass {:?} not found in the cluster: the pool cannot launch nodes until it exists", pool.class);
    let known: Vec<&str> = snapshot.classes().values().map(|class| class.name.as_str()).take(MOST_NAMED).collect();
    let fix = (!known.is_empty()).then(|| format!("use one that exists: {}", known.join(", ")));
    Some(finding(&rules::CLASS, "spec.template.spec.nodeClassRef.name", message, fix))
}

fn not_ready(hindrances: &ClusterBlockers, pool: &NodePool) -> Option<Finding> {
    let NodeClassNotReady { reason, message } = &**hindrances.unready_classes.get(&pool.class)?;
    let why = if message.is_empty() { reason.to_string() } else { format!("{reason}: {message}") };
    let why = shorten(&why, LONGEST_REASON);
    let message = format!("AKSNodeClass {} is not ready ({why}): the pool cannot launch nodes until it is", pool.class);
    let fix = format!("see kubectl describe aksnodeclass {}", pool.class);
    Some(finding(&rules::READY, "spec.template.spec.nodeClassRef.name", message, Some(fix)))
}

fn overlapping(snapshot: &Snapshot, pool: &NodePool) -> Option<Finding> {
    let others = snapshot.pools().values().filter(|other| other.name != pool.name && overlap(pool, other));
    let names: Vec<&str> = others.map(|other| other.name.as_str()).take(MOST_NAMED + 1).collect();
    if names.is_empty() {
        return None;
    }
    let more = if names.len() > MOST_NAMED { ", and more" } else { "" };
    let named = names.iter().take(MOST_NAMED).copied().collect::<Vec<_>>().join(", ");
    let message = format!("{named}{more} can create the same nodes, with the same weight of {}", pool.weight);
    let fix = "give one of them another weight, or separate them by requirements or a taint".to_owned();
    Some(finding(&rules::OVERLAP, "spec.weight", message, Some(fix)))
}

/// An object without a field.
fn without<'v>(object: &'v Value, field: &str) -> Vec<(&'v String, &'v Value)> {
    object.as_object().into_iter().flatten().filter(|(name, _)| *name != field).collect()
}

fn drift_of_pool(live: &Live<'_>, pool: &NodePool, (object, old): (&Value, &Value)) -> Option<Finding> {
    let Live { snapshot, now, .. } = *live;
    let (new, old) = (&object["spec"]["template"], &old["spec"]["template"]);
    let is_static =
        new["metadata"] != old["metadata"] || without(&new["spec"], COMPARED) != without(&old["spec"], COMPARED);
    let of_pool = Impact::of(snapshot, now, |claim| {
        let ours = claim.spec.pool.as_ref() == Some(&pool.name);
        ours && (is_static || !pool.requirements.satisfied_by(&labels_of(snapshot, claim)))
    });
    let why = if is_static { "the node template changes" } else { "they no longer satisfy its requirements" };
    replaced(live, &of_pool, "spec.template", why)
}

/// The labels by which a node is held against requirements: those of the Node, as far as there is one.
fn labels_of(snapshot: &Snapshot, claim: &Claim) -> Labels {
    let node = claim.status.provider_id.as_ref().and_then(|id| snapshot.node_by_provider_id(id));
    node.map_or_else(|| claim.spec.labels.clone(), |node| node.labels.clone())
}

fn of_class(live: &Live<'_>, (object, old): (&Value, &Value)) -> Option<Finding> {
    if old.is_null() || without(&object["spec"], IN_PLACE) == without(&old["spec"], IN_PLACE) {
        return None;
    }
    let class = class_name(object)?;
    let impact = Impact::of(live.snapshot, live.now, |claim| claim.spec.class == class);
    replaced(live, &impact, "spec", "their AKSNodeClass changes")
}

/// What is said of nodes that a change replaces.
fn replaced(live: &Live<'_>, impact: &Impact, path: &str, why: &str) -> Option<Finding> {
    let Impact { claims, pods, do_not_disrupt_pods: refusing, price, .. } = impact;
    if *claims == 0 {
        return None;
    }
    let kept: Vec<_> = pods.iter().filter_map(|pod| Some((pod, live.hindrances.pdb_blocking(pod)?))).collect();
    let budgets = match kept.first() {
        None => String::new(),
        Some((pod, budget)) => format!(
            ", {} currently blocked by a PodDisruptionBudget (such as {}/{})",
            kept.len(),
            pod.key.namespace,
            budget.name
        ),
    };
    let (nodes, pods) = (counted(*claims, "node"), counted(pods.len(), "pod"));
    let holding =
        if *refusing == 0 { String::new() } else { format!(", {refusing} of which are marked do-not-disrupt") };
    let message = format!(
        "{nodes} will be replaced within the disruption budgets, affecting {pods}{holding}{budgets}: {why}; they cost \
         {price}/h, and each is paid twice while its replacement starts"
    );
    Some(finding(&rules::REPLACED, path, message, None))
}

/// A number with its noun.
pub(crate) fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}
