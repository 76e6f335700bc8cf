//! PodDisruptionBudgets, as far as they decide about evictions.

use super::pod::{Pod, PodPhase};
use crate::model::names::ObjectKey;
use crate::model::requirements::Requirements;

/// A PodDisruptionBudget, with what the API server last counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodDisruptionBudget {
    /// Namespace and name.
    pub key: ObjectKey,
    /// The pods of the namespace that it protects; `None` for none.
    pub selector: Option<Requirements>,
    /// How many of them may be evicted now (`status.disruptionsAllowed`). 0 while the status is older than the spec: the
    /// eviction API refuses until it has been counted.
    pub disruptions_allowed: u32,
    /// Pods that are not ready may be evicted all the same: by `unhealthyPodEvictionPolicy: AlwaysAllow`, or because as
    /// many pods are healthy as there should be.
    pub allows_unready: bool,
    /// It never allows an eviction, however many pods are healthy, as with `maxUnavailable: 0`.
    pub is_fully_blocking: bool,
    /// Healthy pods (`status.currentHealthy`).
    pub healthy: u32,
    /// How many must be (`status.desiredHealthy`).
    pub desired_healthy: u32,
}

/// Why the eviction API refuses a pod, if it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvictionBlocker {
    /// This budget allows no eviction now.
    Exhausted(ObjectKey),
    /// This budget never allows one.
    FullyBlocking(ObjectKey),
    /// Several budgets select the pod, which the eviction API does not support: it never evicts such a pod. Two of them.
    Several(ObjectKey, ObjectKey),
}

impl PodDisruptionBudget {
    /// True when it protects a pod.
    #[must_use]
    pub fn protects(&self, pod: &Pod) -> bool {
        let selects = |selector: &Requirements| selector.satisfied_by(&pod.shape.labels);
        self.key.namespace == pod.key.namespace && self.selector.as_ref().is_some_and(selects)
    }
}

impl EvictionBlocker {
    /// What the eviction API says of a pod now, of which these budgets are those of its namespace (kubernetes
    /// `pkg/registry/core/pod/storage/eviction.go`).
    pub fn of<'a>(pod: &Pod, budgets: impl IntoIterator<Item = &'a PodDisruptionBudget>) -> Option<Self> {
        if pod.deleting_at.is_some() || pod.phase != PodPhase::Running {
            return None;
        }
        let mut protecting = budgets.into_iter().filter(|budget| budget.protects(pod));
        let first = protecting.next()?;
        if let Some(second) = protecting.next() {
            return Some(Self::Several(first.key.clone(), second.key.clone()));
        }
        let allows = first.disruptions_allowed > 0 || (!pod.ready && first.allows_unready);
        let blocker = if first.is_fully_blocking { Self::FullyBlocking } else { Self::Exhausted };
        (!allows).then(|| blocker(first.key.clone()))
    }

    /// True when only a change of a budget ends it, not the health of pods.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        !matches!(self, Self::Exhausted(_))
    }
}

impl std::fmt::Display for EvictionBlocker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exhausted(budget) => write!(f, "PodDisruptionBudget {budget} allows no eviction now"),
            Self::FullyBlocking(budget) => {
                write!(
                    f,
                    "PodDisruptionBudget {budget} never allows an eviction: as many pods must be available as there are"
                )
            }
            Self::Several(one, other) => {
                write!(f, "PodDisruptionBudgets {one} and {other} both select it, so that it cannot be evicted")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{at, disruption_budget, node, running, shape};
    use crate::model::names::{Namespace, ObjectName};
    use std::sync::Arc;

    fn key(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey { namespace: Namespace::new(namespace).unwrap(), name: ObjectName::new(name).unwrap() }
    }

    fn budget(name: &str, app: &str) -> PodDisruptionBudget {
        PodDisruptionBudget { key: key("default", name), ..disruption_budget(app, 1) }
    }

    fn pod() -> Pod {
        running("p", &Arc::new(shape("web", 100, 1)), &node("n", 1, 4))
    }

    #[test]
    fn a_budget_blocks_what_it_protects_while_it_allows_nothing() {
        let allowing = budget("web", "web");
        let exhausted = PodDisruptionBudget { disruptions_allowed: 0, ..allowing.clone() };
        let blocked = |pod: &Pod, budgets: &[PodDisruptionBudget]| EvictionBlocker::of(pod, budgets);
        assert_eq!(blocked(&pod(), &[]), None);
        assert_eq!(blocked(&pod(), &[allowing]), None);
        let blocker = blocked(&pod(), std::slice::from_ref(&exhausted)).unwrap();
        assert_eq!(blocker, EvictionBlocker::Exhausted(exhausted.key.clone()));
        assert!(!blocker.is_permanent());
        let fully = PodDisruptionBudget { is_fully_blocking: true, ..exhausted.clone() };
        assert!(blocked(&pod(), &[fully]).unwrap().is_permanent());
        assert_eq!(blocked(&pod(), &[PodDisruptionBudget { selector: None, ..exhausted.clone() }]), None);
        assert_eq!(blocked(&pod(), &[PodDisruptionBudget { key: key("other", "web"), ..exhausted.clone() }]), None);
        assert_eq!(blocked(&pod(), &[PodDisruptionBudget { disruptions_allowed: 0, ..budget("db", "db") }]), None);
        for ended in [Pod { deleting_at: Some(at(0)), ..pod() }, Pod { phase: PodPhase::Pending, ..pod() }] {
            assert_eq!(blocked(&ended, std::slice::from_ref(&exhausted)), None, "it may always be deleted");
        }
    }

    #[test]
    fn two_budgets_block_however_much_each_allows() {
        let blocker = EvictionBlocker::of(&pod(), &[budget("a", "web"), budget("b", "web")]).unwrap();
        assert!(blocker.is_permanent());
        assert_eq!(
            blocker.to_string(),
            "PodDisruptionBudgets default/a and default/b both select it, so that it cannot be evicted"
        );
    }

    #[test]
    fn a_pod_that_is_not_ready_may_go_where_the_policy_says_so() {
        let unready = Pod { ready: false, ..pod() };
        for (allows_unready, blocked) in [(true, false), (false, true)] {
            let budget = PodDisruptionBudget { disruptions_allowed: 0, allows_unready, ..budget("a", "web") };
            assert_eq!(EvictionBlocker::of(&unready, [&budget]).is_some(), blocked);
            assert!(EvictionBlocker::of(&pod(), [&budget]).is_some(), "a ready one counts");
        }
    }
}
