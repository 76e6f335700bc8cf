//! Health and readiness of the process, over HTTP with the reasons.

use crate::lifecycle::Lifecycle;
use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::routing::get;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// One reason for which a process may not be ready. Clones share it.
#[derive(Debug, Clone)]
pub struct Check {
    name: &'static str,
    failure: watch::Sender<Option<String>>,
}

impl Check {
    /// Passes.
    pub fn pass(&self) {
        self.set(None);
    }

    /// Fails, with a reason as text.
    pub fn fail(&self, failure: impl Into<String>) {
        self.set(Some(failure.into()));
    }

    fn set(&self, new: Option<String>) {
        self.failure.send_if_modified(|old| {
            let differs = *old != new;
            *old = new;
            differs
        });
    }

    /// Why it is not ready; `None` when it is.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }
}

/// What `/healthz` and `/readyz` answer from. Clones share it.
#[derive(Debug, Clone)]
pub struct Health {
    lifecycle: Lifecycle,
    checks: Arc<Mutex<Vec<Check>>>,
}

impl Health {
    /// Health of the process with this lifecycle.
    #[must_use]
    pub fn new(lifecycle: &Lifecycle) -> Self {
        Self { lifecycle: lifecycle.clone(), checks: Arc::default() }
    }

    /// Waits until the process would be ready but for this check.
    pub async fn wait_for_other_checks(&self, but: &Check) {
        let pending = || self.lines().iter().any(|(name, failure)| *name != but.name && failure.is_some());
        while pending() {
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    /// Adds a check, which fails until it passes.
    #[must_use]
    pub fn check(&self, name: &'static str) -> Check {
        let check = Check { name, failure: watch::Sender::new(Some("not started".to_owned())) };
        self.checks.lock().unwrap_or_else(PoisonError::into_inner).push(check.clone());
        check
    }

    /// True when the process is [ready](crate::Stage::Ready) and all checks pass.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.lines().iter().all(|(_, failure)| failure.is_none())
    }

    /// `/healthz` and `/readyz` (`?verbose` lists all checks), for a port of their own: a probe must not wait for
    /// anything else.
    pub fn router(&self) -> Router {
        Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz)).with_state(self.clone())
    }

    /// The stage, then each check, with its failure.
    fn lines(&self) -> Vec<(&'static str, Option<String>)> {
        let stage = self.lifecycle.stage();
        let failure = (!stage.is_ready()).then(|| format!("the process is {}", format!("{stage:?}").to_lowercase()));
        let checks = self.checks.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::once(("stage", failure)).chain(checks.iter().map(|c| (c.name, c.failure()))).collect()
    }
}

async fn healthz(State(health): State<Health>) -> (StatusCode, &'static str) {
    if health.lifecycle.stage().is_healthy() {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "stopped\n")
    }
}

async fn readyz(State(health): State<Health>, RawQuery(query): RawQuery) -> (StatusCode, String) {
    let lines = health.lines();
    let ready = lines.iter().all(|(_, failure)| failure.is_none());
    let verbose = query.is_some_and(|q| q.split('&').any(|part| part == "verbose" || part.starts_with("verbose=")));
    let mut text = String::new();
    for (name, failure) in lines {
        match failure {
            Some(failure) => text.push_str(&format!("[-] {name}: {failure}\n")),
            None if verbose => text.push_str(&format!("[+] {name}\n")),
            None => {}
        }
    }
    text.push_str(if ready { "ok\n" } else { "not ready\n" });
    (if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, text)
}
