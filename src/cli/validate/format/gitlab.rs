//! A code quality report of GitLab.

use super::super::report::Report;
use super::super::verdicts::ReportedFinding;
use super::location::Locations;
use super::sentence;
use crate::output::write_json;
use napkeeper_verdict::Severity;
use serde_json::{Value, json};
use std::io::Write;

pub(super) fn write(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let locations = Locations::of(&report.input);
    let entry = |reported: &ReportedFinding| {
        let location = locations.of_finding(reported);
        json!({
            "description": format!("{}: {}{}", reported.finding.rule, location.prefix, sentence(reported)),
            "check_name": reported.finding.rule,
            "fingerprint": reported.fingerprint,
            "severity": match reported.finding.severity {
                Severity::Error => "major",
                Severity::Warning => "minor",
            },
            "location": { "path": location.file.unwrap_or_else(|| "stdin".to_owned()), "lines": { "begin": location.line } },
        })
    };
    let entries: Vec<Value> = report.findings.iter().map(entry).collect();
    write_json(&entries, out)
}
