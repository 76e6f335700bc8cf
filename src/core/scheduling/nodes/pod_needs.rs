//! What the pods of a class need of a node, and what adding one costs.

use crate::model::amounts::resources::Resources;
use crate::model::cluster::pod::HostPort;
use crate::scheduling::offerings::available::CandidateIndex;
use crate::scheduling::offerings::candidate_sets::{CandidateSetId, ExpectedPods};
use crate::scheduling::offerings::min_values::Load;
use crate::scheduling::pods::volume_limits::TrackedVolumes;

/// What one pod needs of a node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PodNeeds<'a> {
    pub(crate) requests: &'a Resources,
    pub(crate) ports: &'a [HostPort],
    /// Data disks, unless another pod shares them.
    pub(crate) disks: u32,
    /// Its other volumes.
    pub(crate) tracked_volumes: Option<&'a TrackedVolumes>,
    /// How many such pods are expected on the same node, this one included.
    pub(crate) expected_pods: u32,
}

impl<'a> PodNeeds<'a> {
    /// True when only resource requests decide whether a pod fits.
    pub(crate) fn is_resources_only(&self) -> bool {
        self.ports.is_empty() && self.disks == 0 && self.tracked_volumes.is_none()
    }

    pub(crate) fn expected(&self) -> ExpectedPods<'a> {
        ExpectedPods { requests: self.requests, count: self.expected_pods }
    }

    /// The load of a node with one such pod and nothing else, without `minValues`.
    pub(crate) fn load(&self) -> Load<'a> {
        Load { requests: self.requests, disks: self.disks, min_values: &[] }
    }
}

/// What would become of an open node with one more pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PodAddition {
    /// How much more expensive it becomes per expected pod that then fits, in nano-USD per hour.
    pub(crate) added_cost: i64,
    /// How full it would be, in thousandths of the scarcest resource.
    pub(crate) utilization: u32,
    pub(crate) candidate_set: CandidateSetId,
    pub(crate) candidate: CandidateIndex,
}

/// Each node has an overhead: another one is opened only where it saves more than this fraction of its price. Otherwise
/// rounding of prices would decide.
pub(crate) const NEW_NODE_SAVING_DIVISOR: i64 = 32;

impl PodAddition {
    /// The highest added cost at which an open node is preferred to a new one; unlimited where no new one is possible.
    pub(crate) fn max_cost_beside(alone: Option<&Self>) -> i64 {
        alone.map_or(i64::MAX, |alone| alone.added_cost.saturating_add(alone.added_cost / NEW_NODE_SAVING_DIVISOR))
    }
}
