//! Findings and problems on a terminal, each with the line that it points at.

use super::style::{BOLD, DIM, ERROR, HELP, WARNING};
use super::{one_line, printable};
use anstyle::Style;
use napkeeper_api::manifests::Problem;
use napkeeper_verdict::{Finding, Severity};
use std::io::{self, Write};
use std::sync::Arc;

/// Most characters of a source line that are shown.
const WIDTH: usize = 120;

/// Writes a finding with its field and the line that it points at, and the clusters that it applies to, if any are known.
pub(crate) fn write_finding(
    out: &mut dyn Write,
    finding: &Finding,
    clusters: &[Arc<str>],
    source: Option<&str>,
) -> io::Result<()> {
    write_finding_about(out, finding, &finding.path, clusters, source)
}

/// The same with other words for what the finding is about than its field.
pub(crate) fn write_finding_about(
    out: &mut dyn Write,
    finding: &Finding,
    subject: &str,
    clusters: &[Arc<str>],
    source: Option<&str>,
) -> io::Result<()> {
    let style = match finding.severity {
        Severity::Error => ERROR,
        Severity::Warning => WARNING,
    };
    let Finding { rule, severity, file, line, column, message, fix, .. } = finding;
    let (file, message) = (printable(file), printable(message));
    write!(out, "{BOLD}{file}:{line}:{column}:{BOLD:#} {style}{severity}[{rule}]{style:#} {message}")?;
    if !subject.is_empty() {
        write!(out, " {DIM}({}){DIM:#}", one_line(subject))?;
    }
    if !clusters.is_empty() {
        write!(out, " {DIM}[{}]{DIM:#}", printable(&clusters.join(", ")))?;
    }
    writeln!(out)?;
    if let Some(source) = source {
        excerpt(out, source, *line, *column, style)?;
    }
    if let Some(fix) = fix {
        writeln!(out, "  {HELP}help:{HELP:#} {}", printable(fix))?;
    }
    Ok(())
}

/// Writes a problem of a file with the line that it points at.
pub(crate) fn problem(out: &mut dyn Write, problem: &Problem, text: &str) -> io::Result<()> {
    writeln!(out, "{ERROR}error:{ERROR:#} {}", printable(&problem.to_string()))?;
    match problem.position.and_then(|at| Some((at, text.lines().nth(at.line - 1)?))) {
        Some((at, source)) => excerpt(out, source, at.line, at.column, ERROR),
        None => Ok(()),
    }
}

fn excerpt(out: &mut dyn Write, source: &str, line: usize, column: usize, style: Style) -> io::Result<()> {
    let number = line.to_string();
    let margin = " ".repeat(number.len());
    // A long line is shown from a little before the position.
    let skipped = if column > WIDTH { column - WIDTH / 2 } else { 0 };
    let shown: String = source.chars().skip(skipped).take(WIDTH).collect();
    let before: String = shown.chars().take(column - 1 - skipped).collect();
    let pad: String = before.chars().map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    let shown = printable(&shown);
    writeln!(out, "  {DIM}{number} |{DIM:#} {shown}")?;
    writeln!(out, "  {DIM}{margin} |{DIM:#} {pad}{style}^{style:#}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caret_points_at_the_position() {
        let mut out = Vec::new();
        excerpt(&mut out, "\ta: é b", 12, 7, Style::new()).unwrap();
        let text = anstream::adapter::strip_str(&String::from_utf8(out).unwrap()).to_string();
        assert_eq!(text, "  12 | \ta: é b\n     | \t     ^\n");
    }
}
