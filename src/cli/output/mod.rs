//! Output of commands: formats, styles, and text that is safe on a terminal.

pub(crate) mod explanation;
mod finding;
pub(crate) mod markdown;
pub(crate) mod sarif;
pub(crate) mod style;

pub(crate) use finding::{problem, write_finding, write_finding_about};

use napkeeper_core::model::support::spelling::nearest;
use serde::Serialize;
use serde_json::Value;
use std::fmt::Display;
use std::io::{self, Write};
use std::path::PathBuf;
use style::{ERROR, HELP, WARNING};

/// A format in which reports of a type can be printed.
pub(crate) trait Format<Report: ?Sized> {
    /// Writes a report.
    fn write(self, report: &Report, out: &mut dyn Write) -> anyhow::Result<()>;
}

/// Prints a report on stdout.
pub(crate) fn print<Report>(format: impl Format<Report>, report: &Report) -> anyhow::Result<()> {
    let mut out = anstream::stdout().lock();
    format.write(report, &mut out)?;
    Ok(out.flush()?)
}

/// Text for people, or JSON for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OutputFormat {
    /// Human-readable text.
    Text,
    /// One JSON object. Deterministic, except for fields named `tookMs`.
    Json,
}

/// A report that can be printed as text and as JSON.
pub(crate) trait TextAndJson {
    /// Writes it for people.
    fn write_text(&self, out: &mut dyn Write) -> anyhow::Result<()>;

    /// The same for programs.
    fn to_json(&self) -> anyhow::Result<Value>;
}

impl<Report: TextAndJson> Format<Report> for OutputFormat {
    fn write(self, report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
        match self {
            Self::Text => report.write_text(out),
            Self::Json => write_json(&report.to_json()?, out),
        }
    }
}

/// Writes a value as indented JSON.
pub(crate) fn write_json(value: &(impl Serialize + ?Sized), out: &mut dyn Write) -> anyhow::Result<()> {
    Ok(writeln!(out, "{}", serde_json::to_string_pretty(value)?)?)
}

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Colour {
    /// If the output is a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Colour {
    pub(crate) fn apply(self) {
        match self {
            Self::Auto => anstream::ColorChoice::Auto,
            Self::Always => anstream::ColorChoice::AlwaysAnsi,
            Self::Never => anstream::ColorChoice::Never,
        }
        .write_global();
    }
}

/// Reports an error on stderr. One that cannot be written is ignored.
pub(crate) fn error(message: &str) {
    drop(writeln!(anstream::stderr(), "{ERROR}error:{ERROR:#} {}", printable(message)));
}

/// Reports on stderr what should be known besides the result.
pub(crate) fn warning(message: &str) {
    drop(writeln!(anstream::stderr(), "{WARNING}warning:{WARNING:#} {}", printable(message)));
}

/// Writes a problem with its remedy, after an empty line.
pub(crate) fn write_problem(
    out: &mut dyn Write,
    style: anstyle::Style,
    label: &str,
    text: &str,
    remedy: &str,
) -> io::Result<()> {
    writeln!(out, "\n{style}{label}:{style:#} {}\n  {HELP}help:{HELP:#} {remedy}", one_line(text))
}

/// Text without characters that control a terminal or change the direction of text.
pub(crate) fn printable(text: &str) -> String {
    let changes_direction = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_control = |c: char| c.is_control() && c != '\t' && c != '\n';
    text.chars().map(|c| if is_control(c) || changes_direction(c) { '\u{fffd}' } else { c }).collect()
}

/// The same in one line.
pub(crate) fn one_line(text: &str) -> String {
    let lines = text.replace(['\r', '\t'], "\n");
    printable(&lines).lines().map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// `1 patch`, `2 patches`.
pub(crate) fn plural_of(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// `1 error`, `2 errors`.
pub(crate) fn plural(n: usize, word: &str) -> String {
    format!("{n} {word}{}", if n == 1 { "" } else { "s" })
}

/// The first few names, and how many there are beyond: `a, b and 4 more`.
pub(crate) fn first_names<T: Display>(names: impl IntoIterator<Item = T>, total: usize, most: usize) -> String {
    let shown: Vec<String> = names.into_iter().take(most).map(|name| name.to_string()).collect();
    match total.saturating_sub(shown.len()) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Paths separated by commas.
pub(crate) fn path_list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// The names that a misspelt one may stand for: `did you mean b? Available: a, b`.
pub(crate) fn alternatives<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let meant = nearest(name, known.clone()).map(|near| format!("did you mean {near}? ")).unwrap_or_default();
    format!("{meant}Available: {}", known.collect::<Vec<_>>().join(", "))
}

/// The object of a cluster that an unknown name may stand for, or else the first that there are.
pub(crate) fn nearest_object(name: &str, known: &[&str]) -> String {
    const MOST: usize = 5;
    match nearest(name, known.iter().copied()) {
        Some(meant) => format!("did you mean {meant}?"),
        None if known.is_empty() => "there are none".to_owned(),
        None => format!("found: {}", first_names(known, known.len(), MOST)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_manifest_steers_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\u{9b}c\u{202e}"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}");
        assert_eq!(one_line("a\n  b\r\nc"), "a b c");
    }
}
