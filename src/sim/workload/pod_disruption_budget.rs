//! PodDisruptionBudgets.

pub use napkeeper_api::convert::BudgetLimit;
use napkeeper_core::model::cluster::pod::{Labels, Pod};
use napkeeper_core::model::names::Namespace;
use napkeeper_core::model::requirements::Requirements;

/// A PodDisruptionBudget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodBudget {
    /// Its namespace.
    pub namespace: Namespace,
    /// Which pods it guards.
    pub selector: Requirements,
    /// Its limit.
    pub limit: BudgetLimit,
    /// Pods that are not ready may always be evicted: `unhealthyPodEvictionPolicy: AlwaysAllow`.
    pub always_allows_unready: bool,
}

impl PodBudget {
    /// True when it guards pods of this namespace with these labels.
    #[must_use]
    pub fn guards(&self, namespace: &Namespace, labels: &Labels) -> bool {
        self.namespace == *namespace && self.selector.satisfied_by(labels)
    }

    /// True when it guards this pod.
    #[must_use]
    pub fn guards_pod(&self, pod: &Pod) -> bool {
        self.guards(&pod.shape.namespace, &pod.shape.labels)
    }

    /// How many pods must be healthy, of so many desired ones.
    #[must_use]
    pub fn desired_healthy(&self, wanted: u32) -> u32 {
        let percent = |part: u32| wanted.saturating_mul(part).div_ceil(100);
        match self.limit {
            BudgetLimit::MinAvailable(least) => least,
            BudgetLimit::MinAvailablePercent(part) => percent(part),
            BudgetLimit::MaxUnavailable(most) => wanted.saturating_sub(most),
            BudgetLimit::MaxUnavailablePercent(part) => wanted.saturating_sub(percent(part)),
        }
    }

    /// True when the disruption controller counts the pod as healthy: it is ready, and not being deleted.
    #[must_use]
    pub fn is_healthy(pod: &Pod) -> bool {
        pod.ready && pod.deleting_at.is_none()
    }
}
