//! Hand-computed figures. Times are seconds from the start.

use super::*;
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::cluster::pod::{Labels, Pod, PodOwner, PodPhase, PodShape};
use napkeeper_core::model::names::{Namespace, NodeName, ObjectKey, ObjectName, Uid};
use std::collections::BTreeMap;
use std::sync::Arc;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn key(name: &str) -> ObjectKey {
    ObjectKey { namespace: Namespace::new("default").unwrap(), name: ObjectName::new(name).unwrap() }
}

fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

/// Pods of one workload on nodes of one pool.
struct Story {
    measures: PodMeasures,
    name: ReplicaName,
}

impl Story {
    fn new(name: ReplicaName) -> Self {
        Self { measures: PodMeasures::default(), name }
    }

    fn change(&mut self, pod: &Pod, now: i64) {
        let pool = pod.node.as_ref().map(|_| Arc::from("general"));
        let group = PodGroup { workload: Some((key("web"), self.name)), pool };
        self.measures.pod_changed(pod, group, at(now));
    }

    fn create(&mut self, name: &str, uid: &str, now: i64) -> Pod {
        let namespace = Namespace::new("default").unwrap();
        let shape = Arc::new(PodShape::plain(namespace, Labels::new(), Resources::cpu_memory(1000, 1)));
        let waiting = Pod::waiting(key(name), Uid::new(uid).unwrap(), &shape, PodOwner::Controller);
        let pod = Pod { created_at: at(now), ..waiting };
        self.change(&pod, now);
        pod
    }

    fn bind(&mut self, pod: &mut Pod, to: &str, now: i64) {
        pod.node = Some(node(to));
        self.change(pod, now);
    }

    fn start(&mut self, pod: &mut Pod, now: i64) {
        (pod.phase, pod.ready) = (PodPhase::Running, true);
        self.change(pod, now);
    }

    /// A pod that is bound and runs at once.
    fn run(&mut self, name: &str, now: i64) -> Pod {
        let mut pod = self.create(name, name, now);
        self.bind(&mut pod, "n1", now);
        self.start(&mut pod, now);
        pod
    }

    fn evict(&mut self, pod: &mut Pod, now: i64) {
        self.measures.pod_evicted(pod, at(now));
        self.delete(pod, now);
    }

    fn delete(&mut self, pod: &mut Pod, now: i64) {
        pod.deleting_at = Some(at(now));
        self.change(pod, now);
    }

    fn all(&self, now: i64) -> PodFigures {
        self.measures.figures(at(now)).all
    }
}

#[test]
fn an_eviction_counts_with_its_reason_and_the_time_until_its_replacement_runs() {
    let mut story = Story::new(ReplicaName::New);
    let mut first = story.run("a", 0);
    story.measures.set_reason(&node("n1"), "underutilized");
    story.evict(&mut first, 100);
    let mut second = story.create("b", "b", 100);
    story.bind(&mut second, "n2", 140);
    story.start(&mut second, 145);
    story.measures.pod_removed(&first, at(130));
    let figures = story.all(200);
    assert_eq!(figures.voluntary_evictions, 1);
    assert_eq!(figures.evictions_by_reason, BTreeMap::from([(Arc::from("underutilized"), 1)]));
    assert_eq!(figures.unavailable_pod_seconds, 45, "from 100 to 145");
    assert_eq!(figures.running_pod_seconds, 100 + 55, "the first to its eviction, the second from 145 on");
    assert_eq!((figures.pending_new.pods, figures.pending_new.max_seconds), (1, 0));
    assert_eq!((figures.pending_evicted.pods, figures.pending_evicted.max_seconds), (1, 40));
    assert!((figures.evictions_per_pod_day() - 86_400.0 / 155.0).abs() < 1e-9);
    let all = story.measures.figures(at(200));
    assert_eq!(all.by_pool.keys().map(|pool| &**pool).collect::<Vec<_>>(), ["general"]);
    assert_eq!(all.by_pool["general"].voluntary_evictions, 1);
    assert_eq!(all.by_workload["default/web"].unavailable_pod_seconds, 45);
}

#[test]
fn what_ends_without_the_policy_or_is_evicted_twice_is_no_further_eviction() {
    let mut story = Story::new(ReplicaName::New);
    let mut scaled_away = story.run("a", 0);
    story.delete(&mut scaled_away, 50);
    story.measures.pod_evicted(&scaled_away, at(51));
    let lost_with_its_spot_vm = story.run("b", 0);
    story.measures.pod_removed(&lost_with_its_spot_vm, at(60));
    let mut evicted = story.run("c", 0);
    story.measures.pod_evicted(&evicted, at(70));
    story.evict(&mut evicted, 71);
    let mut of_node = story.run("d", 0);
    of_node.owner = PodOwner::DaemonSet;
    of_node.uid = Uid::new("daemon").unwrap();
    story.change(&of_node, 0);
    story.measures.pod_evicted(&of_node, at(72));
    assert_eq!(story.all(100).voluntary_evictions, 1, "only c, once");
}

#[test]
fn a_replacement_is_evicted_again_only_within_an_hour() {
    let evicted_after = |seconds: i64| {
        let mut story = Story::new(ReplicaName::New);
        let mut first = story.run("a", 0);
        story.evict(&mut first, 100);
        let mut second = story.run("b", 100);
        story.evict(&mut second, 100 + seconds);
        let figures = story.all(100 + seconds);
        (figures.voluntary_evictions, figures.re_evictions)
    };
    assert_eq!(evicted_after(3_600), (2, 1));
    assert_eq!(evicted_after(3_601), (2, 0));
}

#[test]
fn a_replacement_that_is_evicted_before_it_runs_is_counted_through() {
    let mut story = Story::new(ReplicaName::New);
    let mut first = story.run("a", 0);
    story.evict(&mut first, 100);
    let mut second = story.create("b", "b", 100);
    story.bind(&mut second, "n2", 110);
    story.evict(&mut second, 120);
    story.run("c", 150);
    let figures = story.all(200);
    assert_eq!((figures.voluntary_evictions, figures.re_evictions), (2, 1));
    assert_eq!(figures.unavailable_pod_seconds, 50, "from 100 to 120, and from 120 to 150");
}

#[test]
fn an_evicted_pod_that_nobody_wants_any_more_has_no_replacement() {
    let mut story = Story::new(ReplicaName::New);
    let mut first = story.run("a", 0);
    story.evict(&mut first, 100);
    story.measures.workload_settled(&key("web"), |_| false, at(105));
    story.run("b", 300);
    let figures = story.all(400);
    assert_eq!(figures.unavailable_pod_seconds, 5);
    assert_eq!((figures.pending_new.pods, figures.pending_evicted.pods), (2, 0), "the second is a new pod");
}

#[test]
fn a_stateful_pod_is_replaced_by_the_one_of_its_name() {
    let mut story = Story::new(ReplicaName::Same);
    let mut first = story.run("db-0", 0);
    story.evict(&mut first, 100);
    let other = story.create("db-1", "other", 101);
    story.measures.pod_removed(&first, at(130));
    let mut second = story.create("db-0", "second", 130);
    assert_eq!(story.all(135).unavailable_pod_seconds, 35, "still without one");
    story.bind(&mut second, "n2", 150);
    story.start(&mut second, 160);
    story.measures.pod_removed(&other, at(161));
    let figures = story.all(200);
    assert_eq!(figures.unavailable_pod_seconds, 60);
    assert_eq!((figures.pending_evicted.pods, figures.pending_evicted.max_seconds), (1, 20));
}

#[test]
fn pods_that_are_never_bound_count_with_their_age() {
    let mut story = Story::new(ReplicaName::New);
    story.create("a", "a", 0);
    let deleted = story.create("b", "b", 10);
    story.measures.pod_removed(&deleted, at(40));
    story.run("c", 20);
    let pending = story.all(100).pending_new;
    assert_eq!((pending.pods, pending.never_bound), (3, 2));
    assert_eq!((pending.p50_seconds, pending.max_seconds), (30, 100), "0, 30 and 100 s");
}

#[test]
fn percentiles_are_of_the_nearest_rank() {
    let mut waits = waits::Waits::default();
    (1..=200).for_each(|seconds| waits.bound(SignedDuration::from_secs(seconds)));
    let figures = waits.figures();
    assert_eq!(
        (figures.p50_seconds, figures.p95_seconds, figures.p99_seconds, figures.max_seconds),
        (100, 190, 198, 200)
    );
    assert_eq!(waits::Waits::default().figures(), WaitFigures::default());
}

#[test]
fn a_price_has_settled_once_it_stays_within_five_percent_of_its_last_value() {
    let mut prices = PriceSeries::default();
    for (seconds, price) in
        [(0, 500), (100, 1000), (200, 1000), (300, 400), (400, 105), (500, 106), (600, 95), (700, 100)]
    {
        prices.record(at(seconds), HourlyPrice::from_nanos(price));
    }
    assert_eq!(prices.steps().len(), 7, "an equal price is no step");
    assert_eq!(prices.at(at(-1)), HourlyPrice::ZERO);
    assert_eq!(prices.at(at(399)).nanos(), 400);
    let settled = |from: i64, to: i64| prices.settling_time(at(from), at(to)).as_secs();
    assert_eq!(settled(250, 1_000), 350, "106 at 500 s is too much, 95 at 600 s is not");
    assert_eq!(settled(600, 1_000), 0);
    assert_eq!(settled(0, 250), 100, "upwards too");
}

#[test]
fn the_last_price_of_an_instant_counts() {
    let mut prices = PriceSeries::default();
    prices.record(at(0), HourlyPrice::from_nanos(1));
    prices.record(at(0), HourlyPrice::from_nanos(2));
    assert_eq!(prices.steps(), [(at(0), HourlyPrice::from_nanos(2))]);
}
