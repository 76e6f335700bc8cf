//! Edges of the rules about pods; their pages hold the plain cases.

use crate::semantic::pods::eviction;
use crate::semantic::testing::files;
use crate::semantic::{DocumentLocation, ManifestSet, RetainedObject};
use napkeeper_api::field_path::Path;
use napkeeper_api::manifests::{load_text, object};
use std::time::{Duration, Instant};

/// `rule: message` of each finding of the family.
fn found(text: &str) -> Vec<String> {
    found_in(&[("t.yaml", text)])
}

fn found_in(texts: &[(&str, &str)]) -> Vec<String> {
    files("NK6", texts).iter().map(|f| format!("{}: {}", f.rule, f.message)).collect()
}

fn workload(spec: &str, replicas: u32) -> String {
    format!(
        "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web, namespace: default}}, spec: {{replicas: {replicas}, \
         selector: {{matchLabels: {{app: web}}}}, template: {{metadata: {{labels: {{app: web}}}}, spec: {{{spec}}}}}}}}}\n---\n"
    )
}

fn pool(name: &str, more: &str) -> String {
    format!(
        "{{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {{name: {name}}}, spec: {{template: {{spec: {{nodeClassRef: \
         {{group: karpenter.azure.com, kind: AKSNodeClass, name: a}}, requirements: \
         [{{key: karpenter.azure.com/sku-family, operator: In, values: [D]}}]{more}}}}}}}}}\n---\n"
    )
}

fn budget(spec: &str) -> String {
    format!(
        "{{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {{name: web, namespace: default}}, spec: {{{spec}, \
         selector: {{matchLabels: {{app: web}}}}}}}}\n---\n"
    )
}

fn asking(amounts: &str) -> String {
    format!("containers: [{{name: a, image: b, resources: {{requests: {{{amounts}}}}}}}]")
}

#[test]
fn a_taint_that_is_not_tolerated_is_named_for_each_pool() {
    let taint = ", taints: [{key: team, value: a, effect: NoSchedule}]";
    let small = asking("cpu: 1");
    let both = [pool("a", taint), pool("b", taint), workload(&small, 1)].concat();
    let [only] = &found(&both)[..] else { panic!("{:?}", found(&both)) };
    assert!(only.starts_with("NK6003: no NodePool in the input can run its pods in any region: "), "{only}");
    assert!(only.contains("a: taint team is not tolerated; b: taint team"), "{only}");
    let open = [pool("a", taint), pool("b", ""), workload(&small, 1)].concat();
    assert_eq!(found(&open), [] as [&str; 0]);
    let tolerant = format!("tolerations: [{{key: team, operator: Exists}}], {small}");
    assert_eq!(found(&[pool("a", taint), workload(&tolerant, 1)].concat()), [] as [&str; 0]);
}

#[test]
fn reserved_capacity_is_assumed_to_fit() {
    let class = |annotation: &str| {
        format!(
            "{{apiVersion: karpenter.azure.com/v1beta1, kind: AKSNodeClass, metadata: {{name: a, annotations: \
             {{{annotation}}}}}, spec: {{}}}}\n---\n"
        )
    };
    let group = class(
        "napkeeper.io/capacity-reservation-group: /subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/r/\
         providers/Microsoft.Compute/capacityReservationGroups/g",
    );
    let only = |values: &str| {
        pool("a", "").replace(
            "values: [D]}",
            &format!("values: [D]}}, {{key: karpenter.sh/capacity-type, operator: In, values: [{values}]}}"),
        )
    };
    let picky = format!("nodeSelector: {{karpenter.sh/capacity-type: reserved}}, {}", asking("cpu: 1"));
    for (pool, pod) in [(only("reserved"), asking("cpu: 1")), (only("reserved, on-demand"), picky.clone())] {
        assert_eq!(found(&[group.clone(), pool, workload(&pod, 1)].concat()), [] as [&str; 0]);
    }
    let nothing = found(&[class(""), only("reserved, on-demand"), workload(&picky, 1)].concat());
    assert!(nothing.len() == 1 && nothing[0].starts_with("NK6003"), "{nothing:?}");
}

#[test]
fn undecidable_workloads_are_not_reported() {
    let elsewhere = format!("nodeSelector: {{kubernetes.io/arch: arm64}}, {}", asking("cpu: 1"));
    assert_eq!(found(&workload(&elsewhere, 1)), [] as [&str; 0], "there is no pool in the input");
    let device = asking("cpu: 1, example.com/fpga: 1");
    assert_eq!(found(&[pool("a", ""), workload(&device, 1)].concat()), [] as [&str; 0]);
}

#[test]
fn pods_that_avoid_nodes_of_node_pools_need_none() {
    let terms = |terms: &[&str]| {
        let terms: Vec<_> = terms.iter().map(|term| format!("{{matchExpressions: [{term}]}}")).collect();
        let affinity = format!(
            "affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{}]}}}}}}",
            terms.join(", ")
        );
        found(&[pool("a", ""), workload(&format!("{affinity}, {}", asking("cpu: 1")), 1)].concat())
    };
    let (no_pool, arm) = (
        "{key: karpenter.sh/nodepool, operator: DoesNotExist}",
        "{key: kubernetes.io/arch, operator: In, values: [s390x]}",
    );
    assert_eq!(terms(&[no_pool]), [] as [&str; 0]);
    assert_eq!(terms(&[&format!("{no_pool}, {arm}")]), [] as [&str; 0]);
    let either = terms(&[no_pool, arm]);
    assert!(either.len() == 1 && either[0].starts_with("NK6003"), "a term that allows them counts: {either:?}");
    let other = terms(&["{key: karpenter.sh/nodepool, operator: In, values: [b]}"]);
    assert!(other.len() == 1 && other[0].starts_with("NK6003"), "{other:?}");
}

#[test]
fn daemon_sets_use_capacity_of_every_node() {
    let daemons = workload(&asking("cpu: 140"), 1).replace("Deployment", "DaemonSet").replace("replicas: 1, ", "");
    let daemons = daemons.replace("name: web, namespace", "name: agent, namespace");
    let pod = workload(&asking("cpu: 60"), 1);
    assert_eq!(found(&[pool("a", ""), pod.clone()].concat()), [] as [&str; 0]);
    let both = found(&[pool("a", ""), daemons, pod].concat());
    assert!(both.iter().any(|f| f.contains("large enough")), "{both:?}");
}

#[test]
fn more_gpus_than_any_size_has_are_too_large() {
    let many = found(&workload(&asking("nvidia.com/gpu: 17"), 1));
    assert!(many.len() == 1 && many[0].starts_with("NK6002: a pod requests"), "{many:?}");
    assert_eq!(found(&workload(&asking("nvidia.com/gpu: 1"), 1)), [] as [&str; 0]);
}

#[test]
fn terms_contradict_only_when_all_of_them_do() {
    let terms = |first: &str, second: &str| {
        let term = |zone: &str| format!("{{matchExpressions: [{{key: zone, operator: In, values: [{zone}]}}]}}");
        format!(
            "nodeSelector: {{zone: a}}, affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: \
             {{nodeSelectorTerms: [{}, {}]}}}}}}, {}",
            term(first),
            term(second),
            asking("cpu: 1")
        )
    };
    assert_eq!(found(&workload(&terms("b", "a"), 1)), [] as [&str; 0]);
    let none = found(&workload(&terms("b", "c"), 1));
    assert_eq!(none, ["NK6001: no node can satisfy this: the constraints on zone contradict each other"]);
}

#[test]
fn a_budget_blocks_by_its_values_or_by_the_number_of_pods() {
    let with = |spec: &str, replicas: u32| found(&[budget(spec), workload(&asking("cpu: 1"), replicas)].concat());
    for (spec, replicas, blocks) in [
        ("maxUnavailable: 0", 3, true),
        ("maxUnavailable: 0%", 3, true),
        ("minAvailable: 100%", 3, true),
        ("minAvailable: 1", 1, true),
        ("minAvailable: 1", 2, false),
        // 90 % of 3 is 2.7, rounded up to all of them.
        ("minAvailable: 90%", 3, true),
        ("minAvailable: 50%", 3, false),
        ("maxUnavailable: 1", 1, false),
        // Scaled to nothing, there is nothing to evict.
        ("minAvailable: 1", 0, false),
    ] {
        assert_eq!(!with(spec, replicas).is_empty(), blocks, "{spec} of {replicas}: {:?}", with(spec, replicas));
    }
    let other = budget("minAvailable: 1").replace("namespace: default", "namespace: other");
    assert_eq!(found(&[other, workload(&asking("cpu: 1"), 1)].concat()), [] as [&str; 0]);
}

const WANTING: &str =
    "nodeSelector: {company.com/team: team-b}, containers: [{name: a, image: b, resources: {requests: {cpu: 1}}}]";

/// A pool that requires something of a label of the user's own.
fn segregated(entry: &str, more: &str) -> String {
    pool("a", more).replace("values: [D]}]", &format!("values: [D]}}, {{key: company.com/team, operator: {entry}}}]"))
}

#[test]
fn a_pod_may_choose_the_value_that_a_pool_leaves_open() {
    let both = |entry: &str, more: &str| found(&[segregated(entry, more), workload(WANTING, 1)].concat());
    for entry in ["Exists", "NotIn, values: [team-a]", "In, values: [team-a, team-b]"] {
        assert_eq!(both(entry, ""), [] as [&str; 0], "{entry}");
    }
    for entry in ["In, values: [team-a]", "NotIn, values: [team-b]", "Gt, values: ['3']", "DoesNotExist"] {
        assert!(both(entry, "")[..].iter().any(|f| f.starts_with("NK6003")), "{entry}: {:?}", both(entry, ""));
    }
    let tainted = both("Exists", ", taints: [{key: team, effect: NoSchedule}]");
    assert!(tainted.len() == 1 && tainted[0].contains("taint team is not tolerated"), "{tainted:?}");
}

#[test]
fn unsupported_spread_constraints_are_not_reported() {
    let over = |key: &str, tolerates: &str| {
        let spread = format!(
            "topologySpreadConstraints: [{{maxSkew: 1, topologyKey: {key}, whenUnsatisfiable: DoNotSchedule, \
             labelSelector: {{matchLabels: {{app: web}}}}}}]"
        );
        let taint = ", taints: [{key: team, value: a, effect: NoSchedule}]";
        found(
            &[pool("a", taint), workload(&format!("{spread}, tolerations: [{tolerates}], {}", asking("cpu: 1")), 1)]
                .concat(),
        )
    };
    let all = "{operator: Exists}";
    assert!(over("kubernetes.io/hostname", "")[0].starts_with("NK6003"), "of a spread that is known, the taint counts");
    for key in ["kubernetes.io/hostname", "karpenter.sh/capacity-type", "example.com/rack"] {
        assert_eq!(over(key, all), [] as [&str; 0], "{key}");
    }
}

#[test]
fn workloads_of_the_same_name_are_distinguished() {
    let homeless = workload(&format!("nodeSelector: {{disk: ssd}}, {}", asking("cpu: 1")), 1);
    let set = workload(&asking("cpu: 2"), 1).replace("kind: Deployment", "kind: StatefulSet");
    let set = set.replace("spec: {replicas", "spec: {serviceName: web, replicas");
    for text in [[pool("a", ""), homeless.clone(), set.clone()].concat(), [pool("a", ""), set, homeless].concat()] {
        let found = files("NK6", &[("t.yaml", &text)]);
        let [only] = &found[..] else { panic!("{found:?}") };
        let line = text.lines().nth(only.line - 1).unwrap();
        assert!(only.rule == "NK6003" && line.contains("kind: Deployment"), "{only:?}");
    }
}

#[test]
fn environments_in_folders_are_clusters_of_their_own() {
    let (one, three) = (workload(&asking("cpu: 1"), 1), workload(&asking("cpu: 1"), 3));
    let (dev, prod) = (one.clone(), [three.clone(), budget("minAvailable: 1")].concat());
    assert_eq!(found_in(&[("dev/a.yaml", &dev), ("prod/a.yaml", &prod)]), [] as [&str; 0]);
    let blocked = found_in(&[("dev/a.yaml", &dev), ("dev/b.yaml", &budget("minAvailable: 1")), ("prod/a.yaml", &prod)]);
    assert_eq!(blocked.len(), 1, "of two files of one folder: {blocked:?}");
    let guarded = [one, budget("maxUnavailable: 1")].concat();
    assert_eq!(found_in(&[("dev/a.yaml", &guarded), ("prod/a.yaml", &guarded)]), [] as [&str; 0]);
    assert_eq!(found_in(&[("dev.yaml", &guarded), ("prod.yaml", &guarded)]), [] as [&str; 0], "one budget, twice");
    // No object is repeated: the folders are parts of one cluster.
    let apart = found_in(&[("apps/a.yaml", &dev), ("budgets/a.yaml", &budget("minAvailable: 1"))]);
    assert_eq!(apart.len(), 1, "{apart:?}");
    // Of two versions of a workload, one may be the one that is guarded.
    assert_eq!(found_in(&[("dev.yaml", &dev), ("prod.yaml", &prod)]), [] as [&str; 0]);
    let fits = [pool("a", ""), dev].concat();
    let taint = ", taints: [{key: team, value: a, effect: NoSchedule}]";
    let homeless = [pool("a", taint), workload(&asking("cpu: 1"), 1)].concat();
    let all: Vec<_> = files("NK6003", &[("dev/a.yaml", &fits), ("prod/a.yaml", &homeless)]);
    assert!(all.len() == 1 && all[0].file == "prod/a.yaml", "{all:?}");
}

#[test]
fn a_budget_counts_the_pods_of_all_that_it_selects() {
    let named = |name: &str, replicas: u32| {
        workload(&asking("cpu: 1"), replicas).replace("{name: web, namespace", &format!("{{name: {name}, namespace"))
    };
    let both = |spec: &str| found(&[named("a", 1), named("b", 3), budget(spec)].concat());
    assert_eq!(both("minAvailable: 1"), [] as [&str; 0]);
    assert_eq!(both("minAvailable: 3"), [] as [&str; 0]);
    let [only] = &both("minAvailable: 4")[..] else { panic!("{:?}", both("minAvailable: 4")) };
    assert!(only.contains("it requires 4 pods, and a, b have 4 together;"), "{only}");
    let single = found(&[named("a", 1), budget("minAvailable: 1")].concat());
    assert!(single[0].contains("it requires 1 pod, and a has 1;"), "{single:?}");
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: default, labels: {app: web}}, spec: \
               {containers: [{name: a, image: b}]}}\n---\n";
    assert_eq!(found(&[&named("a", 1), pod, &budget("minAvailable: 1")].concat()), [] as [&str; 0], "nobody knows");
}

#[test]
fn thousands_of_budgets_do_not_check_thousands_of_workloads() {
    const MANY: usize = 5000;
    let workload = |i: usize| {
        serde_json::json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": format!("w-{i}")},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": format!("w-{i}")}}, "template": {"metadata":
            {"labels": {"app": format!("w-{i}"), "all": "yes"}}, "spec": {"containers": [{"name": "a", "image": "b"}]}}}})
    };
    let budget = |i: usize| {
        serde_json::json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": format!("b-{i}")},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"all": "yes", "app": format!("w-{}", i.max(7))}}}})
    };
    let chunk = load_text("t.yaml", "a: b".to_owned()).chunks().remove(0);
    let values = (0..MANY).map(workload).chain((0..MANY).map(budget));
    let retained = |value: serde_json::Value| {
        let at = DocumentLocation { source: 0, chunk: chunk.clone(), nth: 0 };
        RetainedObject::of(at, Path::root(), &value, object(&value).unwrap())
    };
    let set = ManifestSet::new(values.map(retained).collect(), vec!["t.yaml".into()]);
    let (start, mut found) = (Instant::now(), Vec::new());
    eviction::check(&set, &mut found);
    // The product of both takes twenty seconds and more.
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    let [(at, issue)] = &found[..] else { panic!("{}", found.len()) };
    assert!(*at == 7 && issue.message.contains("Budgets b-0, b-1, b-2, b-3, b-4 and 3 more select"), "{issue:?}");
}

#[test]
fn memory_without_a_unit_is_found() {
    for (amount, expected) in [
        ("memory: 128", "memory 128 is 128 bytes; add a unit, such as 128Mi"),
        ("memory: '512'", "memory 512 is 512 bytes; add a unit, such as 512Mi"),
        ("memory: 512m", "memory 512m is 1 byte: m is a thousandth; add a unit, such as 512Mi"),
        ("memory: 4k", "memory 4k is 4000 bytes; use a larger unit such as Mi or Gi"),
        ("ephemeral-storage: 10", "ephemeral-storage 10 is 10 bytes; add a unit, such as 10Mi"),
        ("memory: 0", ""),
        ("memory: 1048576", ""),
        ("cpu: 128", ""),
    ] {
        let spec = format!("containers: [{{name: a, image: a, resources: {{limits: {{{amount}}}}}}}]");
        let found = files("NK6020", &[("t.yaml", &workload(&spec, 1))]);
        let found: Vec<String> =
            found.into_iter().map(|f| format!("{}; {}", f.message, f.fix.unwrap_or_default())).collect();
        let expected: Vec<&str> = Some(expected).filter(|text| !text.is_empty()).into_iter().collect();
        assert_eq!(found, expected, "{amount}");
    }
}
