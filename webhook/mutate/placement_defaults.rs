//! Turns the defaults of a PlacementPolicy into a JSON patch that adds and never replaces.
//!
//! [`napkeeper_core::admission::placement_policy`] chooses them.

use super::patch::InvalidPatch;
use crate::hints::IncomingPod;
use crate::text::truncate;
use json_patch::{PatchOperation, patch_unsafe};
use napkeeper_api::field_path::pointer_token;
use napkeeper_core::admission::placement_policy::{
    NONE, PLACED_BY_ANNOTATION, PLACEMENT_ANNOTATION, PlacementPolicies, PodAttributes, PodDefault, SpreadDefault,
    defaults_for, stable_hash,
};
use napkeeper_core::model::cluster::pod::Labels;
use napkeeper_core::model::labels;
use serde::Deserialize;
use serde_json::{Value, json};
use std::slice;
use std::sync::Arc;

/// Weight, of 100, with which a pod prefers spot: more than all that an image's architecture gains.
const SPOT_WEIGHT: i64 = 50;
/// Weight, of 100, with which a pod prefers an architecture.
const ARCHITECTURE_WEIGHT: i64 = 10;
/// Older key of the architecture, which the kubelet still sets.
const BETA_ARCH: &str = "beta.kubernetes.io/arch";
/// Node labels of the capacity type.
const CAPACITY_TYPE_LABELS: [&str; 3] = [labels::CAPACITY_TYPE, labels::SCALE_SET_PRIORITY, labels::PRIORITY];
/// Node labels of the architecture.
const ARCH_LABELS: [&str; 2] = [labels::ARCH, BETA_ARCH];

const NODE_AFFINITY_PATH: [&str; 3] = ["spec", "affinity", "nodeAffinity"];
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// A pod with its defaults.
#[derive(Debug)]
pub(crate) struct PatchedPod {
    /// The pod as it will be, without its managed fields.
    pub(crate) object: Value,
    /// Operations that make it so.
    pub(crate) patch: Vec<Value>,
}

/// The defaults of the policies for a pod.
#[derive(Debug)]
pub(crate) enum DefaultsOutcome {
    /// Nothing.
    Unchanged,
    /// It names a policy that does not exist: a warning.
    UnknownPolicy(String),
    /// This.
    Patched(PatchedPod),
}

/// What there is for a pod while there is no policy at all.
pub(crate) fn without_policies(subject: &IncomingPod) -> DefaultsOutcome {
    let named = subject.annotations.as_ref().and_then(|annotations| annotations.get(PLACEMENT_ANNOTATION));
    named
        .filter(|name| **name != *NONE)
        .map_or(DefaultsOutcome::Unchanged, |name| DefaultsOutcome::UnknownPolicy(no_such_policy(name)))
}

/// Applies the defaults to a pod. `uid` is that of the request.
pub(crate) fn apply_defaults(
    placement: &PlacementPolicies,
    object: &Value,
    subject: &IncomingPod,
    uid: &str,
) -> Result<DefaultsOutcome, InvalidPatch> {
    let attributes = pod_attributes(object, subject, uid);
    let namespace = subject.pod.key.namespace.as_str();
    let Some(policy) = placement.policy_for(namespace, &attributes) else {
        let named = attributes
            .placement_annotation
            .as_ref()
            .or_else(|| placement.namespaces.get(namespace)?.placement_annotation.as_ref());
        let unknown =
            named.filter(|name| ***name != *NONE).map(|name| DefaultsOutcome::UnknownPolicy(no_such_policy(name)));
        return Ok(unknown.unwrap_or(DefaultsOutcome::Unchanged));
    };
    let changes = defaults_for(policy, &attributes);
    if changes.is_empty() {
        return Ok(DefaultsOutcome::Unchanged);
    }
    let mut builder = PatchBuilder { object: object.clone(), patch: Vec::new() };
    for change in &changes {
        builder.apply_default(change)?;
    }
    builder.set(&["metadata", "annotations", PLACED_BY_ANNOTATION], json!(policy.name.as_str()))?;
    Ok(DefaultsOutcome::Patched(PatchedPod { object: builder.object, patch: builder.patch }))
}

fn no_such_policy(name: &str) -> String {
    let name = truncate(name, 64);
    format!("napkeeper: PlacementPolicy {name:?}, named by {PLACEMENT_ANNOTATION}, not found: the pod gets no defaults")
}

fn annotation<'o>(object: &'o Value, key: &str) -> Option<&'o str> {
    object["metadata"]["annotations"][key].as_str()
}

/// The attributes of a pod for matching policies.
fn pod_attributes(object: &Value, subject: &IncomingPod, uid: &str) -> PodAttributes {
    let spec = &object["spec"];
    let key = &subject.pod.key;
    let owners = object["metadata"]["ownerReferences"].as_array();
    let identity = match &subject.generate_name {
        Some(_) => format!("{}/{uid}", key.namespace),
        None => key.to_string(),
    };
    let tolerated = |of: &[&str]| {
        let tolerations = spec["tolerations"].as_array().into_iter().flatten();
        tolerations.filter_map(|t| t["key"].as_str()).any(|key| of.contains(&key))
    };
    PodAttributes {
        labels: subject.pod.shape.labels.clone(),
        placement_annotation: annotation(object, PLACEMENT_ANNOTATION).map(Arc::from),
        has_placed_by: annotation(object, PLACED_BY_ANNOTATION).is_some(),
        has_spread: spec["topologySpreadConstraints"].as_array().is_some_and(|list| !list.is_empty()),
        has_capacity_type: names_label(spec, &CAPACITY_TYPE_LABELS) || tolerated(&CAPACITY_TYPE_LABELS),
        has_architecture: names_label(spec, &ARCH_LABELS),
        has_do_not_disrupt: annotation(object, labels::DO_NOT_DISRUPT).is_some(),
        owned_by_job: owners.into_iter().flatten().any(|o| o["controller"] == true && o["kind"] == "Job"),
        hash: stable_hash(&identity),
    }
}

/// True if node selector or node affinity refer to one of these labels.
fn names_label(spec: &Value, keys: &[&str]) -> bool {
    let affinity = &spec["affinity"]["nodeAffinity"];
    let required = affinity[REQUIRED]["nodeSelectorTerms"].as_array().into_iter().flatten();
    let preferred = affinity[PREFERRED].as_array().into_iter().flatten().map(|term| &term["preference"]);
    let expressions = required.chain(preferred).filter_map(|term| term["matchExpressions"].as_array()).flatten();
    let mut named = expressions.filter_map(|expression| expression["key"].as_str());
    let selected = spec["nodeSelector"].as_object().is_some_and(|map| keys.iter().any(|key| map.contains_key(*key)));
    selected || named.any(|key| keys.contains(&key))
}

/// Builds a patch, and applies it to the object.
struct PatchBuilder {
    object: Value,
    patch: Vec<Value>,
}

impl PatchBuilder {
    fn apply_default(&mut self, change: &PodDefault) -> Result<(), InvalidPatch> {
        match change {
            PodDefault::Spread(constraint, labels) => {
                self.append(&["spec", "topologySpreadConstraints"], spread(constraint, labels))
            }
            PodDefault::Spot => {
                let toleration = json!({
                    "key": labels::SCALE_SET_PRIORITY, "operator": "Equal", "value": "spot", "effect": "NoSchedule",
                });
                self.append(&["spec", "tolerations"], toleration)?;
                self.prefer_label(SPOT_WEIGHT, labels::CAPACITY_TYPE, "spot")
            }
            PodDefault::OnDemand => self.require_on_demand(),
            PodDefault::DoNotDisrupt(time) => {
                self.set(&["metadata", "annotations", labels::DO_NOT_DISRUPT], json!(&**time))
            }
            PodDefault::Architecture(arch) => self.prefer_label(ARCHITECTURE_WEIGHT, labels::ARCH, arch),
        }
    }

    fn prefer_label(&mut self, weight: i64, key: &str, value: &str) -> Result<(), InvalidPatch> {
        let preference = json!({ "matchExpressions": [{ "key": key, "operator": "In", "values": [value] }] });
        let term = json!({ "weight": weight, "preference": preference });
        self.append(&[NODE_AFFINITY_PATH[0], NODE_AFFINITY_PATH[1], NODE_AFFINITY_PATH[2], PREFERRED], term)
    }

    /// Excludes nodes labelled as spot; nodes without the label are on demand.
    fn require_on_demand(&mut self) -> Result<(), InvalidPatch> {
        let not_spot = |key: &str| json!({ "key": key, "operator": "NotIn", "values": ["spot"] });
        let keys = [labels::CAPACITY_TYPE, labels::SCALE_SET_PRIORITY];
        let terms =
            [NODE_AFFINITY_PATH[0], NODE_AFFINITY_PATH[1], NODE_AFFINITY_PATH[2], REQUIRED, "nodeSelectorTerms"];
        let given = self.object["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"].as_array();
        let given = given.map_or(0, Vec::len);
        if given == 0 {
            return self.append(&terms, json!({ "matchExpressions": keys.map(not_spot) }));
        }
        // Terms are alternatives, so each gets the requirement. None is empty: such a pod is not parsed.
        for i in 0..given {
            let index = i.to_string();
            let path = [&terms[..], &[&index, "matchExpressions"]].concat();
            for key in keys {
                self.append(&path, not_spot(key))?;
            }
        }
        Ok(())
    }

    /// Appends an item to a list, creating the list and its parents if missing.
    fn append(&mut self, path: &[&str], item: Value) -> Result<(), InvalidPatch> {
        match self.first_missing(path) {
            Some(depth) => self.add(path, depth, json!([item])),
            None => self.apply(&format!("{}/-", pointer(path)), &item),
        }
    }

    /// Sets a field that is not set yet.
    fn set(&mut self, path: &[&str], value: Value) -> Result<(), InvalidPatch> {
        match self.first_missing(path) {
            Some(depth) => self.add(path, depth, value),
            None => Ok(()),
        }
    }

    /// The index of the first part of a path that does not exist.
    fn first_missing(&self, path: &[&str]) -> Option<usize> {
        let mut at = &self.object;
        for (depth, key) in path.iter().enumerate() {
            let child = match at {
                Value::Array(list) => key.parse::<usize>().ok().and_then(|i| list.get(i)),
                other => other.get(*key),
            };
            match child.filter(|value| !value.is_null()) {
                Some(value) => at = value,
                None => return Some(depth),
            }
        }
        None
    }

    fn add(&mut self, path: &[&str], depth: usize, value: Value) -> Result<(), InvalidPatch> {
        let (parent, inner) = path.split_at((depth + 1).min(path.len()));
        let whole = inner.iter().rev().fold(value, |value, key| json!({ *key: value }));
        self.apply(&pointer(parent), &whole)
    }

    fn apply(&mut self, path: &str, value: &Value) -> Result<(), InvalidPatch> {
        let operation = json!({ "op": "add", "path": path, "value": value });
        let parsed = PatchOperation::deserialize(&operation).map_err(|e| InvalidPatch::Apply(e.to_string()))?;
        patch_unsafe(&mut self.object, slice::from_ref(&parsed)).map_err(|e| InvalidPatch::Apply(e.to_string()))?;
        self.patch.push(operation);
        Ok(())
    }
}

fn pointer(path: &[&str]) -> String {
    path.iter().map(|key| format!("/{}", pointer_token(key))).collect()
}

fn spread(constraint: &SpreadDefault, labels: &Labels) -> Value {
    let labels: serde_json::Map<String, Value> = labels.iter().map(|(k, v)| (k.to_string(), json!(&**v))).collect();
    json!({
        "maxSkew": constraint.max_skew,
        "topologyKey": &*constraint.topology_key,
        "whenUnsatisfiable": if constraint.hard { "DoNotSchedule" } else { "ScheduleAnyway" },
        "labelSelector": { "matchLabels": labels },
    })
}
