//! Public IP addresses and frontends of load balancers, and their usage.
//!
//! The ARM crates in use do not include `Microsoft.Network`; these are the few properties needed.

use crate::resources::convert;
use crate::resources::nic::SubResource;
use napkeeper_core::model::azure::cloud::Tags;
use napkeeper_core::model::azure::related::{RelatedDetail, RelatedResource};
use napkeeper_core::model::errors::CloudError;
use napkeeper_core::model::names::ArmId;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A public IP address.
#[derive(Debug, Deserialize)]
pub(crate) struct PublicIp {
    id: String,
    tags: Option<Tags>,
    #[serde(default)]
    properties: PublicIpProperties,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PublicIpProperties {
    ip_address: Option<Arc<str>>,
    ip_configuration: Option<SubResource>,
    nat_gateway: Option<SubResource>,
}

/// A load balancer.
#[derive(Debug, Deserialize)]
pub(crate) struct LoadBalancer {
    id: String,
    tags: Option<Tags>,
    #[serde(default)]
    properties: LoadBalancerProperties,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LoadBalancerProperties {
    #[serde(rename = "frontendIPConfigurations")]
    frontends: Vec<Frontend>,
    backend_address_pools: Vec<BackendPool>,
    load_balancing_rules: Vec<Rule>,
    outbound_rules: Vec<Rule>,
    inbound_nat_rules: Vec<Rule>,
    inbound_nat_pools: Vec<Rule>,
}

#[derive(Debug, Deserialize)]
struct Frontend {
    id: String,
    #[serde(default)]
    properties: FrontendProperties,
}

#[derive(Debug, Default, Deserialize)]
struct FrontendProperties {
    #[serde(rename = "publicIPAddress")]
    public_ip: Option<SubResource>,
}

#[derive(Debug, Deserialize)]
struct BackendPool {
    id: String,
    #[serde(default)]
    properties: BackendPoolProperties,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BackendPoolProperties {
    #[serde(rename = "backendIPConfigurations")]
    members: Vec<Value>,
    load_balancer_backend_addresses: Vec<Value>,
}

#[derive(Debug, Deserialize)]
struct Rule {
    #[serde(default)]
    properties: RuleProperties,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RuleProperties {
    #[serde(rename = "frontendIPConfiguration")]
    frontend: Option<SubResource>,
    #[serde(rename = "frontendIPConfigurations")]
    frontends: Vec<SubResource>,
    backend_address_pool: Option<SubResource>,
    backend_address_pools: Vec<SubResource>,
}

impl PublicIp {
    pub(crate) fn related(self) -> Result<RelatedResource, CloudError> {
        let PublicIpProperties { ip_address, ip_configuration, nat_gateway } = self.properties;
        let used_by = ip_configuration.or(nat_gateway).and_then(|user| user.id);
        let detail =
            RelatedDetail::PublicIp { address: ip_address, used_by: used_by.map(|id| convert::id(&id)).transpose()? };
        Ok(RelatedResource {
            id: convert::id(&self.id)?,
            tags: self.tags.unwrap_or_default(),
            created_at: None,
            detail,
        })
    }
}

impl LoadBalancer {
    /// Its frontends; their tags are the load balancer's.
    pub(crate) fn frontends(self) -> Result<Vec<RelatedResource>, CloudError> {
        convert::id(&self.id)?;
        let tags = self.tags.unwrap_or_default();
        self.properties.frontends.iter().map(|frontend| self.properties.frontend(frontend, &tags)).collect()
    }
}

impl LoadBalancerProperties {
    fn frontend(&self, frontend: &Frontend, tags: &Tags) -> Result<RelatedResource, CloudError> {
        let id = convert::id(&frontend.id)?;
        let of_it = |rules: &'_ [Rule]| -> Vec<usize> {
            rules.iter().enumerate().filter(|(_, rule)| rule.uses(&id)).map(|(n, _)| n).collect()
        };
        let (balancing, outbound) = (of_it(&self.load_balancing_rules), of_it(&self.outbound_rules));
        let nat = of_it(&self.inbound_nat_rules).len() + of_it(&self.inbound_nat_pools).len();
        let leading = balancing.iter().map(|n| &self.load_balancing_rules[*n]);
        let leading = leading.chain(outbound.iter().map(|n| &self.outbound_rules[*n]));
        let pools: BTreeSet<String> = leading.flat_map(Rule::pools).collect();
        let reached = self.backend_address_pools.iter().filter(|pool| pools.contains(&pool.id.to_ascii_lowercase()));
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let public_ip = frontend.properties.public_ip.as_ref().and_then(|ip| ip.id.as_deref());
        let detail = RelatedDetail::LoadBalancerFrontend {
            public_ip: public_ip.map(convert::id).transpose()?,
            rules: count(balancing.len() + nat),
            outbound_rules: count(outbound.len()),
            backends: count(reached.map(BackendPool::members).sum()),
        };
        Ok(RelatedResource { id, tags: tags.clone(), created_at: None, detail })
    }
}

impl BackendPool {
    /// Members by NIC or by address; the same member is listed in both ways where it is one by NIC.
    fn members(&self) -> usize {
        self.properties.members.len().max(self.properties.load_balancer_backend_addresses.len())
    }
}

impl Rule {
    fn uses(&self, frontend: &ArmId) -> bool {
        let named = self.properties.frontend.iter().chain(&self.properties.frontends);
        named.filter_map(|reference| reference.id.as_deref()).any(|id| id.eq_ignore_ascii_case(frontend.as_str()))
    }

    /// Ids of its backend pools, in lower case.
    fn pools(&self) -> impl Iterator<Item = String> + '_ {
        let named = self.properties.backend_address_pool.iter().chain(&self.properties.backend_address_pools);
        named.filter_map(|reference| Some(reference.id.as_deref()?.to_ascii_lowercase()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_frontend_counts_its_references_and_backends() {
        let lb = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/loadBalancers/kubernetes";
        let part = |of: &str, name: &str| json!({ "id": format!("{lb}/{of}/{name}") });
        let (one, two) = (part("frontendIPConfigurations", "one"), part("frontendIPConfigurations", "two"));
        let (nodes, out) = (part("backendAddressPools", "Nodes"), part("backendAddressPools", "out"));
        let ip = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/publicIPAddresses/ip";
        let read: LoadBalancer = serde_json::from_value(json!({
            "id": lb, "tags": { "k": "v" }, "properties": {
                "frontendIPConfigurations": [
                    { "id": one["id"], "properties": { "publicIPAddress": { "id": ip } } },
                    { "id": two["id"], "properties": {} },
                ],
                "backendAddressPools": [
                    { "id": nodes["id"], "properties": { "backendIPConfigurations": [{ "id": "a" }, { "id": "b" }] } },
                    { "id": out["id"], "properties": { "loadBalancerBackendAddresses": [{ "name": "c" }] } },
                ],
                "loadBalancingRules": [
                    { "properties": { "frontendIPConfiguration": one,
                        "backendAddressPool": part("backendaddresspools", "nodes"), "backendAddressPools": [nodes] } },
                ],
                "inboundNatRules": [{ "properties": { "frontendIPConfiguration": two } }],
                "outboundRules": [{ "properties": { "frontendIPConfigurations": [one], "backendAddressPool": out } }],
            },
        }))
        .unwrap();
        let found = read.frontends().unwrap();
        let public_ip = Some(ArmId::new(ip).unwrap());
        assert_eq!(
            found[0].detail,
            RelatedDetail::LoadBalancerFrontend { public_ip, rules: 1, outbound_rules: 1, backends: 3 }
        );
        assert_eq!(
            found[1].detail,
            RelatedDetail::LoadBalancerFrontend { public_ip: None, rules: 1, outbound_rules: 0, backends: 0 }
        );
        assert_eq!(found[1].tags["k"], "v".into());
    }
}
