//! NK2019, NK2020: OS disks and subnets that are too small for the nodes of the pools.

use crate::finding::Issue;
use crate::rules::azure as rules;
use crate::semantic::ManifestSet;
use crate::semantic::azure::requirements::{DeclaredRequirement, pool_requirements};
use crate::semantic::azure::sizes::pools;
use crate::semantic::facts::Facts;
use napkeeper_api::field_path::Path;
use napkeeper_api::manifests::Object;
use napkeeper_core::catalog::{PoolRequirements, Selection, SizeSet};
use napkeeper_core::model::cluster::pool::{NodeClass, NodePool};
use napkeeper_core::model::labels;
use napkeeper_core::model::requirements::{Operator, Requirement};
use serde_json::Value;
use std::collections::BTreeMap;

/// Addresses of a subnet that Azure keeps: network, gateway, two for DNS, broadcast.
const AZURE_RESERVED_ADDRESSES: u64 = 5;
/// With overlay networking, or with none, pods take no address of the subnet (see `InstanceTypeOptions`).
const OVERLAY_MAX_PODS: u32 = 250;

/// A pool and its requirements.
type PoolUse<'r> = (&'r NodePool, &'r [DeclaredRequirement]);

/// A class and the pools that use it.
struct NodeClassUse<'r> {
    class: &'r NodeClass,
    pools: &'r [PoolUse<'r>],
}

pub(super) fn check(set: &ManifestSet, facts: &Facts, found: &mut Vec<(usize, Issue)>) {
    let mut by_class: BTreeMap<(&str, &str), Vec<PoolUse<'_>>> = BTreeMap::new();
    for (at, pool, required) in pools(set) {
        by_class.entry((set.cluster_folder(at), pool.class.as_str())).or_default().push((pool, required));
    }
    for (at, retained) in set.objects.iter().enumerate() {
        let Object::NodeClass(class) = &retained.object else { continue };
        let Some(pools) = by_class.get(&(set.cluster_folder(at), class.name.as_str())) else { continue };
        let usage = NodeClassUse { class, pools };
        let issues = os_disk(&usage, facts).into_iter().chain(node_capacity(&usage, set, facts));
        found.extend(issues.map(|issue| (at, issue)));
    }
}

fn default_disk() -> u32 {
    u32::try_from(napkeeper_api::types::aks_node_class::DEFAULT_OS_DISK_GB).unwrap_or(128)
}

/// An OS disk that does not fit a size's local disk becomes a managed disk: slower, and paid for.
fn os_disk(usage: &NodeClassUse<'_>, facts: &Facts) -> Option<Issue> {
    let class = usage.class;
    if class.os_disk_gb == default_disk() {
        return None;
    }
    let index = facts.region_offerings.index();
    let has_disk = index.matching(labels::SKU_EPHEMERAL_OS_MAX, &Requirement::exists())?;
    let large = Requirement::new(Operator::Gte, &[class.os_disk_gb.to_string()]).ok()?;
    let large = index.matching(labels::SKU_EPHEMERAL_OS_MAX, &large)?;
    let mut sizes = SizeSet::none(index.sizes().len());
    for (pool, declared) in usage.pools {
        let entries = pool_requirements(pool, declared);
        let selection = Selection::new(index, PoolRequirements { entries: &entries, class });
        match facts.region().and_then(|_| facts.region_offerings.regions().next()) {
            Some(supply) => sizes.add(&selection.in_region(supply)),
            None => sizes.add(selection.sizes()),
        }
    }
    let (with_disk, fit) = (has_disk.intersection_len(&sizes), large.intersection_len(&sizes));
    // Sizes without a local disk have a managed OS disk anyway.
    if with_disk == 0 || fit * 2 >= with_disk {
        return None;
    }
    let message = format!(
        "{} GB fit the local disk of {fit} of the {with_disk} VM sizes with one that the pools using this class allow \
         (taking 37.5 GiB per vCPU): the others get a managed disk, which is slower and paid for",
        class.os_disk_gb
    );
    let fix = "set a smaller osDiskSizeGB, or require larger sizes in the pools".to_owned();
    Some(Issue::new(&rules::OS_DISK, &Path::from_dotted("spec.osDiskSizeGB"), message).fix(fix))
}

/// The subnet's addresses against the nodes that the pools may make.
fn node_capacity(usage: &NodeClassUse<'_>, set: &ManifestSet, facts: &Facts) -> Option<Issue> {
    let subnet = usage.class.subnet.as_deref()?;
    let cidr = cidr(subnet, set)?;
    let free = (1_u64 << (32 - u32::from(cidr.prefix_len()))).saturating_sub(AZURE_RESERVED_ADDRESSES);
    let overlay = facts.nodes.default_max_pods >= OVERLAY_MAX_PODS;
    let max_pods = usage.class.max_pods.unwrap_or(facts.nodes.default_max_pods);
    let of_node = if overlay { 1 } else { 1 + u64::from(max_pods) };
    let node_capacity = free / of_node;
    let nodes = |pool: &NodePool| {
        let limit = pool.limits.nodes.and_then(|n| u64::try_from(n).ok());
        pool.replicas.into_iter().chain(limit).min().unwrap_or(1)
    };
    let wanted: u64 = usage.pools.iter().map(|(pool, _)| nodes(pool)).sum();
    if wanted <= node_capacity {
        return None;
    }
    let message = format!(
        "{cidr} has {free} addresses, enough for {node_capacity} nodes with {of_node} each, but the pools using this class may \
         create {wanted}"
    );
    let fix = if overlay {
        "use a larger subnet, or lower limits.nodes of the pools"
    } else {
        "lower maxPods, use a larger subnet, or overlay networking, where pods use no subnet addresses"
    };
    Some(Issue::new(&rules::SUBNET_ROOM, &Path::from_dotted("spec.vnetSubnetID"), message).fix(fix.to_owned()))
}

/// The addresses of a subnet that is itself in the input, as an object of Azure Service Operator.
fn cidr(subnet: &str, set: &ManifestSet) -> Option<ipnet::Ipv4Net> {
    let name = subnet.rsplit('/').next()?;
    let mut objects = set.objects.iter().filter_map(|retained| retained.raw.as_deref());
    let named = |object: &&Value| {
        let azure_name = object["spec"]["azureName"].as_str().or_else(|| object["metadata"]["name"].as_str());
        object["kind"] == "VirtualNetworksSubnet" && azure_name.is_some_and(|n| n.eq_ignore_ascii_case(name))
    };
    let spec = &objects.find(named)?["spec"];
    let prefix = spec["addressPrefix"].as_str().or_else(|| spec["addressPrefixes"][0].as_str())?;
    prefix.parse().ok()
}
