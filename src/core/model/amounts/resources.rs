//! Amounts of compute resources: their sums, differences, and whether one fits into another.
//!
//! Integers in the smallest unit that the scheduler counts: CPU in thousandths of a core, memory and ephemeral
//! storage in bytes, everything else in whole units. Finer amounts are rounded up at the edge.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// A vector of resource amounts. Absent resources are zero.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Hash, Serialize, Deserialize)]
pub struct Resources {
    /// Thousandths of a CPU core.
    pub cpu_millis: i64,
    /// Bytes.
    pub memory: i64,
    /// Bytes.
    pub ephemeral_storage: i64,
    /// Number of pods.
    pub pods: i64,
    /// Other resources by name (`nvidia.com/gpu`, …), in whole units, sorted by name, none of them zero.
    pub extended: Vec<(Arc<str>, i64)>,
}

impl Resources {
    /// Only CPU, in thousandths of a core, and memory, in bytes.
    #[must_use]
    pub fn cpu_memory(cpu_millis: i64, memory: i64) -> Self {
        Self { cpu_millis, memory, ..Self::default() }
    }

    /// The amount of an extended resource.
    #[must_use]
    pub fn extended(&self, name: &str) -> i64 {
        self.extended.iter().find(|(n, _)| &**n == name).map_or(0, |(_, amount)| *amount)
    }

    /// Sets the amount of an extended resource.
    pub fn set_extended(&mut self, name: &str, amount: i64) {
        match self.extended.binary_search_by(|(n, _)| (**n).cmp(name)) {
            Ok(i) if amount == 0 => drop(self.extended.remove(i)),
            Ok(i) => self.extended[i].1 = amount,
            Err(_) if amount == 0 => {}
            Err(i) => self.extended.insert(i, (Arc::from(name), amount)),
        }
    }

    /// Adds another vector.
    pub fn add(&mut self, other: &Self) {
        self.combine(other, i64::saturating_add);
    }

    /// Subtracts another vector. Amounts may become negative.
    pub fn sub(&mut self, other: &Self) {
        self.combine(other, i64::saturating_sub);
    }

    /// Raises each amount to at least that of another vector.
    pub fn raise_to_at_least(&mut self, other: &Self) {
        self.combine(other, i64::max);
    }

    /// This vector plus another.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut sum = self.clone();
        sum.add(other);
        sum
    }

    /// This vector less another.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        rest.sub(other);
        rest
    }

    /// This vector `times` over.
    #[must_use]
    pub fn times(&self, times: i64) -> Self {
        Self {
            cpu_millis: self.cpu_millis.saturating_mul(times),
            memory: self.memory.saturating_mul(times),
            ephemeral_storage: self.ephemeral_storage.saturating_mul(times),
            pods: self.pods.saturating_mul(times),
            extended: self.extended.iter().map(|(n, a)| (Arc::clone(n), a.saturating_mul(times))).collect(),
        }
    }

    /// True when every positive amount is at most that of `available`. Unlike in Karpenter, a resource that is not
    /// requested never matters, even where its available amount is negative.
    #[must_use]
    pub fn fits(&self, available: &Self) -> bool {
        let fits = |need: i64, available: i64| need <= 0 || need <= available;
        fits(self.cpu_millis, available.cpu_millis)
            && fits(self.memory, available.memory)
            && fits(self.ephemeral_storage, available.ephemeral_storage)
            && fits(self.pods, available.pods)
            && self.extended.iter().all(|(name, need)| fits(*need, available.extended(name)))
    }

    /// Subtracts a multiple of another vector.
    pub fn sub_times(&mut self, other: &Self, times: i64) {
        self.combine(other, |mine, each| mine.saturating_sub(each.saturating_mul(times)));
    }

    /// How many times this vector fits into a capacity; `None` when it requests nothing.
    #[must_use]
    pub fn copies_that_fit(&self, available: &Self) -> Option<i64> {
        // Mostly it does not fit at all, which needs no division.
        if !self.fits(available) {
            return Some(0);
        }
        self.requested_with_available(available).map(|(need, available)| available / need).min()
    }

    /// How many times this vector fits into a capacity of which `used` is taken; 0 where more is used than available.
    #[must_use]
    pub fn copies_that_fit_beside(&self, used: &Self, capacity: &Self) -> i64 {
        let fits =
            |need: i64, used: i64, capacity: i64| if need > 0 { (capacity - used).max(0) / need } else { i64::MAX };
        let extended =
            self.extended.iter().map(|(name, need)| fits(*need, used.extended(name), capacity.extended(name)));
        fits(self.cpu_millis, used.cpu_millis, capacity.cpu_millis)
            .min(fits(self.memory, used.memory, capacity.memory))
            .min(fits(self.ephemeral_storage, used.ephemeral_storage, capacity.ephemeral_storage))
            .min(fits(self.pods, used.pods, capacity.pods))
            .min(extended.min().unwrap_or(i64::MAX))
    }

    /// Each requested amount, with the available amount.
    pub fn requested_with_available<'a>(&'a self, available: &'a Self) -> impl Iterator<Item = (i64, i64)> + 'a {
        let extended = self.extended.iter().map(|(name, need)| (*need, available.extended(name)));
        [
            (self.cpu_millis, available.cpu_millis),
            (self.memory, available.memory),
            (self.ephemeral_storage, available.ephemeral_storage),
            (self.pods, available.pods),
        ]
        .into_iter()
        .chain(extended)
        .filter(|(need, _)| *need > 0)
    }

    fn combine(&mut self, other: &Self, with: impl Fn(i64, i64) -> i64) {
        self.cpu_millis = with(self.cpu_millis, other.cpu_millis);
        self.memory = with(self.memory, other.memory);
        self.ephemeral_storage = with(self.ephemeral_storage, other.ephemeral_storage);
        self.pods = with(self.pods, other.pods);
        for (name, amount) in &other.extended {
            let mine = self.extended(name);
            self.set_extended(name, with(mine, *amount));
        }
    }
}

/// Thousandths of a core as a quantity: `4`, `500m`.
pub(crate) fn cpu(millis: i64) -> String {
    if millis % 1000 == 0 { (millis / 1000).to_string() } else { format!("{millis}m") }
}

/// Bytes as a quantity, rounded down to whole mebibytes: `16Gi`, `1500Mi`.
pub(crate) fn memory(bytes: i64) -> String {
    let mebi = bytes >> 20;
    if mebi != 0 && mebi % 1024 == 0 { format!("{}Gi", mebi / 1024) } else { format!("{mebi}Mi") }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} CPU, {}", cpu(self.cpu_millis), memory(self.memory))?;
        self.extended.iter().try_for_each(|(name, amount)| write!(f, ", {amount} {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_that_are_not_requested_do_not_matter() {
        let mut capacity = Resources::cpu_memory(1000, -1);
        assert!(Resources::cpu_memory(1000, 0).fits(&capacity));
        assert!(!Resources::cpu_memory(1000, 1).fits(&capacity));
        capacity.set_extended("nvidia.com/gpu", 1);
        let mut gpu = Resources::default();
        gpu.set_extended("nvidia.com/gpu", 2);
        assert!(!gpu.fits(&capacity));
    }

    #[test]
    fn times_in_is_bound_by_the_scarcest() {
        let pod = Resources { pods: 1, ..Resources::cpu_memory(1000, 1 << 30) };
        let capacity = Resources { pods: 250, ..Resources::cpu_memory(7820, 28 << 30) };
        assert_eq!(pod.copies_that_fit(&capacity), Some(7));
        assert_eq!(Resources::default().copies_that_fit(&capacity), None);
        assert_eq!(pod.copies_that_fit(&Resources { pods: 250, ..Resources::cpu_memory(7820, -1) }), Some(0));
        let mut left = capacity.clone();
        left.sub_times(&pod, 7);
        assert_eq!((left.clone(), pod.copies_that_fit(&left)), (capacity.minus(&pod.times(7)), Some(0)));
        assert_eq!([1, 3, 9].map(|used| pod.copies_that_fit_beside(&pod.times(used), &capacity)), [6, 4, 0]);
    }

    #[test]
    fn amounts_are_shown_as_quantities() {
        let mut some = Resources::cpu_memory(4000, 16 << 30);
        some.set_extended("nvidia.com/gpu", 1);
        assert_eq!(some.to_string(), "4 CPU, 16Gi, 1 nvidia.com/gpu");
        assert_eq!(Resources::cpu_memory(500, 1500 << 20).to_string(), "500m CPU, 1500Mi");
        assert_eq!(Resources::default().to_string(), "0 CPU, 0Mi");
    }

    #[test]
    fn extended_resources_stay_sorted_and_drop_zeros() {
        let mut a = Resources::default();
        a.set_extended("b", 2);
        a.set_extended("a", 1);
        let mut b = Resources::default();
        b.set_extended("b", 2);
        a.sub(&b);
        assert_eq!(a.extended, vec![(Arc::from("a"), 1)]);
    }
}
