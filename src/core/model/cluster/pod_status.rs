//! The state of pods.

use crate::model::amounts::resources::Resources;
use jiff::Timestamp;
use std::sync::Arc;

/// Phase of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodPhase {
    /// Not started.
    Pending,
    /// Started.
    Running,
    /// Ended well.
    Succeeded,
    /// Ended badly.
    Failed,
}

impl PodPhase {
    /// As in `status.phase`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }
}

/// What is told of a pod, and decides nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodDetails {
    /// The path of its first owner as Karpenter spells it, `/apis/apps/v1/namespaces/shop/replicasets/web`; empty where it has
    /// none.
    pub owner: Arc<str>,
    /// The limits of its containers, `pods: 1` included, summed as requests are.
    pub limits: Arc<Resources>,
    /// Since when it has had a node (condition `PodScheduled`).
    pub scheduled_at: Option<Timestamp>,
    /// Since when it has been ready (condition `Ready`).
    pub ready_at: Option<Timestamp>,
}
