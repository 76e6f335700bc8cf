//! Tests that a resource without sufficient evidence is not deleted: one for each case in which a doubt once counted as
//! evidence.

use super::fixtures::*;
use crate::catalog::live::{InfrastructureFacts, Lock, LockLevel};
use crate::model::azure::cloud::{CloudResource, Tags};
use crate::model::azure::related::RelatedDetail;
use crate::model::cluster::volume::{Attachment, ReclaimPolicy};
use crate::model::errors::CloudErrorCode;
use crate::model::labels;
use crate::model::names::{ArmId, NodeName, ObjectName};
use crate::model::orphans::finding::DeletionRefusal;
use crate::model::orphans::sweep::{Exclusion, SweepMode};
use crate::model::settings::PauseSwitch;
use crate::orphans::references::back_references::referenced_claim;
use crate::orphans::*;
use crate::plan::{CloudRequest, Command, Effect};
use crate::snapshot::Snapshot;
use crate::snapshot::delta::{Delta, apply_delta};
use std::sync::Arc;

/// Azure's way to write a key: in another case.
fn shouted(tags: &mut Tags, key: &str) {
    let value = tags.remove(key).unwrap();
    tags.insert(Arc::from(key.to_uppercase()), value);
}

#[test]
fn a_stale_listing_takes_back_no_retain() {
    let mut world = SweepWorld::new();
    let disk = data_disk("pvc-1");
    world.add(disk.clone());
    let with_delete = volume("pv-1", &disk, ReclaimPolicy::Delete);
    world.volumes().push(Arc::new(with_delete.clone()));
    world.observe();
    let name = with_delete.name.clone();
    world.snapshot.put_volume(name.clone(), volume("pv-1", &disk, ReclaimPolicy::Retain));
    world.pass();
    let policy = |world: &SweepWorld| world.snapshot.records.volumes.get(&disk.id).unwrap().reclaim;
    assert_eq!(policy(&world), ReclaimPolicy::Retain);
    world.snapshot.remove_volume(&name);
    world.now += MINUTES(1);
    world.pass();
    assert_eq!(policy(&world), ReclaimPolicy::Retain, "the inventory is older than the watch");
    world.snapshot.put_volume(name, with_delete);
    world.pass();
    assert_eq!(policy(&world), ReclaimPolicy::Delete, "the watch is current");
}

#[test]
fn a_volume_that_is_retained_and_deleted_between_two_decisions_keeps_its_disk() {
    let mut world = eager_world();
    let disk = data_disk("d");
    world.add(disk.clone());
    let name = ObjectName::new("pv-1").unwrap();
    let change = |world: &mut SweepWorld, delta| apply_delta(&delta, &mut world.snapshot);
    let put = |reclaim| Delta::Volume(Arc::new(volume("pv-1", &disk, reclaim)));
    let policy = |world: &SweepWorld| world.snapshot.records.volumes[&disk.id].reclaim;
    change(&mut world, put(ReclaimPolicy::Delete));
    world.volumes().push(Arc::new(volume("pv-1", &disk, ReclaimPolicy::Delete)));
    world.observe();
    assert_eq!(policy(&world), ReclaimPolicy::Delete);

    change(&mut world, put(ReclaimPolicy::Retain));
    change(&mut world, Delta::VolumeGone(name.clone()));
    world.volumes().clear();
    world.records_lost = true;
    world.pass();
    assert_eq!(policy(&world), ReclaimPolicy::Delete, "the write has failed");
    world.records_lost = false;
    world.now += MINUTES(2);
    world.pass();
    assert_eq!(policy(&world), ReclaimPolicy::Retain);
    let written = Delta::Records(Arc::clone(&world.snapshot.records));
    change(&mut world, written);
    assert_eq!(world.snapshot.unrecorded_retained_volumes().count(), 0, "durable now");
    over_nine_days(&mut world);
    assert_eq!(world.refusals("d"), [DeletionRefusal::Retained]);
    assert_eq!(world.deleted_names(), [""; 0]);
}

#[test]
fn only_the_volume_itself_revokes_a_policy_that_is_not_recorded_yet() {
    let disk = data_disk("d");
    let put = |name: &str, reclaim| Delta::Volume(Arc::new(volume(name, &disk, reclaim)));
    let gone = |name: &str| Delta::VolumeGone(ObjectName::new(name).unwrap());
    use ReclaimPolicy::{Delete, Retain};
    for (deltas, expected) in [
        (vec![put("a", Delete), put("a", Retain), gone("a")], vec!["a"]),
        (vec![put("a", Retain), put("a", Delete), gone("a")], vec![]),
        (vec![put("a", Retain), gone("a"), put("a", Delete)], vec![]),
        (vec![put("a", Retain), gone("a"), put("a", Delete), gone("a")], vec![]),
        (vec![put("a", Retain), gone("a"), put("b", Delete), gone("b")], vec!["a"]),
    ] {
        let mut snapshot = Snapshot::default();
        deltas.iter().for_each(|delta| apply_delta(delta, &mut snapshot));
        let names: Vec<_> = snapshot.unrecorded_retained_volumes().map(|v| v.name.to_string()).collect();
        assert_eq!(names, expected, "{deltas:?}");
    }
}

/// A disk of the same name as `disk`, restored now.
fn restored(disk: &CloudResource, now: jiff::Timestamp) -> CloudResource {
    CloudResource { incarnation: Arc::from("restored"), created_at: Some(now), ..disk.clone() }
}

/// Lets nine days pass with two observations every half day.
fn over_nine_days(world: &mut SweepWorld) {
    world.sweep.inventory_interval = HOURS(12);
    for _ in 0..18 {
        world.now += HOURS(12);
        world.run(MINUTES(20));
    }
}

#[test]
fn a_disk_that_is_restored_under_the_same_name_has_no_record() {
    for is_os in [false, true] {
        let mut world = eager_world();
        let disk = data_disk("d");
        world.add(disk.clone());
        world.had_volume("pv-1", &disk, ReclaimPolicy::Delete);
        assert_eq!(world.snapshot.records.volumes[&disk.id].unique_id.as_ref(), Some(&disk.incarnation));
        let mut second = restored(&disk, world.now);
        as_disk(&mut second).is_os = is_os;
        // Its tags are those of the first one.
        second.tags = tags("gone", "uid-gone");
        *world.inventory.resources.as_mut().unwrap().last_mut().unwrap() = Arc::new(second);
        over_nine_days(&mut world);
        assert_eq!(world.refusals("d"), [DeletionRefusal::NoVolumeRecord], "{is_os}");
        assert_eq!(world.deleted_names(), [""; 0]);
    }
    let mut world = eager_world();
    let disk = data_disk("d");
    world.add(disk.clone());
    world.had_volume("pv-1", &disk, ReclaimPolicy::Delete);
    over_nine_days(&mut world);
    assert_eq!(world.deleted_names(), ["d"], "the disk itself has one");
}

#[test]
fn a_record_without_a_unique_id_is_of_a_disk_that_existed_then() {
    let never = None;
    for (created_after, expected) in
        [(Some(MINUTES(-1)), &["d"][..]), (Some(MINUTES(0)), &["d"]), (Some(MINUTES(1)), &[]), (never, &[])]
    {
        let mut world = eager_world();
        let mut disk = data_disk("d");
        world.had_volume("pv-1", &disk, ReclaimPolicy::Delete);
        let record = world.snapshot.records.volumes[&disk.id].clone();
        assert_eq!(record.unique_id, None, "no listing has shown the disk");
        disk.created_at = created_after.map(|after| record.last_seen + after);
        world.add(disk);
        over_nine_days(&mut world);
        assert_eq!(world.deleted_names(), expected, "{created_after:?}");
    }
}

#[test]
fn a_record_follows_the_disk_that_its_volume_has_now() {
    let mut world = eager_world();
    let disk = data_disk("d");
    world.add(disk.clone());
    world.had_volume("pv-1", &disk, ReclaimPolicy::Retain);
    let second = restored(&disk, world.now);
    *world.inventory.resources.as_mut().unwrap().last_mut().unwrap() = Arc::new(second.clone());
    let record = |world: &SweepWorld| {
        let record = &world.snapshot.records.volumes[&disk.id];
        (record.name.to_string(), record.reclaim, record.unique_id.clone())
    };
    // The watch shows another volume of it before the next listing.
    let later = volume("pv-2", &second, ReclaimPolicy::Delete);
    world.snapshot.put_volume(later.name.clone(), later.clone());
    world.pass();
    assert_eq!(record(&world), ("pv-1".to_owned(), ReclaimPolicy::Retain, Some(Arc::clone(&disk.incarnation))));
    world.volumes().push(Arc::new(later));
    world.now += MINUTES(10);
    world.observe();
    assert_eq!(record(&world), ("pv-2".to_owned(), ReclaimPolicy::Delete, Some(Arc::from("restored"))));
}

#[test]
fn volumes_are_recorded_without_a_sweep() {
    let mut world = SweepWorld::new();
    let disk = data_disk("pvc-1");
    let short = volume("pv-1", &disk, ReclaimPolicy::Retain);
    world.snapshot.put_volume(short.name.clone(), short);
    let plan = sweep(&world.snapshot, &mut world.memory, &world.settings, world.now);
    let recorded = |c: &Command| matches!(c, Command::WriteRecords(change) if change.volumes.len() == 1);
    assert!(plan.commands.iter().any(|planned| recorded(&planned.command)));
}

#[test]
fn an_unknown_outcome_counts_for_a_day_whatever_a_listing_shows() {
    let mut world = SweepWorld::new();
    world.refusing.insert("a-lost".to_owned(), CloudErrorCode::Unavailable);
    world.add(gone_nic("a-lost"));
    world.run(MINUTES(30));
    assert_eq!(world.tried, ["a-lost"]);
    // Azure deleted it and its answer was lost; it is still listed.
    world.actual = Some(vec![Arc::new(gone_nic("b-leaked"))]);
    world.add(gone_nic("b-leaked"));
    world.now += MINUTES(10);
    world.run(HOURS(22));
    assert_eq!(world.deleted_names(), [""; 0], "one a day");
    world.run(HOURS(4));
    assert_eq!(world.deleted_names(), ["b-leaked"]);
}

#[test]
fn resources_that_the_breaker_does_not_count_yet_have_no_sighting() {
    let mut world = eager_world();
    world.sweep.minimum_age = crate::model::azure::cloud::ResourceKind::ALL.map(|k| (k, MINUTES(10))).into();
    world.observe();
    for claim in world.claims().clone() {
        let mut deleting = (*claim).clone();
        deleting.deleting_at = Some(world.now);
        world.snapshot.put_claim(deleting);
    }
    world.pass();
    let names: Vec<_> = world.claims().iter().map(|c| c.name.clone()).collect();
    names.iter().for_each(|name| world.snapshot.remove_claim(name));
    world.claims().clear();
    world.nodes().truncate(1);
    for resource in world.inventory.resources.as_mut().unwrap() {
        if matches!(resource.kind(), crate::model::azure::cloud::ResourceKind::Nic) {
            as_nic(Arc::make_mut(resource)).vm = None;
        }
    }
    world.now += MINUTES(10);
    world.run(MINUTES(10));
    assert!(world.snapshot.records.sightings.is_empty(), "not counted, and not sighted");
    world.now += MINUTES(10);
    world.run(HOURS(2));
    assert!(!world.snapshot.records.trips.is_empty(), "one that is listed after that has leaked, and counts");
    assert_eq!(world.deleted_names(), [""; 0]);
}

#[test]
fn nothing_comes_of_age_between_two_inventories() {
    let mut world = SweepWorld::new();
    world.add(gone_nic("leaked"));
    world.run(MINUTES(20));
    world.now += MINUTES(15);
    world.pass();
    assert_eq!(world.deleted_names(), [""; 0], "the last inventory did not show it old enough");
    world.observe();
    assert_eq!(world.deleted_names(), ["leaked"]);
}

#[test]
fn an_inventory_serves_for_two_hours_at_most() {
    let mut world = SweepWorld::new();
    world.sweep.inventory_interval = HOURS(24);
    world.sweep.mode = SweepMode::Report;
    world.add(gone_nic("leaked"));
    world.run(MINUTES(40));
    world.sweep.mode = SweepMode::Collect;
    world.now += MINUTES(121);
    world.pass();
    assert_eq!(world.deleted_names(), [""; 0]);
    world.now -= MINUTES(2);
    world.pass();
    assert_eq!(world.deleted_names(), ["leaked"]);
}

#[test]
fn keys_of_tags_keep_in_any_case_and_prove_nothing_but_exactly() {
    let mut world = eager_world();
    let mut of_claim = nic("of-claim", tags("live-1", "uid-1"));
    shouted(&mut of_claim.tags, labels::TAG_CLAIM_UID);
    let mut named = nic("named", tags("live-2", "u"));
    shouted(&mut named.tags, labels::TAG_CLAIM);
    let mut excluded = gone_nic("excluded");
    excluded.tags.extend([tag("KEEP", "yes")]);
    let mut foreign = gone_nic("foreign");
    shouted(&mut foreign.tags, labels::TAG_CLUSTER);
    world.sweep.exclusions.push(Exclusion::Tag { key: Arc::from("keep"), value: Some(Arc::from("yes")) });
    [of_claim, named, excluded, foreign].into_iter().for_each(|resource| world.add(resource));
    world.run(HOURS(30));
    assert_eq!(world.deleted_names(), [""; 0]);
    assert_eq!(world.refusals("foreign"), [DeletionRefusal::NotOwned]);
}

#[test]
fn exclusions_of_one_sweep_apply_to_all() {
    let mut world = SweepWorld::new();
    let mut other = a_sweep();
    other.name = ObjectName::new("other").unwrap();
    other.mode = SweepMode::Report;
    other.exclusions.push(Exclusion::Name(Arc::from("spare")));
    world.snapshot.put_sweep(other.name.clone(), other);
    world.add(gone_nic("spare"));
    world.run(HOURS(2));
    assert_eq!(world.deleted_names(), [""; 0]);
}

#[test]
fn volumes_keep_the_vm_that_serves_them() {
    for by_disk in [false, true] {
        let mut world = eager_world();
        let mut lone = vm("aks-lone", tags("gone", "uid-gone"));
        if by_disk {
            let disk = data_disk("pvc-1");
            as_vm(&mut lone).data_disks = vec![disk.id.clone()];
            world.volumes().push(Arc::new(volume("pv-1", &disk, ReclaimPolicy::Delete)));
        } else {
            let (name, node) = (ObjectName::new("csi-1").unwrap(), NodeName::new("aks-lone").unwrap());
            let attachments = world.inventory.attachments.as_mut().unwrap();
            attachments.push(Arc::new(Attachment { name, volume: None, node }));
        }
        world.add(lone);
        world.run(HOURS(2));
        assert_eq!(world.deleted_names(), [""; 0], "by its disk: {by_disk}");
        assert!(world.snapshot.records.sightings.is_empty(), "by its disk: {by_disk}");
    }
}

#[test]
fn nothing_is_marked_while_deletes_are_paused() {
    let marked = |plan: &crate::plan::Plan| plan.commands.iter().any(|p| matches!(p.command, Command::Mark { .. }));
    for held in [true, false] {
        let mut world = SweepWorld::new();
        world.sweep.mode = SweepMode::Mark;
        // All of the kind that are owned: the breaker trips.
        (0..if held { 9 } else { 1 }).for_each(|n| world.add(gone_nic(&format!("leaked-{n}"))));
        world.observe();
        assert_eq!(world.snapshot.records.trips.is_empty(), !held);
        let plans: Vec<_> = (0..2).map(|_| world.decide()).collect();
        let ever = plans.iter().any(marked) || world.memory.has_attempts();
        assert_eq!(ever, !held);
    }
}

#[test]
fn the_tag_of_a_machine_names_the_claim_before_all_else() {
    let mut resource = gone_nic("aks-named");
    assert_eq!(referenced_claim(&resource).unwrap().as_str(), "gone");
    resource.tags.extend([tag(labels::TAG_MACHINE_CLAIM, "of-machine")]);
    assert_eq!(referenced_claim(&resource).unwrap().as_str(), "of-machine");
    resource.tags.clear();
    assert_eq!(referenced_claim(&resource).unwrap().as_str(), "named");
}

#[test]
fn a_volume_with_a_system_on_it_is_still_a_volume() {
    let mut world = eager_world();
    let disk = os_disk("restored", tags("gone", "uid-gone"));
    world.had_volume("pv-1", &disk, ReclaimPolicy::Retain);
    world.add(disk);
    world.run(HOURS(24 * 9));
    assert_eq!(world.deleted_names(), [""; 0]);
    assert_eq!(world.refusals("restored"), [DeletionRefusal::Retained]);
}

#[test]
fn an_aborted_deletion_waits_behind_the_others_and_has_a_reason() {
    let mut world = SweepWorld::new();
    for name in ["a-changed", "b-leaked"] {
        world.add(gone_nic(name));
    }
    let mut actual: Vec<_> = world.inventory.resources.as_ref().unwrap().clone();
    actual.iter_mut().filter(|r| r.id.name() == "a-changed").for_each(|r| {
        Arc::make_mut(r).tags.extend([tag("owner", "me")]);
    });
    world.actual = Some(actual);
    world.run(MINUTES(30));
    world.pass();
    assert_eq!(world.refusals("a-changed"), [DeletionRefusal::Changed]);
    world.now += MINUTES(10);
    world.run(MINUTES(30));
    assert_eq!(world.deleted_names(), ["b-leaked"]);
}

#[test]
fn marks_are_held_back_by_the_switch_that_holds_deletes() {
    for effect in [
        Effect::Cloud(CloudRequest::Tag(group(), Tags::new())),
        Effect::Cloud(CloudRequest::Untag(group(), Tags::new())),
    ] {
        assert_eq!(effect.pause_switch(), Some(PauseSwitch::Delete));
    }
}

/// A part that protects a VM: its name, and its setup.
type Part = (&'static str, fn(&mut SweepWorld, &mut [CloudResource; 3]));

const PARTS: [Part; 11] = [
    ("lone-nic", |_, [_, card, _]| card.tags.clear()),
    ("lone-os", |_, [_, _, boot]| boot.tags.extend([tag(labels::TAG_CLUSTER, "another")])),
    ("lone-nic", |_, [_, card, _]| card.tags.extend(tags("live-1", "uid-1"))),
    ("lone-nic", |_, [_, card, _]| as_nic(card).serves = Some(Arc::from("private endpoint db"))),
    ("lone-os", |_, [_, _, boot]| as_disk(boot).max_shares = 2),
    ("lone-os", |_, [_, _, boot]| as_disk(boot).managed_by.push(group().resource("x/y", "other"))),
    ("lone-nic", |w, _| w.sweep.exclusions.push(Exclusion::Name(Arc::from("lone-nic")))),
    ("pvc", |w, [machine, ..]| {
        let mut disk = data_disk("pvc");
        as_disk(&mut disk).managed_by = vec![machine.id.clone()];
        as_vm(machine).data_disks = vec![disk.id.clone()];
        w.add(disk);
    }),
    ("elsewhere", |_, [machine, ..]| as_vm(machine).data_disks = vec![group().resource("x/disks", "elsewhere")]),
    ("lone-os", |w, [_, _, boot]| {
        let role = RelatedDetail::Snapshot { source: Some(boot.id.clone()), in_progress: true };
        w.add_related(role, "Microsoft.Compute/snapshots", "s", Tags::new());
    }),
    ("lone-nic", |w, [_, card, _]| {
        let id = ArmId::new(format!("{}/providers/Microsoft.Authorization/locks/keep", card.id)).unwrap();
        let locks = vec![Lock { id, level: LockLevel::CanNotDelete, notes: None }];
        w.snapshot.infrastructure = Arc::new(InfrastructureFacts { locks, ..Default::default() });
    }),
];

#[test]
fn a_vm_is_not_deleted_while_one_of_its_parts_must_not_be() {
    let mut alone = eager_world();
    lone_vm("lone").into_iter().for_each(|resource| alone.add(resource));
    alone.run(HOURS(1));
    assert_eq!(alone.deleted_names(), ["lone"]);
    for (n, (part, stage)) in PARTS.into_iter().enumerate() {
        let mut world = eager_world();
        let mut all = lone_vm("lone");
        stage(&mut world, &mut all);
        all.into_iter().for_each(|resource| world.add(resource));
        world.run(HOURS(2));
        assert_eq!(world.deleted_names(), [""; 0], "case {n}: {part}");
        let report = world.report.as_ref().unwrap();
        let finding = report.findings.iter().find(|f| f.id.name() == "lone").unwrap();
        assert_eq!(finding.refusals, [DeletionRefusal::TakesAlong], "case {n}: {part}");
        let evidence = finding.evidence.join("; ");
        assert!(evidence.contains(&format!("{part} would be deleted with it")), "case {n}: {evidence}");
    }
}

#[test]
fn parts_of_a_vm_are_checked_right_before_the_delete_too() {
    for n in 1..=2 {
        let mut world = eager_world();
        let mut actual = lone_vm("lone");
        actual.iter().cloned().for_each(|resource| world.add(resource));
        actual[n].tags.extend([tag("owner", "me")]);
        world.actual = Some(actual.into_iter().map(Arc::new).collect());
        world.run(MINUTES(30));
        assert_eq!(
            (world.deleted_names(), world.aborted.as_slice()),
            (vec![], &[DeletionRefusal::Changed][..]),
            "part {n}"
        );
    }
}

#[test]
fn a_clock_that_is_set_makes_nothing_old() {
    for step in [HOURS(3), HOURS(24 * 30), HOURS(-5)] {
        let mut world = SweepWorld::new();
        let disk = data_disk("pvc-1");
        world.had_volume("pv-1", &disk, ReclaimPolicy::Delete);
        world.sweep.approval_required.clear();
        [gone_nic("leaked"), disk].into_iter().for_each(|resource| world.add(resource));
        world.observe();
        let first = world.now;
        // Another replica leads, with another clock.
        world.crash();
        world.now += step + MINUTES(1);
        let lost = world.now;
        world.run(MINUTES(20));
        assert_eq!(world.deleted_names(), [""; 0], "{step:?}: 21 min have passed");
        if step > HOURS(0) {
            assert_eq!(world.snapshot.records.sightings[&gone_nic("leaked").id].first_seen, lost);
            world.now += MINUTES(10);
            world.run(MINUTES(20));
            assert_eq!(world.deleted_names(), ["leaked"], "{step:?}: watched for 30 min");
        } else {
            world.now = first + MINUTES(10);
            world.run(MINUTES(40));
            assert_eq!(world.deleted_names(), ["leaked"], "the clock is right again");
        }
    }
}

/// The records may be those of a restored backup, and the resource may have been in use since.
#[test]
fn after_unobserved_time_a_resource_must_be_seen_twice_again() {
    let mut world = SweepWorld::new();
    world.add(gone_nic("leaked"));
    world.sweep.mode = SweepMode::Report;
    world.run(MINUTES(45));
    assert!(world.snapshot.records.sightings[&gone_nic("leaked").id].times > 2);
    world.crash();
    world.now += HOURS(10);
    world.sweep.mode = SweepMode::Collect;
    world.observe();
    assert_eq!(world.deleted_names(), [""; 0]);
    world.now += MINUTES(10);
    world.observe();
    assert_eq!(world.deleted_names(), ["leaked"]);
}
