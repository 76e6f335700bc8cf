//! Policies on objects, without a server. That the API server agrees is for a live test to show.

use super::*;
use napkeeper_api::manifests::load_text;
use serde_json::json;

fn source(text: &str) -> Source {
    load_text("policies.yaml", text.to_owned())
}

/// A policy on NodePools and pods with a binding. `spec` and `binding` are flow YAML.
fn policy(spec: &str, binding: &str) -> String {
    let rules = "matchConstraints: {resourceRules: [{apiGroups: ['*'], apiVersions: ['*'], operations: [CREATE, \
                 UPDATE], resources: [nodepools, pods]}]}";
    let rules = if spec.contains("matchConstraints") { String::new() } else { format!("{rules}, ") };
    let binding = if binding.contains("validationActions") {
        binding.to_owned()
    } else {
        format!("validationActions: [Deny], {binding}")
    };
    format!(
        "{{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {{name: p}}, \
         spec: {{{rules}{spec}}}}}\n---\n{{apiVersion: admissionregistration.k8s.io/v1, \
         kind: ValidatingAdmissionPolicyBinding, metadata: {{name: b}}, spec: {{policyName: p, {binding}}}}}\n"
    )
}

fn policies(text: &str) -> Policies {
    let policies = Policies::read(&[source(text)]);
    assert_eq!(policies.problems(), [], "{text}");
    policies
}

fn validation(expression: &str) -> String {
    format!("validations: [{{expression: \"{expression}\"}}]")
}

/// `outcome message (path)` of every finding.
fn verdicts(text: &str, object: &Value, inputs: &Inputs) -> Vec<String> {
    let found = policies(text).evaluate(object, None, inputs);
    found.iter().map(|f| format!("{:?} {} ({})", f.outcome, f.message, f.path)).collect()
}

fn pool() -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": "a", "labels": { "team": "x" } },
        "spec": { "weight": 10, "template": { "spec": {} } },
    })
}

fn pod() -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a", "namespace": "app" }, "spec": {} })
}

fn config_map(name: &str, max: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": { "max": max },
        "metadata": { "name": name, "namespace": "app", "labels": { "for": "p" } },
    })
}

#[test]
fn a_failed_validation_is_reported_at_its_field() {
    let inputs = Inputs::default();
    let first = |spec: &str| verdicts(&policy(spec, ""), &pool(), &inputs);
    assert_eq!(first(&validation("object.spec.weight == 10")), [] as [&str; 0]);
    assert_eq!(
        first(&validation("object.spec.weight > 10")),
        ["Refused failed expression: object.spec.weight > 10 (spec.weight)"]
    );
    assert_eq!(
        first("validations: [{expression: 'has(object.spec.limits)', message: ' give limits '}]"),
        ["Refused give limits (spec.limits)"]
    );
    let made = "validations: [{expression: 'object.spec.weight > variables.least', message: m, messageExpression: \
                \"'at least ' + string(variables.least)\"}], variables: [{name: least, expression: '11'}]";
    assert_eq!(first(made), ["Refused at least 11 (spec.weight)"]);
    for bad in ["'a\\nb'", "'  '", "string(1 / 0)", "object.spec.weight"] {
        let spec = format!("validations: [{{expression: 'false', message: m, messageExpression: \"{bad}\"}}]");
        assert_eq!(first(&spec.replace("\\n", "\\\\n")), ["Refused m ()"], "{bad}");
    }
}

#[test]
fn a_failing_expression_follows_the_failure_policy() {
    let first = |spec: &str| verdicts(&policy(spec, ""), &pool(), &Inputs::default());
    let failing = validation("object.spec.nothing > 1");
    assert_eq!(first(&failing).len(), 1);
    assert!(first(&failing)[0].contains("resulted in error"), "{:?}", first(&failing));
    assert_eq!(first(&format!("failurePolicy: Ignore, {failing}")), [] as [&str; 0]);
    let condition = "matchConditions: [{name: c, expression: 'object.spec.nothing > 1'}], validations: [{expression: \
                     'false'}]";
    assert!(first(condition)[0].contains("object.spec.nothing > 1' resulted in error"), "{:?}", first(condition));
    let no = "matchConditions: [{name: c, expression: 'object.spec.nothing > 1'}, {name: d, expression: 'false'}], \
              validations: [{expression: 'false'}]";
    assert_eq!(first(no), [] as [&str; 0], "a condition that does not hold wins");
    let unread = format!("variables: [{{name: v, expression: '1 / 0'}}], {}", validation("object.spec.weight == 10"));
    assert_eq!(first(&unread), [] as [&str; 0], "a variable that nobody reads may fail");
}

#[test]
fn only_unknowns_that_matter_are_undecided() {
    let nobody = Inputs::default();
    let who = policy(&validation("request.userInfo.username == 'ann'"), "");
    assert_eq!(verdicts(&who, &pool(), &nobody), ["Undecided request.userInfo; pass it with --as ()"]);
    let ann = Inputs::default().with_user(User { name: "ann".into(), groups: vec!["ops".into()] });
    assert_eq!(verdicts(&who, &pool(), &ann), [] as [&str; 0]);
    let groups = policy(&validation("request.userInfo.groups == ['ops', 'system:authenticated']"), "");
    assert_eq!(verdicts(&groups, &pool(), &ann), [] as [&str; 0]);
    let id = policy(&validation("!has(request.userInfo.uid)"), "");
    assert!(verdicts(&id, &pool(), &ann)[0].starts_with("Undecided request.userInfo.uid"));
    let either = policy(&validation("object.spec.weight == 10 || request.userInfo.username == 'ann'"), "");
    assert_eq!(verdicts(&either, &pool(), &nobody), [] as [&str; 0], "one half is enough");
    let by_authorizer = policy(&validation("authorizer.group('').resource('pods').check('get').allowed()"), "");
    assert!(verdicts(&by_authorizer, &pool(), &ann)[0].starts_with("Undecided authorizer"));
    let uid = policy(&validation("object.metadata.uid != ''"), "");
    assert!(verdicts(&uid, &pool(), &ann)[0].starts_with("Undecided object.metadata.uid"));
    let condition = "matchConditions: [{name: c, expression: 'request.userInfo.username == \"ann\"'}], ";
    let refused = policy(&format!("{condition}{}", validation("false")), "");
    assert!(verdicts(&refused, &pool(), &nobody)[0].starts_with("Undecided request.userInfo"));
    assert!(verdicts(&refused, &pool(), &ann)[0].starts_with("Refused"));
    let fine = policy(&format!("{condition}{}", validation("true")), "");
    assert_eq!(verdicts(&fine, &pool(), &nobody), [] as [&str; 0], "it passes whoever asks");
}

#[test]
fn a_request_is_matched_by_resource_labels_and_namespace() {
    let at = |constraints: &str, object: &Value, inputs: &Inputs| {
        let spec = format!("matchConstraints: {{{constraints}}}, {}", validation("false"));
        verdicts(&policy(&spec, ""), object, inputs).first().map(|s| s.split(' ').next().unwrap().to_owned())
    };
    let nothing = Inputs::default();
    let rule = |group: &str, version: &str, resource: &str, more: &str| {
        format!(
            "resourceRules: [{{apiGroups: ['{group}'], apiVersions: ['{version}'], operations: ['*'], \
             resources: ['{resource}']{more}}}]"
        )
    };
    let refused = Some("Refused".to_owned());
    let undecided = Some("Undecided".to_owned());
    for (constraints, expected) in [
        (rule("karpenter.sh", "v1", "nodepools", ""), &refused),
        (rule("*", "*", "*/*", ""), &refused),
        (rule("karpenter.sh", "v1", "nodepools/*", ""), &refused),
        (rule("karpenter.sh", "v1", "nodepools/status", ""), &None),
        (rule("", "v1", "nodepools", ""), &None),
        (rule("karpenter.sh", "v1", "nodepools", ", scope: Namespaced"), &None),
        (rule("karpenter.sh", "v1", "nodepools", ", scope: Cluster"), &refused),
        (rule("karpenter.sh", "v1", "nodepools", ", resourceNames: [b]"), &None),
        (rule("karpenter.sh", "v1beta1", "nodepools", ""), &undecided),
        (format!("{}, matchPolicy: Exact", rule("karpenter.sh", "v1beta1", "nodepools", "")), &None),
        (format!("{}, objectSelector: {{matchLabels: {{team: x}}}}", rule("*", "*", "*", "")), &refused),
        (format!("{}, objectSelector: {{matchLabels: {{team: z}}}}", rule("*", "*", "*", "")), &None),
        (format!("{}, namespaceSelector: {{matchLabels: {{a: b}}}}", rule("*", "*", "*", "")), &refused),
        (
            format!(
                "{}, excludeResourceRules: [{{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: \
                 [nodepools]}}]",
                rule("*", "*", "*", "")
            ),
            &None,
        ),
    ] {
        assert_eq!(at(&constraints, &pool(), &nothing), *expected, "{constraints}");
    }
    let selector = |s: &str| format!("{}, namespaceSelector: {{{s}}}", rule("*", "*", "*", ""));
    let by_name = |operator: &str| {
        selector(&format!(
            "matchExpressions: [{{key: kubernetes.io/metadata.name, operator: {operator}, values: [app]}}]"
        ))
    };
    let app = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "app", "labels": { "a": "b" } } });
    let known = Inputs::default().with_namespaces([app]);
    assert_eq!(at(&by_name("In"), &pod(), &nothing), refused, "every namespace has its name as a label");
    assert_eq!(at(&by_name("NotIn"), &pod(), &nothing), None);
    assert_eq!(at(&selector("matchLabels: {a: b}"), &pod(), &nothing), undecided);
    assert_eq!(at(&selector("matchLabels: {a: b}"), &pod(), &known), refused);
    assert_eq!(at(&selector("matchLabels: {a: c}"), &pod(), &known), None);
    let mut homeless = pod();
    homeless["metadata"] = json!({ "name": "a" });
    assert_eq!(at(&by_name("In"), &homeless, &nothing), undecided);
    assert_eq!(at(&by_name("In"), &homeless, &known), refused, "the one namespace that is given is meant");
}

#[test]
fn parameters_come_from_the_files_that_are_known() {
    let kind = "paramKind: {apiVersion: v1, kind: ConfigMap}, ";
    let spec = format!("{kind}{}", validation("int(params.data.max) >= 10"));
    let by_name = policy(&spec, "paramRef: {name: p, namespace: app, parameterNotFoundAction: Deny}");
    let nothing = Inputs::default();
    assert!(verdicts(&by_name, &pool(), &nothing)[0].starts_with("Undecided ConfigMap app/p; pass it with --params"));
    let with = |max: &str| Inputs::default().with_all_params([config_map("p", max)]);
    assert_eq!(verdicts(&by_name, &pool(), &with("10")), [] as [&str; 0]);
    assert!(verdicts(&by_name, &pool(), &with("9"))[0].starts_with("Refused"));
    let other = Inputs::default().with_all_params([config_map("q", "9")]);
    assert!(verdicts(&by_name, &pool(), &other)[0].contains("no params found"));
    let allowed = by_name.replace("parameterNotFoundAction: Deny", "parameterNotFoundAction: Allow");
    assert_eq!(verdicts(&allowed, &pool(), &other), [] as [&str; 0]);

    let selector = "paramRef: {selector: {matchLabels: {for: p}}, namespace: app, parameterNotFoundAction: Deny}";
    let by_selector = policy(&spec, selector);
    let read = |max: &str| {
        let text = format!("{}\n---\n{}", config_map("p", max), json!({ "kind": "Namespace" }));
        Inputs::default().with_render(&policies(&by_selector), &[load_text("r.yaml", text)])
    };
    assert!(verdicts(&by_selector, &pool(), &read("10"))[0].starts_with("Undecided"), "there may be others");
    assert_eq!(verdicts(&by_selector, &pool(), &read("9")).len(), 1, "others cannot make it right");
    assert!(verdicts(&by_selector, &pool(), &read("9"))[0].starts_with("Refused"));
    let both = Inputs::default().with_all_params([config_map("p", "9"), config_map("q", "8")]);
    assert_eq!(verdicts(&by_selector, &pool(), &both).len(), 2, "each parameter has its say");

    let beside = format!("{by_name}---\n{}\n", config_map("p", "9"));
    assert!(verdicts(&beside, &pool(), &nothing)[0].starts_with("Refused"), "beside the policies is near enough");
    let own = policy(&spec, "paramRef: {name: p, parameterNotFoundAction: Deny}");
    assert!(verdicts(&own, &pool(), &with("10"))[0].contains("cluster-scoped"));
    assert_eq!(verdicts(&own, &pod(), &with("10")), [] as [&str; 0], "in the namespace of the pod");
    let without = policy(&format!("{kind}{}", validation("params == null")), "");
    assert_eq!(verdicts(&without, &pool(), &nothing), [] as [&str; 0]);
}

#[test]
fn the_binding_chooses_the_actions() {
    let rule = |actions: &str, expression: &str| {
        let text = policy(&validation(expression), &format!("validationActions: [{actions}]"));
        let found = policies(&text).evaluate(&pool(), None, &Inputs::default());
        found.first().and_then(PolicyFinding::rule).map(|r| r.id)
    };
    assert_eq!(rule("Deny", "false"), Some("NK7001"));
    assert_eq!(rule("Audit, Deny", "false"), Some("NK7001"));
    assert_eq!(rule("Warn", "false"), Some("NK7002"));
    assert_eq!(rule("Audit", "false"), None);
    assert_eq!(rule("Warn", "request.dryRun"), Some("NK7003"));
    assert_eq!(rule("Audit", "request.dryRun"), None);
}

#[test]
fn an_audit_annotation_is_a_note() {
    let note = |value: &str| {
        let spec = format!("auditAnnotations: [{{key: k, valueExpression: \"{value}\"}}]");
        verdicts(&policy(&spec, ""), &pool(), &Inputs::default())
    };
    assert_eq!(note("'weight ' + string(object.spec.weight)"), ["Noted(\"p/k\") weight 10 ()"]);
    assert_eq!(note("null"), [] as [&str; 0]);
    assert!(note("string(1 / 0)")[0].starts_with("Refused"));
}

#[test]
fn an_update_has_an_old_object() {
    let text = policy(&validation("oldObject == null || oldObject.spec.weight == object.spec.weight"), "");
    let policies = policies(&text);
    let mut old = pool();
    assert_eq!(policies.evaluate(&pool(), Some(&old), &Inputs::default()), []);
    old["spec"]["weight"] = json!(1);
    assert_eq!(policies.evaluate(&pool(), Some(&old), &Inputs::default()).len(), 1);
    assert_eq!(policies.evaluate(&pool(), None, &Inputs::default()), []);
}

#[test]
fn errors_in_a_policy_are_reported_at_their_position() {
    let wrong = |text: &str| {
        let policies = Policies::read(&[source(text)]);
        policies.problems().iter().map(|p| format!("{} {} {}", p.rule, p.path, p.message)).collect::<Vec<_>>()
    };
    let good = policy(&validation("true"), "");
    for (from, to, expected) in [
        ("expression: \"true\"", "expression: \"true &&\"", "NK7004 spec.validations[0].expression the expression"),
        ("expression: \"true\"", "expression: \"objekt.spec\"", "NK7004 spec.validations[0].expression the expression"),
        ("expression: \"true\"", "expression: \"\"", "NK7004 spec.validations[0] expression is missing"),
        ("expression: \"true\"", "expresion: \"true\"", "NK7004 spec.validations[0].expresion unknown field"),
        ("validations:", "failurePoliciy: null, validations:", "NK7004 spec.failurePoliciy unknown field"),
        (
            "matchConstraints: {",
            "matchConstraints: {objectSelector: {matchLabels: {team: null}}, ",
            "NK7004 spec.matchConstraints.objectSelector.matchLabels.team invalid type: null",
        ),
        ("validations:", "failurePolicy: Fale, validations:", "NK7004 spec.failurePolicy unknown variant"),
        (
            "operations: [CREATE, UPDATE]",
            "operations: [create]",
            "NK7004 spec.matchConstraints.resourceRules[0].operat",
        ),
        ("validationActions: [Deny]", "validationActions: [Deny, Warn]", "NK7004 spec.validationActions Deny and Warn"),
        ("validationActions: [Deny]", "validationActions: []", "NK7004 spec validationActions is missing"),
        (
            "policyName: p",
            "policyName: q",
            "NK7005 metadata.name no ValidatingAdmissionPolicyBinding references policy p",
        ),
        ("policyName: p", "policyName: q", "NK7005 spec.policyName policy q is not in the input"),
    ] {
        let text = good.replace(from, to);
        assert_ne!(text, good, "{from}");
        let found = wrong(&text);
        assert!(found.iter().any(|f| f.starts_with(expected)), "{expected}: {found:#?}");
    }
    assert_eq!(wrong("a: [1"), wrong("a: [1"));
    assert!(wrong("a: [1")[0].starts_with("NK7004"));
}

#[test]
fn a_variable_sees_only_earlier_variables() {
    let text = policy(
        "variables: [{name: a, expression: variables.b}, {name: b, expression: '1'}], validations: \
                       [{expression: 'true'}]",
        "",
    );
    let policies = Policies::read(&[source(&text)]);
    assert_eq!(policies.problems().len(), 1);
    assert!(policies.is_empty(), "a policy that is broken is not applied");
}

#[test]
fn policies_can_be_shared_by_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    shared(&(Policies::default(), Inputs::default()));
}
