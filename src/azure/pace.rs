//! Pace: when may the next request of its kind leave, so that Azure need not turn it away?
//!
//! Azure Resource Manager and the providers count requests in token buckets and tell what is left in
//! `x-ms-ratelimit-remaining-*` headers (Azure's documentation of request limits and throttling, and of Compute's
//! throttling limits). Which buckets a kind of request pays into is learnt from its responses. A bucket that is nearly
//! empty spaces requests out at the pace of its refill; a 429 holds the bucket back for everybody until `Retry-After`
//! is over, and afterwards lets requests out one by one. *Caveats*: what other clients of the subscription take is seen
//! only in what is left; capacities are guessed from the most that was ever left.

use crate::wire::{Method, WireResponse};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Longest that a request waits for its turn in here; for longer waits its sender is told to come back.
const LONGEST_TURN: Duration = Duration::from_secs(20);
/// Hold after a 429 that names no time.
const HOLD: Duration = Duration::from_secs(10);
/// Space between requests right after a hold.
const AFTER_HOLD: Duration = Duration::from_millis(500);
/// Space that is none any more.
const NO_SPACE: Duration = Duration::from_millis(5);
/// A bucket below one part in so many of the most that was ever left in it is nearly empty.
const LOW: u32 = 5;
/// Retries of reads that are at hand at the start, and at most.
const MOST_CREDIT: u32 = 100;
/// What a retry costs. A success earns one.
const RETRY_COSTS: u32 = 5;
/// In which header a provider tells its own buckets, `namespace/bucket;left`, separated by commas.
const RESOURCE: &str = "x-ms-ratelimit-remaining-resource";
/// In which headers Azure Resource Manager tells its buckets.
const REMAINING: &str = "x-ms-ratelimit-remaining-";

/// The pace of one adapter. Instants are times since a fixed one.
#[derive(Debug)]
pub(crate) struct Pace {
    state: Mutex<State>,
    stopped: AtomicBool,
}

#[derive(Debug)]
struct State {
    buckets: BTreeMap<String, Bucket>,
    /// The buckets that each kind of request pays into.
    pays: BTreeMap<String, BTreeSet<String>>,
    credit: u32,
}

#[derive(Debug, Clone, Default)]
struct Bucket {
    /// The most that was ever left.
    most: u32,
    /// Between two requests.
    space: Duration,
    /// When the next request may leave.
    next: Duration,
    /// No request leaves before.
    held_until: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        let state = State { buckets: BTreeMap::new(), pays: BTreeMap::new(), credit: MOST_CREDIT };
        Self { state: Mutex::new(state), stopped: AtomicBool::new(false) }
    }
}

impl Pace {
    /// From now on requests leave when they come, and none is worth a retry.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Takes a turn: how long to wait before sending.
    ///
    /// # Errors
    /// How long until another try is worth it, where that is long; no turn is taken then.
    pub(crate) fn turn(&self, kind: &str, now: Duration) -> Result<Duration, Duration> {
        let mut state = self.state();
        let names = state.names(kind);
        let at = names.iter().filter_map(|n| state.buckets.get(n)).map(|b| b.next.max(b.held_until)).max();
        let at = at.unwrap_or_default().max(now);
        if at - now > LONGEST_TURN {
            return Err(at - now);
        }
        for name in names {
            if let Some(bucket) = state.buckets.get_mut(&name) {
                bucket.next = at + bucket.space;
            }
        }
        Ok(at - now)
    }

    /// How long this kind of request is still held back by a 429.
    pub(crate) fn held(&self, kind: &str, now: Duration) -> Option<Duration> {
        let state = self.state();
        let names = state.names(kind);
        let until = names.iter().filter_map(|n| state.buckets.get(n)).map(|b| b.held_until).max()?;
        until.checked_sub(now).filter(|rest| !rest.is_zero())
    }

    /// Learns from a response.
    pub(crate) fn heard(&self, kind: &str, response: &WireResponse, retry_after: Option<Duration>, now: Duration) {
        if self.stopped.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state();
        let told = told(response);
        state.pays.entry(kind.to_owned()).or_default().extend(told.iter().map(|(name, _)| name.clone()));
        for (name, left) in &told {
            state.buckets.entry(name.clone()).or_default().left(name, *left);
        }
        if response.status == 429 {
            let until = now + retry_after.unwrap_or(HOLD);
            let mut empty: Vec<String> =
                told.into_iter().filter(|(_, left)| *left == 0).map(|(name, _)| name).collect();
            if empty.is_empty() {
                // No bucket says that it is the one: all requests of the kind wait.
                empty.push(kind.to_owned());
            }
            for name in empty {
                let bucket = state.buckets.entry(name).or_default();
                bucket.held_until = bucket.held_until.max(until);
                bucket.space = bucket.space.max(AFTER_HOLD);
            }
        } else if response.status < 400 {
            state.credit = (state.credit + 1).min(MOST_CREDIT);
            if let Some(bucket) = state.buckets.get_mut(kind) {
                bucket.ease();
            }
        }
    }

    /// Takes what a retry costs; `false` when too many have been taken lately.
    pub(crate) fn may_retry(&self) -> bool {
        let mut state = self.state();
        let left = state.credit.checked_sub(RETRY_COSTS);
        state.credit = left.unwrap_or(state.credit);
        left.is_some() && !self.stopped.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The buckets of a kind: those it pays into, and the one of the kind itself.
    fn names(&self, kind: &str) -> Vec<String> {
        let paid = self.pays.get(kind).into_iter().flatten().cloned();
        paid.chain([kind.to_owned()]).collect()
    }
}

impl Bucket {
    /// So much is left.
    fn left(&mut self, name: &str, left: u32) {
        self.most = self.most.max(left);
        if left < self.most / LOW {
            // At the pace of the refill nothing more is lost; in the last quarter of what is low, at half of it.
            let refill = window(name) / self.most.max(1);
            let last = left < self.most / (LOW * 4);
            self.space = self.space.max(refill * if last { 2 } else { 1 });
        } else {
            self.ease();
        }
    }

    fn ease(&mut self) {
        self.space = if self.space > NO_SPACE { self.space / 2 } else { Duration::ZERO };
    }
}

/// What a response tells of buckets: name in lower case, and what is left.
fn told(response: &WireResponse) -> Vec<(String, u32)> {
    let mut told = Vec::new();
    for (name, value) in &response.headers {
        if name == RESOURCE {
            let pairs = value.split(',').filter_map(|pair| pair.split_once(';'));
            let pairs = pairs.filter_map(|(bucket, left)| Some((bucket.trim(), left.trim().parse().ok()?)));
            told.extend(pairs.map(|(bucket, left)| (bucket.to_ascii_lowercase(), left)));
        } else if let Some(bucket) = name.strip_prefix(REMAINING)
            && let Ok(left) = value.trim().parse()
        {
            told.push((bucket.to_owned(), left));
        }
    }
    told
}

/// In which time an empty bucket fills: Azure Resource Manager's hold 250 reads and refill by 25 a second, and 200
/// writes or deletes and refill by 10 a second; a provider's say it in their name, as `PutVM3Min` does, or fill in a
/// minute.
fn window(name: &str) -> Duration {
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

/// The kind of a request: its method and the type of what it is about, in lower case; lists are of a kind of their own.
pub(crate) fn kind(method: Method, path: &str) -> String {
    let path = path.to_ascii_lowercase();
    let (_, of) = path.rsplit_once("/providers/").unwrap_or(("", &path));
    let segments: Vec<&str> = of.split('/').filter(|s| !s.is_empty()).collect();
    // After the namespace types and names take turns.
    let types: Vec<&str> = segments.iter().skip(1).step_by(2).copied().collect();
    let namespace = segments.first().copied().unwrap_or_default();
    let list = if is_list(&path) { " list" } else { "" };
    format!("{} {namespace}/{}{list}", method.as_str(), types.join("/"))
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

    const KIND: &str = "PUT microsoft.compute/virtualmachines";

    fn response(status: u16, headers: &[(&str, &str)]) -> WireResponse {
        let headers = headers.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        WireResponse { status, headers, body: Vec::new() }
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
            (Method::Put, "/providers/Microsoft.Compute/virtualMachines/v", KIND),
            (Method::Get, "/providers/Microsoft.Compute/virtualMachines", "GET microsoft.compute/virtualmachines list"),
            (
                Method::Put,
                "/providers/Microsoft.Compute/virtualMachines/v/extensions/e",
                "PUT microsoft.compute/virtualmachines/extensions",
            ),
            (
                Method::Patch,
                "/providers/Microsoft.Network/networkInterfaces/n/providers/Microsoft.Resources/tags/default",
                "PATCH microsoft.resources/tags",
            ),
        ] {
            assert_eq!(kind(method, &format!("{group}{path}")), expected);
        }
        assert!(is_list(&format!("{group}/resources")) && !is_list(group));
    }

    #[test]
    fn a_bucket_that_is_nearly_empty_spaces_requests_out() {
        let pace = Pace::default();
        let left = |left: &str| response(200, &[("x-ms-ratelimit-remaining-subscription-deletes", left)]);
        let kind = "DELETE microsoft.compute/disks";
        pace.heard(kind, &left("200"), None, secs(0));
        for _ in 0..50 {
            assert_eq!(pace.turn(kind, secs(0)), Ok(Duration::ZERO), "a full one does not");
        }
        pace.heard(kind, &left("39"), None, secs(1));
        let turns: Vec<_> = (0..4).map(|_| pace.turn(kind, secs(1)).unwrap()).collect();
        assert_eq!(turns, [millis(0), millis(100), millis(200), millis(300)], "ten a second");
        assert_eq!(pace.turn("DELETE microsoft.network/networkinterfaces", secs(1)), Ok(millis(0)), "not learnt yet");
        pace.heard("DELETE microsoft.network/networkinterfaces", &left("38"), None, secs(2));
        pace.turn(kind, secs(2)).unwrap();
        assert_eq!(pace.turn("DELETE microsoft.network/networkinterfaces", secs(2)), Ok(millis(100)), "one bucket");
        for _ in 0..6 {
            pace.heard(kind, &left("150"), None, secs(9));
        }
        pace.turn(kind, secs(60)).unwrap();
        assert_eq!(pace.turn(kind, secs(60)), Ok(millis(0)), "it has filled");
    }

    #[test]
    fn providers_tell_their_own_buckets() {
        let pace = Pace::default();
        let left = |n: u32| {
            let value = format!("Microsoft.Compute/PutVM3Min;{n}, Microsoft.Compute/PutVM30Min;1199");
            response(201, &[("x-ms-ratelimit-remaining-resource", &value)])
        };
        pace.heard(KIND, &left(180), None, secs(0));
        pace.heard(KIND, &left(20), None, secs(0));
        pace.turn(KIND, secs(0)).unwrap();
        assert_eq!(pace.turn(KIND, secs(0)), Ok(secs(1)), "180 in three minutes");
        pace.heard(KIND, &left(3), None, secs(0));
        let first = pace.turn(KIND, secs(100)).unwrap();
        assert_eq!(pace.turn(KIND, secs(100)).unwrap() - first, secs(2), "half of that at the very end");
    }

    #[test]
    fn a_429_holds_its_bucket_back_for_everybody() {
        let pace = Pace::default();
        let header = [("x-ms-ratelimit-remaining-resource", "Microsoft.Compute/HighCostGet30Min;0")];
        let lists = ["GET microsoft.compute/virtualmachines list", "GET microsoft.compute/disks list"];
        for list in lists {
            let full = [("x-ms-ratelimit-remaining-resource", "Microsoft.Compute/HighCostGet30Min;400")];
            pace.heard(list, &response(200, &full), None, secs(0));
        }
        pace.heard(lists[0], &response(429, &header), Some(secs(1_200)), secs(0));
        for list in lists {
            assert_eq!(pace.turn(list, secs(100)), Err(secs(1_100)), "{list}");
            assert_eq!(pace.held(list, secs(100)), Some(secs(1_100)), "{list}");
        }
        assert_eq!(pace.turn(KIND, secs(100)), Ok(secs(0)), "another bucket");
        assert_eq!(pace.held(lists[0], secs(1_200)), None);
        // A 429 that names no bucket holds its own kind; a shorter wait does not shorten an earlier one.
        pace.heard(KIND, &response(429, &[]), Some(secs(60)), secs(0));
        pace.heard(KIND, &response(429, &[]), None, secs(1));
        assert_eq!(pace.held(KIND, secs(30)), Some(secs(30)));
        assert_eq!(pace.turn(KIND, secs(45)), Ok(secs(15)), "a short wait is waited out");
        assert_eq!(pace.turn(KIND, secs(45)), Ok(millis(15_500)), "then one by one");
    }

    #[test]
    fn retries_end_when_too_many_are_needed() {
        let pace = Pace::default();
        assert_eq!((0..50).take_while(|_| pace.may_retry()).count(), 20);
        for _ in 0..10 {
            pace.heard(KIND, &response(200, &[]), None, secs(0));
        }
        assert_eq!((0..50).take_while(|_| pace.may_retry()).count(), 2);
    }
}
