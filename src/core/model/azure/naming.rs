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

/// The name of the NodeClaim that a resource, or its Node, is named after, if it is named `aks-<claim>`. AKS names the VMs
/// of Machines `aks-<pool>-<machine>-########…`, which this does not tell apart.
#[must_use]
pub fn claim_in_name(name: &str) -> Option<&str> {
    name.strip_prefix("aks-")
}

/// The Machine of a NodeClaim in an agent pool. AKS allows 34 characters; of a longer name the end is used, which
/// distinguishes claims of one pool.
#[must_use]
pub fn aks_machine_id(pool: &ArmId, claim: &ClaimName) -> ArmId {
    ArmId::new(format!("{pool}/machines/{}", aks_machine_name(claim))).unwrap_or_else(|_| pool.clone())
}

/// True for the id of this NodeClaim's Machine in any agent pool.
#[must_use]
pub fn is_aks_machine_of(id: &ArmId, claim: &ClaimName) -> bool {
    let name = aks_machine_name(claim).to_ascii_lowercase();
    id.folded().strip_suffix(&name).is_some_and(|pool| pool.ends_with("/machines/"))
}

fn aks_machine_name(claim: &ClaimName) -> &str {
    let name = claim.as_str();
    let from = name.len().saturating_sub(MAX_AKS_MACHINE_NAME_LENGTH);
    name.get(from..).unwrap_or(name).trim_start_matches(['-', '.'])
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

    #[test]
    fn a_machine_is_of_the_claim_that_its_name_follows_from() {
        let pool = ArmId::new("/subscriptions/s/resourceGroups/r/providers/p/managedClusters/c/agentPools/p").unwrap();
        let claim = |name: &str| ClaimName::new(name).unwrap();
        let long = claim("the-nodepool-with-a-very-long-name-abc12");
        assert_eq!(aks_machine_id(&pool, &long).name(), "depool-with-a-very-long-name-abc12");
        assert!(is_aks_machine_of(&aks_machine_id(&pool, &long), &long));
        assert!(is_aks_machine_of(&aks_machine_id(&pool, &claim("general-abc12")), &claim("general-abc12")));
        assert!(!is_aks_machine_of(&aks_machine_id(&pool, &claim("x-general-abc12")), &claim("general-abc12")));
        assert!(!is_aks_machine_of(&resource_ids(&pool, &claim("general-abc12")).vm, &claim("general-abc12")));
    }
}
