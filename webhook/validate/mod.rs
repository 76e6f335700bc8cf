//! `/validate`: decides whether a NodePool or AKSNodeClass may be written, or deleted.
//!
//! The findings are those of `napkeeper validate`. A finding becomes a warning if the old object had it too, so that
//! older objects can still be changed; if only the embedded schema causes it, since the API server has already checked
//! its own schema, which may be newer; or if it depends on facts of Azure or the scheduler, which may have changed
//! since.

mod cluster;
mod deletion_protection;
mod impact;
mod policies;
mod runner;
mod validator;

pub use deletion_protection::{DELETE_ACKNOWLEDGED_ANNOTATION, DeletionProtection};
pub(crate) use runner::{Inputs, ValidationRunner, acquire_large_slot};
pub use validator::SourcedValidator;

use crate::review::{AdmissionResponse, Denial, GroupVersionKind, Request};
use crate::text::{pluralize, truncate};
use cluster::ClusterState;
use jiff::Timestamp;
use napkeeper_api::manifests::Object;
use napkeeper_api::yaml::Document;
use napkeeper_core::admission::pdb_blockers::ClusterBlockers;
use napkeeper_core::model::names::NodeClassName;
use napkeeper_core::snapshot::Snapshot;
use napkeeper_verdict::policy::Policies;
use napkeeper_verdict::rules::{azure, cost, disruption, structure as rules};
use napkeeper_verdict::{Finding, Severity, Validator};
use policies::PolicyResults;
use serde_json::Value;
use std::collections::BTreeSet;

/// The validated kinds: API group, versions, kind.
const VALIDATED_KINDS: [(&str, &[&str], &str); 4] = [
    ("karpenter.sh", &["v1"], "NodePool"),
    ("karpenter.azure.com", &["v1alpha2", "v1beta1"], "AKSNodeClass"),
    ("napkeeper.io", &["v1alpha1"], "OrphanSweep"),
    ("napkeeper.io", &["v1alpha1"], "PlacementPolicy"),
];

/// Rules by which a newer schema may allow more: fields and values of which we have not heard.
const SCHEMA_RULES: [&str; 2] = [rules::UNKNOWN_FIELD.id, rules::ENUM.id];

/// Rules of the Azure family that no change in Azure can fix.
const PERMANENT_RULES: [&str; 5] =
    [azure::CONTRADICTION.id, azure::BOUND.id, azure::SUBNET.id, azure::TAG_OWNER.id, azure::UNSUPPORTED_FIELD.id];

/// Most findings that a refusal lists, and most warnings.
const MAX_FINDINGS: usize = 10;
/// Longest line of a refusal in characters.
const MAX_LINE_CHARS: usize = 400;
/// Longest warning in characters: the API server cuts at 256.
const MAX_WARNING_CHARS: usize = 256;

/// The inputs of a validation.
#[derive(Debug)]
pub(crate) struct ValidationContext<'a> {
    /// Rules and facts.
    pub(crate) validator: &'a SourcedValidator,
    /// The cluster; `None` while it is not known.
    pub(crate) snapshot: Option<&'a Snapshot>,
    /// What prevents launches.
    pub(crate) blockers: &'a ClusterBlockers,
    /// The platform team's own rules.
    pub(crate) policies: &'a Policies,
}

/// True for a write or delete that rules judge. Whether a policy applies to another kind is not known.
pub(crate) fn is_judged(request: &Request) -> bool {
    let is_deleted = !request.object["metadata"]["deletionTimestamp"].is_null();
    is_validated_kind(&request.kind) && (request.is_delete() || request.is_write() && !is_deleted)
}

/// Validates a write; `None` when no rule and no policy applies.
pub(crate) fn validate(context: &ValidationContext<'_>, request: Request) -> Option<AdmissionResponse> {
    if request.is_write() && request.object["metadata"]["deletionTimestamp"].is_null() {
        let policy_results = policies::evaluate(context.policies, &request);
        validate_write(context, request, policy_results)
    } else {
        None
    }
}

fn validate_write(
    context: &ValidationContext<'_>,
    request: Request,
    policy_results: PolicyResults,
) -> Option<AdmissionResponse> {
    let (kind, now) = (request.kind.kind.clone(), Timestamp::now());
    let by_rules = rule_findings(context, request, now);
    let policies_apply =
        !(policy_results.denials.is_empty() && policy_results.warnings.is_empty()) || policy_results.audit().is_some();
    if by_rules.is_none() && !policies_apply {
        return None;
    }
    let facts = by_rules.is_some().then(|| context.validator.describe_sources(now));
    let (mut errors, mut warnings) = by_rules.unwrap_or_default();
    let rests_on_azure = warnings.iter().any(depends_on_azure);
    let policies = policy_results.audit();
    errors.extend(policy_results.denials);
    warnings.splice(0..0, policy_results.warnings);
    let mut warnings = format_lines(&warnings, MAX_WARNING_CHARS);
    if let Some(served) = facts.as_ref().filter(|_| rests_on_azure) {
        warnings.push(truncate(&format!("Azure data from: {served}"), MAX_WARNING_CHARS));
    }
    let refusal = (!errors.is_empty()).then(|| denial(&kind, &errors));
    Some(AdmissionResponse { facts, policies, denial: refusal, warnings, patch: Vec::new() })
}

/// Errors and warnings of the rules; `None` for a kind that is not validated.
fn rule_findings(
    context: &ValidationContext<'_>,
    request: Request,
    now: Timestamp,
) -> Option<(Vec<Finding>, Vec<Finding>)> {
    let ValidationContext { validator, snapshot, blockers, .. } = context;
    let Request { object, old_object, .. } = &request;
    let update = request.operation == "UPDATE";
    let is_unchanged =
        update && object["spec"] == old_object["spec"] && object["apiVersion"] == old_object["apiVersion"];
    if is_unchanged || !is_validated_kind(&request.kind) {
        return None;
    }
    let state = snapshot.map(|snapshot| ClusterState { snapshot, blockers, now });
    let cluster_findings = state.map(|state| cluster::findings(&state, &request)).unwrap_or_default();
    let found = findings(&validator.validator, *snapshot, request.object);
    // The old object is validated only if the new one might be denied.
    let needs_old = update && found.iter().any(may_deny);
    let before = if needs_old { findings(&validator.validator, *snapshot, request.old_object) } else { Vec::new() };
    let before: BTreeSet<_> = before.iter().map(identity).collect();
    let (errors, mut warnings): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|finding| may_deny(finding) && !before.contains(&identity(finding)));
    // The effects on the running cluster come first: authors know them least.
    warnings.splice(0..0, cluster_findings);
    Some((errors, warnings))
}

/// A denial, with a line for each finding, and the documentation of the first.
fn denial(subject: &str, findings: &[Finding]) -> Denial {
    let number = pluralize(findings.len(), "finding");
    let lines = format_lines(findings, MAX_LINE_CHARS).join("\n");
    let first = findings.first().map_or("ID", |finding| finding.rule);
    let message =
        format!("{subject} is denied, {number}:\n{lines}\nMore: docs/rules/{first}.md, or napkeeper rules {first}");
    let rules = findings.iter().take(MAX_FINDINGS).map(|finding| finding.rule).collect();
    Denial { message, rules, unable: false }
}

fn is_validated_kind(requested: &GroupVersionKind) -> bool {
    VALIDATED_KINDS.iter().any(|(group, versions, kind)| {
        requested.group == *group && requested.kind == *kind && versions.contains(&&*requested.version)
    })
}

/// True for an error that the API server cannot have judged better.
fn may_deny(finding: &Finding) -> bool {
    // Form and schedules are wrong for ever; what Azure offers is not.
    let lasting = rules::ALL.iter().chain(disruption::ALL).any(|rule| rule.id == finding.rule);
    let lasting = lasting || PERMANENT_RULES.contains(&finding.rule);
    finding.severity == Severity::Error && lasting && !SCHEMA_RULES.contains(&finding.rule)
}

/// True for what hangs on sizes or prices of Azure.
fn depends_on_azure(finding: &Finding) -> bool {
    azure::ALL.iter().chain(cost::ALL).any(|rule| rule.id == finding.rule)
}

/// Errors before warnings, and those about the object as a whole (whose rules have the lower ids) before its fields.
fn findings(validator: &Validator, snapshot: Option<&Snapshot>, object: Value) -> Vec<Finding> {
    let class = snapshot.and_then(|snapshot| node_class_of(snapshot, &object));
    let mut findings = validator.validate_beside(&Document::without_text("request", object), class).findings;
    findings.sort_by(|a, b| (a.severity, a.rule, &a.path).cmp(&(b.severity, b.rule, &b.path)));
    findings
}

/// The AKSNodeClass that a NodePool names: what its nodes can be depends on it.
fn node_class_of(snapshot: &Snapshot, object: &Value) -> Option<Object> {
    let name = object["spec"]["template"]["spec"]["nodeClassRef"]["name"].as_str()?;
    let class = snapshot.classes().get(&NodeClassName::new(name).ok()?)?;
    Some(Object::NodeClass(Box::new((**class).clone())))
}

/// What the same finding of another version of an object has too.
fn identity(finding: &Finding) -> (&'static str, &str, &str) {
    (finding.rule, &finding.path, &finding.message)
}

/// One line each: rule, path, problem, fix.
fn format_lines(findings: &[Finding], longest: usize) -> Vec<String> {
    let line = |Finding { rule, path, message, fix, .. }: &Finding| {
        let at = if path.is_empty() { String::new() } else { format!(" {path}") };
        let fix = fix.as_ref().map(|fix| format!("; {fix}")).unwrap_or_default();
        truncate(&format!("{rule}{at}: {message}{fix}"), longest)
    };
    let mut lines: Vec<_> = findings.iter().take(MAX_FINDINGS).map(line).collect();
    lines.extend(findings.len().checked_sub(MAX_FINDINGS).filter(|n| *n > 0).map(|n| format!("and {n} more")));
    lines
}
