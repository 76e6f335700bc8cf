//! The policy Balanced and the order of candidates, as upstream's tests of them describe.

use super::fixtures::{Case, Cluster, Question::*, check};
use crate::karpenter::disruption::{
    PoolTotals, Totals, candidates, could_approve, in_turn, is_approved, score, totals,
};
use napkeeper_core::model::names::NodePoolName;
use std::collections::BTreeSet;

const CASES: &[Case] = &[
    // 40 of 80 cents for 2 of 4: 1.
    (
        "a node as good as the others goes",
        "pool general policy=balanced; node a; pod a 500; node b; pod b 500",
        Single,
        "delete a",
    ),
    // Both nodes cost 4 of 8 of the cost; the saving is 10 of 80: 0.25.
    (
        "a replacement that saves little does not",
        "pool general policy=balanced types=m,c; node a; pod a 900 x4; node b; pod b 1000 x4",
        Single,
        "nothing",
    ),
    (
        "with the other policy it would",
        "pool general types=m,c; node a; pod a 900 x4; node b; pod b 1000 x4",
        Single,
        "replace a with c4 on-demand",
    ),
    // Saves 70 of 160 for 2 of 11: 2.4.
    (
        "an oversized node is replaced",
        "pool general policy=balanced; node a type=m8; pod a 500; node b type=m8; pod b 990 x8",
        Single,
        "replace a with m1|m2|m4 on-demand",
    ),
    // Saves 40 of 120 for 11 of 13 (0.39), although nothing replaces it.
    (
        "many cheap pods outweigh a node",
        "pool general policy=balanced; node a; pod a 100 x10; node b type=m8 dnd; pod b 500",
        Single,
        "nothing",
    ),
    (
        "without the policy they do not",
        "pool general; node a; pod a 100 x10; node b type=m8 dnd; pod b 500",
        Single,
        "delete a",
    ),
    // 40 of 80 for 5 of 7: 0.7. With only candidates counted it would be 1 of 1.
    (
        "nodes that are no candidates count in the totals",
        "pool general policy=balanced; node a; pod a 100 x4; node b dnd; pod b 500",
        Single,
        "delete a",
    ),
    // 20 of 100 for 9 of 11 (0.24).
    (
        "the price of a protected node counts",
        "pool general policy=balanced; node a type=m2; pod a 100 x8; node b type=m8 dnd; pod b 500",
        Single,
        "nothing",
    ),
    (
        "two nodes are judged together",
        "pool general policy=balanced; node a; pod a 500; node b; pod b 500; node u unmanaged",
        Multi,
        "delete a b",
    ),
    // Two of three nodes: 80 of 240 for 22 of 24 (0.36); one alone is as bad.
    (
        "and refused together",
        "pool general policy=balanced; node a; pod a 100 x10; node b; pod b 100 x10; node c type=m16 dnd; pod c 500",
        Multi,
        "nothing",
    ),
    // Pool one: 40 of 40 for 11 of 11.
    (
        "pools are judged apart",
        "pool one policy=balanced; pool two policy=balanced; node a pool=one; pod a 100 x10; node b pool=two; pod b 100; node u unmanaged",
        Multi,
        "delete b a",
    ),
    (
        "one pool that refuses is enough",
        "pool one policy=balanced; pool two policy=balanced; node a pool=one; pod a 100 x10; node c pool=one type=m32 dnd; node b pool=two; pod b 100; node u unmanaged type=m2",
        Multi,
        "nothing",
    ),
    (
        "a pool with another policy does not refuse",
        "pool one policy=under; pool two policy=balanced; node a pool=one; pod a 100 x10; node c pool=one type=m32 dnd; node b pool=two; pod b 100; node u unmanaged type=m2",
        Multi,
        "delete b a",
    ),
    (
        "empty nodes are not judged",
        "pool general policy=balanced; node a type=m1; node b type=m32 dnd; pod b 500",
        Empty,
        "delete a",
    ),
    (
        "a budget of 0 % stops it",
        "pool general policy=balanced budget=0%; node a; pod a 500; node b; pod b 500",
        Single,
        "nothing",
    ),
    (
        "pods of DaemonSets are not disrupted",
        "pool general policy=balanced; node a; pod a 100 daemon; pod a 500; node b; pod b 100 daemon; pod b 500",
        Single,
        "delete a",
    ),
    // Replacing costs 30 cents of m4 (10 left): 30 of 80 for 2 of 12 (2.25).
    (
        "the price of the replacement is taken off the saving",
        "pool general policy=balanced; node a; pod a 500; node b; pod b 390 x9 ",
        Nodes("a"),
        "replace a with m1|m2 on-demand",
    ),
    // A spot offering would make it cheap, but the pool has none: 5 of 80 for 4 of 8 (0.125).
    (
        "spot that the pool does not allow makes nothing cheap",
        "pool general policy=balanced types=m,c; node a; pod a 1200 x3; node b; pod b 1300 x3",
        Single,
        "nothing",
    ),
    (
        "where it is allowed it does",
        "pool general policy=balanced types=m,c capacity=spot,on-demand; node a; pod a 1200 x3; node b; pod b 1300 x3",
        Single,
        "replace a with c4|m4|m8 spot",
    ),
];

#[test]
fn balanced_pools_decide_as_upstream_says() {
    check(CASES);
}

/// Saved and disrupted shares of a pool that costs 100 and would be disrupted for 100.
#[test]
fn the_score_is_the_saved_share_by_the_disrupted_share() {
    let all = Totals { price: 100.0, cost: 100.0 };
    let cases = [
        (20.0, 5.0, 4.0, true),
        (10.0, 10.0, 1.0, true),
        (5.0, 10.0, 0.5, true),
        (4.9, 10.0, 0.49, false),
        (5.0, 50.0, 0.1, false),
        (10.0, 0.0, f64::INFINITY, true),
        (0.0, 10.0, 0.0, false),
        (-5.0, 10.0, 0.0, false),
        (0.0, 0.0, 0.0, false),
    ];
    for (savings, cost, expected, approved) in cases {
        let found = score(savings, cost, all);
        assert!((found - expected).abs() < 1e-9 || found == expected, "{savings} by {cost}: {found}");
        assert_eq!(is_approved(found), approved, "{savings} by {cost}");
    }
    for nothing in [Totals { price: 0.0, cost: 100.0 }, Totals { price: 100.0, cost: 0.0 }] {
        assert!(!is_approved(score(10.0, 10.0, nothing)));
    }
}

#[test]
fn the_score_does_not_depend_on_the_size_of_the_pool() {
    for times in [1.0, 10.0, 1000.0] {
        let all = Totals { price: 100.0 * times, cost: 50.0 * times };
        assert!((score(10.0 * times, 10.0 * times, all) - 0.5).abs() < 1e-9);
    }
}

#[test]
fn totals_are_of_all_nodes_of_a_pool_with_candidates() {
    let text = "pool one policy=balanced; pool two; node a pool=one; pod a 500; pod a 100 daemon; \
                node b pool=one type=m8 dnd; pod b 500 x3; pod b 100 daemon; node c pool=one uninit unjoined; \
                node d pool=two dnd";
    let view = Cluster::read(text).view();
    let totals = totals(&view, &candidates(&view));
    let one = NodePoolName::new("one").unwrap();
    let cents = 10_000_000.0;
    let expected = PoolTotals::from([(one, Totals { price: 160.0 * cents, cost: 2.0 + 4.0 + 1.0 })]);
    assert_eq!(totals, expected);
}

#[test]
fn a_candidate_is_skipped_when_even_its_deletion_would_be_refused() {
    let text =
        "pool general policy=balanced; node a; pod a 100 x10; node b type=m8 dnd; pod b 500; node c type=m8; pod c 100";
    let view = Cluster::read(text).view();
    let all = candidates(&view);
    let totals = totals(&view, &all);
    let able: Vec<&str> = all.iter().filter(|c| could_approve(&totals, c)).map(|c| c.node.name.as_str()).collect();
    assert_eq!(able, ["c"]);
    assert!(all.iter().all(|candidate| could_approve(&PoolTotals::new(), candidate)), "without totals nothing is");
}

fn turn(text: &str, unseen: &[&str]) -> Vec<String> {
    let view = Cluster::read(text).view();
    let unseen: BTreeSet<NodePoolName> = unseen.iter().map(|name| NodePoolName::new(name).unwrap()).collect();
    in_turn(candidates(&view), &unseen).iter().map(|candidate| candidate.node.name.to_string()).collect()
}

#[test]
fn pools_take_turns() {
    let text =
        "pool one; pool two; node a pool=one; node b pool=one; node c pool=one; node d pool=two; node e pool=two";
    assert_eq!(turn(text, &[]), ["a", "d", "b", "e", "c"]);
    assert_eq!(turn(text, &["two"]), ["d", "a", "e", "b", "c"]);
}

#[test]
fn within_a_pool_the_best_saving_by_cost_is_first() {
    let text = "node a; pod a 100 x3; node b; pod b 100; node c type=m8; pod c 100; node d type=m8; pod d 100 x7";
    // 10, 20, 40, 10 cents for each point of cost.
    assert_eq!(turn(text, &[]), ["c", "b", "a", "d"]);
}
