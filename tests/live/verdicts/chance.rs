//! What is drawn by chance, and yet the same in every run?

use napkeeper_sim::random::Random;

/// `NAPKEEPER_SEED=N` draws other cases, to look further than every run does.
fn other_cases() -> u64 {
    let given = std::env::var("NAPKEEPER_SEED").ok().and_then(|text| text.parse::<u64>().ok());
    given.unwrap_or_default().wrapping_mul(1_000_000_007)
}

/// Numbers that follow from a seed.
#[derive(Debug, Clone)]
pub(super) struct Chance(Random);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(Random::new(seed.wrapping_add(other_cases()).wrapping_mul(0x2545_F491_4F6C_DD1D).wrapping_add(1)))
    }

    /// A number below `n`, which is not 0.
    pub(super) fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.0.bits() % u64::try_from(n.max(1)).unwrap_or(1)).unwrap_or_default()
    }

    /// One of a list.
    pub(super) fn one<'a, T>(&mut self, list: &'a [T]) -> Option<&'a T> {
        list.get(self.below(list.len()))
    }

    /// Some of a list, in its order: each with a chance of one in `n`.
    pub(super) fn some<T>(&mut self, list: Vec<T>, n: usize) -> Vec<T> {
        list.into_iter().filter(|_| self.below(n) == 0).collect()
    }
}
