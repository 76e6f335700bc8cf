//! Tests of CapacityBuffers: their capacity is launched, kept free, given to pods, and released.

use super::*;
use crate::catalog::CapacityType::OnDemand;
use crate::disruption::{DisruptionMemory, disrupt};
use crate::fixtures::{at, cluster, full_subnet, managed, offering, pod, pool, put, running, settings, shape};
use crate::model::cluster::buffer::Buffer;
use crate::model::cluster::node::Node;
use crate::model::cluster::pod::Taint;
use crate::model::names::{Namespace, ObjectName, Uid};
use crate::plan::{ClaimDraft, ClaimUpdate, Command, NodeUpdate, Plan};
use crate::provisioning::{ProvisionMemory, provision};

const SMALL: &str = "Standard_D2s_v5";
const LARGE: &str = "Standard_D16s_v5";

/// A CapacityBuffer with this many chunks.
fn buffer(chunks: u32, cpu_millis: i64) -> Buffer {
    let key = ObjectKey { namespace: Namespace::new("shop").unwrap(), name: ObjectName::new("spare").unwrap() };
    Buffer::new(key, &Uid::new("uid-spare").unwrap(), &shape("web", cpu_millis, 1), chunks)
}

fn put_buffer(snapshot: &mut Snapshot, chunks: u32, cpu_millis: i64) {
    let buffer = buffer(chunks, cpu_millis);
    snapshot.put_buffer(buffer.key.clone(), buffer);
}

fn let_go(snapshot: &mut Snapshot) {
    snapshot.remove_buffer(&buffer(0, 0).key);
}

/// Claims that are created once the window has closed.
fn created(snapshot: &Snapshot, memory: &mut ProvisionMemory, seconds: i64) -> Vec<(ClaimDraft, String)> {
    let mut plan = provision(snapshot, memory, &settings(), at(seconds), 7);
    if plan.commands.is_empty() {
        plan = provision(snapshot, memory, &settings(), at(seconds + 1), 7);
    }
    let draft = |planned: crate::plan::PlannedCommand| match planned.command {
        Command::CreateClaim(draft) => (*draft, planned.reason.to_string()),
        other => panic!("unexpected {other:?}"),
    };
    plan.commands.into_iter().map(draft).collect()
}

/// Nodes of one pool, all of one size.
fn nodes(size: &str, count: usize) -> (Snapshot, Vec<Node>) {
    let pool = pool("general");
    let mut snapshot = cluster([pool.clone()]);
    let made = (0..count).map(|n| managed(&format!("c{n}"), &pool, offering(size, 1, OnDemand)));
    let all = made.map(|(mut claim, node)| {
        // Nothing has changed on it for an hour.
        claim.status.initialized = Some(at(-3600));
        put(&mut snapshot, (claim, node.clone()));
        node
    });
    let all = all.collect();
    (snapshot, all)
}

/// Deletions and replacements within a minute.
fn disrupted(snapshot: &Snapshot) -> Vec<String> {
    let mut memory = DisruptionMemory::default();
    let word = |command: &Command| match command {
        Command::DeleteClaim { claim, category, .. } => Some(format!("{category} {}", claim.name)),
        Command::UpdateClaim { claim, update: ClaimUpdate::Disrupted(_) } => Some(format!("replace {}", claim.name)),
        Command::UpdateNode { update: NodeUpdate::AddTaint(taint), .. } if *taint == Taint::underutilized() => None,
        other => panic!("unexpected {other:?}"),
    };
    let pass = |now| -> Plan { disrupt(snapshot, &mut memory, &ProvisionMemory::default(), &settings(), at(now), 1) };
    let plans = (0..=60).step_by(10).map(pass);
    let mut done = plans.map(|plan| plan.commands.iter().filter_map(|planned| word(&planned.command)).collect());
    done.find(|words: &Vec<String>| !words.is_empty()).unwrap_or_default()
}

fn buffer_placement(memory: &ProvisionMemory) -> (usize, usize, usize) {
    let BufferPlacement { on_existing_nodes, on_new_nodes, unplaced, .. } = memory.buffer_statuses[&buffer(0, 0).key];
    (on_existing_nodes, on_new_nodes, unplaced)
}

#[test]
fn capacity_is_launched_for_chunks_and_no_pod_is_nominated() {
    let mut snapshot = cluster([pool("general")]);
    put_buffer(&mut snapshot, 3, 1000);
    let mut memory = ProvisionMemory::default();
    let created = created(&snapshot, &mut memory, 0);
    let total: i64 = created.iter().map(|(draft, _)| draft.spec.requests.cpu_millis).sum();
    assert!(!created.is_empty() && total >= 3_000, "{created:?}");
    assert!(
        created.iter().all(|(draft, reason)| draft.pods.is_empty() && reason.contains("of CapacityBuffers")),
        "{created:?}"
    );
    assert_eq!(buffer_placement(&memory), (0, 3, 0));
    assert!(memory.unplaced.is_empty());
}

#[test]
fn existing_free_capacity_is_not_launched_again() {
    let (mut snapshot, nodes) = nodes(LARGE, 1);
    put_buffer(&mut snapshot, 3, 1000);
    let mut memory = ProvisionMemory::default();
    assert_eq!(created(&snapshot, &mut memory, 0), []);
    assert_eq!(buffer_placement(&memory), (3, 0, 0));
    assert!(memory.nominated.is_empty(), "a chunk nominates no node");
    // A pod that waits takes the capacity, and the capacity is rebuilt beside it.
    snapshot.put_pod(pod("first", &Arc::new(shape("big", 13_000, 1))));
    let more = created(&snapshot, &mut memory, 20);
    assert_eq!(more.len(), 1, "{more:?}");
    let first = Target::Node(nodes[0].name.clone());
    assert!(memory.nominated.contains_key(&first) && more[0].0.pods.is_empty(), "the pod goes to what exists");
}

#[test]
fn unplaced_chunks_are_distinguished_from_pods() {
    let mut snapshot = cluster([pool("general")]);
    put_buffer(&mut snapshot, 2, 900_000);
    let mut memory = ProvisionMemory::default();
    assert_eq!(created(&snapshot, &mut memory, 0), []);
    assert_eq!((buffer_placement(&memory), memory.unplaced.len()), ((0, 0, 2), 0));
    let reason = memory.buffer_statuses.values().next().unwrap().reason.clone().unwrap();
    assert_eq!(reason, "general: no available instance type is large enough");
    let_go(&mut snapshot);
    assert_eq!(created(&snapshot, &mut memory, 20), []);
    assert!(memory.buffer_statuses.is_empty());
}

#[test]
fn chunks_that_lack_an_address_are_looked_at_again_when_azure_has_counted_again() {
    let mut snapshot = cluster([pool("general")]);
    snapshot.set_infrastructure(full_subnet(at(0)));
    put_buffer(&mut snapshot, 1, 1000);
    let mut memory = ProvisionMemory::default();
    assert_eq!(created(&snapshot, &mut memory, 0), []);
    assert_eq!(buffer_placement(&memory), (0, 0, 1));
    snapshot.set_infrastructure(full_subnet(at(180)));
    assert_eq!(provision(&snapshot, &mut memory, &settings(), at(185), 7).next, Some(at(195)), "tried again");
}

#[test]
fn an_empty_node_is_kept_while_chunks_use_its_capacity() {
    let (mut snapshot, _) = nodes(SMALL, 3);
    put_buffer(&mut snapshot, 2, 1000);
    let words = disrupted(&snapshot);
    let empty: Vec<&String> = words.iter().filter(|word| word.starts_with("empty")).collect();
    assert_eq!(empty, ["empty c2"], "one chunk on each of two nodes");
    let_go(&mut snapshot);
    assert_eq!(disrupted(&snapshot).len(), 3);
}

#[test]
fn pending_pods_come_before_chunks_in_disruption_too() {
    let (mut snapshot, all) = nodes(SMALL, 3);
    snapshot.put_pod(running("p", &Arc::new(shape("a", 1500, 1)), &all[0]));
    let mut leaving = snapshot.claims().values().find(|claim| claim.name.as_str() == "c0").unwrap().as_ref().clone();
    leaving.deleting_at = Some(at(0));
    snapshot.put_claim(leaving);
    put_buffer(&mut snapshot, 1, 1000);
    let mut memory = ProvisionMemory::default();
    assert_eq!(created(&snapshot, &mut memory, 0), [], "the pod of c0 goes to c1, and the chunk to c2");
    let words = disrupted(&snapshot);
    // A cheaper node may replace one of them, and is launched first.
    let is_deletion = |word: &String| !word.starts_with("replace");
    assert!(!words.iter().any(is_deletion), "otherwise capacity for one would be launched again: {words:?}");
}

#[test]
fn consolidation_keeps_capacity_that_chunks_need() {
    let (mut snapshot, all) = nodes(SMALL, 2);
    snapshot.put_pod(running("p", &Arc::new(shape("a", 1000, 1)), &all[0]));
    snapshot.put_pod(running("q", &Arc::new(shape("a", 100, 1)), &all[1]));
    assert_eq!(disrupted(&snapshot), ["underutilized c0"], "its pod fits beside the other");
    put_buffer(&mut snapshot, 1, 1000);
    let words = disrupted(&snapshot);
    assert!(!words.iter().any(|word| word.contains("underutilized")), "the chunk uses its capacity: {words:?}");
}

#[test]
fn a_node_for_chunks_alone_is_replaced_by_a_cheaper_one() {
    let (mut snapshot, _) = nodes(LARGE, 1);
    put_buffer(&mut snapshot, 1, 1000);
    let words = disrupted(&snapshot);
    assert!(words.len() == 1 && words[0].starts_with("replace "), "{words:?}");
}

#[test]
fn chunks_without_capacity_do_not_prevent_consolidation() {
    let (mut snapshot, all) = nodes(SMALL, 2);
    snapshot.put_pod(running("p", &Arc::new(shape("a", 1000, 1)), &all[0]));
    snapshot.put_pod(running("q", &Arc::new(shape("a", 100, 1)), &all[1]));
    put_buffer(&mut snapshot, 3, 900_000);
    assert_eq!(disrupted(&snapshot), ["underutilized c0"]);
}

#[test]
fn no_node_is_empty_before_buffers_are_synced() {
    let (mut snapshot, _) = nodes(SMALL, 2);
    snapshot.buffers_unsynced = true;
    assert_eq!(disrupted(&snapshot), Vec::<String>::new());
    snapshot.buffers_unsynced = false;
    assert_eq!(disrupted(&snapshot).len(), 2);
}

#[test]
fn a_chunk_is_nobodys_neighbour() {
    let mut snapshot = cluster([pool("general")]);
    put_buffer(&mut snapshot, 1, 1000);
    let near = crate::model::cluster::pod::PodTerm {
        topology_key: crate::model::labels::interned(crate::model::labels::ZONE),
        namespaces: [shape("web", 1, 1).namespace].into(),
        namespace_selector: None,
        selector: crate::fixtures::requirements_in(&[("app", &["web"])]),
    };
    let affinity = crate::model::cluster::pod::PodAffinity { near: vec![near], apart: Vec::new() };
    let follower =
        crate::model::cluster::pod::PodShape { affinity: Some(Box::new(affinity)), ..shape("follower", 100, 1) };
    snapshot.put_pod(pod("follower", &Arc::new(follower)));
    let mut memory = ProvisionMemory::default();
    assert_eq!(created(&snapshot, &mut memory, 0).len(), 1, "for the chunk");
    assert_eq!(memory.unplaced.len(), 1, "no pod of web runs, and kube-scheduler knows of none");
}
