//! Selection of the sizes that satisfy a NodePool and its class.
//!
//! The same answer as [`crate::catalog::instance_types`] filtered by the pool's requirements, without making an instance type of
//! any size: each requirement becomes a set of sizes, or a condition on zone and capacity type.

pub(in crate::catalog) mod exclusion;
pub(in crate::catalog) mod filter_steps;

use crate::catalog::instance_types::os_sku;
use crate::catalog::region::offerings::ZONE_SLOTS;
use crate::catalog::{CapacityType, ExclusionReason, RegionOfferings, SizeIndex, SizeSet, names_reserved};
use crate::model::cluster::pool::NodeClass;
use crate::model::labels;
use crate::model::names::Zone;
use crate::model::requirements::Requirement;

/// What a NodePool asks for, in the order that it says so, and its class.
#[derive(Debug, Clone, Copy)]
pub struct PoolRequirements<'a> {
    /// Requirements, then labels of the template.
    pub entries: &'a [PoolRequirement<'a>],
    /// The AKSNodeClass.
    pub class: &'a NodeClass,
}

/// One requirement on one label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolRequirement<'a> {
    /// Where the pool says so.
    pub source: RequirementSource,
    /// The label, under its current key.
    pub key: &'a str,
    /// What is asked of it.
    pub requirement: &'a Requirement,
}

/// Where a NodePool asks for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequirementSource {
    /// In `requirements`, at this place.
    Requirement(usize),
    /// In the labels of its template.
    Label,
}

/// What one step of the selection does.
#[derive(Debug, Clone)]
pub(in crate::catalog) enum FilterEffect<'a> {
    /// Keeps these sizes.
    Keep(SizeSet),
    /// Drops these sizes.
    Drop(&'a SizeSet),
    /// Keeps these capacity types, in the order of [`CapacityType::ALL`].
    CapacityTypes([bool; 3]),
    /// Keeps offers in no zone, and in a zone.
    Scope([bool; 2]),
    /// Keeps zones.
    Zone(&'a Requirement),
    /// Keeps regions.
    Region(&'a Requirement),
    /// Keeps what has a known price.
    Priced,
    /// Keeps what the subscription may buy.
    Unrestricted,
    /// The label does not decide about sizes, as those that a pool gives its nodes by itself.
    None,
}

/// Whose step it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::catalog) enum FilterOrigin {
    /// An entry, by its place.
    Entry(usize),
    /// A reason that lies in the size, the class or the region.
    Reason(ExclusionReason),
}

/// The steps of a selection. When `sure`, restrictions and unknown prices count too.
pub(in crate::catalog) fn steps<'a>(
    index: &'a SizeIndex,
    asked: PoolRequirements<'a>,
    sure: bool,
) -> Vec<(FilterOrigin, FilterEffect<'a>)> {
    let of_entry =
        |(i, entry): (usize, &PoolRequirement<'a>)| (FilterOrigin::Entry(i), effect(index, asked.class, entry));
    let entries = asked.entries.iter().enumerate().map(of_entry);
    let reasons =
        index.exclusions(asked.class).map(|(reason, sizes)| (FilterOrigin::Reason(reason), FilterEffect::Drop(sizes)));
    let offers =
        [(ExclusionReason::NoPrice, FilterEffect::Priced), (ExclusionReason::Restricted, FilterEffect::Unrestricted)];
    let offers = offers.into_iter().filter(|_| sure).map(|(reason, effect)| (FilterOrigin::Reason(reason), effect));
    entries.chain(reasons).chain(offers).collect()
}

fn effect<'a>(index: &SizeIndex, class: &NodeClass, entry: &PoolRequirement<'a>) -> FilterEffect<'a> {
    let asked = entry.requirement;
    let allows = |value: &str| asked.allows(Some(value));
    let unless = |holds: bool| match holds {
        true => FilterEffect::None,
        false => FilterEffect::Keep(SizeSet::none(index.sizes().len())),
    };
    match entry.key {
        labels::ZONE => FilterEffect::Zone(asked),
        labels::REGION => FilterEffect::Region(asked),
        labels::CAPACITY_TYPE => FilterEffect::CapacityTypes(CapacityType::ALL.map(|c| allows(c.as_str()))),
        labels::PRIORITY | labels::SCALE_SET_PRIORITY => {
            FilterEffect::CapacityTypes(CapacityType::ALL.map(|c| allows(c.priority())))
        }
        labels::PLACEMENT_SCOPE => FilterEffect::Scope([allows("regional"), allows("zonal")]),
        labels::MODE => unless(allows("system") || allows("user")),
        labels::OS_SKU => unless(allows(os_sku(class))),
        labels::FIPS_ENABLED => unless(asked.allows(class.fips.then_some("true"))),
        key => index.matching(key, asked).map_or(FilterEffect::None, FilterEffect::Keep),
    }
}

/// The sizes that satisfy a NodePool wherever they are sold, and what it asks of zone and capacity type.
#[derive(Debug, Clone)]
pub struct Selection<'a> {
    sizes: SizeSet,
    capacity: [bool; 3],
    /// The pool names reserved capacity, and its class a group of it. Which sizes are in that is not known here: any may
    /// be.
    reserves: bool,
    scope: [bool; 2],
    zones: Vec<&'a Requirement>,
    regions: Vec<&'a Requirement>,
    priced: bool,
    unrestricted: bool,
}

impl<'a> Selection<'a> {
    /// The selection of a NodePool. Restrictions of the subscription and unknown prices do not count: where they are
    /// to, see [`RegionOfferings::available`].
    #[must_use]
    pub fn new(index: &'a SizeIndex, asked: PoolRequirements<'a>) -> Self {
        let all = Self::unfiltered(index, asked);
        steps(index, asked, false).iter().fold(all, |all, (_, effect)| all.after(effect))
    }

    /// What the NodePool itself asks for, whatever its class and AKS make of it.
    #[must_use]
    pub fn from_requirements(index: &'a SizeIndex, asked: PoolRequirements<'a>) -> Self {
        let of_entry = |entry| effect(index, asked.class, entry);
        let all = Self::unfiltered(index, asked);
        asked.entries.iter().map(of_entry).fold(all, |all, effect| all.after(&effect))
    }

    /// No condition at all.
    pub(in crate::catalog) fn unfiltered(index: &SizeIndex, asked: PoolRequirements<'_>) -> Self {
        let named =
            |entry: &PoolRequirement<'_>| entry.key == labels::CAPACITY_TYPE && names_reserved(entry.requirement);
        let reserves = asked.class.reservations.is_some() && asked.entries.iter().any(named);
        Self {
            sizes: index.all().clone(),
            capacity: [true; 3],
            reserves,
            scope: [true; 2],
            zones: Vec::new(),
            regions: Vec::new(),
            priced: false,
            unrestricted: false,
        }
    }

    /// What is left after one more step.
    pub(in crate::catalog) fn after(mut self, effect: &FilterEffect<'a>) -> Self {
        match effect {
            FilterEffect::Keep(sizes) => self.sizes.retain_all(sizes),
            FilterEffect::Drop(sizes) => self.sizes.remove_all(sizes),
            FilterEffect::CapacityTypes(allowed) => self.capacity = intersect(self.capacity, *allowed),
            FilterEffect::Scope(allowed) => self.scope = intersect(self.scope, *allowed),
            FilterEffect::Zone(asked) => self.zones.push(asked),
            FilterEffect::Region(asked) => self.regions.push(asked),
            FilterEffect::Priced => self.priced = true,
            FilterEffect::Unrestricted => self.unrestricted = true,
            FilterEffect::None => {}
        }
        self
    }

    /// The sizes, whether or not a region sells them.
    #[must_use]
    pub fn sizes(&self) -> &SizeSet {
        &self.sizes
    }

    /// The sizes that a region sells as the pool asks.
    #[must_use]
    pub fn in_region(&self, supply: &RegionOfferings) -> SizeSet {
        let mut found = self.sizes.emptied();
        self.for_each_offered(supply, |sold| found.add(sold));
        self.narrow(supply, found)
    }

    /// True when a region sells a size as the pool asks.
    #[must_use]
    pub fn is_offered_in(&self, supply: &RegionOfferings) -> bool {
        !self.in_region(supply).is_empty()
    }

    /// How many sizes, and how many offerings (size, zone and capacity type), a region has as the pool asks.
    pub(in crate::catalog) fn count(&self, supply: &RegionOfferings) -> (usize, usize) {
        let sizes = self.in_region(supply);
        let mut offerings = 0;
        self.for_each_offered(supply, |sold| offerings += sold.intersection_len(&sizes));
        (sizes.len(), offerings)
    }

    /// The values of zone or capacity type that a region has for some sizes of this selection; `None` for other keys.
    #[must_use]
    pub fn distinct_offers(&self, key: &str, supply: &RegionOfferings) -> Option<usize> {
        let mut places = [false; ZONE_SLOTS];
        let mut types = [false; 3];
        let sizes = self.in_region(supply);
        for (place, capacity_type, sold) in self.allowed(supply) {
            let any = sold.intersects(&sizes);
            if let Some(seen) = places.get_mut(place) {
                *seen |= any;
            }
            if let Some(seen) = types.get_mut(capacity_type as usize) {
                *seen |= any;
            }
        }
        let count = |seen: &[bool]| seen.iter().filter(|s| **s).count();
        match key {
            labels::ZONE => Some(count(&places)),
            labels::CAPACITY_TYPE | labels::PRIORITY | labels::SCALE_SET_PRIORITY => Some(count(&types)),
            labels::REGION => Some(count(&places).min(1)),
            _ => None,
        }
    }

    fn narrow(&self, supply: &RegionOfferings, mut found: SizeSet) -> SizeSet {
        found.retain_all(&self.sizes);
        if self.priced {
            // Without a price at full price a size is not launched at all, not even as spot.
            let [_, on_demand] = &supply.priced;
            found.retain_all(on_demand);
        }
        if self.unrestricted {
            found.remove_all(&supply.restricted);
        }
        found
    }

    fn for_each_offered(&self, supply: &RegionOfferings, mut each: impl FnMut(&SizeSet)) {
        let [spot_price, _] = &supply.priced;
        let [_, _, on_demand] = self.capacity;
        for (_, capacity_type, sold) in self.allowed(supply) {
            // What may be reserved is not counted beside what can be bought for certain.
            if capacity_type == CapacityType::Reserved && on_demand {
                continue;
            }
            if self.priced && capacity_type == CapacityType::Spot {
                let mut sold = sold.clone();
                sold.retain_all(spot_price);
                each(&sold);
            } else {
                each(sold);
            }
        }
    }

    /// What is sold at the places and capacity types that the pool allows.
    fn allowed<'s>(&self, supply: &'s RegionOfferings) -> impl Iterator<Item = (usize, CapacityType, &'s SizeSet)> {
        let here = self.regions.iter().all(|asked| asked.allows(Some(supply.region.as_str())));
        let [regional, zonal] = self.scope;
        let allows = |zone: &Zone| {
            let scope = if zone.is_regional() { regional } else { zonal };
            here && scope && self.zones.iter().all(|asked| asked.allows(Some(zone.as_str())))
        };
        let places = supply.zones.each_ref().map(allows);
        let [reserved, spot, on_demand] = self.capacity;
        let reserved = reserved && self.reserves;
        supply.offered().filter(move |(place, capacity_type, _)| {
            let capacity = match capacity_type {
                CapacityType::Reserved => reserved,
                CapacityType::Spot => spot,
                CapacityType::OnDemand => on_demand,
            };
            capacity && places.get(*place).is_some_and(|allowed| *allowed)
        })
    }
}

/// What holds in both.
fn intersect<const N: usize>(a: [bool; N], b: [bool; N]) -> [bool; N] {
    std::array::from_fn(|n| a[n] && b[n])
}
