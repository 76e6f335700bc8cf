//! Tests of disruption: which nodes are deleted, when, and which are not.

use super::{DisruptionMemory, disrupt};
use crate::catalog::CapacityType::{OnDemand, Reserved, Spot};
use crate::fixtures::{
    Dice, at, cluster, node, offering, pod, pool, pool_with_capacity_types, put, requirements_in, reserve, running,
    settings, shape,
};
use crate::model::cluster::claim::{Claim, PlannedOffering};
use crate::model::cluster::node::Node;
use crate::model::cluster::pod::{DoNotDisrupt, PodOwner, Taint};
use crate::model::cluster::pool::{Budget, BudgetNodes, ConsolidationPolicy, DisruptionReason, NodePool};
use crate::model::labels;
use crate::model::names::ClaimName;
use crate::model::settings::{Pause, Settings};
use crate::plan::{ClaimUpdate, Command, NodeUpdate, Plan};
use crate::provisioning::ProvisionMemory;
use crate::scheduling::Target;
use crate::snapshot::Snapshot;
use jiff::SignedDuration;
use std::num::NonZeroUsize;
use std::sync::Arc;

const SMALL: &str = "Standard_D2s_v5";
const LARGE: &str = "Standard_D16s_v5";

/// A node of a NodeClaim whose pods have not changed for a day.
fn managed(name: &str, pool: &NodePool, offering: PlannedOffering) -> (Claim, Node) {
    let (mut claim, node) = crate::fixtures::managed(name, pool, offering);
    claim.status.initialized = Some(at(-86_400));
    (claim, node)
}

fn pass(snapshot: &Snapshot, memory: &mut DisruptionMemory, seconds: i64) -> Plan {
    disrupt(snapshot, memory, &ProvisionMemory::default(), &settings(), at(seconds), 1)
}

/// Passes every ten seconds, until something is to be done or the time is over.
fn wait(snapshot: &Snapshot, memory: &mut DisruptionMemory, seconds: i64) -> (i64, Vec<String>) {
    for now in (0..=seconds).step_by(10) {
        let words = words(&pass(snapshot, memory, now));
        if !words.is_empty() {
            return (now, words);
        }
    }
    (seconds, Vec::new())
}

fn words(plan: &Plan) -> Vec<String> {
    let word = |c: &Command| match c {
        Command::DeleteClaim { claim, category, .. } => Some(format!("{category} {}", claim.name)),
        Command::CreateClaim(draft) => Some(format!("create {}", draft.spec.planned[0].key.size)),
        Command::UpdateClaim { claim, update: ClaimUpdate::Disrupted(_) } => Some(format!("replace {}", claim.name)),
        Command::UpdateNode { update: NodeUpdate::AddTaint(taint), .. } if *taint == Taint::underutilized() => None,
        other => panic!("unexpected {other:?}"),
    };
    plan.commands.iter().filter_map(|p| word(&p.command)).collect()
}

/// Nodes of one pool, all of one size, on demand.
fn nodes(pool: &NodePool, size: &str, count: usize) -> (Snapshot, Vec<Node>) {
    let mut snapshot = cluster([pool.clone()]);
    let mut all = Vec::new();
    for n in 0..count {
        let (claim, node) = managed(&format!("c{n:02}"), pool, offering(size, 1, OnDemand));
        all.push(node.clone());
        put(&mut snapshot, (claim, node));
    }
    (snapshot, all)
}

#[test]
fn the_deletion_of_an_empty_node_rests_on_its_pods() {
    let (mut snapshot, nodes) = nodes(&pool("general"), SMALL, 1);
    let mut memory = DisruptionMemory::default();
    assert!(words(&pass(&snapshot, &mut memory, 0)).is_empty(), "it is found");
    let plan = pass(&snapshot, &mut memory, 20);
    let preconditions = plan.commands[0].preconditions.clone().unwrap();
    assert!(preconditions.hold(&snapshot));
    snapshot.put_pod(running("late", &Arc::new(shape("s", 500, 1)), &nodes[0]));
    assert!(!preconditions.hold(&snapshot));
}

#[test]
fn an_empty_node_is_deleted_once_it_has_been_empty_for_15_seconds() {
    let (snapshot, _) = nodes(&pool("general"), SMALL, 1);
    assert_eq!(wait(&snapshot, &mut DisruptionMemory::default(), 60), (20, vec!["empty c00".to_owned()]));
}

#[test]
fn consolidate_after_counts_from_the_last_pod_event() {
    let mut quiet = pool("general");
    quiet.disruption.consolidate_after = Some(SignedDuration::from_secs(100));
    let (mut snapshot, _) = nodes(&quiet, SMALL, 1);
    let mut claim = (**snapshot.claims().values().next().unwrap()).clone();
    claim.status.last_pod_event = Some(at(50));
    snapshot.put_claim(claim);
    assert_eq!(wait(&snapshot, &mut DisruptionMemory::default(), 300).0, 150);
}

#[test]
fn nodes_nominated_for_pending_pods_are_not_disrupted() {
    let (snapshot, nodes) = nodes(&pool("general"), SMALL, 1);
    for target in [Target::Node(nodes[0].name.clone()), Target::Claim(ClaimName::new("c00").unwrap())] {
        let mut provision = ProvisionMemory::default();
        provision.nominated.insert(target, at(1000));
        let mut memory = DisruptionMemory::default();
        for now in [0, 10, 20, 30] {
            let plan = disrupt(&snapshot, &mut memory, &provision, &settings(), at(now), 1);
            assert_eq!(words(&plan), Vec::<String>::new());
        }
    }
}

/// Provisioning, which forgets nominations, decides only when something changes.
#[test]
fn a_nomination_ends_although_nothing_changes() {
    let (mut snapshot, nodes) = nodes(&pool("general"), SMALL, 2);
    snapshot.put_pod(running("p", &Arc::new(shape("a", 1000, 1)), &nodes[0]));
    for (is_used, expected) in [(false, "empty c01"), (true, "underutilized c00")] {
        if is_used {
            snapshot.put_pod(running("q", &Arc::new(shape("a", 500, 1)), &nodes[1]));
        }
        let mut provision = ProvisionMemory::default();
        for node in &nodes {
            provision.nominated.insert(Target::Node(node.name.clone()), at(42));
        }
        let mut memory = DisruptionMemory::default();
        let mut now = 0;
        let done = loop {
            let plan = disrupt(&snapshot, &mut memory, &provision, &settings(), at(now), 1);
            if !words(&plan).is_empty() {
                break words(&plan);
            }
            let wake_at = plan.next.expect("it decides again");
            now = wake_at.duration_since(at(0)).as_secs();
            assert!(now <= 70, "the next decision is at {now} s");
        };
        assert_eq!(done, [expected]);
    }
}

#[test]
fn an_interrupted_finding_restarts_the_15_seconds() {
    let (mut snapshot, nodes) = nodes(&pool("general"), SMALL, 1);
    let mut memory = DisruptionMemory::default();
    assert!(words(&pass(&snapshot, &mut memory, 0)).is_empty());
    let mut pod = running("p", &Arc::new(shape("a", 100, 1)), &nodes[0]);
    pod.owner = PodOwner::Nobody;
    let key = pod.key.clone();
    snapshot.put_pod(pod);
    assert!(words(&pass(&snapshot, &mut memory, 10)).is_empty());
    snapshot.remove_pod(&key);
    assert!(words(&pass(&snapshot, &mut memory, 20)).is_empty());
    assert!(words(&pass(&snapshot, &mut memory, 30)).is_empty());
    assert_eq!(words(&pass(&snapshot, &mut memory, 40)), ["empty c00"]);
}

#[test]
fn no_pods_are_moved_to_a_node_that_the_same_pass_deletes() {
    let requirements = requirements_in(&[(labels::INSTANCE_TYPE, &[SMALL]), (labels::CAPACITY_TYPE, &["on-demand"])]);
    let (mut snapshot, nodes) = nodes(&NodePool { requirements, ..pool("general") }, SMALL, 2);
    snapshot.put_pod(running("p", &Arc::new(shape("a", 1000, 1)), &nodes[0]));
    assert_eq!(wait(&snapshot, &mut DisruptionMemory::default(), 60).1, ["empty c01"]);
}

#[test]
fn one_budget_counts_all_reasons_of_a_pass() {
    let mut careful = pool("general");
    careful.disruption.budgets = vec![Budget { nodes: BudgetNodes::Count(2), reasons: None, window: None }];
    let (mut snapshot, nodes) = nodes(&careful, LARGE, 4);
    snapshot.put_pod(running("p", &Arc::new(shape("a", 100, 1)), &nodes[0]));
    let (_, words) = wait(&snapshot, &mut DisruptionMemory::default(), 60);
    assert_eq!(words.len(), 2, "{words:?}");
    let mut closed = pool("general");
    let empty = Some(vec![DisruptionReason::Empty]);
    closed.disruption.budgets = vec![Budget { nodes: BudgetNodes::Count(0), reasons: empty, window: None }];
    snapshot.put_pool(closed.name.clone(), closed);
    let (_, words) = wait(&snapshot, &mut DisruptionMemory::default(), 60);
    assert_eq!(words, ["underutilized c00"], "the budget closes one reason only");
}

#[test]
fn nodes_that_could_be_disrupted_are_counted_by_reason_whatever_budgets_allow() {
    let mut closed = pool("general");
    closed.disruption.budgets = vec![Budget { nodes: BudgetNodes::Count(0), reasons: None, window: None }];
    let (mut snapshot, nodes) = nodes(&closed, LARGE, 4);
    snapshot.put_pod(running("p", &Arc::new(shape("a", 100, 1)), &nodes[0]));
    let mut kept = running("q", &Arc::new(shape("a", 100, 1)), &nodes[1]);
    kept.do_not_disrupt = Some(DoNotDisrupt::Always);
    snapshot.put_pod(kept);
    let mut memory = DisruptionMemory::default();
    let mut count = |snapshot: &Snapshot, seconds: i64| {
        let _ = pass(snapshot, &mut memory, seconds);
        let of = |reason| memory.eligible().get(&reason).copied().unwrap_or_default();
        [DisruptionReason::Empty, DisruptionReason::Underutilized, DisruptionReason::Expiring].map(of)
    };
    assert_eq!(count(&snapshot, 0), [2, 1, 0]);
    let mut only_empty = closed.clone();
    only_empty.disruption.policy = ConsolidationPolicy::WhenEmpty;
    snapshot.put_pool(only_empty.name.clone(), only_empty);
    assert_eq!(count(&snapshot, 100), [2, 0, 0]);
    snapshot.put_pool(closed.name.clone(), closed);
    for (seconds, key, left) in [
        (200, "disrupt.reason.Empty", [0, 1, 0]),
        (300, "disrupt.reason.Underutilized", [2, 0, 0]),
        (400, "disrupt", [0, 0, 0]),
    ] {
        snapshot.pause = Pause::read([(key, Some("true"))]).0;
        assert_eq!(count(&snapshot, seconds), left, "{key}");
    }
}

#[test]
fn expiry_heeds_no_budget() {
    let mut closed = pool("general");
    closed.expire_after = Some(SignedDuration::from_secs(30));
    closed.disruption.budgets = vec![Budget { nodes: BudgetNodes::Count(0), reasons: None, window: None }];
    let (snapshot, _) = nodes(&closed, SMALL, 2);
    assert_eq!(
        wait(&snapshot, &mut DisruptionMemory::default(), 60),
        (30, vec!["expired c00".into(), "expired c01".into()])
    );
}

#[test]
fn a_node_whose_pods_fit_elsewhere_is_deleted() {
    let (mut snapshot, nodes) = nodes(&pool("general"), SMALL, 1);
    snapshot.put_node(node("unmanaged", 2, 4));
    snapshot.put_pod(running("p", &Arc::new(shape("a", 500, 1)), &nodes[0]));
    assert_eq!(wait(&snapshot, &mut DisruptionMemory::default(), 60), (20, vec!["underutilized c00".to_owned()]));
}

#[test]
fn spot_is_replaced_by_spot_only_where_many_sizes_are_on_offer_or_half_is_saved() {
    let spot_only = NodePool {
        requirements: crate::fixtures::requirements_in(&[(crate::model::labels::CAPACITY_TYPE, &["spot"])]),
        ..pool("general")
    };
    // Ten sizes are on offer, which are too few. Of a node with 16 cores half is saved where 7 are used, and not where
    // 15 are too many for one with 8.
    for (cpu, replaced) in [(500, true), (7_000, true), (15_000, false)] {
        let mut snapshot = cluster([spot_only.clone()]);
        let (claim, node) = managed("c00", &spot_only, offering(LARGE, 1, Spot));
        snapshot.put_pod(running("p", &Arc::new(shape("a", cpu, 1)), &node));
        put(&mut snapshot, (claim, node));
        let found = wait(&snapshot, &mut DisruptionMemory::default(), 60).1;
        assert_eq!(!found.is_empty(), replaced, "{cpu}m: {found:?}");
    }
}

#[test]
fn reserved_nodes_replace_on_demand_ones_and_are_not_replaced() {
    let both = pool_with_capacity_types("general", &["reserved", "on-demand"]);
    for (own, left, replaced) in [(OnDemand, 1, true), (OnDemand, 0, false), (Reserved, 1, false)] {
        let mut snapshot = cluster([both.clone()]);
        // A smaller one would save money where money is saved at all; here the same size is all that holds the pod.
        let (size, cpu) = if own == Reserved { (LARGE, 500) } else { (SMALL, 1_500) };
        reserve(&mut snapshot, at(0), &[(SMALL, 1, 0, left)]);
        let (mut claim, node) = managed("c00", &both, offering(size, 1, own));
        // A quarter of this is too short where an eviction is worth 35 minutes.
        claim.status.initialized = Some(at(-2_400));
        snapshot.put_pod(running("p", &Arc::new(shape("a", cpu, 1)), &node));
        put(&mut snapshot, (claim, node));
        let found = wait(&snapshot, &mut DisruptionMemory::default(), 60).1;
        let expected: Vec<String> = replaced.then(|| "replace c00".to_owned()).into_iter().collect();
        assert_eq!(found, expected, "{own}, {left} left");
    }
}

#[test]
fn do_not_disrupt_pods_and_pods_without_a_controller_protect_their_node() {
    for refusing in [false, true] {
        let (mut snapshot, nodes) = nodes(&pool("general"), SMALL, 1);
        snapshot.put_node(node("unmanaged", 2, 4));
        let mut pod = running("p", &Arc::new(shape("a", 500, 1)), &nodes[0]);
        if refusing {
            pod.do_not_disrupt = Some(DoNotDisrupt::Always);
        } else {
            pod.owner = PodOwner::Nobody;
        }
        snapshot.put_pod(pod);
        assert!(wait(&snapshot, &mut DisruptionMemory::default(), 60).1.is_empty());
    }
}

#[test]
fn an_unschedulable_pod_does_not_prevent_consolidation() {
    let (mut snapshot, nodes) = nodes(&pool("general"), SMALL, 1);
    snapshot.put_node(node("unmanaged", 2, 4));
    snapshot.put_pod(running("p", &Arc::new(shape("a", 500, 1)), &nodes[0]));
    let hopeless = Arc::new(pod("hopeless", &Arc::new(shape("b", 900_000, 1))));
    snapshot.put_pod(Arc::clone(&hopeless));
    assert_eq!(wait(&snapshot, &mut DisruptionMemory::default(), 60).1, ["underutilized c00"], "no node would hold it");
    let mut provision = ProvisionMemory::default();
    provision.unplaced.push(crate::scheduling::UnschedulablePods { pods: vec![hopeless], reasons: Vec::new() });
    let mut memory = DisruptionMemory::default();
    let passes = [0, 10, 20].map(|now| words(&disrupt(&snapshot, &mut memory, &provision, &settings(), at(now), 1)));
    assert_eq!(passes.last().unwrap(), &["underutilized c00"]);
}

#[test]
fn every_node_is_tried_however_many_cannot_be_consolidated() {
    // Twenty-five expensive, full nodes that cannot be consolidated, and a cheap one whose pod fits elsewhere.
    let on_demand = crate::fixtures::requirements_in(&[(crate::model::labels::CAPACITY_TYPE, &["on-demand"])]);
    let general = NodePool { requirements: on_demand, ..pool("general") };
    let (mut snapshot, nodes) = nodes(&general, LARGE, 25);
    for (i, node) in nodes.iter().enumerate() {
        snapshot.put_pod(running(&format!("full-{i}"), &Arc::new(shape("a", 15_000, 40)), node));
    }
    let (claim, small) = managed("small", &general, offering(SMALL, 1, OnDemand));
    snapshot.put_pod(running("p", &Arc::new(shape("b", 1_500, 1)), &small));
    put(&mut snapshot, (claim, small));
    snapshot.put_node(node("unmanaged", 2, 2));
    let mut memory = DisruptionMemory::default();
    let mut seen = Vec::new();
    for now in (0..200).step_by(10) {
        seen.extend(words(&pass(&snapshot, &mut memory, now)));
    }
    assert!(seen.iter().any(|w| w == "underutilized small"), "{seen:?}");
}

/// Nodes of many sizes, full, half full and nearly empty; the pods of most may run nowhere else.
fn worn(seed: u64) -> Snapshot {
    let sizes = [SMALL, "Standard_D4s_v5", "Standard_D8s_v5", LARGE];
    let general = pool("general");
    let mut snapshot = cluster([general.clone()]);
    let mut dice = Dice(seed + 1);
    for n in 0..6 + dice.roll(20) {
        let size = sizes[dice.roll(4)];
        let (claim, node) = managed(&format!("c{n:02}"), &general, offering(size, 1 + dice.roll(3) as u8, OnDemand));
        let mut shape = shape("a", 100 + 300 * dice.roll(6) as i64, 1);
        if !dice.one_in(5) {
            shape.selector = requirements_in(&[(labels::HOSTNAME, &[node.name.as_str()])]);
        }
        let shape = Arc::new(shape);
        let pods: Vec<_> = (0..1 + dice.roll(4)).map(|p| running(&format!("p{n}-{p}"), &shape, &node)).collect();
        put(&mut snapshot, (claim, node));
        pods.into_iter().for_each(|pod| snapshot.put_pod(pod));
    }
    snapshot
}

#[test]
fn however_many_threads_there_are_the_same_nodes_go() {
    let (mut acted, mut in_vain) = (0, 0);
    for seed in 0..40 {
        let snapshot = worn(seed);
        let passes = |threads| {
            let settings = Settings { consolidation_threads: NonZeroUsize::new(threads).unwrap(), ..settings() };
            let mut memory = DisruptionMemory::default();
            let mut pass = |now| disrupt(&snapshot, &mut memory, &ProvisionMemory::default(), &settings, at(now), 1);
            let plans = [0, 10, 20].map(&mut pass);
            (plans, memory)
        };
        let alone = passes(1);
        acted += usize::from(alone.0.iter().any(|plan| !plan.commands.is_empty()));
        in_vain += alone.1.moves.unconsolidatable.len();
        for threads in [2, 3, 8, 64] {
            assert_eq!(passes(threads), alone, "seed {seed}, {threads} threads");
        }
    }
    assert!(acted > 20 && in_vain > 30, "{acted} clusters changed, {in_vain} nodes looked at in vain");
}

/// The first nodes have not been ready since the start.
fn silence(snapshot: &mut Snapshot, nodes: &[Node]) {
    nodes.iter().for_each(|node| snapshot.put_node(Node { ready: false, ready_since: at(0), ..node.clone() }));
}

#[test]
fn nothing_is_disrupted_or_expires_while_many_nodes_are_not_ready() {
    let mut expiring = pool("general");
    expiring.expire_after = Some(SignedDuration::from_secs(70));
    let (mut snapshot, nodes) = nodes(&expiring, SMALL, 10);
    let mut memory = DisruptionMemory::default();
    assert!(words(&pass(&snapshot, &mut memory, 0)).is_empty(), "the nodes are found empty");
    silence(&mut snapshot, &nodes[..3]);
    assert_eq!(wait(&snapshot, &mut memory.clone(), 50).1.len(), 7, "not for as long as that may pass");
    for now in [60, 70, 600] {
        assert_eq!(words(&pass(&snapshot, &mut memory, now)), Vec::<String>::new(), "{now}");
    }
    let two = {
        let mut two = snapshot.clone();
        two.put_node(nodes[2].clone());
        words(&pass(&two, &mut memory.clone(), 600))
    };
    assert_eq!(two.iter().filter(|word| word.starts_with("expired")).count(), 10, "two are no outage");
    assert_eq!(two.len(), 10, "what was found before the outage must be found again");
}

/// What is done in a cluster with an empty node in each of two NodePools, with this pause switch, by the time
/// that many seconds have gone by.
fn disrupted_with(entries: &[(&str, &str)], seconds: i64) -> Vec<String> {
    let pools = ["batch", "general"].map(pool);
    let mut snapshot = cluster(pools.clone());
    for pool in &pools {
        put(&mut snapshot, managed(&format!("{}-empty", pool.name), pool, offering(SMALL, 1, OnDemand)));
    }
    snapshot.pause = Pause::read(entries.iter().map(|(key, value)| (*key, Some(*value)))).0;
    let mut memory = DisruptionMemory::default();
    let mut all: Vec<String> = Vec::new();
    for now in (0..=seconds).step_by(10) {
        let plan = pass(&snapshot, &mut memory, now);
        for word in words(&plan) {
            snapshot.remove_claim(&ClaimName::new(word.rsplit(' ').next().unwrap()).unwrap());
            all.push(word);
        }
    }
    all.sort();
    all
}

#[test]
fn a_pause_of_a_node_pool_or_a_reason_holds_nothing_else() {
    let (batch, general) = ("empty batch-empty", "empty general-empty");
    for (key, expected) in [
        ("disrupt", vec![]),
        ("disrupt.nodepool.general", vec![batch]),
        ("disrupt.reason.Empty.nodepool.general", vec![batch]),
        ("disrupt.reason.Empty", vec![]),
        ("disrupt.reason.Drifted", vec![batch, general]),
        ("disrupt.reason.Underutilized", vec![batch, general]),
        ("disrupt.nodepool.other", vec![batch, general]),
    ] {
        assert_eq!(disrupted_with(&[(key, "true")], 120), expected, "{key}");
    }
}

#[test]
fn a_pause_until_a_time_is_released_by_itself() {
    let until = format!("until {}", at(60));
    for key in ["disrupt", "disrupt.nodepool.general", "disrupt.reason.Empty"] {
        let held = |seconds| disrupted_with(&[(key, &until)], seconds).contains(&"empty general-empty".to_owned());
        assert!(!held(50) && held(90), "{key}");
    }
}

#[test]
fn an_expired_node_stays_while_its_node_pool_is_paused_but_not_for_a_paused_reason() {
    for (key, expected) in [
        ("disrupt.nodepool.general", vec![]),
        ("disrupt", vec![]),
        ("disrupt.reason.Drifted", vec!["expired c00"]),
        ("disrupt.nodepool.other", vec!["expired c00"]),
    ] {
        let expire_after = Some(SignedDuration::from_hours(1));
        let (mut snapshot, _) = nodes(&NodePool { expire_after, ..pool("general") }, SMALL, 1);
        let mut claim = Claim::clone(snapshot.claims().values().next().unwrap());
        claim.created_at = at(-7_200);
        snapshot.put_claim(claim);
        snapshot.pause = Pause::read([(key, Some("true"))]).0;
        assert_eq!(words(&pass(&snapshot, &mut DisruptionMemory::default(), 0)), expected, "{key}");
    }
}

/// Two nodes of two NodePools, of which each could take the pods of the other: the one that is not paused goes.
#[test]
fn a_paused_node_keeps_no_other_from_being_consolidated() {
    for (paused, gone) in [("batch", "general"), ("general", "batch")] {
        let pools = ["batch", "general"].map(pool);
        let mut snapshot = cluster(pools.clone());
        for pool in &pools {
            let (claim, node) = managed(&format!("{}-a", pool.name), pool, offering(LARGE, 1, OnDemand));
            let pod = running(&format!("{}-web", pool.name), &Arc::new(shape("s", 500, 1)), &node);
            put(&mut snapshot, (claim, node));
            snapshot.put_pod(pod);
        }
        snapshot.pause = Pause::read([(&*format!("disrupt.nodepool.{paused}"), Some("true"))]).0;
        let (_, words) = wait(&snapshot, &mut DisruptionMemory::default(), 300);
        assert_eq!(words, [format!("underutilized {gone}-a")]);
    }
}
