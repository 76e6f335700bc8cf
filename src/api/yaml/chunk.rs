//! The documents of a text.
//!
//! As in kubectl, a text is split at every line that begins with `---` before parsing: an error affects only its
//! document, and documents can be parsed in parallel.

use std::ops::Range;

/// A part of a text that is parsed independently: one document, or several separated by `...`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chunk {
    /// Its bytes in the text.
    pub(super) bytes: Range<usize>,
    /// The lines before it.
    pub(super) lines: usize,
}

impl Chunk {
    /// This part of the text that it was cut from.
    #[must_use]
    pub fn text_in<'t>(&self, text: &'t str) -> &'t str {
        text.get(self.bytes.clone()).unwrap_or_default()
    }

    /// How many lines of the text precede it.
    #[must_use]
    pub fn lines_before(&self) -> usize {
        self.lines
    }
}

/// Cuts a text into its documents.
#[must_use]
pub fn chunks(text: &str) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    let (mut start, mut first, mut line) = (bom(text), 0, 0);
    let mut at = start;
    for full in text.get(start..).unwrap_or_default().split_inclusive('\n') {
        if at > start && is_separator(full) {
            chunks.push(Chunk { bytes: start..at, lines: first });
            (start, first) = (at, line);
        }
        at += full.len();
        line += 1;
    }
    chunks.push(Chunk { bytes: start..at, lines: first });
    chunks
}

fn bom(text: &str) -> usize {
    if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 }
}

fn is_separator(line: &str) -> bool {
    line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_at_its_separators_and_nothing_is_lost() {
        let text = "\u{feff}a: 1\n---\nb: |\n  ---\n--- c\n---d\n---\r\n";
        let parts: Vec<_> = chunks(text).iter().map(|c| (&text[c.bytes.clone()], c.lines)).collect();
        assert_eq!(parts, [("a: 1\n", 0), ("---\nb: |\n  ---\n", 1), ("--- c\n---d\n", 4), ("---\r\n", 6)]);
        assert_eq!(chunks("").len(), 1);
    }
}
