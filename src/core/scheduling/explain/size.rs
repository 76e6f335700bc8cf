//! Explanation of the VM size of a new node.

use crate::catalog::CapacityType;
use crate::model::amounts::money::HourlyPrice;
use crate::model::amounts::resources::Resources;
use crate::model::cluster::claim::PlannedOffering;
use crate::model::cluster::pool::amount;
use crate::model::names::{NodePoolName, VmSize};
use crate::scheduling::nodes::new_node::OpenNode;
use crate::scheduling::nodes::simulation_state::SchedulingState;
use crate::scheduling::offerings::available::{AvailableOfferings, InstanceCandidate, PoolOfferings};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A VM size at a capacity type, at its lowest price.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Size {
    /// The size.
    pub name: VmSize,
    /// The capacity type.
    pub capacity_type: CapacityType,
    /// The lowest price over its zones.
    pub price: HourlyPrice,
}

/// Why a node is of the size that it is. All numbers are of sizes at a capacity type.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SizeExplanation {
    /// Those that hold all its pods; the node is the cheapest of them.
    pub fitting: usize,
    /// Cheaper ones without the labels or zones that its pods require.
    pub incompatible: usize,
    /// Cheaper ones that are too small.
    pub too_small: usize,
    /// Cheaper ones that limits or quotas forbid.
    pub over_limits: usize,
    /// The most expensive of those that are too small, and the resource that it lacks.
    pub priciest_too_small: Option<(Size, Arc<str>)>,
    /// The next more expensive one that holds them.
    pub next_fitting: Option<Size>,
}

/// Whether a candidate holds the pods of a node, or why not.
enum SizeFit {
    Fits,
    Incompatible,
    TooSmall,
    OverLimits,
}

impl Size {
    pub(crate) fn of(candidate: &InstanceCandidate) -> Self {
        let InstanceCandidate { instance, capacity_type, price, .. } = candidate;
        Self { name: instance.facts.name.clone(), capacity_type: *capacity_type, price: *price }
    }
}

impl SizeExplanation {
    /// Compares candidates, cheapest first, with the one at index `best`, which was chosen for these requests.
    fn of(
        candidates: &[InstanceCandidate],
        best: usize,
        requests: &Resources,
        judge: impl Fn(usize, &InstanceCandidate) -> SizeFit,
    ) -> Self {
        let mut explanation = Self::default();
        for (index, candidate) in candidates.iter().enumerate() {
            match judge(index, candidate) {
                SizeFit::Fits => {
                    explanation.fitting += 1;
                    if index > best {
                        explanation.next_fitting.get_or_insert_with(|| Size::of(candidate));
                    }
                }
                _ if index >= best => {}
                SizeFit::Incompatible => explanation.incompatible += 1,
                SizeFit::OverLimits => explanation.over_limits += 1,
                SizeFit::TooSmall => {
                    explanation.too_small += 1;
                    explanation.priciest_too_small =
                        Some((Size::of(candidate), scarce_resource(requests, &candidate.pod_capacity)));
                }
            }
        }
        explanation
    }

    /// Why an open node is of its size.
    pub(crate) fn of_open(state: &SchedulingState, open: &OpenNode) -> Self {
        let (sets, launch_limits) = (&state.open.candidate_sets, &state.open.limits);
        let PoolOfferings { pool, candidates, .. } = &**sets.pool_offerings(sets.get(open.candidate_set).pool);
        let compatible: BTreeSet<*const InstanceCandidate> =
            sets.candidates_in(open.candidate_set).map(|(candidate, _)| std::ptr::from_ref(candidate)).collect();
        let best = open.candidate as usize;
        // Nodes of one size hold other pods than planned.
        let requests = if open.holds_any { &candidates[best].pod_capacity } else { &open.requests };
        Self::of(candidates, best, requests, |index, candidate| match () {
            () if !compatible.contains(&std::ptr::from_ref(candidate)) => SizeFit::Incompatible,
            () if !candidate.holds(requests, open.disks) => SizeFit::TooSmall,
            // Headroom only shrinks: what is allowed now was allowed when the node was opened.
            () if index < best && !launch_limits.allows(pool, candidate) => SizeFit::OverLimits,
            () => SizeFit::Fits,
        })
    }

    /// Why a NodeClaim in flight is of its size, by its planned offerings and by the requests of its pods and daemons.
    /// Candidates over limits count as incompatible. `None` where the pool does not offer what is requested first.
    #[must_use]
    pub fn of_planned(
        offerings: &AvailableOfferings,
        pool: &NodePoolName,
        planned: &[PlannedOffering],
        requests: &Resources,
    ) -> Option<Self> {
        let pool_offerings = offerings.pools.iter().find(|pool_offerings| pool_offerings.pool.name == *pool)?;
        let sort = |candidate: &InstanceCandidate| (candidate.instance.facts.name.clone(), candidate.capacity_type);
        let first = planned.first()?;
        let own = (first.key.size.clone(), first.key.capacity_type);
        let best = pool_offerings.candidates.iter().position(|candidate| sort(candidate) == own)?;
        let compatible: BTreeSet<_> =
            planned.iter().map(|planned| (planned.key.size.clone(), planned.key.capacity_type)).collect();
        let chosen = &pool_offerings.candidates[best];
        let daemons = chosen.instance.allocatable.minus(&chosen.pod_capacity);
        let pods = requests.minus(&daemons);
        Some(Self::of(&pool_offerings.candidates, best, &pods, |_, candidate| match () {
            () if compatible.contains(&sort(candidate)) => SizeFit::Fits,
            () if !pods.fits(&candidate.pod_capacity) => SizeFit::TooSmall,
            () => SizeFit::Incompatible,
        }))
    }
}

/// The first resource that is scarce; data disks if none is.
fn scarce_resource(requests: &Resources, capacity: &Resources) -> Arc<str> {
    let plain = ["cpu", "memory", "ephemeral-storage", "pods"].into_iter().map(Arc::from);
    let mut names = plain.chain(requests.extended.iter().map(|(name, _)| Arc::clone(name)));
    let short = names.find(|name| amount(requests, name) > amount(capacity, name).max(0));
    short.unwrap_or_else(|| Arc::from("data disks"))
}
