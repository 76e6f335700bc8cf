//! Conversion of node selectors, node affinity, label selectors and tolerations.

use crate::convert::common;
use crate::convert::violations::Violations;
use crate::field_path::Path;
use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Toleration as WireToleration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use napkeeper_core::model::cluster::pod::{Labels, Toleration};
use napkeeper_core::model::labels::{HOSTNAME, normalize};
use napkeeper_core::model::requirements::{Operator, Requirement, Requirements};
use std::sync::Arc;

/// The field by which a pod is tied to one node, as the controller of DaemonSets ties each of its pods. Read as the
/// label with the host's name: in AKS that is the Node's name.
const NAME_FIELD: &str = "metadata.name";

/// `nodeSelector` with a lone affinity term, and the alternatives when there are several.
pub(crate) fn node_affinity(spec: &PodSpec, at: &Path, found: &mut Violations) -> (Requirements, Vec<Requirements>) {
    let mut selector = Requirements::new();
    for (key, value) in spec.node_selector.iter().flatten() {
        selector.add(normalize(key), Requirement::any_of([value]));
    }
    let required = spec
        .affinity
        .as_ref()
        .and_then(|a| a.node_affinity.as_ref())
        .and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    let path = ["affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];
    let path = path.iter().fold(at.clone(), |path, key| path.key(key));
    let mut terms = required.map(|r| self::terms(r, &path, found)).unwrap_or_default();
    if let [only] = terms.as_slice() {
        selector.add_all(only);
        terms.clear();
    }
    (selector, terms)
}

/// The terms of a node selector: one must hold.
pub(crate) fn terms(selector: &NodeSelector, path: &Path, found: &mut Violations) -> Vec<Requirements> {
    let terms = selector.node_selector_terms.iter().enumerate();
    terms.map(|(i, t)| term(t, &path.key("nodeSelectorTerms").index(i), found)).collect()
}

fn term(term: &NodeSelectorTerm, path: &Path, found: &mut Violations) -> Requirements {
    let all = preferred_term(term, path, found);
    let terms = |list: Option<&Vec<_>>| list.map_or(0, Vec::len);
    if terms(term.match_expressions.as_ref()) + terms(term.match_fields.as_ref()) == 0 {
        found.add(path, "matches no node: add at least one entry to matchExpressions, or remove the term");
    }
    all
}

/// A preferred term: an empty one matches every node.
pub(crate) fn preferred_term(term: &NodeSelectorTerm, path: &Path, found: &mut Violations) -> Requirements {
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let mut all = Requirements::new();
    for (i, field) in fields.iter().enumerate() {
        let at = path.key("matchFields").index(i);
        if field.key == NAME_FIELD {
            add_expression(&mut all, HOSTNAME, field, &at, found);
        } else {
            found.add(&at.key("key"), "must be metadata.name, the only supported field");
        }
    }
    for (i, expression) in expressions.iter().enumerate() {
        let at = path.key("matchExpressions").index(i);
        add_expression(&mut all, normalize(&expression.key), expression, &at, found);
    }
    all
}

fn add_expression(
    all: &mut Requirements,
    key: &str,
    expression: &NodeSelectorRequirement,
    at: &Path,
    found: &mut Violations,
) {
    let operator = found.take(&at.key("operator"), expression.operator.parse::<Operator>());
    let Some(operator) = operator else { return };
    let values = expression.values.as_deref().unwrap_or_default();
    let added = all.add_entry(key, operator, values);
    found.take(&at.key("values"), added);
}

/// Tolerations.
pub(crate) fn tolerations(spec: &PodSpec, at: &Path, found: &mut Violations) -> Vec<Toleration> {
    let list = spec.tolerations.iter().flatten().enumerate();
    list.filter_map(|(i, t)| toleration(t, &at.key("tolerations").index(i), found)).collect()
}

fn toleration(wire: &WireToleration, at: &Path, found: &mut Violations) -> Option<Toleration> {
    let key = wire.key.as_deref().filter(|k| !k.is_empty());
    let value = wire.value.as_deref().unwrap_or_default();
    let value = match wire.operator.as_deref().unwrap_or("Equal") {
        "Exists" => Ok(None),
        "Equal" | "" if key.is_none() => Err("must be Exists if there is no key"),
        "Equal" | "" => Ok(Some(Arc::from(value))),
        _ => Err("must be Exists or Equal"),
    };
    let value = found.take(&at.key("operator"), value)?;
    let effect = wire.effect.as_deref().filter(|e| !e.is_empty());
    Some(Toleration {
        key: key.map(Arc::from),
        value,
        effect: found.take_some(&at.key("effect"), effect, common::effect),
    })
}

/// A label selector narrowed to the pod's own values of some keys; without one it selects no pod.
pub(crate) fn own_selector(
    wire: Option<&LabelSelector>,
    keys: Option<&[String]>,
    labels: &Labels,
    (at, found): (&Path, &mut Violations),
) -> Requirements {
    let Some(wire) = wire else { return Requirements::unsatisfiable() };
    let mut selector = label_selector(wire, &at.key("labelSelector"), found);
    for (key, value) in own_values(keys, labels) {
        selector.add(key, Requirement::any_of([value]));
    }
    selector
}

/// Those of some keys that the pod has, with its values.
pub(crate) fn own_values<'l>(
    keys: Option<&'l [String]>,
    labels: &'l Labels,
) -> impl Iterator<Item = (&'l Arc<str>, &'l Arc<str>)> {
    keys.unwrap_or_default().iter().filter_map(|key| labels.get_key_value(key.as_str()))
}

/// A label selector; one without terms fits everything.
pub(crate) fn label_selector(wire: &LabelSelector, at: &Path, found: &mut Violations) -> Requirements {
    let mut all = Requirements::new();
    for (key, value) in wire.match_labels.iter().flatten() {
        all.add(key, Requirement::any_of([value]));
    }
    for (i, expression) in wire.match_expressions.iter().flatten().enumerate() {
        let at = at.key("matchExpressions").index(i);
        if let Some(operator) = found.take(&at.key("operator"), expression.operator.parse::<Operator>()) {
            let values = expression.values.as_deref().unwrap_or_default();
            let added = all.add_entry(&expression.key, operator, values);
            found.take(&at.key("values"), added);
        }
    }
    all
}
