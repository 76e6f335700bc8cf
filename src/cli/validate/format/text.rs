//! For people: each finding with its line, then the summary.

use super::super::super::output;
use super::Told;
use std::io::Write;

pub(super) fn write(told: &Told<'_>, out: &mut impl Write) -> anyhow::Result<()> {
    // Findings come by source: the lines of each are looked up once.
    let (mut source, mut lines): (Option<usize>, Vec<&str>) = (None, Vec::new());
    for shown in told.shown {
        if source != Some(shown.source) {
            source = Some(shown.source);
            lines = told.input.sources.get(shown.source).map(|s| s.text.lines().collect()).unwrap_or_default();
        }
        let line = lines.get(shown.finding.line - 1).copied().filter(|_| !shown.secret);
        output::finding_of(out, &shown.finding, &shown.clusters, line)?;
        writeln!(out)?;
    }
    writeln!(out, "{}", output::one_line(&told.summary.text()))?;
    Ok(())
}
