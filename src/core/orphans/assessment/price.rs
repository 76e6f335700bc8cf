//! The hourly cost of an orphaned resource.

use crate::catalog::managed_disk_price;
use crate::model::amounts::money::HourlyPrice;
use crate::model::azure::cloud::{CloudResource, ResourceDetail, Vm};
use crate::snapshot::Snapshot;

/// Where the prices of VMs come from.
pub trait VmPrices {
    /// The price of a VM; `None` when its offering is not known.
    fn vm(&self, resource: &CloudResource, vm: &Vm) -> Option<HourlyPrice>;
}

/// Prices from the instance types of the AKSNodeClasses.
impl VmPrices for Snapshot {
    fn vm(&self, resource: &CloudResource, vm: &Vm) -> Option<HourlyPrice> {
        let mut sizes = self.instance_types.values().filter_map(|types| types.iter().find(|t| t.facts.name == vm.size));
        sizes.find_map(|t| {
            let mut offerings = t.offerings.iter();
            let offering = offerings.find(|o| {
                let zone = resource.zone.as_ref();
                o.capacity_type == vm.capacity_type && zone.is_none_or(|z| *z == o.zone)
            })?;
            Some(offering.price)
        })
    }
}

/// The price of a resource: a VM by its offering, a disk by its size and storage type, a NIC is free.
pub(in crate::orphans) fn price(resource: &CloudResource, prices: &dyn VmPrices) -> HourlyPrice {
    match &resource.detail {
        ResourceDetail::Vm(vm) => prices.vm(resource, vm).unwrap_or(HourlyPrice::ZERO),
        ResourceDetail::Disk(disk) => managed_disk_price(&disk.sku, disk.size_gib),
        ResourceDetail::Nic(_) => HourlyPrice::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::azure::cloud::Tags;
    use crate::orphans::tests::fixtures::{as_disk, data_disk, nic};
    use jiff::SignedDuration;
    use std::sync::Arc;

    #[test]
    fn a_disk_costs_the_list_price_of_its_tier() {
        let month = SignedDuration::from_hours(730);
        for (sku, usd) in [
            ("Premium_LRS", "$19.71"),
            ("premium_ZRS", "$29.57"),
            ("StandardSSD_LRS", "$9.60"),
            ("Standard_LRS", "$5.89"),
            ("Brand_new", "$9.60"),
        ] {
            let mut disk = data_disk("d");
            as_disk(&mut disk).sku = Arc::from(sku);
            let price = price(&disk, &Snapshot::default());
            assert_eq!(price.over(month).to_string(), usd, "{sku}");
        }
        let free = price(&nic("n", Tags::new()), &Snapshot::default());
        assert_eq!(free, HourlyPrice::ZERO);
    }
}
