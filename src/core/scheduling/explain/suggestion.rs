//! The smallest change with which a pod would get a new node.
//!
//! Every pool is asked for all that stands in the way, one thing after the other as if those before it were settled. The
//! pool where that is least is the nearest.

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

/// What would let a pool make a node for a pod.
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
    /// The pod no longer asks for this label.
    DropRequirement(Arc<str>),
    /// The pod no longer asks for any of its alternatives of node affinity.
    DropNodeAffinity,
    /// The pod asks for no more than so much of a resource, in the units of [`Resources`].
    LowerRequest(Arc<str>, i64),
    /// The pool's limit of a resource is raised to at least so much; `nodes` is their number.
    RaiseLimit(Arc<str>, i64),
    /// Azure raises a quota.
    RaiseQuota(QuotaShortage),
    /// More is reserved, or the pool may buy on-demand too.
    RaiseReservation(ReservationShortage),
    /// The subnet of the pool's nodes is widened, or addresses of it are freed.
    WidenSubnet(SubnetShortage),
    /// The pool may make nodes with this label, which the pod's volume needs: what is asked of it.
    AllowLabel(Arc<str>, String),
    /// The pod prefers what it requires of its neighbours; which of it leaves no place.
    MakePreferred(UnschedulableReason),
}

impl SuggestedChange {
    /// How much of an imposition it is: a line in the pod is less than doing without something.
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

/// The least change that gives a pod of this shape a new node; `None` when no pool can be helped.
pub(crate) fn suggest(open_nodes: &OpenNodes, shape: &PodShape) -> Option<Suggestion> {
    let remedies = (0..open_nodes.candidate_sets.pool_count()).filter_map(|pool| {
        let pool_offerings = open_nodes.candidate_sets.pool_offerings(pool);
        let changes = changes(pool_offerings, &open_nodes.limits, shape)?;
        let weight: usize = changes.iter().map(SuggestedChange::weight).sum();
        Some((weight, Suggestion { pool: pool_offerings.pool.name.clone(), changes }))
    });
    // The first of equals has the greater weight, and comes first anyway.
    remedies.min_by_key(|(weight, _)| *weight).map(|(_, remedy)| remedy)
}

/// All that stands between a shape and a pool; `None` when that is nothing a pod or its pool could change.
fn changes(pool_offerings: &PoolOfferings, limits: &LaunchLimits, shape: &PodShape) -> Option<Vec<SuggestedChange>> {
    let hard = pool_offerings.pool.taints.iter().filter(|taint| taint.effect != TaintEffect::PreferNoSchedule);
    let mut changes: Vec<SuggestedChange> = hard
        .filter(|taint| shape.untolerated([*taint]).is_some())
        .cloned()
        .map(SuggestedChange::AddToleration)
        .collect();
    let mut relaxed = shape.clone();
    changes.extend(drop_requirements(pool_offerings, &mut relaxed)?);
    let suiting = compatible_candidates(pool_offerings, &relaxed);
    let large: Vec<&&InstanceCandidate> = suiting.iter().filter(|c| shape.requests.fits(&c.pod_capacity)).collect();
    let suiting: Vec<&InstanceCandidate> = if large.is_empty() {
        let nearest = suiting.iter().min_by_key(|c| shortfall(&shape.requests, &c.pod_capacity))?;
        changes.extend(request_reductions(&shape.requests, &nearest.pod_capacity));
        vec![*nearest]
    } else {
        large.into_iter().copied().collect()
    };
    changes.extend(limit_changes(pool_offerings, limits, &suiting));
    (!changes.is_empty()).then_some(changes)
}

/// Candidates that have the labels which a shape asks for.
fn compatible_candidates<'o>(pool_offerings: &'o PoolOfferings, shape: &PodShape) -> Vec<&'o InstanceCandidate> {
    // Taints are a change of their own.
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

/// Takes requirements out of a shape until some candidate suits; says which.
fn drop_requirements(pool_offerings: &PoolOfferings, shape: &mut PodShape) -> Option<Vec<SuggestedChange>> {
    let mut changes = Vec::new();
    if pool_offerings.candidates.is_empty() {
        return None;
    }
    if compatible_candidates(pool_offerings, shape).is_empty() && !shape.alternatives.is_empty() {
        let required_class = PodShape { selector: Requirements::new(), ..shape.clone() };
        if compatible_candidates(pool_offerings, &required_class).is_empty() {
            shape.alternatives.clear();
            changes.push(SuggestedChange::DropNodeAffinity);
        }
    }
    let keys: BTreeSet<Arc<str>> = shape.selector.iter().map(|(key, _)| Arc::clone(key)).collect();
    let selector = shape.selector.clone();
    // First what no candidate has by itself, then one after the other what they do not have together.
    let alone = |key: &Arc<str>| {
        let mut only = Requirements::new();
        selector.get(key).into_iter().for_each(|asked| only.add(key, asked.clone()));
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

/// Names of all that a vector has any of.
fn names(resources: &Resources) -> impl Iterator<Item = Arc<str>> {
    let plain = ["cpu", "memory", "ephemeral-storage", "pods"].into_iter().map(Arc::from);
    let named = resources.extended.iter().map(|(name, _)| Arc::clone(name)).collect::<Vec<_>>();
    plain.chain(named)
}

/// How far off a capacity is: how many resources there is none of, how many there is too little of, and by which share.
fn shortfall(requests: &Resources, room: &Resources) -> (usize, usize, i128) {
    let short: Vec<(i64, i64)> = names(requests)
        .map(|name| (amount(requests, &name), amount(room, &name)))
        .filter(|(need, there)| *need > 0 && need > there)
        .collect();
    let none = short.iter().filter(|(_, there)| *there <= 0).count();
    let share = short.iter().map(|(need, there)| i128::from(*need) * 1_000 / i128::from((*there).max(1))).sum();
    (none, short.len(), share)
}

fn request_reductions(requests: &Resources, room: &Resources) -> Vec<SuggestedChange> {
    let short = names(requests).filter(|name| {
        let need = amount(requests, name);
        need > 0 && need > amount(room, name)
    });
    short
        .map(|name| (amount(room, &name).max(0), name))
        .map(|(most, name)| SuggestedChange::LowerRequest(name, most))
        .collect()
}

/// What limits, quotas, reservations and the subnet would have to allow for the cheapest candidate, where they allow none.
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
    // A size within the limits that a quota forbids is no help, and neither is one within quotas beyond the limits.
    let nodes = pool.limits.nodes.filter(|most| used.nodes >= *most);
    let mut changes: Vec<SuggestedChange> =
        nodes.map(|_| SuggestedChange::RaiseLimit(Arc::from("nodes"), used.nodes + 1)).into_iter().collect();
    for name in pool.limits.resources.keys() {
        let needed = amount(&cheapest.instance.capacity, name);
        if pool.limits.room_for(name, &used.capacity).is_some_and(|room| needed > room) {
            changes.push(SuggestedChange::RaiseLimit(
                Arc::clone(name),
                amount(&used.capacity, name).saturating_add(needed),
            ));
        }
    }
    // What is reserved may be used up as long as something else can be bought.
    let most = if cheapest.reservation.is_some() { candidates.len() } else { 1 };
    changes.extend(limits.exhausted(candidates.iter().copied().take(most)).map(|barred| match barred {
        Exhausted::Quota(short) => SuggestedChange::RaiseQuota(short),
        Exhausted::Reservation(short) => SuggestedChange::RaiseReservation(short),
    }));
    changes.extend(limits.subnets().shortage(&pool.class).map(SuggestedChange::WidenSubnet));
    changes
}
