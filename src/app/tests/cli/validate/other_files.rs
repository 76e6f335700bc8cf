//! Repositories hold more than manifests: charts, templates, values and files of other tools are left out, and counted.

use super::{class, stderr, stdout, write};
use std::path::Path;
use std::process::{Command, Output};

fn run(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_napkeeper")).args(args).current_dir(folder).output().unwrap()
}

fn pool() -> String {
    "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: general}\nspec:\n  limits: {cpu: 100}\n  template:\n    \
     spec:\n      terminationGracePeriod: 24h\n      nodeClassRef: {group: karpenter.azure.com, kind: AKSNodeClass, name: a}\n      \
     requirements:\n      - {key: karpenter.azure.com/sku-family, operator: In, values: [D]}\n"
        .to_owned()
}

#[test]
fn files_of_other_tools_are_neither_errors_nor_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let files = [
        ("pools/pool.yaml", &pool()[..]),
        ("pools/class.yaml", &class("a", 40)),
        ("pools/values.yaml", "replicas: 3\n"),
        ("pools/kustomization.yaml", "resources: [pool.yaml, class.yaml]\npatches: [{path: patch.yaml}]\n"),
        (
            "pools/patch.yaml",
            "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: general}\nspec: {weight: 7}\n",
        ),
        ("chart/Chart.yaml", "apiVersion: v2\nname: pools\nversion: 0.1.0\n"),
        ("chart/values.yaml", "name: general\n"),
        ("chart/templates/pool.yaml", "kind: NodePool\nmetadata:\n  name: {{ .Values.name }}\n"),
        ("ansible/play.yml", "- hosts: all\n  tasks: []\n"),
        ("ansible/pool.yml", "name: {{ item }}\n"),
        ("renovate.json", "{\"extends\": [\"config:base\"]}\n"),
        ("list.json", "[\"a\"]\n"),
    ];
    write(folder.path(), &files);
    let validated = run(folder.path(), &["validate"]);
    let summary = stdout(&validated);
    assert_eq!(validated.status.code(), Some(0), "{summary}{}", stderr(&validated));
    let counts = "2 objects in 7 files checked: 0 errors, 0 warnings; built 1 kustomization; ignored 3 files of Helm charts; \
                  ignored 1 template; ignored 4 of other kinds (4 not a manifest)";
    assert!(summary.contains(counts), "{summary}");
    for args in [["simulate", "."], ["migrate", "."], ["simulate", "pools"]] {
        let output = run(folder.path(), &args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
        let others = "3 files of Helm charts, 1 template";
        assert_eq!(stderr(&output).contains(others), args[1] == ".", "{args:?}: {}", stderr(&output));
    }
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&run(folder.path(), &["validate", "-o", "json"]))).unwrap();
    assert_eq!((&json["summary"]["charts"], &json["summary"]["templates"]), (&3.into(), &1.into()));
}

/// What is left out of a revision is what is left out of the folder.
#[test]
fn a_revision_leaves_out_the_same_files() {
    let folder = tempfile::tempdir().unwrap();
    let broken = class("b", 5);
    let files = [
        ("class.yaml", &class("a", 40)[..]),
        ("chart/Chart.yaml", "name: a\n"),
        ("chart/values-prod.yaml", "a: 1\n"),
        ("chart/values-prod/class.yaml", &broken),
        ("chart/templates/static.yaml", &broken),
        ("chart/templates/pool.yaml", "kind: NodePool\nmetadata: {name: \"{{ .Values.a }}\"}\n"),
        ("play.yaml", "a: {{ b }}\n"),
    ];
    write(folder.path(), &files);
    let git = |args: &[&str]| {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
        let output = Command::new("git").args(identity).args(args).current_dir(folder.path()).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    };
    git(&["init", "--quiet"]);
    git(&["add", "."]);
    git(&["commit", "--quiet", "--message=a"]);
    for paths in [&["."][..], &["chart/templates"], &[".", "chart/templates/pool.yaml"], &["play.yaml"]] {
        let summary = |more: &[&str]| {
            let args: Vec<&str> = ["validate", "-o", "json"].iter().chain(more).chain(paths).copied().collect();
            let output = run(folder.path(), &args);
            let json: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap_or_default();
            let counts = ["files", "checked", "errors", "charts", "templates"].map(|key| json["summary"][key].clone());
            (output.status.code(), counts)
        };
        let (code, counts) = summary(&[]);
        assert_eq!(summary(&["--rev", "HEAD"]), (code, counts.clone()), "{paths:?}");
        assert_eq!(code, Some(1), "{paths:?}: {counts:?}");
    }
}

#[cfg(unix)]
#[test]
fn a_broken_symbolic_link_is_said() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[("class.yaml", &class("a", 40))]);
    std::os::unix::fs::symlink("nowhere.yaml", folder.path().join("pool.yaml")).unwrap();
    let output = run(folder.path(), &["validate"]);
    assert_eq!(output.status.code(), Some(2));
    let words = "error: pool.yaml: is a symbolic link to nowhere.yaml, which cannot be read: repair it or remove it";
    assert!(stderr(&output).contains(words), "{}", stderr(&output));
}
