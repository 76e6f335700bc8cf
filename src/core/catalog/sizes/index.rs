//! Index of sizes by label value, and by the reason why an AKSNodeClass cannot use them.
//!
//! It does not depend on the region, so one index serves all regions and all NodePools.

use crate::catalog::instance_types::size_labels;
use crate::catalog::{ExclusionReason, SizeFacts, SizeSet};
use crate::model::cluster::pool::NodeClass;
use crate::model::labels;
use crate::model::requirements::{Requirement, Requirements};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Sizes by label value.
#[derive(Debug)]
pub struct SizeIndex {
    sizes: Vec<Arc<SizeFacts>>,
    all: SizeSet,
    by_label: BTreeMap<&'static str, ByValue>,
    excluded: BTreeMap<ExclusionReason, SizeSet>,
}

/// The sizes by the value that they have of one label.
#[derive(Debug)]
struct ByValue {
    sizes: BTreeMap<Arc<str>, SizeSet>,
    /// Those that lack the label.
    absent: SizeSet,
}

impl SizeIndex {
    /// An index of sizes that are sorted by name.
    #[must_use]
    pub fn new(sizes: Vec<Arc<SizeFacts>>) -> Self {
        let none = SizeSet::none(sizes.len());
        let mut by_label: BTreeMap<&'static str, ByValue> = BTreeMap::new();
        for (index, facts) in sizes.iter().enumerate() {
            // Names are looked up by binary search; AKS's own keys have the values of Karpenter's.
            let labels = size_labels(facts).into_iter().filter(|(key, _)| !is_name(key) && canonical(key) == *key);
            for (key, value) in labels {
                let values =
                    by_label.entry(key).or_insert_with(|| ByValue { sizes: BTreeMap::new(), absent: none.clone() });
                match value {
                    None => values.absent.insert(index),
                    Some(value) => match values.sizes.get_mut(value.as_str()) {
                        Some(set) => set.insert(index),
                        None => {
                            let mut set = none.clone();
                            set.insert(index);
                            values.sizes.insert(Arc::from(value), set);
                        }
                    },
                }
            }
        }
        let reasons = ExclusionReason::CLASS_INDEPENDENT.into_iter().chain(ExclusionReason::CLASS_DEPENDENT);
        let sets = |reason: ExclusionReason| {
            (reason, SizeSet::of(sizes.len(), |i| sizes.get(i).is_some_and(|s| reason.applies_to_size(s))))
        };
        let dropped = reasons.map(sets).collect();
        Self { all: SizeSet::of(sizes.len(), |_| true), by_label, excluded: dropped, sizes }
    }

    /// The sizes, sorted by name.
    #[must_use]
    pub fn sizes(&self) -> &[Arc<SizeFacts>] {
        &self.sizes
    }

    /// The index of a size.
    #[must_use]
    pub fn position(&self, name: &str) -> Option<usize> {
        self.sizes.binary_search_by(|s| s.name.as_str().cmp(name)).ok()
    }

    /// All sizes.
    #[must_use]
    pub fn all(&self) -> &SizeSet {
        &self.all
    }

    /// The values of a label that sizes have; `None` for a label that does not depend on the size alone, and for the
    /// label of the name itself.
    pub fn values(&self, key: &str) -> Option<impl Iterator<Item = &Arc<str>>> {
        self.by_label.get(canonical(key)).map(|values| values.sizes.keys())
    }

    /// True when a size has this value of a label.
    #[must_use]
    pub fn has_value(&self, key: &str, value: &str) -> bool {
        if is_name(key) {
            return self.position(value).is_some();
        }
        self.by_label.get(canonical(key)).is_some_and(|values| values.sizes.contains_key(value))
    }

    /// The sizes that satisfy a requirement on a label; `None` when the label does not depend on the size alone.
    #[must_use]
    pub fn matching(&self, key: &str, requirement: &Requirement) -> Option<SizeSet> {
        if is_name(key) {
            return Some(self.named(requirement));
        }
        let values = self.by_label.get(canonical(key))?;
        let mut found = SizeSet::none(self.sizes.len());
        if let Some(wanted) = requirement.values() {
            wanted.iter().filter_map(|v| values.sizes.get(v)).for_each(|set| found.add(set));
        } else if let Some(excluded) = requirement.excluded() {
            found.add(&self.all);
            excluded.iter().filter_map(|v| values.sizes.get(v)).for_each(|set| found.remove_all(set));
            found.remove_all(&values.absent);
        } else {
            let fits = values.sizes.iter().filter(|(value, _)| requirement.allows(Some(value)));
            fits.for_each(|(_, set)| found.add(set));
        }
        if requirement.allows_absent() {
            found.add(&values.absent);
        }
        Some(found)
    }

    fn named(&self, requirement: &Requirement) -> SizeSet {
        if let Some(wanted) = requirement.values() {
            let mut found = SizeSet::none(self.sizes.len());
            wanted.iter().filter_map(|name| self.position(name)).for_each(|index| found.insert(index));
            return found;
        }
        SizeSet::of(self.sizes.len(), |i| self.sizes.get(i).is_some_and(|s| requirement.allows(Some(s.name.as_str()))))
    }

    /// The sizes that some class can use in some region, and whose own labels satisfy all requirements. Zones, prices,
    /// restrictions and settings of the class are not considered: other sizes are impossible everywhere.
    #[must_use]
    pub fn possible(&self, requirements: &Requirements) -> SizeSet {
        let mut sizes = self.all.clone();
        let useless = ExclusionReason::CLASS_INDEPENDENT.iter().filter_map(|reason| self.excluded.get(reason));
        useless.for_each(|set| sizes.remove_all(set));
        requirements
            .iter()
            .filter_map(|(key, requirement)| self.matching(key, requirement))
            .for_each(|set| sizes.retain_all(&set));
        sizes
    }

    /// The sizes of a set for which something holds.
    #[must_use]
    pub fn among(&self, sizes: &SizeSet, holds: impl Fn(&SizeFacts) -> bool) -> SizeSet {
        let mut some = sizes.emptied();
        sizes.iter().filter(|index| self.sizes.get(*index).is_some_and(|s| holds(s))).for_each(|i| some.insert(i));
        some
    }

    /// The sizes of a set, by name.
    pub fn members<'s>(&'s self, sizes: &'s SizeSet) -> impl Iterator<Item = &'s Arc<SizeFacts>> {
        sizes.iter().filter_map(|index| self.sizes.get(index))
    }

    /// How many values of a label some sizes have; `None` when the label does not depend on the size alone.
    #[must_use]
    pub fn distinct(&self, key: &str, among: &SizeSet) -> Option<usize> {
        if is_name(key) {
            return Some(among.len());
        }
        let values = self.by_label.get(canonical(key))?;
        Some(values.sizes.values().filter(|set| set.intersects(among)).count())
    }

    /// The reasons for which a class can use none of some sizes, each with those sizes, in the order of
    /// [`crate::catalog::exclusion_reason`]. Restrictions and prices are a region's.
    pub fn exclusions<'a>(&'a self, class: &'a NodeClass) -> impl Iterator<Item = (ExclusionReason, &'a SizeSet)> {
        let of_class = ExclusionReason::CLASS_DEPENDENT.into_iter().filter(|reason| reason.applies_to_class(class));
        let reasons = ExclusionReason::CLASS_INDEPENDENT.into_iter().chain(of_class);
        reasons.filter_map(|reason| Some((reason, self.excluded.get(&reason)?)))
    }
}

/// The label has the name of the size.
fn is_name(key: &str) -> bool {
    matches!(key, labels::INSTANCE_TYPE | labels::SKU_NAME)
}

/// The key under which the values of a label are stored.
fn canonical(key: &str) -> &str {
    match key {
        labels::AKS_SKU_CPU => labels::SKU_CPU,
        labels::AKS_SKU_MEMORY => labels::SKU_MEMORY,
        key => key,
    }
}
