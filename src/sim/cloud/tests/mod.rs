//! Tests of the state machine.

mod capacity_reservations;
mod store;

use super::fixtures::{at, cloud, offering};
use super::*;
use jiff::SignedDuration;
use napkeeper_core::catalog::{CapacityType, OfferingKey, OsDiskStorage};
use napkeeper_core::model::azure::cloud::{Disk, DiskState, ProvisioningState, ResourceKind, Vm};
use napkeeper_core::model::errors::CloudErrorCode;
use napkeeper_core::plan::{CloudRequest, KubeletSpec, VmSpec};

fn d4s() -> OfferingKey {
    offering("Standard_D4s_v5", 1, CapacityType::OnDemand)
}

fn tags(owner: &str) -> Tags {
    Tags::from([(Arc::from("owner"), Arc::from(owner))])
}

fn put_nic(cloud: &mut Cloud, name: &str, now: Timestamp) -> Result<Reply, CloudErrorCode> {
    let spec =
        NicSpec { id: cloud.nic_id(name), tags: tags(name), accelerated: false, subnet: None, create_only: false };
    code(cloud.request(&CloudRequest::PutNic(Box::new(spec)), now))
}

fn put_vm(cloud: &mut Cloud, name: &str, offering: &OfferingKey, now: Timestamp) -> Result<Reply, CloudErrorCode> {
    let spec = vm_spec(cloud, name, offering.clone());
    code(cloud.request(&CloudRequest::PutVm(Box::new(spec)), now))
}

/// The spec of a VM of this name, which may exist already.
fn vm_spec(cloud: &Cloud, name: &str, offering: OfferingKey) -> VmSpec {
    VmSpec {
        id: cloud.vm_id(name),
        offering,
        nic: cloud.nic_id(name),
        os_disk: cloud.disk_id(name),
        os_disk_gb: 128,
        tags: tags(name),
        claim: ClaimName::new(name).unwrap(),
        kubelet: KubeletSpec::default(),
        security: Default::default(),
        capacity_reservation_group: None,
        create_only: false,
        os_disk_storage: OsDiskStorage::Premium,
    }
}

fn code(result: Result<Reply, Refusal>) -> Result<Reply, CloudErrorCode> {
    result.map_err(|refusal| refusal.code())
}

fn delete(cloud: &mut Cloud, id: &ArmId, now: Timestamp) -> Result<Reply, CloudErrorCode> {
    let effect = CloudRequest::Delete(id.clone(), ResourceKind::Vm);
    code(cloud.request(&effect, now))
}

fn poll(cloud: &mut Cloud, reply: Reply, now: Timestamp) -> Result<Reply, CloudErrorCode> {
    let Reply::Accepted(operation) = reply else {
        panic!("{reply:?} began no operation");
    };
    code(cloud.request(&CloudRequest::Poll(operation), now))
}

/// A VM that runs from `at(100)` on at the latest.
fn launch(cloud: &mut Cloud, name: &str, offering: &OfferingKey) -> ArmId {
    assert_eq!(put_nic(cloud, name, at(0)), Ok(Reply::Done));
    let begun = put_vm(cloud, name, offering, at(1)).unwrap();
    assert_eq!(poll(cloud, begun, at(100)), Ok(Reply::Done));
    cloud.vm_id(name)
}

fn vm<'a>(cloud: &'a Cloud, id: &ArmId) -> &'a Vm {
    match &cloud.resources()[id].detail {
        ResourceDetail::Vm(vm) => vm,
        other => panic!("{other:?} is no VM"),
    }
}

fn disk<'a>(cloud: &'a Cloud, id: &ArmId) -> &'a Disk {
    match &cloud.resources()[id].detail {
        ResourceDetail::Disk(disk) => disk,
        other => panic!("{other:?} is no disk"),
    }
}

fn kinds(cloud: &Cloud) -> Vec<ResourceKind> {
    cloud.resources().values().map(|r| r.kind()).collect()
}

#[test]
fn a_vm_comes_with_its_disk_and_runs_within_90_seconds() {
    let mut cloud = cloud(1);
    put_nic(&mut cloud, "a", at(0)).unwrap();
    let begun = put_vm(&mut cloud, "a", &d4s(), at(0)).unwrap();
    let id = cloud.vm_id("a");
    assert_eq!(vm(&cloud, &id).state, ProvisioningState::Creating);
    assert_eq!(disk(&cloud, &cloud.disk_id("a")).managed_by, std::slice::from_ref(&id));
    assert_eq!(poll(&mut cloud, begun.clone(), at(29)), Ok(Reply::Running));
    assert_eq!(poll(&mut cloud, begun, at(90)), Ok(Reply::Done));
    assert_eq!(vm(&cloud, &id).state, ProvisioningState::Succeeded);
    let events = cloud.take_events();
    let [CloudEvent::VmRunning { at: when, claim, price, .. }] = &events[..] else {
        panic!("{events:?}");
    };
    assert!(*when >= at(30) && *when <= at(90));
    assert_eq!(claim.as_ref().unwrap().as_str(), "a");
    assert_eq!(price.nanos(), 192_000_000);
}

#[test]
fn a_quota_refusal_leaves_a_nic_that_is_reserved_for_180_seconds() {
    let mut cloud = cloud(1);
    cloud.limits.families.insert(Arc::from("standardDSv5Family"), 3);
    put_nic(&mut cloud, "a", at(0)).unwrap();
    assert_eq!(put_vm(&mut cloud, "a", &d4s(), at(10)), Err(CloudErrorCode::FamilyQuota));
    assert_eq!(kinds(&cloud), [ResourceKind::Nic]);
    let nic = cloud.nic_id("a");
    assert_eq!(delete(&mut cloud, &nic, at(189)), Err(CloudErrorCode::NicReserved));
    let d2s = offering("Standard_D2s_v5", 1, CapacityType::OnDemand);
    let mut other = cloud.clone();
    assert!(matches!(put_vm(&mut other, "a", &d2s, at(189)), Ok(Reply::Accepted(_))));
    let begun = delete(&mut cloud, &nic, at(190)).unwrap();
    assert_eq!(poll(&mut cloud, begun, at(195)), Ok(Reply::Done));
    assert_eq!(kinds(&cloud), []);
}

#[test]
fn spot_cores_are_counted_apart_and_creating_and_failed_vms_count() {
    let mut cloud = cloud(1);
    cloud.limits.regional = Some(4);
    cloud.limits.spot = Some(4);
    let spot = offering("Standard_E4s_v5", 2, CapacityType::Spot);
    cloud.faults.unallocatable = vec![Shortage::of_all(FaultDuration::Times(1))];
    for name in ["a", "b", "c", "d"] {
        put_nic(&mut cloud, name, at(0)).unwrap();
    }
    assert!(put_vm(&mut cloud, "a", &d4s(), at(0)).is_ok());
    assert!(put_vm(&mut cloud, "b", &spot, at(0)).is_ok());
    assert_eq!(put_vm(&mut cloud, "c", &d4s(), at(0)), Err(CloudErrorCode::RegionalQuota));
    assert_eq!(put_vm(&mut cloud, "d", &spot, at(0)), Err(CloudErrorCode::SpotQuota));
    assert_eq!(put_vm(&mut cloud, "c", &d4s(), at(100)), Err(CloudErrorCode::RegionalQuota));
}

#[test]
fn quota_messages_parse_in_the_adapter() {
    let mut cloud = cloud(1);
    cloud.limits.families.insert(Arc::from("standardDSv5Family"), 0);
    put_nic(&mut cloud, "a", at(0)).unwrap();
    let spec = VmSpec {
        id: cloud.vm_id("a"),
        offering: d4s(),
        nic: cloud.nic_id("a"),
        os_disk: cloud.disk_id("a"),
        os_disk_gb: 128,
        tags: Tags::new(),
        claim: ClaimName::new("a").unwrap(),
        kubelet: KubeletSpec::default(),
        security: Default::default(),
        capacity_reservation_group: None,
        create_only: false,
        os_disk_storage: OsDiskStorage::Premium,
    };
    let refused = cloud.perform(&CloudRequest::PutVm(Box::new(spec)), at(0)).unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("standardDSv5Family Cores quota") && text.contains("Current Limit: 0,"), "{text}");
}

#[test]
fn a_failed_allocation_leaves_a_failed_vm_and_then_a_reserved_nic() {
    let mut cloud = cloud(1);
    cloud.faults.unallocatable = vec![Shortage { zone: Some(d4s().zone), ..Shortage::of_all(FaultDuration::Times(1)) }];
    put_nic(&mut cloud, "a", at(0)).unwrap();
    let begun = put_vm(&mut cloud, "a", &d4s(), at(0)).unwrap();
    assert_eq!(poll(&mut cloud, begun, at(90)), Err(CloudErrorCode::ZonalAllocationFailed));
    let (id, nic) = (cloud.vm_id("a"), cloud.nic_id("a"));
    assert_eq!(vm(&cloud, &id).state, ProvisioningState::Failed);
    assert_eq!(delete(&mut cloud, &nic, at(91)), Err(CloudErrorCode::InUse));
    delete(&mut cloud, &id, at(100)).unwrap();
    cloud.advance(at(160));
    assert_eq!(kinds(&cloud), [ResourceKind::Nic]);
    assert_eq!(delete(&mut cloud, &nic, at(299)), Err(CloudErrorCode::NicReserved));
    assert!(put_vm(&mut cloud, "a", &d4s(), at(299)).is_ok());
    assert!(!cloud.take_events().iter().any(|e| matches!(e, CloudEvent::VmRunning { .. })));
}

#[test]
fn a_failed_vm_may_be_put_again_and_then_runs() {
    let mut cloud = cloud(1);
    cloud.faults.unallocatable = vec![Shortage::of_all(FaultDuration::Until(at(1)))];
    let regional = offering("Standard_D4s_v5", 0, CapacityType::OnDemand);
    put_nic(&mut cloud, "a", at(0)).unwrap();
    let begun = put_vm(&mut cloud, "a", &regional, at(0)).unwrap();
    assert_eq!(poll(&mut cloud, begun, at(90)), Err(CloudErrorCode::AllocationFailed));
    let begun = put_vm(&mut cloud, "a", &regional, at(90)).unwrap();
    assert_eq!(poll(&mut cloud, begun, at(180)), Ok(Reply::Done));
    let id = cloud.vm_id("a");
    delete(&mut cloud, &id, at(200)).unwrap();
    cloud.advance(at(260));
    assert_eq!(kinds(&cloud), []);
}

#[test]
fn the_same_vm_is_adopted_and_another_of_its_name_is_refused() {
    let mut cloud = cloud(1);
    put_nic(&mut cloud, "a", at(0)).unwrap();
    let begun = put_vm(&mut cloud, "a", &d4s(), at(0));
    assert_eq!(put_nic(&mut cloud, "a", at(1)), Ok(Reply::Done));
    assert_eq!(put_vm(&mut cloud, "a", &d4s(), at(2)), begun);
    cloud.advance(at(90));
    assert_eq!(put_vm(&mut cloud, "a", &d4s(), at(90)), Ok(Reply::Done));
    for other in [
        offering("Standard_D2s_v5", 1, CapacityType::OnDemand),
        offering("Standard_D4s_v5", 2, CapacityType::OnDemand),
        offering("Standard_D4s_v5", 1, CapacityType::Spot),
    ] {
        assert_eq!(put_vm(&mut cloud, "a", &other, at(90)), Err(CloudErrorCode::Conflict), "{other}");
    }
    assert_eq!(cloud.ledger().len(), 3);
}

#[test]
fn a_deleted_vm_deletes_its_nic_and_os_disk_but_not_its_data_disks() {
    let mut cloud = cloud(1);
    let id = launch(&mut cloud, "a", &d4s());
    let data = add_data_disk(&mut cloud, "data", at(100));
    cloud.attach_disk(&data, &id, at(100)).unwrap();
    assert_eq!(delete(&mut cloud, &data, at(101)), Err(CloudErrorCode::InUse));
    let os_disk = cloud.disk_id("a");
    assert_eq!(delete(&mut cloud, &os_disk, at(101)), Err(CloudErrorCode::InUse));
    let begun = delete(&mut cloud, &id, at(110)).unwrap();
    assert_eq!(delete(&mut cloud, &id, at(111)), Ok(begun.clone()));
    assert_eq!(put_vm(&mut cloud, "a", &d4s(), at(112)), Err(CloudErrorCode::Conflict));
    assert_eq!(poll(&mut cloud, begun.clone(), at(129)), Ok(Reply::Running));
    assert_eq!(poll(&mut cloud, begun, at(170)), Ok(Reply::Done));
    assert_eq!(kinds(&cloud), [ResourceKind::DataDisk]);
    let data = disk(&cloud, &data);
    assert!(data.managed_by.is_empty() && data.last_ownership_update > Some(at(110)));
    assert_eq!(delete(&mut cloud, &id, at(171)), Ok(Reply::Absent));
}

fn add_data_disk(cloud: &mut Cloud, name: &str, now: Timestamp) -> ArmId {
    let draft = DiskDraft {
        name: Arc::from(name),
        tags: Tags::new(),
        size_gib: 32,
        sku: Arc::from("StandardSSD_LRS"),
        is_os: false,
        zone: None,
    };
    cloud.add_disk(draft, now).unwrap()
}

#[test]
fn leaked_children_become_orphans_and_block_the_name() {
    let mut cloud = cloud(1);
    let id = launch(&mut cloud, "a", &d4s());
    cloud.faults.keep_children = true;
    delete(&mut cloud, &id, at(100)).unwrap();
    cloud.advance(at(160));
    assert_eq!(kinds(&cloud), [ResourceKind::OsDisk, ResourceKind::Nic]);
    assert_eq!(put_vm(&mut cloud, "a", &d4s(), at(161)), Err(CloudErrorCode::Conflict));
}

#[test]
fn a_vm_deleted_while_it_is_created_never_runs() {
    let mut cloud = cloud(1);
    put_nic(&mut cloud, "a", at(0)).unwrap();
    let begun = put_vm(&mut cloud, "a", &d4s(), at(0)).unwrap();
    let id = cloud.vm_id("a");
    delete(&mut cloud, &id, at(1)).unwrap();
    assert_eq!(poll(&mut cloud, begun, at(2)), Err(CloudErrorCode::Conflict));
    cloud.advance(at(200));
    assert_eq!(kinds(&cloud), []);
    let events = cloud.take_events();
    assert!(!events.iter().any(|e| matches!(e, CloudEvent::VmRunning { .. })), "{events:?}");
}

#[test]
fn an_evicted_spot_vm_is_deleted_with_its_children_after_the_notice() {
    let mut cloud = cloud(1);
    let spot = offering("Standard_D4s_v5", 1, CapacityType::Spot);
    let id = launch(&mut cloud, "a", &spot);
    let regular = launch_second(&mut cloud, "b");
    assert!(cloud.evict_spot(&regular, at(200)).is_err());
    cloud.evict_spot(&id, at(200)).unwrap();
    assert_eq!(cloud.next_event(), Some(at(230)));
    cloud.advance(at(1000));
    assert!(!cloud.resources().contains_key(&id) && kinds(&cloud).len() == 3);
    let deletions = cloud.ledger().iter().filter(|e| e.change == Change::Deleted);
    let deletions: Vec<_> = deletions.map(|e| (e.at, e.cause)).collect();
    assert_eq!(
        deletions,
        [(at(230), ChangeCause::Eviction), (at(230), ChangeCause::Cascade), (at(230), ChangeCause::Cascade)]
    );
}

fn launch_second(cloud: &mut Cloud, name: &str) -> ArmId {
    put_nic(cloud, name, at(100)).unwrap();
    put_vm(cloud, name, &d4s(), at(100)).unwrap();
    cloud.advance(at(190));
    cloud.vm_id(name)
}

#[test]
fn an_eviction_does_not_strike_the_next_vm_of_that_name() {
    let mut cloud = cloud(1);
    let spot = offering("Standard_D4s_v5", 1, CapacityType::Spot);
    let id = launch(&mut cloud, "a", &spot);
    cloud.evict_spot(&id, at(100)).unwrap();
    cloud.delete_outside(&id, at(101)).unwrap();
    put_nic(&mut cloud, "a", at(102)).unwrap();
    put_vm(&mut cloud, "a", &spot, at(103)).unwrap();
    cloud.advance(at(300));
    assert_eq!(vm(&cloud, &id).state, ProvisioningState::Succeeded);
}

#[test]
fn faults_end_at_their_time_and_throttling_says_how_long_to_wait() {
    let mut cloud = cloud(1);
    let minute = SignedDuration::from_secs(60);
    cloud.faults.throttled = Some((at(10), minute));
    cloud.faults.unavailable_until = Some(at(5));
    assert_eq!(put_nic(&mut cloud, "a", at(4)), Err(CloudErrorCode::Unavailable));
    let effect = CloudRequest::Get(cloud.nic_id("a"));
    let Err(EffectError::Cloud(error)) = cloud.perform(&effect, at(9)) else {
        panic!("must be throttled");
    };
    assert_eq!((error.code, error.retry_after), (CloudErrorCode::Throttled, Some(minute)));
    assert!(cloud.list(at(9)).is_err() && cloud.group_managed_by(at(9)).is_err());
    assert_eq!(put_nic(&mut cloud, "a", at(10)), Ok(Reply::Done));
    cloud.faults.listing = Some((at(20), ListingFault::BrokenPage));
    assert!(cloud.list(at(19)).is_err() && cloud.list(at(20)).is_ok());
    cloud.faults.deletes_locked_until = Some(at(30));
    let nic = cloud.nic_id("a");
    assert_eq!(delete(&mut cloud, &nic, at(29)), Err(CloudErrorCode::Locked));
    assert!(delete(&mut cloud, &nic, at(30)).is_ok());
}

#[test]
fn an_unavailable_size_is_rejected_at_once() {
    let mut cloud = cloud(1);
    cloud.faults.refused = vec![Shortage {
        size: Some(d4s().size),
        capacity_type: Some(CapacityType::OnDemand),
        ..Shortage::of_all(FaultDuration::Until(at(50)))
    }];
    put_nic(&mut cloud, "a", at(0)).unwrap();
    assert_eq!(put_vm(&mut cloud, "a", &d4s(), at(49)), Err(CloudErrorCode::SkuNotAvailable));
    assert!(put_vm(&mut cloud, "a", &d4s(), at(50)).is_ok());
}

#[test]
fn wrong_requests_are_invalid_and_reserve_nothing() {
    let mut cloud = cloud(1);
    assert_eq!(put_vm(&mut cloud, "a", &d4s(), at(0)), Err(CloudErrorCode::Invalid));
    put_nic(&mut cloud, "a", at(0)).unwrap();
    for wrong in
        [offering("Standard_X1", 1, CapacityType::OnDemand), offering("Standard_D4s_v5", 4, CapacityType::OnDemand)]
    {
        assert_eq!(put_vm(&mut cloud, "a", &wrong, at(0)), Err(CloudErrorCode::Invalid), "{wrong}");
    }
    let nic = cloud.nic_id("a");
    assert!(delete(&mut cloud, &nic, at(1)).is_ok());
    let unknown = CloudRequest::Poll(OperationId(Arc::from("x")));
    assert_eq!(code(cloud.request(&unknown, at(1))), Err(CloudErrorCode::NotFound));
}

#[test]
fn a_full_subnet_refuses_new_nics_only() {
    let mut cloud = cloud(1);
    cloud.limits.subnet = Some(1);
    assert_eq!(put_nic(&mut cloud, "a", at(0)), Ok(Reply::Done));
    assert_eq!(put_nic(&mut cloud, "a", at(0)), Ok(Reply::Done));
    assert_eq!(put_nic(&mut cloud, "b", at(0)), Err(CloudErrorCode::SubnetFull));
}

#[test]
fn listings_lag_in_both_directions_while_get_is_current() {
    let mut cloud = cloud(1);
    let id = launch(&mut cloud, "a", &d4s());
    cloud.faults.list_lag = SignedDuration::from_mins(20);
    assert_eq!(cloud.list(at(100)), Ok(vec![]));
    assert_eq!(cloud.list(at(1201)).unwrap().len(), 3);
    cloud.delete_outside(&id, at(1300)).unwrap();
    assert_eq!(cloud.list(at(2499)).unwrap().len(), 3);
    assert_eq!(cloud.list(at(2500)), Ok(vec![]));
    assert_eq!(cloud.request(&CloudRequest::Get(id), at(1300)), Ok(Reply::Resource(None)));
}

#[test]
fn shouted_ids_are_the_same_ids() {
    let mut cloud = cloud(1);
    for name in ["a", "b", "c"] {
        launch_second(&mut cloud, name);
    }
    let quiet = cloud.list(at(300)).unwrap();
    cloud.faults.uppercase_ids = true;
    let loud = cloud.list(at(300)).unwrap();
    assert_eq!(quiet, loud);
    let capitals = |r: &Arc<CloudResource>| r.id.as_str().starts_with("/SUBSCRIPTIONS");
    assert!(loud.iter().any(capitals) && !loud.iter().all(capitals));
}

#[test]
fn tags_are_merged_by_us_and_replaced_by_others() {
    let mut cloud = cloud(1);
    put_nic(&mut cloud, "a", at(0)).unwrap();
    let nic = cloud.nic_id("a");
    let more = Tags::from([(Arc::from("x"), Arc::from("1"))]);
    cloud.request(&CloudRequest::Tag(nic.clone(), more.clone()), at(1)).unwrap();
    assert_eq!(cloud.resources()[&nic].tags.len(), 2);
    cloud.retag(&nic, more.clone(), at(2)).unwrap();
    assert_eq!(cloud.resources()[&nic].tags, more);
    let acts: Vec<_> = cloud.ledger().iter().map(|e| (e.change, e.cause)).collect();
    assert_eq!(
        acts,
        [
            (Change::Created, ChangeCause::Request),
            (Change::Tagged, ChangeCause::Request),
            (Change::Tagged, ChangeCause::Outside)
        ]
    );
}

#[test]
fn deleted_resources_do_not_block_their_name() {
    let mut cloud = cloud(1);
    let id = launch(&mut cloud, "a", &d4s());
    let begun = delete(&mut cloud, &id, at(100)).unwrap();
    cloud.delete_outside(&id, at(101)).unwrap();
    assert_eq!(poll(&mut cloud, begun, at(101)), Ok(Reply::Done));
    put_nic(&mut cloud, "a", at(102)).unwrap();
    assert!(put_vm(&mut cloud, "a", &d4s(), at(102)).is_ok());

    let nic = cloud.nic_id("b");
    cloud.limits.regional = Some(4);
    put_nic(&mut cloud, "b", at(103)).unwrap();
    assert_eq!(put_vm(&mut cloud, "b", &d4s(), at(103)), Err(CloudErrorCode::RegionalQuota));
    cloud.delete_outside(&nic, at(104)).unwrap();
    put_nic(&mut cloud, "b", at(105)).unwrap();
    assert!(delete(&mut cloud, &nic, at(106)).is_ok());
}

#[test]
fn a_late_vm_clears_the_reservation_of_its_nic() {
    let mut cloud = cloud(1);
    cloud.faults.refused = vec![Shortage::of_all(FaultDuration::Times(1))];
    put_nic(&mut cloud, "a", at(0)).unwrap();
    assert_eq!(put_vm(&mut cloud, "a", &d4s(), at(0)), Err(CloudErrorCode::SkuNotAvailable));
    put_vm(&mut cloud, "a", &d4s(), at(1)).unwrap();
    cloud.faults.keep_children = true;
    let (id, nic) = (cloud.vm_id("a"), cloud.nic_id("a"));
    delete(&mut cloud, &id, at(91)).unwrap();
    assert!(delete(&mut cloud, &nic, at(151)).is_ok());
}

#[test]
fn only_the_group_itself_is_written_to() {
    let mut cloud = cloud(1);
    let elsewhere = ArmId::new(format!("{}-2/providers/x", cloud.settings().group)).unwrap();
    let nic =
        NicSpec { id: elsewhere.clone(), tags: Tags::new(), accelerated: false, subnet: None, create_only: false };
    let vm = VmSpec {
        id: elsewhere.clone(),
        offering: d4s(),
        nic: cloud.leak_nic("a", Tags::new(), at(0)).unwrap(),
        os_disk: cloud.disk_id("a"),
        os_disk_gb: 128,
        tags: Tags::new(),
        claim: ClaimName::new("a").unwrap(),
        kubelet: KubeletSpec::default(),
        security: Default::default(),
        capacity_reservation_group: None,
        create_only: false,
        os_disk_storage: OsDiskStorage::Premium,
    };
    for put in [CloudRequest::PutNic(Box::new(nic)), CloudRequest::PutVm(Box::new(vm))] {
        let refused = cloud.request(&put, at(0));
        assert_eq!(refused, Err(Refusal::NotFound(elsewhere.clone())));
    }
}

#[test]
fn a_vm_of_others_holds_cores_and_children_but_no_claim() {
    let mut cloud = cloud(1);
    let id = cloud.add_vm("x", tags("x"), &d4s(), at(0)).unwrap();
    assert!(cloud.add_vm("x", tags("x"), &d4s(), at(0)).is_err());
    assert_eq!((cloud.usage().regional, cloud.ledger().len()), (4, 3));
    let events = cloud.take_events();
    assert!(matches!(&events[..], [CloudEvent::VmRunning { claim: None, .. }]), "{events:?}");
    cloud.delete_outside(&id, at(1)).unwrap();
    assert_eq!(kinds(&cloud), []);
}

#[test]
fn a_vm_is_shut_down_once_and_only_while_it_runs() {
    let mut cloud = cloud(1);
    put_nic(&mut cloud, "a", at(0)).unwrap();
    put_vm(&mut cloud, "a", &d4s(), at(0)).unwrap();
    let (vm, nic) = (cloud.vm_id("a"), cloud.nic_id("a"));
    let power = |cloud: &mut Cloud, id: &ArmId, now| match cloud.request(&CloudRequest::GetPowerState(id.clone()), now)
    {
        Ok(Reply::PowerState(state)) => state,
        other => panic!("{other:?}"),
    };
    assert_eq!(power(&mut cloud, &vm, at(1)), Some(PowerState::Starting));
    assert!(cloud.shut_down_vm(&vm, false, at(1)).is_err());
    assert_eq!(power(&mut cloud, &vm, at(100)), Some(PowerState::Running));
    assert_eq!(power(&mut cloud, &nic, at(100)), None);
    cloud.take_events();
    cloud.shut_down_vm(&vm, true, at(100)).unwrap();
    assert!(matches!(cloud.take_events()[..], [CloudEvent::VmStopped { deallocated: true, .. }]));
    assert_eq!(power(&mut cloud, &vm, at(101)), Some(PowerState::Deallocated));
    assert!(cloud.shut_down_vm(&vm, false, at(101)).is_err());
    delete(&mut cloud, &vm, at(102)).unwrap();
    cloud.advance(at(300));
    assert_eq!(power(&mut cloud, &vm, at(300)), None);
    // Another one of the same name runs.
    put_nic(&mut cloud, "a", at(300)).unwrap();
    put_vm(&mut cloud, "a", &d4s(), at(300)).unwrap();
    assert_eq!(power(&mut cloud, &vm, at(500)), Some(PowerState::Running));
}
