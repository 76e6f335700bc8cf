//! The nodes that may be disrupted, and what that costs.

use crate::karpenter::offerings::PoolOptions;
use crate::karpenter::pods;
use crate::karpenter::scheduling::is_under_consolidate_after;
use crate::karpenter::view::{ClaimView, NodeView, View};
use napkeeper_core::catalog::CapacityType;
use napkeeper_core::model::cluster::pod::{Pod, PodOwner};
use napkeeper_core::model::cluster::pool::ConsolidationPolicy;
use napkeeper_core::model::labels;
use napkeeper_core::model::names::NodePoolName;
use std::sync::Arc;

/// What disrupting a node without pods costs; each pod adds its own cost.
const COST_OF_A_NODE: f64 = 1.0;

/// A node that may be disrupted.
#[derive(Debug, Clone)]
pub(in crate::karpenter) struct Candidate<'v> {
    pub(in crate::karpenter) node: &'v NodeView,
    pub(in crate::karpenter) claim: &'v ClaimView,
    pub(in crate::karpenter) options: &'v Arc<PoolOptions>,
    pub(in crate::karpenter) capacity_type: Option<CapacityType>,
    /// Price in nano-USD an hour.
    pub(in crate::karpenter) price: f64,
    /// 1 for the node, and the cost of each of its pods that has to move.
    pub(in crate::karpenter) cost: f64,
}

/// Why a node is no candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::karpenter) enum Blocked {
    /// Nobody's NodeClaim stands for it, or no Node has joined for the NodeClaim.
    NotManaged,
    /// A command disrupts it already.
    Queued,
    NotInitialized,
    /// It is being deleted, or a command has marked it.
    Marked,
    /// Pods were planned onto it lately.
    Nominated,
    /// Its Node has the annotation.
    NodeAnnotation,
    /// Its NodePool is gone or has no instance types.
    NoPool,
    /// A pod has the annotation.
    PodAnnotation,
    /// A PodDisruptionBudget does not allow to evict a pod.
    Budget,
}

impl<'v> Candidate<'v> {
    /// The candidate for a node.
    pub(in crate::karpenter) fn new(view: &'v View, node: &'v NodeView) -> Result<Self, Blocked> {
        let Some(claim) = node.claim.as_ref().filter(|_| node.joined) else { return Err(Blocked::NotManaged) };
        if claim.queued {
            return Err(Blocked::Queued);
        }
        if claim.initialized_at.is_none() {
            return Err(Blocked::NotInitialized);
        }
        if claim.marked {
            return Err(Blocked::Marked);
        }
        if claim.nominated_until.is_some_and(|until| until > view.now) {
            return Err(Blocked::Nominated);
        }
        if node.do_not_disrupt {
            return Err(Blocked::NodeAnnotation);
        }
        let options = view.pool(&claim.pool).filter(|options| !options.types.is_empty()).ok_or(Blocked::NoPool)?;
        if !node.pods.iter().all(|pod| pods::is_disruptable(pod, view.now)) {
            return Err(Blocked::PodAnnotation);
        }
        if !view.lets_evict(&node.pods) {
            return Err(Blocked::Budget);
        }
        let moving = node.pods.iter().filter(|pod| pods::is_reschedulable(pod));
        Ok(Self {
            node,
            claim,
            options,
            capacity_type: node.capacity_type(),
            price: in_nanos(node),
            cost: cost(moving),
        })
    }

    pub(in crate::karpenter) fn pool(&self) -> &'v NodePoolName {
        &self.options.pool.name
    }

    pub(in crate::karpenter) fn policy(&self) -> ConsolidationPolicy {
        self.options.pool.disruption.policy
    }

    /// Nothing on it costs anything to evict.
    pub(in crate::karpenter) fn is_empty(&self) -> bool {
        self.cost <= COST_OF_A_NODE
    }

    /// What disrupting it saves by what it costs.
    fn ratio(&self) -> f64 {
        self.price / self.cost
    }

    /// Its `consolidateAfter` is over.
    pub(in crate::karpenter) fn is_consolidatable(&self, view: &View) -> bool {
        self.options.pool.disruption.consolidate_after.is_some() && !is_under_consolidate_after(view, self.node)
    }

    /// The method of empty nodes may delete it.
    pub(in crate::karpenter) fn may_be_deleted_empty(&self, view: &View) -> bool {
        self.options.pool.replicas.is_none() && self.is_empty() && self.is_consolidatable(view)
    }

    /// The methods of underutilized nodes may disrupt it.
    pub(in crate::karpenter) fn may_be_consolidated(&self, view: &View) -> bool {
        let is_priced = self.capacity_type.is_some() && self.node.labels.contains_key(labels::ZONE);
        self.options.pool.replicas.is_none()
            && is_priced
            && !self.is_empty()
            && self.policy() != ConsolidationPolicy::WhenEmpty
            && self.is_consolidatable(view)
    }

    /// Pods that would have to move now.
    pub(in crate::karpenter) fn moving_pods(&self, view: &View) -> Vec<Arc<Pod>> {
        self.node.pods.iter().filter(|pod| view.will_move(pod)).cloned().collect()
    }
}

/// All candidates, in the order of the nodes.
pub(in crate::karpenter) fn candidates(view: &View) -> Vec<Candidate<'_>> {
    view.nodes.iter().filter_map(|node| Candidate::new(view, node).ok()).collect()
}

/// The greatest saving by cost first; among equals by name.
pub(super) fn sort(candidates: &mut [Candidate<'_>]) {
    candidates.sort_by(|a, b| b.ratio().total_cmp(&a.ratio()).then_with(|| a.node.name.cmp(&b.node.name)));
}

/// The price of a node as a number.
#[expect(clippy::cast_precision_loss, reason = "prices are far below 2^53 nano-USD")]
pub(super) fn in_nanos(node: &NodeView) -> f64 {
    node.price().nanos() as f64
}

/// What disrupting a node costs that is no candidate: all pods but those of DaemonSets count.
pub(super) fn cost_of(node: &NodeView) -> f64 {
    cost(node.pods.iter().filter(|pod| pod.owner != PodOwner::DaemonSet && !pod.is_terminal()))
}

fn cost<'p>(pods: impl Iterator<Item = &'p Arc<Pod>>) -> f64 {
    COST_OF_A_NODE + pods.map(|pod| pods::eviction_cost(pod).max(0.0)).sum::<f64>()
}
