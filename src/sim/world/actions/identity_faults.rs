//! Faults of identity: the controller runs in another cluster than it is configured for, or beside another Karpenter.

use crate::world::World;
use napkeeper_core::model::names::ClaimName;

/// What is wrong with the cluster that the controller runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdentityFault {
    /// The Nodes of the system pool are in another resource group, as those of a second cluster with the same
    /// configuration.
    SecondCluster {
        /// From now on, or no longer.
        on: bool,
    },
    /// Another Karpenter has a NodeClaim.
    OtherKarpenter {
        /// From now on, or no longer.
        on: bool,
    },
}

impl World {
    pub(super) fn strike_identity(&mut self, fault: IdentityFault) {
        let group = &self.settings.cluster.node_resource_group;
        match fault {
            IdentityFault::SecondCluster { on: true } => {
                let elsewhere = group.as_str().replace("/resourceGroups/", "/resourceGroups/second_");
                self.cluster.move_system_nodes(&elsewhere, self.now);
                self.truth.second_cluster_since = Some(self.now);
                self.truth.was_second_cluster_at_start = self.now == self.started_at;
            }
            IdentityFault::SecondCluster { on: false } => {
                self.cluster.move_system_nodes(&group.to_string(), self.now);
                self.truth.second_cluster_since = None;
                self.truth.was_second_cluster_at_start = false;
            }
            IdentityFault::OtherKarpenter { on } => {
                let Ok(name) = ClaimName::new("theirs-abcde") else { return };
                self.truth.other_karpenter_since = on.then_some(self.now);
                self.cluster.set_foreign_claim(name, on, self.now);
            }
        }
    }
}
