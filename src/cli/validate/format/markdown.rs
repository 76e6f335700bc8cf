//! Markdown for a comment on a pull request: counts, and a bounded table.

use super::super::report::Report;
use super::super::verdicts::ReportedFinding;
use crate::output::markdown::{MOST, code, plain, write_findings};
use std::io::Write;

pub(super) fn write(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let summary = &report.summary;
    writeln!(out, "### napkeeper: {}\n", summary.counts())?;
    writeln!(out, "{}.", plain(&summary.extent()))?;
    for part in summary.omissions() {
        writeln!(out, "{}.", plain(&part))?;
    }
    for problem in report.input.unreadable.iter().take(MOST) {
        writeln!(out, "Cannot read: {}", plain(&problem.to_string()))?;
    }
    if report.findings.is_empty() {
        return Ok(());
    }
    let mut findings: Vec<&ReportedFinding> = report.findings.iter().collect();
    // Errors come first.
    findings.sort_by_key(|reported| reported.finding.severity);
    let rows: Vec<String> = findings.into_iter().map(row).collect();
    Ok(write_findings(out, "| | rule | where | what |", &rows)?)
}

fn row(ReportedFinding { finding, clusters, object, .. }: &ReportedFinding) -> String {
    let position = code(&format!("{}:{}:{}", finding.file, finding.line, finding.column));
    let field = if finding.path.is_empty() { String::new() } else { format!(" at {}", code(&finding.path)) };
    let object = object.label();
    let object = if object.is_empty() { object } else { format!(" of {}", code(&object)) };
    let clusters = if clusters.is_empty() { String::new() } else { format!(" ({})", plain(&clusters.join(", "))) };
    let fix = finding.fix.as_ref().map(|fix| format!("<br>{}", plain(fix))).unwrap_or_default();
    let message = plain(&finding.message);
    format!("| {} | {} | {position} | {message}{field}{object}{clusters}{fix} |", finding.severity, finding.rule)
}
