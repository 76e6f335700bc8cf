//! The objects that are put before both judges.

use super::bases::{self, Base};
use super::changes::{self, Change};
use super::fields::{Edit, Field, apply, fields, look, schema_of};
use super::random::Random;
use super::rule_breaks::{self, set};
use super::values::edits;
use serde_json::{Value, json};
use std::sync::LazyLock;

/// A create or an update of a stored object.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// Its origin, with the seed if there is one.
    pub(crate) label: String,
    /// An object of the kind and version of the request; the stored one for an update.
    pub(crate) about: Value,
    pub(crate) is_update: bool,
    pub(crate) object: Value,
}

/// One in how many edits at a field of this base is tried alone.
fn share(base: &str) -> usize {
    match base {
        "pool-full" | "claim-full" => 1,
        "class-full" | "sweep-full" => 3,
        "record-full" => 5,
        "older-full" | "pool-static" | "pool-odd" | "class-odd" => 16,
        _ => 10,
    }
}

/// How many objects with several changes at once.
const MIXED: u64 = 900;
/// How many pairs of broken rules.
const PAIRS: u64 = 400;

/// Bases of these kinds, and the schema of each.
fn known(crds: &[Value]) -> Vec<(Base, Vec<Field>)> {
    let bases = bases::all().into_iter();
    let with_paths = bases.map(|base| {
        let fields = fields(&schema_of(crds, &base.object));
        (base, fields)
    });
    with_paths.filter(|(_, fields)| !fields.is_empty()).collect()
}

/// All objects to make, of the kinds that these definitions have.
pub(crate) fn creates(crds: &[Value]) -> Vec<Case> {
    let bases = known(crds);
    let mut all = Vec::new();
    let mut add = |label: String, base: &Base, object: Value| {
        all.push(Case { label, about: base.object.clone(), is_update: false, object });
    };
    for (base, fields) in &bases {
        add(base.name.to_owned(), base, base.object.clone());
        for (label, object) in singles(base, fields) {
            add(label, base, object);
        }
        let is_main = ["pool-minimal", "class-minimal"].contains(&base.name);
        let changes = changes::changes();
        let changes = if is_main { changes } else { Random::new(7).some(changes, 12) };
        for change in changes {
            let mut object = base.object.clone();
            changes::make(&mut object, &change);
            add(format!("{}: {}", base.name, change.0), base, object);
        }
    }
    let base_of = |name: &str| bases.iter().find(|(base, _)| base.name == name);
    let examples = rule_breaks::examples();
    for example in &examples {
        if let Some((base, _)) = base_of(example.base) {
            add(format!("{}: {:?}", example.base, example.changes), base, example.object());
        }
    }
    for seed in 0..PAIRS {
        let mut chance = Random::new(seed);
        let Some(one) = chance.one(&examples) else { continue };
        let others: Vec<_> =
            examples.iter().filter(|other| other.base == one.base && other.refused != one.refused).collect();
        let (Some(other), Some((base, _))) = (chance.one(&others), base_of(one.base)) else { continue };
        let mut object = one.object();
        other.changes.iter().for_each(|(path, value)| set(&mut object, path, value));
        add(format!("pair, seed {seed}: {}: {:?} and {:?}", one.base, one.changes, other.changes), base, object);
    }
    for seed in 0..MIXED {
        let mut chance = Random::new(1_000_000 + seed);
        let Some((base, fields)) = chance.one(&bases) else { continue };
        let mut object = base.object.clone();
        let label = mix(&mut object, fields, &mut chance);
        add(format!("mixed, seed {seed}: {}: {label}", base.name), base, object);
    }
    all
}

/// Each field of a base changed alone.
fn singles(base: &Base, fields: &[Field]) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    let mut chance = Random::new(42);
    for field in fields {
        let in_status = field.path().starts_with("status");
        for which in [0, 1] {
            if which == 1 && !field.path().contains("[]") {
                continue;
            }
            let current = look(&base.object, &field.steps, which);
            let tried = edits(&field.schema, current, &mut chance);
            let n = share(base.name) * if in_status { 20 } else { 1 } * if which == 1 { 6 } else { 1 };
            for edit in chance.some(tried, n) {
                let mut object = base.object.clone();
                apply(&mut object, &field.steps, which, &edit);
                all.push((format!("{}: {} [{which}] {}", base.name, field.path(), describe(&edit)), object));
            }
        }
    }
    all
}

fn describe(edit: &Edit) -> String {
    match edit {
        Edit::Put(value) => format!(":= {}", changes::short(value)),
        Edit::Remove => "removed".to_owned(),
        Edit::Add(key, value) => format!("with {key:?}: {value}"),
    }
}

/// Changes of the whole object that may be among several.
static CHANGES: LazyLock<Vec<Change>> =
    LazyLock::new(|| changes::changes().into_iter().filter(|change| !changes::is_of_kind(change)).collect());

/// Two to four changes by chance.
fn mix(object: &mut Value, fields: &[Field], chance: &mut Random) -> String {
    let mut labels = Vec::new();
    for _ in 0..2 + chance.below(3) {
        if chance.below(8) == 0 {
            if let Some(change) = chance.one(&CHANGES) {
                changes::make(object, change);
                labels.push(change.0.clone());
            }
            continue;
        }
        let Some(field) = chance.one(fields) else { continue };
        let which = chance.below(3);
        let tried = edits(&field.schema, look(object, &field.steps, which), chance);
        if let Some(edit) = chance.one(&tried) {
            apply(object, &field.steps, which, edit);
            labels.push(format!("{} [{which}] {}", field.path(), describe(edit)));
        }
    }
    labels.join("; ")
}

/// Sound objects under names of their own.
pub(crate) fn sound(crds: &[Value]) -> Vec<Value> {
    let mut all: Vec<Value> = known(crds).into_iter().map(|(base, _)| base.object).collect();
    for (i, object) in all.iter_mut().enumerate() {
        object["metadata"] =
            json!({ "name": format!("stored-{i}"), "labels": { "a": "b" }, "finalizers": ["example.com/kept"] });
    }
    all
}

/// All changes of stored objects, given as the API server has them. `mixed`: how many objects with several changes of
/// each; `share`: of the single changes of each, one in how many.
pub(crate) fn updates(crds: &[Value], stored: &[Value], mixed: u64, share: usize) -> Vec<Case> {
    let mut all = Vec::new();
    for (i, old) in stored.iter().enumerate() {
        let mut plain = old.clone();
        if let Some(meta) = plain["metadata"].as_object_mut() {
            meta.remove("managedFields");
        }
        let name = old["metadata"]["name"].as_str().unwrap_or_default();
        let mut add = |label: String, object: Value| {
            let label = format!("update of {name}: {label}");
            all.push(Case { label, about: old.clone(), is_update: true, object });
        };
        add("nothing".to_owned(), plain.clone());
        let fields = fields(&schema_of(crds, old));
        let mut chance = Random::new(3_000_000 + u64::try_from(i).unwrap_or_default());
        for field in &fields {
            let tried = edits(&field.schema, look(&plain, &field.steps, 0), &mut chance);
            for edit in chance.some(tried, share) {
                let mut object = plain.clone();
                apply(&mut object, &field.steps, 0, &edit);
                add(format!("{} {}", field.path(), describe(&edit)), object);
            }
        }
        for change in chance.some(changes::changes().into_iter().chain(only_updates()).collect(), share) {
            let mut object = plain.clone();
            changes::make(&mut object, &change);
            add(change.0.clone(), object);
        }
        for seed in 0..mixed {
            let mut chance = Random::new(4_000_000 + seed + 1_000 * u64::try_from(i).unwrap_or_default());
            let mut object = plain.clone();
            let label = mix(&mut object, &fields, &mut chance);
            add(format!("mixed, seed {seed}: {label}"), object);
        }
    }
    for change in only_updates() {
        let Some(old) = stored.first() else { break };
        let mut object = old.clone();
        changes::make(&mut object, &change);
        all.push(Case { label: change.0.clone(), about: old.clone(), is_update: true, object });
    }
    all.extend(transitions(stored));
    all
}

/// What only makes sense of an object that is stored.
fn only_updates() -> Vec<Change> {
    let mut all = Vec::new();
    for (path, value) in [
        ("metadata.resourceVersion!", Value::Null),
        ("metadata.resourceVersion", json!("")),
        ("metadata.resourceVersion", json!("1")),
        ("metadata.resourceVersion", json!(5)),
        ("metadata.uid!", Value::Null),
        ("metadata.uid", json!("00000000-0000-0000-0000-000000000000")),
        ("metadata.creationTimestamp!", Value::Null),
        ("metadata.creationTimestamp", json!("2020-01-01T00:00:00Z")),
        ("metadata.generation", json!(99)),
        ("metadata.deletionTimestamp", json!("2020-01-01T00:00:00Z")),
        ("metadata.finalizers!", Value::Null),
        ("metadata.finalizers", json!(["unqualified"])),
        ("metadata.finalizers", json!(["example.com/kept", "example.com/more"])),
        ("metadata.name", json!("another")),
        ("metadata.labels!", Value::Null),
        ("metadata.labels", json!({ "a": "not valid!" })),
    ] {
        all.push((format!("{path} := {value}"), vec![(path.to_owned(), value)]));
    }
    all
}

/// What may become of a field that a rule compares with its former value, where an object has it.
fn transitions(stored: &[Value]) -> Vec<Case> {
    let rows = [
        ("spec.replicas", json!(5)),
        ("spec.replicas", json!(0)),
        ("spec.replicas!", Value::Null),
        ("spec.template.spec.nodeClassRef.group", json!("example.com")),
        ("spec.template.spec.nodeClassRef.kind", json!("Other")),
        ("spec.template.spec.nodeClassRef.name", json!("other")),
        ("spec.template.spec.nodeClassRef!", Value::Null),
        ("spec.template.spec.requirements", json!([])),
        ("spec.disruption!", Value::Null),
        ("spec.disruption.budgets[1].reasons", json!(["Underutilized", "Drifted"])),
        ("spec.nodeClassRef.name", json!("other")),
        ("spec.expireAfter", json!("1h")),
        ("spec.requirements[0].values", json!(["arm64"])),
        ("spec.resources!", Value::Null),
        ("spec!", Value::Null),
        ("spec.localDNS.kubeDNSOverrides[1].cacheDuration", json!("2h")),
    ];
    let mut all = Vec::new();
    for old in stored {
        for (path, value) in &rows {
            let mut object = old.clone();
            let change = (format!("{path} := {value}"), vec![((*path).to_owned(), value.clone())]);
            // Only what the kind has: anything else is an unknown field, met often enough.
            let parent = path.trim_end_matches('!').rsplit_once('.').map_or("", |(parent, _)| parent);
            let parent = format!("/{}", parent.replace(']', "").replace(['.', '['], "/"));
            if parent != "/" && old.pointer(&parent).is_none() {
                continue;
            }
            changes::make(&mut object, &change);
            let label = format!("transition of {}: {}", old["metadata"]["name"], change.0);
            all.push(Case { label, about: old.clone(), is_update: true, object });
        }
    }
    all
}
