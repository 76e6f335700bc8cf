//! For a comment on a pull request: counts, and a list that is short, bounded and folded.

use super::super::super::markdown::{code, plain};
use super::super::super::output;
use super::super::judge::Shown;
use super::Told;
use std::io::Write;

/// Most findings that are listed. Errors come first.
const MOST: usize = 50;

pub(super) fn write(told: &Told<'_>, out: &mut impl Write) -> anyhow::Result<()> {
    let summary = told.summary;
    writeln!(out, "### napkeeper: {}\n", summary.counts())?;
    writeln!(out, "{}.", plain(&summary.extent()))?;
    for part in summary.rest() {
        writeln!(out, "{}.", plain(&part))?;
    }
    for problem in told.input.unreadable.iter().take(MOST) {
        writeln!(out, "Cannot read: {}", plain(&problem.to_string()))?;
    }
    if told.shown.is_empty() {
        return Ok(());
    }
    let mut shown: Vec<&Shown> = told.shown.iter().collect();
    shown.sort_by_key(|one| one.finding.severity);
    let count = output::plural(shown.len(), "finding");
    writeln!(out, "\n<details><summary>{count}</summary>\n\n| | rule | where | what |\n|---|---|---|---|")?;
    for one in shown.iter().take(MOST) {
        let finding = &one.finding;
        let place = code(&format!("{}:{}:{}", finding.file, finding.line, finding.column));
        let field = if finding.path.is_empty() { String::new() } else { format!(" at {}", code(&finding.path)) };
        let clusters = one.clusters.join(", ");
        let clusters = if clusters.is_empty() { clusters } else { format!(" ({})", plain(&clusters)) };
        let fix = finding.fix.as_ref().map(|fix| format!("<br>{}", plain(fix))).unwrap_or_default();
        let message = plain(&finding.message);
        writeln!(out, "| {} | {} | {place} | {message}{field}{clusters}{fix} |", finding.severity, finding.rule)?;
    }
    if shown.len() > MOST {
        writeln!(out, "\n… and {} more.", shown.len() - MOST)?;
    }
    writeln!(out, "\n</details>")?;
    Ok(())
}
