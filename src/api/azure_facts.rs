//! The ConfigMap `napkeeper-facts`, in which the controller publishes what it reads from Azure.
//!
//! A ConfigMap with the format's version, the region, and one JSON text per fact: `asOf`, a later failure if any, and
//! the value. A fact that is missing or broken is unknown and does not affect the others. Amounts of money are nano-USD
//! per hour.

use jiff::Timestamp;
use napkeeper_core::catalog::live::{
    AzureFacts, CapacityReservation, Fact, FactKind, FetchFailure, ImageVersion, ListedSize, Lock, LockLevel,
    PriceList, Quota, QuotaUsage, SizeListing, SizePrices, SubnetAddresses,
};
use napkeeper_core::catalog::{Arch, EphemeralDisk, Gpu, OfferedSize, SizeFacts};
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::names::{ArmId, Region, VmSize, Zone};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Name of the ConfigMap.
pub const FACTS_CONFIG_MAP: &str = "napkeeper-facts";
/// The key of sizes that have vanished. It is part of the fact `sizes`; one that earlier versions do not read.
const VANISHED_SIZES: &str = "vanishedSizes";
/// The format's version. Another one is not read.
pub const FORMAT_VERSION: &str = "1";

/// A ConfigMap that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FactsError {
    /// It is of another format.
    #[error(
        "ConfigMap napkeeper-facts: unsupported version {0:?}, expected {FORMAT_VERSION:?}; is another version of napkeeper writing it?"
    )]
    Version(String),
    /// It does not name its region.
    #[error("ConfigMap napkeeper-facts: invalid region {0:?}")]
    Region(String),
}

/// The facts in the ConfigMap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedFacts {
    /// The region that all facts are of.
    pub region: Region,
    /// The facts.
    pub facts: AzureFacts,
    /// Facts whose last fetch failed.
    pub failing: BTreeMap<FactKind, FetchFailure>,
    /// Facts that cannot be parsed, with the reason.
    pub unreadable: Vec<String>,
}

/// One fact with its age, or why it could not be read.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DatedFact<T> {
    #[serde(skip_serializing_if = "Option::is_none")]
    as_of: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failing: Option<FailedFetch>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<T>,
}

#[derive(Debug, Serialize, Deserialize)]
struct FailedFetch {
    at: Timestamp,
    #[serde(rename = "why")]
    reason: Arc<str>,
    times: u32,
}

/// A size. False, zero and empty values are omitted.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Size {
    name: VmSize,
    family: Arc<str>,
    vcpus: u32,
    memory_mib: u64,
    arch: Arch,
    /// Its capabilities, by the names in [`FLAGS`].
    has: Vec<String>,
    disks: u32,
    nics: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    ephemeral: Option<EphemeralDisk>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu: Option<Gpu>,
    /// Numbers of its zones.
    zones: Vec<u8>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    restricted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing_since: Option<Timestamp>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Image {
    version: Arc<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    published_at: Option<Timestamp>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Subnet {
    id: ArmId,
    used: u64,
    usable: u64,
    /// The default for nodes whose AKSNodeClass names none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    default: bool,
}

/// VMs of a size that a group has reserved, in a zone or in none.
#[derive(Debug, Serialize, Deserialize)]
struct Reservation {
    group: ArmId,
    size: VmSize,
    zone: Zone,
    capacity: u64,
    used: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct WireLock {
    id: ArmId,
    level: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    notes: Option<Arc<str>>,
}

/// A flag of a size: its name, getter and setter.
type Flag = (&'static str, fn(&SizeFacts) -> bool, fn(&mut SizeFacts));

const FLAGS: [Flag; 6] = [
    ("gen1", |s| s.hyperv_v1, |s| s.hyperv_v1 = true),
    ("gen2", |s| s.hyperv_v2, |s| s.hyperv_v2 = true),
    ("acceleratedNetworking", |s| s.accelerated_networking, |s| s.accelerated_networking = true),
    ("premiumDisks", |s| s.premium_io, |s| s.premium_io = true),
    ("encryptionAtHost", |s| s.encryption_at_host, |s| s.encryption_at_host = true),
    ("spot", |s| s.spot_eligible, |s| s.spot_eligible = true),
];

impl PublishedFacts {
    /// The ConfigMap's data.
    #[must_use]
    pub fn data(&self) -> BTreeMap<String, String> {
        let known = &self.facts;
        let mut data = BTreeMap::from([
            ("version".to_owned(), FORMAT_VERSION.to_owned()),
            ("region".to_owned(), self.region.to_string()),
        ]);
        let sizes = known.sizes.as_ref().map(|f| (f.as_of, f.value.sizes.values().map(size_row).collect::<Vec<_>>()));
        self.insert(&mut data, FactKind::Sizes, sizes);
        let vanished = known.sizes.as_ref().map(|fact| &fact.value.vanished).filter(|vanished| !vanished.is_empty());
        let vanished = vanished.and_then(|vanished| serde_json::to_string(vanished).ok());
        data.extend(vanished.map(|text| (VANISHED_SIZES.to_owned(), text)));
        let prices = known.prices.as_ref().map(|f| (f.as_of, price_rows(&f.value)));
        self.insert(&mut data, FactKind::Prices, prices);
        let quota = known.quota.as_ref().map(|q| {
            let rows: BTreeMap<&str, (u64, u64)> = q.usages().map(|u| (&*u.name, (u.used, u.limit))).collect();
            (q.as_of, rows)
        });
        self.insert(&mut data, FactKind::Quota, quota);
        let image = |v: &ImageVersion| Image { version: Arc::clone(&v.version), published_at: v.published_at };
        let images = known.images.as_ref();
        let images =
            images.map(|f| (f.as_of, f.value.iter().map(|(n, v)| (&**n, image(v))).collect::<BTreeMap<_, _>>()));
        self.insert(&mut data, FactKind::Images, images);
        let subnet =
            |s: &SubnetAddresses| Subnet { id: s.id.clone(), used: s.used, usable: s.usable, default: s.is_default };
        let subnets = known.subnets.as_ref().map(|f| (f.as_of, f.value.iter().map(subnet).collect::<Vec<_>>()));
        self.insert(&mut data, FactKind::Subnets, subnets);
        let reservations = known.reservations.as_ref();
        let reservations = reservations.map(|f| (f.as_of, f.value.iter().map(reservation_row).collect::<Vec<_>>()));
        self.insert(&mut data, FactKind::Reservations, reservations);
        let locks = known.locks.as_ref().map(|f| (f.as_of, f.value.iter().map(lock_row).collect::<Vec<_>>()));
        self.insert(&mut data, FactKind::Locks, locks);
        data
    }

    /// Reads a ConfigMap's data.
    ///
    /// # Errors
    /// [`FactsError`] where it is of another version or region.
    pub fn read(data: &BTreeMap<String, String>) -> Result<Self, FactsError> {
        let text = |key: &str| data.get(key).map_or("", |text| text.trim());
        if text("version") != FORMAT_VERSION {
            return Err(FactsError::Version(text("version").to_owned()));
        }
        let region = Region::new(text("region")).map_err(|_| FactsError::Region(text("region").to_owned()))?;
        let mut read = Reading { data, failing: BTreeMap::new(), unreadable: Vec::new() };
        let vanished = read.read_vanished_sizes();
        let known = AzureFacts {
            sizes: read.read_fact(FactKind::Sizes, |rows: Vec<Size>| {
                let listed = rows.into_iter().map(|row| (row.name.clone(), listed(row, &region)));
                Arc::new(SizeListing { sizes: listed.collect(), vanished })
            }),
            prices: read.read_fact(FactKind::Prices, |rows| Arc::new(price_list(rows))),
            quota: read
                .read_fact(FactKind::Quota, |rows: BTreeMap<Arc<str>, (u64, u64)>| rows)
                .map(|Fact { as_of, value }| Arc::new(Quota::new(as_of, value.into_iter().map(usage)))),
            images: read.read_fact(FactKind::Images, |rows: BTreeMap<Arc<str>, Image>| {
                let version = |i: Image| ImageVersion { version: i.version, published_at: i.published_at };
                rows.into_iter().map(|(name, image)| (name, version(image))).collect()
            }),
            subnets: read.read_fact(FactKind::Subnets, |rows: Vec<Subnet>| {
                let room =
                    |s: Subnet| SubnetAddresses { id: s.id, used: s.used, usable: s.usable, is_default: s.default };
                rows.into_iter().map(room).collect()
            }),
            reservations: read.read_fact(FactKind::Reservations, |rows: Vec<Reservation>| {
                rows.into_iter().map(reservation).collect()
            }),
            locks: read.read_fact(FactKind::Locks, |rows: Vec<WireLock>| rows.into_iter().map(lock).collect()),
        };
        let Reading { failing, unreadable: broken, .. } = read;
        Ok(Self { region, facts: known, failing, unreadable: broken })
    }

    fn insert<T: Serialize>(&self, data: &mut BTreeMap<String, String>, kind: FactKind, fact: Option<(Timestamp, T)>) {
        let failing = self.failing.get(&kind).map(|f| FailedFetch {
            at: f.at,
            reason: Arc::clone(&f.reason),
            times: f.consecutive,
        });
        let (as_of, value) = fact.map_or((None, None), |(as_of, value)| (Some(as_of), Some(value)));
        let entry = DatedFact { as_of, failing, value };
        if entry.as_of.is_none() && entry.failing.is_none() {
            return;
        }
        // Only maps with non-string keys could fail, and there are none.
        if let Ok(text) = serde_json::to_string(&entry) {
            data.insert(kind.as_str().to_owned(), text);
        }
    }
}

/// An object while it is read, fact by fact.
struct Reading<'a> {
    data: &'a BTreeMap<String, String>,
    failing: BTreeMap<FactKind, FetchFailure>,
    unreadable: Vec<String>,
}

impl Reading<'_> {
    fn read_vanished_sizes(&mut self) -> BTreeMap<VmSize, Timestamp> {
        let text = self.data.get(VANISHED_SIZES).map_or("{}", String::as_str);
        serde_json::from_str(text).unwrap_or_else(|error| {
            self.unreadable.push(format!("{VANISHED_SIZES}: {error}"));
            BTreeMap::new()
        })
    }

    fn read_fact<W: DeserializeOwned, T>(&mut self, kind: FactKind, meant: impl FnOnce(W) -> T) -> Option<Fact<T>> {
        let text = self.data.get(kind.as_str())?;
        match serde_json::from_str::<DatedFact<W>>(text) {
            Err(error) => {
                self.unreadable.push(format!("{}: {error}", kind.as_str()));
                None
            }
            Ok(DatedFact { as_of, failing, value }) => {
                if let Some(FailedFetch { at, reason, times }) = failing {
                    self.failing.insert(kind, FetchFailure { at, reason, consecutive: times });
                }
                Some(Fact { as_of: as_of?, value: meant(value?) })
            }
        }
    }
}

fn size_row(listed: &ListedSize) -> Size {
    let (size, facts) = (&listed.size, &*listed.size.facts);
    let number = |zone: &Zone| zone.as_str().rsplit('-').next()?.parse().ok();
    Size {
        name: facts.name.clone(),
        family: Arc::clone(&facts.family),
        vcpus: facts.vcpus,
        memory_mib: facts.memory_mib,
        arch: facts.arch,
        has: FLAGS.iter().filter(|(_, has, _)| has(facts)).map(|(word, ..)| (*word).to_owned()).collect(),
        disks: facts.max_data_disks,
        nics: facts.max_nics,
        ephemeral: facts.ephemeral,
        gpu: facts.gpu.clone(),
        zones: size.zones.iter().filter_map(number).collect(),
        restricted: size.restricted,
        missing_since: listed.missing_since,
    }
}

fn listed(row: Size, region: &Region) -> ListedSize {
    let mut facts = SizeFacts {
        name: row.name,
        family: row.family,
        vcpus: row.vcpus,
        memory_mib: row.memory_mib,
        arch: row.arch,
        hyperv_v1: false,
        hyperv_v2: false,
        max_data_disks: row.disks,
        max_nics: row.nics,
        accelerated_networking: false,
        premium_io: false,
        ephemeral: row.ephemeral,
        encryption_at_host: false,
        spot_eligible: false,
        gpu: row.gpu,
    };
    // Names of a newer napkeeper are ignored.
    for (_, _, set) in FLAGS.iter().filter(|(word, ..)| row.has.iter().any(|has| has == word)) {
        set(&mut facts);
    }
    let zones = row.zones.into_iter().map(|n| Zone::of(region, n)).collect();
    let size = OfferedSize { facts: Arc::new(facts), zones, restricted: row.restricted, on_demand: None, spot: None };
    ListedSize { size, missing_since: row.missing_since }
}

/// Prices at full price and as spot, by size.
type PriceRows = BTreeMap<VmSize, (Option<HourlyPrice>, Option<HourlyPrice>)>;

fn price_rows(list: &PriceList) -> PriceRows {
    list.iter().map(|(size, prices)| (size.clone(), (prices.on_demand, prices.spot))).collect()
}

/// Prices of zero are ignored.
fn price_list(rows: PriceRows) -> PriceList {
    let known = |price: Option<HourlyPrice>| price.filter(|p| *p > HourlyPrice::ZERO);
    let prices = |(on_demand, spot)| SizePrices { on_demand: known(on_demand), spot: known(spot) };
    rows.into_iter().map(|(size, both)| (size, prices(both))).collect()
}

fn usage((name, (used, limit)): (Arc<str>, (u64, u64))) -> QuotaUsage {
    QuotaUsage { name, used, limit }
}

fn reservation_row(reservation: &CapacityReservation) -> Reservation {
    let CapacityReservation { group, size, zone, capacity, used } = reservation.clone();
    Reservation { group, size, zone, capacity, used }
}

fn reservation(row: Reservation) -> CapacityReservation {
    let Reservation { group, size, zone, capacity, used } = row;
    CapacityReservation { group, size, zone, capacity, used }
}

fn lock_row(lock: &Lock) -> WireLock {
    WireLock { id: lock.id.clone(), level: lock.level.as_str().to_owned(), notes: lock.notes.clone() }
}

fn lock(WireLock { id, level, notes }: WireLock) -> Lock {
    Lock { id, level: LockLevel::of(&level), notes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use napkeeper_core::catalog::{Catalog, EphemeralDiskPlacement};

    /// Most bytes of the data: below the object limit of etcd, with space for metadata.
    const MOST_BYTES: usize = 900 << 10;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn everything(region: &str) -> PublishedFacts {
        let region = Region::new(region).unwrap();
        let offered = Catalog::embedded().unwrap().region(&region).unwrap().sizes;
        let as_of = time("2026-11-21T20:00:00Z");
        let mut prices = PriceList::new();
        let mut sizes = BTreeMap::new();
        let vanished = BTreeMap::from([(VmSize::new("Standard_A1").unwrap(), as_of)]);
        for mut size in offered {
            let name = size.facts.name.clone();
            prices.insert(name.clone(), SizePrices { on_demand: size.on_demand.take(), spot: size.spot.take() });
            let mut facts = SizeFacts::clone(&size.facts);
            facts.ephemeral = Some(EphemeralDisk { gb: 429, placement: EphemeralDiskPlacement::Resource });
            size.facts = Arc::new(facts);
            sizes.insert(name, ListedSize { size, missing_since: Some(as_of) });
        }
        let usages =
            sizes.values().map(|l| QuotaUsage { name: Arc::clone(&l.size.facts.family), used: 100, limit: 350 });
        let quota = Arc::new(Quota::new(as_of, usages.collect::<Vec<_>>()));
        let id = |n: usize| ArmId::new(format!("/subscriptions/s/resourceGroups/g/providers/a/b/{n}")).unwrap();
        let subnets = (0..50).map(|n| SubnetAddresses { id: id(n), used: 4, usable: 251, is_default: true }).collect();
        let reserved = |n: u8| CapacityReservation {
            group: id(0),
            size: VmSize::new("Standard_D4s_v5").unwrap(),
            zone: if n == 0 { Zone::regional() } else { Zone::of(&region, n) },
            capacity: 9,
            used: 4,
        };
        let lock = |n| Lock { id: id(n), level: LockLevel::ReadOnly, notes: Some(Arc::from("by finance")) };
        let version = ImageVersion { version: Arc::from("202608.01.0"), published_at: Some(as_of) };
        let known = AzureFacts {
            sizes: Some(Fact { as_of, value: Arc::new(SizeListing { sizes, vanished }) }),
            quota: Some(quota),
            prices: Some(Fact { as_of, value: Arc::new(prices) }),
            images: Some(Fact { as_of, value: [(Arc::from("2204gen2containerd"), version)].into() }),
            subnets: Some(Fact { as_of, value: subnets }),
            reservations: Some(Fact { as_of, value: (0..200).map(reserved).collect() }),
            locks: Some(Fact { as_of, value: (0..20).map(lock).collect() }),
        };
        let failing = FetchFailure { at: as_of, reason: Arc::from("the price list answered 500"), consecutive: 3 };
        PublishedFacts { region, facts: known, failing: [(FactKind::Prices, failing)].into(), unreadable: Vec::new() }
    }

    #[test]
    fn written_facts_read_back() {
        let published = everything("westeurope");
        assert_eq!(PublishedFacts::read(&published.data()).unwrap(), published);
    }

    #[test]
    fn the_largest_region_fits_with_all_its_facts() {
        for region in Catalog::embedded().unwrap().regions() {
            let data = everything(region.as_str()).data();
            let bytes: usize = data.iter().map(|(key, text)| key.len() + text.len()).sum();
            // Text within JSON within a request: quotation marks are written as two bytes.
            let escaped = serde_json::to_string(&data).unwrap().len();
            assert!(escaped < MOST_BYTES, "{region}: {bytes} bytes, {escaped} as a request");
            if region.as_str() == "westeurope" {
                println!("westeurope: {bytes} bytes, {escaped} as a request");
            }
        }
    }

    #[test]
    fn a_broken_fact_is_unknown_and_the_others_are_not() {
        let published = everything("westeurope");
        let mut data = published.data();
        data.insert("quota".to_owned(), "{".to_owned());
        data.insert("fashion".to_owned(), "of a newer version".to_owned());
        let read = PublishedFacts::read(&data).unwrap();
        assert_eq!(read.facts.quota, None);
        assert!(read.unreadable[0].starts_with("quota: "), "{:?}", read.unreadable);
        assert_eq!(read.facts.sizes, published.facts.sizes);
        data.insert("version".to_owned(), "2".to_owned());
        assert_eq!(PublishedFacts::read(&data), Err(FactsError::Version("2".to_owned())));
        assert!(PublishedFacts::read(&BTreeMap::new()).is_err());
    }

    #[test]
    fn a_price_of_zero_is_unknown() {
        let entry = r#"{"asOf":"2026-11-21T20:00:00Z","value":{"Standard_D4s_v5":[0,38400000]}}"#;
        let data = [("version", FORMAT_VERSION), ("region", "westeurope"), ("prices", entry)];
        let data = data.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let prices = PublishedFacts::read(&data).unwrap().facts.prices.unwrap().value;
        let spot = Some(HourlyPrice::from_nanos(38_400_000));
        assert_eq!(prices.values().next(), Some(&SizePrices { on_demand: None, spot }));
    }
}
