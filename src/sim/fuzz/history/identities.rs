//! Draws a controller that runs in another cluster than it is configured for, or beside another Karpenter.

use super::{FAULTS, HistoryBuilder};
use crate::world::{IdentityFault, InjectedFault};
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
}
