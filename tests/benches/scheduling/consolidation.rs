//! Measures how long it takes to find which nodes of a large cluster can go, on one and on several threads.

use anyhow::{Context, Result};
use jiff::SignedDuration;
use napkeeper_core::catalog::{CapacityType, Catalog, InstanceTypeOptions, OfferingKey};
use napkeeper_core::disruption::{DisruptionMemory, disrupt};
use napkeeper_core::engine::control_loop::{Controller, ControllerConfig};
use napkeeper_core::engine::decision::DecisionKind;
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::azure::naming::resource_ids;
use napkeeper_core::model::cluster::claim::{Claim, ClaimSpec, ClaimStatus, LaunchIntent, PlannedOffering};
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::pool::NodePool;
use napkeeper_core::model::names::{ClaimName, NameError, ProviderId, Region, Uid, VmSize, Zone};
use napkeeper_core::model::settings::Settings;
use napkeeper_core::plan::{Command, PlannedCommand};
use napkeeper_core::provisioning::ProvisionMemory;
use napkeeper_core::snapshot::delta::Delta;
use napkeeper_core::snapshot::{CommandKey, Snapshot};
use napkeeper_tests::fixtures;
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// How often each is measured; the median counts.
const REPEATS: usize = 5;

/// A cluster of 1,000 nodes that is consolidated.
struct Case {
    name: &'static str,
    pods: usize,
    /// What a node costs, in nano-USD per hour.
    price: i64,
}

/// The last is what is left when half of the load has gone: half of the nodes can go, as many together as budgets allow.
const CASES: [Case; 3] = [
    Case { name: "full and cheap: no node can go", pods: 20_000, price: 1 },
    Case { name: "full, at the price of the catalogue", pods: 20_000, price: 921_000_000 },
    Case { name: "half of the pods have gone", pods: 10_000, price: 921_000_000 },
];
const NODES: usize = 1_000;

/// Measures a first pass over each cluster, the next one, which looks at further nodes, and one when there is nothing to do yet,
/// and prints a line for each number of threads; then what else is decided beside a first pass.
pub(crate) fn measure() -> Result<()> {
    println!("\nconsolidation: a pass over {NODES} nodes, the next one 10 s later, and one when nothing has changed");
    let all = available_parallelism().unwrap_or(NonZeroUsize::MIN);
    for case in CASES {
        let mut snapshot = fixtures::busy_cluster(NODES, case.pods);
        let pool = fixtures::pool("general");
        for node in snapshot.nodes().values().map(|node| Node::clone(node)).collect::<Vec<_>>() {
            own(&mut snapshot, &pool, (node, case.price))?;
        }
        println!("  {}, {} pods", case.name, case.pods);
        let mut answers = Vec::new();
        for threads in BTreeSet::from([NonZeroUsize::MIN, all]) {
            let passes = passes(&snapshot, threads);
            let [first, next, idle] = passes.took.map(|took| took.as_secs_f64() * 1000.0);
            println!("    threads={threads}: {first:.1} ms, then {next:.1} ms; nothing changed: {idle:.1} ms");
            answers.push(passes.memory);
        }
        let is_same = answers.windows(2).all(|pair| pair[0] == pair[1]);
        assert!(is_same, "the answer depends on the number of threads");
        beside(snapshot, all)?;
    }
    Ok(())
}

/// Measures how long it takes from a change of a NodeClaim to the command for it, while such a pass runs on all threads.
fn beside(snapshot: Snapshot, threads: NonZeroUsize) -> Result<()> {
    let settings = Settings { consolidation_threads: threads, ..fixtures::settings() };
    let region = Catalog::embedded()?.region(&settings.cluster.region).context("no such region in the catalogue")?;
    let config =
        ControllerConfig { settings: &settings, catalog: &region, options: InstanceTypeOptions::default(), seed: 1 };
    let now = fixtures::instant() + SignedDuration::from_mins(10);
    let claims: Vec<Arc<Claim>> = snapshot.claims().values().cloned().collect();
    let mut controller = Controller::default();
    controller.restart(snapshot);
    let pass = controller.begin_decision(DecisionKind::Disruption, BTreeSet::new(), &settings, now);
    let pass = pass.context("no pass of disruption")?;
    let mut times = Vec::new();
    std::thread::scope(|scope| {
        let pass = scope.spawn(|| pass.decide(&settings, now, 1));
        for claim in &claims {
            if pass.is_finished() {
                break;
            }
            let begun = Instant::now();
            let status = ClaimStatus { initialized: None, ..claim.status.clone() };
            controller.apply(&Delta::Claim(Arc::new(Claim { status, ..Claim::clone(claim) })));
            let request = controller.begin_decision(DecisionKind::Reconciliation, BTreeSet::new(), &settings, now);
            let started =
                request.map(|request| controller.apply_decision(request.decide(&settings, now, 1), config, now));
            times.push(begun.elapsed());
            let key = claim.status.node_name.clone().map(CommandKey::Node);
            let is_about = |planned: &PlannedCommand| Some(planned.command.key()) == key;
            assert!(started.iter().flatten().any(is_about), "nothing is done about {key:?}");
        }
    });
    times.sort();
    let ms = |at: usize| times.get(at).map_or(0.0, |took| took.as_secs_f64() * 1000.0);
    let (count, last) = (times.len(), times.len().saturating_sub(1));
    println!(
        "    beside it, {count} NodeClaims advance: median {:.1} ms, at the most {:.1} ms",
        ms(count / 2),
        ms(last)
    );
    Ok(())
}

/// Passes one after the other.
struct Passes {
    took: [Duration; 3],
    /// What is remembered after all.
    memory: DisruptionMemory,
}

/// Those with the median time of the first, by so many threads.
fn passes(snapshot: &Snapshot, threads: NonZeroUsize) -> Passes {
    let settings = Settings { consolidation_threads: threads, ..fixtures::settings() };
    let provision = ProvisionMemory::default();
    let mut runs: Vec<Passes> = (0..REPEATS)
        .map(|_| {
            let mut memory = DisruptionMemory::default();
            let took = [0, 10, 11].map(|secs| {
                let now = fixtures::instant() + SignedDuration::from_mins(10) + SignedDuration::from_secs(secs);
                let begun = Instant::now();
                let plan = disrupt(snapshot, &mut memory, &provision, &settings, now, 1);
                let took = begun.elapsed();
                let deletes =
                    plan.commands.iter().any(|planned| matches!(planned.command, Command::DeleteClaim { .. }));
                assert!(!deletes, "what is found must hold for 15 s: {plan:?}");
                took
            });
            Passes { took, memory }
        })
        .collect();
    runs.sort_by_key(|passes| passes.took[0]);
    runs.swap_remove(REPEATS / 2)
}

/// Makes a node one of a NodeClaim with this price.
fn own(snapshot: &mut Snapshot, pool: &NodePool, (node, price): (Node, i64)) -> Result<(), NameError> {
    let name = ClaimName::new(node.name.as_str())?;
    let (ids, now) = (resource_ids(&fixtures::settings().cluster.node_resource_group, &name), fixtures::instant());
    let key = OfferingKey {
        size: VmSize::new("Standard_D16s_v5")?,
        zone: Zone::of(&Region::new("westeurope")?, 1),
        capacity_type: CapacityType::OnDemand,
    };
    let offering = PlannedOffering { key, price: HourlyPrice::from_nanos(price) };
    let id = ProviderId::of_vm(&ids.vm);
    snapshot.put_claim(Claim {
        uid: Uid::new(name.as_str())?,
        created_at: now,
        deleting_at: None,
        termination_at: None,
        owned_by_pool: false,
        has_finalizer: true,
        spec: ClaimSpec {
            pool: Some(pool.name.clone()),
            requirements: pool.requirements.clone(),
            labels: node.labels.clone(),
            planned: vec![offering.clone()],
            ..ClaimSpec::of_class(pool.class.clone())
        },
        intent: Some(LaunchIntent {
            offering,
            vm: ids.vm,
            nic: ids.nic,
            os_disk: ids.os_disk,
            machine: None,
            written_at: now,
            refused: 0,
            operation: None,
            reservation: None,
        }),
        status: ClaimStatus {
            launched: Some(now),
            registered: Some(now),
            initialized: Some(now),
            provider_id: Some(id.clone()),
            node_name: Some(node.name.clone()),
            ..ClaimStatus::default()
        },
        name,
    });
    snapshot.put_node(Arc::new(Node { provider_id: Some(id), has_finalizer: true, ..node }));
    Ok(())
}
