//! Commands under way: nodes are tainted, replacements are created, and when these are initialized the nodes are
//! deleted. Commands run beside each other.

use super::{BegunCommand, Command};
use crate::karpenter::Karpenter;
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::model::names::{NameError, NodeName};

/// How often a command is looked at.
const TICK: SignedDuration = SignedDuration::from_secs(1);
/// A command fails after 80 ms for each node in the queue, but not before 10 min, and at the latest after 1 h.
const TIME_PER_NODE: SignedDuration = SignedDuration::from_millis(80);
const SHORTEST_TIMEOUT: SignedDuration = SignedDuration::from_mins(10);
const LONGEST_TIMEOUT: SignedDuration = SignedDuration::from_hours(1);

/// A command under way.
#[derive(Debug, Clone)]
pub(super) struct QueuedCommand {
    nodes: Vec<NodeName>,
    replacement: Option<NodeName>,
    began: Timestamp,
    pub(super) next_look: Timestamp,
}

/// What becomes of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Waits,
    Ready,
    Failed,
}

/// When a command fails, with so many nodes in the queue.
pub(super) fn timeout(nodes: usize) -> SignedDuration {
    let nodes = i32::try_from(nodes).unwrap_or(i32::MAX);
    TIME_PER_NODE.saturating_mul(nodes).clamp(SHORTEST_TIMEOUT, LONGEST_TIMEOUT)
}

impl Karpenter {
    /// Begins a command.
    pub(super) fn begin(&mut self, command: Command) -> Result<(), NameError> {
        command.nodes.iter().for_each(|name| self.taint(name, true));
        let mut replacement = None;
        if let Some(planned) = &command.replacement {
            replacement = self.create(planned)?;
            let Some(created) = &replacement else {
                // Nothing is disrupted without it; the next pass takes the taint away again.
                command.nodes.iter().for_each(|name| self.taint(name, false));
                return Ok(());
            };
            self.nominate(created);
        }
        command.destinations.iter().for_each(|name| self.nominate(name));
        self.set_queued(&command.nodes, true);
        self.note(&command.nodes, replacement.as_ref());
        let queued = QueuedCommand { nodes: command.nodes, replacement, began: self.now, next_look: self.now };
        self.disruption.queue.push(queued);
        self.trigger();
        self.advance_commands();
        Ok(())
    }

    fn note(&mut self, nodes: &[NodeName], replacement: Option<&NodeName>) {
        let size = |name: &NodeName| self.claims.get(name).map(|claim| claim.instance.facts.name.text());
        let pods = |name: &NodeName| self.cluster.state().pods_on(name).count();
        let nodes = nodes.iter().filter_map(|name| Some((size(name)?, pods(name))));
        let begun = BegunCommand { at: self.now, nodes: nodes.collect(), replacement: replacement.and_then(size) };
        self.disruption.begun.push(begun);
    }

    fn set_queued(&mut self, nodes: &[NodeName], on: bool) {
        for name in nodes {
            if let Some(claim) = self.claims.get_mut(name) {
                claim.queued = on;
            }
        }
        self.observed.nodes_changed(self.now);
    }

    /// Deletes the nodes of commands whose replacements are initialized, and gives up commands that have failed.
    pub(in crate::karpenter) fn advance_commands(&mut self) {
        let timeout = timeout(self.disruption.queue.iter().map(|queued| queued.nodes.len()).sum());
        for mut queued in std::mem::take(&mut self.disruption.queue) {
            if queued.next_look > self.now {
                self.disruption.queue.push(queued);
                continue;
            }
            match self.progress(&queued, timeout) {
                Progress::Waits => {
                    queued.next_look = self.now + TICK;
                    self.disruption.queue.push(queued);
                }
                Progress::Ready => {
                    queued.nodes.iter().for_each(|name| self.delete(name));
                    self.set_queued(&queued.nodes, false);
                }
                Progress::Failed => {
                    queued.nodes.iter().for_each(|name| self.taint(name, false));
                    self.set_queued(&queued.nodes, false);
                }
            }
        }
    }

    fn progress(&self, queued: &QueuedCommand, timeout: SignedDuration) -> Progress {
        let replacement = queued.replacement.as_ref().map(|name| self.claims.get(name));
        let progress = match replacement {
            None => Progress::Ready,
            Some(Some(claim)) if claim.initialized_at.is_some() => Progress::Ready,
            Some(Some(_)) => Progress::Waits,
            Some(None) => Progress::Failed,
        };
        let is_late = self.now.duration_since(queued.began) > timeout;
        if progress == Progress::Waits && is_late { Progress::Failed } else { progress }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_fails_later_the_more_nodes_are_in_the_queue() {
        let seconds = |nodes| timeout(nodes).as_secs();
        let cases = [(0, 600), (100, 600), (4_000, 600), (7_500, 600), (10_000, 800), (40_000, 3200), (80_000, 3600)];
        assert_eq!(cases.map(|(nodes, _)| (nodes, seconds(nodes))), cases);
    }
}
