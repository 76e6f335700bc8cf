//! Repositories that Flux and Argo CD sync: the folders that their objects name are read, and variables of Flux are replaced.

use super::{class, errors, stderr, stdout, validate, write};
use std::process::Command;

fn kustomization(name: &str, path: &str, more: &str) -> String {
    format!(
        "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {{name: {name}, namespace: flux-system}}\nspec:\n  \
         interval: 10m\n  prune: false\n  path: {path}\n  sourceRef: {{kind: GitRepository, name: flux-system}}\n{more}"
    )
}

/// Two clusters that share their applications.
fn repository() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let variables =
        |weight: u32| format!("  postBuild:\n    substitute: {{weight: \"{weight}\", cluster: c{weight}}}\n");
    let pool = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: \"${cluster}-general\"}\nspec:\n  weight: ${weight}\n  \
                limits: {cpu: \"${cpu:=100}\"}\n  template:\n    spec:\n      terminationGracePeriod: 24h\n      \
                nodeClassRef: {group: karpenter.azure.com, kind: AKSNodeClass, name: a}\n      requirements:\n      \
                - {key: karpenter.azure.com/sku-family, operator: In, values: [D]}\n";
    let files = [
        ("clusters/dev/class.yaml", kustomization("class", "./infrastructure", "")),
        ("clusters/dev/pools.yaml", kustomization("pools", "./pools/dev", &variables(7))),
        ("clusters/prod/class.yaml", kustomization("class", "./infrastructure", "")),
        ("clusters/prod/pools.yaml", kustomization("pools", "./pools/prod", &variables(700))),
        ("clusters/prod/elsewhere.yaml", kustomization("elsewhere", "./of/another/repository", "")),
        ("infrastructure/class.yaml", class("a", 5)),
        ("pools/base/kustomization.yaml", "resources: [pool.yaml]\n".to_owned()),
        ("pools/base/pool.yaml", pool.to_owned()),
        ("pools/dev/kustomization.yaml", "resources: [../base]\n".to_owned()),
        ("pools/prod/kustomization.yaml", "resources: [../base]\n".to_owned()),
        (
            "napkeeper.yaml",
            "clusters:\n- {name: dev, paths: [clusters/dev]}\n- {name: prod, paths: [clusters/prod]}\n".to_owned(),
        ),
    ];
    write(folder.path(), &files.each_ref().map(|(name, text)| (*name, text.as_str())));
    assert!(Command::new("git").args(["init", "-q"]).current_dir(folder.path()).status().unwrap().success());
    folder
}

#[test]
fn what_flux_syncs_is_read_with_the_variables_of_each_cluster() {
    let folder = repository();
    let root = folder.path();
    let class =
        "infrastructure/class.yaml:6:12: error[NK1015] must be at least 10, got 5 (AKSNodeClass a: spec.maxPods)";
    let pool =
        "pools/base/pool.yaml:5:11: error[NK1015] must be at most 100, got 700 (NodePool c700-general: spec.weight)";
    assert_eq!(errors(root, &[]), [format!("{class} [dev, prod]"), format!("{pool} [prod]")]);
    assert_eq!(errors(root, &["clusters/dev"]), [format!("{class} [dev]")]);
    assert_eq!(errors(root, &["clusters/prod"]), [format!("{class} [prod]"), format!("{pool} [prod]")]);
    assert_eq!(errors(root, &["--cluster", "dev"]), [format!("{class} [dev]")]);
    assert_eq!(errors(&root.join("clusters/prod"), &[]).len(), 2, "from within");
    assert_eq!(
        errors(root, &["clusters/dev/class.yaml", "--allow-empty"]),
        [""; 0],
        "a file that is named is read alone"
    );
    assert_eq!(errors(root, &["pools"]), [""; 0], "without what syncs it, the weight is open");
    let summary = stdout(&validate(root, &["pools"]));
    assert!(summary.contains("; built 2 kustomizations; left open 6 values with variables;"), "{summary}");
}

#[test]
fn what_depends_on_a_variable_is_left_open_and_the_rest_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let pool = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata:\n  name: ${cluster}-a\nspec:\n  weight: ${weight}\n  limits: {cpu: \"${cpu}\"}\n  \
                wieght: 1\n  template:\n    spec:\n      expireAfter: ${age}\n      terminationGracePeriod: 24h\n      \
                nodeClassRef: {group: karpenter.azure.com, kind: AKSNodeClass, name: \"${cluster}\"}\n      requirements:\n      \
                - {key: karpenter.azure.com/sku-family, operator: In, values: [\"${family}\"]}\n      \
                - {key: kubernetes.io/arch, operator: In, values: [x86]}\n";
    write(folder.path(), &[("pool.yaml", pool)]);
    let found: Vec<String> =
        errors(folder.path(), &[]).iter().map(|line| line.split_once(": ").unwrap().1[..13].to_owned()).collect();
    assert_eq!(found, ["error[NK1010]"], "the field that does not exist");
    // Where nothing replaces them, they are texts.
    let output =
        Command::new(env!("CARGO_BIN_EXE_napkeeper")).args(["simulate", "."]).current_dir(folder.path()).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = "error: variables such as ${cluster} have no value here: set them under spec.postBuild.substitute of the Flux \
                Kustomization, or replace them and pass -";
    assert!(stderr(&output).contains(said), "{}", stderr(&output));
}

#[test]
fn what_an_application_of_argo_cd_syncs_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let application = "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: a, namespace: argocd}\nspec:\n  project: default\n  \
                       destination: {server: \"https://kubernetes.default.svc\"}\n  \
                       sources: [{repoURL: \"https://example.com/r\", path: classes}, {repoURL: \"https://example.com/c\", chart: c}]\n";
    write(folder.path(), &[("applications/a.yaml", application), ("classes/a.yaml", &class("a", 5))]);
    assert!(Command::new("git").args(["init", "-q"]).current_dir(folder.path()).status().unwrap().success());
    let found = errors(folder.path(), &["applications"]);
    assert_eq!(found, ["classes/a.yaml:6:12: error[NK1015] must be at least 10, got 5 (AKSNodeClass a: spec.maxPods)"]);
}

/// What another repository syncs is not in this one, whatever its path.
#[test]
fn paths_of_other_repositories_are_not_followed() {
    let folder = repository();
    let root = folder.path();
    let elsewhere = "apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {name: podinfo, namespace: flux-system}\nspec:\n  \
                     interval: 10m\n  url: https://github.com/stefanprodan/podinfo\n";
    let source = kustomization("podinfo", "./", "").replace("name: flux-system}", "name: podinfo}");
    write(root, &[("clusters/dev/podinfo.yaml", &format!("{elsewhere}---\n{source}"))]);
    assert_eq!(errors(root, &["--cluster", "dev"]).len(), 1, "a path that contains the object leads nowhere");
    let source = source.replace("path: ./", "path: ./clusters/prod");
    write(root, &[("clusters/dev/podinfo.yaml", &format!("{elsewhere}---\n{source}"))]);
    assert_eq!(errors(root, &["--cluster", "dev"]).len(), 2, "nothing says that it is another one");
    let remote = ["remote", "add", "origin", "git@github.com:example/fleet.git"];
    assert!(Command::new("git").args(remote).current_dir(root).status().unwrap().success());
    assert_eq!(errors(root, &["--cluster", "dev"]).len(), 1);
}

/// Flux and Argo CD would say so once they sync it; what they change is not known to be right.
#[test]
fn what_is_not_read_as_it_is_synced_is_said() {
    let folder = repository();
    let root = folder.path();
    let remote = ["remote", "add", "origin", "git@github.com:example/fleet.git"];
    assert!(Command::new("git").args(remote).current_dir(root).status().unwrap().success());
    let fleet = "apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {name: flux-system, namespace: flux-system}\nspec:\n  \
                 interval: 10m\n  url: https://github.com/example/fleet\n";
    let patches =
        "  patches:\n  - target: {kind: AKSNodeClass}\n    patch: '[{op: replace, path: /spec/maxPods, value: 900}]'\n";
    let application = "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: b}\nspec:\n  \
                       source: {repoURL: \"https://github.com/example/fleet\", path: class}\n";
    write(
        root,
        &[
            ("clusters/dev/source.yaml", fleet),
            ("clusters/dev/patched.yaml", &kustomization("patched", "./infrastructure", patches)),
            ("clusters/dev/typo.yaml", &kustomization("typo", "./infrastructur", "")),
            ("clusters/dev/application.yaml", application),
        ],
    );
    for args in [&["clusters/dev"][..], &["."]] {
        let said = stderr(&validate(root, args));
        for sentence in [
            "clusters/dev/patched.yaml: the patches of Kustomization patched are not applied: what it syncs is read as it is in Git",
            "clusters/dev/typo.yaml: Kustomization typo syncs ./infrastructur, which is not here: correct the path, unless it is on another branch",
            "clusters/dev/application.yaml: Application b syncs class, which is not here: correct the path, unless it is on another branch",
        ] {
            assert!(said.contains(sentence), "{args:?}: {said}");
        }
    }
    let alone = validate(root, &["clusters/dev/class.yaml"]);
    assert_eq!(alone.status.code(), Some(2));
    assert!(stderr(&alone).contains("pass the folder of a Kustomization or Application"), "{}", stderr(&alone));
}

/// Shells have such signs, too.
#[test]
fn variables_of_shells_leave_workloads_judged() {
    let folder = tempfile::tempdir().unwrap();
    let web = |command: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\nspec:\n  replicas: 3\n  selector: {{matchLabels: {{a: b}}}}\n  \
             template:\n    metadata: {{labels: {{a: b}}}}\n    spec:\n      containers:\n      - {{name: a, image: a, command: [sh, -c, \"{command}\"]}}\n"
        )
    };
    let pool = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: a}\nspec:\n  limits: {cpu: 10}\n  template:\n    spec:\n      \
                terminationGracePeriod: 24h\n      nodeClassRef: {group: karpenter.azure.com, kind: AKSNodeClass, name: a}\n      requirements:\n      \
                - {key: karpenter.azure.com/sku-family, operator: In, values: [D]}\n";
    write(folder.path(), &[("pool.yaml", pool), ("class.yaml", &class("a", 40))]);
    let found = |command: &str| {
        write(folder.path(), &[("web.yaml", &web(command))]);
        let text = stdout(&validate(folder.path(), &[]));
        text.lines().filter(|line| line.contains(": warning[NK6012]")).count()
    };
    assert_eq!(found("exec nginx"), 1, "its pods are not spread");
    assert_eq!(found("exec nginx -h ${HOSTNAME:-a}"), 1);
}
