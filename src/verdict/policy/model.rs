//! The form of ValidatingAdmissionPolicy and ValidatingAdmissionPolicyBinding, `admissionregistration.k8s.io/v1`.
//!
//! Fields that do not exist are errors; a null field has its default, as in the API server.

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::BTreeMap;

/// A policy.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PolicySpec {
    pub(crate) param_kind: Option<ParamKind>,
    pub(crate) match_constraints: Option<MatchResources>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) validations: Vec<Validation>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) failure_policy: FailurePolicy,
    #[serde(deserialize_with = "nullable")]
    pub(crate) audit_annotations: Vec<AuditAnnotation>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) match_conditions: Vec<NamedExpression>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) variables: Vec<NamedExpression>,
}

/// The effect of an expression that cannot be evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub(crate) enum FailurePolicy {
    /// A refusal.
    #[default]
    Fail,
    /// Nothing.
    Ignore,
}

/// The kind of the objects that hold parameters.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ParamKind {
    #[serde(deserialize_with = "nullable")]
    pub(crate) api_version: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) kind: String,
}

/// Which requests match.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct MatchResources {
    #[serde(deserialize_with = "nullable")]
    pub(crate) namespace_selector: LabelSelector,
    #[serde(deserialize_with = "nullable")]
    pub(crate) object_selector: LabelSelector,
    #[serde(deserialize_with = "nullable")]
    pub(crate) resource_rules: Vec<ResourceRule>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) exclude_resource_rules: Vec<ResourceRule>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) match_policy: MatchPolicy,
}

/// Whether the same resource in another version matches too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub(crate) enum MatchPolicy {
    /// No.
    Exact,
    /// Yes.
    #[default]
    Equivalent,
}

/// Resources and operations.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ResourceRule {
    #[serde(deserialize_with = "nullable")]
    pub(crate) resource_names: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) api_groups: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) api_versions: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) operations: Vec<RuleOperation>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) resources: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) scope: Scope,
}

/// An operation, in a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) enum RuleOperation {
    /// Create.
    #[serde(rename = "CREATE")]
    Create,
    /// Update.
    #[serde(rename = "UPDATE")]
    Update,
    /// Delete.
    #[serde(rename = "DELETE")]
    Delete,
    /// Connect.
    #[serde(rename = "CONNECT")]
    Connect,
    /// Anything.
    #[serde(rename = "*")]
    Any,
}

/// Where objects live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub(crate) enum Scope {
    /// Anywhere.
    #[default]
    #[serde(rename = "*")]
    Any,
    /// In no namespace.
    Cluster,
    /// In a namespace.
    Namespaced,
}

/// A label selector. An empty one selects all objects.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct LabelSelector {
    #[serde(deserialize_with = "nullable")]
    pub(crate) match_labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) match_expressions: Vec<LabelRequirement>,
}

/// A requirement on a label.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LabelRequirement {
    pub(crate) key: String,
    pub(crate) operator: Operator,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) values: Vec<String>,
}

/// The operator of a requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) enum Operator {
    /// Its value is one of these.
    In,
    /// Its value is none of these, or it is absent.
    NotIn,
    /// It exists.
    Exists,
    /// It is absent.
    DoesNotExist,
}

/// A validation of an object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Validation {
    #[serde(deserialize_with = "nullable")]
    pub(crate) expression: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) message: String,
    pub(crate) message_expression: Option<String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) reason: Reason,
}

/// The reason of a denial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum Reason {
    /// HTTP 403.
    Forbidden,
    /// HTTP 422.
    #[default]
    Invalid,
    /// HTTP 413.
    RequestEntityTooLarge,
}

/// An annotation of the audit log.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AuditAnnotation {
    #[serde(deserialize_with = "nullable")]
    pub(crate) key: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) value_expression: String,
}

/// A condition or a variable.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct NamedExpression {
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) expression: String,
}

/// A binding.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct BindingSpec {
    #[serde(deserialize_with = "nullable")]
    pub(crate) policy_name: String,
    pub(crate) param_ref: Option<ParamRef>,
    pub(crate) match_resources: Option<MatchResources>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) validation_actions: Vec<Action>,
}

/// Which objects hold the parameters.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ParamRef {
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) namespace: String,
    pub(crate) selector: Option<LabelSelector>,
    pub(crate) parameter_not_found_action: Option<ParameterNotFoundAction>,
}

/// The effect of missing parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) enum ParameterNotFoundAction {
    /// Nothing.
    Allow,
    /// A refusal.
    Deny,
}

/// The action when a validation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum Action {
    /// The request is refused.
    Deny,
    /// The client is warned.
    Warn,
    /// The audit log gets a note.
    Audit,
}

/// The whole of a manifest.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Manifest<S> {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(default)]
    pub(crate) metadata: Value,
    pub(crate) spec: S,
    #[serde(default, rename = "status")]
    _status: Value,
}

/// A null is the default.
fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
