//! Evaluates ValidatingAdmissionPolicies for an object.
//!
//! A policy is a plain `ValidatingAdmissionPolicy` with its `ValidatingAdmissionPolicyBinding`s, as on the API server.
//! If a policy needs an input that is unknown (the user, labels of a namespace, parameters that are not in the files),
//! it is undecided: this is reported, with the missing input, and never counts as allowed.

mod compile;
mod defaults;
mod evaluate;
mod expression_path;
mod inputs;
mod matching;
mod model;
mod parse;
mod request;
mod resources;
#[cfg(test)]
mod tests;

use crate::finding::{Finding, Issue};
use crate::rules::{Rule, policies as rules};
use evaluate::PolicyResult;
pub use inputs::{Inputs, User};
use model::ParamKind;
pub use model::{Action, Reason};
use napkeeper_api::field_path::Path;
use napkeeper_api::manifests::{Source, items};
use napkeeper_api::yaml::Document;
use napkeeper_core::model::support::spelling::nearest;
use parse::{API_VERSION, BINDING, Binding, POLICY, Policy};
use request::Request;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Policies and their bindings, ready to be applied.
#[derive(Debug, Default)]
pub struct Policies {
    policies: Vec<Policy>,
    bindings: Vec<Binding>,
    /// Other objects beside the policies: parameters may be among them.
    param_objects: Vec<Arc<Value>>,
    problems: Vec<Finding>,
}

/// The result of a policy for an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyFinding {
    /// Name of the policy.
    pub policy: String,
    /// Name of the binding.
    pub binding: String,
    /// The outcome.
    pub outcome: Outcome,
    /// The actions of the binding.
    pub actions: Vec<Action>,
    /// Why, and what to do: the message of the policy; for an undecided policy, the missing input.
    pub message: String,
    /// The field that it checks; the root for the object as a whole.
    pub path: Path,
    /// The reason that the API server would report.
    pub reason: Reason,
}

/// The outcome of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// No.
    Refused,
    /// It cannot be known here.
    Undecided,
    /// A note for the audit log under this key, `policy/key`; the message is its value.
    Noted(String),
}

impl Policies {
    /// Reads all policies and bindings of some files. Other objects in them may serve as parameters. Errors are in
    /// [`Policies::problems`], and a broken policy is not applied.
    #[must_use]
    pub fn read(sources: &[Source]) -> Self {
        let mut all = Self::default();
        let mut locations = Vec::new();
        for source in sources {
            all.problems.extend(source.parsed().problems.iter().map(|problem| {
                Finding {
                    line: problem.position.line,
                    column: problem.position.column,
                    ..Issue::new(&rules::BROKEN, &Path::root(), problem.message.clone())
                        .locate(&Document::without_text(&source.file, Value::Null), &Path::root())
                }
            }));
            for document in &source.parsed().documents {
                for (root, value) in items(document) {
                    all.take(document, &root, value, &mut locations);
                }
            }
        }
        all.pair(&locations);
        all
    }

    /// Problems of the policies and bindings themselves, with their positions.
    #[must_use]
    pub fn problems(&self) -> &[Finding] {
        &self.problems
    }

    /// How many policies can be applied.
    #[must_use]
    pub fn len(&self) -> usize {
        self.policies.len()
    }

    /// True when no policy can be applied.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.policies.is_empty()
    }

    /// Evaluates the policies for an object that is created, or changed from `old`. `object` is as it would be stored.
    #[must_use]
    pub fn evaluate(&self, object: &Value, old: Option<&Value>, inputs: &Inputs) -> Vec<PolicyFinding> {
        let filled = defaults::with_defaults(object);
        let Some(request) = Request::of(filled.as_ref().unwrap_or(object), old, inputs) else { return Vec::new() };
        let mut found = Vec::new();
        for binding in &self.bindings {
            let Some(policy) = self.policies.iter().find(|p| p.name == binding.spec.policy_name) else { continue };
            for result in evaluate::apply(policy, binding, &request, &self.param_objects) {
                found.push(PolicyFinding::new(policy, binding, result));
            }
        }
        found
    }

    /// The kinds of objects that hold parameters.
    pub(crate) fn param_kinds(&self) -> impl Iterator<Item = &ParamKind> {
        self.policies.iter().filter_map(|p| p.spec.param_kind.as_ref())
    }

    fn take<'d>(
        &mut self,
        document: &'d Document,
        root: &Path,
        value: &'d Value,
        locations: &mut Vec<PolicyLocation<'d>>,
    ) {
        if let Some((kind, name)) = names_policy(value) {
            locations.push(PolicyLocation { kind, policy: name.to_owned(), document, root: root.clone() });
        }
        let wrong = match kind(value) {
            Some(POLICY) => parse::policy(value).map(|policy| self.policies.push(policy)),
            Some(_) => parse::binding(value).map(|binding| self.bindings.push(binding)),
            None => {
                self.param_objects.push(Arc::new(value.clone()));
                Ok(())
            }
        };
        let wrong = wrong.err().unwrap_or_default();
        self.problems.extend(wrong.into_iter().map(|issue| issue.locate(document, root)));
    }

    /// Finds policies without a binding, and the other way round.
    fn pair(&mut self, locations: &[PolicyLocation<'_>]) {
        let named: Vec<_> = locations.iter().enumerate().map(|(i, p)| (i, p.kind, p.policy.clone())).collect();
        for (index, issue) in unpaired(&named) {
            let Some(PolicyLocation { document, root, .. }) = locations.get(index) else { continue };
            self.problems.push(issue.locate(document, root));
        }
    }
}

/// The location of a policy or a binding.
struct PolicyLocation<'d> {
    kind: &'static str,
    /// The policy that it is, or binds.
    policy: String,
    document: &'d Document,
    root: Path,
}

impl PolicyFinding {
    fn new(policy: &Policy, binding: &Binding, result: PolicyResult) -> Self {
        let mut actions = binding.spec.validation_actions.clone();
        let mut reason = Reason::default();
        let (outcome, message, path) = match result {
            PolicyResult::Denied { message, path, reason: given } => {
                reason = given;
                (Outcome::Refused, message, path)
            }
            PolicyResult::Error { message } => {
                actions = vec![Action::Deny];
                (Outcome::Refused, message, Path::root())
            }
            PolicyResult::Undecided { missing, path } => (Outcome::Undecided, missing, path),
            PolicyResult::AuditAnnotation { key, value } => {
                (Outcome::Noted(format!("{}/{key}", policy.name)), value, Path::root())
            }
        };
        Self { policy: policy.name.clone(), binding: binding.name.clone(), outcome, actions, message, path, reason }
    }

    /// The rule to report it by; `None` if it is only for the audit log.
    #[must_use]
    pub fn rule(&self) -> Option<&'static Rule> {
        let denies = self.actions.contains(&Action::Deny);
        match self.outcome {
            Outcome::Refused if denies => Some(&rules::DENIED),
            Outcome::Refused if self.actions.contains(&Action::Warn) => Some(&rules::WARNED),
            Outcome::Undecided if denies || self.actions.contains(&Action::Warn) => Some(&rules::UNDECIDED),
            _ => None,
        }
    }

    /// The finding before its position is known.
    pub(crate) fn issue(&self) -> Option<Issue> {
        Some(Issue::new(self.rule()?, &self.path, self.describe()))
    }

    /// The message, with the name of the policy.
    #[must_use]
    pub fn describe(&self) -> String {
        match self.outcome {
            Outcome::Undecided => format!("policy {} cannot be evaluated: it needs {}", self.policy, self.message),
            _ => format!("policy {}: {}", self.policy, self.message),
        }
    }
}

/// Whether an object is a policy or a binding.
fn kind(value: &Value) -> Option<&'static str> {
    let in_group = value["apiVersion"] == API_VERSION;
    [POLICY, BINDING].into_iter().find(|kind| in_group && value["kind"] == *kind)
}

/// The policy that an object is, or binds.
pub(crate) fn names_policy(value: &Value) -> Option<(&'static str, &str)> {
    let kind = kind(value)?;
    let name = if kind == POLICY { &value["metadata"]["name"] } else { &value["spec"]["policyName"] };
    Some((kind, name.as_str().filter(|n| !n.is_empty())?))
}

/// Problems of an object that is a policy or a binding.
pub(crate) fn problems(value: &Value) -> Vec<Issue> {
    match kind(value) {
        Some(POLICY) => parse::policy(value).err().unwrap_or_default(),
        Some(_) => parse::binding(value).err().unwrap_or_default(),
        None => Vec::new(),
    }
}

/// Problems of policies without a binding and of bindings without their policy. Each comes with its
/// index, its kind, and the policy that it is or binds.
pub(crate) fn unpaired(all: &[(usize, &'static str, String)]) -> Vec<(usize, Issue)> {
    let names = |wanted: &str| -> BTreeSet<&str> {
        all.iter().filter(|(_, kind, _)| *kind == wanted).map(|(_, _, name)| name.as_str()).collect()
    };
    let (policies, bindings) = (names(POLICY), names(BINDING));
    let issue = |(kind, name): (&str, &str)| match kind {
        POLICY if !bindings.contains(name) => {
            let message = format!("no {BINDING} references policy {name}, so it has no effect");
            let fix = format!("add a {BINDING} with policyName: {name} and validationActions: [Warn]");
            Some(Issue::new(&rules::UNPAIRED, &Path::from_dotted("metadata.name"), message).fix(fix))
        }
        BINDING if !policies.contains(name) => {
            let message = format!("policy {name} is not in the input, so this binding has no effect");
            let fix = nearest(name, policies.iter().copied()).map(|suggestion| format!("set policyName: {suggestion}"));
            Some(Issue::new(&rules::UNPAIRED, &Path::from_dotted("spec.policyName"), message).fix(fix))
        }
        _ => None,
    };
    all.iter().filter_map(|(i, kind, name)| Some((*i, issue((kind, name))?))).collect()
}
