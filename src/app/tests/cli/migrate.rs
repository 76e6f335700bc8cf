//! `migrate`: diffs, written files and exit codes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::output::{assert_golden, stderr, stdout};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/migrate")
}

fn napkeeper(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_napkeeper")).args(args).current_dir(folder).output().unwrap()
}

fn migrate(folder: &Path, args: &[&str]) -> Output {
    napkeeper(folder, &[&["migrate"], args].concat())
}

fn filter(text: &str, args: &[&str]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_napkeeper"))
        .args(["migrate", "-"])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command line that is refused ends the program before it reads.
    drop(child.stdin.take().unwrap().write_all(text.as_bytes()));
    child.wait_with_output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A copy of a folder of cases.
fn copy(of: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(cases().join(of)).unwrap() {
        let from = entry.unwrap().path();
        fs::write(dir.path().join(from.file_name().unwrap()), fs::read(&from).unwrap()).unwrap();
    }
    dir
}

fn edit(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{} lacks {from}", path.display());
    fs::write(path, text.replace(from, to)).unwrap();
}

#[test]
fn each_shape_has_its_diff_and_its_notes() {
    for shape in ["guide", "shapes"] {
        let output = migrate(&cases().join(shape), &[]);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert_golden(&cases().join(format!("{shape}.diff")), &stdout(&output));
        assert_golden(&cases().join(format!("{shape}.notes")), &stderr(&output));
    }
}

#[test]
fn a_pasted_guide_is_put_right() {
    let dir = copy("guide");
    edit(&dir.path().join("class.yaml"), "<sub-id>", "11111111-2222-3333-4444-555555555555");
    let before = napkeeper(dir.path(), &["validate"]);
    assert_eq!(before.status.code(), Some(1), "{}", stdout(&before));

    let output = migrate(dir.path(), &["--write"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stdout(&output), "migrated class.yaml\nmigrated general.yaml\nmigrated gpu.yaml\nmigrated spot.yaml\n");
    let after = napkeeper(dir.path(), &["validate"]);
    assert_eq!(after.status.code(), Some(0), "{}", stdout(&after));

    let again = migrate(dir.path(), &["--write"]);
    assert_eq!((again.status.code(), stdout(&again)), (Some(0), String::new()));
    assert_eq!(stderr(&again), "5 files read: nothing to migrate\n");
}

#[test]
fn written_files_equal_the_preview() {
    let dir = copy("shapes");
    let shown = migrate(dir.path(), &[]);
    let patched = copy("shapes");
    fs::write(patched.path().join("all.diff"), &shown.stdout).unwrap();
    let mut git = Command::new("git");
    // Only the folder counts, not a repository around it.
    git.args(["apply", "-p0", "all.diff"]).current_dir(patched.path()).env("GIT_DIR", "/nowhere");
    let applied = git.output().unwrap();
    assert!(applied.status.success(), "{}", stderr(&applied));

    assert_eq!(migrate(dir.path(), &["--write"]).status.code(), Some(0));
    for entry in fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        let other = fs::read_to_string(patched.path().join(path.file_name().unwrap())).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), other, "{}", path.display());
    }
    let valid = napkeeper(dir.path(), &["validate", "-o", "json"]);
    assert_eq!(json(&valid)["summary"]["errors"], 0, "{}", stdout(&valid));
}

#[test]
fn a_check_names_the_objects_to_migrate() {
    let dir = copy("guide");
    let output = migrate(dir.path(), &["--check", "work.yaml", "spot.yaml"]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(1), "spot.yaml\n".to_owned()));
    assert_eq!(migrate(dir.path(), &["--check", "work.yaml"]).status.code(), Some(0));
    assert_eq!(migrate(dir.path(), &["--check", "--write"]).status.code(), Some(2));
}

#[test]
fn notes_refer_to_lines_of_the_written_text() {
    let dir = copy("shapes");
    let line = |output: &Output, part: &str| {
        let text = stderr(output);
        let line = text.lines().find(|l| l.contains(part)).unwrap_or_else(|| panic!("{part}: {text}"));
        let parts: Vec<&str> = line.split(':').collect();
        let source = fs::read_to_string(dir.path().join(parts[0])).unwrap();
        source.lines().nth(parts[1].parse::<usize>().unwrap() - 1).unwrap().to_owned()
    };
    let shown = migrate(dir.path(), &["beta.yaml"]);
    assert_eq!(line(&shown, "expired node"), "    expireAfter: 336h");
    let written = migrate(dir.path(), &["beta.yaml", "--write"]);
    assert_eq!(line(&written, "kubelet").trim_start(), "# napkeeper migrate: no longer a field here");
}

#[test]
fn json_has_files_edits_notes_and_a_summary() {
    let output = migrate(&cases().join("shapes"), &["-o", "json"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stderr.is_empty(), "{}", stderr(&output));
    let result = json(&output);
    let file = &result["files"][0];
    assert_eq!((file["file"].as_str(), file["written"].as_bool()), (Some("beta.yaml"), Some(false)));
    assert!(file["diff"].as_str().unwrap().starts_with("--- beta.yaml\n+++ beta.yaml\n@@ "));
    assert_eq!(file["edits"][0]["object"], "NodePool web");
    assert_eq!((file["edits"][0]["line"].as_u64(), file["edits"][0]["path"].as_str()), (Some(2), Some("apiVersion")));
    assert!(file["notes"].as_array().unwrap().iter().any(|n| n["path"] == "spec.template.spec.kubelet"));
    let count = |key: &str| {
        result["files"].as_array().unwrap().iter().map(|f| f[key].as_array().unwrap().len() as u64).sum::<u64>()
    };
    assert_eq!(result["summary"]["edits"].as_u64(), Some(count("edits")));
    assert_eq!(result["summary"]["notes"].as_u64(), Some(count("notes")));
    assert_eq!((result["summary"]["changed"].as_u64(), result["summary"]["refused"].as_u64()), (Some(5), Some(0)));
}

#[test]
fn the_standard_input_is_a_filter() {
    let text = fs::read_to_string(cases().join("guide/spot.yaml")).unwrap();
    let output = filter(&text, &[]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).contains("consolidationPolicy: WhenEmptyOrUnderutilized\n"));
    assert!(stdout(&output).contains("  # A small number goes first\n"));
    assert!(stderr(&output).starts_with("<stdin>:24:3: note: consolidateAfter: 0s was added"), "{}", stderr(&output));
    assert_eq!(stdout(&filter(&stdout(&output), &[])), stdout(&output));

    let check = filter(&text, &["--check"]);
    assert_eq!((check.status.code(), stdout(&check)), (Some(1), String::new()));
    assert_eq!(filter("a: 1\n", &["--check"]).status.code(), Some(0));
    assert_eq!(stdout(&filter("a: 1\n", &[])), "a: 1\n");
    let output = filter(&text, &["-o", "json"]);
    assert!(json(&output)["files"][0]["text"].as_str().unwrap().starts_with("# The pool to try first\n"));

    for args in [&["--write"][..], &["other.yaml"]] {
        let output = filter(&text, args);
        assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()), "{args:?}");
    }
}

#[test]
fn files_that_cannot_be_migrated_are_named_and_the_rest_is_written() {
    let dir = copy("guide");
    let shared = "apiVersion: karpenter.sh/v1beta1\nkind: NodePool\nmetadata: {name: a}\nspec:\n  template: &t\n    \
                  spec: {requirements: [], nodeClassRef: {name: a}}\n  x: *t\n";
    fs::write(dir.path().join("anchors.yaml"), shared).unwrap();
    fs::write(dir.path().join("broken.yaml"), "karpenter: [\n").unwrap();
    let output = migrate(dir.path(), &["--write"]);
    assert_eq!(output.status.code(), Some(2));
    let error = stderr(&output);
    assert!(error.contains("error: anchors.yaml:6:"), "{error}");
    assert!(error.contains("shared through an anchor or alias"), "{error}");
    assert!(error.contains("error: broken.yaml:"), "{error}");
    assert!(error.contains("5 files read: 4 of 4 migrated; 3 notes; 2 refused\n"), "{error}");
    assert!(stdout(&output).contains("migrated gpu.yaml\n") && !stdout(&output).contains("anchors"));
    assert_eq!(fs::read_to_string(dir.path().join("anchors.yaml")).unwrap(), shared);
    let result = json(&migrate(dir.path(), &["-o", "json"]));
    assert_eq!(result["refused"].as_array().unwrap().len(), 2, "{result}");
    assert_eq!(result["refused"][0]["line"], 6);
}

#[test]
fn an_empty_folder_is_an_error_that_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let output = migrate(dir.path(), &[]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()));
    assert!(stderr(&output).contains("no .yaml, .yml or .json files in ."), "{}", stderr(&output));
}

const OLD_CLASS: &str = "apiVersion: karpenter.azure.com/v1alpha2\nkind: AKSNodeClass\nmetadata: {name: a}\n";

#[test]
fn what_is_excluded_stays_and_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    for file in ["a.yaml", "generated/b.yaml", "vendor/c.yaml"] {
        let file = dir.path().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, OLD_CLASS).unwrap();
    }
    fs::write(dir.path().join(".napkeeperignore"), "vendor/\n").unwrap();
    let output = migrate(dir.path(), &["--write", "--exclude", "generated/"]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), "migrated a.yaml\n".to_owned()));
    assert_eq!(stderr(&output), "1 file read: 1 of 1 migrated; ignored 2 excluded paths\n");
    assert_eq!(fs::read_to_string(dir.path().join("vendor/c.yaml")).unwrap(), OLD_CLASS);
}

#[test]
fn a_manifest_in_a_text_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let within = OLD_CLASS.replace('\n', "\n    ");
    let map = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata:\n  class.yaml: |\n    {within}\n");
    fs::write(dir.path().join("map.yaml"), &map).unwrap();
    let output = migrate(dir.path(), &["--write"]);
    assert_eq!(output.status.code(), Some(0));
    let said = stderr(&output);
    assert!(said.contains("warning: map.yaml: not changed: data[class.yaml] is a text with a manifest"), "{said}");
    let result = json(&migrate(dir.path(), &["-o", "json"]));
    assert_eq!((&result["left"][0]["file"], &result["summary"]["left"]), (&"map.yaml".into(), &1.into()));
}

/// A NodePool of the version before the current one.
fn old_pool(name: &str) -> String {
    let spec = "  template:\n    spec:\n      requirements: []\n      nodeClassRef: {group: karpenter.azure.com, kind: AKSNodeClass, name: a}\n";
    format!("apiVersion: karpenter.sh/v1beta1\nkind: NodePool\nmetadata:\n  name: {name}\nspec:\n{spec}")
}

/// A repository with these files.
fn repository(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join(".git")).unwrap();
    for (file, text) in files {
        let file = dir.path().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    dir
}

fn has(dir: &tempfile::TempDir, file: &str, part: &str) -> bool {
    fs::read_to_string(dir.path().join(file)).unwrap().contains(part)
}

const MERGED: &str = "patchesStrategicMerge:\n- |\n  apiVersion: karpenter.sh/v1beta1\n  kind: NodePool\n  metadata: {name: a}\n  \
                      spec: {weight: 5}\n";
const SELECTOR: &str = "patches:\n- target: {kind: NodePool, version: \"v1beta1\"}\n  patch: '[]'\n";

#[test]
fn selectors_in_objects_of_flux_and_argo_cd_are_told() {
    let flux = format!(
        "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {{name: a}}\nspec:\n  {}",
        SELECTOR.replace('\n', "\n  ")
    );
    let release = "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: a}\nspec:\n  postRenderers:\n  - kustomize:\n      \
                   patches:\n      - target: {kind: AKSNodeClass, version: v1alpha2}\n        patch: '[]'\n";
    let application = "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: a}\nspec:\n  source:\n    kustomize:\n      patches:\n      - \
                       target: {group: karpenter.sh, version: v1beta1}\n        patch: '[]'\n";
    let dir = repository(&[("flux.yaml", &flux), ("release.yaml", release), ("application.yaml", application)]);
    let output = migrate(dir.path(), &["--write"]);
    let said = stderr(&output);
    for part in [
        "warning: flux.yaml: not changed: spec.patches[0].target selects an older version",
        "warning: release.yaml: not changed: spec.postRenderers[0].kustomize.patches[0].target selects an older version",
        "warning: application.yaml: not changed: spec.source.kustomize.patches[0].target selects an older version",
        "nothing to migrate; 3 left as is",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(migrate(dir.path(), &["--check"]).status.code(), Some(0));
}

#[test]
fn a_kustomization_with_a_name_stays_with_what_it_selects() {
    let kustomization = format!("kind: Kustomization\nmetadata: {{name: a}}\nresources: [generated]\n{SELECTOR}");
    let generated = "resources: [pool.yaml]\n";
    let dir = repository(&[
        ("kustomization.yaml", &kustomization),
        ("generated/kustomization.yaml", generated),
        ("generated/pool.yaml", &old_pool("a")),
    ]);
    let output = migrate(dir.path(), &["--write", "--exclude", "generated/"]);
    let said = stderr(&output);
    assert!(
        said.contains("warning: kustomization.yaml: not changed: it patches what is in generated/pool.yaml"),
        "{said}"
    );
    assert!(has(&dir, "kustomization.yaml", "v1beta1"));
}

#[test]
fn something_remote_in_an_overlay_holds_back_only_what_selects_it() {
    let base = format!("resources: [pool.yaml]\n{SELECTOR}");
    let overlay = format!("resources:\n- ../base\n- https://example.com/pools.yaml\n{SELECTOR}");
    let remote = format!("resources: [https://example.com/pools.yaml]\n{MERGED}{SELECTOR}");
    let dir = repository(&[
        ("base/kustomization.yaml", &base),
        ("base/pool.yaml", &old_pool("a")),
        ("overlay/kustomization.yaml", &overlay),
        ("remote/kustomization.yaml", &remote),
    ]);
    let output = migrate(dir.path(), &["--write"]);
    let said = stderr(&output);
    for file in ["base/kustomization.yaml", "base/pool.yaml", "overlay/kustomization.yaml"] {
        assert!(!has(&dir, file, "v1beta1"), "{file}: {said}");
    }
    assert!(has(&dir, "remote/kustomization.yaml", "v1beta1"), "{said}");
    for part in [
        "warning: overlay/kustomization.yaml: migrated with what is in base/pool.yaml, but it may also patch what is in \
         https://example.com/pools.yaml",
        "warning: remote/kustomization.yaml: not changed: it may patch what is in https://example.com/pools.yaml",
        "3 of 3 migrated; 2 left as is",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn a_kustomization_that_selects_what_stays_and_what_moves_is_told() {
    let overlay = format!("resources: [../base, ../generated]\n{SELECTOR}");
    let dir = repository(&[
        ("base/kustomization.yaml", "resources: [pool.yaml]\n"),
        ("base/pool.yaml", &old_pool("a")),
        ("generated/kustomization.yaml", "resources: [pool.yaml]\n"),
        ("generated/pool.yaml", &old_pool("b")),
        ("overlay/kustomization.yaml", &overlay),
    ]);
    let said = stderr(&migrate(dir.path(), &["--write", "--exclude", "generated/"]));
    let part = "warning: overlay/kustomization.yaml: not changed: it patches what is in generated/pool.yaml, which stays as it is, and may \
                patch what is in base/pool.yaml, which is migrated";
    assert!(said.contains(part), "{said}");
    assert!(has(&dir, "overlay/kustomization.yaml", "v1beta1") && !has(&dir, "base/pool.yaml", "v1beta1"));
}

#[test]
fn patches_and_replacements_move_with_their_base() {
    let patch = MERGED.replace("patchesStrategicMerge:\n-", "patches:\n- patch:");
    let patch = patch.replace("\n  ", "\n    ");
    let kustomization = format!("resources: [pool.yaml]\n{patch}replacements: [{{path: r.yaml}}]\n");
    let replacement =
        "source: {kind: NodePool, version: 'v1beta1'}\ntargets:\n- select: {kind: NodePool, version: 'v1beta1'}\n";
    let dir = repository(&[
        ("kustomization.yaml", &kustomization),
        ("pool.yaml", &old_pool("a")),
        ("r.yaml", replacement),
        ("merged/kustomization.yaml", &format!("resources: [..]\n{MERGED}")),
    ]);
    let said = stderr(&migrate(dir.path(), &["--write"]));
    for file in ["kustomization.yaml", "pool.yaml", "r.yaml"] {
        assert!(!has(&dir, file, "v1beta1"), "{file}: {said}");
    }
    let part = "warning: merged/kustomization.yaml: not changed: patchesStrategicMerge[0] is a text with a manifest of an older version";
    assert!(said.contains(part) && said.contains("3 of 3 migrated; 1 left as is"), "{said}");
}

#[test]
fn files_that_are_given_by_name_are_protected_as_well() {
    let kustomization = format!("resources: [../base, more.yaml]\n{SELECTOR}- path: patches/p.yaml\n- path: r.yaml\n");
    let files = [
        ("base/kustomization.yaml", "resources: [pool.yaml]\n"),
        ("base/pool.yaml", &old_pool("a")[..]),
        ("overlay/kustomization.yaml", &kustomization),
        ("overlay/more.yaml", &old_pool("b")),
        ("overlay/patches/p.yaml", &old_pool("a")),
    ];
    let dir = repository(&files);
    let said = stderr(&migrate(dir.path(), &["--write", "overlay/patches/p.yaml"]));
    let part =
        "warning: overlay/patches/p.yaml: not changed: it patches what is in base/pool.yaml, which stays as it is";
    assert!(said.contains(part), "{said}");
    assert!(has(&dir, "overlay/patches/p.yaml", "v1beta1"));
    // What selects a file that moves is told; other resources are not concerned.
    let said = stderr(&migrate(dir.path(), &["--write", "overlay/more.yaml"]));
    assert!(said.contains("warning: overlay/kustomization.yaml: not changed: it is built or synced"), "{said}");
    assert!(!said.contains("base/pool.yaml") && !has(&dir, "overlay/more.yaml", "v1beta1"), "{said}");
}
