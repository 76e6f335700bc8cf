//! VM extensions.

use crate::cloud::Cloud;
use crate::cloud::operations::Completion;
use crate::cloud::refusal::Refusal;
use crate::random::Delay;
use jiff::Timestamp;
use napkeeper_core::model::azure::cloud::ResourceDetail;
use napkeeper_core::model::names::ArmId;
use napkeeper_core::plan::Reply;
use std::sync::Arc;

/// How long installing an extension takes.
const INSTALLS: Delay = Delay::secs(5, 20);

/// An extension of a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extension {
    /// Publisher, for example `Microsoft.AKS`.
    pub publisher: Arc<str>,
    /// Type, for example `Compute.AKS.Linux.Billing`.
    pub of: Arc<str>,
    /// `typeHandlerVersion`.
    pub version: Arc<str>,
}

impl Cloud {
    /// Installs an extension on a VM, `…/virtualMachines/{vm}/extensions/{name}`.
    ///
    /// # Errors
    /// [`Refusal`] if the VM does not exist or is being deleted, or writes are denied.
    pub fn put_extension(&mut self, id: &ArmId, extension: Extension, now: Timestamp) -> Result<Reply, Refusal> {
        self.advance(now);
        self.faults.admit(now)?;
        self.check_write(id, now)?;
        let vm = vm_of(id).ok_or_else(|| Refusal::NotFound(id.clone()))?;
        match self.resources.get(&vm).map(|vm| &vm.detail) {
            Some(ResourceDetail::Vm(_)) => self.check_idle(&vm)?,
            _ => return Err(Refusal::NotFound(vm)),
        }
        if self.extensions.insert(id.clone(), extension.clone()) == Some(extension) {
            let running = self.operations.on(id).cloned();
            return Ok(running.map_or(Reply::Done, Reply::Accepted));
        }
        let due = now + self.takes(INSTALLS, "install", id.folded());
        Ok(Reply::Accepted(self.begin(id, Completion::Create(Ok(())), due)))
    }

    /// Installs the extension by which AKS counts a Linux node.
    pub(in crate::cloud) fn put_billing_extension(&mut self, vm: &ArmId, now: Timestamp) -> Result<Reply, Refusal> {
        let extension = Extension {
            publisher: Arc::from("Microsoft.AKS"),
            of: Arc::from("Compute.AKS.Linux.Billing"),
            version: Arc::from("1.0"),
        };
        self.put_extension(&billing_of(vm)?, extension, now)
    }

    /// True where AKS counts a VM.
    #[must_use]
    pub fn is_billed(&self, vm: &ArmId) -> bool {
        billing_of(vm).is_ok_and(|id| self.extensions.contains_key(&id))
    }

    /// An extension, and whether it is installed already.
    #[must_use]
    pub fn extension(&self, id: &ArmId) -> Option<(&Extension, bool)> {
        let extension = self.extensions.get(id)?;
        Some((extension, self.operations.on(id).is_none()))
    }

    /// Removes the extensions of a deleted VM.
    pub(in crate::cloud) fn forget_extensions(&mut self, vm: &ArmId) {
        let deleted: Vec<ArmId> = self.extensions.keys().filter(|id| vm_of(id).as_ref() == Some(vm)).cloned().collect();
        for id in deleted {
            self.operations.cancel(&id);
            self.extensions.remove(&id);
        }
    }
}

/// The extension of a VM by which AKS counts it.
fn billing_of(vm: &ArmId) -> Result<ArmId, Refusal> {
    ArmId::new(format!("{vm}/extensions/computeAksLinuxBilling")).map_err(|_| Refusal::NotFound(vm.clone()))
}

/// The VM of an extension.
fn vm_of(extension: &ArmId) -> Option<ArmId> {
    let words: Vec<&str> = extension.as_str().split('/').collect();
    match words[..] {
        [.., vms, _, of, _] if vms.eq_ignore_ascii_case("virtualMachines") && of.eq_ignore_ascii_case("extensions") => {
            ArmId::new(words[..words.len() - 2].join("/")).ok()
        }
        _ => None,
    }
}
