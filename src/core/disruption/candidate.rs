//! Disruption candidates.

use super::blockers::{node_blocker, pod_blocker};
use super::causes::ReplacementCause;
use super::is_in_progress;
use crate::catalog::CapacityType;
use crate::model::amounts::money::HourlyPrice;
use crate::model::cluster::claim::Claim;
use crate::model::cluster::node::Node;
use crate::model::cluster::pod::{Pod, PodOwner};
use crate::model::cluster::pool::{DisruptionReason, NodePool};
use crate::model::labels::TAINT_UNDERUTILIZED;
use crate::model::names::{ClaimName, NodePoolName};
use crate::plan::Plan;
use crate::provisioning::ProvisionMemory;
use crate::scheduling::OverlaidInstanceTypes;
use crate::snapshot::Snapshot;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A node that may be disrupted.
#[derive(Debug)]
pub(super) struct Candidate<'a> {
    pub(super) claim: &'a Arc<Claim>,
    pub(super) node: &'a Arc<Node>,
    pub(super) pool: &'a Arc<NodePool>,
    /// Pods that would have to move.
    pub(super) pods: Vec<Arc<Pod>>,
    /// What evicting them costs.
    eviction_cost: i64,
    /// Its price, with its OS disk.
    pub(super) price: HourlyPrice,
    /// What each node counts beside its price.
    pub(super) per_node: HourlyPrice,
    /// Its capacity type.
    pub(super) capacity_type: CapacityType,
    /// From when it may be disrupted by `consolidateAfter`.
    pub(super) eligible_at: Timestamp,
    /// It is nominated for pending pods: it is not disrupted, but keeps its soft taint.
    pub(super) is_nominated: bool,
    /// It was launched for pods that still wait for it: while it is empty it is kept.
    pub(super) is_awaited: bool,
    /// For how long its pods have not changed; less where its NodePool has launched a node since.
    pub(super) quiet_for: SignedDuration,
    /// Requested of allocatable, of that resource of which most is, in thousandths.
    used_permille: i64,
}

impl Candidate<'_> {
    /// Evicting its pods costs nothing, mostly because there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.eviction_cost == 0
    }

    /// Its price, in nano-USD per hour, for what its disruption costs.
    pub(super) fn price_per_eviction(&self) -> i128 {
        self.per_eviction(i128::from(self.price.nanos()))
    }

    /// The part of its price, in nano-USD per hour, that is paid for what no pod requests, for what its disruption costs.
    pub(super) fn waste_per_eviction(&self) -> i128 {
        self.per_eviction(self.waste())
    }

    fn per_eviction(&self, nanos: i128) -> i128 {
        nanos * i128::from(Pod::EVICTION_COST) / i128::from(self.disruption_cost())
    }

    /// What its disruption costs, in the unit of [`Pod::eviction_cost`]: as one pod more than it has.
    pub(super) fn disruption_cost(&self) -> i64 {
        Pod::EVICTION_COST + self.eviction_cost
    }

    /// The part of its price, in nano-USD per hour, that is paid for what pods request, those of DaemonSets too.
    pub(super) fn used_price(&self) -> i128 {
        i128::from(self.price.nanos()) - self.waste()
    }

    /// The part of its price, in nano-USD per hour, that is paid for what no pod requests.
    fn waste(&self) -> i128 {
        i128::from(self.price.nanos()) * i128::from(1000 - self.used_permille.clamp(0, 1000)) / 1000
    }
}

/// All nodes that may be disrupted, now or when they have been quiet for `consolidateAfter`: initialized, and without anything
/// that must not be disrupted. Those that are nominated for pending pods are among them only if they have the soft taint.
/// Requests a wake-up when a node becomes quiet for long enough.
pub(super) fn disruption_candidates<'a>(
    snapshot: &'a Snapshot,
    provision: &ProvisionMemory,
    launches: &BTreeMap<NodePoolName, Timestamp>,
    now: Timestamp,
    plan: &mut Plan,
) -> Vec<Candidate<'a>> {
    let filter = CandidateFilter::new(snapshot, provision, launches, now);
    snapshot.claims().values().filter_map(|claim| filter.candidate(claim, plan)).collect()
}

/// Those of these nodes, to be replaced for one reason, that may be disrupted: empty ones first as in Karpenter, then those that
/// drifted, expire, or whose NodePool is deleted first.
pub(super) fn outdated_candidates<'a>(
    snapshot: &'a Snapshot,
    provision: &ProvisionMemory,
    causes: &BTreeMap<ClaimName, ReplacementCause>,
    now: Timestamp,
) -> Vec<Candidate<'a>> {
    if causes.is_empty() {
        return Vec::new();
    }
    let launches = BTreeMap::new();
    let filter = CandidateFilter::new(snapshot, provision, &launches, now);
    let candidate = |(name, cause): (&ClaimName, &ReplacementCause)| {
        filter.outdated_candidate(snapshot.claims().get(name)?, cause.reason())
    };
    let mut candidates: Vec<Candidate<'_>> = causes.iter().filter_map(candidate).collect();
    let time = |claim: &Claim| causes.get(&claim.name).and_then(|cause| cause.time(claim));
    candidates.sort_by_key(|candidate| (!candidate.is_empty(), time(candidate.claim), candidate.claim.name.clone()));
    candidates
}

/// Decides whether a node may be disrupted.
struct CandidateFilter<'a, 'p> {
    snapshot: &'a Snapshot,
    provision: &'p ProvisionMemory,
    /// When each pool has last launched a node for pods that waited.
    launches: &'p BTreeMap<NodePoolName, Timestamp>,
    /// Those that were launched for pods that still wait.
    awaited: BTreeSet<ClaimName>,
    overlaid: OverlaidInstanceTypes,
    /// What each node counts beside its price.
    per_node: HourlyPrice,
    now: Timestamp,
}

/// An initialized node of a NodePool without a fixed number of nodes, or of one that is being deleted.
#[derive(Clone, Copy)]
struct StandingNode<'a> {
    claim: &'a Arc<Claim>,
    node: &'a Arc<Node>,
    pool: &'a Arc<NodePool>,
    /// Since when its pods have not changed.
    quiet_since: Timestamp,
    /// It is nominated for pending pods.
    is_nominated: bool,
}

impl<'a, 'p> CandidateFilter<'a, 'p> {
    fn new(
        snapshot: &'a Snapshot,
        provision: &'p ProvisionMemory,
        launches: &'p BTreeMap<NodePoolName, Timestamp>,
        now: Timestamp,
    ) -> Self {
        // One setting, which all instance types have.
        let mut instances = snapshot.instance_types.values().flat_map(|types| types.iter());
        let per_node = instances.next().map_or(HourlyPrice::ZERO, |instance| instance.costs.per_node);
        let overlaid = OverlaidInstanceTypes::of(snapshot);
        let awaited = provision.awaited_claims(snapshot);
        Self { snapshot, provision, launches, awaited, overlaid, per_node, now }
    }

    fn candidate(&self, claim: &'a Arc<Claim>, plan: &mut Plan) -> Option<Candidate<'a>> {
        let standing = self.standing_node(claim)?;
        let eligible_at = standing.pool.consolidatable_from(standing.quiet_since)?;
        if eligible_at > self.now {
            plan.wake_at(eligible_at);
        }
        // Where pods go is up to kube-scheduler: one with the taint is expected to stay without those it is nominated for,
        // and would get them if it lost the taint meanwhile.
        if standing.is_nominated && !standing.node.is_tainted(TAINT_UNDERUTILIZED) {
            return None;
        }
        self.disruptable(standing, DisruptionReason::Underutilized, eligible_at)
    }

    fn outdated_candidate(&self, claim: &'a Arc<Claim>, reason: DisruptionReason) -> Option<Candidate<'a>> {
        let standing = self.standing_node(claim).filter(|standing| !standing.is_nominated)?;
        self.disruptable(standing, reason, self.now)
    }

    fn standing_node(&self, claim: &'a Arc<Claim>) -> Option<StandingNode<'a>> {
        let Self { snapshot, provision, now, .. } = self;
        if !claim.is_ours() || claim.is_leaving() || is_in_progress(snapshot, &claim.name) {
            return None;
        }
        let node = snapshot.node_of(claim)?;
        let pool = snapshot.pools().get(claim.spec.pool.as_ref()?)?;
        if pool.replicas.is_some() && !pool.deletion.takes_nodes() {
            return None;
        }
        let quiet_since = claim.status.quiet_since()?;
        let is_nominated = provision.is_nominated(&claim.name, Some(&node.name), *now);
        Some(StandingNode { claim, node, pool, quiet_since, is_nominated })
    }

    /// The candidate, if nothing on the node forbids to disrupt it for this reason.
    fn disruptable(
        &self,
        standing: StandingNode<'a>,
        reason: DisruptionReason,
        eligible_at: Timestamp,
    ) -> Option<Candidate<'a>> {
        let StandingNode { claim, node, pool, quiet_since, is_nominated } = standing;
        if node_blocker(node).is_some() {
            return None;
        }
        let pods = pods_to_move(self.snapshot, node, passes_blockers(claim, reason), self.now)?;
        let offering = &claim.intent.as_ref()?.offering;
        Some(Candidate {
            claim,
            node,
            pool,
            eviction_cost: eviction_cost(&pods),
            pods,
            price: current_price(&self.overlaid, claim)?,
            per_node: self.per_node,
            capacity_type: offering.key.capacity_type,
            eligible_at,
            is_nominated,
            is_awaited: self.awaited.contains(&claim.name),
            quiet_for: self.quiet_for(&pool.name, quiet_since),
            used_permille: used_permille(self.snapshot, node),
        })
    }

    /// For how long nothing has changed. A node that its pool has launched meanwhile shows that capacity is needed again soon:
    /// what was before counts for a quarter.
    fn quiet_for(&self, pool: &NodePoolName, quiet_since: Timestamp) -> SignedDuration {
        let quiet_for = self.now.duration_since(quiet_since);
        let launched = self.launches.get(pool).filter(|at| **at > quiet_since);
        match launched {
            Some(at) => {
                let since_launch = self.now.duration_since(*at);
                since_launch + (quiet_for - since_launch) / 4
            }
            None => quiet_for,
        }
    }
}

/// What a node costs with current overlays, as its replacement would: otherwise the same offering may look cheaper than
/// itself.
pub(crate) fn current_price(overlaid: &OverlaidInstanceTypes, claim: &Claim) -> Option<HourlyPrice> {
    let offering = &claim.intent.as_ref()?.offering;
    Some(overlaid.price(claim.spec.pool.as_ref()?, &offering.key).unwrap_or(offering.price))
}

/// What evicting these pods costs, in the unit of [`Pod::eviction_cost`].
pub(crate) fn eviction_cost<'p>(pods: impl IntoIterator<Item = &'p Arc<Pod>>) -> i64 {
    pods.into_iter().map(|pod| pod.eviction_cost().max(0)).sum()
}

/// True where pods that must not be disrupted or evicted do not keep a node: it has drifted, as with Karpenter, or its NodePool
/// is being deleted, and its termination grace period will end its drain.
pub(crate) fn passes_blockers(claim: &Claim, reason: DisruptionReason) -> bool {
    let is_passing = matches!(reason, DisruptionReason::Drifted | DisruptionReason::NodePoolDeleted);
    is_passing && claim.spec.termination_grace_period.is_some()
}

/// True if the node of a NodeClaim is in use and ready, and nothing on it forbids to disrupt it.
pub(super) fn may_be_disrupted(snapshot: &Snapshot, claim: &Claim, passes_blockers: bool, now: Timestamp) -> bool {
    let node = snapshot.node_of(claim).filter(|node| node.ready && claim.status.initialized.is_some());
    node.is_some_and(|node| is_disruptable(snapshot, node, passes_blockers, now))
}

/// True when nothing on a node forbids to disrupt it.
pub(super) fn is_disruptable(snapshot: &Snapshot, node: &Node, passes_blockers: bool, now: Timestamp) -> bool {
    let may_go = !node.do_not_disrupt && node.deleting_at.is_none();
    may_go && pods_to_move(snapshot, node, passes_blockers, now).is_some()
}

fn used_permille(snapshot: &Snapshot, node: &Node) -> i64 {
    let Some(usage) = snapshot.node_usage(&node.name) else { return 0 };
    let (used, has) = (&usage.pod_requests, &node.allocatable);
    let share = |used: i64, has: i64| {
        let permille = i128::from(used) * 1000 / i128::from(has.max(1));
        i64::try_from(permille).unwrap_or(i64::MAX)
    };
    let extended = has.extended.iter().map(|(name, has)| share(used.extended(name), *has));
    let shares = [share(used.cpu_millis, has.cpu_millis), share(used.memory, has.memory)];
    shares.into_iter().chain(extended).max().unwrap_or_default()
}

/// Pods to reschedule; `None` when one of them must not be disrupted or evicted, which may be passed, or has no controller.
fn pods_to_move(snapshot: &Snapshot, node: &Node, passes_blockers: bool, now: Timestamp) -> Option<Vec<Arc<Pod>>> {
    let mut pods = Vec::new();
    for pod in snapshot.pods_on(&node.name) {
        if pod_blocker(snapshot, pod, passes_blockers, now).is_some() {
            return None;
        }
        if pod.owner == PodOwner::Controller {
            pods.push(Arc::clone(pod));
        }
    }
    Some(pods)
}
