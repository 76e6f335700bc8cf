//! Scheduling simulation: places pods on existing nodes, NodeClaims in flight, and new nodes by NodePool weight.
//!
//! It simulates what kube-scheduler will do, and what it could do with new nodes. It only reads the Snapshot and only
//! writes the [`SchedulingResult`].
//!
//! | module | contents |
//! |---|---|
//! | `scheduler` | the loop over groups of pods |
//! | `incremental` | the same for one pod at a time, as the webhook needs it |
//! | `pods` | classes of equal pods, preferences, node filters, volumes, weights |
//! | `topology` | spread, pod affinity and anti-affinity, counted by domain |
//! | `offerings` | what new nodes can be launched as, and what limits that |
//! | `nodes` | existing and open nodes, and the search for the cheapest |
//! | `packing` | many equal pods at once: greedy, then improved, with a lower bound |
//! | `explain` | why pods are where they are, or cannot be scheduled |

pub(crate) mod explain;
mod incremental;
mod input;
pub(crate) mod nodes;
pub mod offerings;
pub(crate) mod packing;
pub(crate) mod pods;
mod result;
mod scheduler;
#[cfg(test)]
mod tests;
pub(crate) mod topology;

pub use explain::filter_steps::{FilterCriterion, FilterStep, PoolFilterSteps};
pub use explain::size::{Size, SizeExplanation};
pub use explain::suggestion::{SuggestedChange, Suggestion};
pub use explain::{
    ExplainedResult, Explanation, Explanations, NewNodesSummary, PlacementExplanation, PlacementSummary, TopologyCause,
    TopologyDecision, UnschedulableExplanation,
};
pub use incremental::{IncrementalScheduler, Placement, PlannedNode, Unschedulable};
pub use input::{Input, MAX_NEW_NODES};
pub use offerings::available::AvailableOfferings;
pub(crate) use offerings::available::claim_requirements;
pub(crate) use offerings::cache::OfferingsCache;
pub(crate) use offerings::labels::unmet_requirement;
pub(crate) use offerings::limits::may_launch;
pub use offerings::node_overlays::{OverlaidInstanceTypes, OverlayConflict, OverlayMemory};
pub use offerings::unavailable::{SizeOffering, UnavailableOfferings, UnavailableScope};
pub use packing::lower_bound::PlanCost;
pub use pods::preferences::Preference;
pub(crate) use pods::weight::{PodWeights, RunningPods};
pub use result::{
    NewNode, NoReservation, PodPlacement, SchedulingResult, Target, UnschedulablePods, UnschedulableReason,
};
pub(crate) use scheduler::schedule_around;
pub use scheduler::{explain, schedule, schedule_with_cost};
