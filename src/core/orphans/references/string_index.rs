//! A deterministic hash index over borrowed strings.
//!
//! Azure's ids are long with common prefixes, so an ordered map spends its time on comparing equal bytes. This index
//! hashes them deterministically, and nothing depends on the order of the entries, so the core may use it although it
//! bans `HashMap`.

/// Marks an empty bucket and the end of a chain.
const NONE: u32 = u32::MAX;

/// Bytes at the end of a text that are hashed: ids of one group share a prefix and end with the name.
const HASHED_SUFFIX_LENGTH: usize = 64;

/// A text with its hash, for lookups in several indexes.
#[derive(Debug, Clone, Copy)]
pub(in crate::orphans) struct Key<'k> {
    hash: u32,
    text: &'k str,
}

impl<'k> Key<'k> {
    /// The key of a text, exactly as it is spelt: ids are to be given in lower case.
    pub(in crate::orphans) fn of(text: &'k str) -> Self {
        Self { hash: hash(text), text }
    }
}

/// Values by text.
#[derive(Debug)]
pub(in crate::orphans) struct Index<'a, T> {
    buckets: Vec<u32>,
    rows: Vec<Row<'a, T>>,
}

#[derive(Debug)]
struct Row<'a, T> {
    hash: u32,
    next: u32,
    text: &'a str,
    value: T,
}

impl<'a, T> Index<'a, T> {
    /// Indexes rows; of several with the same text the last one is found.
    pub(in crate::orphans) fn of(rows: impl Iterator<Item = (&'a str, T)>) -> Self {
        let rows: Vec<Row<'a, T>> =
            rows.map(|(text, value)| Row { hash: hash(text), next: NONE, text, value }).collect();
        // No inventory comes near the 4,294,967,294 rows that a link can address.
        let mut index = Self { buckets: vec![NONE; rows.len().next_power_of_two()], rows };
        for row_index in 0..index.rows.len() {
            let bucket = index.bucket(index.rows[row_index].hash);
            index.rows[row_index].next = index.buckets[bucket];
            index.buckets[bucket] = u32::try_from(row_index).unwrap_or(NONE);
        }
        index
    }

    /// The value of a key.
    pub(in crate::orphans) fn get(&self, key: Key<'_>) -> Option<&T> {
        let mut at = self.buckets[self.bucket(key.hash)];
        while let Some(row) = usize::try_from(at).ok().and_then(|at| self.rows.get(at)) {
            if row.hash == key.hash && row.text == key.text {
                return Some(&row.value);
            }
            at = row.next;
        }
        None
    }

    /// The value of a text.
    pub(in crate::orphans) fn find(&self, text: &str) -> Option<&T> {
        if self.rows.is_empty() { None } else { self.get(Key::of(text)) }
    }

    fn bucket(&self, hash: u32) -> usize {
        usize::try_from(hash).unwrap_or(0) & (self.buckets.len() - 1)
    }
}

/// A hash of the text: eight bytes at a time, each mixed into the state by rotation and multiplication.
fn hash(text: &str) -> u32 {
    let bytes = text.as_bytes();
    let suffix = &bytes[bytes.len().saturating_sub(HASHED_SUFFIX_LENGTH)..];
    // A product carries upwards only, so the upper half is mixed down before each.
    let mixed = |state: u64, word: u64| {
        let both = state.rotate_left(5) ^ word;
        (both ^ (both >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    };
    let (words, rest) = suffix.as_chunks::<8>();
    let whole = words.iter().fold(bytes.len() as u64, |state, word| mixed(state, u64::from_le_bytes(*word)));
    let last = rest.iter().fold(0, |word: u64, byte| word << 8 | u64::from(*byte));
    // The upper half is mixed best.
    (mixed(whole, last) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn an_index_equals_an_ordered_map(
            rows in prop::collection::vec(("[ab/]{0,9}", 0_u8..9), 0..40), query in "[ab/]{0,9}",
        ) {
            let ordered: BTreeMap<&str, u8> = rows.iter().map(|(text, value)| (text.as_str(), *value)).collect();
            let index = Index::of(rows.iter().map(|(text, value)| (text.as_str(), *value)));
            prop_assert_eq!(index.find(&query), ordered.get(query.as_str()));
            for (text, value) in ordered {
                prop_assert_eq!(index.get(Key::of(text)), Some(&value));
            }
        }
    }

    #[test]
    fn long_ids_that_end_differently_are_spread_over_the_buckets() {
        let ids: Vec<String> = (0..4096)
            .map(|n| format!("/subscriptions/00000000-0000-0000-0000-000000000000/resourcegroups/mc/disks/pvc-{n}"))
            .collect();
        let index = Index::of(ids.iter().map(|id| (id.as_str(), ())));
        let longest = index.buckets.iter().map(|first| {
            std::iter::successors(Some(*first), |at| index.rows.get(*at as usize).map(|row| row.next)).count()
        });
        assert!(longest.max().unwrap() < 12);
    }
}
