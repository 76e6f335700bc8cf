//! Sets of VM sizes, as bits of their indexes in a sorted list.

/// A set of sizes, one bit a size. Sets that meet must be of the same list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SizeSet(Box<[u64]>);

impl SizeSet {
    /// None of `length` sizes.
    #[must_use]
    pub fn none(length: usize) -> Self {
        Self(vec![0; length.div_ceil(64)].into_boxed_slice())
    }

    /// Those of `length` sizes whose index satisfies a condition.
    pub fn of(length: usize, holds: impl Fn(usize) -> bool) -> Self {
        let mut set = Self::none(length);
        (0..length).filter(|i| holds(*i)).for_each(|i| set.insert(i));
        set
    }

    /// None of as many sizes.
    #[must_use]
    pub fn emptied(&self) -> Self {
        Self(vec![0; self.0.len()].into_boxed_slice())
    }

    /// Adds a size.
    pub fn insert(&mut self, index: usize) {
        if let Some(word) = self.0.get_mut(index / 64) {
            *word |= 1 << (index % 64);
        }
    }

    /// True when the size is in the set.
    #[must_use]
    pub fn contains(&self, index: usize) -> bool {
        self.0.get(index / 64).is_some_and(|word| word & (1 << (index % 64)) != 0)
    }

    /// Keeps sizes that are in both.
    pub fn retain_all(&mut self, other: &Self) {
        self.0.iter_mut().zip(&*other.0).for_each(|(a, b)| *a &= b);
    }

    /// Removes the sizes of the other.
    pub fn remove_all(&mut self, other: &Self) {
        self.0.iter_mut().zip(&*other.0).for_each(|(a, b)| *a &= !b);
    }

    /// Adds the sizes of the other.
    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&*other.0).for_each(|(a, b)| *a |= b);
    }

    /// How many sizes are in both.
    #[must_use]
    pub fn intersection_len(&self, other: &Self) -> usize {
        self.0.iter().zip(&*other.0).map(|(a, b)| (a & b).count_ones() as usize).sum()
    }

    /// True when a size is in both.
    #[must_use]
    pub fn intersects(&self, other: &Self) -> bool {
        self.0.iter().zip(&*other.0).any(|(a, b)| a & b != 0)
    }

    /// How many sizes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// True when there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// The indices of the sizes, in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(i, word)| {
            let bits = (0..64).filter(move |bit| word & (1 << bit) != 0);
            bits.map(move |bit| i * 64 + bit)
        })
    }
}
