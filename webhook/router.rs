//! The router: which path answers what, within which limits?

use crate::basis::Basis;
use crate::checked::{self, BadPatch};
use crate::defaults::{self, Given};
use crate::guard::Guard;
use crate::hinter::{Hinter, NoAnswer, Snapshots};
use crate::metrics::Metrics;
use crate::object::{Content, Text, without_managed_fields};
use crate::review::{Answer, Asked, Request};
use crate::size::{MAX_VALUES, Size};
use crate::validate::Judge;
use crate::{mutate, validate};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use jiff::Timestamp;
use napkeeper_core::admission::blockers::ClusterBlockers;
use napkeeper_core::admission::placement_policy::PlacementPolicies;
use napkeeper_core::engine::clock::Clock;
use napkeeper_core::snapshot::Snapshot;
use napkeeper_serve::prometheus_client::registry::Registry;
use napkeeper_verdict::SchemaError;
use napkeeper_verdict::policy::Policies;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

const VALIDATE: &str = "/validate";
const MUTATE: &str = "/mutate";

/// Within what the webhook answers; past it, requests are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Objects that are judged at once, and pods that may wait for a hint.
    pub max_concurrency: usize,
    /// Longest time to judge an object; below the timeout of the hook configuration.
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
    validator: watch::Receiver<Arc<Basis>>,
    snapshots: Snapshots,
    hints: Hinter,
    deletion_protection: Guard,
    policies: Arc<Policies>,
    placement: watch::Receiver<Arc<PlacementPolicies>>,
    blockers: watch::Receiver<Arc<ClusterBlockers>>,
    namespace: String,
    limits: Limits,
    validation_slots: Arc<Semaphore>,
    large_object_slot: Arc<Semaphore>,
    /// The same for pods, which do not wait for objects.
    large_pod_slot: Arc<Semaphore>,
    metrics: Metrics,
}

/// The place of a large review among those that are worked on; of a usual one nothing.
type Turn = Option<OwnedSemaphorePermit>;

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
        let snapshots: Snapshots = snapshots;
        Ok(Self {
            validator: watch::channel(Arc::new(Basis::embedded()?)).1,
            hints: Hinter::start(snapshots.clone(), clock, limits.max_concurrency)?,
            snapshots,
            deletion_protection: Guard::default(),
            policies: Arc::default(),
            placement: watch::channel(Arc::default()).1,
            blockers: watch::channel(Arc::default()).1,
            namespace: namespace.to_owned(),
            limits,
            validation_slots: Arc::new(Semaphore::new(limits.max_concurrency)),
            large_object_slot: Arc::new(Semaphore::new(1)),
            large_pod_slot: Arc::new(Semaphore::new(1)),
            metrics: Metrics::register(registry),
        })
    }

    /// Waits until pods are answered by what is known of the cluster now.
    #[cfg(test)]
    pub(crate) async fn caught_up(&self) {
        self.hints.caught_up().await;
    }

    /// What it judges by.
    #[must_use]
    pub fn validator(&self) -> Arc<Basis> {
        Arc::clone(&self.validator.borrow())
    }

    /// The same webhook, judging by what Azure was last said to offer.
    #[must_use]
    pub fn with_validator(self, basis: watch::Receiver<Arc<Basis>>) -> Self {
        Self { validator: basis, ..self }
    }

    /// The same webhook, with another answer to deletes of what is in use.
    #[must_use]
    pub fn with_deletion_protection(self, guard: Guard) -> Self {
        Self { deletion_protection: guard, ..self }
    }

    /// The same webhook, giving pods what these policies say.
    #[must_use]
    pub fn with_placement_policies(self, placement: watch::Receiver<Arc<PlacementPolicies>>) -> Self {
        Self { placement, ..self }
    }

    /// Large reviews are not worked on two at a time: each may take much memory, and more than its time.
    fn acquire_large_slot(large: &Arc<Semaphore>, size: Size) -> Result<Turn, NoAnswer> {
        if size <= Size::Medium {
            return Ok(None);
        }
        Arc::clone(large).try_acquire_owned().map(Some).map_err(|_| NoAnswer::Overload)
    }

    /// The same webhook, judging by policies too.
    #[must_use]
    pub fn with_policies(self, policies: Arc<Policies>) -> Self {
        Self { policies, ..self }
    }

    /// The same webhook, that says what stands in the way of nodes.
    #[must_use]
    pub fn with_blockers(self, hindrances: watch::Receiver<Arc<ClusterBlockers>>) -> Self {
        Self { blockers: hindrances, ..self }
    }

    /// Judges what is short here, and what is longer on a thread for blocking work. One that is late keeps its places until
    /// it ends.
    async fn validate(&self, request: Request, size: Size) -> Result<Option<Answer>, NoAnswer> {
        let turn = Self::acquire_large_slot(&self.large_object_slot, size)?;
        let place = Arc::clone(&self.validation_slots).try_acquire_owned().map_err(|_| NoAnswer::Overload)?;
        let (basis, snapshot, guard) = (self.validator(), self.snapshots.borrow().clone(), self.deletion_protection);
        let (hindrances, policies) = (Arc::clone(&self.blockers.borrow()), Arc::clone(&self.policies));
        let by_rules_only = policies.is_empty();
        let judging = move || {
            let (snapshot, hindrances, policies) = (snapshot.as_deref(), &*hindrances, &*policies);
            let judge =
                Judge { validator: &basis, snapshot, blockers: hindrances, policies, deletion_protection: guard };
            let answer = validate::validate(&judge, request);
            drop((place, turn));
            answer
        };
        // What others' policies do with it is not ours to say.
        if by_rules_only && size == Size::Small {
            return catch_unwind(AssertUnwindSafe(judging)).map_err(|_| NoAnswer::Internal);
        }
        match tokio::time::timeout(self.limits.validate_timeout, tokio::task::spawn_blocking(judging)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(NoAnswer::Internal),
            Err(_) => Err(NoAnswer::Deadline),
        }
    }

    /// Gives a pod its defaults, and hints at where it will run then.
    async fn mutate(&self, request: Request<Text>, size: Size) -> Result<Option<Answer>, NoAnswer> {
        let Some(namespace) = mutate::pod_namespace(&request, &self.namespace) else { return Ok(None) };
        let _turn = Self::acquire_large_slot(&self.large_pod_slot, size)?;
        let Some(text) = &request.object else { return Ok(None) };
        let dry_run = request.dry_run.unwrap_or_default();
        let read = &mut serde_json::Deserializer::from_str(text.get());
        let Some(subject) = mutate::read_pod(read, namespace, dry_run) else { return Ok(None) };
        let placement = Arc::clone(&self.placement.borrow());
        // Only policies look at more of it.
        let object = if placement.policies.is_empty() { None } else { without_managed_fields(text).ok() };
        let given = match &object {
            None => defaults::without_policies(&subject),
            Some(object) => {
                defaults::apply_defaults(&placement, object, &subject, &request.uid).map_err(invalid_patch)?
            }
        };
        let (mut answer, mut subject, placed) = match given {
            Given::Unchanged => (Answer::allow(), subject, false),
            Given::UnknownPolicy(warning) => (Answer { warnings: vec![warning], ..Answer::allow() }, subject, false),
            Given::Patched(placed) => {
                let Some(subject) = mutate::read_pod(&placed.object, namespace, dry_run) else {
                    return Err(NoAnswer::InvalidPatch);
                };
                (Answer { patch: placed.patch, ..Answer::allow() }, subject, true)
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
            Err(why) if answer.patch.is_empty() => return Err(why),
            Err(why) => {
                // The defaults were asked for, whether or not there is time for a hint.
                self.metrics.failed(MUTATE, why.as_str());
                answer.warnings.push(fail_open_warning(MUTATE, why));
            }
        }
        match object.filter(|_| placed) {
            Some(object) => checked::check_patch(&object, &answer.patch),
            None => checked::check_annotation_patch(annotations.as_ref(), &answer.patch),
        }
        .map_err(invalid_patch)?;
        Ok((answer != Answer::allow()).then_some(answer))
    }

    fn respond(
        &self,
        path: &'static str,
        since: Instant,
        asked: &Asked,
        answer: Result<Option<Answer>, NoAnswer>,
    ) -> Response {
        let (outcome, answer) = match answer {
            Ok(None) => ("passed", Answer::allow()),
            Ok(Some(answer)) if answer.denial.is_some() => ("refused", answer),
            Ok(Some(answer)) if !answer.patch.is_empty() => ("patched", answer),
            Ok(Some(answer)) => ("allowed", answer),
            Err(why) => {
                self.metrics.failed(path, why.as_str());
                // Metrics count it; a line for each of hundreds a second would drown the log.
                tracing::debug!(path, reason = why.as_str(), "allowed without an opinion");
                ("failed_open", Answer { warnings: vec![fail_open_warning(path, why)], ..Answer::allow() })
            }
        };
        if let Some(refusal) = &answer.denial {
            self.metrics.denied(&refusal.rules);
            asked.log_denial(&refusal.rules);
        }
        self.metrics.answered(path, outcome, since.elapsed());
        let body = answer.to_review(&asked.uid).to_string();
        ([(CONTENT_TYPE, "application/json")], body).into_response()
    }

    fn reject_body(&self, path: &'static str, since: Instant, status: StatusCode, why: &str) -> Response {
        self.metrics.failed(path, "malformed");
        self.metrics.answered(path, "malformed", since.elapsed());
        (status, format!("{why}\n")).into_response()
    }
}

/// A patch that the API server would fail the request for.
fn invalid_patch(why: BadPatch) -> NoAnswer {
    tracing::debug!(%why, "patch not sent");
    NoAnswer::InvalidPatch
}

/// The request in a body with its size, or why there is none.
fn read_request<O: Content>(body: Result<Bytes, BytesRejection>) -> Result<(Request<O>, Size), (StatusCode, String)> {
    let body = body.map_err(|e| (e.status(), e.body_text()))?;
    let size = Size::of_body(&body);
    if size == Size::TooLarge {
        return Err((StatusCode::PAYLOAD_TOO_LARGE, format!("the request body has more than {MAX_VALUES} values")));
    }
    let request = Request::from_body(&body).map_err(|e| (StatusCode::BAD_REQUEST, e.to_string()))?;
    Ok((request, size))
}

fn fail_open_warning(path: &str, why: NoAnswer) -> String {
    let what = match why {
        _ if path != MUTATE => "this object was not checked",
        NoAnswer::InvalidPatch => "this pod gets neither defaults nor a placement hint",
        _ => "this pod has no placement hint",
    };
    let why = match why {
        NoAnswer::Overload => "too many concurrent requests",
        NoAnswer::Deadline => "timed out",
        NoAnswer::InvalidPatch => "the patch would have been rejected",
        NoAnswer::Internal => "internal error",
    };
    format!("napkeeper: {what}: {why}")
}

/// `POST /validate` for NodePools and AKSNodeClasses, `POST /mutate` for pods.
pub fn router(webhook: Arc<Webhook>) -> Router {
    Router::new().route(VALIDATE, post(on_validate)).route(MUTATE, post(on_mutate)).with_state(webhook)
}

/// A review that has been read.
struct Opened<O> {
    since: Instant,
    info: Asked,
    request: Request<O>,
    size: Size,
}

/// Opens a review, or says what is wrong with the body.
fn parse_review<O: Content>(
    webhook: &Webhook,
    path: &'static str,
    body: Result<Bytes, BytesRejection>,
) -> Result<Opened<O>, Box<Response>> {
    let since = Instant::now();
    let (request, size) =
        read_request(body).map_err(|(status, why)| Box::new(webhook.reject_body(path, since, status, &why)))?;
    Ok(Opened { since, info: Asked::from_request(&request), request, size })
}

async fn on_validate(State(webhook): State<Arc<Webhook>>, body: Result<Bytes, BytesRejection>) -> Response {
    match parse_review(&webhook, VALIDATE, body) {
        Ok(Opened { since, info: asked, request, size }) => {
            let answer = webhook.validate(request, size).await;
            webhook.respond(VALIDATE, since, &asked, answer)
        }
        Err(refused) => *refused,
    }
}

async fn on_mutate(State(webhook): State<Arc<Webhook>>, body: Result<Bytes, BytesRejection>) -> Response {
    match parse_review(&webhook, MUTATE, body) {
        Ok(Opened { since, info: asked, request, size }) => {
            let answer = webhook.mutate(request, size).await;
            webhook.respond(MUTATE, since, &asked, answer)
        }
        Err(refused) => *refused,
    }
}
