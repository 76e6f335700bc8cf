//! Display of suggestions and preferences.

use crate::model::cluster::pod::Taint;
use crate::scheduling::explain::suggestion::{SuggestedChange, Suggestion};
use crate::scheduling::pods::preferences::Preference;
use crate::scheduling::result::UnschedulableReason;
use std::fmt;

impl fmt::Display for Suggestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changes: Vec<String> = self.changes.iter().map(ToString::to_string).collect();
        write!(f, "for a node of NodePool {}: {}", self.pool, changes.join("; and "))
    }
}

impl fmt::Display for SuggestedChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddToleration(Taint { key, value, effect }) => {
                let value = if value.is_empty() { String::new() } else { format!("={value}") };
                write!(f, "tolerate the taint {key}{value}:{effect:?}")
            }
            Self::DropRequirement(key) => write!(f, "do not ask for the label {key}"),
            Self::DropNodeAffinity => f.write_str("do not ask for these node affinity terms"),
            Self::LowerRequest(name, 0) => write!(f, "ask for no {name}"),
            Self::LowerRequest(name, most) => {
                write!(f, "ask for at most {} {name}", amount(name, *most, Rounding::Down))
            }
            Self::RaiseLimit(name, to) => {
                write!(f, "raise the limit of {name} to {} or more", amount(name, *to, Rounding::Up))
            }
            Self::RaiseQuota(short) => write!(f, "have Azure raise the {short}"),
            Self::RaiseReservation(short) => {
                write!(f, "raise the capacity of the {short}; or let the pool buy on-demand too")
            }
            Self::WidenSubnet(short) => write!(f, "widen the {short}; or free addresses of it"),
            Self::AllowLabel(key, asked) => {
                write!(f, "let the pool make nodes with {key} {asked}, where the pod's volume is")
            }
            Self::MakePreferred(UnschedulableReason::TopologySpread) => {
                f.write_str("spread with whenUnsatisfiable: ScheduleAnyway, or with a larger maxSkew")
            }
            Self::MakePreferred(UnschedulableReason::MissingTopologyKey(key)) => {
                write!(f, "give the nodes of the pool the label {key}")
            }
            Self::MakePreferred(UnschedulableReason::PodAffinity) => {
                f.write_str("prefer to be near those pods and do not require it, or run them first")
            }
            Self::MakePreferred(_) => f.write_str("prefer to be apart from those pods and do not require it"),
        }
    }
}

/// Which way an amount may be off: what it says must do.
#[derive(Clone, Copy)]
enum Rounding {
    Down,
    Up,
}

/// An amount as manifests write it: `2500m`, `15000Mi`.
fn amount(name: &str, amount: i64, round: Rounding) -> String {
    const MEBI: i64 = 1 << 20;
    match name {
        "cpu" => format!("{amount}m"),
        "memory" | "ephemeral-storage" => match round {
            Rounding::Down => format!("{}Mi", amount / MEBI),
            Rounding::Up => format!("{}Mi", amount.saturating_add(MEBI - 1) / MEBI),
        },
        _ => amount.to_string(),
    }
}

impl fmt::Display for Preference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PodAffinity(key) => write!(f, "to be near other pods by {key}"),
            Self::PodAntiAffinity(key) => write!(f, "to be apart from other pods by {key}"),
            Self::NodeAffinity(labels) => {
                let asked: Vec<String> = labels.iter().map(|(key, asked)| format!("{key} {asked}")).collect();
                write!(f, "a node with {}", asked.join(", "))
            }
            Self::TopologySpread(key) => write!(f, "to be spread by {key}"),
            Self::PreferNoSchedule => f.write_str("a node without taints of effect PreferNoSchedule"),
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
    fn what_would_have_to_change_is_said_as_manifests_write_it() {
        let taint = Taint { key: Arc::from("sku"), value: Arc::from("gpu"), effect: TaintEffect::NoSchedule };
        let change = |name: &str, most| SuggestedChange::LowerRequest(Arc::from(name), most);
        let remedy = Suggestion {
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
            remedy.to_string(),
            "for a node of NodePool gpu: tolerate the taint sku=gpu:NoSchedule; and do not ask for the label team; and \
             ask for at most 3860m cpu; and ask for at most 12287Mi memory; and ask for no nvidia.com/gpu; and raise the \
             limit of memory to 12289Mi or more"
        );
    }
}
