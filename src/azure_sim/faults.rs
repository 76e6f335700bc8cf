//! Faults of single requests: which request goes wrong, how, and how many more?
//!
//! What goes wrong inside Azure (shortages, quotas, locks) is [`napkeeper_sim::cloud::Faults`]; this is what goes wrong
//! on the way to it and back.

use regex::Regex;
use serde::Serialize;

/// What happens to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Mishap {
    /// 429, with `Retry-After` in seconds.
    Throttle(i64),
    /// Another answer than its own; it takes no effect.
    Fail {
        /// Status code.
        status: u16,
        /// Error code.
        code: String,
        /// Message.
        message: String,
    },
    /// Held before it takes effect. It never does if the caller goes away.
    HangBefore,
    /// It takes effect, and its answer is held.
    HangAfter,
    /// It takes effect, and is answered 200 with a body that is no JSON.
    Garbage,
}

/// A mishap that waits for its requests.
#[derive(Debug)]
pub(crate) struct Injected {
    id: u64,
    method: Option<String>,
    path: Option<Regex>,
    /// How many more requests it befalls; `None` is all of them.
    left: Option<u32>,
    mishap: Mishap,
}

/// Which requests, and how many of them.
#[derive(Debug, Default)]
pub(crate) struct Matching {
    /// Of this method; `None` is any.
    pub(crate) method: Option<String>,
    /// Whose path and query match; `None` is any.
    pub(crate) path: Option<Regex>,
    /// The next so many; `None` is all.
    pub(crate) times: Option<u32>,
}

/// All mishaps, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Mishaps {
    injected: Vec<Injected>,
    next: u64,
}

impl Mishaps {
    /// Lets a mishap wait for its requests; its number.
    pub(crate) fn inject(&mut self, mishap: Mishap, on: Matching) -> u64 {
        self.next += 1;
        let Matching { method, path, times } = on;
        self.injected.push(Injected { id: self.next, method, path, left: times, mishap });
        self.next
    }

    /// The oldest mishap that befalls this request; uses up one of its times.
    pub(crate) fn befall(&mut self, method: &str, path_and_query: &str) -> Option<Mishap> {
        let found = self.injected.iter_mut().find(|one| one.befalls(method, path_and_query))?;
        let mishap = found.mishap.clone();
        found.left = found.left.map(|left| left.saturating_sub(1));
        self.injected.retain(|one| one.left != Some(0));
        Some(mishap)
    }

    /// Takes one back; false when it is over, or never was.
    pub(crate) fn clear(&mut self, id: u64) -> bool {
        let before = self.injected.len();
        self.injected.retain(|one| one.id != id);
        self.injected.len() < before
    }

    /// Takes all back.
    pub(crate) fn clear_all(&mut self) {
        self.injected.clear();
    }

    /// All that still wait, as JSON.
    pub(crate) fn show(&self) -> serde_json::Value {
        self.injected.iter().map(Injected::show).collect()
    }
}

impl Injected {
    fn befalls(&self, method: &str, path_and_query: &str) -> bool {
        self.method.as_ref().is_none_or(|m| m.eq_ignore_ascii_case(method))
            && self.path.as_ref().is_none_or(|p| p.is_match(path_and_query))
    }

    fn show(&self) -> serde_json::Value {
        serde_json::json!({
            "id": self.id,
            "fault": self.mishap,
            "method": self.method,
            "path": self.path.as_ref().map(Regex::as_str),
            "timesLeft": self.left,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mishap_befalls_the_requests_that_it_waits_for_and_then_no_more() {
        let mut mishaps = Mishaps::default();
        let path = Some(Regex::new("networkInterfaces/a$").unwrap());
        mishaps.inject(Mishap::HangAfter, Matching { method: Some("put".to_owned()), path, times: Some(2) });
        let all = mishaps.inject(Mishap::Garbage, Matching::default());
        let mut befall = |method: &str, path: &str| mishaps.befall(method, path);
        assert_eq!(befall("GET", "/networkInterfaces/a"), Some(Mishap::Garbage));
        assert_eq!(befall("PUT", "/networkInterfaces/a"), Some(Mishap::HangAfter));
        assert_eq!(befall("PUT", "/networkInterfaces/b"), Some(Mishap::Garbage));
        assert_eq!(befall("PUT", "/networkInterfaces/a"), Some(Mishap::HangAfter));
        assert_eq!(befall("PUT", "/networkInterfaces/a"), Some(Mishap::Garbage));
        assert!(mishaps.clear(all) && !mishaps.clear(all));
        assert_eq!(mishaps.befall("PUT", "/networkInterfaces/a"), None);
    }
}
