//! The smallest change with which a pod would get a new node.
//!
//! For each pool the obstacles are collected one after another, each as if those before it were removed. The suggestion
//! is for the pool whose changes weigh least.

use crate::model::amounts::resources::Resources;
use crate::model::cluster::pod::{PodShape, Taint, TaintEffect, Toleration};
use crate::model::cluster::pool::amount;
use crate::model::names::NodePoolName;
use crate::model::requirements::Requirements;
use crate::scheduling::nodes::new_node::OpenNodes;
use crate::scheduling::offerings::available::{InstanceCandidate, PoolOfferings};
use crate::scheduling::offerings::headroom::{QuotaShortage, ReservationShortage, SubnetShortage};
use crate::scheduling::offerings::limits::{Exhausted, LaunchLimits};
use crate::scheduling::pods::node_filter::NodeFilter;
use crate::scheduling::result::UnschedulableReason;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Changes with which a pool could launch a node for a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suggestion {
    /// The pool.
    pub pool: NodePoolName,
    /// All of these; never empty.
    pub changes: Vec<SuggestedChange>,
}

/// One thing to be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SuggestedChange {
    /// The pod tolerates a taint of the pool.
    AddToleration(Taint),
    /// The pod no longer requires this label.
    DropRequirement(Arc<str>),
    /// The pod no longer has its node affinity terms.
    DropNodeAffinity,
    /// The pod requests at most this amount of a resource, in the units of [`Resources`].
    LowerRequest(Arc<str>, i64),
    /// The pool's limit of a resource is raised to at least this amount; `nodes` is the number of nodes.
    RaiseLimit(Arc<str>, i64),
    /// Azure raises a quota.
    RaiseQuota(QuotaShortage),
    /// More is reserved, or the pool allows on-demand too.
    RaiseReservation(ReservationShortage),
    /// The subnet of the pool's nodes is widened, or addresses of it are freed.
    WidenSubnet(SubnetShortage),
    /// The pool allows this label, which the pod's volume requires, with these values.
    AllowLabel(Arc<str>, String),
    /// The pod prefers this topology constraint instead of requiring it.
    MakePreferred(UnschedulableReason),
}

impl SuggestedChange {
    /// How costly the change is: adding a line to the pod costs less than giving something up.
    fn weight(&self) -> usize {
        match self {
            Self::AddToleration(_) => 1,
            Self::DropRequirement(_) | Self::RaiseLimit(..) | Self::AllowLabel(..) => 2,
            Self::DropNodeAffinity | Self::MakePreferred(_) => 3,
            Self::LowerRequest(_, most) if *most > 0 => 4,
            Self::RaiseQuota(_) | Self::RaiseReservation(_) | Self::WidenSubnet(_) => 8,
            Self::LowerRequest(..) => 16,
        }
    }
}

/// The smallest change that gives a pod of this shape a new node; `None` when there is none for any pool.
pub(crate) fn suggest(open_nodes: &OpenNodes, shape: &PodShape) -> Option<Suggestion> {
    let suggestions = (0..open_nodes.candidate_sets.pool_count()).filter_map(|pool| {
        let pool_offerings = open_nodes.candidate_sets.pool_offerings(pool);
        let changes = changes(pool_offerings, &open_nodes.limits, shape)?;
        let weight: usize = changes.iter().map(SuggestedChange::weight).sum();
        Some((weight, Suggestion { pool: pool_offerings.pool.name.clone(), changes }))
    });
    // Of equals the first is that of the pool with the greatest weight.
    suggestions.min_by_key(|(weight, _)| *weight).map(|(_, suggestion)| suggestion)
}

/// All changes that a shape needs to suit a pool; `None` when changes of pod and pool do not help.
fn changes(pool_offerings: &PoolOfferings, limits: &LaunchLimits, shape: &PodShape) -> Option<Vec<SuggestedChange>> {
    let hard = pool_offerings.pool.taints.iter().filter(|taint| taint.effect != TaintEffect::PreferNoSchedule);
    let mut changes: Vec<SuggestedChange> = hard
        .filter(|taint| shape.untolerated([*taint]).is_some())
        .cloned()
        .map(SuggestedChange::AddToleration)
        .collect();
    let mut relaxed = shape.clone();
    changes.extend(drop_requirements(pool_offerings, &mut relaxed)?);
    let compatible = compatible_candidates(pool_offerings, &relaxed);
    let large: Vec<&&InstanceCandidate> = compatible.iter().filter(|c| shape.requests.fits(&c.pod_capacity)).collect();
    let compatible: Vec<&InstanceCandidate> = if large.is_empty() {
        let nearest = compatible.iter().min_by_key(|c| shortfall(&shape.requests, &c.pod_capacity))?;
        changes.extend(request_reductions(&shape.requests, &nearest.pod_capacity));
        vec![*nearest]
    } else {
        large.into_iter().copied().collect()
    };
    changes.extend(limit_changes(pool_offerings, limits, &compatible));
    (!changes.is_empty()).then_some(changes)
}

/// Candidates with the labels that a shape requires.
fn compatible_candidates<'o>(pool_offerings: &'o PoolOfferings, shape: &PodShape) -> Vec<&'o InstanceCandidate> {
    // Taints are a separate change.
    let mut filter = NodeFilter::of(shape, &[]);
    filter.tolerations.push(Toleration { key: None, value: None, effect: None });
    let accepted = pool_offerings.accepted_zones(&filter);
    pool_offerings
        .candidates
        .iter()
        .zip(accepted)
        .filter(|(_, zones)| *zones != 0)
        .map(|(candidate, _)| candidate)
        .collect()
}

/// Removes requirements from a shape until some candidate is compatible; returns those removed.
fn drop_requirements(pool_offerings: &PoolOfferings, shape: &mut PodShape) -> Option<Vec<SuggestedChange>> {
    let mut changes = Vec::new();
    if pool_offerings.candidates.is_empty() {
        return None;
    }
    if compatible_candidates(pool_offerings, shape).is_empty() && !shape.alternatives.is_empty() {
        let without_selector = PodShape { selector: Requirements::new(), ..shape.clone() };
        if compatible_candidates(pool_offerings, &without_selector).is_empty() {
            shape.alternatives.clear();
            changes.push(SuggestedChange::DropNodeAffinity);
        }
    }
    let keys: BTreeSet<Arc<str>> = shape.selector.iter().map(|(key, _)| Arc::clone(key)).collect();
    let selector = shape.selector.clone();
    // First requirements that no candidate satisfies, then those that no candidate satisfies together.
    let alone = |key: &Arc<str>| {
        let mut only = Requirements::new();
        selector.get(key).into_iter().for_each(|requirement| only.add(key, requirement.clone()));
        PodShape { selector: only, alternatives: Vec::new(), ..shape.clone() }
    };
    let (never, sometimes): (Vec<_>, Vec<_>) =
        keys.into_iter().partition(|key| compatible_candidates(pool_offerings, &alone(key)).is_empty());
    for key in never.into_iter().chain(sometimes) {
        if !compatible_candidates(pool_offerings, shape).is_empty() {
            break;
        }
        shape.selector.remove(&key);
        changes.push(SuggestedChange::DropRequirement(key));
    }
    (!compatible_candidates(pool_offerings, shape).is_empty()).then_some(changes)
}

/// Names of the resources of a vector.
fn names(resources: &Resources) -> impl Iterator<Item = Arc<str>> {
    let plain = ["cpu", "memory", "ephemeral-storage", "pods"].into_iter().map(Arc::from);
    let named = resources.extended.iter().map(|(name, _)| Arc::clone(name)).collect::<Vec<_>>();
    plain.chain(named)
}

/// How far a capacity falls short: the number of missing resources, of scarce resources, and their relative shortage.
fn shortfall(requests: &Resources, capacity: &Resources) -> (usize, usize, i128) {
    let short: Vec<(i64, i64)> = names(requests)
        .map(|name| (amount(requests, &name), amount(capacity, &name)))
        .filter(|(need, available)| *need > 0 && need > available)
        .collect();
    let none = short.iter().filter(|(_, available)| *available <= 0).count();
    let share = short.iter().map(|(need, available)| i128::from(*need) * 1_000 / i128::from((*available).max(1))).sum();
    (none, short.len(), share)
}

fn request_reductions(requests: &Resources, capacity: &Resources) -> Vec<SuggestedChange> {
    let short = names(requests).filter(|name| {
        let need = amount(requests, name);
        need > 0 && need > amount(capacity, name)
    });
    short
        .map(|name| (amount(capacity, &name).max(0), name))
        .map(|(most, name)| SuggestedChange::LowerRequest(name, most))
        .collect()
}

/// Changes of limits, quotas, reservations and the subnet for the cheapest candidate, where they allow none.
fn limit_changes(
    pool_offerings: &PoolOfferings,
    limits: &LaunchLimits,
    candidates: &[&InstanceCandidate],
) -> Vec<SuggestedChange> {
    let pool = &pool_offerings.pool;
    if candidates.iter().any(|candidate| limits.allows(pool, candidate)) {
        return Vec::new();
    }
    let (Some(cheapest), Some(used)) = (candidates.first(), limits.usage(&pool.name)) else { return Vec::new() };
    // A candidate must be within both limits and quotas.
    let nodes = pool.limits.nodes.filter(|most| used.nodes >= *most);
    let mut changes: Vec<SuggestedChange> =
        nodes.map(|_| SuggestedChange::RaiseLimit(Arc::from("nodes"), used.nodes + 1)).into_iter().collect();
    for name in pool.limits.resources.keys() {
        let needed = amount(&cheapest.instance.capacity, name);
        if pool.limits.free(name, &used.capacity).is_some_and(|free| needed > free) {
            changes.push(SuggestedChange::RaiseLimit(
                Arc::clone(name),
                amount(&used.capacity, name).saturating_add(needed),
            ));
        }
    }
    // A used-up reservation does not matter while something else can be launched.
    let most = if cheapest.reservation.is_some() { candidates.len() } else { 1 };
    changes.extend(limits.exhausted(candidates.iter().copied().take(most)).map(|exhausted| match exhausted {
        Exhausted::Quota(short) => SuggestedChange::RaiseQuota(short),
        Exhausted::Reservation(short) => SuggestedChange::RaiseReservation(short),
    }));
    changes.extend(limits.subnets().shortage(&pool.class).map(SuggestedChange::WidenSubnet));
    changes
}
