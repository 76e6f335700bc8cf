//! Statuses of NodePools, AKSNodeClasses and NodeOverlays.

use super::{StatusMemory, report_overlays, report_status};
use crate::catalog::CapacityType::OnDemand;
use crate::catalog::overlay::{Overlay, PriceAdjustment};
use crate::disruption::{DriftDetector, PodWithoutRoom, ReplacementCause, ReplacementLoops};
use crate::fixtures::{
    at, being_deleted, claim, class, cluster, disruption_budget, managed, node, offering, pool, put, settings, shape,
};
use crate::lifecycle::PoolFailures;
use crate::model::amounts::resources::Resources;
use crate::model::cluster::claim::{Claim, DriftedCondition, TerminationCondition};
use crate::model::cluster::disruption_budget::PodDisruptionBudget;
use crate::model::cluster::launch_hold::LaunchHold;
use crate::model::cluster::node::Node;
use crate::model::cluster::pool::{Budget, BudgetNodes, NodeClass, NodePool};
use crate::model::cluster::replacement::Replacement;
use crate::model::cluster::status::{
    ConditionType, Conditions, InvalidClass, InvalidOverlay, InvalidPool, PoolStatus, StatusCondition,
};
use crate::model::labels::NODEPOOL;
use crate::model::names::{ClaimName, NodePoolName, ObjectName, ProviderId, Uid};
use crate::model::settings::{ControllerMode, Pause, PauseSwitch, Settings};
use crate::model::support::write_times::WRITE_INTERVAL;
use crate::plan::{ClaimUpdate, Command, Plan};
use crate::scheduling::OverlayMemory;
use crate::snapshot::{CommandKey, Snapshot};
use jiff::SignedDuration;
use std::sync::Arc;

const SMALL: &str = "Standard_D2s_v5";

fn name() -> NodePoolName {
    NodePoolName::new("general").unwrap()
}

/// Decides without failures of NodePools.
fn decide(snapshot: &Snapshot, memory: &mut StatusMemory, second: i64) -> Plan {
    report_status(snapshot, &PoolFailures::default(), memory, &settings(), at(second))
}

/// Decides, and stores what is to be written as an API server does. Returns how many writes there were.
fn step(snapshot: &mut Snapshot, memory: &mut StatusMemory, second: i64) -> usize {
    let plan = decide(snapshot, memory, second);
    for planned in &plan.commands {
        match &planned.command {
            Command::ReportPool(report) => {
                let status = report.status.clone();
                if let Some(pool) = snapshot.invalid_pools().get(&report.pool).cloned() {
                    snapshot.put_invalid_pool(InvalidPool { status, ..(*pool).clone() });
                } else {
                    let pool = snapshot.pools().get(&report.pool).cloned().unwrap();
                    snapshot.put_pool(pool.name.clone(), NodePool { status, ..(*pool).clone() });
                }
            }
            Command::ReportClass(report) => {
                let conditions = report.conditions.clone();
                if let Some(class) = snapshot.invalid_classes().get(&report.class).cloned() {
                    snapshot.put_invalid_class(InvalidClass { status: conditions, ..(*class).clone() });
                } else {
                    let class = snapshot.classes().get(&report.class).cloned().unwrap();
                    snapshot.put_class(class.name.clone(), NodeClass { conditions, ..(*class).clone() });
                }
            }
            other => panic!("{other:?}"),
        }
    }
    plan.commands.len()
}

/// The status of the NodePool after a decision without memory.
fn status(snapshot: &Snapshot) -> PoolStatus {
    let mut snapshot = snapshot.clone();
    step(&mut snapshot, &mut StatusMemory::default(), 0);
    let invalid = snapshot.invalid_pools().get(&name()).map(|pool| pool.status.clone());
    invalid.unwrap_or_else(|| snapshot.pools().get(&name()).unwrap().status.clone())
}

fn condition(snapshot: &Snapshot, kind: ConditionType) -> StatusCondition {
    status(snapshot).conditions.get(kind).unwrap().clone()
}

fn running(name: &str) -> (Claim, crate::model::cluster::node::Node) {
    managed(name, &pool("general"), offering(SMALL, 1, OnDemand))
}

fn drifted(name: &str) -> (Claim, crate::model::cluster::node::Node) {
    let (mut claim, node) = running(name);
    let drifted = DriftedCondition { since: at(0), reason: Arc::from("NodePoolDrifted"), message: Arc::from("labels") };
    claim.status.drifted = Some(drifted);
    (claim, node)
}

#[test]
fn a_usable_pool_without_nodes_is_ready_and_counts_none() {
    let mut pool = pool("general");
    pool.generation = 4;
    let snapshot = cluster([pool]);
    let status = status(&snapshot);
    assert_eq!(status.conditions.observed_generation, Some(4));
    let holding: Vec<ConditionType> = status
        .conditions
        .by_type
        .iter()
        .map(|(kind, c)| (*kind, c))
        .filter(|(_, c)| c.holds)
        .map(|(kind, _)| kind)
        .collect();
    let wanted = [
        ConditionType::Ready,
        ConditionType::ValidationSucceeded,
        ConditionType::NodeClassReady,
        ConditionType::NodesUpToDate,
    ];
    assert_eq!(holding, wanted);
    assert_eq!(status.conditions.by_type.len(), wanted.len());
    assert_eq!((status.nodes, status.resources, status.class_generation), (Some(0), Resources::default(), Some(0)));
}

#[test]
fn nothing_is_written_in_companion_mode() {
    let settings = Settings { mode: ControllerMode::Companion, ..settings() };
    let snapshot = cluster([pool("general")]);
    let plan = report_status(&snapshot, &PoolFailures::default(), &mut StatusMemory::default(), &settings, at(0));
    assert_eq!(plan, Plan::default());
}

#[test]
fn a_pool_that_cannot_be_read_says_why() {
    let mut snapshot = cluster([pool("general")]);
    put(&mut snapshot, running("general-a"));
    let reason = Arc::from("spec.disruption.budgets[0].schedule: is not a schedule");
    let uid = Uid::new("general").unwrap();
    let invalid = InvalidPool {
        name: name(),
        uid,
        generation: 2,
        reason,
        status: PoolStatus::default(),
        deletion: Default::default(),
    };
    snapshot.put_invalid_pool(invalid);
    assert!(snapshot.pools().get(&name()).is_some(), "the last version stays in use");
    let status = status(&snapshot);
    for kind in [ConditionType::ValidationSucceeded, ConditionType::Ready] {
        let condition = status.conditions.get(kind).unwrap();
        assert_eq!((condition.holds, &*condition.reason), (false, "NodePoolValidationFailed"));
        assert!(condition.message.contains("spec.disruption.budgets[0].schedule"), "{condition:?}");
    }
    assert_eq!((status.conditions.observed_generation, status.nodes), (Some(2), Some(1)));
    snapshot.put_pool(name(), pool("general"));
    assert!(snapshot.invalid_pools().is_empty());
    assert!(condition(&snapshot, ConditionType::Ready).holds);
}

#[test]
fn a_pool_is_as_ready_as_its_class() {
    let mut snapshot = cluster([pool("general")]);
    let broken = NodeClass { unhonoured: vec![Arc::from("kubelet.cpuManagerPolicy")], generation: 5, ..class() };
    snapshot.put_class(class().name, broken);
    let status_of_pool = status(&snapshot);
    assert_eq!(status_of_pool.class_generation, Some(5));
    for kind in [ConditionType::NodeClassReady, ConditionType::Ready] {
        let condition = status_of_pool.conditions.get(kind).unwrap();
        assert_eq!((condition.holds, &*condition.reason), (false, "UnsupportedFields"));
        assert!(condition.message.contains("spec.kubelet.cpuManagerPolicy"), "{condition:?}");
    }
    assert!(status_of_pool.conditions.get(ConditionType::ValidationSucceeded).unwrap().holds);
    let mut memory = StatusMemory::default();
    step(&mut snapshot, &mut memory, 0);
    let ready = snapshot.classes().get(&class().name).unwrap().conditions.clone();
    assert_eq!(ready.observed_generation, Some(5));
    assert!(!ready.get(ConditionType::Ready).unwrap().holds);

    let uid = Uid::new("c").unwrap();
    let reason = Arc::from("spec.osDiskSizeGB: must be 30 to 2048");
    let invalid =
        InvalidClass { name: class().name, uid, generation: 6, reason, status: Conditions::default(), deletion: () };
    snapshot.put_invalid_class(invalid);
    let unreadable = condition(&snapshot, ConditionType::NodeClassReady);
    assert!(!unreadable.holds && unreadable.message.contains("spec.osDiskSizeGB"), "{unreadable:?}");
    assert_eq!(status(&snapshot).class_generation, Some(6));
    snapshot.remove_class(&class().name);
    assert_eq!(&*condition(&snapshot, ConditionType::NodeClassReady).reason, "NodeClassNotFound");
    snapshot.put_class(class().name, class());
    assert!(condition(&snapshot, ConditionType::Ready).holds);
}

#[test]
fn nodes_count_from_the_launch_of_their_vm_until_they_are_gone() {
    let mut snapshot = cluster([pool("general")]);
    snapshot.put_claim(claim("general-new", &pool("general"), vec![offering(SMALL, 1, OnDemand)]));
    let (mut launched, _) = running("general-launched");
    launched.status.initialized = None;
    snapshot.put_claim(launched.clone());
    let (mut ready, mut joined) = running("general-ready");
    ready.deleting_at = Some(at(1));
    joined.capacity = Resources::cpu_memory(2_000, 8 << 30);
    put(&mut snapshot, (ready, joined.clone()));
    let mut unclaimed = node("aks-unclaimed", 1, 4);
    unclaimed.capacity = Resources::cpu_memory(4_000, 16 << 30);
    unclaimed.labels.insert(Arc::from(NODEPOOL), Arc::from("general"));
    unclaimed.provider_id = Some(
        ProviderId::parse("azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/x")
            .unwrap(),
    );
    snapshot.put_node(unclaimed.clone());
    snapshot.put_node(node("aks-system", 1, 4));
    let status = status(&snapshot);
    let mut wanted = launched.status.capacity.plus(&joined.capacity).plus(&unclaimed.capacity);
    wanted.set_extended("nodes", 3);
    assert_eq!((status.nodes, status.resources), (Some(3), wanted));
}

#[test]
fn a_thousand_nodes_that_join_are_a_few_writes_and_what_is_true_is_told_at_once() {
    let (mut snapshot, mut memory) = (cluster([pool("general")]), StatusMemory::default());
    assert_eq!(step(&mut snapshot, &mut memory, 0), 2, "the class and the pool");
    assert_eq!(step(&mut snapshot, &mut memory, 1), 0, "nothing has changed");
    let mut writes = 0;
    for second in 1..=100 {
        for n in 0..10 {
            put(&mut snapshot, running(&format!("general-{second}-{n}")));
        }
        writes += step(&mut snapshot, &mut memory, second);
    }
    assert_eq!(writes, 10, "in 100 seconds");
    put(&mut snapshot, running("general-last"));
    let plan = decide(&snapshot, &mut memory, 101);
    assert_eq!((plan.commands.len(), plan.next), (0, Some(at(100) + WRITE_INTERVAL)));
    assert_eq!(step(&mut snapshot, &mut memory, 110), 1);
    assert_eq!(snapshot.pools().get(&name()).unwrap().status.nodes, Some(1_001));
    snapshot.remove_class(&class().name);
    assert_eq!(step(&mut snapshot, &mut memory, 111), 1, "it is not ready any more");
}

#[test]
fn a_write_without_effect_is_repeated_after_a_while_and_never_beside_another() {
    let (mut snapshot, mut memory) = (cluster([pool("general")]), StatusMemory::default());
    let writes =
        |snapshot: &Snapshot, memory: &mut StatusMemory, second| decide(snapshot, memory, second).commands.len();
    assert_eq!(writes(&snapshot, &mut memory, 0), 2);
    assert_eq!(writes(&snapshot, &mut memory, 9), 0);
    assert_eq!(writes(&snapshot, &mut memory, 10), 2);
    let in_a_day = (11..86_400).map(|second| writes(&snapshot, &mut memory, second)).sum::<usize>();
    assert!((200..300).contains(&in_a_day), "every eleven minutes or so, of both: {in_a_day}");
    assert_eq!(writes(&snapshot, &mut memory, 100_000), 2);
    // A clock that is set back holds up nothing for long.
    assert_eq!(writes(&snapshot, &mut memory, -7_200), 0);
    assert_eq!(decide(&snapshot, &mut memory, -7_200).next, Some(at(-7_200) + WRITE_INTERVAL * 64));
    snapshot.in_progress = [CommandKey::Pool(name()), CommandKey::Class(class().name)].into();
    assert_eq!(writes(&snapshot, &mut memory, 200_000), 0);
}

#[test]
fn a_status_that_another_has_overwritten_is_written_again() {
    let (mut snapshot, mut memory) = (cluster([pool("general")]), StatusMemory::default());
    step(&mut snapshot, &mut memory, 0);
    let wanted = status(&snapshot);
    let mut overwritten = pool("general");
    overwritten.status.conditions.by_type.insert(ConditionType::Ready, StatusCondition::failing("Other", "m"));
    snapshot.put_pool(name(), overwritten);
    step(&mut snapshot, &mut memory, 60);
    assert_eq!(snapshot.pools().get(&name()).unwrap().status, wanted);
}

#[test]
fn a_loop_of_replacements_is_told_until_it_is_over() {
    let mut changed = pool("general");
    changed.labels.insert("team".into(), "a".into());
    let mut snapshot = cluster([changed.clone()]);
    let (claim, node) = drifted("general-a");
    let drift = DriftDetector::new(&changed, &snapshot, at(0)).drift_of(&claim).unwrap();
    let cause = ReplacementCause::Drift(drift).recurring(&changed).unwrap();
    let record = |in_a_row| Some(Replacement::new(cause.clone(), in_a_row));
    let with = |in_a_row, claim: &Claim| {
        let mut claim = claim.clone();
        claim.spec.replacement = record(in_a_row);
        (claim, node.clone())
    };
    put(&mut snapshot, with(2, &claim));
    assert_eq!(status(&snapshot).conditions.get(ConditionType::ReplacementsEffective), None);
    put(&mut snapshot, with(3, &claim));
    let mut memory = StatusMemory::default();
    step(&mut snapshot, &mut memory, 0);
    let told = condition(&snapshot, ConditionType::ReplacementsEffective);
    let until = claim.created_at + SignedDuration::from_mins(30);
    let message = |next: &str| {
        format!(
            "3 replacements in a row without effect, for the same cause: Drifted (NodePool \
             spec.template.metadata.labels[team]: set to \"a\"), the last by NodeClaim general-a; the next one {next} \
             {until}"
        )
    };
    let waits = message("waits until");
    assert_eq!((told.holds, &*told.reason, &*told.message), (false, "ReplacementLoop", &*waits));
    assert!(condition(&snapshot, ConditionType::Ready).holds, "it is no failure");
    let rollout = condition(&snapshot, ConditionType::NodesUpToDate).message;
    assert!(rollout.contains(&format!("have had no effect, and the next one waits until {until}")), "{rollout}");
    let mut otherwise = changed.clone();
    otherwise.labels.insert("tier".into(), "b".into());
    let mut others = cluster([otherwise]);
    let (mut last, last_node) = running("general-last");
    last.spec.labels.insert("tier".into(), "b".into());
    last.spec.replacement = record(3);
    put(&mut others, (last, last_node));
    put(&mut others, drifted("general-a"));
    let loops = ReplacementLoops::of(&others, at(0));
    let rollout = condition(&others, ConditionType::NodesUpToDate).message;
    assert!(!loops.is_empty() && !rollout.contains("no effect"), "it has drifted otherwise than the last: {rollout}");
    let told_at = |snapshot: &mut Snapshot, memory: &mut StatusMemory, second| {
        step(snapshot, memory, second);
        let conditions = &snapshot.pools().get(&name()).unwrap().status.conditions;
        conditions.get(ConditionType::ReplacementsEffective).unwrap().clone()
    };
    let due = told_at(&mut snapshot, &mut memory, 1_900);
    assert_eq!((due.holds, &*due.message), (false, &*message("may begin since")));
    let days_later = told_at(&mut snapshot.clone(), &mut memory.clone(), 72 * 3_600);
    assert_eq!(days_later, due, "nothing has changed but the time");
    let mut up_to_date = claim.clone();
    up_to_date.spec.labels.insert("team".into(), "a".into());
    put(&mut snapshot, with(3, &up_to_date));
    let ended = told_at(&mut snapshot, &mut memory, 2_500);
    assert_eq!((ended.holds, &*ended.reason), (true, "LoopEnded"), "as soon as the last one does not differ");
}

#[test]
fn two_that_overwrite_each_other_do_so_ever_less_often() {
    let (mut snapshot, mut memory) = (cluster([pool("general")]), StatusMemory::default());
    let mut overwritten = pool("general");
    overwritten.status.conditions.by_type.insert(ConditionType::Ready, StatusCondition::failing("Other", "m"));
    let mut writes = 0;
    for second in (0..3_600).step_by(5) {
        writes += step(&mut snapshot, &mut memory, second);
        step(&mut snapshot, &mut memory, second + 1);
        snapshot.put_pool(name(), overwritten.clone());
    }
    assert!(writes < 20, "{writes} writes in an hour");
}

/// A version that cannot be read takes no hold away.
#[test]
fn a_held_pool_stays_held_while_it_cannot_be_read() {
    let mut snapshot = cluster([pool("general")]);
    let held = StatusCondition::failing("NodesDidNotComeUp", "m");
    let mut status_before = PoolStatus::default();
    status_before.conditions.by_type.insert(ConditionType::NodeRegistrationHealthy, held.clone());
    let uid = Uid::new("general").unwrap();
    let reason = Arc::from("spec: wrong");
    snapshot.put_invalid_pool(InvalidPool {
        name: name(),
        uid,
        generation: 2,
        reason,
        status: status_before,
        deletion: Default::default(),
    });
    assert_eq!(condition(&snapshot, ConditionType::NodeRegistrationHealthy), held);
}

#[test]
fn a_change_of_a_status_alone_is_no_change_of_the_pools() {
    let (mut snapshot, mut memory) = (cluster([pool("general")]), StatusMemory::default());
    let generations = |snapshot: &Snapshot| (snapshot.pools().generation(), snapshot.classes().generation());
    let before = generations(&snapshot);
    assert_eq!(step(&mut snapshot, &mut memory, 0), 2);
    assert_eq!(generations(&snapshot), before);
    snapshot.put_pool(name(), NodePool { weight: 3, ..pool("general") });
    assert_ne!(generations(&snapshot), before);
}

#[test]
fn held_launches_are_told_and_so_is_their_end() {
    let (mut snapshot, mut memory) = (cluster([pool("general")]), StatusMemory::default());
    let told = |snapshot: &Snapshot| {
        let conditions = &snapshot.pools().get(&name()).unwrap().status.conditions;
        conditions.get(ConditionType::LaunchesAllowed).map(|condition| condition.holds)
    };
    let group = settings().cluster.node_resource_group;
    for (hold, wanted) in [
        (None, None),
        (Some(LaunchHold::GroupUnread { group: group.clone() }), None),
        (Some(LaunchHold::NoAgentNode { group }), Some(false)),
        (None, Some(true)),
    ] {
        snapshot.launch_hold = hold;
        step(&mut snapshot, &mut memory, 0);
        assert_eq!(told(&snapshot), wanted, "{:?}", snapshot.launch_hold);
    }
}

#[test]
fn drifted_nodes_are_counted_and_so_is_what_holds_them_up() {
    let mut snapshot = cluster([pool("general")]);
    put(&mut snapshot, running("general-a"));
    let up_to_date = condition(&snapshot, ConditionType::NodesUpToDate);
    assert!(up_to_date.holds);
    put(&mut snapshot, drifted("general-b"));
    let told = |snapshot: &Snapshot| {
        let condition = condition(snapshot, ConditionType::NodesUpToDate);
        assert!(!condition.holds);
        condition.message.to_string()
    };
    assert_eq!(told(&snapshot), "1 of 2 nodes is drifted, 1 up to date");
    assert!(condition(&snapshot, ConditionType::Ready).holds, "a roll does not make a pool unusable");
    let mut blocked = drifted("general-c");
    blocked.0.deleting_at = Some(at(1));
    let message = Arc::from("pod default/web-0: PodDisruptionBudget default/web allows no eviction now");
    let condition = TerminationCondition { message, ..TerminationCondition::new(Some(false), "Blocked") };
    blocked.0.status.termination.drained = Some(condition);
    put(&mut snapshot, blocked);
    let message = told(&snapshot);
    assert!(message.starts_with("2 of 3 nodes are drifted, 1 up to date; the drain of 1 is blocked: pod"), "{message}");
    assert!(message.contains("PodDisruptionBudget default/web"), "{message}");
    let mut closed = pool("general");
    closed.disruption.budgets = vec![Budget { nodes: BudgetNodes::Count(0), reasons: None, window: None }];
    snapshot.put_pool(name(), closed);
    assert!(told(&snapshot).ends_with("1 is waiting: spec.disruption.budgets allow no more nodes to be disrupted now"));
    snapshot.pause = Pause::of([PauseSwitch::Disrupt]);
    assert!(told(&snapshot).ends_with("1 is waiting: disruption is paused: disrupt"));
    for (key, value, ending) in [
        (
            "disrupt.nodepool.general",
            "until 2100-01-01T00:00:00Z",
            ": disrupt.nodepool.general until 2100-01-01T00:00:00Z",
        ),
        ("disrupt.reason.Drifted", "true", ": disrupt.reason.Drifted"),
        ("disrupt.reason.Empty", "true", "no more nodes to be disrupted now"),
        ("disrupt.nodepool.other", "true", "no more nodes to be disrupted now"),
    ] {
        snapshot.pause = Pause::read([(key, Some(value))]).0;
        assert!(told(&snapshot).ends_with(ending), "{key}: {}", told(&snapshot));
    }
}

#[test]
fn a_node_claim_that_somebody_else_has_written_is_refused_once() {
    let mut snapshot = cluster([pool("general")]);
    let ours = claim("general-a", &pool("general"), vec![offering(SMALL, 1, OnDemand)]);
    let mut standalone = claim("by-hand", &pool("general"), Vec::new());
    standalone.has_finalizer = false;
    let karpenters = Claim { has_finalizer: true, ..claim("theirs", &pool("general"), Vec::new()) };
    let deleted = Claim { deleting_at: Some(at(0)), name: ClaimName::new("gone").unwrap(), ..standalone.clone() };
    for claim in [&ours, &standalone, &karpenters, &deleted] {
        snapshot.put_claim(claim.clone());
    }
    let refused_at = |snapshot: &Snapshot, second| {
        let commands = decide(snapshot, &mut StatusMemory::default(), second).commands;
        let refused = commands.into_iter().filter_map(|planned| match planned.command {
            Command::UpdateClaim { claim, update: ClaimUpdate::LaunchFailed(failure) } => Some((claim, failure)),
            _ => None,
        });
        refused.collect::<Vec<_>>()
    };
    let refused = |snapshot: &Snapshot| refused_at(snapshot, 61);
    assert!(refused_at(&snapshot, 5).is_empty(), "another Karpenter may not have marked it yet");
    let (by_hand, failure) = refused(&snapshot).pop().unwrap();
    assert_eq!((refused(&snapshot).len(), by_hand), (1, standalone.reference()));
    assert!(failure.message.contains("use a NodePool"), "{failure:?}");
    snapshot.in_progress = [CommandKey::Claim(standalone.name.clone())].into();
    assert!(refused(&snapshot).is_empty());
    snapshot.in_progress.clear();
    standalone.status.launch_failed = Some(failure);
    snapshot.put_claim(standalone);
    assert!(refused(&snapshot).is_empty());
}

#[test]
fn nodes_that_cannot_be_replaced_are_named_with_what_keeps_them() {
    let mut all_at_once = pool("general");
    all_at_once.disruption.budgets = vec![Budget { nodes: BudgetNodes::Percent(100), reasons: None, window: None }];
    let mut snapshot = cluster([all_at_once.clone()]);
    for n in 0..30 {
        put(&mut snapshot, drifted(&format!("general-{n:02}")));
    }
    let told = |snapshot: &Snapshot, irreplaceable: &[&str]| {
        condition_with(snapshot, irreplaceable, ConditionType::NodesUpToDate).message.to_string()
    };
    let none = "30 of 30 nodes are drifted, 0 up to date";
    assert_eq!(told(&snapshot, &[]), none);
    let node = Node { do_not_disrupt: true, ..drifted("general-01").1 };
    snapshot.put_node(node);
    snapshot.put_pod(crate::fixtures::running("p", &Arc::new(shape("p", 500, 1)), &drifted("general-02").1));
    let wanted = format!(
        "{none}; at least 2 cannot be replaced: node aks-general-01: the node has the annotation \
         karpenter.sh/do-not-disrupt; node aks-general-02: pod default/p can be scheduled nowhere else: no"
    );
    assert_eq!(told(&snapshot, &["general-02", "general-03"]), wanted);
    // Then it is the budget that all of them wait for.
    all_at_once.disruption.budgets = vec![Budget { nodes: BudgetNodes::Count(0), reasons: None, window: None }];
    snapshot.put_pool(name(), all_at_once);
    assert!(!told(&snapshot, &["general-02"]).contains("cannot be replaced"));
}

/// The condition of the NodePool with these nodes that can go nowhere.
fn removal_of(snapshot: &Snapshot, irreplaceable: &[&str]) -> StatusCondition {
    condition_with(snapshot, irreplaceable, ConditionType::NodesRemoved)
}

fn condition_with(snapshot: &Snapshot, irreplaceable: &[&str], of: ConditionType) -> StatusCondition {
    let pod = crate::fixtures::pod("p", &Arc::new(shape("p", 500, 1))).key;
    let kept_by = PodWithoutRoom { pod, why: Arc::from("no") };
    let why = |name: &&str| (ClaimName::new(*name).unwrap(), kept_by.clone());
    let mut memory = StatusMemory { irreplaceable: irreplaceable.iter().map(why).collect(), ..StatusMemory::default() };
    let mut snapshot = snapshot.clone();
    step(&mut snapshot, &mut memory, 0);
    snapshot.pools().get(&name()).unwrap().status.conditions.get(of).unwrap().clone()
}

#[test]
fn a_deleted_pool_says_how_many_nodes_are_left_and_which_stay() {
    let mut deleted = NodePool { deletion: being_deleted(at(0)), ..pool("general") };
    let mut snapshot = cluster([deleted.clone()]);
    ["general-a", "general-b", "general-c"].into_iter().for_each(|name| put(&mut snapshot, running(name)));
    let mut going = running("general-d");
    going.0.deleting_at = Some(at(1));
    put(&mut snapshot, going);
    let told = removal_of(&snapshot, &[]);
    assert_eq!((told.holds, &*told.reason), (false, "NodesLeft"));
    assert_eq!(&*told.message, "4 nodes are left, of which 1 is going");
    // A pod without a controller keeps its node, and another that can go nowhere.
    let (_, kept) = running("general-a");
    let pod = crate::fixtures::running("alone", &Arc::new(shape("alone", 500, 1)), &kept);
    snapshot.put_pod(crate::model::cluster::pod::Pod { owner: crate::model::cluster::pod::PodOwner::Nobody, ..pod });
    let stuck = crate::fixtures::running("p", &Arc::new(shape("p", 500, 1)), &running("general-b").1);
    snapshot.put_pod(stuck.clone());
    let told = removal_of(&snapshot, &["general-b"]);
    assert_eq!(&*told.reason, "NodesKept");
    let wanted = "4 nodes are left, of which 1 is going; 2 stay: node aks-general-a: pod default/alone has no controller that \
                  would replace it; node aks-general-b: pod default/p can be scheduled nowhere else: no. Nothing is evicted \
                  there: let these pods go or run elsewhere, or evict them with kubectl delete nodeclaims -l \
                  karpenter.sh/nodepool=general";
    assert_eq!(&*told.message, wanted);
    deleted.disruption.budgets = vec![Budget { nodes: BudgetNodes::Count(0), reasons: None, window: None }];
    snapshot.put_pool(name(), deleted.clone());
    let told = removal_of(&snapshot, &["general-b"]).message;
    assert!(told.contains("; 1 is waiting: spec.disruption.budgets allow no more nodes"), "{told}");
    snapshot.pause = Pause::read([("disrupt.reason.Drifted", Some("true"))]).0;
    let told = removal_of(&snapshot, &[]).message;
    assert!(told.contains("; 2 are waiting: disruption is paused: disrupt.reason.Drifted"), "{told}");
    // Where both are kept, and nothing of the NodePool may go, both is said.
    ["general-c", "general-d"].into_iter().for_each(|name| snapshot.remove_claim(&ClaimName::new(name).unwrap()));
    let told = removal_of(&snapshot, &["general-b"]).message;
    assert!(told.contains("left, of which 0 are going; disruption is paused: "), "{told}");
    assert!(told.contains("; 2 stay: "), "{told}");
    // The pod has ended.
    snapshot.remove_pod(&stuck.key);
    let told = removal_of(&snapshot, &["general-b"]).message;
    assert!(told.contains("; 1 stays: node aks-general-a: "), "{told}");
    // One whose nodes are kept says nothing.
    deleted.deletion.keeps_nodes = true;
    snapshot.put_pool(name(), deleted);
    assert_eq!(status(&snapshot).conditions.get(ConditionType::NodesRemoved), None);
}

/// Between two nodes of a drain it allows nothing for a moment; and a node that is not ready may become so.
#[test]
fn only_what_lasts_is_told_as_keeping_nodes() {
    let mut snapshot = cluster([NodePool { deletion: being_deleted(at(0)), ..pool("general") }]);
    put(&mut snapshot, running("general-a"));
    let (claim, mut node) = running("general-b");
    node.ready = false;
    put(&mut snapshot, (claim, node));
    snapshot.put_pod(crate::fixtures::running("web", &Arc::new(shape("web", 500, 1)), &running("general-a").1));
    let budget = disruption_budget("web", 0);
    snapshot.put_disruption_budget(budget.key.clone(), budget.clone());
    let told = removal_of(&snapshot, &[]);
    assert_eq!(&*told.reason, "NodesLeft");
    let wanted = "2 nodes are left, of which 0 are going; 2 are waiting: among them node aks-general-a: pod default/web cannot be \
                  evicted: PodDisruptionBudget default/web allows no eviction now";
    assert_eq!(&*told.message, wanted);
    let never = PodDisruptionBudget { is_fully_blocking: true, ..budget };
    snapshot.put_disruption_budget(never.key.clone(), never);
    let wanted = "; 1 is waiting: node aks-general-b: the node is not ready; 1 stays: node aks-general-a: pod default/web \
                  cannot be evicted: ";
    let told = removal_of(&snapshot, &[]);
    assert_eq!(&*told.reason, "NodesKept");
    assert!(told.message.contains(wanted), "{told:?}");
}

/// Those that somebody else has written, and that are not in use yet.
#[test]
fn nodes_that_nothing_takes_away_are_not_told_as_going() {
    let mut snapshot = cluster([NodePool { deletion: being_deleted(at(0)), ..pool("general") }]);
    let (mut foreign, node) = running("general-a");
    (foreign.intent, foreign.spec.planned) = (None, Vec::new());
    put(&mut snapshot, (foreign, node));
    let (mut joining, node) = running("general-b");
    (joining.status.registered, joining.status.initialized) = (Some(at(0)), None);
    put(&mut snapshot, (joining, node));
    assert_eq!(&*removal_of(&snapshot, &[]).message, "2 nodes are left, of which 0 are going");
}

/// The last version that could be read is the one by whose budgets its nodes go.
#[test]
fn a_pool_that_cannot_be_read_is_deleted_by_its_last_version() {
    let mut snapshot = cluster([pool("general")]);
    put(&mut snapshot, running("general-a"));
    let uid = Uid::new("general").unwrap();
    let (reason, status, deletion) = (Arc::from("spec: wrong"), PoolStatus::default(), being_deleted(at(0)));
    snapshot.put_invalid_pool(InvalidPool { name: name(), uid, generation: 2, reason, status, deletion });
    assert!(snapshot.pools().get(&name()).unwrap().deletion.takes_nodes());
    let told = condition(&snapshot, ConditionType::NodesRemoved);
    assert_eq!(&*told.message, "1 node is left, of which 0 are going");
    // After a restart nothing is known of it.
    let mut unknown = cluster([]);
    put(&mut unknown, running("general-a"));
    let invalid = InvalidPool::clone(snapshot.invalid_pools().get(&name()).unwrap());
    unknown.put_invalid_pool(invalid);
    let plan = decide(&unknown, &mut StatusMemory::default(), 0);
    let reports = plan.commands.into_iter().filter_map(|planned| match planned.command {
        Command::ReportPool(report) => report.status.conditions.get(ConditionType::NodesRemoved).cloned(),
        _ => None,
    });
    let told = reports.collect::<Vec<_>>();
    assert_eq!((told.len(), told[0].holds, &*told[0].reason), (1, false, "NodesLeft"));
    let wanted = "1 node is left, of which none goes: the NodePool cannot be read, so its budgets are not known. Correct its \
                  spec, or evict all pods with kubectl delete nodeclaims -l karpenter.sh/nodepool=general";
    assert_eq!(&*told[0].message, wanted);
}

fn overlay(name: &str, generation: i64) -> Overlay {
    Overlay {
        name: ObjectName::new(name).unwrap(),
        uid: Uid::new(name).unwrap(),
        generation,
        weight: 0,
        requirements: Default::default(),
        price: PriceAdjustment::parse_adjustment("-10%").ok(),
        capacity: Default::default(),
        conditions: Conditions::default(),
    }
}

/// Decides the statuses of NodeOverlays, and stores them as an API server does. Returns how many writes there were.
fn step_overlays(snapshot: &mut Snapshot, memory: &mut StatusMemory, second: i64) -> usize {
    let mut overlays = OverlayMemory::default();
    overlays.refresh(snapshot);
    let plan = report_overlays(snapshot, &overlays.conflicts, memory, at(second));
    for planned in &plan.commands {
        let Command::ReportOverlay(report) = &planned.command else { panic!("{planned:?}") };
        let conditions = report.conditions.clone();
        if let Some(known) = snapshot.invalid_overlays().get(&report.overlay).cloned() {
            snapshot.put_invalid_overlay(InvalidOverlay { status: conditions, ..(*known).clone() });
        } else {
            let known = snapshot.overlays().get(&report.overlay).cloned().unwrap();
            snapshot.put_overlay(known.name.clone(), Overlay { conditions, ..(*known).clone() });
        }
    }
    plan.commands.len()
}

#[test]
fn an_overlay_is_ready_unless_another_of_the_same_weight_sets_the_same() {
    let mut snapshot = cluster([pool("general")]);
    let mut memory = StatusMemory::default();
    snapshot.put_overlay(overlay("a", 3).name, overlay("a", 3));
    let generation = snapshot.facts_generation();
    assert_eq!(step_overlays(&mut snapshot, &mut memory, 0), 1);
    let said = |snapshot: &Snapshot, name: &str, kind| {
        let overlay = snapshot.overlays().get(&ObjectName::new(name).unwrap()).cloned().unwrap();
        let condition = overlay.conditions.get(kind).unwrap();
        (condition.holds, condition.reason.to_string(), condition.message.to_string())
    };
    let holding = |kind: ConditionType| (true, kind.as_str().to_owned(), String::new());
    for kind in [ConditionType::ValidationSucceeded, ConditionType::Ready] {
        assert_eq!(said(&snapshot, "a", kind), holding(kind));
    }
    let known = snapshot.overlays().values().next().unwrap();
    assert_eq!(known.conditions.observed_generation, Some(3));
    assert_eq!(snapshot.facts_generation(), generation, "a status is no reason to plan anew");
    assert_eq!(step_overlays(&mut snapshot, &mut memory, 60), 0, "it is written once");

    // Of equal weight the first by name is ignored.
    snapshot.put_overlay(overlay("b", 1).name, overlay("b", 1));
    assert_eq!(step_overlays(&mut snapshot, &mut memory, 61), 2, "news are written at once");
    for kind in [ConditionType::ValidationSucceeded, ConditionType::Ready] {
        let (holds, reason, message) = said(&snapshot, "a", kind);
        assert_eq!((holds, &*reason), (false, "Conflict"));
        assert!(message.contains("NodeOverlay b has the same weight and also sets price of"), "{message}");
        assert_eq!(said(&snapshot, "b", kind), holding(kind));
    }
    snapshot.remove_overlay(&overlay("b", 1).name);
    assert_eq!(step_overlays(&mut snapshot, &mut memory, 62), 1);
    assert_eq!(said(&snapshot, "a", ConditionType::Ready), holding(ConditionType::Ready));
}

#[test]
fn an_overlay_that_cannot_be_read_says_why_and_has_no_effect() {
    let mut snapshot = cluster([pool("general")]);
    let mut memory = StatusMemory::default();
    snapshot.put_overlay(overlay("a", 1).name, overlay("a", 1));
    step_overlays(&mut snapshot, &mut memory, 0);
    let Overlay { name, uid, conditions, .. } = (**snapshot.overlays().values().next().unwrap()).clone();
    let reason = Arc::from("spec.price: \"cheap\": must be USD per hour");
    let invalid = InvalidOverlay { name, uid, generation: 2, reason, status: conditions, deletion: () };
    snapshot.put_invalid_overlay(invalid);
    assert!(snapshot.overlays().is_empty(), "its last version is not used");
    assert_eq!(step_overlays(&mut snapshot, &mut memory, 1), 1);
    let known = snapshot.invalid_overlays().values().next().unwrap();
    for kind in [ConditionType::ValidationSucceeded, ConditionType::Ready] {
        let condition = known.status.get(kind).unwrap();
        assert_eq!((condition.holds, &*condition.reason), (false, "RuntimeValidation"));
        assert!(condition.message.contains("spec.price"), "{condition:?}");
    }
    assert_eq!(known.status.observed_generation, Some(2));
    snapshot.put_overlay(overlay("a", 3).name, overlay("a", 3));
    assert!(snapshot.invalid_overlays().is_empty());
}
