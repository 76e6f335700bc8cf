//! Client-side rate limits, so that Azure need not throttle requests.
//!
//! Azure Resource Manager and the providers count requests in token buckets and return the remaining tokens in
//! `x-ms-ratelimit-remaining-*` headers (Azure's documentation of request limits and throttling, and of Compute's
//! throttling limits). The buckets of a class of requests are learnt from its responses. A bucket that is nearly
//! empty spaces requests at the rate of its refill; a 429 blocks the bucket until `Retry-After` is over, and
//! afterwards requests leave one by one. *Caveats*: usage by other clients of the subscription shows only in the
//! remaining tokens; capacities are estimated as the highest number ever remaining.

use crate::transport::{HttpResponse, Method};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Longest that a request waits here; longer waits are returned to the caller.
const MAX_WAIT: Duration = Duration::from_secs(20);
/// Block after a 429 without `Retry-After`.
const DEFAULT_BLOCK: Duration = Duration::from_secs(10);
/// Interval between requests right after a block.
const INTERVAL_AFTER_BLOCK: Duration = Duration::from_millis(500);
/// Shorter intervals are none.
const MIN_INTERVAL: Duration = Duration::from_millis(5);
/// A bucket with less than this fraction (1/n) of the most that was ever left in it is nearly empty.
const LOW_FRACTION: u32 = 5;
/// The budget for retries of reads, at the start and at most.
const MAX_RETRY_BUDGET: u32 = 100;
/// The cost of a retry in the budget. A success adds one.
const RETRY_COST: u32 = 5;
/// The header with a provider's own buckets, `namespace/bucket;left`, separated by commas.
const PROVIDER_BUCKETS: &str = "x-ms-ratelimit-remaining-resource";
/// What headers with Azure Resource Manager's buckets begin with.
const ARM_BUCKET_PREFIX: &str = "x-ms-ratelimit-remaining-";

/// The rate limits of one client. Instants are durations since a fixed one.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    state: Mutex<State>,
    disabled: AtomicBool,
}

#[derive(Debug)]
struct State {
    buckets: BTreeMap<String, Bucket>,
    /// The buckets that each class of requests takes from.
    used_by: BTreeMap<String, BTreeSet<String>>,
    retry_budget: u32,
}

#[derive(Debug, Clone, Default)]
struct Bucket {
    /// The most that was ever left.
    highest: u32,
    /// Between two requests.
    interval: Duration,
    /// When the next request may leave.
    next: Duration,
    /// No request leaves before.
    blocked_until: Duration,
}

impl Default for RateLimiter {
    fn default() -> Self {
        let state = State { buckets: BTreeMap::new(), used_by: BTreeMap::new(), retry_budget: MAX_RETRY_BUDGET };
        Self { state: Mutex::new(state), disabled: AtomicBool::new(false) }
    }
}

impl RateLimiter {
    /// Disables waiting and retries from now on.
    pub(crate) fn disable(&self) {
        self.disabled.store(true, Ordering::Relaxed);
    }

    /// Reserves the next free instant of all its buckets, and returns how long to wait before sending.
    ///
    /// # Errors
    /// The time until a retry, if it is long; nothing is reserved then.
    pub(crate) fn reserve(&self, class: &str, now: Duration) -> Result<Duration, Duration> {
        let mut state = self.state();
        let names = state.buckets_of(class);
        let at = names.iter().filter_map(|n| state.buckets.get(n)).map(|b| b.next.max(b.blocked_until)).max();
        let at = at.unwrap_or_default().max(now);
        if at - now > MAX_WAIT {
            return Err(at - now);
        }
        for name in names {
            if let Some(bucket) = state.buckets.get_mut(&name) {
                bucket.next = at + bucket.interval;
            }
        }
        Ok(at - now)
    }

    /// How long this class of requests is still blocked by a 429.
    pub(crate) fn blocked_for(&self, class: &str, now: Duration) -> Option<Duration> {
        let state = self.state();
        let names = state.buckets_of(class);
        let until = names.iter().filter_map(|n| state.buckets.get(n)).map(|b| b.blocked_until).max()?;
        until.checked_sub(now).filter(|rest| !rest.is_zero())
    }

    /// Learns from a response.
    pub(crate) fn record(&self, class: &str, response: &HttpResponse, retry_after: Option<Duration>, now: Duration) {
        if self.disabled.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state();
        let buckets = remaining_in(response);
        state.used_by.entry(class.to_owned()).or_default().extend(buckets.iter().map(|(name, _)| name.clone()));
        for (name, left) in &buckets {
            state.buckets.entry(name.clone()).or_default().set_remaining(name, *left);
        }
        if response.status == 429 {
            let until = now + retry_after.unwrap_or(DEFAULT_BLOCK);
            let mut empty: Vec<String> =
                buckets.into_iter().filter(|(_, left)| *left == 0).map(|(name, _)| name).collect();
            if empty.is_empty() {
                // No bucket is named as the empty one: all requests of the class wait.
                empty.push(class.to_owned());
            }
            for name in empty {
                let bucket = state.buckets.entry(name).or_default();
                bucket.blocked_until = bucket.blocked_until.max(until);
                bucket.interval = bucket.interval.max(INTERVAL_AFTER_BLOCK);
            }
        } else if response.status < 400 {
            state.retry_budget = (state.retry_budget + 1).min(MAX_RETRY_BUDGET);
            if let Some(bucket) = state.buckets.get_mut(class) {
                bucket.speed_up();
            }
        }
    }

    /// Takes the cost of a retry from the budget; `false` when it is spent.
    pub(crate) fn may_retry(&self) -> bool {
        let mut state = self.state();
        let left = state.retry_budget.checked_sub(RETRY_COST);
        state.retry_budget = left.unwrap_or(state.retry_budget);
        left.is_some() && !self.disabled.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The buckets of a class: those that Azure has named, and the one of the class itself.
    fn buckets_of(&self, class: &str) -> Vec<String> {
        let named = self.used_by.get(class).into_iter().flatten().cloned();
        named.chain([class.to_owned()]).collect()
    }
}

impl Bucket {
    fn set_remaining(&mut self, name: &str, left: u32) {
        self.highest = self.highest.max(left);
        if left < self.highest / LOW_FRACTION {
            // At the refill rate it is never empty; in the last quarter of the low range, at half that rate.
            let refill = refill_time(name) / self.highest.max(1);
            let last = left < self.highest / (LOW_FRACTION * 4);
            self.interval = self.interval.max(refill * if last { 2 } else { 1 });
        } else {
            self.speed_up();
        }
    }

    fn speed_up(&mut self) {
        self.interval = if self.interval > MIN_INTERVAL { self.interval / 2 } else { Duration::ZERO };
    }
}

/// The buckets that a response names, in lower case, and the remaining tokens of each.
fn remaining_in(response: &HttpResponse) -> Vec<(String, u32)> {
    let mut buckets = Vec::new();
    for (name, value) in &response.headers {
        if name == PROVIDER_BUCKETS {
            let pairs = value.split(',').filter_map(|pair| pair.split_once(';'));
            let pairs = pairs.filter_map(|(bucket, left)| Some((bucket.trim(), left.trim().parse().ok()?)));
            buckets.extend(pairs.map(|(bucket, left)| (bucket.to_ascii_lowercase(), left)));
        } else if let Some(bucket) = name.strip_prefix(ARM_BUCKET_PREFIX)
            && let Ok(left) = value.trim().parse()
        {
            buckets.push((bucket.to_owned(), left));
        }
    }
    buckets
}

/// How long an empty bucket takes to fill: Azure Resource Manager's hold 250 reads and refill by 25 a second, and 200
/// writes or deletes and refill by 10 a second; a provider's have it in their name, as `PutVM3Min` does, or fill in a
/// minute.
fn refill_time(name: &str) -> Duration {
    if name.contains("reads") {
        return Duration::from_secs(10);
    }
    if name.contains("writes") || name.contains("deletes") {
        return Duration::from_secs(20);
    }
    let minutes = name.strip_suffix("min").map(|rest| {
        let digits = rest.len() - rest.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        rest[rest.len() - digits..].parse().unwrap_or(1)
    });
    Duration::from_secs(60 * minutes.unwrap_or(1_u64).clamp(1, 60))
}

/// The class of a request: its method and the type of the resource, in lower case; lists are a class of their own.
pub(crate) fn request_class(method: &Method, path: &str) -> String {
    let path = path.to_ascii_lowercase();
    let (_, of) = path.rsplit_once("/providers/").unwrap_or(("", &path));
    let segments: Vec<&str> = of.split('/').filter(|s| !s.is_empty()).collect();
    // After the namespace types and names take turns.
    let types: Vec<&str> = segments.iter().skip(1).step_by(2).copied().collect();
    let namespace = segments.first().copied().unwrap_or_default();
    let list = if is_list(&path) { " list" } else { "" };
    format!("{method} {namespace}/{}{list}", types.join("/"))
}

/// True for the path of a listing.
pub(crate) fn is_list(path: &str) -> bool {
    match path.to_ascii_lowercase().rsplit_once("/providers/") {
        // Namespace, then types and names in turn: a list ends with a type.
        Some((_, of)) => of.split('/').filter(|s| !s.is_empty()).count() % 2 == 0,
        None => path.to_ascii_lowercase().ends_with("/resources"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASS: &str = "PUT microsoft.compute/virtualmachines";

    fn response(status: u16, headers: &[(&str, &str)]) -> HttpResponse {
        let headers = headers.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        HttpResponse { status, headers, body: Vec::new() }
    }

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn millis(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn requests_are_sorted_by_method_and_type() {
        let group = "/subscriptions/s/resourceGroups/g";
        for (method, path, expected) in [
            (Method::PUT, "/providers/Microsoft.Compute/virtualMachines/v", CLASS),
            (Method::GET, "/providers/Microsoft.Compute/virtualMachines", "GET microsoft.compute/virtualmachines list"),
            (
                Method::PUT,
                "/providers/Microsoft.Compute/virtualMachines/v/extensions/e",
                "PUT microsoft.compute/virtualmachines/extensions",
            ),
            (
                Method::PATCH,
                "/providers/Microsoft.Network/networkInterfaces/n/providers/Microsoft.Resources/tags/default",
                "PATCH microsoft.resources/tags",
            ),
        ] {
            assert_eq!(request_class(&method, &format!("{group}{path}")), expected);
        }
        assert!(is_list(&format!("{group}/resources")) && !is_list(group));
    }

    #[test]
    fn a_bucket_that_is_nearly_empty_spaces_requests_out() {
        let limiter = RateLimiter::default();
        let left = |left: &str| response(200, &[("x-ms-ratelimit-remaining-subscription-deletes", left)]);
        let class = "DELETE microsoft.compute/disks";
        limiter.record(class, &left("200"), None, secs(0));
        for _ in 0..50 {
            assert_eq!(limiter.reserve(class, secs(0)), Ok(Duration::ZERO), "a full one does not");
        }
        limiter.record(class, &left("39"), None, secs(1));
        let turns: Vec<_> = (0..4).map(|_| limiter.reserve(class, secs(1)).unwrap()).collect();
        assert_eq!(turns, [millis(0), millis(100), millis(200), millis(300)], "ten a second");
        assert_eq!(
            limiter.reserve("DELETE microsoft.network/networkinterfaces", secs(1)),
            Ok(millis(0)),
            "not learnt yet"
        );
        limiter.record("DELETE microsoft.network/networkinterfaces", &left("38"), None, secs(2));
        limiter.reserve(class, secs(2)).unwrap();
        assert_eq!(
            limiter.reserve("DELETE microsoft.network/networkinterfaces", secs(2)),
            Ok(millis(100)),
            "one bucket"
        );
        for _ in 0..6 {
            limiter.record(class, &left("150"), None, secs(9));
        }
        limiter.reserve(class, secs(60)).unwrap();
        assert_eq!(limiter.reserve(class, secs(60)), Ok(millis(0)), "it has filled");
    }

    #[test]
    fn providers_tell_their_own_buckets() {
        let limiter = RateLimiter::default();
        let left = |n: u32| {
            let value = format!("Microsoft.Compute/PutVM3Min;{n}, Microsoft.Compute/PutVM30Min;1199");
            response(201, &[("x-ms-ratelimit-remaining-resource", &value)])
        };
        limiter.record(CLASS, &left(180), None, secs(0));
        limiter.record(CLASS, &left(20), None, secs(0));
        limiter.reserve(CLASS, secs(0)).unwrap();
        assert_eq!(limiter.reserve(CLASS, secs(0)), Ok(secs(1)), "180 in three minutes");
        limiter.record(CLASS, &left(3), None, secs(0));
        let first = limiter.reserve(CLASS, secs(100)).unwrap();
        assert_eq!(limiter.reserve(CLASS, secs(100)).unwrap() - first, secs(2), "half of that at the very end");
    }

    #[test]
    fn a_429_holds_its_bucket_back_for_everybody() {
        let limiter = RateLimiter::default();
        let header = [("x-ms-ratelimit-remaining-resource", "Microsoft.Compute/HighCostGet30Min;0")];
        let lists = ["GET microsoft.compute/virtualmachines list", "GET microsoft.compute/disks list"];
        for list in lists {
            let full = [("x-ms-ratelimit-remaining-resource", "Microsoft.Compute/HighCostGet30Min;400")];
            limiter.record(list, &response(200, &full), None, secs(0));
        }
        limiter.record(lists[0], &response(429, &header), Some(secs(1_200)), secs(0));
        for list in lists {
            assert_eq!(limiter.reserve(list, secs(100)), Err(secs(1_100)), "{list}");
            assert_eq!(limiter.blocked_for(list, secs(100)), Some(secs(1_100)), "{list}");
        }
        assert_eq!(limiter.reserve(CLASS, secs(100)), Ok(secs(0)), "another bucket");
        assert_eq!(limiter.blocked_for(lists[0], secs(1_200)), None);
        // A 429 that names no bucket holds its own class; a shorter wait does not shorten an earlier one.
        limiter.record(CLASS, &response(429, &[]), Some(secs(60)), secs(0));
        limiter.record(CLASS, &response(429, &[]), None, secs(1));
        assert_eq!(limiter.blocked_for(CLASS, secs(30)), Some(secs(30)));
        assert_eq!(limiter.reserve(CLASS, secs(45)), Ok(secs(15)), "a short wait is waited out");
        assert_eq!(limiter.reserve(CLASS, secs(45)), Ok(millis(15_500)), "then one by one");
    }

    #[test]
    fn retries_end_when_too_many_are_needed() {
        let limiter = RateLimiter::default();
        assert_eq!((0..50).take_while(|_| limiter.may_retry()).count(), 20);
        for _ in 0..10 {
            limiter.record(CLASS, &response(200, &[]), None, secs(0));
        }
        assert_eq!((0..50).take_while(|_| limiter.may_retry()).count(), 2);
    }
}
