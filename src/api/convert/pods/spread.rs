//! Conversion of topology spread constraints.

use crate::convert::pods::node_affinity::own_selector;
use crate::convert::pods::pod_affinity::topology_key;
use crate::convert::violations::Violations;
use crate::field_path::Path;
use k8s_openapi::api::core::v1::{PodSpec, TopologySpreadConstraint};
use napkeeper_core::model::cluster::pod::{Labels, Spread};

/// Topology spread constraints: those that must hold (`DoNotSchedule`), and those that are wished for.
pub(crate) fn spread(spec: &PodSpec, labels: &Labels, at: &Path, found: &mut Violations) -> (Vec<Spread>, Vec<Spread>) {
    let (mut hard, mut soft) = (Vec::new(), Vec::new());
    for (i, wire) in spec.topology_spread_constraints.iter().flatten().enumerate() {
        let at = at.key("topologySpreadConstraints").index(i);
        let Some((is_hard, constraint)) = read_constraint(wire, labels, &at, found) else { continue };
        if is_hard { &mut hard } else { &mut soft }.push(constraint);
    }
    (hard, soft)
}

/// One of them, and whether it must hold.
pub(crate) fn read_constraint(
    wire: &TopologySpreadConstraint,
    labels: &Labels,
    at: &Path,
    found: &mut Violations,
) -> Option<(bool, Spread)> {
    let is_hard = match wire.when_unsatisfiable.as_str() {
        "DoNotSchedule" => Ok(true),
        "ScheduleAnyway" => Ok(false),
        _ => Err("must be DoNotSchedule or ScheduleAnyway"),
    };
    let is_hard = found.take(&at.key("whenUnsatisfiable"), is_hard)?;
    Some((is_hard, constraint(wire, labels, at, found)?))
}

fn constraint(wire: &TopologySpreadConstraint, labels: &Labels, at: &Path, found: &mut Violations) -> Option<Spread> {
    let skew = u32::try_from(wire.max_skew).ok().filter(|s| *s > 0);
    let skew = found.take(&at.key("maxSkew"), skew.ok_or("must be at least 1"));
    let least = found.take_some(&at.key("minDomains"), wire.min_domains.as_ref(), |n| {
        u32::try_from(*n).ok().filter(|n| *n > 0).ok_or("must be at least 1")
    });
    let honors_affinity =
        reads_honor_policy(wire.node_affinity_policy.as_deref(), true, &at.key("nodeAffinityPolicy"), found);
    let honors_taints =
        reads_honor_policy(wire.node_taints_policy.as_deref(), false, &at.key("nodeTaintsPolicy"), found);
    // Without a selector the constraint counts no pods; the key must be on the node all the same.
    let selector = own_selector(wire.label_selector.as_ref(), wire.match_label_keys.as_deref(), labels, (at, found));
    let topology_key = topology_key(&wire.topology_key, at, found)?;
    Some(Spread {
        topology_key,
        max_skew: skew?,
        min_domains: least.unwrap_or(1),
        selector,
        honors_affinity,
        honors_taints,
    })
}

fn reads_honor_policy(policy: Option<&str>, default: bool, at: &Path, found: &mut Violations) -> bool {
    let honors = match policy {
        None => Ok(default),
        Some("Honor") => Ok(true),
        Some("Ignore") => Ok(false),
        Some(_) => Err("must be Honor or Ignore"),
    };
    found.take(at, honors).unwrap_or(default)
}
