//! Tests of how the nodes of a deleted NodePool are taken away.

use super::outdated::two_go_after_their_replacements;
use super::*;
use crate::disruption::reconcile_pool_deletions;
use crate::fixtures::being_deleted;
use crate::model::cluster::buffer::Buffer;
use crate::model::cluster::launch_hold::LaunchHold;
use crate::model::cluster::status::PoolDeletion;
use crate::model::names::{Namespace, NodePoolName, ObjectKey, ObjectName, Uid};
use crate::model::settings::{ControllerMode, Settings};
use crate::snapshot::CommandKey;

/// So many nodes, each with a pod that needs most of it, of a NodePool that has just been deleted; and another NodePool.
fn deleted(count: usize) -> World {
    let mut world = World::new(SMALL, count);
    for n in 0..count {
        world.run_pod(&format!("p{n}"), &format!("c{n:02}"), 1_500);
    }
    world.snapshot.put_pool(other().name, other());
    world.delete_pool();
    world
}

fn other() -> NodePool {
    let requirements = [(labels::CAPACITY_TYPE, &["on-demand"][..]), (labels::INSTANCE_TYPE, &[SMALL, LARGE])];
    let mut other = NodePool { requirements: requirements_in(&requirements), ..pool("other") };
    // Here no pod is expected on the new nodes.
    other.disruption.consolidate_after = None;
    other
}

impl World {
    fn delete_pool(&mut self) {
        self.pool.deletion = being_deleted(at(self.now));
        self.snapshot.put_pool(self.pool.name.clone(), self.pool.clone());
    }

    fn pool_of(&self, draft: &ClaimDraft) -> NodePoolName {
        draft.spec.pool.clone().unwrap()
    }
}

#[test]
fn its_nodes_go_within_its_last_budget_and_nodes_of_another_pool_come_first() {
    let mut world = deleted(3);
    world.set_budget(BudgetNodes::Count(2));
    assert_eq!(world.wait(60), ["mark c00", "mark c01"]);
    assert_eq!(world.claim("c00").status.disrupted, Some(DisruptionReason::NodePoolDeleted));
    assert_eq!(world.wait(60), ["taint aks-c00", "taint aks-c01"]);
    assert_eq!(world.wait(60), [format!("create {SMALL}"), format!("create {SMALL}")]);
    assert!(world.drafts.iter().all(|draft| world.pool_of(draft) == other().name));
    two_go_after_their_replacements(&mut world, "nodepool_deleted");
}

#[test]
fn its_nodes_are_the_destination_of_no_pod() {
    let mut world = World::new(LARGE, 3);
    ["a", "b"].into_iter().zip(["c00", "c01"]).for_each(|(pod, claim)| world.run_pod(pod, claim, 500));
    world.snapshot.put_pool(other().name, other());
    world.delete_pool();
    // Each pod would fit on the node of the other, and both on the empty one.
    let done = world.all(120);
    assert_eq!(done[0], "nodepool_deleted c02", "the empty one first: {done:?}");
    assert_eq!(done.iter().filter(|step| step.starts_with("create")).count(), world.drafts.len());
    assert!(!world.drafts.is_empty() && world.drafts.iter().all(|draft| world.pool_of(draft) == other().name));
    assert!(!done.contains(&"nodepool_deleted c00".to_owned()), "{done:?}");
    let kept = world.node("c00");
    assert!(kept.is_tainted(labels::TAINT_DISRUPTED) || kept.taints.contains(&Taint::underutilized()));
}

#[test]
fn pods_move_to_nodes_of_other_pools_that_have_room() {
    let mut world = World::new(LARGE, 1);
    world.run_pod("a", "c00", 500);
    let (claim, node) = managed("o00", &other(), offering(LARGE, 1, OnDemand));
    let busy = running("busy", &Arc::new(shape("busy", 12_000, 1)), &node);
    put(&mut world.snapshot, (claim, node));
    world.snapshot.put_pod(busy);
    world.snapshot.put_pool(other().name, other());
    world.delete_pool();
    assert_eq!(world.all(60), ["nodepool_deleted c00"]);
    assert!(world.drafts.is_empty());
}

#[test]
fn what_can_be_scheduled_nowhere_else_keeps_its_node_and_is_told() {
    let mut world = deleted(2);
    world.snapshot.remove_pool(&other().name);
    assert_eq!(world.all(900), Vec::<String>::new());
    let kept = world.memory.irreplaceable();
    assert_eq!(kept.len(), 2, "{kept:?}");
    let why = &kept[&ClaimName::new("c00").unwrap()].to_string();
    assert!(why.starts_with("pod default/p0 can be scheduled nowhere else: "), "{why}");
    assert!(why.contains("it is being deleted"), "{why}");
    // It goes once there is another NodePool.
    world.snapshot.put_pool(other().name, other());
    assert_eq!(world.wait(600), ["mark c00", "mark c01"]);
    assert!(world.memory.irreplaceable().is_empty());
}

impl World {
    /// A chunk of a CapacityBuffer, of so many thousandths of a core.
    fn put_chunk(&mut self, cpu: i64) {
        let key = ObjectKey { namespace: Namespace::new("shop").unwrap(), name: ObjectName::new("spare").unwrap() };
        let buffer = Buffer::new(key, &Uid::new("uid-spare").unwrap(), &shape("spare", cpu, 1), 1);
        self.snapshot.put_buffer(buffer.key.clone(), buffer);
    }

    /// A pod of so many thousandths of a core that waits for a node; none of 0.
    fn put_pending(&mut self, cpu: i64) {
        if cpu > 0 {
            self.snapshot.put_pod(crate::fixtures::pod("pending", &Arc::new(shape("pending", cpu, 1))));
        }
    }

    /// What is done in two minutes where a third NodePool has two nodes, each of which could take the pod of the other, but not
    /// much more, while no budget lets a node of the deleted one go.
    fn consolidated(&mut self) -> Vec<String> {
        let third = NodePool { name: NodePoolName::new("third").unwrap(), ..pool("third") };
        ["t00", "t01"].into_iter().for_each(|name| self.put_used(name, &third, 7_000));
        self.snapshot.put_pool(third.name.clone(), third);
        self.pool.disruption.budgets = vec![Budget { nodes: BudgetNodes::Count(0), reasons: None, window: None }];
        self.delete_pool();
        self.all(120)
    }

    /// A node of a NodePool with a pod of so many thousandths of a core.
    fn put_used(&mut self, name: &str, pool: &NodePool, cpu: i64) {
        let (mut claim, node) = managed(name, pool, offering(LARGE, 1, OnDemand));
        (claim.created_at, claim.status.initialized) = (at(-86_460), Some(at(-86_400)));
        let pod = running(&format!("of-{name}"), &Arc::new(shape(&format!("of-{name}"), cpu, 1)), &node);
        put(&mut self.snapshot, (claim, node));
        self.snapshot.put_pod(pod);
    }
}

/// Pods that wait: none, one for which there is room everywhere, and one that only the deleted NodePool has room for.
const PENDING_CPU: [i64; 3] = [0, 100, 11_000];

/// What only the deleted NodePool has room for, and what another would be launched for.
#[test]
fn capacity_of_buffers_on_its_nodes_keeps_no_node() {
    for (sizes, pending) in [&[SMALL][..], &[SMALL, LARGE]].into_iter().flat_map(|s| PENDING_CPU.map(|cpu| (s, cpu))) {
        let mut world = World::new(LARGE, 2);
        world.run_pod("a", "c00", 500);
        world.put_chunk(10_000);
        world.put_pending(pending);
        let requirements = [(labels::CAPACITY_TYPE, &["on-demand"][..]), (labels::INSTANCE_TYPE, sizes)];
        let other = NodePool { requirements: requirements_in(&requirements), ..other() };
        world.put_used("o00", &other, 12_000);
        world.snapshot.put_pool(other.name.clone(), other);
        world.delete_pool();
        let mut done = world.all(60);
        // Where another can be launched for it, that comes first.
        world.initialize_all();
        done.extend(world.all(60));
        done.retain(|step| step.starts_with("nodepool_deleted"));
        done.sort();
        assert_eq!(done, ["nodepool_deleted c00", "nodepool_deleted c01"], "{sizes:?}, {pending}");
    }
}

#[test]
fn capacity_of_buffers_on_its_nodes_stops_no_consolidation() {
    for pending in PENDING_CPU {
        let mut world = World::new(LARGE, 1);
        world.put_chunk(10_000);
        world.put_pending(pending);
        let done = world.consolidated();
        assert!(done.iter().any(|step| step.starts_with("underutilized t0")), "{pending}: {done:?}");
    }
}

/// A pod that keeps a node from going has room on another node of the deleted NodePool alone.
#[test]
fn a_pod_of_a_node_that_is_going_stops_no_consolidation() {
    let mut world = World::new(LARGE, 2);
    world.run_pod("held", "c01", 11_000);
    let going = Claim { deleting_at: Some(at(-600)), ..world.claim("c01") };
    world.snapshot.put_claim(going);
    let done = world.consolidated();
    assert!(done.iter().any(|step| step.starts_with("underutilized t0")), "{done:?}");
}

/// A pod of a node that is going has room on nodes that stay: there it is counted, since kube-scheduler prefers these to nodes of
/// deleted NodePools.
#[test]
fn room_on_other_nodes_is_kept_for_the_pods_of_a_node_that_is_going() {
    for (cpu, moves) in [(1_000, true), (3_000, false)] {
        let mut world = World::new(LARGE, 2);
        world.run_pod("held", "c01", cpu);
        let going = Claim { deleting_at: Some(at(-600)), ..world.claim("c01") };
        world.snapshot.put_claim(going);
        let done = world.consolidated();
        assert_eq!(done.iter().any(|step| step.starts_with("underutilized t0")), moves, "{cpu}: {done:?}");
    }
}

/// What is disrupted then might be what it gets.
#[test]
fn a_pod_that_waits_for_a_new_node_stops_consolidation() {
    let mut world = World::new(LARGE, 1);
    world.put_pending(11_000);
    world.run_pod("busy", "c00", 10_000);
    assert_eq!(world.consolidated(), Vec::<String>::new());
}

/// Something that holds a deletion.
type Hold = fn(&mut World);

#[test]
fn budgets_pauses_and_pods_keep_it_and_maintenance_windows_do_not() {
    let paused = |key: &str| Pause::read([(key, Some("true"))]).0;
    let held: [(&str, Hold); 4] = [
        ("a budget", |world| world.set_budget(BudgetNodes::Count(0))),
        ("a node", |world| {
            let node = world.node("c00");
            world.snapshot.put_node(Node { do_not_disrupt: true, ..node });
        }),
        ("a pod", |world| {
            let pod = Pod::clone(world.snapshot.pods().values().next().unwrap());
            world.snapshot.put_pod(Pod { do_not_disrupt: Some(DoNotDisrupt::Always), ..pod });
        }),
        ("a PodDisruptionBudget", |world| {
            let budget = disruption_budget("p0", 0);
            world.snapshot.put_disruption_budget(budget.key.clone(), budget);
        }),
    ];
    for (what, hold) in held {
        let mut world = deleted(1);
        hold(&mut world);
        assert_eq!(world.all(120), Vec::<String>::new(), "{what}");
    }
    for (key, is_held) in [
        ("disrupt", true),
        ("disrupt.reason.Drifted", true),
        ("disrupt.nodepool.general", true),
        ("disrupt.reason.Empty", false),
        ("disrupt.nodepool.other", false),
    ] {
        let mut world = deleted(1);
        world.snapshot.pause = paused(key);
        assert_eq!(world.all(120).is_empty(), is_held, "{key}");
    }
    // As with drift, a termination grace period ends the drain whatever pods say.
    let mut world = deleted(1);
    let pod = Pod::clone(world.snapshot.pods().values().next().unwrap());
    world.snapshot.put_pod(Pod { do_not_disrupt: Some(DoNotDisrupt::Always), ..pod });
    let mut claim = world.claim("c00");
    claim.spec.termination_grace_period = Some(SignedDuration::from_hours(1));
    world.snapshot.put_claim(claim);
    assert!(!world.all(120).is_empty());
}

#[test]
fn a_pool_of_fixed_size_is_handed_over_likewise() {
    let mut world = deleted(2);
    world.pool.replicas = Some(2);
    world.set_budget(BudgetNodes::Count(1));
    assert_eq!(world.all(60), ["mark c00".to_owned(), "taint aks-c00".to_owned(), format!("create {SMALL}")]);
    assert_eq!(world.pool_of(&world.drafts[0]), other().name);
}

#[test]
fn no_pod_goes_from_one_deleted_pool_to_another() {
    let mut world = deleted(1);
    let (claim, node) = managed("o00", &other(), offering(LARGE, 1, OnDemand));
    put(&mut world.snapshot, (claim, node));
    let gone = NodePool { deletion: being_deleted(at(0)), ..other() };
    world.snapshot.put_pool(gone.name.clone(), gone);
    assert_eq!(world.all(60), ["nodepool_deleted o00"], "the empty one only");
}

#[test]
fn one_that_is_orphaned_keeps_its_nodes() {
    let mut world = deleted(2);
    world.pool.deletion.keeps_nodes = true;
    world.snapshot.put_pool(world.pool.name.clone(), world.pool.clone());
    assert_eq!(world.all(120), Vec::<String>::new());
}

/// Somebody removes the finalizer, or chooses to keep the nodes, while replacements come up.
#[test]
fn a_move_is_given_up_once_the_nodes_are_to_be_kept() {
    let keep: [fn(&mut World); 2] = [
        |world| world.snapshot.remove_pool(&pool("general").name),
        |world| {
            world.pool.deletion.keeps_nodes = true;
            world.snapshot.put_pool(world.pool.name.clone(), world.pool.clone());
        },
    ];
    for keep in keep {
        let mut world = deleted(1);
        assert_eq!(world.all(60), ["mark c00".to_owned(), "taint aks-c00".to_owned(), format!("create {SMALL}")]);
        keep(&mut world);
        world.restart();
        world.initialize_all();
        let done = world.all(300);
        assert_eq!(done[..2], ["untaint aks-c00", "unmark c00"]);
        assert!(!done.iter().any(|step| step.starts_with("nodepool_deleted")), "{done:?}");
    }
}

#[test]
fn only_our_nodes_are_tainted_and_not_during_a_pause() {
    let mut world = deleted(2);
    world.set_budget(BudgetNodes::Count(0));
    let foreign = Claim { intent: None, ..world.claim("c01") };
    world.snapshot.put_claim(Claim { spec: ClaimSpec { planned: Vec::new(), ..foreign.spec }, ..foreign });
    assert!(!world.claim("c01").is_ours());
    world.snapshot.pause = Pause::read([("disrupt.nodepool.general", Some("true"))]).0;
    world.all(60);
    assert!(world.soft_tainted().is_empty());
    world.snapshot.pause = Pause::default();
    world.all(60);
    assert_eq!(world.soft_tainted(), ["aks-c00"]);
}

#[test]
fn a_restart_at_any_step_goes_on() {
    for restart_after in 0..5 {
        let mut world = deleted(1);
        let mut steps: Vec<String> = (0..restart_after).flat_map(|_| world.wait(60)).collect();
        world.restart();
        steps.extend(world.all(200));
        let creations = steps.iter().filter(|step| step.starts_with("create")).count();
        assert_eq!(creations, 1, "after {restart_after} steps: {steps:?}");
        world.initialize_all();
        assert_eq!(world.wait(60), ["nodepool_deleted c00"], "after {restart_after} steps: {steps:?}");
    }
}

/// What is decided about NodePools and NodeClaims without nodes, in words.
fn reconciled(snapshot: &Snapshot) -> Vec<String> {
    let plan = reconcile_pool_deletions(snapshot, &settings(), at(1));
    let words = |command: Command| match command {
        Command::HoldPool { pool, .. } => format!("hold {pool}"),
        Command::ReleasePool(release) => {
            format!("release {}{}", release.pool, if release.keeps_nodes { " alone" } else { "" })
        }
        Command::DisownClaim { claim } => format!("disown {}", claim.name),
        Command::DeleteClaim { claim, category, .. } => format!("{category} {}", claim.name),
        other => panic!("unexpected {other:?}"),
    };
    plan.commands.into_iter().map(|planned| words(planned.command)).collect()
}

#[test]
fn a_pool_is_held_until_its_last_claim_is_gone() {
    let unheld = NodePool { deletion: PoolDeletion::default(), ..pool("general") };
    let mut snapshot = cluster([unheld.clone()]);
    assert_eq!(reconciled(&snapshot), ["hold general"]);
    snapshot.launch_hold = Some(LaunchHold::GroupUnread { group: settings().cluster.node_resource_group });
    assert_eq!(reconciled(&snapshot), [""; 0], "it may be another Karpenter's");
    snapshot.launch_hold = None;
    snapshot.in_progress.insert(CommandKey::Pool(unheld.name.clone()));
    assert_eq!(reconciled(&snapshot), [""; 0]);
    snapshot.in_progress.clear();
    let companion = Settings { mode: ControllerMode::Companion, ..settings() };
    assert!(reconcile_pool_deletions(&snapshot, &companion, at(1)).commands.is_empty());

    snapshot.put_pool(unheld.name.clone(), pool("general"));
    assert_eq!(reconciled(&snapshot), [""; 0]);
    let (claim, node) = managed("general-bcdfg", &pool("general"), offering(SMALL, 1, OnDemand));
    put(&mut snapshot, (Claim { deleting_at: Some(at(0)), ..claim.clone() }, node));
    let gone = NodePool { deletion: being_deleted(at(0)), ..pool("general") };
    snapshot.put_pool(gone.name.clone(), gone.clone());
    assert_eq!(reconciled(&snapshot), [""; 0], "a NodeClaim is still going");
    snapshot.remove_claim(&claim.name);
    snapshot.in_progress.insert(CommandKey::Claim(ClaimName::new("general-hjklm").unwrap()));
    assert_eq!(reconciled(&snapshot), [""; 0], "one may be created right now");
    snapshot.in_progress = [CommandKey::Claim(ClaimName::new("general-gpu-hjklm").unwrap())].into();
    assert_eq!(reconciled(&snapshot), ["release general"], "that is one of another NodePool");
    snapshot.remove_pool(&gone.name);
    let orphaning = NodePool { deletion: PoolDeletion { keeps_nodes: true, ..gone.deletion }, ..gone.clone() };
    snapshot.put_claim(claim);
    snapshot.put_pool(gone.name.clone(), orphaning);
    assert_eq!(reconciled(&snapshot), ["release general alone"]);
    // Kubernetes has removed its own finalizer by then.
    snapshot.put_pool(gone.name.clone(), gone);
    assert_eq!(reconciled(&snapshot), ["release general alone"]);
}

#[test]
fn claims_without_a_node_go_at_once_and_no_pool_owns_one() {
    let mut snapshot = cluster([pool("general")]);
    let (node_claim, node) = managed("general-bcdfg", &pool("general"), offering(SMALL, 1, OnDemand));
    put(&mut snapshot, (Claim { owned_by_pool: true, ..node_claim }, node));
    let pending = crate::fixtures::claim("general-hjklm", &pool("general"), vec![offering(SMALL, 1, OnDemand)]);
    snapshot.put_claim(pending);
    assert_eq!(reconciled(&snapshot), ["disown general-bcdfg"]);
    let gone = NodePool { deletion: being_deleted(at(0)), ..pool("general") };
    snapshot.put_pool(gone.name.clone(), gone);
    assert_eq!(reconciled(&snapshot), ["disown general-bcdfg", "nodepool_deleted general-hjklm"]);
    snapshot.pause = Pause::of([PauseSwitch::Disrupt]);
    assert_eq!(reconciled(&snapshot), ["disown general-bcdfg"]);
    // Until the finalizer holds the NodePool, the owner does.
    let unheld = NodePool { deletion: PoolDeletion::default(), ..pool("general") };
    snapshot.put_pool(unheld.name.clone(), unheld);
    assert_eq!(reconciled(&snapshot), ["hold general"]);
}
