//! Clusters of `napkeeper.yaml`, each validated with its own paths and facts.

use super::{class, found, stderr, stdout, validate, write};
use std::io::Write;
use std::process::{Command, Stdio};

const SETTINGS: &str = "clusters:\n- name: prod\n  paths: [clusters/prod, shared]\n  region: westeurope\n\
                        - name: test\n  paths: [clusters/test, shared]\n  networkMode: node-subnet\n";

fn repository() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let bad = class("a", 5);
    let files = ["clusters/prod/a.yaml", "clusters/test/a.yaml", "shared/a.yaml", "other/a.yaml"]
        .map(|file| (file, bad.as_str()));
    write(folder.path(), &files);
    write(folder.path(), &[("napkeeper.yaml", SETTINGS)]);
    folder
}

#[test]
fn findings_name_their_clusters() {
    let folder = repository();
    let output = validate(folder.path(), &["-o", "json"]);
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let shown = |f: &serde_json::Value| format!("{} {}", f["file"].as_str().unwrap(), f["clusters"]);
    let findings: Vec<_> = result["findings"].as_array().unwrap().iter().map(shown).collect();
    let expected = [
        "clusters/prod/a.yaml [\"prod\"]",
        "clusters/test/a.yaml [\"test\"]",
        "other/a.yaml null",
        "shared/a.yaml [\"prod\",\"test\"]",
    ];
    assert_eq!(findings, expected);
    assert_eq!(result["summary"]["checked"], 5, "what is judged twice is counted once");
    let text = stdout(&validate(folder.path(), &["shared"]));
    assert!(text.lines().next().unwrap().ends_with(": spec.maxPods) [prod, test]"), "{text}");
}

#[test]
fn an_object_in_several_files_of_a_cluster_is_told() {
    let folder = repository();
    let good = class("a", 40);
    write(
        folder.path(),
        &["clusters/prod/a.yaml", "clusters/test/a.yaml", "shared/a.yaml"].map(|file| (file, good.as_str())),
    );
    let text = stdout(&validate(folder.path(), &["--cluster", "prod"]));
    let told = ": 0 errors, 0 warnings; only objects of one folder compared, as 1 object is in several files; ";
    assert!(text.contains(told), "{text}");
    let text = stdout(&validate(folder.path(), &["clusters/prod", "clusters/test"]));
    assert!(!text.contains("several files"), "those of different clusters are two: {text}");
}

#[test]
fn an_object_in_a_file_of_that_name_is_no_settings() {
    let folder = repository();
    let flux = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: napkeeper, namespace: flux-system}\n\
                spec: {path: ./napkeeper-system, sourceRef: {kind: GitRepository, name: flux-system}}\n";
    write(folder.path(), &[("clusters/prod/napkeeper.yaml", flux)]);
    let git = |args: &[&str]| {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
        assert!(Command::new("git").args(identity).args(args).current_dir(folder.path()).status().unwrap().success());
    };
    git(&["init", "-q"]);
    git(&["add", "."]);
    git(&["commit", "-qm", "all"]);
    for args in [&["clusters/prod"][..], &["clusters/prod", "--rev", "HEAD"]] {
        let text = stdout(&validate(folder.path(), args));
        assert!(text.lines().next().unwrap().ends_with(": spec.maxPods) [prod]"), "{args:?}: {text}");
        assert!(text.contains("1 error, 0 warnings"), "{args:?}: {text}");
    }
}

#[test]
fn one_cluster_can_be_chosen() {
    let folder = repository();
    assert_eq!(
        found(folder.path(), &["--cluster", "prod"]),
        ["clusters/prod/a.yaml:6 NK1015", "shared/a.yaml:6 NK1015"]
    );
    let below = folder.path().join("clusters/test");
    assert_eq!(found(&below, &["--cluster", "test", "."]), ["a.yaml:6 NK1015"]);
    for (args, words) in [
        (&["--cluster", "prdo"][..], "has no cluster \"prdo\": did you mean prod? Available: prod, test"),
        (&["--cluster", "prod", "other"], "no supported manifests found in other for cluster prod"),
        (&["--region", "westeuorpe"], "did you mean westeurope?"),
        (&["--kubernetes-version", "latest"], "must be a version such as 1.33"),
    ] {
        let output = validate(folder.path(), args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains(words), "{args:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn the_standard_input_belongs_to_the_chosen_cluster_or_to_one_that_has_everything() {
    let folder = repository();
    let first_line = |args: &[&str]| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_napkeeper"))
            .args(["validate", "-"])
            .args(args)
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(class("a", 5).as_bytes()).unwrap();
        stdout(&child.wait_with_output().unwrap()).lines().next().unwrap().to_owned()
    };
    assert!(first_line(&[]).ends_with(": spec.maxPods)"));
    assert!(first_line(&["--cluster", "prod"]).ends_with(": spec.maxPods) [prod]"));
    write(folder.path(), &[("napkeeper.yaml", "clusters:\n- name: all\n- name: part\n  paths: [other]\n")]);
    assert!(first_line(&[]).ends_with(": spec.maxPods) [all]"));
}

#[test]
fn an_unknown_region_is_reported_with_its_position() {
    let folder = repository();
    write(folder.path(), &[("napkeeper.yaml", "clusters:\n- name: a\n  region: westeuropa\n")]);
    let output = validate(folder.path(), &[]);
    assert_eq!(output.status.code(), Some(2));
    let error = stderr(&output);
    assert!(
        error.contains("napkeeper.yaml:3:11: clusters[0].region") && error.contains("did you mean westeurope?"),
        "{error}"
    );
    assert_eq!(validate(folder.path(), &["--region", "westeurope"]).status.code(), Some(1), "a flag overrides it");
}
