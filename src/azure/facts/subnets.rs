//! Addresses of subnets: how many there are, and how many are used.
//!
//! The usages of a virtual network have both for each of its subnets, the five addresses of each range that Azure keeps
//! already taken off. One request answers for all subnets of a network.

use crate::arm::error::{invalid, unavailable};
use crate::client::Azure;
use napkeeper_core::catalog::live::SubnetAddresses;
use napkeeper_core::model::errors::CloudError;
use napkeeper_core::model::names::ArmId;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Of `Microsoft.Network/virtualNetworks/usages`.
const VERSION: &str = "2024-05-01";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SubnetUsageRow {
    id: Option<String>,
    /// Numbers with a fraction of zero.
    current_value: f64,
    limit: f64,
}

impl Azure {
    /// Addresses of some subnets.
    ///
    /// # Errors
    /// [`CloudError`] where a network cannot be read, or does not have one of them.
    pub async fn subnets(&self, ids: &[ArmId]) -> Result<Vec<SubnetAddresses>, CloudError> {
        let mut by_network: BTreeMap<&str, Vec<&ArmId>> = BTreeMap::new();
        for id in ids {
            let network = network_of(id).ok_or_else(|| invalid(format!("{id} is not a subnet")))?;
            by_network.entry(network).or_default().push(id);
        }
        let mut addresses = Vec::new();
        for (network, subnets) in by_network {
            let rows: Vec<SubnetUsageRow> = self.list_fact(&format!("{network}/usages"), VERSION, &[]).await?;
            for id in subnets {
                let row =
                    rows.iter().find(|row| row.id.as_deref().is_some_and(|of| of.eq_ignore_ascii_case(id.as_str())));
                let row = row.ok_or_else(|| unavailable(format!("{network} has no subnet {}", id.name())))?;
                let (used, usable) = (count(row.current_value), count(row.limit));
                addresses.push(SubnetAddresses { id: id.clone(), used, usable, is_default: false });
            }
        }
        Ok(addresses)
    }
}

/// The id of the network that a subnet is in.
fn network_of(subnet: &ArmId) -> Option<&str> {
    let folded = subnet.folded();
    let at = folded.rfind("/subnets/")?;
    let rest = folded.get(at + "/subnets/".len()..)?;
    let is_subnet = folded.contains("/providers/microsoft.network/virtualnetworks/") && !rest.contains('/');
    is_subnet.then(|| subnet.as_str().get(..at)).flatten()
}

/// Counts are whole and not negative.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded right before")]
fn count(number: f64) -> u64 {
    if number.is_finite() { number.clamp(0.0, 4_294_967_296.0) as u64 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_of_a_subnet_is_found_in_any_case() {
        let network = |id: &str| network_of(&ArmId::new(id).unwrap()).map(str::to_owned);
        let vnet = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v";
        assert_eq!(network(&format!("{vnet}/Subnets/a")).as_deref(), Some(vnet));
        assert_eq!(network(vnet), None);
        assert_eq!(network(&format!("{vnet}/subnets/a/b")), None);
    }

    #[test]
    fn counts_are_whole_and_bounded() {
        assert_eq!([count(251.0), count(-1.0), count(f64::NAN), count(1e300)], [251, 0, 0, 1 << 32]);
    }
}
