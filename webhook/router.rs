//! Routes requests to `/validate` and `/mutate`, within limits of time, size and concurrency.

use crate::hints::{HintService, OfferingsCache, Snapshots};
use crate::metrics::Metrics;
use crate::mutate::{self, DefaultsOutcome, InvalidPatch};
use crate::review::{
    AdmissionResponse, DenialLog, MAX_VALUES, RawObject, Request, RequestSize, RequestSummary, ReviewObject,
    without_managed_fields,
};
use crate::unable::{UnableReason, WhenUnable, object_answer, pod_warning};
use crate::validate::{self, DeletionProtection, SourcedValidator, ValidationRunner, acquire_large_slot};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use jiff::Timestamp;
use napkeeper_core::admission::pdb_blockers::ClusterBlockers;
use napkeeper_core::admission::placement_policy::PlacementPolicies;
use napkeeper_core::engine::clock::Clock;
use napkeeper_core::snapshot::Snapshot;
use napkeeper_serve::prometheus_client::registry::Registry;
use napkeeper_verdict::SchemaError;
use napkeeper_verdict::policy::Policies;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, watch};

const VALIDATE: &str = "/validate";
const MUTATE: &str = "/mutate";

/// Limits of time and concurrency; past them, requests are not evaluated: see [`WhenUnable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Objects that are judged at once, and pods that may wait for a hint.
    pub max_concurrency: usize,
    /// Longest time to validate an object; below the timeout of the hook configuration.
    pub validate_timeout: Duration,
    /// Longest time to wait for a hint.
    pub hint_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_concurrency: 64,
            validate_timeout: Duration::from_millis(1000),
            hint_timeout: Duration::from_millis(5),
        }
    }
}

/// The webhook cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The embedded rules are broken.
    #[error(transparent)]
    Schemas(#[from] SchemaError),
    /// The thread for hints cannot be started.
    #[error("cannot start the placement hint thread: {0}")]
    Thread(#[from] io::Error),
}

/// What the paths answer from.
#[derive(Debug)]
pub struct Webhook {
    validator: watch::Receiver<Arc<SourcedValidator>>,
    snapshots: Snapshots,
    hints: HintService,
    deletion_protection: DeletionProtection,
    policies: Arc<Policies>,
    placement: watch::Receiver<Arc<PlacementPolicies>>,
    blockers: watch::Receiver<Arc<ClusterBlockers>>,
    when_unable: WhenUnable,
    /// Why the cluster is not known.
    unreadable: watch::Receiver<Option<String>>,
    namespace: String,
    limits: Limits,
    validations: ValidationRunner,
    /// Of pods, which do not wait for objects.
    large_pod_slot: Arc<Semaphore>,
    metrics: Metrics,
    denial_log: DenialLog,
}

impl Webhook {
    /// A webhook that runs in `namespace`, whose pods it leaves alone. Hints begin with the first of the `snapshots`,
    /// which must have [`Snapshot::instance_types`].
    ///
    /// # Errors
    /// [`StartError`].
    pub fn new(
        namespace: &str,
        snapshots: watch::Receiver<Option<Arc<Snapshot>>>,
        clock: Arc<dyn Clock>,
        limits: Limits,
        registry: &mut Registry,
    ) -> Result<Self, StartError> {
        let (snapshots, offerings): (Snapshots, _) = (snapshots, Arc::<OfferingsCache>::default());
        Ok(Self {
            validator: watch::channel(Arc::new(SourcedValidator::embedded()?)).1,
            hints: HintService::start(snapshots.clone(), clock, limits.max_concurrency, Arc::clone(&offerings))?,
            snapshots,
            deletion_protection: DeletionProtection::default(),
            policies: Arc::default(),
            placement: watch::channel(Arc::default()).1,
            blockers: watch::channel(Arc::default()).1,
            when_unable: WhenUnable::default(),
            unreadable: watch::channel(None).1,
            namespace: namespace.to_owned(),
            limits,
            validations: ValidationRunner::new(limits.max_concurrency, limits.validate_timeout, offerings),
            large_pod_slot: Arc::new(Semaphore::new(1)),
            metrics: Metrics::register(registry),
            denial_log: DenialLog::default(),
        })
    }

    /// Waits until hints use the newest snapshot of the cluster.
    #[cfg(test)]
    pub(crate) async fn caught_up(&self) {
        self.hints.caught_up().await;
    }

    /// What it judges by.
    fn validator(&self) -> Arc<SourcedValidator> {
        Arc::clone(&self.validator.borrow())
    }

    /// The same webhook, validating by the newest facts from Azure.
    #[must_use]
    pub fn with_validator(self, validator: watch::Receiver<Arc<SourcedValidator>>) -> Self {
        Self { validator, ..self }
    }

    /// The same webhook, with another answer to deletes of objects in use.
    #[must_use]
    pub fn with_deletion_protection(self, protection: DeletionProtection) -> Self {
        Self { deletion_protection: protection, ..self }
    }

    /// The same webhook, giving pods the defaults of these policies.
    #[must_use]
    pub fn with_placement_policies(self, placement: watch::Receiver<Arc<PlacementPolicies>>) -> Self {
        Self { placement, ..self }
    }

    /// The same webhook, validation by policies too.
    #[must_use]
    pub fn with_policies(self, policies: Arc<Policies>) -> Self {
        Self { policies, ..self }
    }

    /// The same webhook, reporting what blocks nodes.
    #[must_use]
    pub fn with_blockers(self, blockers: watch::Receiver<Arc<ClusterBlockers>>) -> Self {
        Self { blockers, ..self }
    }

    /// The same webhook, with another answer to objects that cannot be checked. While there is no snapshot, or
    /// `unreadable` has a reason, the cluster is not known.
    #[must_use]
    pub fn with_when_unable(self, when_unable: WhenUnable, unreadable: watch::Receiver<Option<String>>) -> Self {
        Self { when_unable, unreadable, ..self }
    }

    /// Why an object cannot be checked whatever it is.
    fn check_view(&self, request: &Request) -> Result<(), UnableReason> {
        let needs_view = self.when_unable == WhenUnable::Refuse && validate::is_judged(request);
        let is_known = || self.snapshots.borrow().is_some() && self.unreadable.borrow().is_none();
        if needs_view && !is_known() { Err(UnableReason::UnknownCluster) } else { Ok(()) }
    }

    async fn validate(&self, request: Request, size: RequestSize) -> Result<Option<AdmissionResponse>, UnableReason> {
        self.check_view(&request)?;
        let inputs = validate::Inputs {
            validator: self.validator(),
            snapshot: self.snapshots.borrow().clone(),
            blockers: Arc::clone(&self.blockers.borrow()),
            policies: Arc::clone(&self.policies),
            deletion_protection: self.deletion_protection,
        };
        self.validations.run(inputs, request, size).await
    }

    /// Gives a pod its defaults, and hints at where it will run then.
    async fn mutate(
        &self,
        request: Request<RawObject>,
        size: RequestSize,
    ) -> Result<Option<AdmissionResponse>, UnableReason> {
        let Some(namespace) = mutate::pod_namespace(&request, &self.namespace) else { return Ok(None) };
        let _turn = acquire_large_slot(&self.large_pod_slot, size)?;
        let Some(text) = &request.object else { return Ok(None) };
        let dry_run = request.dry_run.unwrap_or_default();
        let Some(subject) = mutate::read_pod(text.get(), namespace, dry_run) else { return Ok(None) };
        let placement = Arc::clone(&self.placement.borrow());
        // Only policies look at more of it.
        let object = if placement.policies.is_empty() { None } else { without_managed_fields(text).ok() };
        let defaults = match &object {
            None => mutate::without_policies(&subject),
            Some(object) => {
                mutate::apply_defaults(&placement, object, &subject, &request.uid).map_err(invalid_patch)?
            }
        };
        let (mut answer, mut subject, has_defaults) = match defaults {
            DefaultsOutcome::Unchanged => (AdmissionResponse::allow(), subject, false),
            DefaultsOutcome::UnknownPolicy(warning) => {
                (AdmissionResponse { warnings: vec![warning], ..AdmissionResponse::allow() }, subject, false)
            }
            DefaultsOutcome::Patched(has_defaults) => {
                let Some(subject) = mutate::read_pod(&has_defaults.object.to_string(), namespace, dry_run) else {
                    return Err(UnableReason::InvalidPatch);
                };
                (AdmissionResponse { patch: has_defaults.patch, ..AdmissionResponse::allow() }, subject, true)
            }
        };
        let annotations = subject.annotations.take();
        match self.hints.request_hint(subject, self.limits.hint_timeout).await {
            Ok(None) => {}
            Ok(Some(hint)) => {
                self.metrics.hinted(hint.metric_label());
                answer.patch.extend(mutate::hint_patch(annotations.as_ref(), &hint));
                answer.facts =
                    (!answer.patch.is_empty()).then(|| self.validator.borrow().describe_sources(Timestamp::now()));
            }
            Err(reason) if answer.patch.is_empty() => return Err(reason),
            Err(reason) => {
                // The defaults are wanted, whether or not there is time for a hint.
                self.metrics.failed(MUTATE, reason.as_str());
                answer.warnings.push(pod_warning(reason));
            }
        }
        match object.filter(|_| has_defaults) {
            Some(object) => mutate::check_patch(&object, &answer.patch),
            None => mutate::check_annotation_patch(annotations.as_ref(), &answer.patch),
        }
        .map_err(invalid_patch)?;
        Ok((answer != AdmissionResponse::allow()).then_some(answer))
    }

    fn respond(
        &self,
        path: &'static str,
        since: Instant,
        summary: &RequestSummary,
        answer: Result<Option<AdmissionResponse>, UnableReason>,
    ) -> Response {
        let (outcome, answer) = match answer {
            Ok(None) => ("passed", AdmissionResponse::allow()),
            Ok(Some(answer)) if answer.denial.is_some() => ("refused", answer),
            Ok(Some(answer)) if !answer.patch.is_empty() => ("patched", answer),
            Ok(Some(answer)) => ("allowed", answer),
            Err(reason) => {
                self.metrics.failed(path, reason.as_str());
                // Metrics count it; a line for each of hundreds a second would drown the log.
                tracing::debug!(path, reason = reason.as_str(), "not evaluated");
                self.answer_unable(path, reason)
            }
        };
        if let Some(refusal) = answer.denial.as_ref().filter(|refusal| !refusal.unable) {
            self.metrics.denied(&refusal.rules);
            self.denial_log.log(summary, &refusal.rules, Instant::now());
        }
        self.metrics.answered(path, outcome, since.elapsed());
        let body = answer.to_review(&summary.uid).to_string();
        ([(CONTENT_TYPE, "application/json")], body).into_response()
    }

    /// The outcome and the answer of a request that was not evaluated.
    fn answer_unable(&self, path: &'static str, reason: UnableReason) -> (&'static str, AdmissionResponse) {
        if path == MUTATE {
            let warnings = vec![pod_warning(reason)];
            return ("failed_open", AdmissionResponse { warnings, ..AdmissionResponse::allow() });
        }
        let unreadable = self.unreadable.borrow().clone().filter(|_| reason == UnableReason::UnknownCluster);
        let answer = object_answer(self.when_unable, reason, &unreadable.unwrap_or_default());
        (if answer.denial.is_some() { "failed_closed" } else { "failed_open" }, answer)
    }

    fn reject_body(&self, path: &'static str, since: Instant, status: StatusCode, reason: &str) -> Response {
        self.metrics.failed(path, "malformed");
        self.metrics.answered(path, "malformed", since.elapsed());
        (status, format!("{reason}\n")).into_response()
    }
}

/// A patch that the API server would fail the request for.
fn invalid_patch(reason: InvalidPatch) -> UnableReason {
    tracing::debug!(%reason, "patch not sent");
    UnableReason::InvalidPatch
}

/// The request in a body with its size, or the reason why there is none.
fn read_request<O: ReviewObject>(
    body: Result<Bytes, BytesRejection>,
) -> Result<(Request<O>, RequestSize), (StatusCode, String)> {
    let body = body.map_err(|e| (e.status(), e.body_text()))?;
    let size = RequestSize::of_body(&body);
    if size == RequestSize::TooLarge {
        return Err((StatusCode::PAYLOAD_TOO_LARGE, format!("the request body has more than {MAX_VALUES} values")));
    }
    let request = Request::from_body(&body).map_err(|e| (StatusCode::BAD_REQUEST, e.to_string()))?;
    Ok((request, size))
}

/// `POST /validate` for NodePools and AKSNodeClasses, `POST /mutate` for pods.
pub fn router(webhook: Arc<Webhook>) -> Router {
    Router::new().route(VALIDATE, post(on_validate)).route(MUTATE, post(on_mutate)).with_state(webhook)
}

/// A review that has been read.
struct ParsedReview<O> {
    since: Instant,
    summary: RequestSummary,
    request: Request<O>,
    size: RequestSize,
}

/// Opens a review, or says what is wrong with the body.
fn parse_review<O: ReviewObject>(
    webhook: &Webhook,
    path: &'static str,
    body: Result<Bytes, BytesRejection>,
) -> Result<ParsedReview<O>, Box<Response>> {
    let since = Instant::now();
    let (request, size) =
        read_request(body).map_err(|(status, reason)| Box::new(webhook.reject_body(path, since, status, &reason)))?;
    Ok(ParsedReview { since, summary: RequestSummary::from_request(&request), request, size })
}

async fn on_validate(State(webhook): State<Arc<Webhook>>, body: Result<Bytes, BytesRejection>) -> Response {
    match parse_review(&webhook, VALIDATE, body) {
        Ok(ParsedReview { since, summary, request, size }) => {
            let answer = webhook.validate(request, size).await;
            webhook.respond(VALIDATE, since, &summary, answer)
        }
        Err(refused) => *refused,
    }
}

async fn on_mutate(State(webhook): State<Arc<Webhook>>, body: Result<Bytes, BytesRejection>) -> Response {
    match parse_review(&webhook, MUTATE, body) {
        Ok(ParsedReview { since, summary, request, size }) => {
            let answer = webhook.mutate(request, size).await;
            webhook.respond(MUTATE, since, &summary, answer)
        }
        Err(refused) => *refused,
    }
}
