//! Faults of single HTTP requests and their responses.
//!
//! Faults inside Azure (shortages, quotas, locks) are [`napkeeper_sim::cloud::Faults`].

use regex::Regex;
use serde::Serialize;

/// What happens to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum RequestFault {
    /// 429, with `Retry-After` in seconds.
    Throttle(i64),
    /// It gets this response, and has no effect.
    Fail {
        /// Status code.
        status: u16,
        /// Error code.
        code: String,
        /// Message.
        message: String,
    },
    /// Held before it takes effect. It never does if the caller disconnects.
    HangBefore,
    /// It takes effect, and its answer is held.
    HangAfter,
    /// It takes effect, and is answered 200 with a body that is no JSON.
    Garbage,
}

/// A fault, and the requests that it applies to.
#[derive(Debug)]
pub(crate) struct InjectedFault {
    id: u64,
    method: Option<String>,
    path: Option<Regex>,
    /// How many more requests it applies to; `None` is all.
    left: Option<u32>,
    fault: RequestFault,
}

/// Which requests a fault applies to, and to how many.
#[derive(Debug, Default)]
pub(crate) struct RequestMatch {
    /// Of this method; `None` is any.
    pub(crate) method: Option<String>,
    /// Whose path and query match; `None` is any.
    pub(crate) path: Option<Regex>,
    /// This many next ones; `None` is all.
    pub(crate) times: Option<u32>,
}

/// All faults, oldest first.
#[derive(Debug, Default)]
pub(crate) struct RequestFaults {
    injected: Vec<InjectedFault>,
    next: u64,
}

impl RequestFaults {
    /// Adds a fault; returns its number.
    pub(crate) fn inject(&mut self, fault: RequestFault, on: RequestMatch) -> u64 {
        self.next += 1;
        let RequestMatch { method, path, times } = on;
        self.injected.push(InjectedFault { id: self.next, method, path, left: times, fault });
        self.next
    }

    /// The oldest fault that applies to this request, which counts as one of its times.
    pub(crate) fn next_for(&mut self, method: &str, path_and_query: &str) -> Option<RequestFault> {
        let found = self.injected.iter_mut().find(|one| one.matches(method, path_and_query))?;
        let fault = found.fault.clone();
        found.left = found.left.map(|left| left.saturating_sub(1));
        self.injected.retain(|one| one.left != Some(0));
        Some(fault)
    }

    /// Removes a fault; false if the number is unknown.
    pub(crate) fn clear(&mut self, id: u64) -> bool {
        let before = self.injected.len();
        self.injected.retain(|one| one.id != id);
        self.injected.len() < before
    }

    /// Removes all faults.
    pub(crate) fn clear_all(&mut self) {
        self.injected.clear();
    }

    /// All faults, as JSON.
    pub(crate) fn show(&self) -> serde_json::Value {
        self.injected.iter().map(InjectedFault::show).collect()
    }
}

impl InjectedFault {
    fn matches(&self, method: &str, path_and_query: &str) -> bool {
        self.method.as_ref().is_none_or(|m| m.eq_ignore_ascii_case(method))
            && self.path.as_ref().is_none_or(|p| p.is_match(path_and_query))
    }

    fn show(&self) -> serde_json::Value {
        serde_json::json!({
            "id": self.id,
            "fault": self.fault,
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
    fn a_fault_applies_to_the_requests_that_it_matches_as_often_as_it_says() {
        let mut request_faults = RequestFaults::default();
        let path = Some(Regex::new("networkInterfaces/a$").unwrap());
        request_faults
            .inject(RequestFault::HangAfter, RequestMatch { method: Some("put".to_owned()), path, times: Some(2) });
        let all = request_faults.inject(RequestFault::Garbage, RequestMatch::default());
        let mut next = |method: &str, path: &str| request_faults.next_for(method, path);
        assert_eq!(next("GET", "/networkInterfaces/a"), Some(RequestFault::Garbage));
        assert_eq!(next("PUT", "/networkInterfaces/a"), Some(RequestFault::HangAfter));
        assert_eq!(next("PUT", "/networkInterfaces/b"), Some(RequestFault::Garbage));
        assert_eq!(next("PUT", "/networkInterfaces/a"), Some(RequestFault::HangAfter));
        assert_eq!(next("PUT", "/networkInterfaces/a"), Some(RequestFault::Garbage));
        assert!(request_faults.clear(all) && !request_faults.clear(all));
        assert_eq!(request_faults.next_for("PUT", "/networkInterfaces/a"), None);
    }
}
