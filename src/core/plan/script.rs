//! Scripts: state machines that turn a command into effects.
//!
//! A script is a state machine without side effects. The executor performs the effect that it returns and passes the
//! reply to the next step, so the simulation and the real controller run the very same scripts. A script that is lost
//! in a crash is restarted by the decider; its first steps find existing resources.

use super::effect::{Effect, Reply};
use crate::model::azure::cloud::ResourceKind;
use crate::model::azure::inventory::Inventory;
use crate::model::cluster::node_record::NodeRecordShard;
use crate::model::errors::{ClusterError, EffectError, LaunchRefusal};
use crate::model::names::{ArmId, ClaimName, ObjectName, Uid};
use crate::model::orphans::attempt::SweepAttempt;
use crate::model::orphans::finding::DeletionRefusal;
use jiff::{SignedDuration, Timestamp};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// A running command.
pub trait Script: fmt::Debug + Send {
    /// The next step, given the reply to the effect before (`None` at the start and after a wait).
    fn step(&mut self, reply: Option<Result<Reply, EffectError>>, now: Timestamp) -> Step;
}

/// The next step of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Perform this effect.
    Perform(Box<Effect>),
    /// Come back after this time.
    Wait(SignedDuration),
    /// It is over.
    End(CommandReport),
}

/// The result of a command: observations for the deciders.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommandReport {
    /// Offerings that Azure refused on the way.
    pub launch_refusals: Vec<LaunchRefusal>,
    /// The new inventory.
    pub inventory: Option<Arc<Inventory>>,
    /// `managedBy` of the node resource group, where it was read.
    pub group_owner: Option<Option<ArmId>>,
    /// Why a sweep delete was aborted right before the DELETE.
    pub abort_reason: Option<DeletionRefusal>,
    /// How a launch ended.
    pub launch: Option<Box<LaunchReport>>,
    /// How far a termination came.
    pub termination: Option<Box<TerminationReport>>,
    /// The answer to an eviction, or to the deletion of a pod.
    pub eviction: Option<Box<EvictionReport>>,
    /// The attempt of a sweep on a cloud resource.
    pub attempt: Option<Box<SweepAttempt>>,
    /// The NodeRecord that was written.
    pub recorded: Option<NodeRecordShard>,
    /// The sweep whose status could not be written.
    pub unreported_sweep: Option<ObjectName>,
    /// The error; the decider will try again.
    pub error: Option<EffectError>,
}

/// How the launch of a NodeClaim ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchReport {
    /// The NodeClaim.
    pub claim: ClaimName,
    /// Its time was over while Azure was still creating the VM.
    pub is_creating: bool,
}

/// What the API server has answered to an eviction, or to the deletion of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvictionReport {
    /// The pod.
    pub pod: Uid,
    /// Why it was refused; `None` where it was accepted, or the pod has left.
    pub refusal: Option<ClusterError>,
    /// When it was answered.
    pub at: Timestamp,
}

/// How far the termination of a NodeClaim came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminationReport {
    /// The NodeClaim.
    pub claim: ClaimName,
    /// Kinds that Azure has let us delete.
    pub deleted: Vec<ResourceKind>,
    /// The kind that Azure has denied to delete, or that is suspended.
    pub stopped_at: Option<ResourceKind>,
    /// Azure has denied it now.
    pub is_denied: bool,
    /// When it ended.
    pub at: Timestamp,
}

impl TerminationReport {
    /// The report of a termination that has not begun.
    #[must_use]
    pub fn of(claim: ClaimName) -> Self {
        Self { claim, deleted: Vec::new(), stopped_at: None, is_denied: false, at: Timestamp::UNIX_EPOCH }
    }
}

impl Step {
    /// Perform this effect.
    #[must_use]
    pub fn perform(effect: Effect) -> Self {
        Self::Perform(Box::new(effect))
    }

    /// It has ended successfully.
    #[must_use]
    pub fn finished() -> Self {
        Self::End(CommandReport::default())
    }

    /// It is over, and something went wrong.
    #[must_use]
    pub fn failed(error: EffectError) -> Self {
        Self::End(CommandReport { error: Some(error), ..CommandReport::default() })
    }
}

/// A command that is one effect, or several in turn. It ends with the first that fails.
#[derive(Debug)]
pub struct EffectSequence(VecDeque<Effect>);

impl EffectSequence {
    /// The script of these effects.
    #[must_use]
    pub fn new(effects: impl IntoIterator<Item = Effect>) -> Self {
        Self(effects.into_iter().collect())
    }
}

impl Script for EffectSequence {
    fn step(&mut self, reply: Option<Result<Reply, EffectError>>, _now: Timestamp) -> Step {
        if let Some(Err(error)) = reply {
            return Step::failed(error);
        }
        if let Some(effect) = self.0.pop_front() {
            return Step::perform(effect);
        }
        match reply {
            Some(Ok(Reply::Inventory(inventory))) => {
                Step::End(CommandReport { inventory: Some(inventory), ..CommandReport::default() })
            }
            Some(Ok(Reply::GroupOwner(owner))) => {
                Step::End(CommandReport { group_owner: Some(owner), ..CommandReport::default() })
            }
            _ => Step::finished(),
        }
    }
}
