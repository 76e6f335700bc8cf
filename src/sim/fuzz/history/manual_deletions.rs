//! Draws Nodes and NodeClaims that users delete, some after an edit of the launch intent or of finalizers.

use super::{FAULTS, HistoryBuilder, key};
use crate::world::{Action, FinalizerFault, InjectedFault, IntentEdit, NodeFault};
use jiff::SignedDuration;

impl HistoryBuilder {
    pub(super) fn manual_deletions(&mut self) {
        for _ in 0..8 {
            let (at, nth) = (self.random_time(), self.index(0, 9));
            let action = if self.random.one_in(3) { Action::DeleteNode { nth } } else { Action::DeleteClaim { nth } };
            if self.random.one_in(3) {
                let edit = if self.random.one_in(2) { IntentEdit::Remove } else { IntentEdit::NameAnother };
                let before = at - SignedDuration::from_secs(30);
                self.inject(before, InjectedFault::Nodes(NodeFault::EditIntent { nth, edit }));
            }
            self.add(at, action);
            // New pods make new claims, and a claim that is deleted while it is launched is the hardest.
            let replicas = self.count(1, 14);
            let scaled = at.saturating_sub(self.seconds(2, 60));
            self.add(scaled, Action::Scale { workload: key("web"), replicas });
        }
    }

    /// Users strip our finalizers, and other controllers hold NodeClaims and Nodes for a while with theirs.
    pub(super) fn finalizers(&mut self) {
        self.many_nodes();
        self.manual_deletions();
        for _ in 0..8 {
            let (at, nth, to_node) = (self.random_time(), self.index(0, 9), self.random.one_in(2));
            let then_delete = !self.random.one_in(3);
            self.edit_finalizers(at, FinalizerFault::AddOther { nth, to_node, then_delete });
            let removed = at + self.seconds(5, 7_200);
            self.edit_finalizers(removed.min(FAULTS), FinalizerFault::RemoveOthers);
        }
        for _ in 0..4 {
            let (at, nth, from_node) = (self.random_time(), self.index(0, 9), self.random.one_in(2));
            let then_delete = self.random.one_in(2);
            self.edit_finalizers(at, FinalizerFault::Strip { nth, from_node, then_delete });
        }
        for _ in 0..2 {
            let (at, nth) = (self.random_time(), self.index(0, 9));
            self.add(at, Action::DeleteClaim { nth });
            let stripped = at + self.seconds(1, 120);
            self.edit_finalizers(stripped, FinalizerFault::StripDeleting);
        }
        self.edit_finalizers(FAULTS, FinalizerFault::RemoveOthers);
        self.settled_by_a_person();
    }

    pub(super) fn edit_finalizers(&mut self, at: SignedDuration, fault: FinalizerFault) {
        self.inject(at, InjectedFault::Finalizers(fault));
    }
}
