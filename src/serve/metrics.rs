//! The metrics registry, and the response to a scrape by Prometheus.

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::registry::Registry;
use std::sync::Arc;
use tokio::sync::Mutex;

/// A registry whose metrics are named `napkeeper_…`. All register before it goes to the [`router`].
#[must_use]
pub fn registry() -> Registry {
    Registry::with_prefix("napkeeper")
}

/// Bounds of latency histograms in seconds: from the duration of a decision in memory to the longest time limit.
pub const LATENCY_SECONDS: [f64; 11] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5];

/// `/metrics`, of all these registries. One scrape is answered at a time: that of a large cluster takes much memory.
pub fn router(registries: Vec<Registry>) -> Router {
    let (registries, turn): (Arc<[Registry]>, _) = (Arc::from(registries), Arc::new(Mutex::new(())));
    let scrape = move || async move {
        let turn = turn.lock_owned().await;
        // Of a large cluster it takes so long that other tasks would wait. It goes on where nobody waits for it any more.
        let encode = move || {
            let _turn = turn;
            answer(&registries)
        };
        let encoded = tokio::task::spawn_blocking(encode).await;
        encoded.unwrap_or_else(|error| (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response())
    };
    Router::new().route("/metrics", get(scrape))
}

/// The answer to a scrape.
fn answer(registries: &[Registry]) -> Response {
    let mut text = String::new();
    let mut encode = || {
        registries.iter().try_for_each(|registry| encode_registry(&mut text, registry))?;
        encode_eof(&mut text)
    };
    match encode() {
        Ok(()) => {
            ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("cannot encode metrics: {error}\n")).into_response(),
    }
}
