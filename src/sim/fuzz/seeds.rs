//! Reads which seeds a search is to play.

use std::ops::Range;

/// The seeds that a text names: `300` are those from 0 to 299, `17..18` is 17 alone.
///
/// # Errors
/// The problem, if the text is neither, or contains no seed.
pub fn seeds(text: &str) -> Result<Range<u64>, String> {
    let number =
        |part: &str| part.parse().map_err(|_| format!("{text:?} must be a count or a range, as in 300 or 17..18"));
    let range = match text.split_once("..") {
        Some((first, end)) => number(first)?..number(end)?,
        None => 0..number(text)?,
    };
    if range.is_empty() { Err(format!("{text:?} names no seed")) } else { Ok(range) }
}

#[cfg(test)]
mod tests {
    use super::seeds;

    #[test]
    fn a_count_or_a_range_is_read_and_anything_else_refused() {
        assert_eq!(seeds("300"), Ok(0..300));
        assert_eq!(seeds("17..18"), Ok(17..18));
        for (text, expected) in [
            ("", "must be a count or a range"),
            ("3O0", "must be a count or a range"),
            ("0-200", "must be a count or a range"),
            ("0..=200", "must be a count or a range"),
            ("5..", "must be a count or a range"),
            ("-1", "must be a count or a range"),
            ("0", "names no seed"),
            ("18..17", "names no seed"),
        ] {
            assert!(seeds(text).is_err_and(|error| error.contains(expected)), "{text:?}");
        }
    }
}
