//! The API server and napkeeper agree on where workloads say that their pods may run.

use anyhow::{Context, Result, bail, ensure};
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use napkeeper_api::manifests::load_text;
use napkeeper_tests::control_plane::{ControlPlane, Mode};
use napkeeper_verdict::Validator;
use serde_json::{Value, json};

/// Parts of the spec of a pod.
const PODS: [&str; 41] = [
    "{}",
    "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{}]}}}",
    "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Gt, values: [abc]}]}]}}}",
    "tolerations: [{key: a, operator: Equals, value: b, effect: NoSchedule}]",
    "tolerations: [{key: a, operator: Equal, value: b, effect: NoSchedule}]",
    "tolerations: [{key: a, value: b}]",
    "tolerations: [{key: a, operator: '', value: b}]",
    "tolerations: [{operator: Exists}]",
    "tolerations: [{key: a, operator: Exists, value: b}]",
    "tolerations: [{operator: Equal, value: b}]",
    "tolerations: [{value: b}]",
    "tolerations: [{key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 5}]",
    "tolerations: [{key: a, operator: Exists, tolerationSeconds: 5}]",
    "tolerations: [{key: a, operator: Exists, effect: NoStart}]",
    "topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]",
    "topologySpreadConstraints: [{maxSkew: 0, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]",
    "topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: Never}]",
    "topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchExpressions: [{key: a, operator: in, values: [b]}]}}]",
    "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}",
    "tolerations: [{key: a, operator: Lt, value: '5', effect: NoSchedule}]",
    "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [b]}]}]}}}",
    "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In}]}]}}}",
    "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: NotIn, values: []}]}]}}}",
    "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}",
    "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists, values: [b]}]}]}}}",
    "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: DoesNotExist, values: [b]}]}]}}}",
    "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Gt, values: ['4']}]}]}}}",
    "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Lt, values: ['4', '5']}]}]}}}",
    "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Gte, values: ['4']}]}]}}}",
    "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: GreaterThan, values: ['4']}]}]}}}",
    "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [b]}]}]}}}",
    "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.uid, operator: In, values: [b]}]}]}}}",
    "affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: Exists}]}}]}}",
    "affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 0, preference: {matchExpressions: [{key: a, operator: Exists}]}}]}}",
    "affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 101, preference: {matchExpressions: [{key: a, operator: Exists}]}}]}}",
    "affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a, labelSelector: {matchLabels: {a: b}}}]}}",
    "affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a, labelSelector: {matchExpressions: [{key: a, operator: in, values: [b]}]}}]}}",
    "affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: '', labelSelector: {matchLabels: {a: b}}}]}}",
    "affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 0, podAffinityTerm: {topologyKey: a, labelSelector: {matchLabels: {a: b}}}}]}}",
    "affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a, labelSelector: {matchExpressions: [{key: a, operator: Gt, values: ['1']}]}}]}}",
    "nodeSelector: {a: b}",
];

/// Whole objects, without name and version of Kubernetes' own.
const OBJECTS: [(&str, &str, &str); 9] = [
    ("policy/v1", "PodDisruptionBudget", "{maxUnavailable: '50%', selector: {matchLabels: {a: b}}}"),
    ("policy/v1", "PodDisruptionBudget", "{maxUnavailable: '50', selector: {matchLabels: {a: b}}}"),
    ("policy/v1", "PodDisruptionBudget", "{minAvailable: half, selector: {matchLabels: {a: b}}}"),
    (
        "policy/v1",
        "PodDisruptionBudget",
        "{minAvailable: 1, selector: {matchExpressions: [{key: a, operator: Inn, values: [b]}]}}",
    ),
    (
        "policy/v1",
        "PodDisruptionBudget",
        "{minAvailable: 1, selector: {matchExpressions: [{key: a, operator: In, values: []}]}}",
    ),
    (
        "policy/v1",
        "PodDisruptionBudget",
        "{minAvailable: 1, selector: {matchExpressions: [{key: a, operator: Exists}]}}",
    ),
    (
        "apps/v1",
        "Deployment",
        "{selector: {matchLabels: {a: b}}, strategy: {rollingUpdate: {maxSurge: '25'}}, template: POD}",
    ),
    (
        "apps/v1",
        "Deployment",
        "{selector: {matchLabels: {a: b}}, strategy: {rollingUpdate: {maxSurge: '25%'}}, template: POD}",
    ),
    ("apps/v1", "Deployment", "{selector: {matchExpressions: [{key: a, operator: in, values: [b]}]}, template: POD}"),
];

const POD: &str = "{metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: a}]}}";

fn object(api_version: &str, kind: &str, spec: &str) -> Result<Value> {
    let spec: Value = serde_saphyr::from_str(&spec.replace("POD", POD)).context(spec.to_owned())?;
    Ok(
        json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": "a", "namespace": "default" }, "spec": spec }),
    )
}

fn objects() -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for pod in PODS {
        let mut template: Value = serde_saphyr::from_str(POD)?;
        let fields: Value = serde_saphyr::from_str(pod).with_context(|| pod.to_owned())?;
        for (name, value) in fields.as_object().into_iter().flatten() {
            template["spec"][name] = value.clone();
        }
        let mut deployment = object("apps/v1", "Deployment", "{selector: {matchLabels: {a: b}}}")?;
        deployment["spec"]["template"] = template;
        all.push(deployment);
    }
    for (api_version, kind, spec) in OBJECTS {
        all.push(object(api_version, kind, spec)?);
    }
    Ok(all)
}

/// What is wrong with an object by our engine.
fn judged(validator: &Validator, object: &Value) -> Vec<String> {
    let report = validator.validate_files(&[load_text("t.yaml", object.to_string())]);
    let findings = report.into_iter().flat_map(|report| report.findings);
    findings
        .filter(|found| found.rule.starts_with("NK1"))
        .map(|found| format!("{} {}", found.path, found.message))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workloads_are_accepted_as_the_api_server_does() -> Result<()> {
    let plane = ControlPlane::start(Mode::Api).await?;
    let client = plane.client().await?;
    let validator = Validator::embedded()?;
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let (mut wrong, mut rejected) = (Vec::new(), 0);
    for object in objects()? {
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let (group, version) = text("apiVersion").split_once('/').map(|(g, v)| (g.to_owned(), v.to_owned())).unwrap();
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(&group, &version, &text("kind")));
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &resource);
        let answer = match api.create(&params, &serde_json::from_value(object.clone())?).await {
            Ok(_) => None,
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => Some(status.message.clone()),
            Err(error) => bail!("{object}: {error}"),
        };
        rejected += usize::from(answer.is_some());
        let found = judged(&validator, &object);
        if answer.is_some() == found.is_empty() {
            wrong.push(format!("{}\n  server: {answer:?}\n  napkeeper: {found:?}", object["spec"]));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    eprintln!("{rejected} of {} are rejected by both", objects()?.len());
    Ok(())
}
