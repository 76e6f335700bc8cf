//! Display of suggestions and preferences.

use crate::model::amounts::resources::{cpu, memory};
use crate::model::cluster::pod::Taint;
use crate::model::labels::is_well_known;
use crate::scheduling::explain::suggestion::{SuggestedChange, Suggestion};
use crate::scheduling::pods::preferences::Preference;
use crate::scheduling::result::UnschedulableReason;
use std::fmt;

impl fmt::Display for Suggestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changes: Vec<String> = self.changes.iter().map(ToString::to_string).collect();
        write!(f, "for NodePool {}: {}", self.pool, changes.join("; and "))
    }
}

impl fmt::Display for SuggestedChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddToleration(Taint { key, value, effect }) => {
                let value = if value.is_empty() { String::new() } else { format!("={value}") };
                write!(f, "add a toleration for taint {key}{value}:{effect:?}")
            }
            // Its values are Azure's: no template may have it.
            Self::DropRequirement(key) if is_well_known(key) => {
                write!(
                    f,
                    "remove nodeSelector or node affinity `{key}`, or allow its values in the NodePool's requirements"
                )
            }
            Self::DropRequirement(key) => {
                write!(f, "remove nodeSelector or node affinity `{key}`, or add the label to the NodePool template")
            }
            Self::DropNodeAffinity => f.write_str("remove these node affinity terms"),
            Self::LowerRequest(name, 0) => write!(f, "request no {name}"),
            Self::LowerRequest(name, most) => {
                write!(f, "request at most {} {name}", amount(name, *most, Rounding::Down))
            }
            Self::RaiseLimit(name, to) => {
                write!(f, "raise spec.limits of {name} to at least {}", amount(name, *to, Rounding::Up))
            }
            Self::RaiseQuota(short) => write!(f, "request an increase of the {short}"),
            Self::RaiseReservation(short) => {
                write!(f, "increase the {short}; or allow on-demand in the NodePool")
            }
            Self::WidenSubnet(short) => write!(f, "enlarge {short}; or free addresses in it"),
            Self::AllowLabel(key, requirement) => {
                write!(f, "allow {key} {requirement} in the NodePool, where the pod's volume is")
            }
            Self::MakePreferred(UnschedulableReason::TopologySpread) => {
                f.write_str("use whenUnsatisfiable: ScheduleAnyway, or a larger maxSkew")
            }
            Self::MakePreferred(UnschedulableReason::MissingTopologyKey(key)) => {
                write!(f, "add the label {key} to the NodePool template")
            }
            Self::MakePreferred(UnschedulableReason::PodAffinity) => {
                f.write_str("make the pod affinity preferred instead of required, or create the matching pods first")
            }
            Self::MakePreferred(_) => f.write_str("make the pod anti-affinity preferred instead of required"),
        }
    }
}

/// Which way an amount is rounded, so that the suggested amount is enough.
#[derive(Clone, Copy)]
enum Rounding {
    Down,
    Up,
}

/// An amount as manifests write it: `2500m`, `15Gi`.
fn amount(name: &str, amount: i64, round: Rounding) -> String {
    const MEBI: i64 = 1 << 20;
    match name {
        "cpu" => cpu(amount),
        "memory" | "ephemeral-storage" => match round {
            Rounding::Down => memory(amount),
            Rounding::Up => memory(amount.saturating_add(MEBI - 1)),
        },
        _ => amount.to_string(),
    }
}

impl fmt::Display for Preference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PodAffinity(key) => write!(f, "pod affinity by {key}"),
            Self::PodAntiAffinity(key) => write!(f, "pod anti-affinity by {key}"),
            Self::NodeAffinity(labels) => {
                let labels: Vec<String> =
                    labels.iter().map(|(key, requirement)| format!("{key} {requirement}")).collect();
                write!(f, "node with {}", labels.join(", "))
            }
            Self::TopologySpread(key) => write!(f, "topology spread by {key}"),
            Self::PreferNoSchedule => f.write_str("node without PreferNoSchedule taints"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::cluster::pod::TaintEffect;
    use crate::model::names::NodePoolName;
    use std::sync::Arc;

    #[test]
    fn suggestions_use_the_units_of_manifests() {
        let taint = Taint { key: Arc::from("sku"), value: Arc::from("gpu"), effect: TaintEffect::NoSchedule };
        let change = |name: &str, most| SuggestedChange::LowerRequest(Arc::from(name), most);
        let suggestion = Suggestion {
            pool: NodePoolName::new("gpu").unwrap(),
            changes: vec![
                SuggestedChange::AddToleration(taint),
                SuggestedChange::DropRequirement(Arc::from("team")),
                change("cpu", 3_860),
                change("memory", (12 << 30) - 1),
                change("nvidia.com/gpu", 0),
                SuggestedChange::RaiseLimit(Arc::from("memory"), (12 << 30) + 1),
            ],
        };
        assert_eq!(
            suggestion.to_string(),
            "for NodePool gpu: add a toleration for taint sku=gpu:NoSchedule; and remove nodeSelector or node \
             affinity `team`, or add the label to the NodePool template; and request at most 3860m cpu; and request \
             at most 12287Mi memory; and request no nvidia.com/gpu; and raise spec.limits of memory to at least 12289Mi"
        );
    }
}
