//! `validate` of Git revisions, and of changes since one.

use super::{class, found, stderr, stdout, validate, write};
use std::path::Path;
use std::process::Command;

fn git(folder: &Path, args: &[&str]) {
    let settings = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"];
    let output = Command::new("git")
        .current_dir(folder)
        .args(settings)
        .args(args)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .output()
        .unwrap();
    assert!(output.status.success(), "git {args:?}: {}", stderr(&output));
}

fn commit(folder: &Path, message: &str) {
    git(folder, &["add", "-A"]);
    git(folder, &["commit", "-q", "-m", message]);
}

/// A repository with three bad files on main.
fn repository() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let bad = class("a", 5);
    write(
        folder.path(),
        &[("a.yaml", &bad), ("sub/b.yaml", &bad), ("sub/c d.yaml", &bad), ("sub/.hidden/x.yaml", &bad)],
    );
    git(folder.path(), &["init", "-q"]);
    commit(folder.path(), "first");
    folder
}

#[test]
fn a_revision_is_read_without_a_checkout() {
    let folder = repository();
    let root = folder.path();
    let bad = class("a", 5);
    write(root, &[("a.yaml", &class("a", 40)), ("sub/new.yaml", &bad)]);
    std::fs::remove_file(root.join("sub/b.yaml")).unwrap();
    assert_eq!(found(root, &["--rev", "HEAD"]), ["a.yaml:6 NK1015", "sub/b.yaml:6 NK1015", "sub/c d.yaml:6 NK1015"]);
    assert_eq!(found(root, &["--rev", "main", "sub"]), ["sub/b.yaml:6 NK1015", "sub/c d.yaml:6 NK1015"]);
    assert_eq!(found(&root.join("sub"), &["--rev", "main"]), ["b.yaml:6 NK1015", "c d.yaml:6 NK1015"]);
    assert_eq!(found(&root.join("sub"), &["--rev", "main", "../a.yaml"]), ["../a.yaml:6 NK1015"]);
    assert_eq!(found(root, &[]), ["sub/c d.yaml:6 NK1015", "sub/new.yaml:6 NK1015"], "the work tree is as it was");
    let text = stdout(&validate(root, &["--rev", "main"]));
    assert!(text.contains("3 objects in 3 files of main ("), "{text}");
    assert!(text.contains("  6 |   maxPods: 5\n"), "the excerpt is the revision's: {text}");
}

#[test]
fn the_settings_of_a_revision_are_its_own() {
    let folder = repository();
    let root = folder.path();
    write(root, &[("napkeeper.yaml", "clusters:\n- name: then\n")]);
    commit(root, "settings");
    write(root, &[("napkeeper.yaml", "clusters:\n- name: now\n")]);
    let named = |args: &[&str]| stdout(&validate(root, args));
    assert!(named(&["a.yaml"]).contains("[now]"));
    assert!(named(&["--rev", "HEAD", "a.yaml"]).contains("[then]"));
}

#[test]
fn an_unknown_revision_is_an_error() {
    let folder = repository();
    for (args, words) in [
        (&["--rev", "nowhere"][..], "\"nowhere\" is not a Git revision"),
        (&["--rev=-x"], "\"-x\" is not a Git revision"),
        (&["--changed-since", "nowhere"], "\"nowhere\" is not a Git revision"),
        (&["--rev", "HEAD", "-"], "(stdin)"),
        (&["--rev", "HEAD", "--kustomize"], "is not a directory with a kustomization.yaml"),
        (&["--rev", "HEAD", "nowhere.yaml"], "nowhere.yaml: is not in HEAD"),
        (&["--rev", "HEAD", "a.yaml", "/"], "is outside"),
    ] {
        let output = validate(folder.path(), args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains(words), "{args:?}: {}", stderr(&output));
    }
    let elsewhere = tempfile::tempdir().unwrap();
    write(elsewhere.path(), &[("a.yaml", &class("a", 5))]);
    let output = validate(elsewhere.path(), &["--rev", "HEAD"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("git rev-parse failed"), "{}", stderr(&output));
}

#[test]
fn only_what_changed_since_the_merge_base_is_reported() {
    let folder = repository();
    let root = folder.path();
    git(root, &["checkout", "-q", "-b", "branch"]);
    let bad = class("a", 5);
    // Renamed, deleted, changed and committed, changed and not committed, new to Git.
    git(root, &["mv", "sub/c d.yaml", "sub/moved.yaml"]);
    git(root, &["rm", "-q", "sub/b.yaml"]);
    write(root, &[("committed.yaml", &bad)]);
    commit(root, "work");
    // What main does meanwhile is not this branch's.
    git(root, &["checkout", "-q", "main"]);
    write(root, &[("a.yaml", &class("main", 5))]);
    commit(root, "elsewhere");
    git(root, &["checkout", "-q", "branch"]);
    write(root, &[("untracked.yaml", &bad)]);
    let mine = ["committed.yaml:6 NK1015", "sub/moved.yaml:6 NK1015", "untracked.yaml:6 NK1015"];
    assert_eq!(found(root, &["--changed-since", "main"]), mine);
    assert_eq!(found(&root.join("sub"), &["--changed-since", "main"]), ["moved.yaml:6 NK1015"]);
    assert_eq!(found(root, &["--changed-since", "main", "--rev", "branch"]), mine[..2]);
    write(root, &[("a.yaml", &class("b", 5))]);
    assert_eq!(found(root, &["--changed-since", "main"]).len(), 4);
    git(root, &["checkout", "-q", "a.yaml"]);
    std::fs::remove_file(root.join("untracked.yaml")).unwrap();
    let output = validate(root, &["--changed-since", "HEAD"]);
    assert_eq!(output.status.code(), Some(0), "nothing changed: {}", stdout(&output));
    assert!(stdout(&output).contains("3 in unchanged files not shown"), "{}", stdout(&output));
}

#[test]
fn a_hook_of_git_may_ask_for_another_folder() {
    let folder = repository();
    let mut command = Command::new(env!("CARGO_BIN_EXE_napkeeper"));
    command.args(["validate", "sub", "--changed-since", "HEAD"]).current_dir(folder.path()).env("GIT_DIR", ".git");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("2 in unchanged files not shown"), "{}", stdout(&output));
}

#[test]
fn new_findings_are_reported_in_unchanged_files_too() {
    let folder = repository();
    let root = folder.path();
    assert_eq!(found(root, &["--changed-since", "HEAD"]), [] as [&str; 0]);
    // Git ignores changes of the file, so it counts as unchanged, as if another file caused the finding.
    git(root, &["update-index", "--assume-unchanged", "a.yaml"]);
    write(root, &[("a.yaml", &(class("a", 5) + "  imageFamily: ubuntu\n"))]);
    assert_eq!(found(root, &["--changed-since", "HEAD"]), ["a.yaml:7 NK1013"]);
    assert_eq!(found(&root.join("sub"), &["--changed-since", "HEAD", "../a.yaml"]), ["../a.yaml:7 NK1013"]);
}

const POOL: &str = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: web}\nspec:\n  limits: {cpu: 100, memory: 400Gi}\n  \
    template:\n    spec:\n      nodeClassRef: {group: karpenter.azure.com, kind: AKSNodeClass, name: web}\n      requirements:\n      \
    - {key: karpenter.azure.com/sku-family, operator: In, values: [D]}\n";

#[test]
fn a_change_that_removes_the_only_class_of_a_pool_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let unused = POOL.replace("name: web", "name: other").replace("[D]", "[E]");
    write(root, &[("class.yaml", &class("web", 40)), ("pool.yaml", POOL), ("other.yaml", &unused)]);
    git(root, &["init", "-q"]);
    commit(root, "first");
    git(root, &["checkout", "-q", "-b", "branch"]);
    git(root, &["rm", "-q", "class.yaml"]);
    commit(root, "work");
    let missing = "pool.yaml:8 NK2027";
    assert_eq!(found(root, &["--changed-since", "main"]), [missing]);
    assert_eq!(found(root, &["--changed-since", "HEAD"]), [] as [&str; 0], "it was missing before");
    assert_eq!(found(root, &[]), [] as [&str; 0], "the input says nothing about classes");
    // Another class is left: the same is reported, once.
    write(root, &[("left.yaml", &class("left", 40))]);
    assert_eq!(found(root, &["--changed-since", "main", "pool.yaml", "left.yaml"]), [missing]);
    // A comment can ignore it.
    let ignored =
        POOL.replace("name: web}\n      req", "name: web} # napkeeper:ignore NK2027 is made by hand\n      req");
    write(root, &[("pool.yaml", &ignored)]);
    std::fs::remove_file(root.join("left.yaml")).unwrap();
    assert_eq!(found(root, &["--changed-since", "main"]), [] as [&str; 0]);
}

#[test]
fn histories_without_a_common_commit_are_an_error_that_helps() {
    let folder = repository();
    let root = folder.path();
    git(root, &["checkout", "-q", "--orphan", "other"]);
    commit(root, "other");
    let output = validate(root, &["--changed-since", "main"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("fetch-depth: 0"), "{}", stderr(&output));
}
