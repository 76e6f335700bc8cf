//! Rules: which counters decide where pods of a kind may be, and where they would rather be?

use super::counters::{Among, Counters, ITSELF, NOWHERE, What, Who};
use super::kind::{Constraint, Kind, Term};
use super::nodes::Node;
use super::{Reason, score};

/// The label whose spread is scored node by node.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// A spread constraint.
#[derive(Debug)]
struct Spread {
    counter: usize,
    /// The pod itself counts.
    own: i64,
    max_skew: i64,
    min_domains: usize,
}

/// A spread constraint that is preferred.
#[derive(Debug)]
struct SoftSpread {
    counter: usize,
    /// The topology of its key: nodes without it are not preferred at all.
    topology: usize,
    max_skew: i64,
    by_node: bool,
}

/// What decides of one kind, beside requests and what it asks of nodes by themselves.
#[derive(Debug, Default)]
pub(super) struct Rules {
    /// Place among the answers for what it asks of nodes by themselves.
    pub(super) fixed: usize,
    /// Place among the scores by requests.
    pub(super) load: usize,
    spread: Vec<Spread>,
    soft_spread: Vec<SoftSpread>,
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
    why: Reason,
}

impl Bound<'_> {
    pub(super) fn refuses(&self, node: usize) -> Option<Reason> {
        let domain = self.domain[node];
        if domain == NOWHERE {
            let missing = if self.why == Reason::Spread { Reason::SpreadLabel } else { self.why };
            return (!self.without_label).then_some(missing);
        }
        let count = self.counts[domain as usize];
        (count < self.at_least || count > self.at_most).then_some(self.why)
    }
}

/// What counters are made from.
pub(super) struct Ground<'a> {
    pub(super) nodes: &'a [Node],
    /// Kind and node of every pod.
    pub(super) bound: &'a [(usize, usize)],
    pub(super) kinds: &'a [Kind],
}

impl Rules {
    /// Makes the counters that a kind needs, and those of what it asks of others.
    pub(super) fn new(kind: &Kind, counters: &mut Counters, ground: &Ground<'_>) -> Self {
        let mut of = |who: Who, key: &str, among: Among| {
            let what = What { who, key: key.to_owned(), among };
            counters.counter(what, ground.nodes, ground.bound, ground.kinds)
        };
        let mut rules = Self::default();
        for wanted in &kind.spread {
            let counter = of(selected(kind, wanted), &wanted.key, among(kind, wanted, &kind.spread));
            let own = i64::from(wanted.selector.matches(&kind.labels));
            let (max_skew, min_domains) = (wanted.max_skew, wanted.min_domains);
            rules.spread.push(Spread { counter, own, max_skew, min_domains });
        }
        for wanted in &kind.soft_spread {
            let by_node = wanted.key == HOSTNAME;
            let (key, among) = if by_node {
                (ITSELF, Among::default())
            } else {
                (&*wanted.key, among(kind, wanted, &kind.soft_spread))
            };
            let counter = of(selected(kind, wanted), key, among);
            rules.soft_spread.push(SoftSpread { counter, topology: 0, max_skew: wanted.max_skew, by_node });
        }
        let everywhere = Among::default;
        for term in &kind.near {
            rules.near.push(of(Who::Meant(kind.near.clone()), &term.key, everywhere()));
            of(Who::Attracting(term.clone()), &term.key, everywhere());
        }
        for term in &kind.apart {
            rules.apart.push(of(Who::Meant(vec![term.clone()]), &term.key, everywhere()));
            of(Who::Repelling(term.clone()), &term.key, everywhere());
        }
        for (weight, term) in &kind.likes {
            rules.likes.push((*weight, of(Who::Meant(vec![term.clone()]), &term.key, everywhere())));
            of(Who::Attracting(term.clone()), &term.key, everywhere());
        }
        for (rule, wanted) in rules.soft_spread.iter_mut().zip(&kind.soft_spread) {
            rule.topology = counters.topology(&wanted.key, ground.nodes);
        }
        let labels = counters.labels_of(&kind.namespace);
        rules.means_itself = kind.near.iter().all(|t| t.means(kind, &labels));
        rules
    }

    /// Looks through new counters for what other pods ask of this kind.
    pub(super) fn refresh(&mut self, kind: &Kind, counters: &Counters) {
        if self.seen == counters.all.len() {
            return;
        }
        let labels = counters.labels_of(&kind.namespace);
        let means = |term: &Term| term.means(kind, &labels);
        for (i, counter) in counters.all.iter().enumerate().skip(self.seen) {
            match &counter.what.who {
                Who::Repelling(term) if means(term) => self.repelled.push(i),
                Who::Attracting(term) if means(term) => self.drawn.push(i),
                _ => {}
            }
        }
        self.seen = counters.all.len();
    }

    /// The bounds that must hold, in the order in which kube-scheduler asks.
    pub(super) fn bounds<'a>(&self, counters: &'a mut Counters) -> Vec<Bound<'a>> {
        let skew_from: Vec<i64> = self.spread.iter().map(|s| lowest(s, counters)).collect();
        let counters = &*counters;
        let any_near = self.near.iter().any(|i| counters.all[*i].any);
        let first = !any_near && self.means_itself;
        let bound = |counter: usize, at_least: i64, at_most: i64, without_label: bool, why: Reason| {
            let counter = &counters.all[counter];
            let domain = &counters.topologies[counter.topology].domain;
            Bound { domain, counts: &counter.counts, at_least, at_most, without_label, why }
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

    /// Scores of InterPodAffinity for these nodes; `None` where no pod has anything to say.
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
                if domain == NOWHERE { 0 } else { weight * counter.counts[domain as usize] }
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
        let ignored = |node: usize| self.soft_spread.iter().any(|rule| topology(rule)[node] == NOWHERE);
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

fn selected(kind: &Kind, wanted: &Constraint) -> Who {
    Who::Selected(kind.namespace.clone(), wanted.selector.clone())
}

/// The nodes that a constraint counts on: those that have the labels of all the pod's constraints of its sort.
fn among(kind: &Kind, wanted: &Constraint, all: &[Constraint]) -> Among {
    let mut keys: Vec<String> = all.iter().map(|c| c.key.clone()).collect();
    keys.sort();
    keys.dedup();
    Among {
        keys,
        required: wanted.honors_affinity.then(|| kind.fixed.required.clone()),
        tolerations: wanted.honors_taints.then(|| kind.fixed.tolerations.clone()),
    }
}
