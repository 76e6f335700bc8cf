//! Terms of leadership: a term begins with a fresh listing of everything, and ends with the Lease.

use super::{CHANGE_QUEUE, ControlLoop, LoopInputs, Term};
use napkeeper_core::engine::expectations::Expectations;
use napkeeper_core::snapshot::Snapshot;
use napkeeper_kube::WriteHolds;
use std::time::Instant;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

impl ControlLoop {
    /// Begins a term, if we lead and no effect of an earlier term is still running.
    pub(super) fn begin_term(&mut self, inputs: &LoopInputs) {
        let paused = self.paused_until.is_some_and(|until| Instant::now() < until);
        if !self.leads || self.term.is_some() || !self.previous_effects.is_empty() || paused {
            return;
        }
        self.watches.fail("the cluster is not listed yet");
        // The new listing says what holds writes back. No effect is left that could be performed before.
        self.context.holds.send_replace(WriteHolds::default());
        let (sender, changes) = mpsc::channel(CHANGE_QUEUE);
        self.term = Some(Term { watch: (inputs.start_watch)(sender), changes });
    }

    /// Ends the term, and forgets its running commands.
    pub(super) fn end_term(&mut self) {
        self.term = None;
        self.synced = false;
        self.failed_watches.clear();
        self.expectations = Expectations::default();
        self.controller.list_anew(Snapshot::default());
        self.reporter.commands_forgotten();
        self.decisions.abort_all();
        self.decisions = JoinSet::new();
        let mut effects = std::mem::take(&mut self.effects);
        self.previous_effects.spawn(async move { while effects.join_next().await.is_some() {} });
        self.watches.pass();
    }

    /// Leadership was won or lost.
    pub(super) fn set_leading(&mut self, leads: bool) {
        if self.leads == leads {
            return;
        }
        tracing::info!(leads, "leadership changed");
        self.leads = leads;
        self.reporter.leadership_changed();
        self.end_term();
    }
}
