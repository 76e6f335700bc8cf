//! Tests of how replacements that have no effect are repeated.

use super::super::carry_out::MoveReason;
use super::super::components::Component;
use super::outdated::of_version;
use super::*;
use crate::disruption::{
    DisruptionBlocker, DriftDetector, PossibleDisruption, ReplacementLoop, ReplacementLoops, disruption_blockers,
};
use crate::model::cluster::claim::ClaimSpec;
use crate::model::cluster::replacement::{LOOP_LENGTH, RecurringCause, Replacement};
use crate::model::names::NodePoolName;
use crate::outlook::{NextMove, Obstacle, OutlookInput, outlook};
use std::collections::BTreeMap;

const HOUR: i64 = 3_600;

/// Drifted nodes `c00` to `c02`, one of which may go at once. The first has been replaced, as the last of so many in a row, by one that
/// has drifted in the same way, or has not. Returns the name of that one.
fn replaced(in_a_row: u32, has_drifted: bool) -> (World, String) {
    let mut world = World::new(SMALL, 3);
    for n in 0..3 {
        world.run_pod(&format!("p{n}"), &format!("c{n:02}"), 1_500);
    }
    let old = world.claim("c00").spec;
    world.pool.labels.insert("team".into(), "a".into());
    world.set_budget(BudgetNodes::Count(1));
    world.all(60);
    let mut draft = world.drafts.remove(0);
    let record = draft.spec.replacement.take().unwrap();
    assert_eq!(record.in_a_row, 1);
    draft.spec.replacement = Some(Replacement { in_a_row, ..record });
    if has_drifted {
        let ClaimSpec { labels, made_from, .. } = old;
        draft.spec = ClaimSpec { labels, made_from, ..draft.spec };
    }
    world.initialize(&draft);
    let name = draft.name.to_string();
    let mut claim = world.claim(&name);
    (claim.created_at, claim.status.initialized) = (at(world.now), Some(at(world.now)));
    world.snapshot.put_claim(claim);
    assert_eq!(world.wait(60).last(), Some(&"drifted c00".to_owned()));
    let gone = world.node("c00");
    let pod = world.snapshot.pods_on(&gone.name).next().unwrap().key.clone();
    world.snapshot.remove_pod(&pod);
    world.snapshot.remove_node(&gone.name);
    world.snapshot.remove_claim(&ClaimName::new("c00").unwrap());
    world.run_pod("p0", &name, 1_500);
    (world, name)
}

impl World {
    /// NodeClaims that are being deleted are gone, and their pods are on the nodes that replace them.
    fn drain_to_replacements(&mut self) {
        let claims: Vec<_> = self.snapshot.claims().values().cloned().collect();
        for old in claims.iter().filter(|claim| claim.deleting_at.is_some()) {
            let new = claims.iter().find(|claim| claim.spec.replaces.contains(&old.name)).unwrap();
            let (from, to) = (self.node(old.name.as_str()), self.node(new.name.as_str()));
            let pods: Vec<_> = self.snapshot.pods_on(&from.name).cloned().collect();
            for pod in pods {
                self.snapshot.remove_pod(&pod.key);
                self.snapshot.put_pod(running(pod.key.name.as_str(), &pod.shape, &to));
            }
            self.snapshot.remove_node(&from.name);
            self.snapshot.remove_claim(&old.name);
        }
    }
}

impl World {
    fn kept(&self, name: &str, reason: DisruptionReason) -> Vec<DisruptionBlocker> {
        let (now, claim) = (at(self.now), self.claim(name));
        let drift = DriftDetector::new(&self.pool, &self.snapshot, now).drift_of(&claim);
        let loops = &ReplacementLoops::of(&self.snapshot, now);
        disruption_blockers(&self.snapshot, &claim, PossibleDisruption { reason, drift: drift.as_ref(), loops }, now)
    }
}

fn marks(done: &[String]) -> usize {
    done.iter().filter(|text| text.starts_with("mark")).count()
}

#[test]
fn from_the_third_in_a_row_on_the_next_waits_twice_as_long_each_time() {
    for (in_a_row, minutes) in [(1, 0), (2, 0), (3, 30), (4, 60), (5, 120), (8, 960), (9, 1_440), (40, 1_440)] {
        let (mut world, _) = replaced(in_a_row, true);
        let (before, after) = (world.all(minutes * 60 - 120), world.all(300));
        assert_eq!((marks(&before), marks(&after)), (0, 1), "{in_a_row} in a row: {before:?}, {after:?}");
        let next = world.drafts[0].spec.replacement.as_ref().unwrap().in_a_row;
        assert_eq!(next, in_a_row + 1, "it goes on, whichever node is replaced");
    }
}

/// When nodes were created within so many seconds in a NodePool of 60 nodes that have drifted, as all have that replace them, and
/// which of a row each was. Budgets allow ten at once.
fn created_without_effect(seconds: i64) -> Vec<(i64, u32)> {
    let mut world = World::of_sizes(&[SMALL], SMALL, 60);
    for n in 0..60 {
        world.run_pod(&format!("p{n:02}"), &format!("c{n:02}"), 1_500);
    }
    let old = world.claim("c00").spec;
    world.pool.labels.insert("team".into(), "a".into());
    world.set_budget(BudgetNodes::Count(10));
    let mut created = Vec::new();
    while world.now < seconds {
        world.all(30);
        for mut draft in std::mem::take(&mut world.drafts) {
            created.push((world.now, draft.spec.replacement.as_ref().unwrap().in_a_row));
            let ClaimSpec { labels, made_from, .. } = old.clone();
            draft.spec = ClaimSpec { labels, made_from, ..draft.spec };
            world.initialize(&draft);
            let mut claim = world.claim(draft.name.as_str());
            (claim.created_at, claim.status.initialized) = (at(world.now), Some(at(world.now)));
            world.snapshot.put_claim(claim);
        }
        world.all(10);
        world.drain_to_replacements();
    }
    created
}

#[test]
fn a_large_pool_is_not_rolled_once_before_a_loop_is_known_and_then_one_goes_at_a_time() {
    let created = created_without_effect(2 * HOUR);
    let (at_once, later): (Vec<_>, Vec<_>) = created.into_iter().partition(|(at, _)| *at < 600);
    let count = |row| at_once.iter().filter(|(_, other)| *other == row).count();
    assert!(at_once.len() <= 40 && count(1) <= 20 && count(LOOP_LENGTH) > 0, "{at_once:?}");
    let last = at_once.last().unwrap().0;
    let [(first, 4), (second, 5)] = later[..] else { panic!("{later:?}") };
    assert!((HOUR / 2..HOUR / 2 + 120).contains(&(first - last)), "{last}, {later:?}");
    assert!((HOUR..HOUR + 120).contains(&(second - first)), "{later:?}");
}

/// Budgets, as maintenance windows, pauses and PodDisruptionBudgets, may let no node go for longer than the next one waits.
#[test]
fn a_loop_that_could_not_go_on_for_days_goes_on_with_one_node() {
    let (mut world, _) = replaced(LOOP_LENGTH, true);
    world.set_budget(BudgetNodes::Count(0));
    world.now += 72 * HOUR;
    assert_eq!(marks(&world.all(300)), 0);
    world.set_budget(BudgetNodes::Count(10));
    assert_eq!(marks(&world.all(300)), 1);
    assert_eq!(world.drafts[0].spec.replacement.as_ref().unwrap().in_a_row, LOOP_LENGTH + 1);
}

#[test]
fn others_go_at_once_when_the_last_one_does_not_differ() {
    let (mut world, name) = replaced(3, false);
    assert_eq!(marks(&world.all(300)), 1);
    assert_eq!(world.drafts[0].spec.replacement.as_ref().unwrap().in_a_row, 1);
    assert!(world.claim(&name).status.drifted.is_none());
}

/// One that was launched for pods, before or after the last one of the loop, and has drifted as that one, or has not.
#[test]
fn a_newer_node_that_has_not_drifted_ends_a_loop_whatever_it_was_launched_for() {
    for (age, has_drifted, goes_on) in [(-1, false, true), (1, true, true), (1, false, false)] {
        let (mut world, name) = replaced(9, true);
        let last = world.claim(&name);
        let (mut claim, node) = managed("other", &world.pool, offering(SMALL, 1, OnDemand));
        claim.created_at = last.created_at + SignedDuration::from_secs(age);
        claim.status.initialized = Some(claim.created_at);
        if has_drifted {
            claim.spec = ClaimSpec { replacement: None, ..last.spec };
        }
        put(&mut world.snapshot, (claim, node));
        world.run_pod("other", "other", 1_500);
        assert_eq!(marks(&world.all(100)), 0, "whether it has drifted shows after two minutes");
        assert_eq!(marks(&world.all(300)) == 0, goes_on, "{age} s newer, drifted: {has_drifted}");
        assert!(goes_on || world.drafts[0].spec.replacement.as_ref().unwrap().in_a_row == 1);
    }
}

#[test]
fn a_loop_has_not_ended_while_it_is_not_known_what_new_nodes_would_be() {
    let (world, name) = replaced(9, false);
    let later = world.claim(&name).created_at + SignedDuration::from_mins(10);
    let has_ended = |snapshot: &Snapshot| ReplacementLoops::of(snapshot, later).is_empty();
    assert!(has_ended(&world.snapshot));
    let mut without_sizes = world.snapshot.clone();
    without_sizes.instance_types.clear();
    let mut without_class = world.snapshot.clone();
    without_class.remove_class(&world.pool.class);
    assert!(!has_ended(&without_sizes) && !has_ended(&without_class));
}

#[test]
fn what_the_last_one_is_counts_and_not_what_is_written_on_it() {
    let (mut world, name) = replaced(3, true);
    assert_eq!(marks(&world.all(300)), 0);
    let mut claim = world.claim(&name);
    claim.status.drifted = None;
    world.snapshot.put_claim(claim);
    assert_eq!(world.all(60), [format!("note drift of {name}")]);
}

/// Whether it has drifted changes with what the newest node of any NodePool has.
#[test]
fn a_loop_lasts_as_long_as_the_last_one_has_an_old_version() {
    let mut world = of_version(2);
    world.upgrade("v1.34.1");
    world.all(60);
    let mut draft = world.drafts.remove(0);
    draft.spec.replacement.as_mut().unwrap().in_a_row = LOOP_LENGTH;
    let name = draft.name.to_string();
    world.initialize(&draft);
    world.set_kubelet(&name, "v1.33.0");
    let mut claim = world.claim(&name);
    (claim.created_at, claim.status.initialized) = (at(world.now), Some(at(world.now)));
    world.snapshot.put_claim(claim.clone());
    assert!(world.all(10).contains(&"drifted c00".to_owned()));
    world.drain();
    assert_eq!(marks(&world.all(300)), 0);
    let is_known = |world: &World| !ReplacementLoops::of(&world.snapshot, at(world.now)).is_empty();
    assert!(is_known(&world), "new nodes have the old version, and none is to be replaced for it");
    let elsewhere = NodePool { name: NodePoolName::new("elsewhere").unwrap(), ..world.pool.clone() };
    world.snapshot.put_pool(elsewhere.name.clone(), elsewhere.clone());
    let (mut other, node) = managed("other", &elsewhere, offering(SMALL, 1, OnDemand));
    other.created_at = at(world.now);
    other.spec.made_from = claim.spec.made_from;
    put(&mut world.snapshot, (other, node));
    world.set_kubelet("other", "v1.34.1");
    world.run_pod("other", "other", 1_500);
    let done = world.all(300);
    assert!(done.contains(&"note drift of c01".to_owned()) && marks(&done) == 0, "{done:?}");
    assert!(is_known(&world), "a new node of another NodePool has the new version");
    world.snapshot.node_base = Default::default();
    assert!(is_known(&world), "the version is not known after a start");
    world.upgrade("v1.34.1");
    world.set_kubelet(&name, "v1.34.1");
    assert!(!is_known(&world));
    assert_eq!(marks(&world.all(60)), 1);
}

#[test]
fn another_change_does_not_wait() {
    let (mut world, _) = replaced(6, true);
    assert_eq!(marks(&world.all(600)), 0);
    world.pool.labels.insert("team".into(), "b".into());
    world.snapshot.put_pool(world.pool.name.clone(), world.pool.clone());
    assert_eq!(marks(&world.all(300)), 1);
}

#[test]
fn a_loop_survives_a_restart_and_is_told_with_what_keeps_a_node() {
    let (mut world, name) = replaced(4, true);
    world.restart();
    assert_eq!(marks(&world.all(HOUR / 2)), 0);
    let kept = world.kept("c01", DisruptionReason::Drifted);
    let next_at = world.claim(&name).created_at + SignedDuration::from_hours(1);
    let text = format!(
        "its replacement waits: 4 replacements in a row without effect, for the same cause: Drifted (NodePool \
         spec.template.metadata.labels[team]: set to \"a\"), the last by NodeClaim {name}; the next one waits until {next_at}"
    );
    assert_eq!(kept.iter().map(ToString::to_string).collect::<Vec<_>>(), [text]);
    assert!(matches!(kept[0], DisruptionBlocker::ReplacementLoop(_)));
    assert_eq!(Obstacle::Blocked(kept[0].clone()).until(), Some(next_at), "it is reported before it begins");
    let empty = world.kept("c01", DisruptionReason::Empty);
    assert!(empty.is_empty(), "{empty:?}");
}

#[test]
fn removing_the_annotation_ends_a_loop_as_the_docs_say() {
    let page = include_str!("../../../../../docs/scheduling.md");
    let command = format!("kubectl annotate nodeclaims -l {}=general {}-\n", labels::NODEPOOL, labels::REPLACEMENT);
    assert!(page.contains(&command));
    let (mut world, name) = replaced(9, true);
    assert_eq!(marks(&world.all(300)), 0);
    let mut claim = world.claim(&name);
    claim.spec.replacement = None;
    world.snapshot.put_claim(claim);
    assert_eq!(marks(&world.all(300)), 1);
    assert_eq!(world.drafts[0].spec.replacement.as_ref().unwrap().in_a_row, 1);
}

#[test]
fn nodes_that_expire_do_not_wait() {
    let (mut world, _) = replaced(9, true);
    let mut claim = world.claim("c01");
    claim.spec.expire_after = Some(at(world.now + HOUR / 2).duration_since(claim.created_at));
    world.snapshot.put_claim(claim);
    world.set_budget(BudgetNodes::Count(10));
    let done = world.all(300);
    assert!(done.contains(&"mark c01".to_owned()) && marks(&done) == 1, "the drift of the others waits: {done:?}");
    assert_eq!(world.claim("c01").status.disrupted, Some(DisruptionReason::Expiring));
}

/// A NodePool of which the node `c00` is the last one of a loop of drift, whose next replacement waits for a day; and its record.
fn last_of_a_loop(mut world: World) -> (World, Option<Replacement>) {
    world.set_label("a");
    let mut claim = world.claim("c00");
    claim.spec.expire_after = world.pool.expire_after;
    let drift = DriftDetector::new(&world.pool, &world.snapshot, at(0)).drift_of(&claim).unwrap();
    (claim.created_at, claim.spec.replacement) = (at(0), Some(Replacement::new(drift.cause(&world.pool), 9)));
    let record = claim.spec.replacement.clone();
    world.snapshot.put_claim(claim);
    (world, record)
}

#[test]
fn a_loop_is_not_forgotten_where_its_last_node_expires_or_is_consolidated() {
    let mut world = World::new(SMALL, 1);
    world.run_pod("p", "c00", 1_500);
    world.pool.expire_after = Some(SignedDuration::from_hours(1));
    let (mut world, record) = last_of_a_loop(world);
    assert!(world.all(HOUR).contains(&"mark c00".to_owned()));
    assert_eq!(world.claim("c00").status.disrupted, Some(DisruptionReason::Expiring));
    assert_eq!(world.drafts[0].spec.replacement, record);
    let (mut world, record) = last_of_a_loop(oversized());
    assert!(world.all(300).contains(&"mark c00".to_owned()));
    assert_eq!(world.claim("c00").status.disrupted, Some(DisruptionReason::Underutilized));
    assert_eq!(world.drafts[0].spec.replacement, record);
}

/// A small node that has replaced a large one, and its record.
fn consolidated(record: Option<Replacement>) -> (World, Replacement) {
    let mut world = oversized();
    let mut claim = world.claim("c00");
    claim.created_at = at(0) - SignedDuration::from_hours(3);
    claim.spec.replacement = record;
    world.snapshot.put_claim(claim);
    world.all(120);
    let record = world.drafts.remove(0).spec.replacement.unwrap();
    (world, record)
}

#[test]
fn consolidation_counts_only_what_brings_an_offering_back() {
    let [small, large] = [SMALL, LARGE].map(|size| format!("{size} on-demand"));
    let (_, cheaper) = consolidated(None);
    let first = Replacement::new(RecurringCause::CONSOLIDATION, 0);
    assert_eq!(cheaper, Replacement { replaced: Some(large.clone()), ..first });
    let before = Replacement { in_a_row: 1, offerings: vec![small.clone()], ..cheaper };
    let (world, back) = consolidated(Some(before.clone()));
    assert_eq!((back.in_a_row, &back.offerings, &back.replaced), (1, &vec![small], &Some(large)));
    let launched = |size| back.count(&managed("new", &world.pool, offering(size, 1, OnDemand)).0);
    assert_eq!([SMALL, MEDIUM, LARGE].map(launched), [2, 1, 1], "whatever was planned, what Azure had counts");
    let drift = RecurringCause { reason: DisruptionReason::Drifted, change: Some("1".to_owned()) };
    let (_, other) = consolidated(Some(Replacement { cause: drift, ..before }));
    assert_eq!((other.in_a_row, other.offerings), (0, Vec::new()), "another cause is another row");
}

#[test]
fn consolidation_waits_and_forgets_a_row_whose_last_node_has_lasted() {
    for (in_a_row, age_hours, replaces) in [(2, 0, true), (20, 0, false), (20, 23, false), (20, 29, true)] {
        let mut world = oversized();
        let mut claim = world.claim("c00");
        claim.created_at = at(0) - SignedDuration::from_hours(age_hours);
        let offerings = vec![format!("{SMALL} on-demand")];
        claim.spec.replacement =
            Some(Replacement { offerings, ..Replacement::new(RecurringCause::CONSOLIDATION, in_a_row) });
        world.snapshot.put_claim(claim);
        let loops = ReplacementLoops::of(&world.snapshot, at(world.now));
        assert_eq!(loops.is_empty(), replaces, "{in_a_row} in a row, {age_hours} h");
        assert_eq!(marks(&world.all(600)) > 0, replaces, "{in_a_row} in a row, {age_hours} h");
    }
}

/// What else is to be found changes with time, but not each minute.
#[test]
fn a_node_that_waits_is_not_looked_at_each_minute_but_when_it_may_go() {
    let mut world = oversized();
    let offerings = vec![format!("{SMALL} on-demand")];
    let mut claim = world.claim("c00");
    (claim.created_at, claim.spec.replacement) =
        (at(0), Some(Replacement { offerings, ..Replacement::new(RecurringCause::CONSOLIDATION, LOOP_LENGTH) }));
    world.snapshot.put_claim(claim);
    let next_search = |world: &mut World| {
        world.memory.moves.exhausted = None;
        world.decide();
        world.memory.moves.exhausted.unwrap().1
    };
    assert_eq!(next_search(&mut world), at(300), "as without a loop");
    world.now = HOUR / 2 - 200;
    assert_eq!(next_search(&mut world), at(HOUR / 2));
    assert!(world.all(300).contains(&"mark c00".to_owned()));
}

#[test]
fn consolidation_holds_only_the_node_that_is_in_a_loop() {
    let mut world = World::new(LARGE, 2);
    world.run_pod("full", "c00", 14_000);
    world.run_pod("p", "c01", 3_000);
    let offerings = vec![format!("{SMALL} on-demand")];
    let record = Replacement { offerings, ..Replacement::new(RecurringCause::CONSOLIDATION, 9) };
    let mut looping = world.claim("c00");
    (looping.created_at, looping.spec.replacement) = (at(0), Some(record.clone()));
    world.snapshot.put_claim(looping);
    let kept = |name| world.kept(name, DisruptionReason::Underutilized).len();
    assert_eq!((kept("c00"), kept("c01")), (1, 0));
    let done = world.all(300);
    assert!(done.contains(&"mark c01".to_owned()), "{done:?}");
    let replacement = world.drafts[0].spec.replacement.clone().unwrap();
    assert_eq!((replacement.in_a_row, replacement.replaced), (0, Some(format!("{LARGE} on-demand"))));
}

/// Two nodes, each in a loop of consolidations, of which the pods of either fit on the other, once `consolidateAfter` of so many
/// hours is over; nothing has changed on them for a day.
fn two_in_loops(consolidate_after: i64) -> World {
    let mut world = World::new(SMALL, 2);
    world.pool.disruption.consolidate_after = Some(SignedDuration::from_hours(consolidate_after));
    world.snapshot.put_pool(world.pool.name.clone(), world.pool.clone());
    for n in 0..2 {
        world.run_pod(&format!("p{n}"), &format!("c{n:02}"), 200);
        let mut claim = world.claim(&format!("c{n:02}"));
        let record = Replacement::new(RecurringCause::CONSOLIDATION, 9);
        (claim.created_at, claim.spec.replacement) = (at(0), Some(record));
        world.snapshot.put_claim(claim);
    }
    world
}

#[test]
fn a_node_in_a_loop_is_deleted_where_its_pods_fit_on_others_and_nothing_says_that_a_loop_keeps_it() {
    for (hours, waits_for) in [(1, 0), (26, 1)] {
        let mut world = two_in_loops(hours);
        let (snapshot, provision, settings) = (&world.snapshot, &world.provision, &settings());
        let found = outlook(OutlookInput { snapshot, provision, settings, now: at(0), seed: 1 });
        let [NextMove { sources, replacements, obstacles, .. }] = &found.moves[..] else { panic!("{:?}", found.moves) };
        assert_eq!((replacements.len(), obstacles.len()), (0, waits_for), "{obstacles:?}");
        let is_loop = |one: &&Obstacle| matches!(one, Obstacle::Blocked(DisruptionBlocker::ReplacementLoop(_)));
        assert_eq!(obstacles.iter().filter(is_loop).count(), 0, "{obstacles:?}");
        for node in &found.nodes {
            let is_deleted = sources.iter().any(|source| source.claim == node.claim.name);
            let loops = node.obstacles.iter().filter(is_loop).count();
            assert_eq!(loops, usize::from(!is_deleted), "{node:?}");
        }
        if waits_for == 0 {
            assert_eq!(world.wait(120), [format!("underutilized {}", sources[0].claim)]);
        }
    }
}

/// By how much a row that has had small nodes goes on with a move of so many nodes of a size, of which the first is of that row, to
/// so many small ones.
fn counted(sources: usize, size: &str, new_nodes: usize) -> Vec<u32> {
    let mut world = worth::world(&["on-demand"], &vec![(size, OnDemand, 500, 100_000); sources]);
    let mut claim = world.claim("c00");
    let offerings = vec![format!("{SMALL} on-demand")];
    let record = Replacement { offerings, ..Replacement::new(RecurringCause::CONSOLIDATION, 1) };
    let before = record.count(&claim);
    claim.spec.replacement = Some(record);
    world.snapshot.put_claim(claim);
    let candidates = worth::candidates(&world);
    let launched = offering(SMALL, 1, OnDemand);
    let new_nodes = (0..new_nodes).map(|_| worth::new_node(&world, OnDemand, launched.price)).collect();
    let component = Component { sources: candidates.iter().collect(), new_nodes };
    let (causes, loops) = (BTreeMap::new(), ReplacementLoops::default());
    let why = MoveReason { reason: DisruptionReason::Underutilized, causes: &causes, number: 0, text: "" };
    let records = why.replacements(&component, &loops, at(0));
    let launched = managed("new", &world.pool, launched).0;
    let after = records.into_iter().map(|record| record.unwrap().count(&launched));
    after.enumerate().map(|(i, after)| if i == 0 { after - before } else { after }).collect()
}

#[test]
fn merged_nodes_count_and_a_lower_price_of_the_same_size_does_not() {
    assert_eq!(counted(1, MEDIUM, 1), [1], "a size that was there before");
    assert_eq!(counted(1, SMALL, 1), [0], "the same size in another zone");
    assert_eq!(counted(2, MEDIUM, 2), [1, 0], "of the two one goes on with the row");
    assert_eq!(counted(3, MEDIUM, 2), [1, 0], "merged to a size that was there before");
    assert_eq!(counted(2, SMALL, 1), [1], "merged to what one of them was");
}

/// Two small nodes are merged into a medium one. Each time that pods then wait, a small one is launched for them, and is merged into
/// a medium one with the other.
#[test]
fn nodes_that_are_merged_again_and_again_are_a_loop() {
    let pool = pool("general");
    let node = |size, record| {
        let (mut claim, _) = managed("merged", &pool, offering(size, 1, OnDemand));
        claim.spec.replacement = record;
        claim
    };
    let merge = |source: &Claim| Replacement::after(source, &RecurringCause::CONSOLIDATION, true, source.created_at);
    assert_eq!(merge(&node(MEDIUM, None)).count(&node(MEDIUM, None)), 0, "what has replaced nothing is in no row");
    let mut merged = node(MEDIUM, Some(merge(&node(SMALL, None))));
    for expected in 0..LOOP_LENGTH {
        assert_eq!(merged.spec.replacement.as_ref().unwrap().count(&merged), expected);
        merged = node(MEDIUM, Some(merge(&merged)));
    }
    assert!(ReplacementLoop::of_consolidated(&merged, merged.created_at).is_some());
}
