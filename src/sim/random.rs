//! A repeatable random generator.
//!
//! A splitmix64 generator (Steele, Lea, Flood 2014: "Fast splittable pseudorandom number generators"). The same seed
//! gives the same world on every machine and with every version of any crate. Nothing here is secret.

use jiff::SignedDuration;
use napkeeper_core::model::support::hash::fnv1a;

/// Step of the generator: the odd integer next to 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// A source of repeatable random numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A source that gives the same sequence for the same seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A source by name: it does not depend on earlier draws for other names.
    #[must_use]
    pub fn of(seed: u64, name: &str) -> Self {
        Self::new(mixed(seed ^ fnv1a(name.bytes())))
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        mixed(self.state)
    }

    /// A number from `least` to `most`, both included; `least` if `most` is smaller.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        match most.saturating_sub(least).checked_add(1) {
            Some(span) => least + self.bits() % span,
            None => self.bits(),
        }
    }

    /// True once in `n` times on average; never for 0.
    pub fn one_in(&mut self, n: u64) -> bool {
        n > 0 && self.between(1, n) == 1
    }

    /// A duration from `least` to `most` in whole milliseconds, both included.
    pub fn duration(&mut self, least: SignedDuration, most: SignedDuration) -> SignedDuration {
        let span = (most - least).as_millis().clamp(0, i128::from(i64::MAX));
        let millis = self.between(0, u64::try_from(span).unwrap_or(0));
        least + SignedDuration::from_millis(i64::try_from(millis).unwrap_or(0))
    }

    /// One of the items, if any.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let last = u64::try_from(items.len()).unwrap_or(0).checked_sub(1)?;
        items.get(usize::try_from(self.between(0, last)).unwrap_or(0))
    }
}

/// A random duration between two bounds, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delay {
    /// Shortest.
    pub least: SignedDuration,
    /// Longest.
    pub most: SignedDuration,
}

impl Delay {
    /// Between two numbers of seconds.
    #[must_use]
    pub const fn secs(least: i64, most: i64) -> Self {
        Self { least: SignedDuration::from_secs(least), most: SignedDuration::from_secs(most) }
    }

    /// The time that a step takes for the thing of this name.
    pub(crate) fn of(self, seed: u64, step: &str, name: &str) -> SignedDuration {
        Random::of(seed, &format!("{step} {name}")).duration(self.least, self.most)
    }
}

/// The finaliser of splitmix64.
fn mixed(state: u64) -> u64 {
    let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_that_of_splitmix64() {
        // The published test vector for the seed 1234567.
        let mut random = Random::new(1_234_567);
        let drawn: Vec<u64> = (0..3).map(|_| random.bits()).collect();
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn both_ends_are_drawn_and_nothing_beyond_them() {
        let mut random = Random::new(7);
        let drawn: std::collections::BTreeSet<u64> = (0..200).map(|_| random.between(3, 6)).collect();
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), [3, 4, 5, 6]);
        assert_eq!(random.between(5, 2), 5);
        assert!((0..100).all(|_| !random.one_in(0) && random.one_in(1)));
        assert_eq!(random.pick::<u8>(&[]), None);
    }

    #[test]
    fn the_chance_of_a_thing_depends_on_the_seed_and_its_name_only() {
        assert_eq!(Random::of(1, "a").bits(), Random::of(1, "a").bits());
        assert_ne!(Random::of(1, "a").bits(), Random::of(1, "b").bits());
        assert_ne!(Random::of(1, "a").bits(), Random::of(2, "a").bits());
    }
}
