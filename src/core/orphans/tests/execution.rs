//! Tests of how a sweep proceeds: refused deletes, lockdowns, order, marks, approvals, records, other collectors.

use super::fixtures::*;
use crate::catalog::live::{Fact, InfrastructureFacts, SubnetAddresses};
use crate::model::azure::cloud::{CloudResource, DiskState, ResourceDetail, ResourceKind};
use crate::model::cluster::volume::ReclaimPolicy;
use crate::model::errors::CloudErrorCode;
use crate::model::labels;
use crate::model::names::{ArmId, ObjectName};
use crate::model::orphans::attempt::SweepAction;
use crate::model::orphans::finding::DeletionRefusal;
use crate::model::orphans::report::ApprovalState;
use crate::model::orphans::sweep::{Approval, Sweep, SweepMode};
use crate::model::settings::ControllerMode;
use crate::orphans::sweep::SweepMemory;
use crate::plan::{Command, Plan};
use std::sync::Arc;

/// An orphaned NIC, in a subnet.
fn nic_in(name: &str, subnet: Option<&str>) -> CloudResource {
    let mut card = gone_nic(name);
    as_nic(&mut card).subnet = subnet.map(|name| {
        ArmId::new(format!(
            "/subscriptions/s/resourceGroups/n/providers/Microsoft.Network/virtualNetworks/v/subnets/{name}"
        ))
        .unwrap()
    });
    card
}

fn tag_of(world: &SweepWorld, name: &str) -> Option<String> {
    let listed = world.inventory.resources.as_ref().unwrap().iter().find(|r| r.id.name() == name).cloned();
    listed.unwrap().tag(labels::TAG_SUSPECT_SINCE).map(str::to_owned)
}

/// What is decided about the status of the sweep.
fn reports(plan: &Plan) -> Vec<(Option<i64>, bool)> {
    let reports = plan.commands.iter().filter_map(|planned| match &planned.command {
        Command::ReportSweep(report) => Some((report.generation, report.observed_at.is_some())),
        _ => None,
    });
    reports.collect()
}

#[test]
fn a_version_of_a_sweep_is_accepted_at_once_and_reported_by_what_is_known() {
    let mut world = SweepWorld::new();
    world.sweep.generation = Some(1);
    assert_eq!(reports(&world.decide()), [(Some(1), false)], "nothing has been observed");
    assert_eq!(reports(&world.decide()), []);
    world.observe();
    world.run(MINUTES(1));
    assert!(world.report.as_ref().unwrap().observed_at.is_some());
    world.sweep.generation = Some(2);
    assert_eq!(reports(&world.decide()), [(Some(2), true)], "the last observation is assessed by it");
    // Lost memory, and an inventory that is not recorded.
    world.memory = SweepMemory::default();
    world.snapshot.inventory = None;
    world.sweep.generation = Some(3);
    assert_eq!(reports(&world.decide()), [(Some(3), false)]);
}

#[test]
fn a_failed_deletion_survives_a_crash_and_is_reported_as_waiting() {
    let mut world = SweepWorld::new();
    world.refusing.insert("stuck".to_owned(), CloudErrorCode::NicReserved);
    world.add(gone_nic("stuck"));
    world.run(MINUTES(30));
    for _ in 0..4 {
        world.crash();
        world.now += MINUTES(2);
        world.observe();
    }
    assert_eq!(world.tried.len(), 1);
    assert_eq!(world.refusals("stuck"), [DeletionRefusal::BackOff]);
    world.now += MINUTES(2);
    world.observe();
    assert_eq!(world.tried.len(), 2, "ten minutes after the first");
    world.run(MINUTES(10));
    assert_eq!(world.tried.len(), 2, "and twenty after the second");
}

#[test]
fn a_lockdown_degrades_one_kind_is_tried_again_and_passes_by_itself() {
    for code in [CloudErrorCode::Permission, CloudErrorCode::Locked, CloudErrorCode::Lockdown, CloudErrorCode::Policy] {
        let mut world = wide_world();
        let names: Vec<String> = (0..8).map(|n| format!("leaked-{n}")).collect();
        for name in &names {
            world.refusing.insert(name.clone(), code);
            world.add(gone_nic(name));
        }
        world.add(os_disk("disk", tags("gone", "uid-gone")));
        world.run(MINUTES(90));
        assert_eq!(world.deleted_names(), ["disk"], "{code:?}: another kind is not concerned");
        assert!(world.tried.len() <= 8, "{code:?}: one try from time to time, not {}", world.tried.len());
        let denials = &world.report.as_ref().unwrap().summary.denials;
        assert_eq!(
            denials.iter().map(|d| (d.action, d.kind, d.code)).collect::<Vec<_>>(),
            [(SweepAction::Delete, ResourceKind::Nic, code)]
        );
        assert!(
            world.refusals("leaked-7").iter().all(|r| matches!(r, DeletionRefusal::Denied | DeletionRefusal::BackOff))
        );
        world.refusing.clear();
        world.run(MINUTES(60));
        assert_eq!(world.deleted.len(), 9, "{code:?}");
        assert_eq!(world.report.as_ref().unwrap().summary.denials, []);
    }
}

#[test]
fn nics_of_the_subnet_with_the_fewest_free_addresses_go_first() {
    let mut world = wide_world();
    // NICs of the group use most of subnet wide; what others use of subnet tight only Azure knows.
    (0..3).for_each(|n| world.add(nic_in(&format!("a-wide-{n}"), Some("wide"))));
    for name in ["b-unknown", "c-tight", "d-full"] {
        world.add(nic_in(name, name.split_once('-').map(|(_, subnet)| subnet)));
    }
    let subnet_addresses = |name: &str, used| {
        let ResourceDetail::Nic(nic) = nic_in("x", Some(name)).detail else { panic!("a NIC") };
        SubnetAddresses { id: nic.subnet.unwrap(), used, usable: 251, is_default: false }
    };
    let value = vec![subnet_addresses("wide", 100), subnet_addresses("tight", 240), subnet_addresses("full", 251)];
    let subnets = Some(Fact { as_of: world.now, value });
    world.snapshot.infrastructure = Arc::new(InfrastructureFacts { subnets, ..Default::default() });
    world.run(MINUTES(40));
    assert_eq!(world.deleted_names(), ["d-full", "c-tight", "a-wide-0", "a-wide-1", "a-wide-2", "b-unknown"]);
}

#[test]
fn without_free_addresses_nics_of_the_fullest_subnet_go_first_then_disks_vms_and_data_disks() {
    let mut world = wide_world();
    let disk = data_disk("e-pvc");
    world.add(disk.clone());
    world.had_volume("pv", &disk, ReclaimPolicy::Delete);
    world.sweep.minimum_age = [(ResourceKind::DataDisk, MINUTES(30))].into();
    for n in 0..3 {
        world.add_claim(&format!("there-{n}"), &format!("uid-there-{n}"));
        let mut card = nic_in("x", Some("full"));
        as_nic(&mut card).vm = Some(group());
        world.add(CloudResource {
            id: group().resource("Microsoft.Network/networkInterfaces", &format!("x-{n}")),
            ..card
        });
    }
    world.add(vm("d-vm", tags("gone", "uid-gone")));
    world.add(os_disk("a-disk", tags("gone", "uid-gone")));
    world.add(nic_in("a-none", None));
    world.add(nic_in("b-wide", Some("wide")));
    world.add(nic_in("c-full", Some("full")));
    world.run(MINUTES(50));
    assert_eq!(world.deleted_names(), ["c-full", "b-wide", "a-none", "a-disk", "d-vm", "e-pvc"]);
}

#[test]
fn a_mark_is_removed_only_on_a_sign_of_life_or_another_mode() {
    let mut world = SweepWorld::new();
    (world.sweep.mode, world.tagging) = (SweepMode::Mark, true);
    world.add(gone_nic("leaked"));
    world.add(gone_nic("other"));
    let mut named = gone_nic("noted");
    named.tags.insert(Arc::from(labels::TAG_SUSPECT_SINCE), Arc::from("ask bob"));
    world.add(named);
    world.run(MINUTES(40));
    let since = Some(start().to_string());
    assert_eq!((tag_of(&world, "leaked"), tag_of(&world, "other")), (since.clone(), since.clone()));
    as_nic(Arc::make_mut(
        world.inventory.resources.as_mut().unwrap().iter_mut().find(|r| r.id.name() == "other").unwrap(),
    ))
    .vm = Some(group());
    world.run(MINUTES(20));
    assert_eq!((tag_of(&world, "leaked"), tag_of(&world, "other")), (since.clone(), None), "it is attached");
    assert!(world.snapshot.records.sightings.values().all(|s| s.first_seen == start()), "a mark is no change");
    world.sweep.mode = SweepMode::Report;
    let cloud = std::mem::replace(&mut world.inventory.resources, Err(failure()));
    world.run(MINUTES(20));
    world.inventory.resources = cloud;
    assert_eq!(tag_of(&world, "leaked"), since, "an incomplete listing changes nothing");
    world.run(MINUTES(20));
    assert_eq!(tag_of(&world, "leaked"), None);
    world.sweep.mode = SweepMode::Collect;
    world.run(HOURS(1));
    assert_eq!(world.deleted[0].1.deletion.at, world.deleted[0].0);
}

fn failure() -> crate::model::azure::inventory::ListFailure {
    crate::model::azure::inventory::ListFailure::new("disks", "403")
}

#[test]
fn only_our_own_marks_are_removed() {
    let mut world = SweepWorld::new();
    (world.sweep.mode, world.tagging) = (SweepMode::Report, true);
    let since = start().to_string();
    let marked = |mut resource: CloudResource, value: &str| {
        resource.tags.insert(Arc::from(labels::TAG_SUSPECT_SINCE), Arc::from(value));
        resource
    };
    let mut foreign = gone_nic("foreign");
    foreign.tags.insert(Arc::from(labels::TAG_CLUSTER), Arc::from("another"));
    world.add(marked(foreign, &since));
    world.add(marked(gone_nic("excluded"), &since));
    world.add(marked(gone_nic("text"), "ask bob"));
    world.add(marked(gone_nic("own"), &since));
    world.sweep.exclusions.push(crate::model::orphans::sweep::Exclusion::Name(Arc::from("EXCLUDED")));
    world.run(MINUTES(40));
    for (name, left) in [("foreign", true), ("excluded", true), ("text", true), ("own", false)] {
        assert_eq!(tag_of(&world, name).is_some(), left, "{name}");
    }
}

#[test]
fn approvals_that_do_nothing_any_more_are_findings() {
    let mut world = SweepWorld::new();
    let (leaked, other) = (os_disk("leaked", tags("gone", "u")), os_disk("other", tags("gone", "u")));
    world.sweep.approval_required = [ResourceKind::OsDisk].into();
    world.add(leaked.clone());
    world.add(other.clone());
    let approval = |resource: &CloudResource, hours| Approval {
        id: resource.id.clone(),
        incarnation: Arc::clone(&resource.incarnation),
        expires_at: start() + HOURS(hours),
    };
    let elsewhere = CloudResource {
        id: ArmId::new("/subscriptions/s/resourceGroups/x/providers/Microsoft.Compute/disks/d").unwrap(),
        ..leaked.clone()
    };
    let reborn = CloudResource { incarnation: Arc::from("older"), ..other.clone() };
    world.sweep.approvals = vec![
        approval(&leaked, 200),
        approval(&other, 1000),
        approval(&reborn, 24),
        approval(&elsewhere, 24),
        approval(&os_disk("long-gone", tags("gone", "u")), 24),
        approval(&gone_nic("leaked"), -1),
    ];
    world.observe();
    let states = |world: &SweepWorld| -> Vec<(String, ApprovalState)> {
        let all = &world.report.as_ref().unwrap().summary.approvals;
        assert!(all.iter().all(|a| a.advice.is_empty() == (a.state == ApprovalState::Active)));
        all.iter().map(|a| (a.id.name().to_owned(), a.state)).collect()
    };
    let named = |all: &[(&str, ApprovalState)]| -> Vec<(String, ApprovalState)> {
        all.iter().map(|(name, state)| ((*name).to_owned(), *state)).collect()
    };
    use crate::model::orphans::report::ApprovalState::*;
    let expected = named(&[
        ("other", Unmatched),
        ("d", Unmatched),
        ("other", TooFarAhead),
        ("leaked", Expired),
        ("long-gone", Spent),
        ("leaked", Active),
    ]);
    assert_eq!(states(&world), expected);
    // The group of another cluster proves nothing.
    let managed_by = std::mem::replace(&mut world.inventory.group_managed_by, Ok(Some(group())));
    world.observe();
    assert_eq!(states(&world), named(&[("other", TooFarAhead), ("leaked", Expired), ("leaked", Active)]));
    world.inventory.group_managed_by = managed_by;
    world.run(HOURS(1));
    assert_eq!(world.deleted_names(), ["leaked"]);
    let spent = states(&world).into_iter().filter(|(_, state)| *state == Spent).collect::<Vec<_>>();
    assert_eq!(spent, named(&[("leaked", Spent), ("long-gone", Spent)]));
}

#[test]
fn a_volumes_record_is_removed_a_week_after_its_disk_and_never_before() {
    let mut world = SweepWorld::new();
    let disk = data_disk("pvc-1");
    world.add(disk.clone());
    world.had_volume("pv-1", &disk, ReclaimPolicy::Retain);
    world.run(HOURS(20 * 24));
    let known = |world: &SweepWorld| world.snapshot.records.volumes.get(&disk.id).cloned();
    assert_eq!(known(&world).unwrap().gone_since, None, "the disk is there");
    let cloud = world.inventory.resources.as_mut().unwrap();
    cloud.retain(|r| r.id != disk.id);
    world.run(HOURS(6 * 24));
    assert!(known(&world).unwrap().gone_since.is_some());
    let half = std::mem::replace(&mut world.inventory.resources, Err(failure()));
    world.run(HOURS(48));
    world.inventory.resources = half;
    assert!(known(&world).is_some(), "an incomplete listing changes nothing");
    world.add(disk.clone());
    world.observe();
    assert_eq!(known(&world).unwrap().gone_since, None, "it is back");
    world.inventory.resources.as_mut().unwrap().retain(|r| r.id != disk.id);
    world.volumes().push(Arc::new(volume("pv-1", &disk, ReclaimPolicy::Retain)));
    world.run(HOURS(8 * 24));
    assert_eq!(known(&world).unwrap().gone_since, None, "its volume is there");
    world.volumes().clear();
    world.run(HOURS(8 * 24));
    assert_eq!(known(&world), None);
}

#[test]
fn a_change_of_policy_is_recorded_and_retain_outlives_its_volume() {
    let mut world = SweepWorld::new();
    let disk = data_disk("pvc-1");
    world.add(disk.clone());
    let recorded = |world: &SweepWorld| {
        let record = world.snapshot.records.volumes.get(&disk.id).unwrap();
        (record.name.to_string(), record.reclaim)
    };
    use ReclaimPolicy::{Delete, Retain};
    for (volumes, expected) in [
        (vec![("a", Delete)], ("a", Delete)),
        (vec![("a", Retain)], ("a", Retain)),
        (vec![("a", Delete)], ("a", Delete)),
        // Two volumes of one disk: the one that retains it decides, even when it is deleted.
        (vec![("a", Delete), ("b", Retain)], ("b", Retain)),
        (vec![("a", Delete)], ("b", Retain)),
        (vec![("c", Delete)], ("b", Retain)),
        // Only that volume can revoke it.
        (vec![("a", Delete), ("b", Delete)], ("b", Delete)),
        (vec![("a", Delete)], ("a", Delete)),
    ] {
        for name in ["a", "b", "c"] {
            world.snapshot.remove_volume(&ObjectName::new(name).unwrap());
        }
        for (name, policy) in &volumes {
            world.snapshot.put_volume(ObjectName::new(*name).unwrap(), volume(name, &disk, *policy));
        }
        *world.volumes() = volumes.iter().map(|(name, policy)| Arc::new(volume(name, &disk, *policy))).collect();
        world.now += MINUTES(10);
        world.observe();
        assert_eq!(recorded(&world), (expected.0.to_owned(), expected.1), "after {volumes:?}");
    }
}

#[test]
fn beside_managed_nap_sweeps_are_slower_than_its_collectors() {
    let hasty =
        Sweep { inventory_interval: MINUTES(1), minimum_age: [(ResourceKind::Nic, MINUTES(10))].into(), ..a_sweep() };
    for (mode, first) in [(ControllerMode::Provisioner, 10), (ControllerMode::Companion, 30)] {
        let mut world = SweepWorld::new();
        (world.settings.mode, world.sweep, world.tagging) = (mode, hasty.clone(), true);
        world.add(gone_nic("leaked"));
        world.add(vm("a-vm", tags("gone", "uid-gone")));
        world.run(HOURS(1));
        assert_eq!(world.deleted[0].0, start() + MINUTES(first), "{mode:?}");
        let next = world.report.as_ref().unwrap().summary.next_inventory.unwrap();
        let wait = next.duration_since(world.report.as_ref().unwrap().observed_at.unwrap());
        assert_eq!(wait, MINUTES(if mode == ControllerMode::Companion { 10 } else { 1 }));
    }
    // Its VMs are not even marked.
    let mut world = SweepWorld::new();
    (world.settings.mode, world.sweep.mode, world.tagging) = (ControllerMode::Companion, SweepMode::Mark, true);
    world.add(vm("a-vm", tags("gone", "uid-gone")));
    world.add(gone_nic("leaked"));
    world.run(HOURS(1));
    assert_eq!((tag_of(&world, "a-vm"), tag_of(&world, "leaked").is_some()), (None, true));
}

#[test]
fn a_disk_in_another_state_is_never_marked() {
    let mut world = SweepWorld::new();
    (world.sweep.mode, world.tagging) = (SweepMode::Mark, true);
    let mut disk = os_disk("asr", tags("gone", "uid-gone"));
    as_disk(&mut disk).state = DiskState::Other(Arc::from("ActiveSAS"));
    world.add(disk);
    world.run(HOURS(1));
    assert_eq!(tag_of(&world, "asr"), None);
}

#[test]
fn a_restored_api_server_of_a_small_cluster_is_answered_by_approvals_and_the_cap() {
    for (approvals, lost) in [(true, 0), (false, 2)] {
        let mut world = SweepWorld::new();
        for n in 0..3 {
            world.add(vm(&format!("aks-lost-{n}"), tags(&format!("lost-{n}"), &format!("uid-lost-{n}"))));
        }
        if !approvals {
            world.sweep.approval_required.clear();
        }
        world.run(HOURS(30));
        assert_eq!(world.snapshot.records.trips, [], "three of six: the rule requires more than three, or all");
        assert_eq!(world.deleted.len(), lost, "one a day");
    }
}
