//! The timeline: what happened, when and why?

use jiff::Timestamp;
use serde::Serialize;
use std::fmt;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// When.
    pub at: Timestamp,
    /// What kind of thing.
    pub kind: Kind,
    /// What it is about, by name.
    pub subject: String,
    /// What happened and why.
    pub text: String,
}

/// Kinds of things that happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The scenario did something.
    Scenario,
    /// A NodeClaim was created.
    #[serde(rename = "launch")]
    Provision,
    /// Pods have no place, and why.
    Waiting,
    /// Azure refused an offering.
    Refused,
    /// A node became ready for pods.
    Ready,
    /// A node is asked to go.
    Disrupt,
    /// Everything of a NodeClaim is gone.
    Gone,
    /// Azure took a spot VM back.
    Evicted,
    /// A resource was found without a sign of life.
    Suspect,
    /// An orphan was collected.
    Collected,
    /// Something is kept, or not done, and why.
    Kept,
    /// The breaker has tripped.
    Breaker,
    /// The controller crashed or came back.
    Controller,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Scenario => "scenario",
            Self::Provision => "launch",
            Self::Waiting => "waiting",
            Self::Refused => "refused",
            Self::Ready => "ready",
            Self::Disrupt => "disrupt",
            Self::Gone => "gone",
            Self::Evicted => "evicted",
            Self::Suspect => "suspect",
            Self::Collected => "collected",
            Self::Kept => "kept",
            Self::Breaker => "breaker",
            Self::Controller => "controller",
        })
    }
}

impl super::World {
    /// Notes that something happened.
    pub(super) fn note(&mut self, kind: Kind, subject: impl fmt::Display, text: impl Into<String>) {
        let entry = Entry { at: self.now, kind, subject: subject.to_string(), text: text.into() };
        self.timeline.push(entry);
    }
}
