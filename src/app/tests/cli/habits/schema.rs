//! Schemas for editors reject only what `validate` rejects.

use super::{napkeeper, printed, root};
use napkeeper_api::manifests;
use napkeeper_api::yaml::Document;
use napkeeper_sim::scenario;
use napkeeper_verdict::{Severity, Validator};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Changes of each sample.
const ROUNDS: usize = 800;

fn schema(args: &[&str]) -> jsonschema::Validator {
    let schema: Value = serde_json::from_str(&printed(&[&["schema"], args].concat())).unwrap();
    assert_eq!(schema["$schema"], "http://json-schema.org/draft-07/schema#");
    jsonschema::validator_for(&schema).unwrap()
}

fn accepts(validator: &Validator, document: &Document) -> bool {
    if scenario::is_scenario(document) {
        return scenario::read(document).is_ok();
    }
    validator.validate_document(document).findings.iter().all(|finding| finding.severity != Severity::Error)
}

/// Manifests that hold as much as can be, and all of the repository that have a schema.
fn samples() -> Vec<(String, Value)> {
    let rich = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cases/rich");
    let loaded = manifests::load(&[rich, root().join("manifests/quickstart"), root().join("manifests/scenarios")]);
    let mut samples = Vec::new();
    for source in &loaded.files {
        for document in &source.parsed().documents {
            let kind = document.value["kind"].as_str().unwrap_or("config").to_owned();
            if napkeeper(&["schema", &kind]).status.success() {
                samples.push((kind, document.value.clone()));
            }
        }
    }
    samples
}

/// A stream of numbers that look random; the constants are those of Knuth's MMIX.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % n.max(1)
    }

    fn value(&mut self) -> Value {
        let values = [
            json!(null),
            json!(0),
            json!(1),
            json!(10),
            json!(50),
            json!(50.0),
            json!(-1),
            json!(2.5),
            json!(1e30),
            json!(true),
            json!(""),
            json!("a"),
            json!("10m"),
            json!("1h30m"),
            json!("Never"),
            json!("100%"),
            json!("4Gi"),
            json!("In"),
            json!("Exists"),
            json!("Default"),
            json!([]),
            json!({}),
            json!([null]),
            json!(["a", "a"]),
            json!({ "a": "b" }),
            json!({ "a": null }),
            json!("2026-11-21T08:00:00Z"),
            json!("0 9 * * 1-5"),
            json!("é\n"),
        ];
        values[self.below(values.len())].clone()
    }

    /// Changes something somewhere.
    fn change(&mut self, value: &mut Value) {
        let deeper = self.below(4) > 0;
        match value {
            Value::Object(map) if deeper && !map.is_empty() => {
                let key = map.keys().nth(self.below(map.len())).unwrap().clone();
                match self.below(12) {
                    0 => drop(map.shift_remove(&key)),
                    1 => drop(map.insert(key, Value::Null)),
                    2 => drop(map.insert(format!("{key}s"), json!("a"))),
                    _ => self.change(map.get_mut(&key).unwrap()),
                }
            }
            Value::Array(items) if deeper && !items.is_empty() => {
                let i = self.below(items.len());
                match self.below(8) {
                    0 => drop(items.remove(i)),
                    1 => items.push(items[i].clone()),
                    _ => self.change(&mut items[i]),
                }
            }
            _ => *value = self.value(),
        }
    }
}

#[test]
fn a_schema_accepts_everything_that_the_engine_accepts() {
    let validator = Validator::embedded().unwrap();
    let together = schema(&[]);
    let mut chance = Random(1);
    let mut kinds = std::collections::BTreeSet::new();
    let (mut accepted, mut refused) = (0, 0);
    for (kind, sample) in samples() {
        let schema = schema(&[&kind]);
        for round in 0..ROUNDS {
            let mut value = sample.clone();
            (0..round % 4).for_each(|_| chance.change(&mut value));
            let name = if kind == "config" { "napkeeper.yaml" } else { "t.yaml" };
            let document = Document::without_text(name, value);
            let of_kind = kind == "config" || document.value["kind"] == kind.as_str();
            if of_kind && accepts(&validator, &document) {
                accepted += 1;
                kinds.insert(kind.clone());
                for (schema, name) in [(&schema, kind.as_str()), (&together, "together")] {
                    // A kind of the same name in another group does not count.
                    let is_ours = document.value["apiVersion"]
                        .as_str()
                        .is_some_and(|v| v.contains("karpenter") || v.contains("napkeeper"));
                    let error = schema
                        .iter_errors(&document.value)
                        .next()
                        .filter(|_| is_ours || kind == "config" && name != "together");
                    assert!(
                        error.is_none(),
                        "{name}: {} at {}: {}",
                        error.as_ref().unwrap(),
                        error.as_ref().unwrap().instance_path(),
                        document.value
                    );
                }
            } else {
                refused += usize::from(!schema.is_valid(&document.value));
            }
        }
    }
    assert_eq!(kinds.len(), 7, "{kinds:?}");
    assert!(accepted > 2000, "only {accepted} were accepted: nothing is shown");
    assert!(refused > 1000, "only {refused} were refused by a schema: it says nothing");
}

#[test]
fn a_schema_finds_common_mistakes() {
    let pool: Value = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": "a" },
        "spec": { "template": { "spec": {
            "nodeClassRef": { "group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "a" }, "requirements": [],
        } } },
    });
    let together = schema(&[]);
    assert!(together.is_valid(&pool));
    let wrong = |change: fn(&mut Value)| {
        let mut pool = pool.clone();
        change(&mut pool);
        assert!(!together.is_valid(&pool), "{pool}");
        assert!(!schema(&["nodepool"]).is_valid(&pool), "{pool}");
    };
    wrong(|p| p["spec"]["disruption"] = json!({ "consolidationPolicy": "WhenUnderutilized" }));
    wrong(|p| p["spec"]["weihgt"] = json!(10));
    wrong(|p| p["spec"]["weight"] = json!(101));
    wrong(|p| p["spec"]["template"]["spec"]["nodeClassRef"] = json!({ "name": "a" }));
    wrong(|p| p["apiVersion"] = json!("karpenter.sh/v1beta1"));
    let other = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "spec": 1 });
    assert!(together.is_valid(&other), "other kinds are not looked at");
    let output = napkeeper(&["schema", "NodePol"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("did you mean NodePool?"));
}

#[test]
fn the_schema_of_scenarios_knows_every_step() {
    let schema: Value = serde_json::from_str(&printed(&["schema", "scenario"])).unwrap();
    let step = &schema["properties"]["spec"]["properties"]["steps"]["items"]["properties"];
    let known: std::collections::BTreeSet<&str> = step.as_object().unwrap().keys().map(String::as_str).collect();
    let named = napkeeper_sim::world::Action::NAMES.into_iter().chain(["at", "every", "until"]);
    assert_eq!(known, named.collect());
}
