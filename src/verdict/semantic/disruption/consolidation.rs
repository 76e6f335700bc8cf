//! Consolidation that never happens, happens too soon, or lacks a choice of sizes.

use crate::finding::Issue;
use crate::rules::disruption as rules;
use crate::semantic::ValidObject;
use crate::semantic::disruption::given;
use crate::semantic::facts::Facts;
use napkeeper_api::field_path::Path;
use napkeeper_api::types::duration;
use napkeeper_core::model::cluster::pool::{ConsolidationPolicy, NodePool};
use napkeeper_core::model::labels;
use serde_json::Value;

/// A spot node is replaced by a cheaper one only if this many cheaper sizes match (Karpenter's
/// `MinInstanceTypesForSpotToSpotConsolidation`).
const MIN_SPOT_SIZES: usize = 15;

/// Keys that select sizes, the narrowest first.
const SIZE_KEYS: [&str; 6] = [
    labels::INSTANCE_TYPE,
    labels::SKU_NAME,
    labels::SKU_SERIES,
    labels::SKU_FAMILY,
    labels::SKU_VERSION,
    labels::SKU_CPU,
];

pub(super) fn check(pool: &NodePool, manifest: &ValidObject<'_>, facts: &Facts, found: &mut Vec<Issue>) {
    if pool.replicas.is_some() {
        // Static pools are never consolidated.
        return;
    }
    let value = manifest.value;
    let path = Path::from_dotted("spec.disruption.consolidateAfter");
    let Some(after) = pool.disruption.consolidate_after else {
        found.push(never(pool, value, &path));
        return;
    };
    if pool.disruption.policy == ConsolidationPolicy::WhenEmpty {
        return;
    }
    // In an object of an older shape the 0s may be the default, which `migrate` writes down.
    if after.is_zero() && !manifest.migrated && given(value, "spec.disruption.consolidateAfter").is_some() {
        let message = "consolidateAfter: 0s consolidates at once, even in the middle of a rollout, and \
                       evicts pods that have just started";
        let fix = "set a delay of at least 1m".to_owned();
        found.push(Issue::new(&rules::NO_DELAY, &path, message).fix(fix));
    }
    // napkeeper itself replaces a spot node by a cheaper one whatever number of sizes there is.
    if may_be_spot(pool) && !facts.nodes.self_managed {
        found.extend(few_sizes(pool, value, facts));
    }
}

fn never(pool: &NodePool, value: &Value, path: &Path) -> Issue {
    let policy = given(value, "spec.disruption.consolidationPolicy");
    let policy = policy.map(|p| format!("; consolidationPolicy {p} has no effect")).unwrap_or_default();
    let until = pool.expire_after.map_or_else(
        || "indefinitely".to_owned(),
        |time| format!("until it drifts or is {} old (expireAfter)", duration::format(time)),
    );
    let message =
        format!("consolidateAfter: Never also keeps empty nodes: a node without pods costs money {until}{policy}");
    let fix = "to remove only empty nodes, set consolidationPolicy: WhenEmpty and a delay, for \
               example consolidateAfter: 1h";
    Issue::new(&rules::NEVER_CONSOLIDATED, path, message).fix(fix.to_owned())
}

/// The NodePool allows spot.
pub(super) fn may_be_spot(pool: &NodePool) -> bool {
    pool.requirements.get(labels::CAPACITY_TYPE).is_some_and(|r| r.allows(Some("spot")))
}

fn few_sizes(pool: &NodePool, value: &Value, facts: &Facts) -> Option<Issue> {
    let index = facts.region_offerings.index();
    let count = index.among(&index.possible(&pool.requirements), |s| s.spot_eligible).len();
    if count == 0 || count >= MIN_SPOT_SIZES {
        return None;
    }
    let list = Path::from_dotted("spec.template.spec.requirements");
    let entries = value["spec"]["template"]["spec"]["requirements"].as_array()?;
    let at = |key: &&str| entries.iter().position(|entry| entry["key"] == **key);
    let path = SIZE_KEYS.iter().find_map(at).map_or_else(|| list.clone(), |i| list.index(i).key("values"));
    let sizes = if count == 1 { "1 VM size".to_owned() } else { format!("{count} VM sizes") };
    let message = format!(
        "only {sizes} can be spot here: Karpenter replaces a spot node by a cheaper one only if {MIN_SPOT_SIZES} cheaper sizes \
         are available, so it never does in this pool"
    );
    let fix = format!(
        "allow at least {MIN_SPOT_SIZES} sizes, for example by {} and {} instead of a list",
        labels::SKU_FAMILY,
        labels::SKU_CPU
    );
    Some(Issue::new(&rules::FEW_SPOT_SIZES, &path, message).fix(fix))
}
