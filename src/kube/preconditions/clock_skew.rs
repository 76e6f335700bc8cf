//! The difference between our clock and the API server's, by the header `Date` of its answers.
//!
//! Ages, timeouts and expirations compare our time with timestamps in objects: a clock that is set ahead would make every
//! NodeClaim expire, and every orphan old, at once.

use http::HeaderMap;
use http::header::DATE;
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::engine::clock::MAX_SKEW;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// How far our clock is ahead of the API server's, as of its last answer. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct ClockSkew(Arc<State>);

#[derive(Debug, Default)]
struct State {
    seconds: AtomicI64,
    is_reported: AtomicBool,
}

impl ClockSkew {
    /// Seconds that our clock is ahead; 0 before the first answer.
    #[must_use]
    pub fn seconds(&self) -> i64 {
        self.0.seconds.load(Ordering::Relaxed)
    }

    /// True if times can be compared.
    #[must_use]
    pub fn is_tolerable(&self) -> bool {
        SignedDuration::from_secs(self.seconds()).abs() <= MAX_SKEW
    }

    /// Learns from the headers of an answer that has just come. The time is the real one, not that of the deciders.
    pub(crate) fn observe(&self, headers: &HeaderMap, now: Timestamp) {
        let date = headers.get(DATE).and_then(|date| date.to_str().ok());
        let Some(date) = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok()) else { return };
        let seconds = now.duration_since(date.timestamp()).as_secs();
        self.0.seconds.store(seconds, Ordering::Relaxed);
        let is_wrong = !self.is_tolerable();
        if self.0.is_reported.swap(is_wrong, Ordering::Relaxed) == is_wrong {
            return;
        }
        if is_wrong {
            tracing::error!(
                seconds,
                "this clock is ahead of the API server's by so much (behind, if negative): nothing is decided, and \
                 nothing is launched, disrupted or deleted, until one of them is set right"
            );
        } else {
            tracing::info!("this clock and the API server's agree again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(date: &'static str) -> HeaderMap {
        [(DATE, HeaderValue::from_static(date))].into_iter().collect()
    }

    #[test]
    fn a_clock_may_differ_by_a_minute_in_either_direction() {
        let date = "Wed, 25 Nov 2026 12:00:00 GMT";
        for (now, seconds, is_tolerable) in [
            ("2026-11-25T12:00:00.9Z", 0, true),
            ("2026-11-25T12:01:00Z", 60, true),
            ("2026-11-25T12:01:01Z", 61, false),
            ("2026-11-25T11:58:59Z", -61, false),
            ("2027-11-25T12:00:00Z", 31_536_000, false),
        ] {
            let skew = ClockSkew::default();
            skew.observe(&headers(date), now.parse().unwrap());
            assert_eq!((skew.seconds(), skew.is_tolerable()), (seconds, is_tolerable), "{now}");
            // Nothing is learnt from an answer without a time.
            skew.observe(&HeaderMap::new(), "2026-01-01T00:00:00Z".parse().unwrap());
            skew.observe(&headers("soon"), "2026-01-01T00:00:00Z".parse().unwrap());
            assert_eq!(skew.seconds(), seconds);
            skew.observe(&headers(date), "2026-11-25T12:00:01Z".parse().unwrap());
            assert!(skew.is_tolerable());
        }
    }
}
