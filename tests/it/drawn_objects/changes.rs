//! Oddities of an object outside of its own schema: metadata, kind, version, status.

use super::rule_breaks::set;
use serde_json::{Value, json};

/// A change of an object: a label for people, and what to put where, in order; null takes away.
pub(crate) type Change = (String, Vec<(String, Value)>);

/// Changes by `path = value`, where the value null is really put there.
fn put(path: &str, values: &[Value]) -> Vec<Change> {
    values.iter().map(|value| (format!("{path} := {}", short(value)), vec![(path.to_owned(), value.clone())])).collect()
}

/// The longest text of a value.
const LONGEST: usize = 120;

/// A value for people, cut where it is long.
pub(crate) fn short(value: &Value) -> String {
    let text = start_of(value).to_string();
    if text.chars().count() > LONGEST { text.chars().take(LONGEST - 3).chain("...".chars()).collect() } else { text }
}

/// What a value begins with: as much as can be seen of it.
fn start_of(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(text.chars().take(LONGEST).collect()),
        Value::Array(items) => items.iter().take(LONGEST).map(start_of).collect(),
        Value::Object(map) => map.iter().take(LONGEST).map(|(key, value)| (key.clone(), start_of(value))).collect(),
        _ => value.clone(),
    }
}

/// Makes a change. Here null is a value; a path that ends in `!` is taken away.
pub(crate) fn make(object: &mut Value, change: &Change) {
    for (path, value) in &change.1 {
        match path.strip_suffix('!') {
            Some(path) => set(object, path, &Value::Null),
            None if value.is_null() => {
                // To put null where null means to take away: put anything, then null in its field.
                let pointer = format!("/{}", path.replace('.', "/"));
                set(object, path, &json!(0));
                if let Some(field) = object.pointer_mut(&pointer) {
                    *field = Value::Null;
                }
            }
            None => set(object, path, value),
        }
    }
}

/// True for a change of the object's kind. The API server checks such an object by the kind in the URL, which our
/// engine does not have. So only the kind of a valid object is changed.
pub(crate) fn is_of_kind(change: &Change) -> bool {
    change.1.iter().any(|(path, _)| path.trim_end_matches('!') == "kind")
}

/// Everything that is tried on any kind.
pub(crate) fn changes() -> Vec<Change> {
    let mut all = names();
    all.extend(maps("metadata.labels"));
    all.extend(maps("metadata.annotations"));
    all.extend(references());
    all.extend(rest());
    all.extend(top());
    all
}

fn names() -> Vec<Change> {
    let texts = [
        "", "UPPER", "a.b", "a..b", "-a", "a-", "a_b", "é", ".", "..", "a/b", "a%b", " a", "a\n", "0", "a.-b",
        "default",
    ];
    let mut values: Vec<Value> = texts.iter().map(|text| json!(text)).collect();
    values.extend([63, 64, 253, 254].map(|n| json!("n".repeat(n))));
    values.extend([json!(5), json!(true), json!([]), json!({}), Value::Null, json!(1.5)]);
    let mut all = put("metadata.name", &values);
    all.push(("no name".to_owned(), vec![("metadata.name!".to_owned(), Value::Null)]));
    for value in values {
        let label = format!("no name, generateName := {}", short(&value));
        let changes =
            vec![("metadata.name!".to_owned(), Value::Null), ("metadata.generateName".to_owned(), value.clone())];
        all.push((label, changes));
        if value == json!("UPPER") || value == json!("a-") || value == json!("") {
            all.extend(put("metadata.generateName", &[value]));
        }
    }
    all.extend(put("metadata.namespace", &[json!("default"), json!(""), json!("Bad_"), json!(5), Value::Null]));
    all
}

fn maps(path: &str) -> Vec<Change> {
    let one = |key: &str, value: Value| json!({ key: value });
    let mut values = vec![Value::Null, json!({}), json!([]), json!("x"), json!(5), json!([{ "a": "b" }])];
    let keys = [
        "a",
        "",
        "/a",
        "a/",
        "a/b/c",
        "A",
        "Upper.x/a",
        "a_b/c",
        "a.b/c",
        "-a",
        "a-",
        "a b",
        "é",
        "karpenter.sh/nodepool",
        "a..b/c",
    ];
    values.extend(keys.iter().map(|key| one(key, json!("x"))));
    values.extend([63, 64].map(|n| one(&"k".repeat(n), json!("x"))));
    values.extend([253, 254].map(|n| one(&format!("{}/k", "p".repeat(n)), json!("x"))));
    let texts = ["", "a", "-a", "a-", "a b", "a/b", "é", "a.b_c-d", "a\n"];
    values.extend(texts.iter().map(|text| one("a", json!(text))));
    values.extend([63, 64].map(|n| one("a", json!("v".repeat(n)))));
    values.extend(
        [Value::Null, json!(5), json!(1.5), json!(true), json!([]), json!({}), json!(["x"])]
            .map(|value| one("a", value)),
    );
    values.push(json!({ "a b": "a b", "c d": "c d", "ok": "ok" }));
    if path.ends_with("annotations") {
        // The limit is on all of them together: 262,144 bytes.
        values.extend([262_143, 262_144].map(|n| one("a", json!("v".repeat(n)))));
    }
    put(path, &values)
}

fn references() -> Vec<Change> {
    let owner = |key: &str, value: Value| {
        let mut owner = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u" });
        owner[key] = value;
        owner
    };
    let plain = owner("name", json!("a"));
    let mut two = json!([owner("controller", json!(true)), owner("controller", json!(true))]);
    two[1]["uid"] = json!("v");
    let values = [
        Value::Null,
        json!([]),
        json!("x"),
        json!({}),
        json!([null]),
        json!([5]),
        json!([{}]),
        json!([plain]),
        json!([plain, plain]),
        json!([owner("apiVersion", json!(""))]),
        json!([owner("apiVersion", json!("a/b/c"))]),
        json!([owner("apiVersion", json!("apps/v1"))]),
        json!([owner("kind", json!(""))]),
        json!([owner("name", json!(""))]),
        json!([owner("uid", json!(""))]),
        json!([owner("uid", Value::Null)]),
        json!([owner("uid", json!(5))]),
        json!([owner("kind", json!("Event"))]),
        json!([owner("controller", json!(true))]),
        json!([owner("controller", json!("yes"))]),
        json!([owner("controller", json!(true)), owner("controller", json!(true))]),
        two.clone(),
        json!([owner("blockOwnerDeletion", json!(true))]),
        json!([owner("unknown", json!(1))]),
        json!([owner("controller", Value::Null)]),
    ];
    let mut all = put("metadata.ownerReferences", &values);
    let finalizers = [
        Value::Null,
        json!([]),
        json!(["x"]),
        json!(["a.b/c"]),
        json!(["bad!"]),
        json!([""]),
        json!([null]),
        json!([5]),
        json!("x"),
        json!(["a.b/c", "a.b/c"]),
        json!(["karpenter.sh/termination"]),
        json!(["foregroundDeletion"]),
        json!(["orphan", "foregroundDeletion"]),
        json!(["a/b/c"]),
        json!(["A.b/c"]),
        json!(["f".repeat(64)]),
    ];
    all.extend(put("metadata.finalizers", &finalizers));
    all
}

fn rest() -> Vec<Change> {
    let mut all = Vec::new();
    for (field, values) in [
        ("uid", vec![json!("x"), json!(""), json!(5), Value::Null]),
        ("generation", vec![json!(5), json!(-1), json!("x"), json!(1.5), json!(2.0), Value::Null]),
        (
            "creationTimestamp",
            vec![Value::Null, json!("x"), json!("2026-01-02T03:04:05Z"), json!(5), json!(""), json!("2026-01-02")],
        ),
        ("deletionTimestamp", vec![Value::Null, json!("x"), json!("2026-01-02T03:04:05Z"), json!(true)]),
        ("deletionGracePeriodSeconds", vec![Value::Null, json!(5), json!("x"), json!(1.5)]),
        ("selfLink", vec![json!("x"), json!(5), Value::Null]),
        ("managedFields", vec![json!([]), Value::Null, json!("x"), json!([5])]),
        ("clusterName", vec![json!("x")]),
        ("unknownField", vec![json!(1), Value::Null]),
        ("Name", vec![json!("x")]),
        ("Labels", vec![json!({})]),
    ] {
        all.extend(put(&format!("metadata.{field}"), &values));
    }
    all.extend(put("metadata", &[Value::Null, json!({}), json!([]), json!("x"), json!(5)]));
    all.push(("no metadata".to_owned(), vec![("metadata!".to_owned(), Value::Null)]));
    all
}

fn top() -> Vec<Change> {
    let mut all = Vec::new();
    all.extend(put(
        "apiVersion",
        &["", "v1", "karpenter.sh/v2", "example.com/v1", "KARPENTER.SH/v1", "a/b/c"].map(|text| json!(text)),
    ));
    all.extend(put("apiVersion", &[Value::Null, json!(5), json!([])]));
    all.extend(put("kind", &["", "nodepool", "Nothing", "List"].map(|text| json!(text))));
    all.extend(put("kind", &[Value::Null, json!(5), json!([])]));
    all.extend(put(
        "status",
        &[Value::Null, json!({}), json!([]), json!("x"), json!({ "unknownField": 1 }), json!({ "conditions": 5 })],
    ));
    all.extend(put(
        "status",
        &[json!({ "conditions": [{ "type": "Ready", "unknownField": 1 }] }), json!({ "conditions": [{}, {}] })],
    ));
    all.extend(put("spec", &[Value::Null, json!({}), json!([]), json!("x"), json!(5), json!(true)]));
    all.push((
        "another version and an unknown field of metadata".to_owned(),
        vec![("apiVersion".to_owned(), json!("karpenter.sh/v2")), ("metadata.unknownField".to_owned(), json!(1))],
    ));
    all.extend(put("unknownField", &[json!(1), Value::Null, json!({ "a": 1 })]));
    all.extend(put("Spec", &[json!({})]));
    for key in ["apiVersion", "kind", "spec"] {
        all.push((format!("no {key}"), vec![(format!("{key}!"), Value::Null)]));
    }
    all
}
