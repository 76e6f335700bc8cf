//! The scheduling simulation, as upstream's tests of it describe.

use super::fixtures::{Case, Question::*, check};

const CASES: &[Case] = &[
    ("a pod gets a node of any type that fits", "pod - 1500", Plan, "new general m2|m4|m8|m16|m32 on-demand: 1"),
    ("pods share a node as long as a type holds them", "pod - 1500 x8", Plan, "new general m16|m32 on-demand: 8"),
    ("existing nodes are used first", "node a; pod - 1500 x3", Plan, "a: 2; new general m2|m4|m8|m16|m32 on-demand: 1"),
    ("the first by name", "node b; node a; pod - 500", Plan, "a: 1"),
    ("initialized ones before others", "node a uninit; node b; pod - 500", Plan, "b: 1"),
    ("NodeClaims under way count as nodes", "node a uninit unjoined notready; pod - 500", Plan, "a: 1"),
    (
        "nodes that are marked for deletion do not",
        "node a marked; pod - 500",
        Plan,
        "new general m1|m2|m4|m8|m16|m32 on-demand: 1",
    ),
    ("their pods are planned for", "node a marked; pod a 500", Plan, "new general m1|m2|m4|m8|m16|m32 on-demand: 1"),
    (
        "the largest pods are placed first",
        "node a; pod - 500; pod - 3800",
        Plan,
        "a: 1; new general m1|m2|m4|m8|m16|m32 on-demand: 1",
    ),
    (
        "DaemonSets keep their room on existing nodes",
        "node a type=m2; pod a 500 daemon; pod - 1600",
        Plan,
        "new general m4|m8|m16|m32 on-demand: 1",
    ),
    (
        "spread by host makes a node for each",
        "pod - 500 app=w spread=host x2",
        Plan,
        "new general m1|m2|m4|m8|m16|m32 on-demand: 1; new general m1|m2|m4|m8|m16|m32 on-demand: 1",
    ),
    (
        "spread over zones makes nodes in each",
        "pod - 500 app=w spread=zone x3",
        Plan,
        "new general m1|m2|m4|m8|m16|m32 on-demand westeurope-1: 1; new general m1|m2|m4|m8|m16|m32 on-demand westeurope-2: 1; new general m1|m2|m4|m8|m16|m32 on-demand westeurope-3: 1",
    ),
    (
        "existing pods count",
        "node a zone=1; pod a 500 app=w; node b zone=2; pod b 500 app=w; pod - 500 app=w spread=zone",
        Plan,
        "new general m1|m2|m4|m8|m16|m32 on-demand westeurope-3: 1",
    ),
    (
        "a wished spread is given up when it cannot be met",
        "pool general cpus=0; node a zone=1; pod a 100 app=w; pod - 500 app=w soft=zone",
        Plan,
        "a: 1",
    ),
    (
        "a required one is not",
        "pool general cpus=0; node a zone=1; pod a 100 app=w; pod - 500 app=w spread=zone",
        Plan,
        "unplaced: 1",
    ),
    (
        "anti-affinity between pending pods makes a node for each",
        "pod - 500 app=w apart=w x2",
        Plan,
        "new general m1|m2|m4|m8|m16|m32 on-demand: 1; new general m1|m2|m4|m8|m16|m32 on-demand: 1",
    ),
    (
        "affinity between them shares one",
        "pod - 500 app=w near=w x2",
        Plan,
        "new general m1|m2|m4|m8|m16|m32 on-demand: 2",
    ),
    ("affinity to pods that are nowhere cannot be met", "pod - 500 app=v near=w", Plan, "unplaced: 1"),
    (
        "a zone that is required narrows",
        "pod - 500 zone=2",
        Plan,
        "new general m1|m2|m4|m8|m16|m32 on-demand westeurope-2: 1",
    ),
    (
        "so does one that is preferred",
        "pod - 500 prefers=2",
        Plan,
        "new general m1|m2|m4|m8|m16|m32 on-demand westeurope-2: 1",
    ),
    (
        "a preference is given up for the sake of a node",
        "pool general cpus=0; node a zone=1; pod - 500 prefers=2",
        Plan,
        "a: 1",
    ),
    ("so does a volume", "pod - 500 volume=3", Plan, "new general m1|m2|m4|m8|m16|m32 on-demand westeurope-3: 1"),
    ("a volume elsewhere does not", "pod - 500 volume=3 zone=1", Plan, "unplaced: 1"),
    ("limits keep types out", "pool general cpus=4; pod - 1500", Plan, "new general m2|m4 on-demand: 1"),
    (
        "the largest type that may be launched counts against limits",
        "pool general cpus=40; pod - 500 app=w spread=host x2",
        Plan,
        "new general m1|m2|m4|m8|m16|m32 on-demand: 1; new general m1|m2|m4|m8 on-demand: 1",
    ),
    (
        "nodes count against limits",
        "pool general cpus=8; node a; pod a 3900; pod - 1500",
        Plan,
        "new general m2|m4 on-demand: 1",
    ),
    ("a pod that nothing can hold waits", "pod - 64000", Plan, "unplaced: 1"),
    (
        "the next pool is tried where the first cannot",
        "pool big weight=5 types=c; pool general; pod - 6000",
        Plan,
        "new general m8|m16|m32 on-demand: 1",
    ),
    ("a pool with taints needs tolerations", "pool general taint=gpu; pod - 500", Plan, "unplaced: 1"),
    (
        "and takes pods that have them",
        "pool general taint=gpu; pod - 500 tolerates=gpu",
        Plan,
        "new general m1|m2|m4|m8|m16|m32 on-demand: 1",
    ),
    (
        "ports keep pods apart",
        "pod - 500 port=80 x2",
        Plan,
        "new general m1|m2|m4|m8|m16|m32 on-demand: 1; new general m1|m2|m4|m8|m16|m32 on-demand: 1",
    ),
    ("a label that no node has cannot be met", "pod - 500 label=team:a", Plan, "unplaced: 1"),
    ("an existing node may have it", "node a label=team:a; pod - 500 label=team:a", Plan, "a: 1"),
];

#[test]
fn pods_are_planned_as_upstream_says() {
    check(CASES);
}
