//! Puts the definitions and the objects of a comparison into an API server.

use super::server::Server;
use crate::drawn_objects::cases;
use anyhow::{Result, bail};
use napkeeper_tests::control_plane::ControlPlane;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// CrdSchemas as one stream for kubectl; JSON is YAML.
pub(in crate::live) fn stream(crds: &[Value]) -> String {
    crds.iter().map(|crd| format!("---\n{crd}\n")).collect()
}

/// The same definitions, which check nothing.
pub(in crate::live) fn relaxed(crds: &[Value]) -> Vec<Value> {
    let mut all = crds.to_vec();
    for version in all.iter_mut().flat_map(|crd| crd["spec"]["versions"].as_array_mut().into_iter().flatten()) {
        version["schema"]["openAPIV3Schema"] =
            json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    }
    all
}

/// Installs definitions and waits until the server uses them.
pub(in crate::live) async fn install(plane: &ControlPlane, server: &Server, crds: &[Value]) -> Result<()> {
    plane.apply(&stream(crds)).await?;
    let start = Instant::now();
    for base in cases::sound(crds) {
        let mut wrong = base.clone();
        wrong["spec"] = json!("no object");
        wrong["metadata"]["name"] = json!("probe");
        while server.create(&base, &wrong).await?.answer.code != 422 {
            if start.elapsed() > Duration::from_secs(60) {
                bail!("the server does not check by {}", base["kind"]);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    Ok(())
}
