//! Conversion of PodDisruptionBudgets.

use crate::convert::common;
use crate::convert::pods::node_affinity::label_selector;
use crate::convert::violations::Violations;
use crate::field_path::Path;
use k8s_openapi::api::policy::v1::PodDisruptionBudget as WireBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use napkeeper_core::model::cluster::disruption_budget::PodDisruptionBudget as BudgetState;
use napkeeper_core::model::names::ObjectKey;
use napkeeper_core::model::requirements::Requirements;

const ALWAYS_ALLOW: &str = "AlwaysAllow";
const IF_HEALTHY_BUDGET: &str = "IfHealthyBudget";

/// A PodDisruptionBudget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodDisruptionBudget {
    /// Namespace and name.
    pub key: ObjectKey,
    /// The pods of the namespace that it protects; `None` for none.
    pub selector: Option<Requirements>,
    /// Its limit.
    pub limit: BudgetLimit,
    /// Pods that are not ready may always be evicted: `unhealthyPodEvictionPolicy: AlwaysAllow`.
    pub always_allows_unready: bool,
}

/// The limit of a PodDisruptionBudget. Percentages are of the desired pods, rounded up, as in Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetLimit {
    /// `minAvailable`: at least this many pods must be healthy.
    MinAvailable(u32),
    /// At least this part of the wanted pods must be healthy.
    MinAvailablePercent(u32),
    /// `maxUnavailable`: at most this many of the desired pods may be missing.
    MaxUnavailable(u32),
    /// At most this part of the wanted pods may be missing.
    MaxUnavailablePercent(u32),
}

/// A number, or a percentage.
enum Amount {
    Pods(u32),
    Percent(u32),
}

/// Reads a PodDisruptionBudget as someone has written it. One without a limit allows all but one missing pod:
/// `minAvailable: 1`.
///
/// # Errors
/// [`Violations`]: all that is wrong with it.
pub fn disruption_budget(object: &WireBudget) -> Result<PodDisruptionBudget, Violations> {
    let mut found = Violations::default();
    let budget = read(object, &mut found);
    let policy = object.spec.as_ref().and_then(|spec| spec.unhealthy_pod_eviction_policy.as_deref());
    if !matches!(policy, None | Some(IF_HEALTHY_BUDGET | ALWAYS_ALLOW)) {
        let at = Path::from_dotted("spec.unhealthyPodEvictionPolicy");
        found.add(&at, format!("must be {ALWAYS_ALLOW} or {IF_HEALTHY_BUDGET}"));
    }
    found.finish(budget)
}

/// What both a manifest and a served object say.
fn read(object: &WireBudget, found: &mut Violations) -> Option<PodDisruptionBudget> {
    let key = common::key(&object.metadata, found);
    let spec = object.spec.as_ref();
    let at = Path::from_dotted("spec");
    let selector = spec.and_then(|s| s.selector.as_ref());
    let selector = selector.map(|s| label_selector(s, &at.key("selector"), found));
    let least = spec.and_then(|s| s.min_available.as_ref());
    let most = spec.and_then(|s| s.max_unavailable.as_ref());
    let limit = match (least, most) {
        (Some(_), Some(_)) => {
            found.add(&at.key("maxUnavailable"), "maxUnavailable and minAvailable are mutually exclusive");
            None
        }
        (None, Some(most)) => found.take(&at.key("maxUnavailable"), amount(most)).map(|a| match a {
            Amount::Pods(n) => BudgetLimit::MaxUnavailable(n),
            Amount::Percent(n) => BudgetLimit::MaxUnavailablePercent(n),
        }),
        (Some(least), None) => found.take(&at.key("minAvailable"), amount(least)).map(|a| match a {
            Amount::Pods(n) => BudgetLimit::MinAvailable(n),
            Amount::Percent(n) => BudgetLimit::MinAvailablePercent(n),
        }),
        (None, None) => Some(BudgetLimit::MinAvailable(1)),
    };
    let policy = spec.and_then(|s| s.unhealthy_pod_eviction_policy.as_deref());
    let always_allows_unready = policy == Some(ALWAYS_ALLOW);
    key.zip(limit).map(|(key, limit)| PodDisruptionBudget { key, selector, limit, always_allows_unready })
}

/// Reads which pods a served PodDisruptionBudget protects, and what it allows by its status; one without a status allows
/// nothing. A policy for pods that are not ready that is not known here, of a newer API server, counts as
/// `IfHealthyBudget`.
///
/// # Errors
/// [`Violations`]: all that is wrong with it.
pub fn disruption_budget_state(object: &WireBudget) -> Result<BudgetState, Violations> {
    let mut found = Violations::default();
    let budget = read(object, &mut found);
    let PodDisruptionBudget { key, selector, limit, always_allows_unready } = found.finish(budget)?;
    let status = object.status.as_ref();
    let is_current = status.and_then(|status| status.observed_generation) >= object.metadata.generation;
    let count = |n: Option<i32>| u32::try_from(n.unwrap_or_default()).unwrap_or_default();
    let healthy = count(status.map(|status| status.current_healthy));
    let desired_healthy = count(status.map(|status| status.desired_healthy));
    let expected = count(status.map(|status| status.expected_pods));
    Ok(BudgetState {
        key,
        selector,
        disruptions_allowed: if is_current { count(status.map(|status| status.disruptions_allowed)) } else { 0 },
        allows_unready: always_allows_unready || (desired_healthy > 0 && healthy >= desired_healthy),
        is_fully_blocking: match limit {
            BudgetLimit::MaxUnavailable(0)
            | BudgetLimit::MaxUnavailablePercent(0)
            | BudgetLimit::MinAvailablePercent(100) => true,
            _ => expected > 0 && desired_healthy >= expected,
        },
        healthy,
        desired_healthy,
    })
}

fn amount(wire: &IntOrString) -> Result<Amount, &'static str> {
    const WRONG: &str = "must be a number of pods such as 1, or a percentage such as 20%";
    match wire {
        IntOrString::Int(n) => u32::try_from(*n).map(Amount::Pods).map_err(|_| WRONG),
        IntOrString::String(text) => {
            let percent = text.strip_suffix('%').and_then(|n| n.parse().ok());
            percent.filter(|n| *n <= 100).map(Amount::Percent).ok_or(WRONG)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn state(spec: Value, status: Value) -> BudgetState {
        let metadata = json!({ "name": "web", "namespace": "shop", "generation": 2 });
        let object = json!({ "metadata": metadata, "spec": spec, "status": status });
        disruption_budget_state(&serde_json::from_value(object).unwrap()).unwrap()
    }

    fn status(observed: i64, allowed: i32, healthy: i32, expected: i32) -> Value {
        json!({ "observedGeneration": observed, "disruptionsAllowed": allowed, "currentHealthy": healthy,
            "desiredHealthy": 3, "expectedPods": expected })
    }

    #[test]
    fn a_status_of_an_older_spec_allows_nothing() {
        let spec = || json!({ "minAvailable": 3, "selector": {} });
        assert_eq!(state(spec(), status(2, 1, 4, 4)).disruptions_allowed, 1);
        assert_eq!(state(spec(), status(1, 1, 4, 4)).disruptions_allowed, 0);
        assert_eq!(state(spec(), Value::Null).disruptions_allowed, 0);
    }

    #[test]
    fn pods_that_are_not_ready_may_go_by_the_policy_or_while_enough_are_healthy() {
        let spec = |policy: &str| json!({ "minAvailable": 3, "selector": {}, "unhealthyPodEvictionPolicy": policy });
        for (policy, healthy, allowed) in
            [("IfHealthyBudget", 3, true), ("IfHealthyBudget", 2, false), ("AlwaysAllow", 2, true)]
        {
            assert_eq!(state(spec(policy), status(2, 0, healthy, 4)).allows_unready, allowed, "{policy}, {healthy}");
        }
    }

    #[test]
    fn an_unknown_policy_is_refused_in_manifests_only() {
        let spec = json!({ "minAvailable": 3, "selector": {}, "unhealthyPodEvictionPolicy": "Always" });
        let object = json!({ "metadata": { "name": "web", "namespace": "shop", "generation": 2 }, "spec": spec });
        let refused = disruption_budget(&serde_json::from_value(object).unwrap()).unwrap_err();
        assert_eq!(refused.to_string(), "spec.unhealthyPodEvictionPolicy: must be AlwaysAllow or IfHealthyBudget");
        assert!(!state(spec, status(2, 0, 2, 4)).allows_unready);
    }

    #[test]
    fn a_budget_that_needs_all_pods_blocks_for_ever() {
        for (limit, expected, blocks) in [
            (json!({ "maxUnavailable": 0 }), 4, true),
            (json!({ "maxUnavailable": "0%" }), 4, true),
            (json!({ "minAvailable": "100%" }), 4, true),
            (json!({ "minAvailable": 3 }), 3, true),
            (json!({ "minAvailable": 3 }), 4, false),
            (json!({ "maxUnavailable": 1 }), 4, false),
        ] {
            assert_eq!(state(limit.clone(), status(2, 0, 3, expected)).is_fully_blocking, blocks, "{limit}");
        }
    }
}
