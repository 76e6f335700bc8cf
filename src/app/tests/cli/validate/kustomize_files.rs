//! `validate`: which files are part of a kustomization, of which object a finding is, and what is never fetched.

#![cfg(unix)]

use super::kustomize::{base_and_overlays, lines, real, validate};
use super::{class, stderr, stdout, write};
use std::process::Command;

#[test]
fn a_finding_is_moved_to_its_own_object_or_stays_in_the_render() {
    let folder = tempfile::tempdir().unwrap();
    let classes = |names: &[(&str, u32)]| -> String {
        let class = |(name, pods): &(&str, u32)| class(name, *pods);
        names.iter().map(class).collect::<Vec<_>>().join("---\n")
    };
    let web = |namespace: &str, line: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, namespace: {namespace}}}\nspec:\n  selector: {{matchLabels: {{a: b}}}}\n  \
             template:\n    metadata: {{labels: {{a: b}}}}\n    spec:\n      containers: [{{name: a, image: a}}]\n{line}"
        )
    };
    let files = [
        ("names/kustomization.yaml", "resources: [a.yaml, b.yaml]\nnameSuffix: -v2\n".to_owned()),
        ("names/a.yaml", classes(&[("gpu", 40)])),
        ("names/b.yaml", classes(&[("gpu-large", 5)])),
        ("namespaces/kustomization.yaml", "resources: [a.yaml, b.yaml]\n".to_owned()),
        ("namespaces/a.yaml", web("a", "  wrong: 1\n")),
        ("namespaces/b.yaml", web("b", "  wrong: 1\n")),
    ];
    write(folder.path(), &files.each_ref().map(|(name, text)| (*name, text.as_str())));
    assert_eq!(lines(&real(folder.path(), &["names"])), ["names/b.yaml:6 NK1015"]);
    let found = lines(&real(folder.path(), &["namespaces"]));
    let unknown: Vec<&String> = found.iter().filter(|line| line.ends_with("NK1010")).collect();
    assert_eq!(unknown, ["namespaces/a.yaml:10 NK1010", "namespaces/b.yaml:10 NK1010"]);
}

#[test]
fn what_could_be_fetched_in_other_ways_is_not_built_either() {
    let folder = tempfile::tempdir().unwrap();
    let transformer =
        "apiVersion: builtin\nkind: PatchTransformer\nmetadata: {name: t}\npath: http://127.0.0.1:9/a.yaml\n";
    let inline = "transformers:\n- |-\n  apiVersion: builtin\n  kind: PatchTransformer\n  metadata: {name: t}\n  path: http://127.0.0.1:9/a.yaml\n";
    for (kustomization, what) in [
        ("Resources: [class.yaml, \"http://127.0.0.1:9/c.yaml\"]\n".to_owned(), "names http://127.0.0.1:9/c.yaml"),
        ("resources: [class.yaml]\ntransformers: [t.yaml]\n".to_owned(), "names http://127.0.0.1:9/a.yaml"),
        (format!("resources: [class.yaml]\n{inline}"), "names http://127.0.0.1:9/a.yaml"),
        ("resources: [class.yaml]\ntransformers: [more]\n".to_owned(), "has transformers in the folder more"),
    ] {
        let files = [
            ("a/kustomization.yaml", kustomization.as_str()),
            ("a/class.yaml", &class("a", 40)),
            ("a/t.yaml", transformer),
            ("a/more/kustomization.yaml", "resources: [t.yaml]\n"),
            ("a/more/t.yaml", transformer),
        ];
        write(folder.path(), &files);
        let output = validate(folder.path(), &[("kustomize", "echo ran >&2; exit 1")], &["a/class.yaml", "a"]);
        assert!(
            stderr(&output).contains(&format!("a/kustomization.yaml {what}")),
            "{kustomization}: {}",
            stderr(&output)
        );
        assert!(!stderr(&output).contains("a: kustomize build failed"), "{kustomization}: {}", stderr(&output));
    }
}

#[test]
fn a_base_of_what_is_not_built_is_built_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let patch =
        "apiVersion: karpenter.azure.com/v1beta1\nkind: AKSNodeClass\nmetadata: {name: a}\nspec: {maxPods: 5}\n";
    let files = [
        ("base/kustomization.yaml", "resources: [class.yaml]\npatches: [{path: patch.yaml}]\n"),
        ("base/class.yaml", &class("a", 40)[..]),
        ("base/patch.yaml", patch),
        ("over/kustomization.yaml", "resources: [../base, \"https://example.com/a\"]\n"),
        (
            "part/kustomization.yaml",
            "kind: Component\napiVersion: kustomize.config.k8s.io/v1alpha1\nresources: [../base]\n",
        ),
    ];
    write(folder.path(), &files);
    assert_eq!(lines(&real(folder.path(), &[])), ["base/patch.yaml:4 NK1015"]);
}

#[test]
fn a_file_by_name_is_read_alone_and_a_kustomization_needs_no_extension() {
    let folder = base_and_overlays();
    write(folder.path(), &[("overlays/prod/good.yaml", &class("good", 40))]);
    assert_eq!(lines(&real(folder.path(), &["overlays/prod/good.yaml"])), [""; 0]);
    std::fs::rename(
        folder.path().join("overlays/prod/kustomization.yaml"),
        folder.path().join("overlays/prod/Kustomization"),
    )
    .unwrap();
    std::fs::remove_file(folder.path().join("overlays/prod/good.yaml")).unwrap();
    assert_eq!(lines(&real(folder.path(), &["overlays"])).len(), 2, "its patch is built");
}

#[test]
fn a_cluster_has_what_is_built_from_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let pool = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: a}\nspec: {weight: 700}\n";
    let files = [
        ("napkeeper.yaml", "clusters: [{name: prod, paths: [clusters/prod/pools]}]\n"),
        ("clusters/prod/kustomization.yaml", "resources: [pools/pool.yaml]\n"),
        ("clusters/prod/pools/pool.yaml", pool),
    ];
    write(folder.path(), &files);
    let found = stdout(&real(folder.path(), &["--cluster", "prod"]));
    assert!(found.contains("got 700") && found.contains("[prod]"), "{found}");
    let found = stdout(&real(folder.path(), &["."]));
    assert!(found.contains("got 700") && found.contains("[prod]"), "{found}");
}

#[test]
fn transformers_are_part_of_revisions_too() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let transformer = "apiVersion: builtin\nkind: PatchTransformer\nmetadata: {name: t}\npath: p.yaml\n";
    let patch =
        "apiVersion: karpenter.azure.com/v1beta1\nkind: AKSNodeClass\nmetadata: {name: a}\nspec: {maxPods: 5}\n";
    let files = [
        ("a/kustomization.yaml", "resources: [class.yaml]\ntransformers: [t.yaml]\n"),
        ("a/class.yaml", &class("a", 40)[..]),
        ("a/t.yaml", transformer),
        ("a/p.yaml", patch),
    ];
    write(root, &files);
    let git = |args: &[&str]| {
        let identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"];
        assert!(Command::new("git").current_dir(root).args(identity).args(args).status().unwrap().success());
    };
    git(&["init", "-q"]);
    git(&["add", "-A"]);
    git(&["commit", "-q", "-m", "first"]);
    assert_eq!(lines(&real(root, &["a"])), lines(&real(root, &["--rev", "HEAD", "a"])));
    assert_eq!(lines(&real(root, &["a"])).len(), 1);
    write(root, &[("README.yaml", "a: 1\n")]);
    assert_eq!(lines(&real(root, &["--changed-since", "HEAD"])), [""; 0]);
}

#[test]
fn exclusions_hold_through_a_link() {
    let folder = base_and_overlays();
    write(folder.path(), &[(".napkeeperignore", "/overlays/\n/beside.yaml\n")]);
    let elsewhere = tempfile::tempdir().unwrap();
    let link = elsewhere.path().join("link");
    std::os::unix::fs::symlink(folder.path(), &link).unwrap();
    assert_eq!(lines(&real(folder.path(), &[])).len(), 1);
    assert_eq!(lines(&real(elsewhere.path(), &["link"])).len(), 1);
}
