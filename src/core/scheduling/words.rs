//! Words: how is a remedy, and what a pod would like, said in a sentence?

use super::outcome::WhyNot;
use super::relax::Wish;
use super::remedy::{Change, Remedy};
use crate::model::amounts::resources::{cpu, memory};
use crate::model::cluster::pod::Taint;
use std::fmt;

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changes: Vec<String> = self.changes.iter().map(ToString::to_string).collect();
        write!(f, "for NodePool {}: {}", self.pool, changes.join("; and "))
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tolerate(Taint { key, value, effect }) => {
                let value = if value.is_empty() { String::new() } else { format!("={value}") };
                write!(f, "add a toleration for taint {key}{value}:{effect:?}")
            }
            Self::Drop(key) => {
                write!(f, "remove nodeSelector or node affinity `{key}`, or add the label to the NodePool template")
            }
            Self::DropAffinity => f.write_str("remove these node affinity terms"),
            Self::AskAtMost(name, 0) => write!(f, "request no {name}"),
            Self::AskAtMost(name, most) => write!(f, "request at most {} {name}", amount(name, *most, Round::Down)),
            Self::RaiseLimit(name, to) => {
                write!(f, "raise spec.limits of {name} to at least {}", amount(name, *to, Round::Up))
            }
            Self::RaiseQuota(short) => write!(f, "request an increase of the {short}"),
            Self::RaiseReservation(short) => {
                write!(f, "increase the {short}; or allow on-demand in the NodePool")
            }
            Self::WidenSubnet(short) => write!(f, "enlarge {short}; or free addresses in it"),
            Self::Offer(key, asked) => {
                write!(f, "allow {key} {asked} in the NodePool, where the pod's volume is")
            }
            Self::Soften(WhyNot::Spread) => f.write_str("use whenUnsatisfiable: ScheduleAnyway, or a larger maxSkew"),
            Self::Soften(WhyNot::TopologyKey(key)) => write!(f, "add the label {key} to the NodePool template"),
            Self::Soften(WhyNot::Affinity) => {
                f.write_str("make the pod affinity preferred instead of required, or create the matching pods first")
            }
            Self::Soften(_) => f.write_str("make the pod anti-affinity preferred instead of required"),
        }
    }
}

/// Which way an amount may be off: what it says must do.
#[derive(Clone, Copy)]
enum Round {
    Down,
    Up,
}

/// An amount as manifests write it: `2500m`, `15Gi`.
fn amount(name: &str, amount: i64, round: Round) -> String {
    const MEBI: i64 = 1 << 20;
    match name {
        "cpu" => cpu(amount),
        "memory" | "ephemeral-storage" => match round {
            Round::Down => memory(amount),
            Round::Up => memory(amount.saturating_add(MEBI - 1)),
        },
        _ => amount.to_string(),
    }
}

impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Near(key) => write!(f, "pod affinity by {key}"),
            Self::Apart(key) => write!(f, "pod anti-affinity by {key}"),
            Self::Node(labels) => {
                let asked: Vec<String> = labels.iter().map(|(key, asked)| format!("{key} {asked}")).collect();
                write!(f, "node with {}", asked.join(", "))
            }
            Self::Spread(key) => write!(f, "topology spread by {key}"),
            Self::Taints => f.write_str("node without PreferNoSchedule taints"),
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
        let change = |name: &str, most| Change::AskAtMost(Arc::from(name), most);
        let remedy = Remedy {
            pool: NodePoolName::new("gpu").unwrap(),
            changes: vec![
                Change::Tolerate(taint),
                Change::Drop(Arc::from("team")),
                change("cpu", 3_860),
                change("memory", (12 << 30) - 1),
                change("nvidia.com/gpu", 0),
                Change::RaiseLimit(Arc::from("memory"), (12 << 30) + 1),
            ],
        };
        assert_eq!(
            remedy.to_string(),
            "for NodePool gpu: add a toleration for taint sku=gpu:NoSchedule; and remove nodeSelector or node \
             affinity `team`, or add the label to the NodePool template; and request at most 3860m cpu; and request \
             at most 12287Mi memory; and request no nvidia.com/gpu; and raise spec.limits of memory to at least 12289Mi"
        );
    }
}
