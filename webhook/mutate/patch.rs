//! Checks patches before they are sent.
//!
//! The API server fails the request of a patch that does not apply, or whose result is wrong, whatever the failure policy
//! is. So every patch is applied here first, and only a patch whose result was checked is sent.

use super::parse_pod;
use json_patch::{PatchOperation, patch_unsafe};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Most bytes of all annotations of an object, keys and values together (`TotalAnnotationSizeLimitB` of Kubernetes).
const MAX_ANNOTATION_BYTES: usize = 256 << 10;

/// Why a patch is not sent.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidPatch {
    /// It is no JSON patch, or does not apply.
    #[error("the patch does not apply: {0}")]
    Apply(String),
    /// What it makes is no pod.
    #[error("the patched object is not a valid pod: {0}")]
    NotAPod(String),
    /// The annotations are no texts.
    #[error("an annotation would not be a string")]
    NonStringAnnotation,
    /// The annotations are larger than an object may have.
    #[error("the annotations would have {0} bytes, more than the limit of {MAX_ANNOTATION_BYTES}")]
    AnnotationsTooLarge(usize),
}

/// Applies a patch of annotations to those of its pod, and checks the result.
pub(crate) fn check_annotation_patch(
    annotations: Option<&BTreeMap<String, String>>,
    patch: &[Value],
) -> Result<(), InvalidPatch> {
    // The rest of the pod stays as it came.
    let metadata = annotations.map_or_else(|| json!({}), |annotations| json!({ "annotations": annotations }));
    check_annotations(&apply_patch(json!({ "metadata": metadata }), patch)?)
}

/// Applies a patch to its pod, and checks the result.
pub(crate) fn check_patch(object: &Value, patch: &[Value]) -> Result<(), InvalidPatch> {
    let result = apply_patch(object.clone(), patch)?;
    check_annotations(&result)?;
    parse_pod(&result.to_string()).map_err(|e| InvalidPatch::NotAPod(e.to_string()))?;
    Ok(())
}

fn apply_patch(mut object: Value, patch: &[Value]) -> Result<Value, InvalidPatch> {
    let operations: Result<Vec<_>, _> = patch.iter().map(PatchOperation::deserialize).collect();
    let operations = operations.map_err(|e| InvalidPatch::Apply(e.to_string()))?;
    patch_unsafe(&mut object, &operations).map_err(|e| InvalidPatch::Apply(e.to_string()))?;
    Ok(object)
}

fn check_annotations(object: &Value) -> Result<(), InvalidPatch> {
    let annotations = match &object["metadata"]["annotations"] {
        Value::Null => return Ok(()),
        Value::Object(annotations) => annotations,
        _ => return Err(InvalidPatch::NonStringAnnotation),
    };
    let mut size = 0_usize;
    for (key, value) in annotations {
        size = size
            .saturating_add(key.len())
            .saturating_add(value.as_str().ok_or(InvalidPatch::NonStringAnnotation)?.len());
    }
    if size > MAX_ANNOTATION_BYTES { Err(InvalidPatch::AnnotationsTooLarge(size)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(path: &str, value: Value) -> Vec<Value> {
        vec![json!({ "op": "add", "path": path, "value": value })]
    }

    #[test]
    fn only_what_applies_and_makes_a_pod_is_sent() {
        let pod = json!({ "metadata": { "name": "a" }, "spec": { "containers": [{ "name": "c" }] } });
        assert_eq!(check_patch(&pod, &add("/metadata/annotations", json!({ "a": "b" }))), Ok(()));
        assert_eq!(check_patch(&pod, &add("/spec/tolerations", json!([{ "key": "a" }]))), Ok(()));
        let fails = |patch: &[Value]| check_patch(&pod, patch).unwrap_err();
        assert!(matches!(fails(&add("/metadata/annotations/a", json!("b"))), InvalidPatch::Apply(_)), "no annotations");
        assert!(matches!(fails(&add("/spec/tolerations/-", json!({}))), InvalidPatch::Apply(_)), "no tolerations");
        assert!(matches!(fails(&[json!({ "op": "grow", "path": "/a" })]), InvalidPatch::Apply(_)));
        assert_eq!(fails(&add("/metadata/annotations", json!({ "a": 1 }))), InvalidPatch::NonStringAnnotation);
        assert_eq!(fails(&add("/metadata/annotations", json!("a"))), InvalidPatch::NonStringAnnotation);
        assert!(matches!(fails(&add("/spec/tolerations", json!("much"))), InvalidPatch::NotAPod(_)));
        let large = json!({ "a": "b".repeat(MAX_ANNOTATION_BYTES) });
        assert_eq!(
            fails(&add("/metadata/annotations", large)),
            InvalidPatch::AnnotationsTooLarge(MAX_ANNOTATION_BYTES + 1)
        );
    }
}
