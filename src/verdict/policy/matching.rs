//! Matches requests with the resources that a policy or its binding names.

use crate::policy::model::{
    LabelRequirement, LabelSelector, MatchPolicy, MatchResources, Operator, ResourceRule, RuleOperation, Scope,
};
use crate::policy::request::Request;
use crate::policy::resources::Resource;
use napkeeper_core::model::labels::NAMESPACE_NAME;
use serde_json::Value;

/// True, false, or unknown, with the missing input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Match {
    Yes,
    No,
    Unknown(String),
}

impl Match {
    fn of(truth: bool) -> Self {
        if truth { Self::Yes } else { Self::No }
    }

    /// Both: a no wins over an unknown.
    pub(crate) fn and(self, other: impl FnOnce() -> Self) -> Self {
        match self {
            Self::No => Self::No,
            Self::Yes => other(),
            Self::Unknown(missing) => match other() {
                Self::No => Self::No,
                _ => Self::Unknown(missing),
            },
        }
    }

    fn or(self, other: impl FnOnce() -> Self) -> Self {
        match self {
            Self::Yes => Self::Yes,
            Self::No => other(),
            Self::Unknown(missing) => match other() {
                Self::Yes => Self::Yes,
                _ => Self::Unknown(missing),
            },
        }
    }

    fn not(self) -> Self {
        match self {
            Self::Yes => Self::No,
            Self::No => Self::Yes,
            Self::Unknown(missing) => Self::Unknown(missing),
        }
    }
}

/// Labels of an object, or the little that is known of them.
enum Labels<'r> {
    Known(&'r Value),
    /// Only this label is known: its key, its value, and the missing input.
    Only(&'static str, &'r str, String),
    Unknown(String),
}

/// Whether a request matches.
pub(crate) fn matches(criteria: &MatchResources, request: &Request<'_>) -> Match {
    let rules = |rules: &[ResourceRule]| {
        let rule = |found: Match, rule| found.or(|| matches_rule(rule, criteria.match_policy, request));
        rules.iter().fold(Match::No, rule)
    };
    in_namespace(&criteria.namespace_selector, request)
        .and(|| by_labels(&criteria.object_selector, request))
        .and(|| rules(&criteria.exclude_resource_rules).not())
        .and(|| if criteria.resource_rules.is_empty() { Match::Yes } else { rules(&criteria.resource_rules) })
}

fn in_namespace(selector: &LabelSelector, request: &Request<'_>) -> Match {
    if is_empty(selector) {
        return Match::Yes;
    }
    if request.is_namespace() {
        return select(selector, &Labels::Known(&request.labels_of_namespace()));
    }
    match (request.resource.namespaced, request.namespace()) {
        (Some(false), _) => Match::Yes,
        (_, Some(name)) => {
            let labels = match request.namespace_object() {
                Some(object) => Labels::Known(&object["metadata"]["labels"]),
                None => Labels::Only(NAMESPACE_NAME, name, format!("the labels of the namespace {name}")),
            };
            select(selector, &labels)
        }
        (Some(true), None) => {
            select(selector, &Labels::Unknown("the namespace of the object, which is not set".into()))
        }
        (None, None) => {
            let missing = format!("whether the kind {} is namespaced", request.resource.kind);
            select(selector, &Labels::Unknown(missing))
        }
    }
}

/// By the labels of the new object or of the old one.
fn by_labels(selector: &LabelSelector, request: &Request<'_>) -> Match {
    let of = |object: &Value| select(selector, &Labels::Known(&object["metadata"]["labels"]));
    of(request.object).or(|| request.old.map_or(Match::No, of))
}

fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.is_empty() && selector.match_expressions.is_empty()
}

/// Whether the labels of a known object match.
pub(crate) fn selects(selector: &LabelSelector, object: &Value) -> bool {
    select(selector, &Labels::Known(&object["metadata"]["labels"])) == Match::Yes
}

fn select(selector: &LabelSelector, labels: &Labels<'_>) -> Match {
    let equal = selector.match_labels.iter().map(|(key, value)| LabelRequirement {
        key: key.clone(),
        operator: Operator::In,
        values: vec![value.clone()],
    });
    let all = equal.chain(selector.match_expressions.iter().cloned());
    all.fold(Match::Yes, |found, requirement| found.and(|| satisfies(&requirement, labels)))
}

fn satisfies(requirement: &LabelRequirement, labels: &Labels<'_>) -> Match {
    let value = match labels {
        Labels::Known(labels) => labels[requirement.key.as_str()].as_str(),
        Labels::Only(key, value, _) if *key == requirement.key => Some(*value),
        Labels::Only(_, _, missing) | Labels::Unknown(missing) => return Match::Unknown(missing.clone()),
    };
    let listed = value.is_some_and(|v| requirement.values.iter().any(|wanted| wanted == v));
    Match::of(match requirement.operator {
        Operator::In => listed,
        Operator::NotIn => !listed,
        Operator::Exists => value.is_some(),
        Operator::DoesNotExist => value.is_none(),
    })
}

fn matches_rule(rule: &ResourceRule, policy: MatchPolicy, request: &Request<'_>) -> Match {
    let named = |list: &[String], name: &str| list.iter().any(|item| item == "*" || item == name);
    let resource = &request.resource;
    let operation = |o: &RuleOperation| *o == RuleOperation::Any || *o == request.operation();
    let plain = named(&rule.api_groups, &resource.group)
        && rule.operations.iter().any(operation)
        && rule.resources.iter().any(|r| matches!(r.as_str(), "*" | "*/*") || main_part(r) == resource.plural);
    if !plain {
        return Match::No;
    }
    by_version(rule, policy, request).and(|| by_scope(rule.scope, request)).and(|| by_name(rule, request))
}

/// The resource that a rule names. A subresource such as `pods/status` does not apply to manifests; `pods/*` does.
fn main_part(resource: &str) -> &str {
    match resource.split_once('/') {
        Some((main, "*")) => main,
        Some(_) => "",
        None => resource,
    }
}

fn by_version(rule: &ResourceRule, policy: MatchPolicy, request: &Request<'_>) -> Match {
    let version = &request.resource.version;
    if rule.api_versions.iter().any(|v| v == "*" || v == version) {
        return Match::Yes;
    }
    let (Resource { group, plural, .. }, versions) = (&request.resource, rule.api_versions.join(", "));
    match policy {
        MatchPolicy::Exact => Match::No,
        // All versions of it have the same fields.
        MatchPolicy::Equivalent if group == "karpenter.azure.com" => {
            Match::of(rule.api_versions.iter().any(|v| v == "v1beta1" || v == "v1alpha2"))
        }
        MatchPolicy::Equivalent => {
            Match::Unknown(format!("whether the cluster also serves {plural} as {versions}, and how they look there"))
        }
    }
}

fn by_scope(scope: Scope, request: &Request<'_>) -> Match {
    match (scope, request.resource.namespaced) {
        (Scope::Any, _) => Match::Yes,
        (Scope::Cluster, Some(namespaced)) => Match::of(!namespaced),
        (Scope::Namespaced, Some(namespaced)) => Match::of(namespaced),
        (_, None) => Match::Unknown(format!("whether the kind {} is namespaced", request.resource.kind)),
    }
}

fn by_name(rule: &ResourceRule, request: &Request<'_>) -> Match {
    if rule.resource_names.is_empty() {
        return Match::Yes;
    }
    let name = request.object["metadata"]["name"].as_str().unwrap_or_default();
    Match::of(rule.resource_names.iter().any(|n| n == name))
}
