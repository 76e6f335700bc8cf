//! Traces: what is told of each review to whoever collects spans?
//!
//! Path, outcome and uid, and whose part it is (`traceparent`): nothing of any object. Off unless somebody collects. Spans
//! wait in a queue with a bound; past it they are dropped and counted, and no answer waits for one.

use axum::http::HeaderMap;
use jiff::Timestamp;
use napkeeper_serve::prometheus_client::metrics::counter::Counter;
use napkeeper_serve::prometheus_client::metrics::family::Family;
use napkeeper_serve::prometheus_client::registry::Registry;
use std::time::Duration;
use tokio::sync::mpsc;

/// The header that says whose part a request is ([Trace Context](https://www.w3.org/TR/trace-context/)).
const TRACE_PARENT: &str = "traceparent";

/// The span that a request is part of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    /// Id of the trace: 32 hexadecimal digits.
    pub trace: String,
    /// Id of the span: 16 hexadecimal digits.
    pub span: String,
}

/// A review that was answered.
#[derive(Debug, Clone)]
pub struct Span {
    /// The path that was asked.
    pub path: &'static str,
    /// How it was answered, as metrics name it.
    pub outcome: &'static str,
    /// The uid of the review.
    pub uid: String,
    /// What it is part of.
    pub parent: Option<Parent>,
    /// When it came.
    pub start: Timestamp,
    /// How long the answer took.
    pub took: Duration,
}

/// What became of spans.
#[derive(Debug, Clone, Default)]
pub struct SpanCounts(Family<[(&'static str, &'static str); 1], Counter>);

impl SpanCounts {
    /// Counts under `napkeeper_webhook_spans_total`.
    pub fn register(registry: &mut Registry) -> Self {
        let counts = Self::default();
        let help = "Review spans, by result: sent, failed (rejected by the collector), dropped (queue full)";
        registry.register("webhook_spans", help, counts.0.clone());
        counts
    }

    /// Counts spans of one result: `sent`, `failed` or `dropped`.
    pub fn add(&self, result: &'static str, spans: u64) {
        self.0.get_or_create(&[("result", result)]).inc_by(spans);
    }
}

/// Where spans go.
#[derive(Debug, Clone)]
pub struct Traces {
    queue: mpsc::Sender<Span>,
    counts: SpanCounts,
}

/// A review that is being answered.
#[derive(Debug)]
pub(crate) struct Begun {
    parent: Option<Parent>,
    start: Timestamp,
}

impl Traces {
    /// Spans go into this queue.
    #[must_use]
    pub const fn into_queue(queue: mpsc::Sender<Span>, counts: SpanCounts) -> Self {
        Self { queue, counts }
    }

    /// A review has come; `None` when whoever asks does not record.
    pub(crate) fn begin(headers: &HeaderMap) -> Option<Begun> {
        let given = headers.get(TRACE_PARENT).and_then(|value| value.to_str().ok()).and_then(parent);
        match given {
            Some((_, false)) => None,
            Some((parent, true)) => Some(Begun { parent: Some(parent), start: Timestamp::now() }),
            None => Some(Begun { parent: None, start: Timestamp::now() }),
        }
    }

    /// It has been answered.
    pub(crate) fn end(
        &self,
        Begun { parent, start }: Begun,
        (path, outcome): (&'static str, &'static str),
        uid: &str,
        took: Duration,
    ) {
        let span = Span { path, outcome, uid: uid.to_owned(), parent, start, took };
        if self.queue.try_send(span).is_err() {
            self.counts.add("dropped", 1);
        }
    }
}

/// Reads `version-trace-span-flags`: the parent, and whether it is recorded. What breaks the form is no parent.
fn parent(text: &str) -> Option<(Parent, bool)> {
    let mut parts = text.trim().split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is = |part: &str, length: usize| {
        part.len() == length && part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let zero = |part: &str| part.bytes().all(|b| b == b'0');
    let form = is(version, 2) && version != "ff" && is(trace, 32) && is(span, 16) && is(flags, 2);
    if !form || zero(trace) || zero(span) || (version == "00" && parts.next().is_some()) {
        return None;
    }
    let recorded = u8::from_str_radix(flags, 16).is_ok_and(|flags| flags & 1 == 1);
    Some((Parent { trace: trace.to_owned(), span: span.to_owned() }, recorded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_is_read_as_its_standard_says() {
        let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        let read = |text: String| parent(&text).map(|(parent, recorded)| (parent.trace, parent.span, recorded));
        let whole = |recorded| Some((trace.to_owned(), span.to_owned(), recorded));
        assert_eq!(read(format!("00-{trace}-{span}-01")), whole(true));
        assert_eq!(read(format!("00-{trace}-{span}-00")), whole(false));
        assert_eq!(read(format!("01-{trace}-{span}-03-more")), whole(true), "a later version may have more");
        for wrong in [
            String::new(),
            "00".to_owned(),
            format!("ff-{trace}-{span}-01"),
            format!("00-{trace}-{span}-01-more"),
            format!("00-{}-{span}-01", "0".repeat(32)),
            format!("00-{trace}-{}-01", "0".repeat(16)),
            format!("00-{}-{span}-01", trace.to_uppercase()),
            format!("00-{trace}x-{span}-01"),
        ] {
            assert_eq!(read(wrong.clone()), None, "{wrong}");
        }
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let mut registry = Registry::with_prefix("napkeeper");
        let (queue, mut spans) = mpsc::channel(1);
        let traces = Traces::into_queue(queue, SpanCounts::register(&mut registry));
        for uid in ["one", "two"] {
            let begun = Traces::begin(&HeaderMap::new()).unwrap();
            traces.end(begun, ("/mutate", "passed"), uid, Duration::from_millis(1));
        }
        assert_eq!(spans.try_recv().unwrap().uid, "one");
        let mut text = String::new();
        napkeeper_serve::prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(text.contains("napkeeper_webhook_spans_total{result=\"dropped\"} 1"), "{text}");
    }
}
