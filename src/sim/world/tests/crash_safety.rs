//! Disruption of every method ends, or is taken back, wherever the controller is interrupted.
//!
//! A seed gives a world in which nodes are disrupted. It is played without a fault, and then once for each write of the
//! controller meanwhile, and each [`Interruption`] of it. The invariants of moves are checked in every world; this
//! compares evictions, and looks at the end.

use super::*;
use crate::cluster::Propagation;
use crate::fuzz::{on_all_processors, requested_seeds};
use crate::random::Random;
use crate::workload::{BudgetLimit, PodBudget};
use crate::world::{Crash, CrashPoint, Freeze, InjectedFault, WatchedKind, WriteSide};
use napkeeper_core::catalog::CapacityType;
use napkeeper_core::model::cluster::claim::Claim;
use napkeeper_core::model::requirements::Requirement;
use napkeeper_core::model::settings::PauseSwitch;
use std::sync::Mutex;

/// How long a world lasts.
const LENGTH: SignedDuration = SignedDuration::from_mins(100);
/// What is disrupted at its end has ended by then.
const ENDS_WITHIN: SignedDuration = SignedDuration::from_mins(30);
/// When load falls.
const FALL: i64 = 15;
/// Interruptions of a world in a plain run.
const SAMPLE: usize = 30;

/// How nodes are disrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Method {
    /// A node without pods is deleted.
    Empty,
    /// Nodes are deleted whose pods fit on others.
    Deleted,
    /// A node is replaced by another.
    ReplacedByOne,
    /// Several nodes are replaced together.
    ReplacedTogether,
    /// A node has drifted.
    Drifted,
    /// A node expires soon.
    Expiring,
    /// The NodePool of a node is deleted.
    PoolDeleted,
}

impl Method {
    /// Those by which nodes are disrupted when load falls.
    const FALLING: [Self; 4] = [Self::Empty, Self::Deleted, Self::ReplacedByOne, Self::ReplacedTogether];
    /// Those by which nodes are disrupted whatever they cost.
    const OUTDATED: [Self; 2] = [Self::Drifted, Self::Expiring];
    /// Those by which a NodePool is deleted.
    const DELETED: [Self; 1] = [Self::PoolDeleted];
}

/// What interrupts the controller at a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Interruption {
    /// It crashes.
    Crash(WriteSide),
    /// It is frozen, and another replica leads by the time that it continues. The write has been sent, or never is.
    LeaseLost { is_sent: bool },
    /// Disruption is paused for some minutes.
    Paused,
    /// Its watches are late for some minutes, one more than others.
    StaleWatch,
}

impl Interruption {
    const ALL: [Self; 6] = [
        Self::Crash(WriteSide::Before),
        Self::Crash(WriteSide::After),
        Self::LeaseLost { is_sent: false },
        Self::LeaseLost { is_sent: true },
        Self::Paused,
        Self::StaleWatch,
    ];

    /// Prepares it for this write, which happens at this time.
    fn plan(self, world: &mut World, write: u64, at: Timestamp) {
        let down_for = SignedDuration::from_secs(40);
        match self {
            Self::Crash(side) => world.plan_crashes([Crash { at: CrashPoint::Write(write), side, down_for }]),
            Self::LeaseLost { is_sent } => {
                let freeze = Freeze { at: CrashPoint::Write(write), lasts: down_for, is_sent };
                world.controller.freezes.planned.push(freeze);
            }
            Self::Paused => {
                world
                    .schedule_action(at, Action::Pause { switches: vec![PauseSwitch::Disrupt.into()], duration: None });
                let lifted = at + SignedDuration::from_mins(5);
                world.schedule_action(lifted, Action::Pause { switches: Vec::new(), duration: None });
            }
            Self::StaleWatch => {
                let kinds = [WatchedKind::Pods, WatchedKind::Nodes, WatchedKind::Claims];
                for (kind, n) in kinds.into_iter().zip(write..) {
                    let lag = SignedDuration::from_secs(if n % 3 == 0 { 30 } else { 5 });
                    world.schedule_action(at, Action::InjectFault(InjectedFault::WatchLag(kind, lag)));
                    let none = Action::InjectFault(InjectedFault::WatchLag(kind, SignedDuration::ZERO));
                    world.schedule_action(at + SignedDuration::from_mins(5), none);
                }
            }
        }
    }
}

pub(super) fn budget_of(name: &str, limit: BudgetLimit) -> (ObjectKey, PodBudget) {
    let mut selector = Requirements::new();
    selector.add("app", Requirement::any_of([name]));
    (
        key(name),
        PodBudget { namespace: Namespace::new("default").unwrap(), selector, limit, always_allows_unready: false },
    )
}

/// A world of which load falls so that nodes are disrupted by this method, with others beside it.
fn falling(method: Method, seed: u64) -> WorldSetup {
    let mut random = Random::of(seed, "falling");
    let mut start = mk_start(seed);
    let capacity_types = if method == Method::ReplacedTogether { &["spot", "on-demand"][..] } else { &["on-demand"] };
    let mut pool = mk_pool("general-purpose", 10, capacity_types, 200);
    let share = *random.pick(&[34, 50, 100]).unwrap();
    pool.disruption.budgets = vec![Budget { nodes: BudgetNodes::Percent(share), reasons: None, window: None }];
    let mut number = |least: u32, most: u32| u32::try_from(random.between(least.into(), most.into())).unwrap();
    let sizes: &[&str] = match method {
        Method::Empty | Method::Deleted => &["2"],
        Method::ReplacedByOne => &["2", "4", "8", "16"],
        Method::ReplacedTogether => &["8", "16"],
        Method::Drifted | Method::Expiring | Method::PoolDeleted => unreachable!("load does not fall there"),
    };
    if method == Method::Empty {
        pool.disruption.policy = ConsolidationPolicy::WhenEmpty;
    }
    pool.requirements.add_entry(labels::SKU_CPU, Operator::In, sizes).unwrap();
    // What stays, and what leaves.
    let (stays, leaves, left) = match method {
        Method::Empty => ((number(2, 6), 800), (number(2, 4), 1500), 0),
        Method::Deleted => ((number(3, 8), 600), (number(3, 6), 600), 0),
        Method::ReplacedByOne => ((number(1, 3), 700), (number(4, 12), 900), number(0, 1)),
        Method::ReplacedTogether => ((10, i64::from(number(2650, 3050))), (number(2, 5), 1500), 0),
        Method::Drifted | Method::Expiring | Method::PoolDeleted => unreachable!("load does not fall there"),
    };
    start.manifests.pools = vec![pool];
    start.manifests.workloads =
        vec![mk_deployment("stays", 0, stays.1, 1024), mk_deployment("leaves", 0, leaves.1, 1024)];
    let unavailable = number(1, 3);
    start.manifests.budgets = vec![budget_of("stays", BudgetLimit::MaxUnavailable(unavailable))];
    let scale = |name: &str, replicas| Action::Scale { workload: key(name), replicas };
    // Where several nodes are wanted, load rises step by step: at once, it would get fewer, larger ones.
    let steps = match method {
        Method::ReplacedByOne => 1,
        Method::ReplacedTogether => stays.0 / 2,
        _ => stays.0.max(leaves.0),
    };
    if method == Method::ReplacedTogether {
        start.actions.push(after(0, Action::Pause { switches: vec![PauseSwitch::Disrupt.into()], duration: None }));
        start.actions.push(after(FALL, Action::Pause { switches: Vec::new(), duration: None }));
        // Most is saved by spot nodes, which cannot be had until load falls: otherwise evictions would not be worth it.
        let quota = |cores| Action::Quota { family: None, capacity_type: Some(CapacityType::Spot), cores };
        start.actions.extend([after(0, quota(Some(0))), after(FALL, quota(None))]);
    }
    for step in 1..=steps {
        let at = SignedDuration::from_secs(i64::from(step) * 90);
        let part = |all: u32| (all * step).div_ceil(steps);
        start.actions.extend([(at, scale("stays", part(stays.0))), (at, scale("leaves", part(leaves.0)))]);
    }
    start.actions.push(after(FALL, scale("leaves", left)));
    start
}

/// The world of a seed, and the method that is most likely in it.
fn world_of(seed: u64) -> WorldSetup {
    falling(Method::FALLING[usize::try_from(seed % 4).unwrap()], seed)
}

/// A world in which the load stays, and nodes drift or expire.
fn outdated_world_of(seed: u64) -> WorldSetup {
    let mut random = Random::of(seed, "outdated");
    let mut start = mk_start(seed);
    let mut pool = mk_pool("general-purpose", 10, &["on-demand"], 200);
    let share = *random.pick(&[34, 50, 100]).unwrap();
    pool.disruption.budgets = vec![Budget { nodes: BudgetNodes::Percent(share), reasons: None, window: None }];
    pool.requirements.add_entry(labels::SKU_CPU, Operator::In, &["2", "4"]).unwrap();
    if seed.is_multiple_of(2) {
        let (pool, label, value) = (pool.name.clone(), Arc::from("team"), Arc::from("a"));
        start.actions.push(after(FALL, Action::LabelPool { pool, label, value }));
    } else {
        // They are replaced in its last tenth, and their replacements do not expire within the world.
        pool.expire_after = Some(SignedDuration::from_mins(60));
    }
    start.manifests.pools = vec![pool];
    let replicas = u32::try_from(random.between(4, 9)).unwrap();
    start.manifests.workloads = vec![mk_deployment("stays", replicas, 1500, 1024)];
    let unavailable = u32::try_from(random.between(1, 3)).unwrap();
    start.manifests.budgets = vec![budget_of("stays", BudgetLimit::MaxUnavailable(unavailable))];
    start
}

/// A world in which the load stays, and a NodePool is deleted beside another.
fn deleted_world_of(seed: u64) -> WorldSetup {
    let mut start = outdated_world_of(seed);
    start.actions.clear();
    let pool = &mut start.manifests.pools[0];
    pool.expire_after = None;
    let other = NodePool {
        name: NodePoolName::new("other").unwrap(),
        uid: Uid::new("other").unwrap(),
        weight: 1,
        ..pool.clone()
    };
    let propagation = if seed.is_multiple_of(2) { Propagation::Background } else { Propagation::Foreground };
    start.actions.push(after(FALL, Action::DeletePool { pool: pool.name.clone(), propagation }));
    start.manifests.pools.push(other);
    start
}

/// True while nodes are marked, deleted or launched for others, or a NodePool is being deleted.
fn is_disrupting(world: &World) -> bool {
    let mut pools = world.cluster().state().pools().values();
    let is_deleting = pools.any(|pool| pool.deletion.requested_at.is_some());
    is_deleting
        || world.cluster().state().claims().values().any(|claim| {
            claim.deleting_at.is_some()
                || claim.status.disrupted.is_some()
                || !claim.spec.replaces.is_empty() && claim.status.initialized.is_none()
        })
}

/// Plays a world to its end, or until what is disrupted then has ended, and returns the writes of the controller while nodes are
/// disrupted, with their times.
pub(super) fn play(world: &mut World) -> Result<Vec<(u64, Timestamp)>, String> {
    let end = world.started_at() + LENGTH;
    let mut writes = Vec::new();
    let is_in_time = |world: &World, at| at <= end || (at <= end + ENDS_WITHIN && is_disrupting(world));
    while let Some(at) = world.next_instant().filter(|at| is_in_time(world, *at)) {
        let (first, was_disrupting) = (world.controller.writes, is_disrupting(world));
        world.step(at).map_err(|violation| violation.to_string())?;
        if was_disrupting || is_disrupting(world) {
            writes.extend((first..world.controller.writes).map(|write| (write, at)));
        }
    }
    world.pass_time(end.max(world.now));
    Ok(writes)
}

/// By which methods nodes were disrupted.
fn methods(world: &World) -> BTreeSet<Method> {
    let disrupted = |words| logged(world, EventKind::Disrupt, words) > 0;
    let sets = world.truth.moves.sets();
    let together = sets.iter().any(|set| set.sources.len() > 1 && set.replacements.len() > 1);
    let by_one = sets.iter().any(|set| set.sources.len() == 1 && set.replacements.len() == 1);
    let is_replaced = disrupted("its replacement is ready");
    let found = [
        (Method::Empty, disrupted("is empty")),
        (Method::Deleted, disrupted("can move to")),
        (Method::ReplacedByOne, is_replaced && by_one),
        (Method::ReplacedTogether, is_replaced && together),
        (Method::Drifted, disrupted("drifted: ")),
        (Method::Expiring, disrupted("expiring: ")),
        (Method::PoolDeleted, disrupted("nodepool_deleted: ")),
    ];
    found.into_iter().filter_map(|(method, occurs)| occurs.then_some(method)).collect()
}

/// Voluntary evictions by workload.
fn evictions(world: &World) -> BTreeMap<String, u64> {
    let by_workload = world.summary().disruption.by_workload;
    by_workload.into_iter().map(|(workload, figures)| (workload, figures.voluntary_evictions)).collect()
}

/// The most pods that a workload is to have at once, this long after the start or later.
fn most_pods(setup: &WorldSetup, workload: &str, after: SignedDuration) -> u64 {
    let scaled = setup.actions.iter().filter_map(|(at, action)| match action {
        Action::Scale { workload: scaled, replicas } if scaled.to_string() == workload => Some((*at, *replicas)),
        _ => None,
    });
    let first = setup.manifests.workloads.iter().filter(|(key, _)| key.to_string() == workload);
    let first = first.map(|(_, workload)| (SignedDuration::ZERO, workload.wanted(0)));
    let (before, later): (Vec<_>, Vec<_>) = first.chain(scaled).partition(|(at, _)| *at <= after);
    let most = before.last().into_iter().chain(&later).map(|(_, replicas)| *replicas).max();
    most.unwrap_or_default().into()
}

/// What is wrong at the end of a world that was interrupted, beside one that was not, where a workload has at most so many
/// pods at once after that.
fn wrong_at_end(world: &World, whole: &World, most_pods: impl Fn(&str) -> u64) -> Option<String> {
    let cluster = world.cluster().state();
    if let Some(pod) = cluster.pending().values().flatten().next() {
        return Some(format!("{pod} is pending"));
    }
    if let Some(node) = cluster.nodes().values().find(|node| node.is_tainted(labels::TAINT_DISRUPTED)) {
        return Some(format!("{} is tainted", node.name));
    }
    if let Some(claim) = cluster.claims().values().find(|claim| claim.status.disrupted.is_some()) {
        return Some(format!("{} is marked", claim.name));
    }
    if let Some(pool) = cluster.pools().values().find(|pool| pool.deletion.requested_at.is_some()) {
        return Some(format!("{} is still being deleted", pool.name));
    }
    let has_pool =
        |claim: &&Arc<Claim>| claim.spec.pool.as_ref().is_some_and(|name| cluster.pools().get(name).is_some());
    if let Some(claim) = cluster.claims().values().find(|claim| !has_pool(claim)) {
        return Some(format!("{} has been left behind", claim.name));
    }
    let before = evictions(whole);
    let more = evictions(world).into_iter().find(|(workload, evicted)| {
        // A pod that load has ended since may have been evicted before.
        *evicted > before.get(workload).copied().unwrap_or_default() + most_pods(workload)
    });
    more.map(|(workload, evicted)| format!("{evicted} evictions of {workload} instead of {:?}", before.get(&workload)))
}

/// Interrupts the controller at a write; what is wrong then.
fn interrupt(setup: &WorldSetup, whole: &World, (write, at): (u64, Timestamp), by: Interruption) -> Option<String> {
    let mut world = World::new(catalog(), setup.clone()).unwrap();
    by.plan(&mut world, write, at);
    let after = at.duration_since(world.started_at());
    let most_pods = |workload: &str| most_pods(setup, workload, after);
    let wrong = play(&mut world).err().or_else(|| wrong_at_end(&world, whole, most_pods))?;
    if std::env::var_os("NAPKEEPER_TIMELINE").is_some() {
        print(&world);
    }
    Some(format!("seed {}, {by:?} at write {write}: {wrong}", setup.seed))
}

/// Plays a world, interrupted at these of its writes; the methods that occur in it, or what is wrong.
fn search(setup: &WorldSetup, sample: Option<usize>) -> Result<BTreeSet<Method>, Vec<String>> {
    let mut whole = World::new(catalog(), setup.clone()).unwrap();
    let writes = play(&mut whole).map_err(|wrong| vec![format!("seed {}: {wrong}", setup.seed)])?;
    let mut cases: Vec<_> = writes.iter().flat_map(|write| Interruption::ALL.map(|by| (*write, by))).collect();
    if let Some(sample) = sample {
        let mut random = Random::of(setup.seed, "sample");
        cases.sort_by_cached_key(|_| random.bits());
        cases.truncate(sample);
    }
    let wrong: Vec<String> = cases.into_iter().filter_map(|(write, by)| interrupt(setup, &whole, write, by)).collect();
    if wrong.is_empty() { Ok(methods(&whole)) } else { Err(wrong) }
}

/// Two of each method.
const FEW: u64 = 8;

/// `NAPKEEPER_SEEDS=from..to` interrupts every write of these worlds.
#[test]
fn every_disruption_ends_wherever_the_controller_is_interrupted() {
    search_all(FEW, world_of, &Method::FALLING);
}

/// The same with nodes that drift or expire.
#[test]
fn every_outdated_node_is_replaced_wherever_the_controller_is_interrupted() {
    search_all(4, outdated_world_of, &Method::OUTDATED);
}

/// The same where a NodePool is deleted.
#[test]
fn every_deleted_pool_is_gone_with_its_nodes_wherever_the_controller_is_interrupted() {
    search_all(2, deleted_world_of, &Method::DELETED);
}

/// Interrupts the worlds of so many seeds, or of those that are requested; among them all these methods must occur.
fn search_all(few: u64, world_of: impl Fn(u64) -> WorldSetup + Sync, methods: &[Method]) {
    let requested = requested_seeds();
    let sample = requested.is_none().then_some(SAMPLE);
    let seeds = requested.unwrap_or(0..few);
    let (wrong, seen) = (Mutex::new(Vec::new()), Mutex::new(BTreeSet::new()));
    on_all_processors(seeds.clone(), |seed| match search(&world_of(seed), sample) {
        Ok(methods) => seen.lock().unwrap().extend(methods),
        Err(found) => wrong.lock().unwrap().extend(found),
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let seen = seen.into_inner().unwrap();
    let all_occur = methods.iter().all(|method| seen.contains(method));
    assert!(seeds.end - seeds.start < few || all_occur, "only {seen:?}");
}

/// Consolidation has begun two minutes before the end of this world.
#[test]
fn what_is_disrupted_at_the_end_of_a_world_is_waited_for() {
    let setup = outdated_world_of(77);
    let mut whole = World::new(catalog(), setup.clone()).unwrap();
    let writes = play(&mut whole).unwrap();
    let write = writes.into_iter().find(|(write, _)| *write == 100).unwrap();
    assert_eq!(interrupt(&setup, &whole, write, Interruption::LeaseLost { is_sent: true }), None);
}

/// The delete of a NodeClaim arrives in the instant in which another replica, which does not know of it, deletes one more. Only such
/// a delete may go beyond a budget: nobody could have counted it.
#[test]
fn a_delete_of_a_replica_that_no_longer_leads_counts_once_it_is_seen() {
    for (seed, write) in [(41, 114), (141, 107)] {
        let setup = world_of(seed);
        let mut whole = World::new(catalog(), setup.clone()).unwrap();
        let writes = play(&mut whole).unwrap();
        let write = writes.into_iter().find(|(number, _)| *number == write).unwrap();
        assert_eq!(interrupt(&setup, &whole, write, Interruption::LeaseLost { is_sent: true }), None);
    }
}

/// Of these interruptions three evicted pods that then went to a node about to be deleted, and were evicted once more.
#[test]
fn late_watches_that_once_had_pods_evicted_again_do_not() {
    let setup = world_of(166);
    let mut whole = World::new(catalog(), setup.clone()).unwrap();
    let writes = play(&mut whole).unwrap();
    assert!(!writes.is_empty());
    assert!(methods(&whole).contains(&Method::Deleted));
    for write in writes {
        assert_eq!(interrupt(&setup, &whole, write, Interruption::StaleWatch), None);
    }
}
