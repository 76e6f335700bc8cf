//! Reads what is known of removed nodes once: NodeRecords, and the events of NodeClaims.

use super::{ListError, all_of, list, none_if_not_served};
use crate::objects::raw_object;
use crate::write::events::CONTROLLER;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::Client;
use kube::api::ListParams;
use napkeeper_api::convert::{self, Violations};
use napkeeper_api::types::node_record::NodeRecord;
use napkeeper_core::model::azure::inventory::ListFailure;
use napkeeper_core::model::cluster::node_record::NodeRemoval;

/// An event of a NodeClaim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeClaimEvent {
    /// The NodeClaim.
    pub claim: String,
    /// Its UID; empty where the event has none.
    pub uid: String,
    /// The reason.
    pub reason: String,
    /// The message.
    pub message: String,
    /// When it was first reported.
    pub at: Timestamp,
}

/// All entries of NodeRecords, the oldest first; `None` where there is no NodeRecord.
///
/// # Errors
/// [`ListFailure`] where they may not be read, or one of them cannot be understood.
pub async fn read_removals(client: &Client) -> Result<Option<Vec<NodeRemoval>>, ListFailure> {
    let read = |object: &NodeRecord| convert::node_removals(&object.spec).map(Some);
    let objects = none_if_not_served(all_of(client, read).await, "noderecords")?;
    if objects.is_empty() {
        return Ok(None);
    }
    let mut removals = objects.concat();
    removals.sort_by(|a, b| (a.started, &a.uid).cmp(&(b.started, &b.uid)));
    Ok(Some(removals))
}

/// The events of NodeClaims, the oldest first. One without a time is left out.
///
/// # Errors
/// [`ListFailure`] where events may not be listed.
pub async fn read_node_claim_events(client: &Client) -> Result<Vec<NodeClaimEvent>, ListFailure> {
    let selection = ListParams::default().fields("involvedObject.kind=NodeClaim");
    let listed: Result<Vec<_>, ListError> =
        list(&raw_object::all::<Event>(client), selection, |event: &Event| Ok::<_, Violations>(event_of(event))).await;
    let mut events = listed.map_err(|error| error.of("events"))?;
    events.sort_by(|a, b| (a.at, &a.claim, &a.reason).cmp(&(b.at, &b.claim, &b.reason)));
    Ok(events)
}

fn event_of(event: &Event) -> Option<NodeClaimEvent> {
    let object = &event.involved_object;
    // Saved listings have events of all kinds.
    if object.kind.as_deref() != Some("NodeClaim") {
        return None;
    }
    // NodeRecords tell what napkeeper has done, and more of it.
    if event.reporting_component.as_deref() == Some(CONTROLLER) {
        return None;
    }
    let first = event.first_timestamp.as_ref().map(|time| time.0);
    let at = first.or_else(|| event.event_time.as_ref().map(|time| time.0))?;
    Some(NodeClaimEvent {
        claim: object.name.clone()?,
        uid: object.uid.clone().unwrap_or_default(),
        reason: event.reason.clone().unwrap_or_default(),
        message: event.message.clone().unwrap_or_default(),
        at,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, Fault};
    use serde_json::json;

    const RECORDS: &str = "/apis/napkeeper.io/v1alpha1/noderecords";
    const EVENTS: &str = "/api/v1/events";

    #[tokio::test]
    async fn entries_of_all_records_are_read_in_order() {
        assert_eq!(read_removals(&Fake::serving(&[]).client()).await, Ok(None), "the kind is not installed");
        let fake = Fake::serving(&[RECORDS]);
        assert_eq!(read_removals(&fake.client()).await, Ok(None), "there is none");
        for (name, minute) in [("napkeeper-history-0", 5), ("napkeeper-history-3", 2)] {
            let removal = json!({
                "by": "napkeeper", "pods": 0, "reason": "Empty", "removed": { "nodeClaim": "a" },
                "started": format!("2026-01-01T00:0{minute}:00Z"), "uid": name,
            });
            fake.put(RECORDS, json!({ "metadata": { "name": name }, "spec": { "removals": [removal] } }));
        }
        let removals = read_removals(&fake.client()).await.unwrap().unwrap();
        let uids: Vec<&str> = removals.iter().map(|removal| removal.uid.as_str()).collect();
        assert_eq!(uids, ["napkeeper-history-3", "napkeeper-history-0"]);
        fake.fail(RECORDS, Some(Fault::Status(403)));
        assert!(read_removals(&fake.client()).await.is_err());
    }

    #[tokio::test]
    async fn only_events_of_node_claims_with_a_time_and_by_others_are_read() {
        let fake = Fake::serving(&[EVENTS]);
        let event = |name: &str, kind: &str, time: serde_json::Value| {
            json!({
                "metadata": { "name": name, "namespace": "default" },
                "involvedObject": { "kind": kind, "name": "general-a", "uid": "u-1" },
                "reason": "DisruptionTerminating", "message": "Disrupting NodeClaim: Drifted", "firstTimestamp": time,
            })
        };
        let time = json!("2026-01-01T00:00:00Z");
        fake.put(EVENTS, event("a", "NodeClaim", time.clone()));
        fake.put(EVENTS, event("b", "Node", time));
        fake.put(EVENTS, event("c", "NodeClaim", json!(null)));
        let mut own = event("d", "NodeClaim", json!("2026-01-01T00:00:00Z"));
        own["reportingComponent"] = json!("napkeeper.io/controller");
        fake.put(EVENTS, own);
        let events = read_node_claim_events(&fake.client()).await.unwrap();
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!((events[0].claim.as_str(), events[0].uid.as_str()), ("general-a", "u-1"));
    }
}
