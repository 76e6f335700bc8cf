//! Which pods a pass considers.

use super::*;
use crate::fixtures::{at, pod, requirements_in, shape};
use crate::model::cluster::pod::{PodOwner, PodTerm, Preferences, Spread};
use crate::model::requirements::{Requirement, Requirements};
use proptest::prelude::*;

/// A shape of weight 1,089 and a little more: 32 preferences, in 33 steps.
fn heavy(namespace: &str, app: &str, priority: i32) -> Arc<PodShape> {
    let mut shape = shape(app, 100, 1);
    shape.namespace = Namespace::new(namespace).unwrap();
    shape.priority = priority;
    let mut selector = Requirements::new();
    selector.add("app", Requirement::any_of([app]));
    let term = PodTerm {
        topology_key: crate::model::labels::interned(crate::model::labels::HOSTNAME),
        namespaces: [shape.namespace.clone()].into(),
        namespace_selector: None,
        selector,
    };
    shape.preferences = Some(Box::new(Preferences { apart: vec![(1, term); 32], ..Preferences::default() }));
    Arc::new(shape)
}

fn aged(name: &str, shape: &Arc<PodShape>, seconds: i64) -> Arc<Pod> {
    Arc::new(Pod { created_at: at(seconds), ..pod(name, shape) })
}

fn names(pods: &[Arc<Pod>]) -> Vec<String> {
    pods.iter().map(|pod| pod.key.name.to_string()).collect()
}

fn select(pods: &[Arc<Pod>], considered: &[&Arc<Pod>]) -> Vec<String> {
    let considered = considered.iter().map(|pod| pod.uid.clone()).collect();
    names(&select_pods(pods, &considered, |_| false).pods)
}

#[test]
fn equal_pods_are_in_the_same_pass_however_many_they_are() {
    let shape = heavy("default", "web", 0);
    let pods: Vec<_> = (0..50_000).map(|i| aged(&format!("web-{i}"), &shape, i)).collect();
    assert_eq!(select_pods(&pods, &BTreeSet::new(), |_| false).pods.len(), pods.len());
}

#[test]
fn different_pods_above_the_limit_are_considered_by_priority_and_age_and_each_once() {
    let pods: Vec<_> =
        (0..20).map(|i| aged(&format!("p-{i:02}"), &heavy("default", &format!("a-{i}"), 0), -i)).collect();
    let oldest: Vec<String> = (11..20).map(|i| format!("p-{i:02}")).collect();
    assert_eq!(select(&pods, &[]), oldest);
    // Those that have been considered come after the others, and only as far as there is room.
    let considered: Vec<&Arc<Pod>> = pods[11..].iter().collect();
    assert_eq!(select(&pods, &considered), names(&pods[2..11]));
    let urgent = aged("urgent", &heavy("default", "urgent", 1_000), 60);
    let with_urgent: Vec<_> = pods.iter().cloned().chain([urgent]).collect();
    assert_eq!(select(&with_urgent, &considered).last().unwrap(), "urgent");
}

#[test]
fn a_namespace_with_many_pods_leaves_half_of_a_pass_to_another() {
    let flood = (0..100).map(|i| aged(&format!("flood-{i}"), &heavy("flood", &format!("a-{i}"), 0), 0));
    let quiet = (0..4).map(|i| aged(&format!("quiet-{i}"), &heavy("quiet", &format!("b-{i}"), 0), 60));
    let pods: Vec<_> = flood.chain(quiet).collect();
    let selected = select(&pods, &[]);
    assert_eq!((selected.len(), selected.iter().filter(|name| name.starts_with("quiet")).count()), (9, 4));
}

#[test]
fn a_pod_above_the_limit_has_a_pass_of_its_own() {
    let mut monster = PodShape::clone(&heavy("default", "monster", 0));
    let preferences = monster.preferences.as_deref_mut().unwrap();
    preferences.apart = vec![preferences.apart[0].clone(); 1_000];
    let monster = aged("monster", &Arc::new(monster), 0);
    assert!(PodWeights::default().weight(&monster.shape) > MAX_WEIGHT);
    let later = aged("later", &heavy("default", "later", 0), 1);
    let pods = [monster, later];
    assert_eq!(select(&pods, &[]), ["monster"]);
    assert_eq!(select(&pods, &[&pods[0]]), ["later"]);
}

#[test]
fn chunks_and_planned_pods_are_in_every_pass_and_too_many_constraints_of_these_are_dropped() {
    let waiting = (0..20).map(|i| aged(&format!("p-{i}"), &heavy("default", &format!("a-{i}"), 0), 0));
    let planned = (0..20).map(|i| aged(&format!("planned-{i}"), &heavy("default", &format!("b-{i}"), 0), 0));
    let chunk = Arc::new(Pod { owner: PodOwner::Buffer, ..pod("chunk", &heavy("default", "c", 0)) });
    let pods: Vec<_> = waiting.chain(planned).chain([chunk]).collect();
    let selection = select_pods(&pods, &BTreeSet::new(), |key| key.name.as_str().starts_with("planned"));
    let count = |prefix: &str| selection.pods.iter().filter(|pod| pod.key.name.as_str().starts_with(prefix)).count();
    assert_eq!((count("p-"), count("planned"), count("chunk")), (9, 20, 1));
    let is_intact = |pod: &&Arc<Pod>| pod.shape.preferences.is_some();
    let planned = || selection.pods.iter().filter(|pod| pod.key.name.as_str().starts_with("planned"));
    assert_eq!(planned().filter(is_intact).count(), 9);
    assert!(planned().all(|pod| pod.shape.requests == pods[20].shape.requests));
}

#[test]
fn a_constraint_weighs_more_the_more_pods_it_may_select() {
    let crowd = Arc::new(shape("crowd", 100, 1));
    let crowd: Vec<_> = (0..10_000).map(|i| aged(&format!("crowd-{i}"), &crowd, 0)).collect();
    let with_spread = |selector: Requirements| {
        let mut shape = shape("own", 100, 1);
        shape.spread.push(Spread::over(crate::model::labels::ZONE, 1, selector));
        shape
    };
    let (all, own) = (with_spread(Requirements::new()), with_spread(requirements_in(&[("app", &["own"])])));
    let weights = |is_in_flight: bool| PodWeights::of(crowd.iter(), move |_| is_in_flight);
    assert_eq!([true, false].map(|in_flight| weights(in_flight).weight(&own)), [3, 3]);
    assert_eq!([true, false].map(|in_flight| weights(in_flight).weight(&all)), [303, 8]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Passes have a bounded weight, and a bounded number of them considers every pod.
    #[test]
    fn every_pod_has_its_turn(drawn in prop::collection::vec((0..4_u8, 0..6_i32, 1..4_usize, 0..100_i64), 1..60)) {
        let pods: Vec<Arc<Pod>> = drawn
            .iter()
            .enumerate()
            .flat_map(|(i, (namespace, priority, replicas, second))| {
                let shape = heavy(&format!("n{namespace}"), &format!("a-{i}"), *priority);
                (0..*replicas).map(move |n| aged(&format!("p-{i}-{n}"), &shape, *second)).collect::<Vec<_>>()
            })
            .collect();
        let weights = PodWeights::of(pods.iter(), |_| false);
        let mut considered = BTreeSet::new();
        for _ in 0..=drawn.len() / 9 {
            let selection = select_pods(&pods, &considered, |_| false);
            let shapes: BTreeMap<_, u64> =
                selection.pods.iter().map(|pod| (Arc::as_ptr(&pod.shape), weights.weight(&pod.shape))).collect();
            prop_assert!(shapes.values().sum::<u64>() <= MAX_WEIGHT);
            prop_assert_eq!(selection.pods.len() + selection.deferred.len(), pods.len());
            considered.extend(selection.pods.iter().map(|pod| pod.uid.clone()));
        }
        prop_assert_eq!(considered.len(), pods.len());
    }
}
