//! Tests of moves: what is disrupted together, in which steps, and how it ends after failures and restarts.

use super::super::{DisruptionMemory, disrupt};
use crate::catalog::CapacityType::OnDemand;
use crate::fixtures::{
    at, cluster, disruption_budget, managed, node, offering, pool, put, requirements_in, running, settings, shape,
    start,
};
use crate::model::cluster::claim::{Claim, LaunchFailure};
use crate::model::cluster::disruption_budget::PodDisruptionBudget;
use crate::model::cluster::node::Node;
use crate::model::cluster::pod::{DoNotDisrupt, HostPort, Pod, PodShape, Taint};
use crate::model::cluster::pool::{Budget, BudgetNodes, ConsolidationPolicy, NodePool};
use crate::model::labels;
use crate::model::names::{ClaimName, NodeName};
use crate::model::settings::{Pause, PauseSwitch};
use crate::plan::{ClaimDraft, ClaimUpdate, Command, NodeUpdate};
use crate::provisioning::ProvisionMemory;
use crate::snapshot::Snapshot;
use jiff::SignedDuration;
use std::sync::Arc;

const SMALL: &str = "Standard_D2s_v5";
const MEDIUM: &str = "Standard_D8s_v5";
const LARGE: &str = "Standard_D16s_v5";

/// A cluster whose watch shows each write at once. VMs are created, and nodes drained, when a test says so.
struct World {
    snapshot: Snapshot,
    memory: DisruptionMemory,
    pool: NodePool,
    now: i64,
    /// What was created, by name.
    drafts: Vec<ClaimDraft>,
}

impl World {
    /// Nodes `c00` and so on of one size, on demand, in a pool of on-demand nodes.
    fn new(size: &str, count: usize) -> Self {
        Self::of_sizes(&[SMALL, MEDIUM, LARGE], size, count)
    }

    /// The same in a pool of some sizes.
    fn of_sizes(sizes: &[&str], size: &str, count: usize) -> Self {
        let requirements = [(labels::CAPACITY_TYPE, &["on-demand"][..]), (labels::INSTANCE_TYPE, sizes)];
        let pool = NodePool { requirements: requirements_in(&requirements), ..pool("general") };
        let snapshot = cluster([pool.clone()]);
        let mut world = Self { snapshot, memory: DisruptionMemory::default(), pool, now: 0, drafts: Vec::new() };
        for n in 0..count {
            let (mut claim, node) = managed(&format!("c{n:02}"), &world.pool, offering(size, 1, OnDemand));
            (claim.created_at, claim.status.initialized) = (at(-3660), Some(at(-3600)));
            put(&mut world.snapshot, (claim, node));
        }
        world
    }

    fn node(&self, claim: &str) -> Node {
        let claim = &self.snapshot.claims().get(&ClaimName::new(claim).unwrap()).unwrap();
        Node::clone(self.snapshot.node_by_provider_id(claim.status.provider_id.as_ref().unwrap()).unwrap())
    }

    fn claim(&self, name: &str) -> Claim {
        Claim::clone(self.snapshot.claims().get(&ClaimName::new(name).unwrap()).unwrap())
    }

    /// A pod of so many thousandths of a core on the node of a NodeClaim.
    fn run_pod(&mut self, name: &str, claim: &str, cpu: i64) {
        let pod = running(name, &Arc::new(shape(name, cpu, 1)), &self.node(claim));
        self.snapshot.put_pod(pod);
    }

    fn set_budget(&mut self, nodes: BudgetNodes) {
        self.pool.disruption.budgets = vec![Budget { nodes, reasons: None, window: None }];
        self.snapshot.put_pool(self.pool.name.clone(), self.pool.clone());
    }

    /// Decides once, and performs all writes; in words. Those of soft taints are not told.
    fn decide(&mut self) -> Vec<String> {
        let provision = ProvisionMemory::default();
        let plan = disrupt(&self.snapshot, &mut self.memory, &provision, &settings(), at(self.now), 1);
        plan.commands.into_iter().filter_map(|planned| self.perform(planned.command)).collect()
    }

    fn perform(&mut self, command: Command) -> Option<String> {
        Some(match command {
            Command::DeleteClaim { claim, category } => {
                let deleting = Claim { deleting_at: Some(at(self.now)), ..self.claim(claim.name.as_str()) };
                self.snapshot.put_claim(deleting);
                format!("{category} {}", claim.name)
            }
            Command::CreateClaim(draft) => {
                let size = draft.spec.planned[0].key.size.to_string();
                let created = crate::fixtures::claim(draft.name.as_str(), &self.pool, Vec::new());
                self.snapshot.put_claim(Claim { spec: draft.spec.clone(), ..created });
                self.drafts.push(*draft);
                format!("create {size}")
            }
            Command::UpdateClaim { claim, update } => {
                let mut updated = self.claim(claim.name.as_str());
                updated.status.disrupted = match update {
                    ClaimUpdate::Disrupted(reason) => Some(reason),
                    ClaimUpdate::NotDisrupted => None,
                    other => panic!("unexpected {other:?}"),
                };
                let word = if updated.status.disrupted.is_some() { "mark" } else { "unmark" };
                self.snapshot.put_claim(updated);
                format!("{word} {}", claim.name)
            }
            Command::UpdateNode { node, update, .. } => {
                let mut updated = Node::clone(self.snapshot.nodes().get(&node).unwrap());
                let (taint, word) = match update {
                    NodeUpdate::AddTaint(taint) => (taint, "taint"),
                    NodeUpdate::RemoveTaint(taint) => (taint, "untaint"),
                    other => panic!("unexpected {other:?}"),
                };
                assert!([Taint::disrupted(), Taint::underutilized()].contains(&taint), "{taint:?}");
                updated.taints.retain(|other| *other != taint);
                updated.taints.extend((word == "taint").then(|| taint.clone()));
                self.snapshot.put_node(updated);
                return (taint == Taint::disrupted()).then(|| format!("{word} {node}"));
            }
            other => panic!("unexpected {other:?}"),
        })
    }

    /// The nodes with the soft taint.
    fn soft_tainted(&self) -> Vec<&str> {
        let nodes = self.snapshot.nodes().values();
        nodes.filter(|node| node.taints.contains(&Taint::underutilized())).map(|node| node.name.as_str()).collect()
    }

    /// Decides every five seconds, until something is done or the time is over; in words.
    fn wait(&mut self, seconds: i64) -> Vec<String> {
        let end = self.now + seconds;
        while self.now < end {
            let done = self.decide();
            self.now += 5;
            if !done.is_empty() {
                return done;
            }
        }
        Vec::new()
    }

    /// All that is done within a time.
    fn all(&mut self, seconds: i64) -> Vec<String> {
        let end = self.now + seconds;
        std::iter::from_fn(|| (self.now < end).then(|| self.wait(end - self.now))).flatten().collect()
    }

    /// The VM of a draft runs, and its node is ready for pods.
    fn initialize(&mut self, draft: &ClaimDraft) {
        let (ready, node) = managed(draft.name.as_str(), &self.pool, draft.spec.planned[0].clone());
        let spec = draft.spec.clone();
        put(&mut self.snapshot, (Claim { spec, ..ready }, node));
    }

    /// The process starts again.
    fn restart(&mut self) {
        self.memory = DisruptionMemory::default();
    }
}

/// One large node with a small pod, which a small node can replace.
fn oversized() -> World {
    let mut world = World::new(LARGE, 1);
    world.run_pod("p", "c00", 500);
    world
}

#[test]
fn a_node_is_marked_before_its_replacement_is_created_and_deleted_after_it_is_ready() {
    let mut world = oversized();
    assert_eq!(world.wait(60), ["mark c00"]);
    assert_eq!(world.now, 20, "found at once, held for 15 s");
    assert_eq!(world.wait(10), ["taint aks-c00"]);
    assert_eq!(world.wait(10), [format!("create {SMALL}")]);
    let draft = world.drafts[0].clone();
    assert_eq!(draft.spec.replaces, [ClaimName::new("c00").unwrap()]);
    assert!(draft.spec.planned.iter().all(|o| o.price < offering(LARGE, 1, OnDemand).price));
    assert!(world.wait(120).is_empty(), "it waits for the replacement");
    world.initialize(&draft);
    assert_eq!(world.wait(10), ["underutilized c00"]);
}

#[test]
fn a_replacement_that_fails_leaves_the_old_node_as_it_was() {
    for failure in ["it is not created", "its launch fails", "it is deleted", "it is never ready"] {
        let mut world = oversized();
        let steps: Vec<String> = (0..3).flat_map(|_| world.wait(60)).collect();
        assert_eq!(steps.len(), 3, "{steps:?}");
        let name = world.drafts[0].name.clone();
        let claim = world.claim(name.as_str());
        let seconds = match failure {
            "it is not created" => {
                world.snapshot.remove_claim(&name);
                70
            }
            "its launch fails" => {
                let mut failed = claim;
                failed.status.launch_failed =
                    Some(LaunchFailure { at: start(), code: Arc::from("sku_not_available"), message: Arc::from("no") });
                world.snapshot.put_claim(failed);
                10
            }
            "it is deleted" => {
                world.snapshot.put_claim(Claim { deleting_at: Some(start()), ..claim });
                10
            }
            _ => 21 * 60,
        };
        assert_eq!(world.wait(seconds), ["untaint aks-c00"], "{failure}");
        assert!(world.wait(55).is_empty(), "{failure}: a taint may still appear");
        assert_eq!(world.wait(20), ["unmark c00"], "{failure}");
        assert!(world.node("c00").taints.is_empty() && world.claim("c00").deleting_at.is_none());
    }
}

#[test]
fn a_move_goes_on_after_a_restart_at_any_step() {
    for restart_after in 0..4 {
        let mut world = oversized();
        let mut steps = Vec::new();
        for _ in 0..restart_after {
            steps.extend(world.wait(60));
        }
        world.restart();
        while world.drafts.is_empty() || world.now < 300 {
            let done = world.wait(90);
            if done.is_empty() {
                break;
            }
            steps.extend(done);
        }
        let creations = steps.iter().filter(|step| step.starts_with("create")).count();
        assert_eq!(creations, 1, "after {restart_after} steps: {steps:?}");
        let draft = world.drafts[0].clone();
        world.initialize(&draft);
        assert_eq!(world.wait(60), ["underutilized c00"], "after {restart_after} steps: {steps:?}");
    }
}

#[test]
fn marks_without_a_move_are_removed_after_a_restart() {
    let mut world = oversized();
    assert_eq!([world.wait(60), world.wait(10)].concat(), ["mark c00", "taint aks-c00"]);
    // The pod may not be moved any more, so that no new move begins.
    let pod = Pod::clone(world.snapshot.pods().values().next().unwrap());
    world.snapshot.put_pod(Pod { do_not_disrupt: Some(DoNotDisrupt::Always), ..pod });
    world.restart();
    assert_eq!(world.all(90), ["untaint aks-c00", "unmark c00"]);
}

#[test]
fn a_taint_that_an_earlier_run_has_requested_is_removed_too() {
    let mut world = oversized();
    assert_eq!(world.wait(60), ["mark c00"]);
    let pod = Pod::clone(world.snapshot.pods().values().next().unwrap());
    world.snapshot.put_pod(Pod { do_not_disrupt: Some(DoNotDisrupt::Always), ..pod });
    world.restart();
    assert!(world.all(30).is_empty(), "the taint may be on its way");
    let tainted = Node { taints: vec![Taint::disrupted()], ..world.node("c00") };
    world.snapshot.put_node(tainted);
    assert_eq!(world.all(90), ["untaint aks-c00", "unmark c00"]);
}

#[test]
fn marks_that_an_earlier_run_has_removed_late_are_renewed() {
    let mut world = oversized();
    assert_eq!((0..3).flat_map(|_| world.wait(60)).count(), 3);
    let mut claim = world.claim("c00");
    claim.status.disrupted = None;
    world.snapshot.put_claim(claim);
    let untainted = Node { taints: Vec::new(), ..world.node("c00") };
    world.snapshot.put_node(untainted);
    assert_eq!([world.wait(10), world.wait(10)].concat(), ["mark c00", "taint aks-c00"]);
    let draft = world.drafts[0].clone();
    world.initialize(&draft);
    assert_eq!(world.wait(10), ["underutilized c00"]);
}

#[test]
fn what_others_have_tainted_stays_tainted() {
    let mut world = oversized();
    let tainted = Node { taints: vec![Taint::disrupted()], ..world.node("c00") };
    world.snapshot.put_node(tainted);
    let done = world.all(15);
    assert!(done.is_empty(), "{done:?}");
}

#[test]
fn many_nodes_are_replaced_at_once() {
    let mut world = World::new(LARGE, 30);
    let port = HostPort { port: 80, protocol: Arc::from("TCP"), address: None };
    let alone = Arc::new(PodShape { ports: vec![port], ..shape("alone", 500, 1) });
    for n in 0..30 {
        let pod = running(&format!("p{n:02}"), &alone, &world.node(&format!("c{n:02}")));
        world.snapshot.put_pod(pod);
    }
    let done = world.all(60);
    assert_eq!(done.iter().filter(|step| step.starts_with("mark")).count(), 30, "{done:?}");
    let drafts = world.drafts.clone();
    assert_eq!(drafts.len(), 30);
    drafts.iter().for_each(|draft| world.initialize(draft));
    let done = world.all(60);
    assert_eq!(done.iter().filter(|step| step.starts_with("underutilized")).count(), 30, "{done:?}");
}

#[test]
fn nodes_whose_pods_fit_on_others_go_together_within_the_budget() {
    for (budget, expected) in
        [(BudgetNodes::Percent(100), 10), (BudgetNodes::Count(4), 4), (BudgetNodes::Percent(10), 2)]
    {
        let mut world = World::of_sizes(&[MEDIUM], MEDIUM, 20);
        for n in 0..20 {
            world.run_pod(&format!("p{n:02}"), &format!("c{n:02}"), 3_800);
        }
        world.set_budget(budget);
        let done = world.wait(60);
        assert_eq!(done.len(), expected, "{budget:?}: {done:?}");
        assert!(done.iter().all(|step| step.starts_with("underutilized")), "{done:?}");
    }
}

#[test]
fn nodes_that_wait_for_a_budget_are_avoided_until_their_pods_have_no_room_elsewhere() {
    let mut world = World::of_sizes(&[MEDIUM], MEDIUM, 6);
    for n in 0..6 {
        world.run_pod(&format!("p{n}"), &format!("c{n:02}"), 3_800);
    }
    world.set_budget(BudgetNodes::Count(1));
    assert!(world.wait(10).is_empty());
    assert_eq!(world.soft_tainted().len(), 3, "half of them are needed");
    assert_eq!(world.wait(60).len(), 1, "as the budget allows");
    // Load rises on those that were to stay.
    let kept: Vec<Node> = world.snapshot.nodes().values().map(|node| Node::clone(node)).collect();
    for (n, host) in kept.iter().filter(|node| !node.taints.contains(&Taint::underutilized())).enumerate() {
        world.snapshot.put_pod(running(&format!("more{n}"), &Arc::new(shape("more", 3_800, 1)), host));
    }
    world.wait(120);
    assert!(world.soft_tainted().len() < 2, "{:?}", world.soft_tainted());
}

#[test]
fn nodes_that_have_changed_lately_are_avoided_and_deleted_after_consolidate_after() {
    let mut world = World::of_sizes(&[MEDIUM], MEDIUM, 2);
    world.pool.disruption.consolidate_after = Some(SignedDuration::from_mins(30));
    world.snapshot.put_pool(world.pool.name.clone(), world.pool.clone());
    for n in 0..2 {
        world.run_pod(&format!("p{n}"), &format!("c{n:02}"), 2_000);
        let mut claim = world.claim(&format!("c{n:02}"));
        claim.status.last_pod_event = Some(at(0));
        world.snapshot.put_claim(claim);
    }
    assert!(world.wait(1_700).is_empty());
    assert_eq!(world.soft_tainted().len(), 1);
    let soft = world.soft_tainted()[0].to_owned();
    assert!(world.wait(300).iter().any(|step| step.starts_with("underutilized")), "nothing else has changed");
    assert_eq!(world.soft_tainted(), [soft]);
}

#[test]
fn one_blocking_budget_does_not_hold_up_the_rest() {
    let mut world = World::of_sizes(&[MEDIUM], MEDIUM, 4);
    for n in 0..4 {
        world.run_pod(&format!("p{n}"), &format!("c{n:02}"), 3_800);
    }
    let blocking = PodDisruptionBudget { is_fully_blocking: true, ..disruption_budget("p0", 0) };
    world.snapshot.put_disruption_budget(blocking.key.clone(), blocking);
    // A drain that another such budget holds up.
    world.run_pod("stuck", "c03", 100);
    let stuck = PodDisruptionBudget { is_fully_blocking: true, ..disruption_budget("stuck", 0) };
    world.snapshot.put_disruption_budget(stuck.key.clone(), stuck);
    let draining = Claim { deleting_at: Some(start()), ..world.claim("c03") };
    world.snapshot.put_claim(draining);
    world.snapshot.put_node(Node { taints: vec![Taint::disrupted()], ..world.node("c03") });
    let done = world.wait(60);
    assert_eq!(done.len(), 1, "{done:?}");
    assert!(done[0] == "underutilized c01" || done[0] == "underutilized c02", "{done:?}");
}

#[test]
fn pods_that_arrive_at_the_destination_meanwhile_drop_a_move() {
    let mut world = World::of_sizes(&[MEDIUM], MEDIUM, 1);
    world.run_pod("p", "c00", 6_000);
    let host = node("unmanaged", 2, 8);
    world.snapshot.put_node(host.clone());
    assert!(world.decide().is_empty(), "found");
    world.now = 10;
    world.snapshot.put_pod(running("other", &Arc::new(shape("other", 6_000, 1)), &host));
    assert!(world.all(60).is_empty());
}

#[test]
fn nodes_that_none_alone_can_be_replaced_are_replaced_by_one_together() {
    let mut world = World::new(MEDIUM, 3);
    for n in 0..3 {
        world.run_pod(&format!("p{n}"), &format!("c{n:02}"), 5_000);
    }
    let done = world.all(60);
    assert_eq!(done.iter().filter(|step| step.starts_with("mark")).count(), 3, "{done:?}");
    assert_eq!(done.last().map(String::as_str), Some("create Standard_D16s_v5"), "{done:?}");
    assert_eq!(world.drafts[0].spec.replaces.len(), 3);
    // Whichever offering Azure has, it costs less than the three.
    let paid = offering(MEDIUM, 1, OnDemand).price * 3;
    assert!(world.drafts[0].spec.planned.iter().all(|offering| offering.price < paid));
}

#[test]
fn what_another_node_of_the_same_offering_would_replace_stays() {
    let mut world = World::of_sizes(&[MEDIUM], MEDIUM, 3);
    for n in 0..3 {
        world.run_pod(&format!("p{n}"), &format!("c{n:02}"), 5_000);
    }
    assert!(world.all(60).is_empty());
}

#[test]
fn nothing_moves_while_pods_wait_for_a_node_to_be_launched() {
    let mut world = oversized();
    let big = Arc::new(shape("big", 15_000, 1));
    let waits = crate::fixtures::pod("waits", &big);
    world.snapshot.put_pod(running("q", &big, &world.node("c00")));
    world.snapshot.remove_pod(&running("p", &big, &world.node("c00")).key);
    world.snapshot.put_pod(waits.clone());
    assert!(world.all(60).is_empty());
}

#[test]
fn what_was_found_is_not_forgotten_while_pods_wait_for_a_node() {
    let mut world = World::of_sizes(&[MEDIUM], MEDIUM, 2);
    for n in 0..2 {
        world.run_pod(&format!("p{n}"), &format!("c{n:02}"), 2_000);
    }
    assert!(world.decide().is_empty(), "found");
    let waits = crate::fixtures::pod("waits", &Arc::new(shape("big", 7_000, 1)));
    world.snapshot.put_pod(waits.clone());
    world.now = 5;
    assert!(world.all(30).is_empty());
    world.snapshot.remove_pod(&waits.key);
    assert_eq!(world.wait(15).len(), 1);
}

#[test]
fn what_may_soon_change_again_is_sat_out() {
    // How long nothing must have changed before a node with one pod of so many thousandths of a core is removed: 3 min of
    // what the pod pays; and 3 min of the replacement's price, in relation to what it saves.
    for (cpu, is_alone, expected) in [(400, false, 37), (1_800, false, 170), (500, true, 38)] {
        let mut world = World::new(if is_alone { LARGE } else { SMALL }, 1);
        world.run_pod("p", "c00", cpu);
        if !is_alone {
            world.snapshot.put_node(node("unmanaged", 2, 4));
        }
        let mut claim = world.claim("c00");
        claim.status.last_pod_event = Some(at(0));
        world.snapshot.put_claim(claim);
        let done = world.wait(600);
        assert_eq!(done.len(), 1, "{done:?}");
        // A replacement must hold for 15 s; it is looked for every 10 s at the least, or after a quarter of the time.
        let found = world.now - 5 - if is_alone { 15 } else { 0 };
        assert!(
            (expected..expected + 10.max(expected / 4)).contains(&found),
            "{cpu}m: found after {found} s: {done:?}"
        );
    }
}

#[test]
fn a_node_stays_where_kube_scheduler_would_leave_one_of_its_pods_without_room() {
    // Each pod fits on one of the hosts. But the small one is likely to go to the emptier host, and then the large one has
    // room only if that host has some left.
    for (free_on_emptier, removed) in [(3_100, false), (3_600, true)] {
        let mut world = World::of_sizes(&[MEDIUM], MEDIUM, 1);
        world.run_pod("large", "c00", 3_000);
        world.run_pod("small", "c00", 500);
        for (name, free) in [("host-a", free_on_emptier), ("host-b", 600)] {
            let host = node(name, 2, 8);
            world.snapshot.put_pod(running(&format!("of-{name}"), &Arc::new(shape("other", 8_000 - free, 1)), &host));
            world.snapshot.put_node(host);
        }
        let done = world.wait(60);
        assert_eq!(!done.is_empty(), removed, "{done:?}");
    }
}

#[test]
fn a_source_that_must_not_be_disrupted_any_more_waits_for_that() {
    let mut world = oversized();
    (0..3).for_each(|_| drop(world.wait(60)));
    let pod = Pod::clone(world.snapshot.pods().values().next().unwrap());
    world.snapshot.put_pod(Pod { do_not_disrupt: Some(DoNotDisrupt::Always), ..pod.clone() });
    let draft = world.drafts[0].clone();
    world.initialize(&draft);
    assert!(world.all(60).is_empty());
    world.snapshot.put_pod(pod);
    assert_eq!(world.wait(10), ["underutilized c00"]);
    assert!(world.snapshot.nodes().get(&NodeName::new("aks-c00").unwrap()).is_some());
}

/// A node of 8 cores with these pods, and one of 16 cores that stays, with as many pods as are said; in a pool with a policy.
fn beside_one_that_stays(policy: ConsolidationPolicy, deletion_costs: &[i32], staying: usize) -> World {
    let mut world = World::of_sizes(&[MEDIUM, LARGE], MEDIUM, 1);
    world.pool.disruption.policy = policy;
    world.snapshot.put_pool(world.pool.name.clone(), world.pool.clone());
    let (mut claim, mut node) = managed("large", &world.pool, offering(LARGE, 1, OnDemand));
    (claim.created_at, claim.status.initialized) = (at(-3660), Some(at(-3600)));
    node.do_not_disrupt = true;
    put(&mut world.snapshot, (claim, node));
    for n in 0..staying {
        world.run_pod(&format!("s{n}"), "large", 100);
    }
    let node = world.node("c00");
    for (n, deletion_cost) in deletion_costs.iter().enumerate() {
        let pod = running(&format!("p{n}"), &Arc::new(shape(&format!("p{n}"), 100, 1)), &node);
        world.snapshot.put_pod(Pod { deletion_cost: *deletion_cost, ..pod });
    }
    world
}

#[test]
fn the_policy_balanced_asks_for_a_share_of_the_cost_that_is_worth_the_share_of_pods() {
    use ConsolidationPolicy::{Balanced, WhenEmptyOrUnderutilized};
    let whole = i32::try_from(Pod::EVICTION_COST).unwrap();
    // A node of 8 cores costs a third of it and one of 16 cores. Ten pods and the node are 11 of 13 of what the pool's
    // disruption costs: the ratio is 0.4.
    for (policy, deletion_costs, staying, is_deleted) in [
        (WhenEmptyOrUnderutilized, vec![0; 10], 1, true),
        (Balanced, vec![0; 10], 1, false),
        // 2 of 11: the ratio is 1.9.
        (Balanced, vec![0], 8, true),
        // 2 of 3: the ratio is 0.51. And with a pod whose eviction costs twice as much, 3 of 4: 0.45.
        (Balanced, vec![0], 0, true),
        (Balanced, vec![whole], 0, false),
        // Ten pods that cost a fifth each are 3 of 5: 0.57.
        (Balanced, vec![-whole / 5 * 4; 10], 1, true),
    ] {
        let mut world = beside_one_that_stays(policy, &deletion_costs, staying);
        let expected: &[&str] = if is_deleted { &["underutilized c00"] } else { &[] };
        assert_eq!(world.all(600), expected, "{policy:?} {deletion_costs:?} beside {staying}");
        let is_tainted = !world.soft_tainted().is_empty();
        assert_eq!(is_tainted, is_deleted, "{policy:?} {deletion_costs:?} beside {staying}");
    }
}

#[test]
fn a_node_is_empty_if_evicting_its_pods_costs_nothing() {
    let nothing = -i32::try_from(Pod::EVICTION_COST).unwrap();
    for (deletion_costs, expected) in [(vec![nothing, nothing], &["empty c00"][..]), (vec![nothing, 0], &[])] {
        let mut world = beside_one_that_stays(ConsolidationPolicy::WhenEmpty, &deletion_costs, 1);
        assert_eq!(world.all(60), expected, "{deletion_costs:?}");
    }
}

#[test]
fn replacements_that_a_crash_has_left_incomplete_replace_nothing() {
    let mut world = World::of_sizes(&[MEDIUM, LARGE], MEDIUM, 5);
    for n in 0..10 {
        world.run_pod(&format!("p{n}"), &format!("c{:02}", n / 2), 2_900);
    }
    (0..3).for_each(|_| drop(world.wait(60)));
    let [created, missing] = &world.drafts[..] else { panic!("{:?}", world.drafts) };
    let (created, missing) = (created.clone(), missing.name.clone());
    world.snapshot.remove_claim(&missing);
    world.restart();
    assert!(world.wait(5).is_empty());
    world.initialize(&created);
    let steps = [world.wait(90), world.wait(90), world.wait(90)].concat();
    let verbs: Vec<&str> = steps.iter().filter_map(|step| step.split_once(' ')).map(|(verb, _)| verb).collect();
    assert_eq!(verbs, [vec!["untaint"; 5], vec!["empty"], vec!["unmark"; 5]].concat(), "{steps:?}");
}

#[test]
fn a_replacement_that_an_earlier_run_has_requested_takes_the_place_of_a_new_one() {
    let mut world = oversized();
    assert_eq!([world.wait(60), world.wait(10)].concat(), ["mark c00", "taint aks-c00"]);
    let mut late = crate::fixtures::claim("late", &world.pool, vec![offering(SMALL, 1, OnDemand)]);
    (late.created_at, late.spec.replaces) = (at(world.now), vec![ClaimName::new("c00").unwrap()]);
    world.snapshot.put_claim(late.clone());
    assert!(world.all(120).is_empty());
    let (ready, node) = managed("late", &world.pool, offering(SMALL, 1, OnDemand));
    put(&mut world.snapshot, (Claim { spec: late.spec, ..ready }, node));
    assert_eq!(world.wait(10), ["underutilized c00"]);
}

#[test]
fn a_replacement_that_is_not_ready_any_more_replaces_nothing() {
    let mut world = oversized();
    (0..3).for_each(|_| drop(world.wait(60)));
    let draft = world.drafts[0].clone();
    world.initialize(&draft);
    let ready = world.node(draft.name.as_str());
    world.snapshot.put_node(Node { ready: false, ..ready.clone() });
    assert!(world.all(60).is_empty());
    world.snapshot.put_node(ready);
    assert_eq!(world.wait(10), ["underutilized c00"]);
}

#[test]
fn it_is_looked_at_once_more_when_a_replacement_must_have_been_created() {
    let mut world = oversized();
    (0..3).for_each(|_| drop(world.wait(60)));
    let created = world.now - 5;
    world.snapshot.remove_claim(&world.drafts[0].name.clone());
    let plan = disrupt(&world.snapshot, &mut world.memory, &ProvisionMemory::default(), &settings(), at(world.now), 1);
    assert!(plan.next.is_some_and(|next| next <= at(created + 60)), "{:?}", plan.next);
}

#[test]
fn all_single_nodes_are_tried_in_turn_while_nothing_changes() {
    // 24 full nodes with a pod that must stay where it is, which also keeps any set from being replaced, come before the only
    // one that a cheaper one can replace.
    let mut world = World::new(MEDIUM, 24);
    for n in 0..24 {
        let node = world.node(&format!("c{n:02}"));
        let mut pinned = shape(&format!("s{n}"), 7_780, 1);
        pinned.selector = requirements_in(&[(labels::HOSTNAME, &[node.name.as_str()])]);
        world.snapshot.put_pod(running(&format!("p{n}"), &Arc::new(pinned), &node));
    }
    let (mut claim, node) = managed("last", &world.pool, offering(LARGE, 1, OnDemand));
    (claim.created_at, claim.status.initialized) = (at(-3660), Some(at(-3600)));
    put(&mut world.snapshot, (claim, node));
    (0..10).for_each(|n| world.run_pod(&format!("small-{n}"), "last", 100));
    assert_eq!(world.wait(60), ["mark last"]);
}

#[test]
fn what_time_alone_allows_is_found_though_nothing_changes() {
    let mut world = oversized();
    let pod = Pod::clone(world.snapshot.pods().values().next().unwrap());
    let for_two_hours = Some(DoNotDisrupt::For(SignedDuration::from_hours(2)));
    world.snapshot.put_pod(Pod { do_not_disrupt: for_two_hours, started_at: Some(at(0)), ..pod });
    assert!(world.all(7_200).is_empty());
    assert_eq!(world.wait(330), ["mark c00"]);
}

#[test]
fn an_outage_of_nodes_ends_moves() {
    let mut world = oversized();
    assert_eq!([world.wait(60), world.wait(10)].concat(), ["mark c00", "taint aks-c00"]);
    for n in 0..5 {
        let (claim, node) = managed(&format!("lost-{n}"), &world.pool, offering(SMALL, 1, OnDemand));
        put(&mut world.snapshot, (claim, Node { ready: false, ready_since: at(-100), ..node }));
    }
    assert_eq!(world.all(120), ["untaint aks-c00", "unmark c00"]);
}

#[test]
fn what_was_found_before_a_pause_must_be_found_again() {
    let mut world = oversized();
    assert!(world.decide().is_empty(), "found");
    world.snapshot.pause = Pause::of([PauseSwitch::Disrupt]);
    world.now = 60;
    assert!(world.all(60).is_empty());
    world.snapshot.pause = Pause::default();
    let lifted = world.now;
    assert_eq!(world.wait(60), ["mark c00"]);
    assert_eq!(world.now - lifted, 20, "found at once, held for 15 s");
}
