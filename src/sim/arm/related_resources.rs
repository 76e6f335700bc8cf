//! JSON of related resources: agent pools, Machines, scale sets, snapshots, public IPs, load balancers.
//!
//! Shapes are those of the examples in Azure's published API definitions: Machines of `Microsoft.ContainerService`
//! 2025-07-01 (with tags and states for a preview version), scale sets and snapshots of `Microsoft.Compute`,
//! public IPs and load balancers of `Microsoft.Network` 2024-05-01.

use super::facts::skus::zone_number;
use crate::cloud::{Cloud, ListedKind, pool_of};
use jiff::Timestamp;
use napkeeper_core::model::azure::cloud::ProvisioningState;
use napkeeper_core::model::azure::related::{RelatedDetail, RelatedResource};
use napkeeper_core::model::names::ArmId;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Listings of bystanders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RelatedListing {
    /// Agent pools of the cluster.
    Pools,
    /// Machines of a pool, by its folded name.
    Machines(String),
    /// Scale sets of the group.
    ScaleSets,
    /// Instances of a scale set, by its folded name.
    Instances(String),
    /// Snapshots.
    Snapshots,
    /// Public IP addresses.
    PublicIps,
    /// Load balancers.
    LoadBalancers,
}

impl RelatedListing {
    /// The listing that lies below the group.
    pub(super) fn of_group(rest: &[&str]) -> Option<Self> {
        match rest {
            ["microsoft.compute", "virtualmachinescalesets"] => Some(Self::ScaleSets),
            ["microsoft.compute", "virtualmachinescalesets", set, "virtualmachines"] => {
                Some(Self::Instances((*set).to_owned()))
            }
            ["microsoft.compute", "snapshots"] => Some(Self::Snapshots),
            ["microsoft.network", "publicipaddresses"] => Some(Self::PublicIps),
            ["microsoft.network", "loadbalancers"] => Some(Self::LoadBalancers),
            _ => None,
        }
    }

    /// The kind that lags and fails together.
    pub(super) fn kind(&self) -> ListedKind {
        match self {
            Self::Pools | Self::Machines(_) => ListedKind::Machines,
            Self::ScaleSets | Self::Instances(_) => ListedKind::ScaleSets,
            Self::Snapshots => ListedKind::Snapshots,
            Self::PublicIps => ListedKind::PublicIps,
            Self::LoadBalancers => ListedKind::LoadBalancers,
        }
    }

    /// Everything on the list, as JSON; `None` where what should hold it does not exist.
    pub(super) fn items(&self, cloud: &Cloud, version: &str, now: Timestamp) -> Option<Vec<Value>> {
        let shown = cloud.listed_related(self.kind(), now);
        match self {
            Self::Pools => Some(cloud.pools(now).iter().map(|name| pool(cloud, name)).collect()),
            Self::Machines(pool) => {
                let exists = cloud.pools(now).contains(pool);
                let of_pool = shown.iter().filter(|machine| pool_of(&machine.id) == Some(pool));
                exists.then(|| of_pool.filter_map(|m| machine(cloud, m, version)).collect())
            }
            Self::ScaleSets => {
                let sets: BTreeMap<_, _> =
                    shown.iter().filter_map(|i| Some((set_of(i)?.folded().to_owned(), i))).collect();
                Some(sets.values().filter_map(|instance| scale_set(cloud, instance)).collect())
            }
            Self::Instances(set) => {
                let of_set =
                    |i: &&Arc<RelatedResource>| set_of(i).is_some_and(|id| id.name().eq_ignore_ascii_case(set));
                Some(shown.iter().filter(of_set).filter_map(|i| instance(cloud, i)).collect())
            }
            Self::Snapshots => Some(shown.iter().filter_map(|one| snapshot(cloud, one)).collect()),
            Self::PublicIps => Some(shown.iter().filter_map(|one| public_ip(cloud, one)).collect()),
            Self::LoadBalancers => Some(load_balancers(cloud, &shown)),
        }
    }
}

fn head(cloud: &Cloud, id: &ArmId, of: &str) -> Value {
    json!({
        "id": id.as_str(),
        "name": id.name(),
        "type": of,
        "location": cloud.settings().region.as_str(),
    })
}

fn pool(cloud: &Cloud, name: &str) -> Value {
    let cluster = cloud.settings().managed_by.as_ref().map(ArmId::as_str).unwrap_or_default();
    json!({
        "id": format!("{cluster}/agentPools/{name}"),
        "name": name,
        "type": "Microsoft.ContainerService/managedClusters/agentPools",
        "properties": { "count": 1, "vmSize": "Standard_D4s_v5", "type": "VirtualMachineScaleSets", "mode": "System",
                        "provisioningState": "Succeeded", "powerState": { "code": "Running" } },
    })
}

/// A Machine. The published API has its VM; previews have tags and states too.
pub(super) fn machine(cloud: &Cloud, one: &RelatedResource, version: &str) -> Option<Value> {
    let RelatedDetail::AksMachine { vm, state } = &one.detail else { return None };
    let mut shown = json!({
        "id": one.id.as_str(),
        "name": one.id.name(),
        "type": "Microsoft.ContainerService/managedClusters/agentPools/machines",
        "properties": { "network": { "ipAddresses": [{ "family": "IPv4", "ip": "10.224.0.4" }] } },
    });
    let properties = &mut shown["properties"];
    if let Some(vm) = vm {
        properties["resourceId"] = vm.as_str().into();
    }
    if version.ends_with("-preview") {
        properties["tags"] = json!(one.tags);
        properties["provisioningState"] = word(*state).into();
        if let Some(at) = one.created_at {
            properties["status"] = json!({ "creationTimestamp": at.to_string(), "vmState": "Running" });
        }
        if let Some(zone) = vm.as_ref().and_then(|vm| cloud.resources().get(vm)?.zone.as_ref()) {
            shown["zones"] = json!([zone_number(zone)]);
        }
    }
    Some(shown)
}

fn word(state: ProvisioningState) -> &'static str {
    match state {
        ProvisioningState::Creating => "Creating",
        ProvisioningState::Succeeded => "Succeeded",
        ProvisioningState::Failed => "Failed",
        ProvisioningState::Deleting => "Deleting",
    }
}

/// The scale set of an instance.
fn set_of(instance: &RelatedResource) -> Option<ArmId> {
    let words: Vec<&str> = instance.id.as_str().split('/').collect();
    ArmId::new(words.get(..words.len().checked_sub(2)?)?.join("/")).ok()
}

fn scale_set(cloud: &Cloud, instance: &RelatedResource) -> Option<Value> {
    let mut shown = head(cloud, &set_of(instance)?, "Microsoft.Compute/virtualMachineScaleSets");
    shown["sku"] = json!({ "name": "Standard_D4s_v5", "tier": "Standard", "capacity": 1 });
    shown["properties"] =
        json!({ "provisioningState": "Succeeded", "orchestrationMode": "Uniform", "overprovision": false });
    Some(shown)
}

fn instance(cloud: &Cloud, one: &RelatedResource) -> Option<Value> {
    let RelatedDetail::ScaleSetInstance { nics, disks } = &one.detail else { return None };
    let mut shown = head(cloud, &one.id, "Microsoft.Compute/virtualMachineScaleSets/virtualMachines");
    shown["tags"] = json!(one.tags);
    shown["instanceId"] = one.id.name().into();
    let nics: Vec<Value> = nics
        .iter()
        .enumerate()
        .map(|(n, id)| json!({ "id": id.as_str(), "properties": { "primary": n == 0 } }))
        .collect();
    let mut storage = json!({ "dataDisks": [] });
    if let Some((os, data)) = disks.split_first() {
        storage["osDisk"] = json!({ "name": os.name(), "osType": "Linux", "createOption": "FromImage", "managedDisk": { "id": os.as_str() } });
        let data = data.iter().enumerate().map(|(lun, id)| {
            json!({ "lun": lun, "name": id.name(), "createOption": "Attach", "managedDisk": { "id": id.as_str() } })
        });
        storage["dataDisks"] = data.collect();
    }
    shown["properties"] = json!({
        "provisioningState": "Succeeded",
        "networkProfile": { "networkInterfaces": nics },
        "storageProfile": storage,
    });
    if let Some(at) = one.created_at {
        shown["properties"]["timeCreated"] = at.to_string().into();
    }
    Some(shown)
}

fn snapshot(cloud: &Cloud, one: &RelatedResource) -> Option<Value> {
    let RelatedDetail::Snapshot { source, in_progress } = &one.detail else { return None };
    let mut shown = head(cloud, &one.id, "Microsoft.Compute/snapshots");
    shown["tags"] = json!(one.tags);
    let mut creation = json!({ "createOption": "Copy" });
    if let Some(source) = source {
        creation["sourceResourceId"] = source.as_str().into();
    }
    shown["properties"] = json!({
        "creationData": creation,
        "incremental": true,
        "provisioningState": "Succeeded",
        "completionPercent": if *in_progress { 42.5 } else { 100.0 },
    });
    if let Some(at) = one.created_at {
        shown["properties"]["timeCreated"] = at.to_string().into();
    }
    Some(shown)
}

fn public_ip(cloud: &Cloud, one: &RelatedResource) -> Option<Value> {
    let RelatedDetail::PublicIp { address, used_by } = &one.detail else { return None };
    let mut shown = head(cloud, &one.id, "Microsoft.Network/publicIPAddresses");
    shown["tags"] = json!(one.tags);
    shown["sku"] = json!({ "name": "Standard", "tier": "Regional" });
    shown["properties"] = json!({ "provisioningState": "Succeeded", "publicIPAllocationMethod": "Static" });
    let properties = &mut shown["properties"];
    if let Some(address) = address {
        properties["ipAddress"] = (&**address).into();
    }
    if let Some(user) = used_by {
        let key = if user.folded().contains("/natgateways/") { "natGateway" } else { "ipConfiguration" };
        properties[key] = json!({ "id": user.as_str() });
    }
    Some(shown)
}

/// Load balancers, put together from their frontends. Rules, pools and their members follow from the counts.
fn load_balancers(cloud: &Cloud, frontends: &[Arc<RelatedResource>]) -> Vec<Value> {
    let mut whole: BTreeMap<String, Value> = BTreeMap::new();
    for one in frontends {
        let words: Vec<&str> = one.id.as_str().split('/').collect();
        let Some(id) = words.len().checked_sub(2).and_then(|n| ArmId::new(words.get(..n)?.join("/")).ok()) else {
            continue;
        };
        let lb = whole.entry(id.folded().to_owned()).or_insert_with(|| {
            let mut lb = head(cloud, &id, "Microsoft.Network/loadBalancers");
            lb["tags"] = json!(one.tags);
            lb["sku"] = json!({ "name": "Standard", "tier": "Regional" });
            lb["properties"] = json!({
                "provisioningState": "Succeeded", "frontendIPConfigurations": [], "backendAddressPools": [],
                "loadBalancingRules": [], "outboundRules": [], "probes": [], "inboundNatRules": [],
            });
            lb
        });
        add_frontend(&mut lb["properties"], one, &id);
    }
    whole.into_values().collect()
}

fn add_frontend(properties: &mut Value, one: &RelatedResource, lb: &ArmId) {
    let RelatedDetail::LoadBalancerFrontend { public_ip, rules, outbound_rules, backends } = &one.detail else {
        return;
    };
    let name = one.id.name();
    let part = |of: &str, name: &str| json!({ "id": format!("{lb}/{of}/{name}") });
    let names = |word: &str, count: u32| (0..count).map(|n| format!("{name}-{word}-{n}")).collect::<Vec<_>>();
    let (rules, outbound) = (names("rule", *rules), names("outbound", *outbound_rules));
    let frontend = json!({ "id": one.id.as_str() });
    let pool = part("backendAddressPools", &format!("{name}-pool"));
    let ids = |of: &str, names: &[String]| names.iter().map(|n| part(of, n)).collect::<Vec<_>>();
    let mut shown = json!({
        "id": one.id.as_str(), "name": name,
        "properties": {
            "provisioningState": "Succeeded",
            "loadBalancingRules": ids("loadBalancingRules", &rules),
            "outboundRules": ids("outboundRules", &outbound),
        },
    });
    if let Some(ip) = public_ip {
        shown["properties"]["publicIPAddress"] = json!({ "id": ip.as_str() });
    }
    let mut put = |of: &str, value: Value| properties[of].as_array_mut().map(|list| list.push(value));
    put("frontendIPConfigurations", shown);
    for rule in &rules {
        let properties = json!({ "frontendIPConfiguration": frontend, "backendAddressPool": pool, "protocol": "Tcp", "frontendPort": 80 });
        put(
            "loadBalancingRules",
            json!({ "id": part("loadBalancingRules", rule)["id"], "name": rule, "properties": properties }),
        );
    }
    for rule in &outbound {
        let properties =
            json!({ "frontendIPConfigurations": [frontend], "backendAddressPool": pool, "protocol": "All" });
        put(
            "outboundRules",
            json!({ "id": part("outboundRules", rule)["id"], "name": rule, "properties": properties }),
        );
    }
    if !rules.is_empty() || !outbound.is_empty() {
        let members: Vec<Value> =
            (0..*backends).map(|n| part("backendAddressPools", &format!("{name}-member-{n}"))).collect();
        let properties = json!({ "provisioningState": "Succeeded", "backendIPConfigurations": members });
        put(
            "backendAddressPools",
            json!({ "id": pool["id"], "name": format!("{name}-pool"), "properties": properties }),
        );
    }
}
