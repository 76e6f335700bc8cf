//! Disruption: a loop that looks every 10 s for nodes to delete or replace, and carries out what it has found.

mod balanced;
mod budgets;
mod candidates;
mod command;
mod consolidation;
mod methods;
mod queue;
mod validation;

use super::Karpenter;
use super::view::View;
pub(super) use balanced::totals;
#[cfg(test)]
pub(super) use balanced::{PoolTotals, Totals, could_approve, is_approved, score};
pub(super) use budgets::allowed;
pub(super) use candidates::candidates;
#[cfg(test)]
pub(super) use candidates::{Blocked, Candidate};
pub use command::BegunCommand;
pub(super) use command::{Command, Method};
#[cfg(test)]
pub(super) use consolidation::consolidate;
use jiff::{SignedDuration, Timestamp};
#[cfg(test)]
pub(super) use methods::in_turn;
pub(super) use methods::{Found, Scope, emptiness, multi_node, single_node};
use napkeeper_core::model::cluster::pod::DoNotDisrupt;
use napkeeper_core::model::names::{NameError, NodePoolName};
use queue::QueuedCommand;
use std::collections::{BTreeMap, BTreeSet};
pub(super) use validation::validate;

/// How often it looks when it has found nothing.
const POLL: SignedDuration = SignedDuration::from_secs(10);
/// A command is begun this long after it was found, if it is still right.
const VALIDATION: SignedDuration = SignedDuration::from_secs(15);
/// Methods that found nothing look again after this time although nothing has changed.
const REFRESH: SignedDuration = SignedDuration::from_mins(5);

/// The state of the loop.
#[derive(Debug)]
pub(super) struct DisruptionLoop {
    /// When the next pass begins.
    pass_at: Timestamp,
    /// A command that waits to be looked at again.
    found: Option<(Timestamp, Method, Command)>,
    /// The state of the cluster in which a method has found nothing.
    consolidated: BTreeMap<Method, Timestamp>,
    unseen: BTreeSet<NodePoolName>,
    queue: Vec<QueuedCommand>,
    begun: Vec<BegunCommand>,
    /// The generation in which a whole pass has found nothing, and until when time alone changes nothing.
    idle: Option<(u64, Timestamp)>,
}

impl DisruptionLoop {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            pass_at: now,
            found: None,
            consolidated: BTreeMap::new(),
            unseen: BTreeSet::new(),
            queue: Vec::new(),
            begun: Vec::new(),
            idle: None,
        }
    }

    pub(super) fn next_event(&self) -> Timestamp {
        let next = self.found.as_ref().map_or(self.pass_at, |(at, ..)| *at);
        self.queue.iter().map(|queued| queued.next_look).fold(next, Timestamp::min)
    }

    /// Commands that were begun.
    pub(super) fn begun(&self) -> &[BegunCommand] {
        &self.begun
    }
}

/// What a method would do in this picture.
pub(super) fn find(view: &View, rules: super::Rules, method: Method, unseen: &mut BTreeSet<NodePoolName>) -> Found {
    let all = candidates(view);
    let totals = totals(view, &all);
    let scope = Scope { view, rules, totals: &totals };
    let allowed = allowed(view, method.reason());
    match method {
        Method::Emptiness => {
            emptiness(view, all.into_iter().filter(|c| c.may_be_deleted_empty(view)).collect(), allowed)
        }
        Method::MultiNode => {
            multi_node(scope, all.into_iter().filter(|c| c.may_be_consolidated(view)).collect(), allowed)
        }
        Method::SingleNode => {
            single_node(scope, all.into_iter().filter(|c| c.may_be_consolidated(view)).collect(), &allowed, unseen)
        }
    }
}

impl Karpenter {
    /// Continues a pass, or begins one, if that is due.
    pub(super) fn disrupt(&mut self) -> Result<(), NameError> {
        let mut first = 0;
        if let Some((at, method, command)) = self.disruption.found.take() {
            if at > self.now {
                self.disruption.found = Some((at, method, command));
                return Ok(());
            }
            match validate(&self.view(), self.rules, method, command) {
                Ok(command) => self.begin(command)?,
                // The pass goes on with the next method.
                Err(_) => first = method as usize + 1,
            }
        } else if self.disruption.pass_at > self.now {
            return Ok(());
        }
        if first == 0 && self.is_idle() {
            self.disruption.pass_at = self.now + POLL;
            return Ok(());
        }
        let view = self.view();
        for method in &Method::ALL[first..] {
            if let Some(command) = self.look_for(&view, *method) {
                self.disruption.found = Some((self.now + VALIDATION, *method, command));
                return Ok(());
            }
        }
        self.disruption.pass_at = self.now + POLL;
        if first == 0 {
            self.disruption.idle = Some((self.observed.generation(), quiet_until(&view)));
        }
        Ok(())
    }

    /// A whole pass in this very state has found nothing, and no time is up.
    fn is_idle(&self) -> bool {
        let generation = self.observed.generation();
        self.disruption.idle.is_some_and(|(idle, until)| idle == generation && self.now < until)
    }

    fn look_for(&mut self, view: &View, method: Method) -> Option<Command> {
        let state = self.consolidation_state();
        if self.disruption.consolidated.get(&method) == Some(&state) {
            return None;
        }
        let mut unseen = std::mem::take(&mut self.disruption.unseen);
        let found = find(view, self.rules, method, &mut unseen);
        self.disruption.unseen = unseen;
        if found.command.is_none() && !found.constrained && found.had_candidates {
            self.disruption.consolidated.insert(method, state);
        }
        found.command
    }

    /// When something last changed that consolidation depends on; every five minutes it counts as changed.
    fn consolidation_state(&mut self) -> Timestamp {
        if self.now.duration_since(self.observed.unconsolidated_at) >= REFRESH {
            self.observed.unconsolidated_at = self.now;
        }
        self.observed.unconsolidated_at
    }
}

/// Until when a pass in the same state would find nothing again: no nomination, no `consolidateAfter` and no annotation
/// ends before, and no window of a budget is looked at again.
fn quiet_until(view: &View) -> Timestamp {
    let mut until = view.now + REFRESH;
    let mut end = |at: Timestamp| {
        if at > view.now {
            until = until.min(at);
        }
    };
    if view.pools.iter().any(|options| options.pool.disruption.budgets.iter().any(|budget| budget.window.is_some())) {
        end(view.now + POLL);
    }
    for node in &view.nodes {
        let Some(claim) = &node.claim else { continue };
        claim.nominated_until.into_iter().for_each(&mut end);
        let after = view.pool(&claim.pool).and_then(|options| options.pool.disruption.consolidate_after);
        let since = claim.last_pod_event.or(claim.initialized_at);
        if let (Some(after), Some(since)) = (after, since) {
            end(since.saturating_add(after).unwrap_or(Timestamp::MAX));
        }
        for pod in &node.pods {
            if let (Some(DoNotDisrupt::For(time)), Some(start)) = (pod.do_not_disrupt, pod.started_at) {
                end(start.saturating_add(time).unwrap_or(Timestamp::MAX));
            }
        }
    }
    until
}
