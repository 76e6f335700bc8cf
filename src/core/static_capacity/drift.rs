//! Drift of a NodeClaim from its NodePool.
//!
//! A NodeClaim contains what it was created from, so values are compared; no hash has to be kept in sync with
//! Karpenter's. As in Karpenter, requirements count by whether the node still satisfies them, everything else by
//! equality. Changes within an AKSNodeClass of the same name are not on the claim, and are not detected.

use crate::model::cluster::claim::Claim;
use crate::model::cluster::pod::Taint;
use crate::model::cluster::pool::NodePool;
use crate::model::names::NodeClassName;
use crate::scheduling::unmet_requirement;
use crate::snapshot::Snapshot;
use std::fmt;
use std::sync::Arc;

/// How a node differs from its pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriftReason {
    /// It was launched with another AKSNodeClass.
    Class(NodeClassName),
    /// The pool's taints have changed.
    Taints,
    /// The pool's startup taints have changed.
    StartupTaints,
    /// A label of the template has changed, or is new.
    Label(Arc<str>),
    /// `expireAfter` has changed.
    ExpireAfter,
    /// `terminationGracePeriod` has changed.
    TerminationGracePeriod,
    /// It does not satisfy the requirement on this key.
    Requirement(Arc<str>),
}

impl fmt::Display for DriftReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Class(class) => write!(f, "created from AKSNodeClass {class}, no longer used by the NodePool"),
            Self::Taints => f.write_str("the NodePool's taints have changed"),
            Self::StartupTaints => f.write_str("the NodePool's startupTaints have changed"),
            Self::Label(key) => write!(f, "the NodePool's label {key} has changed"),
            Self::ExpireAfter => f.write_str("the NodePool's expireAfter has changed"),
            Self::TerminationGracePeriod => f.write_str("the NodePool's terminationGracePeriod has changed"),
            Self::Requirement(key) => write!(f, "it no longer satisfies the NodePool's requirement on {key}"),
        }
    }
}

/// The first difference between a NodeClaim and its pool; `None` where it matches.
#[must_use]
pub fn find_drift(claim: &Claim, pool: &NodePool, snapshot: &Snapshot) -> Option<DriftReason> {
    let spec = &claim.spec;
    if spec.class != pool.class {
        return Some(DriftReason::Class(spec.class.clone()));
    }
    if !same_taints(&spec.taints, &pool.taints) {
        return Some(DriftReason::Taints);
    }
    if !same_taints(&spec.startup_taints, &pool.startup_taints) {
        return Some(DriftReason::StartupTaints);
    }
    if let Some((key, _)) = pool.labels.iter().find(|(key, value)| spec.labels.get(*key) != Some(value)) {
        return Some(DriftReason::Label(Arc::clone(key)));
    }
    if spec.expire_after != pool.expire_after {
        return Some(DriftReason::ExpireAfter);
    }
    if spec.termination_grace_period != pool.termination_grace_period {
        return Some(DriftReason::TerminationGracePeriod);
    }
    let key = &claim.intent.as_ref()?.offering.key;
    let types = snapshot.instance_types.get(&spec.class)?;
    let instance = types.iter().find(|t| t.facts.name == key.size)?;
    unmet_requirement(pool, instance, key, &spec.labels).map(DriftReason::Requirement)
}

/// The same taints, in any order.
fn same_taints(a: &[Taint], b: &[Taint]) -> bool {
    a.len() == b.len() && a.iter().all(|taint| b.contains(taint))
}
