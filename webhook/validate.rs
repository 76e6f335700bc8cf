//! `/validate`: may this NodePool or AKSNodeClass be written, or deleted?
//!
//! The findings are those of `napkeeper validate`. What was wrong before is no reason to refuse: it becomes a warning,
//! so that an object from before a rule can still be changed. So does what only the schema forbids that is built in here:
//! the API server has checked the object by its own schema before it asks, and that may be newer. And so does what Azure or
//! a scheduler would say: it hangs on facts that may have changed since.

use crate::basis::Basis;
use crate::cluster::{self, Live, counted};
use crate::guard::{Guard, objection};
use crate::hint::shorten;
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
use napkeeper_verdict::{Finding, Severity, Verdict};
use serde_json::Value;

/// What is judged: API group, versions, kind.
const JUDGED: [(&str, &[&str], &str); 4] = [
    ("karpenter.sh", &["v1"], "NodePool"),
    ("karpenter.azure.com", &["v1alpha2", "v1beta1"], "AKSNodeClass"),
    ("napkeeper.io", &["v1alpha1"], "OrphanSweep"),
    ("napkeeper.io", &["v1alpha1"], "PlacementPolicy"),
];

/// Rules by which a newer schema may allow more: fields and values of which we have not heard.
const OF_THE_SCHEMA: [&str; 2] = [rules::UNKNOWN_FIELD.id, rules::ENUM.id];

/// Rules of the Azure family that no new offer of Azure will put right.
const LASTING: [&str; 4] = [azure::CONTRADICTION.id, azure::BOUND.id, azure::SUBNET.id, azure::TAG_OWNER.id];

/// Most findings that a refusal lists, and most warnings.
const MOST: usize = 10;
/// Longest line of a refusal in characters.
const LONGEST_LINE: usize = 400;
/// Longest warning in characters: the API server cuts at 256.
const LONGEST_WARNING: usize = 256;

/// What is judged by.
#[derive(Debug)]
pub(crate) struct Judge<'a> {
    /// Rules and facts.
    pub(crate) basis: &'a Basis,
    /// The cluster; `None` while it is not known.
    pub(crate) snapshot: Option<&'a Snapshot>,
    /// What stands in the way of nodes.
    pub(crate) hindrances: &'a ClusterBlockers,
    /// The platform team's own rules.
    pub(crate) policies: &'a Policies,
    /// What becomes of deletes.
    pub(crate) guard: Guard,
}

/// Judges a request; `None` when there is no opinion.
pub(crate) fn judge(judge: &Judge<'_>, request: Request) -> Option<Answer> {
    if request.is_write() && request.object["metadata"]["deletionTimestamp"].is_null() {
        let opinion = policies::judge(judge.policies, &request);
        judge_write(judge, request, opinion)
    } else if request.is_delete() && is_judged(&request.kind) {
        judge_delete(judge, &request)
    } else {
        None
    }
}

fn judge_delete(judge: &Judge<'_>, request: &Request) -> Option<Answer> {
    if judge.guard == Guard::Off {
        return None;
    }
    let found = objection(judge.snapshot?, request, Timestamp::now())?;
    let found = std::slice::from_ref(&found);
    Some(match judge.guard {
        Guard::Deny => Answer { refusal: Some(refusal("The delete", found)), ..Answer::allow() },
        Guard::Warn | Guard::Off => Answer { warnings: lines(found, LONGEST_WARNING), ..Answer::allow() },
    })
}

fn judge_write(judge: &Judge<'_>, request: Request, opinion: Opinion) -> Option<Answer> {
    let (kind, now) = (request.kind.kind.clone(), Timestamp::now());
    let by_rules = by_rules(judge, request, now);
    let has_opinion = !(opinion.refused.is_empty() && opinion.told.is_empty()) || opinion.audit().is_some();
    if by_rules.is_none() && !has_opinion {
        return None;
    }
    let facts = by_rules.is_some().then(|| judge.basis.served(now));
    let (mut wrong, mut doubtful) = by_rules.unwrap_or_default();
    let rests_on_azure = doubtful.iter().any(is_of_azure);
    let policies = opinion.audit();
    wrong.extend(opinion.refused);
    doubtful.splice(0..0, opinion.told);
    let mut warnings = lines(&doubtful, LONGEST_WARNING);
    if let Some(served) = facts.as_ref().filter(|_| rests_on_azure) {
        warnings.push(shorten(&format!("Azure data from: {served}"), LONGEST_WARNING));
    }
    let refusal = (!wrong.is_empty()).then(|| refusal(&kind, &wrong));
    Some(Answer { facts, policies, refusal, warnings, patch: Vec::new() })
}

/// What the rules refuse, and what they warn of; `None` for what they do not look at.
fn by_rules(judge: &Judge<'_>, request: Request, now: Timestamp) -> Option<(Vec<Finding>, Vec<Finding>)> {
    let Judge { basis, snapshot, hindrances, .. } = judge;
    let Request { object, old_object, .. } = &request;
    let update = request.operation == "UPDATE";
    let untouched = update && object["spec"] == old_object["spec"] && object["apiVersion"] == old_object["apiVersion"];
    if untouched || !is_judged(&request.kind) {
        return None;
    }
    let live = snapshot.map(|snapshot| Live { snapshot, hindrances, now });
    let of_cluster = live.map(|live| cluster::findings(&live, &request)).unwrap_or_default();
    let found = findings(&basis.verdict, *snapshot, request.object);
    // Most writes are good: then nobody asks what was wrong before.
    let asks = update && found.iter().any(is_ours);
    let before = if asks { findings(&basis.verdict, *snapshot, request.old_object) } else { Vec::new() };
    let (wrong, mut doubtful): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|f| is_ours(f) && !before.iter().any(|b| is_same(f, b)));
    // What it means for what runs now is what whoever writes it knows least.
    doubtful.splice(0..0, of_cluster);
    Some((wrong, doubtful))
}

/// A refusal of what, with a line for each finding, and where to read about the first of them.
fn refusal(what: &str, findings: &[Finding]) -> Refusal {
    let number = counted(findings.len(), "finding");
    let lines = lines(findings, LONGEST_LINE).join("\n");
    let first = findings.first().map_or("ID", |finding| finding.rule);
    let message =
        format!("{what} is denied, {number}:\n{lines}\nMore: docs/rules/{first}.md, or napkeeper rules {first}");
    Refusal { message, rules: findings.iter().take(MOST).map(|finding| finding.rule).collect() }
}

fn is_judged(asked: &GroupVersionKind) -> bool {
    JUDGED.iter().any(|(group, versions, kind)| {
        asked.group == *group && asked.kind == *kind && versions.contains(&&*asked.version)
    })
}

/// True for an error that the API server cannot have judged better.
fn is_ours(finding: &Finding) -> bool {
    // Form and schedules are wrong for ever; what Azure offers is not.
    let lasting = rules::ALL.iter().chain(disruption::ALL).any(|rule| rule.id == finding.rule);
    let lasting = lasting || LASTING.contains(&finding.rule);
    finding.severity == Severity::Error && lasting && !OF_THE_SCHEMA.contains(&finding.rule)
}

/// True for what hangs on sizes or prices of Azure.
fn is_of_azure(finding: &Finding) -> bool {
    azure::ALL.iter().chain(cost::ALL).any(|rule| rule.id == finding.rule)
}

/// Errors before warnings, and those about the object as a whole (whose rules have the lower ids) before its fields.
fn findings(verdict: &Verdict, snapshot: Option<&Snapshot>, object: Value) -> Vec<Finding> {
    let class = snapshot.and_then(|snapshot| class_of(snapshot, &object));
    let mut findings = verdict.among(&Document::without_text("request", object), class).findings;
    findings.sort_by(|a, b| (a.severity, a.rule, &a.path).cmp(&(b.severity, b.rule, &b.path)));
    findings
}

/// The AKSNodeClass that a NodePool names: what its nodes can be depends on it.
fn class_of(snapshot: &Snapshot, object: &Value) -> Option<Object> {
    let name = object["spec"]["template"]["spec"]["nodeClassRef"]["name"].as_str()?;
    let class = snapshot.classes().get(&NodeClassName::new(name).ok()?)?;
    Some(Object::NodeClass(Box::new((**class).clone())))
}

fn is_same(a: &Finding, b: &Finding) -> bool {
    (a.rule, &a.path, &a.message) == (b.rule, &b.path, &b.message)
}

/// One line each: rule, path, what is wrong, what would be right.
fn lines(findings: &[Finding], longest: usize) -> Vec<String> {
    let line = |Finding { rule, path, message, fix, .. }: &Finding| {
        let at = if path.is_empty() { String::new() } else { format!(" {path}") };
        let fix = fix.as_ref().map(|fix| format!("; {fix}")).unwrap_or_default();
        shorten(&format!("{rule}{at}: {message}{fix}"), longest)
    };
    let mut lines: Vec<_> = findings.iter().take(MOST).map(line).collect();
    lines.extend(findings.len().checked_sub(MOST).filter(|n| *n > 0).map(|n| format!("and {n} more")));
    lines
}
