//! A peer: the same load under the policy of Karpenter on Azure.
//!
//! The same simulated cluster, workloads, prices, durations and shortages as [`crate::world`], with Karpenter's own
//! algorithms instead of napkeeper's: its scheduling simulation, its methods of disruption, its drain, and its Azure
//! provider's choice of one offering for each NodeClaim. It was written from the behaviour of Karpenter core 1.14 and
//! shares only facts with napkeeper: the catalogue, requirements, resources, taints. No decision of napkeeper's is used.
//!
//! Every decision is a function of a `View`, a frozen picture of the cluster.
//!
//! Differences from the real Karpenter:
//! - Computing takes no time: the limits of 1 and 3 minutes on a search never bite, which favours it.
//! - Where upstream takes a random one of equal domains or pools, the first by name is taken.
//! - The simulated kube-scheduler has no back-off, so that pods are bound, and nodes may be consolidated, at the same
//!   instants. Upstream sees such nodes a few at a time, and after a look at some that found nothing it does not look at
//!   the others for five minutes.
//! - A node joins, is registered and ready at once after the same durations as elsewhere; only its startup taints take
//!   longer. No NodeClaim fails to register, and none is repaired.
//! - NodeClaims are kept in memory: the API server, its delays and its conflicts are not simulated for them.
//! - Eviction is tried again on a grid of 1 s instead of 100 ms.
//! - A size with zones has no regional offering beside its zonal ones, as elsewhere in the catalogue here. Quotas are
//!   learnt from refusals; the provider also reads them every ten minutes.
//! - Terminating pods of StatefulSets are not planned for, since they cannot be told from those of other workloads.
//!   Attach limits of disks do not exist in these worlds.
//! - Pods that a drain deletes at the end of the `terminationGracePeriod` get their whole own grace.
//! - Drift, fixed-size pools, NodeOverlays, capacity reservations and CapacityBuffers do not occur. The steps of a
//!   scenario that change NodePools are left out.

mod disruption;
mod launches;
mod node_claims;
mod offerings;
mod pods;
mod provisioning;
mod scheduling;
mod state;
mod termination;
#[cfg(test)]
mod tests;
mod view;

use crate::cloud::{Faults, Limits, Timings as CloudTimings};
use crate::cluster::{Cluster, ClusterEvent, Timings as ClusterTimings};
use crate::workload::SuspendedJobs;
use crate::world::{
    Accounting, Action, LoadTargets, SetupError, Summary, WorldSetup, identity, install_objects, region_of,
};
pub use disruption::BegunCommand;
use disruption::DisruptionLoop;
use jiff::{SignedDuration, Timestamp};
pub use launches::Launches;
use napkeeper_core::catalog::Catalog;
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::cluster::pod::{PodOwner, PodPhase};
use napkeeper_core::model::cluster::pool::ConsolidationPolicy;
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{ArmId, NameError, NodeName, Region};
use node_claims::NodeClaim;
use offerings::{PoolOptions, Unavailable};
use provisioning::Batch;
use state::Observed;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The policy of this peer, for readers of its numbers.
pub const POLICY: &str = "Karpenter 1.14 on Azure: pods in batches of 1 to 10 s, the largest first, on the first node that \
    takes them, else on the cheapest offering that does, spot first; every 10 s empty nodes, then several, then one that \
    is underutilized, are deleted or replaced by one cheaper node, within the budgets and after a second look 15 s later; \
    replacements are ready before a node is drained";

/// What is varied of Karpenter's behaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variant {
    /// The consolidation policy of all NodePools; `None` leaves each its own.
    pub consolidation: Option<ConsolidationPolicy>,
    /// The feature gate `SpotToSpotConsolidation`. It is off on Azure by default.
    pub spot_to_spot: bool,
    /// Pods of nodes that would be disrupted may not go to nodes inside their `consolidateAfter`, as since 1.14.
    pub fresh_destinations: bool,
}

impl Default for Variant {
    /// As the Azure provider ships it.
    fn default() -> Self {
        Self { consolidation: None, spot_to_spot: false, fresh_destinations: true }
    }
}

/// How long everything takes that Karpenter waits for.
#[derive(Debug, Clone)]
pub struct Timings {
    /// Of VMs.
    pub cloud: CloudTimings,
    /// Of Nodes and pods.
    pub cluster: ClusterTimings,
    /// How often Karpenter asks whether a VM that it deletes is gone; zero where the provider says so at once.
    pub deletion_poll: SignedDuration,
}

impl Default for Timings {
    /// Those of AKS; the Azure provider is asked every 5 s.
    fn default() -> Self {
        let (cloud, cluster) = (CloudTimings::default(), ClusterTimings::default());
        Self { cloud, cluster, deletion_poll: SignedDuration::from_secs(5) }
    }
}

/// The part of a variant that decisions depend on.
#[derive(Debug, Clone, Copy)]
struct Rules {
    spot_to_spot: bool,
    fresh_destinations: bool,
}

/// Runs Karpenter's policy on the load of a world for this long.
///
/// # Errors
/// [`SetupError`] when the catalogue does not have the region.
pub fn run(
    catalog: &Catalog,
    setup: &WorldSetup,
    duration: SignedDuration,
    variant: &Variant,
) -> Result<Summary, SetupError> {
    let mut karpenter = Karpenter::new(catalog, setup, variant)?;
    karpenter.run_until(setup.at.saturating_add(duration).unwrap_or(Timestamp::MAX))?;
    Ok(karpenter.summary())
}

/// The cluster, its VMs, and the state of Karpenter.
#[derive(Debug)]
pub struct Karpenter {
    seed: u64,
    started_at: Timestamp,
    now: Timestamp,
    region: Region,
    resource_group: ArmId,
    rules: Rules,
    timings: Timings,
    pools: Vec<Arc<PoolOptions>>,
    cluster: Cluster,
    accounting: Accounting,
    /// What Azure refuses. The VMs themselves are [`Karpenter::claims`].
    faults: Faults,
    limits: Limits,
    unavailable: Arc<Unavailable>,
    claims: BTreeMap<NodeName, NodeClaim>,
    created: u32,
    agenda: BTreeMap<(Timestamp, usize), Action>,
    jobs: SuspendedJobs,
    disks: u32,
    batch: Option<Batch>,
    /// When pods that still wait are planned for again.
    replan_at: Option<Timestamp>,
    disruption: DisruptionLoop,
    observed: Observed,
}

impl Karpenter {
    /// A world under Karpenter's policy, at its first instant.
    ///
    /// # Errors
    /// [`SetupError`] when the catalogue does not have the region.
    pub fn new(catalog: &Catalog, setup: &WorldSetup, variant: &Variant) -> Result<Self, SetupError> {
        Self::with_timings(catalog, setup, variant, Timings::default())
    }

    /// As [`Karpenter::new`], where VMs, Nodes and pods take other times than on AKS.
    ///
    /// # Errors
    /// As there.
    pub fn with_timings(
        catalog: &Catalog,
        setup: &WorldSetup,
        variant: &Variant,
        timings: Timings,
    ) -> Result<Self, SetupError> {
        let region = region_of(catalog, setup)?;
        let resource_group = identity(&setup.region)?.node_resource_group;
        let mut cluster = Cluster::new(setup.seed, timings.cluster);
        install_objects(&mut cluster, &region, &resource_group, setup.clone())?;
        let action = |(order, (after, action)): (usize, &(SignedDuration, Action))| {
            let at = setup.at.saturating_add(*after).unwrap_or(Timestamp::MAX);
            ((at, order), action.clone())
        };
        Ok(Self {
            seed: setup.seed,
            started_at: setup.at,
            now: setup.at,
            region: setup.region.clone(),
            resource_group,
            rules: Rules { spot_to_spot: variant.spot_to_spot, fresh_destinations: variant.fresh_destinations },
            timings,
            pools: state::pools(&region, setup, variant),
            cluster,
            accounting: Accounting::default(),
            faults: Faults::default(),
            limits: Limits::default(),
            unavailable: Arc::default(),
            claims: BTreeMap::new(),
            created: 0,
            agenda: setup.actions.iter().enumerate().map(action).collect(),
            jobs: SuspendedJobs::new(setup.manifests.suspended.iter().cloned()),
            disks: 0,
            batch: None,
            replan_at: None,
            disruption: DisruptionLoop::new(setup.at),
            observed: Observed::new(setup.at),
        })
    }

    /// Plays everything up to this time, inclusive.
    ///
    /// # Errors
    /// [`NameError`] when a node cannot be named after its NodePool.
    pub fn run_until(&mut self, end: Timestamp) -> Result<(), NameError> {
        while let Some(next) = self.next_instant().filter(|at| *at <= end) {
            self.pass_time(next);
            self.step()?;
        }
        self.pass_time(end.max(self.now));
        Ok(())
    }

    fn pass_time(&mut self, to: Timestamp) {
        self.accounting.advance(self.now, to);
        self.now = to;
    }

    fn next_instant(&self) -> Option<Timestamp> {
        let times = [
            self.agenda.keys().next().map(|(at, _)| *at),
            self.claims.values().filter_map(NodeClaim::next_event).min(),
            self.cluster.next_event(),
            self.batch.map(|batch| batch.ends_at()),
            self.replan_at,
            self.unavailable.next_end(),
            Some(self.disruption.next_event()),
        ];
        times.into_iter().flatten().min().map(|at| at.max(self.now))
    }

    /// Plays the events of this instant. Their consequences at the same instant are played by the next step.
    fn step(&mut self) -> Result<(), NameError> {
        while let Some(entry) = self.agenda.first_entry().filter(|e| e.key().0 <= self.now) {
            let action = entry.remove();
            self.apply_action(action);
        }
        if Arc::make_mut(&mut self.unavailable).expire(self.now) {
            self.observed.changed();
        }
        self.advance_claims();
        self.cluster.advance(self.now);
        self.answer_cluster();
        self.measure();
        self.expire();
        self.terminate();
        self.advance_commands();
        self.provision()?;
        self.disrupt()?;
        self.measure();
        Ok(())
    }

    fn measure(&mut self) {
        let changes = self.cluster.watch();
        if !changes.is_empty() {
            self.accounting.measure(self.cluster.state(), |node| node.label(labels::NODEPOOL).is_some());
            self.observe(changes);
        }
    }

    /// Disks are created at once: they cost all sides the same.
    fn answer_cluster(&mut self) {
        for (_, event) in self.cluster.take_events() {
            match event {
                ClusterEvent::DiskWanted { volume, .. } => {
                    self.disks += 1;
                    let disk = self.resource_group.resource("Microsoft.Compute/disks", &format!("disk{}", self.disks));
                    self.cluster.disk_created(&volume, disk, self.now);
                }
                ClusterEvent::NodeGone { node } => drop(self.claims.remove(&node)),
                _ => {}
            }
        }
    }

    /// The simulated cluster.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// What all running VMs cost together now.
    #[must_use]
    pub fn hourly_price(&self) -> HourlyPrice {
        self.claims.values().filter(|claim| claim.is_billed()).map(|claim| claim.price).sum()
    }

    /// The totals so far.
    #[must_use]
    pub fn summary(&self) -> Summary {
        self.accounting.summary(self.now.duration_since(self.started_at), &self.cluster, self.now)
    }

    /// Commands of disruption that were begun.
    #[must_use]
    pub fn commands(&self) -> &[BegunCommand] {
        self.disruption.begun()
    }
}

/// The actions of a scenario that concern this peer too.
impl Karpenter {
    fn apply_action(&mut self, action: Action) {
        if let Action::EvictSpot { count } | Action::EvictSpotAnnounced { count } = action {
            return self.evict_spot(count);
        }
        let Self { cluster, jobs, limits, faults, .. } = self;
        LoadTargets { cluster, jobs, limits, faults }.apply(action, self.now);
    }

    /// Azure gives eviction notice to spot VMs, those with running pods first.
    fn evict_spot(&mut self, count: usize) {
        let mut spot: Vec<NodeName> =
            self.claims.iter().filter(|(_, claim)| claim.may_be_taken()).map(|(name, _)| name.clone()).collect();
        spot.sort_by_cached_key(|name| !self.is_busy(name));
        let at = self.now + self.timings.cloud.eviction_notice;
        for name in spot.iter().take(count) {
            if let Some(claim) = self.claims.get_mut(name) {
                claim.taken_at = Some(at);
            }
        }
    }

    fn is_busy(&self, node: &NodeName) -> bool {
        let mut pods = self.cluster.state().pods_on(node);
        pods.any(|p| p.phase == PodPhase::Running && !matches!(p.owner, PodOwner::DaemonSet | PodOwner::Static))
    }
}
