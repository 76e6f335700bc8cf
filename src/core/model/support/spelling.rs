//! Spelling suggestions by edit distance.

/// The most similar of some words, if it is similar enough.
#[must_use]
pub fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let folded = given.to_lowercase();
    let scored = known.into_iter().map(|word| (edit_distance(&folded, &word.to_lowercase()), word));
    let (edits, word) = scored.min_by_key(|(edits, _)| *edits)?;
    let contained = || folded.len() > 3 && word.to_lowercase().contains(&folded);
    (edits <= 2.max(given.len() / 4) && edits < given.len() || contained()).then_some(word)
}

/// Levenshtein's distance: the fewest characters to insert, drop or replace.
pub(crate) fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, y) in row.iter_mut().skip(1).zip(b.chars()) {
            let replaced = diagonal + usize::from(x != y);
            diagonal = *cell;
            left = replaced.min(*cell + 1).min(left + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_suggested_and_far_ones_are_not() {
        let known = ["requirements", "taints", "nodeClassRef"];
        assert_eq!(nearest("requirement", known), Some("requirements"));
        assert_eq!(nearest("nodeclassref", known), Some("nodeClassRef"));
        assert_eq!(nearest("taint", known), Some("taints"));
        assert_eq!(nearest("labels", known), None);
    }
}
