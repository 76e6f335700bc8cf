//! Conversion of the conditions of a Node.

use jiff::Timestamp;
use jiff::fmt::rfc2822;
use k8s_openapi::api::core::v1::NodeCondition as WireCondition;
use napkeeper_core::model::cluster::node::{ConditionStatus, NodeCondition};
use std::sync::Arc;

/// Longest message that is kept. Those of Azure's events have some 120 characters.
const MAX_MESSAGE: usize = 300;

/// Reads conditions, but that the node is ready. One without a time has its status since the Node was created; a status that
/// Kubernetes does not know is left out.
pub(super) fn node_conditions(conditions: &[WireCondition], created_at: Timestamp) -> Vec<NodeCondition> {
    let read = |wire: &WireCondition| {
        let status = match wire.status.as_str() {
            "True" if wire.type_ == "Ready" => return None,
            "True" => ConditionStatus::True,
            "False" => ConditionStatus::False,
            "Unknown" => ConditionStatus::Unknown,
            _ => return None,
        };
        let message: String = wire.message.iter().flat_map(|message| message.chars()).take(MAX_MESSAGE).collect();
        Some(NodeCondition {
            kind: Arc::from(wire.type_.as_str()),
            status,
            since: wire.last_transition_time.as_ref().map_or(created_at, |time| time.0),
            reason: Arc::from(wire.reason.as_deref().unwrap_or_default()),
            not_before: not_before(&message),
            message: Arc::from(message),
        })
    };
    conditions.iter().filter_map(read).collect()
}

/// The time that a message of AKS's Node Problem Detector names: `Preempt Scheduled: Sat, 01 Aug 2026 05:41:02 GMT. …`.
fn not_before(message: &str) -> Option<Timestamp> {
    let (before, _) = message.split_once(" GMT")?;
    let (_, date) = before.rsplit_once(": ")?;
    Some(rfc2822::parse(&format!("{date} GMT")).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(conditions: serde_json::Value) -> Vec<NodeCondition> {
        node_conditions(&serde_json::from_value::<Vec<WireCondition>>(conditions).unwrap(), Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn conditions_are_read_with_their_times() {
        let since = "2026-08-01T05:40:00Z";
        let found = read(json!([
            { "type": "Ready", "status": "True", "lastTransitionTime": since },
            { "type": "VMEventScheduled", "status": "True", "lastTransitionTime": since, "reason": "VMEventScheduled",
              "message": "Preempt Scheduled: Sat, 01 Aug 2026 05:41:02 GMT. DurationInSeconds: -1." },
            { "type": "kubernetes.azure.com/NodeHealthy", "status": "False" },
            { "type": "Odd", "status": "Maybe" },
        ]));
        let [event, healthy] = &found[..] else { panic!("{found:?}") };
        assert_eq!((&*event.kind, event.status), ("VMEventScheduled", ConditionStatus::True));
        assert_eq!((event.since, &*event.reason), (since.parse().unwrap(), "VMEventScheduled"));
        assert_eq!(event.not_before, Some("2026-08-01T05:41:02Z".parse().unwrap()));
        assert_eq!((healthy.status, healthy.since), (ConditionStatus::False, Timestamp::UNIX_EPOCH));
        assert_eq!(healthy.not_before, None);
        let ready = |status: &str| read(json!([{ "type": "Ready", "status": status }])).len();
        assert_eq!(["True", "False", "Unknown"].map(ready), [0, 1, 1]);
    }

    #[test]
    fn only_a_date_of_azure_is_a_time() {
        for (message, found) in [
            ("Preempt Scheduled: Wed, 26 Feb 2025 10:13:13 GMT. DurationInSeconds: -1.", Some("2025-02-26T10:13:13Z")),
            ("Preempt Scheduled: . For more information, see https://aka.ms/aks/scheduledevents.", None),
            ("Preempt Scheduled: soon GMT", None),
            ("no event, all times are GMT", None),
            ("", None),
        ] {
            assert_eq!(not_before(message), found.map(|time| time.parse().unwrap()), "{message}");
        }
        let long = read(json!([{ "type": "X", "status": "True", "message": "ä".repeat(10_000) }]));
        assert_eq!(long[0].message.chars().count(), MAX_MESSAGE);
    }
}
