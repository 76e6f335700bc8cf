//! A small Azure for tests: three sizes, no limits.

use super::*;
use napkeeper_core::catalog::{Arch, CapacityType, OfferingKey, SizeFacts};
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::names::{Region, VmSize, Zone};

const GROUP: &str = "/subscriptions/s/resourceGroups/MC_group";

fn facts(name: &str, family: &str, vcpus: u32) -> (VmSize, Arc<SizeFacts>) {
    let name = VmSize::new(name).unwrap();
    let facts = SizeFacts {
        name: name.clone(),
        family: Arc::from(family),
        vcpus,
        memory_mib: u64::from(vcpus) * 4096,
        arch: Arch::Amd64,
        hyperv_v1: true,
        hyperv_v2: true,
        max_data_disks: 8,
        max_nics: 2,
        accelerated_networking: true,
        premium_io: true,
        ephemeral: None,
        encryption_at_host: true,
        spot_eligible: true,
        gpu: None,
    };
    (name, Arc::new(facts))
}

pub(crate) fn cloud(seed: u64) -> Cloud {
    Cloud::new(CloudSettings {
        group: ArmId::new(GROUP).unwrap(),
        managed_by: None,
        region: Region::new("westeurope").unwrap(),
        subnet: ArmId::new("/subscriptions/s/subnets/of-all").unwrap(),
        seed,
        sizes: BTreeMap::from([
            facts("Standard_D2s_v5", "standardDSv5Family", 2),
            facts("Standard_D4s_v5", "standardDSv5Family", 4),
            facts("Standard_E4s_v5", "standardESv5Family", 4),
        ]),
        prices: BTreeMap::from([(
            offering("Standard_D4s_v5", 1, CapacityType::OnDemand),
            HourlyPrice::from_nanos(192_000_000),
        )]),
        timings: Timings::default(),
    })
}

pub(crate) fn at(secs: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + secs).unwrap()
}

pub(crate) fn offering(size: &str, zone: u8, capacity_type: CapacityType) -> OfferingKey {
    let region = Region::new("westeurope").unwrap();
    OfferingKey {
        size: VmSize::new(size).unwrap(),
        zone: if zone == 0 { Zone::regional() } else { Zone::of(&region, zone) },
        capacity_type,
    }
}
