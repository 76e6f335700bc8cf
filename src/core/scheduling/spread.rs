//! Spread: which zone keeps the pods of a workload even?
//!
//! Counts, per constraint, the pods in each zone that its selector matches. Constraints by host name are a cap on pods
//! per node instead, because a new node is always an empty domain.

use super::demand::Demand;
use super::outcome::{NewNode, Outcome, Target, WhyNot};
use crate::cluster::Snapshot;
use crate::cluster::node::Node;
use crate::cluster::pod::{Pod, PodShape, Spread};
use crate::labels;
use crate::names::{Namespace, NodeName, ObjectKey, Zone};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Zone counts of every zone constraint among the demands.
#[derive(Debug, Default)]
pub(super) struct SpreadBook {
    groups: BTreeMap<(Namespace, Spread), BTreeMap<Zone, i64>>,
    /// By shape: zones of the nodes that exist and have the labels it asks for. kube-scheduler takes them as domains,
    /// whatever their taints (`nodeAffinityPolicy: Honor`, `nodeTaintsPolicy: Ignore`, its defaults).
    domains: BTreeMap<Arc<PodShape>, BTreeSet<Zone>>,
}

impl SpreadBook {
    pub(super) fn new(snapshot: &Snapshot, without: &BTreeSet<NodeName>, pods: &[Arc<Pod>]) -> Self {
        let shapes: BTreeSet<&Arc<PodShape>> =
            pods.iter().filter(|p| Self::is_zonal(&p.shape)).map(|p| &p.shape).collect();
        if shapes.is_empty() {
            return Self::default();
        }
        // Pods that are to be placed anew leave the place where they run now.
        let leaving: BTreeSet<&ObjectKey> = pods.iter().filter(|p| p.node.is_some()).map(|p| &p.key).collect();
        let namespaces: BTreeSet<&Namespace> = shapes.iter().map(|shape| &shape.namespace).collect();
        let pods = namespaces.into_iter().flat_map(|namespace| snapshot.pods_of(namespace));
        let running = Running::of(snapshot, without, pods.filter(|pod| !leaving.contains(&pod.key)));
        Self::of(shapes, &running)
    }

    /// The book of some shapes, beside what runs.
    pub(super) fn of<'s>(shapes: impl IntoIterator<Item = &'s Arc<PodShape>>, running: &Running) -> Self {
        let mut book = Self::default();
        for shape in shapes {
            for spread in zonal(shape) {
                book.groups.entry((shape.namespace.clone(), spread.clone())).or_default();
            }
            let suits = running.nodes.iter().filter(|(node, _)| shape.accepts_labels(&node.labels));
            book.domains.insert(Arc::clone(shape), suits.map(|(_, zone)| zone.clone()).collect());
        }
        for (shape, zone, pods) in &running.pods {
            book.count(shape, zone, *pods);
        }
        book
    }

    /// Takes over the constraints of another book that are not known here.
    pub(super) fn learn(&mut self, other: Self) {
        self.domains.extend(other.domains);
        for (group, counts) in other.groups {
            self.groups.entry(group).or_insert(counts);
        }
    }

    /// A constraint of the shape that cannot be simulated.
    pub(super) fn unsupported(shape: &PodShape) -> Option<WhyNot> {
        let known = |s: &&Spread| &*s.topology_key != labels::ZONE && &*s.topology_key != labels::HOSTNAME;
        shape.spread.iter().find(known).map(|s| WhyNot::TopologyKey(Arc::clone(&s.topology_key)))
    }

    /// True when the shape has a zone constraint.
    pub(super) fn is_zonal(shape: &PodShape) -> bool {
        zonal(shape).next().is_some()
    }

    /// The zones that the next pod of this shape may go to, fewest pods first.
    pub(super) fn order(&self, shape: &PodShape, zones: &BTreeSet<Zone>) -> Vec<Zone> {
        let domains = self.domains.get(shape);
        let mut order: Vec<(i64, &Zone)> = Vec::new();
        for zone in zones {
            let fits = zonal(shape).all(|spread| {
                let counts = self.groups.get(&(shape.namespace.clone(), spread.clone()));
                let at = |z: &Zone| counts.and_then(|c| c.get(z)).copied().unwrap_or(0);
                let least = zones.iter().chain(domains.into_iter().flatten()).map(at).min().unwrap_or(0);
                let itself = i64::from(spread.selector.satisfied_by(&shape.labels));
                at(zone) + itself - least <= i64::from(spread.max_skew)
            });
            if fits {
                let sum = zonal(shape)
                    .filter_map(|s| self.groups.get(&(shape.namespace.clone(), s.clone()))?.get(zone))
                    .sum();
                order.push((sum, zone));
            }
        }
        order.sort();
        order.into_iter().map(|(_, zone)| zone.clone()).collect()
    }

    /// Zones of claims in flight are domains too: by the time that the pods are bound, their nodes are there.
    pub(super) fn add_domains(&mut self, shape: &Arc<PodShape>, zones: &BTreeSet<Zone>) {
        self.domains.entry(Arc::clone(shape)).or_default().extend(zones.iter().cloned());
    }

    /// Counts pods of a shape that go to (or, negative, leave) a zone.
    pub(super) fn count(&mut self, shape: &PodShape, zone: &Zone, pods: i64) {
        for ((namespace, spread), counts) in &mut self.groups {
            if *namespace == shape.namespace && spread.selector.satisfied_by(&shape.labels) {
                *counts.entry(zone.clone()).or_insert(0) += pods;
            }
        }
    }

    /// Takes pods back from new nodes where the constraints would not let kube-scheduler bind them, because pods of
    /// the same workload found no place in other zones.
    pub(super) fn settle(&mut self, homeless: &[Demand], outcome: &mut Outcome) {
        for demand in homeless {
            if let Some(zone) = &demand.zone {
                self.count(&demand.shape, zone, -(demand.pods.len() as i64));
            }
        }
        if self.groups.is_empty() {
            return;
        }
        while let Some((new, index)) = self.surplus(outcome) {
            let zone = outcome.new[new].zone();
            let pod = outcome.new[new].pods.remove(index);
            if let Some(zone) = zone {
                self.count(&pod.shape, &zone, -1);
            }
            outcome.placements.retain(|p| p.pod != pod.key);
            outcome.refuse(vec![pod], vec![(None, WhyNot::Spread)]);
        }
        drop_empty(outcome);
    }

    /// A pod on a new node whose zone has too many, by node and position.
    fn surplus(&self, outcome: &Outcome) -> Option<(usize, usize)> {
        outcome.new.iter().enumerate().rev().find_map(|(i, node)| {
            let zone = node.zone()?;
            let index = node.pods.iter().rposition(|pod| {
                zonal(&pod.shape).any(|spread| {
                    let counts = self.groups.get(&(pod.shape.namespace.clone(), spread.clone()));
                    let at = |z: &Zone| counts.and_then(|c| c.get(z)).copied().unwrap_or(0);
                    let new = outcome.new.iter().filter(|n| !n.pods.is_empty() && may_suit(n, &pod.shape));
                    let new = new.filter_map(NewNode::zone).map(|z| at(&z));
                    let existing = self.domains.get(&pod.shape).into_iter().flatten().map(at);
                    let least = existing.chain(new).min().unwrap_or(0);
                    spread.selector.satisfied_by(&pod.shape.labels) && at(&zone) - least > i64::from(spread.max_skew)
                })
            })?;
            Some((i, index))
        })
    }
}

/// What runs in a cluster, counted once for all constraints.
pub(super) struct Running {
    /// Nodes that are in a zone.
    nodes: Vec<(Arc<Node>, Zone)>,
    /// How many pods of a shape run in a zone. A shape may stand here more than once.
    pods: Vec<(Arc<PodShape>, Zone, i64)>,
}

impl Running {
    /// Counts these pods, on all nodes but those that are to go.
    pub(super) fn of<'a>(
        snapshot: &Snapshot,
        without: &BTreeSet<NodeName>,
        pods: impl Iterator<Item = &'a Arc<Pod>>,
    ) -> Self {
        let staying = snapshot.nodes().values().filter(|n| !without.contains(&n.name));
        let nodes: Vec<(Arc<Node>, Zone)> =
            staying.filter_map(|n| Some((Arc::clone(n), Zone::new(n.label(labels::ZONE)?).ok()?))).collect();
        // Places in `nodes`, which are in the order of their names.
        let place = |name: &NodeName| nodes.binary_search_by(|(node, _)| node.name.cmp(name)).ok();
        let mut bound: Vec<(&Arc<PodShape>, &Zone)> = pods
            .filter(|pod| !pod.is_terminal() && pod.deleting_at.is_none())
            .filter_map(|pod| Some((&pod.shape, &nodes.get(place(pod.node.as_ref()?)?)?.1)))
            .collect();
        // Pods that are watched share equal shapes: by address those need not be compared in depth.
        bound.sort_unstable_by(|a, b| (Arc::as_ptr(a.0), a.1).cmp(&(Arc::as_ptr(b.0), b.1)));
        let same = |a: &(&Arc<PodShape>, &Zone), b: &(&Arc<PodShape>, &Zone)| Arc::ptr_eq(a.0, b.0) && a.1 == b.1;
        let pods = bound.chunk_by(same).filter_map(|alike| {
            let (shape, zone) = alike.first()?;
            Some((Arc::clone(shape), (*zone).clone(), i64::try_from(alike.len()).ok()?))
        });
        Self { pods: pods.collect(), nodes }
    }
}

/// False when a new node cannot have the labels that a shape asks for, so far as its pool and zone decide them.
fn may_suit(node: &NewNode, shape: &PodShape) -> bool {
    shape.selector.iter().all(|(key, asked)| match (&**key, node.labels.get(key)) {
        (labels::ZONE, _) => node.zone().is_none_or(|zone| asked.allows(Some(zone.as_str()))),
        (key, None) if labels::is_well_known(key) => true,
        (_, value) => asked.allows(value.map(|v| &**v)),
    })
}

/// Drops new nodes that lost all their pods, and renumbers the placements.
fn drop_empty(outcome: &mut Outcome) {
    let mut number = Vec::with_capacity(outcome.new.len());
    let mut kept = 0;
    for node in &outcome.new {
        number.push(kept);
        kept += usize::from(!node.pods.is_empty());
    }
    for placement in &mut outcome.placements {
        if let Target::New(i) = &mut placement.target {
            *i = number[*i];
        }
    }
    outcome.new.retain(|n| !n.pods.is_empty());
}

/// Most pods of this shape on one node, by its constraints on host names.
pub(super) fn cap_per_node(shape: &PodShape) -> Option<i64> {
    let by_host = |s: &&Spread| &*s.topology_key == labels::HOSTNAME && s.selector.satisfied_by(&shape.labels);
    shape.spread.iter().filter(by_host).map(|s| i64::from(s.max_skew)).min()
}

/// True when the shape's constraints on host names count pods of the other shape.
pub(super) fn counts_per_node(shape: &PodShape, other: &PodShape) -> bool {
    let counts = |s: &Spread| &*s.topology_key == labels::HOSTNAME && s.selector.satisfied_by(&other.labels);
    other.namespace == shape.namespace && shape.spread.iter().any(counts)
}

fn zonal(shape: &PodShape) -> impl Iterator<Item = &Spread> {
    shape.spread.iter().filter(|s| &*s.topology_key == labels::ZONE)
}
