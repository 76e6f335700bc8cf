//! The adapter maps every rejection of the simulated Azure.
//!
//! Except an expired operation, which is known only from the requested URL.

use jiff::SignedDuration;
use napkeeper_azure::known_code;
use napkeeper_core::model::errors::CloudErrorCode;
use napkeeper_core::model::names::{ArmId, Region, VmSize};
use napkeeper_sim::arm::refused;
use napkeeper_sim::cloud::{Quota, Refusal};
use std::sync::Arc;

#[test]
fn every_refusal_means_the_same_over_http() {
    let region = Region::new("westeurope").unwrap();
    let id = |name: &str| {
        let vms = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines";
        ArmId::new(format!("{vms}/{name}")).unwrap()
    };
    let quota = |quota| Refusal::Quota { quota, region: region.clone(), limit: 10, usage: 8, need: 4 };
    let refusals = [
        quota(Quota::Family(Arc::from("standardDSv5Family"))),
        quota(Quota::Regional),
        quota(Quota::Spot),
        Refusal::SkuNotAvailable { size: VmSize::new("Standard_D4s_v5").unwrap(), region: region.clone() },
        Refusal::Allocation,
        Refusal::ZonalAllocation,
        Refusal::SubnetFull { need: 1 },
        Refusal::NicReserved { vm: id("v") },
        Refusal::NicInUse { nic: id("n"), vm: id("v") },
        Refusal::DiskInUse { disk: id("d"), vm: id("v") },
        Refusal::Locked(id("v")),
        Refusal::Throttled { retry_after: SignedDuration::from_secs(20) },
        Refusal::NotFound(id("v")),
        Refusal::PropertyChange { property: "zones", vm: id("v") },
        Refusal::Taken(id("v")),
        Refusal::Busy(id("v")),
        Refusal::Preempted,
        Refusal::Unavailable,
        Refusal::ListForbidden,
        Refusal::Invalid(Arc::from("no")),
    ];
    for refusal in refusals {
        let body = refused(&refusal).body.unwrap();
        let text = |key: &str| body["error"][key].as_str().unwrap().to_owned();
        let read = known_code(&text("code"), &text("message")).unwrap_or(CloudErrorCode::Invalid);
        assert_eq!(read, refusal.code(), "{body}");
    }
}

#[test]
fn an_unknown_error_marks_nothing_unavailable() {
    assert_eq!(known_code("SomethingNew", "exceeding approved LowPriorityCores quota"), None);
    assert!(!CloudErrorCode::Invalid.is_capacity() && !CloudErrorCode::Invalid.is_transient());
}
