//! Serves HTTP requests with the simulated Azure, and applies injected faults on the way.

use super::clock::SimClock;
use super::control;
use super::held_requests::{HeldRequest, HeldRequests};
use super::request_faults::{RequestFault, RequestFaults};
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::Response;
use axum::{Router, routing};
use jiff::{SignedDuration, Timestamp};
use napkeeper_sim::arm;
use napkeeper_sim::cloud::{Cloud, Refusal};
use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use uuid::Uuid;

/// Number of requests in the log.
const MAX_LOGGED: usize = 10_000;

/// The bearer token that callers must have. It is never shown.
#[derive(Clone)]
pub struct Token(pub String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// The server of a simulated Azure.
#[derive(Debug)]
pub(crate) struct SimServer {
    /// Its clock.
    pub(crate) clock: SimClock,
    /// Requests that are being held.
    pub(crate) held: Arc<HeldRequests>,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    token: Option<Token>,
    inner: Mutex<ServerState>,
}

/// The state, which one request at a time may use.
#[derive(Debug)]
pub(crate) struct ServerState {
    /// The simulated Azure.
    pub(crate) cloud: Cloud,
    /// Faults of requests.
    pub(crate) request_faults: RequestFaults,
    /// The last requests, oldest first.
    pub(crate) log: VecDeque<LoggedRequest>,
    /// How many requests there were.
    pub(crate) requests: u64,
    /// The latest time that Azure has seen: it never decreases.
    latest: Timestamp,
}

/// A request that was answered.
#[derive(Debug, Clone)]
pub(crate) struct LoggedRequest {
    /// Its number, from 1.
    pub(crate) id: u64,
    /// When it was answered.
    pub(crate) at: Timestamp,
    /// Its method.
    pub(crate) method: String,
    /// Its path and query.
    pub(crate) path: String,
    /// The status of the answer; 0 when the caller went away before there was one.
    pub(crate) status: u16,
}

impl SimServer {
    /// A server of this Azure, for callers with the token if there is one.
    pub(crate) fn new(cloud: Cloud, clock: SimClock, address: SocketAddr, token: Option<Token>) -> Self {
        let inner = ServerState {
            cloud,
            request_faults: RequestFaults::default(),
            log: VecDeque::new(),
            requests: 0,
            latest: clock.now(),
        };
        Self { clock, held: Arc::default(), address, token, inner: Mutex::new(inner) }
    }

    /// The state, with Azure at the present instant. Never held over an `await`.
    pub(crate) fn lock(&self) -> (MutexGuard<'_, ServerState>, Timestamp) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now().max(inner.latest);
        inner.latest = now;
        inner.cloud.advance(now);
        (inner, now)
    }

    /// Where callers find it.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// The routes of the server.
pub(crate) fn router(served: Arc<SimServer>) -> Router {
    Router::new().nest("/control", control::router()).fallback(routing::any(serve)).with_state(served)
}

/// A request, as received.
struct ReceivedRequest {
    id: u64,
    method: Method,
    path: String,
    origin: String,
    headers: HeaderMap,
    body: Bytes,
}

async fn serve(
    State(served): State<Arc<SimServer>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let path = uri.path_and_query().map_or_else(|| uri.path().to_owned(), ToString::to_string);
    let id = {
        let (mut inner, _) = served.lock();
        inner.requests += 1;
        inner.requests
    };
    let call = ReceivedRequest { id, method, path, origin: origin(&headers, &served), headers: headers.clone(), body };
    // The price list is public: no token is expected.
    let authorized = if uri.path() == arm::PRICES { Ok(()) } else { served.authorize(&headers) };
    let mut response = match authorized {
        Ok(()) => call.answer(&served).await,
        Err(refused) => served.respond(&call, refused),
    };
    set_request_ids(&mut response, &headers);
    response
}

impl SimServer {
    /// Checks the token of a caller.
    fn authorize(&self, headers: &HeaderMap) -> Result<(), arm::Response> {
        let Some(Token(token)) = &self.token else { return Ok(()) };
        let given = headers.get(header::AUTHORIZATION);
        if given.is_some_and(|given| given.as_bytes() == format!("Bearer {token}").as_bytes()) {
            return Ok(());
        }
        Err(arm::unauthorized(given.is_some()))
    }

    /// Logs an answer, and converts it.
    fn respond(&self, call: &ReceivedRequest, answer: arm::Response) -> Response {
        self.log(call, answer.status);
        http(answer)
    }

    fn log(&self, call: &ReceivedRequest, status: u16) {
        let (mut inner, at) = self.lock();
        if inner.log.len() >= MAX_LOGGED {
            inner.log.pop_front();
        }
        let (method, path) = (call.method.to_string(), call.path.clone());
        tracing::debug!(id = call.id, %method, path, status, "answered");
        inner.log.push_back(LoggedRequest { id: call.id, at, method, path, status });
    }
}

/// Logs a request whose caller disconnected while it was held: nothing else runs then.
struct AbandonedRequest<'a> {
    served: &'a SimServer,
    call: &'a ReceivedRequest,
    answered: bool,
}

impl Drop for AbandonedRequest<'_> {
    fn drop(&mut self) {
        if !self.answered {
            tracing::info!(id = self.call.id, "the caller of a held request disconnected");
            self.served.log(self.call, 0);
        }
    }
}

impl ReceivedRequest {
    async fn answer(&self, served: &Arc<SimServer>) -> Response {
        let fault = served.lock().0.request_faults.next_for(self.method.as_str(), &self.path);
        let answer = match fault {
            None => self.execute(served),
            Some(RequestFault::Throttle(secs)) => {
                arm::refused(&Refusal::Throttled { retry_after: SignedDuration::from_secs(secs) })
            }
            Some(RequestFault::Fail { status, code, message }) => arm::failure(status, &code, &message),
            Some(RequestFault::HangBefore) => {
                self.hold(served, "before").await;
                self.execute(served)
            }
            Some(RequestFault::HangAfter) => {
                let answer = self.execute(served);
                self.hold(served, "after").await;
                answer
            }
            Some(RequestFault::Garbage) => {
                let answer = self.execute(served);
                served.log(self, 200);
                tracing::debug!(id = self.id, status = answer.status, "garbled");
                return garbage();
            }
        };
        served.respond(self, answer)
    }

    fn execute(&self, served: &SimServer) -> arm::Response {
        let (mut inner, now) = served.lock();
        let headers = self.headers.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
        let request = arm::Request {
            method: self.method.as_str(),
            origin: &self.origin,
            path_and_query: &self.path,
            body: &self.body,
            conditions: arm::Conditions::of(headers),
        };
        arm::handle(&mut inner.cloud, &request, now)
    }

    async fn hold(&self, served: &Arc<SimServer>, when: &'static str) {
        let since = served.lock().1;
        let held = HeldRequest { since, when, method: self.method.to_string(), path: self.path.clone() };
        tracing::info!(id = self.id, when, method = %self.method, path = self.path, "held");
        let mut abandoned = AbandonedRequest { served, call: self, answered: false };
        served.held.hold(self.id, held).await;
        abandoned.answered = true;
    }
}

/// Scheme and host that the caller used.
fn origin(headers: &HeaderMap, served: &SimServer) -> String {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host.filter(|host| host.parse::<axum::http::uri::Authority>().is_ok());
    host.map_or_else(|| served.url(), |host| format!("http://{host}"))
}

fn http(answer: arm::Response) -> Response {
    let body = answer.body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let json = HeaderValue::from_static("application/json; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    for (name, value) in answer.headers {
        if let Ok(value) = HeaderValue::try_from(value) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    response
}

/// A response of a broken proxy.
fn garbage() -> Response {
    let mut response = Response::new(Body::from("<html><body>upstream connect err"));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html"));
    response
}

/// Adds the ids of ARM's logs to a response; the caller may provide the correlation id.
fn set_request_ids(response: &mut Response, request_headers: &HeaderMap) {
    const REQUEST: HeaderName = HeaderName::from_static("x-ms-request-id");
    const CORRELATION: HeaderName = HeaderName::from_static("x-ms-correlation-request-id");
    let new = || HeaderValue::try_from(Uuid::new_v4().to_string()).ok();
    let headers = response.headers_mut();
    if let Some(id) = new() {
        headers.insert(REQUEST, id);
    }
    if let Some(id) = request_headers.get(CORRELATION).cloned().or_else(new) {
        headers.insert(CORRELATION, id);
    }
}
