//! NodeClaims and their VMs, from creation to deletion.

use super::Karpenter;
use super::offerings::{OfferingFilter, Refused, Unavailable, launch_order, ttl};
use super::scheduling::PlannedClaim;
use super::termination::{Termination, next_poll};
use crate::cloud::{Quota, Refusal, Usage};
use crate::cluster::NewNode;
use crate::world::NewVm;
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::catalog::{CapacityType, InstanceType, Offering, OfferingKey, node_labels};
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::cluster::pod::{Labels, Taint};
use napkeeper_core::model::cluster::pool::{NodePool, amount};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{NameError, NodeName, NodePoolName, ProviderId};
use napkeeper_core::model::requirements::Requirements;
use std::sync::Arc;

/// A NodeClaim.
#[derive(Debug, Clone)]
pub(super) struct NodeClaim {
    pub(super) pool: NodePoolName,
    pub(super) instance: Arc<InstanceType>,
    pub(super) offering: OfferingKey,
    /// Of the VM, and of its OS disk, which is ephemeral where it fits.
    pub(super) price: HourlyPrice,
    on_demand: HourlyPrice,
    /// What its kubelet will announce.
    pub(super) node: NewNode,
    pub(super) startup_taints: Vec<Taint>,
    pub(super) phase: Phase,
    /// Its VM was created.
    has_run: bool,
    /// When its phase ends by itself.
    pub(super) due: Option<Timestamp>,
    pub(super) initialized_at: Option<Timestamp>,
    pub(super) last_pod_event: Option<Timestamp>,
    pub(super) nominated_until: Option<Timestamp>,
    /// A command disrupts it.
    pub(super) queued: bool,
    /// It is deleted at this time, for its age.
    pub(super) expires_at: Option<Timestamp>,
    pub(super) grace: Option<SignedDuration>,
    /// Since its deletion was requested.
    pub(super) termination: Option<Termination>,
    /// When Azure takes back its VM, of which it has given notice.
    pub(super) taken_at: Option<Timestamp>,
}

/// What a NodeClaim becomes.
struct Choice {
    name: NodeName,
    instance: Arc<InstanceType>,
    offering: Offering,
    labels: Labels,
}

/// The state of a NodeClaim's VM and Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Azure creates the VM.
    Creating,
    /// Azure creates the VM, and will find no hardware.
    Failing,
    /// The VM runs, and its Node is on the way.
    Booting,
    /// Its Node is ready, and has its startup taints still.
    Starting,
    /// Its Node takes pods.
    Serving,
    /// Azure deletes the VM.
    Deleting,
    /// The VM is deleted; Karpenter has not noticed yet.
    Gone,
    /// Azure took the VM back, and the Node is left.
    Lost,
}

impl NodeClaim {
    /// Its Node exists.
    pub(super) fn has_node(&self) -> bool {
        !matches!(self.phase, Phase::Creating | Phase::Failing | Phase::Booting)
    }

    /// Its VM runs, or is still being deleted.
    pub(super) fn is_billed(&self) -> bool {
        let exists = !matches!(self.phase, Phase::Creating | Phase::Failing | Phase::Gone | Phase::Lost);
        exists && self.has_run
    }

    /// Azure may take its VM back.
    pub(super) fn may_be_taken(&self) -> bool {
        let runs = matches!(self.phase, Phase::Booting | Phase::Starting | Phase::Serving);
        runs && self.taken_at.is_none() && self.offering.capacity_type == CapacityType::Spot
    }

    /// A command has marked it for deletion, or it is being deleted.
    pub(super) fn is_marked(&self) -> bool {
        self.queued || self.termination.is_some()
    }

    pub(super) fn next_event(&self) -> Option<Timestamp> {
        let look = self.termination.as_ref().and_then(|termination| termination.look_at);
        let expires = self.expires_at.filter(|_| self.termination.is_none());
        [self.due, self.taken_at, look, expires].into_iter().flatten().min()
    }
}

impl Karpenter {
    /// Creates a NodeClaim and launches its VM from the cheapest offering. Its name is returned even if Azure refuses
    /// the VM, which deletes the NodeClaim; `None` when the limits of its pool are exceeded.
    pub(super) fn create(&mut self, planned: &PlannedClaim) -> Result<Option<NodeName>, NameError> {
        let Some(options) = self.pools.iter().find(|options| options.pool.name == planned.pool) else {
            return Ok(None);
        };
        let pool = Arc::clone(&options.pool);
        if self.exceeds_limits(&pool) {
            return Ok(None);
        }
        self.created += 1;
        let name = NodeName::new(format!("aks-{}-{:05}", pool.name, self.created))?;
        let Some((instance, offering)) = self.cheapest_offering(planned, &name) else { return Ok(Some(name)) };
        let labels = claim_labels(&name, &pool, &planned.requirements, node_labels(&instance, &offering));
        if let Some(claim) = self.launch(&pool, Choice { name: name.clone(), instance, offering, labels }) {
            self.claims.insert(name.clone(), claim);
            self.observed.nodes_changed(self.now);
        }
        Ok(Some(name))
    }

    /// Its nodes have more than its limits allow: nothing is created before some are gone.
    fn exceeds_limits(&self, pool: &NodePool) -> bool {
        let own = || self.claims.values().filter(|claim| claim.pool == pool.name);
        let mut used = Resources::default();
        own().for_each(|claim| used.add(&claim.node.capacity));
        let nodes = i64::try_from(own().count()).unwrap_or(i64::MAX);
        pool.limits.nodes.is_some_and(|limit| nodes > limit)
            || pool.limits.resources.iter().any(|(name, limit)| amount(&used, name) > *limit)
    }

    /// The cheapest of all offerings that the NodeClaim allows, spot before on-demand, zonal before regional; any one
    /// of equals.
    fn cheapest_offering(&self, planned: &PlannedClaim, name: &NodeName) -> Option<(Arc<InstanceType>, Offering)> {
        let filter = OfferingFilter::of(&planned.requirements);
        let offered = || {
            planned.types.iter().flat_map(|instance| {
                let offerings = self.unavailable.offerings(instance, &filter);
                offerings.map(move |offering| (instance, offering))
            })
        };
        let rank = |(instance, offering): &(&Arc<InstanceType>, &Offering)| {
            launch_order(self.seed, name.as_str(), instance, offering)
        };
        let price = offered().map(|(_, offering)| offering.price).min()?;
        let cheapest = offered().filter(|(_, offering)| offering.price == price).min_by_key(rank)?;
        Some((Arc::clone(cheapest.0), cheapest.1.clone()))
    }

    /// Begins to create the VM; `None` if Azure refuses at once.
    fn launch(&mut self, pool: &NodePool, choice: Choice) -> Option<NodeClaim> {
        let Choice { name, instance, offering, labels } = choice;
        let facts = &instance.facts;
        let (size, zone, capacity_type) = (facts.name.clone(), offering.zone.clone(), offering.capacity_type);
        let key = OfferingKey { size, zone, capacity_type };
        if let Err(refusal) = self.limits.check_cores(&self.usage(), facts, capacity_type, &self.region) {
            self.note_quota(&refusal, &instance);
            return None;
        }
        if self.faults.refuses(&key, self.now) {
            let time = if capacity_type == CapacityType::Spot { ttl::HOUR } else { ttl::NOT_SOLD };
            self.mark(&instance, None, Some(capacity_type), time);
            return None;
        }
        let lacks = self.faults.lacks_capacity(&key, self.now);
        let on_demand = instance.offerings.iter().find(|o| o.capacity_type == CapacityType::OnDemand);
        let os_disk = instance.costs.os_disk;
        let vm = self.resource_group.resource("Microsoft.Compute/virtualMachines", name.as_str());
        let node = NewNode {
            name: name.clone(),
            provider_id: ProviderId::of_vm(&vm),
            labels,
            taints: pool.taints.clone(),
            capacity: instance.capacity.clone(),
            allocatable: instance.allocatable.clone(),
            kubelet_version: None,
        };
        Some(NodeClaim {
            pool: pool.name.clone(),
            offering: key,
            price: offering.price + os_disk,
            on_demand: on_demand.map_or(offering.price, |o| o.price) + os_disk,
            instance,
            node,
            startup_taints: pool.startup_taints.clone(),
            phase: if lacks { Phase::Failing } else { Phase::Creating },
            has_run: false,
            due: Some(self.now + self.timings.cloud.vm_create.of(self.seed, "create", name.as_str())),
            initialized_at: None,
            last_pod_event: None,
            nominated_until: None,
            queued: false,
            expires_at: pool.expire_after.map(|time| self.now.saturating_add(time).unwrap_or(Timestamp::MAX)),
            grace: pool.termination_grace_period,
            termination: None,
            taken_at: None,
        })
    }

    /// A quota is used up: of spot, or of a family. Nothing is remembered of that of a region.
    fn note_quota(&mut self, refusal: &Refusal, instance: &InstanceType) {
        let Refusal::Quota { quota, limit, .. } = refusal else { return };
        let (spot, on_demand) = (Some(CapacityType::Spot), Some(CapacityType::OnDemand));
        let refused = match quota {
            Quota::Spot => {
                Refused { family: None, least_vcpus: 0, zone: None, capacity_type: spot, until: self.now + ttl::HOUR }
            }
            Quota::Family(_) => {
                let time = if *limit == 0 { ttl::HOUR } else { ttl::QUOTA };
                return self.mark(instance, None, on_demand, time);
            }
            Quota::Regional => return,
        };
        self.remember(refused);
    }

    /// Sizes of this family that are at least as large are not tried for a while.
    fn mark(
        &mut self,
        instance: &InstanceType,
        zone: Option<napkeeper_core::model::names::Zone>,
        capacity_type: Option<CapacityType>,
        time: SignedDuration,
    ) {
        let family = Some(Arc::clone(&instance.facts.family));
        let least_vcpus = instance.facts.vcpus;
        self.remember(Refused { family, least_vcpus, zone, capacity_type, until: self.now + time });
    }

    fn remember(&mut self, refused: Refused) {
        let unavailable: &mut Unavailable = Arc::make_mut(&mut self.unavailable);
        unavailable.mark(refused);
        self.observed.changed();
    }

    /// Ends the phases that end by now.
    pub(super) fn advance_claims(&mut self) {
        let is_over = |claim: &&NodeClaim| claim.due.is_some_and(|at| at <= self.now);
        let ended: Vec<NodeClaim> = self.claims.values().filter(is_over).cloned().collect();
        for claim in ended {
            self.end_phase(claim);
        }
        let is_taken = |claim: &&NodeClaim| claim.taken_at.is_some_and(|at| at <= self.now);
        let taken: Vec<NodeName> = self.claims.values().filter(is_taken).map(|claim| claim.node.name.clone()).collect();
        for name in taken {
            self.lose(&name);
        }
    }

    fn end_phase(&mut self, claim: NodeClaim) {
        let name = claim.node.name.clone();
        match claim.phase {
            Phase::Creating => {
                self.accounting.vm_runs(NewVm {
                    incarnation: name.text(),
                    pool: claim.pool.text(),
                    offering: &claim.offering,
                    price: claim.price,
                    on_demand: claim.on_demand,
                });
                let timings = &self.timings.cluster;
                let joins = timings.node_joins.of(self.seed, "join", name.as_str());
                let boots = joins + timings.node_ready.of(self.seed, "ready", name.as_str());
                self.enter(&name, Phase::Booting, Some(self.now + boots));
            }
            Phase::Booting => self.join(&claim),
            Phase::Starting => {
                let startup = claim.startup_taints;
                self.cluster.edit_node(&name, |node| node.taints.retain(|t| !startup.contains(t)), self.now);
                self.initialize(&name);
            }
            Phase::Failing => {
                self.claims.remove(&name);
                self.mark(&claim.instance, Some(claim.offering.zone.clone()), None, ttl::HOUR);
            }
            Phase::Deleting => {
                self.accounting.vm_stops(name.as_str());
                let since = claim.termination.as_ref().and_then(|termination| termination.vm_since);
                let next = next_poll(since.unwrap_or(self.now), self.now, self.timings.deletion_poll);
                self.enter(&name, Phase::Gone, Some(next));
            }
            Phase::Gone => {
                self.claims.remove(&name);
                self.cluster.delete_node(&name, self.now);
                self.observed.nodes_changed(self.now);
            }
            // Karpenter ends the one, the API server the other.
            Phase::Serving | Phase::Lost => self.enter(&name, claim.phase, None),
        }
    }

    fn join(&mut self, claim: &NodeClaim) {
        let name = claim.node.name.clone();
        let mut node = claim.node.clone();
        node.taints.extend(claim.startup_taints.iter().cloned());
        self.cluster.add_unmanaged_node(node, self.now);
        self.observed.nodes_changed(self.now);
        if claim.startup_taints.is_empty() {
            return self.initialize(&name);
        }
        let startup = self.timings.cluster.startup.of(self.seed, "startup", name.as_str());
        self.enter(&name, Phase::Starting, Some(self.now + startup));
    }

    fn initialize(&mut self, name: &NodeName) {
        self.enter(name, Phase::Serving, None);
        if let Some(claim) = self.claims.get_mut(name) {
            claim.initialized_at = Some(self.now);
        }
        self.observed.nodes_changed(self.now);
    }

    pub(super) fn enter(&mut self, name: &NodeName, phase: Phase, due: Option<Timestamp>) {
        if let Some(claim) = self.claims.get_mut(name) {
            claim.has_run |= phase == Phase::Booting;
            claim.phase = phase;
            claim.due = due;
        }
    }

    /// Azure takes the VM back; the Node goes when the cloud controller finds no VM.
    fn lose(&mut self, name: &NodeName) {
        let Some(claim) = self.claims.get_mut(name) else { return };
        claim.taken_at = None;
        claim.due = None;
        let has_node = claim.has_node();
        claim.phase = Phase::Lost;
        let provider = claim.node.provider_id.clone();
        self.accounting.vm_stops(name.as_str());
        if has_node {
            self.cluster.kubelet_lost(&provider, self.now);
        } else {
            self.claims.remove(name);
        }
        self.observed.nodes_changed(self.now);
    }

    /// The cores that all VMs take of the quotas.
    fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for claim in self.claims.values().filter(|claim| !matches!(claim.phase, Phase::Gone | Phase::Lost)) {
            usage.count(&claim.instance.facts, claim.offering.capacity_type);
        }
        usage
    }
}

/// The labels of a node: those of its offering and its pool, and one value for each other label that its NodeClaim
/// requires.
pub(super) fn claim_labels(
    name: &NodeName,
    pool: &NodePool,
    requirements: &Requirements,
    of_offering: Labels,
) -> Labels {
    let mut all = of_offering;
    all.extend(pool_labels(pool, requirements));
    let text = |key: &str, value: Arc<str>| (labels::interned(key), value);
    all.extend([
        text(labels::REGISTERED, Arc::from("true")),
        text(labels::INITIALIZED, Arc::from("true")),
        text(labels::HOSTNAME, name.text()),
    ]);
    all
}

/// The labels that a node has from its pool, and one value for each other label that its NodeClaim requires.
pub(super) fn pool_labels(pool: &NodePool, requirements: &Requirements) -> Labels {
    let custom = requirements.iter().filter(|(key, _)| !labels::is_well_known(key));
    let mut all: Labels = custom.filter_map(|(key, wanted)| Some((Arc::clone(key), wanted.any_value()?))).collect();
    all.extend(pool.labels.clone());
    all.insert(labels::interned(labels::NODEPOOL), pool.name.text());
    all.insert(labels::interned(labels::NODECLASS), pool.class.text());
    all
}
