//! Deletes a NodeClaim because of a sign of its Node, if a read past the cache still shows it.

use super::TaintedSince;
use super::signs;
use crate::model::cluster::claim::ClaimRef;
use crate::model::cluster::node::Node;
use crate::model::errors::{ClusterError, EffectError};
use crate::model::settings::NodeSign;
use crate::plan::{ClusterRead, ClusterWrite, Effect, Reply, Script, SignOnNode, Step};
use jiff::Timestamp;

/// Reads the Node, and deletes its NodeClaim only if the sign is there: a late watch may show what has passed.
#[derive(Debug)]
pub struct DeleteIfUnhealthyScript {
    claim: ClaimRef,
    sign: SignOnNode,
    state: State,
}

/// The last step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Begin,
    NodeRead,
    Deleted,
}

impl DeleteIfUnhealthyScript {
    /// The script of a deletion.
    #[must_use]
    pub fn new(claim: ClaimRef, sign: SignOnNode) -> Self {
        Self { claim, sign, state: State::Begin }
    }

    /// The sign is there, and has been for as long as it is tolerated. Since when a taint is there the Node does not say.
    fn is_shown_by(&self, node: &Node, now: Timestamp) -> bool {
        let SignOnNode { uid, rule, .. } = &self.sign;
        let shown = signs::seen(rule, node, &TaintedSince::new(), now);
        let is_taint = matches!(rule.sign, NodeSign::Taint(_));
        node.uid == *uid && shown.is_some_and(|sign| is_taint || sign.due <= now)
    }
}

impl Script for DeleteIfUnhealthyScript {
    fn step(&mut self, reply: Option<Result<Reply, EffectError>>, now: Timestamp) -> Step {
        match (self.state, reply) {
            (_, Some(Err(error))) => Step::failed(error),
            (State::Begin, _) => {
                self.state = State::NodeRead;
                Step::perform(Effect::Read(ClusterRead::Node(self.sign.vm.clone())))
            }
            (State::NodeRead, Some(Ok(Reply::Node(Some(node))))) if self.is_shown_by(&node, now) => {
                self.state = State::Deleted;
                Step::perform(Effect::Cluster(ClusterWrite::DeleteClaim(self.claim.clone())))
            }
            // It has changed: the watch is about to tell, and what follows is decided anew.
            (State::NodeRead, _) => Step::failed(EffectError::Cluster(ClusterError::Conflict)),
            (State::Deleted, _) => Step::finished(),
        }
    }
}
