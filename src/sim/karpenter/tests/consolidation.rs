//! Consolidation of one node and of several, as upstream's tests of it describe.

use super::fixtures::{Case, Question::*, check};

const DELETE: &[Case] = &[
    ("a node whose pods fit elsewhere goes", "node a; pod a 500; node b; pod b 2000", Single, "delete a"),
    ("one whose pods fit nowhere stays", "node a; pod a 3500; node b; pod b 3500", Single, "nothing"),
    ("pods may go to nodes that are not Karpenter's", "node a; pod a 500; node u unmanaged", Single, "delete a"),
    (
        "but not to cordoned ones",
        "node a type=m1; pod a 500; node b cordoned notready dnd; pod b 10",
        Single,
        "nothing",
    ),
    (
        "nor to those whose taints they do not tolerate",
        "node a type=m1; pod a 500; node u unmanaged taint=dedicated",
        Single,
        "nothing",
    ),
    ("pods that nothing owns move too", "node a; pod a 500 bare; node b; pod b 3000", Single, "delete a"),
    (
        "DaemonSet pods do not have to move",
        "node a type=m1; pod a 500 daemon; pod a 100; node b; pod b 500 daemon; pod b 3000",
        Single,
        "delete a",
    ),
    (
        "inside consolidateAfter a node stays",
        "pool general after=5m; node a event=1m; pod a 500; node b event=1m; pod b 500",
        Single,
        "nothing",
    ),
    (
        "with consolidateAfter Never it stays",
        "pool general after=never; node a; pod a 500; node b; pod b 500",
        Single,
        "nothing",
    ),
    (
        "with the policy WhenEmpty it stays",
        "pool general policy=empty; node a; pod a 500; node b; pod b 500",
        Single,
        "nothing",
    ),
    (
        "a node of a fixed-size pool stays",
        "pool general static; node a; pod a 500; node u unmanaged",
        Single,
        "nothing",
    ),
    (
        "a node without zone stays",
        "node a without=topology.kubernetes.io/zone; pod a 500; node u unmanaged",
        Single,
        "nothing",
    ),
    (
        "a node without capacity type stays",
        "node a without=karpenter.sh/capacity-type; pod a 500; node u unmanaged",
        Single,
        "nothing",
    ),
    ("an annotated node stays, and the other goes", "node a dnd; pod a 500; node b; pod b 500", Single, "delete b"),
    (
        "a node with an annotated pod stays, and the other goes",
        "node a; pod a 500 dnd; node b; pod b 500",
        Single,
        "delete b",
    ),
    (
        "a node whose pod may not be evicted stays, and the other goes",
        "node a; pod a 500 app=w; node b; pod b 500; pdb w none",
        Single,
        "delete b",
    ),
    (
        "a node whose budget allows one goes",
        "node a; pod a 500 app=w x2; node u unmanaged; pdb w one",
        Single,
        "delete a",
    ),
    ("an empty node is left to the method of empty ones", "node a; node b dnd; pod b 3900", Single, "nothing"),
    (
        "the best saving by pods goes first",
        "node a; pod a 100 x3; node b; pod b 100; node u unmanaged",
        Single,
        "delete b",
    ),
    (
        "a more expensive node goes first",
        "node a type=m4; pod a 100; node b type=m8; pod b 100; node u unmanaged",
        Single,
        "delete b",
    ),
    (
        "a low priority goes first",
        "node a; pod a 100; node b; pod b 100 priority=-16777216; node u unmanaged",
        Single,
        "delete b",
    ),
    (
        "a pod that waits indefinitely stops nothing",
        "node a; pod a 500; node b; pod b 500; pod - 500 zone=3 label=no:such",
        Single,
        "delete a",
    ),
    (
        "room that a pending pod will take is not counted twice",
        "node a type=m1; pod a 900; node b; pod b 200; pod - 3000",
        Nodes("a"),
        "NotCheaper",
    ),
    (
        "nor is room for pods of leaving nodes",
        "node a type=m1; pod a 900; node b; pod b 200; node l marked; pod l 3000",
        Nodes("a"),
        "NotCheaper",
    ),
    (
        "pods that a budget holds indefinitely on leaving nodes take none",
        "node a type=m1; pod a 900; node b; pod b 200; node l marked; pod l 3000 app=w; pdb w blocks",
        Nodes("a"),
        "delete a",
    ),
    (
        "nor do annotated ones",
        "node a type=m1; pod a 900; node b; pod b 200; node l marked; pod l 3000 dnd",
        Nodes("a"),
        "delete a",
    ),
    (
        "pods do not move to nodes that are not initialized",
        "node a type=m1; pod a 500; node b uninit",
        Nodes("a"),
        "Unplaced",
    ),
    ("nor to NodeClaims without a Node", "node a type=m1; pod a 500; node b uninit unjoined", Nodes("a"), "Unplaced"),
    ("initialized nodes are used first", "node a type=m1; pod a 500; node b uninit; node c", Nodes("a"), "delete a"),
    (
        "pods of leaving nodes may go to nodes that are not initialized",
        "node a type=m1; pod a 500; node b type=m1; pod b 500; node c uninit type=m4; node l marked; pod l 3000",
        Nodes("a"),
        "delete a",
    ),
    (
        "pending pods may too",
        "node a type=m1; pod a 500; node b type=m1; pod b 500; node c uninit type=m4; pod - 3000",
        Nodes("a"),
        "delete a",
    ),
    (
        "pods do not move to nodes inside consolidateAfter",
        "pool general after=5m; node a type=m1 event=1h; pod a 500; node b event=1m; pod b 500",
        Nodes("a"),
        "NotCheaper",
    ),
    (
        "they do where that rule is off",
        "rules fresh-off; pool general after=5m; node a type=m1 event=1h; pod a 500; node b event=1m; pod b 500",
        Nodes("a"),
        "delete a",
    ),
    (
        "pods that have not started do",
        "pool general after=5m; node a type=m1 event=1h; pod a 500 starting; node b event=1m; pod b 500",
        Nodes("a"),
        "delete a",
    ),
    (
        "the pool of the destination decides",
        "pool general after=5m; pool other after=never; node a type=m1 event=1h; pod a 500; node b pool=other event=1m",
        Nodes("a"),
        "delete a",
    ),
    (
        "anti-affinity keeps pods apart",
        "node a type=m1; pod a 500 app=w apart=w; node b; pod b 500 app=w",
        Nodes("a"),
        "NotCheaper",
    ),
    (
        "so does that of the pods there",
        "node a type=m1; pod a 500 app=w; node b; pod b 500 app=v apart=w",
        Nodes("a"),
        "NotCheaper",
    ),
    (
        "affinity finds its pod",
        "node a type=m1; pod a 500 near=w app=v; node b type=m4; node c; pod c 500 app=w",
        Nodes("a"),
        "delete a",
    ),
    (
        "a port that is taken does",
        "node a type=m1; pod a 500 port=80; node b; pod b 500 port=80",
        Nodes("a"),
        "NotCheaper",
    ),
    (
        "a zone that is required does",
        "node a type=m1 zone=1; pod a 500 zone=1; node b zone=2; pod b 10",
        Nodes("a"),
        "NotCheaper",
    ),
    (
        "so does the zone of a volume",
        "node a type=m1 zone=1; pod a 500 volume=1; node b zone=2; pod b 10",
        Nodes("a"),
        "NotCheaper",
    ),
    (
        "in the volume's zone there is room",
        "node a type=m1 zone=1; pod a 500 volume=1; node b zone=1; pod b 10",
        Nodes("a"),
        "delete a",
    ),
    (
        "a preferred zone is given up only when nothing has it",
        "node a type=m1 zone=1; pod a 500 prefers=1; node b zone=2; pod b 10",
        Nodes("a"),
        "NotCheaper",
    ),
    (
        "a spread that is only wished for counts too",
        "node a type=m1; pod a 500 app=w soft=host; node b; pod b 500 app=w",
        Nodes("a"),
        "NotCheaper",
    ),
];

const REPLACE: &[Case] = &[
    (
        "a node is replaced by cheaper ones that fit",
        "node a type=m8; pod a 1500",
        Single,
        "replace a with m2|m4 on-demand",
    ),
    (
        "the cheapest comes first",
        "pool general types=m,c; node a type=m8; pod a 2500",
        Single,
        "replace a with c4|m4 on-demand",
    ),
    (
        "memory counts",
        "pool general types=m,c; node a type=m8; pod a 2500 mem=12",
        Single,
        "replace a with m4 on-demand",
    ),
    ("one as cheap is no replacement", "node a type=m2; pod a 1500", Nodes("a"), "NotCheaper"),
    ("a node of the smallest type stays", "node a type=m1; pod a 500", Nodes("a"), "NotCheaper"),
    (
        "DaemonSets need room on the new node",
        "node a type=m8; pod a 500 daemon; pod a 1800",
        Single,
        "replace a with m4 on-demand",
    ),
    (
        "pods that need two nodes keep one",
        "node a type=m16; pod a 500 app=w spread=host x2",
        Nodes("a"),
        "SeveralNodes",
    ),
    (
        "a type that Azure has refused is left out, and larger ones of its family",
        "pool general types=m,c; gone m4; node a type=m16; pod a 2500",
        Single,
        "replace a with c4 on-demand",
    ),
    ("where all are refused the node stays", "gone m1; node a type=m8; pod a 1500", Nodes("a"), "Unplaced"),
    (
        "a spread over zones keeps the zone",
        "node a type=m8 zone=1; pod a 500 app=w spread=zone; node b type=m1 zone=2; pod b 500 app=w; node c type=m1 zone=3; pod c 500 app=w",
        Single,
        "replace a with m1|m2|m4 on-demand westeurope-1",
    ),
    (
        "a volume keeps the zone",
        "node a type=m8 zone=2; pod a 500 volume=2",
        Single,
        "replace a with m1|m2|m4 on-demand westeurope-2",
    ),
    (
        "without such a constraint the zone is open",
        "node a type=m8 zone=2; pod a 500",
        Single,
        "replace a with m1|m2|m4 on-demand",
    ),
    (
        "the heaviest pool makes the replacement",
        "pool general; pool better weight=10 types=c; node a type=m8; pod a 500",
        Single,
        "replace a with c4 on-demand",
    ),
    (
        "a pool whose taints pods do not tolerate does not",
        "pool general; pool better weight=10 types=c taint=dedicated; node a type=m8; pod a 500",
        Single,
        "replace a with m1|m2|m4 on-demand",
    ),
    (
        "a taint that only advises is heeded as long as another pool will do",
        "pool general; pool better weight=10 types=c taint=~dedicated; node a type=m8; pod a 500",
        Single,
        "replace a with m1|m2|m4 on-demand",
    ),
    (
        "and not where there is none",
        "pool general types=c taint=~dedicated; node a type=m8; pod a 500",
        Single,
        "replace a with c4 on-demand",
    ),
    (
        "among equal weights the last name is first",
        "pool aaa types=m; pool zzz types=c; node a type=m8 pool=aaa; pod a 500",
        Single,
        "replace a with c4 on-demand",
    ),
    (
        "limits leave room for what takes the place of a node",
        "pool general cpus=8; node a type=m8; pod a 500",
        Single,
        "replace a with m1|m2|m4 on-demand",
    ),
    (
        "not for more",
        "pool general cpus=9; node a type=m8; pod a 500; node b type=m8; pod b 7900",
        Single,
        "replace a with m1 on-demand",
    ),
    ("a limit of no nodes allows none", "pool general nodes=0; node a type=m8; pod a 500", Nodes("a"), "Unplaced"),
    (
        "a limit of one node is never used up",
        "pool general nodes=1; node a type=m8; pod a 500; node b type=m8; pod b 7900",
        Single,
        "replace a with m1|m2|m4 on-demand",
    ),
    ("minValues is kept", "pool general min=2; node a type=m8; pod a 1500", Single, "replace a with m2|m4 on-demand"),
    (
        "where too few are cheaper the node stays",
        "pool general min=3; node a type=m8; pod a 1500",
        Nodes("a"),
        "MinValues",
    ),
    (
        "an unready node is replaced too",
        "node a type=m8 notready; pod a 1500",
        Single,
        "replace a with m2|m4 on-demand",
    ),
    (
        "pods that wait and fit take part in the new node",
        "node a type=m16; pod a 1500; pod - 2000",
        Single,
        "replace a with m4|m8 on-demand",
    ),
];

const SPOT: &[Case] = &[
    (
        "an on-demand node becomes spot where that is allowed",
        "pool general capacity=spot,on-demand; node a type=m8; pod a 1500",
        Single,
        "replace a with m2|m4|m8|m16 spot",
    ),
    (
        "not where spot is refused",
        "gone spot; pool general capacity=spot,on-demand; node a type=m8; pod a 1500",
        Single,
        "replace a with m2|m4 spot",
    ),
    (
        "a spot node is not replaced by spot",
        "pool general capacity=spot,on-demand; node a type=m8 capacity=spot; pod a 1500",
        Nodes("a"),
        "SpotToSpotOff",
    ),
    (
        "it is deleted all the same",
        "pool general capacity=spot; node a type=m8 capacity=spot; pod a 500; node u unmanaged",
        Single,
        "delete a",
    ),
    (
        "with the gate it needs fifteen cheaper types",
        "rules spot; pool general capacity=spot; node a type=m8 capacity=spot; pod a 1500",
        Nodes("a"),
        "TooFewSpotTypes",
    ),
    (
        "fourteen are too few",
        "rules spot; pool general capacity=spot types=x; node a type=x15 capacity=spot; pod a 1500",
        Nodes("a"),
        "TooFewSpotTypes",
    ),
    (
        "fifteen are enough",
        "rules spot; pool general capacity=spot types=x; node a type=x16 capacity=spot; pod a 1500",
        Nodes("a"),
        "replace a with 15 types from x01 spot",
    ),
    (
        "of more the cheapest fifteen are taken",
        "rules spot; pool general capacity=spot types=x; node a type=x20 capacity=spot; pod a 1500",
        Nodes("a"),
        "replace a with 15 types from x01 spot",
    ),
    (
        "or as many as minValues needs",
        "rules spot; pool general capacity=spot types=x min=18; node a type=x20 capacity=spot; pod a 1500",
        Nodes("a"),
        "replace a with 18 types from x01 spot",
    ),
    (
        "a small minValues does not lower that",
        "rules spot; pool general capacity=spot types=x min=3; node a type=x20 capacity=spot; pod a 1500",
        Nodes("a"),
        "replace a with 15 types from x01 spot",
    ),
    (
        "minValues beyond what is cheaper keeps the node",
        "rules spot; pool general capacity=spot types=x min=20; node a type=x20 capacity=spot; pod a 1500",
        Nodes("a"),
        "MinValues",
    ),
    (
        "a spot node becomes on-demand only where that is cheaper",
        "pool general capacity=on-demand; node a type=m8 capacity=spot; pod a 1500",
        Nodes("a"),
        "replace a with m2 on-demand",
    ),
    (
        "on-demand that is more expensive is no replacement",
        "pool general capacity=on-demand; node a type=m4 capacity=spot; pod a 1500",
        Nodes("a"),
        "NotCheaper",
    ),
];

const MULTI: &[Case] = &[
    ("one node alone is none of its business", "node a; pod a 500; node u unmanaged", Multi, "nothing"),
    (
        "nodes whose pods fit elsewhere go together",
        "node a; pod a 500; node b; pod b 500; node u unmanaged",
        Multi,
        "delete a b",
    ),
    ("as many go as leave room", "node a; pod a 1000; node b; pod b 1000; node c; pod c 1000", Multi, "delete a b"),
    (
        "three become one",
        "pool general types=m,c; node a type=m2; pod a 1300; node b type=m2; pod b 1300; node c type=m2; pod c 1300",
        Multi,
        "replace a b c with c4|m4 on-demand",
    ),
    (
        "a search that fails for two does not try three",
        "node a type=m2; pod a 1300; node b type=m2; pod b 1300; node c type=m2; pod c 1300",
        Multi,
        "nothing",
    ),
    ("two do not become one of the same type", "node a; pod a 1900; node b; pod b 1900", Multi, "nothing"),
    ("one of them is deleted instead", "node a; pod a 1900; node b; pod b 1900", Single, "delete a"),
    (
        "a cheaper type takes both",
        "pool general types=m,c; node a; pod a 1900; node b; pod b 1900",
        Multi,
        "replace a b with c4 on-demand",
    ),
    (
        "spot and on-demand become spot that is cheaper than either of its type",
        "pool general types=m,c capacity=spot,on-demand; node a; pod a 1900; node b capacity=spot; pod b 1900",
        Multi,
        "replace a b with c4 spot",
    ),
    (
        "two spot nodes stay without the gate",
        "pool general types=m,c capacity=spot; node a capacity=spot; pod a 1900; node b capacity=spot; pod b 1900",
        Multi,
        "nothing",
    ),
    (
        "with it they need no fifteen types",
        "rules spot; pool general types=m,c capacity=spot; node a capacity=spot; pod a 1900; node b capacity=spot; pod b 1900",
        Multi,
        "replace a b with c4 spot",
    ),
    (
        "nor are more cut to fifteen",
        "rules spot; pool general types=m,x capacity=spot; node a capacity=spot; pod a 1900; node b capacity=spot; pod b 1900",
        Multi,
        "replace a b with 19 types from x01 spot",
    ),
    (
        "budgets limit how many",
        "pool general budget=2; node a; pod a 500; node b; pod b 500; node c; pod c 500; node u unmanaged",
        Multi,
        "delete a b",
    ),
    (
        "a budget of one leaves it to the next method",
        "pool general budget=1; node a; pod a 500; node b; pod b 500; node u unmanaged",
        Pass,
        "SingleNode: delete a",
    ),
    (
        "a budget of 0 stops all",
        "pool general budget=0; node a; pod a 500; node b; pod b 500; node u unmanaged",
        Pass,
        "nothing",
    ),
    (
        "a budget for empty nodes does not",
        "pool general budget=0:empty; node a; pod a 500; node b; pod b 500; node u unmanaged",
        Pass,
        "MultiNode: delete a b",
    ),
    (
        "nodes of several pools go together",
        "pool one; pool two; node a pool=one; pod a 500; node b pool=two; pod b 500; node u unmanaged",
        Multi,
        "delete a b",
    ),
    (
        "each pool within its budget",
        "pool one budget=1; pool two budget=1; node a pool=one; pod a 500; node b pool=two; pod b 500; node c pool=two; pod c 500; node u unmanaged",
        Multi,
        "delete a b",
    ),
    (
        "the best saving by pods is among them",
        "pool general budget=2; node a; pod a 100 x5; node b; pod b 100; node c; pod c 100 x2; node u unmanaged",
        Multi,
        "delete b c",
    ),
    ("pods that cannot go anywhere stop the set", "node a; pod a 3500; node b; pod b 3500", Multi, "nothing"),
    (
        "where the set fails one node may still go",
        "node a type=m8; pod a 1500; node b type=m8; pod b 7500",
        Pass,
        "SingleNode: replace a with m2|m4 on-demand",
    ),
    (
        "empty nodes are not among them",
        "node a; node b; pod b 500; node c; pod c 500; node u unmanaged",
        Multi,
        "delete b c",
    ),
    (
        "nodes inside consolidateAfter are not",
        "pool general after=5m; node a event=1m; pod a 500; node b event=1h; pod b 500; node c event=1h; pod c 500; node u unmanaged",
        Multi,
        "delete b c",
    ),
    (
        "minValues stops a replacement",
        "pool general types=m,c min=2; node a; pod a 1900; node b; pod b 1900",
        Multi,
        "nothing",
    ),
];

#[test]
fn nodes_are_deleted_as_upstream_says() {
    check(DELETE);
}

#[test]
fn nodes_are_replaced_as_upstream_says() {
    check(REPLACE);
}

#[test]
fn spot_nodes_are_replaced_as_upstream_says() {
    check(SPOT);
}

#[test]
fn several_nodes_are_consolidated_as_upstream_says() {
    check(MULTI);
}
