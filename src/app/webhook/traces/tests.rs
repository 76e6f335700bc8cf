//! Spans against a small collector.

use super::*;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use jiff::Timestamp;
use napkeeper_serve::metrics;
use napkeeper_serve::prometheus_client::encoding::text::encode;
use napkeeper_webhook::Parent;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// A collector that answers with a status, and hands on what it gets.
async fn collector(status: StatusCode) -> (Url, mpsc::UnboundedReceiver<Value>) {
    let (got, bodies) = mpsc::unbounded_channel();
    let take = move |State(got): State<mpsc::UnboundedSender<Value>>, body: String| async move {
        got.send(serde_json::from_str(&body).unwrap()).unwrap();
        status
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().route("/v1/traces", post(take)).with_state(got);
    tokio::spawn(async move { axum::serve(listener, router).await });
    (endpoint(Some(&base)).unwrap().unwrap(), bodies)
}

fn one(uid: &str, parent: Option<Parent>) -> Span {
    let start = Timestamp::from_second(1_790_000_000).unwrap();
    Span { path: "/mutate", outcome: "patched", uid: uid.to_owned(), parent, start, took: Duration::from_millis(3) }
}

/// Runs an exporter over spans, which then end, and what it counted.
async fn export(endpoint: Url, spans: Vec<Span>, lifecycle: Lifecycle) -> String {
    let mut registry = metrics::registry();
    let counts = SpanCounts::register(&mut registry);
    let (queue, waiting) = mpsc::channel(WAITING);
    for span in spans {
        queue.try_send(span).unwrap();
    }
    drop(queue);
    Exporter { endpoint, spans: waiting, counts }.export(lifecycle).await.unwrap();
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    text
}

#[tokio::test]
async fn spans_reach_a_collector_with_path_outcome_uid_and_parent() {
    let (url, mut bodies) = collector(StatusCode::OK).await;
    let parent = Parent { trace: TRACE.to_owned(), span: "00f067aa0ba902b7".to_owned() };
    let counted = export(url, vec![one("u1", Some(parent)), one("u2", None)], Lifecycle::default()).await;
    assert!(counted.contains("napkeeper_webhook_spans_total{result=\"sent\"} 2"), "{counted}");
    let body = bodies.recv().await.unwrap();
    let resource = &body["resourceSpans"][0];
    assert_eq!(resource["resource"]["attributes"][0], text("service.name", "napkeeper-webhook"));
    let spans = resource["scopeSpans"][0]["spans"].as_array().unwrap();
    assert_eq!(spans.len(), 2);
    assert_eq!((&spans[0]["traceId"], &spans[0]["parentSpanId"]), (&json!(TRACE), &json!("00f067aa0ba902b7")));
    assert_eq!(spans[0]["startTimeUnixNano"], "1790000000000000000");
    assert_eq!(spans[0]["endTimeUnixNano"], "1790000000003000000");
    let expected =
        [("url.path", "/mutate"), ("napkeeper.admission.outcome", "patched"), ("napkeeper.admission.uid", "u1")];
    assert_eq!(spans[0]["attributes"], Value::from_iter(expected.map(|(key, value)| text(key, value))));
    assert!(spans[1]["parentSpanId"].is_null());
    let is_hex =
        |id: &Value, n: usize| id.as_str().is_some_and(|t| t.len() == n && t.chars().all(|c| c.is_ascii_hexdigit()));
    assert!(is_hex(&spans[1]["traceId"], 32) && is_hex(&spans[1]["spanId"], 16), "{}", spans[1]);
    assert_ne!(spans[0]["spanId"], spans[1]["spanId"]);
}

#[tokio::test]
async fn many_spans_go_in_several_requests_and_a_refusal_is_counted() {
    let (url, mut bodies) = collector(StatusCode::SERVICE_UNAVAILABLE).await;
    let spans = (0..BATCH + 1).map(|n| one(&n.to_string(), None)).collect();
    let counted = export(url, spans, Lifecycle::default()).await;
    assert!(counted.contains(&format!("{{result=\"failed\"}} {}", BATCH + 1)), "{counted}");
    let sizes = |body: Value| body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().map_or(0, Vec::len);
    let mut seen = 0;
    while let Ok(body) = bodies.try_recv() {
        let size = sizes(body);
        assert!(size <= BATCH, "{size}");
        seen += size;
    }
    assert_eq!(seen, BATCH + 1);
}

#[tokio::test]
async fn a_collector_that_never_answers_holds_an_end_up_for_its_time_limit_only() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = endpoint(Some(&format!("http://{}/", silent.local_addr().unwrap()))).unwrap().unwrap();
    let lifecycle = Lifecycle::default();
    lifecycle.drain();
    let start = Instant::now();
    let counted = export(url, vec![one("u1", None)], lifecycle).await;
    assert!(counted.contains("{result=\"failed\"} 1"), "{counted}");
    assert!(start.elapsed() < TIMEOUT * 3, "{:?}", start.elapsed());
}

#[test]
fn an_endpoint_is_a_url_by_http() {
    assert_eq!(endpoint(Some("http://c:4318/")).unwrap().unwrap().as_str(), "http://c:4318/v1/traces");
    for wrong in ["collector:4317", "no url", "file:///x"] {
        let error = format!("{:#}", endpoint(Some(wrong)).unwrap_err());
        assert!(error.contains("--otlp-endpoint") && error.contains("http://collector:4318"), "{error}");
    }
}
