//! The router: which path answers what, within which limits?

use crate::basis::Basis;
use crate::checked::{self, BadPatch};
use crate::defaults::{self, Given};
use crate::guard::Guard;
use crate::hinter::{Hinter, NoAnswer, Snapshots};
use crate::metrics::Metrics;
use crate::object::{Content, Text, lean};
use crate::review::{Answer, Asked, Request};
use crate::size::{MOST_VALUES, Size};
use crate::traces::{Begun, Traces};
use crate::validate::Judge;
use crate::{mutate, validate};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
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
    pub concurrency: usize,
    /// Longest time to judge an object; below the timeout of the hook configuration.
    pub verdict: Duration,
    /// Longest time to wait for a hint.
    pub hint: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { concurrency: 64, verdict: Duration::from_millis(1000), hint: Duration::from_millis(5) }
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
    basis: watch::Receiver<Arc<Basis>>,
    snapshots: Snapshots,
    hinter: Hinter,
    guard: Guard,
    policies: Arc<Policies>,
    placement: watch::Receiver<Arc<PlacementPolicies>>,
    hindrances: watch::Receiver<Arc<ClusterBlockers>>,
    namespace: String,
    limits: Limits,
    judging: Arc<Semaphore>,
    large_objects: Arc<Semaphore>,
    /// The same for pods, which do not wait for objects.
    large_pods: Arc<Semaphore>,
    metrics: Metrics,
    traces: Option<Traces>,
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
            basis: watch::channel(Arc::new(Basis::embedded()?)).1,
            hinter: Hinter::start(snapshots.clone(), clock, limits.concurrency)?,
            snapshots,
            guard: Guard::default(),
            policies: Arc::default(),
            placement: watch::channel(Arc::default()).1,
            hindrances: watch::channel(Arc::default()).1,
            namespace: namespace.to_owned(),
            limits,
            judging: Arc::new(Semaphore::new(limits.concurrency)),
            large_objects: Arc::new(Semaphore::new(1)),
            large_pods: Arc::new(Semaphore::new(1)),
            metrics: Metrics::register(registry),
            traces: None,
        })
    }

    /// Waits until pods are answered by what is known of the cluster now.
    #[cfg(test)]
    pub(crate) async fn caught_up(&self) {
        self.hinter.caught_up().await;
    }

    /// What it judges by.
    #[must_use]
    pub fn basis(&self) -> Arc<Basis> {
        Arc::clone(&self.basis.borrow())
    }

    /// The same webhook, judging by what Azure was last said to offer.
    #[must_use]
    pub fn by(self, basis: watch::Receiver<Arc<Basis>>) -> Self {
        Self { basis, ..self }
    }

    /// The same webhook, with another answer to deletes of what is in use.
    #[must_use]
    pub fn guarding(self, guard: Guard) -> Self {
        Self { guard, ..self }
    }

    /// The same webhook, giving pods what these policies say.
    #[must_use]
    pub fn placing(self, placement: watch::Receiver<Arc<PlacementPolicies>>) -> Self {
        Self { placement, ..self }
    }

    /// Large reviews are not worked on two at a time: each may take much memory, and more than its time.
    fn turn(large: &Arc<Semaphore>, size: Size) -> Result<Turn, NoAnswer> {
        if size <= Size::Usual {
            return Ok(None);
        }
        Arc::clone(large).try_acquire_owned().map(Some).map_err(|_| NoAnswer::Overload)
    }

    /// The same webhook, judging by policies too.
    #[must_use]
    pub fn keeping(self, policies: Arc<Policies>) -> Self {
        Self { policies, ..self }
    }

    /// The same webhook, telling of each review.
    #[must_use]
    pub fn traced(self, traces: Option<Traces>) -> Self {
        Self { traces, ..self }
    }

    /// The same webhook, that says what stands in the way of nodes.
    #[must_use]
    pub fn hindered(self, hindrances: watch::Receiver<Arc<ClusterBlockers>>) -> Self {
        Self { hindrances, ..self }
    }

    /// Judges what is short here, and what is longer on a thread for blocking work. One that is late keeps its places until
    /// it ends.
    async fn judge(&self, request: Request, size: Size) -> Result<Option<Answer>, NoAnswer> {
        let turn = Self::turn(&self.large_objects, size)?;
        let place = Arc::clone(&self.judging).try_acquire_owned().map_err(|_| NoAnswer::Overload)?;
        let (basis, snapshot, guard) = (self.basis(), self.snapshots.borrow().clone(), self.guard);
        let (hindrances, policies) = (Arc::clone(&self.hindrances.borrow()), Arc::clone(&self.policies));
        let by_rules_only = policies.is_empty();
        let judging = move || {
            let (snapshot, hindrances, policies) = (snapshot.as_deref(), &*hindrances, &*policies);
            let judge = Judge { basis: &basis, snapshot, hindrances, policies, guard };
            let answer = validate::judge(&judge, request);
            drop((place, turn));
            answer
        };
        // What others' policies do with it is not ours to say.
        if by_rules_only && size == Size::Short {
            return catch_unwind(AssertUnwindSafe(judging)).map_err(|_| NoAnswer::Internal);
        }
        match tokio::time::timeout(self.limits.verdict, tokio::task::spawn_blocking(judging)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(NoAnswer::Internal),
            Err(_) => Err(NoAnswer::Deadline),
        }
    }

    /// Gives a pod its defaults, and hints at where it will run then.
    async fn mutate(&self, request: Request<Text>, size: Size) -> Result<Option<Answer>, NoAnswer> {
        let Some(namespace) = mutate::namespace(&request, &self.namespace) else { return Ok(None) };
        let _turn = Self::turn(&self.large_pods, size)?;
        let Some(text) = &request.object else { return Ok(None) };
        let dry_run = request.dry_run.unwrap_or_default();
        let read = &mut serde_json::Deserializer::from_str(text.get());
        let Some(subject) = mutate::subject(read, namespace, dry_run) else { return Ok(None) };
        let placement = Arc::clone(&self.placement.borrow());
        // Only policies look at more of it.
        let object = if placement.policies.is_empty() { None } else { lean(text).ok() };
        let given = match &object {
            None => defaults::none(&subject),
            Some(object) => defaults::give(&placement, object, &subject, &request.uid).map_err(not_sent)?,
        };
        let (mut answer, mut subject, placed) = match given {
            Given::Nothing => (Answer::allow(), subject, false),
            Given::Unknown(warning) => (Answer { warnings: vec![warning], ..Answer::allow() }, subject, false),
            Given::Placed(placed) => {
                let Some(subject) = mutate::subject(&placed.object, namespace, dry_run) else {
                    return Err(NoAnswer::Patch);
                };
                (Answer { patch: placed.patch, ..Answer::allow() }, subject, true)
            }
        };
        let annotations = subject.annotations.take();
        match self.hinter.ask(subject, self.limits.hint).await {
            Ok(None) => {}
            Ok(Some(hint)) => {
                self.metrics.hinted(hint.kind());
                answer.patch.extend(mutate::patch(annotations.as_ref(), &hint));
                answer.facts = (!answer.patch.is_empty()).then(|| self.basis.borrow().served(Timestamp::now()));
            }
            Err(why) if answer.patch.is_empty() => return Err(why),
            Err(why) => {
                // The defaults were asked for, whether or not there is time for a hint.
                self.metrics.failed(MUTATE, why.as_str());
                answer.warnings.push(unanswered(MUTATE, why));
            }
        }
        match object.filter(|_| placed) {
            Some(object) => checked::check(&object, &answer.patch),
            None => checked::check_hint(annotations.as_ref(), &answer.patch),
        }
        .map_err(not_sent)?;
        Ok((answer != Answer::allow()).then_some(answer))
    }

    fn finish(
        &self,
        path: &'static str,
        (since, begun): (Instant, Option<Begun>),
        asked: &Asked,
        answer: Result<Option<Answer>, NoAnswer>,
    ) -> Response {
        let (outcome, answer) = match answer {
            Ok(None) => ("passed", Answer::allow()),
            Ok(Some(answer)) if answer.refusal.is_some() => ("refused", answer),
            Ok(Some(answer)) if !answer.patch.is_empty() => ("patched", answer),
            Ok(Some(answer)) => ("allowed", answer),
            Err(why) => {
                self.metrics.failed(path, why.as_str());
                // Metrics count it; a line for each of hundreds a second would drown the log.
                tracing::debug!(path, reason = why.as_str(), "allowed without an opinion");
                ("failed_open", Answer { warnings: vec![unanswered(path, why)], ..Answer::allow() })
            }
        };
        if let Some(refusal) = &answer.refusal {
            self.metrics.denied(&refusal.rules);
            asked.refused(&refusal.rules);
        }
        let took = since.elapsed();
        self.metrics.answered(path, outcome, took);
        if let Some((traces, begun)) = self.traces.as_ref().zip(begun) {
            traces.end(begun, (path, outcome), &asked.uid, took);
        }
        let body = answer.review(&asked.uid).to_string();
        ([(CONTENT_TYPE, "application/json")], body).into_response()
    }

    fn refuse_body(&self, path: &'static str, since: Instant, status: StatusCode, why: &str) -> Response {
        self.metrics.failed(path, "malformed");
        self.metrics.answered(path, "malformed", since.elapsed());
        (status, format!("{why}\n")).into_response()
    }
}

/// A patch that the API server would fail the request for.
fn not_sent(why: BadPatch) -> NoAnswer {
    tracing::debug!(%why, "patch not sent");
    NoAnswer::Patch
}

/// The request in a body with its size, or why there is none.
fn read<O: Content>(body: Result<Bytes, BytesRejection>) -> Result<(Request<O>, Size), (StatusCode, String)> {
    let body = body.map_err(|e| (e.status(), e.body_text()))?;
    let size = Size::of(&body);
    if size == Size::TooLarge {
        return Err((StatusCode::PAYLOAD_TOO_LARGE, format!("the request body has more than {MOST_VALUES} values")));
    }
    let request = Request::read(&body).map_err(|e| (StatusCode::BAD_REQUEST, e.to_string()))?;
    Ok((request, size))
}

fn unanswered(path: &str, why: NoAnswer) -> String {
    let what = match why {
        _ if path != MUTATE => "this object was not checked",
        NoAnswer::Patch => "this pod gets neither defaults nor a placement hint",
        _ => "this pod has no placement hint",
    };
    let why = match why {
        NoAnswer::Overload => "too many concurrent requests",
        NoAnswer::Deadline => "timed out",
        NoAnswer::Patch => "the patch would have been rejected",
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
    times: (Instant, Option<Begun>),
    asked: Asked,
    request: Request<O>,
    size: Size,
}

/// Opens a review, or says what is wrong with the body.
fn open<O: Content>(
    webhook: &Webhook,
    path: &'static str,
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Opened<O>, Box<Response>> {
    let times = (Instant::now(), webhook.traces.as_ref().and_then(|_| Traces::begin(headers)));
    let (request, size) =
        read(body).map_err(|(status, why)| Box::new(webhook.refuse_body(path, times.0, status, &why)))?;
    Ok(Opened { times, asked: Asked::of(&request), request, size })
}

async fn on_validate(
    State(webhook): State<Arc<Webhook>>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    match open(&webhook, VALIDATE, &headers, body) {
        Ok(Opened { times, asked, request, size }) => {
            let answer = webhook.judge(request, size).await;
            webhook.finish(VALIDATE, times, &asked, answer)
        }
        Err(refused) => *refused,
    }
}

async fn on_mutate(
    State(webhook): State<Arc<Webhook>>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    match open(&webhook, MUTATE, &headers, body) {
        Ok(Opened { times, asked, request, size }) => {
            let answer = webhook.mutate(request, size).await;
            webhook.finish(MUTATE, times, &asked, answer)
        }
        Err(refused) => *refused,
    }
}
