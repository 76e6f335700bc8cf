//! `/validate`: may this NodePool or AKSNodeClass be written, or deleted?
//!
//! The findings are those of `napkeeper validate`. What was wrong before is no reason to refuse: it becomes a warning,
//! so that an object from before a rule can still be changed. So does what only the schema forbids that is built in here:
//! the API server has checked the object by its own schema before it asks, and that may be newer. And so does what Azure or
//! a scheduler would say: it hangs on facts that may have changed since.

use crate::basis::Basis;
use crate::cluster::{self, Live, pluralize};
use crate::guard::{Guard, deletion_finding};
use crate::hint::truncate;
use crate::policies::{self, Opinion};
use crate::review::{Answer, GroupVersionKind, Refusal, Request};
use jiff::Timestamp;
use napkeeper_api::manifests::Object;
use napkeeper_api::yaml::Document;
use napkeeper_core::admission::blockers::ClusterBlockers;
use napkeeper_core::model::names::NodeClassName;
use napkeeper_core::snapshot::Snapshot;
use napkeeper_verdict::policy::Policies;
use napkeeper_verdict::rules::{azure, cost, disruption, structure as rules};
use napkeeper_verdict::{Finding, Severity, Validator};
use serde_json::Value;

/// What is judged: API group, versions, kind.
const VALIDATED_KINDS: [(&str, &[&str], &str); 4] = [
    ("karpenter.sh", &["v1"], "NodePool"),
    ("karpenter.azure.com", &["v1alpha2", "v1beta1"], "AKSNodeClass"),
    ("napkeeper.io", &["v1alpha1"], "OrphanSweep"),
    ("napkeeper.io", &["v1alpha1"], "PlacementPolicy"),
];

/// Rules by which a newer schema may allow more: fields and values of which we have not heard.
const SCHEMA_RULES: [&str; 2] = [rules::UNKNOWN_FIELD.id, rules::ENUM.id];

/// Rules of the Azure family that no new offer of Azure will put right.
const PERMANENT_RULES: [&str; 4] = [azure::CONTRADICTION.id, azure::BOUND.id, azure::SUBNET.id, azure::TAG_OWNER.id];

/// Most findings that a refusal lists, and most warnings.
const MAX_FINDINGS: usize = 10;
/// Longest line of a refusal in characters.
const MAX_LINE_CHARS: usize = 400;
/// Longest warning in characters: the API server cuts at 256.
const MAX_WARNING_CHARS: usize = 256;

/// What is judged by.
#[derive(Debug)]
pub(crate) struct Judge<'a> {
    /// Rules and facts.
    pub(crate) validator: &'a Basis,
    /// The cluster; `None` while it is not known.
    pub(crate) snapshot: Option<&'a Snapshot>,
    /// What stands in the way of nodes.
    pub(crate) blockers: &'a ClusterBlockers,
    /// The platform team's own rules.
    pub(crate) policies: &'a Policies,
    /// What becomes of deletes.
    pub(crate) deletion_protection: Guard,
}

/// Judges a request; `None` when there is no opinion.
pub(crate) fn validate(context: &Judge<'_>, request: Request) -> Option<Answer> {
    if request.is_write() && request.object["metadata"]["deletionTimestamp"].is_null() {
        let opinion = policies::evaluate(context.policies, &request);
        validate_write(context, request, opinion)
    } else if request.is_delete() && is_validated_kind(&request.kind) {
        validate_delete(context, &request)
    } else {
        None
    }
}

fn validate_delete(context: &Judge<'_>, request: &Request) -> Option<Answer> {
    if context.deletion_protection == Guard::Off {
        return None;
    }
    let found = deletion_finding(context.snapshot?, request, Timestamp::now())?;
    let found = std::slice::from_ref(&found);
    Some(match context.deletion_protection {
        Guard::Deny => Answer { denial: Some(denial("The delete", found)), ..Answer::allow() },
        Guard::Warn | Guard::Off => Answer { warnings: format_lines(found, MAX_WARNING_CHARS), ..Answer::allow() },
    })
}

fn validate_write(context: &Judge<'_>, request: Request, opinion: Opinion) -> Option<Answer> {
    let (kind, now) = (request.kind.kind.clone(), Timestamp::now());
    let by_rules = rule_findings(context, request, now);
    let has_opinion = !(opinion.denials.is_empty() && opinion.warnings.is_empty()) || opinion.audit().is_some();
    if by_rules.is_none() && !has_opinion {
        return None;
    }
    let facts = by_rules.is_some().then(|| context.validator.describe_sources(now));
    let (mut wrong, mut doubtful) = by_rules.unwrap_or_default();
    let rests_on_azure = doubtful.iter().any(depends_on_azure);
    let policies = opinion.audit();
    wrong.extend(opinion.denials);
    doubtful.splice(0..0, opinion.warnings);
    let mut warnings = format_lines(&doubtful, MAX_WARNING_CHARS);
    if let Some(served) = facts.as_ref().filter(|_| rests_on_azure) {
        warnings.push(truncate(&format!("Azure data from: {served}"), MAX_WARNING_CHARS));
    }
    let refusal = (!wrong.is_empty()).then(|| denial(&kind, &wrong));
    Some(Answer { facts, policies, denial: refusal, warnings, patch: Vec::new() })
}

/// What the rules refuse, and what they warn of; `None` for what they do not look at.
fn rule_findings(context: &Judge<'_>, request: Request, now: Timestamp) -> Option<(Vec<Finding>, Vec<Finding>)> {
    let Judge { validator: basis, snapshot, blockers: hindrances, .. } = context;
    let Request { object, old_object, .. } = &request;
    let update = request.operation == "UPDATE";
    let untouched = update && object["spec"] == old_object["spec"] && object["apiVersion"] == old_object["apiVersion"];
    if untouched || !is_validated_kind(&request.kind) {
        return None;
    }
    let live = snapshot.map(|snapshot| Live { snapshot, blockers: hindrances, now });
    let of_cluster = live.map(|live| cluster::findings(&live, &request)).unwrap_or_default();
    let found = findings(&basis.validator, *snapshot, request.object);
    // Most writes are good: then nobody asks what was wrong before.
    let asks = update && found.iter().any(may_deny);
    let before = if asks { findings(&basis.validator, *snapshot, request.old_object) } else { Vec::new() };
    let (wrong, mut doubtful): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|f| may_deny(f) && !before.iter().any(|b| is_same_finding(f, b)));
    // What it means for what runs now is what whoever writes it knows least.
    doubtful.splice(0..0, of_cluster);
    Some((wrong, doubtful))
}

/// A refusal of what, with a line for each finding, and where to read about the first of them.
fn denial(what: &str, findings: &[Finding]) -> Refusal {
    let number = pluralize(findings.len(), "finding");
    let lines = format_lines(findings, MAX_LINE_CHARS).join("\n");
    let first = findings.first().map_or("ID", |finding| finding.rule);
    let message =
        format!("{what} is denied, {number}:\n{lines}\nMore: docs/rules/{first}.md, or napkeeper rules {first}");
    Refusal { message, rules: findings.iter().take(MAX_FINDINGS).map(|finding| finding.rule).collect() }
}

fn is_validated_kind(asked: &GroupVersionKind) -> bool {
    VALIDATED_KINDS.iter().any(|(group, versions, kind)| {
        asked.group == *group && asked.kind == *kind && versions.contains(&&*asked.version)
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

fn is_same_finding(a: &Finding, b: &Finding) -> bool {
    (a.rule, &a.path, &a.message) == (b.rule, &b.path, &b.message)
}

/// One line each: rule, path, what is wrong, what would be right.
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
