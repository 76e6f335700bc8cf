//! The counters that decide where pods of a class may be, and where they prefer to be.

use super::counters::{CounterKey, Counters, HOSTNAME_KEY, NO_DOMAIN, NodeFilter, PodFilter};
use super::nodes::Node;
use super::pod_class::{Constraint, PodClass, Term};
use super::{Reason, score};
use std::slice;

/// The label whose spread is scored node by node.
pub(super) const HOSTNAME: &str = "kubernetes.io/hostname";

/// A spread constraint.
#[derive(Debug, Clone)]
struct Spread {
    counter: usize,
    /// The pod itself counts.
    own: i64,
    max_skew: i64,
    min_domains: usize,
}

/// A spread constraint that is preferred.
#[derive(Debug, Clone)]
struct SoftSpread {
    counter: usize,
    /// The topology of its key: nodes without it are not preferred at all.
    topology: usize,
    max_skew: i64,
    by_node: bool,
}

/// The constraints of one class, beside requests and constraints on nodes alone.
#[derive(Debug, Clone, Default)]
pub(super) struct Rules {
    /// Index of its constraints on nodes alone.
    pub(super) fixed: usize,
    /// Index of its resource scores.
    pub(super) load: usize,
    spread: Vec<Spread>,
    soft_spread: Vec<SoftSpread>,
    spreads_without_labels: bool,
    near: Vec<usize>,
    /// It means itself by all of its required affinity.
    means_itself: bool,
    apart: Vec<usize>,
    /// Anti-affinity of other pods that means it.
    repelled: Vec<usize>,
    likes: Vec<(i64, usize)>,
    /// Affinity and preferences of other pods that mean it.
    drawn: Vec<usize>,
    /// How many counters were looked through for those of other pods.
    seen: usize,
}

/// Bounds on the count of a node's domain.
pub(super) struct Bound<'a> {
    domain: &'a [u32],
    counts: &'a [i64],
    at_least: i64,
    at_most: i64,
    without_label: bool,
    reason: Reason,
}

impl Bound<'_> {
    pub(super) fn refuses(&self, node: usize) -> Option<Reason> {
        let domain = self.domain[node];
        if domain == NO_DOMAIN {
            let missing = if self.reason == Reason::Spread { Reason::SpreadLabel } else { self.reason };
            return (!self.without_label).then_some(missing);
        }
        let count = self.counts[domain as usize];
        (count < self.at_least || count > self.at_most).then_some(self.reason)
    }
}

/// What counters are made from.
pub(super) struct Existing<'a> {
    pub(super) nodes: &'a [Node],
    /// PodClass and node of every pod.
    pub(super) bound: &'a [(usize, usize)],
    pub(super) pod_classes: &'a [PodClass],
}

impl Rules {
    /// Creates the counters that a class needs.
    pub(super) fn new(class: &PodClass, counters: &mut Counters, existing: &Existing<'_>) -> Self {
        let mut of = |pod_filter: PodFilter, key: &str, node_filter: NodeFilter| {
            let key = CounterKey { pod_filter, key: key.to_owned(), node_filter };
            counters.counter(key, existing.nodes, existing.bound, existing.pod_classes)
        };
        let mut rules = Self { spreads_without_labels: class.spreads_without_labels, ..Self::default() };
        for wanted in &class.spread {
            let counter = of(selected(class, wanted), &wanted.key, node_filter(class, wanted, &class.spread));
            let own = i64::from(wanted.selector.matches(&class.labels));
            let (max_skew, min_domains) = (wanted.max_skew, wanted.min_domains);
            rules.spread.push(Spread { counter, own, max_skew, min_domains });
        }
        for wanted in &class.soft_spread {
            let by_node = wanted.key == HOSTNAME;
            let needed = if class.spreads_without_labels { slice::from_ref(wanted) } else { &class.soft_spread };
            let (key, node_filter) = if by_node {
                (HOSTNAME_KEY, NodeFilter::default())
            } else {
                (&*wanted.key, node_filter(class, wanted, needed))
            };
            let counter = of(selected(class, wanted), key, node_filter);
            rules.soft_spread.push(SoftSpread { counter, topology: 0, max_skew: wanted.max_skew, by_node });
        }
        let everywhere = NodeFilter::default;
        for term in &class.near {
            rules.near.push(of(PodFilter::Meant(class.near.clone()), &term.key, everywhere()));
            of(PodFilter::Attracting(term.clone()), &term.key, everywhere());
        }
        for term in &class.apart {
            rules.apart.push(of(PodFilter::Meant(vec![term.clone()]), &term.key, everywhere()));
            of(PodFilter::Repelling(term.clone()), &term.key, everywhere());
        }
        for (weight, term) in &class.likes {
            rules.likes.push((*weight, of(PodFilter::Meant(vec![term.clone()]), &term.key, everywhere())));
            of(PodFilter::Attracting(term.clone()), &term.key, everywhere());
        }
        for (rule, wanted) in rules.soft_spread.iter_mut().zip(&class.soft_spread) {
            rule.topology = counters.topology(&wanted.key, existing.nodes);
        }
        let labels = counters.labels_of(&class.namespace);
        rules.means_itself = class.near.iter().all(|t| t.means(class, &labels));
        rules
    }

    /// Finds constraints of other pods on this class among new counters.
    pub(super) fn refresh(&mut self, class: &PodClass, counters: &Counters) {
        if self.seen == counters.all.len() {
            return;
        }
        let labels = counters.labels_of(&class.namespace);
        let means = |term: &Term| term.means(class, &labels);
        for (i, counter) in counters.all.iter().enumerate().skip(self.seen) {
            match &counter.key.pod_filter {
                PodFilter::Repelling(term) if means(term) => self.repelled.push(i),
                PodFilter::Attracting(term) if means(term) => self.drawn.push(i),
                _ => {}
            }
        }
        self.seen = counters.all.len();
    }

    /// The bounds that must hold, in the order of kube-scheduler's filters.
    pub(super) fn bounds<'a>(&self, counters: &'a mut Counters) -> Vec<Bound<'a>> {
        let skew_from: Vec<i64> = self.spread.iter().map(|s| lowest(s, counters)).collect();
        let counters = &*counters;
        let any_near = self.near.iter().any(|i| counters.all[*i].any);
        let first = !any_near && self.means_itself;
        let bound = |counter: usize, at_least: i64, at_most: i64, without_label: bool, reason: Reason| {
            let counter = &counters.all[counter];
            let domain = &counters.topologies[counter.topology].domain;
            Bound { domain, counts: &counter.counts, at_least, at_most, without_label, reason }
        };
        let spread = self.spread.iter().zip(skew_from);
        let spread =
            spread.map(|(s, from)| bound(s.counter, i64::MIN, s.max_skew - s.own + from, false, Reason::Spread));
        let least = if first { i64::MIN } else { 1 };
        let near = self.near.iter().map(|i| bound(*i, least, i64::MAX, false, Reason::Affinity));
        let apart = self.apart.iter().map(|i| bound(*i, i64::MIN, 0, true, Reason::AntiAffinity));
        let repelled = self.repelled.iter().map(|i| bound(*i, i64::MIN, 0, true, Reason::OthersAntiAffinity));
        spread.chain(near).chain(apart).chain(repelled).collect()
    }

    /// Scores of InterPodAffinity for these nodes; `None` if no pod has terms for them.
    pub(super) fn affinity_scores(&self, counters: &Counters, nodes: &[usize]) -> Option<Vec<i64>> {
        let counted = |(weight, i): (i64, usize)| counters.all[i].any.then_some((weight, &counters.all[i]));
        let drawn = self.drawn.iter().map(|i| (1, *i));
        let terms: Vec<_> = self.likes.iter().copied().chain(drawn).filter_map(counted).collect();
        if terms.is_empty() {
            return None;
        }
        let raw = |node: &usize| {
            let parts = terms.iter().map(|(weight, counter)| {
                let domain = counters.topologies[counter.topology].domain[*node];
                if domain == NO_DOMAIN { 0 } else { weight * counter.counts[domain as usize] }
            });
            parts.sum()
        };
        Some(score::between_lowest_and_highest(nodes.iter().map(raw).collect()))
    }

    /// Scores of PodTopologySpread for these nodes; `None` where it prefers nothing.
    pub(super) fn spread_scores(&self, counters: &Counters, nodes: &[usize]) -> Option<Vec<i64>> {
        if self.soft_spread.is_empty() {
            return None;
        }
        let topology = |rule: &SoftSpread| &counters.topologies[rule.topology].domain;
        let lacks_label = |node: usize| self.soft_spread.iter().any(|rule| topology(rule)[node] == NO_DOMAIN);
        let ignored = |node: usize| !self.spreads_without_labels && lacks_label(node);
        let judged: Vec<usize> = nodes.iter().copied().filter(|node| !ignored(*node)).collect();
        let weights: Vec<f64> = self
            .soft_spread
            .iter()
            .map(|rule| {
                let mut domains: Vec<u32> = judged.iter().map(|node| topology(rule)[*node]).collect();
                domains.sort_unstable();
                domains.dedup();
                let size = if rule.by_node { judged.len() } else { domains.len() };
                ((size + 2) as f64).ln()
            })
            .collect();
        let raw = |node: usize| {
            let parts = self.soft_spread.iter().zip(&weights).map(|(rule, weight)| {
                let counter = &counters.all[rule.counter];
                let domain = counters.topologies[counter.topology].domain[node];
                if domain == NO_DOMAIN {
                    return 0.0;
                }
                counter.counts[domain as usize] as f64 * weight + (rule.max_skew - 1) as f64
            });
            parts.sum::<f64>().round() as i64
        };
        Some(score::fewest(nodes.iter().map(|node| (!ignored(*node)).then(|| raw(*node))).collect()))
    }
}

fn lowest(rule: &Spread, counters: &mut Counters) -> i64 {
    let counter = &mut counters.all[rule.counter];
    if counter.domains < rule.min_domains { 0 } else { counter.lowest() }
}

fn selected(class: &PodClass, wanted: &Constraint) -> PodFilter {
    PodFilter::Selected(class.namespace.clone(), wanted.selector.clone())
}

/// The nodes that a constraint counts on: those that have the labels of all the pod's constraints of its sort.
fn node_filter(class: &PodClass, wanted: &Constraint, all: &[Constraint]) -> NodeFilter {
    let mut keys: Vec<String> = all.iter().map(|c| c.key.clone()).collect();
    keys.sort();
    keys.dedup();
    NodeFilter {
        keys,
        required: wanted.honors_affinity.then(|| class.fixed.required.clone()),
        tolerations: wanted.honors_taints.then(|| class.fixed.tolerations.clone()),
    }
}
