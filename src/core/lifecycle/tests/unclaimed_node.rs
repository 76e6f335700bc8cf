//! Nodes that are being deleted and have no NodeClaim.

use super::*;
use crate::lifecycle::ReleaseNodeScript;
use crate::model::azure::cloud::PowerState;
use crate::model::azure::naming::VM_TYPE;
use crate::model::cluster::pod::Pod;
use crate::model::names::{NodeName, ProviderId};

/// A Node that a user has deleted, with a pod, and without a NodeClaim.
fn deleted_node() -> (Snapshot, Arc<Pod>) {
    let mut snapshot = cluster([pool("general")]);
    let (_, mut node) = managed("general-aaaaa", &pool("general"), offering(SMALL, 1, Spot));
    node.deleting_at = Some(start());
    let pod = running("p", &Arc::new(shape("a", 500, 1)), &node);
    snapshot.put_pod(pod.clone());
    snapshot.put_node(node);
    (snapshot, Arc::new(pod))
}

#[test]
fn a_deleted_node_without_a_claim_is_drained_and_released() {
    let (mut snapshot, pod) = deleted_node();
    let mut memory = LifecycleMemory::default();
    assert_eq!(words(&decided(&snapshot, &mut memory, 0)), ["taint"]);
    taint(&mut snapshot);
    assert_eq!(words(&decided(&snapshot, &mut memory, 1)), ["evict"]);
    snapshot.remove_pod(&pod.key);
    assert_eq!(words(&decided(&snapshot, &mut memory, 3)), ["release node"]);
}

#[test]
fn a_node_that_may_have_a_claim_is_not_released() {
    let node = |change: fn(&mut crate::model::cluster::node::Node)| {
        let (mut snapshot, pod) = deleted_node();
        snapshot.remove_pod(&pod.key);
        taint(&mut snapshot);
        let mut node = crate::model::cluster::node::Node::clone(snapshot.nodes().values().next().unwrap());
        change(&mut node);
        snapshot.put_node(node);
        words(&decided(&snapshot, &mut LifecycleMemory::default(), 0))
    };
    assert_eq!(node(|_| {}), ["release node"]);
    assert!(node(|node| node.deleting_at = None).is_empty(), "it serves");
    assert!(node(|node| node.has_finalizer = false).is_empty(), "it is held by somebody else");
    assert!(node(|node| drop(node.labels.remove(labels::NODEPOOL))).is_empty(), "it is of no NodePool");
    assert!(node(|node| node.provider_id = None).is_empty(), "nothing says which VM it is");
    let of_vm = |node: &mut crate::model::cluster::node::Node, name: &str| {
        node.provider_id = Some(ProviderId::of_vm(&group().resource(VM_TYPE, name)));
        node.name = NodeName::new(name).unwrap();
    };
    let named = |name: &'static str| {
        let (mut snapshot, pod) = deleted_node();
        snapshot.remove_pod(&pod.key);
        taint(&mut snapshot);
        let old = Arc::clone(snapshot.nodes().values().next().unwrap());
        snapshot.remove_node(&old.name);
        let mut node = crate::model::cluster::node::Node::clone(&old);
        of_vm(&mut node, name);
        snapshot.put_node(node);
        words(&decided(&snapshot, &mut LifecycleMemory::default(), 0))
    };
    assert_eq!(named("aks-general-bcdfg"), ["release node"]);
    assert!(named("aks-user-general-bcdfg-12345678-vm").is_empty(), "AKS has named its VM");
    assert!(named("aks-general-bcdfg-12345678-vm").is_empty(), "AKS has named its VM");
}

#[test]
fn a_node_is_released_only_if_the_api_server_has_neither_its_claim_nor_pods_on_it() {
    let (mut snapshot, pod) = deleted_node();
    snapshot.remove_pod(&pod.key);
    taint(&mut snapshot);
    let plan = decided(&snapshot, &mut LifecycleMemory::default(), 0);
    let Command::ReleaseNode(command) = &plan.commands[0].command else { panic!("{plan:?}") };
    let released = |claim: Option<Arc<Claim>>, pods: Vec<Arc<Pod>>| {
        let (words, _) = play(&mut ReleaseNodeScript::new((**command).clone()), |_, effect| match effect {
            Effect::Read(ClusterRead::Claim(name)) if name.as_str() == "general-aaaaa" => {
                Ok(Reply::Claim(claim.clone()))
            }
            Effect::Read(ClusterRead::Pods(_)) => Ok(Reply::Pods(pods.clone())),
            other => fine(other),
        });
        words
    };
    assert_eq!(released(None, vec![]), ["read claim", "read pods", "delete node"]);
    assert_eq!(released(None, vec![pod]), ["read claim", "read pods"]);
    assert_eq!(released(Some(Arc::new(a_claim())), vec![]), ["read claim"]);
}

/// A Node that is not ready since the start, with a pod.
fn unready_node() -> Snapshot {
    let (mut snapshot, _) = deleted_node();
    taint(&mut snapshot);
    let mut node = crate::model::cluster::node::Node::clone(snapshot.nodes().values().next().unwrap());
    (node.ready, node.ready_since) = (false, start());
    snapshot.put_node(node);
    snapshot
}

#[test]
fn a_node_without_a_claim_that_is_not_ready_is_released_once_its_vm_is_lost() {
    let (snapshot, mut memory) = (unready_node(), LifecycleMemory::default());
    assert_eq!(words(&decided(&snapshot, &mut memory, 30)), ["evict"]);
    let plan = decided(&snapshot, &mut memory, 61);
    assert_eq!(words(&plan), ["evict", "release node"]);
    assert_eq!(words(&decided(&snapshot, &mut memory, 100)), ["evict"], "Azure is asked every two minutes");
    let Command::ReleaseNode(command) = &plan.commands[1].command else { panic!("{plan:?}") };
    let released = |states: [Option<PowerState>; 2]| {
        let mut states = states.into_iter();
        play(&mut ReleaseNodeScript::new((**command).clone()), |_, effect| match effect {
            Effect::Read(ClusterRead::Claim(_)) => Ok(Reply::Claim(None)),
            Effect::Cloud(CloudRequest::GetPowerState(_)) => Ok(Reply::PowerState(states.next().unwrap())),
            other => fine(other),
        })
    };
    let (asked, gone) = ("get power state", None);
    assert_eq!(released([gone, gone]), (vec!["read claim", asked, asked, "delete node"], 15));
    assert_eq!(released([gone, Some(PowerState::Running)]).0, ["read claim", asked, asked]);
    assert_eq!(released([Some(PowerState::Stopped), gone]).0, ["read claim", asked]);
}

#[test]
fn a_node_without_a_claim_is_released_when_a_person_declares_it_out_of_service() {
    let mut snapshot = unready_node();
    let mut node = crate::model::cluster::node::Node::clone(snapshot.nodes().values().next().unwrap());
    node.taints.push(Taint { key: Arc::from(labels::TAINT_OUT_OF_SERVICE), ..Taint::disrupted() });
    snapshot.put_node(node);
    assert_eq!(words(&decided(&snapshot, &mut LifecycleMemory::default(), 1)), ["release node"]);
}
