//! Runs the decider ahead, on a copy of the cluster in which all that it writes takes effect at once.
//!
//! No VM starts and no node goes: what a move has begun to take away stays, and counts against the budgets.

use super::budgets::BudgetsAhead;
use super::nodes::{is_empty, is_of_fixed_size, unseen_drift};
use super::{NextMoveReason, OutlookInput};
use crate::catalog::live::{InfrastructureFacts, Quota};
use crate::disruption::budget_calendar::REASONS;
use crate::disruption::{DisruptionMemory, counted_nodes, deletions_worth_from, disrupt};
use crate::model::cluster::claim::{Claim, ClaimStatus, DriftedCondition, PlannedOffering};
use crate::model::cluster::node::Node;
use crate::model::cluster::pod::{Pod, Taint};
use crate::model::cluster::pool::{Budget, BudgetNodes, DisruptionReason, NodePool};
use crate::model::names::{ClaimName, NodeName, NodePoolName, Uid};
use crate::model::settings::{MaintenanceWindows, Pause, Settings};
use crate::plan::{ClaimUpdate, Command, NodeUpdate, Plan, PlannedCommand};
use crate::snapshot::Snapshot;
use crate::static_capacity::{SCALED_DOWN, StaticCapacityMemory, nodes_being_replaced, reconcile_static_capacity};
use jiff::{SignedDuration, Timestamp};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What begins so soon after the last change begins now: findings are validated, and single nodes are tried in turn.
const SOON: SignedDuration = SignedDuration::from_mins(2);
/// The shortest time between two passes.
const STEP: SignedDuration = SignedDuration::from_secs(1);
/// Of the passes that are left one run takes this part at most, unless so few are left.
const SHARE: usize = 2;
/// How few.
const FEW_PASSES: usize = 20;

/// A move that has begun in a run.
#[derive(Debug)]
pub(super) struct BegunMove {
    pub(super) sources: Vec<ClaimName>,
    pub(super) reason: NextMoveReason,
    pub(super) replacements: Vec<(NodePoolName, PlannedOffering)>,
    pub(super) why: Arc<str>,
    /// Since when it has been worth what it costs, where it must be.
    pub(super) worth_from: Option<Timestamp>,
}

impl BegunMove {
    /// It consolidates nodes whose pods fit on others.
    pub(super) fn deletes_only(&self) -> bool {
        self.reason == NextMoveReason::Disrupted(DisruptionReason::Underutilized) && self.replacements.is_empty()
    }
}

/// How many nodes of a NodePool of fixed size are being replaced. They carry no mark, but count against its budgets.
pub(super) fn count_being_replaced(input: OutlookInput<'_>, snapshot: &Snapshot, pool: &NodePool) -> u32 {
    let replaced = nodes_being_replaced(snapshot, pool, input.settings, input.now);
    u32::try_from(replaced.len()).unwrap_or(u32::MAX)
}

/// A copy of the cluster on which the decider runs.
#[derive(Clone)]
pub(super) struct Run<'a> {
    input: OutlookInput<'a>,
    settings: Settings,
    pub(super) snapshot: Snapshot,
    /// How many passes are left to all runs.
    passes: &'a Cell<usize>,
    /// Replacements that it has created.
    created: Vec<ClaimName>,
    pub(super) static_capacity: StaticCapacityMemory,
    /// In the first pass nothing was looked for, since pods wait for a node that is not launched yet.
    pub(super) awaits_launch: Option<bool>,
}

impl<'a> Run<'a> {
    pub(super) fn new(input: OutlookInput<'a>, passes: &'a Cell<usize>) -> Self {
        let (settings, mut snapshot) = (input.settings.clone(), input.snapshot.clone());
        // The decider in the cluster sees that these have drifted, and does not consolidate them.
        let is_drifted = |claim: &&Arc<Claim>| {
            unseen_drift(input.snapshot, claim).is_some() && !is_of_fixed_size(input.snapshot, claim)
        };
        for claim in input.snapshot.claims().values().filter(is_drifted) {
            let node = input.snapshot.node_of(claim).filter(|_| !is_empty(input.snapshot, claim));
            node.into_iter().for_each(|node| snapshot.put_node(Node { do_not_disrupt: true, ..Node::clone(node) }));
        }
        let static_capacity = StaticCapacityMemory::default();
        Self { input, settings, snapshot, passes, created: Vec::new(), static_capacity, awaits_launch: None }
    }

    /// What is known of Azure is not older at a later time.
    fn renew_facts(&mut self, at: Timestamp) {
        let later = at.duration_since(self.input.now);
        let quota = self.input.snapshot.quota.as_ref();
        let quota = quota.map(|known| Arc::new(Quota::new(known.as_of + later, known.usages().cloned())));
        self.snapshot.set_quota(quota);
        let mut facts = InfrastructureFacts::clone(&self.input.snapshot.infrastructure);
        facts.subnets.iter_mut().for_each(|fact| fact.as_of += later);
        facts.reservations.iter_mut().for_each(|fact| fact.as_of += later);
        self.snapshot.set_infrastructure(Arc::new(facts));
    }

    /// The moves that begin at this time, in the order of the decider.
    pub(super) fn begin(&mut self, at: Timestamp) -> Vec<BegunMove> {
        let OutlookInput { provision, seed, .. } = self.input;
        self.renew_facts(at);
        // None of them is given up since it does not come up.
        for name in self.created.clone() {
            self.update_claim(&name, |claim| claim.created_at = at);
        }
        let (mut memory, mut begun) = (DisruptionMemory::default(), Vec::new());
        let (mut now, mut last) = (at, at);
        let left = self.passes.get();
        for _ in 0..left.min(FEW_PASSES.max(left / SHARE)) {
            self.passes.set(self.passes.get().saturating_sub(1));
            let memory_of_static = &mut self.static_capacity;
            let mut plan =
                reconcile_static_capacity(&self.snapshot, memory_of_static, provision, &self.settings, now, seed);
            let mut found = Self::begun_by_static(&plan);
            let disruption = disrupt(&self.snapshot, &mut memory, provision, &self.settings, now, seed);
            let awaits_launch = memory.awaits_launch();
            self.awaits_launch.get_or_insert(awaits_launch);
            found.extend(self.begun_by(&disruption, &memory, now));
            plan.extend(disruption);
            if !found.is_empty() {
                last = now;
            }
            begun.extend(found);
            // What is written is seen at once, and decided about then.
            let next = if plan.commands.is_empty() { plan.next } else { now.checked_add(STEP).ok() };
            plan.commands.into_iter().for_each(|planned| self.apply(planned.command, now));
            match next {
                Some(next) if next.duration_since(last) <= SOON => now = next.max(now + STEP),
                _ => break,
            }
        }
        begun
    }

    /// Lifts the pause, maintenance windows and what holds launches.
    pub(super) fn lift_holds(&mut self) {
        self.snapshot.pause = Pause::default();
        self.snapshot.launch_hold = None;
        self.snapshot.pool_holds.clear();
        self.settings.maintenance_windows = MaintenanceWindows::default();
    }

    /// Lets budgets allow as many more nodes as they ever do at once, or one where they never allow any.
    pub(super) fn lift_budgets(&mut self, budgets: &BudgetsAhead<'_>) {
        let pools: Vec<Arc<NodePool>> = self.input.snapshot.pools().values().cloned().collect();
        for pool in pools {
            let replaced = count_being_replaced(self.input, &self.snapshot, &pool);
            let begun = counted_nodes(&self.snapshot, &pool).saturating_add(replaced);
            let budget = |reason| {
                let nodes = BudgetNodes::Count(begun.saturating_add(budgets.most(&pool, reason)?.max(1)));
                Some(Budget { nodes, reasons: Some(vec![reason]), window: None })
            };
            let mut freer = NodePool::clone(&pool);
            freer.disruption.budgets = REASONS.into_iter().filter_map(budget).collect();
            self.snapshot.put_pool(pool.name.clone(), freer);
        }
    }

    /// Lifts `karpenter.sh/do-not-disrupt` and PodDisruptionBudgets.
    pub(super) fn lift_blockers(&mut self) {
        let budgets: Vec<_> = self.snapshot.disruption_budgets().iter().map(|(key, _)| key.clone()).collect();
        budgets.iter().for_each(|key| self.snapshot.remove_disruption_budget(key));
        let refusing = self.snapshot.pods().values().filter(|pod| pod.do_not_disrupt.is_some());
        let pods: Vec<Pod> = refusing.map(|pod| Pod { do_not_disrupt: None, ..Pod::clone(pod) }).collect();
        pods.into_iter().for_each(|pod| self.snapshot.put_pod(pod));
        for refusing in self.input.snapshot.nodes().values().filter(|node| node.do_not_disrupt) {
            let Some(node) = self.snapshot.nodes().get(&refusing.name) else { continue };
            let free = Node { do_not_disrupt: false, ..Node::clone(node) };
            self.snapshot.put_node(free);
        }
    }

    /// The moves that a plan for NodePools of fixed size begins. Nodes that these lack replace none, and the deletion of a node
    /// whose replacement is ready is the end of a move.
    fn begun_by_static(plan: &Plan) -> Vec<BegunMove> {
        let begun = |planned: &PlannedCommand| {
            let (sources, reason, replacements) = match &planned.command {
                Command::CreateClaim(draft) => {
                    let reason = NextMoveReason::Disrupted(draft.reason?);
                    let offering = (draft.spec.pool.clone()?, draft.spec.planned.first()?.clone());
                    (draft.spec.replaces.clone(), reason, vec![offering])
                }
                Command::DeleteClaim { claim, category, .. } if *category == SCALED_DOWN => {
                    (vec![claim.name.clone()], NextMoveReason::ScaledDown, Vec::new())
                }
                _ => return None,
            };
            Some(BegunMove { sources, reason, replacements, why: Arc::clone(&planned.reason), worth_from: None })
        };
        plan.commands.iter().filter_map(begun).collect()
    }

    /// The moves that a plan begins, in its order. What has been begun before goes on, and is none of them.
    fn begun_by(&self, plan: &Plan, memory: &DisruptionMemory, now: Timestamp) -> Vec<BegunMove> {
        let worth_from = self.deletions_worth_from(plan, memory, now);
        let mut begun: Vec<BegunMove> = Vec::new();
        for planned in &plan.commands {
            match &planned.command {
                Command::DeleteClaim { claim, category, .. } if !self.is_marked(&claim.name) => begun.push(BegunMove {
                    sources: vec![claim.name.clone()],
                    reason: NextMoveReason::of_category(category),
                    replacements: Vec::new(),
                    why: Arc::clone(&planned.reason),
                    worth_from: worth_from.get(&claim.name).copied(),
                }),
                Command::UpdateClaim { claim, update: ClaimUpdate::Disrupted(reason) } => {
                    let is_known = begun.iter().any(|one| one.sources.contains(&claim.name));
                    let Some(one) = memory.move_of(&claim.name).filter(|_| !is_known) else { continue };
                    let drafts = one
                        .drafts
                        .iter()
                        .filter_map(|(draft, _)| Some((draft.spec.pool.clone()?, draft.spec.planned.first()?.clone())));
                    let why = one.drafts.first().map(|(_, why)| why.as_str()).unwrap_or_default();
                    begun.push(BegunMove {
                        sources: one.sources.iter().map(|source| source.name.clone()).collect(),
                        reason: NextMoveReason::Disrupted(*reason),
                        replacements: drafts.collect(),
                        why: Arc::from(why),
                        worth_from: one.worth_from,
                    });
                }
                _ => {}
            }
        }
        begun
    }

    /// Since when the deletions of a plan that save money have been worth it.
    fn deletions_worth_from(
        &self,
        plan: &Plan,
        memory: &DisruptionMemory,
        now: Timestamp,
    ) -> BTreeMap<ClaimName, Timestamp> {
        let saves = |command: &Command| match command {
            Command::DeleteClaim { category, .. } => *category == DisruptionReason::Underutilized.category(),
            _ => false,
        };
        if !plan.commands.iter().any(|planned| saves(&planned.command)) {
            return BTreeMap::new();
        }
        deletions_worth_from(&self.snapshot, self.input.provision, memory, now)
    }

    fn is_marked(&self, claim: &ClaimName) -> bool {
        self.snapshot.claims().get(claim).is_some_and(|claim| claim.status.disrupted.is_some())
    }

    fn apply(&mut self, command: Command, now: Timestamp) {
        match command {
            Command::DeleteClaim { claim, .. } => self.update_claim(&claim.name, |claim| claim.deleting_at = Some(now)),
            Command::CreateClaim(draft) => {
                let Ok(uid) = Uid::new(draft.name.as_str()) else { return };
                self.created.push(draft.name.clone());
                let mut spec = draft.spec;
                if draft.reason.is_some() {
                    // Its room is for the pods of the move, which stay where they are in this run: for no others.
                    spec.taints.push(Taint::disrupted());
                }
                self.snapshot.put_claim(Claim {
                    name: draft.name,
                    uid,
                    created_at: now,
                    deleting_at: None,
                    termination_at: None,
                    owned_by_pool: false,
                    has_finalizer: true,
                    spec,
                    intent: None,
                    status: ClaimStatus::default(),
                });
            }
            Command::UpdateClaim { claim, update } => self.update_claim(&claim.name, |claim| match update {
                ClaimUpdate::Disrupted(reason) => claim.status.disrupted = Some(reason),
                ClaimUpdate::NotDisrupted => claim.status.disrupted = None,
                ClaimUpdate::Drifted { reason, message } => {
                    claim.status.drifted = Some(DriftedCondition { since: now, reason, message });
                }
                ClaimUpdate::NotDrifted => claim.status.drifted = None,
                _ => {}
            }),
            Command::UpdateNode { node, update: NodeUpdate::AddTaint(taint), .. } => {
                self.set_taint(&node, &taint, true)
            }
            Command::UpdateNode { node, update: NodeUpdate::RemoveTaint(taint), .. } => {
                self.set_taint(&node, &taint, false);
            }
            _ => {}
        }
    }

    /// Changes a NodeClaim. The node of one that is being deleted takes no pods.
    fn update_claim(&mut self, name: &ClaimName, change: impl FnOnce(&mut Claim)) {
        let Some(claim) = self.snapshot.claims().get(name) else { return };
        let mut changed = Claim::clone(claim);
        change(&mut changed);
        let leaving = changed.deleting_at.and_then(|_| self.snapshot.node_of(claim)).map(|node| node.name.clone());
        self.snapshot.put_claim(changed);
        leaving.into_iter().for_each(|node| self.set_taint(&node, &Taint::disrupted(), true));
    }

    fn set_taint(&mut self, node: &NodeName, taint: &Taint, is_set: bool) {
        let Some(node) = self.snapshot.nodes().get(node) else { return };
        let mut changed = Node::clone(node);
        changed.taints.retain(|other| other.key != taint.key);
        changed.taints.extend(is_set.then(|| taint.clone()));
        self.snapshot.put_node(changed);
    }
}
