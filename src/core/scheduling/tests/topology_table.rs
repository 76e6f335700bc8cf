//! Table of the zones that are open to one more pod, by its constraints and where other pods run.
//!
//! The table (`topology.txt`) is read by people; that it is right is checked by the sentences of the Kubernetes
//! documentation, zone by zone, with nothing but the numbers of pods. A zone is open when the simulation places the pod
//! there while only the node of that zone has capacity.

use crate::model::cluster::pod::{PodAffinity, PodShape, PodTerm, Spread};
use crate::model::cluster::topology::Preferences;
use crate::scheduling::tests::*;
use std::fmt::Write as _;

const TABLE: &str = include_str!("topology.txt");
/// Running pods of the app in the zones 1, 2 and 3; `None` for zones without a node.
const COUNTS: [[Option<u32>; 3]; 11] = [
    [Some(0), Some(0), Some(0)],
    [Some(1), Some(0), Some(0)],
    [Some(0), Some(1), Some(1)],
    [Some(1), Some(1), Some(1)],
    [Some(2), Some(1), Some(0)],
    [Some(2), Some(1), Some(1)],
    [Some(3), Some(1), Some(0)],
    [Some(5), Some(3), Some(2)],
    [Some(1), Some(0), None],
    [Some(1), Some(1), None],
    [Some(2), None, None],
];

/// The constraint of the pod on the pods of the app.
#[derive(Clone, Copy)]
enum ConstraintCase {
    Even {
        skew: u32,
        min_domains: u32,
    },
    Affinity,
    AntiAffinity,
    /// The pods of the app have anti-affinity to this one, which has no constraint.
    InverseAntiAffinity,
    /// Preferred anti-affinity: existing nodes are used anyway.
    PreferredAntiAffinity,
}

/// Which zones are the pod's own to choose from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NodeSelectionCase {
    All,
    /// Its selector names the zones 1 and 2, and by the policy other zones are no domains.
    Selects,
    /// The same, where the policy ignores the selector.
    SelectsIgnored,
    /// The node of zone 3 has a taint; by the policy its zone is a domain.
    Tainted,
    /// The same, where the policy honours taints.
    TaintedHonoured,
}

struct Case {
    counts: [Option<u32>; 3],
    constraint: ConstraintCase,
    /// The pod is of the app itself.
    counts_self: bool,
    own: NodeSelectionCase,
}

fn cases() -> Vec<Case> {
    let mut constraints = vec![
        ConstraintCase::Affinity,
        ConstraintCase::AntiAffinity,
        ConstraintCase::InverseAntiAffinity,
        ConstraintCase::PreferredAntiAffinity,
    ];
    let even = |skew| [1, 2, 3].map(|min_domains| ConstraintCase::Even { skew, min_domains });
    constraints.extend([1, 2, 3].into_iter().flat_map(even));
    let mut cases = Vec::new();
    for constraint in constraints {
        let owns: &[NodeSelectionCase] = match constraint {
            ConstraintCase::Even { min_domains: 1, .. } => &[
                NodeSelectionCase::All,
                NodeSelectionCase::Selects,
                NodeSelectionCase::SelectsIgnored,
                NodeSelectionCase::Tainted,
                NodeSelectionCase::TaintedHonoured,
            ],
            _ => &[NodeSelectionCase::All, NodeSelectionCase::Selects, NodeSelectionCase::Tainted],
        };
        for own in owns {
            for counts_self in [true, false] {
                cases.extend(COUNTS.map(|counts| Case { counts, constraint, counts_self, own: *own }));
            }
        }
    }
    cases
}

impl Case {
    fn shape(&self) -> PodShape {
        let mut shape = shape(if self.counts_self { "a" } else { "other" }, 2_000, 1);
        let term = |app: &str| PodTerm {
            topology_key: labels::interned(labels::ZONE),
            namespaces: [shape.namespace.clone()].into(),
            namespace_selector: None,
            selector: requirements_in(&[("app", &[app])]),
        };
        match self.constraint {
            ConstraintCase::Even { skew, min_domains } => {
                let honors_affinity = self.own != NodeSelectionCase::SelectsIgnored;
                let honors_taints = self.own == NodeSelectionCase::TaintedHonoured;
                shape.spread =
                    vec![Spread { min_domains, honors_affinity, honors_taints, ..spread(labels::ZONE, "a", skew) }];
            }
            ConstraintCase::Affinity => {
                shape.affinity = Some(Box::new(PodAffinity { near: vec![term("a")], apart: Vec::new() }))
            }
            ConstraintCase::AntiAffinity => {
                shape.affinity = Some(Box::new(PodAffinity { near: Vec::new(), apart: vec![term("a")] }))
            }
            ConstraintCase::PreferredAntiAffinity => {
                shape.preferences =
                    Some(Box::new(Preferences { apart: vec![(100, term("a"))], ..Preferences::default() }));
            }
            ConstraintCase::InverseAntiAffinity => {}
        }
        if matches!(self.own, NodeSelectionCase::Selects | NodeSelectionCase::SelectsIgnored) {
            shape.selector = requirements_in(&[(labels::ZONE, &[zone(1).as_str(), zone(2).as_str()])]);
        }
        shape
    }

    /// In each zone a node, on which only the pods of the app run.
    fn cluster(&self, empty: usize) -> Snapshot {
        let mut snapshot = cluster([]);
        let me = if self.counts_self { "a" } else { "other" };
        let mut running_shape = shape("a", 1, 0);
        if matches!(self.constraint, ConstraintCase::InverseAntiAffinity) {
            let term = PodTerm {
                topology_key: labels::interned(labels::ZONE),
                namespaces: [running_shape.namespace.clone()].into(),
                namespace_selector: None,
                selector: requirements_in(&[("app", &[me])]),
            };
            running_shape.affinity = Some(Box::new(PodAffinity { near: Vec::new(), apart: vec![term] }));
        }
        let running_shape = Arc::new(running_shape);
        for (n, pods) in self.counts.iter().enumerate() {
            let Some(pods) = pods else { continue };
            let mut node = node(&format!("n{}", n + 1), n as u8 + 1, if n == empty { 4 } else { 1 });
            if n == 2 && matches!(self.own, NodeSelectionCase::Tainted | NodeSelectionCase::TaintedHonoured) {
                node.taints.push(Taint { key: "k".into(), value: "".into(), effect: TaintEffect::NoSchedule });
            }
            for pod in 0..*pods {
                snapshot.put_pod(running(&format!("a-{n}-{pod}"), &running_shape, &node));
            }
            snapshot.put_node(node);
        }
        snapshot
    }

    /// The zones that the simulation finds open.
    fn found(&self) -> Vec<usize> {
        let is_placed = |zone: &usize| {
            let outcome = solve(&self.cluster(*zone), &pods("p", self.shape(), 1));
            outcome.unschedulable_pods() == 0
        };
        (0..3).filter(is_placed).collect()
    }

    /// The zones that are open by the documentation.
    fn expected(&self) -> Vec<usize> {
        let mine = |zone: usize| match self.own {
            NodeSelectionCase::All => true,
            // Neither would be let in there whatever its neighbours.
            NodeSelectionCase::Selects
            | NodeSelectionCase::SelectsIgnored
            | NodeSelectionCase::Tainted
            | NodeSelectionCase::TaintedHonoured => zone != 2,
        };
        let is_domain = |zone: usize| match self.own {
            NodeSelectionCase::Selects | NodeSelectionCase::TaintedHonoured => zone != 2,
            NodeSelectionCase::All | NodeSelectionCase::SelectsIgnored | NodeSelectionCase::Tainted => true,
        };
        let domains: Vec<u32> = (0..3).filter(|zone| is_domain(*zone)).filter_map(|zone| self.counts[zone]).collect();
        // "When the number of eligible domains is less than minDomains, the global minimum is treated as 0."
        let global_minimum = |least: u32| {
            if (domains.len() as u32) < least { 0 } else { domains.iter().min().copied().unwrap_or(0) }
        };
        let anywhere: u32 = self.counts.iter().flatten().sum();
        let open = |zone: &usize| {
            let Some(count) = self.counts[*zone] else { return false };
            mine(*zone)
                && match self.constraint {
                    // The skew of a zone, with this pod if it counts itself, must not exceed maxSkew.
                    ConstraintCase::Even { skew, min_domains } => {
                        count + u32::from(self.counts_self) <= skew + global_minimum(min_domains)
                    }
                    // The first of a group that is near to itself may go anywhere.
                    ConstraintCase::Affinity => count > 0 || self.counts_self && anywhere == 0,
                    ConstraintCase::AntiAffinity | ConstraintCase::InverseAntiAffinity => count == 0,
                    ConstraintCase::PreferredAntiAffinity => true,
                }
        };
        (0..3).filter(open).collect()
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let counts = self.counts.map(|count| count.map_or_else(|| "-".to_owned(), |count| count.to_string()));
        write!(f, "{} | ", counts.join(" "))?;
        match self.constraint {
            ConstraintCase::Even { skew, min_domains: 1 } => write!(f, "even, maxSkew {skew}")?,
            ConstraintCase::Even { skew, min_domains } => write!(f, "even, maxSkew {skew}, minDomains {min_domains}")?,
            ConstraintCase::Affinity => f.write_str("near")?,
            ConstraintCase::AntiAffinity => f.write_str("apart")?,
            ConstraintCase::InverseAntiAffinity => f.write_str("they want to be apart from it")?,
            ConstraintCase::PreferredAntiAffinity => f.write_str("apart, preferred")?,
        }
        f.write_str(if self.counts_self { ", is one of them" } else { ", is another" })?;
        f.write_str(match self.own {
            NodeSelectionCase::All => "",
            NodeSelectionCase::Selects => ", selects zones 1 and 2",
            NodeSelectionCase::SelectsIgnored => ", selects zones 1 and 2, nodeAffinityPolicy Ignore",
            NodeSelectionCase::Tainted => ", taint in zone 3",
            NodeSelectionCase::TaintedHonoured => ", taint in zone 3, nodeTaintsPolicy Honor",
        })
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "on request the test rewrites its table")]
fn allowed_zones_match_the_kubernetes_documentation() {
    let (mut text, mut wrong) = (String::new(), Vec::new());
    for case in cases() {
        let (found, expected) = (case.found(), case.expected());
        let list = |zones: &[usize]| match zones {
            [] => "none".to_owned(),
            zones => zones.iter().map(|zone| (zone + 1).to_string()).collect::<Vec<_>>().join(" "),
        };
        writeln!(text, "{case} -> {}", list(&found)).unwrap();
        if found != expected {
            wrong.push(format!("{case}: open are {}, and should be {}", list(&found), list(&expected)));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    if std::env::var_os("NAPKEEPER_BLESS").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/scheduling/tests/topology.txt"), &text).unwrap();
    } else {
        let lines = text.lines().zip(TABLE.lines()).find(|(found, expected)| found != expected);
        assert!(text == TABLE, "the first that differs from the table: {lines:?}");
    }
    assert_eq!(text.lines().count(), cases().len());
}
