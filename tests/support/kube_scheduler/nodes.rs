//! Nodes: what they offer, what runs on them, and how a pod's requests score there.

use super::Reason;
use super::pod_class::{Fixed, PodClass, Port, Toleration};
use super::requests::{Amounts, Requests};
use super::selector::Labels;
use super::volumes::ClaimKey;
use k8s_openapi::api::core::v1::{Node as WireNode, Taint};

/// The best score of one scoring rule.
pub(super) const BEST: i64 = 100;
/// The resource score of a full node.
pub(super) const NO_ROOM: i16 = -1;

/// A node and what runs on it.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) labels: Labels,
    pub(super) taints: Vec<Taint>,
    cordoned: bool,
    room: Amounts,
    most_pods: i64,
    used: Amounts,
    pods: i64,
    /// As [`Requests::scored_cpu`], of all pods.
    scored_cpu: i64,
    /// As [`Requests::scored_memory`], of all pods.
    scored_memory: i64,
    ports: Vec<Port>,
    /// Claims of the pods, some more than once.
    pub(super) claims: Vec<ClaimKey>,
}

impl Node {
    pub(super) fn read(wire: &WireNode) -> Self {
        let spec = wire.spec.as_ref();
        let status = wire.status.as_ref();
        let (room, most_pods) = Amounts::of_node(status.and_then(|s| s.allocatable.as_ref()));
        Self {
            name: wire.metadata.name.clone().unwrap_or_default(),
            labels: wire.metadata.labels.clone().unwrap_or_default(),
            taints: spec.and_then(|s| s.taints.clone()).unwrap_or_default(),
            cordoned: spec.and_then(|s| s.unschedulable).unwrap_or(false),
            room,
            most_pods,
            used: Amounts::default(),
            pods: 0,
            scored_cpu: 0,
            scored_memory: 0,
            ports: Vec::new(),
            claims: Vec::new(),
        }
    }

    pub(super) fn take(&mut self, class: &PodClass) {
        self.used.add(&class.requests.requested);
        self.pods += 1;
        self.scored_cpu += class.requests.scored_cpu;
        self.scored_memory += class.requests.scored_memory;
        self.ports.extend(class.ports.iter().cloned());
        self.claims.extend(class.claims.iter().cloned());
    }

    pub(super) fn has_ports_for(&self, class: &PodClass) -> bool {
        !class.ports.iter().any(|wanted| self.ports.iter().any(|taken| taken.conflicts(wanted)))
    }

    /// Why a pod cannot run here, whatever else does.
    pub(super) fn refuses(&self, fixed: &Fixed) -> Option<Reason> {
        if self.cordoned && !fixed.tolerations.iter().any(|t| t.covers(&cordon())) {
            return Some(Reason::Cordoned);
        }
        if fixed.node.as_ref().is_some_and(|name| *name != self.name) {
            return Some(Reason::NodeName);
        }
        if !self.tolerated(&fixed.tolerations) {
            return Some(Reason::Taint);
        }
        (!fixed.required.matches(&self.name, &self.labels)).then_some(Reason::NodeAffinity)
    }

    /// No taint keeps a pod with these tolerations away.
    pub(super) fn tolerated(&self, tolerations: &[Toleration]) -> bool {
        let mut hard = self.taints.iter().filter(|t| t.effect == "NoSchedule" || t.effect == "NoExecute");
        hard.all(|taint| tolerations.iter().any(|t| t.covers(taint)))
    }

    /// How many taints the pod would rather avoid.
    pub(super) fn disliked(&self, fixed: &Fixed) -> i64 {
        let soft = self.taints.iter().filter(|t| t.effect == "PreferNoSchedule");
        let open = soft.filter(|taint| !fixed.tolerations.iter().any(|t| t.covers(taint)));
        i64::try_from(open.count()).unwrap_or(i64::MAX)
    }

    /// The weights of those preferred terms that hold.
    pub(super) fn preferred(&self, fixed: &Fixed) -> i64 {
        let held = fixed.preferred.iter().filter(|(_, term)| term.matches(&self.name, &self.labels));
        held.map(|(weight, _)| weight).sum()
    }

    /// The sum of the scores by requests, which is at most 200, or [`NO_ROOM`].
    pub(super) fn score(&self, requests: &Requests) -> i16 {
        if self.pods >= self.most_pods || !requests.requested.fits(&self.room, &self.used) {
            return NO_ROOM;
        }
        i16::try_from(self.least_allocated(requests) + self.balanced(requests)).unwrap_or(i16::MAX)
    }

    /// LeastAllocated: the mean of the remaining CPU and memory, in hundredths.
    fn least_allocated(&self, requests: &Requests) -> i64 {
        let left = |room: i64, used: i64| if used > room { 0 } else { (room - used) * BEST / room };
        let scores = [
            (self.room.cpu, self.scored_cpu + requests.incoming_cpu),
            (self.room.memory, self.scored_memory + requests.incoming_memory),
        ]
        .map(|(room, used)| (room != 0).then(|| left(room, used)));
        let known: i64 = scores.iter().flatten().count() as i64;
        if known == 0 { 0 } else { scores.iter().flatten().sum::<i64>() / known }
    }

    /// BalancedAllocation: 75 if the pod does not change the balance of CPU and memory, up to 100 if it improves it,
    /// down to 50 if it worsens it; nothing for pods that request neither.
    fn balanced(&self, requests: &Requests) -> i64 {
        let requested = &requests.requested;
        if requested.cpu == 0 && requested.memory == 0 {
            return 0;
        }
        let after = self.balance(self.used.cpu + requested.cpu, self.used.memory + requested.memory);
        let before = self.balance(self.used.cpu, self.used.memory);
        BEST / 2 + (BEST / 2 + after - before) / 2
    }

    /// 100 if CPU and memory are used equally, 50 if one is full and the other empty.
    fn balance(&self, cpu: i64, memory: i64) -> i64 {
        let part = |used: i64, room: i64| (used as f64 / room as f64).min(1.0);
        let apart = if self.room.cpu == 0 || self.room.memory == 0 {
            0.0
        } else {
            ((part(cpu, self.room.cpu) - part(memory, self.room.memory)) / 2.0).abs()
        };
        ((1.0 - apart) * BEST as f64) as i64
    }
}

/// The taint that a cordoned node would have.
fn cordon() -> Taint {
    Taint { key: "node.kubernetes.io/unschedulable".to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() }
}

/// The scores of equal requests on every node, updated with every change of a node.
#[derive(Debug, Clone)]
pub(super) struct LoadScores {
    requests: Requests,
    /// By node: score, or [`NO_ROOM`].
    pub(super) scores: Vec<i16>,
    /// How many changes of nodes are in it.
    seen: usize,
}

impl LoadScores {
    pub(super) fn new(requests: Requests) -> Self {
        Self { requests, scores: Vec::new(), seen: 0 }
    }

    /// Updates for new nodes at the end, and the nodes of `changes` since last time.
    pub(super) fn refresh(&mut self, nodes: &[Node], changes: &[usize]) {
        let known = self.scores.len();
        for &node in changes.iter().skip(self.seen).filter(|node| **node < known) {
            self.scores[node] = nodes[node].score(&self.requests);
        }
        self.seen = changes.len();
        self.scores.extend(nodes[known..].iter().map(|n| n.score(&self.requests)));
    }
}

/// Constraints of a pod on nodes alone, evaluated for every node.
#[derive(Debug, Clone)]
pub(super) struct FixedAnswers {
    fixed: Fixed,
    /// By node: why not.
    pub(super) refused: Vec<Option<Reason>>,
    /// By node: taints that it would rather avoid.
    pub(super) disliked: Vec<i64>,
    /// By node: the weights of the preferred terms that hold.
    pub(super) preferred: Vec<i64>,
    /// No node has a taint that it would rather avoid.
    pub(super) likes_all: bool,
}

impl FixedAnswers {
    pub(super) fn new(fixed: Fixed) -> Self {
        Self { fixed, refused: Vec::new(), disliked: Vec::new(), preferred: Vec::new(), likes_all: true }
    }

    /// Takes in new nodes.
    pub(super) fn refresh(&mut self, nodes: &[Node]) {
        for node in &nodes[self.refused.len()..] {
            let disliked = node.disliked(&self.fixed);
            self.likes_all &= disliked == 0;
            self.refused.push(node.refuses(&self.fixed));
            self.disliked.push(disliked);
            self.preferred.push(node.preferred(&self.fixed));
        }
    }

    /// It prefers some nodes by their labels.
    pub(super) fn prefers(&self) -> bool {
        !self.fixed.preferred.is_empty()
    }
}
