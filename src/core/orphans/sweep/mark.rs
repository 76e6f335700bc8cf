//! Marks: the tag that says since when a resource is suspect (mode `Mark`).
//!
//! No other tag is touched, and comparisons of tags ignore the mark, so adding or removing it never looks like a change
//! of the resource. It is removed by key and value: other values remain. Azure honours no `If-Match` on tags: right
//! before each write the resource is read again, and one that has changed since the listing, or has been recreated, is
//! skipped.

use crate::model::azure::cloud::{CloudResource, Tags};
use crate::model::errors::{CloudErrorCode, EffectError};
use crate::model::labels;
use crate::model::orphans::attempt::{AttemptOutcome, SweepAction, SweepAttempt};
use crate::orphans::sweep::delete::final_check;
use crate::plan::{CloudRequest, CommandReport, Effect, Reply, Script, Step};
use jiff::Timestamp;
use std::sync::Arc;

/// The mark on a resource, if it has one that we can have written.
pub(in crate::orphans) fn mark_of(resource: &CloudResource) -> Option<&str> {
    resource.tag(labels::TAG_SUSPECT_SINCE).filter(|value| value.parse::<Timestamp>().is_ok())
}

/// True when two sets of tags differ only in our mark.
pub(in crate::orphans) fn equal_ignoring_marks(one: &Tags, other: &Tags) -> bool {
    let unmarked = |(key, _): &(&Arc<str>, &Arc<str>)| ***key != *labels::TAG_SUSPECT_SINCE;
    one.iter().filter(unmarked).eq(other.iter().filter(unmarked))
}

fn mark(value: &str) -> Tags {
    Tags::from([(Arc::from(labels::TAG_SUSPECT_SINCE), Arc::from(value))])
}

/// The script that marks a resource, or removes the mark.
#[derive(Debug)]
pub struct MarkScript {
    resource: Arc<CloudResource>,
    /// The write, until it was sent.
    effect: Option<Effect>,
    checked: bool,
}

impl MarkScript {
    /// Marks a resource with the time of its first sighting.
    #[must_use]
    pub fn mark(resource: &Arc<CloudResource>, first_seen: Timestamp) -> Self {
        let effect = Effect::Cloud(CloudRequest::Tag(resource.id.clone(), mark(&first_seen.to_string())));
        Self { resource: Arc::clone(resource), effect: Some(effect), checked: false }
    }

    /// Takes the mark off that it was listed with.
    #[must_use]
    pub fn unmark(resource: &Arc<CloudResource>) -> Self {
        let effect =
            mark_of(resource).map(|value| Effect::Cloud(CloudRequest::Untag(resource.id.clone(), mark(value))));
        Self { resource: Arc::clone(resource), effect, checked: false }
    }

    /// True when the resource has not changed since the listing in a way that matters to the write.
    fn is_same(&self, current: &CloudResource) -> bool {
        match &self.effect {
            Some(Effect::Cloud(CloudRequest::Tag(..))) => final_check(&self.resource, current).is_ok(),
            _ => current.incarnation == self.resource.incarnation,
        }
    }

    fn end(&self, outcome: AttemptOutcome, failed: Option<EffectError>, now: Timestamp) -> Step {
        let attempt = SweepAttempt::new(&self.resource, SweepAction::Tag, outcome, now);
        Step::End(CommandReport { attempt: Some(Box::new(attempt)), error: failed, ..CommandReport::default() })
    }
}

impl Script for MarkScript {
    fn step(&mut self, reply: Option<Result<Reply, EffectError>>, now: Timestamp) -> Step {
        if !self.checked && self.effect.is_some() {
            self.checked = true;
            return Step::perform(Effect::Cloud(CloudRequest::Get(self.resource.id.clone())));
        }
        match &reply {
            Some(Ok(Reply::Resource(Some(current)))) if self.is_same(current) => {
                return self.effect.take().map_or_else(Step::finished, Step::perform);
            }
            Some(Ok(Reply::Resource(_))) => return self.end(AttemptOutcome::Skipped, None, now),
            _ => {}
        }
        let (outcome, failed) = match reply {
            Some(Err(error)) if is_benign(&error) => (AttemptOutcome::Skipped, None),
            Some(Err(error)) => (AttemptOutcome::Failed(error.clone()), Some(error)),
            Some(Ok(_)) => (AttemptOutcome::Done, None),
            None => (AttemptOutcome::Skipped, None),
        };
        self.end(outcome, failed, now)
    }
}

/// It is deleted, or another actor is working on it: the next inventory shows what to do.
fn is_benign(error: &EffectError) -> bool {
    let passing = [CloudErrorCode::NotFound, CloudErrorCode::Conflict];
    matches!(error, EffectError::Cloud(e) if passing.contains(&e.code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::orphans::tests::fixtures::{nic, start, tags};

    fn listed(mark: Option<&str>) -> Arc<CloudResource> {
        let mut nic = nic("leaked", tags("gone", "uid-gone"));
        nic.tags.extend(mark.map(|value| (Arc::from(labels::TAG_SUSPECT_SINCE), Arc::from(value))));
        Arc::new(nic)
    }

    /// The names of a script's effects when the read before its write finds `current`; and its outcome.
    fn effects_of(
        mut script: MarkScript,
        current: Option<CloudResource>,
    ) -> (Vec<&'static str>, Option<AttemptOutcome>) {
        let (mut effects, mut reply) = (Vec::new(), None);
        loop {
            match script.step(reply.take(), start()) {
                Step::Perform(effect) => {
                    effects.push(effect.name());
                    let is_read = matches!(*effect, Effect::Cloud(CloudRequest::Get(_)));
                    let found = Reply::Resource(current.clone().map(Arc::new));
                    reply = Some(Ok(if is_read { found } else { Reply::Done }));
                }
                Step::Wait(_) => {}
                Step::End(report) => return (effects, report.attempt.map(|attempt| attempt.outcome)),
            }
        }
    }

    #[test]
    fn a_resource_that_has_changed_since_the_listing_gets_no_mark() {
        let resource = listed(None);
        let same = || CloudResource::clone(&resource);
        let another = CloudResource { incarnation: Arc::from("another"), ..same() };
        let mut claimed = same();
        claimed.tags.insert(Arc::from("owner"), Arc::from("bob"));
        let left_alone = (vec!["get"], Some(AttemptOutcome::Skipped));
        for (current, expected) in [
            (Some(same()), (vec!["get", "tag"], Some(AttemptOutcome::Done))),
            (Some(another), left_alone.clone()),
            (Some(claimed), left_alone.clone()),
            (None, left_alone),
        ] {
            assert_eq!(effects_of(MarkScript::mark(&resource, start()), current.clone()), expected, "{current:?}");
        }
    }

    #[test]
    fn a_mark_is_taken_off_this_resource_alone() {
        let resource = listed(Some("2026-08-03T08:00:00Z"));
        let mut changed = CloudResource::clone(&resource);
        changed.tags.insert(Arc::from("owner"), Arc::from("bob"));
        let another = CloudResource { incarnation: Arc::from("another"), ..CloudResource::clone(&resource) };
        let unmark = || MarkScript::unmark(&resource);
        assert_eq!(effects_of(unmark(), Some(changed)), (vec!["get", "untag"], Some(AttemptOutcome::Done)));
        assert_eq!(effects_of(unmark(), Some(another)), (vec!["get"], Some(AttemptOutcome::Skipped)));
        assert_eq!(
            effects_of(MarkScript::unmark(&listed(None)), None),
            (vec![], Some(AttemptOutcome::Skipped)),
            "there is no mark"
        );
    }
}
