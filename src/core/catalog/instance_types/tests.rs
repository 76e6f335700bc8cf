//! Instance types of real regions.

use super::*;
use crate::catalog::Catalog;
use crate::model::names::{NodeClassName, Uid, VmSize};

/// A class with default settings.
pub(in crate::catalog) fn class() -> NodeClass {
    NodeClass::with_defaults(NodeClassName::new("default").unwrap(), Uid::new("u-1").unwrap())
}

fn types(region: &str) -> Vec<Arc<InstanceType>> {
    let region = Region::new(region).unwrap();
    let region = Catalog::embedded().unwrap().region(&region).unwrap();
    instance_types(&region, &class(), &InstanceTypeOptions::default())
}

fn find<'a>(types: &'a [Arc<InstanceType>], name: &str) -> &'a InstanceType {
    let name = VmSize::new(name).unwrap();
    types.iter().find(|t| t.facts.name == name).unwrap()
}

#[test]
fn westeurope_offers_hundreds_of_types_and_d4s_v5_in_three_zones() {
    let types = types("westeurope");
    assert!(types.len() > 400, "{}", types.len());
    for t in &types {
        assert!(!t.offerings.is_empty() && t.offerings.is_sorted_by_key(|o| o.price), "{}", t.facts.name);
        assert!(t.offerings.iter().all(|o| o.price.nanos() > 0), "{}", t.facts.name);
        assert!(t.allocatable.memory > 0 && t.allocatable.cpu_millis > 0, "{}", t.facts.name);
    }
    let d4 = find(&types, "Standard_D4s_v5");
    let zones: Vec<&str> = d4.requirements.get(labels::ZONE).unwrap().values().unwrap().iter().map(|z| &**z).collect();
    assert_eq!(zones, ["westeurope-1", "westeurope-2", "westeurope-3"]);
    assert_eq!(d4.offerings.len(), 6);
    assert_eq!(d4.offerings.first().unwrap().capacity_type, CapacityType::Spot);
    assert_eq!((d4.capacity.pods, d4.capacity.ephemeral_storage), (250, 128_000_000_000));
}

#[test]
fn a_node_costs_its_vm_and_its_os_disk() {
    let region = Catalog::embedded().unwrap().region(&Region::new("westeurope").unwrap()).unwrap();
    let usd = |text| HourlyPrice::parse_usd(text).unwrap();
    let listed = InstanceTypeOptions::default();
    let own = InstanceTypeOptions { os_disk_price: Some(usd("0.02")), per_node: usd("1"), ..listed };
    let small = NodeClass { os_disk_gb: 64, ..class() };
    for (name, class, options, disk) in [
        ("Standard_D4s_v5", class(), listed, "0.027"),
        ("Standard_D4s_v5", small, listed, "0.013986301"),
        ("Standard_D4s_v5", class(), own, "0.02"),
        ("Standard_D4ds_v5", class(), listed, "0"),
        ("Standard_D4ds_v5", class(), own, "0"),
    ] {
        let types = instance_types(&region, &class, &options);
        let found = find(&types, name);
        assert_eq!(found.costs, NodeCosts { os_disk: usd(disk), per_node: options.per_node }, "{name}");
        assert!(
            found.offerings.iter().all(|o| found.node_price(o) == o.price + usd(disk)),
            "{name}: perNode is no price"
        );
    }
    let d4 = VmSize::new("Standard_D4s_v5").unwrap();
    let zones = ReservedZones::from([(d4, BTreeSet::from([Zone::new("westeurope-1").unwrap()]))]);
    let types = with_reserved(instance_types(&region, &class(), &listed), &zones);
    let reserved = find(&types, "Standard_D4s_v5");
    let cheapest = reserved.offerings.iter().min_by_key(|offering| reserved.node_price(offering)).unwrap();
    assert_eq!(cheapest.capacity_type, CapacityType::Reserved, "reserved capacity is used first");
}

#[test]
fn a_size_that_cannot_be_spot_is_sold_on_demand_only() {
    let name = VmSize::new("Standard_D4s_v5").unwrap();
    let region = Region::new("westeurope").unwrap();
    let mut region = Catalog::embedded().unwrap().region(&region).unwrap();
    region.sizes.retain(|s| s.facts.name == name);
    let size = region.sizes.first_mut().unwrap();
    size.facts = Arc::new(SizeFacts { spot_eligible: false, ..SizeFacts::clone(&size.facts) });
    let types = instance_types(&region, &class(), &InstanceTypeOptions::default());
    let sold: Vec<CapacityType> = types[0].offerings.iter().map(|o| o.capacity_type).collect();
    assert_eq!(sold, [CapacityType::OnDemand; 3]);
}

#[test]
fn every_region_with_prices_offers_types() {
    let catalog = Catalog::embedded().unwrap();
    for name in catalog.regions() {
        let region = catalog.region(name).unwrap();
        let types = instance_types(&region, &class(), &InstanceTypeOptions::default());
        let priced = region.sizes.iter().any(|s| s.on_demand.is_some());
        assert_eq!(!types.is_empty(), priced, "{name}");
        assert!(types.len() > 100 || !priced || region.sizes.len() < 300, "{name} {}", types.len());
    }
}

#[test]
fn a_size_is_regional_only_where_it_has_no_zones() {
    let zonal = types("westeurope");
    for t in &zonal {
        let regional = t.offerings.iter().filter(|o| o.zone.is_regional()).count();
        assert!(regional == 0 || regional == t.offerings.len(), "{}", t.facts.name);
    }
    assert!(types("westcentralus").iter().flat_map(|t| &t.offerings).all(|o| o.zone.is_regional()));
}

#[test]
fn the_labels_of_every_offering_satisfy_the_requirements_of_its_type() {
    for region in ["westeurope", "westcentralus"] {
        for t in types(region) {
            for offering in &t.offerings {
                let labels = node_labels(&t, offering);
                assert!(t.requirements.satisfied_by(&labels), "{} {offering:?}", t.facts.name);
            }
        }
    }
}

#[test]
fn a_gpu_node_is_labelled_as_upstream_labels_it() {
    let types = types("westus3");
    let a100 = find(&types, "Standard_NC24ads_A100_v4");
    let labels = node_labels(a100, a100.offerings.last().unwrap());
    for (key, value) in [
        (labels::SKU_FAMILY, "N"),
        (labels::SKU_SERIES, "NCads_v4"),
        (labels::SKU_VERSION, "4"),
        (labels::SKU_CPU, "24"),
        (labels::SKU_MEMORY, "225280"),
        (labels::SKU_GPU_NAME, "A100"),
        (labels::SKU_GPU_MANUFACTURER, "nvidia"),
        (labels::SKU_GPU_COUNT, "1"),
        (labels::CAPACITY_TYPE, "on-demand"),
        (labels::PRIORITY, "regular"),
        (labels::SCALE_SET_PRIORITY, "regular"),
        (labels::PLACEMENT_SCOPE, "zonal"),
        (labels::OS_SKU, "Ubuntu"),
        (labels::MODE, "user"),
        (labels::REGION, "westus3"),
        (labels::ARCH, "amd64"),
    ] {
        assert_eq!(labels.get(key).map(|v| &**v), Some(value), "{key}");
    }
    assert_eq!(a100.capacity.extended("nvidia.com/gpu"), 1);
    let plain = find(&types, "Standard_D4s_v3");
    let mut requirements = Requirements::new();
    requirements.add(labels::SKU_GPU_NAME, Requirement::exists());
    assert!(a100.requirements.compatible(&requirements, labels::is_well_known).is_ok());
    assert!(plain.requirements.compatible(&requirements, labels::is_well_known).is_err());
}
