//! Ports: which adapter performs an effect, and what must hold right before it does?

use crate::inventory;
use async_trait::async_trait;
use kube::Client;
use napkeeper_azure::Azure;
use napkeeper_core::clock::Clock;
use napkeeper_core::plan::{Effect, Reply};
use napkeeper_core::ports::PortError;
use napkeeper_core::settings::Mode;
use napkeeper_kube::{Gate, Writer, list};
use std::fmt::{self, Debug};
use std::sync::Arc;

/// The way out of the controller.
#[async_trait]
pub(super) trait Ports: Debug + Send + Sync {
    /// Performs one effect, within a bounded time.
    async fn perform(&self, effect: &Effect) -> Result<Reply, PortError>;
}

/// Kubernetes and Azure.
pub(super) struct LivePorts {
    pub(super) mode: Mode,
    pub(super) client: Client,
    pub(super) writer: Writer,
    pub(super) gate: Gate,
    pub(super) azure: Arc<Azure>,
    pub(super) clock: Arc<dyn Clock>,
}

impl fmt::Debug for LivePorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LivePorts").field("mode", &self.mode).finish_non_exhaustive()
    }
}

#[async_trait]
impl Ports for LivePorts {
    async fn perform(&self, effect: &Effect) -> Result<Reply, PortError> {
        if self.mode == Mode::Companion && !allowed_beside_nap(effect) {
            return Err(PortError::Held("beside managed NAP nothing of NAP's is written, and no VM is touched"));
        }
        // A token or a turn may take a while to come; what the gate finds must not be that old when the request goes out.
        self.azure.prepare(effect).await?;
        self.gate.check(effect).await?;
        match effect {
            Effect::TakeInventory => {
                let taken = inventory::take(&self.azure, &self.client, &*self.clock).await;
                Ok(Reply::Inventory(Arc::new(taken)))
            }
            Effect::ReadClaim(name) => list::read_claim(&self.client, &*self.clock, name).await,
            Effect::ReadNode(provider) => list::read_node(&self.client, &*self.clock, provider).await,
            Effect::ReadPods(node) => list::read_pods(&self.client, &*self.clock, node).await,
            Effect::ReadVolume(name) => list::read_volume(&self.client, name).await,
            _ => match self.writer.perform(effect).await {
                Some(reply) => reply,
                None => self.azure.perform(effect).await,
            },
        }
    }
}

/// Beside managed NAP only our own kinds are written, and only NICs and disks are touched. The deciders ask for
/// nothing else; this holds even if one of them were wrong.
fn allowed_beside_nap(effect: &Effect) -> bool {
    use napkeeper_core::cluster::cloud::ResourceKind;
    match effect {
        Effect::Delete(_, kind) => *kind != ResourceKind::Vm,
        // Its type is all that is known of what is tagged.
        Effect::Tag(id, _) | Effect::Untag(id, _) => {
            !id.folded().contains("/providers/microsoft.compute/virtualmachines/")
        }
        Effect::Record(_) | Effect::ReportSweep(_) => true,
        other => !other.is_write(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use napkeeper_core::cluster::cloud::{ResourceKind, Tags};
    use napkeeper_core::cluster::naming::{NIC_TYPE, VM_TYPE};
    use napkeeper_core::names::{ArmId, Namespace, ObjectKey, ObjectName, Uid};

    #[test]
    fn beside_nap_no_vm_is_deleted_and_no_pod_evicted() {
        let id = ArmId::new("/subscriptions/s/resourceGroups/g").unwrap();
        let pod = ObjectKey { namespace: Namespace::new("a").unwrap(), name: ObjectName::new("b").unwrap() };
        for (effect, allowed) in [
            (Effect::Delete(id.clone(), ResourceKind::Vm), false),
            (Effect::Delete(id.clone(), ResourceKind::Nic), true),
            (Effect::Evict(pod, Uid::new("u").unwrap()), false),
            (Effect::Tag(id.clone(), Tags::new()), true),
            (Effect::Tag(id.resource(VM_TYPE, "vm"), Tags::new()), false),
            (Effect::Untag(id.resource(VM_TYPE, "vm"), Tags::new()), false),
            (Effect::Untag(id.resource(NIC_TYPE, "nic"), Tags::new()), true),
            (Effect::Get(id), true),
            (Effect::TakeInventory, true),
        ] {
            assert_eq!(allowed_beside_nap(&effect), allowed, "{effect:?}");
        }
    }
}
