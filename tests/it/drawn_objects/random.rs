//! Seeded randomness.

use napkeeper_tests::options::number;

/// Numbers that follow from a seed, and from `NAPKEEPER_SEED=N`, which draws other cases than every run does.
#[derive(Debug, Clone)]
pub(crate) struct Random(napkeeper_sim::random::Random);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let other_cases = number("NAPKEEPER_SEED", 0_u64).unwrap().wrapping_mul(1_000_000_007);
        let start = seed.wrapping_add(other_cases).wrapping_mul(0x2545_F491_4F6C_DD1D).wrapping_add(1);
        Self(napkeeper_sim::random::Random::new(start))
    }

    /// A number below `n`, which is not 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.0.bits() % u64::try_from(n.max(1)).unwrap_or(1)).unwrap_or_default()
    }

    /// One of a list.
    pub(crate) fn one<'a, T>(&mut self, list: &'a [T]) -> Option<&'a T> {
        list.get(self.below(list.len()))
    }

    /// Some of a list, in its order: each with a chance of one in `n`.
    pub(crate) fn some<T>(&mut self, list: Vec<T>, n: usize) -> Vec<T> {
        list.into_iter().filter(|_| self.below(n) == 0).collect()
    }
}
