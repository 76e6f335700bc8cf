//! VM sizes on sale, quota usages and locks, as ARM lists them.

use crate::cloud::Cloud;
use jiff::Timestamp;
use napkeeper_core::catalog::{Arch, EphemeralDisk, EphemeralDiskPlacement, OfferingKey, SizeFacts};
use napkeeper_core::model::names::{VmSize, Zone};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Shown as the limit of an unlimited quota: no usage reaches it.
const UNLIMITED: u32 = 1_000_000;

/// `Microsoft.Compute/skus`: every VM size of the region, and one type of disk, so that callers must check the type.
pub(in crate::arm) fn skus(cloud: &Cloud, filter: Option<&str>, now: Timestamp) -> Vec<Value> {
    let region = cloud.settings().region.as_str();
    // The one filter that Azure supports: location eq 'x'.
    let elsewhere = filter.is_some_and(|filter| !filter.to_ascii_lowercase().contains(&format!("'{region}'")));
    if elsewhere {
        return Vec::new();
    }
    let disk = json!({
        "resourceType": "disks", "name": "Premium_LRS", "tier": "Premium", "size": "P10", "locations": [region],
        "locationInfo": [{ "location": region, "zones": ["1", "2", "3"], "zoneDetails": [] }],
        "capabilities": [], "restrictions": [],
    });
    let mut zones: BTreeMap<&VmSize, BTreeSet<&str>> = BTreeMap::new();
    for OfferingKey { size, zone, .. } in cloud.settings().prices.keys().filter(|key| !key.zone.is_regional()) {
        zones.entry(size).or_default().insert(zone_number(zone));
    }
    let sizes = cloud.settings().sizes.values();
    sizes.map(|facts| sku(cloud, facts, zones.get(&facts.name), now)).chain([disk]).collect()
}

/// One size; `zones` are the numbers of the zones in which it has a price.
fn sku(cloud: &Cloud, facts: &SizeFacts, zones: Option<&BTreeSet<&str>>, now: Timestamp) -> Value {
    let region = cloud.settings().region.as_str();
    let name = facts.name.as_str();
    let (tier, size) = name.split_once('_').unwrap_or(("Standard", name));
    json!({
        "resourceType": "virtualMachines",
        "name": name,
        "tier": tier,
        "size": size,
        "family": &*facts.family,
        "locations": [region],
        "locationInfo": [{ "location": region, "zones": zones.into_iter().flatten().collect::<Vec<_>>(), "zoneDetails": [] }],
        "capabilities": capabilities(facts),
        "restrictions": restrictions(cloud, facts, now),
    })
}

/// `2` of `westeurope-2`.
pub(in crate::arm) fn zone_number(zone: &Zone) -> &str {
    zone.as_str().rsplit('-').next().unwrap_or_default()
}

fn capabilities(facts: &SizeFacts) -> Value {
    let generations = [("V1", facts.hyperv_v1), ("V2", facts.hyperv_v2)];
    let generations: Vec<&str> = generations.iter().filter(|(_, has)| *has).map(|(name, _)| *name).collect();
    let flag = |on: bool| if on { "True".to_owned() } else { "False".to_owned() };
    let arch = match facts.arch {
        Arch::Amd64 => "x64",
        Arch::Arm64 => "Arm64",
    };
    let mut all = vec![
        ("vCPUs", facts.vcpus.to_string()),
        ("vCPUsAvailable", facts.vcpus.to_string()),
        ("MemoryGB", gigabytes(facts.memory_mib)),
        ("MaxDataDiskCount", facts.max_data_disks.to_string()),
        ("MaxNetworkInterfaces", facts.max_nics.to_string()),
        ("CpuArchitectureType", arch.to_owned()),
        ("HyperVGenerations", generations.join(",")),
        ("LowPriorityCapable", flag(facts.spot_eligible)),
        ("PremiumIO", flag(facts.premium_io)),
        ("AcceleratedNetworkingEnabled", flag(facts.accelerated_networking)),
        ("EphemeralOSDiskSupported", flag(facts.ephemeral.is_some())),
        ("EncryptionAtHostSupported", flag(facts.encryption_at_host)),
    ];
    all.extend(facts.ephemeral.into_iter().flat_map(local_disk));
    if let Some(gpu) = &facts.gpu {
        all.push(("GPUs", gpu.count.to_string()));
    }
    all.into_iter().map(|(name, value)| json!({ "name": name, "value": value })).collect()
}

/// The capabilities of a local disk; its size is the least that is read as [`EphemeralDisk::gb`].
fn local_disk(disk: EphemeralDisk) -> Vec<(&'static str, String)> {
    let bytes = disk.gb * 1_000_000_000;
    let mib = bytes.div_ceil(1 << 20).to_string();
    let placements = ("SupportedEphemeralOSDiskPlacements", disk.placement.as_str().to_owned());
    match disk.placement {
        EphemeralDiskPlacement::Nvme => vec![("NvmeDiskSizeInMiB", mib), placements],
        EphemeralDiskPlacement::Cache => vec![("CachedDiskBytes", bytes.to_string()), placements],
        EphemeralDiskPlacement::Resource => vec![("MaxResourceVolumeMB", mib), placements],
    }
}

/// Memory as Azure writes it: GiB, with a fraction only where there is one (`3.5`).
fn gigabytes(mib: u64) -> String {
    let thousandths = mib % 1024 * 1000 / 1024;
    let fraction = format!("{thousandths:03}");
    match fraction.trim_end_matches('0') {
        "" => (mib / 1024).to_string(),
        digits => format!("{}.{digits}", mib / 1024),
    }
}

fn restrictions(cloud: &Cloud, facts: &SizeFacts, now: Timestamp) -> Value {
    let region = cloud.settings().region.as_str();
    let short = cloud.faults.refused.iter().filter(|shortage| shortage.restricts(&facts.name, now));
    let restriction = |zone: &Option<Zone>| match zone {
        None => json!({
            "type": "Location", "values": [region], "reasonCode": "NotAvailableForSubscription",
            "restrictionInfo": { "locations": [region] },
        }),
        Some(zone) => json!({
            "type": "Zone", "values": [region], "reasonCode": "NotAvailableForSubscription",
            "restrictionInfo": { "locations": [region], "zones": [zone_number(zone)] },
        }),
    };
    short.map(|shortage| restriction(&shortage.zone)).collect()
}

/// `Microsoft.Compute/locations/{location}/usages`: cores used and allowed.
pub(in crate::arm) fn usages(cloud: &Cloud) -> Value {
    let (usage, limits) = (cloud.usage(), &cloud.limits);
    let entry = |name: &str, shown: &str, current: u32, limit: Option<u32>| {
        json!({
            "unit": "Count", "currentValue": current, "limit": limit.unwrap_or(UNLIMITED),
            "name": { "value": name, "localizedValue": shown },
        })
    };
    let families: BTreeSet<_> = cloud.settings().sizes.values().map(|facts| &facts.family).collect();
    let families = families.into_iter().map(|family| {
        let current = usage.families.get(family).copied().unwrap_or(0);
        let shown = format!("{family} vCPUs");
        entry(family, &shown, current, limits.families.get(family).copied())
    });
    let whole = [
        entry("cores", "Total Regional vCPUs", usage.regional, limits.regional),
        entry("lowPriorityCores", "Total Regional Low-priority vCPUs", usage.spot, limits.spot),
    ];
    json!({ "value": whole.into_iter().chain(families).collect::<Vec<_>>() })
}

/// `Microsoft.Authorization/locks` of the group.
pub(in crate::arm) fn locks(cloud: &Cloud, now: Timestamp) -> Value {
    let locked = cloud.faults.deletes_locked_until.is_some_and(|end| now < end);
    let lock = json!({
        "id": format!("{}/providers/Microsoft.Authorization/locks/no-delete", cloud.settings().group),
        "name": "no-delete",
        "type": "Microsoft.Authorization/locks",
        "properties": { "level": "CanNotDelete" },
    });
    json!({ "value": if locked { vec![lock] } else { Vec::new() } })
}
