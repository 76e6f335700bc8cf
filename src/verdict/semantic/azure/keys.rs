//! NK1023, NK2005, NK2009, NK2010, NK2022, NK2030: keys and operators of requirements that no node can satisfy.

use crate::finding::Issue;
use crate::rules::azure as rules;
use crate::rules::structure::IGNORED;
use crate::semantic::azure::other_clouds::other_cloud;
use crate::semantic::azure::requirements::{RequirementEntries, RequirementEntry, label_path};
use crate::semantic::azure::values::Domain;
use napkeeper_api::field_path::Path;
use napkeeper_core::model::labels;
use napkeeper_core::model::requirements::{Operator, Requirement};
use napkeeper_core::model::support::spelling::nearest;
use std::collections::BTreeMap;

/// Further labels of the Azure provider and of AKS that a NodePool may name.
const OTHER_KEYS: [&str; 6] = [
    "karpenter.azure.com/sku-storage-ultra-ssd",
    "kubernetes.azure.com/ebpf-dataplane",
    "kubernetes.azure.com/ebpf-host-routing",
    "kubernetes.azure.com/network-policy",
    "kubernetes.azure.com/hostedvm",
    labels::CLUSTER,
];
/// Domains in which no other labels exist.
const CLOSED_DOMAINS: [&str; 2] = ["karpenter.azure.com", "kubernetes.azure.com"];

/// Checks the key and the operator of a requirement.
pub(super) fn check(
    entry: &RequirementEntry<'_>,
    domain: Domain,
    entries: &RequirementEntries<'_>,
    found: &mut Vec<Issue>,
) {
    found.extend(unknown(entry.key, || entries.path(entry.index).key("key")));
    found.extend(of_other_cloud(entry, || entries.path(entry.index).key("key")));
    found.extend(ignored(entry, || entries.path(entry.index)));
    if entry.is_bound() && !matches!(domain, Domain::Number | Domain::Open) {
        found.push(bound(entry, &entries.path(entry.index)));
    }
}

/// Checks the key of a template's label.
pub(super) fn check_label(key: &str, found: &mut Vec<Issue>) {
    found.extend(unknown(key, || label_path(key)).map(Issue::at_key));
}

/// Requirements that leave nothing of those before them, and labels of the template that do.
pub(super) fn contradictions(entries: &RequirementEntries<'_>, found: &mut Vec<Issue>) {
    let mut merged: BTreeMap<&str, Merged> = BTreeMap::new();
    for entry in entries.iter() {
        contradiction(&entry, &entries.path(entry.index), &mut merged, found);
    }
    for (key, value) in entries.labels() {
        let Some(Merged { all, written }) = merged.get(labels::normalize(key)) else { continue };
        if !all.is_empty() && !all.allows(Some(value)) {
            let message = format!("{key}: {value} contradicts {}", written.join(" and "));
            let fix = format!("remove the label: a node gets {key} from its requirements");
            found.push(Issue::new(&rules::CONTRADICTION, &label_path(key), message).fix(fix));
        }
    }
}

/// Values that Karpenter does not read, or lacks without refusing the requirement.
fn ignored(entry: &RequirementEntry<'_>, path: impl Fn() -> Path) -> Option<Issue> {
    let (key, operator) = (entry.key, entry.operator);
    let first = entry.values().next();
    let (path, message, fix) = match (operator, first) {
        (Operator::Exists | Operator::DoesNotExist, Some((_, first))) => {
            let meant = if operator == Operator::Exists { Operator::In } else { Operator::NotIn };
            let message =
                format!("Karpenter ignores the values of operator {operator}: any {key} counts, not only {first}");
            (path().key("values"), message, format!("use operator {meant}, or remove the values"))
        }
        (Operator::NotIn, None) => {
            let message =
                format!("operator NotIn without values excludes nothing: Karpenter takes it for {key} Exists");
            (path(), message, "add values, or use operator Exists".to_owned())
        }
        _ => return None,
    };
    Some(Issue::new(&IGNORED, &path, message).fix(fix))
}

/// A key that only other clouds set. To require that a node does not have it is harmless.
fn of_other_cloud(entry: &RequirementEntry<'_>, path: impl Fn() -> Path) -> Option<Issue> {
    if matches!(entry.operator, Operator::NotIn | Operator::DoesNotExist) {
        return None;
    }
    let key = entry.key;
    let (domain, name) = key.split_once('/')?;
    let (cloud, label) = other_cloud(domain, name)?;
    let message = format!("{key} is a label of {cloud}, which Azure sets on no node: it selects no VM size");
    let fix = label.map_or_else(|| "remove it".to_owned(), |label| format!("use {label}"));
    Some(Issue::new(&rules::OTHER_CLOUD, &path(), message).fix(fix))
}

/// A key that no node has: an unknown one of a known domain, or nearly a well-known one.
fn unknown(key: &str, path: impl Fn() -> Path) -> Option<Issue> {
    let known = || labels::WELL_KNOWN.into_iter().chain(OTHER_KEYS);
    if known().any(|k| k == key) || labels::normalize(key) != key {
        return None;
    }
    let (prefix, name) = key.split_once('/').unwrap_or(("", key));
    let of_name = || known().find(|k| k.rsplit('/').next() == Some(name));
    if CLOSED_DOMAINS.contains(&prefix) {
        let message = format!("nodes have no label {key}: {prefix} has no {name}");
        let suggestion = of_name().or_else(|| nearest(key, known()));
        return Some(Issue::new(&rules::KEY, &path(), message).fix(suggestion.map(|k| format!("use {k}"))));
    }
    // Other domains may have any label; a NodePool that requires it sets it on its nodes, so it restricts nothing.
    let near = |k: &&str| k.len().abs_diff(key.len()) <= 2 && nearest(key, [*k]).is_some();
    let suggestion = match prefix {
        "" => of_name(),
        "node.kubernetes.io" | "topology.kubernetes.io" | "kubernetes.io" | "karpenter.sh" => known().find(near),
        _ => None,
    }?;
    let message = format!("{key} is not a label that Azure sets on nodes: it does not select VM sizes");
    Some(Issue::new(&rules::KEY, &path(), message).fix(format!("use {suggestion}")))
}

fn bound(entry: &RequirementEntry<'_>, path: &Path) -> Issue {
    let message =
        format!("{} compares numbers, but {} is not a number: nothing satisfies it", entry.operator, entry.key);
    let fix = match labels::normalize(entry.key) {
        labels::SKU_SERIES | labels::SKU_NAME | labels::INSTANCE_TYPE | labels::SKU_FAMILY => {
            format!("list the values with In, or compare {} or {}", labels::SKU_VERSION, labels::SKU_CPU)
        }
        _ => "list the values with In".to_owned(),
    };
    Issue::new(&rules::BOUND, &path.key("operator"), message).fix(fix)
}

/// The requirements on a key so far.
struct Merged {
    all: Requirement,
    /// Each with its path, as written: the domain knows `Lt [4]` as `Lte [3]`.
    written: Vec<String>,
}

/// Reports the first requirement that contradicts earlier ones on the same key.
fn contradiction<'v>(
    entry: &RequirementEntry<'v>,
    path: &Path,
    merged: &mut BTreeMap<&'v str, Merged>,
    found: &mut Vec<Issue>,
) {
    let Some(required) = entry.requirement() else { return };
    let key = labels::normalize(entry.key);
    if key == labels::OS && !required.allows(Some("linux")) {
        found.push(not_linux(entry, &required, path));
    }
    let before = merged.entry(key).or_insert_with(|| Merged { all: Requirement::anything(), written: Vec::new() });
    let both = before.all.intersect(&required);
    if both.is_empty() && !before.all.is_empty() {
        let message = match &before.written[..] {
            [] => format!("no value satisfies {key} {}", written(entry)),
            earlier => format!("{key} {} contradicts {}", written(entry), earlier.join(" and ")),
        };
        let fix = "keep one of them: all requirements on a key must be satisfied".to_owned();
        found.push(Issue::new(&rules::CONTRADICTION, path, message).fix((!before.written.is_empty()).then_some(fix)));
    }
    before.written.push(format!("requirements[{}]: {}", entry.index, written(entry)));
    before.all = both;
}

/// Operator and values of a requirement, as written.
fn written(entry: &RequirementEntry<'_>) -> String {
    let values: Vec<&str> = entry.values().map(|(_, value)| value).collect();
    if values.is_empty() { entry.operator.to_string() } else { format!("{} [{}]", entry.operator, values.join(" ")) }
}

fn not_linux(entry: &RequirementEntry<'_>, required: &Requirement, path: &Path) -> Issue {
    let path = if entry.operator == Operator::In { path.key("values").index(0) } else { path.key("operator") };
    let message = format!("{} {required}: node auto-provisioning only creates Linux nodes", entry.key);
    let fix = "remove the requirement, and run Windows pods on an AKS node pool of another cluster".to_owned();
    Issue::new(&rules::WINDOWS_POOL, &path, message).fix(fix)
}
