//! Permissions, deny assignments and policies that deny writes.
//!
//! Azure checks in this order: deny assignments and roles, then policies, then locks; only then does the provider
//! see the request. Reads pass.

use crate::cloud::Cloud;
use crate::cloud::faults::FaultDuration;
use crate::cloud::faults::ListedKind;
use crate::cloud::refusal::Refusal;
use jiff::Timestamp;
use napkeeper_core::model::azure::cloud::ResourceKind;
use napkeeper_core::model::names::ArmId;
use napkeeper_core::plan::{AksMachineRequest, CloudRequest};
use std::sync::Arc;

/// The name of AKS's deny assignment in node resource group lockdown.
pub(crate) const LOCKDOWN: &str = "Restrict access to the node resource group";

/// An Azure Policy that is assigned to the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyAssignment {
    /// Name of the assignment.
    pub assignment: Arc<str>,
    /// What it denies: writes of this kind of resource; `None` is any.
    pub of: Option<ListedKind>,
    /// It denies deletes (effect `DenyAction`) and not what creates and changes (effect `Deny`).
    pub deletes: bool,
    /// For how long, or for how many requests.
    pub duration: FaultDuration,
}

/// The operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteKind {
    Write,
    Delete,
    Tag,
}

impl PolicyAssignment {
    /// The effect of the policy.
    #[must_use]
    pub fn effect(&self) -> &'static str {
        if self.deletes { "DenyAction" } else { "Deny" }
    }

    /// True when it denies this; uses up one of its times.
    fn denies(&mut self, write: WriteKind, kind: Option<ListedKind>, now: Timestamp) -> bool {
        let covers = self.of.is_none() || self.of == kind;
        covers && self.deletes == (write == WriteKind::Delete) && self.duration.applies(now)
    }
}

impl Cloud {
    /// Rejects a write that is denied.
    pub(in crate::cloud) fn check_write_allowed(
        &mut self,
        request: &CloudRequest,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        match write_of(request) {
            Some((write, id)) => self.check_restrictions(write, id, now),
            None => Ok(()),
        }
    }

    /// Rejects creating or changing this if that is denied.
    pub(in crate::cloud) fn check_write(&mut self, id: &ArmId, now: Timestamp) -> Result<(), Refusal> {
        self.check_restrictions(WriteKind::Write, id, now)
    }

    fn check_restrictions(&mut self, write: WriteKind, id: &ArmId, now: Timestamp) -> Result<(), Refusal> {
        let is_on = |until: Option<Timestamp>| until.is_some_and(|end| now < end);
        if is_on(self.faults.lockdown_until) {
            return Err(Refusal::Denied { action: action(write, id).into(), scope: id.clone() });
        }
        if is_on(self.faults.forbidden_until) {
            return Err(Refusal::NoPermission { action: action(write, id).into(), scope: id.clone() });
        }
        let kind = kind_of(id);
        let denied = self.faults.policies.iter_mut().find_map(|policy| {
            policy.denies(write, kind, now).then(|| (Arc::clone(&policy.assignment), policy.effect()))
        });
        match denied {
            Some((assignment, effect)) => {
                Err(Refusal::Policy { resource: id.clone(), group: self.settings.group.clone(), assignment, effect })
            }
            None => Ok(()),
        }
    }
}

fn write_of(request: &CloudRequest) -> Option<(WriteKind, &ArmId)> {
    match request {
        CloudRequest::PutNic(spec) => Some((WriteKind::Write, &spec.id)),
        CloudRequest::PutVm(spec) => Some((WriteKind::Write, &spec.id)),
        CloudRequest::Delete(
            id,
            ResourceKind::Nic | ResourceKind::OsDisk | ResourceKind::Vm | ResourceKind::DataDisk,
        ) => Some((WriteKind::Delete, id)),
        CloudRequest::AksMachine(AksMachineRequest::Put(spec)) => Some((WriteKind::Write, &spec.id)),
        CloudRequest::AksMachine(AksMachineRequest::Delete(id)) => Some((WriteKind::Delete, id)),
        CloudRequest::Tag(id, _) | CloudRequest::Untag(id, _) => Some((WriteKind::Tag, id)),
        _ => None,
    }
}

/// The operation of Azure's roles that a request needs.
fn action(write: WriteKind, id: &ArmId) -> String {
    let word = match write {
        WriteKind::Write => "write",
        WriteKind::Delete => "delete",
        WriteKind::Tag => return "Microsoft.Resources/tags/write".to_owned(),
    };
    let words: Vec<&str> = id.as_str().split('/').collect();
    let of = words.windows(3).find(|w| w[0].eq_ignore_ascii_case("providers"));
    of.map_or_else(|| word.to_owned(), |w| format!("{}/{}/{word}", w[1], w[2]))
}

fn kind_of(id: &ArmId) -> Option<ListedKind> {
    let folded = id.folded();
    // A Machine's own type comes first: its path has others in it.
    [
        ("/virtualmachines/", ListedKind::Vms),
        ("/networkinterfaces/", ListedKind::Nics),
        ("/disks/", ListedKind::Disks),
        ("/machines/", ListedKind::Machines),
    ]
    .into_iter()
    .find_map(|(part, kind)| folded.contains(part).then_some(kind))
}
