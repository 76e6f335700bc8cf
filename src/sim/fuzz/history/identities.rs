//! Draws a controller that runs in another cluster than it is configured for, beside another Karpenter, or beside
//! managed NAP that somebody enables.

use super::{FAULTS, HistoryBuilder};
use crate::world::{Action, FinalizerFault, IdentityFault, InjectedFault};
use jiff::SignedDuration;

impl HistoryBuilder {
    pub(super) fn identities(&mut self) {
        self.leaks();
        match self.random.between(0, 2) {
            0 => self.second_cluster(SignedDuration::ZERO),
            1 => {
                let at = self.random_time();
                self.second_cluster(at);
            }
            _ => self.other_karpenter(),
        }
    }

    /// From this time on the cluster is a second one, until somebody corrects the configuration.
    fn second_cluster(&mut self, at: SignedDuration) {
        self.inject(at, InjectedFault::Identity(IdentityFault::SecondCluster { on: true }));
        self.inject(FAULTS, InjectedFault::Identity(IdentityFault::SecondCluster { on: false }));
    }

    /// Another Karpenter is installed for a few hours, and removed with its NodeClaim.
    fn other_karpenter(&mut self) {
        for _ in 0..3 {
            let (at, duration) = (self.random_time(), self.minutes(5, 400));
            self.inject(at, InjectedFault::Identity(IdentityFault::OtherKarpenter { on: true }));
            let removed = (at + duration).min(FAULTS);
            self.inject(removed, InjectedFault::Identity(IdentityFault::OtherKarpenter { on: false }));
        }
    }

    /// Somebody enables managed NAP, which has NodeClaims of its own and collects garbage, until it is disabled hours later.
    /// Meanwhile some of our NodeClaims are deleted, and lose our finalizer.
    pub(super) fn nap_enabled(&mut self) {
        self.many_nodes();
        self.leaks();
        let enabled = self.minutes(60, 600);
        let minutes = self.random.between(120, 600);
        let disabled = enabled + SignedDuration::from_mins(i64::try_from(minutes).unwrap_or(120));
        self.inject(enabled, InjectedFault::Identity(IdentityFault::OtherKarpenter { on: true }));
        for _ in 0..12 {
            let at = enabled + self.minutes(1, minutes);
            self.inject(at, InjectedFault::NapGarbageCollection { every_other: false });
        }
        for _ in 0..4 {
            let (at, nth) = (enabled + self.minutes(1, minutes), self.index(0, 9));
            self.add(at, Action::DeleteClaim { nth });
            let (at, nth) = (enabled + self.minutes(1, minutes), self.index(0, 9));
            self.edit_finalizers(at, FinalizerFault::Strip { nth, from_node: false, then_delete: false });
        }
        self.inject(disabled, InjectedFault::Identity(IdentityFault::OtherKarpenter { on: false }));
        self.settled_by_a_person();
    }
}
