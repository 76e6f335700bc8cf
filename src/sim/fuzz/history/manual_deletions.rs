//! Draws Nodes and NodeClaims that users delete, some after an edit of the launch intent.

use super::{HistoryBuilder, key};
use crate::world::{Action, InjectedFault, IntentEdit, NodeFault};
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
}
