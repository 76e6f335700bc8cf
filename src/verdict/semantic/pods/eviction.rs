//! Eviction: do the PodDisruptionBudgets let pods leave a node that is to go?

use super::workload::Workload;
use crate::finding::Issue;
use crate::rules::pods as rules;
use crate::semantic::Render;
use napkeeper_api::convert::{BudgetLimit, PodDisruptionBudget};
use napkeeper_api::manifests::Object;
use napkeeper_api::path::Path;

pub(super) fn check(render: &Render, found: &mut Vec<(usize, Issue)>) {
    let budgets: Vec<(usize, &PodDisruptionBudget)> = (render.digests.iter().enumerate())
        .filter_map(|(i, d)| match &d.object {
            Object::DisruptionBudget(budget) => Some((i, budget)),
            _ => None,
        })
        .collect();
    huddled(render, &budgets, found);
    let workloads = || render.digests.iter().enumerate().filter_map(|(i, d)| Some((i, Workload::of(&d.object)?)));
    for (index, budget) in &budgets {
        let mut guarded = workloads().filter(|(_, w)| guards(budget, w)).map(|(_, w)| w);
        let why = always_blocks(budget).or_else(|| guarded.find_map(|w| blocks(budget, &w)));
        if let Some(why) = why {
            let message = format!("it never lets a pod be evicted: {why}; a node with such a pod is never drained");
            let fix = "allow one pod at a time to go (maxUnavailable: 1), and run at least two".to_owned();
            found.push((*index, Issue::new(&rules::NO_EVICTION, &Path::of("spec"), message).fix(fix)));
        }
    }
    for (index, workload) in workloads() {
        let names: Vec<_> =
            budgets.iter().filter(|(_, b)| guards(b, &workload)).map(|(_, b)| b.key.name.as_str()).collect();
        if names.len() > 1 {
            let message = format!(
                "the PodDisruptionBudgets {} select the same pods: Kubernetes refuses to evict a pod of two budgets",
                names.join(", ")
            );
            let fix = "keep one of them".to_owned();
            found.push((index, Issue::new(&rules::TWO_BUDGETS, &workload.spec(), message).fix(fix)));
        }
    }
}

/// Reports workloads whose pods may all stand on one node, and go with it. Without a NodePool in the input, nodes may be
/// of a kind that stays.
fn huddled(render: &Render, budgets: &[(usize, &PodDisruptionBudget)], found: &mut Vec<(usize, Issue)>) {
    if !render.digests.iter().any(|d| matches!(d.object, Object::NodePool(_))) {
        return;
    }
    for (index, digest) in render.digests.iter().enumerate() {
        let Some(workload) = Workload::of(&digest.object) else { continue };
        let Some(replicas) = workload.replicas.filter(|n| *n > 1) else { continue };
        if digest.spreads || budgets.iter().any(|(_, budget)| guards(budget, &workload)) {
            continue;
        }
        let message = format!(
            "its {replicas} pods have neither a topology spread nor a PodDisruptionBudget: one node may hold them all, and \
             its replacement takes them all away at once"
        );
        let fix = "add a topologySpreadConstraint over kubernetes.io/hostname, and a PodDisruptionBudget with \
                   maxUnavailable: 1";
        found.push((index, Issue::new(&rules::HUDDLED, &workload.spec(), message).fix(fix.to_owned())));
    }
}

fn guards(budget: &PodDisruptionBudget, workload: &Workload<'_>) -> bool {
    let selects = |selector: &napkeeper_core::requirements::Requirements| selector.satisfied_by(&workload.shape.labels);
    budget.key.namespace == workload.key.namespace && budget.selector.as_ref().is_some_and(selects)
}

fn always_blocks(budget: &PodDisruptionBudget) -> Option<String> {
    match budget.limit {
        BudgetLimit::MaxUnavailable(0) | BudgetLimit::MaxUnavailablePercent(0) => {
            Some("maxUnavailable is 0".to_owned())
        }
        BudgetLimit::MinAvailablePercent(100) => Some("minAvailable is 100%".to_owned()),
        _ => None,
    }
}

fn blocks(budget: &PodDisruptionBudget, workload: &Workload<'_>) -> Option<String> {
    let replicas = workload.replicas.filter(|n| *n > 0)?;
    let needed = match budget.limit {
        BudgetLimit::MinAvailable(n) => n,
        // Rounded up, as Kubernetes does.
        BudgetLimit::MinAvailablePercent(p) => (u64::from(replicas) * u64::from(p)).div_ceil(100).try_into().ok()?,
        _ => return None,
    };
    let name = &workload.key.name;
    (needed >= replicas).then(|| format!("it wants {needed} pods, and {name} has {replicas}"))
}
