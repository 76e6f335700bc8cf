//! Who may permit deletions, who may write evidence, and which updates reach the hook, as a real API server decides it.

use super::{IN_FORCE, exported};
use anyhow::{Context, Result, ensure};
use napkeeper_api::yaml;
use napkeeper_tests::control_plane::{ControlPlane, Mode};
use napkeeper_tests::manifests::{quickstart_file, repository};
use napkeeper_tests::wait::eventually;
use serde_json::{Value, json};

/// Who may update OrphanSweeps, and who may approve too.
const EDITOR: &str = "editor";
const APPROVER: &str = "approver";

const RBAC: &str = "\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: editor}
rules:
- {apiGroups: [napkeeper.io], resources: [orphansweeps, orphanrecords], verbs: ['get', 'list', 'create', 'update', 'patch', 'delete']}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: approver}
rules:
- {apiGroups: [napkeeper.io], resources: [orphansweeps], verbs: [approve]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: editor}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: editor}
subjects: [{kind: User, name: editor}, {kind: User, name: approver}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: approver}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: approver}
subjects: [{kind: User, name: approver}]
";

fn sweep(spec: &Value) -> Value {
    json!({ "apiVersion": "napkeeper.io/v1alpha1", "kind": "OrphanSweep", "metadata": { "name": "nightly" }, "spec": spec })
}

/// What a user is told about a write that is not kept; `None` when it is admitted.
async fn refused(plane: &ControlPlane, user: &str, args: &[&str]) -> Option<String> {
    let all = [args, &["--dry-run=server", "--as", user]].concat();
    plane.kubectl(&all).await.err().map(|e| format!("{e:#}"))
}

/// The same for a change of the OrphanSweep `nightly`.
async fn change_refused(plane: &ControlPlane, user: &str, spec: &Value) -> Option<String> {
    let patch = json!({ "spec": spec }).to_string();
    refused(plane, user, &["patch", "orphansweep", "nightly", "--type=merge", "--patch", &patch]).await
}

#[tokio::test]
async fn what_permits_deletions_takes_a_right_of_its_own() -> Result<()> {
    let plane = ControlPlane::start(Mode::Api).await?;
    plane.install_definitions().await?;
    plane.apply(RBAC).await?;
    let approval = json!({
        "id": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d",
        "incarnation": "i-1", "expiresAt": "2026-09-01T00:00:00Z",
    });
    let spec = json!({ "exclusions": [{ "name": "bastion" }], "approvals": [approval] });
    plane.apply(&sweep(&spec).to_string()).await?;
    plane.apply(&exported(&["approvals", "orphan-records"])?).await?;
    let mut other = approval.clone();
    other["incarnation"] = json!("i-2");
    for (change, message) in [
        (json!({ "mode": "Collect" }), "spec.mode Collect deletes resources"),
        (json!({ "approvals": [other] }), "a new or changed entry of spec.approvals"),
        (json!({ "approvalRequired": ["Vm"] }), "a kind that is missing from spec.approvalRequired"),
        (json!({ "approvalRequired": null, "approvals": null, "exclusions": [] }), "an entry of spec.exclusions"),
        (json!({ "breaker": { "clearedAt": "2026-09-01T00:00:00Z" } }), "spec.breaker.clearedAt takes"),
    ] {
        let told = eventually(message, IN_FORCE, async || Ok(change_refused(&plane, EDITOR, &change).await)).await?;
        ensure!(told.contains("orphansweep-approvals") && told.contains(message), "{change}: {told}");
        ensure!(change_refused(&plane, APPROVER, &change).await.is_none(), "an approver may {change}");
    }
    let told = refused(&plane, EDITOR, &["delete", "orphansweep", "nightly"]).await;
    ensure!(told.as_ref().is_some_and(|told| told.contains("an entry of spec.exclusions")), "{told:?}");
    for change in [
        json!({ "approvals": [] }),
        json!({ "approvalRequired": ["Vm", "DataDisk", "Nic"], "observeEvery": "20m" }),
        json!({ "mode": "Mark", "caps": { "deletionsPerDay": 1 } }),
        json!({ "exclusions": [{ "name": "bastion" }, { "name": "other" }] }),
    ] {
        let told = change_refused(&plane, EDITOR, &change).await;
        ensure!(told.is_none(), "{change} permits no more: {told:?}");
    }
    what_a_collecting_sweep_deletes_takes_it_too(&plane).await?;
    let folder = plane.folder().join("sweep.json");
    for (spec, permits) in [(json!({}), false), (json!({ "approvalRequired": [] }), true)] {
        let mut new = sweep(&spec);
        new["metadata"]["name"] = json!("new");
        std::fs::write(&folder, new.to_string())?;
        let told = refused(&plane, EDITOR, &["create", "--filename", &folder.display().to_string()]).await;
        ensure!(told.is_some() == permits, "a new sweep with {spec}: {told:?}");
    }
    Ok(())
}

/// Kinds, times and amounts of a sweep that deletes.
async fn what_a_collecting_sweep_deletes_takes_it_too(plane: &ControlPlane) -> Result<()> {
    let spec = json!({
        "mode": "Collect", "kinds": ["Nic"], "schedule": "0 3 * * 0", "exclusions": [{ "name": "bastion" }],
        "minimumAge": { "nic": "2h", "osDisk": "168h" }, "caps": { "deletionsPerDay": 0 },
    });
    let patch = json!({ "spec": spec }).to_string();
    plane.kubectl(&["patch", "orphansweep", "nightly", "--type=merge", "--patch", &patch]).await?;
    for (change, message) in [
        (json!({ "kinds": ["Nic", "OsDisk"] }), "a new entry of spec.kinds"),
        (json!({ "kinds": null }), "a new entry of spec.kinds"),
        (json!({ "schedule": null }), "another spec.schedule"),
        (json!({ "minimumAge": { "nic": "119m" } }), "a lower spec.minimumAge"),
        (json!({ "minimumAge": null }), "a lower spec.minimumAge"),
        (json!({ "caps": { "deletionsPerDay": 1 } }), "a higher spec.caps.deletionsPerDay"),
        (json!({ "caps": null }), "a higher spec.caps.deletionsPerDay"),
    ] {
        let told = change_refused(plane, EDITOR, &change).await.unwrap_or_default();
        ensure!(told.contains(message), "{change}: {told:?}");
        ensure!(change_refused(plane, APPROVER, &change).await.is_none(), "an approver may {change}");
    }
    for change in [
        json!({ "mode": "Report", "schedule": null, "kinds": ["Nic", "Vm"] }),
        json!({ "minimumAge": { "nic": "121m" }, "observeEvery": "20m" }),
    ] {
        let told = change_refused(plane, EDITOR, &change).await;
        ensure!(told.is_none(), "{change} permits no more: {told:?}");
    }
    Ok(())
}

#[tokio::test]
async fn only_the_controller_writes_evidence() -> Result<()> {
    let plane = ControlPlane::start(Mode::Api).await?;
    plane.install_definitions().await?;
    plane.apply(RBAC).await?;
    let controller = "system:serviceaccount:napkeeper-system:napkeeper-controller";
    let subject = r#"[{"op": "add", "path": "/subjects/-", "value": {"kind": "User", "name": "CONTROLLER"}}]"#;
    let patch = subject.replace("CONTROLLER", controller);
    plane.kubectl(&["patch", "clusterrolebinding", "editor", "--type=json", "--patch", &patch]).await?;
    plane.apply(&exported(&["orphan-records"])?).await?;
    let record = json!({ "apiVersion": "napkeeper.io/v1alpha1", "kind": "OrphanRecord", "metadata": { "name": "r" }, "spec": {} });
    let file = plane.folder().join("record.json");
    std::fs::write(&file, record.to_string())?;
    let file = file.display().to_string();
    let create = ["create", "--filename", file.as_str()];
    let told = eventually("refusal", IN_FORCE, async || Ok(refused(&plane, APPROVER, &create).await)).await?;
    ensure!(told.contains("only the ServiceAccount napkeeper-controller"), "{told}");
    let told = refused(&plane, controller, &create).await;
    ensure!(told.is_none(), "{told:?}");
    Ok(())
}

/// A policy on the hook's own conditions that denies everything that the hook would be called for.
fn called() -> Result<String> {
    let text = std::fs::read_to_string(repository("kustomize/base/hooks.yaml"))?;
    let hooks = yaml::read("hooks.yaml", &text);
    let conditions = &hooks.documents.first().context("no hooks")?.value["webhooks"][0]["matchConditions"];
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": "called" },
        "spec": {
            "matchConstraints": { "resourceRules": [{
                "apiGroups": ["karpenter.sh"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["nodepools"],
            }] },
            "matchConditions": serde_json::to_value(conditions)?,
            "validations": [{ "expression": "false", "message": "the hook is called" }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": "called" }, "spec": { "policyName": "called", "validationActions": ["Deny"] },
    });
    Ok(format!("{policy}\n---\n{binding}\n"))
}

#[tokio::test]
async fn the_hook_is_called_for_what_is_judged() -> Result<()> {
    let plane = ControlPlane::start(Mode::Api).await?;
    plane.install_definitions().await?;
    plane.apply(&quickstart_file("nodepool-general-purpose")?).await?;
    let note = "napkeeper.io/delete-acknowledged=2";
    plane.kubectl(&["annotate", "nodepool", "general-purpose", note, "other=1"]).await?;
    plane.apply(&called()?).await?;
    let admin = "kubernetes-admin-of-tests";
    plane.kubectl(&["create", "clusterrolebinding", "all", "--clusterrole=cluster-admin", "--user", admin]).await?;
    let pool = ["nodepool", "general-purpose"];
    let of = |verb: &str, change: &[&str]| [&[verb], &pool[..], change].concat().join(" ");
    for change in [
        of("label", &["team=a"]),
        of("annotate", &["--overwrite", "napkeeper.io/delete-acknowledged=3"]),
        of("annotate", &["napkeeper.io/delete-acknowledged-"]),
        of("annotate", &["napkeeper.io/new=1"]),
        of("delete", &[]),
    ] {
        let args: Vec<&str> = change.split(' ').collect();
        let told = eventually(&change, IN_FORCE, async || Ok(refused(&plane, admin, &args).await)).await?;
        ensure!(told.contains("the hook is called"), "{change}: {told}");
    }
    for change in [of("annotate", &["--overwrite", "other=2"]), of("annotate", &["other-", "another=1"])] {
        let told = refused(&plane, admin, &change.split(' ').collect::<Vec<_>>()).await;
        ensure!(told.is_none(), "{change}: {told:?}");
    }
    Ok(())
}
