//! The script of a sweep delete: recheck, record, DELETE, poll, record the outcome (rule 6).
//!
//! The outcome is written to the record of the deletion: one that Azure refused does not count for the cap, and one
//! that failed is tried again later. Azure honours no `If-Match` on these deletes, so a race of one request's length
//! remains. NICs and disks then rely on Azure's own refusal to delete resources in use; `forceDeletion` is never used.

use crate::model::azure::cloud::{CloudResource, ResourceKind};
use crate::model::azure::naming::resource_ids;
use crate::model::errors::{CloudError, CloudErrorCode, EffectError, OperationId};
use crate::model::names::{ArmId, ClaimName, ObjectName, ProviderId};
use crate::model::orphans::attempt::{AttemptOutcome, SweepAction, SweepAttempt};
use crate::model::orphans::finding::DeletionRefusal;
use crate::model::orphans::record::DeletionRecord;
use crate::model::settings::{DeletionRule, Settings};
use crate::orphans::references::in_use::in_use;
use crate::orphans::sweep::mark::equal_ignoring_marks;
use crate::plan::{
    CloudRequest, ClusterRead, ClusterWrite, CommandReport, Effect, RecordChange, Reply, Script, Step, SweepDelete,
};
use jiff::{SignedDuration, Timestamp};
use std::collections::VecDeque;
use std::sync::Arc;

/// Poll interval of a DELETE operation.
const POLL_INTERVAL: SignedDuration = SignedDuration::from_secs(10);
/// Polls before the script gives up; the next inventory shows whether the resource is deleted.
const MAX_POLLS: u32 = 90;
/// How long checks are valid: a slow API, or a wait in the queue, may make them stale.
const CHECK_VALID_FOR: SignedDuration = SignedDuration::from_secs(30);
/// Most consecutive failed polls.
const MAX_FAILED_POLLS: u32 = 6;
/// So often everything is looked up again; then the deletion is called off.
const MAX_CHECK_ROUNDS: u32 = 3;

/// The script of a sweep delete.
#[derive(Debug)]
pub struct SweepDeleteScript {
    delete: SweepDelete,
    queue: VecDeque<DeleteTask>,
    current: Option<DeleteTask>,
    polls: u32,
    failed_polls: u32,
    /// The deletion as it was recorded.
    recorded: Option<DeletionRecord>,
    /// How it ends, once the outcome is written.
    ending: Option<DeletionEnding>,
    /// When the resource was last read, and how often.
    checked_at: Option<Timestamp>,
    check_rounds: u32,
    /// Checks before the deletion.
    checks: Vec<DeleteTask>,
}

/// One step of the script.
#[derive(Debug, Clone)]
enum DeleteTask {
    RecheckResource,
    /// Resources that are deleted with it.
    RecheckAttached(Arc<CloudResource>),
    RecheckClaim(ClaimName),
    RecheckNode(ProviderId),
    RecheckVolume(ObjectName),
    WriteRecord,
    Delete,
    Poll(OperationId),
    /// Checks whether it still exists after a failed operation.
    VerifyGone(EffectError),
    /// Writes the outcome.
    WriteOutcome(DeletionRecord),
}

impl SweepDeleteScript {
    /// The script of one deletion.
    #[must_use]
    pub fn new(delete: SweepDelete, settings: &Settings) -> Self {
        let mut checks = Vec::new();
        if settings.deletion_rules.enforces(DeletionRule::RecheckResource) {
            checks.push(DeleteTask::RecheckResource);
            checks.extend(delete.attached.iter().cloned().map(DeleteTask::RecheckAttached));
        }
        if settings.deletion_rules.enforces(DeletionRule::RecheckOwners) {
            checks.extend(owner_checks(&delete, &settings.cluster.node_resource_group));
        }
        let mut todo = VecDeque::from(checks.clone());
        // The record comes first, or a crash between the two would hide the deletion from the cap.
        if settings.deletion_rules.enforces(DeletionRule::RecordFirst) {
            todo.extend([DeleteTask::WriteRecord, DeleteTask::Delete]);
        } else {
            todo.extend([DeleteTask::Delete, DeleteTask::WriteRecord]);
        }
        Self {
            delete,
            queue: todo,
            current: None,
            polls: 0,
            failed_polls: 0,
            recorded: None,
            ending: None,
            checked_at: None,
            check_rounds: 0,
            checks,
        }
    }

    fn next(&mut self, now: Timestamp) -> Step {
        let stale = self.checked_at.is_some_and(|at| now.duration_since(at) > CHECK_VALID_FOR);
        if stale && matches!(self.queue.front(), Some(DeleteTask::WriteRecord | DeleteTask::Delete)) {
            if self.check_rounds >= MAX_CHECK_ROUNDS {
                return self.abort(DeletionRefusal::Changed, now);
            }
            self.checks.iter().rev().for_each(|check| self.queue.push_front(check.clone()));
        }
        let Some(task) = self.queue.pop_front() else {
            return self.end(DeletionEnding::of(AttemptOutcome::Done), now);
        };
        match task {
            DeleteTask::RecheckResource => (self.checked_at, self.check_rounds) = (Some(now), self.check_rounds + 1),
            // Later tasks need no recheck.
            DeleteTask::Delete => self.checked_at = None,
            _ => {}
        }
        self.current = Some(task.clone());
        let id = &self.delete.resource.id;
        Step::perform(match task {
            DeleteTask::RecheckResource => Effect::Cloud(CloudRequest::Get(id.clone())),
            DeleteTask::RecheckAttached(part) => Effect::Cloud(CloudRequest::Get(part.id.clone())),
            DeleteTask::RecheckClaim(name) => Effect::Read(ClusterRead::Claim(name)),
            DeleteTask::RecheckNode(vm) => Effect::Read(ClusterRead::Node(vm)),
            DeleteTask::RecheckVolume(name) => Effect::Read(ClusterRead::Volume(name)),
            DeleteTask::WriteRecord => {
                let mut deletion = self.delete.deletion.clone();
                deletion.at = now;
                self.recorded = Some(deletion.clone());
                record(deletion)
            }
            DeleteTask::WriteOutcome(deletion) => record(deletion),
            DeleteTask::VerifyGone(_) => Effect::Cloud(CloudRequest::Get(id.clone())),
            DeleteTask::Delete => Effect::Cloud(CloudRequest::Delete(id.clone(), self.delete.resource.kind())),
            DeleteTask::Poll(operation) => Effect::Cloud(CloudRequest::Poll(operation)),
        })
    }

    /// The next step after the reply to a task.
    fn on_reply(&mut self, task: DeleteTask, reply: Reply, now: Timestamp) -> Step {
        match (task, reply) {
            // Deleted already: nothing to delete, nothing to record.
            (DeleteTask::RecheckResource, Reply::Resource(None)) => {
                self.end(DeletionEnding::of(AttemptOutcome::Skipped), now)
            }
            (DeleteTask::RecheckResource, Reply::Resource(Some(current))) => {
                match final_check(&self.delete.resource, &current) {
                    Ok(()) => self.next(now),
                    Err(refusal) => self.abort(refusal, now),
                }
            }
            (DeleteTask::RecheckAttached(listed), Reply::Resource(Some(current)))
                if is_unchanged(&listed, &current) =>
            {
                self.next(now)
            }
            // Another actor deleted it, so it does not count for the cap.
            (DeleteTask::Delete, Reply::Absent) => {
                let absent = EffectError::Cloud(CloudError::new(CloudErrorCode::NotFound, "already deleted"));
                self.write_outcome(Some(&absent), false, DeletionEnding::of(AttemptOutcome::Skipped), now)
            }
            (DeleteTask::RecheckClaim(_), Reply::Claim(None))
            | (DeleteTask::RecheckNode(_), Reply::Node(None))
            | (DeleteTask::RecheckVolume(_), Reply::Volume(None))
            | (DeleteTask::WriteRecord, Reply::Done)
            | (DeleteTask::Delete | DeleteTask::Poll(_), Reply::Done) => self.next(now),
            (DeleteTask::RecheckClaim(_), Reply::Claim(Some(_)))
            | (DeleteTask::RecheckNode(_), Reply::Node(Some(_)))
            | (DeleteTask::RecheckVolume(_), Reply::Volume(Some(_))) => self.abort(DeletionRefusal::SignOfLife, now),
            (DeleteTask::Delete, Reply::Accepted(operation)) => {
                self.queue.push_back(DeleteTask::Poll(operation));
                self.next(now)
            }
            (DeleteTask::Poll(operation), Reply::Running) => {
                self.failed_polls = 0;
                self.wait(operation, now)
            }
            (DeleteTask::WriteOutcome(_), _) => self.finish(now),
            (DeleteTask::VerifyGone(error), Reply::Resource(current)) => {
                self.on_verified(error, current.as_deref(), now)
            }
            // An unexpected reply confirms nothing.
            _ => self.abort(DeletionRefusal::Changed, now),
        }
    }

    /// The next step after the failure of a task.
    fn on_error(&mut self, task: DeleteTask, error: EffectError, now: Timestamp) -> Step {
        let code = match &error {
            EffectError::Cloud(error) => Some(error.code),
            EffectError::Cluster(_) | EffectError::Blocked(_) => None,
        };
        match (task, code) {
            (DeleteTask::Delete, Some(CloudErrorCode::NotFound)) => {
                self.on_reply(DeleteTask::Delete, Reply::Absent, now)
            }
            (DeleteTask::Poll(_), Some(CloudErrorCode::NotFound)) => self.next(now),
            // Another actor, such as managed NAP, is working on it: no failure, and the next inventory shows more.
            (DeleteTask::Delete, Some(code @ (CloudErrorCode::Conflict | CloudErrorCode::InUse))) => {
                let in_use = code == CloudErrorCode::InUse;
                let refusal = if in_use { DeletionRefusal::SignOfLife } else { DeletionRefusal::Changed };
                let report = CommandReport { abort_reason: Some(refusal), ..CommandReport::default() };
                self.write_outcome(
                    Some(&error),
                    false,
                    DeletionEnding { outcome: AttemptOutcome::Skipped, report },
                    now,
                )
            }
            (DeleteTask::Delete, code) => {
                // Azure may have deleted it before it failed, so it counts. A blocked request was never sent.
                let blocked = matches!(error, EffectError::Blocked(_));
                let refused =
                    (blocked || code.is_some_and(|code| code != CloudErrorCode::Unavailable)).then_some(&error);
                let counts = code.is_some();
                self.write_outcome(refused, counts, failure(error.clone()), now)
            }
            (DeleteTask::Poll(operation), Some(CloudErrorCode::Unavailable | CloudErrorCode::Throttled))
                if self.failed_polls < MAX_FAILED_POLLS =>
            {
                self.failed_polls += 1;
                self.wait(operation, now)
            }
            (DeleteTask::Poll(_), _) => {
                self.queue.push_back(DeleteTask::VerifyGone(error));
                self.next(now)
            }
            (DeleteTask::VerifyGone(error), _) => self.write_outcome(None, true, failure(error), now),
            (DeleteTask::WriteOutcome(_), _) => self.finish(now),
            // The next inventory shows the state, and the next sweep tries again.
            _ => self.end(failure(error), now),
        }
    }

    /// The next step after a failed operation: checks whether the resource still exists.
    fn on_verified(&mut self, error: EffectError, current: Option<&CloudResource>, now: Timestamp) -> Step {
        let listed = &self.delete.resource;
        match current {
            Some(current) if current.incarnation == listed.incarnation => {
                self.write_outcome(Some(&error), true, failure(error.clone()), now)
            }
            // It is deleted; another resource may have its name.
            _ => self.end(DeletionEnding::of(AttemptOutcome::Done), now),
        }
    }

    fn wait(&mut self, operation: OperationId, now: Timestamp) -> Step {
        self.polls += 1;
        if self.polls >= MAX_POLLS {
            let message = "the deletion is still running; the next inventory will show the result";
            let error = EffectError::Cloud(CloudError::new(CloudErrorCode::Unavailable, message));
            return self.write_outcome(None, true, failure(error), now);
        }
        self.queue.push_back(DeleteTask::Poll(operation));
        Step::Wait(POLL_INTERVAL)
    }

    /// Writes the outcome of the recorded deletion, and ends; `refused` is why Azure certainly did not delete it.
    fn write_outcome(
        &mut self,
        refused: Option<&EffectError>,
        counts: bool,
        ending: DeletionEnding,
        now: Timestamp,
    ) -> Step {
        self.ending = Some(ending);
        let Some(mut deletion) = self.recorded.take() else { return self.finish(now) };
        // An answer to this attempt says nothing of an earlier one, unless the resource is in use.
        let refused = refused.filter(|error| !self.delete.tried_before || is_in_use(error));
        deletion.refused = refused.map(|error| Arc::from(error.category()));
        deletion.failures = deletion.failures.saturating_add(u32::from(counts));
        self.queue = VecDeque::from([DeleteTask::WriteOutcome(deletion)]);
        self.next(now)
    }

    fn finish(&mut self, now: Timestamp) -> Step {
        let ending = self.ending.take();
        self.end(ending.unwrap_or_else(|| DeletionEnding::of(AttemptOutcome::Skipped)), now)
    }

    fn abort(&self, refusal: DeletionRefusal, now: Timestamp) -> Step {
        let report = CommandReport { abort_reason: Some(refusal), ..CommandReport::default() };
        self.end(DeletionEnding { outcome: AttemptOutcome::Skipped, report }, now)
    }

    fn end(&self, DeletionEnding { outcome, report }: DeletionEnding, now: Timestamp) -> Step {
        let attempt = SweepAttempt::new(&self.delete.resource, SweepAction::Delete, outcome, now);
        Step::End(CommandReport { attempt: Some(Box::new(attempt)), ..report })
    }
}

impl Script for SweepDeleteScript {
    fn step(&mut self, reply: Option<Result<Reply, EffectError>>, now: Timestamp) -> Step {
        match (self.current.take(), reply) {
            (Some(task), Some(Ok(reply))) => self.on_reply(task, reply, now),
            (Some(task), Some(Err(error))) => self.on_error(task, error, now),
            (_, None) | (None, Some(_)) => self.next(now),
        }
    }
}

/// How a deletion ended, for the report.
#[derive(Debug)]
struct DeletionEnding {
    outcome: AttemptOutcome,
    report: CommandReport,
}

impl DeletionEnding {
    /// An outcome with nothing else to report.
    fn of(outcome: AttemptOutcome) -> Self {
        Self { outcome, report: CommandReport::default() }
    }
}

fn is_in_use(error: &EffectError) -> bool {
    matches!(error, EffectError::Cloud(error) if error.code == CloudErrorCode::InUse)
}

fn failure(error: EffectError) -> DeletionEnding {
    let report = CommandReport { error: Some(error.clone()), ..CommandReport::default() };
    DeletionEnding { outcome: AttemptOutcome::Failed(error), report }
}

fn record(deletion: DeletionRecord) -> Effect {
    Effect::Cluster(ClusterWrite::WriteRecords(Box::new(RecordChange {
        deletions: vec![deletion],
        ..RecordChange::default()
    })))
}

/// The objects whose absence is checked again: the claim that the resource refers to, the Node of its VM, and the
/// recorded volume of a data disk.
fn owner_checks(delete: &SweepDelete, group: &ArmId) -> Vec<DeleteTask> {
    let resource = &delete.resource;
    let vm = match resource.kind() {
        ResourceKind::Vm => Some(resource.id.clone()),
        ResourceKind::Nic | ResourceKind::OsDisk => delete.claim.as_ref().map(|claim| resource_ids(group, claim).vm),
        ResourceKind::DataDisk => None,
    };
    let claim = delete.claim.iter().cloned().map(DeleteTask::RecheckClaim);
    let node = vm.iter().map(|vm| DeleteTask::RecheckNode(ProviderId::of_vm(vm)));
    let volume = delete.volume.iter().cloned().map(DeleteTask::RecheckVolume);
    claim.chain(node).chain(volume).collect()
}

/// Compares a resource as listed with a GET right before the DELETE.
///
/// # Errors
/// [`DeletionRefusal::Changed`] when it is another incarnation, or its tags (but for our mark) or anything else differ;
/// [`DeletionRefusal::SignOfLife`] when it is attached or otherwise in use.
pub fn final_check(listed: &CloudResource, current: &CloudResource) -> Result<(), DeletionRefusal> {
    if in_use(current).is_some() {
        return Err(DeletionRefusal::SignOfLife);
    }
    if is_unchanged(listed, current) { Ok(()) } else { Err(DeletionRefusal::Changed) }
}

/// True when nothing but our mark has changed on a resource.
fn is_unchanged(listed: &CloudResource, current: &CloudResource) -> bool {
    listed.id == current.id
        && listed.incarnation == current.incarnation
        && equal_ignoring_marks(&listed.tags, &current.tags)
        && listed.detail == current.detail
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::azure::cloud::DiskState;
    use crate::model::errors::ClusterError;
    use crate::model::settings::DeletionRules;
    use crate::orphans::tests::fixtures::*;

    fn delete_of(resource: CloudResource) -> SweepDelete {
        SweepDelete {
            sweep: ObjectName::new("all").unwrap(),
            attached: Vec::new(),
            claim: ClaimName::new("gone").ok(),
            volume: ObjectName::new("pv-1").ok(),
            deletion: DeletionRecord {
                id: resource.id.clone(),
                incarnation: Arc::clone(&resource.incarnation),
                kind: resource.kind(),
                at: start(),
                evidence: Vec::new(),
                failures: 0,
                refused: None,
            },
            tried_before: false,
            resource: Arc::new(resource),
        }
    }

    fn leaked() -> CloudResource {
        nic("leaked", tags("gone", "uid-gone"))
    }

    fn refused(code: CloudErrorCode) -> EffectError {
        EffectError::Cloud(CloudError::new(code, ""))
    }

    #[test]
    fn record_first_puts_the_record_before_the_delete() {
        for (rules, first) in [
            (DeletionRules::all(), DeleteTask::WriteRecord),
            (DeletionRules::without_in_tests(&[DeletionRule::RecordFirst]), DeleteTask::Delete),
        ] {
            let settings = Settings { deletion_rules: rules, ..settings() };
            let script = SweepDeleteScript::new(delete_of(leaked()), &settings);
            let writes = |t: &&DeleteTask| matches!(t, DeleteTask::WriteRecord | DeleteTask::Delete);
            let first_write = script.queue.iter().find(writes).unwrap();
            assert_eq!(format!("{first_write:?}"), format!("{first:?}"));
        }
    }

    /// Answers a script with these replies, in order. Returns the names of its effects, and its report.
    fn play(delete: SweepDelete, replies: Vec<Result<Reply, EffectError>>) -> (Vec<String>, CommandReport) {
        let mut script = SweepDeleteScript::new(delete, &settings());
        let mut replies = replies.into_iter();
        let mut effects = Vec::new();
        let mut step = script.step(None, start());
        loop {
            step = match step {
                Step::Perform(effect) => {
                    effects.push(effect.name().to_owned());
                    script.step(replies.next(), start())
                }
                Step::Wait(_) => script.step(None, start()),
                Step::End(report) => return (effects, report),
            };
        }
    }

    #[test]
    fn stale_checks_are_repeated_a_limited_number_of_times() {
        let effects_with = |slow_reads: usize| {
            let mut script = SweepDeleteScript::new(delete_of(leaked()), &settings());
            let (mut now, mut effects, mut reads, mut reply) = (start(), Vec::new(), 0, None);
            loop {
                let effect = match script.step(reply.take(), now) {
                    Step::Perform(effect) => *effect,
                    Step::Wait(_) => continue,
                    Step::End(report) => return (effects, report.abort_reason),
                };
                reply = Some(Ok(match effect {
                    Effect::Cloud(CloudRequest::Get(_)) => Reply::Resource(Some(Arc::new(leaked()))),
                    Effect::Read(ClusterRead::Claim(_)) => Reply::Claim(None),
                    Effect::Read(ClusterRead::Node(_)) => Reply::Node(None),
                    Effect::Read(ClusterRead::Volume(_)) => Reply::Volume(None),
                    _ => Reply::Done,
                }));
                effects.push(effect.name());
                if matches!(effect, Effect::Read(ClusterRead::Node(_))) {
                    reads += 1;
                    now += SignedDuration::from_secs(if reads <= slow_reads { 31 } else { 1 });
                }
            }
        };
        let checks = ["get", "read_claim", "read_node", "read_volume"];
        let (effects, ended) = effects_with(1);
        assert_eq!(effects, [&checks[..], &checks[..], &["record", "delete"]].concat());
        assert_eq!(ended, None);
        let (effects, ended) = effects_with(usize::MAX);
        assert_eq!(effects, [checks; 3].concat(), "neither recorded nor deleted");
        assert_eq!(ended, Some(DeletionRefusal::Changed));
    }

    fn absent() -> Vec<Result<Reply, EffectError>> {
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
        let (effects, report) = play(delete_of(leaked()), replies);
        let expected = ["get", "read_claim", "read_node", "read_volume", "record", "delete", "poll", "poll"];
        assert_eq!(effects, expected);
        assert_eq!((report.error, report.abort_reason), (None, None));
        assert_eq!(report.attempt.map(|a| a.outcome), Some(AttemptOutcome::Done));
    }

    #[test]
    fn any_object_that_exists_aborts_it_before_a_write() {
        let live = Arc::new(claim("gone", "another-uid"));
        let host = Arc::new(node("n", &group()));
        let pv = Arc::new(volume("pv-1", &data_disk("d"), crate::model::cluster::volume::ReclaimPolicy::Delete));
        let existing = [Reply::Claim(Some(live)), Reply::Node(Some(host)), Reply::Volume(Some(pv))];
        for (n, reply) in existing.into_iter().enumerate() {
            let mut replies = absent();
            replies[n + 1] = Ok(reply);
            let (effects, report) = play(delete_of(leaked()), replies);
            assert_eq!(effects.len(), n + 2);
            assert_eq!(report.abort_reason, Some(DeletionRefusal::SignOfLife));
        }
    }

    #[test]
    fn a_read_that_fails_is_no_proof_of_absence() {
        let mut replies = absent();
        replies[1] = Err(EffectError::Cluster(ClusterError::Forbidden));
        let (effects, report) = play(delete_of(leaked()), replies);
        assert_eq!(effects, ["get", "read_claim"]);
        assert_eq!(report.error, Some(EffectError::Cluster(ClusterError::Forbidden)));
    }

    #[test]
    fn a_deleted_resource_is_neither_recorded_nor_deleted() {
        let (effects, report) = play(delete_of(leaked()), vec![Ok(Reply::Resource(None))]);
        assert_eq!(effects, ["get"]);
        assert_eq!((report.error, report.abort_reason), (None, None));
        assert_eq!(report.attempt.map(|a| a.outcome), Some(AttemptOutcome::Skipped));
    }

    /// Plays until the DELETE, or an answer to it, fails like this. Returns the names of effects, the report, and the
    /// last record.
    fn play_refused(after: Vec<Result<Reply, EffectError>>) -> (Vec<String>, CommandReport, Option<DeletionRecord>) {
        play_to_the_outcome(delete_of(leaked()), after)
    }

    fn play_to_the_outcome(
        delete: SweepDelete,
        after: Vec<Result<Reply, EffectError>>,
    ) -> (Vec<String>, CommandReport, Option<DeletionRecord>) {
        let mut script = SweepDeleteScript::new(delete, &settings());
        let mut replies = absent().into_iter().chain([Ok(Reply::Done)]).chain(after);
        let (mut effects, mut recorded, mut step) = (Vec::new(), None, script.step(None, start()));
        loop {
            step = match step {
                Step::Perform(effect) => {
                    if let Effect::Cluster(ClusterWrite::WriteRecords(change)) = &*effect {
                        recorded = change.deletions.last().cloned();
                    }
                    effects.push(effect.name().to_owned());
                    script.step(Some(replies.next().unwrap_or(Ok(Reply::Done))), start())
                }
                Step::Wait(_) => script.step(None, start()),
                Step::End(report) => return (effects, report, recorded),
            };
        }
    }

    #[test]
    fn a_refused_delete_does_not_count_and_is_tried_again_later() {
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
            let (effects, report, recorded) = play_refused(vec![Err(refused(code))]);
            assert_eq!(effects.last().unwrap(), "record", "{code:?}");
            assert_eq!(report.error, failed.then(|| refused(code)));
            let recorded = recorded.unwrap();
            assert_eq!(recorded.refused.is_some(), refused_for_sure, "{code:?}");
            assert_eq!(recorded.failures, u32::from(backs_off), "{code:?}");
        }
        let (_, report, _) = play_refused(vec![Err(refused(InUse))]);
        assert_eq!(report.abort_reason, Some(DeletionRefusal::SignOfLife), "Azure's own refusal is a sign of life");
    }

    #[test]
    fn a_resource_deleted_before_its_delete_is_skipped_and_not_collected() {
        for answer in [Ok(Reply::Absent), Err(refused(CloudErrorCode::NotFound))] {
            let (effects, report, recorded) = play_refused(vec![answer]);
            assert_eq!(effects[effects.len() - 2..], ["delete", "record"]);
            assert_eq!((report.error, report.abort_reason), (None, None));
            assert_eq!(report.attempt.map(|a| a.outcome), Some(AttemptOutcome::Skipped));
            assert_eq!(recorded.unwrap().refused.as_deref(), Some("not_found"), "it does not count for the cap");
        }
    }

    #[test]
    fn a_resource_that_an_earlier_attempt_may_have_deleted_keeps_counting() {
        use CloudErrorCode::*;
        let denied = [NotFound, Conflict, Throttled, Permission, Locked].map(|code| (Err(refused(code)), None));
        let in_use = (Err(refused(InUse)), Some("in_use"));
        for (answer, given_back) in [(Ok(Reply::Absent), None), in_use].into_iter().chain(denied) {
            let delete = SweepDelete { tried_before: true, ..delete_of(leaked()) };
            let (_, _, recorded) = play_to_the_outcome(delete, vec![answer.clone()]);
            assert_eq!(recorded.unwrap().refused.as_deref(), given_back, "{answer:?}");
        }
    }

    #[test]
    fn only_azures_own_refusal_gives_a_share_back() {
        for (error, sure) in [
            (EffectError::Cluster(ClusterError::Unavailable), false),
            (refused(CloudErrorCode::Unavailable), false),
            (refused(CloudErrorCode::Invalid), true),
            (EffectError::Blocked("the pause switch is set"), true),
        ] {
            let (_, _, recorded) = play_refused(vec![Err(error.clone())]);
            assert_eq!(recorded.unwrap().refused.is_some(), sure, "{error:?}");
        }
    }

    #[test]
    fn a_failed_operation_is_verified_by_a_get() {
        let accepted = || Ok(Reply::Accepted(OperationId(Arc::from("op"))));
        let found = |r| Ok(Reply::Resource(r));
        let failed_poll = || Err(refused(CloudErrorCode::Locked));
        let (effects, report, recorded) =
            play_refused(vec![accepted(), failed_poll(), found(Some(Arc::new(leaked())))]);
        assert_eq!(effects[effects.len() - 3..], ["poll", "get", "record"]);
        assert!(report.error.is_some());
        assert_eq!(recorded.unwrap().refused.as_deref(), Some("locked"));
        let (_, report, recorded) = play_refused(vec![accepted(), failed_poll(), found(None)]);
        assert_eq!((report.error, recorded.unwrap().refused), (None, None), "it is deleted nevertheless");
        let throttled = || Err(refused(CloudErrorCode::Throttled));
        let (effects, report, _) = play_refused(vec![accepted(), throttled(), throttled(), Ok(Reply::Done)]);
        assert_eq!(effects.iter().filter(|word| *word == "poll").count(), 3);
        assert_eq!(report.attempt.map(|a| a.outcome), Some(AttemptOutcome::Done), "a failed poll is repeated");
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
        let (effects, report) = play(delete_of(leaked()), replies);
        assert_eq!(effects.iter().filter(|word| *word == "poll").count(), 90);
        assert!(report.error.is_some());
    }

    #[test]
    fn the_last_look_wants_the_very_resource_that_was_listed() {
        type Change = fn(&mut CloudResource);
        let changes: [(Change, DeletionRefusal); 4] = [
            (|r| r.incarnation = Arc::from("other"), DeletionRefusal::Changed),
            (|r| drop(r.tags.pop_first()), DeletionRefusal::Changed),
            (|r| as_nic(r).vm = Some(group()), DeletionRefusal::SignOfLife),
            (|r| as_nic(r).serves = Some(Arc::from("x")), DeletionRefusal::SignOfLife),
        ];
        assert_eq!(final_check(&leaked(), &leaked()), Ok(()));
        for (change, refusal) in changes {
            let mut current = leaked();
            change(&mut current);
            assert_eq!(final_check(&leaked(), &current), Err(refusal));
        }
        let listed = data_disk("d");
        let changes: [(Change, DeletionRefusal); 3] = [
            (|r| as_disk(r).state = DiskState::Other(Arc::from("ActiveSAS")), DeletionRefusal::SignOfLife),
            (|r| as_disk(r).managed_by = vec![group()], DeletionRefusal::SignOfLife),
            (|r| as_disk(r).last_ownership_update = Some(start()), DeletionRefusal::Changed),
        ];
        for (change, refusal) in changes {
            let mut current = listed.clone();
            change(&mut current);
            assert_eq!(final_check(&listed, &current), Err(refusal));
        }
    }
}
