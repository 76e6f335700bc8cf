//! All pods of an overlay run the image of one release. No control plane is started.

use anyhow::{Context, Result, ensure};
use napkeeper_api::yaml;
use napkeeper_tests::control_plane::kustomize;
use napkeeper_tests::manifests::repository;
use serde_json::Value;

/// The images of all containers in an object, wherever its pod template is.
fn images(object: &Value, found: &mut Vec<String>) {
    match object {
        Value::Object(fields) => {
            for containers in ["containers", "initContainers"] {
                for container in fields.get(containers).and_then(Value::as_array).into_iter().flatten() {
                    found.extend(container["image"].as_str().map(ToOwned::to_owned));
                }
            }
            fields.values().for_each(|value| images(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| images(value, found)),
        _ => {}
    }
}

#[tokio::test]
async fn every_pod_of_every_overlay_runs_the_image_of_this_version() -> Result<()> {
    let name = "ghcr.io/OWNER/napkeeper";
    let image = format!("{name}:v{}", env!("CARGO_PKG_VERSION"));
    for (overlay, pods) in [("companion", 3), ("provisioner", 3), ("audit", 1)] {
        let text = kustomize(&repository("kustomize/overlays").join(overlay)).await?;
        let mut found = Vec::new();
        for document in &yaml::read(overlay, &text).documents {
            images(&serde_json::to_value(&document.value)?, &mut found);
        }
        ensure!(found == vec![image.clone(); pods], "{overlay} runs {found:?}, not {image}");
    }
    // An `images` of somebody's own overlay names the image by what the component has made of it.
    let guide = std::fs::read_to_string(repository("kustomize/README.md"))?;
    let example = guide.split_once("\nimages:\n").context("the guide has no images")?.1;
    ensure!(example.starts_with(&format!("  - name: {name}\n")), "it would change nothing: {example}");
    Ok(())
}
