//! An independent checker of results: it shares no code with the scheduler, and checks every pod and node.

use crate::catalog::{InstanceType, Offering, OfferingKey, node_labels};
use crate::fixtures::Dice;
use crate::model::amounts::resources::Resources;
use crate::model::cluster::claim::Claim;
use crate::model::cluster::node::Node;
use crate::model::cluster::pod::{HostPort, Labels, Pod, PodOwner, PodShape, PodTerm, Spread};
use crate::model::cluster::pool::{NodePool, amount};
use crate::model::labels;
use crate::model::names::{NodePoolName, ObjectKey, Zone};
use crate::scheduling::tests::random_cluster::random_cluster;
use crate::scheduling::tests::{solve, solve_with};
use crate::scheduling::{SchedulingResult, Target, UnschedulableReason};
use crate::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

struct ResultChecker<'a> {
    snapshot: &'a Snapshot,
    result: &'a SchedulingResult,
    pods: BTreeMap<ObjectKey, Arc<Pod>>,
}

impl<'a> ResultChecker<'a> {
    fn types(&self) -> &'a [Arc<InstanceType>] {
        self.snapshot.instance_types.values().next().unwrap()
    }

    fn find(&self, key: &OfferingKey) -> (&'a InstanceType, &'a Offering) {
        let instance = self.types().iter().find(|t| t.facts.name == key.size).unwrap();
        let same = |o: &&Offering| o.zone == key.zone && o.capacity_type == key.capacity_type;
        (instance, instance.offerings.iter().find(same).unwrap())
    }

    fn pool(&self, name: &NodePoolName) -> &'a NodePool {
        self.snapshot.pools().get(name).unwrap()
    }

    fn labels(&self, key: &OfferingKey, own: &Labels) -> Labels {
        let (instance, offering) = self.find(key);
        let mut labels = node_labels(instance, offering);
        labels.extend(own.clone());
        labels
    }

    fn placed_on(&self, target: &Target) -> Vec<&Arc<Pod>> {
        self.result.placements.iter().filter(|p| p.target == *target).map(|p| &self.pods[&p.pod]).collect()
    }

    fn running(&self, node: &Node) -> impl Iterator<Item = &'a Arc<Pod>> {
        let name = node.name.clone();
        self.snapshot.pods().values().filter(move |p| p.node.as_ref() == Some(&name) && !p.is_terminal())
    }

    fn daemon_set_overhead(&self, labels: &Labels, pool: &NodePool) -> Resources {
        let mut sum = Resources::default();
        for daemon in self.snapshot.daemon_sets().values() {
            if daemon.shape.accepts_labels(labels) && daemon.shape.untolerated(&pool.taints).is_none() {
                sum.add(&daemon.shape.requests);
            }
        }
        sum
    }

    fn every_pod_once(&self) {
        let placed: Vec<&ObjectKey> = self.result.placements.iter().map(|p| &p.pod).collect();
        let unplaced = self.result.unschedulable.iter().flat_map(|u| u.pods.iter().map(|p| &p.key));
        let all: Vec<&ObjectKey> = placed.into_iter().chain(unplaced).collect();
        let once: BTreeSet<&ObjectKey> = all.iter().copied().collect();
        assert_eq!(all.len(), once.len(), "a pod is placed twice");
        assert_eq!(once, self.pods.keys().collect(), "a pod is lost");
        for (i, node) in self.result.new_nodes.iter().enumerate() {
            let listed: BTreeSet<&ObjectKey> = node.pods.iter().map(|p| &p.key).collect();
            let targeted: BTreeSet<&ObjectKey> = self.placed_on(&Target::New(i)).into_iter().map(|p| &p.key).collect();
            assert_eq!(listed, targeted, "node {i}");
            assert!(!node.pods.is_empty());
        }
    }

    fn usable(&self, node: &Node) -> bool {
        let of = |c: &&Arc<Claim>| c.status.provider_id.is_some() && c.status.provider_id == node.provider_id;
        let claim = self.snapshot.claims().values().find(of);
        let steady = claim.is_none_or(|c| c.deleting_at.is_none() && c.status.initialized.is_some());
        node.ready && !node.cordoned && node.deleting_at.is_none() && steady
    }

    fn free_resources(&self, node: &Node) -> Resources {
        self.running(node).fold(node.allocatable.clone(), |free, pod| free.minus(&pod.shape.requests))
    }

    fn nodes_hold(&self) {
        for node in self.snapshot.nodes().values() {
            let placed = self.placed_on(&Target::Node(node.name.clone()));
            if placed.is_empty() {
                continue;
            }
            assert!(self.usable(node), "{} takes no pods", node.name);
            for pod in &placed {
                assert!(pod.shape.accepts_labels(&node.labels), "{} on {}", pod.key, node.name);
                assert!(pod.shape.untolerated(&node.taints).is_none(), "{} on {}", pod.key, node.name);
            }
            let total = placed.iter().fold(Resources::default(), |sum, pod| sum.plus(&pod.shape.requests));
            assert!(total.fits(&self.free_resources(node)), "{} is over-committed: {total}", node.name);
        }
    }

    fn holds_on(&self, key: &OfferingKey, own: &Labels, pool: &NodePool, placed: &[&Arc<Pod>]) {
        let labels = self.labels(key, own);
        let total =
            placed.iter().fold(self.daemon_set_overhead(&labels, pool), |sum, pod| sum.plus(&pod.shape.requests));
        assert!(total.fits(&self.find(key).0.allocatable), "{key} is over-committed: {total}");
        for pod in placed {
            assert!(pod.shape.accepts_labels(&labels), "{} on {key}", pod.key);
            assert!(pod.shape.untolerated(&pool.taints).is_none(), "{} in {}", pod.key, pool.name);
        }
    }

    fn claims_hold(&self) {
        for claim in self.snapshot.claims().values() {
            let placed = self.placed_on(&Target::Claim(claim.name.clone()));
            if placed.is_empty() {
                continue;
            }
            assert!(
                claim.deleting_at.is_none() && claim.status.initialized.is_none(),
                "{} is not in flight",
                claim.name
            );
            let keys: Vec<&OfferingKey> = match &claim.intent {
                Some(intent) => vec![&intent.offering.key],
                None => claim.spec.planned.iter().map(|o| &o.key).collect(),
            };
            for key in keys {
                self.holds_on(key, &claim.spec.labels, self.pool(claim.spec.pool.as_ref().unwrap()), &placed);
            }
        }
    }

    fn new_nodes_hold(&self) {
        for node in &self.result.new_nodes {
            let pool = self.pool(&node.pool);
            let placed: Vec<&Arc<Pod>> = node.pods.iter().collect();
            assert!(!node.offerings.is_empty());
            assert!(node.offerings.is_sorted_by_key(|o| o.price), "cheapest first");
            for offering in &node.offerings {
                assert!(
                    pool.requirements.satisfied_by(&self.node_labels(&offering.key, pool)),
                    "{} in {}",
                    offering.key,
                    pool.name
                );
                let (instance, found) = self.find(&offering.key);
                assert_eq!(instance.node_price(found), offering.price);
                self.holds_on(&offering.key, &node.labels, pool, &placed);
            }
        }
    }

    /// Labels of a node of a pool, so far as the pool may require them.
    fn node_labels(&self, key: &OfferingKey, pool: &NodePool) -> Labels {
        let mut labels = self.labels(key, &pool.labels);
        labels.insert(Arc::from(labels::NODEPOOL), pool.name.text());
        labels
    }

    fn max_capacity(&self, keys: impl Iterator<Item = OfferingKey>, name: &str) -> i64 {
        keys.map(|key| amount(&self.find(&key).0.capacity, name)).max().unwrap_or(0)
    }

    /// The most that a pool can use of a resource, whichever planned offerings are launched.
    fn pool_use(&self, pool: &NodePool, name: &str) -> i64 {
        let mine = |c: &&Arc<Claim>| c.spec.pool.as_ref() == Some(&pool.name);
        let claims: i64 = self
            .snapshot
            .claims()
            .values()
            .filter(mine)
            .map(|c| match c.status.launched {
                Some(_) => amount(&c.status.capacity, name),
                None => self.max_capacity(c.spec.planned.iter().map(|o| o.key.clone()), name),
            })
            .sum();
        let new = self.result.new_nodes.iter().filter(|n| n.pool == pool.name);
        claims + new.map(|n| self.max_capacity(n.offerings.iter().map(|o| o.key.clone()), name)).sum::<i64>()
    }

    fn pool_nodes(&self, pool: &NodePool) -> i64 {
        let claims = self.snapshot.claims().values().filter(|c| c.spec.pool.as_ref() == Some(&pool.name)).count();
        (claims + self.new_nodes_of(pool)) as i64
    }

    fn new_nodes_of(&self, pool: &NodePool) -> usize {
        self.result.new_nodes.iter().filter(|n| n.pool == pool.name).count()
    }

    fn limits_hold(&self) {
        for pool in self.snapshot.pools().values().filter(|p| self.new_nodes_of(p) > 0) {
            for (name, limit) in &pool.limits.resources {
                assert!(self.pool_use(pool, name) <= *limit, "{} of {}", name, pool.name);
            }
            assert!(pool.limits.nodes.is_none_or(|most| self.pool_nodes(pool) <= most), "nodes of {}", pool.name);
        }
    }

    /// The zone of a placed pod's node.
    fn zone_of(&self, target: &Target) -> Option<Zone> {
        match target {
            Target::Node(name) => Zone::new(self.snapshot.nodes().get(name)?.label(labels::ZONE)?).ok(),
            Target::New(i) => self.result.new_nodes[*i].zone(),
            Target::Claim(name) => {
                let claim = self.snapshot.claims().get(name)?;
                let first = claim.intent.as_ref().map(|i| &i.offering).or_else(|| claim.spec.planned.first())?;
                Some(first.key.zone.clone())
            }
        }
    }

    /// True when a placed pod's node has the labels that a shape requires: other nodes are no domains of its
    /// constraints.
    fn matches_labels(&self, shape: &PodShape, target: &Target) -> bool {
        match target {
            Target::Node(name) => shape.accepts_labels(&self.snapshot.nodes().get(name).unwrap().labels),
            Target::New(i) => {
                let new = &self.result.new_nodes[*i];
                shape.accepts_labels(&self.labels(&new.offerings[0].key, &new.labels))
            }
            Target::Claim(name) => {
                let claim = self.snapshot.claims().get(name).unwrap();
                let intended = claim.intent.as_ref().map(|intent| &intent.offering);
                let mut keys = intended.into_iter().chain(&claim.spec.planned).map(|offering| &offering.key);
                keys.all(|key| shape.accepts_labels(&self.labels(key, &claim.spec.labels)))
            }
        }
    }

    /// Pods per zone that a constraint counts: those that run, and those that are placed, on nodes whose labels suit
    /// the shape. Zones are those with such a node, and those that get a pod.
    fn spread_counts(&self, shape: &PodShape, spread: &Spread) -> BTreeMap<Zone, i64> {
        let counted = |p: &Pod| p.shape.namespace == shape.namespace && spread.selector.satisfied_by(&p.shape.labels);
        let mut counts = BTreeMap::new();
        for node in self.snapshot.nodes().values().filter(|node| shape.accepts_labels(&node.labels)) {
            let Some(zone) = node.label(labels::ZONE).and_then(|z| Zone::new(z).ok()) else { continue };
            *counts.entry(zone).or_insert(0) += self.running(node).filter(|p| counted(p)).count() as i64;
        }
        for placement in self.result.placements.iter().filter(|p| counted(&self.pods[&p.pod])) {
            if let Some(zone) =
                self.zone_of(&placement.target).filter(|_| self.matches_labels(shape, &placement.target))
            {
                *counts.entry(zone).or_insert(0) += 1;
            }
        }
        counts
    }

    /// No zone that this outcome adds pods to has more than the skew above the emptiest domain.
    fn skew_holds(&self) {
        for (i, node) in self.result.new_nodes.iter().enumerate() {
            for pod in &node.pods {
                for spread in pod.shape.spread.iter().filter(|s| &*s.topology_key == labels::ZONE) {
                    let zone = node.zone();
                    assert!(zone.is_some(), "{} is spread, and node {i} in no one zone", pod.key);
                    let counts = self.spread_counts(&pod.shape, spread);
                    let count = zone.map_or(0, |z| counts[&z]);
                    let least = counts.values().min().copied().unwrap_or(0);
                    assert!(count - least <= i64::from(spread.max_skew), "{}: {counts:?} {:?}", pod.key, pod.shape);
                }
            }
        }
    }

    fn anti_affinity_and_hostname_spread_hold(&self) {
        let targets: BTreeSet<&Target> = self.result.placements.iter().map(|p| &p.target).collect();
        for target in targets {
            let placed = self.placed_on(target);
            let bound: Vec<&Arc<Pod>> = match target {
                Target::Node(name) => self.running(self.snapshot.nodes().get(name).unwrap()).collect(),
                Target::Claim(_) | Target::New(_) => Vec::new(),
            };
            let host = |p: &&&Arc<Pod>| p.shape.spread.iter().any(|s| &*s.topology_key == labels::HOSTNAME);
            let cap = |pod: &Pod| {
                let hosts = pod.shape.spread.iter().filter(|s| &*s.topology_key == labels::HOSTNAME);
                hosts.map(|s| s.max_skew as usize).min().unwrap_or(usize::MAX)
            };
            for pod in placed.iter().filter(host) {
                for spread in pod.shape.spread.iter().filter(|s| &*s.topology_key == labels::HOSTNAME) {
                    // Those with the lesser cap may have come first, and pods without a constraint last.
                    let selected = |p: &&&Arc<Pod>| spread.selector.satisfied_by(&p.shape.labels);
                    let selected_placed: Vec<_> = placed.iter().filter(host).filter(selected).collect();
                    let most = selected_placed.iter().map(|p| cap(p)).max().unwrap_or(0);
                    let count = selected_placed.len() + bound.iter().filter(selected).count();
                    assert!(count <= most, "{count} pods like {} on {target:?}", pod.key);
                }
            }
        }
    }

    /// The pods that are or will be on a target, those that are running last.
    fn all_on(&self, target: &Target) -> Vec<&Arc<Pod>> {
        let mut all = self.placed_on(target);
        if let Target::Node(name) = target {
            all.extend(self.running(self.snapshot.nodes().get(name).unwrap()));
        }
        all
    }

    /// Where a pod that is placed may have neighbours: targets in the same domain.
    fn domain(&self, target: &Target, key: &str) -> Vec<Target> {
        let nodes = self.snapshot.nodes().iter().map(|(name, _)| Target::Node(name.clone()));
        let claims = self.snapshot.claims().iter().map(|(name, _)| Target::Claim(name.clone()));
        let new = (0..self.result.new_nodes.len()).map(Target::New);
        let same = |other: &Target| match key {
            labels::HOSTNAME => other == target,
            _ => self.zone_of(other).is_some() && self.zone_of(other) == self.zone_of(target),
        };
        nodes.chain(claims).chain(new).filter(same).collect()
    }

    /// Placed pods satisfy their own affinity and anti-affinity, and the anti-affinity of others.
    fn pod_affinity_holds(&self) {
        for placement in &self.result.placements {
            let pod = &self.pods[&placement.pod];
            let means = |term: &PodTerm, p: &Pod| term.means(&p.shape.namespace, None, &p.shape.labels);
            let Some(affinity) = &pod.shape.affinity else { continue };
            for term in &affinity.near {
                let domain = self.domain(&placement.target, &term.topology_key);
                let met = domain.iter().flat_map(|t| self.all_on(t)).any(|p| means(term, p));
                assert!(met, "{} is not near {term:?} on {:?}", pod.key, placement.target);
            }
            for term in &affinity.apart {
                let domain = self.domain(&placement.target, &term.topology_key);
                let met = domain.iter().flat_map(|t| self.all_on(t)).filter(|p| p.key != pod.key && means(term, p));
                assert_eq!(met.count(), 0, "{} is not apart on {:?}", pod.key, placement.target);
            }
        }
        let targets: BTreeSet<&Target> = self.result.placements.iter().map(|p| &p.target).collect();
        for target in targets {
            let ports: Vec<&HostPort> = self.placed_on(target).iter().flat_map(|p| &p.shape.ports).collect();
            let twice = ports.iter().enumerate().any(|(i, a)| ports[i + 1..].iter().any(|b| a.conflicts(b)));
            assert!(!twice, "a port of {target:?} is taken twice");
        }
    }

    /// A pod without pod constraints is unschedulable only where no node has capacity, and no pool an offering within
    /// limits.
    fn no_pod_is_unschedulable_without_reason(&self) {
        for pod in self.result.unschedulable.iter().flat_map(|u| &u.pods).filter(|p| self.has_no_pod_constraints(p)) {
            for node in self.snapshot.nodes().values().filter(|n| self.usable(n)) {
                let placed = self.placed_on(&Target::Node(node.name.clone()));
                let free = placed.iter().fold(self.free_resources(node), |free, p| free.minus(&p.shape.requests));
                let fits = pod.shape.requests.fits(&free)
                    && pod.shape.accepts_labels(&node.labels)
                    && pod.shape.untolerated(&node.taints).is_none();
                assert!(!fits, "{} would fit on {}", pod.key, node.name);
            }
            // Pods that spread constraints reject free capacity within limits too late for others: the next pass uses
            // it.
            let taken_back = self
                .result
                .unschedulable
                .iter()
                .any(|u| u.reasons.iter().any(|(_, reason)| *reason == UnschedulableReason::TopologySpread));
            let open = |p: &&Arc<NodePool>| !taken_back && pod.shape.untolerated(&p.taints).is_none();
            for pool in self.snapshot.pools().values().filter(open) {
                self.no_offering_alone(pod, pool);
            }
        }
    }

    /// True when only capacity and labels decide where a pod goes.
    fn has_no_pod_constraints(&self, pod: &Pod) -> bool {
        let keeps_away = |other: &Arc<Pod>| {
            let terms = other.shape.affinity.iter().flat_map(|affinity| &affinity.apart);
            terms.into_iter().any(|term| term.means(&pod.shape.namespace, None, &pod.shape.labels))
        };
        let all = self.snapshot.pods().values();
        pod.shape.spread.is_empty()
            && pod.shape.affinity.is_none()
            && pod.shape.ports.is_empty()
            && !all.into_iter().any(keeps_away)
    }

    fn no_offering_alone(&self, pod: &Pod, pool: &NodePool) {
        for (instance, offering) in self.types().iter().flat_map(|t| t.offerings.iter().map(move |o| (t, o))) {
            let (size, zone) = (instance.facts.name.clone(), offering.zone.clone());
            let key = OfferingKey { size, zone, capacity_type: offering.capacity_type };
            let labels = self.node_labels(&key, pool);
            let limits = pool
                .limits
                .resources
                .iter()
                .all(|(name, limit)| self.pool_use(pool, name) + amount(&instance.capacity, name) <= *limit)
                && pool.limits.nodes.is_none_or(|most| self.pool_nodes(pool) < most);
            let fits = limits
                && pool.requirements.satisfied_by(&labels)
                && pod.shape.accepts_labels(&labels)
                && self.daemon_set_overhead(&labels, pool).plus(&pod.shape.requests).fits(&instance.allocatable);
            assert!(!fits, "{} would fit on {key} of {}", pod.key, pool.name);
        }
    }
}

fn check(snapshot: &Snapshot, waiting: &[Arc<Pod>], outcome: &SchedulingResult) {
    let pods = waiting.iter().map(|p| (p.key.clone(), Arc::clone(p))).collect();
    let judge = ResultChecker { snapshot, result: outcome, pods };
    judge.every_pod_once();
    judge.nodes_hold();
    judge.claims_hold();
    judge.new_nodes_hold();
    judge.limits_hold();
    judge.skew_holds();
    judge.anti_affinity_and_hostname_spread_hold();
    judge.pod_affinity_holds();
    judge.no_pod_is_unschedulable_without_reason();
}

/// Seeds of scenes: the same ones every time, and those that once failed.
fn seeds(number: u64) -> impl Iterator<Item = u64> {
    // The best candidate is beyond a limit, and one that it beats is not.
    const ONCE_FAILED: [u64; 1] = [3_682_501_116_101_301_294];
    ONCE_FAILED.into_iter().chain(0..number)
}

#[test]
fn every_result_passes_the_checker() {
    for seed in seeds(3000) {
        println!("seed {seed}"); // Shown only if it fails.
        let (snapshot, waiting) = random_cluster(seed);
        check(&snapshot, &waiting, &solve(&snapshot, &waiting));
    }
}

#[test]
fn the_order_of_the_pods_does_not_matter() {
    for seed in seeds(500) {
        let (snapshot, waiting) = random_cluster(seed);
        let first = solve(&snapshot, &waiting);
        assert_eq!(first, solve(&snapshot, &waiting), "seed {seed}");
        let mut shuffled = waiting;
        let mut dice = Dice(seed | 1);
        for i in (1..shuffled.len()).rev() {
            shuffled.swap(i, dice.roll(i + 1));
        }
        assert_eq!(first, solve(&snapshot, &at_other_addresses(&shuffled)), "seed {seed}");
    }
}

/// The same pods, the shapes of which they share lying elsewhere, in another order.
fn at_other_addresses(pods: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
    let mut shapes = BTreeMap::new();
    for pod in pods {
        shapes.entry(Arc::as_ptr(&pod.shape)).or_insert_with(|| Arc::new((*pod.shape).clone()));
    }
    let moved = |pod: &Pod| Pod { shape: Arc::clone(&shapes[&Arc::as_ptr(&pod.shape)]), ..pod.clone() };
    pods.iter().map(|pod| Arc::new(moved(pod))).collect()
}

#[test]
fn new_nodes_stay_within_the_limit() {
    for seed in seeds(300) {
        let (snapshot, waiting) = random_cluster(seed);
        for most in 0..3 {
            assert!(solve_with(&snapshot, &waiting, most).new_nodes.len() <= most, "seed {seed}");
        }
    }
}

#[test]
fn random_clusters_cover_all_kinds_of_results() {
    let (mut nodes, mut claims, mut new, mut unplaced) = (0, 0, 0, 0);
    for seed in 0..200 {
        let (snapshot, waiting) = random_cluster(seed);
        let outcome = solve(&snapshot, &waiting);
        unplaced += usize::from(outcome.unschedulable_pods() > 0);
        new += usize::from(outcome.new_nodes.len() > 1);
        nodes += usize::from(outcome.placements.iter().any(|p| matches!(p.target, Target::Node(_))));
        claims += usize::from(outcome.placements.iter().any(|p| matches!(p.target, Target::Claim(_))));
        assert!(snapshot.pods().values().all(|p| p.owner != PodOwner::Nobody));
    }
    assert!([nodes, claims, new, unplaced].iter().all(|n| *n >= 20), "{nodes} {claims} {new} {unplaced}");
}
