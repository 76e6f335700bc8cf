//! What Argo CD applies with `ServerSideApply=true`, and what it compares with `ServerSideDiff=true`: a dry run of the same apply
//! with the object that is there.

use crate::control_plane::ControlPlane;
use anyhow::{Context, Result, ensure};
use napkeeper_api::yaml;
use serde_json::{Value, json};

/// Argo CD as a writer of fields.
const FIELD_MANAGER: &str = "--field-manager=argocd-controller";
/// What Argo CD leaves out of a comparison. The status is left out by default (`ignoreResourceStatusField`).
const NOT_COMPARED: [&str; 4] =
    ["/status", "/metadata/managedFields", "/metadata/resourceVersion", "/metadata/creationTimestamp"];

/// The objects in some manifests.
///
/// # Errors
/// When they cannot be read.
pub fn objects(manifests: &str) -> Result<Vec<Value>> {
    let read = yaml::read("manifests", manifests);
    ensure!(read.problems.is_empty(), "{:?}", read.problems);
    read.documents.iter().map(|document| serde_json::to_value(&document.value).context("reading an object")).collect()
}

/// Syncs objects.
///
/// # Errors
/// When the API server refuses one.
pub async fn sync(plane: &ControlPlane, objects: &[Value]) -> Result<()> {
    let file = written(plane, objects)?;
    let path = file.path().display().to_string();
    let apply =
        ["apply", "--server-side", "--force-conflicts", "--validate=strict", FIELD_MANAGER, "--filename", &path];
    plane.kubectl(&apply).await.map(drop)
}

/// The fields of these objects that a sync would change: what Argo CD shows as a difference.
///
/// # Errors
/// When one does not exist, or the API server refuses the dry run.
pub async fn differences(plane: &ControlPlane, objects: &[Value]) -> Result<Vec<String>> {
    let file = written(plane, objects)?;
    let path = file.path().display().to_string();
    let live = plane.kubectl(&["get", "--output=json", "--filename", &path]).await?;
    let apply = ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "--output=json", FIELD_MANAGER];
    let predicted = plane.kubectl(&[&apply[..], &["--filename", &path]].concat()).await?;
    let (live, predicted) = (items(&live)?, items(&predicted)?);
    ensure!(live.len() == objects.len() && predicted.len() == objects.len(), "{} objects", live.len());
    let mut found = Vec::new();
    for (mut live, mut predicted) in live.into_iter().zip(predicted) {
        let name = format!("{} {}", live["kind"], live["metadata"]["name"]).replace('"', "");
        ensure!(live["metadata"]["uid"] == predicted["metadata"]["uid"], "{name} is compared with another");
        for object in [&mut live, &mut predicted] {
            NOT_COMPARED.iter().for_each(|pointer| set(object, pointer, Value::Null));
        }
        differing("", &live, &predicted, &mut |path| found.push(format!("{name}: {path}")));
    }
    Ok(found)
}

/// An object with what an Application ignores taken from the one that is there, as Argo CD applies it with
/// `RespectIgnoreDifferences=true`.
///
/// # Errors
/// When the Application ignores nothing by JSON pointer, or the object does not exist.
pub async fn respecting(plane: &ControlPlane, application: &Value, object: &Value) -> Result<Value> {
    let file = written(plane, std::slice::from_ref(object))?;
    let text = plane.kubectl(&["get", "--output=json", "--filename", &file.path().display().to_string()]).await?;
    let live: Value = serde_json::from_str(&text)?;
    let mut respecting = object.clone();
    for entry in application["spec"]["ignoreDifferences"].as_array().context("it ignores nothing")? {
        let version = object["apiVersion"].as_str().unwrap_or_default();
        let is_of_group = entry["group"].as_str() == version.split('/').next();
        if is_of_group && entry["kind"] == object["kind"] && entry["name"] == object["metadata"]["name"] {
            for pointer in entry["jsonPointers"].as_array().context("no pointers")?.iter().filter_map(Value::as_str) {
                set(&mut respecting, pointer, live.pointer(pointer).cloned().unwrap_or_default());
            }
        }
    }
    Ok(respecting)
}

fn written(plane: &ControlPlane, objects: &[Value]) -> Result<tempfile::NamedTempFile> {
    let file = tempfile::Builder::new().suffix(".json").tempfile_in(plane.folder()).context("making a file")?;
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    std::fs::write(file.path(), list.to_string()).context("writing manifests")?;
    Ok(file)
}

/// The objects in an answer of kubectl, which is a list unless there is one alone.
fn items(text: &str) -> Result<Vec<Value>> {
    let mut answer: Value = serde_json::from_str(text).context("reading an answer of kubectl")?;
    Ok(match answer.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => items,
        _ => vec![answer],
    })
}

/// Sets the field of an object at a pointer, if its parent is there.
fn set(object: &mut Value, pointer: &str, value: Value) {
    let Some((parent, key)) = pointer.rsplit_once('/') else { return };
    if let Some(fields) = object.pointer_mut(parent).and_then(Value::as_object_mut) {
        match value {
            Value::Null => drop(fields.shift_remove(key)),
            value => drop(fields.insert(key.to_owned(), value)),
        }
    }
}

/// Tells the paths at which two values differ.
fn differing(path: &str, one: &Value, other: &Value, tell: &mut dyn FnMut(&str)) {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let others = other.keys().filter(|key| !one.contains_key(*key));
            for key in one.keys().chain(others) {
                let field = |fields: &serde_json::Map<String, Value>| fields.get(key).cloned().unwrap_or_default();
                differing(&format!("{path}/{key}"), &field(one), &field(other), tell);
            }
        }
        _ if one == other => {}
        _ => tell(path),
    }
}
