//! The baseline: the same load under Kubernetes' cluster-autoscaler.
//!
//! The same simulated cluster, workloads, prices and durations as [`crate::world`], with fixed node groups and the
//! cluster-autoscaler's loop instead of napkeeper. The rules and defaults are those of `kubernetes/autoscaler` as AKS
//! runs it with its documented defaults; [`POLICY`] summarizes them.
//!
//! Differences from a real cluster-autoscaler:
//! - It checks PodDisruptionBudgets, local storage and pods of `kube-system` before it begins a drain. Here the drain
//!   begins, evictions that a budget refuses are tried for two minutes, and then the node is kept.
//! - Upstream's `least-waste` adds up the wasted shares of CPU and memory (`expander/waste/waste.go`). Here memory
//!   decides only between equals of CPU. The two agree where the options help the same pods and their sizes have the
//!   same memory per core. Ties are broken by price here, at random there.
//! - It leaves pods below priority −10 waiting; here every pod counts.
//! - It gives up VMs that do not join within 15 min, and stops in a cluster that is not healthy. Here every VM that
//!   starts joins.
//! - Throttling and outages of Azure and of the API server reach it too; this one is spared them.
//! - Its taint on nodes to be deleted is a cordon here.
//!
//! Tuning by an administrator that is not done here:
//! - Choose sizes for the load. The cheapest D sizes are often those with 2 GiB per vCPU: good for loads that need CPU,
//!   expensive for those that need memory, and too small for some pods, which then show as unplaced.
//! - Limit the groups. The limits and weights of the NodePools do not bind the baseline.

mod actions;
mod node_groups;
mod scale_down;
mod scale_up;
#[cfg(test)]
mod tests;
mod vms;

use crate::cloud::{Faults, Limits};
use crate::cluster::{AGENT_POOL, Cluster, ClusterEvent, Timings as ClusterTimings};
use crate::measures::DisruptionFigures;
use crate::workload::SuspendedJobs;
use crate::world::{Accounting, Action, SetupError, Summary, WorldSetup, identity, install_objects, region_of};
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::catalog::Catalog;
use napkeeper_core::model::amounts::money::Money;
use napkeeper_core::model::names::{ArmId, NameError, NodeName, Region};
use node_groups::NodeGroup;
use serde::Serialize;
use std::collections::BTreeMap;
use vms::GroupVm;

/// The policy of the baseline, for readers of its numbers.
pub const POLICY: &str = "cluster-autoscaler with three node pools per zone (the cheapest amd64 D sizes of 4, 8 and 16 \
    vCPU), the same on spot where a NodePool allows spot, a GPU pool per zone for the cheapest allowed GPU size that \
    fits each GPU workload, at most 1000 nodes per pool; scan every 10 s, expander priority (spot first) then \
    least-waste (CPU, then memory, then price), similar zones balanced; scale-down of nodes that have been under 50 % \
    for 10 min and whose pods fit elsewhere, none within 10 min of a scale-up";

/// How often the autoscaler looks (`--scan-interval`).
const SCAN_INTERVAL: SignedDuration = SignedDuration::from_secs(10);

/// Cost and utilization under the cluster-autoscaler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Baseline {
    /// Cost in nano-USD.
    pub cost: Money,
    /// The cost of the same VMs at the full price, in nano-USD.
    pub cost_on_demand: Money,
    /// Sum of the nodes' times, in hours.
    pub node_hours: i64,
    /// Nodes that were launched.
    pub nodes_launched: u32,
    /// Most nodes at once.
    pub nodes_most: usize,
    /// Requested of allocatable CPU of its nodes over the whole time, in percent.
    pub cpu_utilisation_percent: i64,
    /// Sum of the times that pods waited for a node, in pod-minutes.
    pub pod_wait_minutes: i64,
    /// Pods that have no node at the end.
    pub unplaced_pods: usize,
    /// How pods were disturbed.
    pub disruption: DisruptionFigures,
}

/// Runs the baseline on the load of a world for this long.
///
/// # Errors
/// [`SetupError`] when the catalogue does not have the region.
pub fn run(catalog: &Catalog, setup: &WorldSetup, duration: SignedDuration) -> Result<Baseline, SetupError> {
    let summary = simulate(catalog, setup, duration)?;
    Ok(Baseline {
        cost: summary.cost,
        cost_on_demand: summary.cost_on_demand,
        node_hours: summary.node_hours,
        nodes_launched: summary.nodes_launched,
        nodes_most: summary.nodes_most,
        cpu_utilisation_percent: summary.cpu_utilisation_percent,
        pod_wait_minutes: summary.pod_wait_minutes,
        unplaced_pods: summary.pods_pending,
        disruption: summary.disruption,
    })
}

/// Runs the baseline on the load of a world for this long, and returns all that is measured of it.
///
/// # Errors
/// [`SetupError`] when the catalogue does not have the region.
pub fn simulate(catalog: &Catalog, setup: &WorldSetup, duration: SignedDuration) -> Result<Summary, SetupError> {
    let mut autoscaler = Autoscaler::new(catalog, setup)?;
    autoscaler.run_until(setup.at.saturating_add(duration).unwrap_or(Timestamp::MAX))?;
    Ok(autoscaler.summary())
}

/// The cluster, its VMs, and the state of the autoscaler.
#[derive(Debug)]
struct Autoscaler {
    seed: u64,
    started_at: Timestamp,
    now: Timestamp,
    region: Region,
    resource_group: ArmId,
    groups: Vec<NodeGroup>,
    cluster: Cluster,
    accounting: Accounting,
    /// What Azure refuses. The VMs themselves are [`Autoscaler::vms`].
    faults: Faults,
    limits: Limits,
    vms: BTreeMap<NodeName, GroupVm>,
    ordered: u32,
    agenda: BTreeMap<(Timestamp, usize), Action>,
    jobs: SuspendedJobs,
    disks: u32,
    /// The next scan that may find something to do, before it is moved to the grid of the scan interval.
    wake: Option<Timestamp>,
    /// The first instant that the next scan may be at.
    scan_from: Timestamp,
    scaled_up_at: Option<Timestamp>,
    /// Since when a node could be done without.
    unneeded: BTreeMap<NodeName, Timestamp>,
}

impl Autoscaler {
    fn new(catalog: &Catalog, setup: &WorldSetup) -> Result<Self, SetupError> {
        let region = region_of(catalog, setup)?;
        let resource_group = identity(&setup.region)?.node_resource_group;
        let mut cluster = Cluster::new(setup.seed, ClusterTimings::default());
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
            groups: node_groups::node_groups(&region, setup, &resource_group)?,
            resource_group,
            cluster,
            accounting: Accounting::default(),
            faults: Faults::default(),
            limits: Limits::default(),
            vms: BTreeMap::new(),
            ordered: 0,
            agenda: setup.actions.iter().enumerate().map(action).collect(),
            jobs: SuspendedJobs::new(setup.manifests.suspended.iter().cloned()),
            disks: 0,
            wake: None,
            scan_from: setup.at,
            scaled_up_at: None,
            unneeded: BTreeMap::new(),
        })
    }

    fn run_until(&mut self, end: Timestamp) -> Result<(), NameError> {
        while let Some(next) = self.next_instant().filter(|at| *at <= end) {
            self.pass_time(next);
            self.step()?;
        }
        self.pass_time(end.max(self.now));
        Ok(())
    }

    fn summary(&self) -> Summary {
        self.accounting.summary(self.now.duration_since(self.started_at), &self.cluster, self.now)
    }

    fn pass_time(&mut self, to: Timestamp) {
        self.accounting.advance(self.now, to);
        self.now = to;
    }

    fn next_instant(&self) -> Option<Timestamp> {
        let action = self.agenda.keys().next().map(|(at, _)| *at);
        let vm = self.vms.values().filter_map(|m| m.due).min();
        [action, vm, self.cluster.next_event(), self.next_scan()].into_iter().flatten().min().map(|at| at.max(self.now))
    }

    /// Plays the events of this instant. Their consequences at the same instant are played by the next step.
    fn step(&mut self) -> Result<(), NameError> {
        while let Some(entry) = self.agenda.first_entry().filter(|e| e.key().0 <= self.now) {
            let action = entry.remove();
            self.apply_action(action);
        }
        self.advance_vms();
        self.cluster.advance(self.now);
        self.answer_cluster();
        self.measure();
        if self.next_scan().is_some_and(|at| at <= self.now) {
            self.scan()?;
            self.measure();
        }
        Ok(())
    }

    /// Scans are on a grid. Those that would find the cluster as the last one left it, and no time to be up, are not
    /// played.
    fn next_scan(&self) -> Option<Timestamp> {
        let since = self.wake?.max(self.scan_from).duration_since(self.started_at);
        let interval = SCAN_INTERVAL.as_nanos();
        let ticks = (since.as_nanos() + interval - 1) / interval;
        let seconds = SCAN_INTERVAL.as_secs().saturating_mul(i64::try_from(ticks).unwrap_or(i64::MAX));
        self.started_at.saturating_add(SignedDuration::from_secs(seconds)).ok()
    }

    fn wake_at(&mut self, at: Timestamp) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }

    /// One pass of the autoscaler's loop: a scan that scales up does nothing else.
    fn scan(&mut self) -> Result<(), NameError> {
        self.wake = None;
        self.scan_from = self.now + SCAN_INTERVAL;
        if self.scale_up()? {
            self.scaled_up_at = Some(self.now);
            self.wake_at(self.now);
        } else {
            self.scale_down();
        }
        Ok(())
    }

    fn measure(&mut self) {
        if !self.cluster.watch().is_empty() {
            self.accounting.measure(self.cluster.state(), |node| node.label(AGENT_POOL).is_some());
            self.wake_at(self.now);
        }
    }

    /// Disks are created at once: they cost both sides the same.
    fn answer_cluster(&mut self) {
        for (_, event) in self.cluster.take_events() {
            if let ClusterEvent::DiskWanted { volume, .. } = event {
                self.disks += 1;
                let disk = self.resource_group.resource("Microsoft.Compute/disks", &format!("disk{}", self.disks));
                self.cluster.disk_created(&volume, disk, self.now);
            }
        }
    }
}
