//! Whether the pause switch holds a write back.

use super::command::Command;
use super::effect::Effect;
use crate::model::cluster::claim::Claim;
use crate::model::cluster::pod::Pod;
use crate::model::cluster::pool::DisruptionReason;
use crate::model::names::ObjectKey;
use crate::model::settings::{DisruptionScope, Pause, PauseSwitch};
use crate::snapshot::{CommandKey, Snapshot};
use jiff::Timestamp;
use std::sync::Arc;

/// Whose disruption a command is, if it is one: the NodePool of its node, and the reason for which the node is deleted or was
/// marked. `command` is `None` where only its key is known.
#[must_use]
pub fn disruption_scope(key: &CommandKey, command: Option<&Command>, snapshot: &Snapshot) -> DisruptionScope {
    let scope = match key {
        CommandKey::Claim(name) => snapshot.claims().get(name).map(|claim| DisruptionScope::of(claim)),
        CommandKey::Pod(pod) => Some(scope_of_key(pod, snapshot)),
        _ => None,
    };
    let scope = scope.unwrap_or_default();
    let reason = match command {
        Some(Command::DeleteClaim { category, .. }) => {
            DisruptionReason::ALL.into_iter().find(|reason| reason.category() == *category)
        }
        _ => None,
    };
    DisruptionScope { reason: reason.or(scope.reason), ..scope }
}

/// Whose disruption the eviction of a pod is.
#[must_use]
pub fn scope_of_pod(pod: &Pod, snapshot: &Snapshot) -> DisruptionScope {
    claim_of(pod, snapshot).map(|claim| DisruptionScope::of(claim)).unwrap_or_default()
}

fn scope_of_key(pod: &ObjectKey, snapshot: &Snapshot) -> DisruptionScope {
    snapshot.pods().get(pod).map(|pod| scope_of_pod(pod, snapshot)).unwrap_or_default()
}

fn claim_of<'s>(pod: &Pod, snapshot: &'s Snapshot) -> Option<&'s Arc<Claim>> {
    let node = snapshot.nodes().get(pod.node.as_ref()?)?;
    snapshot.claim_by_provider_id(node.provider_id.as_ref()?)
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
