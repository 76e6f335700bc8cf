//! Marks: the tag that says since when a resource is suspect (mode `Mark`).
//!
//! A mark is ours alone: no other tag is touched, and no comparison of tags sees it, so putting it on or taking it off
//! is never taken for somebody's work on the resource. It is taken off by key and value: what somebody else has
//! written there stays.

use super::attempt::{Attempt, Deed, Outcome};
use crate::cluster::cloud::{CloudResource, Tags};
use crate::labels;
use crate::plan::{Effect, Reply, Report, Script, Step};
use crate::ports::{CloudErrorCode, PortError};
use jiff::Timestamp;
use std::sync::Arc;

/// The mark on a resource, if it has one that we can have written.
pub(super) fn mark_of(resource: &CloudResource) -> Option<&str> {
    resource.tag(labels::TAG_SUSPECT_SINCE).filter(|value| value.parse::<Timestamp>().is_ok())
}

/// True when two sets of tags differ in nothing but our mark.
pub(super) fn same_but_for_marks(one: &Tags, other: &Tags) -> bool {
    let unmarked = |(key, _): &(&Arc<str>, &Arc<str>)| ***key != *labels::TAG_SUSPECT_SINCE;
    one.iter().filter(unmarked).eq(other.iter().filter(unmarked))
}

fn mark(value: &str) -> Tags {
    Tags::from([(Arc::from(labels::TAG_SUSPECT_SINCE), Arc::from(value))])
}

/// The script that marks a resource, or takes the mark off.
#[derive(Debug)]
pub struct MarkScript {
    resource: Arc<CloudResource>,
    effect: Option<Effect>,
}

impl MarkScript {
    /// Marks a resource with the time of its first sighting.
    #[must_use]
    pub fn mark(resource: &Arc<CloudResource>, first_seen: Timestamp) -> Self {
        let effect = Effect::Tag(resource.id.clone(), mark(&first_seen.to_string()));
        Self { resource: Arc::clone(resource), effect: Some(effect) }
    }

    /// Takes the mark off that it was listed with.
    #[must_use]
    pub fn unmark(resource: &Arc<CloudResource>) -> Self {
        let effect = mark_of(resource).map(|value| Effect::Untag(resource.id.clone(), mark(value)));
        Self { resource: Arc::clone(resource), effect }
    }
}

impl Script for MarkScript {
    fn step(&mut self, reply: Option<Result<Reply, PortError>>, now: Timestamp) -> Step {
        if let Some(effect) = self.effect.take() {
            return Step::perform(effect);
        }
        let (outcome, failed) = match reply {
            Some(Err(error)) if is_passing(&error) => (Outcome::Skipped, None),
            Some(Err(error)) => (Outcome::Failed(error.clone()), Some(error)),
            Some(Ok(_)) => (Outcome::Done, None),
            None => (Outcome::Skipped, None),
        };
        let attempt = Attempt::on(&self.resource, Deed::Tag, outcome, now);
        Step::End(Report { attempt: Some(Box::new(attempt)), failed, ..Report::default() })
    }
}

/// It is gone, or somebody else is at work on it: the next inventory shows what is to be done.
fn is_passing(error: &PortError) -> bool {
    let passing = [CloudErrorCode::NotFound, CloudErrorCode::Conflict];
    matches!(error, PortError::Cloud(e) if passing.contains(&e.code))
}
