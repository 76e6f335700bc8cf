//! Reasons why no nodes are launched.

use crate::model::names::{ArmId, ClaimName};
use std::fmt;
use std::sync::Arc;

/// Why nothing is launched in this cluster: neither NodeClaims nor VMs are created while it lasts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaunchHold {
    /// Azure has not been asked yet which cluster the node resource group belongs to, or has not answered.
    GroupUnread {
        /// The configured group.
        group: ArmId,
    },
    /// The node resource group belongs to another cluster than the configured one, or to none.
    OtherGroup {
        /// The configured group.
        group: ArmId,
        /// Its `managedBy`.
        managed_by: Option<ArmId>,
    },
    /// No ready Node of this cluster is in the group without a NodeClaim, as the Nodes of agent pools are.
    NoAgentNode {
        /// The configured group.
        group: ArmId,
    },
    /// Another Karpenter has a NodeClaim in this cluster.
    ForeignClaim {
        /// The NodeClaim.
        claim: ClaimName,
    },
}

impl LaunchHold {
    /// Category, for metrics and as the reason of conditions.
    #[must_use]
    pub fn category(&self) -> &'static str {
        match self {
            Self::GroupUnread { .. } => "GroupUnread",
            Self::OtherGroup { .. } => "OtherGroup",
            Self::NoAgentNode { .. } => "NoAgentNode",
            Self::ForeignClaim { .. } => "ForeignNodeClaim",
        }
    }
}

/// How a NodePool may launch after nodes of it did not come up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PoolHold {
    /// Not at all now.
    Held {
        /// Why, and until when.
        reason: Arc<str>,
    },
    /// One node, to see whether it comes up.
    OneNode,
}

/// What is wrong, and what to do about it.
impl fmt::Display for LaunchHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GroupUnread { group } => {
                write!(f, "Azure has not said yet which cluster {group} belongs to: its managedBy must be readable")
            }
            Self::OtherGroup { group, managed_by: None } => {
                write!(f, "{group} belongs to no cluster: check nodeResourceGroup in napkeeper.yaml")
            }
            Self::OtherGroup { group, managed_by: Some(cluster) } => {
                write!(f, "{group} belongs to {cluster}: check the cluster and nodeResourceGroup in napkeeper.yaml")
            }
            Self::NoAgentNode { group } => write!(
                f,
                "no ready Node of an agent pool is in {group}: napkeeper.yaml names another cluster's group, or no agent \
                 pool is ready"
            ),
            Self::ForeignClaim { claim } => write!(
                f,
                "NodeClaim {claim} was created by another Karpenter: remove that Karpenter and its NodeClaims, or use \
                 --mode companion"
            ),
        }
    }
}
