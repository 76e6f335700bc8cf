//! Tests of losses that users of other tools reported.
//!
//! One test for each failure that users of AKS, Karpenter and clean-up tools reported of NICs, VMs, disks, addresses
//! and accidental deletes, as far as it is a question of links, listings and deleting. Named after what went wrong.
//!
//! | what users lost | test here, or elsewhere |
//! |---|---|
//! | NICs of failed launches, most of them for quota | `failed_launches_leave_no_nics`; `lifecycle::tests::launch` |
//! | a NIC that is reserved for another VM for 180 s | `a_nic_reserved_for_another_vm_is_deleted_after_the_reservation` |
//! | the Node is deleted, NIC and disk remain | `vm_nic_and_disk_of_a_deleted_claim_are_all_deleted` |
//! | hundreds of NICs after a scale test | `all_leaked_nics_are_deleted_in_the_end` |
//! | NICs without the tag that a clean-up looks for | `a_nic_without_the_nodepools_tag_is_found` |
//! | orphaned NICs in the backend pool of a load balancer | `an_orphaned_nic_leaves_the_backend_pool_with_its_deletion` |
//! | a new NIC that the list does not show | `a_nic_that_the_listing_showed_late_is_found_late` |
//! | leaks and deletes that burn the API's quota | `sweep::rate_limiter` |
//! | a full subnet of unknown cause | `leaked_addresses_are_counted`; the order: `execution` |
//! | a VM that comes up after its launch failed | `a_vm_that_starts_after_its_launch_failed_is_checked_again` |
//! | a Node that is `Unknown` for ever | `a_node_left_unknown_for_ever_is_reported` |
//! | a Machine and a NodeClaim that keep each other | `a_machine_and_a_claim_that_keep_each_other_alive_are_reported` |
//! | a NodeClaim stuck on its finalizer | `a_claim_stuck_on_its_finalizer_is_reported_and_keeps_it` |
//! | NodeClaims without a VM, Nodes without a NodeClaim | `an_orphaned_claim_is_reported`, `a_node_without_a_claim_is_reported` |
//! | VMs that run, cost and never join | `a_vm_that_never_joins_is_reported` |
//! | spot VMs left stopped | `an_orphaned_stopped_vm_is_deleted` |
//! | nodes that outlive their NodeClaim, and are billed | `w15_leaks_of_standalone_claims_are_found` |
//! | a detached disk of a volume taken for an orphan | `a_detached_disk_of_a_volume_is_no_orphan`, `a_disk_that_a_pod_uses_without_a_volume_is_not_deleted` |
//! | disks of unknown purpose | `an_unmanaged_disk_names_the_claim_it_was_created_for` |
//! | a disk that its driver leaves behind | `a_disk_left_behind_by_its_driver_is_collected_after_a_week` |
//! | an OS disk that keeps a name taken | `the_os_disk_of_a_failed_vm_is_deleted_so_that_its_name_is_free` |
//! | replicas and exports taken for orphans | `site_recovery_and_exports_are_no_orphans` |
//! | addresses and frontends that outlive their Service | `addresses_that_outlive_their_service_are_reported_with_the_service` |
//! | the node resource group deleted by mistake | `nothing_is_deleted_but_single_vms_nics_and_disks`, `a_deleted_group_is_not_an_empty_group` |
//! | things in use deleted | `a_resource_in_use_by_azures_state_is_not_deleted_though_no_object_names_it`; `unproven` for parts of a VM |
//! | locks, lockdown | `a_lock_ends_the_try_and_not_the_sweep`; `execution` |
//! | partial results taken for all there is | `a_shorter_list_that_claims_to_be_whole_trips_the_breaker`, `w13_a_listing_that_is_not_whole_is_no_listing` |
//! | listings that show deleted resources for hours | `a_deleted_resource_that_is_still_listed_does_not_count` |

use super::fixtures::*;
use crate::model::azure::cloud::{CloudResource, DiskState, ProvisioningState, ResourceKind, Tags};
use crate::model::azure::naming::{VM_TYPE, resource_ids};
use crate::model::azure::related::RelatedDetail;
use crate::model::cluster::volume::ReclaimPolicy;
use crate::model::errors::CloudErrorCode;
use crate::model::labels;
use crate::model::names::{ArmId, ClaimName, ProviderId};
use crate::model::orphans::finding::{Classification, DeletionRefusal};
use crate::model::orphans::report::{Discrepancy, DiscrepancyKind, IpUsage};
use crate::orphans::*;
use std::sync::Arc;

fn vm_of(claim: &str) -> ArmId {
    resource_ids(&group(), &ClaimName::new(claim).unwrap()).vm
}

/// The discrepancies of a world: kind, object, evidence and remedy in one text.
fn wrong(world: &SweepWorld) -> Vec<(DiscrepancyKind, String)> {
    let found = find_discrepancies(&world.inventory, Some(&world.snapshot), &world.settings);
    let text = |d: &Discrepancy| format!("{}: {}. {}", d.object, d.evidence.join("; "), d.remedy);
    found.iter().map(|d| (d.kind, text(d))).collect()
}

/// A day later: launched resources are a day old.
fn a_day_later(world: &mut SweepWorld) {
    world.now += HOURS(24);
    world.inventory.finished_at = world.now;
}

/// Marks a claim of the world as launched, and optionally as joined.
fn launched(world: &mut SweepWorld, name: &str, joined: bool) {
    let at = start();
    let claims = world.claims();
    let index = claims.iter().position(|c| c.name.as_str() == name).unwrap();
    let claim = Arc::make_mut(&mut claims[index]);
    claim.status.launched = Some(at);
    claim.status.registered = joined.then_some(at);
    claim.status.provider_id = Some(ProviderId::of_vm(&vm_of(name)));
}

fn lose_vm(world: &mut SweepWorld, name: &str) {
    let lost = vm_of(name);
    world.inventory.resources.as_mut().unwrap().retain(|r| r.id != lost);
}

// NICs and the addresses of the subnet.

#[test]
fn failed_launches_leave_no_nics() {
    // Quota refused the VM; the NIC stayed, and its NodeClaim went.
    let mut world = eager_world();
    world.add(gone_nic("aks-gone"));
    world.run(HOURS(2));
    assert_eq!(world.deleted_names(), ["aks-gone"]);
}

#[test]
fn a_nic_reserved_for_another_vm_is_deleted_after_the_reservation() {
    let mut world = eager_world();
    world.add(gone_nic("reserved"));
    world.refusing.insert("reserved".to_owned(), CloudErrorCode::NicReserved);
    world.run(MINUTES(30));
    assert_eq!(world.tried, ["reserved"]);
    world.refusing.clear();
    world.now += MINUTES(10);
    world.run(HOURS(2));
    assert_eq!(world.deleted_names(), ["reserved"]);
}

#[test]
fn vm_nic_and_disk_of_a_deleted_claim_are_all_deleted() {
    let mut world = eager_world();
    (10..40).for_each(|n| world.add_claim(&format!("live-{n}"), &format!("uid-{n}")));
    for leaked in
        [vm("aks-gone", tags("gone", "u")), nic("aks-gone", tags("gone", "u")), os_disk("aks-gone", tags("gone", "u"))]
    {
        world.add(leaked);
    }
    world.run(HOURS(2));
    let kinds: Vec<ResourceKind> = world.deleted.iter().map(|(_, d)| d.resource.kind()).collect();
    assert_eq!(kinds, [ResourceKind::Nic, ResourceKind::OsDisk, ResourceKind::Vm], "addresses come free first");
}

#[test]
fn all_leaked_nics_are_deleted_in_the_end() {
    let mut world = eager_world();
    (10..80).for_each(|n| world.add_claim(&format!("live-{n}"), &format!("uid-{n}")));
    (0..7).for_each(|n| world.add(gone_nic(&format!("leaked-{n}"))));
    world.run(HOURS(24));
    assert_eq!(world.deleted.len(), 7);
}

#[test]
fn a_nic_without_the_nodepools_tag_is_found() {
    let mut world = eager_world();
    let bare = [(Arc::from(labels::TAG_CLUSTER), Arc::from("c-1"))];
    world.add(nic("bare", bare.into()));
    world.run(HOURS(2));
    assert_eq!(world.deleted_names(), ["bare"]);
}

#[test]
fn an_orphaned_nic_leaves_the_backend_pool_with_its_deletion() {
    let mut world = eager_world();
    world.add(gone_nic("in-pool"));
    let role = RelatedDetail::LoadBalancerFrontend { public_ip: None, rules: 2, outbound_rules: 0, backends: 1 };
    world.add_related(role, "Microsoft.Network/loadBalancers", "kubernetes/frontendIPConfigurations/a1", Tags::new());
    world.run(HOURS(2));
    assert_eq!(world.deleted_names(), ["in-pool"], "traffic to it is lost: a pool is no sign of life");
    let reported = &world.report.as_ref().unwrap().report_only;
    assert!(reported.is_empty(), "and the frontend is in use: {reported:?}");
}

#[test]
fn a_nic_that_the_listing_showed_late_is_found_late() {
    let mut world = eager_world();
    world.run(MINUTES(60));
    world.add(gone_nic("late"));
    world.run(MINUTES(60));
    assert_eq!(world.deleted_names(), ["late"]);
    assert!(world.deleted[0].0 >= start() + MINUTES(90));
}

#[test]
fn leaked_addresses_are_counted() {
    let mut world = eager_world();
    world.sweep.mode = crate::model::orphans::sweep::SweepMode::Report;
    let mut many = gone_nic("many");
    as_nic(&mut many).addresses = 31;
    world.add(many);
    world.run(HOURS(1));
    let report = world.report.as_ref().unwrap();
    assert_eq!(report.totals[&(ResourceKind::Nic, Classification::Orphan)].addresses, 31);
}

// VMs, Machines, NodeClaims and Nodes that are out of step.

#[test]
fn a_vm_that_starts_after_its_launch_failed_is_checked_again() {
    let mut world = eager_world();
    world.add(vm("aks-late", tags("late", "uid-late")));
    world.run(MINUTES(20));
    world.now += MINUTES(10);
    world.observe_without_apply();
    world.nodes().push(Arc::new(node("aks-late", &vm_of("late"))));
    world.pass();
    assert_eq!(world.aborted, [DeletionRefusal::SignOfLife], "by the last look, before it is deleted with its pods");
    world.observe();
    world.run(HOURS(2));
    assert_eq!(world.deleted_names(), [""; 0]);
}

#[test]
fn a_node_left_unknown_for_ever_is_reported() {
    let mut world = eager_world();
    let mut left = node("aks-left", &vm_of("left"));
    left.ready = false;
    world.nodes().push(Arc::new(left));
    a_day_later(&mut world);
    let wrong = wrong(&world);
    assert_eq!(wrong[0].0, DiscrepancyKind::NodeWithoutVm);
    assert!(wrong[0].1.contains("no NodeClaim refers to it") && wrong[0].1.contains("kubectl delete node aks-left"));
    assert_eq!(wrong.len(), 1);
}

/// Adds the Machine of a claim, with a VM or the id of a deleted one.
fn add_machine(world: &mut SweepWorld, claim: &str, vm: &ArmId) {
    let tag = (Arc::from(labels::TAG_MACHINE_CLAIM), Arc::from(claim));
    let role = RelatedDetail::AksMachine { vm: Some(vm.clone()), state: ProvisioningState::Succeeded };
    let name = format!("c/agentPools/nap/machines/{claim}");
    world.add_related(role, "Microsoft.ContainerService/managedClusters", &name, [tag].into());
}

#[test]
fn a_machine_and_a_claim_that_keep_each_other_alive_are_reported() {
    let mut world = eager_world();
    let vm = group().resource(VM_TYPE, "aks-nap-live-1-12345678-vm");
    launched(&mut world, "live-1", true);
    let first = world.claims().iter_mut().find(|c| c.name.as_str() == "live-1").unwrap();
    Arc::make_mut(first).status.provider_id = Some(ProviderId::of_vm(&vm));
    add_machine(&mut world, "live-1", &vm);
    a_day_later(&mut world);
    let wrong = wrong(&world);
    let kinds: Vec<DiscrepancyKind> = wrong.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [DiscrepancyKind::ClaimWithoutVm, DiscrepancyKind::MachineWithoutVm]);
    assert!(wrong[0].1.contains("AKS Machine live-1 still refers to it"), "{}", wrong[0].1);
    assert!(wrong[1].1.contains("NodeClaim live-1 still refers to it"), "{}", wrong[1].1);
    assert!(wrong[1].1.contains("az aks machine delete"));
}

#[test]
fn a_claim_stuck_on_its_finalizer_is_reported_and_keeps_it() {
    let mut world = eager_world();
    launched(&mut world, "live-1", true);
    lose_vm(&mut world, "live-1");
    world.nodes().retain(|n| n.name.as_str() != "aks-live-1");
    let at = start();
    let stuck = world.claims().iter_mut().find(|c| c.name.as_str() == "live-1").unwrap();
    Arc::make_mut(stuck).deleting_at = Some(at);
    a_day_later(&mut world);
    let wrong = wrong(&world);
    assert_eq!(wrong[0].0, DiscrepancyKind::StuckFinalizer);
    assert!(
        wrong[0].1.contains("is not waiting for Azure") && wrong[0].1.contains("napkeeper does not remove finalizers")
    );
    let plan = world.decide();
    let touches = plan.commands.iter().any(|p| format!("{:?}", p.command).contains("Release"));
    assert!(!touches);
}

#[test]
fn a_drain_that_waits_for_a_node_that_is_not_ready_is_reported_with_what_to_do() {
    let mut world = eager_world();
    launched(&mut world, "live-1", true);
    let stuck = world.claims().iter_mut().find(|c| c.name.as_str() == "live-1").unwrap();
    Arc::make_mut(stuck).deleting_at = Some(start());
    let mut report = |ready: bool| {
        let node = world.nodes().iter_mut().find(|n| n.name.as_str() == "aks-live-1").unwrap();
        let node = Arc::make_mut(node);
        (node.ready, node.ready_since) = (ready, start());
        let node = node.clone();
        world.snapshot.put_pod(crate::fixtures::running("p", &Arc::new(crate::fixtures::shape("a", 100, 1)), &node));
        world.snapshot.put_node(node);
        a_day_later(&mut world);
        let (kind, text) = wrong(&world).remove(0);
        assert_eq!(kind, DiscrepancyKind::StuckFinalizer);
        assert!(text.contains("pod default/p blocks the drain"), "{text}");
        text
    };
    let silent = report(false);
    assert!(silent.contains("its pods may run on") && silent.contains("out-of-service"), "{silent}");
    let reporting = report(true);
    assert!(reporting.contains("relax their PodDisruptionBudget"), "{reporting}");
    assert!(!reporting.contains("out-of-service"), "{reporting}");
}

#[test]
fn an_orphaned_claim_is_reported() {
    let mut world = eager_world();
    launched(&mut world, "live-2", true);
    lose_vm(&mut world, "live-2");
    a_day_later(&mut world);
    let wrong = wrong(&world);
    assert_eq!(wrong[0].0, DiscrepancyKind::ClaimWithoutVm);
    assert!(wrong[0].1.contains("kubectl delete nodeclaim live-2"));
}

#[test]
fn a_node_without_a_claim_is_reported() {
    let mut world = eager_world();
    let mut lost = node("aks-lost", &vm_of("lost"));
    lost.labels = [(Arc::from(labels::NODEPOOL), Arc::from("general"))].into();
    world.nodes().push(Arc::new(lost));
    world.add(vm("aks-lost", tags("lost", "uid-lost")));
    a_day_later(&mut world);
    assert_eq!(wrong(&world).iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [DiscrepancyKind::NodeWithoutClaim]);
}

#[test]
fn a_vm_that_never_joins_is_reported() {
    let mut world = eager_world();
    launched(&mut world, "live-3", false);
    world.nodes().retain(|n| n.name.as_str() != "aks-live-3");
    a_day_later(&mut world);
    let wrong = wrong(&world);
    assert_eq!(wrong[0].0, DiscrepancyKind::NeverJoined);
    assert!(wrong[0].1.contains("is running and billed"));
}

#[test]
fn an_orphaned_stopped_vm_is_deleted() {
    let mut world = eager_world();
    let [machine, card, mut boot] = lone_vm("stopped");
    // The state of the disk of a deallocated VM.
    as_disk(&mut boot).state = DiskState::Reserved;
    [machine, card, boot].into_iter().for_each(|resource| world.add(resource));
    world.run(HOURS(2));
    assert_eq!(world.deleted_names(), ["stopped"]);
}

#[test]
fn a_cluster_in_step_has_no_discrepancies_and_a_young_one_neither() {
    let mut world = eager_world();
    (1..=3).for_each(|n| launched(&mut world, &format!("live-{n}"), true));
    a_day_later(&mut world);
    assert_eq!(wrong(&world), []);
    let mut young = eager_world();
    launched(&mut young, "live-1", false);
    lose_vm(&mut young, "live-1");
    young.inventory.finished_at = start() + MINUTES(5);
    assert_eq!(wrong(&young), [], "the listing may lag");
}

// Disks.

/// A disk as the CSI driver makes it.
fn csi_disk(name: &str) -> CloudResource {
    let mut disk = data_disk(name);
    let tags = [(labels::TAG_CSI_VOLUME, name), (labels::TAG_CSI_NAMESPACE, "shop"), (labels::TAG_CSI_CLAIM, "data")];
    disk.tags = tags.map(|(k, v)| (Arc::from(k), Arc::from(v))).into();
    disk
}

fn finding_of(world: &mut SweepWorld, name: &str) -> (Classification, String) {
    let case = SweepContext {
        inventory: &world.inventory,
        records: &world.snapshot.records,
        settings: &world.settings,
        prices: &world.snapshot,
        infrastructure: &world.snapshot.infrastructure,
        cleared_at: None,
        unreadable_sweeps: &world.snapshot.unreadable_sweeps,
        paused: false,
        now: world.now,
    };
    let mut allowance = DeletionCap::from_records(&world.snapshot.records, 100, world.now);
    let findings = findings_for(&case, &case.assess(), &world.sweep, &mut allowance);
    let finding = findings.into_iter().find(|f| f.id.name() == name).unwrap();
    (finding.classification, finding.evidence.join("; "))
}

#[test]
fn a_detached_disk_of_a_volume_is_no_orphan() {
    let mut world = eager_world();
    let disk = csi_disk("pvc-1");
    let mut claimed = volume("pvc-1", &disk, ReclaimPolicy::Delete);
    let namespace = crate::model::names::Namespace::new("shop").unwrap();
    claimed.claim =
        Some(crate::model::names::ObjectKey { namespace, name: crate::model::names::ObjectName::new("data").unwrap() });
    world.volumes().push(Arc::new(claimed));
    world.add(disk);
    world.run(HOURS(24 * 9));
    assert_eq!(world.deleted_names(), [""; 0]);
    let (classification, evidence) = finding_of(&mut world, "pvc-1");
    assert_eq!(classification, Classification::Protected);
    assert!(evidence.contains("PersistentVolumeClaim shop/data → PersistentVolume pvc-1"), "{evidence}");
}

#[test]
fn an_unmanaged_disk_names_the_claim_it_was_created_for() {
    let mut world = eager_world();
    let disk = csi_disk("kubernetes-dynamic-pvc-1");
    world.add(disk.clone());
    world.had_volume("pv-1", &disk, ReclaimPolicy::Delete);
    world.run(HOURS(24));
    let (suspect, evidence) = finding_of(&mut world, "kubernetes-dynamic-pvc-1");
    assert_eq!(suspect, Classification::Suspect);
    assert!(evidence.contains("created for PersistentVolumeClaim shop/data"), "{evidence}");
}

#[test]
fn a_disk_that_a_pod_uses_without_a_volume_is_not_deleted() {
    let mut world = eager_world();
    let disk = csi_disk("inline");
    world.had_volume("pv-i", &disk, ReclaimPolicy::Delete);
    let uses = world.inventory.disk_uses.as_mut().unwrap();
    let user = Arc::from("Pod shop/db");
    uses.push(Arc::new(crate::model::cluster::volume::DiskUse { disk: disk.id.clone(), user }));
    world.add(disk);
    world.run(HOURS(24 * 9));
    assert_eq!(world.deleted_names(), [""; 0]);
}

#[test]
fn a_disk_left_behind_by_its_driver_is_collected_after_a_week() {
    let mut world = eager_world();
    let disk = csi_disk("raced");
    world.add(disk.clone());
    world.had_volume("pv-raced", &disk, ReclaimPolicy::Delete);
    world.run(HOURS(24 * 7 + 1));
    assert_eq!(world.deleted_names(), ["raced"]);
}

#[test]
fn the_os_disk_of_a_failed_vm_is_deleted_so_that_its_name_is_free() {
    let mut world = eager_world();
    world.add(os_disk("aks-gone", tags("gone", "uid-gone")));
    world.run(HOURS(2));
    assert_eq!(world.deleted_names(), ["aks-gone"]);
}

#[test]
fn site_recovery_and_exports_are_no_orphans() {
    for (name, state) in [("exported", DiskState::Other(Arc::from("ActiveSAS"))), ("ms-asr-1", DiskState::Unattached)] {
        let mut world = eager_world();
        let mut disk = csi_disk(name);
        as_disk(&mut disk).state = state;
        world.had_volume("pv-1", &disk, ReclaimPolicy::Delete);
        world.add(disk);
        world.run(HOURS(24 * 9));
        assert_eq!(world.deleted_names(), [""; 0], "{name}");
        assert_eq!(finding_of(&mut world, name).0, Classification::Protected);
    }
}

// Public IPs and frontends.

#[test]
fn addresses_that_outlive_their_service_are_reported_with_the_service() {
    let mut world = eager_world();
    let service = || Tags::from([(Arc::from(labels::TAG_SERVICE), Arc::from("shop/web"))]);
    let ips = "Microsoft.Network/publicIPAddresses";
    let front = "Microsoft.Network/loadBalancers";
    let frontend = group().resource(front, "kubernetes/frontendIPConfigurations/a1");
    world.add_related(
        RelatedDetail::PublicIp { address: None, used_by: Some(frontend) },
        ips,
        "of-frontend",
        service(),
    );
    let role = RelatedDetail::LoadBalancerFrontend {
        public_ip: Some(group().resource(ips, "of-frontend")),
        rules: 0,
        outbound_rules: 0,
        backends: 0,
    };
    world.add_related(role, front, "kubernetes/frontendIPConfigurations/a1", Tags::new());
    let gateway = group().resource("Microsoft.Network/natGateways", "nat");
    world.add_related(RelatedDetail::PublicIp { address: None, used_by: Some(gateway) }, ips, "nat", Tags::new());
    let findings = report_only_findings(&world.inventory);
    let short: Vec<_> = findings.iter().map(|t| (t.id.name(), t.usage, t.service.as_deref())).collect();
    let web = Some("shop/web");
    assert_eq!(
        short,
        [("a1", IpUsage::Unused, web), ("nat", IpUsage::Outbound, None), ("of-frontend", IpUsage::Unused, web)]
    );
    world.run(HOURS(24));
    assert_eq!(world.deleted_names(), [""; 0]);
}

// Accidental deletes.

#[test]
fn nothing_is_deleted_but_single_vms_nics_and_disks() {
    let mut world = eager_world();
    (10..60).for_each(|n| world.add_claim(&format!("live-{n}"), &format!("uid-{n}")));
    let disk = data_disk("pvc-1");
    world.had_volume("pv-1", &disk, ReclaimPolicy::Delete);
    lone_vm("lone").into_iter().chain([gone_nic("leaked"), disk]).for_each(|resource| world.add(resource));
    world.sweep.minimum_age = [(ResourceKind::DataDisk, HOURS(1))].into();
    world.run(HOURS(24));
    let mut kinds: Vec<_> = world.deleted.iter().map(|(_, d)| d.resource.kind()).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, [ResourceKind::Nic, ResourceKind::Vm, ResourceKind::DataDisk]);
    let beneath = |id: &ArmId| id.folded().strip_prefix(group().folded()).is_some_and(|rest| rest.len() > 1);
    assert!(world.deleted.iter().all(|(_, d)| beneath(&d.resource.id) && d.resource.id != group()));
}

#[test]
fn a_deleted_group_is_not_an_empty_group() {
    let mut world = eager_world();
    world.add(gone_nic("leaked"));
    world.run(MINUTES(20));
    let before = world.snapshot.records.clone();
    let not_found = || crate::model::azure::inventory::ListFailure::new("group", "404");
    world.inventory.group_managed_by = Err(not_found());
    world.inventory.resources = Err(not_found());
    world.now += MINUTES(10);
    world.run(HOURS(24));
    assert_eq!(world.deleted_names(), [""; 0]);
    assert_eq!(world.snapshot.records, before, "the records are retained");
    assert!(world.report.as_ref().unwrap().halted.is_some());
}

#[test]
fn a_resource_in_use_by_azures_state_is_not_deleted_though_no_object_names_it() {
    let mut world = eager_world();
    let mut card = gone_nic("in-use");
    as_nic(&mut card).vm = Some(group().resource(VM_TYPE, "unlisted"));
    world.add(card);
    world.run(HOURS(24));
    assert_eq!(world.deleted_names(), [""; 0]);
}

#[test]
fn a_lock_ends_the_try_and_not_the_sweep() {
    let mut world = eager_world();
    world.add(gone_nic("locked"));
    world.refusing.insert("locked".to_owned(), CloudErrorCode::Locked);
    world.add(gone_nic("free"));
    world.run(HOURS(26));
    assert!(!world.tried.is_empty());
    assert_eq!(world.deleted_names(), ["free"]);
}

#[test]
fn a_shorter_list_that_claims_to_be_whole_trips_the_breaker() {
    let mut world = eager_world();
    (10..40).for_each(|n| world.add_claim(&format!("live-{n}"), &format!("uid-{n}")));
    world.run(MINUTES(40));
    world.claims().truncate(5);
    world.nodes().truncate(5);
    world.now += MINUTES(10);
    world.run(HOURS(24));
    assert_eq!(world.deleted_names(), [""; 0]);
    assert!(!world.snapshot.records.trips.is_empty());
}

#[test]
fn a_deleted_resource_that_is_still_listed_does_not_count() {
    let mut world = eager_world();
    world.add(gone_nic("ghost"));
    world.actual = Some(Vec::new());
    world.run(HOURS(30));
    assert_eq!((world.deleted_names().len(), world.tried.len()), (0, 0));
    assert_eq!(world.snapshot.records.deletions, []);
}

// The rest of the graph.

#[test]
fn machines_instances_and_snapshots_protect_resources_they_refer_to() {
    type Link = fn(&mut SweepWorld, &CloudResource);
    let name = "aks-nap-m1-12345678-vm";
    let cases: [(Link, Classification); 5] = [
        (|w, r| add_machine(w, "other", &r.id), Classification::Owned),
        (|w, _| add_machine(w, "gone", &group()), Classification::Owned),
        (|w, _| add_machine(w, "m1", &group()), Classification::Owned),
        (
            |w, r| {
                let role = RelatedDetail::ScaleSetInstance { nics: vec![r.id.clone()], disks: Vec::new() };
                w.add_related(
                    role,
                    "Microsoft.Compute/virtualMachineScaleSets",
                    "system/virtualMachines/0",
                    Tags::new(),
                );
            },
            Classification::Protected,
        ),
        (
            |w, r| {
                let role = RelatedDetail::Snapshot { source: Some(r.id.clone()), in_progress: true };
                w.add_related(role, "Microsoft.Compute/snapshots", "s", Tags::new());
            },
            Classification::Protected,
        ),
    ];
    for (n, (link, expected)) in cases.into_iter().enumerate() {
        let mut world = eager_world();
        let resource = os_disk(name, tags("gone", "uid-gone"));
        link(&mut world, &resource);
        world.add(resource);
        world.run(HOURS(24));
        assert_eq!(world.deleted_names(), [""; 0], "case {n}");
        let (found, evidence) = finding_of(&mut world, name);
        assert_eq!(found, expected, "case {n}: {evidence}");
    }
    let mut finished = eager_world();
    let resource = os_disk("copied", tags("gone", "uid-gone"));
    let role = RelatedDetail::Snapshot { source: Some(resource.id.clone()), in_progress: false };
    finished.add_related(role, "Microsoft.Compute/snapshots", "s", Tags::new());
    finished.add(resource);
    finished.run(HOURS(2));
    assert_eq!(finished.deleted_names(), ["copied"], "a finished snapshot needs its disk no more");
}

#[test]
fn evidence_tells_the_chain_from_the_claim_to_the_resource() {
    let mut world = eager_world();
    launched(&mut world, "live-1", true);
    let (owned, evidence) = finding_of(&mut world, "aks-live-1");
    assert_eq!(owned, Classification::Owned);
    assert!(evidence.contains("NodeClaim live-1, by its UID in a tag → Node aks-live-1"), "{evidence}");
    world.claims().push(Arc::new(claim("young", "uid-young")));
    world.add(nic("aks-young", tags("young", "uid-young")));
    let (in_flight, evidence) = finding_of(&mut world, "aks-young");
    assert_eq!(in_flight, Classification::InFlight, "{evidence}");
    world.sweep.exclusions.push(crate::model::orphans::sweep::Exclusion::Name(Arc::from("spare")));
    world.add(gone_nic("spare"));
    let (spared, evidence) = finding_of(&mut world, "spare");
    assert_eq!(spared, Classification::Protected);
    assert!(evidence.contains("excluded by name spare"), "{evidence}");
}
