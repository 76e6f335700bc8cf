//! The parts of a resource id: subscription, group, type and name.

use super::error::invalid;
use napkeeper_core::model::errors::CloudError;
use napkeeper_core::model::names::ArmId;

/// Types of resource that are read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResourceType {
    Vm,
    Nic,
    Disk,
}

impl ResourceType {
    /// The type of a provider's resources, in any case.
    pub(crate) fn of(provider: &str, of: &str) -> Option<Self> {
        let is =
            |expected: (&str, &str)| provider.eq_ignore_ascii_case(expected.0) && of.eq_ignore_ascii_case(expected.1);
        match () {
            () if is(("Microsoft.Compute", "virtualMachines")) => Some(Self::Vm),
            () if is(("Microsoft.Compute", "disks")) => Some(Self::Disk),
            () if is(("Microsoft.Network", "networkInterfaces")) => Some(Self::Nic),
            () => None,
        }
    }
}

/// The segments of a resource id, as spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResourceId<'a> {
    pub(crate) subscription: &'a str,
    pub(crate) group: &'a str,
    pub(crate) of: ResourceType,
    pub(crate) name: &'a str,
}

impl<'a> ResourceId<'a> {
    /// The parts of the id of a VM, NIC or disk.
    pub(crate) fn of(id: &'a ArmId) -> Result<Self, CloudError> {
        let wrong = || invalid(format!("{id} is not the id of a VM, NIC or disk"));
        let segments: Vec<&str> = id.as_str().split('/').collect();
        let ["", _, subscription, groups, group, providers, provider, of, name] = segments[..] else {
            return Err(wrong());
        };
        let is = |text: &str, word: &str| text.eq_ignore_ascii_case(word);
        if !is(groups, "resourceGroups") || !is(providers, "providers") || name.is_empty() {
            return Err(wrong());
        }
        let of = ResourceType::of(provider, of).ok_or_else(wrong)?;
        Ok(Self { subscription, group, of, name })
    }
}

/// Subscription and name of a resource group, as spelled.
pub(crate) fn resource_group(id: &ArmId) -> Option<(&str, &str)> {
    let segments: Vec<&str> = id.as_str().split('/').collect();
    match segments[..] {
        ["", _, subscription, groups, group] if groups.eq_ignore_ascii_case("resourceGroups") && !group.is_empty() => {
            Some((subscription, group))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_parsed_in_any_case() {
        let id = |text: &str| ArmId::new(text).unwrap();
        let nic = id("/subscriptions/S/RESOURCEGROUPS/MC_g/providers/microsoft.network/NetworkInterfaces/Nic-1");
        let parts = ResourceId { subscription: "S", group: "MC_g", of: ResourceType::Nic, name: "Nic-1" };
        assert_eq!(ResourceId::of(&nic).unwrap(), parts);
        for other in [
            "/subscriptions/s/resourceGroups/g",
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/snapshots/a",
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/disks/a",
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/",
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/a/extensions/b",
        ] {
            assert!(ResourceId::of(&id(other)).is_err(), "{other}");
        }
        assert_eq!(resource_group(&id("/subscriptions/s/resourcegroups/G")), Some(("s", "G")));
        assert_eq!(resource_group(&nic), None);
    }
}
