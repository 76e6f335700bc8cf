//! Conversion of pod affinity, pod anti-affinity and preferences.

use crate::convert::pods::node_affinity::{label_selector, own_selector, own_values, preferred_term};
use crate::convert::violations::Violations;
use crate::field_path::Path;
use k8s_openapi::api::core::v1::{NodeAffinity, PodAffinityTerm, PodSpec, WeightedPodAffinityTerm};
use napkeeper_core::model::cluster::pod::{Labels, PodAffinity, PodTerm, Preferences};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::Namespace;
use napkeeper_core::model::requirements::{Requirement, Requirements};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// The pod with the terms.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PodIdentity<'p> {
    pub(crate) namespace: &'p Namespace,
    pub(crate) labels: &'p Labels,
}

/// Reads required and preferred pod affinity and anti-affinity.
pub(crate) fn affinity(
    spec: &PodSpec,
    own: PodIdentity<'_>,
    at: &Path,
    found: &mut Violations,
) -> (PodAffinity, Preferences) {
    let (mut must, mut likes) = (PodAffinity::default(), Preferences::default());
    let Some(affinity) = &spec.affinity else { return (must, likes) };
    let at = at.key("affinity");
    if let Some(node) = &affinity.node_affinity {
        likes.node = preferred_nodes(node, &at.key("nodeAffinity"), found);
    }
    if let Some(near) = &affinity.pod_affinity {
        let at = at.key("podAffinity");
        let required = near.required_during_scheduling_ignored_during_execution.as_deref();
        must.near = required_terms(required, own, &at, found);
        let preferred = near.preferred_during_scheduling_ignored_during_execution.as_deref();
        likes.near = preferred_terms(preferred, own, &at, found);
    }
    if let Some(apart) = &affinity.pod_anti_affinity {
        let at = at.key("podAntiAffinity");
        let required = apart.required_during_scheduling_ignored_during_execution.as_deref();
        must.apart = required_terms(required, own, &at, found);
        let preferred = apart.preferred_during_scheduling_ignored_during_execution.as_deref();
        likes.apart = preferred_terms(preferred, own, &at, found);
    }
    // To be apart from no pods at all is always so, and to be near to them cannot be liked any better here or there.
    must.apart.retain(|term| term.selector.first_empty().is_none());
    likes.near.retain(|(_, term)| term.selector.first_empty().is_none());
    likes.apart.retain(|(_, term)| term.selector.first_empty().is_none());
    (must, likes)
}

fn preferred_nodes(affinity: &NodeAffinity, at: &Path, found: &mut Violations) -> Vec<(i32, Requirements)> {
    let list = affinity.preferred_during_scheduling_ignored_during_execution.iter().flatten().enumerate();
    let mut all = Vec::new();
    for (i, wire) in list {
        let at = at.key(PREFERRED).index(i);
        let weight = weight(wire.weight, &at, found);
        let term = preferred_term(&wire.preference, &at.key("preference"), found);
        // An empty term matches every node.
        all.extend(weight.filter(|_| !term.is_empty()).map(|weight| (weight, term)));
    }
    heaviest_first(&mut all);
    all
}

fn required_terms(
    list: Option<&[PodAffinityTerm]>,
    own: PodIdentity<'_>,
    at: &Path,
    found: &mut Violations,
) -> Vec<PodTerm> {
    let list = list.unwrap_or_default().iter().enumerate();
    list.filter_map(|(i, wire)| term(wire, own, &at.key(REQUIRED).index(i), found)).collect()
}

fn preferred_terms(
    list: Option<&[WeightedPodAffinityTerm]>,
    own: PodIdentity<'_>,
    at: &Path,
    found: &mut Violations,
) -> Vec<(i32, PodTerm)> {
    let mut all = Vec::new();
    for (i, wire) in list.unwrap_or_default().iter().enumerate() {
        let at = at.key(PREFERRED).index(i);
        let weight = weight(wire.weight, &at, found);
        all.extend(weight.zip(term(&wire.pod_affinity_term, own, &at.key("podAffinityTerm"), found)));
    }
    heaviest_first(&mut all);
    all
}

fn weight(weight: i32, at: &Path, found: &mut Violations) -> Option<i32> {
    let weight = (1..=100).contains(&weight).then_some(weight).ok_or("must be 1 to 100");
    found.take(&at.key("weight"), weight)
}

fn heaviest_first<T>(list: &mut [(i32, T)]) {
    list.sort_by_key(|(weight, _)| Reverse(*weight));
}

fn term(wire: &PodAffinityTerm, own: PodIdentity<'_>, at: &Path, found: &mut Violations) -> Option<PodTerm> {
    let mut namespaces = BTreeSet::new();
    for (i, name) in wire.namespaces.iter().flatten().enumerate() {
        namespaces.extend(found.take(&at.key("namespaces").index(i), Namespace::new(name)));
    }
    let namespace_selector = wire.namespace_selector.as_ref();
    let namespace_selector = namespace_selector.map(|s| label_selector(s, &at.key("namespaceSelector"), found));
    if namespace_selector.is_none() && wire.namespaces.as_ref().is_none_or(Vec::is_empty) {
        namespaces.insert(own.namespace.clone());
    }
    let matching = wire.match_label_keys.as_deref();
    let mut selector = own_selector(wire.label_selector.as_ref(), matching, own.labels, (at, found));
    for (key, value) in own_values(wire.mismatch_label_keys.as_deref(), own.labels) {
        selector.add(key, Requirement::none_of([value]));
    }
    let topology_key = topology_key(&wire.topology_key, at, found)?;
    Some(PodTerm { topology_key, namespaces, namespace_selector, selector })
}

/// The topology key, by its current name.
pub(crate) fn topology_key(key: &str, at: &Path, found: &mut Violations) -> Option<Arc<str>> {
    if key.is_empty() {
        found.add(&at.key("topologyKey"), "is required");
        return None;
    }
    Some(labels::interned(labels::normalize(key)))
}
