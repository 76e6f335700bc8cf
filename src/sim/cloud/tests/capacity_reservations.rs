//! Tests of capacity reservations, and of VMs beyond their capacity.

use super::*;
use crate::cloud::{FaultDuration, Shortage};
use napkeeper_core::plan::CloudRequest;

fn group(name: &str) -> ArmId {
    let id = format!("/subscriptions/s/resourceGroups/r/providers/Microsoft.Compute/capacityReservationGroups/{name}");
    ArmId::new(id).unwrap()
}

fn put(cloud: &mut Cloud, name: &str, zone: u8, of: &str, now: Timestamp) -> Result<Reply, CloudErrorCode> {
    put_nic(cloud, name, now)?;
    let spec = vm_spec(cloud, name, offering("Standard_D4s_v5", zone, CapacityType::Reserved));
    let spec = VmSpec { capacity_reservation_group: Some(group(of)), create_only: true, ..spec };
    code(cloud.request(&CloudRequest::PutVm(Box::new(spec)), now))
}

fn taken(cloud: &Cloud) -> Vec<(u64, u64)> {
    cloud.reserved().iter().map(|room| (room.used, room.capacity)).collect()
}

/// Two VMs in zone 1.
fn reserving() -> Cloud {
    let mut cloud = cloud(1);
    cloud.reserve_vms(&group("paid"), &d4s().size, &d4s().zone, Some(2));
    cloud
}

#[test]
fn reserved_capacity_needs_no_quota_and_is_always_available() {
    let mut cloud = reserving();
    cloud.limits.regional = Some(0);
    cloud.faults.refused.push(Shortage::of_all(FaultDuration::Until(at(9_999))));
    cloud.faults.unallocatable.push(Shortage::of_all(FaultDuration::Until(at(9_999))));
    let first = put(&mut cloud, "a", 1, "PAID", at(0)).unwrap();
    assert!(matches!(put(&mut cloud, "b", 1, "paid", at(1)), Ok(Reply::Accepted(_))));
    cloud.advance(at(200));
    assert_eq!(poll(&mut cloud, first, at(200)), Ok(Reply::Done));
    assert_eq!((taken(&cloud), cloud.usage().regional), (vec![(2, 2)], 0));
    // Those beyond are VMs as any other.
    assert_eq!(put(&mut cloud, "c", 1, "paid", at(201)), Err(CloudErrorCode::SkuNotAvailable));
    cloud.faults.refused.clear();
    assert_eq!(put(&mut cloud, "d", 1, "paid", at(202)), Err(CloudErrorCode::RegionalQuota));
    cloud.limits.regional = None;
    let beyond = put(&mut cloud, "e", 1, "paid", at(203)).unwrap();
    assert_eq!(taken(&cloud), [(3, 2)], "Azure takes more than are reserved");
    cloud.advance(at(500));
    assert_eq!(poll(&mut cloud, beyond, at(500)), Err(CloudErrorCode::ZonalAllocationFailed));
}

#[test]
fn a_deleted_vm_frees_capacity_for_another() {
    let mut cloud = reserving();
    put(&mut cloud, "a", 1, "paid", at(0)).unwrap();
    put(&mut cloud, "b", 1, "paid", at(1)).unwrap();
    cloud.advance(at(200));
    let vm = cloud.vm_id("a");
    delete(&mut cloud, &vm, at(200)).unwrap();
    assert_eq!(taken(&cloud), [(2, 2)], "it is there until it is gone");
    cloud.advance(at(400));
    assert_eq!(taken(&cloud), [(1, 2)]);
    cloud.limits.regional = Some(0);
    assert!(put(&mut cloud, "c", 1, "paid", at(400)).is_ok());
}

#[test]
fn a_missing_group_or_size_is_rejected() {
    let mut cloud = reserving();
    assert_eq!(put(&mut cloud, "a", 1, "other", at(0)), Err(CloudErrorCode::Reservation));
    assert_eq!(put(&mut cloud, "b", 2, "paid", at(1)), Err(CloudErrorCode::Reservation), "none is in that zone");
    cloud.reserve_vms(&group("paid"), &d4s().size, &d4s().zone, None);
    assert_eq!(put(&mut cloud, "c", 1, "paid", at(2)), Err(CloudErrorCode::Reservation));
}
