use super::*;
use crate::{Severity, Validator};
use napkeeper_api::manifests::load_text;

fn migrated(text: &str) -> Migration {
    let result = migrate(text).unwrap_or_else(|p| panic!("{} {}: {text}", p.position, p.message));
    assert_eq!(migrate(&result.text).unwrap().text, result.text, "not the same the second time");
    result
}

/// Expects a text, and that nothing in it is an error.
fn expect(old: &str, new: &str) -> Migration {
    let result = migrated(old);
    assert_eq!(result.text, new, "\n{}", result.text);
    assert_eq!(errors(new), [] as [String; 0], "{new}");
    result
}

fn errors(text: &str) -> Vec<String> {
    let reports = Validator::embedded().unwrap().validate_files(&[load_text("t.yaml", text.to_owned())]);
    let errors = reports[0].findings.iter().filter(|f| f.severity == Severity::Error);
    errors.map(|f| format!("{}:{} {}", f.line, f.path, f.message)).collect()
}

fn notes(migration: &Migration) -> Vec<String> {
    migration.notes.iter().map(|n| format!("{}:{} {}", n.line, n.column, n.message)).collect()
}

/// A pool of v1beta1 before and after.
const BETA: [&str; 2] = [
    "\
# The pool of the web team.
apiVersion: \"karpenter.sh/v1beta1\"   # old
kind: NodePool
metadata:
  name: web

spec:
  template:
    metadata:
      annotations:
        karpenter.sh/do-not-consolidate: \"true\"  # while we measure
    spec:
      nodeClassRef:
        # the class of the web team
        apiVersion: karpenter.azure.com/v1alpha2
        kind: AKSNodeClass
        name: web
      requirements:
        - {key: beta.kubernetes.io/arch, operator: In, values: [amd64]}
      kubelet:
        # more than Azure's default
        maxPods: 60
        cpuCFSQuota: false
        systemReserved: {cpu: 100m}
  disruption:
    # cheap
    consolidationPolicy: WhenUnderutilized # not WhenEmpty
    # a month
    expireAfter: 720h # 30 days
    budgets:
      - nodes: 20%
  weight: 10
",
    "\
# The pool of the web team.
apiVersion: \"karpenter.sh/v1\"   # old
kind: NodePool
metadata:
  name: web

spec:
  template:
    metadata:
      annotations:
        karpenter.sh/do-not-disrupt: \"true\"  # while we measure
    spec:
      nodeClassRef:
        # the class of the web team
        group: karpenter.azure.com
        kind: AKSNodeClass
        name: web
      requirements:
        - {key: kubernetes.io/arch, operator: In, values: [amd64]}
      # napkeeper migrate: no longer a field here
      # kubelet:
      #   # more than Azure's default
      #   maxPods: 60
      #   cpuCFSQuota: false
      #   systemReserved: {cpu: 100m}
      # a month
      expireAfter: 720h # 30 days
  disruption:
    # cheap
    consolidationPolicy: WhenEmptyOrUnderutilized # not WhenEmpty
    consolidateAfter: 0s
    budgets:
      - nodes: 20%
  weight: 10
",
];

#[test]
fn a_pool_of_v1beta1() {
    let result = expect(BETA[0], BETA[1]);
    let notes = notes(&result);
    assert_eq!(notes.len(), 3, "{notes:#?}");
    assert!(notes[0].starts_with("29:5 since v1 an expired node is drained at once"), "{notes:#?}");
    assert!(notes[1].starts_with("25:3 consolidateAfter: 0s was added"), "{notes:#?}");
    for part in ["as before v1, whatever a comment says", "consolidateAfter: 1m"] {
        assert!(notes[1].contains(part), "{notes:#?}");
    }
    let kubelet = "20:7 kubelet settings are now part of the AKSNodeClass, for every pool that references it: set its spec: \
                   {\"maxPods\":60,\"kubelet\":{\"cpuCFSQuota\":false}}; AKS manages \
                   {\"systemReserved\":{\"cpu\":\"100m\"}} itself";
    assert_eq!(notes[2], kubelet);
}

/// A Provisioner before and after.
const PROVISIONER: [&str; 2] = [
    "\
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata:
  name: default
spec:
  # only cheap ones
  requirements:
    - key: karpenter.sh/capacity-type
      operator: In
      values: [\"spot\"]   # no on-demand
  limits:
    # at most
    resources:
      cpu: 1000 # a thousand
      memory: 4000Gi
  labels:
    team: web
  taints:
    - key: web
      effect: NoSchedule
  providerRef: # the class
    name: default

  # a month
  ttlSecondsUntilExpired: 2592000
  consolidation:
    # saves money
    enabled: true
  weight: 5
",
    "\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: default
spec:
  template:
    metadata:
      labels:
        team: web
    spec:
      # only cheap ones
      requirements:
        - key: karpenter.sh/capacity-type
          operator: In
          values: [\"spot\"]   # no on-demand
      taints:
        - key: web
          effect: NoSchedule
      nodeClassRef: # the class
        group: karpenter.azure.com
        kind: AKSNodeClass
        name: default
      # a month
      expireAfter: 720h
  limits:
    # at most
    cpu: 1000 # a thousand
    memory: 4000Gi

  disruption:
    # saves money
    consolidationPolicy: WhenEmptyOrUnderutilized
    consolidateAfter: 0s
  weight: 5
",
];

#[test]
fn a_provisioner_becomes_a_pool() {
    let result = expect(PROVISIONER[0], PROVISIONER[1]);
    assert_eq!(result.notes.len(), 1, "{:?}", result.notes);
}

#[test]
fn defaults_of_a_provisioner_are_written() {
    let result = expect(
        "\
kind: Provisioner
apiVersion: karpenter.sh/v1alpha5
metadata: {name: a}
spec:
    providerRef: {name: a, kind: AKSNodeTemplate, apiVersion: karpenter.k8s.azure/v1alpha1}
    ttlSecondsAfterEmpty: 30 # seconds
    provider:
        subnet: x
",
        "\
kind: NodePool
apiVersion: karpenter.sh/v1
metadata: {name: a}
spec:
    template:
        spec:
            nodeClassRef: {name: a, kind: AKSNodeClass, group: karpenter.azure.com}
            requirements: []
            expireAfter: Never
    disruption:
        consolidationPolicy: WhenEmpty
        consolidateAfter: 30s # seconds
    # napkeeper migrate: no longer a field here
    # provider:
    #     subnet: x
",
    );
    let notes = notes(&result).join("\n");
    for part in
        ["5:28 node templates became node classes", "7:5 cloud settings", "expireAfter: Never keeps the old behavior"]
    {
        assert!(notes.contains(part), "{notes}");
    }
    let lazy =
        "{apiVersion: karpenter.sh/v1alpha5, kind: Provisioner, metadata: {name: a}, spec: {providerRef: {name: a}}}";
    let result = migrated(lazy);
    assert_eq!(errors(&result.text), [] as [String; 0], "{}", result.text);
    assert!(result.text.contains("disruption: {consolidateAfter: Never}"), "{}", result.text);
    assert!(!result.text.ends_with('\n'));
}

#[test]
fn consolidation_of_a_provisioner_keeps_its_meaning() {
    for (old, new) in [
        ("consolidation: {enabled: false}", "disruption: {consolidateAfter: Never}"),
        ("consolidation: {}", "disruption:\n    consolidateAfter: Never"),
        (
            "consolidation: {enabled: false}\n  ttlSecondsAfterEmpty: 120",
            "disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 2m}",
        ),
        (
            "consolidation: {enabled: true}\n  ttlSecondsAfterEmpty: 120",
            "disruption: {consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: 0s}\n  # napkeeper migrate: no longer a field here\n  # ttlSecondsAfterEmpty: 120",
        ),
        ("ttlSecondsAfterEmpty: 0", "disruption:\n    consolidationPolicy: WhenEmpty\n    consolidateAfter: 0s"),
    ] {
        let text = |inner: &str| {
            format!(
                "apiVersion: karpenter.sh/v1alpha5\nkind: Provisioner\nmetadata: {{name: a}}\nspec:\n  {inner}\n  \
                 providerRef: {{name: a}}\n  requirements: []\n"
            )
        };
        let result = migrated(&text(old));
        assert!(result.text.contains(&format!("  {new}\n")), "{old}: {}", result.text);
        assert_eq!(errors(&result.text), [] as [String; 0], "{}", result.text);
    }
}

#[test]
fn a_claim_and_a_class() {
    let claim = "apiVersion: karpenter.sh/v1beta1\nkind: NodeClaim\nmetadata:\n  name: a\nspec:\n  nodeClassRef:\n    \
                 name: b\n  requirements: []\n  resources: {requests: {cpu: 1}}\n";
    let new = claim
        .replace("v1beta1", "v1")
        .replace("    name: b", "    group: karpenter.azure.com\n    kind: AKSNodeClass\n    name: b");
    expect(claim, &new);
    let result = expect(
        "apiVersion: karpenter.azure.com/v1alpha2\nkind: AKSNodeClass\nmetadata: {name: a}\nspec:\n  # pinned\n  \
         imageVersion: 2024.1 # old\n",
        "apiVersion: karpenter.azure.com/v1beta1\nkind: AKSNodeClass\nmetadata: {name: a}\nspec: {}\n  # pinned\n  \
         # napkeeper migrate: no longer a field here\n  # imageVersion: 2024.1 # old\n",
    );
    assert!(result.notes[0].message.contains("it was 2024.1"), "{:?}", result.notes);
}

#[test]
fn pods_and_workloads() {
    let old = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: a}
spec:
  template:
    metadata:
      annotations: {karpenter.sh/do-not-evict: 'true', other: x}
    spec:
      nodeSelector:
        karpenter.sh/provisioner-name: web
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
              - matchExpressions:
                  - key: karpenter.sh/provisioner-name # not ours
                    operator: DoesNotExist
      tolerations:
        - key: karpenter.sh/disruption
          operator: Equal
          value: disrupting
";
    let new = old
        .replace("do-not-evict", "do-not-disrupt")
        .replace("provisioner-name", "nodepool")
        .replace("sh/disruption", "sh/disrupted")
        .replace("value: disrupting", "value: \"\"");
    assert_eq!(migrated(old).text, new);
    let both = "apiVersion: v1\nkind: Pod\nmetadata:\n  annotations:\n    karpenter.sh/do-not-disrupt: \"true\"\n    \
                karpenter.sh/do-not-evict: \"true\"\n";
    let result = migrated(both);
    assert!(result.text.contains("    # karpenter.sh/do-not-evict: \"true\"\n"), "{}", result.text);
    assert_eq!(result.notes.len(), 1);
}

#[test]
fn documents_lists_line_ends_and_json() {
    let pool = |name: &str| {
        format!(
            "apiVersion: karpenter.sh/v1beta1\nkind: NodePool\nmetadata:\n  name: {name}\nspec:\n  template:\n    spec:\n      \
             requirements: []\n      nodeClassRef: {{name: a}}\n  disruption:\n    expireAfter: 1h\n"
        )
    };
    let two =
        format!("# first\n{}---\n# other\nservices: {{}}\n---  \n{}...\n", pool("a"), pool("b")).replace('\n', "\r\n");
    let result = migrated(&format!("\u{feff}{two}"));
    assert_eq!(errors(&result.text), [] as [String; 0], "{}", result.text);
    assert!(result.text.starts_with("\u{feff}# first\r\napiVersion: karpenter.sh/v1\r\n"));
    assert!(!result.text.replace("\r\n", "").contains('\n'), "{:?}", result.text);
    assert!(result.text.contains("---\r\n# other\r\nservices: {}\r\n---  \r\n"));
    assert_eq!(result.edits.last().unwrap().line, 25);
    assert_eq!(result.edits.last().unwrap().object, "NodePool b");

    let item = |name: &str| pool(name).trim_end().replace('\n', "\n    ");
    let list = format!("apiVersion: v1\nkind: List\nitems:\n  - {}\n  # b\n  - {}\n", item("a"), item("b"));
    let result = migrated(&list);
    assert_eq!(errors(&result.text), [] as [String; 0], "{}", result.text);
    assert_eq!(result.text.matches("\n          expireAfter: 1h").count(), 2, "{}", result.text);

    let json = serde_json::to_string_pretty(&yaml::read("", &pool("a")).documents[0].value).unwrap();
    let result = migrated(&json);
    let value: Value = serde_json::from_str(&result.text).unwrap();
    assert_eq!(value["spec"]["template"]["spec"]["expireAfter"], "1h");
    assert_eq!(errors(&result.text), [] as [String; 0], "{}", result.text);
    let one_line = serde_json::to_string(&yaml::read("", &pool("a")).documents[0].value).unwrap();
    serde_json::from_str::<Value>(&migrated(&one_line).text).unwrap();
}

#[test]
fn half_migrated_objects_are_finished_and_current_ones_unchanged() {
    let current = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: a}\nspec:\n  template:\n    spec:\n      \
                   requirements: []\n      nodeClassRef: {group: karpenter.azure.com, kind: AKSNodeClass, name: a}\n  \
                   disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 1m}\n";
    let result = migrated(current);
    assert_eq!((result.text.as_str(), result.edits.len(), result.notes.len()), (current, 0, 0));
    let half = current.replace("WhenEmpty, consolidateAfter: 1m", "WhenUnderutilized, expireAfter: 5h, budgets: []");
    let result = migrated(&half);
    assert!(
        result.text.contains(
            "      expireAfter: 5h\n  disruption: {consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: 0s, budgets: []}"
        ),
        "{}",
        result.text
    );
    // An object that names v1 and lacks what v1 requires is half way as well.
    let lacking = current.replace(", consolidateAfter: 1m", "");
    let result = migrated(&lacking);
    assert_eq!(result.text, current.replace("1m", "0s"));
    assert!(result.notes[0].message.contains("empty nodes are removed at once"), "{:?}", result.notes);
    let null = current.replace("1m", "~");
    assert_eq!(migrated(&null).text, current.replace("1m", "0s"));
    // A patch contains only its changes.
    let patch = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: a}\nspec: {disruption: {budgets: []}}\n";
    assert_eq!(migrated(patch).text, patch);
    let result = migrated(&patch.replace("/v1", "/v1beta1"));
    assert_eq!(result.text, patch);
    assert!(result.notes[0].message.contains("looks like a patch"), "{:?}", result.notes);
    assert_eq!(migrate("services: {a: 1}\n").unwrap().text, "services: {a: 1}\n");
    assert_eq!(migrate("# no karp: [\n{").unwrap().text, "# no karp: [\n{");
}

#[test]
fn a_patch_of_the_expiry_sets_nothing_else() {
    let patch = "apiVersion: karpenter.sh/v1beta1\nkind: NodePool\nmetadata:\n  name: a\nspec:\n  disruption:\n    \
                 expireAfter: 24h # a day\n";
    let new = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata:\n  name: a\nspec:\n  template:\n    spec:\n      \
               expireAfter: 24h # a day\n";
    assert_eq!(migrated(patch).text, new);
    // Requirements are what patches have most often.
    let both = patch.replace("24h # a day\n", "24h\n  template:\n    spec:\n      requirements: []\n");
    let both = migrated(&both.replace("expireAfter: 24h", "consolidationPolicy: WhenUnderutilized"));
    assert!(!both.text.contains("consolidateAfter"), "{}", both.text);
    assert!(notes(&both).iter().any(|note| note.contains("looks like a patch")), "{:?}", both.notes);
}

#[test]
fn a_kustomization_selects_and_patches_the_current_versions() {
    let old = "\
resources: [../base]
patches:
- target: # all of them
    kind: NodePool
    version: v1beta1
  patch: |-
    # often
    - op: add
      path: /spec/disruption/expireAfter

      value: 24h
    - {op: replace, path: /spec/disruption/consolidationPolicy, value: WhenUnderutilized}
- path: other.yaml
  target: {group: karpenter.azure.com, version: v1alpha2, kind: AKSNodeClass}
- target: {group: example.com, version: v1beta1, kind: NodePool}
  patch: \"[]\"
- patch: |
    apiVersion: karpenter.sh/v1beta1
    kind: NodePool
    metadata:
      name: a
    spec:
      weight: 5
  # of the whole
replacements:
- source: {kind: NodePool, version: v1beta1, name: a}
  targets:
  - select: {kind: NodePool, version: v1beta1}
    reject: [{kind: NodePool, version: v1beta1, name: b}]
    fieldPaths: [spec.weight]
";
    let new = old
        .replace("version: v1beta1", "version: v1")
        .replace("sh/v1beta1", "sh/v1")
        .replace("version: v1alpha2", "version: v1beta1")
        .replace("group: example.com, version: v1,", "group: example.com, version: v1beta1,")
        .replace("/spec/disruption/expireAfter", "/spec/template/spec/expireAfter")
        .replace("value: WhenUnderutilized", "value: WhenEmptyOrUnderutilized");
    assert_eq!(migrated(old).text, new);
    let windows = old.replace('\n', "\r\n");
    assert_eq!(migrated(&windows).text, new.replace('\n', "\r\n"));
}

#[test]
fn selectors_are_found_however_they_are_written() {
    for old in [
        "patches:\n- target: {kind: NodePool, version: \"v1beta1\"}\n  path: a.yaml\n",
        "{\"patches\": [{\"target\": {\"kind\": \"NodePool\", \"version\": \"v1beta1\"}, \"path\": \"a.yaml\"}]}\n",
        "patches:\n- target: {group: karpenter.sh, version: v1beta1}\n  path: a.yaml\n",
        "patches:\n- target: {kind: NodePool|NodeClaim, version: v1beta1}\n  path: a.yaml\n",
        "Patches:\n- Target: {Kind: NodePool, Version: 'v1beta1'}\n  path: a.yaml\n",
        "apiVersion: kustomize.config.k8s.io/v1\nreplacements:\n- source: {kind: NodePool, version: 'v1beta1'}\n",
        "source: {kind: NodePool, version: 'v1beta1'}\ntargets:\n- select: {kind: NodePool, version: 'v1beta1'}\n",
        "- sourceValue: a\n  targets:\n  - select: {kind: NodePool, version: 'v1beta1'}\n",
    ] {
        assert_eq!(migrated(old).text, old.replace("v1beta1", "v1"));
        assert_eq!(remaining(&migrated(old).text), []);
    }
    let old = "patches:\n- target: {kind: Provisioner, name: default}\n  path: a.yaml\n";
    assert_eq!(migrated(old).text, old.replace("Provisioner", "NodePool"));
}

#[test]
fn inline_json_patches_are_migrated() {
    let old = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nmetadata: {name: a}\npatches:\n- patch: \
               '[{\"op\": \"remove\", \"path\": \"/spec/disruption/expireAfter\"}]'\n";
    assert_eq!(migrated(old).text, old.replace("disruption/", "template/spec/"));
}

#[test]
fn what_remains_of_older_versions_is_found() {
    for (text, paths) in [
        ("patches:\n- target: {version: v1beta1}\n  path: a.yaml\n", &["patches[0].target"][..]),
        ("patches:\n- target: {kind: NodePool}\n  patch: 'karpenter: ['\n", &["patches[0].patch"]),
        (
            "patchesStrategicMerge:\n- a.yaml\n- |\n  apiVersion: karpenter.sh/v1beta1\n  kind: NodePool\n  metadata: {name: a}\n",
            &["patchesStrategicMerge[1]"],
        ),
        (
            "kind: Kustomization\napiVersion: kustomize.toolkit.fluxcd.io/v1\nspec:\n  patches:\n  - target: {group: karpenter.sh, \
             version: v1beta1, kind: NodePool}\n    patch: '[{op: remove, path: /spec/disruption/expireAfter}]'\n  healthChecks:\n  - \
             {apiVersion: karpenter.sh/v1beta1, kind: NodePool, name: a}\n",
            &["spec.patches[0].target", "spec.patches[0].patch", "spec.healthChecks[0]"],
        ),
        (
            "kind: HelmRelease\nspec:\n  postRenderers:\n  - kustomize:\n      patches:\n      - target: {kind: AKSNodeClass, version: \
             v1alpha2}\n        patch: '[]'\n",
            &["spec.postRenderers[0].kustomize.patches[0].target"],
        ),
        ("kind: ConfigMap\ndata:\n  a: |\n    karpenter [\n  b: |\n    version: v1beta1\n", &[]),
        ("kind: A\nsource: {kind: NodePool, version: v1beta1, path: a}\ntarget: {kind: NodePool, version: v1}\n", &[]),
        ("metadata:\n  ownerReferences:\n  - {apiVersion: karpenter.sh/v1beta1, kind: NodePool, name: a}\n", &[]),
    ] {
        assert_eq!(remaining(text).iter().map(|one| one.path.to_string()).collect::<Vec<_>>(), paths, "{text}");
    }
}

#[test]
fn what_is_no_yaml_is_refused_only_if_it_is_of_karpenter() {
    for text in ["kind: Provisioner\na: [\n", "a: v1beta1\n---\nb: [\n"] {
        assert_eq!(migrate(text).unwrap().text, text);
        assert!(migrate(&format!("{text}karpenter")).is_err(), "{text}");
    }
    let shared = "patches:\n- target: &a {kind: NodePool, version: 'v1beta1'}\n- target: *a\n";
    assert!(migrate(shared).is_err());
}

#[test]
fn documents_that_cannot_be_edited_are_refused_with_their_position() {
    let shared = "apiVersion: karpenter.sh/v1beta1\nkind: NodePool\nmetadata: {name: a}\nspec:\n  template:\n    spec: &s\n      \
                  requirements: []\n      nodeClassRef: {name: a}\n  x: *s\n";
    let problem = migrate(&format!("a: 1\n---\n{shared}")).unwrap_err();
    assert!(problem.message.contains("anchor"), "{}", problem.message);
    assert_eq!(problem.position.line, 10, "{problem:?}");
    assert_eq!(migrate("x: karpenter\n---\na: [\n").unwrap_err().position.line, 3);
    // An anchor that is not concerned does no harm.
    let beside =
        "apiVersion: karpenter.azure.com/v1alpha2\nkind: AKSNodeClass\nmetadata: {name: a}\nspec:\n  tags: &t {a: b}\n";
    assert!(migrated(beside).text.contains("&t {a: b}"));
}

#[test]
fn a_comment_counts_by_itself_and_at_the_end_of_another() {
    let comments = |texts: &[&str]| texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>();
    let texts = comments(&["x", "b: 1  # x", "no#x", "# # x", "##", ""]);
    let counts = count(&texts);
    assert_eq!((counts.get("x"), counts.get("# x")), (Some(&3), Some(&1)));
    let lost = "apiVersion: karpenter.sh/v1 # x\n# x\n";
    let document = yaml::read("", lost).documents.remove(0);
    assert!(check(lost, &document, &[], &comments(&["x", "x"])).is_ok());
    let refused = check(lost, &document, &[], &comments(&["x", "x", "x"])).unwrap_err();
    assert!(refused.message.contains("a comment would be lost"), "{}", refused.message);
}
