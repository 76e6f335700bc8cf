//! Markdown for a comment on a pull request: escaped text, and a bounded table of findings.

use super::{one_line, plural};
use std::io::{self, Write};

/// Most entries of a list. The most important come first.
pub(crate) const MOST: usize = 50;

/// Most characters of a text. With fifty rows of three of them it stays far below the 65,536 characters of a comment.
const LONGEST: usize = 240;

fn short(text: &str) -> String {
    let text = one_line(text);
    if text.chars().count() <= LONGEST { text } else { text.chars().take(LONGEST - 1).chain(['…']).collect() }
}

/// Text without Markdown markup, mentions or links.
pub(crate) fn plain(text: &str) -> String {
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
pub(crate) fn code(text: &str) -> String {
    format!("`{}`", short(text).replace('`', "'").replace('|', "\\|"))
}

/// Writes a folded table of findings, one row each, under a header row such as `| rule | where |`.
pub(crate) fn write_findings(out: &mut dyn Write, header: &str, rows: &[String]) -> io::Result<()> {
    let count = plural(rows.len(), "finding");
    let rule = "|---".repeat(header.matches('|').count() - 1);
    writeln!(out, "\n<details><summary>{count}</summary>\n\n{header}\n{rule}|")?;
    rows.iter().take(MOST).try_for_each(|row| writeln!(out, "{row}"))?;
    if rows.len() > MOST {
        writeln!(out, "\n… and {} more.", rows.len() - MOST)?;
    }
    writeln!(out, "\n</details>")
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
