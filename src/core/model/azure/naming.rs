//! Azure resource names derived from a NodeClaim's name.
//!
//! The names follow from the claim's name alone. So a restart finds resources of an earlier run, a second launch of
//! the same claim finds the first one's resources instead of creating more, and a resource with such a name points back
//! at its claim even without tags.

use crate::model::names::{ArmId, ClaimName};

/// Resource type of virtual machines.
pub const VM_TYPE: &str = "Microsoft.Compute/virtualMachines";
/// Resource type of network interfaces.
pub const NIC_TYPE: &str = "Microsoft.Network/networkInterfaces";
/// Longest name of a Machine.
const MAX_AKS_MACHINE_NAME_LENGTH: usize = 34;

/// Resource type of managed disks.
pub const DISK_TYPE: &str = "Microsoft.Compute/disks";

/// The resources of one NodeClaim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceIds {
    /// Its VM.
    pub vm: ArmId,
    /// The VM's NIC.
    pub nic: ArmId,
    /// The VM's OS disk.
    pub os_disk: ArmId,
}

/// The resources of a NodeClaim in a node resource group: all are named `aks-<claim>`, as Karpenter's Azure provider
/// names its VMs and NICs.
#[must_use]
pub fn resource_ids(group: &ArmId, claim: &ClaimName) -> ResourceIds {
    let name = format!("aks-{claim}");
    ResourceIds {
        vm: group.resource(VM_TYPE, &name),
        nic: group.resource(NIC_TYPE, &name),
        os_disk: group.resource(DISK_TYPE, &name),
    }
}

/// The Machine of a NodeClaim in an agent pool. AKS allows 34 characters; of a longer name the end is used, which
/// distinguishes claims of one pool.
#[must_use]
pub fn aks_machine_id(pool: &ArmId, claim: &ClaimName) -> ArmId {
    let name = claim.as_str();
    let from = name.len().saturating_sub(MAX_AKS_MACHINE_NAME_LENGTH);
    let name = name.get(from..).unwrap_or(name).trim_start_matches(['-', '.']);
    ArmId::new(format!("{pool}/machines/{name}")).unwrap_or_else(|_| pool.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ids_of_a_claim_follow_from_its_name() {
        let group = ArmId::new("/subscriptions/s/resourceGroups/MC_g").unwrap();
        let ids = resource_ids(&group, &ClaimName::new("general-abc12").unwrap());
        assert_eq!(
            ids.nic.as_str(),
            "/subscriptions/s/resourceGroups/MC_g/providers/Microsoft.Network/networkInterfaces/aks-general-abc12"
        );
        assert_eq!(ids.vm.resource_group(), Some("mc_g"));
        assert_ne!(ids.vm, ids.os_disk);
    }
}
