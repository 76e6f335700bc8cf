//! A deterministic hash index over borrowed strings.
//!
//! Azure's ids are long and begin alike, so an ordered map spends its time on comparing what is equal. Here keys are
//! told apart by a number made of their text: always the same for the same text, and nothing ever depends on the order
//! of the entries, which is why the core may have it and no `HashMap`.

/// Marks an empty bucket and the end of a chain.
const NONE: u32 = u32::MAX;

/// So many bytes at the end of a text make its number: ids of one group begin alike, and the name stands last.
const HASHED_SUFFIX_LENGTH: usize = 64;

/// A text with its number, to be looked up in several indexes.
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
    /// Indexes rows; of several with the same text the last one stands.
    pub(in crate::orphans) fn of(rows: impl Iterator<Item = (&'a str, T)>) -> Self {
        let rows: Vec<Row<'a, T>> =
            rows.map(|(text, value)| Row { hash: hash(text), next: NONE, text, value }).collect();
        // No inventory comes near the 4,294,967,294 rows that the links can count.
        let mut index = Self { buckets: vec![NONE; rows.len().next_power_of_two()], rows };
        for place in 0..index.rows.len() {
            let bucket = index.bucket(index.rows[place].hash);
            index.rows[place].next = index.buckets[bucket];
            index.buckets[bucket] = u32::try_from(place).unwrap_or(NONE);
        }
        index
    }

    /// What stands under a key.
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

    /// What stands under a text.
    pub(in crate::orphans) fn find(&self, text: &str) -> Option<&T> {
        if self.rows.is_empty() { None } else { self.get(Key::of(text)) }
    }

    fn bucket(&self, number: u32) -> usize {
        usize::try_from(number).unwrap_or(0) & (self.buckets.len() - 1)
    }
}

/// A number that the text alone decides: eight bytes at a time, each turned and multiplied into the ones before.
fn hash(text: &str) -> u32 {
    let bytes = text.as_bytes();
    let telling = &bytes[bytes.len().saturating_sub(HASHED_SUFFIX_LENGTH)..];
    // A product carries upwards only, so the upper half is brought down before each.
    let mixed = |number: u64, word: u64| {
        let both = number.rotate_left(5) ^ word;
        (both ^ (both >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    };
    let (words, rest) = telling.as_chunks::<8>();
    let whole = words.iter().fold(bytes.len() as u64, |number, word| mixed(number, u64::from_le_bytes(*word)));
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
        fn an_index_finds_what_an_ordered_map_finds(
            rows in prop::collection::vec(("[ab/]{0,9}", 0_u8..9), 0..40), asked in "[ab/]{0,9}",
        ) {
            let ordered: BTreeMap<&str, u8> = rows.iter().map(|(text, value)| (text.as_str(), *value)).collect();
            let index = Index::of(rows.iter().map(|(text, value)| (text.as_str(), *value)));
            prop_assert_eq!(index.find(&asked), ordered.get(asked.as_str()));
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
