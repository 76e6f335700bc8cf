//! Conversion of PodDisruptionBudgets.

use crate::convert::common;
use crate::convert::pods::node_affinity::label_selector;
use crate::convert::violations::Violations;
use crate::field_path::Path;
use k8s_openapi::api::policy::v1::PodDisruptionBudget as WireBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use napkeeper_core::model::names::ObjectKey;
use napkeeper_core::model::requirements::Requirements;

/// A PodDisruptionBudget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodDisruptionBudget {
    /// Namespace and name.
    pub key: ObjectKey,
    /// The pods of the namespace that it protects; `None` for none.
    pub selector: Option<Requirements>,
    /// Its limit.
    pub limit: BudgetLimit,
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

/// Reads a PodDisruptionBudget. One without a limit allows all but one missing pod: `minAvailable: 1`.
///
/// # Errors
/// [`Violations`]: all that is wrong with it.
pub fn disruption_budget(object: &WireBudget) -> Result<PodDisruptionBudget, Violations> {
    let mut found = Violations::default();
    let key = common::key(&object.metadata, &mut found);
    let spec = object.spec.as_ref();
    let at = Path::from_dotted("spec");
    let selector = spec.and_then(|s| s.selector.as_ref());
    let selector = selector.map(|s| label_selector(s, &at.key("selector"), &mut found));
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
    found.finish(key.zip(limit).map(|(key, limit)| PodDisruptionBudget { key, selector, limit }))
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
