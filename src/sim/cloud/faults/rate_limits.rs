//! Azure's rate limits, as token buckets.
//!
//! As documented. Azure Resource Manager ("Understand how Azure Resource Manager throttles
//! requests", learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling): per
//! subscription and principal 250 reads with 25 more a second, 200 writes and 200 deletes with 10 more a second.
//! Compute ("Compute throttling limits", learn.microsoft.com/azure/virtual-machines/compute-throttling-limits): puts,
//! updates and deletes of VMs 12 with 4 more a minute for each VM and 1,500 with 500 more for the subscription; reads
//! of one VM 36 with 12 and 24,000 with 8,000; listings of VMs 30 a minute. Every bucket there holds the refill of
//! three minutes; that this holds for listings too, and that polls of operations have 15 and 5,000 a minute, is our
//! assumption.

use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;

/// The buckets, full until the first request.
#[derive(Debug, Clone, Default)]
pub struct Throttling {
    /// When each bucket will be full again, by its name and what it belongs to.
    full_at: BTreeMap<(&'static str, String), Timestamp>,
}

/// A bucket: how much it holds, and how long it takes for one more.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    name: &'static str,
    holds: i64,
    refill: SignedDuration,
}

/// The class of a request for the buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MeteredRequest<'a> {
    /// `GET`, `PUT`, …
    pub(crate) method: &'a str,
    /// The rate limit of Compute.
    pub(crate) compute: Option<ComputeCall<'a>>,
}

/// Requests to Compute that have buckets of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ComputeCall<'a> {
    /// About one VM, by its folded id.
    Vm(&'a str),
    /// About an extension of a VM.
    Extension(&'a str),
    /// A listing of VMs.
    ListVms,
    /// A poll of an operation.
    Operation(&'a str),
}

/// The result of the buckets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RateLimitResult {
    /// Headers with the remaining tokens.
    pub(crate) headers: Vec<(&'static str, String)>,
    /// The bucket that is empty, whether it is Compute's, and when it has one more.
    pub(crate) empty: Option<(&'static str, bool, SignedDuration)>,
}

const fn bucket(name: &'static str, holds: i64, millis: i64) -> Bucket {
    Bucket { name, holds, refill: SignedDuration::from_millis(millis) }
}

/// Azure Resource Manager's buckets: the header of each, and the bucket.
const READS: Bucket = bucket("x-ms-ratelimit-remaining-subscription-reads", 250, 40);
const WRITES: Bucket = bucket("x-ms-ratelimit-remaining-subscription-writes", 200, 100);
const DELETES: Bucket = bucket("x-ms-ratelimit-remaining-subscription-deletes", 200, 100);

/// Compute's buckets for a request: the resource's, where it has one, and the subscription's.
const fn compute(
    resource: &'static str,
    per_minute: i64,
    subscription: &'static str,
    in_all: i64,
) -> (Option<Bucket>, Bucket) {
    let of = bucket(resource, per_minute * 3, 60_000 / per_minute);
    // Large buckets refill faster than one token per millisecond, so refills are counted per minute.
    let nanos = 60_000_000_000 / in_all;
    let all = Bucket { name: subscription, holds: in_all * 3, refill: SignedDuration::from_nanos(nanos) };
    (Some(of), all)
}

impl MeteredRequest<'_> {
    fn arm(&self) -> Bucket {
        match self.method {
            "GET" => READS,
            "DELETE" => DELETES,
            _ => WRITES,
        }
    }

    fn compute(&self) -> Option<(&str, Option<Bucket>, Bucket)> {
        let (of, (resource, subscription)) = match self.compute? {
            ComputeCall::ListVms => ("", (None, bucket("HighCostGetSubscriptionMaximum", 90, 2_000))),
            ComputeCall::Operation(of) => {
                (of, compute("GetOperationResource", 15, "GetOperationSubscriptionMaximum", 5_000))
            }
            ComputeCall::Extension(vm) if self.method != "GET" => {
                (vm, compute("UpdateVMResource", 4, "UpdateVMSubscriptionMaximum", 500))
            }
            ComputeCall::Vm(vm) | ComputeCall::Extension(vm) => match self.method {
                "GET" => (vm, compute("LowCostGetResource", 12, "LowCostGetSubscriptionMaximum", 8_000)),
                "DELETE" => (vm, compute("DeleteVMResource", 4, "DeleteVMSubscriptionMaximum", 500)),
                _ => (vm, compute("PutVMResource", 4, "PutVMSubscriptionMaximum", 500)),
            },
        };
        Some((of, resource, subscription))
    }
}

impl Throttling {
    /// Takes the tokens of a request from the buckets; from none if one is empty.
    pub(crate) fn meter(&mut self, request: &MeteredRequest<'_>, now: Timestamp) -> RateLimitResult {
        let arm = request.arm();
        let compute = request.compute();
        let mut wanted = vec![(arm, "", false)];
        if let Some((of, resource, subscription)) = &compute {
            wanted.push((*subscription, "", true));
            wanted.extend(resource.iter().map(|bucket| (*bucket, *of, true)));
        }
        let empty = wanted.iter().find_map(|(bucket, of, is_compute)| {
            let wait = self.wait(*bucket, of, now)?;
            Some((bucket.name, *is_compute, wait))
        });
        if empty.is_none() {
            wanted.iter().for_each(|(bucket, of, _)| self.take(*bucket, of, now));
        }
        let mut headers = vec![(arm.name, self.left(arm, "", now).to_string())];
        let of_compute = wanted.iter().filter(|(.., is_compute)| *is_compute);
        let remaining = of_compute
            .map(|(bucket, of, _)| format!("Microsoft.Compute/{};{}", bucket.name, self.left(*bucket, of, now)));
        let remaining: Vec<String> = remaining.collect();
        if !remaining.is_empty() {
            headers.push(("x-ms-ratelimit-remaining-resource", remaining.join(",")));
        }
        RateLimitResult { headers, empty }
    }

    fn full_at(&self, bucket: Bucket, of: &str, now: Timestamp) -> Timestamp {
        self.full_at.get(&(bucket.name, of.to_owned())).copied().unwrap_or(now).max(now)
    }

    /// How long until there is one; `None` where there is one now.
    fn wait(&self, bucket: Bucket, of: &str, now: Timestamp) -> Option<SignedDuration> {
        let missing = self.full_at(bucket, of, now).duration_since(now);
        let empty = bucket.refill * i32::try_from(bucket.holds - 1).unwrap_or(i32::MAX);
        (missing > empty).then(|| missing - empty)
    }

    fn take(&mut self, bucket: Bucket, of: &str, now: Timestamp) {
        let full_at = self.full_at(bucket, of, now) + bucket.refill;
        self.full_at.insert((bucket.name, of.to_owned()), full_at);
    }

    fn left(&self, bucket: Bucket, of: &str, now: Timestamp) -> i64 {
        let missing = self.full_at(bucket, of, now).duration_since(now).as_nanos();
        let one = bucket.refill.as_nanos().max(1);
        let taken = (missing + one - 1) / one;
        bucket.holds - i64::try_from(taken).unwrap_or(bucket.holds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::fixtures::at;

    fn header_of(metering: &RateLimitResult, header: &str) -> String {
        metering.headers.iter().find(|(name, _)| *name == header).unwrap().1.clone()
    }

    #[test]
    fn a_bucket_serves_its_tokens_and_then_the_refill() {
        let mut throttling = Throttling::default();
        let read = MeteredRequest { method: "GET", compute: None };
        for n in 0..250 {
            let metering = throttling.meter(&read, at(0));
            assert_eq!(metering.empty, None);
            assert_eq!(header_of(&metering, READS.name), (249 - n).to_string());
        }
        let refused = throttling.meter(&read, at(0));
        assert_eq!(refused.empty, Some((READS.name, false, SignedDuration::from_millis(40))));
        for _ in 0..25 {
            assert_eq!(throttling.meter(&read, at(1)).empty, None);
        }
        assert!(throttling.meter(&read, at(1)).empty.is_some(), "25 more a second");
        let write = MeteredRequest { method: "PUT", compute: None };
        assert_eq!(header_of(&throttling.meter(&write, at(1)), WRITES.name), "199");
        assert_eq!(header_of(&throttling.meter(&read, at(60)), READS.name), "249");
    }

    #[test]
    fn compute_counts_each_vm_and_all_of_them() {
        let mut throttling = Throttling::default();
        let put = |vm| MeteredRequest { method: "PUT", compute: Some(ComputeCall::Vm(vm)) };
        for _ in 0..12 {
            assert_eq!(throttling.meter(&put("a"), at(0)).empty, None);
        }
        let refused = throttling.meter(&put("a"), at(0));
        assert_eq!(refused.empty, Some(("PutVMResource", true, SignedDuration::from_secs(15))));
        let other = throttling.meter(&put("b"), at(0));
        let left = "Microsoft.Compute/PutVMSubscriptionMaximum;1487,Microsoft.Compute/PutVMResource;11";
        assert_eq!(header_of(&other, "x-ms-ratelimit-remaining-resource"), left);
        let list = MeteredRequest { method: "GET", compute: Some(ComputeCall::ListVms) };
        for _ in 0..90 {
            assert_eq!(throttling.meter(&list, at(0)).empty, None);
        }
        assert!(throttling.meter(&list, at(0)).empty.is_some());
    }
}
