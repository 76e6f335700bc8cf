//! By which conditions and taints a node counts as unhealthy, or as about to be lost.

use crate::model::cluster::node::{ConditionStatus, NodeCondition};
use jiff::SignedDuration;
use std::sync::Arc;

/// The condition by which a kubelet says that its node can run pods.
pub const NODE_READY: &str = "Ready";
/// AKS's own verdict on a node.
const NODE_HEALTHY: &str = "kubernetes.azure.com/NodeHealthy";
/// Azure is going to evict a spot VM.
pub const PREEMPTION_SCHEDULED: &str = "PreemptionScheduled";
/// Azure has scheduled an event for a VM.
pub const VM_EVENT_SCHEDULED: &str = "VMEventScheduled";
/// By this taint AKS's remediator keeps pods off a node.
const REMEDIATOR_TAINT: &str = "remediator.kubernetes.azure.com/unschedulable";
/// Events after which a VM or its disks are lost. `Freeze` pauses a VM for seconds and `Reboot` restarts it: to move all
/// pods costs more.
const LOSING_EVENTS: [&str; 3] = ["Preempt", "Redeploy", "Terminate"];
/// How long Karpenter's Azure provider tolerates a node that is not ready.
const TOLERATED: SignedDuration = SignedDuration::from_mins(10);

/// A sign of a node, and what it means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeHealthRule {
    /// What is seen on the Node.
    pub sign: NodeSign,
    /// For how long it may be seen before anything follows.
    pub tolerated: SignedDuration,
    /// What follows.
    pub action: NodeHealthAction,
}

/// What is seen on a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeSign {
    /// A condition.
    Condition {
        /// Its type.
        kind: Arc<str>,
        /// Its status.
        status: ConditionStatus,
        /// Its reason or its message must begin with one of these, in any case; none is no restriction.
        words: Vec<Arc<str>>,
    },
    /// A taint with this key, whatever its value and effect.
    Taint(Arc<str>),
}

/// What follows from a sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeHealthAction {
    /// The node is unhealthy: it is replaced, unless too many are.
    Repair,
    /// The VM is about to be lost: its pods are moved at once.
    Interruption,
}

/// The rules by which nodes are unhealthy or about to be lost. By default those of Karpenter's Azure provider, and the
/// events of Azure that AKS drains nodes for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeHealthRules(Vec<NodeHealthRule>);

impl NodeHealthRules {
    /// These rules and no others; without rules neither repair nor interruption takes place.
    #[must_use]
    pub fn new(rules: Vec<NodeHealthRule>) -> Self {
        Self(rules)
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[NodeHealthRule] {
        &self.0
    }

    /// Those of this action.
    pub fn of(&self, action: NodeHealthAction) -> impl Iterator<Item = &NodeHealthRule> {
        self.0.iter().filter(move |rule| rule.action == action)
    }

    /// True when a condition may be a sign by one of the rules. All others need not be kept; but why a node is not ready
    /// tells False from Unknown.
    #[must_use]
    pub fn concern(&self, condition: &NodeCondition) -> bool {
        if *condition.kind == *NODE_READY {
            return condition.status != ConditionStatus::True;
        }
        let concerns = |rule: &NodeHealthRule| match &rule.sign {
            NodeSign::Condition { kind, status, .. } => *kind == condition.kind && *status == condition.status,
            NodeSign::Taint(_) => false,
        };
        self.0.iter().any(concerns)
    }
}

impl Default for NodeHealthRules {
    fn default() -> Self {
        use ConditionStatus::{False, True, Unknown};
        use NodeHealthAction::{Interruption, Repair};
        let rule = |kind: &str, status, words: &[&str], tolerated, action| {
            let words = words.iter().map(|word| Arc::from(*word)).collect();
            NodeHealthRule { sign: NodeSign::Condition { kind: Arc::from(kind), status, words }, tolerated, action }
        };
        let at_once = SignedDuration::ZERO;
        Self(vec![
            rule(PREEMPTION_SCHEDULED, True, &[], at_once, Interruption),
            rule(VM_EVENT_SCHEDULED, True, &LOSING_EVENTS, at_once, Interruption),
            rule(NODE_READY, False, &[], TOLERATED, Repair),
            rule(NODE_READY, Unknown, &[], TOLERATED, Repair),
            rule(NODE_HEALTHY, False, &[], at_once, Repair),
            NodeHealthRule { sign: NodeSign::Taint(Arc::from(REMEDIATOR_TAINT)), tolerated: TOLERATED, action: Repair },
        ])
    }
}
