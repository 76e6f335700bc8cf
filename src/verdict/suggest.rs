//! Which known word was probably meant?

/// The nearest of some words, if one is near enough to be what was meant.
pub(crate) fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let folded = given.to_lowercase();
    let scored = known.into_iter().map(|word| (distance(&folded, &word.to_lowercase()), word));
    let (edits, word) = scored.min_by_key(|(edits, _)| *edits)?;
    let contained = || folded.len() > 3 && word.to_lowercase().contains(&folded);
    (edits <= 2.max(given.len() / 4) && edits < given.len() || contained()).then_some(word)
}

/// Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
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
