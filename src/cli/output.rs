//! How do findings look?

use anstyle::{AnsiColor, Style};
use napkeeper_api::manifests::Problem;
use napkeeper_verdict::{Finding, Severity};
use std::io::{self, Write};
use std::sync::Arc;

/// How a result is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// Human-readable text.
    Text,
    /// One JSON object. Deterministic, except for fields named `took_ms`.
    Json,
}

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Colour {
    /// If the output is a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Colour {
    pub(super) fn apply(self) {
        match self {
            Self::Auto => anstream::ColorChoice::Auto,
            Self::Always => anstream::ColorChoice::AlwaysAnsi,
            Self::Never => anstream::ColorChoice::Never,
        }
        .write_global();
    }
}

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const HELP: Style = AnsiColor::Cyan.on_default();
const RED: Style = AnsiColor::Red.on_default().bold();
const YELLOW: Style = AnsiColor::Yellow.on_default().bold();

/// Most characters of a source line that are shown.
const WIDTH: usize = 120;

/// Says on stderr what went wrong. A stderr that cannot be written to is nobody's problem.
pub(super) fn error(message: &str) {
    drop(writeln!(anstream::stderr(), "{RED}error:{RED:#} {}", printable(message)));
}

/// Says on stderr what should be known beside the result.
pub(super) fn warning(message: &str) {
    drop(writeln!(anstream::stderr(), "{YELLOW}warning:{YELLOW:#} {}", printable(message)));
}

/// Prints a finding with the line that it points at.
pub(super) fn finding(out: &mut impl Write, finding: &Finding, text: &str) -> io::Result<()> {
    finding_of(out, finding, &[], text.lines().nth(finding.line - 1))
}

/// Prints a finding with the line that it points at, and the clusters that it is true of, if any are known.
pub(super) fn finding_of(
    out: &mut impl Write,
    finding: &Finding,
    clusters: &[Arc<str>],
    source: Option<&str>,
) -> io::Result<()> {
    let style = match finding.severity {
        Severity::Error => RED,
        Severity::Warning => YELLOW,
    };
    let Finding { rule, severity, file, line, column, message, fix, path, .. } = finding;
    let (file, message) = (printable(file), printable(message));
    write!(out, "{BOLD}{file}:{line}:{column}:{BOLD:#} {style}{severity}[{rule}]{style:#} {message}")?;
    if !path.is_empty() {
        write!(out, " {DIM}({}){DIM:#}", printable(path))?;
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

/// Writes what is wrong with a file, with the line that it points at.
pub(super) fn problem(out: &mut impl Write, problem: &Problem, text: &str) -> io::Result<()> {
    writeln!(out, "{RED}error:{RED:#} {}", printable(&problem.to_string()))?;
    match problem.position.and_then(|at| Some((at, text.lines().nth(at.line - 1)?))) {
        Some((at, source)) => excerpt(out, source, at.line, at.column, RED),
        None => Ok(()),
    }
}

fn excerpt(out: &mut impl Write, source: &str, line: usize, column: usize, style: Style) -> io::Result<()> {
    let number = line.to_string();
    let margin = " ".repeat(number.len());
    // A long line is shown from a little before the place.
    let skipped = if column > WIDTH { column - WIDTH / 2 } else { 0 };
    let shown: String = source.chars().skip(skipped).take(WIDTH).collect();
    let before: String = shown.chars().take(column - 1 - skipped).collect();
    let pad: String = before.chars().map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    let shown = printable(&shown);
    writeln!(out, "  {DIM}{number} |{DIM:#} {shown}")?;
    writeln!(out, "  {DIM}{margin} |{DIM:#} {pad}{style}^{style:#}")
}

/// Text without characters that could steer a terminal, or turn the order of what is read.
pub(super) fn printable(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let steers = |c: char| c.is_control() && c != '\t' && c != '\n';
    text.chars().map(|c| if steers(c) || turns(c) { '\u{fffd}' } else { c }).collect()
}

/// The same in one line.
pub(super) fn one_line(text: &str) -> String {
    let lines = text.replace(['\r', '\t'], "\n");
    printable(&lines).lines().map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// `1 patch`, `2 patches`.
pub(super) fn plural_of(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// `1 error`, `2 errors`.
pub(super) fn plural(n: usize, word: &str) -> String {
    format!("{n} {word}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caret_points_at_the_place() {
        let mut out = Vec::new();
        excerpt(&mut out, "\ta: é b", 12, 7, Style::new()).unwrap();
        let text = anstream::adapter::strip_str(&String::from_utf8(out).unwrap()).to_string();
        assert_eq!(text, "  12 | \ta: é b\n     | \t     ^\n");
    }

    #[test]
    fn nothing_in_a_manifest_steers_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\u{9b}c\u{202e}"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}");
        assert_eq!(one_line("a\n  b\r\nc"), "a b c");
    }
}
