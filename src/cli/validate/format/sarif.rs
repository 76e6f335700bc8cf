//! SARIF for code scanning.

use super::super::report::Report;
use super::super::verdicts::ReportedFinding;
use super::location::Locations;
use super::sentence;
use crate::output::one_line;
use crate::output::sarif::{self, Finding, Location, Rule, file_uri};
use napkeeper_verdict::{Severity, rules};
use serde_json::{Value, json};
use std::io::Write;

/// Name of our fingerprints; another way to make them is another name.
const FINGERPRINT: &str = "napkeeper/v1";

pub(super) fn write(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let locations = Locations::of(&report.input);
    let rule = |rule: &'static rules::Rule| Rule {
        id: rule.id,
        title: rule.title,
        level: level(rule.severity),
        page: Some(rule.page),
    };
    let rules: Vec<Rule<'_>> = rules::all().map(rule).collect();
    let results = report.findings.iter().map(|reported| result(reported, &locations, &rules));
    let run = json!({
        "columnKind": "unicodeCodePoints",
        "invocations": [{ "executionSuccessful": report.summary.unreadable == 0 }],
    });
    sarif::write(run, &rules, results, out)
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

fn result(reported: &ReportedFinding, locations: &Locations<'_>, rules: &[Rule<'_>]) -> Value {
    let finding = &reported.finding;
    let location = locations.of_finding(reported);
    let result = Finding {
        rule: finding.rule,
        // A rule that the table lacks has no index; a test rules it out.
        rule_index: rules.iter().position(|rule| rule.id == finding.rule),
        level: level(finding.severity),
        message: location.prefix + &sentence(reported),
        location: Location {
            uri: file_uri(location.file.as_deref().unwrap_or("stdin")),
            region: Some((location.line, location.column)),
            object: one_line(&format!("{}#{}", reported.object, finding.path)),
            object_name: None,
        },
        fingerprint: (FINGERPRINT, reported.fingerprint.clone()),
        properties: Value::Null,
    };
    result.json()
}
