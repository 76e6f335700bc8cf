//! Backups of the API server that are restored in part: NodeClaims are lost, with or without their Nodes, or created
//! again.

use crate::world::World;
use crate::world::timeline::EventKind;

/// What a restore does to NodeClaims of nodes in use. They are counted in the order of their nodes' names, modulo their
/// number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreFault {
    /// The backup is older than some NodeClaims, which are lost without their finalizers.
    LoseClaims {
        /// The first of them.
        nth: usize,
        /// How many.
        count: usize,
        /// Their Nodes are lost too.
        with_nodes: bool,
    },
    /// A NodeClaim is deleted and created again from the backup: it has another UID and age.
    RecreateClaim {
        /// Which one.
        nth: usize,
        /// The backup includes its status. By default that of Velero does not.
        with_status: bool,
    },
}

impl World {
    pub(super) fn strike_restore(&mut self, fault: RestoreFault) {
        match fault {
            RestoreFault::LoseClaims { nth, count, with_nodes } => {
                for claim in self.claims_in_use(nth, count) {
                    let what = if with_nodes { "it and its Node are" } else { "it is" };
                    self.log(EventKind::Scenario, &claim.name, format!("{what} missing from a restored backup"));
                    self.cluster.lose_claim(&claim.name, with_nodes, self.now);
                }
            }
            RestoreFault::RecreateClaim { nth, with_status } => {
                for claim in self.claims_in_use(nth, 1) {
                    let with = if with_status { "with" } else { "without" };
                    self.log(EventKind::Scenario, &claim.name, format!("restored from a backup {with} its status"));
                    self.cluster.recreate_claim(&claim.name, with_status, self.now);
                }
            }
        }
    }
}
