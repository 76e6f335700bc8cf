//! How do spans of reviews reach a collector?
//!
//! By OTLP over HTTP in its JSON encoding (`POST /v1/traces`), in batches. What a collector does not take is counted and
//! forgotten: no answer ever waits for it, and the log says so seldom.

use anyhow::{Context, ensure};
use napkeeper_serve::Lifecycle;
use napkeeper_webhook::{Span, SpanCounts};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Url};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use uuid::Uuid;

/// Spans that may wait.
pub(crate) const WAITING: usize = 4_096;
/// Most spans in one request.
const BATCH: usize = 512;
/// Spans wait for company at most so long.
const EVERY: Duration = Duration::from_secs(2);
/// A request may take so long.
const TIMEOUT: Duration = Duration::from_secs(2);
/// While the process drains, spans of requests that are still open are waited for, less long than its grace time.
const LAST_SPANS: Duration = Duration::from_secs(22);
/// A collector that does not answer is complained of this often at the most.
const COMPLAIN_EVERY: Duration = Duration::from_secs(600);
/// The variable that says where to, for all programs.
const VARIABLE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// `SPAN_KIND_SERVER` of OTLP.
const SERVER: u8 = 2;

/// Where spans are sent; `None` when neither flag nor variable say so. The variable is for all programs, and may be meant
/// for those that speak gRPC: what is no URL is ignored there.
///
/// # Errors
/// When the flag is no URL by http or https.
pub(crate) fn endpoint(flag: Option<&str>) -> anyhow::Result<Option<Url>> {
    if let Some(text) = flag.filter(|text| !text.is_empty()) {
        return url(text).map(Some).context("--otlp-endpoint: must be a URL such as http://collector:4318");
    }
    let Some(text) = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty()) else { return Ok(None) };
    // The text may hold a password.
    Ok(url(&text).inspect_err(|_| tracing::warn!("{VARIABLE} is not an http or https URL: no traces are sent")).ok())
}

fn url(text: &str) -> anyhow::Result<Url> {
    let url = Url::parse(&format!("{}/v1/traces", text.trim_end_matches('/')))?;
    ensure!(matches!(url.scheme(), "http" | "https"), "unsupported scheme {}: must be http or https", url.scheme());
    Ok(url)
}

/// Sends spans.
#[derive(Debug)]
pub(crate) struct Exporter {
    pub(crate) endpoint: Url,
    pub(crate) spans: mpsc::Receiver<Span>,
    pub(crate) counts: SpanCounts,
}

impl Exporter {
    /// Sends until nobody makes spans any more, or the process must end.
    ///
    /// # Errors
    /// When there can be no client.
    pub(crate) async fn export(mut self, lifecycle: Lifecycle) -> anyhow::Result<()> {
        // The client asks for one, for whatever it will speak.
        drop(rustls::crypto::ring::default_provider().install_default());
        let client =
            Client::builder().no_proxy().timeout(TIMEOUT).build().context("cannot create the trace exporter")?;
        let end = async {
            lifecycle.draining().await;
            tokio::time::sleep(LAST_SPANS).await;
        };
        let mut end = std::pin::pin!(end);
        let mut batch = Vec::new();
        let mut complained: Option<Instant> = None;
        loop {
            let more = tokio::select! {
                more = collect(&mut self.spans, &mut batch, &lifecycle) => more,
                () = &mut end => false,
            };
            if !batch.is_empty() {
                let sent = self.send(&client, &batch).await;
                if let Err(error) = sent
                    && complained.is_none_or(|at| at.elapsed() > COMPLAIN_EVERY)
                {
                    // The whole chain of causes, but no address: it may hold a password.
                    let error = error.without_url();
                    tracing::warn!(%error, "cannot send spans; see napkeeper_webhook_spans_total");
                    complained = Some(Instant::now());
                }
                batch.clear();
            }
            if !more {
                return Ok(());
            }
        }
    }

    async fn send(&self, client: &Client, batch: &[Span]) -> reqwest::Result<()> {
        let request = client.post(self.endpoint.clone()).header(CONTENT_TYPE, "application/json");
        let sent = request.body(body(batch).to_string()).send().await.and_then(reqwest::Response::error_for_status);
        self.counts.add(if sent.is_ok() { "sent" } else { "failed" }, batch.len() as u64);
        sent.map(drop)
    }
}

/// Waits for spans, and then a while for more; false when there will be none. Whoever drains waits for no company.
async fn collect(spans: &mut mpsc::Receiver<Span>, batch: &mut Vec<Span>, lifecycle: &Lifecycle) -> bool {
    let Some(first) = spans.recv().await else { return false };
    batch.push(first);
    let fill = async {
        while batch.len() < BATCH {
            let left = BATCH - batch.len();
            if spans.recv_many(batch, left).await == 0 {
                return false;
            }
        }
        true
    };
    tokio::select! {
        more = fill => more,
        () = tokio::time::sleep(EVERY) => true,
        () = lifecycle.draining() => true,
    }
}

/// An `ExportTraceServiceRequest` of OTLP, as JSON.
fn body(batch: &[Span]) -> Value {
    let spans: Vec<Value> = batch.iter().map(span).collect();
    let service = text("service.name", "napkeeper-webhook");
    let version = text("service.version", env!("CARGO_PKG_VERSION"));
    json!({ "resourceSpans": [{
        "resource": { "attributes": [service, version] },
        "scopeSpans": [{ "scope": { "name": "napkeeper" }, "spans": spans }],
    }] })
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn span(Span { path, outcome, uid, parent, start, took }: &Span) -> Value {
    let trace = parent.as_ref().map_or_else(|| Uuid::new_v4().simple().to_string(), |parent| parent.trace.clone());
    let id: String = Uuid::new_v4().simple().to_string().chars().take(16).collect();
    let begun = start.as_nanosecond();
    let ended = begun.saturating_add(i128::try_from(took.as_nanos()).unwrap_or(i128::MAX));
    let mut span = json!({
        "traceId": trace,
        "spanId": id,
        "name": format!("POST {path}"),
        "kind": SERVER,
        "startTimeUnixNano": begun.to_string(),
        "endTimeUnixNano": ended.to_string(),
        "attributes": [
            text("url.path", path), text("napkeeper.admission.outcome", outcome), text("napkeeper.admission.uid", uid),
        ],
    });
    if let Some(parent) = parent {
        span["parentSpanId"] = json!(parent.span);
    }
    span
}

#[cfg(test)]
mod tests;
