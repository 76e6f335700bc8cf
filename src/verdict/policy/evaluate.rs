//! Evaluates one policy, by one binding, for a request.

use crate::cel::{EvalError, Output, Program, Variables};
use crate::policy::compile::{AUTHORIZER, CompiledPolicy, CompiledValidation};
use crate::policy::matching::{Match, matches, selects};
use crate::policy::model::{
    AuditAnnotation, FailurePolicy, ParamKind, ParamRef, ParameterNotFoundAction, Reason, Validation,
};
use crate::policy::parse::{Binding, Policy};
use crate::policy::request::Request;
use napkeeper_api::field_path::Path;
use serde_json::Value;
use std::sync::Arc;

/// Longest message that an expression may give, in bytes: the API server's limit.
const MAX_MESSAGE_BYTES: usize = 5 * 1024;

/// A result of a policy for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PolicyResult {
    /// Denied. The binding chooses the action.
    Denied { message: String, path: Path, reason: Reason },
    /// Denied, whatever the binding says: the policy cannot be applied.
    Error { message: String },
    /// It depends on something that is not known here.
    Undecided { missing: String, path: Path },
    /// A note for the audit log.
    AuditAnnotation { key: String, value: String },
}

/// The parameters to evaluate a policy with.
enum Params<'p> {
    /// One after the other; `None` is null.
    Complete(Vec<Option<&'p Value>>),
    /// As above, and there may be others that are not known.
    Partial(Vec<Option<&'p Value>>, String),
    /// They cannot be read; the message of the API server.
    Error(String),
}

/// Applies a policy.
pub(crate) fn apply(
    policy: &Policy,
    binding: &Binding,
    request: &Request<'_>,
    extra_params: &[Arc<Value>],
) -> Vec<PolicyResult> {
    let mine = |criteria| matches(criteria, request);
    let applies = mine(&policy.constraints).and(|| binding.spec.match_resources.as_ref().map_or(Match::Yes, mine));
    let unsure = match applies {
        Match::No => return Vec::new(),
        Match::Yes => None,
        Match::Unknown(missing) => Some(missing),
    };
    let (params, mut more) = match params(policy, binding, request, extra_params) {
        Params::Complete(params) => (params, None),
        Params::Partial(params, missing) => (params, Some(missing)),
        Params::Error(message) => {
            let results =
                (policy.spec.failure_policy == FailurePolicy::Fail).then_some(PolicyResult::Error { message });
            return results.into_iter().map(|s| make_undecided(s, unsure.as_ref())).collect();
        }
    };
    let mut results = Vec::new();
    for params in params {
        let with = Evaluation { policy, request, params };
        results.extend(with.run());
    }
    if results.iter().any(|s| matches!(s, PolicyResult::Denied { .. })) {
        // More parameters can only refuse more.
        more = None;
    }
    results.extend(more.map(|missing| PolicyResult::Undecided { missing, path: Path::root() }));
    results.into_iter().map(|s| make_undecided(s, unsure.as_ref())).collect()
}

/// The result for a request that the policy may not match.
fn make_undecided(result: PolicyResult, unsure: Option<&String>) -> PolicyResult {
    let Some(missing) = unsure else { return result };
    match result {
        PolicyResult::Denied { message, path, .. } => {
            PolicyResult::Undecided { missing: format!("{missing} (message of the policy: {message})"), path }
        }
        PolicyResult::Error { message } => PolicyResult::Undecided {
            missing: format!("{missing} (message of the policy: {message})"),
            path: Path::root(),
        },
        result => result,
    }
}

fn params<'p>(
    policy: &'p Policy,
    binding: &'p Binding,
    request: &'p Request<'_>,
    extra_params: &'p [Arc<Value>],
) -> Params<'p> {
    let (Some(kind), Some(reference)) = (&policy.spec.param_kind, &binding.spec.param_ref) else {
        return Params::Complete(vec![None]);
    };
    let known: Vec<&Value> = request.inputs.params(kind, extra_params).collect();
    let shown = format!("{} {}", kind.kind, describe_param_ref(reference));
    // Cluster-scoped objects have no namespace, even if one is written.
    let has_namespace = known.iter().any(|p| p["metadata"]["namespace"].is_string()) || is_namespaced(kind);
    let namespace = if !has_namespace {
        None
    } else if reference.namespace.is_empty() {
        match (request.resource.namespaced, request.namespace()) {
            (_, Some(namespace)) => Some(namespace),
            (Some(false), None) => {
                let message = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
                return Params::Error(format!("failed to configure binding: {message}"));
            }
            (_, None) => {
                let missing = format!("{shown} in the namespace of the object, which is unknown");
                return Params::Partial(Vec::new(), missing);
            }
        }
    } else {
        Some(reference.namespace.as_str())
    };
    let in_namespace =
        |p: &&Value| namespace.is_none_or(|n| p["metadata"]["namespace"].as_str().unwrap_or("default") == n);
    let named = |p: &&Value| match &reference.selector {
        Some(selector) => selects(selector, p),
        None => p["metadata"]["name"] == reference.name.as_str(),
    };
    let found: Vec<Option<&Value>> = known.into_iter().filter(in_namespace).filter(named).map(Some).collect();
    let complete = request.inputs.params_are_all() || (reference.selector.is_none() && !found.is_empty());
    match (complete, found.is_empty()) {
        (false, _) => Params::Partial(found, format!("{shown}; pass it with --params")),
        (true, false) => Params::Complete(found),
        (true, true) => not_found(reference),
    }
}

fn not_found<'p>(reference: &ParamRef) -> Params<'p> {
    match reference.parameter_not_found_action {
        Some(ParameterNotFoundAction::Allow) => Params::Complete(Vec::new()),
        _ => Params::Error(
            "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
                .to_owned(),
        ),
    }
}

fn describe_param_ref(reference: &ParamRef) -> String {
    let prefix = if reference.namespace.is_empty() { String::new() } else { format!("{}/", reference.namespace) };
    match reference.selector {
        Some(_) => "matching a selector".to_owned(),
        None => format!("{prefix}{}", reference.name),
    }
}

/// True for kinds known to be namespaced; for others it depends on the namespace of their objects.
fn is_namespaced(kind: &ParamKind) -> bool {
    let object = serde_json::json!({ "apiVersion": kind.api_version, "kind": kind.kind });
    super::resources::Resource::of(&object).is_some_and(|r| r.namespaced == Some(true))
}

/// A policy with one of its parameters.
struct Evaluation<'e> {
    policy: &'e Policy,
    request: &'e Request<'e>,
    params: Option<&'e Value>,
}

impl Evaluation<'_> {
    fn run(&self) -> Vec<PolicyResult> {
        let CompiledPolicy { conditions, variables, validations, annotations, .. } = &self.policy.compiled;
        let mut bound = self.variables();
        let unsure = match self.conditions(conditions, &bound) {
            Ok(Match::Yes) => None,
            Ok(Match::No) => return Vec::new(),
            Ok(Match::Unknown(missing)) => Some(missing),
            Err(message) => return self.failed(message, Path::root()).into_iter().collect(),
        };
        for (name, program) in variables {
            let result = program.eval(&bound);
            bound.set_result(name, result.map_err(|e| in_variable(name, e)));
        }
        let checks = self.policy.spec.validations.iter().zip(validations);
        let mut results: Vec<PolicyResult> = checks.filter_map(|(v, check)| self.validate(v, check, &bound)).collect();
        let notes = self.policy.spec.audit_annotations.iter().zip(annotations);
        results.extend(notes.filter_map(|(annotation, program)| self.annotate(annotation, program, &bound)));
        results.into_iter().map(|s| make_undecided(s, unsure.as_ref())).collect()
    }

    fn variables(&self) -> Variables {
        let mut bound = self.policy.compiled.env.variables();
        let request = self.request;
        bound.set("object", request.object);
        bound.set("oldObject", request.old.unwrap_or(&Value::Null));
        let (facts, parts) = request.facts();
        bound.set("request", &facts);
        for (name, value) in parts.into_iter().chain(request.server_set_fields()) {
            match value {
                Some(value) => bound.set(name, &value),
                None => bound.set_unknown(name),
            }
        }
        bound.set_unknown(AUTHORIZER);
        match (request.resource.namespaced, request.namespace_object()) {
            (_, Some(namespace)) => bound.set("namespaceObject", namespace),
            (Some(false), None) => bound.set("namespaceObject", &Value::Null),
            (_, None) => bound.set_unknown("namespaceObject"),
        }
        bound.set("params", self.params.unwrap_or(&Value::Null));
        bound
    }

    /// Whether all conditions hold. One that does not hold wins over those that fail.
    fn conditions(&self, conditions: &[Program], bound: &Variables) -> Result<Match, String> {
        let (mut unsure, mut failed) = (None, None);
        for (i, program) in conditions.iter().enumerate() {
            match program.eval(bound) {
                Ok(output) if output.as_bool() == Some(true) => {}
                Ok(_) => return Ok(Match::No),
                Err(EvalError::Unknown(name)) => unsure = unsure.or_else(|| Some(unknown(&name))),
                Err(error) => {
                    let expression = self.policy.spec.match_conditions.get(i).map_or("", |c| c.expression.as_str());
                    failed = failed.or_else(|| Some(in_error(expression, &error)));
                }
            }
        }
        match (failed, unsure) {
            (_, Some(missing)) => Ok(Match::Unknown(missing)),
            (Some(message), None) => Err(message),
            (None, None) => Ok(Match::Yes),
        }
    }

    fn validate(&self, validation: &Validation, check: &CompiledValidation, bound: &Variables) -> Option<PolicyResult> {
        match check.program.eval(bound) {
            Ok(output) if output.as_bool() == Some(true) => None,
            Ok(_) => {
                let message = message(validation, check, bound);
                Some(PolicyResult::Denied { message, path: check.path.clone(), reason: validation.reason })
            }
            Err(EvalError::Unknown(name)) => {
                Some(PolicyResult::Undecided { missing: unknown(&name), path: check.path.clone() })
            }
            Err(error) => self.failed(in_error(&validation.expression, &error), check.path.clone()),
        }
    }

    fn annotate(&self, annotation: &AuditAnnotation, program: &Program, bound: &Variables) -> Option<PolicyResult> {
        let key = annotation.key.clone();
        match program.eval(bound) {
            Ok(output) => {
                output.as_str().map(|value| PolicyResult::AuditAnnotation { key, value: value.trim().to_owned() })
            }
            // An unknown annotation value does not concern the object.
            Err(EvalError::Unknown(_)) => None,
            Err(error) => {
                let message = in_error(&annotation.value_expression, &error);
                (self.policy.spec.failure_policy == FailurePolicy::Fail).then_some(PolicyResult::Error { message })
            }
        }
    }

    /// A failing expression follows the failure policy.
    fn failed(&self, message: String, path: Path) -> Option<PolicyResult> {
        (self.policy.spec.failure_policy == FailurePolicy::Fail).then(|| PolicyResult::Denied {
            message,
            path,
            reason: Reason::default(),
        })
    }
}

/// The API server's message for a failing expression.
fn in_error(expression: &str, error: &EvalError) -> String {
    format!("expression '{}' resulted in error: {error}", expression.trim())
}

fn in_variable(name: &str, error: EvalError) -> EvalError {
    match error {
        EvalError::Failed(message) => EvalError::Failed(format!("{name} fails to evaluate: {message}")),
        other => other,
    }
}

/// The message of a validation that does not hold.
fn message(validation: &Validation, check: &CompiledValidation, bound: &Variables) -> String {
    let made = check.message.as_ref().and_then(|program| program.eval(bound).ok());
    let made = made.as_ref().and_then(Output::as_str).map(str::trim);
    let usable = |m: &&str| !m.is_empty() && m.len() <= MAX_MESSAGE_BYTES && !m.contains('\n');
    let fixed = Some(validation.message.trim()).filter(|m| !m.is_empty());
    match made.filter(usable).or(fixed) {
        Some(message) => message.to_owned(),
        None => format!("failed expression: {}", validation.expression.trim()),
    }
}

/// The unknown variable, and how to pass it.
fn unknown(name: &str) -> String {
    match name {
        "request.userInfo.uid" | "request.userInfo.extra" => {
            format!("{name}, which is only available in the API server")
        }
        "request.userInfo" => "request.userInfo; pass it with --as".to_owned(),
        "namespaceObject" => "namespaceObject; pass it with --namespace-object".to_owned(),
        AUTHORIZER => "authorizer, which is only available in the API server".to_owned(),
        name if name.starts_with("object.metadata.") => format!("{name}, which the API server sets"),
        name => name.to_owned(),
    }
}
