//! Compares pools: weights, and fallbacks when Azure has no spot capacity.

use crate::finding::Issue;
use crate::rules::cost as rules;
use crate::semantic::ManifestSet;
use crate::semantic::facts::Facts;
use napkeeper_api::field_path::Path;
use napkeeper_api::manifests::Object;
use napkeeper_core::model::cluster::pod::{Taint, TaintEffect};
use napkeeper_core::model::cluster::pool::NodePool;
use napkeeper_core::model::labels;
use napkeeper_core::model::requirements::Requirement;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Most findings of one rule.
const MAX_FINDINGS: usize = 20;
/// Most pairs of pools that one rule compares: thousands of pools have millions of pairs.
const MAX_PAIRS: usize = 20_000;

/// Keys of the capacity type.
const CAPACITY_TYPE_KEYS: [&str; 3] = [labels::CAPACITY_TYPE, labels::PRIORITY, labels::SCALE_SET_PRIORITY];
/// Keys that pods seldom require: the size rarely matters to them.
const SIZE_KEYS: [&str; 14] = [
    labels::INSTANCE_TYPE,
    labels::SKU_NAME,
    labels::SKU_FAMILY,
    labels::SKU_SERIES,
    labels::SKU_VERSION,
    labels::SKU_CPU,
    labels::AKS_SKU_CPU,
    labels::SKU_MEMORY,
    labels::AKS_SKU_MEMORY,
    labels::SKU_ACCELERATED_NETWORKING,
    labels::SKU_PREMIUM_STORAGE,
    labels::SKU_EPHEMERAL_OS_MAX,
    labels::PLACEMENT_SCOPE,
    labels::MODE,
];

/// A pool that the scheduler uses.
struct DynamicPool<'r> {
    set: &'r ManifestSet,
    index: usize,
    pool: &'r NodePool,
    taints: BTreeSet<&'r Taint>,
    spot: bool,
    on_demand: bool,
}

pub(super) fn check(set: &ManifestSet, facts: &Facts, found: &mut Vec<(usize, Issue)>) {
    for entries in clusters(set) {
        ties(&entries, facts, found);
        let spot_only = || entries.iter().filter(|e| e.spot && !e.on_demand);
        spot_last(&entries, spot_only(), facts, found);
        fallback(&entries, spot_only(), facts, found);
    }
}

/// The pools, by cluster.
fn clusters(set: &ManifestSet) -> Vec<Vec<DynamicPool<'_>>> {
    let mut clusters: BTreeMap<&str, Vec<DynamicPool<'_>>> = BTreeMap::new();
    for pool in (0..set.objects.len()).filter_map(|i| dynamic_pool(set, i)) {
        clusters.entry(set.cluster_folder(pool.index)).or_default().push(pool);
    }
    clusters.into_values().collect()
}

fn dynamic_pool(set: &ManifestSet, index: usize) -> Option<DynamicPool<'_>> {
    let Object::NodePool(pool) = &set.objects.get(index)?.object else { return None };
    // The scheduler passes over static pools.
    let pool: &NodePool = Some(pool).filter(|p| p.replicas.is_none())?;
    let allows = |word: &str| pool.requirements.get(labels::CAPACITY_TYPE).is_none_or(|r| r.allows(Some(word)));
    let taints = pool.taints.iter().filter(|t| t.effect != TaintEffect::PreferNoSchedule).collect();
    Some(DynamicPool { set, index, pool, taints, spot: allows("spot"), on_demand: allows("on-demand") })
}

impl DynamicPool<'_> {
    /// Both may be in one cluster, and some pod fits both, ignoring the keys of `but`.
    fn meets(&self, other: &Self, but: &[&str]) -> bool {
        let (a, b) = (&self.pool.requirements, &other.pool.requirements);
        let apart = |key: &str, required: &Requirement| b.get(key).is_some_and(|offered| !offered.intersects(required));
        self.set.may_share_cluster(self.index, other.index)
            && !a.iter().any(|(key, required)| !but.contains(&&**key) && apart(key, required))
    }

    /// Both can make a node of the same size.
    fn shares_sizes(&self, other: &Self, facts: &Facts) -> bool {
        let index = facts.region_offerings.index();
        index.possible(&self.pool.requirements).intersects(&index.possible(&other.pool.requirements))
    }

    fn name(&self) -> &str {
        self.pool.name.as_str()
    }
}

/// Pools of equal weight that make the same nodes for the same pods: the name decides.
fn ties(entries: &[DynamicPool<'_>], facts: &Facts, found: &mut Vec<(usize, Issue)>) {
    let mut groups: BTreeMap<(i32, &BTreeSet<&Taint>), Vec<&DynamicPool<'_>>> = BTreeMap::new();
    for entry in entries {
        groups.entry((entry.pool.weight, &entry.taints)).or_default().push(entry);
    }
    let (mut pairs, mut count) = (0, 0);
    for ((weight, _), mut group) in groups {
        // As Karpenter has it: of equal weights the last name first.
        group.sort_by_key(|e| Reverse(e.name()));
        for (at, later) in group.iter().enumerate().skip(1) {
            let earlier = group.iter().take(at).find(|earlier| {
                pairs += 1;
                pairs <= MAX_PAIRS && earlier.meets(later, &[]) && earlier.shares_sizes(later, facts)
            });
            let Some(earlier) = earlier else { continue };
            count += 1;
            if count > MAX_FINDINGS {
                return;
            }
            found.push((later.index, tie(earlier, later, weight)));
        }
    }
}

fn tie(earlier: &DynamicPool<'_>, later: &DynamicPool<'_>, weight: i32) -> Issue {
    let weight = if weight == 0 { "no weight".to_owned() } else { format!("weight {weight}") };
    let message = format!(
        "{} and {} can create the same nodes for the same pods, and both have {weight}: Karpenter tries {} first, \
         because its name is alphabetically last",
        earlier.name(),
        later.name(),
        earlier.name(),
    );
    let fix = "give the preferred one a higher weight, or make their requirements disjoint".to_owned();
    let issue = if later.pool.weight == 0 {
        Issue::new(&rules::EQUAL_WEIGHT, &Path::from_dotted("spec"), message).at_key()
    } else {
        Issue::new(&rules::EQUAL_WEIGHT, &Path::from_dotted("spec.weight"), message)
    };
    issue.fix(fix)
}

/// Spot NodePools that are tried after an on-demand NodePool.
fn spot_last<'e>(
    entries: &[DynamicPool<'_>],
    spot: impl Iterator<Item = &'e DynamicPool<'e>>,
    facts: &Facts,
    found: &mut Vec<(usize, Issue)>,
) {
    let (mut pairs, mut count) = (0, 0);
    let order = |e: &DynamicPool<'_>| (e.pool.weight, e.pool.name.clone());
    for spot in spot {
        let before = entries.iter().find(|e| {
            pairs += 1;
            pairs <= MAX_PAIRS
                && e.on_demand
                && !e.spot
                && e.taints == spot.taints
                && order(e) > order(spot)
                && e.meets(spot, &CAPACITY_TYPE_KEYS)
                && e.shares_sizes(spot, facts)
        });
        let Some(before) = before else { continue };
        count += 1;
        if count > MAX_FINDINGS {
            return;
        }
        let (weight, before_weight) = (spot.pool.weight, before.pool.weight);
        let reason = if weight == before_weight {
            format!("both have weight {weight}, and at equal weights the alphabetically last name comes first")
        } else {
            format!("the highest weight comes first, and {before_weight} is higher than {weight}")
        };
        let message = format!(
            "the on-demand pool {} is tried before this spot pool ({reason}): spot is used only by pods that require it, or \
             when {} is full",
            before.name(),
            before.name()
        );
        let fix = format!("give this pool a weight above that of {}", before.name());
        let path = if weight == 0 { Path::from_dotted("spec") } else { Path::from_dotted("spec.weight") };
        let issue = Issue::new(&rules::SPOT_LAST, &path, message).fix(fix);
        found.push((spot.index, if weight == 0 { issue.at_key() } else { issue }));
    }
}

/// Spot NodePools without a fallback when Azure has no spot capacity.
fn fallback<'e>(
    entries: &[DynamicPool<'_>],
    spot: impl Iterator<Item = &'e DynamicPool<'e>>,
    facts: &Facts,
    found: &mut Vec<(usize, Issue)>,
) {
    let index = facts.region_offerings.index();
    let sizes = |e: &DynamicPool<'_>| index.possible(&e.pool.requirements);
    let has_gpus = |e: &DynamicPool<'_>| !index.among(&sizes(e), |s| s.gpu.is_some()).is_empty();
    let but: Vec<&str> = CAPACITY_TYPE_KEYS.into_iter().chain(SIZE_KEYS).collect();
    let (mut pairs, mut count) = (0, 0);
    for spot in spot {
        let all = sizes(spot);
        let all_have_gpus = !all.is_empty() && index.among(&all, |s| s.gpu.is_some()).len() == all.len();
        let catches = entries.iter().find(|e| {
            pairs += 1;
            let tolerated = e.taints.is_subset(&spot.taints);
            e.on_demand && tolerated && e.meets(spot, &but) && (!all_have_gpus || has_gpus(e))
        });
        count += usize::from(catches.is_none());
        if pairs > MAX_PAIRS || count > MAX_FINDINGS {
            return;
        }
        if catches.is_none() {
            let message = "no pool in the input can provide on-demand capacity for the pods of this one: when Azure evicts spot \
                           nodes and has no other spot capacity, they stay pending";
            let fix = "add a pool with the same taints, capacity type on-demand and a lower weight; or allow both capacity \
                       types in this pool, which prefers spot";
            let entry = Path::from_dotted("spec.template.spec.requirements");
            found.push((spot.index, Issue::new(&rules::NO_FALLBACK, &entry, message).at_key().fix(fix.to_owned())));
        }
    }
}
