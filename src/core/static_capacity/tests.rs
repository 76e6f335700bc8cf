//! Tests of static capacity: how many nodes a pool has, which are deleted first, and how drifted ones are replaced.

use super::*;
use crate::catalog::CapacityType::{OnDemand, Reserved};
use crate::catalog::live::{Quota, QuotaUsage};
use crate::disruption::{DisruptionMemory, DriftDetector, ReplacementCause, disrupt};
use crate::fixtures::{
    at, claim, cluster, managed, node, offering, pods, pool, put, requirements_in, reserve, running, settings, shape,
    start,
};
use crate::model::cluster::claim::{Claim, DriftedCondition};
use crate::model::cluster::node::Node;
use crate::model::cluster::node_base::NodeBase;
use crate::model::cluster::pod::{DoNotDisrupt, PodOwner, Taint, TaintEffect};
use crate::model::cluster::pool::{Budget, BudgetNodes};
use crate::model::cluster::replacement::Replacement;
use crate::model::labels;
use crate::model::requirements::Requirement;
use crate::model::settings::{MinValuesPolicy, Pause};
use crate::plan::ClaimDraft;
use crate::provisioning::provision;
use proptest::prelude::*;

const SMALL: &str = "Standard_D2s_v5";

fn static_pool(replicas: u64) -> NodePool {
    let on_demand = requirements_in(&[(labels::CAPACITY_TYPE, &["on-demand"]), (labels::SKU_FAMILY, &["D"])]);
    let budgets = vec![Budget { nodes: BudgetNodes::Count(1), reasons: None, window: None }];
    let mut static_pool = NodePool { replicas: Some(replicas), requirements: on_demand, ..pool("fleet") };
    static_pool.disruption.budgets = budgets;
    static_pool
}

/// A static pool whose nodes `c00`, `c01`, … have run since the start.
fn with_nodes(pool: &NodePool, nodes: usize) -> (Snapshot, Vec<Node>) {
    let mut snapshot = cluster([pool.clone()]);
    let mut all = Vec::new();
    for n in 0..nodes {
        let (claim, node) = managed(&format!("c{n:02}"), pool, offering(SMALL, 1, OnDemand));
        all.push(node.clone());
        put(&mut snapshot, (claim, node));
    }
    (snapshot, all)
}

fn pass(snapshot: &Snapshot, memory: &mut StaticCapacityMemory, seconds: i64) -> Plan {
    reconcile_static_capacity(snapshot, memory, &ProvisionMemory::default(), &settings(), at(seconds), 1)
}

fn drafts(plan: &Plan) -> Vec<&ClaimDraft> {
    let draft = |p: &'_ crate::plan::PlannedCommand| matches!(p.command, Command::CreateClaim(_));
    let drafts = plan.commands.iter().filter(|p| draft(p));
    drafts.map(|p| if let Command::CreateClaim(draft) = &p.command { &**draft } else { unreachable!() }).collect()
}

/// The NodeClaims that new ones replace.
fn replaces(plan: &Plan) -> Vec<String> {
    drafts(plan).iter().flat_map(|draft| &draft.spec.replaces).map(ToString::to_string).collect()
}

fn deleted(plan: &Plan) -> Vec<String> {
    let word = |c: &Command| match c {
        Command::DeleteClaim { claim, category, .. } => Some(format!("{category} {}", claim.name)),
        _ => None,
    };
    plan.commands.iter().filter_map(|p| word(&p.command)).collect()
}

/// Executes a plan at once: new nodes are ready, and deleted ones are gone.
fn carry_out(plan: &Plan, pool: &NodePool, snapshot: &mut Snapshot, ready: bool) {
    for planned in &plan.commands {
        match &planned.command {
            Command::CreateClaim(draft) => {
                let (mut claim, node) = managed(draft.name.as_str(), pool, draft.spec.planned[0].clone());
                claim.spec = draft.spec.clone();
                claim.created_at = at(1);
                if ready {
                    put(snapshot, (claim, node));
                } else {
                    snapshot.put_claim(Claim { status: Default::default(), intent: None, ..claim });
                }
            }
            Command::DeleteClaim { claim, .. } => {
                let provider = snapshot.claims().get(&claim.name).and_then(|c| c.status.provider_id.clone());
                let node = provider.and_then(|id| snapshot.node_by_provider_id(&id).map(|n| n.name.clone()));
                snapshot.remove_claim(&claim.name);
                node.iter().for_each(|name| snapshot.remove_node(name));
            }
            Command::ReportPool(_) | Command::ReportClass(_) => {}
            other => panic!("unexpected {other:?}"),
        }
    }
}

/// The new nodes of a plan that was carried out have become ready then.
fn ready_at(plan: &Plan, snapshot: &mut Snapshot, seconds: i64) {
    for draft in drafts(plan) {
        let mut ready = Claim::clone(snapshot.claims().get(&draft.name).unwrap());
        ready.status.initialized = Some(at(seconds));
        snapshot.put_claim(ready);
    }
}

#[test]
fn missing_nodes_are_launched_cheapest_first_and_spread_over_zones() {
    let (snapshot, _) = with_nodes(&static_pool(4), 1);
    let mut memory = StaticCapacityMemory::default();
    let plan = pass(&snapshot, &mut memory, 0);
    let drafts = drafts(&plan);
    assert_eq!(drafts.len(), 3);
    let mut zones: Vec<String> = drafts.iter().map(|d| d.spec.planned[0].key.zone.to_string()).collect();
    zones.sort();
    assert_eq!(zones, ["westeurope-1", "westeurope-2", "westeurope-3"], "one more in each, and the first has one");
    for draft in drafts {
        let prices: Vec<_> = draft.spec.planned.iter().map(|o| o.price).collect();
        assert!(prices.is_sorted() && prices.len() > 3, "{prices:?}");
        assert!(draft.spec.planned.iter().all(|o| o.key.capacity_type == OnDemand));
        assert_eq!(draft.spec.labels.get(labels::NODEPOOL).map(|v| &**v), Some("fleet"));
    }
    assert!(plan.commands[0].reason.starts_with("the NodePool wants 4 nodes and has 1;"), "{:?}", plan.commands[0]);
    assert!(memory.shortages.is_empty());
}

#[test]
fn a_complete_pool_is_left_alone() {
    let (snapshot, _) = with_nodes(&static_pool(3), 3);
    assert_eq!(pass(&snapshot, &mut StaticCapacityMemory::default(), 0), Plan::default());
}

#[test]
fn claims_in_flight_count_and_failed_and_leaving_ones_do_not() {
    let pool = static_pool(4);
    let (mut snapshot, _) = with_nodes(&pool, 1);
    snapshot.put_claim(claim("new", &pool, vec![offering(SMALL, 1, OnDemand)]));
    let mut failed = claim("failed", &pool, vec![offering(SMALL, 1, OnDemand)]);
    let (code, message) = ("Quota".into(), "none left".into());
    failed.status.launch_failed = Some(crate::model::cluster::claim::LaunchFailure { at: at(0), code, message });
    snapshot.put_claim(failed);
    let mut leaving = claim("leaving", &pool, vec![offering(SMALL, 1, OnDemand)]);
    leaving.deleting_at = Some(at(0));
    snapshot.put_claim(leaving);
    assert_eq!(drafts(&pass(&snapshot, &mut StaticCapacityMemory::default(), 0)).len(), 2);
}

#[test]
fn limits_count_terminating_nodes_and_the_shortage_is_reported() {
    let pool = NodePool {
        limits: crate::model::cluster::pool::Limits { nodes: Some(3), ..Default::default() },
        ..static_pool(5)
    };
    let (mut snapshot, _) = with_nodes(&pool, 1);
    let mut leaving = claim("leaving", &pool, vec![offering(SMALL, 1, OnDemand)]);
    leaving.deleting_at = Some(at(0));
    snapshot.put_claim(leaving);
    let mut memory = StaticCapacityMemory::default();
    assert_eq!(drafts(&pass(&snapshot, &mut memory, 0)).len(), 1, "3 less the running and the terminating one");
    let shortages: Vec<String> = memory.shortages.iter().map(ToString::to_string).collect();
    assert_eq!(shortages, ["3 nodes are missing: its limits are reached: raise limits, or lower replicas"]);
}

#[test]
fn quotas_are_shared_by_all_fleets() {
    let (a, b) = (static_pool(3), NodePool { name: NodePoolName::new("other").unwrap(), ..static_pool(3) });
    let mut snapshot = cluster([a, b]);
    let usage = QuotaUsage { name: "cores".into(), used: 90, limit: 100 };
    snapshot.set_quota(Some(Arc::new(Quota::new(at(0), [usage]))));
    let mut memory = StaticCapacityMemory::default();
    assert_eq!(drafts(&pass(&snapshot, &mut memory, 0)).len(), 5, "of two cores each");
    assert!(
        matches!(&memory.shortages[..], [PoolShortage { missing: 1, reason: StaticShortfall::QuotaExceeded(_), .. }]),
        "{:?}",
        memory.shortages
    );
    assert!(memory.shortages[0].pool.as_str() == "other");
}

#[test]
fn a_missing_class_is_reported_and_looked_up_again() {
    let mut snapshot = cluster([static_pool(1)]);
    snapshot.instance_types.clear();
    let mut memory = StaticCapacityMemory::default();
    let plan = pass(&snapshot, &mut memory, 0);
    assert_eq!((plan.commands.len(), plan.next), (0, Some(at(10))));
    assert_eq!(memory.shortages[0].reason, StaticShortfall::NodeClassNotFound);
    assert_eq!(drafts(&pass(&cluster([static_pool(1)]), &mut memory, 10)).len(), 1);
    assert!(memory.shortages.is_empty());
}

#[test]
fn the_pause_switches_hold_back_their_own_half() {
    let (mut few, _) = with_nodes(&static_pool(3), 1);
    let (mut many, _) = with_nodes(&static_pool(1), 3);
    for (held, launches, deletes) in [(PauseSwitch::Launch, 0, 2), (PauseSwitch::Disrupt, 2, 0)] {
        (few.pause, many.pause) = (Pause::of([held]), Pause::of([held]));
        assert_eq!(pass(&few, &mut StaticCapacityMemory::default(), 0).commands.len(), launches, "{held:?}");
        assert_eq!(pass(&many, &mut StaticCapacityMemory::default(), 0).commands.len(), deletes, "{held:?}");
    }
    let name = static_pool(1).name;
    for (key, deletes) in
        [(&*format!("disrupt.nodepool.{name}"), 0), ("disrupt.nodepool.other", 2), ("disrupt.reason.Drifted", 2)]
    {
        many.pause = Pause::read([(key, Some("true"))]).0;
        assert_eq!(pass(&many, &mut StaticCapacityMemory::default(), 0).commands.len(), deletes, "{key}");
    }
    few.pause = Pause::default();
    let companion = crate::model::settings::Settings { mode: ControllerMode::Companion, ..settings() };
    let plan = reconcile_static_capacity(
        &few,
        &mut StaticCapacityMemory::default(),
        &ProvisionMemory::default(),
        &companion,
        at(0),
        1,
    );
    assert_eq!(plan, Plan::default());
}

#[test]
fn requested_nodes_are_not_requested_again_before_they_are_visible() {
    let (mut snapshot, _) = with_nodes(&static_pool(3), 1);
    let mut memory = StaticCapacityMemory::default();
    let plan = pass(&snapshot, &mut memory, 0);
    snapshot.in_progress.extend(plan.commands.iter().map(|p| p.command.key()));
    assert!(pass(&snapshot, &mut memory, 1).commands.is_empty(), "its creation is under way");
    snapshot.in_progress.clear();
    let plan = pass(&snapshot, &mut memory, 2);
    assert_eq!((plan.commands.len(), plan.next), (0, Some(at(10))), "a failure is not retried at once");
    assert_eq!(drafts(&pass(&snapshot, &mut memory, 10)).len(), 2);
}

#[test]
fn surplus_nodes_are_deleted_by_least_disruption() {
    let pool = NodePool { expire_after: Some(SignedDuration::from_hours(100)), ..static_pool(0) };
    let (mut snapshot, nodes) = with_nodes(&pool, 5);
    snapshot.put_claim(claim("unlaunched", &pool, vec![offering(SMALL, 1, OnDemand)]));
    let (small, large) = (
        Arc::new(shape("a", 100, 1)),
        Arc::new(crate::model::cluster::pod::PodShape { priority: 1 << 26, ..shape("b", 100, 1) }),
    );
    // c00 refuses, c01 has a pod of high priority, c02 two pods, c03 one pod, c04 none.
    let refusing = running("refusing", &small, &nodes[0]);
    snapshot.put_pod(crate::model::cluster::pod::Pod { do_not_disrupt: Some(DoNotDisrupt::Always), ..refusing });
    snapshot.put_pod(running("important", &large, &nodes[1]));
    snapshot.put_pod(running("one", &small, &nodes[2]));
    snapshot.put_pod(running("two", &small, &nodes[2]));
    snapshot.put_pod(running("alone", &small, &nodes[3]));
    let daemon = running("daemon", &small, &nodes[4]);
    snapshot.put_pod(crate::model::cluster::pod::Pod { owner: PodOwner::DaemonSet, ..daemon });
    let order = ["unlaunched", "c04", "c03", "c02", "c01", "c00"].map(|name| format!("scaled_down {name}"));
    assert_eq!(deleted(&pass(&snapshot, &mut StaticCapacityMemory::default(), 0)), order);
    for keep in 1..6 {
        snapshot.put_pool(pool.name.clone(), NodePool { replicas: Some(keep as u64), ..pool.clone() });
        assert_eq!(
            deleted(&pass(&snapshot, &mut StaticCapacityMemory::default(), 0)),
            order[..6 - keep],
            "{keep} remain"
        );
    }
}

#[test]
fn of_equals_the_one_with_the_least_remaining_lifetime_is_deleted() {
    let pool = NodePool { expire_after: Some(SignedDuration::from_hours(100)), ..static_pool(1) };
    let (mut snapshot, nodes) = with_nodes(&pool, 2);
    let shape = Arc::new(shape("a", 100, 1));
    for (i, node) in nodes.iter().enumerate() {
        snapshot.put_pod(running(&format!("p{i}"), &shape, node));
    }
    let young = (**snapshot.claims().values().next().unwrap()).clone();
    snapshot.put_claim(Claim { created_at: at(36_000), ..young });
    assert_eq!(deleted(&pass(&snapshot, &mut StaticCapacityMemory::default(), 72_000)), ["scaled_down c01"]);
}

#[test]
fn a_node_nominated_for_pending_pods_is_not_empty() {
    let (snapshot, nodes) = with_nodes(&static_pool(1), 2);
    let mut provision = ProvisionMemory::default();
    // The first by name would go otherwise.
    provision.nominated.insert(crate::scheduling::Target::Node(nodes[0].name.clone()), at(100));
    let plan =
        reconcile_static_capacity(&snapshot, &mut StaticCapacityMemory::default(), &provision, &settings(), at(0), 1);
    assert_eq!(deleted(&plan), ["scaled_down c01"]);
}

#[test]
fn a_deletion_that_is_not_visible_yet_is_not_repeated_on_another_node() {
    let (mut snapshot, _) = with_nodes(&static_pool(2), 3);
    let mut memory = StaticCapacityMemory::default();
    let first = deleted(&pass(&snapshot, &mut memory, 0));
    assert_eq!(first.len(), 1);
    assert!(deleted(&pass(&snapshot, &mut memory, 1)).is_empty());
    snapshot.in_progress.insert(CommandKey::Claim(ClaimName::new("c00").unwrap()));
    assert!(
        deleted(&pass(&snapshot, &mut StaticCapacityMemory::default(), 1)).is_empty(),
        "another command on it is running"
    );
    snapshot.in_progress.clear();
    assert_eq!(deleted(&pass(&snapshot, &mut memory, 61)), first, "it has failed, and is requested again");
}

/// Changes of a pool, by field.
fn changes() -> Vec<(NodePool, &'static str)> {
    let old = static_pool(2);
    let taint = Taint { key: "a".into(), value: "b".into(), effect: TaintEffect::NoSchedule };
    let class = crate::model::names::NodeClassName::new("other").unwrap();
    let hour = Some(SignedDuration::from_hours(1));
    let mut labelled = old.clone();
    labelled.labels.insert("team".into(), "a".into());
    let mut narrowed = old.clone();
    narrowed.requirements = requirements_in(&[(labels::SKU_FAMILY, &["E"])]);
    let mut zonal = old.clone();
    zonal.requirements = requirements_in(&[(labels::ZONE, &["westeurope-2"])]);
    let mut spot = old.clone();
    spot.requirements = requirements_in(&[(labels::CAPACITY_TYPE, &["spot"])]);
    let mut custom = old.clone();
    custom.requirements.add("team", crate::model::requirements::Requirement::any_of(["a"]));
    vec![
        (
            NodePool { class, ..old.clone() },
            "NodePool spec.template.spec.nodeClassRef.name: \"default\" is now \"other\"",
        ),
        (
            NodePool { taints: vec![taint.clone()], ..old.clone() },
            "NodePool spec.template.spec.taints[a:NoSchedule]: set to \"b\"",
        ),
        (
            NodePool { startup_taints: vec![taint], ..old.clone() },
            "NodePool spec.template.spec.startupTaints[a:NoSchedule]: set to \"b\"",
        ),
        (labelled, "NodePool spec.template.metadata.labels[team]: set to \"a\""),
        (
            NodePool { expire_after: hour, ..old.clone() },
            "NodePool spec.template.spec.expireAfter: \"Never\" is now \"1h\"",
        ),
        (
            NodePool { termination_grace_period: hour, ..old.clone() },
            "NodePool spec.template.spec.terminationGracePeriod: set to \"1h\"",
        ),
        (narrowed, "it does not satisfy the NodePool's requirement on karpenter.azure.com/sku-family"),
        (zonal, "it does not satisfy the NodePool's requirement on topology.kubernetes.io/zone"),
        (spot, "it does not satisfy the NodePool's requirement on karpenter.sh/capacity-type"),
        (custom, "it does not satisfy the NodePool's requirement on team"),
    ]
}

#[test]
fn every_change_that_affects_nodes_is_drift_and_no_other() {
    let (snapshot, _) = with_nodes(&static_pool(2), 2);
    let claim = snapshot.claims().values().next().unwrap();
    for (changed, expected) in changes() {
        let drift = DriftDetector::new(&changed, &snapshot, start()).drift_of(claim).map(|drift| drift.to_string());
        assert_eq!(drift.as_deref(), Some(expected));
    }
    let mut same = static_pool(7);
    same.limits.nodes = Some(9);
    same.disruption.budgets.clear();
    assert_eq!(DriftDetector::new(&same, &snapshot, start()).drift_of(claim), None);
}

#[test]
fn drifted_nodes_are_replaced_one_for_one_the_new_one_first() {
    let (mut snapshot, _) = with_nodes(&static_pool(3), 3);
    let mut changed = static_pool(3);
    changed.labels.insert("team".into(), "a".into());
    snapshot.put_pool(changed.name.clone(), changed.clone());
    let mut memory = StaticCapacityMemory::default();
    for round in 0..3 {
        let now = round * 100;
        let plan = pass(&snapshot, &mut memory, now);
        assert_eq!((drafts(&plan).len(), deleted(&plan).len()), (1, 0), "round {round}: {plan:?}");
        assert!(plan.commands[0].reason.contains("metadata.labels[team]: set to"), "{:?}", plan.commands[0]);
        assert_eq!(replaces(&plan), [format!("c{round:02}")], "it names the node that goes");
        carry_out(&plan, &changed, &mut snapshot, false);
        assert!(pass(&snapshot, &mut memory, now + 20).commands.is_empty(), "it waits for the new node");
        carry_out(&plan, &changed, &mut snapshot, true);
        let plan = pass(&snapshot, &mut memory, now + 40);
        assert_eq!(deleted(&plan), [format!("drifted c{round:02}")]);
        carry_out(&plan, &changed, &mut snapshot, true);
    }
    assert!(pass(&snapshot, &mut memory, 1_000).commands.is_empty());
    assert!(snapshot.claims().values().all(|c| c.spec.labels.contains_key("team")));
}

#[test]
fn drift_respects_budgets_limits_and_do_not_disrupt() {
    let mut changed = static_pool(2);
    changed.labels.insert("team".into(), "a".into());
    let world = |pool: &NodePool| {
        let (mut snapshot, nodes) = with_nodes(&static_pool(2), 2);
        snapshot.put_pool(pool.name.clone(), pool.clone());
        (snapshot, nodes)
    };
    let mut closed = changed.clone();
    closed.disruption.budgets = vec![Budget { nodes: BudgetNodes::Count(0), reasons: None, window: None }];
    assert!(pass(&world(&closed).0, &mut StaticCapacityMemory::default(), 0).commands.is_empty(), "no budget");

    let mut limited = changed.clone();
    limited.limits.nodes = Some(2);
    let mut memory = StaticCapacityMemory::default();
    assert!(pass(&world(&limited).0, &mut memory, 0).commands.is_empty(), "no capacity for a replacement");
    assert!(memory.shortages[0].to_string().starts_with("its outdated nodes cannot be replaced: its limits"));

    let (mut snapshot, nodes) = world(&changed);
    for (i, node) in nodes.iter().enumerate() {
        let pod = running(&format!("p{i}"), &Arc::new(shape("a", 100, 1)), node);
        snapshot.put_pod(crate::model::cluster::pod::Pod { do_not_disrupt: Some(DoNotDisrupt::Always), ..pod });
    }
    assert!(
        pass(&snapshot, &mut StaticCapacityMemory::default(), 0).commands.is_empty(),
        "the pods must not be disrupted"
    );
}

#[test]
fn a_window_that_closes_meanwhile_keeps_the_drifted_node() {
    let (mut snapshot, _) = with_nodes(&static_pool(2), 2);
    let mut changed = static_pool(2);
    changed.labels.insert("team".into(), "a".into());
    snapshot.put_pool(changed.name.clone(), changed.clone());
    let mut memory = StaticCapacityMemory::default();
    let plan = pass(&snapshot, &mut memory, 0);
    carry_out(&plan, &changed, &mut snapshot, true);
    changed.disruption.budgets = vec![Budget { nodes: BudgetNodes::Count(0), reasons: None, window: None }];
    snapshot.put_pool(changed.name.clone(), changed.clone());
    let waiting = pass(&snapshot, &mut memory, 60);
    assert_eq!((waiting.commands.len(), waiting.next), (0, Some(at(120))));
    let spare = drafts(&plan)[0].name.clone();
    let over = pass(&snapshot, &mut memory, 1_300);
    assert_eq!(
        deleted(&over),
        [format!("scaled_down {spare}")],
        "the replacement is deleted, not what the budget protects"
    );
}

/// A static pool of two nodes of an older template, and the first replacement.
fn with_a_replacement() -> (Snapshot, NodePool, Plan) {
    let (mut snapshot, _) = with_nodes(&static_pool(2), 2);
    let mut changed = static_pool(2);
    changed.labels.insert("team".into(), "a".into());
    snapshot.put_pool(changed.name.clone(), changed.clone());
    let plan = pass(&snapshot, &mut StaticCapacityMemory::default(), 0);
    assert_eq!(replaces(&plan), ["c00"]);
    (snapshot, changed, plan)
}

#[test]
fn a_replacement_continues_after_its_memory_was_lost() {
    let (mut snapshot, changed, plan) = with_a_replacement();
    carry_out(&plan, &changed, &mut snapshot, false);
    let mut memory = StaticCapacityMemory::default();
    let waits = pass(&snapshot, &mut memory, 60);
    assert!(waits.commands.is_empty(), "the new node is not ready: {waits:?}");
    carry_out(&plan, &changed, &mut snapshot, true);
    assert_eq!(deleted(&pass(&snapshot, &mut memory, 90)), ["drifted c00"]);
    assert_eq!(deleted(&pass(&snapshot, &mut StaticCapacityMemory::default(), 90)), ["drifted c00"]);
}

/// It takes the place of a node that is gone. The one that it was made for is replaced once that has been so for a while.
#[test]
fn a_replacement_that_the_pool_needs_replaces_nothing() {
    let (mut snapshot, changed, plan) = with_a_replacement();
    carry_out(&plan, &changed, &mut snapshot, true);
    ready_at(&plan, &mut snapshot, 30);
    snapshot.remove_claim(&ClaimName::new("c01").unwrap());
    let mut memory = StaticCapacityMemory::default();
    assert!(pass(&snapshot, &mut memory, 60).commands.is_empty(), "the pool is complete");
    let next = pass(&snapshot, &mut memory, 30 + 20 * 60);
    assert_eq!((replaces(&next), deleted(&next)), (vec!["c00".to_owned()], Vec::new()), "{next:?}");
}

/// As where a pod on it must not be disrupted meanwhile. Another would be replaced without its history.
#[test]
fn only_the_node_that_a_replacement_names_goes_for_it() {
    let (mut snapshot, changed, plan) = with_a_replacement();
    carry_out(&plan, &changed, &mut snapshot, true);
    let name = ClaimName::new("c00").unwrap();
    let node = Node::clone(snapshot.node_of(snapshot.claims().get(&name).unwrap()).unwrap());
    // An empty node would come first otherwise.
    snapshot.put_pod(running("web", &std::sync::Arc::new(shape("web", 100, 1)), &node));
    let mut memory = StaticCapacityMemory::default();
    snapshot.put_node(Node { do_not_disrupt: true, ..node.clone() });
    assert!(pass(&snapshot, &mut memory, 60).commands.is_empty());
    snapshot.put_node(node);
    assert_eq!(deleted(&pass(&snapshot, &mut memory, 70)), ["drifted c00"]);
}

/// The version of new nodes is not known right after a start, but the NodeClaim says that it has drifted.
#[test]
fn a_ready_replacement_is_not_too_many_while_the_drift_cannot_be_seen() {
    let (mut snapshot, changed, plan) = with_a_replacement();
    carry_out(&plan, &changed, &mut snapshot, true);
    snapshot.put_pool(changed.name.clone(), static_pool(2));
    let mut old = Claim::clone(snapshot.claims().get(&ClaimName::new("c00").unwrap()).unwrap());
    let (reason, message) = ("K8sVersionDrift".into(), "".into());
    old.status.drifted = Some(DriftedCondition { since: at(-60), reason, message });
    snapshot.put_claim(old.clone());
    // What the change of the template shows of the new one is not of interest here.
    let mut new = Claim::clone(snapshot.claims().get(&drafts(&plan)[0].name).unwrap());
    new.spec.made_from = None;
    new.spec.labels.remove("team");
    snapshot.put_claim(new);
    assert!(pass(&snapshot, &mut StaticCapacityMemory::default(), 60).commands.is_empty());
    old.status.drifted = None;
    snapshot.put_claim(old);
    assert_eq!(deleted(&pass(&snapshot, &mut StaticCapacityMemory::default(), 60)).len(), 1, "its cause is gone");
}

/// Else a template with which no node becomes ready would take ready ones away.
#[test]
fn a_replacement_that_is_not_ready_is_waited_for() {
    let (mut snapshot, changed, plan) = with_a_replacement();
    carry_out(&plan, &changed, &mut snapshot, false);
    assert!(pass(&snapshot, &mut StaticCapacityMemory::default(), 25 * 60).commands.is_empty());
}

#[test]
fn pods_wait_for_a_fleet_that_is_being_made_and_then_run_on_it() {
    let mut snapshot = cluster([static_pool(1), pool("general")]);
    pods("p", shape("a", 100, 1), 3).into_iter().for_each(|pod| snapshot.put_pod(pod));
    let mut memory = crate::engine::decide::Memory::default();
    let settings = settings();
    drop(provision(&snapshot, &mut memory.provision, &settings, at(0), 1));
    let plan = crate::engine::decide::decide(&snapshot, &mut memory, &settings, at(2), 1);
    let made = drafts(&plan);
    assert_eq!(made.len(), 1, "the node of the fleet, and none for the pods");
    let name = made[0].name.clone();
    carry_out(&plan, &static_pool(1), &mut snapshot, false);
    let mut later = crate::engine::decide::decide(&snapshot, &mut memory, &settings, at(20), 1);
    later.commands.retain(|p| matches!(p.command, Command::CreateClaim(_)));
    assert!(later.commands.is_empty(), "{later:?}");
    assert!(memory.provision.nominated.contains_key(&crate::scheduling::Target::Claim(name)));
}

#[test]
fn nodes_of_a_fleet_are_never_consolidated() {
    let (snapshot, _) = with_nodes(&static_pool(2), 2);
    let mut memory = crate::engine::decide::Memory::default();
    let mut disruption = DisruptionMemory::default();
    for now in (0..600).step_by(10) {
        let mut plan = crate::engine::decide::decide(&snapshot, &mut memory, &settings(), at(now), 1);
        plan.extend(disrupt(&snapshot, &mut disruption, &memory.provision, &settings(), at(now), 1));
        assert!(deleted(&plan).is_empty(), "empty as they are: {plan:?}");
    }
}

fn requirement() -> impl Strategy<Value = (&'static str, Vec<&'static str>)> {
    prop_oneof![
        Just((labels::SKU_FAMILY, vec!["D"])),
        Just((labels::SKU_FAMILY, vec!["D", "E", "F"])),
        Just((labels::ZONE, vec!["westeurope-1", "westeurope-3"])),
        Just((labels::CAPACITY_TYPE, vec!["spot"])),
        Just((labels::CAPACITY_TYPE, vec!["spot", "on-demand"])),
        Just((labels::CAPACITY_TYPE, vec!["reserved", "on-demand"])),
        Just((labels::PLACEMENT_SCOPE, vec!["zonal"])),
        Just((labels::PLACEMENT_SCOPE, vec!["regional"])),
        Just((labels::ARCH, vec!["arm64"])),
        Just((labels::ARCH, vec!["amd64", "arm64"])),
        Just((labels::MODE, vec!["system"])),
        Just((labels::SKU_GPU_NAME, vec!["T4"])),
        Just(("team", vec!["a", "b"])),
    ]
}

proptest! {
    /// From any state a static pool converges to its replicas, all of them as the pool requires, and meanwhile never
    /// has fewer ready nodes than necessary.
    #[test]
    fn a_static_pool_converges_to_its_replicas(
        replicas in 0_u64..6,
        old in 0_usize..8,
        changed in any::<bool>(),
        forgets in any::<u16>(),
    ) {
        let (mut snapshot, _) = with_nodes(&static_pool(replicas), old);
        let mut wanted = static_pool(replicas);
        if changed {
            wanted.labels.insert("team".into(), "a".into());
        }
        snapshot.put_pool(wanted.name.clone(), wanted.clone());
        let mut memory = StaticCapacityMemory::default();
        for round in 0..30 {
            if round < 16 && forgets >> round & 1 == 1 {
                memory = StaticCapacityMemory::default();
            }
            let before = snapshot.claims().len();
            let plan = pass(&snapshot, &mut memory, round * 100);
            carry_out(&plan, &wanted, &mut snapshot, true);
            let floor = before.min(replicas as usize);
            prop_assert!(snapshot.claims().len() >= floor, "{} of {before}: {plan:?}", snapshot.claims().len());
        }
        prop_assert_eq!(snapshot.claims().len() as u64, replicas);
        let detector = DriftDetector::new(&wanted, &snapshot, start());
        prop_assert!(snapshot.claims().values().all(|c| detector.drift_of(c).is_none()));
        prop_assert!(pass(&snapshot, &mut memory, 9_000).commands.is_empty());
    }

    /// Otherwise it would be replaced again and again.
    #[test]
    fn newly_launched_nodes_have_not_drifted(requirements in prop::collection::vec(requirement(), 0..4)) {
        let mut pool = static_pool(2);
        pool.requirements = crate::model::requirements::Requirements::new();
        for (key, values) in requirements {
            pool.requirements.add_entry(key, crate::model::requirements::Operator::In, &values).unwrap();
        }
        pool.requirements.add_entry("exists", crate::model::requirements::Operator::Exists, &[] as &[&str]).unwrap();
        pool.requirements.add_entry("absent", crate::model::requirements::Operator::DoesNotExist, &[] as &[&str]).unwrap();
        let mut snapshot = cluster([pool.clone()]);
        reserve(&mut snapshot, start(), &[("Standard_D4s_v5", 0, 0, 1), ("Standard_D4s_v5", 1, 0, 1)]);
        for draft in drafts(&pass(&snapshot, &mut StaticCapacityMemory::default(), 0)) {
            for planned in &draft.spec.planned {
                let mut made = claim("made", &pool, vec![planned.clone()]);
                made.spec = draft.spec.clone();
                made.intent = Some(crate::fixtures::intent(&made, planned.clone()));
                prop_assert_eq!(DriftDetector::new(&pool, &snapshot, start()).drift_of(&made), None, "{}", planned.key);
            }
        }
    }
}

#[test]
fn a_node_of_another_placement_scope_has_drifted() {
    let requirements = requirements_in(&[
        (labels::CAPACITY_TYPE, &["reserved", "on-demand"]),
        (labels::PLACEMENT_SCOPE, &["regional"]),
    ]);
    let pool = NodePool { requirements, ..static_pool(1) };
    let mut snapshot = cluster([pool.clone()]);
    reserve(&mut snapshot, start(), &[("Standard_D4s_v5", 0, 0, 1)]);
    let of = |n, capacity_type| {
        let mut planned = offering("Standard_D4s_v5", 1, capacity_type);
        if n == 0 {
            planned.key.zone = crate::model::names::Zone::regional();
        }
        let mut made = claim("made", &pool, vec![planned.clone()]);
        made.intent = Some(crate::fixtures::intent(&made, planned));
        made
    };
    let detector = DriftDetector::new(&pool, &snapshot, start());
    let zonal = detector.drift_of(&of(1, OnDemand)).unwrap();
    assert_eq!(zonal.unmet_requirement.as_deref(), Some(labels::PLACEMENT_SCOPE));
    let regional = of(0, Reserved);
    assert_eq!(detector.drift_of(&regional), None);
    // The reservation no longer exists, and the node is unchanged.
    assert_eq!(DriftDetector::new(&pool, &cluster([pool.clone()]), start()).drift_of(&regional), None);
}

#[test]
fn an_unmanaged_node_is_no_member_of_a_pool() {
    let (mut snapshot, _) = with_nodes(&static_pool(1), 1);
    snapshot.put_node(node("unmanaged", 1, 4));
    assert!(pass(&snapshot, &mut StaticCapacityMemory::default(), 0).commands.is_empty());
}

#[test]
fn variety_that_is_not_to_be_had_keeps_a_fleet_small_or_is_done_without() {
    let mut pool = static_pool(2);
    pool.requirements.add(labels::INSTANCE_TYPE, Requirement::exists().with_min_values(Some(40)));
    let snapshot = cluster([pool]);
    let (mut memory, provision) = (StaticCapacityMemory::default(), ProvisionMemory::default());
    let strict = reconcile_static_capacity(&snapshot, &mut memory, &provision, &settings(), at(0), 1);
    assert_eq!((drafts(&strict).len(), memory.shortages.len()), (0, 1));
    let settings = Settings { min_values_policy: MinValuesPolicy::BestEffort, ..settings() };
    let relaxed =
        reconcile_static_capacity(&snapshot, &mut StaticCapacityMemory::default(), &provision, &settings, at(0), 1);
    assert_eq!(drafts(&relaxed).len(), 2);
}

#[test]
fn no_node_is_deleted_or_replaced_while_many_nodes_are_not_ready() {
    let three = static_pool(3);
    let (mut snapshot, nodes) = with_nodes(&three, 5);
    assert_eq!(deleted(&pass(&snapshot, &mut StaticCapacityMemory::default(), 60)).len(), 2);
    nodes[..3].iter().for_each(|n| snapshot.put_node(Node { ready: false, ready_since: at(0), ..n.clone() }));
    assert_eq!(deleted(&pass(&snapshot, &mut StaticCapacityMemory::default(), 60)).len(), 0);
    let mut more = NodePool { replicas: Some(6), ..three.clone() };
    snapshot.put_pool(more.name.clone(), more.clone());
    assert_eq!(
        drafts(&pass(&snapshot, &mut StaticCapacityMemory::default(), 60)).len(),
        1,
        "missing nodes are launched"
    );
    // Drifted ones.
    more.replicas = Some(5);
    more.labels.insert("team".into(), "a".into());
    snapshot.put_pool(more.name.clone(), more);
    assert_eq!(drafts(&pass(&snapshot, &mut StaticCapacityMemory::default(), 60)).len(), 0);
    nodes[..3].iter().for_each(|n| snapshot.put_node(n.clone()));
    assert_eq!(drafts(&pass(&snapshot, &mut StaticCapacityMemory::default(), 60)).len(), 1);
}

/// Otherwise nodes would be launched and deleted again without end.
#[test]
fn a_version_that_new_nodes_do_not_have_is_tried_once() {
    let pool = static_pool(3);
    let (mut snapshot, nodes) = with_nodes(&pool, 3);
    let old = |node: Node| Node { kubelet_version: Some("v1.33.0".into()), ..node };
    nodes.into_iter().for_each(|node| snapshot.put_node(old(node)));
    let base = NodeBase { kubernetes_version: Some("v1.34.1".into()), ..NodeBase::default() };
    snapshot.node_base = std::sync::Arc::new(base);
    let (mut memory, mut launched) = (StaticCapacityMemory::default(), 0);
    for minute in 1..120 {
        // A node that is launched has joined a minute later, and is ready for pods yet another minute later.
        let plan = pass(&snapshot, &mut memory, minute * 60);
        launched += drafts(&plan).len();
        let coming: Vec<Claim> =
            snapshot.claims().values().filter(|c| c.status.initialized.is_none()).map(|c| Claim::clone(c)).collect();
        for mut claim in coming {
            claim.status.initialized = Some(at(minute * 60));
            snapshot.put_claim(claim);
        }
        let before: BTreeSet<ClaimName> = snapshot.claims().values().map(|c| c.name.clone()).collect();
        carry_out(&plan, &pool, &mut snapshot, true);
        let new: Vec<Claim> =
            snapshot.claims().values().filter(|c| !before.contains(&c.name)).map(|c| Claim::clone(c)).collect();
        for mut claim in new {
            let node = Node::clone(snapshot.node_of(&claim).unwrap());
            snapshot.put_node(old(node));
            claim.status.initialized = None;
            snapshot.put_claim(claim);
        }
    }
    assert_eq!((launched, snapshot.claims().len()), (1, 3));
}

/// When nodes are launched within so many minutes in a NodePool of so many nodes that have drifted, as all have that replace them.
fn launched_where_replacements_drift(nodes: usize, budget: u32, minutes: i64) -> Vec<i64> {
    let with_budget = |mut pool: NodePool| {
        pool.disruption.budgets = vec![Budget { nodes: BudgetNodes::Count(budget), reasons: None, window: None }];
        pool
    };
    let pool = with_budget(static_pool(nodes as u64));
    let (mut snapshot, _) = with_nodes(&pool, nodes);
    let mut changed = pool;
    changed.labels.insert("team".into(), "a".into());
    snapshot.put_pool(changed.name.clone(), changed.clone());
    let (mut memory, mut launched_at) = (StaticCapacityMemory::default(), Vec::new());
    for minute in 0..minutes {
        let plan = pass(&snapshot, &mut memory, minute * 60);
        launched_at.extend(drafts(&plan).iter().map(|_| minute));
        let before: BTreeSet<ClaimName> = snapshot.claims().values().map(|c| c.name.clone()).collect();
        carry_out(&plan, &changed, &mut snapshot, true);
        let new: Vec<Claim> =
            snapshot.claims().values().filter(|c| !before.contains(&c.name)).map(|c| Claim::clone(c)).collect();
        for mut claim in new {
            claim.created_at = at(minute * 60);
            claim.status.initialized = Some(at(minute * 60));
            let (since, reason) = (at(minute * 60), "NodePoolDrifted".into());
            claim.status.drifted = Some(DriftedCondition { since, reason, message: "labels".into() });
            claim.spec.labels.remove("team");
            claim.spec.made_from = None;
            snapshot.put_claim(claim);
        }
    }
    launched_at
}

#[test]
fn replacements_without_effect_are_repeated_ever_less_often() {
    let launched_at = launched_where_replacements_drift(3, 1, 12 * 60);
    let waits: Vec<i64> = launched_at.windows(2).map(|pair| pair[1] - pair[0]).filter(|wait| *wait >= 30).collect();
    assert!(launched_at.len() < 9, "{launched_at:?}");
    assert!(waits.len() >= 4 && waits.is_sorted() && waits[3] >= 240, "{launched_at:?}");
}

#[test]
fn a_large_pool_is_not_rolled_once_before_a_loop_is_known_and_then_one_goes_at_a_time() {
    let launched_at = launched_where_replacements_drift(60, 10, 120);
    let (at_once, later): (Vec<i64>, Vec<i64>) = launched_at.into_iter().partition(|minute| *minute < 10);
    assert!((30..=40).contains(&at_once.len()), "{at_once:?}");
    let [first, second] = later[..] else { panic!("{later:?}") };
    assert!((30..33).contains(&(first - at_once[at_once.len() - 1])), "{at_once:?}, {later:?}");
    assert!((60..63).contains(&(second - first)), "{later:?}");
}

/// A NodePool of a node `c00` without the label `team` that it wants, a node `loop` that has replaced such ones without effect, and
/// a node `c02` without the label `tier` that it wants.
fn with_a_loop(expire_after: Option<SignedDuration>) -> (Snapshot, NodePool) {
    let labelled = |labels: &[&str]| {
        let mut pool = NodePool { expire_after, ..static_pool(3) };
        pool.labels.extend(labels.iter().map(|label| ((*label).into(), "a".into())));
        pool
    };
    let wanted = labelled(&["team", "tier"]);
    let mut snapshot = cluster([wanted.clone()]);
    let cause = |claim: &Claim, snapshot: &Snapshot| {
        let drift = DriftDetector::new(&wanted, snapshot, start()).drift_of(claim).unwrap();
        ReplacementCause::Drift(drift).recurring(&wanted).unwrap()
    };
    for (name, label, hour) in [("c00", "tier", 0), ("loop", "tier", 80), ("c02", "team", 50)] {
        let (mut claim, node) = managed(name, &labelled(&[label]), offering(SMALL, 1, OnDemand));
        claim.created_at = at(hour * 3_600);
        if name == "loop" {
            let cause = cause(&claim, &snapshot);
            claim.spec.replacement = Some(Replacement::new(cause, 20));
        }
        put(&mut snapshot, (claim, node));
    }
    (snapshot, wanted)
}

#[test]
fn a_node_that_waits_in_a_loop_is_not_replaced_in_place_of_another() {
    let (mut snapshot, pool) = with_a_loop(None);
    let mut memory = StaticCapacityMemory::default();
    let plan = pass(&snapshot, &mut memory, 81 * 3_600);
    let record = drafts(&plan)[0].spec.replacement.clone().unwrap();
    assert_eq!((drafts(&plan).len(), record.in_a_row), (1, 1), "{plan:?}");
    carry_out(&plan, &pool, &mut snapshot, true);
    ready_at(&plan, &mut snapshot, 81 * 3_600 + 30);
    assert_eq!(deleted(&pass(&snapshot, &mut memory, 81 * 3_600 + 60)), ["drifted c02"]);
}

#[test]
fn of_two_loops_that_may_go_on_each_does_with_one_node() {
    let (mut snapshot, mut pool) = with_a_loop(None);
    let mut other = Claim::clone(snapshot.claims().get(&ClaimName::new("c02").unwrap()).unwrap());
    let drift = DriftDetector::new(&pool, &snapshot, start()).drift_of(&other).unwrap();
    other.spec.replacement = Some(Replacement::new(drift.cause(&pool), 30));
    // A newer one would show that the loop of the other has ended.
    other.created_at = snapshot.claims().get(&ClaimName::new("loop").unwrap()).unwrap().created_at;
    snapshot.put_claim(other);
    pool.disruption.budgets = vec![Budget { nodes: BudgetNodes::Count(10), reasons: None, window: None }];
    snapshot.put_pool(pool.name.clone(), pool);
    let plan = pass(&snapshot, &mut StaticCapacityMemory::default(), 105 * 3_600);
    let rows = drafts(&plan).iter().map(|draft| draft.spec.replacement.as_ref().unwrap().in_a_row).collect::<Vec<_>>();
    assert_eq!(rows, [21, 31], "{plan:?}");
}

#[test]
fn a_loop_is_not_forgotten_where_its_last_node_is_replaced_since_it_expires() {
    let (mut snapshot, pool) = with_a_loop(Some(SignedDuration::from_hours(10)));
    ["c00", "c02"].iter().for_each(|name| snapshot.remove_claim(&ClaimName::new(*name).unwrap()));
    snapshot.put_pool(pool.name.clone(), NodePool { replicas: Some(1), ..pool });
    let record = snapshot.claims().get(&ClaimName::new("loop").unwrap()).unwrap().spec.replacement.clone();
    let plan = pass(&snapshot, &mut StaticCapacityMemory::default(), 89 * 3_600 + 3_000);
    assert_eq!(drafts(&plan).len(), 1);
    assert_eq!(drafts(&plan)[0].spec.replacement, record);
}

#[test]
fn a_node_that_waits_in_a_loop_is_replaced_before_it_expires() {
    let (mut snapshot, pool) = with_a_loop(Some(SignedDuration::from_hours(100)));
    snapshot.remove_claim(&ClaimName::new("c02").unwrap());
    snapshot.put_pool(pool.name.clone(), NodePool { replicas: Some(2), ..pool.clone() });
    let mut memory = StaticCapacityMemory::default();
    assert!(pass(&snapshot, &mut memory, 81 * 3_600).commands.is_empty(), "it waits");
    let plan = pass(&snapshot, &mut memory, 99 * 3_600 + 3_000);
    assert_eq!(drafts(&plan).len(), 1);
    assert_eq!(drafts(&plan)[0].spec.replacement, None);
    carry_out(&plan, &pool, &mut snapshot, true);
    ready_at(&plan, &mut snapshot, 99 * 3_600 + 3_030);
    assert_eq!(deleted(&pass(&snapshot, &mut memory, 99 * 3_600 + 3_060)), ["expiring c00"]);
}
