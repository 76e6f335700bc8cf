//! Performs effects with the adapters of Kubernetes and Azure, each after the checks that must hold right before it.

use crate::inventory;
use async_trait::async_trait;
use kube::Client;
use napkeeper_api::bootstrap::{Join, JoinToken};
use napkeeper_azure::Azure;
use napkeeper_core::engine::clock::Clock;
use napkeeper_core::model::errors::EffectError;
use napkeeper_core::model::labels;
use napkeeper_core::model::names::Uid;
use napkeeper_core::model::settings::{ControllerMode, DisruptionScope};
use napkeeper_core::plan::{ClaimUpdate, CloudRequest, ClusterWrite, Effect, Reply, VmSpec, is_sweep_write};
use napkeeper_core::snapshot::CommandKey;
use napkeeper_kube::{BootstrapTokens, WriteCheck, Writer, list};
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::Duration;

/// Longest that the DELETE of a sweep waits for a request slot: it rests on reads of the resource and of all that may
/// link to it, which are at most half a minute old when the DELETE is requested.
const MAX_SLOT_WAIT: Duration = Duration::from_secs(15);

/// Performs the effects of the controller.
#[async_trait]
pub(super) trait EffectRunner: Debug + Send + Sync {
    /// Performs one effect of the command with this key, within a bounded time. `disrupted` is whose disruption it is, if it is
    /// one. The DELETE of a sweep that does not get
    /// its credential and its request slot soon is not sent at all.
    async fn perform(
        &self,
        key: &CommandKey,
        effect: &Effect,
        disrupted: &DisruptionScope,
    ) -> Result<Reply, EffectError>;
}

/// Performs effects on a real cluster and Azure.
pub(super) struct LiveEffectRunner {
    pub(super) mode: ControllerMode,
    pub(super) client: Client,
    pub(super) writer: Writer,
    pub(super) gate: WriteCheck,
    pub(super) azure: Arc<Azure>,
    /// How VMs join the cluster; `None` where they are simulated.
    pub(super) bootstrap: Option<NodeBootstrap>,
    pub(super) clock: Arc<dyn Clock>,
}

/// How VMs join the cluster.
#[derive(Debug)]
pub(super) struct NodeBootstrap {
    pub(super) join: Join,
    pub(super) tokens: BootstrapTokens,
}

impl fmt::Debug for LiveEffectRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveEffectRunner").field("mode", &self.mode).finish_non_exhaustive()
    }
}

#[async_trait]
impl EffectRunner for LiveEffectRunner {
    async fn perform(
        &self,
        key: &CommandKey,
        effect: &Effect,
        disrupted: &DisruptionScope,
    ) -> Result<Reply, EffectError> {
        if self.mode == ControllerMode::Companion && !allowed_in_companion_mode(effect) {
            return Err(EffectError::Blocked("companion mode does not write NAP objects or change VMs"));
        }
        // A token or a slot may take a while; the gate's check must not be that old when the request is sent. Nothing
        // is created for a VM that may not be launched, its token included.
        let token = match effect {
            Effect::Cloud(CloudRequest::PutVm(spec)) if self.bootstrap.is_some() => {
                self.gate.check(key, effect, disrupted, self.clock.now()).await?;
                self.token(spec).await?
            }
            _ => None,
        };
        if let Effect::Cloud(request) = effect {
            wait_for_slot(max_slot_wait(key, effect), self.azure.prepare(request)).await?;
        }
        self.gate.check(key, effect, disrupted, self.clock.now()).await?;
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

impl LiveEffectRunner {
    /// A bootstrap token for a VM, if there is a cluster to join.
    async fn token(&self, spec: &VmSpec) -> Result<Option<JoinToken>, EffectError> {
        let Some(NodeBootstrap { tokens, .. }) = &self.bootstrap else { return Ok(None) };
        let uid = spec.tags.get(labels::TAG_CLAIM_UID).and_then(|uid| Uid::new(&**uid).ok());
        let Some(uid) = uid else {
            return Err(EffectError::Blocked("no bootstrap token for a VM without its NodeClaim's UID"));
        };
        tokens.issue(&uid).await.map(Some)
    }

    /// Sends a request to Azure; a VM that joins a cluster gets its token.
    async fn send(&self, request: &CloudRequest, token: Option<JoinToken>) -> Result<Reply, EffectError> {
        match (request, &self.bootstrap, token) {
            (CloudRequest::PutVm(spec), Some(bootstrap), Some(token)) => {
                self.azure.put_joining_vm(spec, &bootstrap.join, &token).await
            }
            _ => self.azure.perform(request).await,
        }
    }

    /// Deletes the tokens of a NodeClaim once its node has joined, or when the NodeClaim itself is released. If that
    /// fails they expire.
    async fn revoke_after(&self, write: &ClusterWrite, reply: &Result<Reply, EffectError>) {
        let claim = match write {
            ClusterWrite::UpdateClaim(claim, ClaimUpdate::Registered { .. }) | ClusterWrite::RemoveFinalizer(claim) => {
                claim
            }
            _ => return,
        };
        let Some(bootstrap) = self.bootstrap.as_ref().filter(|_| reply.is_ok()) else { return };
        if let Err(error) = bootstrap.tokens.revoke(&claim.uid).await {
            tracing::warn!(claim = %claim.name, %error, "could not delete its bootstrap tokens: they will expire");
        }
    }
}

/// How long an effect may wait for its request slot, if that is limited. Lifecycle deletes rest on the NodeClaim's UID,
/// which does not become outdated.
fn max_slot_wait(key: &CommandKey, effect: &Effect) -> Option<Duration> {
    let is_delete = matches!(effect, Effect::Cloud(CloudRequest::Delete(..)));
    (is_delete && is_sweep_write(key, effect)).then_some(MAX_SLOT_WAIT)
}

/// Waits for a request slot, at most for the given time.
async fn wait_for_slot(
    max_wait: Option<Duration>,
    slot: impl Future<Output = Result<(), EffectError>>,
) -> Result<(), EffectError> {
    let Some(max_wait) = max_wait else { return slot.await };
    let late = EffectError::Blocked("waited too long for a request slot; it will be checked again");
    tokio::time::timeout(max_wait, slot).await.unwrap_or(Err(late))
}

/// Beside managed NAP only our own kinds are written, and only NICs and disks are changed. The deciders request nothing
/// else; this check guards against bugs in them.
fn allowed_in_companion_mode(effect: &Effect) -> bool {
    use napkeeper_core::model::azure::cloud::ResourceKind;
    match effect {
        Effect::Cloud(CloudRequest::Delete(_, kind)) => *kind != ResourceKind::Vm,
        // Only its type is known of a resource that is tagged.
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
    async fn a_write_with_a_late_slot_is_blocked() {
        let soon = Some(Duration::from_millis(20));
        let never = std::future::pending::<Result<(), EffectError>>;
        assert!(
            matches!(wait_for_slot(soon, never()).await, Err(EffectError::Blocked(reason)) if reason.contains("checked again"))
        );
        assert!(wait_for_slot(soon, async { Ok(()) }).await.is_ok());
        assert!(tokio::time::timeout(Duration::from_millis(100), wait_for_slot(None, never())).await.is_err());
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
            assert_eq!(allowed_in_companion_mode(&effect), allowed, "{effect:?}");
        }
    }
}
