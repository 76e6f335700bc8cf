//! A proxy for the API server that drops or rejects chosen requests of a client, or their responses.
//!
//! It forwards everything between a client under test and the API server, and holds or rejects requests that match a
//! rule. A held request is announced, so that a test can kill the client at exactly that point.

use anyhow::Context;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use http::{HeaderMap, Method, StatusCode, Uri, header};
use jiff::fmt::rfc2822::DateTimePrinter;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use std::collections::VecDeque;
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

/// What becomes of a request that a rule names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It never reaches the API server, and is never answered.
    HeldBefore,
    /// It reaches the API server, and its answer never reaches the client.
    HeldAfter,
    /// It is refused with this status.
    Refused(u16),
}

/// Which requests meet a fate.
#[derive(Debug, Clone)]
pub struct Rule {
    /// The method.
    pub method: Method,
    /// Every one of these is part of the path and query.
    pub path: Vec<&'static str>,
    /// None of these is part of it.
    pub not: Vec<&'static str>,
    /// Part of the body; empty is any.
    pub body: &'static str,
    /// Its fate.
    pub fate: Fate,
    /// How many requests meet it.
    pub times: usize,
}

/// A request that is, or was, held or refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Met {
    /// `PATCH /api/v1/nodes/a`.
    pub request: String,
    /// Its fate.
    pub fate: Fate,
}

/// A running proxy.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
    token: String,
}

#[derive(Debug)]
struct Shared {
    origin: String,
    client: reqwest::Client,
    token: String,
    state: Mutex<Rules>,
    met: Notify,
    /// Answers of an older generation end.
    generation: watch::Sender<u64>,
    /// By so many seconds the times of answers are wrong.
    clock_error: AtomicI64,
}

#[derive(Debug, Default)]
struct Rules {
    rules: Vec<Rule>,
    met: VecDeque<Met>,
    seen: Vec<String>,
}

/// Most requests that are remembered.
const REMEMBERED: usize = 20_000;

impl FaultProxy {
    /// Starts a proxy for the API server at `origin`, trusting its CA. Requests go on with this bearer token.
    ///
    /// # Errors
    /// If no port can be bound, or the CA is invalid.
    pub async fn start(origin: &str, ca: &[u8], token: &str) -> anyhow::Result<Self> {
        let client = reqwest::Client::builder()
            .add_root_certificate(reqwest::Certificate::from_pem(ca)?)
            .use_rustls_tls()
            .build()
            .context("making the client of the proxy")?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            origin: origin.trim_end_matches('/').to_owned(),
            client,
            token: token.to_owned(),
            state: Mutex::default(),
            met: Notify::new(),
            generation: watch::Sender::new(0),
            clock_error: AtomicI64::new(0),
        });
        let router = Router::new().fallback(pass).with_state(Arc::clone(&shared));
        let server = tokio::spawn(async move { drop(axum::serve(listener, router).await) });
        Ok(Self { address, shared, server, token: token.to_owned() })
    }

    /// Writes a kubeconfig for the proxy.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn kubeconfig(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        let mut text = String::new();
        writeln!(text, "apiVersion: v1\nkind: Config\ncurrent-context: proxy")?;
        writeln!(text, "clusters: [{{name: proxy, cluster: {{server: \"http://{}\"}}}}]", self.address)?;
        writeln!(text, "users: [{{name: proxy, user: {{token: {}}}}}]", self.token)?;
        writeln!(text, "contexts: [{{name: proxy, context: {{cluster: proxy, user: proxy}}}}]")?;
        let file = folder.join("proxy.kubeconfig");
        std::fs::write(&file, text)?;
        Ok(file)
    }

    /// From now on, requests meet this rule.
    pub fn rule(&self, rule: Rule) {
        self.state().rules.push(rule);
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.state().rules.clear();
    }

    /// The rules that have not been met as often as they should.
    #[must_use]
    pub fn unmet(&self) -> Vec<Rule> {
        self.state().rules.iter().filter(|rule| rule.times > 0).cloned().collect()
    }

    /// Ends every open response, such as watches: clients then retry.
    pub fn break_connections(&self) {
        self.shared.generation.send_modify(|n| *n += 1);
    }

    /// From now on, the API server's clock seems to be ahead by so much.
    pub fn set_clock_ahead(&self, ahead: SignedDuration) {
        self.shared.clock_error.store(ahead.as_secs(), Ordering::SeqCst);
    }

    /// The next request that matches a rule; `None` after the timeout.
    pub async fn met(&self, longest: Duration) -> Option<Met> {
        let end = Instant::now() + longest;
        loop {
            let notified = self.shared.met.notified();
            if let Some(met) = self.state().met.pop_front() {
                return Some(met);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || tokio::time::timeout(left, notified).await.is_err() {
                return self.state().met.pop_front();
            }
        }
    }

    /// Every request so far that was not a GET, as `PATCH /api/v1/nodes/a`.
    #[must_use]
    pub fn writes(&self) -> Vec<String> {
        self.state().seen.iter().filter(|request| !request.starts_with("GET ")).cloned().collect()
    }

    /// How many requests there were.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.state().seen.len()
    }

    /// All requests so far are known, and not only the first ones.
    #[must_use]
    pub fn remembers(&self) -> bool {
        self.requests() < REMEMBERED
    }

    fn state(&self) -> std::sync::MutexGuard<'_, Rules> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Shared {
    /// The fate of a request, if a rule names it.
    fn fate(&self, method: &Method, uri: &Uri, body: &[u8]) -> Option<Fate> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let path = uri.path_and_query().map_or("", |p| p.as_str()).to_owned();
        let request = format!("{method} {path}");
        if state.seen.len() < REMEMBERED {
            state.seen.push(request);
        }
        let body = String::from_utf8_lossy(body);
        let named = |rule: &Rule| {
            rule.times > 0
                && rule.method == *method
                && rule.path.iter().all(|part| path.contains(part))
                && !rule.not.iter().any(|part| path.contains(part))
                && body.contains(rule.body)
        };
        let rule = state.rules.iter_mut().find(|rule| named(rule))?;
        rule.times -= 1;
        Some(rule.fate)
    }

    fn tell(&self, method: &Method, uri: &Uri, fate: Fate) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.met.push_back(Met { request: format!("{method} {uri}"), fate });
        self.met.notify_waiters();
    }

    /// Ends when connections are broken.
    fn broken(&self) -> impl Future<Output = ()> + use<> {
        let mut generation = self.generation.subscribe();
        async move { drop(generation.changed().await) }
    }

    /// The time of an answer.
    fn date(&self) -> String {
        let time = Timestamp::now() + SignedDuration::from_secs(self.clock_error.load(Ordering::SeqCst));
        DateTimePrinter::new().timestamp_to_rfc9110_string(&time).unwrap_or_default()
    }

    async fn forward(&self, method: Method, uri: &Uri, headers: &HeaderMap, body: Bytes) -> Response {
        let url = format!("{}{}", self.origin, uri.path_and_query().map_or("/", |p| p.as_str()));
        let mut request = self.client.request(method, url).bearer_auth(&self.token).body(body);
        for name in [header::ACCEPT, header::CONTENT_TYPE, header::USER_AGENT] {
            if let Some(value) = headers.get(&name) {
                request = request.header(name, value);
            }
        }
        match request.send().await {
            Ok(response) => {
                let mut builder = Response::builder().status(response.status()).header(header::DATE, self.date());
                for name in [header::CONTENT_TYPE, header::RETRY_AFTER] {
                    if let Some(value) = response.headers().get(&name) {
                        builder = builder.header(name, value);
                    }
                }
                let body = Body::from_stream(response.bytes_stream().take_until(self.broken()));
                builder.body(body).unwrap_or_else(|_| StatusCode::BAD_GATEWAY.into_response())
            }
            Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
        }
    }
}

async fn pass(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, 8 << 20).await else { return StatusCode::BAD_REQUEST.into_response() };
    let (method, uri) = (parts.method.clone(), parts.uri.clone());
    match shared.fate(&method, &uri, &body) {
        None if method == Method::GET => shared.forward(method, &uri, &parts.headers, body).await,
        // A write that has arrived takes its course, even if its client is killed meanwhile.
        None => {
            let headers = parts.headers.clone();
            let course = tokio::spawn(async move { shared.forward(method, &uri, &headers, body).await });
            course.await.unwrap_or_else(|_| StatusCode::BAD_GATEWAY.into_response())
        }
        Some(fate @ Fate::Refused(status)) => {
            shared.tell(&method, &uri, fate);
            refuse(status)
        }
        Some(fate) => {
            if fate == Fate::HeldAfter {
                let (shared, headers) = (Arc::clone(&shared), parts.headers.clone());
                let (method, uri) = (method.clone(), uri.clone());
                let course = tokio::spawn(async move {
                    let answer = shared.forward(method.clone(), &uri, &headers, body).await;
                    drop(axum::body::to_bytes(answer.into_body(), 8 << 20).await);
                    shared.tell(&method, &uri, fate);
                });
                drop(course.await);
            } else {
                shared.tell(&method, &uri, fate);
            }
            std::future::pending().await
        }
    }
}

/// As the API server would refuse.
fn refuse(status: u16) -> Response {
    let reason = match status {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        429 => "TooManyRequests",
        _ => "InternalError",
    };
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "refused by a rule of the test", "reason": reason, "code": status,
    });
    let code = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (code, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}
