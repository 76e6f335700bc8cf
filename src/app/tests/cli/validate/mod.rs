//! `validate`: output and exit codes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod application_sets;
mod clusters;
mod formats;
mod git;
mod kustomize;
mod kustomize_files;
mod other_files;
mod suppress;
mod synced;

use crate::output::{assert_golden, stderr, stdout};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

fn validate(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_napkeeper"));
    command.arg("validate").args(args).current_dir(folder);
    command.output().unwrap()
}

/// `file:line rule` of each finding, by `-o json`.
fn found(folder: &Path, args: &[&str]) -> Vec<String> {
    let output = validate(folder, &[args, &["-o", "json"]].concat());
    assert_ne!(output.stdout, b"", "{}", stderr(&output));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let shown = |f: &serde_json::Value| {
        format!("{}:{} {}", f["file"].as_str().unwrap(), f["line"], f["rule"].as_str().unwrap())
    };
    result["findings"].as_array().unwrap().iter().map(shown).collect()
}

/// The lines of errors, where everything could be read.
fn errors(folder: &Path, args: &[&str]) -> Vec<String> {
    let output = validate(folder, args);
    assert!(output.status.code().is_some_and(|code| code < 2), "{}", stderr(&output));
    let text = stdout(&output);
    text.lines().filter(|line| line.contains(": error[")).map(ToOwned::to_owned).collect()
}

/// Writes files into a folder.
fn write(folder: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let file = folder.join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }
}

/// A node class with some pods a node; 5 are too few, 40 are fine.
fn class(name: &str, pods: u32) -> String {
    format!(
        "apiVersion: karpenter.azure.com/v1beta1\nkind: AKSNodeClass\nmetadata:\n  name: {name}\nspec:\n  maxPods: {pods}\n"
    )
}

#[test]
fn objects_that_a_controller_would_ignore_are_errors() {
    let folder = cases().join("sweeps");
    let output = validate(&folder, &["--facts", "facts.yaml"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert_golden(&cases().join("sweeps.txt"), &stdout(&output));
    // Facts of the region that is judged are no finding, nor are any where the region is not known.
    let elsewhere = found(&folder, &["--facts", "facts.yaml", "--region", "northeurope"]);
    assert!(elsewhere.iter().all(|one| !one.contains("NK9003")), "{elsewhere:?}");
}

#[test]
fn who_launches_the_nodes_decides_what_an_object_may_set() {
    let folder = tempfile::tempdir().unwrap();
    let class = class("default", 40) + "  kubelet:\n    cpuManagerPolicy: static\n";
    let in_list = |key: &str, values: &str| format!("      - {{key: {key}, operator: In, values: [{values}]}}\n");
    let spot = in_list("karpenter.sh/capacity-type", "spot")
        + &in_list("node.kubernetes.io/instance-type", "Standard_D4s_v5, Standard_D8s_v5");
    let pool = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: spot}\nspec:\n  limits: {cpu: 100, memory: 400Gi}\n  \
                template:\n    spec:\n      nodeClassRef: {group: karpenter.azure.com, kind: AKSNodeClass, name: default}\n      \
                requirements:\n";
    write(folder.path(), &[("class.yaml", &class), ("pool.yaml", &format!("{pool}{spot}"))]);
    let rules = |args: &[&str]| {
        let mut found = found(folder.path(), args);
        // That pods have nowhere to go when spot is sold out is true in both.
        found.retain(|one| !one.ends_with("NK5006"));
        found
    };
    assert_eq!(rules(&[]), ["pool.yaml:11 NK3022"]);
    assert_eq!(rules(&["--mode", "companion"]), ["pool.yaml:11 NK3022"]);
    assert_eq!(rules(&["--mode", "provisioner"]), ["class.yaml:8 NK2029"]);
    let output = validate(folder.path(), &["--mode", "provisioner"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("kubelet.cpuManagerPolicy is not supported in provisioner mode"), "{text}");
}

#[test]
fn errors_of_a_pasted_guide_are_shown_with_position_and_remedy() {
    let output = validate(&cases().join("howto"), &[]);
    assert_eq!(output.status.code(), Some(1));
    assert_golden(&cases().join("howto.txt"), &stdout(&output));
    assert!(output.stderr.is_empty());
}

#[test]
fn every_problem_of_broken_manifests_is_shown() {
    let output = validate(&cases().join("broken"), &[]);
    assert_eq!(output.status.code(), Some(1));
    assert_golden(&cases().join("broken.txt"), &stdout(&output));
}

#[test]
fn the_quick_start_has_no_findings() {
    let quickstart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/quickstart");
    let output = validate(&quickstart, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    assert!(stdout(&output).contains("9 objects in 8 files checked: 0 errors, 0 warnings"), "{}", stdout(&output));
}

#[test]
fn json_has_findings_and_a_summary() {
    let output = validate(&cases().join("howto"), &["-o", "json"]);
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["findings"].as_array().unwrap().len() as u64, {
        let count = |field: &str| result["summary"][field].as_u64().unwrap();
        count("errors") + count("warnings")
    });
    assert_eq!(result["findings"][0]["rule"], "NK1006");
    assert_eq!(result["findings"][0]["line"], 1);
}

#[test]
fn an_empty_folder_is_an_error_that_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let output = validate(folder.path(), &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let error = String::from_utf8_lossy(&output.stderr).to_string();
    assert!(error.contains("no .yaml, .yml or .json files in ."), "{error}");
}

#[test]
fn an_input_without_karpenter_manifests_is_an_error_unless_allowed() {
    let folder = tempfile::tempdir().unwrap();
    write(
        folder.path(),
        &[
            ("a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"),
            ("napkeeper.yaml", "clusters:\n- name: a\n"),
        ],
    );
    let output = validate(folder.path(), &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("no supported manifests found in . (1 object of other kinds)"),
        "{}",
        stderr(&output)
    );
    assert!(output.stdout.is_empty());
    assert_eq!(validate(folder.path(), &["--allow-empty"]).status.code(), Some(0));
    assert_eq!(validate(folder.path(), &["napkeeper.yaml"]).status.code(), Some(0), "it was asked for");
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(validate(empty.path(), &["--allow-empty"]).status.code(), Some(0));
}

#[test]
fn items_of_a_list_are_judged_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let item = |name: &str, pods: u32| class(name, pods).replace('\n', "\n  ").trim_end().to_owned();
    let list = format!("apiVersion: v1\nkind: List\nitems:\n- {}\n- {}\n", item("a", 40), item("b", 5));
    write(folder.path(), &[("list.yaml", &list)]);
    assert_eq!(found(folder.path(), &[]), ["list.yaml:15 NK1015"]);
}

#[test]
fn an_unreadable_path_is_an_error_after_the_rest_is_reported() {
    let output = validate(&cases().join("howto"), &["pool.yaml", "nowhere.yaml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stdout(&output).contains("pool.yaml:1:13: error[NK1004]"), "{}", stdout(&output));
    let error = String::from_utf8_lossy(&output.stderr).to_string();
    assert!(error.contains("nowhere.yaml"), "{error}");
}

#[test]
fn the_standard_input_is_read() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_napkeeper"))
        .args(["validate", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let manifest =
        "apiVersion: karpenter.azure.com/v1beta1\nkind: AKSNodeClass\nmetadata: {name: a}\nspec: {maxPods: 5}\n";
    child.stdin.take().unwrap().write_all(manifest.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stdout(&output).starts_with("<stdin>:4:17: error[NK1015] must be at least 10, got 5"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn lists_of_any_kind_and_lists_in_lists_are_judged() {
    let folder = tempfile::tempdir().unwrap();
    let item = class("a", 5).replace('\n', "\n  ").replace("apiVersion: kar", "- apiVersion: kar");
    let typed = format!("apiVersion: karpenter.azure.com/v1beta1\nkind: AKSNodeClassList\nitems:\n{item}\n");
    let inner = typed.replace('\n', "\n  ");
    let nested = format!("apiVersion: v1\nkind: List\nitems:\n- {inner}\n");
    write(folder.path(), &[("typed.yaml", &typed), ("nested.yaml", &nested)]);
    assert_eq!(found(folder.path(), &[]), ["nested.yaml:12 NK1015", "typed.yaml:9 NK1015"]);
}

#[test]
fn patches_of_a_kustomization_are_no_manifests() {
    let folder = tempfile::tempdir().unwrap();
    let patch =
        class("a", 40).replace("karpenter.azure.com/v1beta1", "karpenter.sh/v1").replace("AKSNodeClass", "NodePool");
    let kustomization = "resources: [class.yaml]\npatches:\n- path: patches/pool.yaml\n";
    let files = [
        ("class.yaml", class("a", 40)),
        ("patches/pool.yaml", patch),
        ("kustomization.yaml", kustomization.to_owned()),
    ];
    write(folder.path(), &files.each_ref().map(|(name, text)| (*name, text.as_str())));
    let output = validate(folder.path(), &["--kustomize=never"]);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    assert!(stdout(&output).contains("; ignored 1 patch of kustomizations"), "{}", stdout(&output));
}

#[test]
fn a_closed_pipe_does_not_change_the_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[("a.yaml", &class("a", 5))]);
    let mut child = Command::new(env!("CARGO_BIN_EXE_napkeeper"))
        .args(["validate", "."])
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[test]
fn no_line_of_a_secret_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData:\n  key: hunter2\n  key: hunter3\n";
    write(folder.path(), &[("secret.yaml", secret), ("class.yaml", &class("a", 40))]);
    let output = validate(folder.path(), &[]);
    assert_eq!(output.status.code(), Some(1), "the key is given twice");
    assert!(!stdout(&output).contains("hunter"), "{}", stdout(&output));
}

#[test]
fn an_overlay_is_judged_by_its_definition() {
    let folder = tempfile::tempdir().unwrap();
    let head = "apiVersion: karpenter.sh/v1alpha1\nkind: NodeOverlay\nmetadata: {name: o}\nspec:\n";
    let good =
        "  requirements: [{key: karpenter.sh/nodepool, operator: In, values: [a]}]\n  priceAdjustment: \"-30%\"\n";
    write(folder.path(), &[("good.yaml", &format!("{head}{good}"))]);
    let output = validate(folder.path(), &["good.yaml"]);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    for (name, line, expected) in [
        ("both", "  price: \"1\"\n", "price and priceAdjustment are mutually exclusive"),
        ("cpu", "  capacity: {cpu: 1}\n", "an overlay can add only extended resources"),
        ("weight", "  weight: 0\n", "weight"),
        ("field", "  prise: 1\n", "prise"),
    ] {
        let file = format!("{name}.yaml");
        write(folder.path(), &[(&file, &format!("{head}{good}{line}"))]);
        let output = validate(folder.path(), &[&file]);
        assert_eq!(output.status.code(), Some(1), "{name}: {}", stderr(&output));
        assert!(stdout(&output).contains(expected), "{name}: {}", stdout(&output));
    }
    let unsigned = "  requirements: []\n  priceAdjustment: 10%\n";
    write(folder.path(), &[("unsigned.yaml", &format!("{head}{unsigned}"))]);
    assert!(stdout(&validate(folder.path(), &["unsigned.yaml"])).contains("priceAdjustment"));
}

/// No file of theirs is taken for napkeeper's own configuration, and the objects that they sync are protected from pruning.
#[test]
fn shipped_applications_beside_node_pools_have_no_findings() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    assert_eq!(found(&root, &["manifests/gitops", "manifests/quickstart"]), [""; 0]);
}
