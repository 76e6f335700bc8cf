//! Text for people: each finding with its line, then the summary.

use super::super::report::Report;
use crate::output::{one_line, write_finding_about};
use std::io::Write;

pub(super) fn write(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    // Findings come by source: the lines of each are looked up once.
    let (mut source, mut lines): (Option<usize>, Vec<&str>) = (None, Vec::new());
    for reported in &report.findings {
        if source != Some(reported.source) {
            source = Some(reported.source);
            lines = report.input.sources.get(reported.source).map(|s| s.text.lines().collect()).unwrap_or_default();
        }
        let line = lines.get(reported.finding.line - 1).copied().filter(|_| !reported.secret);
        write_finding_about(out, &reported.finding, &reported.subject(), &reported.clusters, line)?;
        writeln!(out)?;
    }
    writeln!(out, "{}", one_line(&report.summary.text()))?;
    Ok(())
}
