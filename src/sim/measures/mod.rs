//! What a policy costs and disturbs, measured in the same way for every policy on the simulated cluster.
//!
//! [`PodMeasures`] belongs to [`crate::cluster::Cluster`], which tells it of every change of a pod and of every eviction
//! that it accepts; [`PriceSeries`] belongs to [`crate::world::Accounting`]. Neither knows which policy is measured.
//!
//! Approximations:
//! - A voluntary eviction is one that the policy asked for and the API server accepted, of a pod that was still wanted:
//!   not of a pod that has ended, is being deleted or has lost its machine. Pods that run on when the policy deletes
//!   their VM count too. Spot VMs that Azure takes back, deletions by users and scale-downs of the workload do not
//!   count. Pods of DaemonSets and static pods belong to their node and are left out of everything.
//! - The replacement of an evicted pod is the next pod that its workload creates, the earliest eviction first; for a
//!   StatefulSet it is the pod of the same name. When a workload is scaled up, or rolled out, at the very instant of an
//!   eviction, one new pod is as good as another.
//! - A pod that was wanted when it was evicted, and for which its workload creates no replacement, is no longer wanted:
//!   its time without a replacement ends there.
//! - A pod that is deleted while it is pending has waited for as long as it existed, and so has one that is pending at
//!   the end. [`WaitFigures::never_bound`] counts both.

mod figures;
mod pods;
mod prices;
#[cfg(test)]
mod tests;
mod waits;

pub(crate) use figures::per_day;
pub use figures::{DisruptionFigures, PodFigures, PoolFigures};
pub use pods::{PodGroup, PodMeasures, ReplicaName};
pub use prices::PriceSeries;
pub use waits::WaitFigures;
