//! Selection of the sizes that satisfy a NodePool and its class.
//!
//! The same answer as [`crate::catalog::instance_types`] filtered by the pool's requirements, without making an
//! instance type of any size: each requirement becomes a set of sizes, or a condition on zone and capacity type.

pub(in crate::catalog) mod exclusion;
pub(in crate::catalog) mod filter_steps;

use crate::catalog::instance_types::os_sku;
use crate::catalog::region::offerings::ZONE_SLOTS;
use crate::catalog::{CapacityType, ExclusionReason, RegionOfferings, SizeIndex, SizeSet, names_reserved};
use crate::model::cluster::pool::NodeClass;
use crate::model::labels;
use crate::model::names::Zone;
use crate::model::requirements::Requirement;

/// The requirements of a NodePool, in order, and its class.
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
    /// Where the pool has it.
    pub source: RequirementSource,
    /// The label, under its current key.
    pub key: &'a str,
    /// The requirement on it.
    pub requirement: &'a Requirement,
}

/// The source of a NodePool's requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequirementSource {
    /// In `requirements`, at this index.
    Requirement(usize),
    /// In the labels of its template.
    Label,
}

/// The effect of one selection step.
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
    /// Keeps sizes with a known price.
    Priced,
    /// Keeps sizes that are not restricted.
    Unrestricted,
    /// The label does not affect sizes, as those that a pool sets on its nodes.
    None,
}

/// The origin of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::catalog) enum FilterOrigin {
    /// An entry, by its index.
    Entry(usize),
    /// A reason of the size, the class or the region.
    Reason(ExclusionReason),
}

/// The steps of a selection. When `sure`, restrictions and unknown prices count too.
pub(in crate::catalog) fn steps<'a>(
    index: &'a SizeIndex,
    requirements: PoolRequirements<'a>,
    sure: bool,
) -> Vec<(FilterOrigin, FilterEffect<'a>)> {
    let of_entry =
        |(i, entry): (usize, &PoolRequirement<'a>)| (FilterOrigin::Entry(i), effect(index, requirements.class, entry));
    let entries = requirements.entries.iter().enumerate().map(of_entry);
    let reasons = index
        .exclusions(requirements.class)
        .map(|(reason, sizes)| (FilterOrigin::Reason(reason), FilterEffect::Drop(sizes)));
    let offers =
        [(ExclusionReason::NoPrice, FilterEffect::Priced), (ExclusionReason::Restricted, FilterEffect::Unrestricted)];
    let offers = offers.into_iter().filter(|_| sure).map(|(reason, effect)| (FilterOrigin::Reason(reason), effect));
    entries.chain(reasons).chain(offers).collect()
}

fn effect<'a>(index: &SizeIndex, class: &NodeClass, entry: &PoolRequirement<'a>) -> FilterEffect<'a> {
    let requirement = entry.requirement;
    let allows = |value: &str| requirement.allows(Some(value));
    let unless = |holds: bool| match holds {
        true => FilterEffect::None,
        false => FilterEffect::Keep(SizeSet::none(index.sizes().len())),
    };
    match entry.key {
        labels::ZONE => FilterEffect::Zone(requirement),
        labels::REGION => FilterEffect::Region(requirement),
        labels::CAPACITY_TYPE => FilterEffect::CapacityTypes(CapacityType::ALL.map(|c| allows(c.as_str()))),
        labels::PRIORITY | labels::SCALE_SET_PRIORITY => {
            FilterEffect::CapacityTypes(CapacityType::ALL.map(|c| allows(c.priority())))
        }
        labels::PLACEMENT_SCOPE => FilterEffect::Scope([allows("regional"), allows("zonal")]),
        labels::MODE => unless(allows("system") || allows("user")),
        labels::OS_SKU => unless(allows(os_sku(class))),
        labels::FIPS_ENABLED => unless(requirement.allows(class.fips.then_some("true"))),
        key => index.matching(key, requirement).map_or(FilterEffect::None, FilterEffect::Keep),
    }
}

/// The sizes that satisfy a NodePool in any region, and its requirements on zone and capacity type.
#[derive(Debug, Clone)]
pub struct Selection<'a> {
    sizes: SizeSet,
    capacity: [bool; 3],
    /// The pool names reserved capacity, and its class a group of it. Which sizes are in that is not known here: any
    /// may be.
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
    pub fn new(index: &'a SizeIndex, requirements: PoolRequirements<'a>) -> Self {
        let all = Self::unfiltered(index, requirements);
        steps(index, requirements, false).iter().fold(all, |all, (_, effect)| all.after(effect))
    }

    /// The requirements of the NodePool alone, without its class and AKS.
    #[must_use]
    pub fn from_requirements(index: &'a SizeIndex, requirements: PoolRequirements<'a>) -> Self {
        let of_entry = |entry| effect(index, requirements.class, entry);
        let all = Self::unfiltered(index, requirements);
        requirements.entries.iter().map(of_entry).fold(all, |all, effect| all.after(&effect))
    }

    /// No condition at all.
    pub(in crate::catalog) fn unfiltered(index: &SizeIndex, requirements: PoolRequirements<'_>) -> Self {
        let named =
            |entry: &PoolRequirement<'_>| entry.key == labels::CAPACITY_TYPE && names_reserved(entry.requirement);
        let reserves = requirements.class.reservations.is_some() && requirements.entries.iter().any(named);
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

    /// The selection after one more step.
    pub(in crate::catalog) fn after(mut self, effect: &FilterEffect<'a>) -> Self {
        match effect {
            FilterEffect::Keep(sizes) => self.sizes.retain_all(sizes),
            FilterEffect::Drop(sizes) => self.sizes.remove_all(sizes),
            FilterEffect::CapacityTypes(allowed) => self.capacity = intersect(self.capacity, *allowed),
            FilterEffect::Scope(allowed) => self.scope = intersect(self.scope, *allowed),
            FilterEffect::Zone(requirement) => self.zones.push(requirement),
            FilterEffect::Region(requirement) => self.regions.push(requirement),
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

    /// The sizes of a region that satisfy the pool.
    #[must_use]
    pub fn in_region(&self, supply: &RegionOfferings) -> SizeSet {
        let mut found = self.sizes.emptied();
        self.for_each_offered(supply, |sizes_in_zone| found.add(sizes_in_zone));
        self.narrow(supply, found)
    }

    /// True when some size of a region satisfies the pool.
    #[must_use]
    pub fn is_offered_in(&self, supply: &RegionOfferings) -> bool {
        !self.in_region(supply).is_empty()
    }

    /// How many sizes, and how many offerings (size, zone and capacity type), of a region satisfy the pool.
    pub(in crate::catalog) fn count(&self, supply: &RegionOfferings) -> (usize, usize) {
        let sizes = self.in_region(supply);
        let mut offerings = 0;
        self.for_each_offered(supply, |sizes_in_zone| offerings += sizes_in_zone.intersection_len(&sizes));
        (sizes.len(), offerings)
    }

    /// The values of zone or capacity type that a region has for some sizes of this selection; `None` for other keys.
    #[must_use]
    pub fn distinct_offers(&self, key: &str, supply: &RegionOfferings) -> Option<usize> {
        let mut zones = [false; ZONE_SLOTS];
        let mut types = [false; 3];
        let sizes = self.in_region(supply);
        for (zone, capacity_type, sizes_in_zone) in self.allowed(supply) {
            let any = sizes_in_zone.intersects(&sizes);
            if let Some(seen) = zones.get_mut(zone) {
                *seen |= any;
            }
            if let Some(seen) = types.get_mut(capacity_type as usize) {
                *seen |= any;
            }
        }
        let count = |seen: &[bool]| seen.iter().filter(|s| **s).count();
        match key {
            labels::ZONE => Some(count(&zones)),
            labels::CAPACITY_TYPE | labels::PRIORITY | labels::SCALE_SET_PRIORITY => Some(count(&types)),
            labels::REGION => Some(count(&zones).min(1)),
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
        for (_, capacity_type, sizes_in_zone) in self.allowed(supply) {
            // Possible reservations are not counted beside on-demand.
            if capacity_type == CapacityType::Reserved && on_demand {
                continue;
            }
            if self.priced && capacity_type == CapacityType::Spot {
                let mut sizes_in_zone = sizes_in_zone.clone();
                sizes_in_zone.retain_all(spot_price);
                each(&sizes_in_zone);
            } else {
                each(sizes_in_zone);
            }
        }
    }

    /// Offered sizes, by the zones and capacity types that the pool allows.
    fn allowed<'s>(&self, supply: &'s RegionOfferings) -> impl Iterator<Item = (usize, CapacityType, &'s SizeSet)> {
        let region_allowed = self.regions.iter().all(|requirement| requirement.allows(Some(supply.region.as_str())));
        let [regional, zonal] = self.scope;
        let allows = |zone: &Zone| {
            let scope = if zone.is_regional() { regional } else { zonal };
            region_allowed && scope && self.zones.iter().all(|requirement| requirement.allows(Some(zone.as_str())))
        };
        let allowed_zones = supply.zones.each_ref().map(allows);
        let [reserved, spot, on_demand] = self.capacity;
        let reserved = reserved && self.reserves;
        supply.offered().filter(move |(zone, capacity_type, _)| {
            let capacity = match capacity_type {
                CapacityType::Reserved => reserved,
                CapacityType::Spot => spot,
                CapacityType::OnDemand => on_demand,
            };
            capacity && allowed_zones.get(*zone).is_some_and(|allowed| *allowed)
        })
    }
}

/// Element-wise AND.
fn intersect<const N: usize>(a: [bool; N], b: [bool; N]) -> [bool; N] {
    std::array::from_fn(|n| a[n] && b[n])
}
