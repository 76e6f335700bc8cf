//! kwok's stages, in which annotations of a pod say what its kubelet does: how long a pod takes until it is ready and to
//! end, and that it waits.

use anyhow::{Context, Result, ensure};
use napkeeper_api::yaml;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The annotation of a pod that becomes ready so long after it was bound, such as `3s`; without it, at once.
pub const READY_AFTER: &str = "pod-ready.stage.kwok.x-k8s.io/delay";
/// The annotation of a pod that takes so long to end; without it, no time.
pub const ENDS_AFTER: &str = "pod-delete.stage.kwok.x-k8s.io/delay";
/// The annotation of a pod that does not start while it is `true`.
pub const WAITS: &str = "pod-ready.stage.kwok.x-k8s.io/waits";

/// Writes the stages into a folder, for pods of all namespaces but one, and returns their file.
///
/// # Errors
/// When they cannot be read or written, or lack a stage of pods.
pub(super) fn write(stages: &Path, folder: &Path, but: Option<&str>) -> Result<PathBuf> {
    let text = std::fs::read_to_string(stages).with_context(|| format!("reading {}", stages.display()))?;
    let documents = yaml::read("kwok-stages.yaml", &text).documents;
    let mut all: Vec<Value> = documents.into_iter().map(|document| document.value).collect();
    delay(&mut all, "pod-delete", ENDS_AFTER)?;
    let ready = delay(&mut all, "pod-ready", READY_AFTER)?;
    let expressions = ready["spec"]["selector"]["matchExpressions"].as_array_mut().context("pod-ready selects all")?;
    expressions.push(json!({ "key": annotation(WAITS), "operator": "NotIn", "values": ["true"] }));
    for stage in all.iter_mut().filter(|stage| stage["spec"]["resourceRef"]["kind"] == "Pod") {
        let expressions = stage["spec"]["selector"]["matchExpressions"].as_array_mut();
        let expressions = expressions.context("a stage of pods selects all")?;
        let elsewhere = but.map(|but| json!({ "key": ".metadata.namespace", "operator": "NotIn", "values": [but] }));
        expressions.extend(elsewhere);
    }
    let file = folder.join("kwok-stages.yaml");
    let mut written = String::new();
    for stage in all {
        // JSON is YAML.
        write!(written, "---\n{stage}\n")?;
    }
    std::fs::write(&file, written).with_context(|| format!("writing {}", file.display()))?;
    Ok(file)
}

/// Has a stage begin as late as an annotation says.
fn delay<'a>(stages: &'a mut [Value], name: &str, by: &str) -> Result<&'a mut Value> {
    let stage = stages.iter_mut().find(|stage| stage["metadata"]["name"] == name);
    let stage = stage.with_context(|| format!("kwok has no stage {name}"))?;
    ensure!(stage["spec"]["delay"].is_null(), "the stage {name} of kwok has a delay already");
    stage["spec"]["delay"] = json!({ "durationMilliseconds": 0, "durationFrom": { "expressionFrom": annotation(by) } });
    Ok(stage)
}

/// The expression that reads an annotation.
fn annotation(name: &str) -> String {
    format!(".metadata.annotations[{name:?}]")
}
