//! The whole policy on simulated clusters.

use super::super::*;
use crate::workload::{BudgetLimit, PodBudget, PodTemplate, Rollout, Workload, WorkloadKind};
use crate::world::{Manifests, ShortageSpec, World};
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::cluster::pod::{Labels, PodOwner, PodPhase, PodShape, Spread};
use napkeeper_core::model::cluster::pool::{Disruption, Limits as PoolLimits, NodeClass, NodePool};
use napkeeper_core::model::names::{Namespace, NodeClassName, NodePoolName, ObjectKey, ObjectName, Uid};
use napkeeper_core::model::requirements::{Requirement, Requirements};
use napkeeper_core::model::settings::DeletionRules;

const GIB: i64 = 1 << 30;

fn mins(n: i64) -> SignedDuration {
    SignedDuration::from_mins(n)
}

fn key(name: &str) -> ObjectKey {
    ObjectKey { namespace: Namespace::new("default").unwrap(), name: ObjectName::new(name).unwrap() }
}

fn one_of(key: &str, values: &[&str]) -> Requirements {
    let mut all = Requirements::new();
    all.add(key, Requirement::any_of(values));
    all
}

fn shape(app: &str, cpu_millis: i64) -> PodShape {
    PodShape::plain(
        Namespace::new("default").unwrap(),
        Labels::from([(Arc::from("app"), Arc::from(app))]),
        Resources { pods: 1, ..Resources::cpu_memory(cpu_millis, cpu_millis * (GIB / 500)) },
    )
}

fn deployment(shape: PodShape, replicas: u32) -> Workload {
    Workload { template: PodTemplate::new(shape), kind: WorkloadKind::Deployment { replicas } }
}

/// A pool of amd64 nodes at the full price.
fn pool() -> NodePool {
    let mut requirements = one_of(labels::ARCH, &["amd64"]);
    requirements.add(labels::CAPACITY_TYPE, Requirement::any_of(["on-demand"]));
    requirements.add(labels::SKU_FAMILY, Requirement::any_of(["D", "E", "F"]));
    NodePool {
        name: NodePoolName::new("general").unwrap(),
        uid: Uid::new("general").unwrap(),
        weight: 0,
        requirements,
        labels: Labels::new(),
        annotations: Labels::new(),
        taints: Vec::new(),
        startup_taints: Vec::new(),
        class: NodeClassName::new("default").unwrap(),
        limits: PoolLimits::default(),
        expire_after: None,
        termination_grace_period: None,
        disruption: Disruption {
            policy: ConsolidationPolicy::WhenEmptyOrUnderutilized,
            consolidate_after: Some(SignedDuration::ZERO),
            budgets: vec![napkeeper_core::model::cluster::pool::Budget {
                nodes: napkeeper_core::model::cluster::pool::BudgetNodes::Percent(10),
                reasons: None,
                window: None,
            }],
        },
        replicas: None,
        deletion: Default::default(),
        generation: 1,
        status: Default::default(),
    }
}

fn setup(workloads: Vec<(&str, Workload)>) -> WorldSetup {
    WorldSetup {
        region: Region::new("westeurope").unwrap(),
        seed: 1,
        at: "2026-08-03T00:00:00Z".parse().unwrap(),
        manifests: Manifests {
            pools: vec![pool()],
            classes: vec![NodeClass::with_defaults(NodeClassName::new("default").unwrap(), Uid::new("class").unwrap())],
            workloads: workloads.into_iter().map(|(name, w)| (key(name), w)).collect(),
            ..Manifests::default()
        },
        system_nodes: 1,
        actions: Vec::new(),
        deletion_rules: DeletionRules::default(),
    }
}

fn scale(after: SignedDuration, workload: &str, replicas: u32) -> (SignedDuration, Action) {
    (after, Action::Scale { workload: key(workload), replicas })
}

fn after(setup: &WorldSetup, time: SignedDuration, variant: &Variant) -> Karpenter {
    let mut karpenter = Karpenter::new(&Catalog::embedded().unwrap(), setup, variant).unwrap();
    karpenter.run_until(setup.at + time).unwrap();
    karpenter
}

fn running(karpenter: &Karpenter) -> usize {
    let pods = karpenter.cluster.state().pods().values();
    pods.filter(|p| p.phase == PodPhase::Running && p.deleting_at.is_none()).count()
}

fn evictions(karpenter: &Karpenter) -> u64 {
    karpenter.summary().disruption.all.voluntary_evictions
}

/// A day in the small: eight workloads of different sizes whose replicas follow a wave with some noise, on nodes of at
/// most 8 vCPUs: about 50 of them.
fn wave(seed: u64, hours: i64) -> WorldSetup {
    let sizes = [250, 500, 750, 1000, 1500, 2000, 3000, 4000];
    let mut random = crate::random::Random::new(seed);
    let names: Vec<String> = sizes.iter().map(|size| format!("app{size}")).collect();
    let workloads = names.iter().zip(sizes).map(|(name, size)| (name.as_str(), deployment(shape(name, size), 30)));
    let mut start = setup(workloads.collect());
    start.manifests.pools[0].requirements.add(labels::SKU_CPU, Requirement::any_of(["4", "8"]));
    for step in 1..hours * 6 {
        for name in &names {
            // A triangle over two hours, and up to six replicas by chance.
            let phase = u32::try_from((step % 12 - 6).unsigned_abs()).unwrap();
            let noise = u32::try_from(random.between(0, 6)).unwrap();
            start.actions.push(scale(mins(step * 10), name, 12 + phase * 4 + noise));
        }
    }
    start
}

/// As a run of upstream's saw it: the more a policy may disrupt, the more it does; and what it saves for that.
#[test]
fn evictions_grow_from_when_empty_over_balanced_to_underutilized() {
    let policies =
        [ConsolidationPolicy::WhenEmpty, ConsolidationPolicy::Balanced, ConsolidationPolicy::WhenEmptyOrUnderutilized];
    let outcomes = policies.map(|policy| {
        let variant = Variant { consolidation: Some(policy), ..Variant::default() };
        run(&Catalog::embedded().unwrap(), &wave(1, 3), mins(180), &variant).unwrap()
    });
    let of = |summary: &Summary| summary.disruption.all.voluntary_evictions;
    let [empty, balanced, underutilized] = &outcomes;
    assert!(outcomes.iter().all(|outcome| (35..120).contains(&outcome.nodes_most)), "{outcomes:#?}");
    assert!(of(empty) < of(balanced), "{outcomes:#?}");
    assert!(of(balanced) < of(underutilized), "{outcomes:#?}");
    assert!(balanced.cost < empty.cost && underutilized.cost < empty.cost, "{outcomes:#?}");
}

#[test]
fn the_same_seed_gives_the_same_outcome() {
    let outcome = || run(&Catalog::embedded().unwrap(), &wave(2, 1), mins(60), &Variant::default()).unwrap();
    assert_eq!(outcome(), outcome());
}

/// Evictions, cost and the rest of some variants on a longer wave, for people: `--ignored --nocapture`.
#[test]
#[ignore = "takes a minute, and only prints"]
fn variants_are_measured() {
    let policy = |policy| Variant { consolidation: Some(policy), ..Variant::default() };
    let underutilized = policy(ConsolidationPolicy::WhenEmptyOrUnderutilized);
    for (name, variant) in [
        ("WhenEmpty", policy(ConsolidationPolicy::WhenEmpty)),
        ("Balanced", policy(ConsolidationPolicy::Balanced)),
        ("WhenEmptyOrUnderutilized", underutilized),
        ("the same, fresh destinations allowed", Variant { fresh_destinations: false, ..underutilized }),
        ("the same, spot to spot", Variant { spot_to_spot: true, ..underutilized }),
    ] {
        for (after, spot) in [(SignedDuration::ZERO, false), (mins(5), false), (SignedDuration::ZERO, true)] {
            let mut start = wave(3, 24);
            let pool = &mut start.manifests.pools[0];
            pool.disruption.consolidate_after = Some(after);
            if spot {
                pool.requirements.remove(labels::CAPACITY_TYPE);
                pool.requirements.add(labels::CAPACITY_TYPE, Requirement::any_of(["on-demand", "spot"]));
            }
            let began = std::time::Instant::now();
            let outcome = run(&Catalog::embedded().unwrap(), &start, mins(24 * 60), &variant).unwrap();
            println!("{name}, {after:#}, spot {spot}: {outcome:?} in {:?}", began.elapsed());
        }
    }
}

/// The claims whose VMs run or will.
fn live(karpenter: &Karpenter) -> Vec<&NodeClaim> {
    karpenter.claims.values().filter(|claim| claim.termination.is_none()).collect()
}

#[test]
fn pending_pods_get_the_cheapest_node_that_holds_them() {
    let karpenter = after(&setup(vec![("web", deployment(shape("web", 1500), 2))]), mins(5), &Variant::default());
    assert_eq!(running(&karpenter), 2);
    let live = live(&karpenter);
    let [claim] = live.as_slice() else { panic!("{live:?}") };
    let holds = |t: &&super::super::offerings::TypeOption| t.room.cpu_millis >= 3000 && t.room.memory >= 6 * GIB;
    let on_demand = |t: &super::super::offerings::TypeOption| {
        let offering = t.instance.offerings.iter().find(|o| o.capacity_type.as_str() == "on-demand");
        offering.map(|o| o.price)
    };
    let cheapest = karpenter.pools[0].types.iter().filter(holds).filter_map(on_demand).min().unwrap();
    let offering = claim.instance.offerings.iter().find(|o| o.capacity_type == claim.offering.capacity_type);
    assert_eq!(offering.unwrap().price, cheapest);
    // Its OS disk is on the bill, and in no decision.
    let bill = cheapest + claim.instance.costs.os_disk;
    assert_eq!((karpenter.hourly_price(), karpenter.cluster().state().nodes().len()), (bill, 2));
}

/// The first pods are seen at the start; 1 s without another one ends the batch; then the VM is created, joins and is
/// ready, which takes 60 to 160 s.
#[test]
fn a_batch_ends_a_second_after_the_last_pod() {
    let start = setup(vec![("web", deployment(shape("web", 500), 3))]);
    assert!(after(&start, SignedDuration::from_millis(900), &Variant::default()).claims.is_empty());
    let karpenter = after(&start, SignedDuration::from_millis(1100), &Variant::default());
    assert_eq!(karpenter.claims.len(), 1);
    assert_eq!(running(&after(&start, SignedDuration::from_secs(59), &Variant::default())), 0);
    assert_eq!(running(&after(&start, SignedDuration::from_secs(170), &Variant::default())), 3);
}

/// Pods that come every half second keep a batch open for 10 s, and no longer.
#[test]
fn a_batch_lasts_at_most_ten_seconds() {
    let mut start = setup(vec![("web", deployment(shape("web", 500), 1))]);
    for half in 1..40 {
        let replicas = u32::try_from(half).unwrap() + 1;
        start.actions.push(scale(SignedDuration::from_millis(500 * half), "web", replicas));
    }
    assert!(after(&start, SignedDuration::from_millis(9900), &Variant::default()).claims.is_empty());
    assert!(!after(&start, SignedDuration::from_millis(10_100), &Variant::default()).claims.is_empty());
}

#[test]
fn a_size_that_azure_refuses_is_not_tried_again() {
    let mut start = setup(vec![("web", deployment(shape("web", 1500), 1))]);
    let first = after(&start, mins(5), &Variant::default());
    let size = live(&first)[0].offering.size.clone();
    let shortage =
        ShortageSpec { size: Some(size.clone()), zone: None, capacity_type: None, duration: Some(mins(600)) };
    start.actions.push((SignedDuration::ZERO, Action::Refuse(shortage.clone())));
    let karpenter = after(&start, mins(5), &Variant::default());
    assert_eq!(running(&karpenter), 1, "planned again ten seconds later");
    assert_ne!(live(&karpenter)[0].offering.size, size);

    start.actions = vec![(SignedDuration::ZERO, Action::NoCapacity(shortage))];
    let karpenter = after(&start, mins(8), &Variant::default());
    assert_eq!(running(&karpenter), 1);
    assert_ne!(live(&karpenter)[0].offering.size, size);
}

#[test]
fn quotas_are_learnt_from_refusals() {
    let mut start = setup(vec![("web", deployment(shape("web", 1500), 1))]);
    let family = Arc::clone(&live(&after(&start, mins(5), &Variant::default()))[0].instance.facts.family);
    let quota = Action::Quota { family: Some(Arc::clone(&family)), capacity_type: None, cores: Some(0) };
    start.actions.push((SignedDuration::ZERO, quota));
    let karpenter = after(&start, mins(5), &Variant::default());
    assert_eq!(running(&karpenter), 1);
    assert_ne!(live(&karpenter)[0].instance.facts.family, family);
}

#[test]
fn limits_of_a_pool_hold() {
    let mut start = setup(vec![("web", deployment(shape("web", 3000), 6))]);
    start.manifests.pools[0].limits.resources.insert(Arc::from("cpu"), 8000);
    let karpenter = after(&start, mins(30), &Variant::default());
    let cores: u32 = live(&karpenter).iter().map(|claim| claim.instance.facts.vcpus).sum();
    assert!(cores <= 8, "{cores}");
    assert_eq!(running(&karpenter), 2);
}

#[test]
fn a_node_that_becomes_empty_goes_after_fifteen_seconds() {
    let mut start = setup(vec![("web", deployment(shape("web", 1500), 1))]);
    start.actions.push(scale(mins(10), "web", 0));
    let variant = Variant { consolidation: Some(ConsolidationPolicy::WhenEmpty), ..Variant::default() };
    // A pod that is being deleted does not count: the next pass finds the node, and 15 s later it is tainted. The drain
    // waits for the pod's grace of 30 s.
    let tainted = |karpenter: &Karpenter| {
        let nodes = karpenter.cluster.state().nodes().values();
        nodes.filter(|node| node.is_tainted(labels::TAINT_DISRUPTED)).count()
    };
    let at = |seconds| after(&start, mins(10) + SignedDuration::from_secs(seconds), &variant);
    assert_eq!(tainted(&at(14)), 0);
    assert_eq!(tainted(&at(27)), 1);
    assert_eq!(at(180).claims.len(), 0);
    assert_eq!(evictions(&at(180)), 0);
}

/// Two pods of a guarded workload on a node that is replaced: one after the other.
#[test]
fn drains_keep_disruption_budgets() {
    let mut start =
        setup(vec![("web", deployment(shape("web", 1000), 4)), ("big", deployment(shape("big", 14000), 1))]);
    let web = one_of("app", &["web"]);
    let budget = PodBudget {
        namespace: Namespace::new("default").unwrap(),
        selector: web,
        limit: BudgetLimit::MaxUnavailable(1),
        always_allows_unready: false,
    };
    start.manifests.budgets.push((key("web"), budget));
    start.actions.push(scale(mins(10), "big", 0));
    let mut karpenter = after(&start, mins(10), &Variant::default());
    let mut least = 4;
    for second in 0..1800 {
        karpenter.run_until(start.at + mins(10) + SignedDuration::from_secs(second)).unwrap();
        let pods = karpenter.cluster.state().pods().values();
        let up = pods
            .filter(|p| p.phase == PodPhase::Running && p.deleting_at.is_none() && &*p.shape.labels["app"] == "web");
        least = least.min(up.count());
    }
    assert_eq!(least, 3);
    assert!(evictions(&karpenter) >= 4, "{:?}", karpenter.summary());
    assert_eq!(running(&karpenter), 4);
}

/// The old node is tainted, and kept until its replacement is initialized.
#[test]
fn a_node_is_deleted_only_when_its_replacement_is_initialized() {
    let mut start =
        setup(vec![("web", deployment(shape("web", 1000), 2)), ("big", deployment(shape("big", 14000), 1))]);
    start.actions.push(scale(mins(10), "big", 0));
    let mut karpenter = after(&start, mins(10), &Variant::default());
    let old = live(&karpenter)[0].node.name.clone();
    let mut seen_waiting = false;
    for second in 0..600 {
        karpenter.run_until(start.at + mins(10) + SignedDuration::from_secs(second)).unwrap();
        let Some(claim) = karpenter.claims.get(&old) else { break };
        let other = karpenter.claims.values().find(|claim| claim.node.name != old);
        if claim.queued {
            seen_waiting = true;
            assert!(karpenter.cluster.state().nodes().get(&old).unwrap().is_tainted(labels::TAINT_DISRUPTED));
            assert!(claim.termination.is_none());
            assert!(other.is_some_and(|claim| claim.initialized_at.is_none()));
            assert_eq!(running(&karpenter), 2, "nothing is evicted yet");
        }
    }
    assert!(seen_waiting);
    assert!(!karpenter.claims.contains_key(&old));
    karpenter.run_until(start.at + mins(30)).unwrap();
    assert_eq!((running(&karpenter), evictions(&karpenter)), (2, 2));
    assert_eq!(karpenter.summary().nodes_launched, 2, "the moving pods are not provisioned for again");
}

/// Each node has one pod that no other may have beside its own: every replacement is a command of its own, and the second
/// begins while the first one's node is on the way.
#[test]
fn commands_run_beside_each_other() {
    let alone = |app: &str, cpu| {
        let spread = Spread::over(labels::HOSTNAME, 1, one_of("app", &[app]));
        PodShape { spread: vec![spread], ..shape(app, cpu) }
    };
    let workloads = vec![("web", deployment(alone("web", 1000), 2)), ("big", deployment(alone("big", 14000), 2))];
    let mut start = setup(workloads);
    start.manifests.pools[0].disruption.budgets.clear();
    start.actions.push(scale(mins(10), "big", 0));
    let mut karpenter = after(&start, mins(10), &Variant::default());
    assert_eq!(live(&karpenter).len(), 2);
    let mut most = 0;
    for second in 0..900 {
        karpenter.run_until(start.at + mins(10) + SignedDuration::from_secs(second)).unwrap();
        most = most.max(karpenter.claims.values().filter(|claim| claim.queued).count());
    }
    assert_eq!(most, 2);
    assert_eq!((karpenter.commands().len(), karpenter.summary().nodes_launched), (2, 4));
    for command in karpenter.commands() {
        let replacement = command.replacement.as_deref().unwrap();
        assert_eq!(command.nodes.iter().map(|(_, pods)| *pods).collect::<Vec<_>>(), [1]);
        assert_eq!(
            command.to_string(),
            format!("{} replace {} (1 pods) by {replacement}", command.at, command.nodes[0].0)
        );
    }
    assert_eq!((running(&karpenter), evictions(&karpenter)), (2, 2));
}

/// Nothing is disrupted before 01:00; then a pass, which is every 10 s, and its validation.
#[test]
fn a_budget_with_a_window_is_looked_at_again_when_it_ends() {
    let mut start =
        setup(vec![("web", deployment(shape("web", 1000), 2)), ("big", deployment(shape("big", 14000), 1))]);
    let budget = &mut start.manifests.pools[0].disruption.budgets[0];
    budget.nodes = napkeeper_core::model::cluster::pool::BudgetNodes::Count(0);
    budget.window = Some((Arc::from("0 0 * * *"), mins(60)));
    start.actions.push(scale(mins(10), "big", 0));
    assert_eq!(after(&start, mins(60), &Variant::default()).commands().len(), 0);
    let seconds = |n| mins(60) + SignedDuration::from_secs(n);
    assert_eq!(after(&start, seconds(14), &Variant::default()).commands().len(), 0);
    assert_eq!(after(&start, seconds(27), &Variant::default()).commands().len(), 1);
}

/// Azure refuses every size for five minutes. Each command fails at once and is undone; later another size is had.
#[test]
fn a_replacement_that_azure_refuses_is_tried_with_another_size() {
    let mut start =
        setup(vec![("web", deployment(shape("web", 1000), 2)), ("big", deployment(shape("big", 14000), 1))]);
    let all = ShortageSpec { size: None, zone: None, capacity_type: None, duration: Some(mins(5)) };
    start.actions.push((mins(9), Action::Refuse(all)));
    start.actions.push(scale(mins(10), "big", 0));
    let vcpus = |karpenter: &Karpenter| -> Vec<u32> {
        live(karpenter).iter().map(|claim| claim.instance.facts.vcpus).collect()
    };
    let refused = after(&start, mins(13), &Variant::default());
    assert!(refused.commands().len() >= 2, "{:?}", refused.summary());
    assert!(!refused.unavailable.is_empty());
    assert_eq!((refused.claims.len(), running(&refused), evictions(&refused)), (1, 2, 0));
    assert!(vcpus(&refused)[0] >= 16);
    let had = after(&start, mins(60), &Variant::default());
    assert_eq!((running(&had), evictions(&had)), (2, 2));
    assert!(vcpus(&had).iter().all(|vcpus| *vcpus <= 8), "{:?}", vcpus(&had));
}

/// The replacement's VM is never created: the command fails, and the node takes pods again.
#[test]
fn a_command_whose_replacement_fails_is_undone() {
    let mut start =
        setup(vec![("web", deployment(shape("web", 1000), 2)), ("big", deployment(shape("big", 14000), 1))]);
    let nothing = ShortageSpec { size: None, zone: None, capacity_type: None, duration: Some(mins(600)) };
    start.actions.push((mins(9), Action::NoCapacity(nothing)));
    start.actions.push(scale(mins(10), "big", 0));
    let mut karpenter = after(&start, mins(10), &Variant::default());
    let old = live(&karpenter)[0].node.name.clone();
    let mut was_queued = false;
    for second in 0..300 {
        karpenter.run_until(start.at + mins(10) + SignedDuration::from_secs(second)).unwrap();
        was_queued |= karpenter.claims[&old].queued;
        if was_queued && !karpenter.claims[&old].queued {
            break;
        }
    }
    assert!(was_queued && !karpenter.claims[&old].queued);
    assert!(!karpenter.cluster.state().nodes().get(&old).unwrap().is_tainted(labels::TAINT_DISRUPTED));
    assert_eq!(evictions(&karpenter), 0);
}

#[test]
fn old_nodes_are_deleted_without_a_budget() {
    let mut start = setup(vec![("web", deployment(shape("web", 1000), 2))]);
    start.manifests.pools[0].expire_after = Some(mins(60));
    start.manifests.pools[0].disruption.budgets[0].nodes = napkeeper_core::model::cluster::pool::BudgetNodes::Count(0);
    let before = after(&start, mins(60), &Variant::default());
    let old = live(&before)[0].node.name.clone();
    let karpenter = after(&start, mins(75), &Variant::default());
    assert!(!karpenter.claims.contains_key(&old));
    assert_eq!((running(&karpenter), evictions(&karpenter)), (2, 2));
}

/// Steps on the load reach this peer like all others: a rollout that changes requests leaves none of the old pods.
#[test]
fn a_rollout_replaces_all_pods() {
    let mut start = setup(vec![("web", deployment(shape("web", 1000), 3))]);
    let requests = Some(Resources { pods: 1, ..Resources::cpu_memory(1_500, GIB) });
    let rollout = Rollout { requests, max_surge: 1, max_unavailable: 0 };
    start.actions.push((mins(20), Action::Rollout { workload: key("web"), rollout }));
    let karpenter = after(&start, mins(60), &Variant::default());
    let pods = karpenter.cluster.state().pods().values().filter(|pod| pod.owner == PodOwner::Controller);
    assert_eq!(pods.map(|pod| pod.shape.requests.cpu_millis).collect::<Vec<_>>(), [1_500; 3]);
}

/// A pod that must not be disrupted holds an expired node until its time is up; it is deleted with its grace left.
#[test]
fn the_grace_period_of_a_node_ends_all_protection() {
    let mut web = deployment(shape("web", 1000), 1);
    web.template.do_not_disrupt = Some(napkeeper_core::model::cluster::pod::DoNotDisrupt::Always);
    let mut start = setup(vec![("web", web)]);
    start.manifests.pools[0].expire_after = Some(mins(60));
    let held = after(&start, mins(180), &Variant::default());
    assert_eq!((evictions(&held), held.summary().nodes_launched), (0, 1), "held indefinitely, and nothing bought");
    start.manifests.pools[0].termination_grace_period = Some(mins(30));
    assert_eq!(evictions(&after(&start, mins(89), &Variant::default())), 0);
    let ended = after(&start, mins(100), &Variant::default());
    assert_eq!(evictions(&ended), 1);
    assert_eq!(running(&ended), 1);
}

/// Pods of a DaemonSet that do not tolerate the taint go after all others, critical ones last.
#[test]
fn drains_go_by_tiers() {
    let critical = PodShape { priority: 2_000_000_000, ..shape("critical", 200) };
    let mut start = setup(vec![("web", deployment(shape("web", 200), 1)), ("critical", deployment(critical, 1))]);
    start.manifests.daemon_sets.push((key("logs"), PodTemplate::new(shape("logs", 100))));
    start.manifests.pools[0].expire_after = Some(mins(60));
    let mut karpenter = after(&start, mins(60), &Variant::default());
    let node = live(&karpenter)[0].node.name.clone();
    let mut order: Vec<String> = Vec::new();
    for half in 0..400 {
        karpenter.run_until(start.at + mins(60) + SignedDuration::from_millis(500 * half)).unwrap();
        let ending = karpenter.cluster.state().pods_on(&node).filter(|pod| pod.deleting_at.is_some());
        let apps: Vec<String> = ending.map(|pod| pod.shape.labels["app"].to_string()).collect();
        for app in apps {
            if !order.contains(&app) {
                order.push(app);
            }
        }
    }
    assert_eq!(order, ["web", "logs", "critical"]);
}

#[test]
fn spot_nodes_that_azure_takes_back_are_made_up_for() {
    let mut start = setup(vec![("web", deployment(shape("web", 1000), 3))]);
    let pool = &mut start.manifests.pools[0];
    pool.requirements.remove(labels::CAPACITY_TYPE);
    pool.requirements.add(labels::CAPACITY_TYPE, Requirement::any_of(["spot", "on-demand"]));
    start.actions.push((mins(20), Action::EvictSpot { count: 1 }));
    let karpenter = after(&start, mins(40), &Variant::default());
    assert_eq!(running(&karpenter), 3);
    assert_eq!(karpenter.summary().nodes_launched, 2);
    assert_eq!(evictions(&karpenter), 0);
}

#[test]
fn startup_taints_keep_a_node_from_being_initialized() {
    let mut start = setup(vec![("web", deployment(shape("web", 1000), 1))]);
    start.manifests.pools[0].startup_taints.push(napkeeper_core::model::cluster::pod::Taint {
        key: Arc::from("example.com/starting"),
        value: Arc::from(""),
        effect: napkeeper_core::model::cluster::pod::TaintEffect::NoSchedule,
    });
    let mut karpenter = after(&start, SignedDuration::ZERO, &Variant::default());
    let mut uninitialized = 0;
    for second in 0..240 {
        karpenter.run_until(start.at + SignedDuration::from_secs(second)).unwrap();
        let claim = karpenter.claims.values().next();
        uninitialized += u32::from(claim.is_some_and(|claim| claim.has_node() && claim.initialized_at.is_none()));
    }
    assert!(uninitialized >= 5, "{uninitialized}");
    assert_eq!(running(&karpenter), 1);
}

#[test]
fn a_spread_over_zones_gets_nodes_in_each() {
    let spread = Spread::over(labels::ZONE, 1, one_of("app", &["web"]));
    let web = PodShape { spread: vec![spread], ..shape("web", 1000) };
    let karpenter = after(&setup(vec![("web", deployment(web, 6))]), mins(20), &Variant::default());
    let zones: std::collections::BTreeSet<_> =
        live(&karpenter).iter().map(|claim| claim.offering.zone.clone()).collect();
    assert_eq!((zones.len(), running(&karpenter)), (3, 6));
}

#[test]
fn volumes_are_detached_before_a_vm_is_deleted() {
    let disk = crate::workload::DiskRequest {
        size_gib: 10,
        reclaim: napkeeper_core::model::cluster::volume::ReclaimPolicy::Delete,
    };
    let kind = WorkloadKind::StatefulSet { replicas: 2, disk: Some(disk) };
    let data = Workload { template: PodTemplate::new(shape("data", 1000)), kind };
    let mut start = setup(vec![("data", data)]);
    start.manifests.pools[0].expire_after = Some(mins(60));
    let mut karpenter = after(&start, mins(60), &Variant::default());
    for second in 0..600 {
        karpenter.run_until(start.at + mins(60) + SignedDuration::from_secs(second)).unwrap();
        for claim in karpenter.claims.values().filter(|claim| claim.phase == node_claims::Phase::Deleting) {
            assert!(!karpenter.cluster.has_attachments(&claim.node.name));
        }
    }
    assert_eq!(running(&karpenter), 2);
}

/// The shipped scenarios beside the cluster-autoscaler's baseline, for people: `--ignored --nocapture`.
#[test]
#[ignore = "takes minutes, and only prints"]
fn shipped_scenarios_are_measured() {
    let catalog = Catalog::embedded().unwrap();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/scenarios");
    let mut folders: Vec<_> = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    for folder in folders.iter().filter(|folder| folder.is_dir()) {
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let texts = files.filter(|file| file.extension().is_some_and(|extension| extension == "yaml"));
        let documents: Vec<_> = texts
            .flat_map(|file| {
                let text = std::fs::read_to_string(&file).unwrap();
                napkeeper_api::yaml::read(&file.display().to_string(), &text).documents
            })
            .collect();
        let (scenarios, manifests): (Vec<_>, Vec<_>) =
            documents.iter().partition(|document| crate::scenario::is_scenario(document));
        let Ok(manifests) = Manifests::collect(manifests) else { continue };
        let scenario = crate::scenario::read(scenarios.first().unwrap()).unwrap();
        let setup = scenario.setup(manifests);
        println!("{}", folder.display());
        let baseline = crate::autoscaler::run(&catalog, &setup, scenario.duration).unwrap();
        println!("  cluster-autoscaler: {baseline:?}");
        for consolidation in [None, Some(ConsolidationPolicy::WhenEmpty), Some(ConsolidationPolicy::Balanced)] {
            let began = std::time::Instant::now();
            let variant = Variant { consolidation, ..Variant::default() };
            let outcome = run(&catalog, &setup, scenario.duration, &variant).unwrap();
            println!("  {consolidation:?}: {outcome:?} in {:?}", began.elapsed());
        }
    }
}

/// How many nodes of each size, of those that are not the system's.
fn sizes(cluster: &Cluster) -> BTreeMap<Arc<str>, usize> {
    let mut sizes = BTreeMap::new();
    for node in cluster.state().nodes().values().filter(|node| node.label(labels::NODEPOOL).is_some()) {
        *sizes.entry(Arc::clone(&node.labels[labels::INSTANCE_TYPE])).or_default() += 1;
    }
    sizes
}

/// A world of napkeeper's in which Karpenter chooses the nodes for pods that wait.
fn with_launches(start: &WorldSetup) -> World {
    let catalog = Catalog::embedded().unwrap();
    let mut world = World::new(&catalog, start.clone()).unwrap();
    world.set_provisioner(Box::new(Launches::new(&catalog, start).unwrap()));
    world
}

#[test]
fn in_a_world_of_napkeepers_the_nodes_are_those_that_karpenter_launches() {
    for seed in 1..4 {
        let mut start = wave(seed, 1);
        start.manifests.pools[0].disruption.policy = ConsolidationPolicy::WhenEmpty;
        let mut world = with_launches(&start);
        world.run_until(start.at + mins(9)).unwrap();
        let own = after(&start, mins(9), &Variant::default());
        assert_eq!(sizes(world.cluster()), sizes(own.cluster()), "seed {seed}");
        // Load has changed six times by then.
        world.run_until(start.at + mins(70)).unwrap();
        assert_eq!(world.summary().pods_pending, 0, "seed {seed}");
    }
}

#[test]
fn in_a_world_of_napkeepers_what_azure_refuses_is_not_chosen_again() {
    let mut start = setup(vec![("web", deployment(shape("web", 1500), 1))]);
    let mut spot = NodePool { name: NodePoolName::new("spot").unwrap(), weight: 10, ..pool() };
    spot.requirements.remove(labels::CAPACITY_TYPE);
    spot.requirements.add(labels::CAPACITY_TYPE, Requirement::any_of(["spot"]));
    start.manifests.pools.push(spot);
    let capacity_type = Some(napkeeper_core::catalog::CapacityType::Spot);
    let shortage = ShortageSpec { size: None, zone: None, capacity_type, duration: Some(mins(600)) };
    start.actions.push((SignedDuration::ZERO, Action::Refuse(shortage)));
    let mut world = with_launches(&start);
    world.run_until(start.at + mins(20)).unwrap();
    assert_eq!(world.summary().pods_pending, 0);
}
