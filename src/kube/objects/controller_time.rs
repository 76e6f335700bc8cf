//! Converts objects to the domain, and the times that the API server and kubelets stamped to the controller's clock.
//!
//! Times that napkeeper itself wrote (conditions of NodeClaims, intents, records) are the controller's already.

use k8s_openapi::api::core::v1 as wire;
use napkeeper_api::convert::{self, Violations};
use napkeeper_api::types::karpenter::NodeClaim;
use napkeeper_core::engine::clock::Clock;
use napkeeper_core::model::cluster::claim::Claim;
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::pod::Pod;
use napkeeper_core::model::settings::NodeHealthRules;
use std::sync::Arc;

/// A pod, opaque if it is invalid, and its violations.
pub(crate) fn pod(object: &wire::Pod, clock: &dyn Clock) -> Result<(Arc<Pod>, Option<Violations>), Violations> {
    let (mut pod, wrong) = convert::pod_or_opaque(object)?;
    pod.created_at = clock.shifted(pod.created_at);
    pod.started_at = pod.started_at.map(|t| clock.shifted(t));
    pod.deleting_at = pod.deleting_at.map(|t| clock.shifted(t));
    Ok((Arc::new(pod), wrong))
}

/// A Node.
pub(crate) fn node(object: &wire::Node, clock: &dyn Clock) -> Result<Arc<Node>, Violations> {
    timed_node(object, clock).map(Arc::new)
}

/// A Node with only those conditions that a rule concerns: it is kept in memory.
pub(crate) fn watched_node(
    object: &wire::Node,
    clock: &dyn Clock,
    rules: &NodeHealthRules,
) -> Result<Arc<Node>, Violations> {
    let mut node = timed_node(object, clock)?;
    node.conditions.retain(|condition| rules.concern(condition));
    node.conditions.shrink_to_fit();
    Ok(Arc::new(node))
}

fn timed_node(object: &wire::Node, clock: &dyn Clock) -> Result<Node, Violations> {
    let mut node = convert::node(object)?;
    node.created_at = clock.shifted(node.created_at);
    node.ready_since = clock.shifted(node.ready_since);
    node.deleting_at = node.deleting_at.map(|t| clock.shifted(t));
    for condition in &mut node.conditions {
        condition.since = clock.shifted(condition.since);
        condition.not_before = condition.not_before.map(|t| clock.shifted(t));
    }
    Ok(node)
}

/// A NodeClaim.
pub(crate) fn claim(object: &NodeClaim, clock: &dyn Clock) -> Result<Arc<Claim>, Violations> {
    let mut claim = convert::claim(object)?;
    claim.created_at = clock.shifted(claim.created_at);
    claim.deleting_at = claim.deleting_at.map(|t| clock.shifted(t));
    Ok(Arc::new(claim))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::{SignedDuration, Timestamp};
    use serde_json::{Value, json};

    /// A clock an hour ahead.
    #[derive(Debug)]
    struct HourAhead;

    impl Clock for HourAhead {
        fn now(&self) -> Timestamp {
            Timestamp::MAX
        }
        fn shifted(&self, real: Timestamp) -> Timestamp {
            real + SignedDuration::from_hours(1)
        }
    }

    fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn stamped_times_are_shifted_and_our_own_are_not() {
        let pod_object = read(json!({
            "metadata": { "name": "p", "creationTimestamp": "2026-03-01T10:00:00Z",
                "deletionTimestamp": "2026-03-01T10:30:30Z", "deletionGracePeriodSeconds": 30 },
            "spec": { "containers": [] },
            "status": { "startTime": "2026-03-01T10:01:00Z" },
        }));
        let (pod, wrong) = pod(&pod_object, &HourAhead).unwrap();
        assert_eq!(wrong, None);
        assert_eq!(pod.created_at, at("2026-03-01T11:00:00Z"));
        assert_eq!(pod.started_at, Some(at("2026-03-01T11:01:00Z")));
        assert_eq!(pod.deleting_at, Some(at("2026-03-01T11:30:00Z")), "asked to end, its grace not counted");

        let node_object = read(json!({
            "metadata": { "name": "n", "creationTimestamp": "2026-03-01T10:00:00Z",
                "deletionTimestamp": "2026-03-01T10:30:00Z" },
            "status": { "conditions": [
                { "type": "Ready", "status": "True", "lastTransitionTime": "2026-03-01T10:02:00Z" },
                { "type": "DiskPressure", "status": "False", "lastTransitionTime": "2026-03-01T10:02:00Z" },
                { "type": "PreemptionScheduled", "status": "True", "lastTransitionTime": "2026-03-01T10:03:00Z",
                  "message": "Preempt Scheduled: Sun, 01 Mar 2026 10:03:30 GMT." }] },
        }));
        let watched = watched_node(&node_object, &HourAhead, &NodeHealthRules::default()).unwrap();
        let [notice] = &watched.conditions[..] else { panic!("{:?}", watched.conditions) };
        assert_eq!(notice.since, at("2026-03-01T11:03:00Z"));
        assert_eq!(notice.not_before, Some(at("2026-03-01T11:03:30Z")));
        let node = node(&node_object, &HourAhead).unwrap();
        assert_eq!(node.conditions.len(), 2);
        assert_eq!((node.ready, node.ready_since), (true, at("2026-03-01T11:02:00Z")));
        assert_eq!(node.deleting_at, Some(at("2026-03-01T11:30:00Z")));

        let claim_object = read(json!({
            "metadata": { "name": "c", "creationTimestamp": "2026-03-01T10:00:00Z" },
            "spec": { "nodeClassRef": { "group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "d" },
                "requirements": [] },
            "status": { "conditions": [{ "type": "Launched", "status": "True", "reason": "Launched",
                "message": "", "lastTransitionTime": "2026-03-01T10:02:00Z" }] },
        }));
        let claim = claim(&claim_object, &HourAhead).unwrap();
        assert_eq!(claim.created_at, at("2026-03-01T11:00:00Z"));
        assert_eq!(claim.status.launched, Some(at("2026-03-01T10:02:00Z")));
    }
}
