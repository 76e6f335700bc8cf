//! `validate` builds kustomizations, and reports when it cannot.

#![cfg(unix)]

use super::{class, stderr, stdout, write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs with a PATH that holds only these programs.
fn validate(folder: &Path, programs: &[(&str, &str)], args: &[&str]) -> Output {
    let path = folder.join("bin");
    std::fs::create_dir_all(&path).unwrap();
    for (name, script) in programs {
        let file = path.join(name);
        std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_napkeeper"));
    command.arg("validate").args(args).current_dir(folder).env("PATH", &path).output().unwrap()
}

/// An overlay whose file alone is valid, but its build, by the fake, is not.
fn overlay() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let files = [
        ("overlays/prod/kustomization.yaml", "resources: [class.yaml]\n"),
        ("overlays/prod/class.yaml", &class("a", 40)),
        ("render.yaml", &class("a", 5)),
    ];
    write(folder.path(), &files);
    folder
}

/// Prints its arguments as a comment, and the build.
const FAKE: &str = "echo \"# $0 $*\"\n/bin/cat render.yaml";

#[test]
fn a_kustomization_that_is_named_is_built_and_findings_point_into_the_render() {
    let folder = overlay();
    let output = validate(folder.path(), &[("kustomize", FAKE)], &["overlays/prod"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.starts_with("<kustomize overlays/prod>:7:12: error[NK1015]"), "{text}");
    assert!(text.contains("  7 |   maxPods: 5\n"), "{text}");
    let github = stdout(&validate(folder.path(), &[], &["overlays/prod", "-o", "github"]));
    let start = "::error file=overlays/prod/kustomization.yaml,line=1,col=1,title=NK1015";
    assert!(github.starts_with(start) && github.contains("::<kustomize overlays/prod>:7:12: "), "{github}");
}

#[test]
fn kubectl_builds_if_kustomize_is_missing() {
    let folder = overlay();
    let only_kustomize = "if [ \"$1\" != kustomize ]; then exit 9; fi\n/bin/cat render.yaml";
    let output = validate(folder.path(), &[("kubectl", only_kustomize)], &["overlays/prod"]);
    assert!(stdout(&output).starts_with("<kustomize overlays/prod>:6:12: error[NK1015]"), "{}", stderr(&output));
}

#[test]
fn a_missing_build_program_is_an_error_with_a_remedy() {
    let folder = overlay();
    let output = validate(folder.path(), &[], &["overlays/prod"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("neither kustomize nor kubectl is in PATH"), "{}", stderr(&output));
    let output = validate(folder.path(), &[], &["overlays/prod", "--kustomize=never"]);
    assert_eq!(output.status.code(), Some(0), "its files are fine: {}", stdout(&output));
    let output = validate(&folder.path().join("overlays/prod"), &[], &[]);
    assert_eq!(output.status.code(), Some(0), "a folder that is not named is read: {}", stderr(&output));
}

#[test]
fn a_failed_build_is_shown_with_its_output() {
    let folder = overlay();
    let fails = [("kustomize", "echo 'no such base' >&2; exit 1")];
    let output = validate(folder.path(), &fails, &["overlays/prod", "render.yaml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("overlays/prod: kustomize build failed (exit status: 1): no such base"),
        "{}",
        stderr(&output)
    );
    assert!(stdout(&output).starts_with("render.yaml:6:12"), "the rest is reported");
    let output = validate(folder.path(), &fails, &["--kustomize", "--", "render.yaml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("is not a directory with a kustomization.yaml"), "{}", stderr(&output));
}

#[test]
fn a_render_without_objects_is_an_error() {
    let folder = overlay();
    let output = validate(folder.path(), &[("kustomize", "exit 0")], &["overlays/prod"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("no supported manifests found in overlays/prod"), "{}", stderr(&output));
}

#[test]
fn the_real_program_builds_a_real_kustomization() {
    let on_path = |name: &str| {
        std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).any(|p: PathBuf| p.join(name).is_file())
    };
    assert!(on_path("kustomize") || on_path("kubectl"), "this test needs kustomize or kubectl in PATH: install one");
    let folder = overlay();
    let patch = "resources: [class.yaml]\npatches:\n- target: {kind: AKSNodeClass}\n  patch: |\n    - {op: replace, path: /spec/maxPods, value: 7}\n";
    write(folder.path(), &[("overlays/prod/kustomization.yaml", patch)]);
    let output = super::validate(folder.path(), &["overlays/prod"]);
    assert!(stdout(&output).contains("must be at least 10, got 7"), "{}{}", stdout(&output), stderr(&output));
}
