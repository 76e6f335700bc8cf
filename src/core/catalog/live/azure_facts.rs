//! All Azure facts of a region, and the catalogue that is built from them.

use super::{CapacityReservation, ImageVersion, PriceList, PriceSheet, Quota, SizeListing, SubnetAddresses};
use crate::catalog::{Month, OfferedSize, RegionCatalog};
use crate::model::names::{ArmId, VmSize};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A fact and its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact<T> {
    /// When Azure was queried.
    pub as_of: Timestamp,
    /// Azure's answer.
    pub value: T,
}

/// All facts of a cluster's region and subscription. `None` was never known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AzureFacts {
    /// The sizes, without prices.
    pub sizes: Option<Fact<Arc<SizeListing>>>,
    /// Quotas of cores.
    pub quota: Option<Arc<Quota>>,
    /// Retail prices in USD.
    pub prices: Option<Fact<Arc<PriceList>>>,
    /// The newest version of each image definition, by its name.
    pub images: Option<Fact<BTreeMap<Arc<str>, ImageVersion>>>,
    /// Subnets that nodes are in.
    pub subnets: Option<Fact<Vec<SubnetAddresses>>>,
    /// Reservations of the groups that AKSNodeClasses name.
    pub reservations: Option<Fact<Vec<CapacityReservation>>>,
    /// Locks of the node resource group, and of its resources.
    pub locks: Option<Fact<Vec<Lock>>>,
}

/// What is known about the node resource group and its region. For orphans none of it is evidence: where it is unknown or stale, a
/// sweep deletes less or in another order, and nodes are launched that Azure may refuse.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InfrastructureFacts {
    /// Addresses of the subnets that nodes are in.
    pub subnets: Option<Fact<Vec<SubnetAddresses>>>,
    /// Reservations of the groups that AKSNodeClasses name.
    pub reservations: Option<Fact<Vec<CapacityReservation>>>,
    /// Locks of the node resource group, and of its resources.
    pub locks: Vec<Lock>,
    /// VM sizes that Azure does not list any more, and since when.
    pub vanished_sizes: Option<Fact<BTreeMap<VmSize, Timestamp>>>,
}

impl AzureFacts {
    /// The facts about the node resource group and its region, without sizes that can be had.
    #[must_use]
    pub fn infrastructure(&self) -> InfrastructureFacts {
        InfrastructureFacts {
            subnets: self.subnets.clone(),
            reservations: self.reservations.clone(),
            locks: self.locks.as_ref().map(|fact| fact.value.clone()).unwrap_or_default(),
            vanished_sizes: self
                .sizes
                .as_ref()
                .map(|fact| Fact { as_of: fact.as_of, value: fact.value.vanished.clone() }),
        }
    }
}

/// A lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    /// The lock's own id; the locked scope is the part before `/providers/Microsoft.Authorization/`.
    pub id: ArmId,
    /// What it forbids.
    pub level: LockLevel,
    /// Its notes.
    pub notes: Option<Arc<str>>,
}

impl Lock {
    /// True when it forbids deleting a resource: it is on the resource, or on its group or subscription.
    #[must_use]
    pub fn covers(&self, resource: &ArmId) -> bool {
        let scope = self.id.folded().split("/providers/microsoft.authorization/").next().unwrap_or_default();
        let rest = resource.folded().strip_prefix(scope);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// What a lock forbids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockLevel {
    /// To delete.
    CanNotDelete,
    /// To change anything.
    ReadOnly,
}

impl LockLevel {
    /// As Azure spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CanNotDelete => "CanNotDelete",
            Self::ReadOnly => "ReadOnly",
        }
    }

    /// The level of a name. `NotSpecified` is in Azure's schema too; an unknown level is treated as the stricter one.
    #[must_use]
    pub fn of(name: &str) -> Self {
        if name.eq_ignore_ascii_case(Self::CanNotDelete.as_str()) { Self::CanNotDelete } else { Self::ReadOnly }
    }
}

/// Where an answer about sizes and prices came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FactSource {
    /// From Azure at that time.
    Live(Timestamp),
    /// It is part of this program, with data of that month.
    Embedded(Month),
}

impl FactSource {
    /// For example `live, 12 min old` or `embedded, 2026-08`.
    #[must_use]
    pub fn describe(self, now: Timestamp) -> String {
        match self {
            Self::Live(as_of) => format!("live, {} old", format_age(as_of, now)),
            Self::Embedded(month) => format!("embedded, {month}"),
        }
    }
}

impl fmt::Display for FactSource {
    /// With the instant instead of the age.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Live(as_of) => write!(f, "live as of {:.0}", as_of),
            Self::Embedded(month) => write!(f, "embedded, {month}"),
        }
    }
}

/// An age in one unit: `40 s`, `12 min`, `3 h`, `9 d`.
#[must_use]
pub fn format_age(as_of: Timestamp, now: Timestamp) -> String {
    let secs = now.duration_since(as_of).as_secs().max(0);
    match secs {
        0..120 => format!("{secs} s"),
        120..7_200 => format!("{} min", secs / 60),
        7_200..172_800 => format!("{} h", secs / 3_600),
        _ => format!("{} d", secs / 86_400),
    }
}

/// The region's catalogue by the facts. Sizes and prices that Azure has not listed come from the embedded catalogue;
/// the customer's own prices are applied last.
#[must_use]
pub fn catalog_from_facts(known: &AzureFacts, embedded: &RegionCatalog, sheet: &PriceSheet) -> RegionCatalog {
    let mut sizes: Vec<OfferedSize> = match &known.sizes {
        Some(listing) => listing.value.sizes.values().map(|listed| listed.size.clone()).collect(),
        None => embedded.sizes.clone(),
    };
    for size in &mut sizes {
        let listed = known.prices.as_ref().and_then(|prices| prices.value.get(&size.facts.name));
        let embedded = || embedded.size(&size.facts.name).map(|s| (s.on_demand, s.spot));
        let (on_demand, spot) =
            listed.map(|prices| (prices.on_demand, prices.spot)).or_else(embedded).unwrap_or_default();
        (size.on_demand, size.spot) = (on_demand, spot);
    }
    sizes.sort_by(|a, b| a.facts.name.cmp(&b.facts.name));
    sheet.applied(RegionCatalog { region: embedded.region.clone(), sizes })
}

impl AzureFacts {
    /// The names of sizes that the last listing lacked and that are still believed in.
    pub fn missing(&self) -> impl Iterator<Item = (&VmSize, Timestamp)> {
        self.sizes.iter().flat_map(|listing| listing.value.missing())
    }

    /// Where sizes come from.
    #[must_use]
    pub fn sizes_from(&self, embedded: Month) -> FactSource {
        self.sizes.as_ref().map_or(FactSource::Embedded(embedded), |fact| FactSource::Live(fact.as_of))
    }

    /// Where prices come from.
    #[must_use]
    pub fn prices_from(&self, embedded: Month) -> FactSource {
        self.prices.as_ref().map_or(FactSource::Embedded(embedded), |fact| FactSource::Live(fact.as_of))
    }
}

#[cfg(test)]
mod tests {
    use super::super::SizePrices;
    use super::*;
    use crate::catalog::Catalog;
    use crate::catalog::live::SheetLine;
    use crate::fixtures::start;
    use crate::model::amounts::money::HourlyPrice;
    use crate::model::names::Region;
    use jiff::SignedDuration;
    use std::collections::BTreeSet;

    #[test]
    fn facts_take_precedence_and_the_embedded_catalogue_fills_the_gaps() {
        let embedded = Catalog::embedded().unwrap().region(&Region::new("westeurope").unwrap()).unwrap();
        let sheet = PriceSheet::default();
        assert_eq!(catalog_from_facts(&AzureFacts::default(), &embedded, &sheet), embedded);

        let priced = embedded.sizes.iter().filter(|s| s.spot.is_some()).take(2).cloned().collect::<Vec<_>>();
        let listing = SizeListing::default().merge(priced.clone(), &BTreeSet::new(), 1, start()).unwrap();
        let lowest = HourlyPrice::from_nanos(1);
        let of_first = SizePrices { on_demand: Some(lowest), spot: None };
        let prices = PriceList::from([(priced[0].facts.name.clone(), of_first)]);
        let known = AzureFacts {
            sizes: Some(Fact { as_of: start(), value: Arc::new(listing) }),
            prices: Some(Fact { as_of: start(), value: Arc::new(prices) }),
            ..AzureFacts::default()
        };
        let catalog = catalog_from_facts(&known, &embedded, &sheet);
        let prices_of = |i: usize| (catalog.sizes[i].on_demand, catalog.sizes[i].spot);
        assert_eq!(prices_of(0), (Some(lowest), None), "the list knows it, and knows no spot price");
        assert_eq!(prices_of(1), (priced[1].on_demand, priced[1].spot), "the list does not know it");
        let line = |number, text: &str| SheetLine { number, fields: text.split(',').map(str::to_owned).collect() };
        let half = PriceSheet::of([line(1, "region,size,capacityType,discountPercent"), line(2, "*,*,*,50")]).unwrap();
        let halved = catalog_from_facts(&known, &embedded, &half).sizes[1].on_demand.unwrap().nanos();
        assert_eq!(halved, priced[1].on_demand.unwrap().nanos() / 2);
    }

    #[test]
    fn ages_are_shown_in_one_unit() {
        let month = Month { year: 2026, month: 8 };
        let later = |secs| FactSource::Live(start()).describe(start() + SignedDuration::from_secs(secs));
        assert_eq!([later(-5), later(119), later(720)], ["live, 0 s old", "live, 119 s old", "live, 12 min old"]);
        assert_eq!([later(7_200), later(200_000)], ["live, 2 h old", "live, 2 d old"]);
        assert_eq!(FactSource::Embedded(month).describe(start()), "embedded, 2026-08");
    }
}
