//! Estimates what pods add to the work of a simulation.

use crate::model::cluster::pod::{Pod, PodShape, PodTerm, Spread};
use crate::model::requirements::{Requirement, Requirements};
use crate::scheduling::pods::preferences::MAX_STEPS;
use std::collections::BTreeMap;
use std::sync::Arc;

/// So many values of a requirement, or tolerations, are as much work as one constraint.
const VALUES_PER_CONSTRAINT: u64 = 50;
/// To look whether a constraint selects so many different running pods is as much work as one constraint: 20,000 took 8 ms,
/// where a weight of 10,000 takes a second or two. Those with a label that they must have are found without looking.
const RUNNING_PER_CONSTRAINT: u64 = 400;
/// A constraint on so many pods is twice the work of one on few.
const PODS_PER_CONSTRAINT: u64 = 2_000;
/// Spread constraints ask of the node of each pod whether it counts, of a NodeClaim in flight for each of its offerings,
/// of which there are 60 at most.
const NODES_IN_FLIGHT: u64 = 60;

/// Weights of pods in a simulation, by which its duration grows.
///
/// The first pod of a shape weighs 2, and 1 more for each constraint in each step in which preferences are relaxed.
/// Constraints on pods weigh more if they select thousands, or if thousands of different ones run, whose nodes are counted
/// for each of them. Further pods of the same shape weigh nothing.
#[derive(Debug, Default)]
pub(crate) struct PodWeights {
    all: Count,
    by_label: BTreeMap<(Arc<str>, Arc<str>), Count>,
    running: RunningPods,
}

/// Pods on nodes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunningPods {
    /// How many are different.
    pub(crate) shapes: u64,
    /// How many terms of required anti-affinity they have that name no label: each is compared with each waiting pod.
    pub(crate) open_terms: u64,
}

#[derive(Debug, Default, Clone, Copy)]
struct Count {
    pods: u64,
    /// What their nodes are, or may become.
    nodes: u64,
}

impl PodWeights {
    /// For a simulation with these pods; `is_in_flight` is true for those on NodeClaims in flight.
    pub(crate) fn of<'a>(pods: impl Iterator<Item = &'a Arc<Pod>>, is_in_flight: impl Fn(&Pod) -> bool) -> Self {
        let mut by_shape: BTreeMap<*const PodShape, (&PodShape, Count)> = BTreeMap::new();
        for pod in pods {
            let (_, count) = by_shape.entry(Arc::as_ptr(&pod.shape)).or_insert_with(|| (&pod.shape, Count::default()));
            let nodes = if is_in_flight(pod) { NODES_IN_FLIGHT } else { 1 };
            count.add(Count { pods: 1, nodes });
        }
        let mut weights = Self::default();
        for (shape, count) in by_shape.into_values() {
            weights.all.add(count);
            for (key, value) in &shape.labels {
                weights.by_label.entry((Arc::clone(key), Arc::clone(value))).or_default().add(count);
            }
        }
        weights
    }

    /// Beside these pods on nodes.
    pub(crate) fn beside(self, running: RunningPods) -> Self {
        Self { running, ..self }
    }

    /// The weight of the first pod of a shape.
    pub(crate) fn weight(&self, shape: &PodShape) -> u64 {
        let tolerations = shape.tolerations.len() as u64 / VALUES_PER_CONSTRAINT;
        2 + tolerations + self.running.open_terms / RUNNING_PER_CONSTRAINT + self.of_constraints(shape)
    }

    /// What of it is due to constraints.
    pub(crate) fn of_constraints(&self, shape: &PodShape) -> u64 {
        self.of_simulation(shape) + constraints_on_all_pods(shape) * self.running.shapes / RUNNING_PER_CONSTRAINT
    }

    /// What constraints add while pods are placed.
    fn of_simulation(&self, shape: &PodShape) -> u64 {
        let labels: u64 = std::iter::once(&shape.selector).chain(&shape.alternatives).map(of_labels).sum();
        let terms = shape.affinity.iter().flat_map(|affinity| affinity.near.iter().chain(&affinity.apart));
        let of_spread = |spread: &Spread| of_selector(&spread.selector, self.count(&spread.selector).nodes);
        let of_term = |term: &PodTerm| of_selector(&term.selector, self.count(&term.selector).pods);
        let spread: u64 = shape.spread.iter().map(of_spread).sum();
        let required = labels + shape.ports.len() as u64 + spread + terms.map(of_term).sum::<u64>();
        let Some(preferences) = shape.preferences.as_deref() else { return required };
        let nodes = preferences.node.iter().map(|(_, labels)| of_labels(labels).max(1));
        let terms = preferences.near.iter().chain(&preferences.apart).map(|(_, term)| of_term(term));
        let spread = preferences.spread.iter().map(of_spread);
        let preferred: Vec<u64> = nodes.chain(terms).chain(spread).collect();
        (1 + preferred.len().min(MAX_STEPS) as u64) * (required + preferred.iter().sum::<u64>())
    }

    /// The pods that may be selected: they are found by a label that they must have, if there is one.
    fn count(&self, selector: &Requirements) -> Count {
        match selector.single_label() {
            Some(label) => self.by_label.get(&label).copied().unwrap_or_default(),
            None => self.all,
        }
    }
}

impl Count {
    fn add(&mut self, more: Self) {
        self.pods += more.pods;
        self.nodes += more.nodes;
    }
}

/// Constraints of a shape for which all running pods are looked at.
fn constraints_on_all_pods(shape: &PodShape) -> u64 {
    let affinity = shape.affinity.iter().flat_map(|affinity| affinity.near.iter().chain(&affinity.apart));
    let preferences = shape.preferences.as_deref();
    let preferred = preferences.into_iter().flat_map(|all| all.near.iter().chain(&all.apart)).map(|(_, term)| term);
    let spread = shape.spread.iter().chain(preferences.iter().flat_map(|all| &all.spread));
    let selectors = affinity.chain(preferred).map(|term| &term.selector).chain(spread.map(|spread| &spread.selector));
    selectors.filter(|selector| selector.single_label().is_none()).count() as u64
}

fn of_selector(selector: &Requirements, count: u64) -> u64 {
    of_labels(selector).max(1) + count / PODS_PER_CONSTRAINT
}

fn of_labels(labels: &Requirements) -> u64 {
    let of_values = |requirement: &Requirement| {
        let values = requirement.values().or_else(|| requirement.excluded());
        1 + values.map_or(0, |values| values.len() as u64 / VALUES_PER_CONSTRAINT)
    };
    labels.iter().map(|(_, requirement)| of_values(requirement)).sum()
}
