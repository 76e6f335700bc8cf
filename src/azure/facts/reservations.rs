//! Capacity reservations of a group, and how many VMs use each.
//!
//! One listing has for each reservation of a group its size, its zone, how many VMs are reserved, and which VMs name
//! the group and are of that size and zone. Those of them that are stopped may come back, so they count too.

use crate::arm::error::{invalid, unavailable};
use crate::client::Azure;
use napkeeper_core::catalog::live::CapacityReservation;
use napkeeper_core::model::errors::CloudError;
use napkeeper_core::model::names::{ArmId, Region, VmSize, Zone};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;

/// Of `Microsoft.Compute/capacityReservationGroups`.
const VERSION: &str = "2024-07-01";

#[derive(Debug, Deserialize)]
struct ReservationRow {
    location: String,
    #[serde(default)]
    zones: Vec<String>,
    sku: ReservationSku,
    #[serde(default)]
    properties: ReservationProperties,
}

#[derive(Debug, Deserialize)]
struct ReservationSku {
    name: String,
    #[serde(default)]
    capacity: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReservationProperties {
    #[serde(default)]
    provisioning_state: String,
    #[serde(default)]
    virtual_machines_associated: Vec<IgnoredAny>,
}

impl Azure {
    /// The capacity reserved by a group. A reservation whose update is in progress or has failed counts as empty.
    ///
    /// # Errors
    /// [`CloudError`] if the group cannot be read, does not exist, or is in another region.
    pub async fn reservations(&self, group: &ArmId, region: &Region) -> Result<Vec<CapacityReservation>, CloudError> {
        let rows: Vec<ReservationRow> = self.list_fact(&format!("{group}/capacityReservations"), VERSION, &[]).await?;
        // Azure keeps the case of the size as entered, and ignores it.
        let mut totals: BTreeMap<(String, Zone), CapacityReservation> = BTreeMap::new();
        for row in rows {
            let one = reservation(row, group, region)?;
            let key = (one.size.as_str().to_ascii_lowercase(), one.zone.clone());
            let sum = totals.entry(key).or_insert_with(|| CapacityReservation { capacity: 0, used: 0, ..one.clone() });
            sum.capacity += one.capacity;
            sum.used += one.used;
        }
        Ok(totals.into_values().collect())
    }
}

fn reservation(row: ReservationRow, group: &ArmId, region: &Region) -> Result<CapacityReservation, CloudError> {
    let ReservationRow { location, zones, sku, properties } = row;
    if location.to_ascii_lowercase().replace(' ', "") != region.as_str() {
        return Err(invalid(format!(
            "capacity reservation group {group} is in {location}, but nodes are created in {region}"
        )));
    }
    let unreadable = |reason: &str| unavailable(format!("a reservation of {group} cannot be read: {reason}"));
    let zone = match &zones[..] {
        [] => Zone::regional(),
        [zone] => Zone::of(region, zone.parse().map_err(|_| unreadable("its zone is not a number"))?),
        _ => return Err(unreadable("it is in several zones")),
    };
    let size = VmSize::new(&sku.name).map_err(|error| unreadable(&error.to_string()))?;
    let capacity = if properties.provisioning_state == "Succeeded" { sku.capacity } else { 0 };
    let used = properties.virtual_machines_associated.len() as u64;
    Ok(CapacityReservation { group: group.clone(), size, zone, capacity, used })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(row: Value) -> Result<CapacityReservation, CloudError> {
        let group = "/subscriptions/s/resourceGroups/r/providers/Microsoft.Compute/capacityReservationGroups/g";
        let region = Region::new("westeurope").unwrap();
        reservation(serde_json::from_value(row).unwrap(), &ArmId::new(group).unwrap(), &region)
    }

    /// As the pages of Azure's API show it.
    fn row(state: &str, zones: &[&str]) -> Value {
        let vm = "/subscriptions/s/resourceGroups/r/providers/Microsoft.Compute/virtualMachines/a";
        json!({
            "name": "one", "id": "/…/capacityReservations/one", "location": "West Europe", "zones": zones,
            "type": "Microsoft.Compute/CapacityReservationGroups/CapacityReservations",
            "sku": { "name": "Standard_D4s_v5", "capacity": 4 },
            "properties": {
                "reservationId": "{GUID}", "provisioningState": state, "virtualMachinesAssociated": [{ "id": vm }],
            },
        })
    }

    #[test]
    fn a_reservation_is_read_with_its_usage() {
        let zonal = read(row("Succeeded", &["1"])).unwrap();
        assert_eq!((zonal.size.as_str(), zonal.zone.as_str()), ("Standard_D4s_v5", "westeurope-1"));
        assert_eq!((zonal.capacity, zonal.used, zonal.free()), (4, 1, 3));
        assert!(read(row("Succeeded", &[])).unwrap().zone.is_regional());
        let failed = read(row("Failed", &["1"])).unwrap();
        assert_eq!((failed.capacity, failed.free()), (0, 0), "it is of no use until it is mended");
        assert!(read(row("Succeeded", &["1", "2"])).is_err());
        let mut elsewhere = row("Succeeded", &["1"]);
        elsewhere["location"] = "northeurope".into();
        assert!(read(elsewhere).unwrap_err().message.contains("nodes are created in westeurope"));
        let bare = json!({ "location": "westeurope", "sku": { "name": "Standard_D4s_v5" } });
        assert_eq!(read(bare).unwrap().free(), 0);
    }
}
