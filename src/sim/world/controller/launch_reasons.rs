//! Why nodes were launched, and what the controller knows.

use crate::world::World;
use napkeeper_core::catalog::CapacityType;
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::names::{NodePoolName, VmSize};
use napkeeper_core::plan::ClaimDraft;
use napkeeper_core::scheduling::{AvailableOfferings, PlanCost, SizeExplanation, UnavailableOfferings};
use napkeeper_core::snapshot::Snapshot;
use std::collections::BTreeMap;

/// Nodes of one NodePool that were planned as one size. The details are those of the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchReason {
    /// The pool.
    pub pool: NodePoolName,
    /// The size that is tried first.
    pub size: VmSize,
    /// Its capacity type.
    pub capacity_type: CapacityType,
    /// Its price.
    pub price: HourlyPrice,
    /// How many of them were launched.
    pub nodes: usize,
    /// For how many pods.
    pub pods: usize,
    /// The requests of its pods and DaemonSets.
    pub requests: Resources,
    /// Why this size.
    pub choice: SizeExplanation,
}

/// Nodes that were launched, by pool, size and capacity type.
pub(in crate::world) type LaunchReasons = BTreeMap<(NodePoolName, VmSize, CapacityType), LaunchReason>;

impl World {
    /// The controller's snapshot.
    #[must_use]
    pub fn known(&self) -> &Snapshot {
        self.controller.inner.snapshot()
    }

    /// The planned price of all nodes, and its lower bound.
    #[must_use]
    pub fn planned(&self) -> PlanCost {
        self.controller.inner.memory().provision.planned_cost
    }

    /// Offerings that Azure has refused recently, as the controller remembers.
    #[must_use]
    pub fn unavailable(&self) -> &UnavailableOfferings {
        &self.controller.inner.memory().provision.unavailable
    }

    /// Records from now on why nodes are launched.
    pub fn record_launch_reasons(&mut self) {
        self.launch_reasons.get_or_insert_default();
    }

    /// Why nodes were launched since [`World::record_launch_reasons`].
    pub fn launch_reasons(&self) -> impl Iterator<Item = &LaunchReason> {
        self.launch_reasons.iter().flat_map(BTreeMap::values)
    }

    /// Records why a node is launched, once per pool, size and capacity type: explaining a choice compares thousands of
    /// sizes.
    pub(in crate::world) fn record_launch_reason(&mut self, draft: &ClaimDraft) {
        let controller = &self.controller.inner;
        let (Some(reasons), Some(pool)) = (&mut self.launch_reasons, &draft.spec.pool) else { return };
        let Some(first) = draft.spec.planned.first() else { return };
        let key = (pool.clone(), first.key.size.clone(), first.key.capacity_type);
        if let Some(known) = reasons.get_mut(&key) {
            known.nodes += 1;
            known.pods += draft.pods.len();
            return;
        }
        let market =
            AvailableOfferings::new(controller.snapshot(), &controller.memory().provision.unavailable, self.now);
        let choice = SizeExplanation::of_planned(&market, pool, &draft.spec.planned, &draft.spec.requests);
        let reason = LaunchReason {
            pool: pool.clone(),
            size: first.key.size.clone(),
            capacity_type: first.key.capacity_type,
            price: first.price,
            nodes: 1,
            pods: draft.pods.len(),
            requests: draft.spec.requests.clone(),
            choice: choice.unwrap_or_default(),
        };
        reasons.insert(key, reason);
    }
}
