//! Hook configurations that kustomize ships, and what is sent to them.

use crate::manifests::{quickstart_file, repository};
use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Pod;
use napkeeper_api::yaml;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

/// The annotation with the placement hint.
const HINT: &str = "napkeeper.io/placement-hint";

/// A NodeClaim of the pool `gpu`.
#[must_use]
pub fn claim() -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": { "name": "gpu-1", "labels": { "karpenter.sh/nodepool": "gpu" } },
        "spec": {
            "nodeClassRef": { "group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "default" },
            "requirements": [{ "key": "kubernetes.io/os", "operator": "In", "values": ["linux"] }],
        },
    })
}

/// The hint on a pod.
#[must_use]
pub fn hint(pod: &Pod) -> Option<Value> {
    serde_json::from_str(pod.metadata.annotations.as_ref()?.get(HINT)?).ok()
}

/// A pod that the node `system-0` cannot hold, and that even a restricted namespace takes.
#[must_use]
pub fn pod(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": namespace, "labels": { "app": name } },
        "spec": {
            "securityContext": { "runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{
                "name": "main", "image": "example.com/main:1",
                "resources": { "requests": { "cpu": "2", "memory": "4Gi" } },
                "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
            }],
        },
    })
}

/// NodePools and AKSNodeClass of the quick start.
///
/// # Errors
/// When a file of the repository cannot be read.
pub fn pools() -> Result<String> {
    let files = ["aksnodeclass", "nodepool-general-purpose", "nodepool-gpu", "nodepool-spot-preferred"];
    Ok(files.into_iter().map(quickstart_file).collect::<Result<Vec<_>>>()?.join("\n---\n"))
}

/// A NodePool with a mistake that its definition allows: there is no minute 99.
///
/// # Errors
/// When a file of the repository cannot be read.
pub fn bad_pool(name: &str) -> Result<String> {
    let good = quickstart_file("nodepool-general-purpose")?;
    let bad = good.replace("- nodes: 10%", "- {nodes: 10%, schedule: \"99 8 * * *\", duration: 1h}");
    ensure!(bad != good, "the quick start has no budget to spoil");
    Ok(bad.replace("name: general-purpose", &format!("name: {name}")))
}

/// A certificate of this machine that is its own authority, in `tls.crt` and `tls.key`; as PEM.
///
/// # Errors
/// When it cannot be made or written.
pub fn certificate(folder: &Path) -> Result<String> {
    let key = rcgen::KeyPair::generate()?;
    let names = ["127.0.0.1".to_owned(), HTTP1_ADDRESS.to_string()];
    let pem = rcgen::CertificateParams::new(names)?.self_signed(&key)?.pem();
    std::fs::write(folder.join("tls.crt"), &pem)?;
    std::fs::write(folder.join("tls.key"), key.serialize_pem())?;
    std::fs::write(folder.join("token"), "secret")?;
    Ok(pem)
}

/// The hooks that kustomize ships, called at this address instead of a Service.
///
/// # Errors
/// When a file of the repository cannot be read.
pub fn hooks(address: &str, ca: &str) -> Result<String> {
    let text = std::fs::read_to_string(repository("kustomize/base/hooks.yaml"))?;
    let read = yaml::read("hooks.yaml", &text);
    ensure!(read.problems.is_empty() && read.documents.len() == 2, "{:?}", read.problems);
    let mut all = Vec::new();
    for document in &read.documents {
        let mut object = serde_json::to_value(&document.value)?;
        for hook in object["webhooks"].as_array_mut().context("no hooks")? {
            let path = hook["clientConfig"]["service"]["path"].as_str().context("a hook without a path")?;
            let url = format!("https://{address}{path}");
            hook["clientConfig"] = json!({ "url": url, "caBundle": ByteString(ca.as_bytes().to_vec()) });
        }
        all.push(object.to_string());
    }
    Ok(all.join("\n---\n"))
}

/// What the API server asks about an object: `object` is null for a DELETE, `old` for a CREATE.
#[must_use]
pub fn review(operation: &str, object: &Value, old: &Value) -> Value {
    let either = if object.is_null() { old } else { object };
    let api_version = either["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = either["kind"].as_str().unwrap_or_default();
    let plural = if kind.ends_with('s') { "es" } else { "s" };
    let kinds = json!({ "group": group, "version": version, "kind": kind });
    let resources = json!({
        "group": group, "version": version, "resource": format!("{}{plural}", kind.to_lowercase()).replace("ys", "ies"),
    });
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "kind": kinds, "resource": resources, "requestKind": kinds,
            "requestResource": resources, "name": either["metadata"]["name"], "namespace": either["metadata"]["namespace"],
            "operation": operation, "userInfo": { "username": "kubernetes-admin", "groups": ["system:masters"] },
            "object": object, "oldObject": old, "dryRun": false,
            "options": { "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1" },
        },
    })
}

/// An address of this machine to which the API server speaks HTTP/1.1, as to every Service. It speaks HTTP/2 to webhooks
/// at a loopback address only; Linux leads connections to this one to the machine itself.
pub const HTTP1_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
