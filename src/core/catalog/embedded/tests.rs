//! The embedded data, whole and broken.

use super::*;
use crate::catalog::SizeName;
use proptest::prelude::*;

#[test]
fn the_embedded_catalogue_is_whole() {
    let catalog = Catalog::embedded().unwrap();
    assert_eq!(catalog.as_of().to_string(), "2026-08");
    assert_eq!(Catalog::embedded_as_of(), Ok(catalog.as_of()));
    assert_eq!(catalog.sizes().len(), 1467);
    assert_eq!(catalog.regions().count(), 45);
    let regions: Vec<RegionCatalog> = catalog.regions().map(|r| catalog.region(r).unwrap()).collect();
    assert_eq!(regions.iter().map(|r| r.sizes.len()).sum::<usize>(), 44_607);
    assert!(DATA.len() <= 400_000, "{}", DATA.len());
}

#[test]
fn facts_and_prices_are_those_of_the_tables() {
    let catalog = Catalog::embedded().unwrap();
    let name = VmSize::new("Standard_NC24ads_A100_v4").unwrap();
    let facts = catalog.size(&name).unwrap();
    assert_eq!((facts.vcpus, facts.memory_mib, facts.arch), (24, 225_280, Arch::Amd64));
    assert_eq!(&*facts.family, "StandardNCADSA100v4Family");
    let gpu = facts.gpu.as_ref().unwrap();
    assert_eq!((&*gpu.manufacturer, &*gpu.model, gpu.count), ("nvidia", "A100", 1));

    let region = catalog.region(&Region::new("australiacentral").unwrap()).unwrap();
    let size = region.size(&VmSize::new("Standard_A2m_v2").unwrap()).unwrap();
    assert_eq!(size.on_demand, Some(HourlyPrice::from_nanos(138_000_000)));
    assert_eq!(size.spot, Some(HourlyPrice::from_nanos(25_502_000)));
    assert!(size.zones.is_empty() && !size.restricted && size.facts.vcpus == 2);
}

#[test]
fn every_size_name_can_be_taken_apart() {
    for size in Catalog::embedded().unwrap().sizes() {
        let name = SizeName::parse(size.name.as_str()).unwrap();
        let vcpus = name.constrained().unwrap_or_else(|| name.vcpus());
        // Old A, D, G and F names count sizes, not vCPUs; of newer ones a few are named after the whole host.
        if name.version() >= "3" && name.family() == "D" {
            assert_eq!(vcpus, size.vcpus, "{}", size.name);
        }
    }
}

#[test]
fn a_misspelt_region_is_recognised() {
    let catalog = Catalog::embedded().unwrap();
    for (text, meant) in [
        ("West Europe", Some("westeurope")),
        ("westeuope", Some("westeurope")),
        ("estus2", Some("eastus2")),
        ("mars", None),
    ] {
        assert_eq!(catalog.nearest_region(text).map(Region::as_str), meant, "{text}");
    }
}

#[test]
fn a_truncated_catalogue_is_refused() {
    for length in (0..DATA.len()).step_by(997).chain([DATA.len() - 1]) {
        assert!(Catalog::decode(&DATA[..length]).is_err(), "{length}");
    }
    let error = Catalog::decode(&DATA[..100]).unwrap_err().to_string();
    assert!(error.contains("families at byte"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_corrupt_catalogue_never_panics(changes in prop::collection::vec((0..DATA.len(), any::<u8>()), 1..8)) {
        let mut data = DATA.to_vec();
        for (at, byte) in changes {
            data[at] = byte;
        }
        if let Ok(catalog) = Catalog::decode(&data) {
            let sizes: usize = catalog.regions().filter_map(|r| catalog.region(r)).map(|r| r.sizes.len()).sum();
            prop_assert!(sizes > 0);
        }
    }

    #[test]
    fn random_bytes_never_panic(data in prop::collection::vec(any::<u8>(), 0..200)) {
        let with_magic = [b"NKC1".as_slice(), &data].concat();
        prop_assert!(Catalog::decode(&data).is_err());
        if let Ok(catalog) = Catalog::decode(&with_magic) {
            prop_assert!(catalog.sizes().len() < 200);
        }
    }
}
