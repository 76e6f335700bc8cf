//! The timeline of events.

use jiff::Timestamp;
use napkeeper_core::model::names::ArmId;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TimelineEntry {
    /// When.
    pub at: Timestamp,
    /// What kind of event.
    pub kind: EventKind,
    /// The name of its subject.
    pub subject: String,
    /// What happened and why.
    pub text: String,
}

/// Kinds of timeline events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// The scenario did something.
    Scenario,
    /// A NodeClaim was created.
    #[serde(rename = "launch")]
    Provision,
    /// Pods cannot be scheduled, and why.
    Waiting,
    /// Azure refused an offering.
    Refused,
    /// A node became ready for pods.
    Ready,
    /// A node is disrupted.
    Disrupt,
    /// Everything of a NodeClaim is deleted.
    Gone,
    /// Azure evicted a spot VM.
    Evicted,
    /// A resource was first observed without references.
    Suspect,
    /// An orphan was collected.
    Collected,
    /// Something is retained, or not done, with the reason.
    Kept,
    /// The breaker has tripped.
    Breaker,
    /// The controller crashed or restarted.
    Controller,
}

impl fmt::Display for EventKind {
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

/// The timeline, and the reasons that were logged last, so that none is repeated.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    entries: Vec<TimelineEntry>,
    waiting: BTreeSet<String>,
    retained: BTreeMap<ArmId, String>,
}

impl Timeline {
    pub(super) fn entries(&self) -> &[TimelineEntry] {
        &self.entries
    }
}

impl super::World {
    /// Logs that something happened.
    pub(super) fn log(&mut self, kind: EventKind, subject: impl fmt::Display, text: impl Into<String>) {
        let entry = TimelineEntry { at: self.now, kind, subject: subject.to_string(), text: text.into() };
        self.timeline.entries.push(entry);
    }

    /// Logs why a resource is retained, unless the same was logged before.
    pub(super) fn log_retained(&mut self, id: &ArmId, text: String) {
        if self.timeline.retained.get(id) != Some(&text) {
            self.timeline.retained.insert(id.clone(), text.clone());
            self.log(EventKind::Kept, id.name(), text);
        }
    }

    /// Logs the reasons that were not among those of the last call.
    pub(super) fn log_new(&mut self, reasons: impl IntoIterator<Item = WaitingReason>) {
        let mut current = BTreeSet::new();
        for WaitingReason { key, kind, subject, text } in reasons {
            if !self.timeline.waiting.contains(&key) {
                self.log(kind, subject, text);
            }
            current.insert(key);
        }
        self.timeline.waiting = current;
    }
}

/// Why pods or nodes are missing, or an overlay is ignored. One `key` is logged once for as long as it lasts.
pub(super) struct WaitingReason {
    pub(super) key: String,
    pub(super) kind: EventKind,
    pub(super) subject: String,
    pub(super) text: String,
}
