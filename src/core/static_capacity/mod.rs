//! Static capacity: NodePools with `spec.replicas`.
//!
//! A static pool is a NodePool with `spec.replicas`: a fixed number of nodes, whatever pods there are. Missing nodes
//! are launched, by the same offerings, limits and quotas as other nodes; surplus nodes are deleted, those with the
//! least disruption first; and outdated nodes, which have drifted or expire soon, are replaced one for one, the new one
//! first. How this differs from Karpenter's static pools, and why, is in `docs/decisions/0045-static-capacity.md`.

mod replacements;
mod scale_down_order;
mod static_nodes;
#[cfg(test)]
mod tests;

use crate::disruption::{ReplacementLoops, budget_left};
use crate::lifecycle::NodeOutage;
use crate::model::cluster::claim::Claim;
use crate::model::cluster::pool::{DisruptionReason, NodePool};
use crate::model::names::{ClaimName, NodePoolName};
use crate::model::settings::{ControllerMode, DisruptionScope, PauseSwitch, Settings};
use crate::plan::{Command, Plan};
use crate::provisioning::{ProvisionMemory, claim_draft, has_unobserved_claims};
use crate::scheduling::{AvailableOfferings, Input, MAX_NEW_NODES, NewNode};
use crate::snapshot::{CommandKey, Snapshot};
use jiff::{SignedDuration, Timestamp};
pub(crate) use replacements::nodes_being_replaced;
use scale_down_order::{MemberInput, PoolMember, pool_members};
pub use static_nodes::StaticShortfall;
use static_nodes::plan_static_nodes;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// The category of deletions of nodes that are too many.
pub(crate) const SCALED_DOWN: &str = "scaled_down";
/// Retry delay for a pool with missing or outdated nodes.
const RETRY: SignedDuration = SignedDuration::from_secs(10);
/// A deletion that has not been seen by then has failed.
const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_mins(1);

/// Memory of static pools. All of it is disposable: after a crash a deletion is visible, or is requested again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StaticCapacityMemory {
    /// NodeClaims whose deletion was requested, and when.
    deleting: BTreeMap<ClaimName, Timestamp>,
    /// When nodes were last requested, by pool.
    last_requested: BTreeMap<NodePoolName, Timestamp>,
    /// Pools that cannot launch all their nodes, or a replacement, with the reason.
    pub shortages: Vec<PoolShortage>,
}

/// A pool that cannot have the nodes that it should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolShortage {
    /// The pool.
    pub pool: NodePoolName,
    /// How many nodes are missing; 0 where only outdated ones cannot be replaced.
    pub missing: usize,
    /// The reason.
    pub reason: StaticShortfall,
}

impl fmt::Display for PoolShortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.missing {
            0 => write!(f, "its outdated nodes cannot be replaced: {}", self.reason),
            1 => write!(f, "1 node is missing: {}", self.reason),
            n => write!(f, "{n} nodes are missing: {}", self.reason),
        }
    }
}

/// Actual and desired state of a static pool.
struct StaticPool<'a> {
    pool: &'a Arc<NodePool>,
    replicas: usize,
    /// Those that stand: not failed, and not about to go.
    members: Vec<PoolMember<'a>>,
    /// How many more outdated nodes may go now.
    budget: usize,
}

impl<'a> StaticPool<'a> {
    /// The NodeClaims of its members.
    fn standing(&self) -> Vec<&'a Arc<Claim>> {
        self.members.iter().map(|member| member.claim).collect()
    }
}

/// Decides which nodes static pools launch and delete now.
#[expect(clippy::too_many_arguments, reason = "the arguments of every decider, and the memory of provisioning")]
pub fn reconcile_static_capacity(
    snapshot: &Snapshot,
    memory: &mut StaticCapacityMemory,
    provision: &ProvisionMemory,
    settings: &Settings,
    now: Timestamp,
    seed: u64,
) -> Plan {
    let mut plan = Plan::default();
    memory.forget(snapshot, now);
    if settings.mode == ControllerMode::Companion || !snapshot.pools().values().any(|pool| pool.replicas.is_some()) {
        return plan;
    }
    let may_disrupt =
        !snapshot.pause.blocks(PauseSwitch::Disrupt, now) && NodeOutage::of(snapshot, settings, now).is_none();
    let loops = &ReplacementLoops::of(snapshot, now);
    let mut reconciler =
        StaticPoolReconciler { snapshot, memory, provision, settings, loops, may_disrupt, now, plan: &mut plan };
    let mut static_pools: Vec<StaticPool<'_>> =
        snapshot.pools().values().filter_map(|pool| reconciler.static_pool(pool)).collect();
    if may_disrupt {
        let is_paused = |pool: &NodePool| {
            let disrupted = DisruptionScope { pool: Some(pool.name.clone()), reason: None };
            snapshot.pause.blocks_disruption(&disrupted, now)
        };
        for static_pool in static_pools.iter_mut().filter(|static_pool| !is_paused(static_pool.pool)) {
            reconciler.scale_down(static_pool);
            reconciler.delete_replaced(static_pool);
        }
    }
    if snapshot.holds_launches(now) {
        return plan;
    }
    if has_unobserved_claims(snapshot) {
        plan.wake_at(now + settings.batch_idle_duration);
        return plan;
    }
    reconciler.scale_up(&static_pools, seed);
    plan
}

/// Decides for one static pool after another.
struct StaticPoolReconciler<'a, 'p> {
    snapshot: &'a Snapshot,
    memory: &'p mut StaticCapacityMemory,
    provision: &'a ProvisionMemory,
    settings: &'a Settings,
    loops: &'a ReplacementLoops,
    /// Nodes may be deleted: neither the pause switch nor an outage of nodes prevents it.
    may_disrupt: bool,
    now: Timestamp,
    plan: &'p mut Plan,
}

/// A node to be created for a static pool.
struct NodeToCreate {
    node: NewNode,
    /// Its index among those created now.
    number: usize,
    /// The pool lacks it; if not, it replaces an outdated node.
    is_missing: bool,
}

/// How many nodes are to be created for a pool.
#[derive(Debug, Clone, Copy, Default)]
struct NodesToCreate {
    missing: usize,
    replacements: usize,
}

impl<'a> StaticPoolReconciler<'a, '_> {
    fn static_pool(&self, pool: &'a Arc<NodePool>) -> Option<StaticPool<'a>> {
        let replicas = usize::try_from(pool.replicas?).unwrap_or(usize::MAX);
        if pool.deletion.requested_at.is_some() {
            // Its nodes go as those of other deleted NodePools do: within budgets, and their pods move first.
            return None;
        }
        let Self { snapshot, provision, settings, loops, now, .. } = *self;
        let mut members = pool_members(pool, MemberInput { snapshot, provision, settings, loops, now });
        members.retain(|member| !self.memory.deleting.contains_key(&member.claim.name));
        let of_pool = |name: &ClaimName| {
            let claim = self.snapshot.claims().get(name);
            claim.is_some_and(|c| c.spec.pool.as_ref() == Some(&pool.name) && c.deleting_at.is_none())
        };
        let unseen = self.memory.deleting.keys().filter(|name| of_pool(name)).count();
        let left = budget_left(self.snapshot, pool, DisruptionReason::Drifted, self.now);
        let budget = usize::try_from(left).unwrap_or(usize::MAX).saturating_sub(unseen);
        Some(StaticPool { pool, replicas, members, budget })
    }

    /// Deletes surplus nodes.
    fn scale_down(&mut self, static_pool: &mut StaticPool<'a>) {
        let wanted = static_pool.replicas.saturating_add(self.replacements_of(static_pool).len());
        let mut surplus = static_pool.members.len().saturating_sub(wanted);
        let has = static_pool.members.len();
        while surplus > 0 {
            let outdated_may_go = static_pool.budget > 0;
            // A replacement whose cause is gone stays in place of another: else it would be launched again and again, where the
            // version that it shows new nodes to have is the cause.
            let replacements = self.all_replacements(static_pool);
            let is_replacement =
                |member: &PoolMember<'_>| replacements.iter().any(|one| one.new.name == member.claim.name);
            let first =
                static_pool.members.iter().enumerate().min_by_key(|(_, member)| {
                    (is_replacement(member), member.scale_down_order(outdated_may_go, self.now))
                });
            let Some(index) = first.map(|(index, _)| index) else { return };
            let member = static_pool.members.swap_remove(index);
            static_pool.budget =
                static_pool.budget.saturating_sub(usize::from(member.claim.status.initialized.is_some()));
            let reason = format!(
                "the NodePool has {has} nodes and wants {}; {}",
                static_pool.replicas,
                member.scale_down_reason(self.now)
            );
            self.delete_claim(&member, SCALED_DOWN, &reason);
            surplus -= 1;
        }
    }

    fn delete_claim(&mut self, member: &PoolMember<'_>, category: &'static str, reason: &str) {
        let claim = member.claim.reference();
        // Another command on it is running: retry later.
        if self.snapshot.in_progress.contains(&CommandKey::Claim(claim.name.clone())) {
            self.plan.wake_at(self.now + RETRY);
            return;
        }
        self.memory.deleting.insert(claim.name.clone(), self.now);
        self.plan.push(Command::delete_claim(claim, category), reason);
    }

    /// How many nodes a pool lacks, and how many of its outdated ones are to be replaced now.
    fn nodes_to_create(&mut self, static_pool: &StaticPool<'a>) -> NodesToCreate {
        let replacements = self.replacements_of(static_pool).len();
        let wanted = static_pool.replicas.saturating_add(replacements);
        let missing = wanted.saturating_sub(static_pool.members.len());
        if missing > 0 || static_pool.members.len() > wanted || !self.may_disrupt {
            return NodesToCreate { missing, replacements: 0 };
        }
        self.loops.next_at().into_iter().for_each(|at| self.plan.wake_at(at));
        let replaceable = self.replaceable(static_pool).len();
        NodesToCreate { missing: 0, replacements: replaceable.min(static_pool.budget.saturating_sub(replacements)) }
    }

    /// Launches missing nodes, and replacements for outdated ones.
    fn scale_up(&mut self, static_pools: &[StaticPool<'a>], seed: u64) {
        let mut wanted: BTreeMap<NodePoolName, NodesToCreate> = BTreeMap::new();
        for static_pool in static_pools {
            let to_create = self.nodes_to_create(static_pool);
            let due = self
                .memory
                .last_requested
                .get(&static_pool.pool.name)
                .map(|at| *at + RETRY)
                .filter(|due| *due > self.now);
            match due {
                _ if to_create.missing + to_create.replacements == 0 => {}
                Some(due) => self.plan.wake_at(due),
                None => drop(wanted.insert(static_pool.pool.name.clone(), to_create)),
            }
            if to_create.missing + to_create.replacements == 0 {
                self.memory.shortages.retain(|short| short.pool != static_pool.pool.name);
            }
        }
        if wanted.is_empty() {
            return;
        }
        let of_wanted = |pool: &NodePool| wanted.contains_key(&pool.name);
        let available_offerings =
            AvailableOfferings::of_pools(self.snapshot, &self.provision.unavailable, self.now, of_wanted)
                .with_min_values(self.settings.min_values_policy);
        let (excluded_nodes, claim_of_pod) = (BTreeSet::new(), BTreeMap::new());
        let input = Input {
            snapshot: self.snapshot,
            available: &available_offerings,
            excluded_nodes: &excluded_nodes,
            max_new_nodes: MAX_NEW_NODES,
            claim_of_pod: &claim_of_pod,
        };
        let counts =
            wanted.iter().map(|(pool, to_create)| (pool.clone(), to_create.missing + to_create.replacements)).collect();
        for created in plan_static_nodes(input, &counts) {
            let Some((static_pool, to_create)) =
                static_pools.iter().find(|f| f.pool.name == created.pool).zip(wanted.get(&created.pool))
            else {
                continue;
            };
            self.memory.last_requested.insert(created.pool.clone(), self.now);
            self.memory.shortages.retain(|short| short.pool != created.pool);
            if let Some(reason) = created.shortfall {
                let missing = to_create.missing.saturating_sub(created.nodes.len());
                self.memory.shortages.push(PoolShortage { pool: created.pool, missing, reason });
                self.plan.wake_at(self.now + RETRY);
            }
            let most = if self.snapshot.tries_one_node(&static_pool.pool.name) { 1 } else { usize::MAX };
            for (number, node) in created.nodes.into_iter().enumerate().take(most) {
                self.create_claim(
                    static_pool,
                    NodeToCreate { node, number, is_missing: number < to_create.missing },
                    seed,
                );
            }
        }
    }

    fn create_claim(
        &mut self,
        static_pool: &StaticPool<'a>,
        NodeToCreate { node, number, is_missing }: NodeToCreate,
        seed: u64,
    ) {
        let offerings = node.offerings.len();
        let best = node.offerings.first().map(|o| o.key.to_string()).unwrap_or_default();
        let Some(mut draft) = claim_draft(self.snapshot, node, seed, self.now, number) else { return };
        let cause = if is_missing {
            format!("the NodePool wants {} nodes and has {}", static_pool.replicas, static_pool.members.len() + number)
        } else {
            let Some(replaced) = self.assign_replaced(static_pool, &mut draft, number) else { return };
            format!("replaces a node because of {replaced}")
        };
        let reason = format!("{cause}; cheapest of {offerings} offerings: {best}");
        self.plan.push(Command::CreateClaim(Box::new(draft)), reason);
    }
}

impl StaticCapacityMemory {
    /// Forgets deleted claims, and outdated entries. A claim that has just been created may not be visible yet.
    fn forget(&mut self, snapshot: &Snapshot, now: Timestamp) {
        self.deleting
            .retain(|name, at| snapshot.claims().get(name).is_some() && now.duration_since(*at) < DELETION_TIMEOUT);
        let is_static = |pool: &NodePoolName| snapshot.pools().get(pool).is_some_and(|p| p.replicas.is_some());
        self.last_requested.retain(|pool, _| is_static(pool));
        self.shortages.retain(|short| is_static(&short.pool));
    }
}
