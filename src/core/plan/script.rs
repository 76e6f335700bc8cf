//! Scripts: in which order are the effects of a command done, and what follows from each reply?
//!
//! A script is a state machine without side effects. The executor performs the effect that it asks for and hands the
//! reply to the next step, so the embedded world and the real one run the very same scripts. A script that is lost in
//! a crash is started anew by the decider; its first steps find what is there already.

use super::effect::{Effect, Reply};
use crate::model::azure::inventory::Inventory;
use crate::model::errors::{LaunchRefusal, PortError};
use crate::model::orphans::attempt::Attempt;
use crate::model::orphans::finding::Refusal;
use jiff::{SignedDuration, Timestamp};
use std::fmt;
use std::sync::Arc;

/// A running command.
pub trait Script: fmt::Debug + Send {
    /// The next step, given the reply to the effect before (`None` at the start and after a wait).
    fn step(&mut self, reply: Option<Result<Reply, PortError>>, now: Timestamp) -> Step;
}

/// What the executor does next for a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Perform this effect.
    Do(Box<Effect>),
    /// Come back after this time.
    Wait(SignedDuration),
    /// It is over.
    End(Report),
}

/// What came of a command: observations for the deciders.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Offerings that Azure refused on the way.
    pub refused: Vec<LaunchRefusal>,
    /// The inventory that was taken.
    pub inventory: Option<Arc<Inventory>>,
    /// Why a sweep delete was called off right before the DELETE.
    pub called_off: Option<Refusal>,
    /// What a sweep tried on a cloud resource.
    pub attempt: Option<Box<Attempt>>,
    /// What went wrong; the decider will try again.
    pub failed: Option<PortError>,
}

impl Step {
    /// Perform this effect.
    #[must_use]
    pub fn perform(effect: Effect) -> Self {
        Self::Do(Box::new(effect))
    }

    /// It is over, and all is well.
    #[must_use]
    pub fn finished() -> Self {
        Self::End(Report::default())
    }

    /// It is over, and something went wrong.
    #[must_use]
    pub fn failed(error: PortError) -> Self {
        Self::End(Report { failed: Some(error), ..Report::default() })
    }
}

/// A command that is one effect.
#[derive(Debug)]
pub struct OneEffect(Option<Effect>);

impl OneEffect {
    /// The script of one effect.
    #[must_use]
    pub fn new(effect: Effect) -> Self {
        Self(Some(effect))
    }
}

impl Script for OneEffect {
    fn step(&mut self, reply: Option<Result<Reply, PortError>>, _now: Timestamp) -> Step {
        if let Some(effect) = self.0.take() {
            return Step::perform(effect);
        }
        match reply {
            Some(Ok(Reply::Inventory(inventory))) => {
                Step::End(Report { inventory: Some(inventory), ..Report::default() })
            }
            Some(Err(error)) => Step::failed(error),
            Some(Ok(_)) | None => Step::finished(),
        }
    }
}
