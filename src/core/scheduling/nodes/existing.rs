//! Remaining capacity of existing nodes and NodeClaims in flight.

use crate::catalog::{InstanceType, OfferingKey};
use crate::model::amounts::resources::Resources;
use crate::model::cluster::claim::Claim;
use crate::model::cluster::node::Node;
use crate::model::cluster::pod::HostPort;
use crate::model::labels;
use crate::model::names::{ClaimName, NodeName};
use crate::scheduling::Input;
use crate::scheduling::nodes::pod_needs::PodNeeds;
use crate::scheduling::offerings::available::{InstanceCandidate, PoolOfferings, daemon_set_overhead};
use crate::scheduling::offerings::labels::{offering_label, offering_matches_filter};
use crate::scheduling::pods::node_filter::{NodeFilter, NodeFilterId, NodeFilters};
use crate::scheduling::pods::volume_limits::{TrackedVolumes, VolumeIndex, VolumeUsage};
use crate::scheduling::result::Target;
use crate::scheduling::topology::domain::{Domain, HOSTNAME_KEY, TopologyKeyId, TopologyKeys, ZONE_KEY};
use crate::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Remaining capacity of one node or claim.
struct ExistingNode {
    target: Target,
    source: LabelSource,
    free: Resources,
    zone: Option<Domain>,
    ports: Vec<HostPort>,
    /// How many more data disks may be attached, where there is a limit.
    disks_left: Option<i64>,
    /// Attached volumes, and limits other than those of data disks.
    volume_usage: VolumeUsage,
    /// Pods placed on it in this pass, by class.
    placed_by_class: Vec<(u32, u32)>,
}

/// The source of the labels and taints that the node has or will have.
enum LabelSource {
    /// Its own.
    Node(Arc<Node>),
    /// Those of the claim, and of one of these offerings.
    Claim(Arc<Claim>, Vec<(Arc<InstanceType>, OfferingKey)>),
    /// Those of the pool, and of this offering.
    Planned(Arc<PoolOfferings>, Arc<InstanceType>, OfferingKey),
}

/// All existing nodes, in the order in which they are filled: nodes by name, then claims by name. Their indices are the
/// first hostname domains.
#[derive(Default)]
pub(crate) struct ExistingNodes {
    nodes: Vec<ExistingNode>,
    index_of_claim: BTreeMap<ClaimName, usize>,
    index_of_node: BTreeMap<NodeName, usize>,
    /// Zones of existing nodes.
    zones: BTreeSet<Domain>,
    /// By filter and existing node: whether it matches, where that has been computed.
    filter_matches: Vec<Vec<Option<bool>>>,
}

impl ExistingNodes {
    pub(crate) fn new((input, volume_index): (Input<'_>, &VolumeIndex), keys: &mut TopologyKeys) -> Self {
        let snapshot = input.snapshot;
        let in_flight: Vec<&Arc<Claim>> = snapshot.claims().values().filter(|c| c.is_in_flight()).collect();
        let initializing: BTreeSet<_> = in_flight.iter().filter_map(|c| c.status.provider_id.as_ref()).collect();
        let leaving: BTreeSet<_> = snapshot
            .claims()
            .values()
            .filter(|c| c.deleting_at.is_some())
            .filter_map(|c| c.status.provider_id.as_ref())
            .collect();
        let usable = |n: &&Arc<Node>| {
            let is_claimed = n.provider_id.as_ref().is_some_and(|id| initializing.contains(id) || leaving.contains(id));
            n.is_open() && !is_claimed && !input.excluded_nodes.contains(&n.name)
        };
        let nodes = snapshot.nodes().values().filter(usable);
        let mut existing_nodes: Vec<ExistingNode> =
            nodes.map(|n| from_node(n, (snapshot, volume_index), keys)).collect();
        existing_nodes.extend(in_flight.iter().filter_map(|c| from_claim(c, (input, volume_index), keys)));
        let zones = existing_nodes.iter().filter_map(|node| node.zone).collect();
        let mut all = Self { nodes: existing_nodes, zones, ..Self::default() };
        for (index, existing) in all.nodes.iter().enumerate() {
            match &existing.source {
                LabelSource::Node(node) => drop(all.index_of_node.insert(node.name.clone(), index)),
                LabelSource::Claim(claim, _) => {
                    let node = snapshot.node_of(claim);
                    all.index_of_node.extend(node.map(|node| (node.name.clone(), index)));
                    all.index_of_claim.insert(claim.name.clone(), index);
                }
                LabelSource::Planned(..) => {}
            }
        }
        all.subtract_ports_and_nominated(snapshot);
        all
    }

    /// Subtracts what node usage does not include: ports, and pods that kube-scheduler nominated by preemption.
    fn subtract_ports_and_nominated(&mut self, snapshot: &Snapshot) {
        for (name, index) in &self.index_of_node {
            let shapes = snapshot.node_usage(name).into_iter().flat_map(|usage| usage.shapes.keys());
            self.nodes[*index].ports.extend(shapes.flat_map(|shape| shape.ports.iter().cloned()));
        }
        for pod in snapshot.nominated_pods() {
            let index = pod.nominated.as_ref().and_then(|name| self.index_of_node.get(name));
            let Some(node) = index.and_then(|index| self.nodes.get_mut(*index)) else { continue };
            node.ports.extend(pod.shape.ports.iter().cloned());
            node.free.sub(&pod.shape.requests);
        }
    }

    /// The index of a node, or of a claim in flight.
    pub(crate) fn index_of(&self, target: &Target) -> Option<usize> {
        match target {
            Target::Node(node) => self.index_of_node.get(node).copied(),
            Target::Claim(claim) => self.index_of_claim.get(claim).copied(),
            Target::New(_) => None,
        }
    }

    /// The hostname domain of a node that pods may still go to.
    pub(crate) fn host_domain(&self, node: &NodeName) -> Option<Domain> {
        self.index_of_node.get(node).map(|index| *index as Domain)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn target(&self, index: usize) -> &Target {
        &self.nodes[index].target
    }

    pub(crate) fn zone(&self, index: usize) -> Option<Domain> {
        self.nodes[index].zone
    }

    /// Zones of existing nodes.
    pub(crate) fn zones(&self) -> &BTreeSet<Domain> {
        &self.zones
    }

    /// The index of the node of a target; nodes are in the order of their targets.
    pub(crate) fn index_of_target(&self, target: &Target) -> Option<usize> {
        self.nodes.binary_search_by(|node| node.target.cmp(target)).ok()
    }

    /// The domain of an existing node by a topology key; `None` where it has no such label, or its value is not known
    /// yet.
    pub(crate) fn domain(&self, index: usize, key_id: TopologyKeyId, keys: &mut TopologyKeys) -> Option<Domain> {
        match key_id {
            HOSTNAME_KEY => Some(index as Domain),
            ZONE_KEY => self.nodes[index].zone,
            _ => {
                let value = self.nodes[index].label(&Arc::clone(keys.key(key_id)))?;
                Some(keys.domain_id(key_id, &value))
            }
        }
    }

    /// The same, of values that are registered for the topology key.
    pub(crate) fn known_domain(&self, index: usize, key_id: TopologyKeyId, keys: &TopologyKeys) -> Option<Domain> {
        match key_id {
            HOSTNAME_KEY => Some(index as Domain),
            ZONE_KEY => self.nodes[index].zone,
            _ => keys.known_domain(key_id, &self.nodes[index].label(keys.key(key_id))?),
        }
    }

    /// Visits the pods placed on each existing node that matches a filter.
    pub(crate) fn each_placed(&self, filter: Option<&NodeFilter>, mut visit: impl FnMut(usize, &[(u32, u32)])) {
        for (index, node) in self.nodes.iter().enumerate() {
            if filter.is_none_or(|filter| node.matches_filter(filter)) {
                visit(index, &node.placed_by_class);
            }
        }
    }

    /// True when an existing node matches a filter.
    pub(crate) fn matches_filter(&self, index: usize, filter: &NodeFilter) -> bool {
        self.nodes[index].matches_filter(filter)
    }

    /// The same, cached.
    pub(crate) fn matches_filter_cached(&mut self, index: usize, filter: NodeFilterId, filters: &NodeFilters) -> bool {
        if self.filter_matches.len() <= filter {
            self.filter_matches.resize(filter + 1, Vec::new());
        }
        let known = &mut self.filter_matches[filter];
        if known.len() < self.nodes.len() {
            known.resize(self.nodes.len(), None);
        }
        *known[index].get_or_insert_with(|| self.nodes[index].matches_filter(filters.get(filter)))
    }

    /// How many pods with these needs fit; [`i64::MAX`] where they need nothing.
    pub(crate) fn pods_that_fit(&self, index: usize, needs: PodNeeds<'_>) -> i64 {
        let node = &self.nodes[index];
        let most = needs.requests.copies_that_fit(&node.free).unwrap_or(i64::MAX);
        let most = match (node.disks_left, needs.tracked_volumes) {
            (Some(left), None) if needs.disks > 0 => most.min(left.max(0) / i64::from(needs.disks)),
            (_, None) => most,
            (_, Some(tracked)) if node.can_attach(needs.disks, tracked) => most.min(1),
            (_, Some(_)) => 0,
        };
        match needs.ports {
            [] => most,
            ports if HostPort::all_free(ports, &node.ports) => most.min(1),
            _ => 0,
        }
    }

    /// Takes the capacity for some pods of a class.
    pub(crate) fn add_pods(&mut self, index: usize, (class, pods): (u32, u32), needs: PodNeeds<'_>) {
        let node = &mut self.nodes[index];
        node.free.sub(&needs.requests.times(i64::from(pods)));
        node.ports.extend(needs.ports.iter().cloned());
        let disks = needs
            .tracked_volumes
            .map_or(needs.disks, |tracked| needs.disks - node.volume_usage.attached_shared_disks(tracked));
        node.disks_left = node.disks_left.map(|left| left - i64::from(disks) * i64::from(pods));
        needs.tracked_volumes.into_iter().for_each(|tracked| node.volume_usage.add(tracked));
        match node.placed_by_class.iter_mut().find(|(known, _)| *known == class) {
            Some((_, placed)) => *placed += pods,
            None => node.placed_by_class.push((class, pods)),
        }
    }

    /// Adds a planned node after all others. Its number must be larger than those before.
    pub(crate) fn push_planned(
        &mut self,
        number: usize,
        offering: OfferingKey,
        pool_offerings: &Arc<PoolOfferings>,
        of: &InstanceCandidate,
    ) {
        let zone = pool_offerings.zones.iter().position(|zone| *zone == offering.zone).map(|zone| zone as Domain);
        self.zones.extend(zone);
        self.nodes.push(ExistingNode {
            target: Target::New(number),
            zone,
            source: LabelSource::Planned(Arc::clone(pool_offerings), Arc::clone(&of.instance), offering),
            free: of.pod_capacity.clone(),
            ports: pool_offerings.daemon_set_ports.clone(),
            disks_left: Some(i64::from(of.instance.facts.max_data_disks)),
            volume_usage: VolumeUsage::default(),
            placed_by_class: Vec::new(),
        });
    }
}

impl ExistingNode {
    /// True when tracked volumes can be attached.
    fn can_attach(&self, disks: u32, tracked: &TrackedVolumes) -> bool {
        let new = i64::from(disks - self.volume_usage.attached_shared_disks(tracked));
        (new == 0 || self.disks_left.is_none_or(|left| new <= left)) && self.volume_usage.has_capacity_for(tracked)
    }

    fn matches_filter(&self, filter: &NodeFilter) -> bool {
        let (labels, taints) = match &self.source {
            LabelSource::Node(node) => (filter.accepts_labels(&node.labels), &node.taints),
            LabelSource::Claim(claim, offerings) => {
                let fits = |(instance, key): &(Arc<InstanceType>, OfferingKey)| {
                    offering_matches_filter(filter, instance, key, &claim.spec.labels)
                };
                (offerings.iter().all(fits), &claim.spec.taints)
            }
            LabelSource::Planned(pool_offerings, instance, key) => {
                (offering_matches_filter(filter, instance, key, &pool_offerings.labels), &pool_offerings.pool.taints)
            }
        };
        labels && filter.untolerated(taints).is_none()
    }

    /// The value of a label, where it is the same for all offerings.
    fn label(&self, key: &str) -> Option<Arc<str>> {
        let of = |instance: &InstanceType, offering: &OfferingKey| {
            offering_label(instance, (offering.capacity_type, Some(&offering.zone)), key)
        };
        match &self.source {
            LabelSource::Node(node) => node.labels.get(key).cloned(),
            LabelSource::Planned(pool_offerings, instance, offering) => {
                pool_offerings.labels.get(key).cloned().or_else(|| of(instance, offering))
            }
            LabelSource::Claim(claim, offerings) => claim.spec.labels.get(key).cloned().or_else(|| {
                let mut values = offerings.iter().map(|(instance, offering)| of(instance, offering));
                let first = values.next()??;
                values.all(|other| other.as_ref() == Some(&first)).then_some(first)
            }),
        }
    }
}

fn from_node(
    node: &Arc<Node>,
    (snapshot, volume_index): (&Snapshot, &VolumeIndex),
    keys: &mut TopologyKeys,
) -> ExistingNode {
    let (disks, attached) = volume_index.node_usage(snapshot, Some(&node.name), None);
    ExistingNode {
        target: Target::Node(node.name.clone()),
        free: snapshot.free_capacity(node),
        zone: node.labels.get(labels::ZONE).map(|zone| keys.domain_id(ZONE_KEY, zone)),
        source: LabelSource::Node(Arc::clone(node)),
        ports: Vec::new(),
        disks_left: disks,
        volume_usage: attached,
        placed_by_class: Vec::new(),
    }
}

/// The node of a claim in flight: the least capacity of its possible offerings, less daemons and pods that are bound to
/// its node already. `None` when none of its offerings is known any more.
fn from_claim(
    claim: &Arc<Claim>,
    (input, volume_index): (Input<'_>, &VolumeIndex),
    keys: &mut TopologyKeys,
) -> Option<ExistingNode> {
    let snapshot = input.snapshot;
    let changed = input.available.overlaid_types.changed_types(claim.spec.pool.as_ref());
    let types = changed.or_else(|| snapshot.instance_types.get(&claim.spec.class))?;
    let planned: Vec<&OfferingKey> = match &claim.intent {
        Some(intent) => vec![&intent.offering.key],
        None => claim.spec.planned.iter().map(|p| &p.key).collect(),
    };
    let find = |key: &OfferingKey| types.binary_search_by(|t| t.facts.name.cmp(&key.size)).ok();
    let offerings: Vec<(Arc<InstanceType>, OfferingKey)> =
        planned.iter().filter_map(|key| Some((Arc::clone(&types[find(key)?]), (*key).clone()))).collect();
    let mut free: Option<Resources> = None;
    for (instance, _) in &offerings {
        let daemons = daemon_set_overhead(snapshot, instance, &claim.spec.labels, &claim.spec.taints);
        let available = instance.allocatable.minus(&daemons);
        free = Some(match free {
            Some(least) => min_of_each(&least, &available),
            None => available,
        });
    }
    let mut free = free?;
    let node = snapshot.node_of(claim);
    if let Some(usage) = node.and_then(|n| snapshot.node_usage(&n.name)) {
        free.sub(&usage.pod_requests.minus(&usage.daemon_set_requests));
    }
    let max_disks = offerings.iter().map(|(instance, _)| instance.facts.max_data_disks).min();
    let (disks, attached) = volume_index.node_usage(snapshot, node.map(|node| &node.name), max_disks);
    let first = planned.first().map(|key| &key.zone);
    let zone = first.filter(|z| planned.iter().all(|key| key.zone == **z));
    Some(ExistingNode {
        target: Target::Claim(claim.name.clone()),
        source: LabelSource::Claim(Arc::clone(claim), offerings),
        free,
        zone: zone.map(|zone| keys.domain_id(ZONE_KEY, &zone.text())),
        ports: Vec::new(),
        disks_left: disks,
        volume_usage: attached,
        placed_by_class: Vec::new(),
    })
}

/// The lesser amount of each resource.
fn min_of_each(a: &Resources, b: &Resources) -> Resources {
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
