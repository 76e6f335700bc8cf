//! `validate --policies`: findings and exit codes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::output::stdout;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

fn shipped() -> PathBuf {
    fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies")).unwrap()
}

/// Runs it in a folder.
fn validate(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_napkeeper")).arg("validate").args(args).current_dir(folder).output().unwrap()
}

fn rules(output: &Output) -> Vec<String> {
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = result["findings"].as_array().unwrap().iter();
    findings.map(|f| f["rule"].as_str().unwrap().to_owned()).filter(|rule| rule.starts_with("NK7")).collect()
}

/// A folder with files.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

const WHO: &str = "\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: who}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  validations:
    - {expression: \"request.userInfo.username == 'flux'\", message: only flux}
    - {expression: \"namespaceObject.metadata.labels['tier'] == 'gold'\", message: only gold}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: who}
spec: {policyName: who, validationActions: [Deny]}
";
const MAP: &str = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: b}}\n";
const GOLD: &str = "{apiVersion: v1, kind: Namespace, metadata: {name: b, labels: {tier: gold}}}\n";

#[test]
fn shipped_policies_warn_with_file_and_line() {
    let policies = shipped();
    let case = policies.join("cases/nodepool-expiry");
    let output = validate(&case, &["--policies", policies.to_str().unwrap(), "deny-never.yaml"]);
    assert_eq!(output.status.code(), Some(0), "warnings do not count: {}", stdout(&output));
    let text = stdout(&output);
    assert!(
        text.contains("deny-never.yaml:18:20: warning[NK7002] policy nodepool-expiry: nodes never expire"),
        "{text}"
    );
    let fine = validate(&case, &["--policies", policies.to_str().unwrap(), "allow-week.yaml", "-o", "json"]);
    assert_eq!(rules(&fine), [] as [&str; 0]);
}

#[test]
fn unknown_inputs_are_undecided_until_they_are_given() {
    let input = folder(&[("policies/who.yaml", WHO), ("app/map.yaml", MAP), ("gold.yaml", GOLD)]);
    let run = |more: &[&str]| {
        let args = [&["--policies", "policies", "app", "-o", "json"], more].concat();
        let output = validate(input.path(), &args);
        (output.status.code(), rules(&output))
    };
    let undecided = ["NK7003".to_owned(), "NK7003".to_owned()].to_vec();
    assert_eq!(run(&[]), (Some(0), undecided.clone()));
    assert_eq!(run(&["--fail-on-undecided"]), (Some(1), undecided));
    assert_eq!(run(&["--as", "flux,system:masters", "--namespace-object", "gold.yaml"]), (Some(0), vec![]));
    let ann = run(&["--as", "ann", "--namespace-object", "gold.yaml"]);
    assert_eq!(ann, (Some(1), vec!["NK7001".to_owned()]));
}

#[test]
fn a_namespace_among_the_manifests_is_known() {
    let input = folder(&[("policies/who.yaml", WHO), ("app/map.yaml", MAP), ("app/gold.yaml", GOLD)]);
    let output = validate(input.path(), &["--policies", "policies", "--as", "flux", "app", "-o", "json"]);
    assert_eq!(rules(&output), [] as [&str; 0], "{}", stdout(&output));
}

#[test]
fn napkeeper_yaml_names_the_policies_of_its_cluster() {
    let config = "clusters: [{name: prod, policies: [rules]}]\n";
    let input = folder(&[("napkeeper.yaml", config), ("rules/who.yaml", WHO), ("app/map.yaml", MAP)]);
    let output = validate(input.path(), &["app", "-o", "json", "--as", "ann"]);
    assert_eq!(rules(&output), ["NK7001", "NK7003"], "{}", stdout(&output));
}

#[test]
fn a_broken_policy_is_an_error_of_its_own_file() {
    let broken = WHO.replace("request.userInfo.username ==", "request.userInfo.username =");
    let input = folder(&[("policies/who.yaml", &broken), ("app/map.yaml", MAP)]);
    let output = validate(input.path(), &["--policies", "policies", "app"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("policies/who.yaml:8:20: error[NK7004]"), "{}", stdout(&output));
    let nothing = validate(input.path(), &["--policies", "app", "app"]);
    assert_eq!(nothing.status.code(), Some(2), "no policy is no approval");
}
