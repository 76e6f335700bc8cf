//! Workloads: the desired number of pods.
//!
//! These are the rules of the ReplicaSet, StatefulSet and Job controllers as far as they decide how many pods there
//! are. [`crate::cluster`] applies them to its store.

mod pod_disruption_budget;
mod rollout;
mod surplus;

use jiff::SignedDuration;
use napkeeper_core::model::cluster::pod::{DoNotDisrupt, PodShape};
use napkeeper_core::model::cluster::volume::ReclaimPolicy;
use napkeeper_core::model::names::{ObjectKey, ObjectName};
pub use pod_disruption_budget::{BudgetLimit, PodBudget};
pub use rollout::{RevisionPods, Rollout, RolloutCounts, RolloutStep};
use std::collections::BTreeMap;
use std::sync::Arc;
pub use surplus::surplus;

/// What all pods of a workload have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodTemplate {
    /// Where they can run.
    pub shape: Arc<PodShape>,
    /// `terminationGracePeriodSeconds`. Simulated pods always take all of it.
    pub grace: SignedDuration,
    /// From their start until they are ready.
    pub ready_after: SignedDuration,
    /// They must not be disrupted.
    pub do_not_disrupt: Option<DoNotDisrupt>,
    /// Annotation `controller.kubernetes.io/pod-deletion-cost`.
    pub deletion_cost: i32,
}

impl PodTemplate {
    /// Kubernetes' default for `terminationGracePeriodSeconds`.
    pub const GRACE: SignedDuration = SignedDuration::from_secs(30);

    /// Pods of this shape with Kubernetes' default grace.
    #[must_use]
    pub fn new(shape: impl Into<Arc<PodShape>>) -> Self {
        Self {
            shape: shape.into(),
            grace: Self::GRACE,
            ready_after: SignedDuration::ZERO,
            do_not_disrupt: None,
            deletion_cost: 0,
        }
    }
}

/// The disk of a PersistentVolumeClaim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskRequest {
    /// Size in GiB.
    pub size_gib: u32,
    /// What happens to the disk when the claim is deleted: the StorageClass decides it.
    pub reclaim: ReclaimPolicy,
}

/// The desired number of pods of a workload, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkloadKind {
    /// This many identical pods.
    Deployment {
        /// Wanted pods.
        replicas: u32,
    },
    /// Pods with names and disks of their own.
    StatefulSet {
        /// Wanted pods.
        replicas: u32,
        /// A disk for each of them, if any.
        disk: Option<DiskRequest>,
    },
    /// Pods that run to completion.
    Job {
        /// Most pods at once.
        parallelism: u32,
        /// Pods that must end well.
        completions: u32,
        /// How long each of them runs.
        run_for: SignedDuration,
    },
}

/// A workload: a template and a number of pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// What its pods have in common.
    pub template: PodTemplate,
    /// How many there should be.
    pub kind: WorkloadKind,
}

impl Workload {
    /// The desired number of running pods after this many have succeeded.
    #[must_use]
    pub fn wanted(&self, succeeded: u32) -> u32 {
        match self.kind {
            WorkloadKind::Deployment { replicas } | WorkloadKind::StatefulSet { replicas, .. } => replicas,
            WorkloadKind::Job { parallelism, completions, .. } => {
                parallelism.min(completions.saturating_sub(succeeded))
            }
        }
    }

    /// Changes the number of pods: replicas, or the parallelism of a Job.
    pub fn scale(&mut self, to: u32) {
        match &mut self.kind {
            WorkloadKind::Deployment { replicas: n }
            | WorkloadKind::StatefulSet { replicas: n, .. }
            | WorkloadKind::Job { parallelism: n, .. } => *n = to,
        }
    }

    /// How long its pods run to completion.
    #[must_use]
    pub fn run_for(&self) -> Option<SignedDuration> {
        match self.kind {
            WorkloadKind::Job { run_for, .. } => Some(run_for),
            WorkloadKind::Deployment { .. } | WorkloadKind::StatefulSet { .. } => None,
        }
    }
}

/// Jobs with `spec.suspend: true`, which steps of a scenario run.
#[derive(Debug, Clone, Default)]
pub(crate) struct SuspendedJobs {
    jobs: BTreeMap<ObjectKey, Workload>,
    runs: u32,
}

impl SuspendedJobs {
    pub(crate) fn new(jobs: impl IntoIterator<Item = (ObjectKey, Workload)>) -> Self {
        Self { jobs: jobs.into_iter().collect(), runs: 0 }
    }

    /// One run of a Job, under a separate name (`training-1`); `None` when there is no such Job.
    pub(crate) fn run(&mut self, key: &ObjectKey) -> Option<(ObjectKey, Workload)> {
        let job = self.jobs.get(key)?.clone();
        self.runs += 1;
        let name = ObjectName::new(format!("{}-{}", key.name, self.runs)).ok()?;
        Some((ObjectKey { namespace: key.namespace.clone(), name }, job))
    }
}
