//! Collecting: is the orphan still one right before its DELETE, and has it gone? (clause 6)
//!
//! What came of it is written to the record of the deletion: one that Azure refused counts for no cap, and one that
//! failed is tried again later. Azure honours no `If-Match` on these deletes, so a race of one request's length remains. NICs and disks then lean
//! on Azure's own refusal to delete what is in use; `forceDeletion` is never asked for.

use super::mark::same_but_for_marks;
use super::reserved::in_use;
use crate::model::azure::cloud::{CloudResource, ResourceKind};
use crate::model::azure::naming::resource_ids;
use crate::model::errors::{CloudError, CloudErrorCode, OperationId, PortError};
use crate::model::names::{ArmId, ClaimName, ObjectName, ProviderId};
use crate::model::orphans::attempt::{Attempt, Deed, Outcome};
use crate::model::orphans::finding::Refusal;
use crate::model::orphans::record::Deletion;
use crate::model::settings::{Clause, Settings};
use crate::plan::{Effect, RecordChange, Reply, Report, Script, Step, SweepDelete};
use jiff::{SignedDuration, Timestamp};
use std::collections::VecDeque;
use std::sync::Arc;

/// How often a DELETE is asked how far it is.
const POLL_EVERY: SignedDuration = SignedDuration::from_secs(10);
/// After so many polls the script gives up; the next inventory shows whether the resource has gone.
const MOST_POLLS: u32 = 90;
/// What was looked up is believed for so long: a slow API, or a wait for a turn, may let it grow old.
const FRESH: SignedDuration = SignedDuration::from_secs(30);
/// So often in a row the question how far it is may fail.
const MOST_DEAF_POLLS: u32 = 6;
/// So often everything is looked up anew; then the deletion is called off.
const MOST_LOOKS: u32 = 3;

/// The script of a sweep delete.
#[derive(Debug)]
pub struct CollectScript {
    delete: SweepDelete,
    todo: VecDeque<Task>,
    doing: Option<Task>,
    polls: u32,
    deaf_polls: u32,
    /// The deletion as it was recorded.
    recorded: Option<Deletion>,
    /// How it ends, once what came of it is written down.
    ending: Option<(Outcome, Report)>,
    /// When the resource was last asked for, and how often.
    looked_at: Option<Timestamp>,
    looks: u32,
    /// What is looked up before the deletion.
    checks: Vec<Task>,
}

/// One step of the script.
#[derive(Debug, Clone)]
enum Task {
    Resource,
    /// What goes with it.
    Part(Arc<CloudResource>),
    Claim(ClaimName),
    Node(ProviderId),
    Volume(ObjectName),
    Record,
    Delete,
    Poll(OperationId),
    /// Is it still there, after an operation that failed?
    Verify(PortError),
    /// What came of it is written down.
    Note(Deletion),
}

impl CollectScript {
    /// The script of one deletion.
    #[must_use]
    pub fn new(delete: SweepDelete, settings: &Settings) -> Self {
        let mut checks = Vec::new();
        if settings.law.holds(Clause::RecheckResource) {
            checks.push(Task::Resource);
            checks.extend(delete.parts.iter().cloned().map(Task::Part));
        }
        if settings.law.holds(Clause::RecheckOwners) {
            checks.extend(owners(&delete, &settings.cluster.group));
        }
        let mut todo = VecDeque::from(checks.clone());
        // The record comes first, or a crash between the two would hide the deletion from the cap.
        if settings.law.holds(Clause::RecordFirst) {
            todo.extend([Task::Record, Task::Delete]);
        } else {
            todo.extend([Task::Delete, Task::Record]);
        }
        Self {
            delete,
            todo,
            doing: None,
            polls: 0,
            deaf_polls: 0,
            recorded: None,
            ending: None,
            looked_at: None,
            looks: 0,
            checks,
        }
    }

    fn next(&mut self, now: Timestamp) -> Step {
        let stale = self.looked_at.is_some_and(|at| now.duration_since(at) > FRESH);
        if stale && matches!(self.todo.front(), Some(Task::Record | Task::Delete)) {
            if self.looks >= MOST_LOOKS {
                return self.called_off(Refusal::Changed, now);
            }
            self.checks.iter().rev().for_each(|check| self.todo.push_front(check.clone()));
        }
        let Some(task) = self.todo.pop_front() else {
            return self.end(Outcome::Done, Report::default(), now);
        };
        match task {
            Task::Resource => (self.looked_at, self.looks) = (Some(now), self.looks + 1),
            // What comes after it needs no fresh look.
            Task::Delete => self.looked_at = None,
            _ => {}
        }
        self.doing = Some(task.clone());
        let id = &self.delete.resource.id;
        Step::perform(match task {
            Task::Resource => Effect::Get(id.clone()),
            Task::Part(part) => Effect::Get(part.id.clone()),
            Task::Claim(name) => Effect::ReadClaim(name),
            Task::Node(vm) => Effect::ReadNode(vm),
            Task::Volume(name) => Effect::ReadVolume(name),
            Task::Record => {
                let mut deletion = self.delete.deletion.clone();
                deletion.at = now;
                self.recorded = Some(deletion.clone());
                record(deletion)
            }
            Task::Note(deletion) => record(deletion),
            Task::Verify(_) => Effect::Get(id.clone()),
            Task::Delete => Effect::Delete(id.clone(), self.delete.resource.kind()),
            Task::Poll(operation) => Effect::Poll(operation),
        })
    }

    /// What follows from the reply to a task.
    fn heard(&mut self, task: Task, reply: Reply, now: Timestamp) -> Step {
        match (task, reply) {
            // Gone already: nothing to delete, nothing to record.
            (Task::Resource, Reply::Resource(None)) => self.end(Outcome::Skipped, Report::default(), now),
            (Task::Resource, Reply::Resource(Some(current))) => match final_check(&self.delete.resource, &current) {
                Ok(()) => self.next(now),
                Err(refusal) => self.called_off(refusal, now),
            },
            (Task::Part(listed), Reply::Resource(Some(current))) if is_same(&listed, &current) => self.next(now),
            // Somebody else was faster. What was asked for has not been done by us, so it counts for no cap.
            (Task::Delete, Reply::Absent) => {
                let absent = PortError::Cloud(CloudError::new(CloudErrorCode::NotFound, "it was gone already"));
                self.note(Some(&absent), false, (Outcome::Skipped, Report::default()), now)
            }
            (Task::Claim(_), Reply::Claim(None))
            | (Task::Node(_), Reply::Node(None))
            | (Task::Volume(_), Reply::Volume(None))
            | (Task::Record, Reply::Done)
            | (Task::Delete | Task::Poll(_), Reply::Done) => self.next(now),
            (Task::Claim(_), Reply::Claim(Some(_)))
            | (Task::Node(_), Reply::Node(Some(_)))
            | (Task::Volume(_), Reply::Volume(Some(_))) => self.called_off(Refusal::SignOfLife, now),
            (Task::Delete, Reply::Accepted(operation)) => {
                self.todo.push_back(Task::Poll(operation));
                self.next(now)
            }
            (Task::Poll(operation), Reply::Running) => {
                self.deaf_polls = 0;
                self.wait(operation, now)
            }
            (Task::Note(_), _) => self.conclude(now),
            (Task::Verify(error), Reply::Resource(current)) => self.verified(error, current.as_deref(), now),
            // A reply of another sort proves nothing, and what is not proven is kept.
            _ => self.called_off(Refusal::Changed, now),
        }
    }

    /// What follows from the failure of a task.
    fn failed(&mut self, task: Task, error: PortError, now: Timestamp) -> Step {
        let code = match &error {
            PortError::Cloud(error) => Some(error.code),
            PortError::Cluster(_) | PortError::Held(_) => None,
        };
        match (task, code) {
            (Task::Delete, Some(CloudErrorCode::NotFound)) => self.heard(Task::Delete, Reply::Absent, now),
            (Task::Poll(_), Some(CloudErrorCode::NotFound)) => self.next(now),
            // Somebody else is at work on it, as managed NAP may be: no failure, and the next inventory shows more.
            (Task::Delete, Some(code @ (CloudErrorCode::Conflict | CloudErrorCode::InUse))) => {
                let in_use = code == CloudErrorCode::InUse;
                let refusal = if in_use { Refusal::SignOfLife } else { Refusal::Changed };
                let report = Report { called_off: Some(refusal), ..Report::default() };
                self.note(Some(&error), false, (Outcome::Skipped, report), now)
            }
            (Task::Delete, code) => {
                // Whether Azure did it before it failed is not known, so it counts. What our own gate holds is never sent.
                let held = matches!(error, PortError::Held(_));
                let refused = (held || code.is_some_and(|code| code != CloudErrorCode::Unavailable)).then_some(&error);
                let counts = code.is_some();
                self.note(refused, counts, failure(error.clone()), now)
            }
            (Task::Poll(operation), Some(CloudErrorCode::Unavailable | CloudErrorCode::Throttled))
                if self.deaf_polls < MOST_DEAF_POLLS =>
            {
                self.deaf_polls += 1;
                self.wait(operation, now)
            }
            (Task::Poll(_), _) => {
                self.todo.push_back(Task::Verify(error));
                self.next(now)
            }
            (Task::Verify(error), _) => self.note(None, true, failure(error), now),
            (Task::Note(_), _) => self.conclude(now),
            // Whatever went wrong, the next inventory shows what is left, and the next sweep tries again.
            _ => {
                let (outcome, report) = failure(error);
                self.end(outcome, report, now)
            }
        }
    }

    /// The operation failed: is the resource still there?
    fn verified(&mut self, error: PortError, current: Option<&CloudResource>, now: Timestamp) -> Step {
        let listed = &self.delete.resource;
        match current {
            Some(current) if current.incarnation == listed.incarnation => {
                self.note(Some(&error), true, failure(error.clone()), now)
            }
            // It is gone all the same, and another may have taken its name.
            _ => self.end(Outcome::Done, Report::default(), now),
        }
    }

    fn wait(&mut self, operation: OperationId, now: Timestamp) -> Step {
        self.polls += 1;
        if self.polls >= MOST_POLLS {
            let message = "the deletion has not ended; the next inventory shows what came of it";
            let error = PortError::Cloud(CloudError::new(CloudErrorCode::Unavailable, message));
            return self.note(None, true, failure(error), now);
        }
        self.todo.push_back(Task::Poll(operation));
        Step::Wait(POLL_EVERY)
    }

    /// Writes down what came of the recorded deletion, and ends: `refused` is why Azure certainly did not do it.
    fn note(&mut self, refused: Option<&PortError>, counts: bool, ending: (Outcome, Report), now: Timestamp) -> Step {
        self.ending = Some(ending);
        let Some(mut deletion) = self.recorded.take() else { return self.conclude(now) };
        deletion.refused = refused.map(|error| Arc::from(error.category()));
        deletion.failures = deletion.failures.saturating_add(u32::from(counts));
        self.todo = VecDeque::from([Task::Note(deletion)]);
        self.next(now)
    }

    fn conclude(&mut self, now: Timestamp) -> Step {
        let (outcome, report) = self.ending.take().unwrap_or_else(|| (Outcome::Skipped, Report::default()));
        self.end(outcome, report, now)
    }

    fn called_off(&self, refusal: Refusal, now: Timestamp) -> Step {
        self.end(Outcome::Skipped, Report { called_off: Some(refusal), ..Report::default() }, now)
    }

    fn end(&self, outcome: Outcome, report: Report, now: Timestamp) -> Step {
        let attempt = Attempt::on(&self.delete.resource, Deed::Delete, outcome, now);
        Step::End(Report { attempt: Some(Box::new(attempt)), ..report })
    }
}

impl Script for CollectScript {
    fn step(&mut self, reply: Option<Result<Reply, PortError>>, now: Timestamp) -> Step {
        match (self.doing.take(), reply) {
            (Some(task), Some(Ok(reply))) => self.heard(task, reply, now),
            (Some(task), Some(Err(error))) => self.failed(task, error, now),
            (_, None) | (None, Some(_)) => self.next(now),
        }
    }
}

fn failure(error: PortError) -> (Outcome, Report) {
    (Outcome::Failed(error.clone()), Report { failed: Some(error), ..Report::default() })
}

fn record(deletion: Deletion) -> Effect {
    Effect::Record(Box::new(RecordChange { deletions: vec![deletion], ..RecordChange::default() }))
}

/// The objects whose absence is looked up once more: the claim that the resource points back at, the Node of the VM
/// that it is or would hang on, and the volume that the records have for a data disk.
fn owners(delete: &SweepDelete, group: &ArmId) -> Vec<Task> {
    let resource = &delete.resource;
    let vm = match resource.kind() {
        ResourceKind::Vm => Some(resource.id.clone()),
        ResourceKind::Nic | ResourceKind::OsDisk => delete.claim.as_ref().map(|claim| resource_ids(group, claim).vm),
        ResourceKind::DataDisk => None,
    };
    let claim = delete.claim.iter().cloned().map(Task::Claim);
    let node = vm.iter().map(|vm| Task::Node(ProviderId::of_vm(vm)));
    let volume = delete.volume.iter().cloned().map(Task::Volume);
    claim.chain(node).chain(volume).collect()
}

/// Compares a resource as it was listed with what a GET says right before the DELETE.
///
/// # Errors
/// [`Refusal::Changed`] when it is another incarnation, or its tags (but for our mark) or anything else differ;
/// [`Refusal::SignOfLife`] when it is attached or otherwise in use.
pub fn final_check(listed: &CloudResource, current: &CloudResource) -> Result<(), Refusal> {
    if in_use(current).is_some() {
        return Err(Refusal::SignOfLife);
    }
    if is_same(listed, current) { Ok(()) } else { Err(Refusal::Changed) }
}

/// True when nothing has happened to a resource but our mark.
fn is_same(listed: &CloudResource, current: &CloudResource) -> bool {
    listed.id == current.id
        && listed.incarnation == current.incarnation
        && same_but_for_marks(&listed.tags, &current.tags)
        && listed.detail == current.detail
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::azure::cloud::DiskState;
    use crate::model::errors::ClusterError;
    use crate::model::settings::Law;
    use crate::orphans::tests::fixtures::*;

    fn delete_of(resource: CloudResource) -> SweepDelete {
        SweepDelete {
            sweep: ObjectName::new("all").unwrap(),
            parts: Vec::new(),
            claim: ClaimName::new("gone").ok(),
            volume: ObjectName::new("pv-1").ok(),
            deletion: Deletion {
                id: resource.id.clone(),
                incarnation: Arc::clone(&resource.incarnation),
                kind: resource.kind(),
                at: start(),
                evidence: Vec::new(),
                failures: 0,
                refused: None,
            },
            resource: Arc::new(resource),
        }
    }

    fn leaked() -> CloudResource {
        nic("leaked", tags("gone", "uid-gone"))
    }

    fn refused(code: CloudErrorCode) -> PortError {
        PortError::Cloud(CloudError::new(code, ""))
    }

    #[test]
    fn record_first_puts_the_record_before_the_delete() {
        for (law, first) in [(Law::whole(), Task::Record), (Law::without_in_tests(&[Clause::RecordFirst]), Task::Delete)] {
            let settings = Settings { law, ..settings() };
            let script = CollectScript::new(delete_of(leaked()), &settings);
            let writes = |t: &&Task| matches!(t, Task::Record | Task::Delete);
            let first_write = script.todo.iter().find(writes).unwrap();
            assert_eq!(format!("{first_write:?}"), format!("{first:?}"));
        }
    }

    /// Answers a script with these replies, in order. Gives what it asked for, in words, and how it ended.
    fn play(delete: SweepDelete, replies: Vec<Result<Reply, PortError>>) -> (Vec<String>, Report) {
        let mut script = CollectScript::new(delete, &settings());
        let mut replies = replies.into_iter();
        let mut asked = Vec::new();
        let mut step = script.step(None, start());
        loop {
            step = match step {
                Step::Do(effect) => {
                    let word = format!("{effect:?}");
                    asked.push(word.split(['(', ' ']).next().unwrap().to_owned());
                    script.step(replies.next(), start())
                }
                Step::Wait(_) => script.step(None, start()),
                Step::End(report) => return (asked, report),
            };
        }
    }

    #[test]
    fn what_was_looked_up_too_long_ago_is_looked_up_again_and_not_for_ever() {
        let asked_when = |slow_reads: usize| {
            let mut script = CollectScript::new(delete_of(leaked()), &settings());
            let (mut now, mut asked, mut reads, mut reply) = (start(), Vec::new(), 0, None);
            loop {
                let effect = match script.step(reply.take(), now) {
                    Step::Do(effect) => *effect,
                    Step::Wait(_) => continue,
                    Step::End(report) => return (asked, report.called_off),
                };
                reply = Some(Ok(match effect {
                    Effect::Get(_) => Reply::Resource(Some(Arc::new(leaked()))),
                    Effect::ReadClaim(_) => Reply::Claim(None),
                    Effect::ReadNode(_) => Reply::Node(None),
                    Effect::ReadVolume(_) => Reply::Volume(None),
                    _ => Reply::Done,
                }));
                asked.push(effect.name());
                if matches!(effect, Effect::ReadNode(_)) {
                    reads += 1;
                    now += SignedDuration::from_secs(if reads <= slow_reads { 31 } else { 1 });
                }
            }
        };
        let checks = ["get", "read_claim", "read_node", "read_volume"];
        let (asked, ended) = asked_when(1);
        assert_eq!(asked, [&checks[..], &checks[..], &["record", "delete"]].concat());
        assert_eq!(ended, None);
        let (asked, ended) = asked_when(usize::MAX);
        assert_eq!(asked, [checks; 3].concat(), "neither recorded nor deleted");
        assert_eq!(ended, Some(Refusal::Changed));
    }

    fn absent() -> Vec<Result<Reply, PortError>> {
        vec![
            Ok(Reply::Resource(Some(Arc::new(leaked())))),
            Ok(Reply::Claim(None)),
            Ok(Reply::Node(None)),
            Ok(Reply::Volume(None)),
        ]
    }

    #[test]
    fn all_is_looked_up_and_recorded_before_the_delete() {
        let operation = OperationId(Arc::from("op"));
        let mut replies = absent();
        replies.extend([Ok(Reply::Done), Ok(Reply::Accepted(operation)), Ok(Reply::Running), Ok(Reply::Done)]);
        let (asked, report) = play(delete_of(leaked()), replies);
        let expected = ["Get", "ReadClaim", "ReadNode", "ReadVolume", "Record", "Delete", "Poll", "Poll"];
        assert_eq!(asked, expected);
        assert_eq!((report.failed, report.called_off), (None, None));
        assert_eq!(report.attempt.map(|a| a.outcome), Some(Outcome::Done));
    }

    #[test]
    fn any_object_that_is_there_after_all_calls_it_off_before_a_write() {
        let live = Arc::new(claim("gone", "another-uid"));
        let host = Arc::new(node("n", &group()));
        let pv = Arc::new(volume("pv-1", &data_disk("d"), crate::model::cluster::volume::ReclaimPolicy::Delete));
        let there = [Reply::Claim(Some(live)), Reply::Node(Some(host)), Reply::Volume(Some(pv))];
        for (n, reply) in there.into_iter().enumerate() {
            let mut replies = absent();
            replies[n + 1] = Ok(reply);
            let (asked, report) = play(delete_of(leaked()), replies);
            assert_eq!(asked.len(), n + 2);
            assert_eq!(report.called_off, Some(Refusal::SignOfLife));
        }
    }

    #[test]
    fn a_read_that_fails_is_no_proof_of_absence() {
        let mut replies = absent();
        replies[1] = Err(PortError::Cluster(ClusterError::Forbidden));
        let (asked, report) = play(delete_of(leaked()), replies);
        assert_eq!(asked, ["Get", "ReadClaim"]);
        assert_eq!(report.failed, Some(PortError::Cluster(ClusterError::Forbidden)));
    }

    #[test]
    fn what_is_gone_already_is_neither_recorded_nor_deleted() {
        let (asked, report) = play(delete_of(leaked()), vec![Ok(Reply::Resource(None))]);
        assert_eq!(asked, ["Get"]);
        assert_eq!((report.failed, report.called_off), (None, None));
        assert_eq!(report.attempt.map(|a| a.outcome), Some(Outcome::Skipped));
    }

    /// Plays until the DELETE, or an answer to it, fails so. Gives what was asked, the report, and the last record.
    fn play_refused(after: Vec<Result<Reply, PortError>>) -> (Vec<String>, Report, Option<Deletion>) {
        let mut script = CollectScript::new(delete_of(leaked()), &settings());
        let mut replies = absent().into_iter().chain([Ok(Reply::Done)]).chain(after);
        let (mut asked, mut noted, mut step) = (Vec::new(), None, script.step(None, start()));
        loop {
            step = match step {
                Step::Do(effect) => {
                    if let Effect::Record(change) = &*effect {
                        noted = change.deletions.last().cloned();
                    }
                    asked.push(effect.name().to_owned());
                    script.step(Some(replies.next().unwrap_or(Ok(Reply::Done))), start())
                }
                Step::Wait(_) => script.step(None, start()),
                Step::End(report) => return (asked, report, noted),
            };
        }
    }

    #[test]
    fn a_refused_delete_is_noted_as_none_and_tried_again_later() {
        use CloudErrorCode::*;
        // Which code; whether it is a failure; whether Azure certainly deleted nothing; whether it is tried less often.
        for (code, failed, refused_for_sure, backs_off) in [
            (NotFound, false, true, false),
            (Conflict, false, true, false),
            (InUse, false, true, false),
            (NicReserved, true, true, true),
            (Throttled, true, true, true),
            (Permission, true, true, true),
            (Lockdown, true, true, true),
            (Unavailable, true, false, true),
        ] {
            let (asked, report, noted) = play_refused(vec![Err(refused(code))]);
            assert_eq!(asked.last().unwrap(), "record", "{code:?}");
            assert_eq!(report.failed, failed.then(|| refused(code)));
            let noted = noted.unwrap();
            assert_eq!(noted.refused.is_some(), refused_for_sure, "{code:?}");
            assert_eq!(noted.failures, u32::from(backs_off), "{code:?}");
        }
        let (_, report, _) = play_refused(vec![Err(refused(InUse))]);
        assert_eq!(report.called_off, Some(Refusal::SignOfLife), "Azure's own refusal is a sign of life");
    }

    #[test]
    fn what_was_gone_when_its_delete_came_is_skipped_and_not_collected() {
        for answer in [Ok(Reply::Absent), Err(refused(CloudErrorCode::NotFound))] {
            let (asked, report, noted) = play_refused(vec![answer]);
            assert_eq!(asked[asked.len() - 2..], ["delete", "record"]);
            assert_eq!((report.failed, report.called_off), (None, None));
            assert_eq!(report.attempt.map(|a| a.outcome), Some(Outcome::Skipped));
            assert_eq!(noted.unwrap().refused.as_deref(), Some("not_found"), "it counts for no cap");
        }
    }

    #[test]
    fn only_azures_own_refusal_gives_a_share_back() {
        for (error, sure) in [
            (PortError::Cluster(ClusterError::Unavailable), false),
            (refused(CloudErrorCode::Unavailable), false),
            (refused(CloudErrorCode::Invalid), true),
            (PortError::Held("the pause switch is set"), true),
        ] {
            let (_, _, noted) = play_refused(vec![Err(error.clone())]);
            assert_eq!(noted.unwrap().refused.is_some(), sure, "{error:?}");
        }
    }

    #[test]
    fn an_operation_that_failed_is_believed_by_what_is_there_after_it() {
        let begun = || Ok(Reply::Accepted(OperationId(Arc::from("op"))));
        let there = |r| Ok(Reply::Resource(r));
        let broke = || Err(refused(CloudErrorCode::Locked));
        let (asked, report, noted) = play_refused(vec![begun(), broke(), there(Some(Arc::new(leaked())))]);
        assert_eq!(asked[asked.len() - 3..], ["poll", "get", "record"]);
        assert!(report.failed.is_some());
        assert_eq!(noted.unwrap().refused.as_deref(), Some("locked"));
        let (_, report, noted) = play_refused(vec![begun(), broke(), there(None)]);
        assert_eq!((report.failed, noted.unwrap().refused), (None, None), "it has gone all the same");
        let deaf = || Err(refused(CloudErrorCode::Throttled));
        let (asked, report, _) = play_refused(vec![begun(), deaf(), deaf(), Ok(Reply::Done)]);
        assert_eq!(asked.iter().filter(|word| *word == "poll").count(), 3);
        assert_eq!(report.attempt.map(|a| a.outcome), Some(Outcome::Done), "a poll that fails is asked again");
    }

    #[test]
    fn our_own_mark_is_no_change() {
        let mut marked = leaked();
        marked.tags.insert(Arc::from(crate::model::labels::TAG_SUSPECT_SINCE), Arc::from(start().to_string()));
        assert_eq!(final_check(&leaked(), &marked), Ok(()));
        assert_eq!(final_check(&marked, &leaked()), Ok(()));
    }

    #[test]
    fn a_delete_that_never_ends_is_given_up() {
        let mut replies = absent();
        let operation = OperationId(Arc::from("op"));
        replies.extend([Ok(Reply::Done), Ok(Reply::Accepted(operation))]);
        replies.extend((0..90).map(|_| Ok(Reply::Running)));
        replies.extend((0..1000).map(|_| Ok(Reply::Done)));
        let (asked, report) = play(delete_of(leaked()), replies);
        assert_eq!(asked.iter().filter(|word| *word == "Poll").count(), 90);
        assert!(report.failed.is_some());
    }

    #[test]
    fn the_last_look_wants_the_very_resource_that_was_listed() {
        type Change = fn(&mut CloudResource);
        let changes: [(Change, Refusal); 4] = [
            (|r| r.incarnation = Arc::from("other"), Refusal::Changed),
            (|r| drop(r.tags.pop_first()), Refusal::Changed),
            (|r| as_nic(r).vm = Some(group()), Refusal::SignOfLife),
            (|r| as_nic(r).serves = Some(Arc::from("x")), Refusal::SignOfLife),
        ];
        assert_eq!(final_check(&leaked(), &leaked()), Ok(()));
        for (change, refusal) in changes {
            let mut current = leaked();
            change(&mut current);
            assert_eq!(final_check(&leaked(), &current), Err(refusal));
        }
        let listed = data_disk("d");
        let changes: [(Change, Refusal); 3] = [
            (|r| as_disk(r).state = DiskState::Other(Arc::from("ActiveSAS")), Refusal::SignOfLife),
            (|r| as_disk(r).managed_by = vec![group()], Refusal::SignOfLife),
            (|r| as_disk(r).last_ownership_update = Some(start()), Refusal::Changed),
        ];
        for (change, refusal) in changes {
            let mut current = listed.clone();
            change(&mut current);
            assert_eq!(final_check(&listed, &current), Err(refusal));
        }
    }
}
