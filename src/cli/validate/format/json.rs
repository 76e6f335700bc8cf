//! JSON: one object, or one line per finding.

use super::super::report::{Report, Summary};
use super::super::verdicts::ReportedFinding;
use crate::output::write_json;
use napkeeper_verdict::Finding;
use serde::Serialize;
use std::io::Write;
use std::sync::Arc;

#[derive(Serialize)]
struct Line<'s> {
    #[serde(flatten)]
    finding: &'s Finding,
    /// `apiVersion/kind/namespace/name`.
    #[serde(skip_serializing_if = "String::is_empty")]
    object: String,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    clusters: &'s [Arc<str>],
}

#[derive(Serialize)]
struct Whole<'s> {
    findings: Vec<Line<'s>>,
    summary: &'s Summary,
}

fn line(reported: &ReportedFinding) -> Line<'_> {
    Line { finding: &reported.finding, object: reported.object.to_string(), clusters: &reported.clusters }
}

pub(super) fn write(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let whole = Whole { findings: report.findings.iter().map(line).collect(), summary: &report.summary };
    write_json(&whole, out)
}

pub(super) fn write_lines(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    for reported in &report.findings {
        writeln!(out, "{}", serde_json::to_string(&line(reported))?)?;
    }
    Ok(())
}
