//! Which nodes are candidates, as upstream's tests of candidates, evictions and costs describe.

use super::fixtures::{Case, Question::*, check};

const CASES: &[Case] = &[
    ("a node with two pods costs one for itself and one for each", "node a; pod a 500 x2", Candidate("a"), "cost 3"),
    ("a node that is not Karpenter's is none", "node a unmanaged", Candidate("a"), "NotManaged"),
    ("a NodeClaim without a Node is none", "node a unjoined", Candidate("a"), "NotManaged"),
    ("one that a command disrupts is none", "node a queued", Candidate("a"), "Queued"),
    ("one that is not initialized is none", "node a uninit", Candidate("a"), "NotInitialized"),
    ("one that is marked for deletion is none", "node a marked", Candidate("a"), "Marked"),
    ("one that is being deleted is none", "node a terminating", Candidate("a"), "Marked"),
    ("one that pods were planned onto is none", "node a nominated", Candidate("a"), "Nominated"),
    ("a plan that is over does not matter", "node a was-nominated", Candidate("a"), "cost 1"),
    ("an annotated node is none", "node a dnd", Candidate("a"), "NodeAnnotation"),
    ("a node of a pool that is gone is none", "pool other; node a", Candidate("a"), "NoPool"),
    ("a node of a pool without instance types is none", "pool general types=z; node a", Candidate("a"), "NoPool"),
    ("a node that is not ready is one", "node a notready; pod a 500", Candidate("a"), "cost 2"),
    ("a cordoned node is one", "node a cordoned", Candidate("a"), "cost 1"),
    ("an annotated pod makes its node none", "node a; pod a 500 dnd", Candidate("a"), "PodAnnotation"),
    ("so does one of a DaemonSet", "node a; pod a 500 daemon dnd", Candidate("a"), "PodAnnotation"),
    ("so does one of the node itself", "node a; pod a 500 static dnd", Candidate("a"), "PodAnnotation"),
    ("so does one that nothing owns", "node a; pod a 500 bare dnd", Candidate("a"), "PodAnnotation"),
    ("an annotated pod that is ending does not", "node a; pod a 500 dnd ending", Candidate("a"), "cost 1"),
    ("an annotated pod that has ended does not", "node a; pod a 500 dnd done", Candidate("a"), "cost 1"),
    (
        "an annotation for a time holds until it is over",
        "node a; pod a 500 dnd=2h age=1h",
        Candidate("a"),
        "PodAnnotation",
    ),
    ("and no longer", "node a; pod a 500 dnd=30m age=1h", Candidate("a"), "cost 2"),
    ("it is over at the very end of it", "node a; pod a 500 dnd=1h age=1h", Candidate("a"), "cost 2"),
    (
        "a terminationGracePeriod does not lift an annotation for consolidation",
        "pool general grace=1h; node a; pod a 500 dnd",
        Candidate("a"),
        "PodAnnotation",
    ),
    ("a budget that allows nothing makes it none", "node a; pod a 500 app=w; pdb w none", Candidate("a"), "Budget"),
    ("a budget that allows one does not", "node a; pod a 500 x3 app=w; pdb w one", Candidate("a"), "cost 4"),
    (
        "a terminationGracePeriod does not lift a budget for consolidation",
        "pool general grace=1h; node a; pod a 500 app=w; pdb w none",
        Candidate("a"),
        "Budget",
    ),
    ("two budgets on one pod make it none", "node a; pod a 500 app=w; pdb w one; pdb w one", Candidate("a"), "Budget"),
    ("a budget on other pods does not", "node a; pod a 500 app=w; pdb v none", Candidate("a"), "cost 2"),
    (
        "a budget of another namespace does not",
        "node a; pod a 500 app=w; pdb w none namespace=other",
        Candidate("a"),
        "cost 2",
    ),
    ("a budget holds a pod of a DaemonSet too", "node a; pod a 500 app=w daemon; pdb w none", Candidate("a"), "Budget"),
    ("but not one of the node itself", "node a; pod a 500 app=w static; pdb w none", Candidate("a"), "cost 1"),
    ("nor one that has ended", "node a; pod a 500 app=w done; pdb w none", Candidate("a"), "cost 1"),
    ("nor one that is ending", "node a; pod a 500 app=w ending; pdb w none", Candidate("a"), "cost 1"),
    ("nor one that tolerates the taint", "node a; pod a 500 app=w tolerates; pdb w none", Candidate("a"), "cost 2"),
    (
        "a budget holds a pod that is not ready",
        "node a; pod a 500 app=w starting; pdb w none",
        Candidate("a"),
        "Budget",
    ),
    (
        "unless its policy lets unready pods go",
        "node a; pod a 500 app=w starting; pdb w none unready",
        Candidate("a"),
        "cost 2",
    ),
    ("that policy does not free a ready pod", "node a; pod a 500 app=w; pdb w none unready", Candidate("a"), "Budget"),
    ("pods of DaemonSets cost nothing", "node a; pod a 500 daemon; pod a 500", Candidate("a"), "cost 2"),
    ("pods of the node itself cost nothing", "node a; pod a 500 static", Candidate("a"), "cost 1"),
    ("a pod that nothing owns costs as much as another", "node a; pod a 500 bare", Candidate("a"), "cost 2"),
    ("a higher priority costs more", "node a; pod a 500 priority=33554432", Candidate("a"), "cost 3"),
    ("but at most ten", "node a; pod a 500 priority=1000000000", Candidate("a"), "cost 11"),
    ("a low priority costs less", "node a; pod a 500 priority=-16777216", Candidate("a"), "cost 1.5"),
    ("a deletion cost counts too", "node a; pod a 500 deletion-cost=134217728", Candidate("a"), "cost 3"),
    ("and may be negative", "node a; pod a 500 deletion-cost=-67108864", Candidate("a"), "cost 1.5"),
    ("but never less than nothing", "node a; pod a 500 priority=-1000000000; pod a 500", Candidate("a"), "cost 2"),
];

#[test]
fn candidates_are_those_of_upstream() {
    check(CASES);
}
