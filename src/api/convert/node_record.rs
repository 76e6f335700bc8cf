//! Conversion of NodeRecords.

use crate::convert::common;
use crate::convert::violations::Violations;
use crate::field_path::Path;
use crate::types::node_record as wire;
use crate::types::node_record::{NodeRecordSpec, RemovalEntry};
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::cluster::node_record::{NodeRemoval, RecordedNode, RemovedBy};
use napkeeper_core::model::cluster::offering::{CapacityType, OfferingKey};
use napkeeper_core::model::names::{ClaimName, NodeName, NodePoolName, Uid, VmSize, Zone};
use std::sync::Arc;

/// Reads the entries of a NodeRecord.
///
/// # Errors
/// [`Violations`]: all that is wrong with them.
pub fn node_removals(spec: &NodeRecordSpec) -> Result<Vec<NodeRemoval>, Violations> {
    let mut found = Violations::default();
    let at = Path::from_dotted("spec").key("removals");
    let entries = spec.removals.iter().flatten().enumerate();
    let removals = entries.filter_map(|(i, entry)| removal(entry, &at.index(i), &mut found)).collect();
    found.finish(Some(removals))
}

fn removal(entry: &RemovalEntry, at: &Path, found: &mut Violations) -> Option<NodeRemoval> {
    let uid = found.take(&at.key("uid"), Uid::new(&entry.uid));
    let removed = recorded(&entry.removed, &at.key("removed"), found);
    let pool = found.take_some(&at.key("nodePool"), entry.node_pool.as_deref(), |name| NodePoolName::new(name));
    let replacements = entry.replacements.iter().flatten().enumerate();
    let replacements =
        replacements.filter_map(|(i, node)| recorded(node, &at.key("replacements").index(i), found)).collect();
    let by = RemovedBy::ALL.into_iter().find(|by| by.as_str() == entry.by);
    let by = found.take(&at.key("by"), by.ok_or("must be napkeeper, Karpenter, Azure, other or unknown"));
    let started = found.take(&at.key("started"), common::time(&entry.started));
    let ended = found.take_some(&at.key("ended"), entry.ended.as_deref(), common::time);
    let pods = found.take(&at.key("pods"), u32::try_from(entry.pods).map_err(|_| "must not be negative"));
    Some(NodeRemoval {
        uid: uid?,
        removed: removed?,
        pool,
        replacements,
        by: by?,
        reason: Arc::from(entry.reason.as_str()),
        cause: Arc::from(entry.cause.as_deref().unwrap_or_default()),
        started: started?,
        ended,
        pods: pods?,
    })
}

fn recorded(node: &wire::RecordedNode, at: &Path, found: &mut Violations) -> Option<RecordedNode> {
    let claim = found.take(&at.key("nodeClaim"), ClaimName::new(&node.node_claim));
    let name = found.take_some(&at.key("node"), node.node.as_deref(), |name| NodeName::new(name));
    let size = found.take_some(&at.key("size"), node.size.as_deref(), |size| VmSize::new(size));
    let zone = found.take_some(&at.key("zone"), node.zone.as_deref(), |zone| Zone::new(zone));
    let parsed = |text: &str| text.parse::<CapacityType>();
    let capacity_type = found.take_some(&at.key("capacityType"), node.capacity_type.as_deref(), parsed);
    let key = || Some(OfferingKey { size: size?, zone: zone?, capacity_type: capacity_type? });
    Some(RecordedNode { claim: claim?, node: name, offering: key(), price: node.price.map(HourlyPrice::from_nanos) })
}

/// The NodeRecord with these entries, the oldest first.
#[must_use]
pub fn node_record(removals: &[NodeRemoval]) -> NodeRecordSpec {
    NodeRecordSpec {
        last_removal: removals.last().map(|removal| removal.started.to_string()),
        removals: Some(removals.iter().map(entry).collect()),
        ..NodeRecordSpec::default()
    }
}

fn entry(removal: &NodeRemoval) -> RemovalEntry {
    let replacements: Vec<_> = removal.replacements.iter().map(recorded_node).collect();
    RemovalEntry {
        by: removal.by.as_str().to_owned(),
        cause: Some(removal.cause.to_string()).filter(|cause| !cause.is_empty()),
        ended: removal.ended.map(|time| time.to_string()),
        node_pool: removal.pool.as_ref().map(ToString::to_string),
        pods: removal.pods.into(),
        reason: removal.reason.to_string(),
        removed: recorded_node(&removal.removed),
        replacements: Some(replacements).filter(|all| !all.is_empty()),
        started: removal.started.to_string(),
        uid: removal.uid.to_string(),
        ..RemovalEntry::default()
    }
}

fn recorded_node(node: &RecordedNode) -> wire::RecordedNode {
    let offering = node.offering.as_ref();
    wire::RecordedNode {
        capacity_type: offering.map(|key| key.capacity_type.to_string()),
        node: node.node.as_ref().map(ToString::to_string),
        node_claim: node.claim.to_string(),
        price: node.price.map(HourlyPrice::nanos),
        size: offering.map(|key| key.size.to_string()),
        zone: offering.map(|key| key.zone.to_string()),
        ..wire::RecordedNode::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use napkeeper_core::model::cluster::node_record::{MAX_REPLACEMENTS, entry_text};

    fn longest(number: usize) -> NodeRemoval {
        let name = "a".repeat(253);
        let node = || RecordedNode {
            claim: ClaimName::new(&name).unwrap(),
            node: NodeName::new(&name).ok(),
            offering: Some(OfferingKey {
                size: VmSize::new("Standard_NC96ads_A100_v4").unwrap(),
                zone: Zone::new("westeurope-1").unwrap(),
                capacity_type: CapacityType::OnDemand,
            }),
            price: Some(HourlyPrice::from_nanos(i64::MAX)),
        };
        let at = |nanos| Timestamp::new(1_772_000_000, nanos).unwrap();
        NodeRemoval {
            uid: Uid::new(format!("{number:036}")).unwrap(),
            removed: node(),
            pool: NodePoolName::new(&name).ok(),
            replacements: (0..number % (MAX_REPLACEMENTS + 1)).map(|_| node()).collect(),
            by: RemovedBy::Karpenter,
            reason: Arc::from("Underutilized"),
            cause: entry_text(&"\"\\é\u{7f}".repeat(number % 400)),
            started: at(123_456_789),
            ended: Some(at(999_999_999)),
            pods: u32::MAX,
        }
    }

    #[test]
    fn what_is_written_is_what_is_read_and_no_longer_than_it_counts() {
        let bare = NodeRemoval {
            pool: None,
            ended: None,
            cause: Arc::from(""),
            removed: RecordedNode { node: None, offering: None, price: None, ..longest(0).removed },
            ..longest(0)
        };
        let removals: Vec<_> = (0..800).map(longest).chain([bare]).collect();
        for removal in &removals {
            let length = serde_json::to_string(&entry(removal)).unwrap().len();
            assert!(length <= removal.max_json_len(), "{length} bytes: {removal:?}");
        }
        assert_eq!(node_removals(&node_record(&removals)).unwrap(), removals);
    }

    #[test]
    fn all_that_is_wrong_is_named_with_its_place() {
        let mut spec = node_record(&[longest(1), longest(2)]);
        let entries = spec.removals.as_mut().unwrap();
        "me".clone_into(&mut entries[0].by);
        entries[1].pods = -1;
        entries[1].replacements.as_mut().unwrap()[0].capacity_type = Some("cheap".to_owned());
        let wrong = node_removals(&spec).unwrap_err().to_string();
        for place in ["spec.removals[0].by", "spec.removals[1].pods", "spec.removals[1].replacements[0].capacityType"] {
            assert!(wrong.contains(place), "{wrong}");
        }
    }
}
