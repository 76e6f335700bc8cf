//! The disruption controller, which counts what PodDisruptionBudgets allow.

use crate::cluster::Cluster;
use crate::workload::PodBudget;
use napkeeper_core::model::cluster::disruption_budget::PodDisruptionBudget;
use napkeeper_core::model::cluster::pod::{Pod, PodShape};
use napkeeper_core::model::names::ObjectKey;
use napkeeper_core::snapshot::delta::Delta;
use std::sync::Arc;

/// The pods of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cluster) struct BudgetCounts {
    healthy: u32,
    desired_healthy: u32,
    expected: u32,
}

impl BudgetCounts {
    /// True when one healthy pod may go.
    pub(in crate::cluster) fn allows_one(self) -> bool {
        self.healthy > self.desired_healthy
    }

    /// True when a pod that is not ready may go, by the `unhealthyPodEvictionPolicy` of the budget.
    pub(in crate::cluster) fn allows_unready(self, budget: &PodBudget) -> bool {
        budget.always_allows_unready || self.desired_healthy > 0 && self.healthy >= self.desired_healthy
    }
}

impl Cluster {
    /// Pods of this shape have changed, or how many of them are desired.
    pub(in crate::cluster) fn budgets_changed(&mut self, shape: &PodShape) {
        let guards = |budget: &PodBudget| budget.guards(&shape.namespace, &shape.labels);
        let changed = self.budgets.iter().filter(|(_, budget)| guards(budget)).map(|(key, _)| key.clone());
        self.dirty.budgets.extend(changed);
    }

    /// Writes the status of the budgets whose pods have changed.
    pub(in crate::cluster) fn run_disruption_budgets(&mut self) {
        for key in std::mem::take(&mut self.dirty.budgets) {
            let Some(budget) = self.budgets.get(&key) else { continue };
            let counts = self.counts_of(budget);
            let BudgetCounts { healthy, desired_healthy, expected } = counts;
            let state = Arc::new(PodDisruptionBudget {
                key: key.clone(),
                selector: Some(budget.selector.clone()),
                disruptions_allowed: healthy.saturating_sub(desired_healthy),
                allows_unready: counts.allows_unready(budget),
                is_fully_blocking: expected > 0 && desired_healthy >= expected,
                healthy,
                desired_healthy,
            });
            if self.store.disruption_budgets().get(&key) != Some(&state) {
                self.store.put_disruption_budget(key, Arc::clone(&state));
                self.deltas.push(Delta::DisruptionBudget(state));
            }
        }
    }

    /// For each PodDisruptionBudget, how many of its pods are healthy, and how many have to be.
    pub(crate) fn budget_health(&self) -> impl Iterator<Item = (&ObjectKey, u32, u32)> {
        self.budgets.iter().map(|(key, budget)| {
            let BudgetCounts { healthy, desired_healthy, .. } = self.counts_of(budget);
            (key, healthy, desired_healthy)
        })
    }

    /// Counts the pods of a budget. Those of DaemonSets are not counted.
    pub(in crate::cluster) fn counts_of(&self, budget: &PodBudget) -> BudgetCounts {
        let healthy = |pods: &mut dyn Iterator<Item = &ObjectKey>| {
            let pods = pods.filter_map(|key| self.store.pods().get(key));
            let is_healthy = |pod: &&Arc<Pod>| budget.guards_pod(pod) && PodBudget::is_healthy(pod);
            u32::try_from(pods.filter(is_healthy).count()).unwrap_or(u32::MAX)
        };
        let bare = healthy(&mut self.workloads.bare.iter());
        let (mut running, mut wanted) = (bare, bare);
        for entry in self.workloads.all.values() {
            let shape = &entry.workload.template.shape;
            if budget.guards(&shape.namespace, &shape.labels) {
                running += healthy(&mut entry.pods.iter());
                wanted += entry.workload.wanted(entry.succeeded);
            }
        }
        BudgetCounts { healthy: running, desired_healthy: budget.desired_healthy(wanted), expected: wanted }
    }
}
