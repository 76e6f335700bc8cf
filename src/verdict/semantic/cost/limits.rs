//! Limits and the choice of VM sizes of one pool.

use crate::finding::Issue;
use crate::rules::cost as rules;
use crate::semantic::facts::Facts;
use napkeeper_api::field_path::Path;
use napkeeper_core::catalog::{SizeFacts, SizeIndex, SizeSet, capacity};
use napkeeper_core::model::cluster::pool::{ConsolidationPolicy, NodePool, amount};
use napkeeper_core::model::labels;
use napkeeper_core::model::requirements::Requirement;
use serde_json::Value;
use std::sync::Arc;

/// Fewer sizes than these leave little choice when one is sold out.
const MIN_SIZES: usize = 5;

/// Keys that choose sizes by name, or GPUs.
const SIZE_NAME_KEYS: [&str; 4] = [labels::INSTANCE_TYPE, labels::SKU_NAME, labels::SKU_FAMILY, labels::SKU_SERIES];
const GPU_KEYS: [&str; 3] = [labels::SKU_GPU_NAME, labels::SKU_GPU_MANUFACTURER, labels::SKU_GPU_COUNT];

pub(super) fn check(pool: &NodePool, value: &Value, facts: &Facts, found: &mut Vec<Issue>) {
    let index = facts.region_offerings.index();
    let sizes = index.possible(&pool.requirements);
    let gpus = index.among(&sizes, |s| s.gpu.is_some());
    let limited = pool.limits.nodes.is_some() || !pool.limits.resources.is_empty();
    if limited {
        found.extend(room(pool, index, &sizes));
        found.extend(gpu_limit(pool, index, &gpus));
    } else if pool.replicas.is_none() {
        let message = "without limits a runaway workload or autoscaler scales this pool up to the Azure quota";
        let fix = "add spec.limits with cpu and memory".to_owned();
        found.push(Issue::new(&rules::NO_LIMITS, &Path::from_dotted("spec"), message).at_key().fix(fix));
    }
    if gpus.is_empty() {
        found.extend(few_sizes(pool, value, index, &sizes));
    }
}

/// A NodePool whose limits allow no node. A limit of zero disables it on purpose.
fn room(pool: &NodePool, index: &SizeIndex, sizes: &SizeSet) -> Option<Issue> {
    let limits = || pool.limits.resources.iter().filter(|(name, _)| counts(name));
    let fits = |size: &&Arc<SizeFacts>| {
        let has = capacity(size, 0, 0);
        limits().all(|(name, limit)| amount(&has, name) <= *limit)
    };
    if limits().any(|(_, limit)| *limit == 0) || sizes.is_empty() || index.members(sizes).any(|s| fits(&s)) {
        return None;
    }
    let least = index.members(sizes).min_by_key(|size| (size.vcpus, size.memory_mib))?;
    let has = capacity(least, 0, 0);
    let (name, limit) = limits().find(|(name, limit)| amount(&has, name) > **limit)?;
    let message = format!(
        "the {name} limit of {} is below the smallest VM size of this pool ({} with {}), so it cannot create a node",
        shown(name, *limit),
        least.name,
        shown(name, amount(&has, name)),
    );
    let fix = match name.as_ref() {
        // Written without a unit, it is a number of bytes.
        "memory" if *limit < 1 << 10 => {
            format!("add a unit: {limit}Gi, or whatever all nodes of the pool may have together")
        }
        _ => "raise the limit, which counts all nodes of the pool together, or allow smaller sizes".to_owned(),
    };
    Some(Issue::new(&rules::NO_ROOM, &Path::from_dotted("spec.limits").key(name), message).fix(fix))
}

/// Resources that the size alone decides.
fn counts(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.ends_with(".com/gpu")
}

fn shown(name: &str, amount: i64) -> String {
    match name {
        "cpu" if amount % 1000 == 0 => (amount / 1000).to_string(),
        "cpu" => format!("{amount}m"),
        "memory" if amount < 1 << 20 => format!("{amount} bytes"),
        "memory" => format!("{}Mi", amount >> 20),
        _ => amount.to_string(),
    }
}

/// A GPU NodePool without a GPU limit.
fn gpu_limit(pool: &NodePool, index: &SizeIndex, gpus: &SizeSet) -> Option<Issue> {
    let named = |key: &&str| pool.requirements.get(key).and_then(Requirement::values).is_some();
    let required = |key: &&str| pool.requirements.get(key).is_some_and(|r| !r.allows_absent());
    let meant = SIZE_NAME_KEYS.iter().any(named) || GPU_KEYS.iter().any(required);
    if gpus.is_empty() || pool.limits.nodes.is_some() || !meant {
        return None;
    }
    let resource = |size: &Arc<SizeFacts>| size.gpu.as_ref().map(|gpu| format!("{}.com/gpu", gpu.manufacturer));
    let unlimited = |name: &String| !pool.limits.resources.contains_key(name.as_str());
    let name = index.members(gpus).filter_map(resource).find(unlimited)?;
    let message = format!(
        "this pool allows {} VM sizes with GPUs, but has no limit on {name}, the most expensive resource",
        gpus.len()
    );
    let fix = format!("add {name} to spec.limits");
    Some(Issue::new(&rules::NO_GPU_LIMIT, &Path::from_dotted("spec.limits"), message).at_key().fix(fix))
}

/// A short list of sizes. NK3022 requires more for spot NodePools.
fn few_sizes(pool: &NodePool, value: &Value, index: &SizeIndex, sizes: &SizeSet) -> Option<Issue> {
    let entries = value["spec"]["template"]["spec"]["requirements"].as_array()?;
    let names = |entry: &Value| {
        let by_name = [labels::INSTANCE_TYPE, labels::SKU_NAME].iter().any(|key| entry["key"] == **key);
        by_name && entry["operator"] == "In"
    };
    let at = entries.iter().position(names)?;
    let disruption = &pool.disruption;
    let spot = pool.requirements.get(labels::CAPACITY_TYPE).is_some_and(|r| r.allows(Some("spot")));
    let consolidated = pool.replicas.is_none()
        && disruption.consolidate_after.is_some()
        && disruption.policy != ConsolidationPolicy::WhenEmpty;
    if sizes.is_empty()
        || sizes.len() >= MIN_SIZES
        || (spot && consolidated && !index.among(sizes, |s| s.spot_eligible).is_empty())
    {
        return None;
    }
    let count = if sizes.len() == 1 { "one VM size".to_owned() } else { format!("{} VM sizes", sizes.len()) };
    let message = format!("only {count}: if Azure has no capacity, or the quota is used up, pods stay pending");
    let fix = format!(
        "select by {} and {} instead of listing names, so that cheaper and newer sizes match too",
        labels::SKU_FAMILY,
        labels::SKU_CPU
    );
    let path = Path::from_dotted("spec.template.spec.requirements").index(at).key("values");
    Some(Issue::new(&rules::FEW_SIZES, &path, message).fix(fix))
}
