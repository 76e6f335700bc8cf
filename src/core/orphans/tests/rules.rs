//! Tests of the deletion rules: what must not be deleted, what must be, and when.

use super::fixtures::*;
use crate::model::azure::cloud::{CloudResource, DiskState, ResourceKind, Tags};
use crate::model::azure::inventory::ListFailure;
use crate::model::azure::naming::resource_ids;
use crate::model::cluster::volume::{Attachment, DiskUse, ReclaimPolicy};
use crate::model::labels;
use crate::model::names::{ClaimName, NodeName, ObjectName};
use crate::model::orphans::finding::DeletionRefusal;
use crate::model::orphans::sweep::{SweepMode, UnreadableSweeps};
use crate::model::settings::{ControllerMode, DeletionRule, DeletionRules, Pause, PauseSwitch};
use crate::plan::Command;
use jiff::SignedDuration;
use proptest::prelude::*;
use std::sync::Arc;

const WEEKS: SignedDuration = SignedDuration::from_hours(9 * 24);

/// Observes sparsely over nine days, approving everything: enough for every clause of time to be met.
fn over_nine_days(world: &mut SweepWorld) {
    let all: Vec<Arc<CloudResource>> = world.inventory.resources.clone().unwrap();
    for resource in &all {
        world.approve(resource);
    }
    world.sweep.inventory_interval = HOURS(20);
    let end = world.now + WEEKS;
    while world.now < end {
        world.run(MINUTES(40));
        world.now += HOURS(20);
    }
    world.run(MINUTES(40));
}

#[test]
fn a_leaked_nic_is_collected_after_thirty_minutes_and_two_sightings() {
    let mut world = SweepWorld::new();
    world.add(gone_nic("leaked"));
    world.run(MINUTES(20));
    assert_eq!(world.refusals("leaked"), [DeletionRefusal::TooYoung]);
    world.run(HOURS(1));
    assert_eq!(world.deleted_names(), ["leaked"]);
    assert_eq!(world.deleted[0].0, start() + MINUTES(30));
}

#[test]
fn age_alone_is_not_enough_and_times_count_only_ten_minutes_apart() {
    let mut world = SweepWorld::new();
    world.sweep.inventory_interval = MINUTES(30);
    world.add(gone_nic("leaked"));
    world.observe();
    for _ in 0..3 {
        world.now += MINUTES(3);
        world.observe();
    }
    world.now = start() + MINUTES(31);
    world.pass();
    assert_eq!(world.deleted_names(), [""; 0], "seen within 9 minutes only");
    let mut refusals = [DeletionRefusal::SeenOnce, DeletionRefusal::TooYoung];
    refusals.sort_unstable();
    assert_eq!(world.refusals("leaked"), refusals);
    world.observe();
    assert_eq!(world.deleted_names(), ["leaked"]);
}

#[test]
fn no_setting_is_below_ten_minutes() {
    let mut world = SweepWorld::new();
    world.sweep.minimum_age = [(ResourceKind::Nic, SignedDuration::ZERO)].into();
    world.settings.deletion_rules = DeletionRules::all();
    world.add(gone_nic("leaked"));
    world.run(MINUTES(60));
    assert_eq!(world.deleted[0].0, start() + MINUTES(10));
}

#[test]
fn a_sign_of_life_restarts_the_sighting() {
    let mut world = SweepWorld::new();
    world.add(gone_nic("leaked"));
    world.run(MINUTES(20));
    world.claims().push(Arc::new(claim("other", "uid-gone")));
    world.now += MINUTES(5);
    world.observe();
    world.claims().pop();
    world.now += MINUTES(5);
    world.run(MINUTES(60));
    assert_eq!(world.deleted[0].0, start() + MINUTES(60));
}

#[test]
fn a_true_orphan_disk_is_collected_after_a_week_and_an_approval() {
    let mut world = SweepWorld::new();
    let disk = data_disk("pvc-1");
    world.add(disk.clone());
    world.had_volume("pv-1", &disk, ReclaimPolicy::Delete);
    let deleted_at = world.now;
    world.run(HOURS(7 * 24));
    assert_eq!(world.refusals("pvc-1"), [DeletionRefusal::Approval]);
    world.approve(&disk);
    world.pass();
    assert_eq!(world.deleted_names(), ["pvc-1"]);
    assert!(world.deleted[0].0 >= deleted_at + HOURS(7 * 24));
    assert_eq!(world.deleted[0].1.volume, Some(ObjectName::new("pv-1").unwrap()));
}

#[test]
fn a_disk_that_was_detached_lately_is_too_young() {
    let mut world = SweepWorld::new();
    let mut disk = data_disk("pvc-1");
    as_disk(&mut disk).last_ownership_update = Some(start() + HOURS(100));
    world.add(disk.clone());
    world.had_volume("pv-1", &disk, ReclaimPolicy::Delete);
    world.run(HOURS(7 * 24 + 1));
    world.approve(&disk);
    world.pass();
    assert_eq!(world.refusals("pvc-1"), [DeletionRefusal::TooYoung]);
    assert_eq!(world.deleted_names(), [""; 0]);
}

/// Adds something to a world.
type Stage = fn(&mut SweepWorld);
/// The name of an added resource, its setup, and why it is not deleted.
type Protected = (&'static str, Stage, &'static [DeletionRefusal]);
/// Clauses that together keep something, its name, and how it is added.
type Needed = (&'static [DeletionRule], &'static str, Stage);

const PROTECTED: [Protected; 19] = [
    ("untagged", |w| w.add(os_disk("untagged", Tags::new())), &[DeletionRefusal::NotOwned]),
    (
        "other-cluster",
        |w| {
            let mut tags = tags("gone", "uid-gone");
            tags.insert(Arc::from(labels::TAG_CLUSTER), Arc::from("c-10"));
            w.add(nic("other-cluster", tags));
        },
        &[DeletionRefusal::NotOwned],
    ),
    (
        "foreign-vm",
        |w| {
            let tags = [(labels::TAG_KARPENTER_NODEPOOL, "c-1"), ("made-by", labels::TAG_CLUSTER)];
            let tags = tags.map(|(k, v)| (Arc::from(k), Arc::from(v)));
            w.add(vm("foreign-vm", tags.into()));
        },
        &[DeletionRefusal::NotOwned],
    ),
    (
        "unknown-disk",
        |w| {
            let mut disk = data_disk("unknown-disk");
            disk.tags = tags("gone", "uid-gone");
            w.add(disk);
        },
        &[DeletionRefusal::NoVolumeRecord],
    ),
    (
        "retained",
        |w| {
            let disk = data_disk("retained");
            w.add(disk.clone());
            w.had_volume("pv-r", &disk, ReclaimPolicy::Retain);
        },
        &[DeletionRefusal::Retained],
    ),
    (
        "retained-late",
        |w| {
            let disk = data_disk("retained-late");
            w.add(disk.clone());
            w.had_volume("pv-l", &disk, ReclaimPolicy::Delete);
            w.had_volume("pv-l", &disk, ReclaimPolicy::Retain);
        },
        &[DeletionRefusal::Retained],
    ),
    (
        "excluded",
        |w| {
            w.sweep.exclusions.push(crate::model::orphans::sweep::Exclusion::Name(Arc::from("EXCLUDED")));
            w.add(gone_nic("excluded"));
        },
        &[DeletionRefusal::Excluded],
    ),
    // From here on alive: such a thing is in no report, and has no refusals there.
    (
        "pvc-disk",
        |w| {
            let disk = data_disk("pvc-disk");
            w.had_volume("pv-p", &disk, ReclaimPolicy::Delete);
            w.volumes().push(Arc::new(volume("pv-p", &disk, ReclaimPolicy::Delete)));
            w.add(disk);
        },
        &[],
    ),
    (
        "attaching",
        |w| {
            let disk = data_disk("attaching");
            w.had_volume("pv-a", &disk, ReclaimPolicy::Delete);
            w.inventory.attachments.as_mut().unwrap().push(Arc::new(Attachment {
                name: ObjectName::new("csi-1").unwrap(),
                volume: Some(ObjectName::new("pv-a").unwrap()),
                node: NodeName::new("aks-live-1").unwrap(),
            }));
            w.add(disk);
        },
        &[],
    ),
    (
        "inline",
        |w| {
            let disk = data_disk("inline");
            w.had_volume("pv-i", &disk, ReclaimPolicy::Delete);
            w.inventory
                .disk_uses
                .as_mut()
                .unwrap()
                .push(Arc::new(DiskUse { disk: disk.id.clone(), user: Arc::from("Pod default/x") }));
            w.add(disk);
        },
        &[],
    ),
    (
        "exported",
        |w| {
            let mut disk = data_disk("exported");
            w.had_volume("pv-e", &disk, ReclaimPolicy::Delete);
            as_disk(&mut disk).state = DiskState::Other(Arc::from("ActiveSAS"));
            w.add(disk);
        },
        &[],
    ),
    (
        "shared",
        |w| {
            let mut disk = data_disk("shared");
            w.had_volume("pv-s", &disk, ReclaimPolicy::Delete);
            as_disk(&mut disk).managed_by = vec![group().resource("x/y", "one"), group().resource("x/y", "two")];
            w.add(disk);
        },
        &[],
    ),
    (
        "private-endpoint",
        |w| {
            let mut card = gone_nic("private-endpoint");
            as_nic(&mut card).serves = Some(Arc::from("private endpoint db"));
            w.add(card);
        },
        &[],
    ),
    ("copied-tags", |w| w.add(os_disk("copied-tags", tags("x", "uid-2"))), &[]),
    ("AKS-Live-2_OsDisk_1", |w| w.add(os_disk("AKS-Live-2_OsDisk_1", tags("x", "y"))), &[]),
    (
        "intended",
        |w| {
            let card = gone_nic("INTENDED");
            let mut by = claim("by-intent", "uid-i");
            by.deleting_at = Some(start());
            let nic = group().resource(crate::model::azure::naming::NIC_TYPE, "intended");
            by.intent = Some(intent(&group(), &nic, &group()));
            w.claims().push(Arc::new(by));
            w.add(card);
        },
        &[],
    ),
    (
        "noded",
        |w| {
            let machine = vm("noded", tags("gone", "uid-gone"));
            w.nodes().push(Arc::new(node("n", &machine.id)));
            w.add(machine);
        },
        &[],
    ),
    (
        "hosted",
        |w| {
            let vm = resource_ids(&group(), &ClaimName::new("gone").unwrap()).vm;
            w.nodes().push(Arc::new(node("host", &vm)));
            w.add(gone_nic("hosted"));
        },
        &[],
    ),
    (
        "namesake",
        |w| {
            let disk = data_disk("namesake");
            w.had_volume("pv-n", &disk, ReclaimPolicy::Delete);
            let other = volume("pv-n", &data_disk("other"), ReclaimPolicy::Delete);
            w.volumes().push(Arc::new(other));
            w.add(disk);
        },
        &[],
    ),
];

#[test]
fn protected_resources_are_never_deleted_and_have_a_reason() {
    for (name, add, reasons) in PROTECTED {
        let mut world = SweepWorld::new();
        add(&mut world);
        over_nine_days(&mut world);
        assert_eq!(world.deleted_names(), [""; 0], "{name}");
        assert_eq!(world.refusals(name), reasons, "{name}");
        assert_eq!(world.aborted, [], "{name}: known from the listing, not from the last look");
    }
}

#[test]
fn a_failed_listing_adds_and_clears_nothing_and_is_reported() {
    let failure = ListFailure::new("networkInterfaces", "403");
    let mut world = SweepWorld::new();
    world.add(gone_nic("leaked"));
    world.run(MINUTES(20));
    let before = world.snapshot.records.clone();
    let claims = std::mem::replace(&mut world.inventory.claims, Err(failure));
    world.now += MINUTES(10);
    world.observe();
    assert_eq!(world.snapshot.records, before);
    assert_eq!(world.deleted_names(), [""; 0]);
    let halted = world.report.as_ref().unwrap().halted.clone();
    assert_eq!(halted.as_deref(), Some("listing networkInterfaces: 403"));
    world.inventory.claims = claims;
    world.now += MINUTES(10);
    world.observe();
    assert_eq!(world.deleted_names(), ["leaked"]);
}

#[test]
fn a_group_of_another_cluster_is_never_swept() {
    let mut world = SweepWorld::new();
    world.add(gone_nic("leaked"));
    world.inventory.group_managed_by = Ok(Some(group()));
    over_nine_days(&mut world);
    assert_eq!(world.deleted_names(), [""; 0]);
    assert!(world.refusals("leaked").contains(&DeletionRefusal::OtherCluster));
    assert!(world.snapshot.records.trips.is_empty());
}

#[test]
fn an_emptied_api_server_trips_the_breaker_at_the_first_listing() {
    let mut world = SweepWorld::new();
    world.run(MINUTES(20));
    world.claims().clear();
    world.nodes().truncate(1);
    world.nodes().push(Arc::new(node("restored", &group().resource("x/y", "z"))));
    // The VMs alone turn suspect: their NICs and disks are attached to them.
    world.now += MINUTES(10);
    world.observe();
    let trip = world.snapshot.records.trips[0].clone();
    assert_eq!((trip.kind, trip.suspects, trip.owned), (ResourceKind::Vm, 3, 3));
    over_nine_days(&mut world);
    assert_eq!(world.deleted_names(), [""; 0]);
    assert!(world.refusals("aks-live-1").contains(&DeletionRefusal::Breaker));
    let halted = world.report.as_ref().unwrap().halted.clone().unwrap();
    assert!(halted.contains("clearedAt: \"2026-03-02T00:30:01Z\""), "{halted}");
}

#[test]
fn the_breaker_holds_until_git_clears_it_and_not_by_a_future_time() {
    let mut world = SweepWorld::new();
    world.run(MINUTES(20));
    world.claims().clear();
    world.nodes().truncate(1);
    world.run(HOURS(2));
    world.sweep.breaker_cleared_at = Some(world.now + HOURS(1));
    world.sweep.approval_required.clear();
    world.run(MINUTES(30));
    assert_eq!(world.deleted_names(), [""; 0], "a future time is refused");
    world.sweep.breaker_cleared_at = Some(world.now);
    world.run(MINUTES(30));
    assert_eq!(world.deleted.len(), 1, "the cap of a small cluster is one");
    assert!(world.snapshot.records.trips.is_empty());
}

/// A scale-down: all claims but the first were seen being deleted, or vanish at once. `upstream` are resources of
/// managed NAP, without our tags. Returns the number of trips.
fn trips_of_a_scale_down(upstream: bool, seen_deleting: bool) -> usize {
    let mut world = SweepWorld::new();
    for n in 4..=8 {
        world.add_claim(&format!("live-{n}"), &format!("uid-{n}"));
    }
    if upstream {
        for resource in world.inventory.resources.as_mut().unwrap() {
            let mut upstream = (**resource).clone();
            upstream.tags = [(Arc::from(labels::TAG_KARPENTER_CLUSTER), Arc::from("c-1"))].into();
            *resource = Arc::new(upstream);
        }
    }
    world.observe();
    for claim in world.claims().clone().into_iter().skip(1).filter(|_| seen_deleting) {
        let mut deleting = (*claim).clone();
        deleting.deleting_at = Some(world.now);
        world.snapshot.put_claim(deleting);
    }
    world.pass();
    world.claims().truncate(1);
    world.nodes().truncate(2);
    world.now += MINUTES(10);
    world.observe();
    world.snapshot.records.trips.len()
}

#[test]
fn a_scale_down_between_the_two_listings_trips_nothing() {
    for upstream in [false, true] {
        assert_eq!(trips_of_a_scale_down(upstream, true), 0, "upstream: {upstream}");
        assert!(trips_of_a_scale_down(upstream, false) > 0, "claims that vanish trip it; upstream: {upstream}");
    }
}

#[test]
fn records_that_cannot_be_written_halt_the_sweep_and_its_status_says_so() {
    let mut world = SweepWorld::new();
    world.add(gone_nic("leaked"));
    world.run(MINUTES(20));
    let halted = |world: &SweepWorld| world.report.as_ref().unwrap().halted.clone();
    assert_eq!(halted(&world), None);
    world.records_lost = true;
    world.now += MINUTES(10);
    world.observe();
    assert_eq!(halted(&world), None, "one write that fails is tried again");
    world.now += MINUTES(5);
    world.pass();
    let reason = halted(&world).unwrap();
    assert!(reason.contains("OrphanRecords could not be written since 2026-03-02T00:30:00Z"), "{reason}");
    world.run(HOURS(2));
    assert_eq!(halted(&world), Some(reason), "the status is not rewritten for the time of every inventory");
    assert_eq!(world.tried, [""; 0], "unrecorded orphans are not collected, whatever their age");
    world.records_lost = false;
    world.run(MINUTES(20));
    assert_eq!((halted(&world), world.deleted_names()), (None, vec!["leaked"]));
}

#[test]
fn approvals_name_an_incarnation_and_end_within_fourteen_days() {
    for (incarnation, hours, enough) in [
        ("orphan-1", 24, true),
        ("orphan-0", 24, false),
        ("orphan-1", 0, false),
        ("orphan-1", 14 * 24, true),
        ("orphan-1", 14 * 24 + 1, false),
    ] {
        let mut world = SweepWorld::new();
        let orphan = vm("orphan", tags("gone", "uid-gone"));
        world.add(orphan.clone());
        world.run(MINUTES(40));
        assert_eq!(world.refusals("orphan"), [DeletionRefusal::Approval]);
        world.approve(&orphan);
        world.sweep.approvals[0].incarnation = Arc::from(incarnation);
        world.sweep.approvals[0].expires_at = world.now + HOURS(hours);
        world.pass();
        assert_eq!(world.deleted.len(), usize::from(enough), "{incarnation} for {hours} h");
    }
}

#[test]
fn the_cap_survives_a_crash_and_rolls_on_after_a_day() {
    let mut world = SweepWorld::new();
    for n in 0..3 {
        world.add(gone_nic(&format!("leaked-{n}")));
    }
    world.run(MINUTES(40));
    assert_eq!(world.deleted_names(), ["leaked-0"]);
    assert_eq!(world.refusals("leaked-1"), [DeletionRefusal::Cap]);
    for _ in 0..5 {
        world.crash();
        world.run(MINUTES(30));
    }
    assert_eq!(world.deleted.len(), 1, "one a day");
    world.run(HOURS(48));
    assert_eq!(world.deleted_names(), ["leaked-0", "leaked-1", "leaked-2"]);
    assert!(world.deleted[1].0 >= world.deleted[0].0 + HOURS(24));
}

#[test]
fn a_deletion_that_failed_is_tried_again_without_a_second_share_of_the_cap() {
    let mut world = SweepWorld::new();
    let leaked = gone_nic("leaked");
    world.add(leaked.clone());
    world.run(MINUTES(30));
    world.pass();
    assert_eq!(world.deleted.len(), 1, "once per inventory");
    world.add(leaked);
    world.now += MINUTES(10);
    world.observe();
    assert_eq!(world.deleted.len(), 2);
}

#[test]
fn only_collect_collects_and_mark_marks_once() {
    for mode in [SweepMode::Report, SweepMode::Mark] {
        let mut world = SweepWorld::new();
        world.sweep.mode = mode;
        world.add(gone_nic("leaked"));
        world.run(HOURS(2));
        assert_eq!(world.deleted_names(), [""; 0]);
        assert_eq!(world.refusals("leaked"), [DeletionRefusal::Mode]);
        let marks = |plan: &crate::plan::Plan| {
            let marked = |p: &&crate::plan::PlannedCommand| matches!(p.command, Command::Mark { .. });
            plan.commands.iter().filter(marked).count()
        };
        world.now += MINUTES(10);
        world.observe_without_apply();
        let marked = marks(&world.decide());
        assert_eq!(marked, usize::from(mode == SweepMode::Mark));
        assert_eq!(marks(&world.decide()), 0, "once per inventory");
        let mut tagged = gone_nic("leaked");
        let since = start().to_string();
        tagged.tags.insert(Arc::from(labels::TAG_SUSPECT_SINCE), Arc::from(since));
        world.inventory.resources.as_mut().unwrap().pop();
        world.add(tagged);
        world.now += MINUTES(10);
        world.observe();
        assert_eq!(marks(&world.decide()), 0);
        let sighting = world.snapshot.records.sightings.values().next().unwrap();
        assert_eq!(sighting.first_seen, start(), "our own mark restarts nothing");
    }
}

#[test]
fn a_schedule_holds_collection_back_until_it_fires() {
    let mut world = SweepWorld::new();
    world.sweep.schedule = Some(Arc::from("0 2 * * *"));
    world.now += HOURS(4);
    world.add(gone_nic("leaked"));
    world.run(HOURS(21));
    assert_eq!(world.refusals("leaked"), [DeletionRefusal::Mode]);
    world.run(HOURS(2));
    let when = world.deleted[0].0;
    assert_eq!(when.to_string(), "2026-03-03T02:00:00Z");
}

#[test]
fn a_pause_holds_everything_back() {
    let mut world = SweepWorld::new();
    world.add(gone_nic("leaked"));
    world.snapshot.pause = Pause::of([PauseSwitch::Delete]);
    world.run(HOURS(2));
    assert_eq!(world.refusals("leaked"), [DeletionRefusal::Paused]);
    assert_eq!(world.deleted_names(), [""; 0]);
}

/// OrphanSweeps that cannot be read: one.
fn unreadable() -> UnreadableSweeps {
    UnreadableSweeps::of([(Arc::from("exclusions"), Arc::from("spec.schedule: wrong"))])
}

#[test]
fn an_orphan_sweep_that_cannot_be_read_holds_everything_back() {
    let mut world = SweepWorld::new();
    world.tagging = true;
    let mut second = world.sweep.clone();
    second.name = ObjectName::new("marks").unwrap();
    second.mode = SweepMode::Mark;
    world.snapshot.put_sweep(second.name.clone(), second.clone());
    world.add(gone_nic("leaked"));
    let mut marked = nic("live-again", tags("live-1", "uid-1"));
    marked.tags.insert(Arc::from(labels::TAG_SUSPECT_SINCE), Arc::from(start().to_string()));
    world.add(marked);
    world.snapshot.unreadable_sweeps = unreadable();
    world.run(HOURS(2));
    assert!(world.refusals("leaked").contains(&DeletionRefusal::UnreadableSweep));
    let halted = world.report.as_ref().unwrap().halted.clone().unwrap();
    assert!(halted.starts_with("OrphanSweep exclusions cannot be read (spec.schedule: wrong)"), "{halted}");
    assert_eq!(world.deleted_names(), [""; 0]);
    let marks = |world: &SweepWorld| {
        let resources = world.inventory.resources.as_ref().unwrap().iter();
        resources.filter(|r| r.tag(labels::TAG_SUSPECT_SINCE).is_some()).map(|r| r.id.name().to_owned()).collect()
    };
    let before: Vec<String> = marks(&world);
    assert_eq!(before, ["live-again"], "neither marked nor unmarked");

    world.snapshot.unreadable_sweeps = UnreadableSweeps::default();
    world.run(MINUTES(20));
    assert_eq!(world.deleted_names(), ["leaked"]);
    assert_eq!(marks(&world), [""; 0]);
    assert_eq!(world.report.unwrap().halted, None);
}

#[test]
fn beside_managed_nap_vms_are_never_deleted() {
    let mut world = SweepWorld::new();
    world.settings.mode = ControllerMode::Companion;
    world.sweep.approval_required.clear();
    world.add(vm("orphan", tags("gone", "uid-gone")));
    world.run(HOURS(2));
    assert_eq!(world.refusals("orphan"), [DeletionRefusal::Companion]);
    assert_eq!(world.deleted_names(), [""; 0]);
}

#[test]
fn another_incarnation_under_the_same_name_restarts() {
    let mut world = SweepWorld::new();
    world.add(gone_nic("leaked"));
    world.run(MINUTES(20));
    let mut second = gone_nic("leaked");
    second.incarnation = Arc::from("leaked-2");
    world.inventory.resources.as_mut().unwrap().pop();
    world.add(second);
    world.now += MINUTES(10);
    world.run(MINUTES(60));
    assert_eq!(world.deleted[0].0, start() + MINUTES(60));
}

#[test]
fn a_sign_of_life_after_the_listing_aborts_the_deletion() {
    let changes: [(Stage, DeletionRefusal); 3] = [
        (|w| w.claims().push(Arc::new(claim("gone", "reborn"))), DeletionRefusal::SignOfLife),
        (
            |w| {
                let vm = resource_ids(&group(), &ClaimName::new("gone").unwrap()).vm;
                w.nodes().push(Arc::new(node("late", &vm)));
            },
            DeletionRefusal::SignOfLife,
        ),
        (
            |w| {
                w.inventory.resources.as_mut().unwrap().pop();
                let mut reborn = gone_nic("leaked");
                reborn.incarnation = Arc::from("leaked-2");
                w.add(reborn);
            },
            DeletionRefusal::Changed,
        ),
    ];
    for (change, refusal) in changes {
        let mut world = SweepWorld::new();
        world.add(gone_nic("leaked"));
        world.run(MINUTES(20));
        world.now += MINUTES(10);
        world.observe_without_apply();
        change(&mut world);
        world.pass();
        assert_eq!(world.aborted, [refusal]);
        assert_eq!(world.deleted_names(), [""; 0]);
        assert!(world.snapshot.records.deletions.is_empty());
    }
}

/// Every clause, alone or with those that mask it, and a case in which it alone prevents a deletion.
#[test]
fn every_clause_is_needed() {
    use crate::model::settings::DeletionRule::*;
    let stage_of = |name: &str| PROTECTED.iter().find(|(n, ..)| *n == name).unwrap().1;
    let table: [Needed; 14] = [
        (&[OwnedByTag], "untagged", stage_of("untagged")),
        (&[OwnedByTag], "foreign-vm", stage_of("foreign-vm")),
        (&[VolumeRecord], "unknown-disk", stage_of("unknown-disk")),
        (&[RetainKeeps], "retained", stage_of("retained")),
        (&[NoClaim], "copied-tags", stage_of("copied-tags")),
        (&[NoNode, RecheckOwners], "noded", stage_of("noded")),
        (&[NoVm, RecheckResource], "shared", stage_of("shared")),
        (&[NoVolume, RecheckOwners], "pvc-disk", stage_of("pvc-disk")),
        (&[NoVolume], "inline", stage_of("inline")),
        (&[NicServesNothing, RecheckResource], "private-endpoint", stage_of("private-endpoint")),
        (&[DiskUnattached, RecheckResource], "exported", stage_of("exported")),
        (&[Exclusion], "excluded", stage_of("excluded")),
        (&[TakesAlong], "lone", |w| {
            let [machine, mut card, boot] = lone_vm("lone");
            card.tags.clear();
            [machine, card, boot].into_iter().for_each(|resource| w.add(resource));
        }),
        (&[GroupManagedByUs], "leaked", |w| {
            w.inventory.group_managed_by = Ok(Some(group()));
            w.add(gone_nic("leaked"));
        }),
    ];
    for (clauses, name, add) in table {
        for n in 0..=clauses.len() {
            // All of them, or all but one: each is needed.
            let off: Vec<DeletionRule> = clauses.iter().copied().filter(|c| clauses.get(n) != Some(c)).collect();
            let mut world = SweepWorld::new();
            world.settings.deletion_rules = DeletionRules::without_in_tests(&off);
            add(&mut world);
            over_nine_days(&mut world);
            let deleted = world.deleted_names().contains(&name);
            assert_eq!(deleted, n == clauses.len(), "{name} without {off:?}");
        }
    }
}

/// When a leaked NIC is deleted within two hours, if at all, with a clause switched off.
fn deleted_without(off: &[DeletionRule], stage: Stage) -> Option<SignedDuration> {
    let mut world = SweepWorld::new();
    world.settings.deletion_rules = DeletionRules::without_in_tests(off);
    world.add(gone_nic("leaked"));
    stage(&mut world);
    world.run(HOURS(2));
    let first = world.deleted.first();
    first.map(|(at, _)| at.duration_since(start()))
}

#[test]
fn every_clause_of_time_and_leave_is_needed() {
    use crate::model::settings::DeletionRule::*;
    let plain: Stage = |_| {};
    assert_eq!(deleted_without(&[], plain), Some(MINUTES(30)));
    assert_eq!(deleted_without(&[OldEnough], plain), Some(MINUTES(10)));
    let rarely: Stage = |w| {
        w.sweep.inventory_interval = MINUTES(30);
        w.observe();
        w.now += MINUTES(35);
        w.pass();
        w.now += MINUTES(10);
    };
    assert_eq!(deleted_without(&[], rarely), Some(MINUTES(45)));
    assert_eq!(deleted_without(&[OldEnough, SeenTwice], plain), Some(MINUTES(0)), "each masks the other");
    let held: [(DeletionRule, Stage); 5] = [
        (ReadableSweeps, |w| w.snapshot.unreadable_sweeps = unreadable()),
        (Mode, |w| w.sweep.mode = SweepMode::Report),
        (Pause, |w| w.snapshot.pause = crate::model::settings::Pause::of([PauseSwitch::Delete])),
        (Approval, |w| w.sweep.approval_required = [ResourceKind::Nic].into()),
        (ApprovalExact, |w| {
            w.sweep.approval_required.insert(ResourceKind::Nic);
            w.approve(&gone_nic("leaked"));
            w.sweep.approvals[0].incarnation = Arc::from("leaked-0");
        }),
    ];
    for (clause, stage) in held {
        assert_eq!(deleted_without(&[], stage), None, "{clause:?}");
        assert_eq!(deleted_without(&[clause], stage), Some(MINUTES(30)), "{clause:?}");
    }
}

/// How many were deleted with all rules, and with a clause switched off.
fn deletions_with_and_without(clause: DeletionRule, stage: Stage) -> [usize; 2] {
    [DeletionRules::all(), DeletionRules::without_in_tests(&[clause])].map(|rules| {
        let mut world = SweepWorld::new();
        world.settings.deletion_rules = rules;
        stage(&mut world);
        world.deleted.len()
    })
}

#[test]
fn the_cap_and_the_companions_reserve_are_needed() {
    let many: Stage = |w| {
        (0..3).for_each(|n| w.add(gone_nic(&format!("leaked-{n}"))));
        w.run(HOURS(2));
    };
    assert_eq!(deletions_with_and_without(DeletionRule::Cap, many), [1, 3]);
    let companion: Stage = |w| {
        w.settings.mode = ControllerMode::Companion;
        w.sweep.approval_required.clear();
        w.add(vm("orphan", tags("gone", "uid-gone")));
        w.run(HOURS(2));
    };
    assert_eq!(deletions_with_and_without(DeletionRule::CompanionVm, companion), [0, 1]);
}

#[test]
fn the_breaker_and_the_last_look_are_needed() {
    use crate::model::settings::DeletionRule::*;
    let staged: [(DeletionRule, Stage); 3] = [
        (Breaker, |w| {
            // The system node still exists: only the breaker prevents it.
            w.sweep.approval_required.clear();
            w.claims().clear();
            w.nodes().truncate(1);
            w.run(HOURS(2));
        }),
        (RecheckOwners, |w| {
            w.add(gone_nic("leaked"));
            w.run(MINUTES(20));
            w.now += MINUTES(10);
            w.observe_without_apply();
            w.claims().push(Arc::new(claim("gone", "reborn")));
            w.pass();
        }),
        (RecheckResource, |w| {
            w.add(gone_nic("leaked"));
            w.run(MINUTES(20));
            w.now += MINUTES(10);
            w.observe_without_apply();
            w.inventory.resources.as_mut().unwrap().pop();
            let mut card = gone_nic("leaked");
            as_nic(&mut card).vm = Some(group().resource("x/y", "z"));
            w.add(card);
            w.pass();
        }),
    ];
    for (clause, stage) in staged {
        assert_eq!(deletions_with_and_without(clause, stage), [0, 1], "{clause:?}");
    }
}

#[test]
fn without_whole_listings_a_failed_page_looks_like_an_empty_one() {
    for (off, harm) in [(&[][..], false), (&[DeletionRule::CompleteListings], true)] {
        let mut world = SweepWorld::new();
        world.settings.deletion_rules = DeletionRules::without_in_tests(off);
        let disk = data_disk("pvc");
        world.add(disk.clone());
        world.had_volume("pv", &disk, ReclaimPolicy::Delete);
        // A pod uses it inline, on a page that fails: no last look finds that.
        world.inventory.disk_uses = Err(ListFailure::new("pods", "page 2 of 3: timeout"));
        over_nine_days(&mut world);
        assert_eq!(!world.deleted.is_empty(), harm);
    }
}

#[test]
fn a_volume_that_lived_between_two_inventories_is_recorded() {
    let mut world = SweepWorld::new();
    world.observe();
    let disk = data_disk("pvc-1");
    let short = volume("pv-1", &disk, ReclaimPolicy::Delete);
    world.snapshot.put_volume(short.name.clone(), short);
    world.pass();
    assert!(world.snapshot.records.volumes.contains_key(&disk.id));
}

#[test]
fn a_restart_observes_at_once_and_judges_nothing_until_then() {
    let mut world = SweepWorld::new();
    world.add(gone_nic("leaked"));
    world.run(MINUTES(20));
    world.crash();
    world.now += MINUTES(15);
    let observes = |plan: &crate::plan::Plan| {
        let last = plan.commands.last().map(|p| &p.command);
        matches!(last, Some(Command::TakeInventory { category: "first" }))
    };
    let plan = world.decide();
    let accepts = |command: &Command| matches!(command, Command::ReportSweep(report) if report.observed_at.is_none());
    assert!(observes(&plan) && plan.commands.len() == 2 && accepts(&plan.commands[0].command), "{plan:?}");
    assert!(!observes(&world.decide()), "requested once");
    world.observe();
    assert_eq!(world.deleted_names(), ["leaked"], "durable sightings count");
}

#[test]
fn an_emptied_api_server_is_caught_by_two_clauses() {
    use crate::model::settings::DeletionRule::{Breaker, LiveNodeInGroup};
    for (off, harm) in [(&[LiveNodeInGroup][..], false), (&[Breaker], false), (&[LiveNodeInGroup, Breaker], true)] {
        let mut world = SweepWorld::new();
        world.settings.deletion_rules = DeletionRules::without_in_tests(off);
        world.claims().clear();
        world.nodes().clear();
        over_nine_days(&mut world);
        assert_eq!(!world.deleted.is_empty(), harm, "without {off:?}");
    }
}

/// A resource that this cluster owns, with at most one link to something alive.
#[derive(Debug, Clone)]
struct Linked {
    kind: ResourceKind,
    link: Option<u8>,
}

/// Adds one; false when its kind cannot have such a link.
fn add_linked(world: &mut SweepWorld, name: &str, linked: &Linked) {
    let own = tags("gone", "uid-gone");
    let mut resource = match linked.kind {
        ResourceKind::Nic => nic(name, own),
        ResourceKind::OsDisk => os_disk(name, own),
        ResourceKind::Vm => vm(name, own),
        ResourceKind::DataDisk => {
            let disk = data_disk(name);
            world.had_volume(&format!("pv-{name}"), &disk, ReclaimPolicy::Delete);
            disk
        }
    };
    let id = resource.id.clone();
    let key = name.to_owned();
    match linked.link {
        None => {}
        Some(0) => drop(resource.tags.insert(Arc::from(labels::TAG_CLAIM_UID), Arc::from("uid-1"))),
        Some(1) => drop(resource.tags.insert(Arc::from(labels::TAG_CLAIM), Arc::from("live-1"))),
        Some(2) => {
            let mut by = claim(&format!("claim-{key}"), &key);
            by.intent = Some(intent(&id, &id, &id));
            world.claims().push(Arc::new(by));
        }
        Some(3) => {
            let mut by = claim(&format!("claim-{key}"), &key);
            by.deleting_at = Some(start());
            by.status.provider_id = Some(crate::model::names::ProviderId::of_vm(&id));
            world.claims().push(Arc::new(by));
        }
        Some(4) => world.nodes().push(Arc::new(node(&format!("node-{key}"), &id))),
        Some(5) => {
            let mut machine = vm(&format!("vm-{key}"), Tags::new());
            as_vm(&mut machine).data_disks = vec![id];
            world.add(machine);
        }
        Some(6) => {
            let by = volume(&format!("pv-{key}"), &resource, ReclaimPolicy::Delete);
            world.volumes().push(Arc::new(by));
        }
        Some(_) => world
            .inventory
            .disk_uses
            .as_mut()
            .unwrap()
            .push(Arc::new(DiskUse { disk: id, user: Arc::from("VolumeSnapshot default/y") })),
    }
    world.add(resource);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_with_a_link_to_something_alive_is_ever_deleted(
        links in prop::collection::vec((0_usize..4, prop::option::weighted(0.7, 0_u8..8)), 1..12),
    ) {
        let mut world = SweepWorld::new();
        let mut free = 0;
        for (n, (kind, link)) in links.iter().enumerate() {
            let linked = Linked { kind: ResourceKind::ALL[*kind], link: *link };
            let name = format!("{}-{n}", if link.is_some() { "linked" } else { "free" });
            free += usize::from(link.is_none());
            add_linked(&mut world, &name, &linked);
        }
        over_nine_days(&mut world);
        for name in world.deleted_names() {
            prop_assert!(name.starts_with("free"), "{name} was deleted");
        }
        if free > 0 && world.snapshot.records.trips.is_empty() {
            prop_assert!(!world.deleted.is_empty(), "nothing was deleted of {free}");
        }
    }
}
