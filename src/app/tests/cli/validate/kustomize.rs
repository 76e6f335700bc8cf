//! `validate` builds kustomizations, and reports when it cannot.

#![cfg(unix)]

use super::{class, stderr, stdout, write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs with a PATH that holds only these programs.
pub(super) fn validate(folder: &Path, programs: &[(&str, &str)], args: &[&str]) -> Output {
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
fn a_kustomization_is_built_and_findings_that_no_file_has_point_into_the_render() {
    let folder = overlay();
    let output = validate(folder.path(), &[("kustomize", FAKE)], &["overlays/prod"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.starts_with("<kustomize overlays/prod>:7:12: error[NK1015]"), "{text}");
    assert!(text.contains("  7 |   maxPods: 5\n"), "{text}");
    assert!(text.contains("1 object in 1 file checked: 1 error, 0 warnings; built 1 kustomization;"), "{text}");
    let github = stdout(&validate(folder.path(), &[], &["overlays/prod", "-o", "github"]));
    let start = "::error file=overlays/prod/kustomization.yaml,line=1,col=1,title=NK1015";
    assert!(github.starts_with(start) && github.contains("::<kustomize overlays/prod>:7:12: "), "{github}");
    let found = stdout(&validate(&folder.path().join("overlays"), &[("kustomize", "/bin/cat ../render.yaml")], &[]));
    assert!(found.starts_with("<kustomize prod>:6:12: error[NK1015]"), "it is found, too: {found}");
}

#[test]
fn kubectl_builds_if_kustomize_is_missing() {
    let folder = overlay();
    let only_kustomize = "if [ \"$1\" != kustomize ]; then exit 9; fi\n/bin/cat render.yaml";
    let output = validate(folder.path(), &[("kubectl", only_kustomize)], &["overlays/prod"]);
    assert!(stdout(&output).starts_with("<kustomize overlays/prod>:6:12: error[NK1015]"), "{}", stderr(&output));
}

#[test]
fn a_missing_build_program_is_an_error_where_a_kustomization_is_named() {
    let folder = overlay();
    let output = validate(folder.path(), &[], &["overlays/prod"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("neither kustomize nor kubectl is in PATH"), "{}", stderr(&output));
    let output = validate(folder.path(), &[], &["overlays/prod", "--kustomize=never"]);
    assert_eq!(output.status.code(), Some(0), "its files are fine: {}", stdout(&output));
    assert_eq!(stderr(&output), "");
    let output = validate(&folder.path().join("overlays/prod"), &[], &[]);
    assert_eq!(output.status.code(), Some(0), "a folder that is not named is read: {}", stderr(&output));
    let said = "warning: not built: 1 kustomization: neither kustomize nor kubectl is in PATH: install one of them";
    assert!(stderr(&output).starts_with(said), "{}", stderr(&output));
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
    std::fs::remove_file(folder.path().join("render.yaml")).unwrap();
    let output = validate(folder.path(), &[("kustomize", "exit 0")], &["overlays/prod"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("no supported manifests found in overlays/prod"), "{}", stderr(&output));
}

/// Runs with the kustomize or kubectl of this machine.
pub(super) fn real(folder: &Path, args: &[&str]) -> Output {
    let on_path = |name: &str| {
        std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).any(|p: PathBuf| p.join(name).is_file())
    };
    assert!(on_path("kustomize") || on_path("kubectl"), "this test needs kustomize or kubectl in PATH: install one");
    super::validate(folder, args)
}

#[test]
fn the_real_program_builds_a_real_kustomization() {
    let folder = overlay();
    let patch = "resources: [class.yaml]\npatches:\n- target: {kind: AKSNodeClass}\n  patch: |\n    - {op: replace, path: /spec/maxPods, value: 7}\n";
    write(folder.path(), &[("overlays/prod/kustomization.yaml", patch)]);
    let output = real(folder.path(), &["overlays/prod"]);
    assert!(stdout(&output).contains("must be at least 10, got 7"), "{}{}", stdout(&output), stderr(&output));
}

/// A base that is no object by itself, two overlays that complete it, one with a component, and a file beside them.
pub(super) fn base_and_overlays() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let base = "apiVersion: karpenter.azure.com/v1beta1\nkind: AKSNodeClass\nmetadata:\n  name: a\nspec:\n  osDiskSizeGB: 10\n";
    let pods = |n: u32| {
        format!(
            "apiVersion: karpenter.azure.com/v1beta1\nkind: AKSNodeClass\nmetadata: {{name: a}}\nspec:\n  maxPods: {n}\n"
        )
    };
    let component = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\npatches: [{path: tags.yaml}]\n";
    let tags =
        "apiVersion: karpenter.azure.com/v1beta1\nkind: AKSNodeClass\nmetadata: {name: a}\nspec: {tags: {b: c}}\n";
    let files = [
        ("base/kustomization.yaml", "resources: [class.yaml]\n"),
        ("base/class.yaml", base),
        ("overlays/dev/kustomization.yaml", "resources: [../../base]\npatches: [{path: pods.yaml}]\n"),
        ("overlays/dev/pods.yaml", &pods(40)),
        (
            "overlays/prod/kustomization.yaml",
            "resources: [../../base]\ncomponents: [../../tagged]\npatches: [{path: pods.yaml}]\n",
        ),
        ("overlays/prod/pods.yaml", &pods(5)),
        ("tagged/kustomization.yaml", component),
        ("tagged/tags.yaml", tags),
        ("beside.yaml", &class("beside", 7)),
    ];
    write(folder.path(), &files);
    folder
}

/// `file:line rule` of each finding.
pub(super) fn lines(output: &Output) -> Vec<String> {
    let text = stdout(output);
    let heads = text.lines().filter(|line| line.contains(": error[") || line.contains(": warning["));
    let head = |line: &str| {
        let (at, rest) = line.split_once(": ").unwrap();
        let (_, rule) = rest.split_once('[').unwrap();
        let (file, _) = at.rsplit_once(':').unwrap();
        format!("{file} {}", rule.split_once(']').unwrap().0)
    };
    heads.map(head).collect()
}

#[test]
fn kustomizations_are_found_and_findings_point_at_the_files_they_come_from() {
    let folder = base_and_overlays();
    let output = real(folder.path(), &[]);
    assert_eq!(
        lines(&output),
        ["beside.yaml:6 NK1015", "base/class.yaml:6 NK1015", "overlays/prod/pods.yaml:5 NK1015"],
        "each once: {}{}",
        stdout(&output),
        stderr(&output)
    );
    assert!(stdout(&output).contains("  5 |   maxPods: 5\n"), "{}", stdout(&output));
    assert!(stdout(&output).contains("3 objects in 5 files checked: 3 errors, 0 warnings; built 2 kustomizations;"));
    assert_eq!(lines(&real(folder.path(), &["overlays/dev"])), ["base/class.yaml:6 NK1015"]);
    assert_eq!(lines(&real(&folder.path().join("overlays/dev"), &[])).len(), 1, "from within");
    assert_eq!(lines(&real(folder.path(), &["base"])), ["base/class.yaml:6 NK1015"]);
    // The same faults as in what is rendered.
    let github = stdout(&real(folder.path(), &["overlays", "-o", "github"]));
    assert!(github.contains("::error file=overlays/prod/pods.yaml,line=5,col=12,"), "{github}");
}

#[test]
fn a_comment_in_a_file_applies_to_what_is_built_from_it() {
    let folder = base_and_overlays();
    let patch = "apiVersion: karpenter.azure.com/v1beta1\nkind: AKSNodeClass\nmetadata: {name: a}\nspec:\n  # napkeeper:ignore NK1015 a test\n  maxPods: 5\n";
    write(folder.path(), &[("overlays/prod/pods.yaml", patch)]);
    let output = real(folder.path(), &["overlays/prod"]);
    assert_eq!(lines(&output), ["base/class.yaml:6 NK1015"], "{}", stdout(&output));
    assert!(stdout(&output).contains("1 ignored by comments"), "{}", stdout(&output));
}

#[test]
fn nothing_is_fetched_unless_it_is_asked_for() {
    let folder = base_and_overlays();
    let remote = "resources: [\"https://github.com/owner/name//base?ref=v1\", class.yaml]\n";
    write(folder.path(), &[("remote/kustomization.yaml", remote), ("remote/class.yaml", &class("r", 6))]);
    // Says if it is run, and whether it may fetch.
    let says = [("kustomize", "echo \"ran $2 $GIT_ALLOW_PROTOCOL $HTTPS_PROXY\" >&2; exit 1")];
    let output = validate(folder.path(), &says, &["remote", "--kustomize"]);
    assert_eq!(output.status.code(), Some(2));
    let why = "remote: is not built: remote/kustomization.yaml names https://github.com/owner/name//base?ref=v1, which is \
               not in the repository: use --kustomize=remote to fetch it";
    assert!(stderr(&output).contains(&format!("error: {why}")), "{}", stderr(&output));
    assert!(!stderr(&output).contains("ran"), "{}", stderr(&output));
    let output = real(folder.path(), &[]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains(&format!("warning: {why}")), "{}", stderr(&output));
    assert!(lines(&output).contains(&"remote/class.yaml:6 NK1015".to_owned()), "its files are read as they are");
    let output = validate(folder.path(), &says, &["remote", "--kustomize=remote"]);
    assert!(stderr(&output).contains("ran") && !stderr(&output).contains("none"), "{}", stderr(&output));
    let output = validate(folder.path(), &says, &["overlays/dev"]);
    assert!(
        stderr(&output).contains("none http://127.0.0.1:9"),
        "what is hidden cannot be fetched: {}",
        stderr(&output)
    );
}

#[test]
fn charts_that_kustomize_would_fetch_are_said() {
    let folder = tempfile::tempdir().unwrap();
    let charts = "resources: [class.yaml]\nhelmCharts: [{name: a, repo: \"https://example.com\"}]\n";
    write(folder.path(), &[("a/kustomization.yaml", charts), ("a/class.yaml", &class("a", 40))]);
    let output = real(folder.path(), &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("a: is not built: a/kustomization.yaml renders Helm charts: pass -"));
}

#[test]
fn what_is_excluded_is_left_out_of_folders() {
    let folder = base_and_overlays();
    let counted = |args: &[&str]| {
        let output = real(folder.path(), args);
        (lines(&output), stdout(&output).contains("ignored 1 excluded path;"))
    };
    let rest = vec!["beside.yaml:6 NK1015".to_owned(), "base/class.yaml:6 NK1015".to_owned()];
    assert_eq!(counted(&["--exclude", "overlays/prod"]), (rest.clone(), true));
    write(folder.path(), &[(".napkeeperignore", "# not ours\n/overlays/prod/\n")]);
    assert_eq!(counted(&[]), (rest.clone(), true));
    assert_eq!(counted(&["overlays"]).0, ["base/class.yaml:6 NK1015"], "that of the repository");
    assert_eq!(counted(&["overlays/prod"]).0.len(), 2, "what is named is read");
    for pattern in ["a{b", "a["] {
        let output = real(folder.path(), &["--exclude", pattern]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(&format!("--exclude {pattern}")), "{}", stderr(&output));
    }
}

#[test]
fn revisions_and_changes_are_built_as_well() {
    let folder = base_and_overlays();
    let root = folder.path();
    let git = |args: &[&str]| {
        let identity = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"];
        let output = Command::new("git").current_dir(root).args(identity).args(args).output().unwrap();
        assert!(output.status.success(), "git {args:?}: {}", stderr(&output));
    };
    git(&["init", "-q"]);
    git(&["add", "-A"]);
    git(&["commit", "-q", "-m", "first"]);
    let all = ["beside.yaml:6 NK1015", "base/class.yaml:6 NK1015", "overlays/prod/pods.yaml:5 NK1015"];
    assert_eq!(lines(&real(root, &["--rev", "HEAD"])), all);
    assert_eq!(lines(&real(root, &["--rev", "HEAD", "overlays/dev"])), all[1..2]);
    assert_eq!(lines(&real(root, &["--changed-since", "HEAD"])), [""; 0], "all of it was there");
    // Another overlay changes: what was wrong with the rest is not its fault.
    let pods =
        "apiVersion: karpenter.azure.com/v1beta1\nkind: AKSNodeClass\nmetadata: {name: a}\nspec:\n  maxPods: 6\n";
    write(root, &[("overlays/dev/pods.yaml", pods)]);
    assert_eq!(lines(&real(root, &["--changed-since", "HEAD"])), ["overlays/dev/pods.yaml:5 NK1015"]);
    // A base that is removed is missed where it is built.
    std::fs::remove_dir_all(root.join("base")).unwrap();
    let output = real(root, &["--changed-since", "HEAD"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("overlays/dev: "), "{}", stderr(&output));
    assert_eq!(lines(&real(root, &["--rev", "HEAD"])), all, "a revision is as it was");
}
