//! Small clusters, written as text.
//!
//! Entries are separated by `;`. A value that is not given has a default.
//! - `pool NAME policy=empty|under|balanced after=0s|never budget=100% (…) types=m,c capacity=spot,on-demand weight=0
//!   cpus=LIMIT nodes=LIMIT taint=KEY min=TYPES static`
//! - `node NAME type=m4 pool=general capacity=on-demand zone=1 event=AGE init=AGE label=KEY:VALUE`, and the words
//!   `unmanaged unjoined uninit notready marked queued nominated terminating dnd cordoned`. A later line replaces an
//!   earlier one.
//! - `pod NODE|- CPU xTIMES app=NAME priority=N near=APP apart=APP spread=zone|host soft=zone|host zone=N prefers=N dnd=TIME
//!   age=TIME volume=ZONE port=N deletion-cost=N`, and the words `daemon static bare ending done starting tolerates dnd`
//! - `pdb APP none|one|blocks unready`
//! - `gone TYPE|spot`: an offering that Azure has refused
//! - `rules spot|fresh-off`
//! - `drop NODE`, `set NODE WORD`: changes of what stands before

use crate::karpenter::Rules;
use crate::karpenter::disruption::{Blocked, Candidate, Command, Method, allowed, consolidate, find, validate};
use crate::karpenter::offerings::{PoolOptions, Refused, Unavailable};
use crate::karpenter::scheduling::{PlannedClaim, Request, simulate};
use crate::karpenter::view::{NodeSet, NodeSurface, NodeView, View, room, sort_nodes};
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::catalog::{CapacityType, InstanceType};
use napkeeper_core::model::cluster::pod::{Pod, PodShape};
use napkeeper_core::model::cluster::pool::DisruptionReason;
use napkeeper_core::model::labels;
use napkeeper_core::model::names::NodeName;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::objects::{eviction_limit, instance_types, node_entry, pod_entry, pool_entry};

/// The time of all cases.
pub(super) fn now() -> Timestamp {
    "2026-08-03T12:00:00Z".parse().unwrap()
}

/// A cluster while it is read.
#[derive(Debug, Clone)]
pub(super) struct Cluster {
    pub(super) types: Vec<Arc<InstanceType>>,
    pub(super) pools: Vec<(Vec<String>, napkeeper_core::model::cluster::pool::NodePool)>,
    pub(super) nodes: BTreeMap<String, NodeView>,
    pub(super) allocatable: BTreeMap<String, napkeeper_core::model::amounts::resources::Resources>,
    pub(super) pods: Vec<(Option<String>, Pod, Option<String>)>,
    pub(super) daemons: Vec<Arc<PodShape>>,
    limits: Vec<crate::karpenter::view::EvictionLimit>,
    unavailable: Unavailable,
    rules: Rules,
}

/// The words of an entry: those that stand alone, and those with a value.
#[derive(Debug)]
pub(super) struct Words<'t> {
    pub(super) alone: Vec<&'t str>,
    pub(super) valued: Vec<(&'t str, &'t str)>,
}

impl<'t> Words<'t> {
    fn of(text: &'t str) -> Self {
        let (valued, alone): (Vec<&str>, Vec<&str>) = text.split_whitespace().partition(|word| word.contains('='));
        Self { alone, valued: valued.into_iter().map(|word| word.split_once('=').unwrap()).collect() }
    }

    pub(super) fn has(&self, word: &str) -> bool {
        self.alone.contains(&word)
    }

    pub(super) fn get(&self, key: &str) -> Option<&'t str> {
        self.valued.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
    }
}

/// `90s`, `5m`, `2h`.
pub(super) fn duration(text: &str) -> SignedDuration {
    let (number, unit) = text.split_at(text.len() - 1);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        other => panic!("unit {other:?}"),
    };
    SignedDuration::from_secs(number.parse::<i64>().unwrap() * seconds)
}

impl Cluster {
    /// Reads a cluster; without a pool there is one named `general`.
    pub(super) fn read(text: &str) -> Self {
        let mut cluster = Self {
            types: instance_types(),
            pools: Vec::new(),
            nodes: BTreeMap::new(),
            allocatable: BTreeMap::new(),
            pods: Vec::new(),
            daemons: Vec::new(),
            limits: Vec::new(),
            unavailable: Unavailable::default(),
            rules: Rules { spot_to_spot: false, fresh_destinations: true },
        };
        if !text.contains("pool ") {
            cluster.enter("pool general");
        }
        cluster.change(text);
        cluster
    }

    /// Reads further entries.
    pub(super) fn change(&mut self, text: &str) {
        text.split(';').map(str::trim).filter(|entry| !entry.is_empty()).for_each(|entry| self.enter(entry));
    }

    fn enter(&mut self, entry: &str) {
        let (kind, rest) = entry.split_once(' ').unwrap_or((entry, ""));
        let words = Words::of(rest);
        match kind {
            "pool" => {
                let pool = pool_entry(&words);
                self.pools.retain(|(_, other)| other.name != pool.1.name);
                self.pools.push(pool);
            }
            "node" => node_entry(self, &words),
            "pod" => pod_entry(self, &words),
            "pdb" => self.limits.push(eviction_limit(&words)),
            "gone" => self.refuse(words.alone[0]),
            "rules" => {
                self.rules.spot_to_spot |= words.has("spot");
                self.rules.fresh_destinations &= !words.has("fresh-off");
            }
            "drop" => drop(self.nodes.remove(words.alone[0])),
            "set" => super::objects::set(self.nodes.get_mut(words.alone[0]).unwrap(), &words.alone[1..]),
            other => panic!("entry {other:?}"),
        }
    }

    fn refuse(&mut self, what: &str) {
        let capacity_type = (what == "spot").then_some(CapacityType::Spot);
        let instance = self.types.iter().find(|instance| instance.facts.name.as_str() == what);
        let family = instance.map(|instance| Arc::clone(&instance.facts.family));
        let least_vcpus = instance.map_or(0, |instance| instance.facts.vcpus);
        let until = now() + SignedDuration::from_hours(1);
        self.unavailable.mark(Refused { family, least_vcpus, zone: None, capacity_type, until });
    }

    /// The picture of it.
    pub(super) fn view(&self) -> View {
        let mut nodes: Vec<NodeView> = self.nodes.values().cloned().collect();
        for node in &mut nodes {
            let of_node = self.pods.iter().filter(|(on, ..)| on.as_deref() == Some(node.name.as_str()));
            node.pods = of_node.map(|(_, pod, _)| Arc::new(pod.clone())).collect();
            let surface = NodeSurface { labels: &node.labels, taints: &node.taints };
            node.room = room(&self.allocatable[node.name.as_str()], &node.pods, &self.daemons, &surface);
            node.ports = node.pods.iter().flat_map(|pod| pod.shape.ports.clone()).collect();
        }
        sort_nodes(&mut nodes);
        let mut pools = self.pools.clone();
        pools.sort_by(|(_, a), (_, b)| (b.weight, &b.name).cmp(&(a.weight, &a.name)));
        let options = |(families, pool): (Vec<String>, _)| {
            let of_family = |instance: &&Arc<InstanceType>| {
                families.iter().any(|family| instance.facts.name.as_str().starts_with(family.as_str()))
            };
            let types: Vec<_> = self.types.iter().filter(of_family).cloned().collect();
            Arc::new(PoolOptions::new(Arc::new(pool), &types, &self.daemons))
        };
        let volumes = self.pods.iter().filter_map(|(_, pod, zone)| {
            let zone = zone.as_ref()?;
            Some((pod.key.clone(), vec![super::objects::one_of(labels::ZONE, zone)]))
        });
        View {
            now: now(),
            pools: pools.into_iter().map(options).collect(),
            nodes,
            pending: self.pods.iter().filter(|(on, ..)| on.is_none()).map(|(_, p, _)| Arc::new(p.clone())).collect(),
            budgets: self.limits.clone(),
            volumes: volumes.collect(),
            unavailable: Arc::new(self.unavailable.clone()),
        }
    }
}

/// What is asked of a cluster.
#[derive(Debug, Clone, Copy)]
pub(super) enum Question {
    /// The command of the method of empty nodes.
    Empty,
    /// The command of the method of several nodes.
    Multi,
    /// The command of the method of one node.
    Single,
    /// The command of the first method that has one.
    Pass,
    /// What consolidating just these nodes would be.
    Nodes(&'static str),
    /// Why a node is no candidate, or that it is one.
    Candidate(&'static str),
    /// How many nodes of each pool may be disrupted for being empty.
    AllowedEmpty,
    /// How many nodes of each pool may be disrupted for being underutilized.
    AllowedUnderutilized,
    /// Whether a command of a method stands after these changes.
    StillEmpty(&'static str),
    StillMulti(&'static str),
    StillSingle(&'static str),
    /// Where pending pods would go.
    Plan,
}

/// A case: what it shows, the cluster, the question, and the answer.
pub(super) type Case = (&'static str, &'static str, Question, &'static str);

/// Checks cases, and reports all that fail.
pub(super) fn check(cases: &[Case]) {
    let titles: BTreeSet<&str> = cases.iter().map(|(title, ..)| *title).collect();
    assert_eq!(titles.len(), cases.len(), "two cases have the same title");
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|(title, cluster, question, expected)| {
            let answer = answer(&Cluster::read(cluster), *question);
            (answer != *expected).then(|| format!("{title}\n  expected: {expected}\n  answer:   {answer}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{} of {} cases fail:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

fn answer(cluster: &Cluster, question: Question) -> String {
    let view = cluster.view();
    let command = |method| find(&view, cluster.rules, method, &mut BTreeSet::new()).command;
    let told = |command: Option<Command>| command.map_or_else(|| "nothing".to_owned(), |command| tell(&command));
    match question {
        Question::Empty => told(command(Method::Emptiness)),
        Question::Multi => told(command(Method::MultiNode)),
        Question::Single => told(command(Method::SingleNode)),
        Question::Pass => {
            let found = Method::ALL.iter().find_map(|method| Some((method, command(*method)?)));
            found.map_or_else(|| "nothing".to_owned(), |(method, command)| format!("{method:?}: {}", tell(&command)))
        }
        Question::Nodes(names) => {
            let of = |name| Candidate::new(&view, view.node(&NodeName::new(name).unwrap()).unwrap()).unwrap();
            let candidates: Vec<Candidate<'_>> = names.split(' ').map(of).collect();
            consolidate(&view, cluster.rules, &candidates).map_or_else(|why| format!("{why:?}"), |c| tell(&c))
        }
        Question::Candidate(name) => {
            let node = view.node(&NodeName::new(name).unwrap()).unwrap();
            Candidate::new(&view, node).map_or_else(|why: Blocked| format!("{why:?}"), |c| format!("cost {}", c.cost))
        }
        Question::AllowedEmpty => tell_allowed(&view, DisruptionReason::Empty),
        Question::AllowedUnderutilized => tell_allowed(&view, DisruptionReason::Underutilized),
        Question::StillEmpty(changes) => still(cluster, Method::Emptiness, changes),
        Question::StillMulti(changes) => still(cluster, Method::MultiNode, changes),
        Question::StillSingle(changes) => still(cluster, Method::SingleNode, changes),
        Question::Plan => {
            let pods = view.pending.iter().cloned().chain(view.pods_of_leaving_nodes()).collect();
            tell_plan(&simulate(
                &view,
                Request { pods, without: &NodeSet::new(), spares_fresh: false, most_new: usize::MAX },
            ))
        }
    }
}

fn still(cluster: &Cluster, method: Method, changes: &str) -> String {
    let found = find(&cluster.view(), cluster.rules, method, &mut BTreeSet::new()).command.unwrap();
    let mut later = cluster.clone();
    later.change(changes);
    validate(&later.view(), cluster.rules, method, found).map_or_else(|why| format!("{why:?}"), |c| tell(&c))
}

fn tell_allowed(view: &View, reason: DisruptionReason) -> String {
    let of = |(name, left): (_, u32)| if left > 1000 { format!("{name} all") } else { format!("{name} {left}") };
    allowed(view, reason).into_iter().map(of).collect::<Vec<_>>().join(", ")
}

fn tell(command: &Command) -> String {
    let names: Vec<&str> = command.nodes.iter().map(NodeName::as_str).collect();
    match &command.replacement {
        None => format!("delete {}", names.join(" ")),
        Some(claim) => format!("replace {} with {}", names.join(" "), tell_claim(claim)),
    }
}

/// The types of a claim, cheapest first, and where and how they may be launched if that is narrowed.
fn tell_claim(claim: &PlannedClaim) -> String {
    let names: Vec<&str> = claim.types.iter().map(|instance| instance.facts.name.as_str()).collect();
    let types = if names.len() > 6 { format!("{} types from {}", names.len(), names[0]) } else { names.join("|") };
    let allows = |key: &str, values: &[&str]| {
        let wanted = claim.requirements.get(key)?;
        let allowed: Vec<&str> = values.iter().filter(|value| wanted.allows(Some(value))).copied().collect();
        (allowed.len() < values.len()).then(|| format!(" {}", allowed.join(",")))
    };
    let capacity = allows(labels::CAPACITY_TYPE, &["spot", "on-demand"]).unwrap_or_default();
    let zones = allows(labels::ZONE, &["westeurope-1", "westeurope-2", "westeurope-3"]).unwrap_or_default();
    format!("{types}{capacity}{zones}")
}

fn tell_plan(results: &crate::karpenter::scheduling::Results) -> String {
    let count = |pods: &[Arc<Pod>]| pods.len();
    let placed = results.placed.iter().map(|(name, pods)| format!("{name}: {}", count(pods)));
    let new = results
        .new_claims
        .iter()
        .map(|claim| format!("new {} {}: {}", claim.pool, tell_claim(claim), claim.pods.len()));
    let left = (!results.unplaced.is_empty()).then(|| format!("unplaced: {}", results.unplaced.len()));
    placed.chain(new).chain(left).collect::<Vec<_>>().join("; ")
}
