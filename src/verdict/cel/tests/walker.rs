//! Rules of definitions over objects: where they run, and what they see.

use crate::cel::{Reason, Rules};
use serde_json::{Value, json};

/// Violations in `spec`, as `path: message`.
fn check(spec: &Value, new: &Value) -> Vec<String> {
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let rules = Rules::compile(&schema).unwrap_or_else(|e| panic!("{e}"));
    let found = rules.check(&json!({"spec": new}));
    found.into_iter().map(|f| format!("{}: {}", f.path, f.message)).collect()
}

#[test]
fn objects_come_out_as_on_the_api_server() {
    let scenarios: Vec<Value> = serde_json::from_str(include_str!("scenarios.json")).unwrap();
    assert!(scenarios.len() > 8);
    for scenario in scenarios {
        let schema = json!({"type": "object", "properties": {"spec": scenario["schema"]}});
        let found = Rules::compile(&schema).unwrap().check(&json!({"spec": scenario["new"]}));
        let mut found: Vec<(String, String)> =
            found.into_iter().map(|f| (f.path.to_string(), format!("FieldValue{:?}", f.reason))).collect();
        let mut expected: Vec<(String, String)> = serde_json::from_value(scenario["causes"].clone()).unwrap();
        // The server writes a key of a map in brackets, and a field with a dot without.
        for (path, _) in found.iter_mut().chain(&mut expected) {
            *path = path.replace("[x.y]", ".x.y").replace("map[x]", "map.x").replace("map[y]", "map.y");
        }
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{}", scenario["name"]);
    }
}

fn text_with(rules: &[&str]) -> Value {
    let rules: Vec<Value> = rules.iter().map(|rule| json!({"rule": rule, "message": rule})).collect();
    json!({"type": "string", "x-kubernetes-validations": rules})
}

#[test]
fn transition_rules_apply_to_new_objects_only_with_optional_old_self() {
    let rule = json!({"type": "string", "x-kubernetes-validations": [
        {"rule": "self == oldSelf", "message": "changed"},
        {"rule": "oldSelf.hasValue() || self == 'first'", "message": "begin with first", "optionalOldSelf": true},
        {"rule": "oldSelf.optMap(o, o != self).orValue(true)", "message": "change it", "optionalOldSelf": true},
    ]});
    let spec = json!({"type": "object", "properties": {"a": rule}});
    assert_eq!(check(&spec, &json!({"a": "x"})), ["spec.a: begin with first"]);
    assert_eq!(check(&spec, &json!({"a": "first"})), Vec::<String>::new());
}

#[test]
fn messages_reasons_and_paths() {
    let spec = json!({"type": "object", "properties": {"n": {"type": "integer"}, "x.y": {"type": "string"}},
    "x-kubernetes-validations": [
        {"rule": "self.n > 5"},
        {"rule": "self.n > 6", "message": " trimmed "},
        {"rule": "self.n > 7", "message": "plain", "messageExpression": "'n is ' + string(self.n)"},
        {"rule": "self.n > 8", "message": "plain", "messageExpression": "self.x__dot__y"},
        {"rule": "self.n > 9", "message": "plain", "messageExpression": "'two\\nlines'"},
        {"rule": "has(self.x__dot__y)", "message": "give it", "reason": "FieldValueRequired", "fieldPath": "['x.y']"},
        {"rule": "self.n > 9", "message": "no", "reason": "FieldValueForbidden", "fieldPath": ".n"},
    ]});
    assert_eq!(
        check(&spec, &json!({"n": 1})),
        [
            "spec: failed rule: self.n > 5",
            "spec: trimmed",
            "spec: n is 1",
            "spec: plain",
            "spec: plain",
            "spec[x.y]: give it",
            "spec.n: no"
        ]
    );
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let found = Rules::compile(&schema).unwrap().check(&json!({"spec": {"n": 1}}));
    let reasons: Vec<Reason> = found.iter().map(|f| f.reason).collect();
    assert_eq!(reasons[4..], [Reason::Invalid, Reason::Required, Reason::Forbidden]);
}

#[test]
fn rules_see_declared_fields_only() {
    let see = |rule: &str| {
        json!({"type": "object", "x-kubernetes-validations": [{"rule": rule, "message": "no"}], "properties": {
            "nullable": {"type": "string", "nullable": true},
            "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "whole": {"type": "integer"},
            "embedded": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
            "list": {"type": "array", "items": {"type": "object", "properties": {"s":
                {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}}}},
        }})
    };
    let object = json!({"nullable": null, "open": {"x": 1}, "whole": 1.0, "list": [{"s": ["a", "b"]}],
        "embedded": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}}});
    for (rule, holds) in [
        ("!has(self.nullable)", true),
        ("has(self.open)", true),
        ("!has(self.open.x)", true),
        ("self.embedded.kind == 'Pod' && self.embedded.metadata.name == 'p'", true),
        ("self.list == self.list", true),
        ("self.list[0].s == ['b', 'a']", true),
    ] {
        assert_eq!(check(&see(rule), &object).is_empty(), holds, "{rule}");
    }
    // As on a real API server: even `has()` fails.
    for rule in ["self.whole == 1", "has(self.whole)", "!has(self.whole)"] {
        let found = check(&see(rule), &object);
        assert_eq!(found, ["spec: invalid data, expected int, got float64 evaluating rule: no"], "{rule}");
    }
}

#[test]
fn rules_of_the_whole_object_and_of_all_of() {
    let schema = json!({"type": "object",
    "x-kubernetes-validations": [{"rule": "self.metadata.name == 'a' && self.kind == 'K'", "message": "root"}],
    "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer"}}, "allOf": [
        {"x-kubernetes-validations": [{"rule": "self.n > 1", "message": "all"}]},
        {"properties": {"n": {"x-kubernetes-validations": [{"rule": "self > 2", "message": "deep"}]}}},
    ]}}});
    let rules = Rules::compile(&schema).unwrap();
    let found = rules.check(&json!({"kind": "K", "metadata": {"name": "b"}, "spec": {"n": 1}}));
    let found: Vec<String> = found.into_iter().map(|f| format!("{}: {}", f.path, f.message)).collect();
    assert_eq!(found, [": root", "spec: all", "spec.n: deep"]);
    assert!(Rules::compile(&json!({"type": "object"})).unwrap().is_empty());
}

#[test]
fn a_rule_that_does_not_compile_names_its_schema_path() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "array", "items": text_with(&["self +"])}}});
    let error = Rules::compile(&schema).unwrap_err().to_string();
    assert!(error.contains("a[*]") && error.contains("self +"), "{error}");
    for bad in ["nothing(self)", "other == 1", "self.matches('(')", "self == duration('x')"] {
        let schema = json!({"type": "object", "properties": {"a": text_with(&[bad])}});
        assert!(Rules::compile(&schema).is_err(), "{bad}");
    }
}

#[test]
fn an_object_that_takes_too_long_ends_with_one_finding() {
    let spec = json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "integer"}}},
    "x-kubernetes-validations": [
        {"rule": "self.l.all(a, self.l.all(b, self.l.all(c, a + b + c >= 0)))", "message": "one"},
        {"rule": "false", "message": "two"},
    ]});
    let found = check(&spec, &json!({"l": vec![1; 500]}));
    assert_eq!(found.len(), 1);
    assert!(found[0].ends_with("evaluating rule: one"), "{found:?}");
}

/// How long 5,000 objects of some 60 values take with 30 rules each. It prints the time and asserts nothing.
#[test]
#[ignore = "a measurement"]
fn five_thousand_objects_with_thirty_rules() {
    let key: Vec<Value> = (0..6)
        .map(|n| json!({"rule": format!("self in ['a', 'b{n}'] || self.find('^([^/]+)').endsWith('.io') || self != 'c'")}))
        .collect();
    let whole: Vec<Value> = (0..24)
        .map(|n| json!({"rule": format!("self.requirements.all(r, r.operator != 'In' || size(r.values) > 0 && r.key != 'k{n}')")}))
        .collect();
    let spec = json!({"type": "object", "x-kubernetes-validations": whole, "properties": {
        "weight": {"type": "integer"},
        "requirements": {"type": "array", "items": {"type": "object", "properties": {
            "key": {"type": "string", "x-kubernetes-validations": key}, "operator": {"type": "string"},
            "values": {"type": "array", "items": {"type": "string"}}}}}}});
    let rules = Rules::compile(&json!({"type": "object", "properties": {"spec": spec}})).unwrap();
    let requirement = |n: usize| json!({"key": format!("example.io/{n}"), "operator": "In", "values": ["a", "b", "c"]});
    let object = json!({"spec": {"weight": 5, "requirements": (0..8).map(requirement).collect::<Vec<_>>()}});
    let start = std::time::Instant::now();
    let found: usize = (0..5_000).map(|_| rules.check(&object).len()).sum();
    println!("{found} findings in 5,000 objects after {:?}", start.elapsed());
}
