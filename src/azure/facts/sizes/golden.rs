//! Compares recorded listings with an independent computation of every size.
//!
//! The listings are answers of the Resource SKUs API in their wire shape, without unused capabilities. The
//! table was computed from them by another program, with karpenter-provider-azure's formulas.

use super::tests::sku_rows;
use napkeeper_core::catalog::live::SkuRow;
use napkeeper_core::catalog::{Catalog, ExclusionReason, OfferedSize, SizeName, capacity, overhead};
use napkeeper_core::model::names::{Region, VmSize};

const TABLE: &str = include_str!("../fixtures/golden.csv");
const MIB: i64 = 1 << 20;
/// The threshold below which the kubelet evicts is part of our overhead, and not of the table's reservation.
const EVICTION: i64 = 750 * MIB;

fn listing(region: &str) -> Vec<SkuRow> {
    let page: &[u8] = match region {
        "southcentralus" => include_bytes!("../fixtures/skus-southcentralus.json"),
        "westcentralus" => include_bytes!("../fixtures/skus-westcentralus.json"),
        other => panic!("no listing of {other}"),
    };
    sku_rows(page, &Region::new(region).unwrap())
}

fn size(region: &str, name: &str) -> OfferedSize {
    let catalog = Catalog::embedded().unwrap();
    let gpus = |name: &VmSize| catalog.size(name).and_then(|facts| facts.gpu.clone());
    let row = listing(region).into_iter().find(|row| row.name == name).unwrap_or_else(|| panic!("{region} {name}"));
    row.read(&Region::new(region).unwrap(), gpus).unwrap()
}

/// The reasons why the size cannot be a node, in the words of the table.
fn verdict(size: &OfferedSize) -> String {
    let word = |reason: ExclusionReason| match reason {
        ExclusionReason::RefusedByAks => "AKS-restricted",
        ExclusionReason::TooFewCpus => "<2 vCPU",
        ExclusionReason::TooLittleMemory => "<3.5 GiB",
        ExclusionReason::ConstrainedCores => "constrained",
        ExclusionReason::Confidential => "confidential",
        _ => "another reason",
    };
    let all = [
        ExclusionReason::RefusedByAks,
        ExclusionReason::Restricted,
        ExclusionReason::TooFewCpus,
        ExclusionReason::TooLittleMemory,
        ExclusionReason::UnreadableName,
        ExclusionReason::UnsupportedGpu,
        ExclusionReason::ConstrainedCores,
        ExclusionReason::Confidential,
    ];
    let reasons: Vec<&str> = all
        .into_iter()
        .filter(|r| r.applies_to_size(&size.facts) || (*r == ExclusionReason::Restricted && size.restricted))
        .map(|r| if r == ExclusionReason::Restricted { "location-restricted" } else { word(r) })
        .collect();
    if reasons.is_empty() { "kept".to_owned() } else { reasons.join(", ") }
}

fn dash(text: String) -> String {
    if text.is_empty() { "—".to_owned() } else { text }
}

#[test]
fn every_recorded_size_matches_the_golden_table() {
    let mut rows = 0;
    for line in TABLE.lines().skip(1) {
        let columns: Vec<&str> = line.split('|').collect();
        let (region, name) = (columns[0], columns[1]);
        let size = size(region, name);
        let facts = &*size.facts;
        let (capacity, overhead) = (capacity(facts, 128, 110), overhead(facts));
        let left = capacity.minus(&overhead);
        let parsed = SizeName::parse(name).unwrap();
        let zones: Vec<&str> = size.zones.iter().map(|z| z.as_str().rsplit('-').next().unwrap()).collect();
        let ephemeral = facts.ephemeral.map(|d| format!("{} {}", d.gb, d.placement.as_str())).unwrap_or_default();
        let actual = [
            facts.vcpus.to_string(),
            format!("{} / {} / {}", parsed.family(), parsed.series(), parsed.version()),
            facts.memory_mib.to_string(),
            capacity.memory.to_string(),
            format!("{}m", overhead.cpu_millis),
            format!("{}Mi", (overhead.memory - EVICTION) / MIB),
            format!("{}m", left.cpu_millis),
            left.memory.to_string(),
            dash(ephemeral),
            dash(zones.join(",")),
            facts.spot_eligible.to_string().to_lowercase(),
            verdict(&size),
        ];
        let expected: Vec<String> =
            [2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14].iter().map(|i| columns[*i].to_owned()).collect();
        let expected: Vec<String> =
            expected.into_iter().map(|t| if t == "True" || t == "False" { t.to_lowercase() } else { t }).collect();
        assert_eq!(actual.to_vec(), expected, "{region} {name}");
        rows += 1;
    }
    assert_eq!(rows, 32);
    assert_eq!(listing("southcentralus").len() + listing("westcentralus").len(), rows, "no recorded size is left out");
}

#[test]
fn quota_families_keep_azures_spelling() {
    assert_eq!(&*size("southcentralus", "Standard_B20ms").facts.family, "standardBSFamily");
    assert_eq!(&*size("southcentralus", "Standard_D16plds_v5").facts.family, "standardDPLDSv5Family");
}
