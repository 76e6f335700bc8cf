//! The CustomResourceDefinitions, generated from the types.

pub mod cel_rules;
pub(crate) mod schedule_rules;

use crate::types::aks_node_class::AKSNodeClass;
use crate::types::karpenter::{NodeClaim, NodePool};
use crate::types::node_overlay::NodeOverlay;
use crate::types::node_record::NodeRecord;
use crate::types::orphan_record::OrphanRecord;
use crate::types::orphan_sweep::OrphanSweep;
use crate::types::placement_policy::PlacementPolicy;
use kube::core::CustomResourceExt;
use serde_json::{Value, json};

/// A CustomResourceDefinition and the name of its file.
#[derive(Debug, Clone, PartialEq)]
pub struct Crd {
    /// `<folder>/<group>_<plural>.yaml`; the folder is the project of the kind.
    pub file: String,
    /// The object.
    pub definition: Value,
}

/// All CustomResourceDefinitions.
///
/// # Errors
/// When a generated definition cannot be written as JSON, or lacks the field of a rule, which a test rules out.
pub fn all() -> Result<Vec<Crd>, serde_json::Error> {
    [
        NodePool::crd(),
        NodeClaim::crd(),
        NodeOverlay::crd(),
        AKSNodeClass::crd(),
        OrphanSweep::crd(),
        OrphanRecord::crd(),
        NodeRecord::crd(),
        PlacementPolicy::crd(),
    ]
    .into_iter()
    .map(|crd| finish(serde_json::to_value(crd)?))
    .collect()
}

/// Adds what the derive lacks: fields are not nullable (as upstream's), napkeeper's kinds are cluster-scoped, and
/// AKSNodeClass is served in its older version too.
fn finish(mut definition: Value) -> Result<Crd, serde_json::Error> {
    definition["spec"]["scope"] = json!("Cluster");
    // A definition without it was not installed by napkeeper.
    definition["metadata"]["labels"] = json!({ "app.kubernetes.io/part-of": "napkeeper" });
    // Pruned by mistake, a definition takes all its objects with it, and every node with those.
    definition["metadata"]["annotations"] = json!({
        "argocd.argoproj.io/sync-options": "Prune=false,Delete=false",
        "kustomize.toolkit.fluxcd.io/prune": "disabled",
    });
    clean(&mut definition["spec"]["versions"]);
    let kind = definition["spec"]["names"]["kind"].as_str().unwrap_or_default().to_owned();
    let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    cel_rules::insert_rules(&kind, schema).map_err(serde::ser::Error::custom)?;
    if kind == "AKSNodeClass" || kind == "OrphanSweep" {
        // Every field is optional or has a default, so the spec is optional.
        drop(schema.as_object_mut().and_then(|s| s.shift_remove("required")));
        for field in ["spec", "status"] {
            drop(schema["properties"][field].as_object_mut().and_then(|of| of.shift_remove("default")));
        }
    }
    if kind == "AKSNodeClass" {
        add_older_version(&mut definition["spec"]["versions"]);
    }
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let spec = &definition["spec"];
    let group = text(&spec["group"]);
    let folder = if group == "napkeeper.io" { "napkeeper" } else { "karpenter" };
    let file = format!("{folder}/{group}_{}.yaml", text(&spec["names"]["plural"]));
    Ok(Crd { file, definition })
}

/// The schemas of `v1alpha2` and `v1beta1` are the same.
fn add_older_version(versions: &mut Value) {
    let Some(list) = versions.as_array_mut() else {
        return;
    };
    let Some(mut older) = list.first().cloned() else {
        return;
    };
    older["name"] = json!("v1alpha2");
    older["storage"] = json!(false);
    older["deprecated"] = json!(true);
    older["deprecationWarning"] = json!("v1alpha2.AKSNodeClass is deprecated, use v1beta1.AKSNodeClass instead");
    list.insert(0, older);
}

/// Drops additions of the derive that upstream lacks, and restores the schemas of quantities.
fn clean(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.shift_remove("nullable");
            if map.get("title").is_some_and(Value::is_string) {
                map.shift_remove("title");
            }
            if map.contains_key("x-kubernetes-int-or-string") {
                let either = json!([{ "type": "integer" }, { "type": "string" }]);
                map.insert("anyOf".to_owned(), either);
            }
            map.values_mut().for_each(clean);
        }
        Value::Array(list) => list.iter_mut().for_each(clean),
        Value::Number(n) if n.is_f64() => {
            // The derive makes 1.0 of every bound.
            if let Some(whole) = n.as_f64().filter(|f| f.fract() == 0.0) {
                #[expect(clippy::cast_possible_truncation, reason = "bounds are small whole numbers")]
                let whole = whole as i64;
                *value = json!(whole);
            }
        }
        _ => {}
    }
}

/// The text of a definition's file.
///
/// # Errors
/// When the definition cannot be written as YAML, which a test rules out.
pub fn to_yaml(crd: &Crd) -> Result<String, serde_saphyr::ser::Error> {
    let text = serde_saphyr::to_string(&crd.definition)?;
    Ok(format!("# Generated from the types of src/api: cargo run --example crds -- manifests/crds\n{text}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_committed_files_match_the_types() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/crds");
        let crds = all().unwrap();
        for crd in &crds {
            let committed = std::fs::read_to_string(folder.join(&crd.file)).unwrap_or_default();
            assert!(
                committed == to_yaml(crd).unwrap(),
                "{} differs from the types: cargo run --example crds -- manifests/crds",
                crd.file
            );
        }
        // kustomize reads a list of files, not a folder: it must be complete.
        for part in ["karpenter", "napkeeper"] {
            let in_folder = crds.iter().filter_map(|crd| crd.file.strip_prefix(part)?.strip_prefix('/'));
            let mut expected: Vec<_> = in_folder.map(ToOwned::to_owned).collect();
            expected.sort();
            let list = std::fs::read_to_string(folder.join(part).join("kustomization.yaml")).unwrap();
            let listed: Vec<_> = list.lines().filter_map(|line| line.strip_prefix("  - ")).collect();
            assert_eq!(listed, expected, "{part}/kustomization.yaml");
            let files = std::fs::read_dir(folder.join(part)).unwrap().count();
            assert_eq!(files, expected.len() + 1, "{part} holds a file of no type");
        }
    }

    #[test]
    fn schemas_are_structural() {
        fn walk(value: &Value, at: &str) {
            let Value::Object(map) = value else { return };
            for keyword in ["$ref", "nullable", "title", "additionalItems", "oneOf", "definitions"] {
                assert!(!map.contains_key(keyword), "{at} has {keyword}");
            }
            let either = map.contains_key("x-kubernetes-int-or-string");
            assert!(either || map.contains_key("type"), "{at} has no type");
            for (name, property) in map.get("properties").and_then(Value::as_object).into_iter().flatten() {
                // The schema's own bookkeeping must not show.
                assert_ne!(name, "extra", "{at}");
                walk(property, &format!("{at}.{name}"));
            }
            for keyword in ["items", "additionalProperties"] {
                if let Some(schema) = map.get(keyword) {
                    walk(schema, &format!("{at}.{keyword}"));
                }
            }
        }
        for crd in all().unwrap() {
            for version in crd.definition["spec"]["versions"].as_array().unwrap() {
                walk(&version["schema"]["openAPIV3Schema"], &crd.file);
            }
        }
    }

    #[test]
    fn both_versions_of_the_node_class_have_one_schema_and_one_is_stored() {
        let crds = all().unwrap();
        let class = crds.iter().find(|c| c.file.contains("aksnodeclasses")).unwrap();
        let versions = class.definition["spec"]["versions"].as_array().unwrap();
        let of = |field: &str| versions.iter().map(|v| v[field].clone()).collect::<Vec<_>>();
        assert_eq!(of("name"), ["v1alpha2", "v1beta1"]);
        assert_eq!(of("storage"), [false, true]);
        assert_eq!(versions[0]["schema"], versions[1]["schema"]);
    }
}
