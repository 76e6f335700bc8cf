//! Nodes that are being deleted and have no NodeClaim.

use super::*;
use crate::lifecycle::ReleaseNodeScript;
use crate::model::cluster::pod::Pod;

/// A Node that a user has deleted, with a pod, and without a NodeClaim.
fn deleted_node() -> (Snapshot, Arc<Pod>) {
    let mut snapshot = draining(|claim, node, _| {
        claim.deleting_at = None;
        node.deleting_at = Some(start());
    });
    snapshot.remove_claim(&ClaimName::new("general-a").unwrap());
    let pod = Arc::clone(snapshot.pods().values().next().unwrap());
    (snapshot, pod)
}

#[test]
fn a_deleted_node_without_a_claim_is_drained_and_released() {
    let (mut snapshot, pod) = deleted_node();
    let mut memory = LifecycleMemory::default();
    assert_eq!(words(&decided(&snapshot, &mut memory, 0)), ["taint"]);
    taint(&mut snapshot);
    assert_eq!(words(&decided(&snapshot, &mut memory, 1)), ["evict"]);
    assert_eq!(words(&decided(&snapshot, &mut memory, 2)), Vec::<&str>::new());
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
            Effect::Read(ClusterRead::Claim(name)) if name.as_str() == "general-a" => Ok(Reply::Claim(claim.clone())),
            Effect::Read(ClusterRead::Pods(_)) => Ok(Reply::Pods(pods.clone())),
            other => fine(other),
        });
        words
    };
    assert_eq!(released(None, vec![]), ["read claim", "read pods", "delete node"]);
    assert_eq!(released(None, vec![pod]), ["read claim", "read pods"]);
    assert_eq!(released(Some(Arc::new(a_claim())), vec![]), ["read claim"]);
}
