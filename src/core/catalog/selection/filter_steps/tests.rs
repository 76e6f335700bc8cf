//! Selections against brute force over the embedded catalogue, and waterfalls of known pools.

use super::*;
use crate::catalog::{
    Catalog, InstanceTypeOptions, PoolRequirement, RegionCatalog, RegionOfferingsIndex, SizeSet, instance_types,
};
use crate::model::cluster::pool::NodeClass;
use crate::model::labels;
use crate::model::names::{NodeClassName, Uid};
use crate::model::requirements::{Operator, Requirement};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

static CATALOG: LazyLock<Arc<Catalog>> = LazyLock::new(|| Arc::new(Catalog::embedded().unwrap()));
static SUPPLIES: LazyLock<RegionOfferingsIndex> =
    LazyLock::new(|| RegionOfferingsIndex::of_catalog(&CATALOG, None, false));
/// With prices and without, with zones and without, large and small.
const REGIONS: [&str; 5] = ["westeurope", "westus", "taiwannorth", "westindia", "austriaeast"];
static CATALOGS: LazyLock<Vec<RegionCatalog>> =
    LazyLock::new(|| REGIONS.iter().map(|r| CATALOG.region(&Region::new(r).unwrap()).unwrap()).collect());

fn class() -> NodeClass {
    NodeClass::with_defaults(NodeClassName::new("default").unwrap(), Uid::new("u").unwrap())
}

fn any_class() -> impl Strategy<Value = NodeClass> {
    (any::<[bool; 7]>(), any::<bool>()).prop_map(|(flags, customized)| {
        let [linux, eah, launch, fips, drivers, dns, streaming] = flags;
        let mut class = class();
        if linux {
            class.image_family = "AzureLinux".into();
        }
        class.gpu_drivers = drivers;
        if customized {
            (class.encryption_at_host, class.trusted_launch, class.fips) = (eah, launch, fips);
            (class.local_dns, class.artifact_streaming) = (dns, streaming);
        }
        class
    })
}

/// Keys with values that make sense, and some that do not.
const VALUES: [(&str, &[&str]); 20] = [
    (labels::INSTANCE_TYPE, &["Standard_D4s_v5", "Standard_NC24ads_A100_v4", "Standard_D4ps_v5", "Standard_Nope"]),
    (labels::SKU_NAME, &["Standard_E8s_v5", "Standard_B2ms", "Standard_NV12s_v3"]),
    (labels::SKU_FAMILY, &["D", "E", "N", "B", "Z"]),
    (labels::SKU_SERIES, &["Ds_v5", "NCads_v4", "Dps_v5", "Das_v6"]),
    (labels::SKU_VERSION, &["1", "3", "5", "6"]),
    (labels::SKU_CPU, &["2", "4", "8", "64"]),
    (labels::AKS_SKU_CPU, &["2", "16"]),
    (labels::SKU_MEMORY, &["8192", "16384", "65536"]),
    (labels::SKU_GPU_COUNT, &["0", "1", "4"]),
    (labels::SKU_GPU_NAME, &["A100", "T4", "H100"]),
    (labels::SKU_GPU_MANUFACTURER, &["nvidia", "amd"]),
    (labels::SKU_EPHEMERAL_OS_MAX, &["75", "161", "644"]),
    (labels::SKU_PREMIUM_STORAGE, &["true", "false"]),
    (labels::ARCH, &["amd64", "arm64"]),
    (labels::ZONE, &["westeurope-1", "westeurope-2", "0", "westus-1", "austriaeast-3"]),
    (labels::CAPACITY_TYPE, &["spot", "on-demand"]),
    (labels::PLACEMENT_SCOPE, &["zonal", "regional"]),
    (labels::OS_SKU, &["Ubuntu", "AzureLinux"]),
    (labels::FIPS_ENABLED, &["true"]),
    ("example.com/team", &["a", "b"]),
];

fn any_entry() -> impl Strategy<Value = (&'static str, Requirement)> {
    let key = prop::sample::select(VALUES.to_vec());
    (key, prop::sample::select(Operator::ALL.to_vec()), any::<prop::sample::Index>(), 1..=3_usize).prop_map(
        |((key, values), operator, from, count)| {
            let from = from.index(values.len());
            let some: Vec<&str> = values.iter().cycle().skip(from).take(count).copied().collect();
            let requirement = match operator {
                Operator::Exists | Operator::DoesNotExist => Requirement::new::<&str>(operator, &[]),
                Operator::In | Operator::NotIn => Requirement::new(operator, &some),
                // A bound on a non-number is refused.
                _ => Requirement::new(operator, &some[..1]).or_else(|_| Requirement::new(operator, &["8"])),
            };
            (key, requirement.unwrap())
        },
    )
}

/// The sizes and the number of offerings, one instance type at a time.
fn by_force(region: &RegionCatalog, class: &NodeClass, entries: &[PoolRequirement<'_>]) -> (BTreeSet<String>, usize) {
    let (mut sizes, mut count) = (BTreeSet::new(), 0);
    for instance in instance_types(region, class, &InstanceTypeOptions::default()) {
        let of_size = entries.iter().all(|e| match e.key {
            labels::ZONE | labels::CAPACITY_TYPE | labels::PLACEMENT_SCOPE => true,
            key => instance.requirements.get(key).is_none_or(|offered| offered.intersects(e.requirement)),
        });
        let sold = instance.offerings.iter().filter(|o| {
            entries.iter().all(|e| {
                let scope = if o.zone.is_regional() { "regional" } else { "zonal" };
                match e.key {
                    labels::ZONE => e.requirement.allows(Some(o.zone.as_str())),
                    labels::CAPACITY_TYPE => e.requirement.allows(Some(o.capacity_type.as_str())),
                    labels::PLACEMENT_SCOPE => e.requirement.allows(Some(scope)),
                    _ => true,
                }
            })
        });
        let sold = sold.count();
        if of_size && sold > 0 {
            sizes.insert(instance.facts.name.to_string());
            count += sold;
        }
    }
    (sizes, count)
}

fn names(sizes: &SizeSet) -> BTreeSet<String> {
    sizes.iter().map(|i| SUPPLIES.index().sizes()[i].name.to_string()).collect()
}

fn entries<'a>(requirements: &'a [(&'static str, Requirement)]) -> Vec<PoolRequirement<'a>> {
    let entry =
        |(i, (key, requirement))| PoolRequirement { source: RequirementSource::Requirement(i), key, requirement };
    requirements.iter().map(|(key, requirement)| (*key, requirement)).enumerate().map(entry).collect()
}

fn supply(region: &str) -> &'static RegionOfferings {
    SUPPLIES.regions().find(|s| s.region.as_str() == region).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_selection_equals_that_of_brute_force(
        class in any_class(), requirements in prop::collection::vec(any_entry(), 0..4), region in 0..REGIONS.len(),
    ) {
        let entries = entries(&requirements);
        let pool = PoolRequirements { entries: &entries, class: &class };
        let (expected, offerings) = by_force(&CATALOGS[region], &class, &entries);
        let supply = supply(REGIONS[region]);
        let waterfall = Waterfall::new(SUPPLIES.index(), supply, pool, true);
        let last = waterfall.steps.last().unwrap();
        prop_assert_eq!((waterfall.left(), last.offerings), (expected.len(), offerings), "{}", waterfall);
        let is_sorted = waterfall.steps.is_sorted_by(|a, b| a.sizes >= b.sizes && a.offerings >= b.offerings);
        prop_assert!(is_sorted, "{}", waterfall);

        // Without restrictions and prices there can only be more sizes, including all available ones.
        let selection = Selection::new(SUPPLIES.index(), pool);
        let possible = selection.in_region(supply);
        prop_assert!(names(&possible).is_superset(&expected));
        prop_assert_eq!(selection.is_offered_in(supply), !possible.is_empty());
        prop_assert!(names(&supply.available(&possible)).is_superset(&expected));

        // Without the blocking step as many sizes remain as it reports, and no other step restores more.
        if let Some(blocking_step) = waterfall.blocking_step {
            prop_assert_eq!(waterfall.left(), 0);
            prop_assert!(blocking_step.sizes > 0);
            if let StepKind::Requirement { index, .. } = waterfall.steps[blocking_step.step].kind {
                let mut fewer = entries.clone();
                fewer.remove(index);
                let (back, _) = by_force(&CATALOGS[region], &class, &fewer);
                prop_assert_eq!(back.len(), blocking_step.sizes);
            }
        }
        for i in 0..if waterfall.left() == 0 { entries.len() } else { 0 } {
            let mut fewer = entries.clone();
            fewer.remove(i);
            let (back, _) = by_force(&CATALOGS[region], &class, &fewer);
            prop_assert!(back.len() <= waterfall.blocking_step.map_or(0, |c| c.sizes), "{}", waterfall);
        }
    }

    #[test]
    fn distinct_values_are_those_of_the_sizes(
        requirements in prop::collection::vec(any_entry(), 0..3), key in 0..14_usize,
    ) {
        let entries = entries(&requirements);
        let class = class();
        let (key, _) = VALUES[key];
        let selection = Selection::new(SUPPLIES.index(), PoolRequirements { entries: &entries, class: &class });
        let sizes = selection.in_region(supply("westeurope"));
        let value = |i: usize| {
            let facts = &SUPPLIES.index().sizes()[i];
            let labels = crate::catalog::instance_types::size_labels(facts);
            labels.into_iter().find(|(k, _)| *k == key).unwrap().1
        };
        let expected: BTreeSet<String> = sizes.iter().filter_map(value).collect();
        prop_assert_eq!(SUPPLIES.index().distinct(key, &sizes), Some(expected.len()));
    }
}

#[test]
fn a_waterfall_names_the_blocking_step() {
    let requirements = [
        (labels::SKU_FAMILY, Requirement::any_of(["D"])),
        (labels::SKU_GPU_COUNT, Requirement::new(Operator::Gt, &["0"]).unwrap()),
        (labels::ARCH, Requirement::any_of(["amd64"])),
    ];
    let entries = entries(&requirements);
    let class = class();
    let waterfall = Waterfall::new(
        SUPPLIES.index(),
        supply("westeurope"),
        PoolRequirements { entries: &entries, class: &class },
        false,
    );
    let left: Vec<usize> = waterfall.steps.iter().map(|s| s.sizes).collect();
    assert!(left[0] > left[1] && left[1] > 0 && left[2..].iter().all(|n| *n == 0), "{waterfall}");
    assert!(
        matches!(waterfall.most_restrictive_step().unwrap().kind, StepKind::Requirement { index: 1, .. }),
        "{waterfall}"
    );
    let text = waterfall.to_string();
    assert!(text.starts_with("westeurope\n sizes offerings\n"), "{text}");
    assert!(text.contains("requirements[1] karpenter.azure.com/sku-gpu-count Gte [1]  <- without it"), "{text}");
    let compact = waterfall.compact();
    assert!(compact.contains("after requirements[0] karpenter.azure.com/sku-family In [D]"), "{compact}");
    assert!(compact.contains("0 after requirements[1]") && !compact.contains("requirements[2]"), "{compact}");
}

#[test]
fn a_class_can_be_to_blame() {
    let requirements = [(labels::ARCH, Requirement::any_of(["arm64"]))];
    let entries = entries(&requirements);
    let mut class = class();
    class.trusted_launch = true;
    let waterfall = Waterfall::new(
        SUPPLIES.index(),
        supply("westeurope"),
        PoolRequirements { entries: &entries, class: &class },
        false,
    );
    assert_eq!(waterfall.left(), 0, "{waterfall}");
    // Either would help: amd64 restores more.
    assert!(
        matches!(waterfall.most_restrictive_step().unwrap().kind, StepKind::Requirement { index: 0, .. }),
        "{waterfall}"
    );
    assert!(waterfall.steps.iter().any(|s| s.kind == StepKind::Excluded(ExclusionReason::NoArm64Image)), "{waterfall}");
}

#[test]
fn a_size_beside_its_zones_is_offered_in_none_where_the_provider_does_so() {
    let requirements = [(labels::PLACEMENT_SCOPE, Requirement::any_of(["regional"]))];
    let entries = entries(&requirements);
    let class = class();
    let region = Region::new("westeurope").unwrap();
    for (beside, some) in [(true, true), (false, false)] {
        let supplies = RegionOfferingsIndex::of_catalog(&CATALOG, Some(&region), beside);
        let selection = Selection::new(supplies.index(), PoolRequirements { entries: &entries, class: &class });
        let supply = supplies.regions().next().unwrap();
        let d4 = supplies.index().position("Standard_D4s_v5").unwrap();
        assert_eq!(selection.in_region(supply).contains(d4), some);
    }
}
