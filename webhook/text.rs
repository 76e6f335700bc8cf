//! Texts of messages: shortening, plurals.

/// A text of at most `max_chars` characters; a truncated one ends in `…`.
pub(crate) fn truncate(text: &str, max_chars: usize) -> String {
    if text.chars().count() <= max_chars {
        return text.to_owned();
    }
    text.chars().take(max_chars - 1).chain(['…']).collect()
}

/// A number with its noun.
pub(crate) fn pluralize(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}
