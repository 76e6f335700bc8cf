//! Which VM sizes can requirements mean, in any region and for any class?
//!
//! An upper bound: sizes that Azure has, that AKS takes as nodes, and whose own labels fit. Zones, prices, restrictions
//! and what a class asks for are not looked at, so what is missing here is missing everywhere. Fast enough to be asked
//! of thousands of pools: sizes are kept by the value of each label, so that a value is looked at once and not once a
//! size.

use super::types::requirements;
use super::{SizeFacts, dropped_everywhere};
use crate::cluster::pool::NodeClass;
use crate::labels;
use crate::names::{NodeClassName, Region, Uid};
use crate::requirements::{Requirement, Requirements};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Labels that hang on the size alone.
const KEYS: [&str; 17] = [
    labels::INSTANCE_TYPE,
    labels::SKU_NAME,
    labels::ARCH,
    labels::OS,
    labels::SKU_FAMILY,
    labels::SKU_SERIES,
    labels::SKU_VERSION,
    labels::SKU_CPU,
    labels::AKS_SKU_CPU,
    labels::SKU_MEMORY,
    labels::AKS_SKU_MEMORY,
    labels::SKU_GPU_NAME,
    labels::SKU_GPU_MANUFACTURER,
    labels::SKU_GPU_COUNT,
    labels::SKU_ACCELERATED_NETWORKING,
    labels::SKU_PREMIUM_STORAGE,
    labels::SKU_EPHEMERAL_OS_MAX,
];

/// The sizes of a catalogue by their labels.
#[derive(Debug, Clone, Default)]
pub struct SizeIndex {
    sizes: Vec<Arc<SizeFacts>>,
    keys: BTreeMap<&'static str, Column>,
    spot: SizeSet,
    gpu: SizeSet,
}

/// The sizes by the value of one label.
#[derive(Debug, Clone, Default)]
struct Column {
    values: BTreeMap<Arc<str>, Members>,
    absent: Members,
}

/// The sizes that have one value: by index, or as a set where that is quicker to add.
#[derive(Debug, Clone)]
enum Members {
    Few(Vec<usize>),
    Many(SizeSet),
}

/// Some sizes of an index.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SizeSet {
    words: Vec<u64>,
}

impl SizeIndex {
    /// An index of these sizes.
    #[must_use]
    pub fn new(sizes: &[Arc<SizeFacts>]) -> Self {
        let usable = |size: &&Arc<SizeFacts>| dropped_everywhere(size).is_none();
        let sizes: Vec<Arc<SizeFacts>> = sizes.iter().filter(usable).cloned().collect();
        let (spot, gpu) = (SizeSet::none(sizes.len()), SizeSet::none(sizes.len()));
        let mut index = Self { sizes, keys: BTreeMap::new(), spot, gpu };
        let named = Region::new("any").ok().zip(NodeClassName::new("any").ok()).zip(Uid::new("any").ok());
        let Some(((region, class), uid)) = named else { return index };
        let class = NodeClass::with_defaults(class, uid);
        for (at, size) in index.sizes.iter().enumerate() {
            if size.spot_eligible {
                index.spot.insert(at);
            }
            if size.gpu.is_some() {
                index.gpu.insert(at);
            }
            let labels = requirements(size, &[], &region, &class);
            for key in KEYS {
                let column = index.keys.entry(key).or_default();
                match labels.get(key).and_then(Requirement::single) {
                    Some(value) => column.values.entry(Arc::clone(value)).or_default().push(at, index.sizes.len()),
                    None => column.absent.push(at, index.sizes.len()),
                }
            }
        }
        index
    }

    /// The sizes whose labels satisfy all requirements on them.
    #[must_use]
    pub fn matching(&self, requirements: &Requirements) -> SizeSet {
        let mut set = SizeSet::first(self.sizes.len());
        for (key, requirement) in requirements.iter() {
            if let Some(column) = self.keys.get(&**key) {
                set.retain(&column.matching(requirement, self.sizes.len()));
            }
        }
        set
    }

    /// The sizes of a set that can be bought as spot.
    #[must_use]
    pub fn spot(&self, set: &SizeSet) -> SizeSet {
        set.among(&self.spot)
    }

    /// The sizes of a set that have GPUs.
    #[must_use]
    pub fn with_gpus(&self, set: &SizeSet) -> SizeSet {
        set.among(&self.gpu)
    }

    /// The sizes of a set, by name.
    pub fn sizes<'i>(&'i self, set: &'i SizeSet) -> impl Iterator<Item = &'i Arc<SizeFacts>> {
        let chunks = self.sizes.chunks(64).zip(&set.words).filter(|(_, word)| **word != 0);
        chunks.flat_map(|(chunk, word)| {
            chunk.iter().enumerate().filter(move |(bit, _)| word >> bit & 1 == 1).map(|(_, size)| size)
        })
    }
}

impl Column {
    fn matching(&self, requirement: &Requirement, total: usize) -> SizeSet {
        let mut set = SizeSet::none(total);
        if requirement.allows_absent() {
            self.absent.add_to(&mut set);
        }
        match requirement.values() {
            Some(values) => values.iter().filter_map(|v| self.values.get(v)).for_each(|m| m.add_to(&mut set)),
            None => {
                let allowed = self.values.iter().filter(|(value, _)| requirement.allows(Some(value)));
                allowed.for_each(|(_, members)| members.add_to(&mut set));
            }
        }
        set
    }
}

impl Default for Members {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl Members {
    /// Adds one out of `total` sizes.
    fn push(&mut self, at: usize, total: usize) {
        match self {
            Self::Few(indexes) => {
                indexes.push(at);
                if indexes.len() > total / 64 {
                    let mut set = SizeSet::none(total);
                    indexes.iter().for_each(|at| set.insert(*at));
                    *self = Self::Many(set);
                }
            }
            Self::Many(set) => set.insert(at),
        }
    }

    fn add_to(&self, all: &mut SizeSet) {
        match self {
            Self::Few(indexes) => indexes.iter().for_each(|at| all.insert(*at)),
            Self::Many(set) => all.add(set),
        }
    }
}

impl SizeSet {
    fn none(total: usize) -> Self {
        Self { words: vec![0; total.div_ceil(64)] }
    }

    fn first(total: usize) -> Self {
        let mut set = Self { words: vec![u64::MAX; total.div_ceil(64)] };
        let surplus = set.words.len() * 64 - total;
        if let Some(last) = set.words.last_mut() {
            *last >>= surplus;
        }
        set
    }

    fn insert(&mut self, at: usize) {
        if let Some(word) = self.words.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
    }

    fn among(&self, other: &Self) -> Self {
        let mut set = self.clone();
        set.retain(other);
        set
    }

    fn add(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(a, b)| *a |= b);
    }

    fn retain(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(a, b)| *a &= b);
    }

    /// How many sizes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// True when there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// True when some size is in both.
    #[must_use]
    pub fn intersects(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Catalog, InstanceTypeOptions, instance_types};
    use crate::requirements::Operator;
    use std::collections::BTreeSet;

    fn asked(entries: &[(&str, Operator, &[&str])]) -> Requirements {
        let mut all = Requirements::new();
        entries.iter().for_each(|(key, operator, values)| all.add_entry(key, *operator, values).unwrap());
        all
    }

    fn cases() -> Vec<Requirements> {
        use Operator::{DoesNotExist, Exists, Gt, Gte, In, Lte, NotIn};
        vec![
            Requirements::new(),
            asked(&[(labels::SKU_FAMILY, In, &["D", "E"]), (labels::SKU_CPU, Lte, &["16"])]),
            asked(&[(labels::INSTANCE_TYPE, In, &["Standard_D4s_v5", "Standard_Z9"])]),
            asked(&[(labels::INSTANCE_TYPE, NotIn, &["Standard_D4s_v5"]), (labels::ARCH, In, &["arm64"])]),
            asked(&[(labels::SKU_GPU_NAME, DoesNotExist, &[]), (labels::SKU_VERSION, Gte, &["5"])]),
            asked(&[(labels::SKU_GPU_MANUFACTURER, Exists, &[])]),
            asked(&[(labels::SKU_SERIES, In, &["Dads_v5"]), (labels::SKU_MEMORY, Gt, &["100000"])]),
            asked(&[(labels::SKU_GPU_COUNT, In, &["0"]), (labels::SKU_PREMIUM_STORAGE, In, &["false"])]),
            asked(&[(labels::OS, In, &["windows"])]),
            asked(&[("example.com/team", In, &["a"])]),
        ]
    }

    #[test]
    fn a_region_has_no_size_that_the_index_lacks_and_the_index_none_that_does_not_fit() {
        let catalog = Catalog::embedded().unwrap();
        let index = SizeIndex::new(catalog.sizes());
        let region = catalog.region(&Region::new("westeurope").unwrap()).unwrap();
        let class = NodeClass::with_defaults(NodeClassName::new("a").unwrap(), Uid::new("a").unwrap());
        let types = instance_types(&region, &class, &InstanceTypeOptions::default());
        let sold: BTreeSet<_> = types.iter().map(|t| t.facts.name.clone()).collect();
        for asked in cases() {
            let fits = |t: &&crate::catalog::InstanceType| t.requirements.compatible(&asked, |_| true).is_ok();
            let expected: BTreeSet<_> = types.iter().filter(fits).map(|t| t.facts.name.clone()).collect();
            let set = index.matching(&asked);
            let names: BTreeSet<_> = index.sizes(&set).map(|s| s.name.clone()).collect();
            assert_eq!(names.len(), set.len());
            let here: BTreeSet<_> = names.intersection(&sold).cloned().collect();
            assert_eq!(here, expected, "{asked}");
        }
    }

    #[test]
    fn sets_meet_where_they_share_a_size() {
        let index = SizeIndex::new(Catalog::embedded().unwrap().sizes());
        let family = |letter: &str| index.matching(&asked(&[(labels::SKU_FAMILY, Operator::In, &[letter])]));
        let (d, e, all) = (family("D"), family("E"), index.matching(&Requirements::new()));
        assert!(!d.intersects(&e) && d.intersects(&all) && !d.is_empty());
        let gpus = index.with_gpus(&all);
        assert!(index.sizes(&gpus).all(|s| s.gpu.is_some()) && !gpus.is_empty() && gpus.len() < all.len());
        assert!(index.sizes(&index.spot(&all)).all(|s| s.spot_eligible) && index.with_gpus(&d).is_empty());
        assert!(index.matching(&asked(&[(labels::OS, Operator::In, &["windows"])])).is_empty());
        assert_eq!(SizeIndex::default().matching(&Requirements::new()).len(), 0);
    }
}
