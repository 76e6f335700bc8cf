//! The control endpoint, by which tests inspect and change the simulated Azure.
//!
//! It serves callers on this machine only. A body with an unknown field is rejected.

mod faults;
mod related_resources;
mod service_faults;
mod stage;
mod view;

use super::server::SimServer;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Path, Query, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use jiff::SignedDuration;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;

/// Why a control request failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ControlError {
    /// Its body is not valid.
    #[error("the body is not understood: {0}")]
    Body(#[from] serde_json::Error),
    /// A path to match is not a regular expression.
    #[error("path: {0}")]
    Path(#[from] regex::Error),
    /// A name or id is not valid.
    #[error(transparent)]
    Name(#[from] napkeeper_core::model::names::NameError),
    /// The simulated Azure rejects it.
    #[error(transparent)]
    Refused(#[from] napkeeper_sim::cloud::Refusal),
    /// A value is not allowed.
    #[error("{0}")]
    Value(String),
    /// It conflicts with the current state.
    #[error("{0}")]
    Conflict(&'static str),
    /// It does not exist.
    #[error("{0}")]
    Missing(String),
    /// The caller is on another machine.
    #[error("the control endpoint answers callers on this machine only")]
    Remote,
}

impl IntoResponse for ControlError {
    fn into_response(self) -> Response {
        let status = match &self {
            Self::Body(_) | Self::Path(_) | Self::Name(_) | Self::Value(_) => StatusCode::BAD_REQUEST,
            Self::Refused(_) | Self::Conflict(_) => StatusCode::CONFLICT,
            Self::Missing(_) => StatusCode::NOT_FOUND,
            Self::Remote => StatusCode::FORBIDDEN,
        };
        (status, Shown(json!({ "error": self.to_string() }))).into_response()
    }
}

/// Formatted JSON with a final line break, for people at a terminal.
struct Shown(Value);

impl IntoResponse for Shown {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(format!("{:#}\n", self.0)));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}

type Answer = Result<Shown, ControlError>;

/// Everything under `/control`.
pub(super) fn router() -> Router<Arc<SimServer>> {
    Router::new()
        .route("/state", get(state))
        .route("/ledger", get(ledger))
        .route("/requests", get(requests))
        .route("/clock", get(clock).post(advance))
        .route("/faults", get(show_faults).post(inject).delete(clear_all))
        .route("/faults/{id}", delete(clear))
        .route("/held", get(held))
        .route("/release", post(release))
        .route("/stage", post(stage))
        .fallback(nothing)
        .layer(middleware::from_fn(only_local_callers))
}

async fn only_local_callers(request: Request, next: Next) -> Result<Response, ControlError> {
    let caller = request.extensions().get::<ConnectInfo<SocketAddr>>();
    if caller.is_some_and(|ConnectInfo(address)| address.ip().to_canonical().is_loopback()) {
        return Ok(next.run(request).await);
    }
    Err(ControlError::Remote)
}

async fn nothing() -> ControlError {
    let known = "state, ledger, requests, clock, faults, held, release, stage";
    ControlError::Missing(format!("unknown control, expected one of: {known}"))
}

async fn state(State(served): State<Arc<SimServer>>) -> Shown {
    let (inner, now) = served.lock();
    Shown(view::state(&inner, now))
}

/// The entry from which a list is requested.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct From {
    #[serde(default)]
    from: u64,
}

async fn ledger(State(served): State<Arc<SimServer>>, Query(From { from }): Query<From>) -> Shown {
    Shown(view::ledger(&served.lock().0, from))
}

async fn requests(State(served): State<Arc<SimServer>>, Query(From { from }): Query<From>) -> Shown {
    Shown(view::requests(&served.lock().0, from))
}

async fn clock(State(served): State<Arc<SimServer>>) -> Shown {
    show_clock(&served)
}

fn show_clock(served: &SimServer) -> Shown {
    let (inner, now) = served.lock();
    let next = inner.cloud.next_event().map(|at| at.to_string());
    Shown(json!({ "mode": served.clock.mode(), "now": now.to_string(), "nextEvent": next }))
}

/// By how much to move the clock.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Advance {
    by: WireDuration,
}

async fn advance(State(served): State<Arc<SimServer>>, body: Bytes) -> Answer {
    let Advance { by: WireDuration(by) } = parse(&body)?;
    let moved = served.clock.advance(by);
    moved.ok_or(ControlError::Conflict(
        "only a virtual clock is moved here, and not beyond the calendar; shift a wall clock by --time-offset-file",
    ))?;
    Ok(show_clock(&served))
}

async fn show_faults(State(served): State<Arc<SimServer>>) -> Shown {
    Shown(faults::show(&served.lock().0))
}

async fn inject(State(served): State<Arc<SimServer>>, body: Bytes) -> Answer {
    let fault: faults::Fault = parse(&body)?;
    let (mut inner, now) = served.lock();
    faults::inject(&mut inner, fault, now).map(Shown)
}

async fn clear_all(State(served): State<Arc<SimServer>>) -> Shown {
    let (mut inner, _) = served.lock();
    faults::clear(&mut inner);
    Shown(faults::show(&inner))
}

async fn clear(State(served): State<Arc<SimServer>>, Path(id): Path<u64>) -> Answer {
    let (mut inner, _) = served.lock();
    if inner.request_faults.clear(id) {
        return Ok(Shown(faults::show(&inner)));
    }
    Err(ControlError::Missing(format!("fault {id} not found, or it has ended")))
}

async fn held(State(served): State<Arc<SimServer>>) -> Shown {
    Shown(json!({ "held": served.held.show() }))
}

/// Which request to release; all when none is named.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Release {
    id: Option<u64>,
}

async fn release(State(served): State<Arc<SimServer>>, body: Bytes) -> Answer {
    let Release { id } = if body.is_empty() { Release::default() } else { parse(&body)? };
    let released = served.held.release(id);
    match id {
        Some(id) if released == 0 => Err(ControlError::Missing(format!("request {id} is not being held"))),
        _ => Ok(Shown(json!({ "released": released }))),
    }
}

async fn stage(State(served): State<Arc<SimServer>>, body: Bytes) -> Answer {
    let change: stage::StagedChange = parse(&body)?;
    let (mut inner, now) = served.lock();
    stage::apply(&mut inner.cloud, change, now).map(Shown)
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ControlError> {
    Ok(serde_json::from_slice(body)?)
}

/// A duration such as `500ms`, `90s` or `1h30m`; never negative.
#[derive(Debug, Clone, Copy)]
pub(super) struct WireDuration(pub(super) SignedDuration);

impl<'de> Deserialize<'de> for WireDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let span: Option<SignedDuration> = text.parse().ok();
        let wrong = || serde::de::Error::custom(format!("{text:?} is not a duration such as 500ms, 90s or 1h30m"));
        span.filter(|span| !span.is_negative()).map(Self).ok_or_else(wrong)
    }
}
