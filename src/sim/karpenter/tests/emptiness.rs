//! Emptiness and budgets, as upstream's tests of them describe.

use super::fixtures::{Case, Question::*, check};

const EMPTINESS: &[Case] = &[
    ("an empty node goes", "node a; node b; pod b 3000", Empty, "delete a"),
    ("all empty nodes go at once", "node a; node b; node c; pod c 3000", Empty, "delete a b"),
    ("a node with a pod does not", "node a; pod a 10", Empty, "nothing"),
    ("a node with a pod of a DaemonSet is empty", "node a; pod a 500 daemon", Empty, "delete a"),
    ("a node with a pod of its own is empty", "node a; pod a 500 static", Empty, "delete a"),
    ("a node with pods that are ending is empty", "node a; pod a 500 ending", Empty, "delete a"),
    ("a node with pods that have ended is empty", "node a; pod a 500 done", Empty, "delete a"),
    ("a node with a pod that nothing owns is not", "node a; pod a 500 bare", Empty, "nothing"),
    ("a node with pods that cost nothing is empty", "node a; pod a 500 priority=-1000000000", Empty, "delete a"),
    ("an annotated node stays", "node a dnd", Empty, "nothing"),
    ("a node that pods are planned onto stays", "node a nominated", Empty, "nothing"),
    ("with the policy WhenEmpty it goes", "pool general policy=empty; node a", Empty, "delete a"),
    ("with the policy Balanced it goes", "pool general policy=balanced; node a", Empty, "delete a"),
    ("with consolidateAfter Never it stays", "pool general after=never; node a", Empty, "nothing"),
    ("inside consolidateAfter it stays", "pool general after=5m; node a event=1m", Empty, "nothing"),
    ("after it, it goes", "pool general after=5m; node a event=5m", Empty, "delete a"),
    ("without a pod event the initialization counts", "pool general after=5m; node a init=1m", Empty, "nothing"),
    ("a node of a fixed-size pool stays", "pool general static; node a", Empty, "nothing"),
    ("a budget of 0 keeps all", "pool general budget=0; node a; node b", Empty, "nothing"),
    ("a budget of 0 % keeps all", "pool general budget=0%; node a; node b", Empty, "nothing"),
    ("a budget of 3 lets 3 go", "pool general budget=3; node a; node b; node c; node d; node e", Empty, "delete a b c"),
    ("the most expensive go first", "pool general budget=1; node a type=m2; node b type=m8", Empty, "delete b"),
    (
        "each pool has its own budget",
        "pool one budget=1; pool two budget=2; node a pool=one; node b pool=one; node c pool=two; node d pool=two",
        Empty,
        "delete a c d",
    ),
    ("a budget for another reason does not matter", "pool general budget=0:under; node a", Empty, "delete a"),
    ("a budget for empty nodes does", "pool general budget=0:empty; node a", Empty, "nothing"),
    (
        "nodes that are empty go before others",
        "node a; node b; pod b 500; node c; pod c 500",
        Pass,
        "Emptiness: delete a",
    ),
    (
        "a node without zone is deleted all the same when empty",
        "node a without=topology.kubernetes.io/zone",
        Empty,
        "delete a",
    ),
];

const BUDGETS: &[Case] = &[
    ("without budgets there is no limit", "node a", AllowedEmpty, "general all"),
    ("a percentage is rounded up", "pool general budget=10%; node a; node b", AllowedEmpty, "general 1"),
    (
        "a percentage is of the pool's nodes",
        "pool general budget=50%; node a; node b; node c; node d; node e",
        AllowedEmpty,
        "general 3",
    ),
    (
        "nodes that are not initialized do not count",
        "pool general budget=100%; node a; node b uninit",
        AllowedEmpty,
        "general 1",
    ),
    (
        "nodes that are not Karpenter's do not count",
        "pool general budget=100%; node a; node b unmanaged",
        AllowedEmpty,
        "general 1",
    ),
    (
        "a node that is being deleted uses it",
        "pool general budget=2; node a marked; node b; node c",
        AllowedEmpty,
        "general 1",
    ),
    (
        "a node that is not ready uses it",
        "pool general budget=2; node a notready; node b; node c",
        AllowedEmpty,
        "general 1",
    ),
    (
        "a node both not ready and leaving uses it once",
        "pool general budget=2; node a notready marked; node b",
        AllowedEmpty,
        "general 1",
    ),
    (
        "a node whose VM is being deleted neither counts nor uses it",
        "pool general budget=100%; node a terminating; node b",
        AllowedEmpty,
        "general 1",
    ),
    (
        "it never becomes negative",
        "pool general budget=1; node a marked; node b marked; node c",
        AllowedEmpty,
        "general 0",
    ),
    ("the least of several holds", "pool general budget=3 budget=1; node a; node b", AllowedEmpty, "general 1"),
    ("one for the other reason does not", "pool general budget=3 budget=1:under; node a", AllowedEmpty, "general 3"),
    ("for its own reason it does", "pool general budget=3 budget=1:under; node a", AllowedUnderutilized, "general 1"),
    ("one for drift holds for neither", "pool general budget=0:drifted; node a", AllowedUnderutilized, "general all"),
    ("inside its window it holds", "pool general budget=0@11; node a", AllowedEmpty, "general 0"),
    ("outside it does not", "pool general budget=0@9; node a", AllowedEmpty, "general all"),
    ("it holds from its first instant", "pool general budget=0@12; node a", AllowedEmpty, "general 0"),
    ("it is over at its end", "pool general budget=0@10; node a", AllowedEmpty, "general all"),
    ("a schedule that cannot be read allows nothing", "pool general budget=5@25; node a", AllowedEmpty, "general 0"),
    (
        "pools are counted apart",
        "pool one budget=1; pool two budget=1; node a pool=one marked; node b pool=two",
        AllowedUnderutilized,
        "one 0, two 1",
    ),
];

#[test]
fn empty_nodes_go_as_upstream_says() {
    check(EMPTINESS);
}

#[test]
fn budgets_are_counted_as_upstream_says() {
    check(BUDGETS);
}
