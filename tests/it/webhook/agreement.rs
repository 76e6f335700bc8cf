//! The command line and the webhook find the same in a manifest.
//!
//! Each manifest is validated as a file like by `napkeeper validate`, and as an AdmissionReview by the webhook's
//! router, without a cluster, so cluster rules (NK95xx) do not apply. An API server would prune or reject unknown
//! fields, fill in defaults, and convert versions before. The review here has the object as written, so that is not
//! covered; `live::webhook::rule_examples` has a real one. Nor are inputs that the webhook lacks: comments and other
//! files (NK4xxx), the time, and comparisons of all pools of an input (NK5004 to NK5006; NK9502 for a live cluster).

use crate::drawn_objects::cases::{self, Case};
use crate::drawn_objects::{bases, definitions};
use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::body::{Body, to_bytes};
use http::Request;
use napkeeper_api::manifests::load_text;
use napkeeper_tests::clock::StoppedClock;
use napkeeper_tests::manifests::documents;
use napkeeper_tests::webhook::hooks::review;
use napkeeper_verdict::{Finding, Severity, Validator, rules};
use napkeeper_webhook::{Limits, Webhook, router};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tower::ServiceExt;

/// Generous limits: speed is not tested here.
const PATIENT: Limits =
    Limits { max_concurrency: 64, validate_timeout: Duration::from_secs(30), hint_timeout: Duration::from_secs(30) };
/// Most lines of each severity in a response; further ones are counted.
const MOST: usize = 10;
/// As much of rule and path as fits into a line.
const LONGEST: usize = 200;
/// Kinds of the hook.
const VALIDATED_KINDS: [(&str, &str); 5] = [
    ("karpenter.sh/v1", "NodePool"),
    ("karpenter.azure.com/v1alpha2", "AKSNodeClass"),
    ("karpenter.azure.com/v1beta1", "AKSNodeClass"),
    ("napkeeper.io/v1alpha1", "OrphanSweep"),
    ("napkeeper.io/v1alpha1", "PlacementPolicy"),
];
/// Errors that are warnings at admission, because the API server's definition or Azure may know better.
const WARNED: [&str; 2] = ["NK1010", "NK1013"];
/// Errors about Azure that are denied: no change in Azure can fix them.
const REFUSED: [&str; 4] = ["NK2009", "NK2010", "NK2016", "NK2017"];

/// Rule and path of each finding in order: denials and warnings.
#[derive(Debug, PartialEq, Eq, Default)]
struct Answer {
    refused: Vec<String>,
    warned: Vec<String>,
}

fn cut(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

/// The expected lines of findings: the first of them, and the number of others.
fn expected(findings: &[&Finding]) -> Vec<String> {
    let head = |f: &&Finding| match &*f.path {
        "" => format!("{}:", f.rule),
        path => cut(&format!("{} {path}:", f.rule)),
    };
    let mut all: Vec<String> = findings.iter().take(MOST).map(head).collect();
    all.extend(findings.len().checked_sub(MOST).filter(|more| *more > 0).map(|more| format!("and {more} more")));
    all
}

fn is_refused(finding: &Finding) -> bool {
    let of_family = |family: &str| finding.rule.starts_with(family);
    finding.severity == Severity::Error
        && (of_family("NK1") || of_family("NK3") || REFUSED.contains(&finding.rule))
        && !WARNED.contains(&finding.rule)
}

/// The findings of `napkeeper validate`, without rules that do not apply at admission.
fn by_command_line(validator: &Validator, object: &Value) -> Result<Vec<Finding>> {
    let reports = validator.validate_files(&[load_text("case.json", object.to_string())]);
    let mut found: Vec<Finding> = reports.into_iter().flat_map(|report| report.findings).collect();
    found.retain(|f| !f.rule.starts_with("NK4") && !["NK5004", "NK5005", "NK5006"].contains(&f.rule));
    found.sort_by(|a, b| (a.severity, a.rule, &a.path).cmp(&(b.severity, b.rule, &b.path)));
    ensure!(found.iter().all(|f| rules::find(f.rule).is_some_and(|rule| rule.severity == f.severity)));
    Ok(found)
}

/// The expected response to a case. Empty for other kinds, objects being deleted, and updates outside of the spec.
fn should_say(validator: &Validator, case: &Case) -> Result<Answer> {
    let Case { about, object, is_update, .. } = case;
    let validated = VALIDATED_KINDS.iter().any(|(api, kind)| about["apiVersion"] == *api && about["kind"] == *kind);
    let deleting = !object["metadata"]["deletionTimestamp"].is_null();
    let untouched = *is_update
        && as_sent(&object["spec"]) == as_sent(&about["spec"])
        && object["apiVersion"] == about["apiVersion"];
    if !validated || deleting || untouched {
        return Ok(Answer::default());
    }
    let before = if *is_update { by_command_line(validator, about)? } else { Vec::new() };
    let known = |f: &Finding| before.iter().any(|b| (b.rule, &b.path, &b.message) == (f.rule, &f.path, &f.message));
    let found = by_command_line(validator, object)?;
    let (refused, warned): (Vec<_>, Vec<_>) = found.iter().partition(|f| is_refused(f) && !known(f));
    Ok(Answer { refused: expected(&refused), warned: expected(&warned) })
}

/// An object as an API server hands it on: a number without a fraction has no point.
fn as_sent(value: &Value) -> Value {
    match value {
        Value::Number(number) => {
            match number.as_f64().filter(|f| number.is_f64() && f.fract() == 0.0 && f.abs() < 1e15) {
                Some(whole) => json!(whole as i64),
                None => value.clone(),
            }
        }
        Value::Array(items) => items.iter().map(as_sent).collect(),
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), as_sent(value))).collect(),
        _ => value.clone(),
    }
}

/// The review of a case, of the kind of its URL.
fn review_of(case: &Case) -> Value {
    let (operation, old) = if case.is_update { ("UPDATE", &case.about) } else { ("CREATE", &Value::Null) };
    let about = review(operation, &case.about, old);
    let mut review = review(operation, &as_sent(&case.object), &as_sent(old));
    for key in ["kind", "resource", "requestKind", "requestResource"] {
        review["request"][key] = about["request"][key].clone();
    }
    review["request"]["namespace"] = Value::Null;
    review["request"]["name"] = case.object["metadata"]["name"].as_str().into();
    review["request"]["dryRun"] = true.into();
    review
}

/// The response of the webhook; each line cut to the compared part.
async fn says(webhook: &Router, case: &Case, expected_answer: &Answer) -> Result<Answer> {
    let request = Request::post("/validate?timeout=2s").body(Body::from(review_of(case).to_string()))?;
    let response = webhook.clone().oneshot(request).await?;
    let status = response.status();
    let body = to_bytes(response.into_body(), usize::MAX).await?;
    ensure!(status == 200, "{}: {status} {}", case.label, String::from_utf8_lossy(&body));
    let answer: Value = serde_json::from_slice(&body)?;
    let response = &answer["response"];
    let message = response["status"]["message"].as_str().unwrap_or_default();
    ensure!(response["allowed"] == message.is_empty(), "{}: {response}", case.label);
    let refused = message.lines().skip(1).filter(|line| !line.starts_with("More: "));
    let warned = response["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let warned = warned.filter(|line| !line.starts_with("Azure data from"));
    Ok(Answer { refused: heads(refused, &expected_answer.refused), warned: heads(warned, &expected_answer.warned) })
}

/// Each line as what it should begin with, where it does.
fn heads<'l>(lines: impl Iterator<Item = &'l str>, expected_answer: &[String]) -> Vec<String> {
    let head = |(i, line): (usize, &str)| match expected_answer.get(i).filter(|head| line.starts_with(head.as_str())) {
        Some(head) => head.clone(),
        None => cut(line),
    };
    lines.enumerate().map(head).collect()
}

/// All cases: those by which the definitions are held against the API server, and the objects of the rules' pages.
fn all_cases() -> Result<Vec<Case>> {
    let crds = definitions()?;
    let mut all = cases::creates(&crds);
    for base in bases::all() {
        all.extend(cases::updates(&crds, &[base.object], 20, 40));
    }
    for rule in rules::all() {
        for document in ["Bad", "Good"].iter().flat_map(|heading| documents(rule.page, heading)) {
            let is_versioned = document["apiVersion"].as_str().is_some_and(|api| api.contains('/'));
            if is_versioned && document["kind"].is_string() {
                let label = format!("{}: {document}", rule.id);
                all.push(Case { label, about: document.clone(), is_update: false, object: document });
            }
        }
    }
    Ok(all)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_line_and_the_webhook_find_the_same() -> Result<()> {
    let start = Instant::now();
    let validator = Validator::embedded()?;
    let mut registry = napkeeper_serve::metrics::registry();
    let nobody = watch::channel(None).1;
    let webhook = Webhook::new("napkeeper-system", nobody, Arc::new(StoppedClock), PATIENT, &mut registry)?;
    let webhook = router(Arc::new(webhook));
    let (cases, mut met, mut wrong) = (all_cases()?, BTreeMap::<String, usize>::new(), Vec::new());
    for case in &cases {
        let expected_answer = should_say(&validator, case).with_context(|| case.label.clone())?;
        let actual = says(&webhook, case, &expected_answer).await?;
        if actual != expected_answer {
            wrong.push(format!("{}\n  should say {expected_answer:?}\n  but says   {actual:?}", case.label));
        }
        for line in expected_answer.refused.iter().chain(&expected_answer.warned) {
            *met.entry(line.chars().take(6).collect()).or_default() += 1;
        }
    }
    let n = wrong.len();
    wrong.truncate(20);
    ensure!(n == 0, "{n} of {} differ:\n{}", cases.len(), wrong.join("\n"));
    eprintln!("{} manifests, {:?}: {met:?}", cases.len(), start.elapsed());
    let missed: Vec<_> = MET.iter().filter(|id| !met.contains_key(**id)).collect();
    ensure!(cases.len() > 4_000 && missed.is_empty(), "{} cases, none meets {missed:?}", cases.len());
    Ok(())
}

/// A few of each family, so that the comparison is of something.
const MET: [&str; 12] = [
    "NK1010", "NK1011", "NK1013", "NK1015", "NK1030", "NK2001", "NK2009", "NK2016", "NK3001", "NK3007", "NK5001",
    "NK5002",
];
