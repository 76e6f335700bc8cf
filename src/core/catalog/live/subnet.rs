//! The IP addresses of a subnet. A node takes one address of the subnet of its AKSNodeClass.

use crate::model::names::ArmId;

/// Addresses of a subnet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubnetAddresses {
    /// The subnet.
    pub id: ArmId,
    /// Addresses in use.
    pub used: u64,
    /// Addresses that can be used: without the five of each range that Azure keeps.
    pub usable: u64,
    /// Used by AKSNodeClasses that name none.
    pub is_default: bool,
}

impl SubnetAddresses {
    /// Addresses that are free.
    #[must_use]
    pub fn free(&self) -> u64 {
        self.usable.saturating_sub(self.used)
    }
}
