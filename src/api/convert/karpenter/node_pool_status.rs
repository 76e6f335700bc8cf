//! The status of NodePools.

use crate::convert::common::{amount, set_amount};
use crate::convert::karpenter::conditions::{read_conditions, write_conditions};
use crate::types::common::{Amount, ResourceList};
use crate::types::karpenter::NodePoolStatus;
use jiff::Timestamp;
use napkeeper_core::model::amounts::quantity::Quantity;
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::cluster::status::PoolStatus;

/// Reads a status as far as it is ours. What cannot be read counts as absent: it is written anew.
pub(super) fn read_status(status: Option<&NodePoolStatus>) -> PoolStatus {
    let Some(status) = status else { return PoolStatus::default() };
    let mut resources = Resources::default();
    for (name, quantity) in status.resources.iter().flatten() {
        if let Ok(amount) = amount(name, &quantity.to_string()) {
            set_amount(&mut resources, name, amount);
        }
    }
    PoolStatus {
        conditions: read_conditions(status.conditions.as_deref()),
        class_generation: status.node_class_observed_generation,
        nodes: status.nodes,
        resources,
    }
}

/// A status to be applied over `known`: fields and conditions of others are not in it, so that they stay.
#[must_use]
pub fn pool_status(known: Option<&NodePoolStatus>, status: &PoolStatus, now: Timestamp) -> NodePoolStatus {
    let known = known.and_then(|known| known.conditions.as_deref()).unwrap_or_default();
    NodePoolStatus {
        conditions: Some(write_conditions(known, &status.conditions, now)),
        node_class_observed_generation: status.class_generation,
        nodes: status.nodes,
        resources: Some(resource_list(&status.resources)),
        ..NodePoolStatus::default()
    }
}

/// Resources in the form in which Kubernetes prints them. Those that every node has are listed although they are zero, as
/// upstream does.
fn resource_list(resources: &Resources) -> ResourceList {
    let basic = [
        ("cpu", format!("{}m", resources.cpu_millis)),
        ("memory", binary(resources.memory)),
        ("ephemeral-storage", binary(resources.ephemeral_storage)),
        ("pods", resources.pods.to_string()),
        ("nodes", resources.extended("nodes").to_string()),
    ];
    let others = resources.extended.iter().map(|(name, amount)| (&**name, amount.to_string()));
    let canonical = |text: String| Quantity::parse(&text).map_or(text, |quantity| quantity.to_string());
    basic.into_iter().chain(others).map(|(name, text)| (name.to_owned(), Amount::text(canonical(text)))).collect()
}

/// Bytes, in kibibytes where they are whole, so that they are printed with a binary suffix.
fn binary(bytes: i64) -> String {
    if bytes % 1024 == 0 { format!("{}Ki", bytes / 1024) } else { bytes.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use napkeeper_core::model::cluster::status::{ConditionType, Conditions, StatusCondition};
    use serde_json::json;

    fn status(nodes: i64) -> PoolStatus {
        let mut resources = Resources { pods: 110, ..Resources::cpu_memory(4_000 * nodes, (16 << 30) * nodes) };
        resources.set_extended("nodes", nodes);
        let by_type = [(ConditionType::Ready, StatusCondition::holding("Ready"))].into();
        PoolStatus {
            conditions: Conditions { by_type, observed_generation: Some(3) },
            class_generation: Some(7),
            nodes: Some(nodes),
            resources,
        }
    }

    #[test]
    fn a_status_reads_back_as_it_was_written() {
        for nodes in [0, 1, 3] {
            let written = pool_status(None, &status(nodes), Timestamp::UNIX_EPOCH);
            assert_eq!(read_status(Some(&written)), status(nodes));
        }
        assert_eq!(read_status(None), PoolStatus::default());
    }

    #[test]
    fn columns_show_amounts_as_kubernetes_prints_them_and_none_as_zero() {
        let written = |nodes| serde_json::to_value(pool_status(None, &status(nodes), Timestamp::UNIX_EPOCH)).unwrap();
        let three = json!({ "cpu": "12", "memory": "48Gi", "ephemeral-storage": "0", "pods": "110", "nodes": "3" });
        assert_eq!(written(3)["resources"], three);
        assert_eq!((&written(0)["nodes"], &written(0)["resources"]["cpu"]), (&json!(0), &json!("0")));
    }
}
