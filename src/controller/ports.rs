//! Ports: which adapter performs an effect, and what must hold right before it does?

use crate::inventory;
use async_trait::async_trait;
use kube::Client;
use napkeeper_api::bootstrap::{Join, JoinToken};
use napkeeper_azure::Azure;
use napkeeper_core::engine::clock::Clock;
use napkeeper_core::model::errors::EffectError;
use napkeeper_core::model::labels;
use napkeeper_core::model::names::Uid;
use napkeeper_core::model::settings::ControllerMode;
use napkeeper_core::plan::{ClaimUpdate, CloudRequest, ClusterWrite, Effect, Reply, VmSpec};
use napkeeper_core::snapshot::CommandKey;
use napkeeper_kube::{BootstrapTokens, WriteCheck, Writer, list};
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::Duration;

/// Longest that the DELETE of a sweep waits for its turn: it rests on a look at the resource and all that may link to it,
/// which is at most half a minute old when the DELETE is asked for.
const LONGEST_TURN: Duration = Duration::from_secs(15);

/// The way out of the controller.
#[async_trait]
pub(super) trait Ports: Debug + Send + Sync {
    /// Performs one effect, within a bounded time. With a `patience`, a write that does not get its token and its turn
    /// within that time is not sent at all.
    async fn perform(&self, effect: &Effect, patience: Option<Duration>) -> Result<Reply, EffectError>;
}

/// Kubernetes and Azure.
pub(super) struct LivePorts {
    pub(super) mode: ControllerMode,
    pub(super) client: Client,
    pub(super) writer: Writer,
    pub(super) gate: WriteCheck,
    pub(super) azure: Arc<Azure>,
    /// How VMs join the cluster; none where they are simulated.
    pub(super) joining: Option<Joining>,
    pub(super) clock: Arc<dyn Clock>,
}

/// How VMs join the cluster.
#[derive(Debug)]
pub(super) struct Joining {
    pub(super) join: Join,
    pub(super) tokens: BootstrapTokens,
}

impl fmt::Debug for LivePorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LivePorts").field("mode", &self.mode).finish_non_exhaustive()
    }
}

#[async_trait]
impl Ports for LivePorts {
    async fn perform(&self, effect: &Effect, patience: Option<Duration>) -> Result<Reply, EffectError> {
        if self.mode == ControllerMode::Companion && !allowed_beside_nap(effect) {
            return Err(EffectError::Blocked("companion mode does not write NAP objects or change VMs"));
        }
        // A token or a turn may take a while to come; what the gate finds must not be that old when the request goes out.
        // Nothing is made for a VM that may not be asked for, its token included.
        let token = match effect {
            Effect::Cloud(CloudRequest::PutVm(spec)) if self.joining.is_some() => {
                self.gate.check(effect).await?;
                self.token(spec).await?
            }
            _ => None,
        };
        if let Effect::Cloud(request) = effect {
            within(patience, self.azure.prepare(request)).await?;
        }
        self.gate.check(effect).await?;
        match effect {
            Effect::TakeInventory => {
                let taken = inventory::take(&self.azure, &self.client, &*self.clock).await;
                Ok(Reply::Inventory(Arc::new(taken)))
            }
            Effect::Read(read) => list::read(&self.client, &*self.clock, read).await,
            Effect::Cluster(write) => {
                let reply = self.writer.perform(write).await;
                self.revoke_after(write, &reply).await;
                reply
            }
            Effect::Cloud(request) => self.send(request, token).await,
        }
    }
}

impl LivePorts {
    /// A token for a VM, where there is a cluster to join.
    async fn token(&self, spec: &VmSpec) -> Result<Option<JoinToken>, EffectError> {
        let Some(Joining { tokens, .. }) = &self.joining else { return Ok(None) };
        let uid = spec.tags.get(labels::TAG_CLAIM_UID).and_then(|uid| Uid::new(&**uid).ok());
        let Some(uid) = uid else {
            return Err(EffectError::Blocked("no bootstrap token for a VM without its NodeClaim's UID"));
        };
        tokens.issue(&uid).await.map(Some)
    }

    /// Sends a request to Azure; a VM that joins a cluster gets its token.
    async fn send(&self, request: &CloudRequest, token: Option<JoinToken>) -> Result<Reply, EffectError> {
        match (request, &self.joining, token) {
            (CloudRequest::PutVm(spec), Some(joining), Some(token)) => {
                self.azure.put_joining_vm(spec, &joining.join, &token).await
            }
            _ => self.azure.perform(request).await,
        }
    }

    /// The tokens of a NodeClaim go when its node has joined, and when it goes itself. Where that fails they run out.
    async fn revoke_after(&self, write: &ClusterWrite, reply: &Result<Reply, EffectError>) {
        let claim = match write {
            ClusterWrite::UpdateClaim(claim, ClaimUpdate::Registered { .. }) | ClusterWrite::RemoveFinalizer(claim) => {
                claim
            }
            _ => return,
        };
        let Some(joining) = self.joining.as_ref().filter(|_| reply.is_ok()) else { return };
        if let Err(error) = joining.tokens.revoke(&claim.uid).await {
            tracing::warn!(claim = %claim.name, %error, "could not delete its bootstrap tokens: they will expire");
        }
    }
}

/// How long an effect may wait for its turn, where that is bounded. Commands on a resource are those of sweeps; lifecycle
/// deletes rest on the NodeClaim's UID, which does not grow old.
pub(super) fn patience(key: &CommandKey, effect: &Effect) -> Option<Duration> {
    let swept = matches!(key, CommandKey::Resource(_)) && matches!(effect, Effect::Cloud(CloudRequest::Delete(..)));
    swept.then_some(LONGEST_TURN)
}

/// Waits for a turn, for as long as there is patience.
async fn within(
    patience: Option<Duration>,
    turn: impl Future<Output = Result<(), EffectError>>,
) -> Result<(), EffectError> {
    let Some(patience) = patience else { return turn.await };
    let late = EffectError::Blocked("waited too long for a request slot; it will be checked again");
    tokio::time::timeout(patience, turn).await.unwrap_or(Err(late))
}

/// Beside managed NAP only our own kinds are written, and only NICs and disks are touched. The deciders ask for
/// nothing else; this holds even if one of them were wrong.
fn allowed_beside_nap(effect: &Effect) -> bool {
    use napkeeper_core::model::azure::cloud::ResourceKind;
    match effect {
        Effect::Cloud(CloudRequest::Delete(_, kind)) => *kind != ResourceKind::Vm,
        // Its type is all that is known of what is tagged.
        Effect::Cloud(CloudRequest::Tag(id, _) | CloudRequest::Untag(id, _)) => {
            !id.folded().contains("/providers/microsoft.compute/virtualmachines/")
        }
        Effect::Cluster(ClusterWrite::WriteRecords(_) | ClusterWrite::ReportSweep(_)) => true,
        other => !other.is_write(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use napkeeper_core::model::azure::cloud::{ResourceKind, Tags};
    use napkeeper_core::model::azure::naming::{NIC_TYPE, VM_TYPE};
    use napkeeper_core::model::names::{ArmId, Namespace, ObjectKey, ObjectName};

    #[tokio::test]
    async fn a_write_whose_turn_comes_too_late_is_held() {
        let soon = Some(Duration::from_millis(20));
        let never = std::future::pending::<Result<(), EffectError>>;
        assert!(matches!(within(soon, never()).await, Err(EffectError::Blocked(why)) if why.contains("checked again")));
        assert!(within(soon, async { Ok(()) }).await.is_ok());
        assert!(tokio::time::timeout(Duration::from_millis(100), within(None, never())).await.is_err());
    }

    #[test]
    fn beside_nap_no_vm_is_deleted_and_no_pod_evicted() {
        let id = ArmId::new("/subscriptions/s/resourceGroups/g").unwrap();
        let pod = ObjectKey { namespace: Namespace::new("a").unwrap(), name: ObjectName::new("b").unwrap() };
        for (effect, allowed) in [
            (Effect::Cloud(CloudRequest::Delete(id.clone(), ResourceKind::Vm)), false),
            (Effect::Cloud(CloudRequest::Delete(id.clone(), ResourceKind::Nic)), true),
            (Effect::Cluster(ClusterWrite::Evict(pod, Uid::new("u").unwrap())), false),
            (Effect::Cloud(CloudRequest::Tag(id.clone(), Tags::new())), true),
            (Effect::Cloud(CloudRequest::Tag(id.resource(VM_TYPE, "vm"), Tags::new())), false),
            (Effect::Cloud(CloudRequest::Untag(id.resource(VM_TYPE, "vm"), Tags::new())), false),
            (Effect::Cloud(CloudRequest::Untag(id.resource(NIC_TYPE, "nic"), Tags::new())), true),
            (Effect::Cloud(CloudRequest::Get(id)), true),
            (Effect::TakeInventory, true),
        ] {
            assert_eq!(allowed_beside_nap(&effect), allowed, "{effect:?}");
        }
    }
}
