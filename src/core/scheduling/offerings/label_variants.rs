//! Label variants of a NodePool: one per combination of custom label values.
//!
//! A pool that requires a custom label with several values (`In`), or with any (`Exists`, bounds, `NotIn`), may launch
//! nodes with each. Pods select among them, and spread over them. So such a pool is listed among the available
//! offerings once per combination of values: the listed ones, or, of open requirements, those that some pod names.

use crate::model::cluster::pod::{Labels, PodShape};
use crate::model::cluster::pool::NodePool;
use crate::model::labels;
use crate::model::requirements::{Requirement, Requirements};
use crate::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most values of one label that are distinguished.
const MAX_VALUES: usize = 16;
/// Most combinations of one pool.
const MAX_VARIANTS: usize = 32;

/// Values that pods name, by label; only of labels that pools leave open.
pub(crate) type NamedValues = BTreeMap<Arc<str>, BTreeSet<Arc<str>>>;

/// The sets of labels that a pool may give a node, the default first: those of its template, one value for each custom
/// requirement, and its mode.
pub(crate) fn label_variants(pool: &NodePool, named: &NamedValues) -> Vec<Labels> {
    let mut labels = pool.labels.clone();
    // A node has one mode: `system` only where the pool requires it.
    let mode = if pool.requirements.allows(labels::MODE, Some("user")) { "user" } else { "system" };
    labels.entry(Arc::from(labels::MODE)).or_insert_with(|| Arc::from(mode));
    labels.insert(Arc::from(labels::NODEPOOL), pool.name.text());
    labels.insert(Arc::from(labels::NODECLASS), pool.class.text());
    let mut all = vec![labels];
    for (key, requirement) in custom_requirements(pool) {
        let values = values(requirement, named.get(key));
        let with = |labels: &Labels, value: &Option<Arc<str>>| {
            let mut labels = labels.clone();
            value.iter().for_each(|value| drop(labels.insert(Arc::clone(key), Arc::clone(value))));
            labels
        };
        // By values first, so that the default of one label is combined with every value of the others.
        all = values.iter().flat_map(|value| all.iter().map(move |labels| with(labels, value))).collect();
        all.truncate(MAX_VARIANTS);
    }
    all
}

/// Values that running or pending pods name of labels that some pool leaves open.
pub(crate) fn values_named_by_pods(snapshot: &Snapshot) -> NamedValues {
    let pools = snapshot.pools().values().filter(|pool| pool.replicas.is_none());
    let open = pools.flat_map(|pool| {
        custom_requirements(pool).filter(|(_, requirement)| requirement.values().is_none()).map(|(key, _)| key)
    });
    let mut named: NamedValues = open.map(|key| (Arc::clone(key), BTreeSet::new())).collect();
    if named.is_empty() {
        return named;
    }
    let shapes: BTreeSet<&Arc<PodShape>> = snapshot.pods().values().map(|pod| &pod.shape).collect();
    for shape in shapes {
        let preferred = shape.preferences.iter().flat_map(|all| all.node.iter().map(|(_, requirements)| requirements));
        let requirements: Vec<&Requirements> =
            std::iter::once(&shape.selector).chain(&shape.alternatives).chain(preferred).collect();
        for (key, values) in &mut named {
            let lists = requirements.iter().filter_map(|requirements| requirements.get(key)?.values());
            values.extend(lists.flat_map(|list| list.iter().cloned()));
        }
    }
    named
}

/// Requirements of the pool on labels that neither its template nor an instance type sets.
fn custom_requirements(pool: &NodePool) -> impl Iterator<Item = (&Arc<str>, &Requirement)> {
    let open = |key: &Arc<str>| !labels::is_well_known(key) && !pool.labels.contains_key(key);
    pool.requirements.iter().filter(move |(key, _)| open(key))
}

/// The possible values of a label, the default first; `None` is no label.
fn values(requirement: &Requirement, named: Option<&BTreeSet<Arc<str>>>) -> Vec<Option<Arc<str>>> {
    let listed = requirement.values().into_iter().flat_map(|list| list.iter().cloned()).map(Some);
    let open = requirement.values().is_none();
    let default = open.then(|| if requirement.allows_absent() { None } else { requirement.any_value() });
    let named = named.into_iter().flatten().filter(|value| open && requirement.allows(Some(value))).cloned().map(Some);
    let mut values: Vec<Option<Arc<str>>> = Vec::new();
    for value in default.into_iter().chain(listed).chain(named).take(MAX_VALUES) {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    if values.is_empty() { vec![None] } else { values }
}
