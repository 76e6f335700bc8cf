//! The health of objects whose status Karpenter has written, beside which napkeeper is a companion.

use super::expect;
use anyhow::{Context, Result, ensure};
use napkeeper_tests::argo_cd::objects;
use serde_json::{Value, json};

/// A recorded state, its health, and words of the message.
type State = (&'static str, &'static str, &'static str);

const NODE_POOLS: [State; 7] = [
    // Karpenter says False of a class that it has not looked at yet.
    ("new-class", "Progressing", "NodeClassReady: Node Class Readiness Unknown"),
    ("missing-class", "Degraded", "NodeClassReady: NodeClass not found on cluster"),
    ("invalid", "Degraded", "ValidationSucceeded: duplicate taint Key/Effect pair a=NoSchedule"),
    ("ready", "Healthy", ""),
    ("with-node", "Healthy", ""),
    ("rolled", "Healthy", ""),
    ("nodes-do-not-register", "Degraded", "NodeRegistrationHealthy: Failed to register node"),
];

const NODE_CLAIMS: [State; 6] = [
    ("launched", "Progressing", "Registered: Node not registered with cluster"),
    ("registered", "Progressing", "Initialized: KnownEphemeralTaint \"node.kubernetes.io/not-ready:NoSchedule\""),
    ("initialized", "Healthy", ""),
    ("drifted", "Healthy", "Drifted: NodePoolDrifted"),
    ("replaced", "Progressing", "DisruptionReason: Drifted"),
    ("draining", "Progressing", "Drained: Draining"),
];

const AKS_NODE_CLASSES: [State; 7] = [
    ("new", "Progressing", "Waiting for the controller to check this version"),
    ("ready", "Healthy", ""),
    ("no-subnet", "Degraded", "SubnetsReady: resource not found: /subscriptions/s/resourceGroups/net"),
    (
        "no-images",
        "Degraded",
        "ImagesReady: ImageSelectors did not match any Images; LocalDNSReady: listing DaemonSets",
    ),
    ("upgrade", "Progressing", "ImagesReady: Performing kubernetes upgrade"),
    ("changed", "Progressing", "Waiting for the controller to check this version"),
    ("half-checked", "Progressing", "Waiting for the controller to check this version"),
];

fn check(manifests: &str, states: &[State]) -> Result<()> {
    let all = objects(manifests)?;
    ensure!(
        all.len() == states.len(),
        "{} states are recorded, and the health of {} is known",
        all.len(),
        states.len()
    );
    for (name, status, words) in states {
        let object =
            all.iter().find(|object| object["metadata"]["name"] == *name).with_context(|| format!("no {name}"))?;
        expect(object, status, words).with_context(|| format!("state {name}"))?;
    }
    Ok(())
}

#[test]
fn recorded_states_have_their_health() -> Result<()> {
    check(include_str!("recorded/nodepools.yaml"), &NODE_POOLS)?;
    check(include_str!("recorded/nodeclaims.yaml"), &NODE_CLAIMS)?;
    check(include_str!("recorded/aksnodeclasses.yaml"), &AKS_NODE_CLASSES)
}

/// A NodePool that was changed is judged by conditions about its new version alone.
#[test]
fn a_recorded_state_of_an_earlier_version_says_nothing() -> Result<()> {
    for mut pool in objects(include_str!("recorded/nodepools.yaml"))? {
        let next = pool["metadata"]["generation"].as_i64().context("a generation")? + 1;
        pool["metadata"]["generation"] = json!(next);
        expect(&pool, "Progressing", "Waiting")?;
        let conditions = pool["status"]["conditions"].as_array_mut().context("conditions")?;
        let ready = conditions.iter_mut().find(|condition| condition["type"] == "Ready").context("Ready")?;
        (ready["observedGeneration"], ready["status"]) = (json!(next), Value::from("True"));
        // What was False about the version before is not.
        expect(&pool, "Healthy", "")?;
    }
    Ok(())
}
