//! Bins: which room is there on nodes that exist and on NodeClaims in flight?

use super::Input;
use super::axes::{Axes, AxisId, Domain, HOST, ZONE};
use super::candidates::{Candidate, Offers, daemon_overhead};
use super::filter::{FilterId, Filters, NodeFilter};
use super::fits::{node_labels_accept, offered_label};
use super::open::Want;
use super::outcome::Target;
use super::volumes::{Attached, Book, More};
use crate::catalog::{InstanceType, OfferingKey};
use crate::model::amounts::resources::Resources;
use crate::model::cluster::claim::Claim;
use crate::model::cluster::node::Node;
use crate::model::cluster::pod::HostPort;
use crate::model::labels;
use crate::model::names::{ClaimName, NodeName};
use crate::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Room on one node or claim.
struct Bin {
    target: Target,
    promise: Promise,
    free: Resources,
    zone: Option<Domain>,
    ports: Vec<HostPort>,
    /// How many more data disks may be attached, where there is a limit.
    disks: Option<i64>,
    /// What else of volumes there is to say of it.
    attached: Attached,
    /// Pods placed here in this pass, by kind.
    placed: Vec<(u32, u32)>,
}

/// Which labels and taints the node has or will have.
enum Promise {
    /// Its own.
    Node(Arc<Node>),
    /// Those of the claim, and of one of these offerings.
    Claim(Arc<Claim>, Vec<(Arc<InstanceType>, OfferingKey)>),
    /// Those of the pool, and of this offering.
    Bought(Arc<Offers>, Arc<InstanceType>, OfferingKey),
}

/// All bins, in the order in which they are filled: nodes by name, then claims by name. Their places are the first sites.
#[derive(Default)]
pub(super) struct Bins {
    bins: Vec<Bin>,
    by_claim: BTreeMap<ClaimName, usize>,
    by_node: BTreeMap<NodeName, usize>,
    /// Zones that bins lie in.
    zones: BTreeSet<Domain>,
    /// By filter and bin: whether the one lets the other through, where that was asked.
    accepted: Vec<Vec<Option<bool>>>,
}

impl Bins {
    pub(super) fn new((input, book): (Input<'_>, &Book), axes: &mut Axes) -> Self {
        let snapshot = input.snapshot;
        let in_flight: Vec<&Arc<Claim>> = snapshot.claims().values().filter(|c| is_in_flight(c)).collect();
        let settling: BTreeSet<_> = in_flight.iter().filter_map(|c| c.status.provider_id.as_ref()).collect();
        let leaving: BTreeSet<_> = snapshot
            .claims()
            .values()
            .filter(|c| c.deleting_at.is_some())
            .filter_map(|c| c.status.provider_id.as_ref())
            .collect();
        let usable = |n: &&Arc<Node>| {
            let moving = n.provider_id.as_ref().is_some_and(|id| settling.contains(id) || leaving.contains(id));
            n.ready && !n.cordoned && n.deleting_at.is_none() && !moving && !input.without.contains(&n.name)
        };
        let nodes = snapshot.nodes().values().filter(usable);
        let mut bins: Vec<Bin> = nodes.map(|n| node_bin(n, (snapshot, book), axes)).collect();
        bins.extend(in_flight.iter().filter_map(|c| claim_bin(c, (input, book), axes)));
        let zones = bins.iter().filter_map(|bin| bin.zone).collect();
        let mut all = Self { bins, zones, ..Self::default() };
        for (site, bin) in all.bins.iter().enumerate() {
            match &bin.promise {
                Promise::Node(node) => drop(all.by_node.insert(node.name.clone(), site)),
                Promise::Claim(claim, _) => {
                    let node = claim.status.provider_id.as_ref().and_then(|id| snapshot.node_by_provider_id(id));
                    all.by_node.extend(node.map(|node| (node.name.clone(), site)));
                    all.by_claim.insert(claim.name.clone(), site);
                }
                Promise::Bought(..) => {}
            }
        }
        all.take_up(snapshot);
        all
    }

    /// Counts what is not in the usage of nodes: ports, and pods for which kube-scheduler makes room by preemption.
    fn take_up(&mut self, snapshot: &Snapshot) {
        for pod in snapshot.pods().values().filter(|pod| !pod.is_terminal()) {
            let nominated = pod.nominated.as_ref().filter(|_| pod.node.is_none());
            let node = pod.node.as_ref().filter(|_| !pod.shape.ports.is_empty()).or(nominated);
            let Some(bin) = node.and_then(|name| self.by_node.get(name)).and_then(|site| self.bins.get_mut(*site))
            else {
                continue;
            };
            bin.ports.extend(pod.shape.ports.iter().cloned());
            if pod.node.is_none() {
                bin.free.sub(&pod.shape.requests);
            }
        }
    }

    /// The site of a claim in flight.
    pub(super) fn site_of_claim(&self, claim: &ClaimName) -> Option<usize> {
        self.by_claim.get(claim).copied()
    }

    /// The site of a node that pods may still go to.
    pub(super) fn site_of(&self, node: &NodeName) -> Option<Domain> {
        self.by_node.get(node).map(|site| *site as Domain)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.bins.len()
    }

    pub(super) fn target(&self, site: usize) -> &Target {
        &self.bins[site].target
    }

    pub(super) fn zone(&self, site: usize) -> Option<Domain> {
        self.bins[site].zone
    }

    /// Zones that bins lie in.
    pub(super) fn zones(&self) -> &BTreeSet<Domain> {
        &self.zones
    }

    /// The place of what a bin stands for: they are in the order of their targets.
    pub(super) fn place_of(&self, target: &Target) -> Option<usize> {
        self.bins.binary_search_by(|bin| bin.target.cmp(target)).ok()
    }

    /// Where a bin lies on an axis; `None` where its node has no such label, or it is not known yet.
    pub(super) fn domain(&self, site: usize, axis: AxisId, axes: &mut Axes) -> Option<Domain> {
        match axis {
            HOST => Some(site as Domain),
            ZONE => self.bins[site].zone,
            _ => {
                let value = self.bins[site].label(&Arc::clone(axes.key(axis)))?;
                Some(axes.domain(axis, &value))
            }
        }
    }

    /// The same, of values that the axis knows.
    pub(super) fn known_domain(&self, site: usize, axis: AxisId, axes: &Axes) -> Option<Domain> {
        match axis {
            HOST => Some(site as Domain),
            ZONE => self.bins[site].zone,
            _ => axes.known(axis, &self.bins[site].label(axes.key(axis))?),
        }
    }

    /// What has been placed on each bin that a filter lets through.
    pub(super) fn each_placed(&self, filter: Option<&NodeFilter>, mut visit: impl FnMut(usize, &[(u32, u32)])) {
        for (site, bin) in self.bins.iter().enumerate() {
            if filter.is_none_or(|filter| bin.lets(filter)) {
                visit(site, &bin.placed);
            }
        }
    }

    /// True when a filter lets a bin's node through.
    pub(super) fn lets(&self, site: usize, filter: &NodeFilter) -> bool {
        self.bins[site].lets(filter)
    }

    /// The same, remembered.
    pub(super) fn accepts(&mut self, site: usize, filter: FilterId, filters: &Filters) -> bool {
        if self.accepted.len() <= filter {
            self.accepted.resize(filter + 1, Vec::new());
        }
        let known = &mut self.accepted[filter];
        if known.len() < self.bins.len() {
            known.resize(self.bins.len(), None);
        }
        *known[site].get_or_insert_with(|| self.bins[site].lets(filters.get(filter)))
    }

    /// How many pods that ask for this there is room for; more than anybody has where nothing is asked for.
    pub(super) fn room_for(&self, site: usize, want: Want<'_>) -> i64 {
        let bin = &self.bins[site];
        let most = want.requests.copies_that_fit(&bin.free).unwrap_or(i64::MAX);
        let most = match (bin.disks, want.more) {
            (Some(left), None) if want.disks > 0 => most.min(left.max(0) / i64::from(want.disks)),
            (_, None) => most,
            (_, Some(more)) if bin.has_room_for(want.disks, more) => most.min(1),
            (_, Some(_)) => 0,
        };
        match want.ports {
            [] => most,
            ports if HostPort::all_free(ports, &bin.ports) => most.min(1),
            _ => 0,
        }
    }

    /// Takes the room for some pods of a kind.
    pub(super) fn put(&mut self, site: usize, (kind, pods): (u32, u32), want: Want<'_>) {
        let bin = &mut self.bins[site];
        bin.free.sub(&want.requests.times(i64::from(pods)));
        bin.ports.extend(want.ports.iter().cloned());
        let disks = want.more.map_or(want.disks, |more| want.disks - bin.attached.disks_of(more));
        bin.disks = bin.disks.map(|left| left - i64::from(disks) * i64::from(pods));
        want.more.into_iter().for_each(|more| bin.attached.take(more));
        match bin.placed.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, there)) => *there += pods,
            None => bin.placed.push((kind, pods)),
        }
    }

    /// Adds a node that is yet to be made, after all others. Its number must be larger than those before.
    pub(super) fn add(&mut self, number: usize, offering: OfferingKey, offers: &Arc<Offers>, of: &Candidate) {
        let zone = offers.zones.iter().position(|zone| *zone == offering.zone).map(|zone| zone as Domain);
        self.zones.extend(zone);
        self.bins.push(Bin {
            target: Target::New(number),
            zone,
            promise: Promise::Bought(Arc::clone(offers), Arc::clone(&of.instance), offering),
            free: of.room.clone(),
            ports: offers.daemon_ports.clone(),
            disks: Some(i64::from(of.instance.facts.max_data_disks)),
            attached: Attached::default(),
            placed: Vec::new(),
        });
    }
}

impl Bin {
    /// True when volumes may be attached of which there is more to say than how many data disks.
    fn has_room_for(&self, disks: u32, more: &More) -> bool {
        let new = i64::from(disks - self.attached.disks_of(more));
        (new == 0 || self.disks.is_none_or(|left| new <= left)) && self.attached.has_room_for(more)
    }

    fn lets(&self, filter: &NodeFilter) -> bool {
        let (labels, taints) = match &self.promise {
            Promise::Node(node) => (filter.accepts_labels(&node.labels), &node.taints),
            Promise::Claim(claim, offerings) => {
                let fits = |(instance, key): &(Arc<InstanceType>, OfferingKey)| {
                    node_labels_accept(filter, instance, key, &claim.spec.labels)
                };
                (offerings.iter().all(fits), &claim.spec.taints)
            }
            Promise::Bought(offers, instance, key) => {
                (node_labels_accept(filter, instance, key, &offers.labels), &offers.pool.taints)
            }
        };
        labels && filter.untolerated(taints).is_none()
    }

    /// The value of a label, where it is the same whatever the node becomes.
    fn label(&self, key: &str) -> Option<Arc<str>> {
        let of = |instance: &InstanceType, offering: &OfferingKey| {
            offered_label(instance, (offering.capacity_type, Some(&offering.zone)), key)
        };
        match &self.promise {
            Promise::Node(node) => node.labels.get(key).cloned(),
            Promise::Bought(offers, instance, offering) => {
                offers.labels.get(key).cloned().or_else(|| of(instance, offering))
            }
            Promise::Claim(claim, offerings) => claim.spec.labels.get(key).cloned().or_else(|| {
                let mut values = offerings.iter().map(|(instance, offering)| of(instance, offering));
                let first = values.next()??;
                values.all(|other| other.as_ref() == Some(&first)).then_some(first)
            }),
        }
    }
}

/// It will have a node that is not yet ready for pods.
fn is_in_flight(claim: &Claim) -> bool {
    claim.deleting_at.is_none() && claim.status.launch_failed.is_none() && claim.status.initialized.is_none()
}

fn node_bin(node: &Arc<Node>, (snapshot, book): (&Snapshot, &Book), axes: &mut Axes) -> Bin {
    let usage = snapshot.node_usage(&node.name);
    let (disks, attached) = book.on(snapshot, Some(&node.name), None);
    let free = usage.map_or_else(|| node.allocatable.clone(), |u| node.allocatable.minus(&u.pod_requests));
    Bin {
        target: Target::Node(node.name.clone()),
        free,
        zone: node.labels.get(labels::ZONE).map(|zone| axes.domain(ZONE, zone)),
        promise: Promise::Node(Arc::clone(node)),
        ports: Vec::new(),
        disks,
        attached,
        placed: Vec::new(),
    }
}

/// The bin of a claim in flight: the least room that any offering it may end on has, less daemons and pods that are
/// bound to its node already. `None` when none of its offerings is known any more.
fn claim_bin(claim: &Arc<Claim>, (input, book): (Input<'_>, &Book), axes: &mut Axes) -> Option<Bin> {
    let snapshot = input.snapshot;
    let changed = input.market.overlaid.changed(claim.spec.pool.as_ref());
    let types = changed.or_else(|| snapshot.instance_types.get(&claim.spec.class))?;
    let wanted: Vec<&OfferingKey> = match &claim.intent {
        Some(intent) => vec![&intent.offering.key],
        None => claim.spec.planned.iter().map(|p| &p.key).collect(),
    };
    let find = |key: &OfferingKey| types.binary_search_by(|t| t.facts.name.cmp(&key.size)).ok();
    let offerings: Vec<(Arc<InstanceType>, OfferingKey)> =
        wanted.iter().filter_map(|key| Some((Arc::clone(&types[find(key)?]), (*key).clone()))).collect();
    let mut free: Option<Resources> = None;
    for (instance, _) in &offerings {
        let daemons = daemon_overhead(snapshot, instance, &claim.spec.labels, &claim.spec.taints);
        let room = instance.allocatable.minus(&daemons);
        free = Some(match free {
            Some(least) => least_of(&least, &room),
            None => room,
        });
    }
    let mut free = free?;
    let node = claim.status.provider_id.as_ref().and_then(|id| snapshot.node_by_provider_id(id));
    if let Some(usage) = node.and_then(|n| snapshot.node_usage(&n.name)) {
        free.sub(&usage.pod_requests.minus(&usage.daemon_set_requests));
    }
    let most = offerings.iter().map(|(instance, _)| instance.facts.max_data_disks).min();
    let (disks, attached) = book.on(snapshot, node.map(|node| &node.name), most);
    let first = wanted.first().map(|key| &key.zone);
    let zone = first.filter(|z| wanted.iter().all(|key| key.zone == **z));
    Some(Bin {
        target: Target::Claim(claim.name.clone()),
        promise: Promise::Claim(Arc::clone(claim), offerings),
        free,
        zone: zone.map(|zone| axes.domain(ZONE, &zone.text())),
        ports: Vec::new(),
        disks,
        attached,
        placed: Vec::new(),
    })
}

/// The lesser amount of each resource.
fn least_of(a: &Resources, b: &Resources) -> Resources {
    let mut extended = Resources::default();
    for (name, amount) in &a.extended {
        extended.set_extended(name, (*amount).min(b.extended(name)));
    }
    Resources {
        cpu_millis: a.cpu_millis.min(b.cpu_millis),
        memory: a.memory.min(b.memory),
        ephemeral_storage: a.ephemeral_storage.min(b.ephemeral_storage),
        pods: a.pods.min(b.pods),
        ..extended
    }
}
