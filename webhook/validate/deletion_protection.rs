//! Refuses the deletion of a NodePool or AKSNodeClass that has nodes.
//!
//! Only unless the deletion acknowledges their number: a teardown must be possible.

use crate::review::Request;
use crate::text::pluralize;
use crate::validate::cluster::finding;
use crate::validate::impact::{Impact, MAX_PODS_SIMULATED};
use jiff::Timestamp;
use napkeeper_core::model::names::{NodeClassName, NodePoolName};
use napkeeper_core::snapshot::Snapshot;
use napkeeper_verdict::Finding;
use napkeeper_verdict::rules::cluster as rules;

/// Annotation on a pool or class: it may be deleted with as many nodes.
pub const DELETE_ACKNOWLEDGED_ANNOTATION: &str = "napkeeper.io/delete-acknowledged";

/// The action on a delete that is not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeletionProtection {
    /// Nothing.
    Off,
    /// Allows it, with a warning about its impact.
    Warn,
    /// Refuses it.
    #[default]
    Deny,
}

/// The finding against a delete, if any.
pub(crate) fn deletion_finding(snapshot: &Snapshot, request: &Request, now: Timestamp) -> Option<Finding> {
    let object = &request.old_object;
    let metadata = &object["metadata"];
    let (kind, name) = (&*request.kind.kind, metadata["name"].as_str()?);
    // It is on its way already: nothing is left to prevent.
    if !metadata["deletionTimestamp"].is_null() {
        return None;
    }
    let (impact, pools) = match kind {
        "NodePool" => {
            let pool = NodePoolName::new(name).ok()?;
            (Impact::of_pool(snapshot, now, &pool), vec![pool])
        }
        "AKSNodeClass" => {
            let class = NodeClassName::new(name).ok()?;
            let pools = snapshot.pools().values().filter(|pool| pool.class == class).map(|pool| pool.name.clone());
            (Impact::of(snapshot, now, |claim| claim.spec.class == class), pools.collect())
        }
        _ => return None,
    };
    let annotation = metadata["annotations"][DELETE_ACKNOWLEDGED_ANNOTATION].as_str();
    let acknowledged = annotation.and_then(|text| text.trim().parse::<usize>().ok());
    if impact.claims == 0 || acknowledged.is_some_and(|n| n >= impact.claims) {
        return None;
    }
    let stranded = impact.unschedulable_without(snapshot, now, &pools).len();
    let message = message(kind, name, &impact, stranded, annotation);
    let fix = format!(
        "to delete it anyway, acknowledge this first: kubectl annotate --overwrite {} {name} {DELETE_ACKNOWLEDGED_ANNOTATION}={}",
        kind.to_lowercase(),
        impact.claims
    );
    Some(finding(&rules::IN_USE, "", message, Some(fix)))
}

fn message(kind: &str, name: &str, impact: &Impact, stranded: usize, acknowledged: Option<&str>) -> String {
    let (nodes, pods) = (pluralize(impact.claims, "node"), pluralize(impact.pods.len(), "pod"));
    let holding = match impact.do_not_disrupt_pods {
        0 => String::new(),
        n => format!(", {n} of which are marked do-not-disrupt"),
    };
    let tried = if impact.pods.len() > MAX_PODS_SIMULATED {
        format!(" (of {MAX_PODS_SIMULATED} simulated)")
    } else {
        String::new()
    };
    let rescheduling = match stranded {
        0 => "all of them can be rescheduled".to_owned(),
        n => format!("{n}{tried} cannot be rescheduled"),
    };
    let rescheduling = if impact.pods.is_empty() { String::new() } else { format!(", and {rescheduling}") };
    let too_small = match acknowledged {
        Some(annotation) => {
            format!("; {DELETE_ACKNOWLEDGED_ANNOTATION} is {annotation:?}, which must be at least the number of nodes")
        }
        None => String::new(),
    };
    format!("{kind} {name} has {nodes} with {pods}{holding}{rescheduling}{too_small}")
}
