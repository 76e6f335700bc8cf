//! Whether the pause switch holds a write back.

use super::command::Command;
use super::effect::Effect;
use crate::model::cluster::pod::Pod;
use crate::model::cluster::pool::DisruptionReason;
use crate::model::names::ObjectKey;
use crate::model::settings::{DisruptionScope, Pause, PauseSwitch};
use crate::snapshot::{CommandKey, Snapshot};
use jiff::Timestamp;

/// Whose disruption a command is, if it is one: the NodePool of its node, and the reason for which the node is deleted, or of a
/// pod was marked. A marked node may be deleted for a reason that budgets do not have, such as that it has expired. `command` is
/// `None` where only its key is known.
#[must_use]
pub fn disruption_scope(key: &CommandKey, command: Option<&Command>, snapshot: &Snapshot) -> DisruptionScope {
    let name = match key {
        CommandKey::Claim(name) => name,
        CommandKey::Pod(pod) => return scope_of_key(pod, snapshot),
        _ => return DisruptionScope::default(),
    };
    let reason = match command {
        Some(Command::DeleteClaim { category, .. }) => DisruptionReason::of_category(category),
        _ => None,
    };
    let pool = snapshot.claims().get(name).and_then(|claim| claim.spec.pool.clone());
    DisruptionScope { pool, reason }
}

/// Whose disruption the eviction of a pod is.
#[must_use]
pub fn scope_of_pod(pod: &Pod, snapshot: &Snapshot) -> DisruptionScope {
    let Some(node) = pod.node.as_ref().and_then(|name| snapshot.nodes().get(name)) else {
        return DisruptionScope::default();
    };
    let reason = snapshot.claim_of(node).and_then(|claim| claim.status.disrupted);
    DisruptionScope { pool: snapshot.pool_of(node), reason }
}

fn scope_of_key(pod: &ObjectKey, snapshot: &Snapshot) -> DisruptionScope {
    snapshot.pods().get(pod).map(|pod| scope_of_pod(pod, snapshot)).unwrap_or_default()
}

/// True while the pause switch holds an effect back. `disrupted` is whose disruption it is, if it is one.
#[must_use]
pub fn is_paused(effect: &Effect, disrupted: &DisruptionScope, pause: &Pause, now: Timestamp) -> bool {
    match effect.pause_switch() {
        Some(PauseSwitch::Disrupt) => pause.blocks_disruption(disrupted, now),
        Some(switch) => pause.blocks(switch, now),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::CapacityType::OnDemand;
    use crate::fixtures::{cluster, managed, offering, pool, put, running, shape};
    use crate::model::labels::NODEPOOL;
    use std::sync::Arc;

    #[test]
    fn a_node_that_is_marked_for_one_reason_may_be_deleted_for_another() {
        let mut snapshot = cluster([pool("general")]);
        let (mut claim, node) = managed("c", &pool("general"), offering("Standard_D2s_v5", 1, OnDemand));
        claim.status.disrupted = Some(DisruptionReason::Drifted);
        let (key, delete) =
            (CommandKey::Claim(claim.name.clone()), |category| Command::delete_claim(claim.reference(), category));
        put(&mut snapshot, (claim.clone(), node));
        for (category, reason) in
            [("drifted", Some(DisruptionReason::Drifted)), ("expired", None), ("node_deleted", None)]
        {
            let scope = disruption_scope(&key, Some(&delete(category)), &snapshot);
            assert_eq!(scope, DisruptionScope { pool: claim.spec.pool.clone(), reason }, "{category}");
        }
    }

    #[test]
    fn the_pool_of_a_pod_is_that_of_the_node_claim_or_else_of_the_label() {
        let (claim, mut node) = managed("c", &pool("general"), offering("Standard_D2s_v5", 1, OnDemand));
        let pod = running("p", &Arc::new(shape("a", 500, 1)), &node);
        node.labels.insert(Arc::from(NODEPOOL), Arc::from("label"));
        for (has_claim, expected) in [(true, "general"), (false, "label")] {
            let mut snapshot = cluster([pool("general")]);
            snapshot.put_node(node.clone());
            if has_claim {
                snapshot.put_claim(claim.clone());
            }
            assert_eq!(scope_of_pod(&pod, &snapshot).pool.unwrap().as_str(), expected);
        }
    }
}
