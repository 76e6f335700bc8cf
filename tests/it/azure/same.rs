//! Effects, listings and errors: the adapter over the simulated ARM, compared with the simulated Azure itself.

use jiff::{SignedDuration, Timestamp};
use napkeeper_azure::{AksCluster, Azure, AzureSettings};
use napkeeper_core::catalog::{CapacityType, Catalog, EphemeralDiskPlacement, OfferingKey, OsDiskStorage};
use napkeeper_core::model::azure::cloud::{
    CloudResource, PowerState, ProvisioningState, ResourceDetail, ResourceKind, Tags,
};
use napkeeper_core::model::azure::related::{RelatedDetail, RelatedResource};
use napkeeper_core::model::cluster::pod::Labels;
use napkeeper_core::model::errors::{CloudErrorCode, EffectError, OperationId};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{ArmId, ClaimName, Region, VmSize, Zone};
use napkeeper_core::plan::{AksMachineRequest, AksMachineSpec, CloudRequest, KubeletSpec, NicSpec, Reply, VmSpec};
use napkeeper_sim::cloud::{
    Cloud, CloudSettings, DiskDraft, FaultDuration, LateFailure, ListedKind, ListingFault, ListingLag,
    PolicyAssignment, Shortage, Timings,
};
use napkeeper_tests::arm::{InProcess, azure, credential, plain, settings};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};

/// The last has a local disk, where its OS disk is.
const SIZES: [&str; 4] = ["Standard_D2s_v5", "Standard_D4s_v5", "Standard_E4s_v5", "Standard_D4ds_v5"];

fn region() -> Region {
    Region::new("westeurope").unwrap()
}

pub(super) fn cloud_settings() -> CloudSettings {
    let catalog = Catalog::embedded().unwrap().region(&region()).unwrap();
    let sizes = catalog.sizes.iter().filter(|size| SIZES.contains(&size.facts.name.as_str()));
    let group = "/subscriptions/0000-S/resourceGroups/MC_Group";
    CloudSettings {
        group: ArmId::new(group).unwrap(),
        managed_by: Some(
            ArmId::new("/subscriptions/0000-S/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/c")
                .unwrap(),
        ),
        region: region(),
        subnet: ArmId::new(
            "/subscriptions/s/resourceGroups/net/providers/Microsoft.Network/virtualNetworks/v/subnets/n",
        )
        .unwrap(),
        seed: 7,
        sizes: sizes.map(|size| (size.facts.name.clone(), Arc::clone(&size.facts))).collect(),
        prices: BTreeMap::new(),
        timings: Timings::default(),
    }
}

/// The same Azure twice: direct, and through the adapter.
struct Twins {
    direct: Cloud,
    wire: Arc<InProcess>,
    azure: Azure,
    now: Timestamp,
    /// Operations begun, as either side names them.
    operations: Vec<(OperationId, OperationId)>,
    runtime: Runtime,
}

impl Twins {
    fn new() -> Self {
        let (settings, now) = (cloud_settings(), Timestamp::from_second(1_800_000_000).unwrap());
        let wire = InProcess::new(Cloud::new(settings.clone()), now);
        let azure = azure(&settings, wire.clone());
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        Self { direct: Cloud::new(settings), wire, azure, now, operations: Vec::new(), runtime }
    }

    fn pass(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
        self.wire.set_now(self.now);
    }

    /// Does the same to both Azures.
    fn both(&mut self, change: impl Fn(&mut Cloud, Timestamp)) {
        change(&mut self.direct, self.now);
        self.wire.with(|cloud, now| change(cloud, *now));
    }

    /// Performs an effect on both sides: the reply, which must be the same but for names of operations.
    fn perform(&mut self, request: &CloudRequest) -> Result<Reply, EffectError> {
        let translated = match request {
            CloudRequest::Poll(operation) => {
                let known = self.operations.iter().find(|(direct, _)| direct == operation);
                CloudRequest::Poll(known.map_or(operation, |(_, url)| url).clone())
            }
            other => other.clone(),
        };
        let direct = self.direct.perform(request, self.now);
        let through = self.runtime.block_on(self.azure.perform(&translated));
        let request_text = format!("{request:?}");
        match (&direct, through) {
            (Ok(Reply::Accepted(operation)), Ok(Reply::Accepted(url))) => {
                let is_of_compute = url.0.ends_with("?api-version=2024-07-01");
                assert!(
                    is_of_compute
                        || url.0.contains("Microsoft.Network")
                        || url.0.contains("Microsoft.ContainerService"),
                    "{url}"
                );
                self.operations.push((operation.clone(), url));
            }
            (Ok(Reply::Resource(Some(resource))), Ok(Reply::Resource(Some(read)))) => {
                assert_eq!(shown(&of_get(resource)), shown(&read), "{request_text}");
            }
            (direct, through) => assert_eq!(direct, &through, "{request_text}"),
        }
        self.same();
        direct
    }

    /// Both Azures hold the same, in the same spelling, and have done the same.
    fn same(&self) {
        self.wire.with(|cloud, _| {
            assert_eq!(shown(self.direct.resources()), shown(cloud.resources()));
            assert_eq!(self.direct.ledger(), cloud.ledger());
            assert_eq!(self.direct.next_event(), cloud.next_event());
        });
    }

    fn list(&mut self) -> Result<Vec<Arc<CloudResource>>, napkeeper_core::model::azure::inventory::ListFailure> {
        let direct = self.direct.list(self.now);
        let through = plain(self.runtime.block_on(self.azure.list()));
        assert_eq!(shown(&direct), shown(&through));
        let standing_by = self.direct.list_related(self.now);
        assert_eq!(shown(&standing_by), shown(&self.runtime.block_on(self.azure.list_related())));
        let owner = self.direct.group_managed_by(self.now);
        assert_eq!(shown(&owner), shown(&self.runtime.block_on(self.azure.group_managed_by())));
        direct
    }

    fn events(&mut self) {
        let direct = self.direct.take_events();
        let through = self.wire.with(|cloud, _| cloud.take_events());
        assert_eq!(direct, through, "what VMs tell their kubelets");
    }

    fn nic(&self, name: &str) -> ArmId {
        self.direct.nic_id(name)
    }

    fn vm(&self, name: &str) -> ArmId {
        self.direct.vm_id(name)
    }

    fn put_nic(&self, name: &str) -> CloudRequest {
        CloudRequest::PutNic(Box::new(NicSpec {
            id: self.nic(name),
            tags: tags(name),
            accelerated: true,
            subnet: None,
            create_only: false,
        }))
    }

    fn put_vm(&self, name: &str, size: usize, zone: u8, spot: bool) -> CloudRequest {
        let label = |key: &str, value: &str| (Arc::from(key), Arc::from(value));
        CloudRequest::PutVm(Box::new(VmSpec {
            id: self.vm(name),
            offering: OfferingKey {
                size: VmSize::new(SIZES[size]).unwrap(),
                zone: if zone == 0 { Zone::regional() } else { Zone::of(&region(), zone) },
                capacity_type: if spot { CapacityType::Spot } else { CapacityType::OnDemand },
            },
            nic: self.nic(name),
            os_disk: self.direct.disk_id(name),
            os_disk_gb: 64,
            tags: tags(name),
            claim: ClaimName::new(name).unwrap(),
            kubelet: KubeletSpec { labels: Labels::from([label("pool", name), label("empty", "")]), max_pods: 30 },
            security: Default::default(),
            capacity_reservation_group: None,
            create_only: false,
            os_disk_storage: os_disk_storage(SIZES[size]),
        }))
    }
}

fn os_disk_storage(size: &str) -> OsDiskStorage {
    match size {
        "Standard_D4ds_v5" => OsDiskStorage::Ephemeral(EphemeralDiskPlacement::Resource),
        _ => OsDiskStorage::Premium,
    }
}

/// With ids as spelled, which comparing ids would not see.
pub(super) fn shown(value: &impl std::fmt::Debug) -> String {
    format!("{value:#?}")
}

/// A GET of a NIC does not tell its age; Azure knows it only in the listing of the group.
pub(super) fn of_get(resource: &CloudResource) -> CloudResource {
    let created_at = resource.created_at.filter(|_| !matches!(resource.detail, ResourceDetail::Nic(_)));
    CloudResource { created_at, ..resource.clone() }
}

fn tags(name: &str) -> Tags {
    let tag = |key: &str, value: &str| (Arc::from(key), Arc::from(value));
    Tags::from([tag(labels::TAG_CLUSTER, "c"), tag(labels::TAG_CLAIM, name), tag(labels::TAG_CLAIM_UID, "Uid-1")])
}

fn code(reply: &Result<Reply, EffectError>) -> CloudErrorCode {
    let Err(EffectError::Cloud(error)) = reply else { panic!("{reply:?} is no error of Azure") };
    error.code
}

#[test]
fn a_vm_is_created_and_deleted_with_all_its_resources() {
    let mut twins = Twins::new();
    assert_eq!(twins.perform(&twins.put_nic("a")), Ok(Reply::Done));
    let begun = twins.perform(&twins.put_vm("a", 1, 2, true)).unwrap();
    let Reply::Accepted(operation) = begun else { panic!("{begun:?}") };
    let poll = CloudRequest::Poll(operation);
    assert_eq!(twins.perform(&poll), Ok(Reply::Running));
    assert!(twins.perform(&CloudRequest::Get(twins.vm("a"))).is_ok());
    twins.pass(100);
    assert_eq!(twins.perform(&poll), Ok(Reply::Done));
    twins.events();
    for id in [twins.vm("a"), twins.nic("a"), twins.direct.disk_id("a")] {
        assert!(matches!(twins.perform(&CloudRequest::Get(id)), Ok(Reply::Resource(Some(_)))));
    }
    assert_eq!(twins.list().unwrap().len(), 3);
    let suspect = Tags::from([(Arc::from("Suspect since"), Arc::from("2026-08-03T08:00:00Z"))]);
    assert_eq!(twins.perform(&CloudRequest::Tag(twins.nic("a"), suspect.clone())), Ok(Reply::Done));
    let another = Tags::from([(Arc::from("Suspect since"), Arc::from("yesterday"))]);
    for (tags, left) in [(another, true), (suspect.clone(), false), (suspect, false)] {
        assert_eq!(twins.perform(&CloudRequest::Untag(twins.nic("a"), tags)), Ok(Reply::Done));
        let Ok(Reply::Resource(Some(nic))) = twins.perform(&CloudRequest::Get(twins.nic("a"))) else {
            panic!("no NIC")
        };
        assert_eq!(nic.tag("Suspect since").is_some(), left, "by key and value");
        assert!(!nic.tags.is_empty(), "no other tag goes");
    }
    assert_eq!(twins.perform(&twins.put_vm("a", 1, 2, true)), Ok(Reply::Done));
    assert_eq!(code(&twins.perform(&twins.put_vm("a", 2, 2, true))), CloudErrorCode::Conflict);
    assert_eq!(code(&twins.perform(&CloudRequest::Delete(twins.nic("a"), ResourceKind::Nic))), CloudErrorCode::InUse);
    assert!(matches!(twins.perform(&CloudRequest::Delete(twins.vm("a"), ResourceKind::Vm)), Ok(Reply::Accepted(_))));
    twins.pass(100);
    assert_eq!(twins.perform(&CloudRequest::Get(twins.vm("a"))), Ok(Reply::Resource(None)));
    assert_eq!(twins.perform(&CloudRequest::Delete(twins.vm("a"), ResourceKind::Vm)), Ok(Reply::Absent));
    assert_eq!(twins.list().unwrap().len(), 0);
}

/// Azure gives it an id, which is that of no resource.
#[test]
fn an_ephemeral_os_disk_is_no_resource() {
    let mut twins = Twins::new();
    twins.perform(&twins.put_nic("a")).unwrap();
    let with_local_disk = SIZES.len() - 1;
    let CloudRequest::PutVm(spec) = twins.put_vm("a", with_local_disk, 1, false) else { panic!("no VM") };
    let too_large = VmSpec { os_disk_gb: 256, ..VmSpec::clone(&spec) };
    assert_eq!(code(&twins.perform(&CloudRequest::PutVm(Box::new(too_large)))), CloudErrorCode::SizeUnfit);
    let put = CloudRequest::PutVm(spec);
    let Ok(Reply::Accepted(operation)) = twins.perform(&put) else { panic!("no VM") };
    twins.pass(100);
    assert_eq!(twins.perform(&CloudRequest::Poll(operation)), Ok(Reply::Done));
    assert_eq!(twins.perform(&put), Ok(Reply::Done), "the same VM is put again");
    let listed = twins.list().unwrap();
    assert_eq!(listed.iter().map(|r| r.kind()).collect::<Vec<_>>(), [ResourceKind::Vm, ResourceKind::Nic]);
    let ResourceDetail::Vm(vm) = &listed[0].detail else { panic!("no VM") };
    assert_eq!(vm.os_disk, None);
    let disk = twins.direct.disk_id("a");
    assert_eq!(twins.perform(&CloudRequest::Get(disk)), Ok(Reply::Resource(None)));
    let deleted = CloudRequest::Delete(twins.vm("a"), ResourceKind::Vm);
    assert!(matches!(twins.perform(&deleted), Ok(Reply::Accepted(_))));
    twins.pass(100);
    assert_eq!(twins.list().unwrap().len(), 0);
}

#[test]
fn the_power_state_of_a_vm_is_read_whatever_it_is() {
    let mut twins = Twins::new();
    let power = |twins: &mut Twins| twins.perform(&CloudRequest::GetPowerState(twins.vm("a")));
    assert_eq!(power(&mut twins), Ok(Reply::PowerState(None)), "a 404");
    assert_eq!(twins.perform(&twins.put_nic("a")), Ok(Reply::Done));
    assert!(matches!(twins.perform(&twins.put_vm("a", 1, 2, true)), Ok(Reply::Accepted(_))));
    assert_eq!(power(&mut twins), Ok(Reply::PowerState(Some(PowerState::Starting))));
    twins.pass(100);
    assert_eq!(power(&mut twins), Ok(Reply::PowerState(Some(PowerState::Running))));
    for (name, deallocate, state) in [("a", false, PowerState::Stopped), ("b", true, PowerState::Deallocated)] {
        if name == "b" {
            assert_eq!(twins.perform(&twins.put_nic("b")), Ok(Reply::Done));
            assert!(matches!(twins.perform(&twins.put_vm("b", 1, 2, true)), Ok(Reply::Accepted(_))));
            twins.pass(100);
        }
        let vm = twins.vm(name);
        twins.both(|cloud, now| cloud.shut_down_vm(&vm, deallocate, now).unwrap());
        assert_eq!(twins.perform(&CloudRequest::GetPowerState(vm)), Ok(Reply::PowerState(Some(state))));
    }
    twins.both(|cloud, now| cloud.faults.unavailable_until = Some(now + SignedDuration::from_secs(60)));
    assert_eq!(code(&power(&mut twins)), CloudErrorCode::Unavailable);
}

#[test]
fn the_billing_extension_may_be_put_again_and_is_deleted_with_its_vm() {
    let mut twins = Twins::new();
    let put = CloudRequest::PutBillingExtension(twins.vm("a"));
    assert_eq!(code(&twins.perform(&put)), CloudErrorCode::NotFound, "there is no VM");
    twins.perform(&twins.put_nic("a")).unwrap();
    twins.perform(&twins.put_vm("a", 1, 2, false)).unwrap();
    twins.pass(100);
    assert!(matches!(twins.perform(&put), Ok(Reply::Accepted(_))));
    assert!(twins.perform(&put).is_ok(), "again, as after a crash");
    assert!(twins.wire.with(|cloud, _| cloud.is_billed(&twins.vm("a"))));
}

#[test]
fn errors_keep_code_message_and_retry_after() {
    let mut twins = Twins::new();
    twins.perform(&twins.put_nic("a")).unwrap();
    twins.both(|cloud, _| cloud.limits.spot = Some(0));
    assert_eq!(code(&twins.perform(&twins.put_vm("a", 0, 1, true))), CloudErrorCode::SpotQuota);
    twins.both(|cloud, _| cloud.limits.regional = Some(0));
    assert_eq!(code(&twins.perform(&twins.put_vm("a", 0, 1, false))), CloudErrorCode::RegionalQuota);
    twins.both(|cloud, _| {
        cloud.limits = napkeeper_sim::cloud::Limits { subnet: Some(1), ..Default::default() };
    });
    assert_eq!(code(&twins.perform(&twins.put_nic("b"))), CloudErrorCode::SubnetFull);
    twins.both(|cloud, now| {
        cloud.faults.throttled = Some((now + SignedDuration::from_secs(9), SignedDuration::from_secs(17)))
    });
    let throttled = twins.perform(&twins.put_nic("a"));
    assert_eq!(code(&throttled), CloudErrorCode::Throttled);
    let Err(EffectError::Cloud(error)) = throttled else { unreachable!() };
    assert_eq!(error.retry_after, Some(SignedDuration::from_secs(17)));
    assert!(twins.list().is_err(), "a throttled listing is no listing");
    twins.both(|cloud, _| cloud.faults.throttled = None);
    twins.both(|cloud, now| cloud.faults.unavailable_until = Some(now + SignedDuration::from_secs(9)));
    assert_eq!(code(&twins.perform(&CloudRequest::Get(twins.nic("a")))), CloudErrorCode::Unavailable);
}

#[test]
fn a_failed_operation_has_a_reason() {
    for (zone, expected) in [(0, CloudErrorCode::AllocationFailed), (3, CloudErrorCode::ZonalAllocationFailed)] {
        let mut twins = Twins::new();
        twins.both(|cloud, _| cloud.faults.unallocatable = vec![Shortage::of_all(FaultDuration::Times(1))]);
        twins.perform(&twins.put_nic("a")).unwrap();
        let Ok(Reply::Accepted(operation)) = twins.perform(&twins.put_vm("a", 1, zone, false)) else { panic!("no VM") };
        twins.pass(100);
        assert_eq!(code(&twins.perform(&CloudRequest::Poll(operation))), expected);
    }
}

#[test]
fn a_listing_of_many_pages_is_complete_or_fails() {
    let mut twins = Twins::new();
    let draft = |n: usize, zone| DiskDraft {
        name: Arc::from(format!("pvc-{n}")),
        tags: tags("x"),
        size_gib: 32,
        sku: Arc::from("StandardSSD_LRS"),
        is_os: n.is_multiple_of(2),
        zone,
    };
    for n in 0..120 {
        let zone = (n % 3 == 0).then(|| Zone::of(&region(), 1));
        twins.both(|cloud, now| {
            cloud.add_disk(draft(n, zone.clone()), now).unwrap();
            cloud.leak_nic(&format!("nic-{n}"), tags("x"), now).unwrap();
        });
        twins.pass(1);
    }
    twins.both(|cloud, now| {
        let offering = OfferingKey {
            size: VmSize::new(SIZES[0]).unwrap(),
            zone: Zone::regional(),
            capacity_type: CapacityType::OnDemand,
        };
        let vm = cloud.add_vm("vm", tags("x"), &offering, now).unwrap();
        let disk = cloud.disk_id("pvc-1");
        cloud.attach_disk(&disk, &vm, now).unwrap();
        cloud.set_serves(&cloud.nic_id("nic-1"), Some(Arc::from("a private endpoint")), now).unwrap();
        cloud.set_copied(&cloud.disk_id("pvc-3"), now).unwrap();
        cloud.faults.uppercase_ids = true;
    });
    assert_eq!(twins.list().unwrap().len(), 243);
    for fault in [ListingFault::BrokenPage, ListingFault::Forbidden] {
        twins.both(|cloud, now| cloud.faults.listing = Some((now + SignedDuration::from_secs(5), fault)));
        assert!(twins.list().is_err(), "{fault:?}");
    }
}

/// One of each, with links; the second of some is younger.
pub(super) fn stand_by(cloud: &mut Cloud, n: usize, now: Timestamp) {
    let id = |of: &str, name: String| cloud.other_id(of, &name);
    let (pool, machine) = (if n.is_multiple_of(2) { "nodes" } else { "spot" }, format!("m-{n}"));
    let instance = id("Microsoft.Compute/virtualMachineScaleSets", format!("set/virtualMachines/{n}"));
    let nic = ArmId::new(format!("{instance}/networkInterfaces/nic")).unwrap();
    let frontend = id("Microsoft.Network/loadBalancers", format!("lb-{}/frontendIPConfigurations/f-{n}", n % 2));
    let address = id("Microsoft.Network/publicIPAddresses", format!("ip-{n}"));
    let vm = Some(cloud.vm_id(&format!("vm-{n}")));
    let count = u32::try_from(n).unwrap();
    let roles = [
        (
            cloud.machine_id(pool, &machine).unwrap(),
            RelatedDetail::AksMachine { vm, state: ProvisioningState::Creating },
        ),
        (
            instance,
            RelatedDetail::ScaleSetInstance {
                nics: vec![nic],
                disks: (0..n % 3).map(|d| cloud.disk_id(&format!("set-{n}-{d}"))).collect(),
            },
        ),
        (
            id("Microsoft.Compute/snapshots", format!("snap-{n}")),
            RelatedDetail::Snapshot {
                source: (!n.is_multiple_of(3)).then(|| cloud.disk_id(&format!("pvc-{n}"))),
                in_progress: n.is_multiple_of(2),
            },
        ),
        (
            address.clone(),
            RelatedDetail::PublicIp {
                address: (n > 0).then(|| Arc::from(format!("20.0.0.{n}"))),
                used_by: (n % 2 == 1).then(|| frontend.clone()),
            },
        ),
        (
            frontend,
            RelatedDetail::LoadBalancerFrontend {
                public_ip: (n % 2 == 1).then_some(address),
                rules: count % 3,
                outbound_rules: count % 2,
                backends: if count % 3 + count % 2 > 0 { count } else { 0 },
            },
        ),
    ];
    for (id, role) in roles {
        let untold = matches!(role, RelatedDetail::PublicIp { .. } | RelatedDetail::LoadBalancerFrontend { .. });
        let tags = Tags::from([(Arc::from("k"), Arc::from("v"))]);
        let created_at = (!untold).then_some(now);
        cloud.add_related(RelatedResource { id, tags, created_at, detail: role }, now).unwrap();
    }
}

/// Another than that of the settings.
fn own_subnet() -> ArmId {
    ArmId::new("/subscriptions/s/resourceGroups/net/providers/Microsoft.Network/virtualNetworks/v/subnets/own").unwrap()
}

#[test]
fn a_nic_is_in_the_subnet_that_is_named() {
    let mut twins = Twins::new();
    let CloudRequest::PutNic(spec) = twins.put_nic("a") else { panic!("no NIC") };
    let own = own_subnet();
    for subnet in [None, Some(own.clone())] {
        let put = CloudRequest::PutNic(Box::new(NicSpec { subnet, ..(*spec).clone() }));
        assert_eq!(twins.perform(&put), Ok(Reply::Done));
        let Ok(Reply::Resource(Some(found))) = twins.perform(&CloudRequest::Get(twins.nic("a"))) else {
            panic!("gone")
        };
        let ResourceDetail::Nic(nic) = &found.detail else { panic!("{found:?}") };
        assert!(nic.subnet.is_some());
    }
    assert!(
        twins
            .list()
            .unwrap()
            .iter()
            .any(|one| matches!(&one.detail, ResourceDetail::Nic(nic) if nic.subnet == Some(own.clone())))
    );
}

#[test]
fn related_resources_are_listed_with_their_links() {
    let mut twins = Twins::new();
    for n in 0..60 {
        twins.both(|cloud, now| stand_by(cloud, n, now));
    }
    twins.list().unwrap();
    let all = twins.direct.list_related(twins.now).unwrap();
    assert_eq!(all.len(), 300);
    let linked = |one: &RelatedResource| matches!(&one.detail, RelatedDetail::AksMachine { vm: Some(vm), .. } if vm.name() == "vm-7");
    assert!(all.iter().any(|one| linked(one)));
    twins.both(|cloud, _| (cloud.faults.uppercase_ids, cloud.faults.ragged_pages) = (true, true));
    twins.list().unwrap();
    let removed = all.iter().step_by(7).map(|one| one.id.clone()).collect::<Vec<_>>();
    for id in &removed {
        twins.both(|cloud, now| cloud.remove_related(id, now).unwrap());
    }
    twins.pass(30);
    let ghosts = ListingLag { of: None, hides: SignedDuration::ZERO, keeps: SignedDuration::from_mins(1) };
    twins.both(|cloud, _| cloud.faults.lags = vec![ghosts]);
    twins.list().unwrap();
    assert_eq!(twins.direct.list_related(twins.now).unwrap().len(), 300, "the gone are still shown");
    twins.pass(60);
    twins.list().unwrap();
    assert_eq!(twins.direct.list_related(twins.now).unwrap().len(), 300 - removed.len());
}

/// If any part of a listing cannot be read, the whole listing fails.
#[test]
fn a_part_that_cannot_be_listed_is_no_shorter_list() {
    let mut twins = Twins::new();
    twins.both(|cloud, now| stand_by(cloud, 1, now));
    for kind in ListedKind::ALL {
        for fault in [ListingFault::BrokenPage, ListingFault::Forbidden, ListingFault::Absent] {
            let until = twins.now + SignedDuration::from_secs(9);
            twins.both(|cloud, _| cloud.faults.listings = BTreeMap::from([(kind, (until, fault))]));
            let cloud = twins.runtime.block_on(twins.azure.list()).is_err();
            let others = twins.runtime.block_on(twins.azure.list_related()).is_err();
            let is_resource = matches!(kind, ListedKind::Vms | ListedKind::Nics | ListedKind::Disks);
            assert_eq!((cloud, others), (is_resource, !is_resource), "{kind:?} {fault:?}");
            twins.both(|cloud, _| cloud.faults.listings.clear());
        }
    }
    twins.list().unwrap();
}

fn machine(twins: &Twins, name: &str, zone: u8, spot: bool) -> AksMachineSpec {
    let capacity_type = if spot { CapacityType::Spot } else { CapacityType::OnDemand };
    let zone = if zone == 0 { Zone::regional() } else { Zone::of(&region(), zone) };
    let offering = OfferingKey { size: VmSize::new(SIZES[0]).unwrap(), zone, capacity_type };
    machine_spec(twins.direct.machine_id("nodes", name).unwrap(), offering)
}

/// A Machine with this id, which is named as its NodeClaim.
pub(super) fn machine_spec(id: ArmId, offering: OfferingKey) -> AksMachineSpec {
    let name = id.name().to_owned();
    AksMachineSpec {
        id,
        offering,
        os_disk_gb: 128,
        ephemeral_os_disk: false,
        tags: tags(&name),
        claim: ClaimName::new(&name).unwrap(),
        security: napkeeper_core::plan::SecurityProfile { encryption_at_host: true, ..Default::default() },
        subnet: None,
        kubelet: KubeletSpec { labels: Labels::from([(Arc::from("l"), Arc::from("v"))]), max_pods: 110 },
    }
}

/// Machines are created, read and deleted in the same way through the adapter, and an existing Machine is not put
/// again.
#[test]
fn a_machine_is_created_and_deleted_with_its_vm() {
    let mut twins = Twins::new();
    let spec = AksMachineSpec { subnet: Some(own_subnet()), ..machine(&twins, "one-aaaaa", 2, true) };
    let id = spec.id.clone();
    let call = |call: AksMachineRequest| CloudRequest::AksMachine(call);
    let put = call(AksMachineRequest::Put(Box::new(spec.clone())));
    assert_eq!(twins.perform(&call(AksMachineRequest::Get(id.clone()))), Ok(Reply::AksMachine(None)));
    let Ok(Reply::Accepted(operation)) = twins.perform(&put) else { panic!("no Machine") };
    assert_eq!(code(&twins.perform(&put)), CloudErrorCode::Conflict, "it is never changed");
    twins.pass(100);
    assert_eq!(twins.perform(&CloudRequest::Poll(operation)), Ok(Reply::Done));
    twins.events();
    let Ok(Reply::AksMachine(Some(found))) = twins.perform(&call(AksMachineRequest::Get(id.clone()))) else {
        panic!("gone")
    };
    assert_eq!(found.tags, spec.tags, "whose it is, exactly");
    let RelatedDetail::AksMachine { vm: Some(vm), state: ProvisioningState::Succeeded } = &found.detail else {
        panic!("{found:?}")
    };
    assert!(vm.name().starts_with("aks-one-aaaaa-"), "{vm}");
    assert_eq!(twins.list().unwrap().len(), 3, "VM, NIC and disk of AKS's own");
    assert!(matches!(twins.perform(&call(AksMachineRequest::Delete(id.clone()))), Ok(Reply::Accepted(_))));
    twins.pass(100);
    assert_eq!(twins.perform(&call(AksMachineRequest::Get(id.clone()))), Ok(Reply::AksMachine(None)));
    assert_eq!(twins.perform(&call(AksMachineRequest::Delete(id))), Ok(Reply::Absent));
    assert_eq!(twins.list().unwrap().len(), 0);
    let size = VmSize::new("Standard_D4ds_v5").unwrap();
    let offering = OfferingKey { size, ..spec.offering.clone() };
    let local = AksMachineSpec { offering, ephemeral_os_disk: true, ..spec };
    assert!(matches!(twins.perform(&call(AksMachineRequest::Put(Box::new(local)))), Ok(Reply::Accepted(_))));
    assert_eq!(twins.list().unwrap().len(), 2, "VM and NIC");
}

#[test]
fn a_failed_machine_leaves_nothing_or_is_reported_as_failed() {
    let mut twins = Twins::new();
    let spec = machine(&twins, "one-aaaaa", 1, false);
    let id = spec.id.clone();
    let put = CloudRequest::AksMachine(AksMachineRequest::Put(Box::new(spec)));
    twins.both(|cloud, _| cloud.limits.regional = Some(0));
    assert_eq!(code(&twins.perform(&put)), CloudErrorCode::RegionalQuota);
    assert_eq!(twins.list().unwrap().len(), 0);
    twins.both(|cloud, _| cloud.limits.regional = None);
    twins.both(|cloud, _| cloud.faults.unallocatable = vec![Shortage::of_all(FaultDuration::Times(1))]);
    let Ok(Reply::Accepted(operation)) = twins.perform(&put) else { panic!("no Machine") };
    twins.pass(100);
    assert_eq!(code(&twins.perform(&CloudRequest::Poll(operation))), CloudErrorCode::ZonalAllocationFailed);
    let Ok(Reply::AksMachine(Some(found))) = twins.perform(&CloudRequest::AksMachine(AksMachineRequest::Get(id)))
    else {
        panic!("gone")
    };
    assert!(matches!(found.detail, RelatedDetail::AksMachine { state: ProvisioningState::Failed, .. }), "{found:?}");
}

#[test]
fn an_absent_cluster_is_accepted_only_if_the_settings_allow_it() {
    let twins = Twins::new();
    let elsewhere = "/subscriptions/0000-S/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/other";
    for (may_be_absent, whole) in [(true, true), (false, false)] {
        let cluster = AksCluster { id: ArmId::new(elsewhere).unwrap(), may_be_absent };
        let settings = AzureSettings { aks: Some(cluster), ..settings(&cloud_settings()) };
        let azure = Azure::new(settings, twins.wire.clone(), credential()).unwrap();
        assert_eq!(twins.runtime.block_on(azure.list_related()).is_ok(), whole);
    }
    assert_eq!(AksCluster::of(&ArmId::new("/subscriptions/s/resourceGroups/g").unwrap()), None);
    assert_eq!(AksCluster::of(&ArmId::new(elsewhere).unwrap()).map(|c| c.may_be_absent), Some(false));
}

#[test]
fn no_token_goes_to_another_host() {
    let twins = Twins::new();
    for url in ["https://evil.example/operations/1", "http://management.azure.com/operations/1", "no-url"] {
        let poll = CloudRequest::Poll(OperationId(Arc::from(url)));
        let reply = twins.runtime.block_on(twins.azure.perform(&poll));
        assert_eq!(code(&reply), CloudErrorCode::Invalid, "{url}");
    }
}

/// One step of a random history.
#[derive(Debug, Clone)]
enum Step {
    PutNic(usize),
    PutVm(usize, usize, u8, bool),
    Delete(usize, ResourceKind),
    Get(usize, ResourceKind),
    Tag(usize, ResourceKind, u8),
    Poll(usize),
    List,
    Pass(i64),
    Fault(u8, i64),
}

const NAMES: [&str; 4] = ["one-aaaaa", "one-bbbbb", "two-ccccc", "two-ddddd"];

fn step() -> impl Strategy<Value = Step> {
    let name = 0..NAMES.len();
    let kind = prop::sample::select(ResourceKind::ALL.to_vec());
    prop_oneof![
        3 => name.clone().prop_map(Step::PutNic),
        4 => (name.clone(), 0..SIZES.len(), 0..5_u8, any::<bool>()).prop_map(|(n, s, z, p)| Step::PutVm(n, s, z, p)),
        3 => (name.clone(), kind.clone()).prop_map(|(n, k)| Step::Delete(n, k)),
        3 => (name.clone(), kind.clone()).prop_map(|(n, k)| Step::Get(n, k)),
        1 => (name, kind, any::<u8>()).prop_map(|(n, k, v)| Step::Tag(n, k, v)),
        4 => (0..8_usize).prop_map(Step::Poll),
        2 => Just(Step::List),
        4 => (1..120_i64).prop_map(Step::Pass),
        2 => (0..17_u8, 1..60_i64).prop_map(|(kind, lasting)| Step::Fault(kind, lasting)),
    ]
}

fn fault(cloud: &mut Cloud, now: Timestamp, kind: u8, lasting: i64) {
    cloud.advance(now);
    let until = now + SignedDuration::from_secs(lasting);
    let times = FaultDuration::Times(u32::try_from(lasting % 3).unwrap_or(1));
    match kind {
        0 => cloud.faults.refused.push(Shortage::of_all(times)),
        1 => cloud.faults.unallocatable.push(Shortage::of_all(times)),
        2 => cloud.faults.throttled = Some((until, SignedDuration::from_secs(lasting))),
        3 => cloud.faults.unavailable_until = Some(until),
        4 => cloud.faults.deletes_locked_until = Some(until),
        5 => cloud.faults.listing = Some((until, ListingFault::BrokenPage)),
        6 => cloud.faults.list_lag = SignedDuration::from_secs(lasting),
        7 => cloud.faults.lockdown_until = Some(until),
        8 => cloud.faults.forbidden_until = Some(until),
        9 => cloud.faults.policies.push(PolicyAssignment {
            assignment: Arc::from("no-new-sizes"),
            of: ListedKind::ALL.get(usize::try_from(lasting % 9).unwrap()).copied(),
            deletes: lasting % 2 == 0,
            duration: times,
        }),
        10 => cloud.faults.failing.push(LateFailure { deletes: lasting % 2 == 0, duration: times }),
        11 => cloud.faults.slow = u32::try_from(lasting % 4).unwrap(),
        12 => cloud.faults.ragged_pages = !cloud.faults.ragged_pages,
        13 => cloud.faults.lags.push(ListingLag {
            of: ListedKind::ALL.get(usize::try_from(lasting % 9).unwrap()).copied(),
            hides: SignedDuration::from_secs(lasting % 5 * 10),
            keeps: SignedDuration::from_secs(lasting % 7 * 10),
        }),
        14 => {
            let n = usize::try_from(lasting).unwrap();
            if cloud.related(&cloud.other_id("Microsoft.Compute/snapshots", &format!("snap-{n}"))).is_none() {
                stand_by(cloud, n, now);
            }
        }
        15 => cloud.faults.keep_children = !cloud.faults.keep_children,
        _ => cloud.faults.uppercase_ids = !cloud.faults.uppercase_ids,
    }
}

impl Twins {
    fn id(&self, name: usize, kind: ResourceKind) -> ArmId {
        match kind {
            ResourceKind::Vm => self.vm(NAMES[name]),
            ResourceKind::Nic => self.nic(NAMES[name]),
            ResourceKind::OsDisk | ResourceKind::DataDisk => self.direct.disk_id(NAMES[name]),
        }
    }

    fn play(&mut self, step: &Step) {
        let effect = match *step {
            Step::PutNic(name) => self.put_nic(NAMES[name]),
            Step::PutVm(name, size, zone, spot) => self.put_vm(NAMES[name], size, zone, spot),
            Step::Delete(name, kind) => CloudRequest::Delete(self.id(name, kind), kind),
            Step::Get(name, kind) => CloudRequest::Get(self.id(name, kind)),
            Step::Tag(name, kind, value) => {
                let tags = Tags::from([(Arc::from("k"), Arc::from((value / 2 % 3).to_string()))]);
                let change = if value % 2 == 0 { CloudRequest::Tag } else { CloudRequest::Untag };
                change(self.id(name, kind), tags)
            }
            Step::Poll(which) => match self.operations.iter().rev().nth(which) {
                Some((operation, _)) => CloudRequest::Poll(operation.clone()),
                None => return,
            },
            Step::List => return drop(self.list()),
            Step::Pass(seconds) => return self.pass(seconds),
            Step::Fault(kind, lasting) => return self.both(|cloud, now| fault(cloud, now, kind, lasting)),
        };
        drop(self.perform(&effect));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn whatever_happens_the_adapter_changes_nothing(steps in prop::collection::vec(step(), 1..60)) {
        let mut twins = Twins::new();
        for step in &steps {
            twins.play(step);
            twins.events();
        }
        drop(twins.list());
    }
}
