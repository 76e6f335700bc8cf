//! Measures how long it takes to find that no node of a large cluster can go, on one and on several threads.

use jiff::SignedDuration;
use napkeeper_core::catalog::{CapacityType, OfferingKey};
use napkeeper_core::disruption::{DisruptionMemory, disrupt};
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::azure::naming::resource_ids;
use napkeeper_core::model::cluster::claim::{Claim, ClaimSpec, ClaimStatus, LaunchIntent, PlannedOffering};
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::pool::NodePool;
use napkeeper_core::model::names::{ClaimName, NameError, ProviderId, Region, Uid, VmSize, Zone};
use napkeeper_core::model::settings::Settings;
use napkeeper_core::provisioning::ProvisionMemory;
use napkeeper_core::snapshot::Snapshot;
use napkeeper_tests::fixtures;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// How often each is measured; the median counts.
const REPEATS: usize = 5;

/// Measures one pass over a cluster whose nodes are full and cheap, and prints a line for each number of threads.
pub(crate) fn measure() -> Result<(), NameError> {
    let (nodes, pods) = (1_000, 20_000);
    let mut snapshot = fixtures::busy_cluster(nodes, pods);
    let pool = fixtures::pool("general");
    for node in snapshot.nodes().values().map(|node| Node::clone(node)).collect::<Vec<_>>() {
        own(&mut snapshot, &pool, node)?;
    }
    println!("\nconsolidation: a pass over {nodes} nodes with {pods} pods, none of which can go");
    let all = available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let alone = pass(&snapshot, NonZeroUsize::MIN);
    println!("  threads=1: {:.1} ms", alone.0.as_secs_f64() * 1000.0);
    if all > NonZeroUsize::MIN {
        let together = pass(&snapshot, all);
        let same = if together.1 == alone.1 { "the same answer" } else { "ANOTHER ANSWER" };
        println!("  threads={all}: {:.1} ms, {same}", together.0.as_secs_f64() * 1000.0);
    }
    Ok(())
}

/// One pass by so many threads: how long it takes, and what is remembered of it.
fn pass(snapshot: &Snapshot, threads: NonZeroUsize) -> (Duration, DisruptionMemory) {
    let settings = Settings { consolidation_threads: threads, ..fixtures::settings() };
    let provision = ProvisionMemory::default();
    let mut runs: Vec<(Duration, DisruptionMemory)> = (0..REPEATS)
        .map(|_| {
            let mut memory = DisruptionMemory::default();
            let now = fixtures::instant() + SignedDuration::from_mins(1);
            let begun = Instant::now();
            let plan = disrupt(snapshot, &mut memory, &provision, &settings, now, 1);
            assert!(plan.commands.is_empty(), "no node can go: {plan:?}");
            (begun.elapsed(), memory)
        })
        .collect();
    runs.sort_by_key(|(time, _)| *time);
    runs.swap_remove(REPEATS / 2)
}

/// Makes a node one of a NodeClaim that is so cheap that nothing replaces it.
fn own(snapshot: &mut Snapshot, pool: &NodePool, node: Node) -> Result<(), NameError> {
    let name = ClaimName::new(node.name.as_str())?;
    let (ids, now) = (resource_ids(&fixtures::settings().cluster.node_resource_group, &name), fixtures::instant());
    let key = OfferingKey {
        size: VmSize::new("Standard_D16s_v5")?,
        zone: Zone::of(&Region::new("westeurope")?, 1),
        capacity_type: CapacityType::OnDemand,
    };
    let offering = PlannedOffering { key, price: HourlyPrice::from_nanos(1) };
    let id = ProviderId::of_vm(&ids.vm);
    snapshot.put_claim(Claim {
        uid: Uid::new(name.as_str())?,
        created_at: now,
        deleting_at: None,
        termination_at: None,
        has_finalizer: true,
        spec: ClaimSpec {
            pool: Some(pool.name.clone()),
            class: pool.class.clone(),
            requirements: pool.requirements.clone(),
            requests: Resources::default(),
            labels: node.labels.clone(),
            taints: Vec::new(),
            startup_taints: Vec::new(),
            expire_after: None,
            termination_grace_period: None,
            planned: vec![offering.clone()],
            replaces: Vec::new(),
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
