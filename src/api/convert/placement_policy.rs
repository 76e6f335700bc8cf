//! Conversion of PlacementPolicies.

use crate::convert::common;
use crate::convert::pods::node_affinity::label_selector;
use crate::convert::violations::Violations;
use crate::field_path::Path;
use crate::types::duration;
use crate::types::placement_policy::{
    DEFAULT_MAX_SKEW, DEFAULT_WHEN_UNSATISFIABLE, PlacementDefaults as WireDefaults, PlacementPolicy as WirePolicy,
    SpotDefaults, SpreadConstraint,
};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use napkeeper_core::admission::placement_policy::{
    NONE, OnDemandFloor, PlacementDefaults, PlacementPolicy, SpreadDefault,
};
use napkeeper_core::model::names::ObjectName;
use napkeeper_core::model::requirements::Requirements;
use std::sync::Arc;

/// Longest time that a Job's pod holds its node.
const MAX_DO_NOT_DISRUPT_FOR: SignedDuration = SignedDuration::from_hours(24);
/// Operators of label selectors.
const OPERATORS: [&str; 4] = ["In", "NotIn", "Exists", "DoesNotExist"];

/// Reads a PlacementPolicy.
///
/// # Errors
/// [`Violations`]: all that is wrong with it.
pub fn placement_policy(object: &WirePolicy) -> Result<PlacementPolicy, Violations> {
    let mut found = Violations::default();
    let at = Path::from_dotted("spec");
    let spec = &object.spec;
    let name = common::name(&object.metadata, &mut found, |n| ObjectName::new(n));
    if name.as_ref().is_some_and(|name| name.as_str() == NONE) {
        found.add(&Path::from_dotted("metadata.name"), "must not be none, which is reserved to opt out of policies");
    }
    let mut select = |wire: &LabelSelector, field: &str| selector(wire, &at.key(field), &mut found);
    let namespaces = spec.namespace_selector.as_ref().map(|wire| select(wire, "namespaceSelector"));
    let pods = spec.pod_selector.as_ref().map(|wire| select(wire, "podSelector")).unwrap_or_default();
    let defaults = spec.defaults.as_ref().map(|wire| defaults(wire, &at.key("defaults"), &mut found));
    let built = name.map(|name| PlacementPolicy { name, namespaces, pods, defaults: defaults.unwrap_or_default() });
    found.finish(built)
}

fn selector(wire: &LabelSelector, at: &Path, found: &mut Violations) -> Requirements {
    for (i, expression) in wire.match_expressions.iter().flatten().enumerate() {
        if !OPERATORS.contains(&&*expression.operator) {
            let at = at.key("matchExpressions").index(i).key("operator");
            found.add(&at, "must be In, NotIn, Exists or DoesNotExist");
        }
    }
    label_selector(wire, at, found)
}

fn defaults(wire: &WireDefaults, at: &Path, found: &mut Violations) -> PlacementDefaults {
    let spread = wire.topology_spread.iter().flatten().enumerate();
    let spread = spread.filter_map(|(i, c)| constraint(c, &at.key("topologySpread").index(i), found)).collect();
    let jobs = wire.jobs.as_ref().map(|jobs| jobs.do_not_disrupt_for.as_str());
    let path = at.key("jobs").key("doNotDisruptFor");
    let time = found.take_some(&path, jobs, duration::parse);
    if time.is_some_and(|time| time > MAX_DO_NOT_DISRUPT_FOR || time < SignedDuration::from_mins(1)) {
        found.add(&path, "must be 1m to 24h");
    }
    let floor = wire.spot.as_ref().and_then(|SpotDefaults { on_demand_percent, .. }| {
        let percent = u8::try_from(*on_demand_percent).ok().filter(|percent| *percent <= 100);
        found.take(&at.key("spot").key("onDemandPercent"), percent.ok_or("must be 0 to 100"))
    });
    let architecture = wire.architecture.as_deref();
    let known =
        |text: &str| ["amd64", "arm64"].contains(&text).then(|| Arc::from(text)).ok_or("must be amd64 or arm64");
    PlacementDefaults {
        spread,
        spot: floor.map(OnDemandFloor),
        job_do_not_disrupt: jobs.map(Arc::from),
        architecture: found.take_some(&at.key("architecture"), architecture, known),
    }
}

fn constraint(wire: &SpreadConstraint, at: &Path, found: &mut Violations) -> Option<SpreadDefault> {
    let skew = u32::try_from(wire.max_skew.unwrap_or(DEFAULT_MAX_SKEW)).ok().filter(|skew| *skew > 0);
    let max_skew = found.take(&at.key("maxSkew"), skew.ok_or("must be at least 1"));
    let hard = match wire.when_unsatisfiable.as_deref().unwrap_or(DEFAULT_WHEN_UNSATISFIABLE) {
        "ScheduleAnyway" => Ok(false),
        "DoNotSchedule" => Ok(true),
        _ => Err("must be ScheduleAnyway or DoNotSchedule"),
    };
    let hard = found.take(&at.key("whenUnsatisfiable"), hard);
    Some(SpreadDefault { topology_key: Arc::from(wire.topology_key.as_str()), max_skew: max_skew?, hard: hard? })
}
