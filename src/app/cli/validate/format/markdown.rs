//! For a comment on a pull request: counts, and a list that is short, bounded and folded.

use super::super::super::output;
use super::super::judge::Shown;
use super::Told;
use std::io::Write;

/// Most findings that are listed. Errors come first.
const MOST: usize = 50;
/// Most characters of a text. With [`MOST`] rows of three of them it stays far below the 65,536 characters of a comment.
const LONGEST: usize = 240;

pub(super) fn write(told: &Told<'_>, out: &mut impl Write) -> anyhow::Result<()> {
    let summary = told.summary;
    writeln!(out, "### napkeeper: {}\n", summary.counts())?;
    writeln!(out, "{}.", plain(&summary.extent()))?;
    for part in summary.rest() {
        writeln!(out, "{}.", plain(&part))?;
    }
    for problem in told.input.unreadable.iter().take(MOST) {
        writeln!(out, "Not read: {}", plain(&problem.to_string()))?;
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

fn short(text: &str) -> String {
    let text = output::one_line(text);
    if text.chars().count() <= LONGEST { text } else { text.chars().take(LONGEST - 1).chain(['…']).collect() }
}

/// Text that means nothing to Markdown, mentions nobody and links nowhere.
fn plain(text: &str) -> String {
    let mut safe = String::new();
    for c in short(text).chars() {
        match c {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            // A character without width keeps them from naming a person or an issue.
            '@' | '#' => safe.extend([c, '\u{200b}']),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '!' => safe.extend(['\\', c]),
            _ => safe.push(c),
        }
    }
    safe
}

/// Text in the letters of code, within a table.
fn code(text: &str) -> String {
    format!("`{}`", short(text).replace('`', "'").replace('|', "\\|"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_is_markup() {
        assert_eq!(plain("<b> a|b [x](y) @all #1 `c`"), "&lt;b&gt; a\\|b \\[x\\](y) @\u{200b}all #\u{200b}1 \\`c\\`");
        assert_eq!(code("a`|\nb"), "`a'\\| b`");
        assert_eq!(plain(&"x".repeat(1000)).chars().count(), LONGEST);
    }
}
