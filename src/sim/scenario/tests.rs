//! Tests that scenario files are read as documented, and that impossible ones are refused.

use super::*;
use crate::workload::WorkloadKind;
use napkeeper_api::convert::BudgetLimit;
use napkeeper_api::yaml;
use napkeeper_core::catalog::Catalog;

const HEAD: &str = "apiVersion: napkeeper.io/v1alpha1
kind: Scenario
metadata: {name: test}
spec:
  region: westeurope
  start: 2026-08-03T06:00:00Z
  for: 2d
  steps:
";

const POOL: &str = "apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.azure.com, kind: AKSNodeClass, name: default}
      requirements: []
";

const CLASS: &str = "apiVersion: karpenter.azure.com/v1beta1\nkind: AKSNodeClass\nmetadata: {name: default}\n";

const POD: &str = "template: {metadata: {labels: {app: a}}, spec: {containers: [{name: a, image: a}]}}";

fn document(text: &str) -> Document {
    let reading = yaml::read("test.yaml", text);
    assert!(reading.problems.is_empty(), "{:?}", reading.problems);
    reading.documents.into_iter().next().unwrap()
}

fn documents(parts: &[&str]) -> Vec<Document> {
    yaml::read("test.yaml", &parts.join("---\n")).documents
}

fn workload(kind: &str, name: &str, more: &str) -> String {
    let group = if kind == "Job" { "batch/v1" } else { "apps/v1" };
    format!("apiVersion: {group}\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {{{more} {POD}}}\n")
}

fn steps(text: &str) -> Result<Scenario, Vec<String>> {
    read(&document(&format!("{HEAD}{text}"))).map_err(|wrong| wrong.iter().map(ToString::to_string).collect())
}

#[test]
fn every_listed_step_name_can_be_read() {
    let error = serde_json::from_value::<Action>(serde_json::json!({ "nonsense": {} })).unwrap_err().to_string();
    let known: Vec<&str> = error.split('`').skip(3).step_by(2).collect();
    assert_eq!(known, Action::NAMES, "{error}");
}

#[test]
fn steps_have_short_names_and_times() {
    let scenario = steps(
        "  - {at: 15m, scale: {workload: shop/web, replicas: 3}}\n  \
         - {at: 1d12h, delete: {workload: web}}\n  \
         - {at: 0s, noCapacity: {for: 90s}}\n  \
         - {at: 2h, quota: {capacityType: spot}}\n  \
         - {at: 3h, approve: }\n",
    )
    .unwrap();
    let actions = scenario.actions();
    let minutes: Vec<i64> = actions.iter().map(|(at, _)| at.as_mins()).collect();
    assert_eq!(minutes, [0, 15, 120, 180, 36 * 60]);
    assert!(matches!(&actions[1].1, Action::Scale { workload, replicas: 3 } if workload.to_string() == "shop/web"));
    assert!(matches!(&actions[4].1, Action::Delete { workload } if workload.to_string() == "default/web"));
    assert!(matches!(&actions[0].1, Action::NoCapacity(s) if s.duration == Some(SignedDuration::from_secs(90))));
    assert!(matches!(&actions[2].1, Action::Quota { cores: None, .. }), "no cores lift the quota");
}

#[test]
fn a_step_repeats_until_its_end_or_that_of_the_scenario() {
    let at = |text: &str| {
        let actions = steps(text).unwrap().actions();
        actions.iter().map(|(at, _)| at.as_hours()).collect::<Vec<_>>()
    };
    assert_eq!(at("  - {at: 6h, every: 12h, approve: {}}\n"), [6, 18, 30, 42]);
    assert_eq!(at("  - {at: 6h, every: 12h, until: 30h, approve: {}}\n"), [6, 18, 30]);
    assert_eq!(at("  - {at: 48h, approve: {}}\n"), [48], "the last instant belongs to the scenario");
}

#[test]
fn every_invalid_step_is_reported_with_position_and_remedy() {
    let wrong = steps(
        "  - {at: 15m, scael: {workload: web, replicas: 3}}\n  \
         - {scale: {workload: web, replicas: 3}}\n  \
         - {at: 15m}\n  \
         - {at: 15m, approve: {}, clearBreaker: {}}\n  \
         - {at: quarter, approve: {}}\n  \
         - {at: 15m, scale: {workload: Web!, replicas: 3}}\n  \
         - {at: 15m, scale: {workload: web, replicas: -3}}\n  \
         - {at: 15m, every: 10s, approve: {}}\n  \
         - {at: 3d, approve: {}}\n  \
         - {at: 15m, until: 1h, approve: {}}\n  \
         - {at: 15m, scale: {workload: web, replica: 3}}\n",
    )
    .unwrap_err();
    let expected = [
        "test.yaml:9:22: spec.steps[0].scael: unknown step \"scael\"; did you mean scale?",
        "test.yaml:10:5: spec.steps[1]: at is missing",
        "test.yaml:11:5: spec.steps[2]: the step has no action",
        "test.yaml:12:42: spec.steps[3].clearBreaker: a step has exactly one action",
        "test.yaml:13:10: spec.steps[4].at: duration \"quarter\": must be whole days",
        "test.yaml:14:33: spec.steps[5].scale.workload: ",
        "test.yaml:15:48: spec.steps[6].scale.replicas: invalid value",
        "test.yaml:19:47: spec.steps[10].scale.replica: unknown field `replica`, expected `workload` or `replicas`",
        "test.yaml:16:22: spec.steps[7].every: must be at least 1m",
        "test.yaml:17:10: spec.steps[8].at: never happens: the scenario ends after 48h",
        "test.yaml:18:22: spec.steps[9].until: requires every",
    ];
    assert_eq!(wrong.len(), expected.len(), "{wrong:#?}");
    for (problem, expected) in wrong.iter().zip(expected) {
        assert!(problem.starts_with(expected), "{problem}\nis not\n{expected}");
    }
}

#[test]
fn a_scenario_that_cannot_run_is_refused() {
    for (from, to, expected) in [
        ("for: 2d", "for: 0s", "test.yaml:7:8: spec.for: must be greater than 0"),
        ("for: 2d", "for: 400d", "test.yaml:7:8: spec.for: must be greater than 0 and at most 366d"),
        ("for: 2d", "duration: 2d", "spec.duration: unknown field `duration`"),
        ("start: 2026-08-03T06:00:00Z", "start: monday", "spec.start: "),
        ("start: 2026-08-03T06:00:00Z", "start: 9999-01-01T00:00:00Z", "spec.start: must be a time from 1970"),
        ("region: westeurope", "region: West Europe", "spec.region: "),
        ("v1alpha1", "v1beta1", "unsupported apiVersion \"napkeeper.io/v1beta1\""),
    ] {
        let wrong = read(&document(&HEAD.replace(from, to))).unwrap_err();
        assert!(wrong.iter().any(|p| p.to_string().contains(expected)), "{to}: {wrong:?}");
    }
}

#[test]
fn every_step_with_an_unknown_name_is_reported() {
    let manifests =
        documents(&[POOL, CLASS, &workload("Deployment", "web", ""), &workload("Job", "night", "suspend: true,")]);
    let manifests = Manifests::collect(&manifests).unwrap();
    let text = "  - {at: 1m, scale: {workload: wbe, replicas: 3}}\n  \
         - {at: 1m, scale: {workload: night, replicas: 3}}\n  \
         - {at: 1m, startJob: {workload: web}}\n  \
         - {at: 1m, startJob: {workload: night}}\n  \
         - {at: 1m, refuse: {size: Standard_D4s_v55}}\n  \
         - {at: 1m, noCapacity: {zone: westeurope-9}}\n  \
         - {at: 1m, quota: {family: standardDSv5family, cores: 1}}\n  \
         - {at: 1m, loseVolume: {name: gone}}\n  \
         - {at: 1m, leakNic: {name: nic}}\n  \
         - {at: 2m, leakNic: {name: nic}}\n  \
         - {at: 2m, every: 1h, leakNic: {name: other}}\n  \
         - {at: 3m, scalePool: {pool: genral, replicas: 1}}\n  \
         - {at: 3m, scalePool: {pool: general, replicas: 1}}\n  \
         - {at: 3m, labelPool: {pool: none, label: a, value: b}}\n  \
         - {at: 3m, labelPool: {pool: general, label: a, value: b}}\n  \
         - {at: 3m, deletePool: {pool: gone}}\n  \
         - {at: 3m, deletePool: {pool: general, propagation: foreground}}\n";
    let document = document(&format!("{HEAD}{text}"));
    let scenario = read(&document).unwrap();
    let catalog = Catalog::embedded().unwrap();
    let wrong: Vec<String> =
        check(&scenario, &document, &manifests, &catalog).iter().map(ToString::to_string).collect();
    let expected = [
        "steps[0].scale.workload: workload default/wbe not found in the manifests: did you mean default/web?",
        "steps[1].scale.workload: Job default/night is suspended: start it with a step startJob",
        "steps[2].startJob.workload: default/web runs from the start",
        "steps[4].refuse.size: VM size Standard_D4s_v55 not found in westeurope: did you mean Standard_D4s_v5?",
        "steps[5].noCapacity.zone: zone westeurope-9 not found in westeurope: did you mean westeurope-1?",
        "steps[6].quota.family: VM family standardDSv5family not found: did you mean standardDSv5Family?",
        "steps[7].loseVolume.name: volume gone not found: none found; create one with a step addVolume",
        "steps[9].leakNic.name: nic is already created by an earlier step",
        "steps[10].leakNic.name: other can be created only once",
        "steps[11].scalePool.pool: NodePool genral not found in the manifests: did you mean general?",
        "steps[12].scalePool.pool: NodePool general has no replicas",
        "steps[13].labelPool.pool: NodePool none not found in the manifests: found: general",
        "steps[15].deletePool.pool: NodePool gone not found in the manifests",
    ];
    assert_eq!(wrong.len(), expected.len(), "{wrong:#?}");
    for (problem, expected) in wrong.iter().zip(expected) {
        assert!(problem.contains(expected), "{problem}\nis not\n{expected}");
    }
}

#[test]
fn an_unknown_region_is_reported_with_the_nearest() {
    let document = document(&HEAD.replace("westeurope", "westeuorpe"));
    let scenario = read(&document).unwrap();
    let wrong = check(&scenario, &document, &Manifests::default(), &Catalog::embedded().unwrap());
    assert!(wrong[0].to_string().starts_with("test.yaml:5:11: spec.region: "), "{}", wrong[0]);
    assert!(wrong[0].to_string().ends_with("did you mean westeurope?"), "{}", wrong[0]);
}

#[test]
fn manifests_become_the_start_of_a_world() {
    let disk = "volumeClaimTemplates: [{metadata: {name: d}, spec: {resources: {requests: {storage: 1500Mi}}}}],";
    let job =
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j, annotations: {napkeeper.io/simulated-duration: 1h30m}}\n";
    let job = format!("{job}spec: {{parallelism: 4, {POD}}}\n");
    let budget = "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: b}\n\
                  spec: {maxUnavailable: 20%, selector: {matchLabels: {app: a}}}\n";
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n";
    let parts = [
        POOL,
        CLASS,
        &workload("Deployment", "d", "replicas: 7,"),
        &workload("StatefulSet", "s", disk),
        &job,
        &workload("Job", "waits", "suspend: true,"),
        &workload("DaemonSet", "ds", ""),
        budget,
        service,
    ];
    let read = documents(&parts);
    let manifests = Manifests::collect(&read).unwrap();
    let kinds: Vec<&WorkloadKind> = manifests.workloads.iter().map(|(_, w)| &w.kind).collect();
    assert_eq!(*kinds[0], WorkloadKind::Deployment { replicas: 7 });
    assert!(matches!(kinds[1], WorkloadKind::StatefulSet { replicas: 1, disk: Some(d) } if d.size_gib == 2));
    let run_for = SignedDuration::from_mins(90);
    assert_eq!(*kinds[2], WorkloadKind::Job { parallelism: 4, completions: 4, run_for });
    assert_eq!((manifests.suspended.len(), manifests.daemon_sets.len()), (1, 1));
    assert_eq!(manifests.budgets[0].1.limit, BudgetLimit::MaxUnavailablePercent(20));
    assert_eq!(manifests.skipped.get("v1 Service"), Some(&1));
}

#[test]
fn a_missing_class_and_a_repeated_name_are_reported() {
    let other = CLASS.replace("default", "defualt");
    let twice = [POOL, &other, &workload("Deployment", "a", ""), &workload("StatefulSet", "a", "")];
    let wrong = Manifests::collect(&documents(&twice)).unwrap_err();
    let problems: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), 2, "{problems:#?}");
    assert!(problems[0].contains("workload default/a is already defined at test.yaml:"), "{}", problems[0]);
    assert!(problems[1].starts_with("test.yaml:7:"), "{}", problems[1]);
    assert!(
        problems[1].contains("AKSNodeClass \"default\" not found") && problems[1].contains("did you mean defualt?"),
        "{}",
        problems[1]
    );
}
