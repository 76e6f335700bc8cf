//! Because: what of a finished plan says why pods have the place that they have?

use super::Input;
use super::account::{Account, Accounts, Because, Bond, Fate, Place, Purchase, Tie};
use super::kinds::KindId;
use super::open::NodeId;
use super::outcome::{Outcome, Target};
use super::relax::{Wish, given_up, wishes};
use super::size::{Size, SizeChoice};
use super::solve::{Seat, Solver};
use super::volumes::More;
use super::why::of_pool;
use crate::catalog::CapacityType;
use crate::model::cluster::claim::Claim;
use crate::model::cluster::pod::{Pod, PodShape};
use crate::model::labels;
use crate::model::names::{NodePoolName, ObjectKey, VmSize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most names of nodes and values of labels that are kept of one account.
const MOST_NAMES: usize = 16;

/// A simulation that is over, with what it was made from and what came of it.
type Over<'a> = (Input<'a>, &'a Outcome);

/// Places that are told as one: of the same sort, and new ones of the same pool and size.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Sort {
    Node,
    Claim,
    New(NodePoolName, VmSize, CapacityType),
}

/// Pods of one kind at places of one sort.
#[derive(Default)]
struct Group {
    pods: Vec<Arc<Pod>>,
    /// Each place, by its number, with the number of these pods.
    bins: BTreeMap<usize, usize>,
    nodes: BTreeMap<NodeId, usize>,
}

/// Adds what is said of pods that were placed.
pub(super) fn because(solver: &mut Solver, over: Over<'_>, about: impl Fn(&ObjectKey) -> bool, told: &mut Accounts) {
    let mut groups: BTreeMap<(KindId, Sort), Group> = BTreeMap::new();
    for (pod, kind, seat) in solver.placed.iter().filter(|(pod, _, _)| about(&pod.key)) {
        let Some(sort) = sort_of(solver, over.1, *seat) else { continue };
        let group = groups.entry((*kind, sort)).or_default();
        group.pods.push(Arc::clone(pod));
        match *seat {
            Seat::Bin(site) => *group.bins.entry(site).or_default() += 1,
            Seat::Open(node) => *group.nodes.entry(node).or_default() += 1,
        }
    }
    for ((kind, sort), group) in groups {
        let Group { pods, bins, nodes } = group;
        told.add(pods, |pods| {
            let place = match sort {
                Sort::Node => on_nodes(solver, &bins),
                Sort::Claim => on_claims(solver, over.0, &bins, pods),
                Sort::New(..) => Place::New(Box::new(on_new(solver, over.1, kind, &nodes)?)),
            };
            let on_bins = bins.iter().map(|(site, pods)| (Seat::Bin(*site), *pods));
            let on_open = nodes.iter().map(|(node, pods)| (Seat::Open(*node), *pods));
            let seats: Vec<(Seat, usize)> = on_bins.chain(on_open).collect();
            let bonds = bonds(solver, over, kind, &seats);
            let (granted, given_up) = if nodes.is_empty() { (0, Vec::new()) } else { relaxed(solver, kind) };
            Some(Account::of(pods, Fate::Placed(Box::new(Because { place, bonds, given_up, granted }))))
        });
    }
}

fn sort_of(solver: &Solver, outcome: &Outcome, seat: Seat) -> Option<Sort> {
    match seat {
        Seat::Bin(site) => Some(match solver.bins.target(site) {
            Target::Claim(_) => Sort::Claim,
            Target::Node(_) | Target::New(_) => Sort::Node,
        }),
        Seat::Open(node) => {
            let new = outcome.new.get(node)?;
            let key = &new.offerings.first()?.key;
            Some(Sort::New(new.pool.clone(), key.size.clone(), key.capacity_type))
        }
    }
}

fn on_nodes(solver: &Solver, bins: &BTreeMap<usize, usize>) -> Place {
    let named = bins.iter().filter_map(|(site, pods)| match solver.bins.target(*site) {
        Target::Node(name) => Some((name.clone(), *pods)),
        Target::Claim(_) | Target::New(_) => None,
    });
    Place::Nodes { nodes: named.take(MOST_NAMES).collect(), count: bins.len() }
}

fn on_claims(solver: &Solver, input: Input<'_>, bins: &BTreeMap<usize, usize>, pods: &[Arc<Pod>]) -> Place {
    let named = bins.iter().filter_map(|(site, pods)| match solver.bins.target(*site) {
        Target::Claim(name) => Some((name.clone(), *pods)),
        Target::Node(_) | Target::New(_) => None,
    });
    let claims = named.take(MOST_NAMES).collect();
    let promised = pods.iter().filter(|pod| input.promised.contains_key(&pod.key)).count();
    Place::Claims { claims, count: bins.len(), promised }
}

/// What is said of new nodes: of the first of them, by its number.
fn on_new(solver: &mut Solver, outcome: &Outcome, kind: KindId, nodes: &BTreeMap<NodeId, usize>) -> Option<Purchase> {
    let (node, own) = nodes.first_key_value()?;
    let new = outcome.new.get(*node)?;
    let zone = solver.shop.zone(*node);
    let alone =
        solver.alone(kind, zone).map(|growth| Size::of(solver.shop.choices.candidate(growth.choice, growth.best)));
    let pool = solver.shop.choices.get(solver.shop.nodes[*node].choice).offers;
    // Variants of one pool follow each other, and its own are no pools before it.
    let name_of = |solver: &Solver, pool: usize| solver.shop.choices.offers(pool).pool.name.clone();
    let mut before: Vec<(_, _)> = Vec::new();
    for other in 0..pool {
        let name = name_of(solver, other);
        let why = if name == new.pool { None } else { of_pool(solver, kind, other) };
        before.extend(why.map(|why| (name, why)));
    }
    before.dedup_by(|(b, _), (a, _)| a == b);
    before.truncate(MOST_NAMES);
    let passed_over = before;
    let others = new.pods.len().saturating_sub(*own);
    Some(Purchase {
        nodes: nodes.len(),
        pool: new.pool.clone(),
        passed_over,
        best: new.offerings.first()?.clone(),
        offerings: new.offerings.len(),
        own: *own,
        others,
        requests: solver.shop.nodes[*node].requests.clone(),
        size: SizeChoice::of_open(solver, &solver.shop.nodes[*node]),
        without: (others > 0).then(|| without(solver, *node, kind, *own)).flatten(),
        alone,
    })
}

/// What an open node would be without some pods of a kind.
fn without(solver: &Solver, node: NodeId, kind: KindId, pods: usize) -> Option<Size> {
    let (open, want) = (&solver.shop.nodes[node], solver.known.want(kind));
    let times = i64::try_from(pods).unwrap_or(i64::MAX);
    let requests = open.requests.minus(&want.requests.times(times));
    // What others have too stays.
    let own = want.disks - want.more.map_or(0, More::shared_disks);
    let disks = open.disks.saturating_sub(own.saturating_mul(u32::try_from(pods).unwrap_or(u32::MAX)));
    let mut suiting = solver.shop.choices.each(open.choice).map(|(candidate, _)| candidate);
    suiting.find(|candidate| candidate.holds(&requests, disks)).map(Size::of)
}

/// How much of what pods of a kind prefer they have, and what they gave up.
fn relaxed(solver: &Solver, kind: KindId) -> (usize, Vec<Wish>) {
    let Some(told) = solver.known.kinds.told(kind) else { return (0, Vec::new()) };
    let step = told.family.steps.iter().position(|step| *step == kind).unwrap_or_default();
    let given_up = given_up(told.shape, step, told.family.steps.len());
    (wishes(told.shape, told.family.steps.len()).len().saturating_sub(given_up.len()), given_up)
}

/// The labels of the places of pods that their neighbours or volumes decided.
fn bonds(solver: &Solver, over: Over<'_>, kind: KindId, seats: &[(Seat, usize)]) -> Vec<Bond> {
    let shape = &solver.known.kinds.get(kind).shape;
    let mut asked = ties(shape);
    if let Some(told) = solver.known.kinds.told(kind) {
        let keys = told.volumes.places.iter().flat_map(|place| place.iter().map(|(key, _)| Arc::clone(key)));
        let shares = told.volumes.more.iter().any(|more| !more.to_be_made.is_empty());
        let zone = shares.then(|| labels::interned(labels::ZONE));
        asked.extend(keys.chain(zone).map(|key| (Tie::Volume, key)));
    }
    asked.sort();
    asked.dedup();
    let bond = |(tie, key): (Tie, Arc<str>)| {
        let mut values: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        let named = seats.iter().filter(|_| *key != *labels::HOSTNAME);
        for (value, pods) in named.filter_map(|(seat, pods)| Some((label_at(solver, over, *seat, &key)?, pods))) {
            if values.len() < MOST_NAMES || values.contains_key(&value) {
                *values.entry(value).or_default() += pods;
            }
        }
        Bond { tie, key, values }
    };
    asked.into_iter().map(bond).collect()
}

/// The labels by which a shape spreads and gathers.
fn ties(shape: &PodShape) -> Vec<(Tie, Arc<str>)> {
    let spread = shape.spread.iter().map(|spread| (Tie::Spread, Arc::clone(&spread.topology_key)));
    let affinity = shape.affinity.as_deref();
    let near = affinity.into_iter().flat_map(|affinity| &affinity.near).map(|term| (Tie::Near, &term.topology_key));
    let apart = affinity.into_iter().flat_map(|affinity| &affinity.apart).map(|term| (Tie::Apart, &term.topology_key));
    spread.chain(near.chain(apart).map(|(tie, key)| (tie, Arc::clone(key)))).collect()
}

/// The value of a label at a place.
fn label_at(solver: &Solver, (input, outcome): Over<'_>, seat: Seat, key: &str) -> Option<Arc<str>> {
    match seat {
        Seat::Bin(site) => match solver.bins.target(site) {
            Target::Node(name) => input.snapshot.nodes().get(name)?.labels.get(key).cloned(),
            Target::Claim(name) => of_claim(input.snapshot.claims().get(name)?, key),
            Target::New(_) => None,
        },
        Seat::Open(node) => {
            let new = outcome.new.get(node)?;
            if key == labels::ZONE {
                return new.zone().map(|zone| zone.text());
            }
            let open = &solver.shop.nodes[node];
            let offers = solver.shop.choices.offers(solver.shop.choices.get(open.choice).offers);
            let own = new.labels.get(key).cloned();
            own.or_else(|| offers.label(&offers.candidates[open.best as usize], key))
        }
    }
}

/// The value of a label that a claim's node will have for certain.
fn of_claim(claim: &Claim, key: &str) -> Option<Arc<str>> {
    let mut zones = match &claim.intent {
        Some(intent) => vec![&intent.offering.key.zone],
        None => claim.spec.planned.iter().map(|planned| &planned.key.zone).collect(),
    };
    zones.dedup();
    match zones[..] {
        [zone] if key == labels::ZONE => Some(zone.text()),
        _ => claim.spec.labels.get(key).cloned(),
    }
}
