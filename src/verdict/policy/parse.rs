//! Parses policies and bindings, and reports what the API server would reject.
//!
//! Each problem has a path, from which its position in the file is found.

use crate::finding::Issue;
use crate::policy::compile::CompiledPolicy;
use crate::policy::model::{
    Action, AuditAnnotation, BindingSpec, LabelSelector, Manifest, MatchResources, NamedExpression, PolicySpec,
    ResourceRule, RuleOperation, Validation,
};
use crate::rules::policies as rules;
use napkeeper_api::field_path::{Path, Segment};
use napkeeper_api::types::decode::decode as decode_value;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeSet;

/// The API group and version of policies.
pub(crate) const API_VERSION: &str = "admissionregistration.k8s.io/v1";
/// The kind of policies.
pub(crate) const POLICY: &str = "ValidatingAdmissionPolicy";
/// The kind of their bindings.
pub(crate) const BINDING: &str = "ValidatingAdmissionPolicyBinding";

/// Most match conditions of a policy: the API server's limit.
const MAX_CONDITIONS: usize = 64;
/// Longest message expression and message, in bytes: the API server's limit.
const MAX_MESSAGE_BYTES: usize = 5 * 1024;
/// Longest value expression of an audit annotation, in bytes: the API server's limit.
const MAX_VALUE_BYTES: usize = 5 * 1024;
/// Most audit annotations of a policy: the API server's limit.
const MAX_ANNOTATIONS: usize = 20;

/// A policy that can be applied.
#[derive(Debug)]
pub(crate) struct Policy {
    pub(crate) name: String,
    pub(crate) spec: PolicySpec,
    pub(crate) constraints: MatchResources,
    pub(crate) compiled: CompiledPolicy,
}

/// A binding that can be applied.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(crate) name: String,
    pub(crate) spec: BindingSpec,
}

/// The problems found.
struct Problems(Vec<Issue>);

impl Problems {
    fn at(&mut self, path: &Path, message: impl Into<String>) {
        self.0.push(Issue::new(&rules::BROKEN, path, message));
    }
}

/// Reads a policy.
///
/// # Errors
/// All that is wrong with it.
pub(crate) fn policy(value: &Value) -> Result<Policy, Vec<Issue>> {
    let Manifest { metadata, spec, .. } = decode::<PolicySpec>(value)?;
    let mut wrong = Problems(Vec::new());
    let name = name(&metadata, &mut wrong);
    let at = Path::from_dotted("spec");
    match &spec.match_constraints {
        Some(criteria) => criteria_of_policy(criteria, &at.key("matchConstraints"), &mut wrong),
        None => wrong.at(&at, "matchConstraints is missing: list the resources to match in its resourceRules"),
    }
    if let Some(kind) = &spec.param_kind {
        let missing = [("apiVersion", &kind.api_version), ("kind", &kind.kind)];
        let missing = missing.iter().filter(|(_, text)| text.is_empty());
        missing.for_each(|(field, _)| wrong.at(&at.key("paramKind"), format!("{field} is missing")));
    }
    if spec.validations.is_empty() && spec.audit_annotations.is_empty() {
        wrong.at(&at, "validations is missing: a policy needs validations or auditAnnotations");
    }
    let each = spec.validations.iter().enumerate();
    each.for_each(|(i, v)| validation(v, &at.key("validations").index(i), &mut wrong));
    conditions(&spec.match_conditions, &at.key("matchConditions"), &mut wrong);
    variables(&spec.variables, &at.key("variables"), &mut wrong);
    annotations(&spec.audit_annotations, &at.key("auditAnnotations"), &mut wrong);
    let (compiled, more) = CompiledPolicy::of(&spec);
    wrong.0.extend(more);
    let constraints = spec.match_constraints.clone().unwrap_or_default();
    if wrong.0.is_empty() { Ok(Policy { name, spec, constraints, compiled }) } else { Err(wrong.0) }
}

/// Reads a binding.
///
/// # Errors
/// All that is wrong with it.
pub(crate) fn binding(value: &Value) -> Result<Binding, Vec<Issue>> {
    let Manifest { metadata, spec, .. } = decode::<BindingSpec>(value)?;
    let mut wrong = Problems(Vec::new());
    let name = name(&metadata, &mut wrong);
    let at = Path::from_dotted("spec");
    if spec.policy_name.is_empty() {
        wrong.at(&at, "policyName is missing: add the name of the ValidatingAdmissionPolicy");
    }
    actions(&spec.validation_actions, &at, &mut wrong);
    if let Some(criteria) = &spec.match_resources {
        resources(criteria, &at.key("matchResources"), &mut wrong);
    }
    if let Some(reference) = &spec.param_ref {
        let at = at.key("paramRef");
        match (reference.name.is_empty(), &reference.selector) {
            (true, None) => wrong.at(&at, "name or selector is required"),
            (false, Some(_)) => wrong.at(&at, "name and selector are mutually exclusive"),
            _ => {}
        }
        if let Some(selector_given) = &reference.selector {
            selector(selector_given, &at.key("selector"), &mut wrong);
        }
        if reference.parameter_not_found_action.is_none() {
            wrong.at(&at, "parameterNotFoundAction is missing: set it to Deny or Allow");
        }
    }
    if wrong.0.is_empty() { Ok(Binding { name, spec }) } else { Err(wrong.0) }
}

fn decode<S: DeserializeOwned>(value: &Value) -> Result<Manifest<S>, Vec<Issue>> {
    decode_value(value).map_err(|error| vec![Issue::new(&rules::BROKEN, &error.path, error.message)])
}

fn name(metadata: &Value, wrong: &mut Problems) -> String {
    let name = metadata["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        wrong.at(&Path::from_dotted("metadata.name"), "name is missing");
    }
    name.to_owned()
}

fn actions(actions: &[Action], at: &Path, wrong: &mut Problems) {
    if actions.is_empty() {
        wrong.at(at, "validationActions is missing: set it to [Deny], [Warn] or [Audit]");
        return;
    }
    let at = at.key("validationActions");
    let different: BTreeSet<_> = actions.iter().collect();
    if different.len() < actions.len() {
        wrong.at(&at, "duplicate action");
    }
    if different.contains(&Action::Deny) && different.contains(&Action::Warn) {
        wrong.at(&at, "Deny and Warn cannot be combined: a denial reports the message anyway");
    }
}

fn criteria_of_policy(criteria: &MatchResources, at: &Path, wrong: &mut Problems) {
    if criteria.resource_rules.is_empty() {
        wrong.at(at, "resourceRules is missing: list the resources to match");
    }
    resources(criteria, at, wrong);
}

fn resources(criteria: &MatchResources, at: &Path, wrong: &mut Problems) {
    selector(&criteria.namespace_selector, &at.key("namespaceSelector"), wrong);
    selector(&criteria.object_selector, &at.key("objectSelector"), wrong);
    for (field, list) in
        [("resourceRules", &criteria.resource_rules), ("excludeResourceRules", &criteria.exclude_resource_rules)]
    {
        let each = list.iter().enumerate();
        each.for_each(|(i, rule)| resource_rule(rule, &at.key(field).index(i), wrong));
    }
}

fn resource_rule(rule: &ResourceRule, at: &Path, wrong: &mut Problems) {
    for (field, list) in
        [("apiGroups", &rule.api_groups), ("apiVersions", &rule.api_versions), ("resources", &rule.resources)]
    {
        match list.as_slice() {
            [] => wrong.at(at, format!("{field} is missing")),
            [_] => {}
            list if field != "resources" && list.iter().any(|item| item == "*") => {
                wrong.at(&at.key(field), "\"*\" means all, so it must be the only entry");
            }
            _ => {}
        }
        if field == "apiVersions" && list.iter().any(String::is_empty) {
            wrong.at(&at.key(field), "a version must not be empty");
        }
    }
    match rule.operations.as_slice() {
        [] => wrong.at(at, "operations is missing"),
        [_] => {}
        list if list.contains(&RuleOperation::Any) => {
            wrong.at(&at.key("operations"), "\"*\" means all, so it must be the only entry");
        }
        _ => {}
    }
}

fn selector(selector: &LabelSelector, at: &Path, wrong: &mut Problems) {
    use crate::policy::model::Operator;
    for (i, requirement) in selector.match_expressions.iter().enumerate() {
        let at = at.key("matchExpressions").index(i);
        match (requirement.operator, requirement.values.is_empty()) {
            (Operator::In | Operator::NotIn, true) => wrong.at(&at, "values is missing"),
            (Operator::Exists | Operator::DoesNotExist, false) => {
                wrong.at(&at, "values must be omitted with Exists or DoesNotExist");
            }
            _ => {}
        }
    }
}

fn validation(validation: &Validation, at: &Path, wrong: &mut Problems) {
    if validation.expression.trim().is_empty() {
        wrong.at(at, "expression is missing");
    }
    let message = validation.message.trim();
    if message.contains('\n') {
        wrong.at(&at.key("message"), "a message must be a single line");
    }
    if message.is_empty() && !validation.message.is_empty() {
        wrong.at(&at.key("message"), "a message must not be empty");
    }
    if validation.message_expression.as_ref().is_some_and(|m| m.trim().is_empty()) {
        wrong.at(&at.key("messageExpression"), "a messageExpression must not be empty");
    }
    if validation.message_expression.as_ref().is_some_and(|m| m.len() > MAX_MESSAGE_BYTES) {
        wrong.at(&at.key("messageExpression"), format!("must be at most {MAX_MESSAGE_BYTES} bytes long"));
    }
}

fn conditions(conditions: &[NamedExpression], at: &Path, wrong: &mut Problems) {
    if conditions.len() > MAX_CONDITIONS {
        wrong.at(at, format!("must have at most {MAX_CONDITIONS} entries, not {}", conditions.len()));
    }
    named(conditions, at, wrong);
    for (i, condition) in conditions.iter().enumerate().filter(|(_, c)| !is_qualified(&c.name)) {
        let message = format!(
            "{:?} is not a valid name: use letters, digits, '-', '_' and '.', with an optional prefix",
            condition.name
        );
        wrong.at(&at.index(i).key("name"), message);
    }
}

fn variables(variables: &[NamedExpression], at: &Path, wrong: &mut Problems) {
    named(variables, at, wrong);
    for (i, variable) in variables.iter().enumerate().filter(|(_, v)| !is_identifier(&v.name)) {
        let message = format!("{:?} is not a valid variable name: use letters, digits and '_'", variable.name);
        wrong.at(&at.index(i).key("name"), message);
    }
}

fn named(list: &[NamedExpression], at: &Path, wrong: &mut Problems) {
    let mut seen = BTreeSet::new();
    for (i, NamedExpression { name, expression }) in list.iter().enumerate() {
        if expression.trim().is_empty() {
            wrong.at(&at.index(i), "expression is missing");
        }
        if !seen.insert(name) {
            wrong.at(&at.index(i).key("name"), format!("duplicate name {name:?}"));
        }
    }
}

fn annotations(annotations: &[AuditAnnotation], at: &Path, wrong: &mut Problems) {
    if annotations.len() > MAX_ANNOTATIONS {
        wrong.at(at, format!("must have at most {MAX_ANNOTATIONS} entries, not {}", annotations.len()));
    }
    let mut seen = BTreeSet::new();
    for (i, AuditAnnotation { key, value_expression }) in annotations.iter().enumerate() {
        let at = at.index(i);
        if !is_name(key) {
            wrong.at(&at.key("key"), format!("{key:?} is not a valid key: use letters, digits, '-', '_' and '.'"));
        }
        if !seen.insert(key) {
            wrong.at(&at.key("key"), format!("duplicate key {key:?}"));
        }
        match value_expression.trim().len() {
            0 => wrong.at(&at, "valueExpression is missing"),
            n if n > MAX_VALUE_BYTES => {
                wrong.at(&at.key("valueExpression"), format!("must be at most {MAX_VALUE_BYTES} bytes long"));
            }
            _ => {}
        }
    }
}

fn is_qualified(name: &str) -> bool {
    match name.split_once('/') {
        Some((prefix, name)) => !prefix.is_empty() && prefix.split('.').all(is_name) && is_name(name),
        None => is_name(name),
    }
}

fn is_name(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let outer = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    name.len() <= 63 && name.chars().all(inner) && outer(name.chars().next()) && outer(name.chars().last())
}

fn is_identifier(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(word) && name.chars().next().is_some_and(|c| !c.is_ascii_digit())
}

/// True if a path starts with another.
pub(crate) fn begins_with(path: &[Segment], start: &[Segment]) -> bool {
    path.len() >= start.len() && path.iter().zip(start).all(|(a, b)| a == b)
}
