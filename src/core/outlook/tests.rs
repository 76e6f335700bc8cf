//! The outlook against the decider itself, over random clusters, and what moves and nodes wait for.

use super::nodes::is_of_fixed_size;
use super::*;
use crate::catalog::CapacityType::{OnDemand, Spot};
use crate::disruption::{DisruptionBlocker, DisruptionMemory, disrupt};
use crate::fixtures::{
    Dice, at, cluster, disruption_budget, managed, node, offering, pool, put, running, settings, shape,
};
use crate::model::cluster::claim::{ClaimStatus, DriftedCondition};
use crate::model::cluster::node::Node;
use crate::model::cluster::pod::{DoNotDisrupt, HostPort, Pod};
use crate::model::cluster::pool::{Budget, BudgetNodes, ConsolidationPolicy, NodePool};
use crate::model::names::Uid;
use crate::model::settings::{Pause, PauseSwitch};
use crate::plan::{ClaimDraft, ClaimUpdate, Command, NodeUpdate};
use crate::static_capacity::{StaticCapacityMemory, reconcile_static_capacity};
use std::cell::Cell;
use std::collections::BTreeSet;

const UNDERUTILIZED: NextMoveReason = NextMoveReason::Disrupted(DisruptionReason::Underutilized);
const SIZES: [&str; 3] = ["Standard_D2s_v5", "Standard_D8s_v5", "Standard_D16s_v5"];

fn outlook_of(snapshot: &Snapshot, seconds: i64) -> Outlook {
    let (provision, settings) = (ProvisionMemory::default(), settings());
    outlook(OutlookInput { snapshot, provision: &provision, settings: &settings, now: at(seconds), seed: 1 })
}

fn random_pool(dice: &mut Dice, name: &str) -> NodePool {
    let mut pool = pool(name);
    let disruption = &mut pool.disruption;
    disruption.policy = dice.pick(&[
        ConsolidationPolicy::WhenEmptyOrUnderutilized,
        ConsolidationPolicy::WhenEmptyOrUnderutilized,
        ConsolidationPolicy::Balanced,
        ConsolidationPolicy::WhenEmpty,
    ]);
    let minutes = dice.pick(&[0, 5, 600]);
    disruption.consolidate_after = (!dice.one_in(8)).then(|| SignedDuration::from_mins(minutes));
    let nodes =
        dice.pick(&[BudgetNodes::Percent(100), BudgetNodes::Count(1), BudgetNodes::Percent(20), BudgetNodes::Count(0)]);
    let reasons = dice.one_in(3).then(|| vec![DisruptionReason::Drifted]);
    let window = dice.one_in(3).then(|| (Arc::from("0 6 * * *"), SignedDuration::from_hours(4)));
    disruption.budgets = vec![Budget { nodes, reasons, window }];
    pool.labels.insert(Arc::from("team"), Arc::from("new"));
    pool.replicas = dice.one_in(6).then(|| dice.pick(&[2, 5, 9, 12]));
    pool.expire_after = dice.one_in(4).then(|| SignedDuration::from_hours(dice.pick(&[24, 25, 200])));
    pool.termination_grace_period = dice.one_in(3).then(|| SignedDuration::from_mins(30));
    pool
}

fn put_node(dice: &mut Dice, snapshot: &mut Snapshot, (pool, n): (&NodePool, usize), sizes: &[&'static str]) {
    let capacity_type = dice.pick(&[OnDemand, OnDemand, Spot]);
    let (mut claim, mut node) = managed(&format!("c{n:02}"), pool, offering(dice.pick(sizes), 1, capacity_type));
    (claim.created_at, node.ready_since) = (at(-87_000), at(-87_000));
    let quiet_for = dice.pick(&[60, 400, 3_600, 40_000, 86_400, 86_400]);
    (claim.status.initialized, claim.status.last_pod_event) = (Some(at(-86_500)), Some(at(-quiet_for)));
    if dice.one_in(6) {
        claim.spec.labels.insert(Arc::from("team"), Arc::from("old"));
        let (reason, message) = (Arc::from("NodePoolDrifted"), Arc::from(""));
        claim.status.drifted = dice.one_in(2).then_some(DriftedCondition { since: at(-60), reason, message });
    }
    match dice.roll(20) {
        // More than one in ten would be an outage.
        0 if n == 0 => node.ready = false,
        1 => node.do_not_disrupt = true,
        2 => claim.deleting_at = Some(at(-10)),
        3 => claim.status.initialized = None,
        _ => {}
    }
    for i in 0..dice.pick(&[0, 1, 1, 2, 3]) {
        let app = format!("app-{}", dice.roll(6));
        let mut shape = shape(&app, dice.pick(&[100, 400, 1_200]), 1);
        if dice.one_in(2) {
            shape.ports = vec![HostPort { port: 80 + i, protocol: Arc::from("TCP"), address: None }];
        }
        let mut pod = running(&format!("p{n}-{i}"), &Arc::new(shape), &node);
        match dice.roll(14) {
            0 => pod.do_not_disrupt = Some(DoNotDisrupt::Always),
            1 => pod.owner = PodOwner::Nobody,
            2 => pod.owner = PodOwner::DaemonSet,
            _ => {}
        }
        snapshot.put_pod(pod);
    }
    put(snapshot, (claim, node));
}

fn random_snapshot(seed: u64) -> Snapshot {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let pools: Vec<NodePool> = (0..=dice.roll(2)).map(|n| random_pool(&mut dice, &format!("pool-{n}"))).collect();
    let mut snapshot = cluster(pools.iter().cloned());
    // Of few large nodes it is rarer that their pods fit on others, and more often that a smaller node does.
    let (nodes, sizes) = if dice.one_in(2) { (1 + dice.roll(2), &SIZES[2..]) } else { (2 + dice.roll(10), &SIZES[..]) };
    for n in 0..nodes {
        let pool = dice.pick(&pools);
        put_node(&mut dice, &mut snapshot, (&pool, n), sizes);
    }
    if dice.one_in(4) {
        let protected = disruption_budget(&format!("app-{}", dice.roll(6)), 0);
        snapshot.put_disruption_budget(protected.key.clone(), protected);
    }
    if dice.one_in(12) {
        snapshot.put_pod(crate::fixtures::pod("waiting", &Arc::new(shape("waiting", 1_000, 1))));
    }
    if dice.one_in(12) {
        snapshot.pause = Pause::of([dice.pick(&[PauseSwitch::Disrupt, PauseSwitch::Launch])]);
    }
    snapshot
}

/// A NodeClaim of which no VM is known yet.
fn launched(draft: ClaimDraft, created_at: Timestamp) -> Claim {
    let uid = Uid::new(draft.name.as_str()).unwrap();
    let spec = draft.spec;
    let (owned_by_pool, has_finalizer, intent, status) = (false, true, None, ClaimStatus::default());
    let (deleting_at, termination_at, name) = (None, None, draft.name);
    Claim { name, uid, created_at, deleting_at, termination_at, owned_by_pool, has_finalizer, spec, intent, status }
}

/// What the deciders begin first if nothing changes but by their own writes of drift and soft taints: every deletion and mark of
/// the pass, and every replacement of a node of a fixed size, in order.
fn decided_first(mut snapshot: Snapshot) -> Vec<(ClaimName, &'static str)> {
    let (mut memory, provision, settings) = (DisruptionMemory::default(), ProvisionMemory::default(), settings());
    let mut of_static = StaticCapacityMemory::default();
    for seconds in (0..120).step_by(2) {
        let mut plan = reconcile_static_capacity(&snapshot, &mut of_static, &provision, &settings, at(seconds), 1);
        plan.extend(disrupt(&snapshot, &mut memory, &provision, &settings, at(seconds), 1));
        let mut begun = Vec::new();
        for planned in plan.commands {
            match planned.command {
                Command::CreateClaim(draft) => match draft.reason {
                    Some(reason) => begun.push((draft.spec.replaces[0].clone(), reason.category())),
                    // The NodePool lacks it.
                    None => snapshot.put_claim(launched(*draft, at(seconds))),
                },
                Command::DeleteClaim { claim, category, .. } => begun.push((claim.name, category)),
                Command::UpdateClaim { claim, update: ClaimUpdate::Disrupted(reason) } => {
                    begun.push((claim.name, reason.category()));
                }
                Command::UpdateClaim { claim, update: ClaimUpdate::Drifted { reason, message } } => {
                    let mut drifted = Claim::clone(snapshot.claims().get(&claim.name).unwrap());
                    drifted.status.drifted = Some(DriftedCondition { since: at(seconds), reason, message });
                    snapshot.put_claim(drifted);
                }
                Command::UpdateNode { node, update, .. } => {
                    let mut tainted = Node::clone(snapshot.nodes().get(&node).unwrap());
                    match update {
                        NodeUpdate::AddTaint(taint) => tainted.taints.push(taint),
                        NodeUpdate::RemoveTaint(taint) => tainted.taints.retain(|other| *other != taint),
                        _ => {}
                    }
                    snapshot.put_node(tainted);
                }
                _ => {}
            }
        }
        if !begun.is_empty() {
            // A node that is too many may expire as well: each is in one move.
            let mut seen = BTreeSet::new();
            begun.retain(|(claim, _)| seen.insert(claim.clone()));
            return begun;
        }
    }
    Vec::new()
}

fn category(one: &NextMove) -> &'static str {
    match one.reason {
        NextMoveReason::Disrupted(reason) => reason.category(),
        NextMoveReason::Expired => "expired",
        NextMoveReason::ScaledDown => SCALED_DOWN,
    }
}

#[test]
fn the_first_moves_are_what_the_decider_begins() {
    let (mut begun, mut blocked, mut replaced, mut fixed, mut scaled) = (0, 0, 0, 0, 0);
    for seed in 0..600 {
        let snapshot = random_snapshot(seed);
        let outlook = outlook_of(&snapshot, 0);
        let now: Vec<&NextMove> = outlook.moves.iter().filter(|one| one.obstacles.is_empty()).collect();
        let decided = decided_first(snapshot.clone());
        let mut told = now.iter().flat_map(|one| one.sources.iter().map(|s| (s.claim.clone(), category(one))));
        let first: Vec<_> = told.by_ref().take(decided.len()).collect();
        assert_eq!(first, decided, "seed {seed}: {:#?}", outlook.moves);
        assert!(!decided.is_empty() || now.is_empty(), "seed {seed}: {now:#?}");
        begun += usize::from(!decided.is_empty());
        blocked += outlook.moves.len() - now.len();
        let is_fixed =
            |one: &NextMove| is_of_fixed_size(&snapshot, snapshot.claims().get(&one.sources[0].claim).unwrap());
        let (of_fixed, of_others): (Vec<&NextMove>, Vec<&NextMove>) =
            now.iter().copied().partition(|one| is_fixed(one));
        replaced += of_others.iter().filter(|one| !one.replacements.is_empty()).count();
        fixed += of_fixed.iter().filter(|one| !one.replacements.is_empty()).count();
        scaled += of_fixed.iter().filter(|one| one.reason == NextMoveReason::ScaledDown).count();
    }
    assert!(begun > 150 && blocked > 150 && replaced > 40, "{begun} begun, {blocked} blocked, {replaced} replaced");
    assert!(fixed > 20 && scaled > 20, "of fixed size {fixed} replaced, {scaled} scaled down");
}

/// And nothing keeps a node of a move that begins now.
#[test]
fn each_node_is_in_one_move_or_something_keeps_it() {
    for seed in 0..100 {
        let snapshot = random_snapshot(seed);
        let outlook = outlook_of(&snapshot, 0);
        let mut sources: Vec<&ClaimName> = outlook.moves.iter().flat_map(|m| &m.sources).map(|s| &s.claim).collect();
        let all = sources.len();
        sources.sort();
        sources.dedup();
        assert_eq!(sources.len(), all, "seed {seed}");
        for one in &outlook.nodes {
            let found = one.next_move.map(|n| &outlook.moves[n]);
            let name = &one.claim.name;
            assert_eq!(found.is_some(), sources.contains(&name), "seed {seed}: {name}");
            match found {
                None => assert!(!one.obstacles.is_empty(), "seed {seed}: {name}"),
                Some(found) if found.obstacles.is_empty() && found.reason != NextMoveReason::Expired => {
                    assert!(one.obstacles.is_empty(), "seed {seed}: {name} {:?}", one.obstacles);
                }
                Some(_) => {}
            }
        }
        assert_eq!(outlook.nodes.len(), snapshot.claims().len(), "seed {seed}");
    }
}

/// A move that waits for a time begins then. Not asked of those that other moves come before.
#[test]
fn the_earliest_time_is_when_the_decider_begins() {
    let mut checked = 0;
    for seed in 0..300 {
        let snapshot = random_snapshot(seed);
        let outlook = outlook_of(&snapshot, 0);
        let Some(first) = outlook.moves.first().filter(|one| !one.obstacles.is_empty()) else { continue };
        let Some(earliest) = first.earliest.filter(|earliest| *earliest > at(0)) else { continue };
        let seconds = earliest.duration_since(at(0)).as_secs();
        let begun = |at: i64| {
            let moves = outlook_of(&snapshot, at).moves.into_iter().filter(|one| one.obstacles.is_empty());
            moves.flat_map(|one| one.sources).map(|source| source.claim).collect::<BTreeSet<_>>()
        };
        assert_eq!(begun(seconds - 180), BTreeSet::new(), "seed {seed}: {first:?}");
        let then = begun(seconds + 1);
        assert!(first.sources.iter().all(|source| then.contains(&source.claim)), "seed {seed}: {then:?} {first:?}");
        checked += 1;
    }
    assert!(checked > 15, "{checked}");
}

/// One large node with a small pod, which a small node can replace.
fn oversized(change: impl FnOnce(&mut NodePool)) -> (Snapshot, Node) {
    let mut pool = pool("general");
    change(&mut pool);
    let mut snapshot = cluster([pool.clone()]);
    let (mut claim, node) = managed("c00", &pool, offering(SIZES[2], 1, OnDemand));
    (claim.created_at, claim.status.initialized) = (at(-86_460), Some(at(-86_400)));
    snapshot.put_pod(running("p", &Arc::new(shape("p", 500, 1)), &node));
    put(&mut snapshot, (claim, node.clone()));
    (snapshot, node)
}

fn only(snapshot: &Snapshot) -> NextMove {
    let mut moves = outlook_of(snapshot, 0).moves;
    assert_eq!(moves.len(), 1, "{moves:#?}");
    moves.remove(0)
}

fn waits(one: &NextMove) -> Vec<String> {
    one.obstacles.iter().map(ToString::to_string).collect()
}

/// `consolidateAfter` ends at nine o'clock, while the budget is closed until ten.
#[test]
fn a_move_does_not_begin_while_its_budget_is_closed() {
    let closed = Budget {
        nodes: BudgetNodes::Count(0),
        reasons: None,
        window: Some((Arc::from("30 8 * * *"), SignedDuration::from_mins(90))),
    };
    let (mut snapshot, _) = oversized(|pool| {
        pool.disruption.budgets.push(closed);
        pool.disruption.consolidate_after = Some(SignedDuration::from_hours(25));
    });
    let claim = Claim::clone(snapshot.claims().values().next().unwrap());
    let initialized = Some(at(3_600 - 25 * 3_600));
    snapshot.put_claim(Claim { status: ClaimStatus { initialized, ..claim.status.clone() }, ..claim });
    let one = only(&snapshot);
    assert_eq!(waits(&one), [format!("consolidateAfter ends at {}", at(3_600))]);
    assert_eq!(one.earliest, Some(at(7_200)));
}

/// The first of those that wait for a budget of one is told when it opens; when the others begin is not known.
#[test]
fn of_moves_that_wait_for_one_budget_only_the_first_has_its_time() {
    let mut pool = pool("general");
    let night = Some((Arc::from("0 6 * * *"), SignedDuration::from_hours(4)));
    let closed = Budget { nodes: BudgetNodes::Count(0), reasons: None, window: night };
    let one = Budget { nodes: BudgetNodes::Count(1), reasons: None, window: None };
    pool.disruption.budgets = vec![closed, one];
    let mut snapshot = cluster([pool.clone()]);
    for n in 0..3 {
        let (mut claim, node) = managed(&format!("c{n:02}"), &pool, offering(SIZES[2], 1, OnDemand));
        (claim.created_at, claim.status.initialized) = (at(-86_460), Some(at(-86_400)));
        put(&mut snapshot, (claim, node));
    }
    let moves = outlook_of(&snapshot, 0).moves;
    let told: Vec<_> = moves.iter().map(|one| one.earliest).collect();
    assert_eq!(told, [Some(at(7_200)), None, None], "{moves:#?}");
    assert!(moves[1].obstacles.contains(&Obstacle::EarlierMoves));
}

#[test]
fn a_pod_that_refuses_for_a_time_is_waited_for_so_long() {
    let (mut snapshot, _) = oversized(|_| {});
    let pod = Pod::clone(snapshot.pods().values().next().unwrap());
    let (do_not_disrupt, started_at) = (Some(DoNotDisrupt::For(SignedDuration::from_hours(2))), Some(at(-3_600)));
    snapshot.put_pod(Pod { do_not_disrupt, started_at, ..pod });
    let one = only(&snapshot);
    assert_eq!(one.earliest, Some(at(3_600)), "{:?}", waits(&one));
}

/// A NodePool of so many nodes, which its template has changed since, with a budget of one.
fn fixed_size(nodes: u64, change: impl FnOnce(&mut NodePool)) -> Snapshot {
    let mut old = pool("fixed");
    old.replicas = Some(nodes);
    old.disruption.budgets = vec![Budget { nodes: BudgetNodes::Count(1), reasons: None, window: None }];
    let mut new = old.clone();
    new.labels.insert(Arc::from("team"), Arc::from("new"));
    change(&mut new);
    let mut snapshot = cluster([new]);
    for n in 0..nodes {
        let (mut claim, node) = managed(&format!("c{n:02}"), &old, offering(SIZES[1], 1, OnDemand));
        claim.created_at = at(-86_460 + i64::try_from(n).unwrap());
        snapshot.put_pod(running(&format!("p{n}"), &Arc::new(shape("p", 500, 1)), &node));
        put(&mut snapshot, (claim, node));
    }
    snapshot
}

fn told(outlook: &Outlook, node: usize) -> Vec<String> {
    outlook.nodes[node].obstacles.iter().map(ToString::to_string).collect()
}

#[test]
fn nodes_of_a_fixed_size_are_replaced_one_for_one() {
    let mut snapshot = fixed_size(3, |_| {});
    // It waits for the drain alone, as Karpenter's do.
    let protected = disruption_budget("p", 0);
    snapshot.put_disruption_budget(protected.key.clone(), protected);
    let outlook = outlook_of(&snapshot, 0);
    let named: Vec<&str> = outlook.moves.iter().map(|one| one.sources[0].claim.as_str()).collect();
    assert_eq!(named, ["c00", "c01", "c02"], "{:#?}", outlook.moves);
    let one = &outlook.moves[0];
    assert_eq!((one.reason, one.obstacles.len()), (NextMoveReason::Disrupted(DisruptionReason::Drifted), 0));
    assert_eq!((one.replacements.len(), one.evictions()), (1, 1));
    assert!(one.why.contains("metadata.labels[team]"), "{}", one.why);
    let text = "budgets of NodePool fixed allow no more nodes to be disrupted now (Drifted)";
    assert_eq!((waits(&outlook.moves[1]), outlook.moves[1].earliest), (vec![text.to_owned()], None));
    assert_eq!((told(&outlook, 0), told(&outlook, 1)), (Vec::new(), vec![text.to_owned()]));
}

/// A replacement that an earlier pass has begun is none of the next moves, and counts against the budget.
#[test]
fn a_node_of_a_fixed_size_that_is_being_replaced_is_told_as_such() {
    let mut snapshot = fixed_size(2, |_| {});
    let mut new = managed("new", snapshot.pools().values().next().unwrap(), offering(SIZES[1], 1, OnDemand)).0;
    (new.created_at, new.status, new.intent) = (at(-10), ClaimStatus::default(), None);
    new.spec.replaces = vec![ClaimName::new("c00").unwrap()];
    new.spec.planned = vec![offering(SIZES[1], 1, OnDemand)];
    snapshot.put_claim(new);
    let outlook = outlook_of(&snapshot, 0);
    let named: Vec<&str> = outlook.moves.iter().map(|one| one.sources[0].claim.as_str()).collect();
    assert_eq!(named, ["c01"], "{:#?}", outlook.moves);
    assert!(!outlook.moves[0].obstacles.is_empty());
    assert!(outlook.nodes[0].obstacles.contains(&Obstacle::BeingReplaced(DisruptionReason::Drifted)));
}

#[test]
fn what_keeps_a_node_of_a_fixed_size_is_told() {
    let limited = fixed_size(2, |pool| pool.limits.nodes = Some(2));
    let outlook = outlook_of(&limited, 0);
    assert!(outlook.moves.is_empty(), "{:#?}", outlook.moves);
    let text = "the outdated nodes of its NodePool cannot be replaced: its limits are reached: raise limits, or lower replicas";
    assert_eq!(told(&outlook, 0), [text]);

    let mut kept = fixed_size(1, |_| {});
    let node = Node::clone(kept.nodes().values().next().unwrap());
    kept.put_node(Node { do_not_disrupt: true, ..node });
    assert_eq!(waits(&only(&kept)), ["the node has the annotation karpenter.sh/do-not-disrupt"]);

    let mut paused = fixed_size(1, |_| {});
    paused.pause = Pause::of([PauseSwitch::Disrupt]);
    assert_eq!(waits(&only(&paused)), ["its disruption is paused: disrupt"]);
}

/// Once it has all its nodes, as the decider does.
#[test]
fn nodes_of_a_fixed_size_that_lacks_one_are_replaced_after_it() {
    let snapshot = fixed_size(2, |pool| pool.replicas = Some(3));
    let outlook = outlook_of(&snapshot, 0);
    let named: Vec<&str> = outlook.moves.iter().map(|one| one.sources[0].claim.as_str()).collect();
    assert_eq!(named, ["c00", "c01"], "{:#?}", outlook.moves);
}

/// By the decider's order, whatever they cost.
#[test]
fn the_oldest_node_of_a_fixed_size_has_the_time_at_which_its_budget_opens() {
    let night = Some((Arc::from("0 6 * * *"), SignedDuration::from_hours(4)));
    let closed = Budget { nodes: BudgetNodes::Count(0), reasons: None, window: night };
    let mut snapshot = fixed_size(2, |pool| pool.disruption.budgets.insert(0, closed));
    let mut cheaper = Claim::clone(snapshot.claims().get(&ClaimName::new("c00").unwrap()).unwrap());
    cheaper.intent.as_mut().unwrap().offering = offering(SIZES[0], 1, OnDemand);
    snapshot.put_claim(cheaper);
    let moves = outlook_of(&snapshot, 0).moves;
    let told: Vec<_> = moves.iter().map(|one| (one.sources[0].claim.as_str(), one.earliest)).collect();
    assert_eq!(told, [("c00", Some(at(7_200))), ("c01", None)], "{moves:#?}");
}

/// Budgets do not limit it, but the pause switch does.
#[test]
fn nodes_that_are_too_many_go_at_once() {
    let mut snapshot = fixed_size(3, |pool| {
        pool.replicas = Some(1);
        pool.labels.clear();
    });
    let moves = outlook_of(&snapshot, 0).moves;
    assert_eq!(moves.iter().map(|one| one.reason).collect::<Vec<_>>(), [NextMoveReason::ScaledDown; 2]);
    assert!(moves[0].why.starts_with("the NodePool has 3 nodes and wants 1"), "{}", moves[0].why);
    snapshot.pause = Pause::of([PauseSwitch::Disrupt]);
    let outlook = outlook_of(&snapshot, 0);
    assert!(
        outlook.moves.iter().all(|one| waits(one) == ["its disruption is paused: disrupt"]),
        "{:#?}",
        outlook.moves
    );
}

#[test]
fn a_move_has_its_replacement_its_saving_and_its_evictions() {
    let one = only(&oversized(|_| {}).0);
    assert_eq!((one.reason, one.evictions(), one.obstacles.len()), (UNDERUTILIZED, 1, 0));
    let [(_, replacement)] = &one.replacements[..] else { panic!("{one:#?}") };
    assert_eq!(one.saving(), one.sources[0].price - replacement.price);
    assert!(one.saving() > HourlyPrice::ZERO && one.why.contains("replacing aks-c00"), "{}", one.why);
}

#[test]
fn each_hold_is_told() {
    let (mut snapshot, node) = oversized(|_| {});
    snapshot.pause = Pause::of([PauseSwitch::Disrupt, PauseSwitch::Launch]);
    let one = only(&snapshot);
    assert_eq!(waits(&one), ["no node is launched: launches are paused", "its disruption is paused: disrupt"]);
    assert_eq!(one.earliest, None);

    snapshot.pause = Pause::default();
    let protected = disruption_budget("p", 0);
    snapshot.put_disruption_budget(protected.key.clone(), protected);
    snapshot.put_node(Node { do_not_disrupt: true, ..node });
    let expected = [
        "the node has the annotation karpenter.sh/do-not-disrupt",
        "pod default/p cannot be evicted: PodDisruptionBudget default/p allows no eviction now",
    ];
    assert_eq!(waits(&only(&snapshot)), expected);
    let nodes = outlook_of(&snapshot, 0).nodes;
    assert_eq!(nodes[0].obstacles.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
}

#[test]
fn a_budget_is_waited_for_until_its_window_ends() {
    // It is eight o'clock.
    let blocked = Budget {
        nodes: BudgetNodes::Count(0),
        reasons: None,
        window: Some((Arc::from("0 6 * * *"), SignedDuration::from_hours(4))),
    };
    let one = only(&oversized(|pool| pool.disruption.budgets.push(blocked)).0);
    assert_eq!(one.earliest, Some(at(7_200)), "{:?}", waits(&one));
    let never = Budget { nodes: BudgetNodes::Count(0), reasons: None, window: None };
    let one = only(&oversized(|pool| pool.disruption.budgets = vec![never]).0);
    assert_eq!(one.earliest, None);
    let text = "budgets of NodePool general allow no more nodes to be disrupted now (Underutilized)";
    assert_eq!(waits(&one), [text]);
}

/// Of nodes that could be deleted all at once, those that a budget of one allows are one move, and each other another.
#[test]
fn no_move_is_larger_than_its_budgets_ever_allow() {
    let mut pool = pool("general");
    pool.disruption.budgets = vec![Budget { nodes: BudgetNodes::Count(1), reasons: None, window: None }];
    let mut snapshot = cluster([pool.clone()]);
    for n in 0..4 {
        let (mut claim, node) = managed(&format!("c{n:02}"), &pool, offering(SIZES[2], 1, OnDemand));
        (claim.created_at, claim.status.initialized) = (at(-86_460), Some(at(-86_400)));
        snapshot.put_pod(running(&format!("p{n}"), &Arc::new(shape("p", 500, 1)), &node));
        put(&mut snapshot, (claim, node));
    }
    let moves = outlook_of(&snapshot, 0).moves;
    assert!(moves.len() >= 3, "{moves:#?}");
    assert!(moves.iter().all(|one| one.sources.len() == 1), "{moves:#?}");
    assert_eq!(moves.iter().filter(|one| one.obstacles.is_empty()).count(), 1);
}

/// Whatever keeps a node, it goes when `expireAfter` ends; but not under a pause.
#[test]
fn a_node_that_is_kept_goes_when_it_expires() {
    let (mut snapshot, node) = oversized(|_| {});
    let mut claim = Claim::clone(snapshot.claims().values().next().unwrap());
    claim.spec.expire_after = Some(SignedDuration::from_hours(25));
    snapshot.put_claim(claim);
    snapshot.put_node(Node { do_not_disrupt: true, ..node });
    let expires = at(-86_460 + 25 * 3_600);
    let one = only(&snapshot);
    assert_eq!((one.reason, one.earliest), (NextMoveReason::Expired, Some(expires)));
    assert_eq!(waits(&one), [format!("expireAfter ends at {expires}")]);
    let nodes = outlook_of(&snapshot, 0).nodes;
    assert_eq!(nodes[0].expires_at, Some(expires));
    assert_eq!(nodes[0].obstacles, [Obstacle::Blocked(DisruptionBlocker::DoNotDisrupt)]);

    snapshot.pause = Pause::of([PauseSwitch::Disrupt]);
    let one = only(&snapshot);
    assert_eq!(one.earliest, None, "{:?}", waits(&one));
    assert_eq!(outlook_of(&snapshot, 0).nodes[0].expires_at, None);
}

/// A replacement that waits for its budget is not later than the expiry.
#[test]
fn what_waits_for_a_budget_goes_when_it_expires() {
    let never = Budget { nodes: BudgetNodes::Count(0), reasons: None, window: None };
    let (mut snapshot, _) = oversized(|pool| pool.disruption.budgets = vec![never]);
    let mut claim = Claim::clone(snapshot.claims().values().next().unwrap());
    claim.spec.expire_after = Some(SignedDuration::from_hours(25));
    snapshot.put_claim(claim);
    let one = only(&snapshot);
    assert_eq!(one.reason, NextMoveReason::Disrupted(DisruptionReason::Expiring));
    assert_eq!(one.earliest, Some(at(-86_460 + 25 * 3_600)), "{:?}", waits(&one));
}

#[test]
fn what_saves_money_waits_for_drift_that_is_not_seen() {
    ["ImageDrift", "InstanceTypeNotFound"].into_iter().for_each(saves_after_unseen);
}

fn saves_after_unseen(drift: &str) {
    let (mut snapshot, _) = oversized(|_| {});
    let drifted = managed("c01", snapshot.pools().values().next().unwrap(), offering(SIZES[0], 1, OnDemand));
    let (mut claim, node) = drifted;
    let (reason, message) = (Arc::from(drift), Arc::from(""));
    claim.status.drifted = Some(DriftedCondition { since: at(-60), reason, message });
    claim.status.last_pod_event = Some(at(0));
    snapshot.put_pod(running("q", &Arc::new(shape("q", 1_500, 1)), &node));
    put(&mut snapshot, (claim, node));
    let outlook = outlook_of(&snapshot, 0);
    let saving = outlook.moves.iter().find(|one| one.reason == UNDERUTILIZED).unwrap();
    assert!(saving.obstacles.contains(&Obstacle::DriftFirst), "{saving:#?}");
    let drifted = outlook.nodes.iter().find(|node| node.claim.name.as_str() == "c01").unwrap();
    assert_eq!(drifted.next_move, None);
    assert!(drifted.obstacles.contains(&Obstacle::DriftNotSeen(Arc::from(drift))), "{drifted:#?}");
}

#[test]
fn pending_pods_come_first() {
    let (mut snapshot, _) = oversized(|_| {});
    for name in ["one", "other"] {
        let waiting: Pod = crate::fixtures::pod(name, &Arc::new(shape("waiting", 9_000, 1)));
        snapshot.put_pod(waiting);
    }
    let outlook = outlook_of(&snapshot, 0);
    assert!(outlook.moves.is_empty());
    assert_eq!(outlook.nodes[0].obstacles, [Obstacle::PendingPods]);
}

#[test]
fn nodes_of_another_karpenter_are_told_and_not_moved() {
    let (mut snapshot, unmanaged) = oversized(|_| {});
    let ours = Claim::clone(snapshot.claims().values().next().unwrap());
    let spec = crate::model::cluster::claim::ClaimSpec { planned: Vec::new(), ..ours.spec.clone() };
    snapshot.put_claim(Claim { intent: None, spec, ..ours });
    snapshot.put_node(Node { uid: unmanaged.uid, ..node("other", 1, 4) });
    let outlook = outlook_of(&snapshot, 0);
    assert!(outlook.moves.is_empty());
    assert_eq!(outlook.nodes[0].obstacles, [Obstacle::OtherKarpenter]);
    // What only napkeeper keeps nodes for is not told of them.
    snapshot.pause = Pause::of([PauseSwitch::Disrupt]);
    let pods: Vec<Pod> = snapshot.pods().values().map(|pod| Pod::clone(pod)).collect();
    pods.into_iter().for_each(|pod| snapshot.put_pod(Pod { owner: PodOwner::Nobody, ..pod }));
    assert_eq!(outlook_of(&snapshot, 0).nodes[0].obstacles, [Obstacle::OtherKarpenter]);
}

/// A cluster in which so much begins that the search is ended before all is found.
#[test]
fn of_a_large_cluster_the_first_moves_are_told() {
    let pool = pool("general");
    let mut snapshot = cluster([pool.clone()]);
    for n in 0..400 {
        let (mut claim, node) = managed(&format!("c{n:03}"), &pool, offering(SIZES[2], 1, OnDemand));
        (claim.created_at, claim.status.initialized) = (at(-86_460), Some(at(-86_400)));
        put(&mut snapshot, (claim, node));
    }
    let passes = Cell::new(3);
    let (provision, settings) = (ProvisionMemory::default(), settings());
    let input = OutlookInput { snapshot: &snapshot, provision: &provision, settings: &settings, now: at(0), seed: 1 };
    let ended = outlook_within(input, &passes);
    assert!(!ended.is_complete && passes.get() == 0, "{} moves", ended.moves.len());
    assert_eq!(ended.nodes.len(), 400);
    assert!(outlook_of(&oversized(|_| {}).0, 0).is_complete);
}
