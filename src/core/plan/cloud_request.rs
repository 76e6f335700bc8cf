//! Requests to Azure.

use super::aks_machine::AksMachineRequest;
use super::effect::{NicSpec, VmSpec};
use crate::model::azure::cloud::{ResourceKind, Tags};
use crate::model::errors::OperationId;
use crate::model::names::ArmId;
use crate::model::settings::PauseSwitch;

/// A request to Azure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CloudRequest {
    /// GET a cloud resource. Replies `Resource`, `None` on a 404.
    Get(ArmId),
    /// GET the power state of a VM. Replies `PowerState`, `None` on a 404.
    GetPowerState(ArmId),
    /// GET the node resource group. Replies `GroupOwner`.
    GetGroupOwner,
    /// PUT a NIC. Replies `Done` (NIC writes complete at once) or `Accepted`.
    PutNic(Box<NicSpec>),
    /// PUT a VM. Replies `Accepted`.
    PutVm(Box<VmSpec>),
    /// PUT the extension by which AKS counts a node on its VM; it may be repeated. Replies `Accepted` or `Done`.
    PutBillingExtension(ArmId),
    /// DELETE a cloud resource. Replies `Accepted`, `Done` where that has deleted it, or `Absent`.
    Delete(ArmId, ResourceKind),
    /// Tag a cloud resource; other tags are retained.
    Tag(ArmId, Tags),
    /// Remove these very tags, key and value, from a cloud resource; a missing one is no error.
    Untag(ArmId, Tags),
    /// Send a request about a Machine of an agent pool.
    AksMachine(AksMachineRequest),
    /// Poll a long-running operation. Replies `Running` or `Done`, or fails with the operation's error.
    Poll(OperationId),
}

impl CloudRequest {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Get(_) => "get",
            Self::GetPowerState(_) => "get_power_state",
            Self::GetGroupOwner => "get_group_owner",
            Self::PutNic(_) => "put_nic",
            Self::PutVm(_) => "put_vm",
            Self::PutBillingExtension(_) => "put_billing",
            Self::Delete(..) => "delete",
            Self::Tag(..) => "tag",
            Self::Untag(..) => "untag",
            Self::AksMachine(AksMachineRequest::Get(_)) => "get_machine",
            Self::AksMachine(AksMachineRequest::Put(_)) => "put_machine",
            Self::AksMachine(AksMachineRequest::Delete(_)) => "delete_machine",
            Self::Poll(_) => "poll",
        }
    }

    /// True when it changes something.
    #[must_use]
    pub fn is_write(&self) -> bool {
        !matches!(
            self,
            Self::Get(_)
                | Self::GetPowerState(_)
                | Self::GetGroupOwner
                | Self::AksMachine(AksMachineRequest::Get(_))
                | Self::Poll(_)
        )
    }

    pub(super) fn pause_switch(&self) -> Option<PauseSwitch> {
        match self {
            Self::PutNic(_) | Self::PutVm(_) | Self::PutBillingExtension(_) => Some(PauseSwitch::Launch),
            Self::AksMachine(AksMachineRequest::Put(_)) => Some(PauseSwitch::Launch),
            Self::AksMachine(AksMachineRequest::Delete(_)) => Some(PauseSwitch::Delete),
            Self::Delete(..) | Self::Tag(..) | Self::Untag(..) => Some(PauseSwitch::Delete),
            Self::Get(_)
            | Self::GetPowerState(_)
            | Self::GetGroupOwner
            | Self::AksMachine(AksMachineRequest::Get(_))
            | Self::Poll(_) => None,
        }
    }
}
