use super::*;
use napkeeper_api::manifests::load_text;
use napkeeper_api::yaml;

/// `path rule` of everything that is found in a document.
fn found(text: &str) -> Vec<String> {
    let document = &yaml::read("t.yaml", text).documents[0];
    let builtin = find(&document.value).unwrap();
    let (_, issues) = builtin.validate(&document.value, None);
    issues.iter().map(|issue| format!("{} {}", issue.path, issue.rule.id)).collect()
}

fn deployment(spec: &str, pod: &str) -> Vec<String> {
    found(&format!(
        "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: a}}, spec: {{selector: {{matchLabels: {{app: a}}}}, \
         {spec} template: {{metadata: {{labels: {{app: a}}}}, spec: {{{pod}}}}}}}}}"
    ))
}

#[test]
fn every_kind_has_a_schema() {
    for builtin in &BUILTIN_KINDS {
        let form = builtin.form().unwrap();
        assert!(form.schema.property("spec").is_some(), "{}", builtin.kind);
        let object = serde_json::json!({ "spec": { "nonsense": 1 } });
        let (_, issues) = builtin.validate(&object, None);
        assert!(issues.iter().any(|issue| *issue.rule == structure_rules::UNKNOWN_FIELD), "{}", builtin.kind);
    }
}

#[test]
fn objects_that_the_api_server_accepts_have_no_findings() {
    for pod in [
        "containers: [{name: a, image: a}]",
        "containers: [{name: a, image: a, resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}]}]",
        "containers: [{name: a, image: a, resources: {requests: {cpu: 0.5, memory: 1e9}, limits: {cpu: 1}}}]",
        "containers: [{name: a, image: a, ports: [{containerPort: 80}], livenessProbe: {httpGet: {port: http}}}]",
        "restartPolicy: Always, nodeSelector: null, containers: [{name: a, image: a, env: [{name: X, value: 'y'}]}]",
        "volumes: [{name: v, emptyDir: {sizeLimit: 1Gi}}], \
         containers: [{name: a, image: a, volumeMounts: [{name: v, mountPath: /v}]}]",
        "containers: [{name: a, image: a, args: [null]}]",
        "hostnameOverride: a, containers: [{name: a, image: a}]",
    ] {
        assert_eq!(deployment("", pod), [] as [&str; 0], "{pod}");
    }
}

#[test]
fn objects_that_the_api_server_rejects_have_findings() {
    let ok = "containers: [{name: a, image: a}]";
    for (spec, pod, expected) in [
        ("replicas: three,", ok, "spec.replicas NK1011"),
        ("replica: 3,", ok, "spec.replica NK1010"),
        ("strategy: {rollingUpdate: {maxSurge: 1.5}},", ok, "spec.strategy.rollingUpdate.maxSurge NK1011"),
        ("", "containers: [{image: a}]", "spec.template.spec.containers[0].name NK1012"),
        ("", "containers: [{name: a}]", "spec.template.spec.containers[0].image NK1012"),
        ("", "containers: []", "spec.template.spec.containers NK1012"),
        (
            "",
            "tolerations: [{key: a, operator: Equals}], containers: [{name: a, image: a}]",
            "spec.template.spec.tolerations[0].operator NK1013",
        ),
        (
            "",
            "tolerations: [{key: a, operator: Exists, value: b}], containers: [{name: a, image: a}]",
            "spec.template.spec.tolerations[0].value NK1020",
        ),
        ("", "restartPolicy: Never, containers: [{name: a, image: a}]", "spec.template.spec.restartPolicy NK1020"),
        ("", "restartPolicy: never, containers: [{name: a, image: a}]", "spec.template.spec.restartPolicy NK1013"),
        (
            "",
            "containers: [{name: a, image: a, resources: {requests: {cpu: 2}, limits: {cpu: 1500m}}}]",
            "spec.template.spec.containers[0].resources.requests.cpu NK1020",
        ),
        (
            "",
            "containers: [{name: a, image: a, resources: {requests: {memory: 1 Gi}}}]",
            "spec.template.spec.containers[0].resources.requests.memory NK1014",
        ),
        (
            "",
            "containers: [{name: a, image: a, env: [{name: X, value: yes}]}]",
            "spec.template.spec.containers[0].env[0].value NK1022",
        ),
        (
            "",
            "containers: [{name: a, image: a, volumeMounts: [{name: v, mountPath: /v}]}]",
            "spec.template.spec.containers[0].volumeMounts[0].name NK1020",
        ),
        ("", "containers: [{name: a, image: a}, {name: a, image: b}]", "spec.template.spec.containers[1].name NK1016"),
        (
            "",
            "containers: [{name: a, image: a, ports: [{containerPort: 80, protocol: tcp}]}]",
            "spec.template.spec.containers[0].ports[0].protocol NK1013",
        ),
        ("", "containers: [{name: A, image: a}]", "spec.template.spec.containers[0].name NK1018"),
    ] {
        assert_eq!(deployment(spec, pod), [expected], "{spec} {pod}");
    }
}

#[test]
fn selectors_budgets_jobs_and_claims_have_rules_of_their_own() {
    let pod = "spec: {containers: [{name: a, image: a}]}";
    let set = |selector: &str| {
        found(&format!(
            "{{apiVersion: apps/v1, kind: StatefulSet, metadata: {{name: a}}, spec: {{serviceName: a, selector: \
             {selector}, template: {{metadata: {{labels: {{app: b}}}}, {pod}}}}}}}"
        ))
    };
    assert_eq!(set("{matchLabels: {app: a}}"), ["spec.template.metadata.labels NK1020"]);
    assert_eq!(set("{}"), ["spec.selector NK1020"]);
    let expression = "{matchExpressions: [{key: app, operator: In, values: [b]}]}";
    assert_eq!(set(expression), [] as [&str; 0]);
    let job = format!("{{apiVersion: batch/v1, kind: Job, metadata: {{name: a}}, spec: {{template: {{{pod}}}}}}}");
    assert_eq!(found(&job), ["spec.template.spec.restartPolicy NK1020"]);
    let budget = "{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: a}, spec: {minAvailable: 1, \
                  maxUnavailable: 10%, selector: {}}}";
    assert_eq!(found(budget), ["spec.maxUnavailable NK1020"]);
    assert_eq!(found("{apiVersion: v1, kind: Pod, metadata: {name: a}}"), ["spec NK1012"]);
    let claim = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a}, spec: {resources: {}}}";
    let missing = ["spec.accessModes NK1012", "spec.resources.requests.storage NK1012"];
    assert_eq!(found(claim), missing);
}

#[test]
fn a_field_is_younger_than_the_cluster_or_not() {
    let document = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {hostnameOverride: a, containers: \
                    [{name: a, image: a}]}}";
    let value = &yaml::read("t.yaml", document).documents[0].value;
    let at = |version: &str| find(value).unwrap().validate(value, Some(version)).1.len();
    assert_eq!((at("1.33"), at("1.34.2")), (1, 0));
}

#[test]
fn the_manifests_of_this_repository_have_no_findings() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests");
    let mut folders = vec![root];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            for document in &load_text("t.yaml", text).parsed().documents {
                let Some(builtin) = find(&document.value) else { continue };
                let (_, issues) = builtin.validate(&document.value, None);
                seen += 1;
                assert!(issues.is_empty(), "{}: {issues:?}", path.display());
            }
        }
    }
    assert!(seen > 5, "{seen}");
}
