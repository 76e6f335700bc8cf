//! A sorted set of label values.

use std::ops::Deref;
use std::sync::Arc;

/// Distinct texts, sorted. A slice instead of a tree: most requirements have one value, and a tree node allocates for
/// eleven.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct ValueSet(Box<[Arc<str>]>);

impl ValueSet {
    /// True when this is one of them.
    #[must_use]
    pub fn contains(&self, text: &str) -> bool {
        self.0.binary_search_by(|known| (**known).cmp(text)).is_ok()
    }

    /// Those that are in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.iter().filter(|text| other.contains(text)).cloned().collect())
    }

    /// Those that are in either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.iter().chain(other).cloned().collect()
    }

    /// True when nothing is in both.
    #[must_use]
    pub fn is_disjoint(&self, other: &Self) -> bool {
        let (few, many) = if self.len() <= other.len() { (self, other) } else { (other, self) };
        !few.iter().any(|text| many.contains(text))
    }
}

impl Deref for ValueSet {
    type Target = [Arc<str>];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl FromIterator<Arc<str>> for ValueSet {
    fn from_iter<I: IntoIterator<Item = Arc<str>>>(texts: I) -> Self {
        let mut texts: Vec<Arc<str>> = texts.into_iter().collect();
        texts.sort_unstable();
        texts.dedup();
        Self(texts.into())
    }
}

impl<'t> IntoIterator for &'t ValueSet {
    type Item = &'t Arc<str>;
    type IntoIter = std::slice::Iter<'t, Arc<str>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}
