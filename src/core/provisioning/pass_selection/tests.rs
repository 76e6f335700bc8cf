//! Which pods a pass considers.

use super::*;
use crate::fixtures::{at, pod, requirements_in, shape};
use crate::model::cluster::pod::{PodAffinity, PodOwner, PodTerm, Preferences, Spread, Toleration};
use crate::model::names::NodeName;
use crate::model::requirements::{Requirement, Requirements};
use proptest::prelude::*;

/// A shape of weight 1,058: 32 preferences in 33 steps, and 2. A pass has nine of them.
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

/// The pods of the next pass, by name.
fn next(pods: &[Arc<Pod>], turns: &mut Turns) -> Vec<String> {
    let selection = select_pods(pods, RunningPods::default(), turns, |_| false);
    turns.record(&selection);
    names(&selection.pods)
}

#[test]
fn equal_pods_are_in_the_same_pass_however_many_they_are() {
    let shape = heavy("default", "web", 0);
    let pods: Vec<_> = (0..50_000).map(|i| aged(&format!("web-{i}"), &shape, i)).collect();
    assert_eq!(next(&pods, &mut Turns::default()).len(), pods.len());
}

#[test]
fn different_pods_above_the_limit_are_considered_by_priority_and_age_one_after_the_other() {
    let mut pods: Vec<_> =
        (0..20).map(|i| aged(&format!("p-{i:02}"), &heavy("default", &format!("a-{i}"), 0), -i)).collect();
    let mut turns = Turns::default();
    assert_eq!(next(&pods, &mut turns), names(&pods[11..]), "the oldest");
    pods.push(aged("urgent", &heavy("default", "urgent", 1_000), 60));
    assert_eq!(next(&pods, &mut turns), [names(&pods[3..11]), vec!["urgent".to_owned()]].concat());
    // The first three, and then those that were considered first: all are considered again and again.
    assert_eq!(next(&pods, &mut turns), [names(&pods[..3]), names(&pods[14..20])].concat());
    assert_eq!(next(&pods, &mut turns)[8], "urgent");
    pods.truncate(9);
    assert_eq!(next(&pods, &mut turns).len(), 9);
    assert_eq!(turns, Turns::default(), "without a queue nothing is remembered");
}

#[test]
fn a_namespace_with_many_pods_leaves_half_of_a_pass_to_another() {
    let flood = (0..100).map(|i| aged(&format!("flood-{i}"), &heavy("flood", &format!("a-{i}"), 0), 0));
    let quiet = (0..4).map(|i| aged(&format!("quiet-{i}"), &heavy("quiet", &format!("b-{i}"), 0), 60));
    let pods: Vec<_> = flood.chain(quiet).collect();
    let selected = next(&pods, &mut Turns::default());
    assert_eq!((selected.len(), selected.iter().filter(|name| name.starts_with("quiet")).count()), (9, 4));
}

/// A shape that fills a pass.
fn giant(namespace: &str, app: &str, priority: i32) -> Arc<PodShape> {
    let mut giant = PodShape::clone(&heavy(namespace, app, priority));
    let preferences = giant.preferences.as_deref_mut().unwrap();
    preferences.apart = vec![preferences.apart[0].clone(); 1_000];
    assert!(PodWeights::default().weight(&giant) > MAX_WEIGHT);
    Arc::new(giant)
}

#[test]
fn pods_that_each_fill_a_pass_hold_up_another_namespace_for_one_pass() {
    let flood = (0..50).map(|i| aged(&format!("flood-{i}"), &giant("flood", &format!("a-{i}"), 1_000), 0));
    let mut pods: Vec<_> = flood.chain([aged("quiet", &heavy("quiet", "b", 0), 60)]).collect();
    let mut turns = Turns::default();
    assert_eq!(next(&pods, &mut turns), ["flood-0"]);
    assert_eq!(next(&pods, &mut turns), ["quiet"]);
    // One that comes later, and others of the flood that are always new, change nothing.
    for round in 0..5 {
        pods.push(aged(&format!("flood-new-{round}"), &giant("flood", &format!("n-{round}"), 1_000), 0));
        pods.push(aged(&format!("late-{round}"), &heavy(&format!("late-{round}"), "c", 0), 61));
        let passes: Vec<String> = (0..3).flat_map(|_| next(&pods, &mut turns)).collect();
        assert!(passes.contains(&format!("late-{round}")), "{passes:?}");
    }
}

#[test]
fn a_namespace_that_comes_late_does_not_catch_up() {
    let mut pods: Vec<_> =
        (0..60).map(|i| aged(&format!("quiet-{i}"), &heavy("quiet", &format!("a-{i}"), 0), 0)).collect();
    let mut turns = Turns::default();
    (0..3).for_each(|_| assert_eq!(next(&pods, &mut turns).len(), 9));
    pods.extend((0..60).map(|i| aged(&format!("flood-{i}"), &heavy("flood", &format!("b-{i}"), 0), 60)));
    for _ in 0..3 {
        let selected = next(&pods, &mut turns);
        let quiet = selected.iter().filter(|name| name.starts_with("quiet")).count();
        assert!((4..=5).contains(&quiet), "{selected:?}");
    }
}

#[test]
fn chunks_and_planned_pods_are_in_every_pass_and_too_many_constraints_of_these_are_dropped() {
    let waiting = (0..20).map(|i| aged(&format!("p-{i}"), &heavy("default", &format!("a-{i}"), 0), 0));
    let planned = (0..20).map(|i| aged(&format!("planned-{i}"), &heavy("default", &format!("b-{i}"), 0), 0));
    let chunk = Arc::new(Pod { owner: PodOwner::Buffer, ..pod("chunk", &heavy("default", "c", 0)) });
    let pods: Vec<_> = waiting.chain(planned).chain([chunk]).collect();
    let selection = select_pods(&pods, RunningPods::default(), &Turns::default(), |pod| {
        pod.key.name.as_str().starts_with("planned")
    });
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

#[test]
fn a_constraint_weighs_more_the_more_different_pods_run() {
    let running = |shapes| RunningPods { shapes, ..RunningPods::default() };
    let weight = |shape: &PodShape, shapes| PodWeights::default().beside(running(shapes)).weight(shape);
    let plain = shape("own", 100, 1);
    let mut spread = plain.clone();
    spread.spread = vec![Spread::over(crate::model::labels::ZONE, 1, Requirements::new()); 2];
    assert_eq!([0, 399, 20_000].map(|running| weight(&spread, running)), [4, 5, 104]);
    assert_eq!([0, 20_000].map(|running| weight(&plain, running)), [2, 2]);
    // Those with a label are found by it.
    assert_eq!([0, 20_000].map(|running| weight(&heavy("default", "a", 0), running)), [1_058, 1_058]);
}

#[test]
fn running_pods_are_counted_by_their_shapes_and_by_anti_affinity_that_names_no_label() {
    let mut snapshot = Snapshot::default();
    let term = |selector: Requirements| PodTerm {
        topology_key: crate::model::labels::interned(crate::model::labels::HOSTNAME),
        namespaces: [Namespace::new("default").unwrap()].into(),
        namespace_selector: None,
        selector,
    };
    let mut apart = shape("apart", 100, 1);
    let terms = vec![term(Requirements::new()), term(requirements_in(&[("app", &["x"])]))];
    apart.affinity = Some(Box::new(PodAffinity { apart: terms, ..PodAffinity::default() }));
    let (apart, plain) = (Arc::new(apart), Arc::new(shape("plain", 100, 1)));
    for (name, shape, node) in
        [("a", &apart, Some("n")), ("b", &plain, Some("n")), ("c", &plain, Some("n")), ("d", &plain, None)]
    {
        let node = node.map(|node| NodeName::new(node).unwrap());
        snapshot.put_pod(Pod { node, ..pod(name, shape) });
    }
    let running = running_pods(&snapshot);
    assert_eq!(running, RunningPods { shapes: 2, open_terms: 1 });
    let many = RunningPods { open_terms: 4_000, ..running };
    assert_eq!(PodWeights::default().beside(many).weight(&plain), 12);
}

#[test]
fn thousands_of_tolerations_weigh_like_constraints() {
    let mut tolerant = shape("own", 100, 1);
    tolerant.tolerations = vec![Toleration { key: None, value: None, effect: None }; 1_000];
    assert_eq!(PodWeights::default().weight(&tolerant), 22);
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
        let (mut turns, mut considered) = (Turns::default(), BTreeSet::new());
        // Each of four namespaces has two shapes in each pass at least.
        for _ in 0..=drawn.len() / 2 {
            let selection = select_pods(&pods, RunningPods::default(), &turns, |_| false);
            let shapes: BTreeMap<_, u64> =
                selection.pods.iter().map(|pod| (Arc::as_ptr(&pod.shape), weights.weight(&pod.shape))).collect();
            prop_assert!(shapes.values().sum::<u64>() <= MAX_WEIGHT);
            prop_assert_eq!(selection.pods.len() + selection.deferred.len(), pods.len());
            turns.record(&selection);
            considered.extend(selection.pods.iter().map(|pod| pod.uid.clone()));
        }
        prop_assert_eq!(considered.len(), pods.len());
    }
}
