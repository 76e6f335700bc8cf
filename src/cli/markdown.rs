//! Markdown: how does a text get into a comment on a pull request as nothing but text?

use super::output;

/// Most characters of a text. With fifty rows of three of them it stays far below the 65,536 characters of a comment.
const LONGEST: usize = 240;

fn short(text: &str) -> String {
    let text = output::one_line(text);
    if text.chars().count() <= LONGEST { text } else { text.chars().take(LONGEST - 1).chain(['…']).collect() }
}

/// Text that means nothing to Markdown, mentions nobody and links nowhere.
pub(super) fn plain(text: &str) -> String {
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
pub(super) fn code(text: &str) -> String {
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
