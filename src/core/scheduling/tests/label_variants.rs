//! Tests of the values of labels that a pool leaves open.

use crate::model::cluster::pod::{PodShape, Preferences};
use crate::model::requirements::Operator;
use crate::scheduling::tests::*;

const TEAM: &str = "example.com/team";

fn open_pool(operator: Operator, values: &[&str]) -> NodePool {
    let mut pool = pool("general");
    pool.requirements.add_entry(TEAM, operator, values).unwrap();
    pool
}

fn shape_of_team(team: &str) -> PodShape {
    PodShape { selector: requirements_in(&[(TEAM, &[team])]), ..shape(team, 1000, 1) }
}

/// Waiting pods as they are in a cluster, where the pools' open labels are looked for.
fn waiting(snapshot: &mut Snapshot, pods: &[Arc<Pod>]) {
    pods.iter().for_each(|pod| snapshot.put_pod(Arc::clone(pod)));
}

/// The team of each pod's new node.
fn teams(outcome: &SchedulingResult) -> BTreeMap<String, Vec<Option<String>>> {
    let mut teams: BTreeMap<String, Vec<Option<String>>> = BTreeMap::new();
    for node in &outcome.new_nodes {
        for pod in &node.pods {
            let app = pod.shape.labels["app"].to_string();
            teams.entry(app).or_default().push(node.labels.get(TEAM).map(ToString::to_string));
        }
    }
    teams
}

#[test]
fn pods_choose_among_the_values_that_a_pool_lists() {
    let mut snapshot = cluster([open_pool(Operator::In, &["blue", "red"])]);
    let mut all = pods("r", shape_of_team("red"), 3);
    all.extend(pods("b", shape_of_team("blue"), 2));
    all.extend(pods("x", shape("any", 1000, 1), 2));
    all.extend(pods("g", shape_of_team("green"), 1));
    waiting(&mut snapshot, &all);
    let outcome = solve(&snapshot, &all);
    let teams = teams(&outcome);
    assert_eq!(teams["red"], vec![Some("red".to_owned()); 3]);
    assert_eq!(teams["blue"], vec![Some("blue".to_owned()); 2]);
    assert!(teams["any"].iter().all(Option::is_some));
    assert_eq!((outcome.unschedulable_pods(), outcome.unschedulable[0].reasons.len()), (1, 1));
    assert!(matches!(outcome.unschedulable[0].reasons[0].1, UnschedulableReason::IncompatibleRequirements(_)));
}

#[test]
fn pods_spread_over_the_values_that_a_pool_lists() {
    let snapshot = cluster([open_pool(Operator::In, &["1", "2", "3", "4", "5"])]);
    let mut spread_out = shape("web", 1000, 1);
    spread_out.spread.push(spread(TEAM, "web", 1));
    let outcome = solve(&snapshot, &pods("p", spread_out, 12));
    let mut counts: BTreeMap<Option<String>, usize> = BTreeMap::new();
    teams(&outcome)["web"].iter().for_each(|team| *counts.entry(team.clone()).or_default() += 1);
    assert_eq!((counts.len(), counts.values().sum::<usize>()), (5, 12));
    assert!(counts.values().all(|n| (2..=3).contains(n)), "{counts:?}");
}

#[test]
fn an_open_label_gets_the_value_that_a_pod_names() {
    for (operator, values, default) in [
        (Operator::Exists, &[][..], Some("1")),
        (Operator::NotIn, &["green"][..], None),
        (Operator::Gt, &["6"][..], Some("7")),
    ] {
        let named = if operator == Operator::Gt { "12" } else { "red" };
        let mut snapshot = cluster([open_pool(operator, values)]);
        let mut all = pods("r", shape_of_team(named), 2);
        all.extend(pods("x", shape("any", 1000, 1), 1));
        waiting(&mut snapshot, &all);
        let outcome = solve(&snapshot, &all);
        assert_eq!(outcome.unschedulable_pods(), 0, "{operator}");
        let teams = teams(&outcome);
        assert_eq!(teams[named], vec![Some(named.to_owned()); 2], "{operator}");
        let any = teams["any"][0].as_deref();
        assert!(any == Some(named) || any == default, "{operator}: {any:?}");
        // Where no pod names one, it is the default.
        let alone = solve(&cluster([open_pool(operator, values)]), &pods("x", shape("any", 1000, 1), 1));
        assert_eq!(alone.new_nodes[0].labels.get(TEAM).map(|v| &**v), default, "{operator}");
    }
}

#[test]
fn a_pool_gives_no_label_that_it_excludes() {
    let mut snapshot = cluster([open_pool(Operator::NotIn, &["green"])]);
    let all = pods("g", shape_of_team("green"), 1);
    waiting(&mut snapshot, &all);
    let outcome = solve(&snapshot, &all);
    assert!(
        matches!(outcome.unschedulable[0].reasons[0].1, UnschedulableReason::IncompatibleRequirements(_)),
        "{:?}",
        outcome.unschedulable[0].reasons
    );
}

#[test]
fn a_preferred_label_value_is_used() {
    let mut snapshot = cluster([open_pool(Operator::Exists, &[])]);
    let preferences = Preferences { node: vec![(10, requirements_in(&[(TEAM, &["red"])]))], ..Preferences::default() };
    let all = pods("r", PodShape { preferences: Some(Box::new(preferences)), ..shape("red", 1000, 1) }, 1);
    waiting(&mut snapshot, &all);
    assert_eq!(teams(&solve(&snapshot, &all))["red"], vec![Some("red".to_owned())]);
}

#[test]
fn limits_of_a_pool_hold_for_all_its_variants_together() {
    let mut pool = open_pool(Operator::In, &["blue", "red"]);
    pool.limits.nodes = Some(2);
    let mut all = pods("r", shape_of_team("red"), 1);
    all.extend(pods("b", shape_of_team("blue"), 1));
    let mut third = shape_of_team("red");
    third.requests.cpu_millis = 15_000;
    all.extend(pods("t", third, 1));
    let outcome = solve(&cluster([pool]), &all);
    assert!(outcome.new_nodes.len() <= 2, "{:?}", outcome.new_nodes);
}
