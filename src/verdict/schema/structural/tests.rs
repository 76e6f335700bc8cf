//! Pitfalls of the API server, each as it was measured.

use crate::schema::crds::CrdSchemas;
use crate::schema::structural::fault::MAX_KEPT;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::LazyLock;

/// A definition with one field `a` in its spec.
pub(crate) fn definitions(schema: &Value) -> CrdSchemas {
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "things.example.com" },
        "spec": { "group": "example.com", "names": { "kind": "Thing", "plural": "things" }, "scope": "Cluster",
            "versions": [{ "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object", "properties": {
                    "spec": { "type": "object", "properties": { "a": schema },
                        "x-kubernetes-validations": [{ "rule": "true" }] },
                    "status": { "type": "object", "properties": { "n": { "type": "integer" } } } } } } }] },
    });
    CrdSchemas::from_crds("test", [crd].iter()).unwrap()
}

pub(crate) fn thing(spec: &Value) -> Value {
    json!({ "apiVersion": "example.com/v1", "kind": "Thing", "metadata": { "name": "a" }, "spec": spec })
}

/// `code field reason, ...` of a new object whose field `a` is this.
fn answer(schema: &Value, value: &Value) -> String {
    let verdict = definitions(schema).create(&thing(&json!({ "a": value })));
    let causes = verdict.causes.iter().map(|c| format!("{} {}", c.field, c.reason.as_str().replace("FieldValue", "")));
    let faults: Vec<String> = causes.chain(verdict.unknown_fields.iter().cloned()).collect();
    format!("{} {}", verdict.code, faults.join(", ")).trim().to_owned()
}

fn assert_answers(schema: &Value, answers: &[(Value, &str)]) {
    for (value, expected) in answers {
        assert_eq!(answer(schema, value), *expected, "{value} by {schema}");
    }
}

#[test]
fn of_a_million_faults_or_unknown_fields_ten_thousand_are_kept() {
    let things = definitions(&json!({ "type": "array", "items": { "type": "object" } }));
    let answer = |item: Value| things.create(&thing(&json!({ "a": vec![item; 1_000_000] })));
    let (faults, unknown) = (answer(json!(0)), answer(json!({ "unknown": 0 })));
    // One cause more says that the rules were not evaluated.
    assert_eq!((faults.code, faults.causes.len()), (422, MAX_KEPT + 1));
    assert_eq!((unknown.code, unknown.unknown_fields.len()), (400, MAX_KEPT));
}

#[test]
fn integers_may_be_written_as_floats_and_have_ranges() {
    assert_answers(
        &json!({ "type": "integer", "format": "int32" }),
        &[
            (json!(1), "201"),
            (json!(1.0), "201"),
            (json!(1e2), "201"),
            (json!(1.5), "422 <nil> Invalid, spec.a TypeInvalid"),
            (json!("1"), "422 <nil> Invalid, spec.a TypeInvalid"),
            (json!(2_147_483_648_i64), "422 <nil> Invalid"),
            (json!(1e30), "422 <nil> Invalid, spec.a TypeInvalid"),
        ],
    );
}

#[test]
fn int_or_string_takes_whole_numbers_of_any_size_and_text() {
    let either = json!([{ "type": "integer" }, { "type": "string" }]);
    assert_answers(
        &json!({ "x-kubernetes-int-or-string": true, "anyOf": either, "pattern": "^[0-9]+%$" }),
        &[
            (json!(1), "201"),
            (json!(1.0), "201"),
            (json!(3_000_000_000_i64), "201"),
            (json!("10%"), "201"),
            (json!("10"), "422 spec.a Invalid"),
            (json!(1.5), "422 <nil> Invalid, spec.a TypeInvalid"),
            (json!(true), "422 <nil> Invalid, spec.a TypeInvalid"),
            (json!(null), "201"),
        ],
    );
}

#[test]
fn a_wrong_type_does_not_stop_the_other_keywords() {
    assert_answers(
        &json!({ "type": "string", "enum": ["b", "c"] }),
        &[(json!(1), "422 <nil> Invalid, spec.a TypeInvalid, spec.a NotSupported"), (json!("b"), "201")],
    );
    // String keywords of a list do not apply to its items, but to a string given instead of the list.
    assert_answers(
        &json!({ "type": "array", "items": { "type": "string" }, "maxLength": 2, "pattern": "^x$" }),
        &[
            (json!(["long enough"]), "201"),
            (json!("long"), "422 <nil> Invalid, spec.a TypeInvalid, spec.a TooLong"),
            (json!("y"), "422 <nil> Invalid, spec.a TypeInvalid, spec.a Invalid"),
        ],
    );
}

#[test]
fn lengths_count_characters_and_only_the_first_fault_of_a_string_is_reported() {
    assert_answers(
        &json!({ "type": "string", "maxLength": 2, "minLength": 1, "pattern": "^[a-zé]+$" }),
        &[
            (json!("éé"), "201"),
            (json!("ééé"), "422 <nil> Invalid, spec.a TooLong"),
            (json!(""), "422 spec.a Invalid"),
            (json!("1"), "422 spec.a Invalid"),
        ],
    );
}

#[test]
fn nulls_are_left_out_or_replaced_and_stay_in_lists() {
    let required = json!({ "type": "object", "required": ["b"], "properties": { "b": { "type": "string" },
        "n": { "type": "string", "nullable": true }, "d": { "type": "string", "default": "x" } } });
    assert_answers(
        &required,
        &[
            (json!({ "b": "x", "n": null, "d": null }), "201"),
            (json!({ "b": null }), "422 <nil> Invalid, spec.a.b Required"),
            (json!(null), "201"),
            (json!({}), "422 <nil> Invalid, spec.a.b Required"),
        ],
    );
    let list = json!({ "type": "array", "items": { "type": "string" } });
    assert_answers(&list, &[(json!([null]), "422 <nil> Invalid, spec.a[0] TypeInvalid")]);
}

#[test]
fn unknown_fields_count_wherever_they_are() {
    let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "properties": { "b": { "type": "object", "properties": {} } } });
    assert_answers(&open, &[(json!({ "c": { "d": 1 } }), "201"), (json!({ "b": { "c": null } }), "400 spec.a.b.c")]);
    let map = json!({ "type": "object", "additionalProperties": { "type": "object", "properties": {} } });
    assert_answers(&map, &[(json!({ "x/y": { "z": 1 } }), "400 spec.a.x/y.z")]);
    let list = json!({ "type": "array", "items": { "type": "object", "properties": {} } });
    assert_answers(&list, &[(json!([{}, { "z": 1 }]), "400 spec.a[1].z")]);
    // A map instead of a string, and maps in a list instead of a map, have no known fields.
    assert_answers(&json!({ "type": "string" }), &[(json!({ "z": 1 }), "400 spec.a.z")]);
    assert_answers(&map, &[(json!([{ "z": 1 }]), "400 spec.a[0].z")]);
}

#[test]
fn the_status_is_dropped_but_its_unknown_fields_are_not() {
    let definitions = definitions(&json!({ "type": "string" }));
    let mut object = thing(&json!({}));
    object["status"] = json!({ "n": "text" });
    assert_eq!(definitions.create(&object).code, 201);
    object["status"] = json!({ "m": 1 });
    assert_eq!(definitions.create(&object).unknown_fields, ["status.m"]);
}

#[test]
fn items_repeat_by_their_keys_after_defaulting() {
    let map = json!({ "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "p"],
        "items": { "type": "object", "required": ["k"], "properties": { "k": { "type": "string" },
            "p": { "type": "string", "default": "TCP" }, "v": { "type": "integer" } } } });
    assert_answers(
        &map,
        &[
            (json!([{ "k": "a" }, { "k": "a", "p": "UDP" }]), "201"),
            (json!([{ "k": "a" }, { "k": "a", "p": "TCP" }]), "422 spec.a[1] Duplicate"),
            (json!([{ "k": "a" }, { "k": "a" }, { "k": "a" }]), "422 spec.a[1] Duplicate"),
        ],
    );
    let set = json!({ "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "number" } });
    assert_answers(&set, &[(json!([1, 1.0]), "201"), (json!([1, 2, 1]), "422 spec.a[2] Duplicate")]);
}

#[test]
fn combined_schemas_name_no_field_and_explain_the_nearest_form() {
    let any = json!({ "type": "object", "properties": { "b": { "type": "string" }, "c": { "type": "string" } },
        "anyOf": [{ "required": ["b"] }, { "required": ["c"] }] });
    assert_answers(&any, &[(json!({ "c": "x" }), "201"), (json!({}), "422 <nil> Invalid, spec.a.b Required")]);
    let one = json!({ "type": "object", "properties": { "b": { "type": "string" }, "c": { "type": "string" } },
        "oneOf": [{ "required": ["b"] }, { "required": ["c"] }] });
    assert_answers(&one, &[(json!({ "b": "x", "c": "x" }), "422 <nil> Invalid"), (json!({ "b": "x" }), "201")]);
    let not = json!({ "type": "integer", "not": { "enum": [3] } });
    assert_answers(&not, &[(json!(3), "422 <nil> Invalid"), (json!(2), "201")]);
}

#[test]
fn skipped_rules_are_reported_only_if_there_are_rules() {
    let schema = json!({ "type": "object", "properties": { "spec": { "type": "integer" } } });
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "spec": { "group": "example.com", "names": { "kind": "Thing", "plural": "things" }, "scope": "Cluster",
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }] },
    });
    let definitions = CrdSchemas::from_crds("test", [crd].iter()).unwrap();
    let fields: Vec<String> = definitions.create(&thing(&json!("x"))).causes.into_iter().map(|c| c.field).collect();
    assert_eq!(fields, ["spec"]);
}

#[test]
fn a_repeated_owner_counts_once() {
    let owner = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u", "controller": true });
    let code = |other: &Value| {
        let mut object = thing(&json!({}));
        object["metadata"]["ownerReferences"] = json!([owner, other]);
        definitions(&json!({ "type": "string" })).create(&object).code
    };
    let mut another = owner.clone();
    another["uid"] = json!("v");
    assert_eq!((code(&owner), code(&another)), (201, 422));
}

#[test]
fn an_unknown_version_checks_only_metadata() {
    let mut object = thing(&json!({ "b": 1 }));
    object["apiVersion"] = json!("example.com/v2");
    object["metadata"]["b"] = json!(1);
    let verdict = definitions(&json!({ "type": "string" })).create(&object);
    assert_eq!((verdict.code, verdict.unknown_fields), (400, vec!["metadata.b".to_owned(), "spec".to_owned()]));
}

#[test]
fn errors_in_definitions_name_their_origin() {
    let error = CrdSchemas::embedded_at("v0.9").unwrap_err().to_string();
    assert_eq!(error, "no embedded CRD schemas for version v0.9; available: karpenter-v1.14, v1.14");
    assert!(CrdSchemas::embedded_at("1.14").unwrap().origin().contains(CrdSchemas::embedded_version()));
    assert_eq!(
        CrdSchemas::from_crds("crds", [].iter()).unwrap_err().to_string(),
        "crds: contains no CustomResourceDefinition"
    );
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "things.example.com" },
        "spec": { "group": "example.com", "names": { "kind": "Thing", "plural": "things" }, "versions": [{ "name": "v1",
            "served": true, "storage": true, "schema": { "openAPIV3Schema": { "type": "object", "properties": {
                "spec": { "type": "string", "pattern": "(?=a)" } } } } }] },
    });
    let error = CrdSchemas::from_crds("crds/things.yaml", [crd].iter()).unwrap_err().to_string();
    let expected = "crds/things.yaml: CRD things.example.com, version v1: properties[spec].pattern: ";
    assert!(error.starts_with(expected), "{error}");
}

/// Any JSON, not too deep.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-c0-9/.]{0,4}".prop_map(Value::from),
    ];
    let key = prop_oneof![
        Just("spec".to_owned()),
        Just("template".to_owned()),
        Just("metadata".to_owned()),
        Just("labels".to_owned()),
        Just("requirements".to_owned()),
        Just("limits".to_owned()),
        Just("disruption".to_owned()),
        Just("budgets".to_owned()),
        Just("replicas".to_owned()),
        Just("ownerReferences".to_owned()),
        "[a-c]{1,2}",
    ];
    leaf.prop_recursive(6, 40, 5, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((key.clone(), inner), 0..5)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics_and_storing_is_idempotent(object in any_json()) {
        static EMBEDDED: LazyLock<CrdSchemas> = LazyLock::new(|| CrdSchemas::embedded().unwrap());
        let named = |value: &Value| {
            let mut value = if value.is_object() { value.clone() } else { json!({}) };
            value["apiVersion"] = json!("karpenter.sh/v1");
            value["kind"] = json!("NodePool");
            value
        };
        let object = named(&object);
        let verdict = EMBEDDED.create(&object);
        let (_, version) = EMBEDDED.version("karpenter.sh", "NodePool", "v1").unwrap();
        let first = super::create(&object, &version.form);
        let again = super::create(&first.stored, &version.form);
        prop_assert_eq!(&again.stored, &first.stored);
        let reported = |result: &super::ValidationResult| result.faults.iter().map(|f| (f.field.clone(), f.reason)).collect::<Vec<_>>();
        prop_assert_eq!(reported(&again), reported(&first));
        prop_assert_eq!(verdict.code == 201, first.faults.is_empty() && first.unknown.is_empty() && first.unreadable.is_empty());
    }
}
