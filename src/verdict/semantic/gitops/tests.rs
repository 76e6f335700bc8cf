//! The edges of each rule.

use crate::semantic::testing::{files, findings};

fn pool(name: &str, metadata: &str) -> String {
    format!(
        "{{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {{name: {name}{metadata}}}, spec: {{limits: {{cpu: 9}}, \
         template: {{spec: {{nodeClassRef: {{group: karpenter.azure.com, kind: AKSNodeClass, name: a}}, requirements: \
         []}}}}}}}}\n---\n"
    )
}

fn annotated(annotation: &str) -> String {
    pool("a", &format!(", annotations: {{{annotation}}}"))
}

fn definition(name: &str, annotation: &str) -> String {
    format!(
        "{{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {{name: {name}, annotations: \
         {{{annotation}}}}}}}\n---\n"
    )
}

const ARGO: &str = "{apiVersion: argoproj.io/v1alpha1, kind: Application, metadata: {name: a}, spec: \
                    {syncPolicy: {automated: {prune: true}}}}\n---\n";
const FLUX: &str = "{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: a}, spec: {prune: true}}\n---\n";
const PRUNED: [&str; 1] = ["metadata.name NK4001"];

#[test]
fn without_a_tool_nothing_is_pruned() {
    assert_eq!(findings("NK4", &pool("a", "")), [] as [&str; 0]);
    assert_eq!(findings("NK4", &definition("nodepools.karpenter.sh", "")), [] as [&str; 0]);
}

#[test]
fn a_tool_prunes_unprotected_objects() {
    for tool in [
        ARGO,
        FLUX,
        "{apiVersion: argoproj.io/v1alpha1, kind: ApplicationSet, metadata: {name: a}, spec: {template: {spec: {syncPolicy: \
         {automated: {prune: true}}}}}}\n---\n",
    ] {
        assert_eq!(findings("NK4", &format!("{tool}{}", pool("a", ""))), PRUNED, "{tool}");
        for safe in [
            "argocd.argoproj.io/sync-options: 'ServerSideApply=true, Prune=false'",
            "argocd.argoproj.io/sync-options: Prune=confirm",
            "kustomize.toolkit.fluxcd.io/prune: disabled",
            "helm.sh/resource-policy: keep",
        ] {
            assert_eq!(findings("NK4", &format!("{tool}{}", annotated(safe))), [] as [&str; 0], "{safe}");
        }
        let half = "argocd.argoproj.io/sync-options: 'Prune=true,Delete=false'";
        assert_eq!(findings("NK4", &format!("{tool}{}", annotated(half))), PRUNED);
    }
    for quiet in [
        FLUX.replace("true", "false"),
        FLUX.replace("{prune: true}", "{}"),
        ARGO.replace("{automated: {prune: true}}", "{automated: {prune: true}, syncOptions: [Prune=false]}"),
        ARGO.replace("{prune: true}", "{prune: false}"),
        ARGO.replace("{prune: true}", "{selfHeal: true}"),
        ARGO.replace("{prune: true}", "{prune: true, enabled: false}"),
        ARGO.replace("{automated: {prune: true}}", "{}"),
        ARGO.replace("{automated: {prune: true}}", "{syncOptions: [PruneLast=true]}"),
        "{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: a}, spec: {}}\n---\n"
            .to_owned(),
    ] {
        assert_eq!(findings("NK4", &format!("{quiet}{}", pool("a", ""))), [] as [&str; 0], "{quiet}");
        // One that prunes nothing takes nothing from another that does.
        assert_eq!(findings("NK4", &format!("{quiet}{FLUX}{}", pool("a", ""))), PRUNED, "{quiet}");
    }
}

#[test]
fn helm_deletes_only_objects_of_a_chart() {
    let release = "{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, metadata: {name: a}, spec: {}}\n---\n";
    let managed_by_helm = pool("a", ", labels: {app.kubernetes.io/managed-by: Helm}");
    let released = annotated("meta.helm.sh/release-name: karpenter");
    let of_others = pool("b", ", labels: {app.kubernetes.io/managed-by: kustomize}");
    let all = files("NK4", &[("t.yaml", &format!("{release}{managed_by_helm}{of_others}"))]);
    let [finding] = &all[..] else { panic!("{all:#?}") };
    assert!(finding.message.contains("Helm deletes NodePool a"), "{}", finding.message);
    assert!(finding.fix.as_deref().unwrap().contains("helm.sh/resource-policy: keep"), "{finding:?}");
    assert_eq!(findings("NK4", &format!("{release}{released}")), PRUNED);
    assert_eq!(findings("NK4", &format!("{release}{}", pool("a", ""))), [] as [&str; 0]);
    // A chart that another tool renders has the label as well, and Helm does not delete it.
    assert_eq!(findings("NK4", &managed_by_helm), [] as [&str; 0]);
    assert_eq!(findings("NK4", &released), PRUNED);
}

#[test]
fn a_tool_prunes_what_is_below_its_path() {
    let flux = |path: &str| FLUX.replace("prune: true", &format!("prune: true, path: {path}"));
    let argo = |path: &str| ARGO.replace("syncPolicy", &format!("source: {{path: {path}}}, syncPolicy"));
    let found = |tool: &str, more: &[(&str, &str)]| {
        let pool = pool("a", "");
        let own = [("apps/tool.yaml", tool), ("fleet/nodes/pool.yaml", pool.as_str())];
        files("NK4001", &[&own, more].concat()).len()
    };
    for (path, expected) in [
        ("./nodes", 1),
        ("fleet/nodes/", 1),
        ("./", 1),
        ("'nodes/{{name}}'", 1),
        ("./empty", 0),
        ("node", 0),
        ("apps", 0),
        ("nodes/deeper", 0),
    ] {
        assert_eq!(found(&flux(path), &[]), expected, "{path}");
        assert_eq!(found(&argo(path), &[]), expected, "{path}");
    }
    let kustomization = ("apps/kustomization.yaml", "resources: [../fleet/nodes]\n");
    assert_eq!(found(&flux("apps"), &[kustomization]), 1, "it may take in other folders");
}

#[test]
fn an_annotation_of_a_tool_does_not_show_that_it_prunes() {
    for annotation in ["argocd.argoproj.io/sync-wave: '1'", "kustomize.toolkit.fluxcd.io/prune: enabled"] {
        assert_eq!(findings("NK4", &annotated(annotation)), [] as [&str; 0], "{annotation}");
    }
}

#[test]
fn karpenter_crds_must_be_protected() {
    for name in ["nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "aksnodeclasses.karpenter.azure.com"] {
        assert_eq!(findings("NK4", &format!("{FLUX}{}", definition(name, ""))), ["metadata.name NK4002"], "{name}");
        let safe = definition(name, "kustomize.toolkit.fluxcd.io/prune: Disabled");
        assert_eq!(findings("NK4", &format!("{FLUX}{safe}")), [] as [&str; 0]);
    }
    let other = definition("certificates.cert-manager.io", "");
    assert_eq!(findings("NK4", &format!("{FLUX}{other}")), [] as [&str; 0]);
}

#[test]
fn server_fields_are_named_unless_empty() {
    let found = files("NK4", &[("t.yaml", &pool("a", ", uid: u, generation: 3, creationTimestamp: null"))]);
    assert_eq!(found.len(), 1);
    assert!(found[0].message.contains("uid, generation:") && found[0].path == "metadata.uid", "{found:?}");
    let empty = pool("a", ", managedFields: []").replace("spec: {limits", "status: {}, spec: {limits");
    assert_eq!(findings("NK4", &empty), [] as [&str; 0]);
    let status = pool("a", "").replace("spec: {limits", "status: {nodes: 1}, spec: {limits");
    assert_eq!(findings("NK4", &status), ["status NK4003"]);
}

#[test]
fn annotations_that_others_write() {
    let hash = "karpenter.sh/nodepool-hash: '1'";
    assert_eq!(findings("NK4", &annotated(hash)), ["metadata.annotations[karpenter.sh/nodepool-hash] NK4004"]);
    assert_eq!(findings("NK4", &annotated("example.com/nodepool-hash: '1'")), [] as [&str; 0]);
}

#[test]
fn a_name_is_taken_in_its_own_file_and_folder_only() {
    let (a, b) = (pool("a", ""), pool("b", ""));
    assert_eq!(findings("NK4", &format!("{a}{b}{a}")), ["metadata.name NK4005"]);
    let beside = files("NK4", &[("x/one.yaml", &a), ("x/two.yaml", &a), ("x/three.yaml", &b)]);
    assert_eq!(beside.len(), 1, "{beside:?}");
    assert!(format!("{beside:?}").contains("NodePool a is in x/one.yaml too"), "{beside:?}");
    for apart in [[("x/one.yaml", &a), ("y/one.yaml", &a)], [("<kustomize x>", &a), ("<kustomize y>", &a)]] {
        let apart = apart.map(|(name, text)| (name, text.as_str()));
        assert_eq!(files("NK4", &apart), []);
    }
}

#[test]
fn a_definition_in_a_later_wave_comes_too_late() {
    let wave = |n: &str| format!("argocd.argoproj.io/sync-options: Prune=false, argocd.argoproj.io/sync-wave: '{n}'");
    for (definition_wave, pool_wave, late) in
        [("1", "0", true), ("0", "0", false), ("-1", "0", false), ("2", "3", false)]
    {
        let text =
            format!("{}{}", definition("nodepools.karpenter.sh", &wave(definition_wave)), annotated(&wave(pool_wave)));
        assert_eq!(findings("NK4", &text).len(), usize::from(late), "{definition_wave} {pool_wave}");
    }
}
