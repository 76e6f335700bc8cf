//! Histories of many seeds hold every invariant, and every deletion rule is needed.

use super::history::history_with;
use super::node_health::with_node_health;
use super::outdated_nodes::with_outdated_nodes;
use super::*;
use crate::world::TimelineEntry;
use napkeeper_core::model::settings::DeletionRule;
use std::sync::{Mutex, OnceLock};

/// Seeds of a plain run: one of each hazard. `.ci/nightly` plays 2,000.
const FEW: u64 = Hazard::ALL.len() as u64;

/// Seeds in which a rule must be needed: twenty of each hazard.
const MOST_SEEDS: u64 = 20 * Hazard::ALL.len() as u64;

fn catalog() -> &'static Catalog {
    static CATALOG: OnceLock<Catalog> = OnceLock::new();
    CATALOG.get_or_init(|| Catalog::embedded().unwrap())
}

/// The seeds that `NAPKEEPER_SEEDS=from..to` selects, if it is set. `.ci/nightly` takes more than a plain run.
pub(crate) fn requested_seeds() -> Option<std::ops::Range<u64>> {
    let text = std::env::var_os("NAPKEEPER_SEEDS")?;
    Some(seeds(&text.to_string_lossy()).unwrap_or_else(|error| panic!("NAPKEEPER_SEEDS: {error}")))
}

/// Runs `work` on every item, on all processors.
pub(crate) fn on_all_processors<T: Send>(items: impl Iterator<Item = T> + Send, work: impl Fn(T) + Sync) {
    let items = Mutex::new(items);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(|| {
                while let Some(item) = { items.lock().unwrap().next() } {
                    work(item);
                }
            });
        }
    });
}

/// Prints the timeline of a failing seed, if `NAPKEEPER_TIMELINE` is set.
fn print_timeline(history: History) {
    if std::env::var_os("NAPKEEPER_TIMELINE").is_none() {
        return;
    }
    let History { setup, crashes, mode, duration } = history;
    let mut world = World::new(catalog(), setup).unwrap();
    world.set_mode(mode);
    world.plan_crashes(crashes);
    let end = world.now() + duration;
    drop(world.run_until(end));
    world.timeline().iter().for_each(|e| println!("{} {:<10} {:<30} {}", e.at, e.kind, e.subject, e.text));
}

#[test]
fn histories_hold_every_invariant() {
    let failures = Mutex::new(Vec::new());
    on_all_processors(requested_seeds().unwrap_or(0..FEW), |seed| {
        if let Err(failure) = run(catalog(), seed, DeletionRules::all()) {
            println!("seed {seed} ({:?}): {failure}", Hazard::of(seed));
            print_timeline(history(seed));
            failures.lock().unwrap().push(seed);
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "failing seeds: {failures:?}");
}

/// Seeds of these histories in a plain run: of hazards that interrupt writes and watches, and of a few others.
const REPLACING: [u64; 7] = [1, 4, 8, 13, 19, 22, 161];

/// `.ci/nightly` plays 200.
#[test]
fn drifted_and_unhealthy_nodes_are_replaced_under_faults() {
    let (failures, replaced) = (Mutex::new(Vec::new()), Mutex::new(0));
    let seeds: Vec<u64> = requested_seeds().map_or_else(|| REPLACING.to_vec(), Iterator::collect);
    let history = |seed| with_node_health(with_outdated_nodes(history(seed)));
    on_all_processors(seeds.into_iter(), |seed| match play(catalog(), history(seed), DeletionRules::all(), |_| {}) {
        Ok(world) => {
            let is_drift = |entry: &&TimelineEntry| entry.text.starts_with("drifted: ");
            *replaced.lock().unwrap() += world.timeline().iter().filter(is_drift).count();
        }
        Err(failure) => {
            println!("seed {seed} ({:?}): {failure}", Hazard::of(seed));
            print_timeline(history(seed));
            failures.lock().unwrap().push(seed);
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "failing seeds: {failures:?}");
    assert!(replaced.into_inner().unwrap() > 0, "no node was replaced");
}

#[test]
fn histories_that_once_failed_hold() {
    // 550: an emptied API server was judged by the group's name. 1340: the history ended while Azure was deleting a VM.
    // 776: the controller crashed after it had given up nodes, and before the NodePool's condition said so. 616: an
    // intent named the resources of another NodeClaim, which was lost later. 720: the answer to a DELETE was lost, and
    // the next one found nothing to delete. 835: the invariant forgot the last inventory before a restore of
    // OrphanRecords. 105: after the clock had been set back, nothing was disrupted or taken back until it had caught up.
    // 383: a mark was taken back before a late watch had shown the taint, which stayed. 1475: the invariant of budgets
    // counted what a user had deleted, of which the watch had not told. 216: the history ended while a node that expired was
    // being deleted. 497: it ended while pods that had been moved waited for a node, because another deletion had taken the
    // room that a replacement counted on. 831: what was launched for a move that was then taken back had long been ready.
    let once_failed = [
        (Hazard::WrongGroup, 550),
        (Hazard::ApiServerRestore, 1340),
        (Hazard::FailedJoins, 776),
        (Hazard::PartialRestores, 616),
        (Hazard::InterruptedWrites, 720),
        (Hazard::InterruptedWrites, 216),
        (Hazard::ExternalEdits, 835),
        (Hazard::ClockJumps, 105),
        (Hazard::ClockJumps, 497),
        (Hazard::WatchLag, 383),
        (Hazard::WatchLag, 831),
        (Hazard::WatchLag, 1475),
    ];
    for (hazard, seed) in once_failed {
        play(catalog(), history_with(hazard, seed), DeletionRules::all(), |_| {}).unwrap();
    }
}

#[test]
fn a_history_is_a_function_of_its_seed() {
    for seed in [1, 5, 9] {
        let tell = || run(catalog(), seed, DeletionRules::all()).map(|world| world.timeline().to_vec()).unwrap();
        assert_eq!(tell(), tell(), "seed {seed}");
    }
}

/// Rules switched off together, the hazards that need them, and the invariants of which one must break. A rule is
/// listed with those that mask it: if each of two rules prevents the same harm, only removing both shows it. Last, the
/// seed that is tried first; once a change has made another history of it, a seed that the test prints takes its place.
type Needed = (&'static [DeletionRule], &'static [Hazard], &'static [&'static str], u64);

/// All rules, with those that mask them.
const NEEDED: &[Needed] = &[
    (&[DeletionRule::GroupManagedByUs], &[Hazard::WrongGroup], &["other-cluster"], 10),
    (&[DeletionRule::LiveNodeInGroup], &[Hazard::Identities], &["second-cluster"], 101),
    (&[DeletionRule::Breaker], &[Hazard::ApiServerRestore], &["alive"], 5),
    (&[DeletionRule::OwnedByTag], &[Hazard::ForeignResources], &["foreign"], 4),
    (&[DeletionRule::VolumeRecord], &[Hazard::DataDisks], &["foreign"], 3),
    (&[DeletionRule::VolumeIncarnation], &[Hazard::DataDisks], &["foreign"], 3),
    (&[DeletionRule::RetainKeeps], &[Hazard::DataDisks], &["alive"], 3),
    // A claim and its Node both speak for a VM, and so does the look right before the DELETE; all VMs at once trip the
    // breaker.
    (
        &[DeletionRule::NoClaim, DeletionRule::NoNode, DeletionRule::RecheckOwners, DeletionRule::Breaker],
        &[Hazard::Leaks, Hazard::Shortages, Hazard::Outages],
        &["alive", "age"],
        0,
    ),
    // A Node whose NodeClaim a restored backup lacks is the only object that refers to its VM.
    (
        &[DeletionRule::NoNode, DeletionRule::RecheckOwners, DeletionRule::Breaker],
        &[Hazard::PartialRestores],
        &["alive"],
        18,
    ),
    (&[DeletionRule::NoVm, DeletionRule::RecheckResource], &[Hazard::Leaks], &["alive", "age"], 2),
    // The disks of all PersistentVolumes at once trip the breaker.
    (
        &[DeletionRule::NoVolume, DeletionRule::RecheckOwners, DeletionRule::Breaker],
        &[Hazard::DataDisks],
        &["alive", "age"],
        3,
    ),
    (&[DeletionRule::NicServesNothing, DeletionRule::RecheckResource], &[Hazard::Leaks], &["alive", "age"], 2),
    (&[DeletionRule::DiskUnattached, DeletionRule::RecheckResource], &[Hazard::Leaks], &["alive", "age"], 2),
    (&[DeletionRule::NoAksMachine], &[Hazard::RelatedResources], &["alive"], 14),
    (&[DeletionRule::NoScaleSetInstance], &[Hazard::RelatedResources], &["alive"], 14),
    (&[DeletionRule::NoSnapshot], &[Hazard::RelatedResources], &["alive"], 14),
    (&[DeletionRule::AksManaged, DeletionRule::RecheckResource], &[Hazard::RelatedResources], &["alive"], 14),
    (&[DeletionRule::TakesAlong], &[Hazard::ForeignResources], &["foreign"], 4),
    (&[DeletionRule::OldEnough], &[Hazard::Leaks, Hazard::Caps], &["age"], 2),
    // Whatever is old enough has been seen twice, because both are counted from the same sightings.
    (&[DeletionRule::SeenTwice, DeletionRule::OldEnough], &[Hazard::Leaks, Hazard::Caps], &["age", "seen-twice"], 2),
    (&[DeletionRule::CompleteListings], &[Hazard::Outages], &["whole-listing", "alive", "age"], 370),
    (&[DeletionRule::ReadableSweeps], &[Hazard::ManualChanges], &["exclusion"], 119),
    (&[DeletionRule::RecheckResource], &[Hazard::Races], &["foreign", "alive"], 92),
    (&[DeletionRule::RecheckOwners], &[Hazard::Races], &["alive"], 64),
    (&[DeletionRule::Pause], &[Hazard::ManualChanges], &["pause"], 7),
    (&[DeletionRule::Mode], &[Hazard::ManualChanges], &["mode"], 35),
    (&[DeletionRule::CompanionVm], &[Hazard::Companion], &["companion"], 11),
    (&[DeletionRule::Cap], &[Hazard::Caps], &["cap"], 9),
    (&[DeletionRule::Approval], &[Hazard::Leaks, Hazard::DataDisks, Hazard::ManualChanges], &["approval"], 3),
    (&[DeletionRule::ApprovalExact], &[Hazard::ManualChanges], &["approval"], 7),
    (&[DeletionRule::Exclusion], &[Hazard::ManualChanges], &["exclusion"], 7),
    (&[DeletionRule::IntentFirst], &[Hazard::Crashes], &["leak", "settled-leaks"], 1),
    (&[DeletionRule::TerminateOwnOnly], &[Hazard::ForeignResources], &["foreign"], 4),
    (&[DeletionRule::FinalizerLast], &[Hazard::Crashes], &["leak"], 1),
    (&[DeletionRule::RecordFirst], &[Hazard::Caps], &["cap"], 9),
    (&[DeletionRule::LostNodeProven], &[Hazard::NodeOutages], &["drained"], 15),
    (&[DeletionRule::NodeOutage], &[Hazard::NodeOutages], &["outage"], 15),
    (&[DeletionRule::LaunchIntoOwnGroup], &[Hazard::Identities], &["second-cluster"], 101),
    (&[DeletionRule::NodeWithoutClaim], &[Hazard::Identities], &["second-cluster"], 129),
    (&[DeletionRule::FailingPoolsHeld], &[Hazard::FailedJoins], &["failed-launches"], 16),
    (&[DeletionRule::NoOtherKarpenter], &[Hazard::Identities], &["other-karpenter"], 17),
    (&[DeletionRule::LeaseHeld], &[Hazard::InterruptedWrites], &["alive"], 20),
    (&[DeletionRule::RestoreNoticed], &[Hazard::LostEvents], &["settled-pods", "settled-claims"], 134),
    (&[DeletionRule::ClocksAgree], &[Hazard::ClockJumps], &["drained", "pod-budget"], 21),
];

#[test]
fn every_deletion_rule_is_needed() {
    let spared = Mutex::new(Vec::new());
    on_all_processors(NEEDED.iter(), |(clauses, hazards, invariants, first)| {
        let rules = DeletionRules::without_in_tests(clauses);
        let stressed = std::iter::once(*first).chain(0..MOST_SEEDS).filter(|seed| hazards.contains(&Hazard::of(*seed)));
        let mut others = Vec::new();
        for seed in stressed {
            match run(catalog(), seed, rules) {
                Err(Failure::Violation(v)) if invariants.contains(&v.invariant) => {
                    println!("without {clauses:?}: seed {seed} breaks {}", v.invariant);
                    return;
                }
                Err(other) => others.push(format!("seed {seed}: {other}")),
                Ok(_) => {}
            }
        }
        spared.lock().unwrap().push(format!("{clauses:?} can be spared; other failures: {others:#?}"));
    });
    let spared = spared.into_inner().unwrap();
    assert!(spared.is_empty(), "{}", spared.join("\n"));
}

#[test]
fn every_rule_is_in_the_table() {
    let missing = |clause: &&DeletionRule| !NEEDED.iter().any(|(clauses, ..)| clauses.contains(clause));
    let missing: Vec<_> = DeletionRule::ALL.iter().filter(missing).collect();
    assert!(missing.is_empty(), "no mutation switches off {missing:?}");
}
