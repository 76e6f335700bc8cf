//! The metrics registry, and the response to a scrape by Prometheus.

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use std::sync::Arc;

/// A registry whose metrics are named `napkeeper_…`. All register before it goes to the [`router`].
#[must_use]
pub fn registry() -> Registry {
    Registry::with_prefix("napkeeper")
}

/// Bounds of latency histograms in seconds: from the duration of a decision in memory to the longest time limit.
pub const LATENCY_SECONDS: [f64; 11] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5];

/// `/metrics`.
pub fn router(registry: Registry) -> Router {
    let registry = Arc::new(registry);
    Router::new().route("/metrics", get(move || async move { answer(&registry) }))
}

/// The answer to a scrape.
fn answer(registry: &Registry) -> Response {
    let mut text = String::new();
    match encode(&mut text, registry) {
        Ok(()) => {
            ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("cannot encode metrics: {error}\n")).into_response(),
    }
}
