//! Validation after 15 s, as upstream's tests of it describe.

use super::fixtures::{Case, Question::*, check};

const TWO_EMPTY: &str = "node a; node b; node c; pod c 3900";
const ONE: &str = "node a; pod a 500; node b type=m8; pod b 1000 x7";
const REPLACED: &str = "node a type=m8; pod a 1500";
const SEVERAL: &str = "node a; pod a 500; node b; pod b 500; node u unmanaged";

const CASES: &[Case] = &[
    ("empty nodes that stay empty go", TWO_EMPTY, StillEmpty(""), "delete a b"),
    ("one that got a pod stays, and the other goes", TWO_EMPTY, StillEmpty("pod a 500"), "delete b"),
    ("one that pods are planned onto stays", TWO_EMPTY, StillEmpty("set b nominated"), "delete a"),
    ("one that somebody deletes meanwhile stays", TWO_EMPTY, StillEmpty("set a marked"), "delete b"),
    ("one that is gone does not matter", TWO_EMPTY, StillEmpty("drop a"), "delete b"),
    ("where none is left nothing goes", TWO_EMPTY, StillEmpty("pod a 500; pod b 500"), "Changed"),
    ("a budget that shrinks lets fewer go", TWO_EMPTY, StillEmpty("pool general budget=1"), "delete a"),
    ("or none", TWO_EMPTY, StillEmpty("pool general budget=0"), "Budget"),
    ("an annotation keeps it", TWO_EMPTY, StillEmpty("set a dnd"), "delete b"),
    (
        "a pod event starts consolidateAfter again",
        "pool general after=5m; node a event=1h; node b event=1h",
        StillEmpty("set a event"),
        "delete b",
    ),
    (
        "a node that empties meanwhile does not join in",
        "node a; node b; pod b 500 ending; pod b 100",
        StillEmpty(""),
        "delete a",
    ),
    ("a node whose pods still fit elsewhere goes", ONE, StillSingle(""), "delete a"),
    ("one that pods are planned onto stays for now", ONE, StillSingle("set a nominated"), "Changed"),
    ("one that somebody deletes does", ONE, StillSingle("set a marked"), "Changed"),
    ("one that is gone does", ONE, StillSingle("drop a"), "Changed"),
    ("a pod with the annotation stops it", ONE, StillSingle("pod a 100 dnd"), "Changed"),
    ("a pod that a budget holds stops it", ONE, StillSingle("pod a 100 app=w; pdb w none"), "Changed"),
    ("a budget of its pool stops it", ONE, StillSingle("pool general budget=0"), "Budget"),
    ("one used up by another node does", ONE, StillSingle("pool general budget=1; node d notready"), "Budget"),
    ("pods that took the room elsewhere stop it", ONE, StillSingle("pod b 900"), "Scheduling"),
    ("pods that wait now and take the room do", ONE, StillSingle("pod - 900"), "Scheduling"),
    ("a destination that is no longer initialized does", ONE, StillSingle("set b uninit"), "Scheduling"),
    (
        "a pod event on a destination inside consolidateAfter does",
        "pool general after=5m; node a event=1h; pod a 500; node b type=m8 event=1h; pod b 1000 x7",
        StillSingle("set b event"),
        "Scheduling",
    ),
    (
        "one on the node itself does",
        "pool general after=5m; node a event=1h; pod a 500; node b type=m8 event=1h; pod b 1000 x7",
        StillSingle("set a event"),
        "Changed",
    ),
    ("a small pod more that fits as well does not", ONE, StillSingle("pod a 100"), "delete a"),
    ("a replacement that still fits is made", REPLACED, StillSingle(""), "replace a with m2|m4 on-demand"),
    ("pods that need none any more stop it", REPLACED, StillSingle("node b"), "Scheduling"),
    ("pods that need larger types do", REPLACED, StillSingle("pod a 1500"), "Scheduling"),
    (
        "pods that leave room for smaller types do not",
        "node a type=m8; pod a 1500; pod a 400",
        StillSingle("drop none; pod - 10"),
        "replace a with m2|m4 on-demand",
    ),
    ("a type that Azure refuses meanwhile does", REPLACED, StillSingle("gone m4"), "Scheduling"),
    ("two nodes that are needed now do", REPLACED, StillSingle("pod a 100 app=w spread=host x2"), "Scheduling"),
    ("a set that is still right goes", SEVERAL, StillMulti(""), "delete a b"),
    ("one node less stops the whole set", SEVERAL, StillMulti("set a nominated"), "Changed"),
    ("so does one that became empty", SEVERAL, StillMulti("node c; drop b"), "Changed"),
    ("so does a budget with room for one", SEVERAL, StillMulti("pool general budget=1"), "Budget"),
    ("so does a pod that does not fit any more", SEVERAL, StillMulti("pod u 3900"), "Scheduling"),
    ("so does a policy that changed", SEVERAL, StillMulti("pool general policy=empty"), "Changed"),
];

#[test]
fn commands_are_validated_as_upstream_says() {
    check(CASES);
}
