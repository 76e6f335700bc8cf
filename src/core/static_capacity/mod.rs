//! Fleets: what is done about NodePools that have too few nodes, too many, or the wrong ones?
//!
//! A fleet is a NodePool with `spec.replicas`: so many nodes, whatever pods there are. What is missing is launched, by the
//! same offerings, limits and quotas as other nodes; what is too much goes, those first whose loss is felt least; and
//! nodes that are no longer what the pool asks for are replaced one for one, the new one first. How this differs from
//! Karpenter's static pools, and why, is in `docs/decisions/0045-fleets.md`.

mod drift;
mod member;
#[cfg(test)]
mod tests;

use crate::disruption::{BUDGET_RETRY, budget_left};
use crate::model::cluster::pool::{DisruptionReason, NodePool};
use crate::model::names::{ClaimName, NodePoolName};
use crate::model::settings::{MinValues, Mode, Settings, Switch};
use crate::plan::{Command, Plan};
use crate::provisioning::{ProvisionMemory, creating, draft};
use crate::scheduling::{Input, Lack, MOST_NEW_NODES, Market, NewNode, stock};
use crate::snapshot::{CommandKey, Snapshot};
pub use drift::{Drift, drift};
use jiff::{SignedDuration, Timestamp};
use member::{Member, members};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// A pool that lacks nodes, or whose drifted nodes wait, is looked at again after this time.
const RETRY: SignedDuration = SignedDuration::from_secs(10);
/// A spare node that is not needed by then is one too many.
const SPARE_TIMEOUT: SignedDuration = SignedDuration::from_mins(20);
/// A deletion that has not been seen by then has failed.
const LEAVING_TIMEOUT: SignedDuration = SignedDuration::from_mins(1);

/// What is remembered of fleets. All of it is disposable: after a crash a spare node counts as one too many, and then the
/// drifted ones go first as well; a deletion is seen by then, or is asked for again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FleetMemory {
    /// NodeClaims that were made to take the place of drifted ones, and when.
    spares: BTreeMap<ClaimName, Timestamp>,
    /// NodeClaims whose deletion was asked for, and when.
    leaving: BTreeMap<ClaimName, Timestamp>,
    /// When nodes were last asked for, by pool.
    asked: BTreeMap<NodePoolName, Timestamp>,
    /// Pools that cannot have all their nodes, or no spare one, with the reason.
    pub short: Vec<Short>,
}

/// A pool that cannot have the nodes that it should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Short {
    /// The pool.
    pub pool: NodePoolName,
    /// How many nodes are missing; 0 where only drifted ones cannot be replaced.
    pub missing: usize,
    /// Why.
    pub why: Lack,
}

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.missing {
            0 => write!(f, "its drifted nodes cannot be replaced: {}", self.why),
            1 => write!(f, "1 node is missing: {}", self.why),
            n => write!(f, "{n} nodes are missing: {}", self.why),
        }
    }
}

/// What a pool of fixed size has, and should have.
struct Fleet<'a> {
    pool: &'a Arc<NodePool>,
    replicas: usize,
    /// Those that stand: not failed, and not about to go.
    members: Vec<Member<'a>>,
    /// How many more nodes may go for drift now.
    budget: usize,
}

/// Decides which nodes pools of fixed size get and lose now.
#[expect(clippy::too_many_arguments, reason = "the arguments of every decider, and what provisioning remembers")]
pub fn keep(
    snapshot: &Snapshot,
    memory: &mut FleetMemory,
    provision: &ProvisionMemory,
    settings: &Settings,
    now: Timestamp,
    seed: u64,
) -> Plan {
    let mut plan = Plan::default();
    memory.forget(snapshot, now);
    if settings.mode == Mode::Companion || !snapshot.pools().values().any(|pool| pool.replicas.is_some()) {
        return plan;
    }
    let min_values = settings.min_values;
    let mut keeper = Keeper { snapshot, memory, provision, min_values, now, plan: &mut plan };
    let mut fleets: Vec<Fleet<'_>> = snapshot.pools().values().filter_map(|pool| keeper.fleet(pool)).collect();
    if !snapshot.pause.holds(Switch::Disrupt) {
        for fleet in &mut fleets {
            keeper.shrink(fleet);
            keeper.hand_over(fleet);
        }
    }
    if snapshot.pause.holds(Switch::Launch) {
        return plan;
    }
    if creating(snapshot) {
        plan.wake_at(now + settings.batch_idle);
        return plan;
    }
    keeper.grow(&fleets, seed);
    plan
}

/// Decides for one fleet after another.
struct Keeper<'a, 'p> {
    snapshot: &'a Snapshot,
    memory: &'p mut FleetMemory,
    provision: &'a ProvisionMemory,
    /// What becomes of pools for which there is less variety than they ask for.
    min_values: MinValues,
    now: Timestamp,
    plan: &'p mut Plan,
}

/// How many nodes are to be made for a pool.
#[derive(Debug, Clone, Copy, Default)]
struct Wanted {
    missing: usize,
    spares: usize,
}

impl<'a> Keeper<'a, '_> {
    fn fleet(&self, pool: &'a Arc<NodePool>) -> Option<Fleet<'a>> {
        let replicas = usize::try_from(pool.replicas?).unwrap_or(usize::MAX);
        let members = members(self.snapshot, pool, (self.provision, &self.memory.leaving), self.now);
        let of_pool = |name: &ClaimName| {
            let claim = self.snapshot.claims().get(name);
            claim.is_some_and(|c| c.spec.pool.as_ref() == Some(&pool.name) && c.deleting_at.is_none())
        };
        let unseen = self.memory.leaving.keys().filter(|name| of_pool(name)).count();
        let left = budget_left(self.snapshot, pool, DisruptionReason::Drifted, self.now);
        let budget = usize::try_from(left).unwrap_or(usize::MAX).saturating_sub(unseen);
        Some(Fleet { pool, replicas, members, budget })
    }

    /// Lets go what is too much.
    fn shrink(&mut self, fleet: &mut Fleet<'_>) {
        let wanted = fleet.replicas.saturating_add(self.spares_of(fleet).len());
        let mut surplus = fleet.members.len().saturating_sub(wanted);
        let has = fleet.members.len();
        while surplus > 0 {
            let drifted_may_go = fleet.budget > 0;
            let first =
                fleet.members.iter().enumerate().min_by_key(|(_, member)| member.turn(drifted_may_go, self.now));
            let Some(place) = first.map(|(place, _)| place) else { return };
            let member = fleet.members.swap_remove(place);
            fleet.budget = fleet.budget.saturating_sub(usize::from(member.claim.status.initialized.is_some()));
            let why = format!("the pool has {has} nodes and asks for {}; {}", fleet.replicas, member.why_it(self.now));
            self.let_go(&member, "scaled_down", &why);
            surplus -= 1;
        }
    }

    /// Lets drifted nodes go whose spare is ready.
    fn hand_over(&mut self, fleet: &mut Fleet<'_>) {
        let spares = self.spares_of(fleet);
        for spare in spares {
            let ready = fleet.members.iter().any(|m| m.claim.name == spare && m.claim.status.initialized.is_some());
            if !ready {
                continue;
            }
            let first = fleet.members.iter().enumerate().filter(|(_, m)| m.may_be_replaced());
            let Some((place, _)) = first.min_by_key(|(_, m)| m.drift_turn()) else { return };
            if fleet.budget == 0 {
                self.plan.wake_at(self.now + BUDGET_RETRY);
                return;
            }
            fleet.budget -= 1;
            let member = fleet.members.swap_remove(place);
            let drift = member.drift.as_ref().map(ToString::to_string).unwrap_or_default();
            self.let_go(&member, "drifted", &format!("{drift}; its replacement {spare} is ready"));
            self.memory.spares.remove(&spare);
        }
    }

    fn let_go(&mut self, member: &Member<'_>, category: &'static str, why: &str) {
        let claim = member.claim.reference();
        // Something is being done about it just now: it has its turn afterwards.
        if self.snapshot.in_progress.contains(&CommandKey::Claim(claim.name.clone())) {
            self.plan.wake_at(self.now + RETRY);
            return;
        }
        self.memory.leaving.insert(claim.name.clone(), self.now);
        self.plan.push(Command::DeleteClaim { claim, category }, why);
    }

    /// Spare nodes of a pool that drifted ones still wait for.
    fn spares_of(&self, fleet: &Fleet<'_>) -> Vec<ClaimName> {
        let drifted = fleet.members.iter().filter(|m| m.drift.is_some()).count();
        let names = fleet.members.iter().map(|m| &m.claim.name);
        names.filter(|name| self.memory.spares.contains_key(*name)).take(drifted).cloned().collect()
    }

    /// How many nodes a pool lacks, and how many of its drifted ones are to be replaced now.
    fn wanted(&self, fleet: &Fleet<'_>) -> Wanted {
        let spares = self.spares_of(fleet).len();
        let wanted = fleet.replicas.saturating_add(spares);
        let missing = wanted.saturating_sub(fleet.members.len());
        if missing > 0 || fleet.members.len() > wanted || self.snapshot.pause.holds(Switch::Disrupt) {
            return Wanted { missing, spares: 0 };
        }
        let replaceable = fleet.members.iter().filter(|m| m.may_be_replaced()).count();
        Wanted { missing: 0, spares: replaceable.min(fleet.budget).saturating_sub(spares) }
    }

    /// Makes what is missing, and spare nodes for drifted ones.
    fn grow(&mut self, fleets: &[Fleet<'_>], seed: u64) {
        let mut wanted: BTreeMap<NodePoolName, Wanted> = BTreeMap::new();
        for fleet in fleets {
            let asked = self.wanted(fleet);
            let due = self.memory.asked.get(&fleet.pool.name).map(|at| *at + RETRY).filter(|due| *due > self.now);
            match due {
                _ if asked.missing + asked.spares == 0 => {}
                Some(due) => self.plan.wake_at(due),
                None => drop(wanted.insert(fleet.pool.name.clone(), asked)),
            }
            if asked.missing + asked.spares == 0 {
                self.memory.short.retain(|short| short.pool != fleet.pool.name);
            }
        }
        if wanted.is_empty() {
            return;
        }
        let of_wanted = |pool: &NodePool| wanted.contains_key(&pool.name);
        let market = Market::of_pools(self.snapshot, &self.provision.unavailable, self.now, of_wanted)
            .with_min_values(self.min_values);
        let (without, promised) = (BTreeSet::new(), BTreeMap::new());
        let (snapshot, new_nodes) = (self.snapshot, MOST_NEW_NODES);
        let input = Input { snapshot, market: &market, without: &without, new_nodes, promised: &promised };
        let counts = wanted.iter().map(|(pool, asked)| (pool.clone(), asked.missing + asked.spares)).collect();
        for stocked in stock(input, &counts) {
            let Some((fleet, asked)) =
                fleets.iter().find(|f| f.pool.name == stocked.pool).zip(wanted.get(&stocked.pool))
            else {
                continue;
            };
            self.memory.asked.insert(stocked.pool.clone(), self.now);
            self.memory.short.retain(|short| short.pool != stocked.pool);
            if let Some(why) = stocked.why {
                let missing = asked.missing.saturating_sub(stocked.nodes.len());
                self.memory.short.push(Short { pool: stocked.pool, missing, why });
                self.plan.wake_at(self.now + RETRY);
            }
            for (number, node) in stocked.nodes.into_iter().enumerate() {
                self.make(fleet, node, (*asked, number), seed);
            }
        }
    }

    fn make(&mut self, fleet: &Fleet<'_>, node: NewNode, (asked, number): (Wanted, usize), seed: u64) {
        let offerings = node.offerings.len();
        let best = node.offerings.first().map(|o| o.key.to_string()).unwrap_or_default();
        let Some(draft) = draft(self.snapshot, node, seed, self.now, number) else { return };
        let why = if number < asked.missing {
            format!("the pool asks for {} nodes and has {}", fleet.replicas, fleet.members.len() + number)
        } else {
            self.memory.spares.insert(draft.name.clone(), self.now);
            let first = fleet.members.iter().filter(|m| m.may_be_replaced()).min_by_key(|m| m.drift_turn());
            let drift = first.and_then(|m| m.drift.as_ref()).map(ToString::to_string).unwrap_or_default();
            format!("takes the place of a drifted node: {drift}")
        };
        let reason = format!("{why}; cheapest of {offerings} offerings is {best}");
        self.plan.push(Command::CreateClaim(Box::new(draft)), reason);
    }
}

impl FleetMemory {
    /// Drops what is remembered of claims that are gone, and what has lasted too long. A claim that has just been asked
    /// for may not be seen yet.
    fn forget(&mut self, snapshot: &Snapshot, now: Timestamp) {
        let known = |name: &ClaimName, at: &Timestamp| {
            snapshot.claims().get(name).is_some() || now.duration_since(*at) < LEAVING_TIMEOUT
        };
        self.spares.retain(|name, at| known(name, at) && now.duration_since(*at) < SPARE_TIMEOUT);
        self.leaving
            .retain(|name, at| snapshot.claims().get(name).is_some() && now.duration_since(*at) < LEAVING_TIMEOUT);
        let is_fleet = |pool: &NodePoolName| snapshot.pools().get(pool).is_some_and(|p| p.replicas.is_some());
        self.asked.retain(|pool, _| is_fleet(pool));
        self.short.retain(|short| is_fleet(&short.pool));
    }
}
