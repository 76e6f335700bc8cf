//! Instance types that a region offers to an AKSNodeClass, with the labels of their nodes.

pub(in crate::catalog) mod instance_type;

use crate::catalog::selection::exclusion::is_azure_linux;
use crate::catalog::{
    CapacityType, InstanceType, NodeCosts, OFFERED, OfferedSize, Offering, RegionCatalog, SizeFacts, SizeName,
    capacity, exclusion_reason, offered, os_disk_price, overhead, reserved_price,
};
use crate::model::amounts::money::HourlyPrice;
use crate::model::cluster::pod::Labels;
use crate::model::cluster::pool::NodeClass;
use crate::model::labels;
use crate::model::names::{Region, VmSize, Zone};
use crate::model::requirements::{Requirement, Requirements};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Cluster-wide settings of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstanceTypeOptions {
    /// Most pods on a node where the class says nothing: 250 with overlay networking or none, 30 with Azure CNI
    /// without overlay, 110 otherwise (upstream's `pkg/utils/utils.go`).
    pub default_max_pods: u32,
    /// Nodes are launched by napkeeper itself: a class that sets unsupported fields has no sizes, so that none is
    /// silently ignored.
    pub self_managed: bool,
    /// What each node counts beside its bill where plans are compared.
    pub per_node: HourlyPrice,
    /// The price of a managed OS disk, whatever its size; `None` is the list price.
    pub os_disk_price: Option<HourlyPrice>,
}

impl InstanceTypeOptions {
    /// Default of [`Self::per_node`]: half a cent per hour, the list price of a public IPv4 address of the Standard SKU
    /// (`Standard IPv4 Static Public IP`, $3.65 per 730 h). DaemonSets are not in it: their requests are subtracted from
    /// what each node holds.
    pub const DEFAULT_PER_NODE: HourlyPrice = HourlyPrice::from_nanos(5_000_000);

    /// What a node of a size costs beside its VM, for an `osDiskSizeGB` of `gib`.
    fn node_costs(&self, facts: &SizeFacts, gib: u32) -> NodeCosts {
        let list_price = os_disk_price(facts, gib);
        let own = self.os_disk_price.filter(|_| list_price > HourlyPrice::ZERO);
        NodeCosts { os_disk: own.unwrap_or(list_price), per_node: self.per_node }
    }
}

impl Default for InstanceTypeOptions {
    /// Overlay networking, as Node Auto-Provisioning has it.
    fn default() -> Self {
        Self { default_max_pods: 250, self_managed: false, per_node: Self::DEFAULT_PER_NODE, os_disk_price: None }
    }
}

/// The sizes of a region that can be nodes of a class, sorted by name. [`exclusion_reason`] tells why a size is
/// missing.
///
/// A size without zones in the region has one regional offering per capacity type; a size with zones has none beside
/// its zonal ones, unlike upstream: a regional VM serves neither pods that spread over zones nor zonal disks.
#[must_use]
pub fn instance_types(
    region: &RegionCatalog,
    class: &NodeClass,
    options: &InstanceTypeOptions,
) -> Vec<Arc<InstanceType>> {
    let max_pods = class.max_pods.unwrap_or(options.default_max_pods);
    if options.self_managed && !class.unhonoured.is_empty() {
        return Vec::new();
    }
    region
        .sizes
        .iter()
        .filter(|size| exclusion_reason(size, class).is_none())
        .map(|size| {
            let offerings = offerings(size);
            let capacity = capacity(&size.facts, class.os_disk_gb, max_pods);
            let costs = options.node_costs(&size.facts, class.os_disk_gb);
            Arc::new(InstanceType {
                requirements: requirements(&size.facts, &offerings, &region.region, class),
                allocatable: capacity.minus(&overhead(&size.facts)),
                capacity,
                offerings,
                facts: Arc::clone(&size.facts),
                costs,
            })
        })
        .collect()
}

/// Where some of each size is reserved.
pub type ReservedZones = BTreeMap<VmSize, BTreeSet<Zone>>;

/// Instance types with offerings of reserved capacity. A reservation does not add sizes that a class excludes.
#[must_use]
pub fn with_reserved(types: Vec<Arc<InstanceType>>, reserved_zones: &ReservedZones) -> Vec<Arc<InstanceType>> {
    let reserve = |instance: Arc<InstanceType>| match reserved_zones.get(&instance.facts.name) {
        Some(zones) => Arc::new(reserved(&instance, zones)),
        None => instance,
    };
    types.into_iter().map(reserve).collect()
}

fn reserved(instance: &InstanceType, zones: &BTreeSet<Zone>) -> InstanceType {
    let mut instance = instance.clone();
    let full = instance.offerings.iter().find(|o| o.capacity_type == CapacityType::OnDemand).map(|o| o.price);
    let price = reserved_price(full.unwrap_or_default());
    let capacity_type = CapacityType::Reserved;
    instance.offerings.extend(zones.iter().map(|zone| Offering { zone: zone.clone(), capacity_type, price }));
    sort(&mut instance.offerings);
    OFFERED.iter().for_each(|key| drop(instance.requirements.remove(key)));
    add_offered(&mut instance.requirements, &instance.offerings);
    instance
}

/// The labels of a node of an offering, beside those of its NodePool and NodeClaim. The mode is `user`, which a
/// NodeClaim that requires `system` overrides.
#[must_use]
pub fn node_labels(instance: &InstanceType, offering: &Offering) -> Labels {
    let mut all: Labels = instance
        .requirements
        .iter()
        .filter_map(|(key, requirement)| Some((Arc::clone(key), Arc::clone(requirement.single()?))))
        .collect();
    let decided = |key| Some((key, offered(key, offering.capacity_type, Some(&offering.zone))?));
    for (key, value) in OFFERED.into_iter().filter_map(decided).chain([(labels::MODE, "user")]) {
        all.insert(labels::interned(key), Arc::from(value));
    }
    all
}

/// Every zone at every capacity type with a known price, cheapest first; spot first among equals.
fn offerings(size: &OfferedSize) -> Vec<Offering> {
    let regional = [Zone::regional()];
    let zones = if size.zones.is_empty() { &regional[..] } else { &size.zones };
    let spot = size.spot.filter(|_| size.facts.spot_eligible);
    let prices = [(CapacityType::Spot, spot), (CapacityType::OnDemand, size.on_demand)];
    let mut offerings: Vec<Offering> = prices
        .into_iter()
        .filter_map(|(capacity_type, price)| Some((capacity_type, price?)))
        .flat_map(|(capacity_type, price)| {
            zones.iter().map(move |zone| Offering { zone: zone.clone(), capacity_type, price })
        })
        .collect();
    sort(&mut offerings);
    offerings
}

fn sort(offerings: &mut [Offering]) {
    offerings.sort_by(|a, b| (a.price, a.capacity_type, &a.zone).cmp(&(b.price, b.capacity_type, &b.zone)));
}

fn add_offered(all: &mut Requirements, offerings: &[Offering]) {
    for key in OFFERED {
        let values = offerings.iter().filter_map(|o| offered(key, o.capacity_type, Some(&o.zone)));
        all.add(key, Requirement::any_of(values));
    }
}

/// The labels that nodes of a size may have. Those that a size never has are required to be absent, so that no pod
/// that requires them is placed on such a node.
pub(in crate::catalog) fn requirements(
    facts: &SizeFacts,
    offerings: &[Offering],
    region: &Region,
    class: &NodeClass,
) -> Requirements {
    let mut all = Requirements::new();
    add_offered(&mut all, offerings);
    all.add(labels::MODE, Requirement::any_of(["system", "user"]));

    all.add(labels::REGION, Requirement::any_of([region.as_str()]));
    all.add(labels::OS_SKU, Requirement::any_of([os_sku(class)]));
    let fips = class.fips.then(|| "true".to_owned());
    for (key, value) in size_labels(facts).into_iter().chain([(labels::FIPS_ENABLED, fips)]) {
        all.add(key, value.map_or_else(Requirement::does_not_exist, |v| Requirement::any_of([v])));
    }
    all
}

/// The value of `os-sku` that nodes of a class have.
pub(in crate::catalog) fn os_sku(class: &NodeClass) -> &'static str {
    if is_azure_linux(class) { "AzureLinux" } else { "Ubuntu" }
}

/// The labels that nodes of a size have, in any region and of any class; `None` for one that they lack.
pub(in crate::catalog) fn size_labels(facts: &SizeFacts) -> [(&'static str, Option<String>); 17] {
    let name = SizeName::parse(facts.name.as_str()).ok();
    let gpu = facts.gpu.as_ref();
    let accelerator = name.and_then(|n| n.accelerator()).filter(|_| gpu.is_some());
    let text = |value: &str| Some(value.to_owned());
    [
        (labels::INSTANCE_TYPE, text(facts.name.as_str())),
        (labels::SKU_NAME, text(facts.name.as_str())),
        (labels::ARCH, text(facts.arch.as_str())),
        (labels::OS, text("linux")),
        (labels::SKU_CPU, Some(facts.vcpus.to_string())),
        (labels::AKS_SKU_CPU, Some(facts.vcpus.to_string())),
        (labels::SKU_MEMORY, Some(facts.memory_mib.to_string())),
        (labels::AKS_SKU_MEMORY, Some(facts.memory_mib.to_string())),
        (labels::SKU_ACCELERATED_NETWORKING, text(yes_no(facts.accelerated_networking))),
        (labels::SKU_PREMIUM_STORAGE, text(yes_no(facts.premium_io))),
        (labels::SKU_GPU_COUNT, Some(gpu.map_or(0, |g| g.count).to_string())),
        (labels::SKU_FAMILY, name.map(|n| n.family().to_owned())),
        (labels::SKU_SERIES, name.map(|n| n.series())),
        (labels::SKU_VERSION, name.map(|n| n.version().to_owned())),
        (labels::SKU_GPU_NAME, accelerator.map(str::to_owned)),
        (labels::SKU_GPU_MANUFACTURER, gpu.map(|g| g.manufacturer.to_string())),
        (labels::SKU_EPHEMERAL_OS_MAX, facts.ephemeral.map(|local| local.gb.to_string())),
    ]
}

fn yes_no(yes: bool) -> &'static str {
    if yes { "true" } else { "false" }
}

#[cfg(test)]
pub(in crate::catalog) mod tests;
