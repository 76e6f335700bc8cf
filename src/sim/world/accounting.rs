//! Cost and utilization.

use crate::cluster::Cluster;
use crate::measures::{DisruptionFigures, PoolFigures, PriceSeries, per_day};
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::catalog::{CapacityType, OfferingKey};
use napkeeper_core::model::amounts::money::{HourlyPrice, Money};
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::pod::Pod;
use napkeeper_core::snapshot::Snapshot;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Running totals of a world.
#[derive(Debug, Clone, Default)]
pub struct Accounting {
    running: BTreeMap<Arc<str>, Bill>,
    pools: BTreeMap<Arc<str>, PoolBill>,
    prices: PriceSeries,
    spent: Money,
    spent_on_demand: Money,
    node_time: SignedDuration,
    spot_time: SignedDuration,
    launched: u32,
    most_at_once: usize,
    load: Load,
    used_millis: i128,
    had_millis: i128,
    waited: SignedDuration,
    /// Spot VMs that Azure took back.
    pub(super) spot_evictions: u32,
    /// Offerings that Azure refused.
    pub(super) refusals: u32,
    /// Orphans that sweeps deleted.
    pub(super) collected: u32,
}

/// A running VM.
#[derive(Debug, Clone)]
struct Bill {
    pool: Arc<str>,
    price: HourlyPrice,
    on_demand: HourlyPrice,
    spot: bool,
}

/// The totals of a NodePool or node group.
#[derive(Debug, Clone, Default)]
struct PoolBill {
    launched: u32,
    node_time: SignedDuration,
    spent: Money,
}

/// A VM that begins to run.
#[derive(Debug, Clone)]
pub(crate) struct NewVm<'a> {
    /// Its incarnation.
    pub(crate) incarnation: Arc<str>,
    /// Its NodePool or node group.
    pub(crate) pool: Arc<str>,
    /// What it was launched as.
    pub(crate) offering: &'a OfferingKey,
    /// What it costs, with its OS disk.
    pub(crate) price: HourlyPrice,
    /// What it would cost on demand, with its OS disk.
    pub(crate) on_demand: HourlyPrice,
}

/// Capacity and usage of managed nodes, in thousandths of a core, and the number of pending pods.
#[derive(Debug, Clone, Copy, Default)]
struct Load {
    used: i64,
    had: i64,
    waiting: usize,
}

/// Cost and utilization.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Virtual time.
    pub simulated_hours: i64,
    /// Nodes that were launched.
    pub nodes_launched: u32,
    /// Most nodes at once.
    pub nodes_most: usize,
    /// Nodes running at the end.
    pub nodes_now: usize,
    /// Sum of the nodes' times, in hours.
    pub node_hours: i64,
    /// The part of it on spot, in percent.
    pub spot_percent: i64,
    /// Requested of allocatable CPU of managed nodes over the whole time, in percent.
    pub cpu_utilisation_percent: i64,
    /// Sum of the times that pods waited for a node, in pod-minutes.
    pub pod_wait_minutes: i64,
    /// Cost of VMs and OS disks in nano-USD.
    pub cost: Money,
    /// The cost of the same VMs at the full price, in nano-USD.
    pub cost_on_demand: Money,
    /// Spot VMs that Azure took back.
    pub spot_evictions: u32,
    /// Offerings that Azure refused.
    pub refusals: u32,
    /// Orphans that sweeps deleted.
    pub collected: u32,
    /// Pods that have no node at the end.
    pub pods_pending: usize,
    /// How pods were disturbed.
    pub disruption: DisruptionFigures,
    /// Nodes and cost by NodePool or node group.
    pub pools: BTreeMap<Arc<str>, PoolFigures>,
    /// The price per hour of all running VMs and their OS disks over time.
    #[serde(skip)]
    pub prices: PriceSeries,
}

impl Summary {
    /// Nodes that were launched for each day that a node ran.
    #[must_use]
    pub fn launches_per_node_day(&self) -> f64 {
        per_day(f64::from(self.nodes_launched), SignedDuration::from_hours(self.node_hours))
    }
}

impl Accounting {
    /// A VM runs from now on.
    pub(crate) fn vm_runs(&mut self, vm: NewVm<'_>) {
        let spot = vm.offering.capacity_type == CapacityType::Spot;
        self.pools.entry(Arc::clone(&vm.pool)).or_default().launched += 1;
        let bill = Bill { pool: vm.pool, price: vm.price, on_demand: vm.on_demand, spot };
        self.running.insert(vm.incarnation, bill);
        self.launched += 1;
        self.most_at_once = self.most_at_once.max(self.running.len());
    }

    /// A VM was deleted.
    pub(crate) fn vm_stops(&mut self, incarnation: &str) {
        self.running.remove(incarnation);
    }

    /// Measures the current usage of managed nodes.
    pub(crate) fn measure(&mut self, cluster: &Snapshot, is_managed: impl Fn(&Node) -> bool) {
        let mut load =
            Load { waiting: cluster.pending().values().map(std::collections::BTreeSet::len).sum(), ..Load::default() };
        for node in cluster.nodes().values().filter(|n| is_managed(n)) {
            load.had += node.allocatable.cpu_millis;
            load.used += cluster.node_usage(&node.name).map_or(0, |u| u.pod_requests.cpu_millis);
        }
        self.load = load;
    }

    /// Time passes.
    pub(crate) fn advance(&mut self, from: Timestamp, to: Timestamp) {
        let time = to.duration_since(from);
        if time.is_zero() {
            return;
        }
        let price = self.running.values().fold(0_i64, |sum, bill| sum.saturating_add(bill.price.nanos()));
        self.prices.record(from, HourlyPrice::from_nanos(price));
        for bill in self.running.values() {
            let pool = self.pools.entry(Arc::clone(&bill.pool)).or_default();
            pool.spent += bill.price.over(time);
            pool.node_time = pool.node_time.saturating_add(time);
            self.spent += bill.price.over(time);
            self.spent_on_demand += bill.on_demand.over(time);
            self.node_time = self.node_time.saturating_add(time);
            if bill.spot {
                self.spot_time = self.spot_time.saturating_add(time);
            }
        }
        let nanos = time.as_nanos();
        self.used_millis += i128::from(self.load.used) * nanos;
        self.had_millis += i128::from(self.load.had) * nanos;
        let waiting = i32::try_from(self.load.waiting).unwrap_or(i32::MAX);
        self.waited = self.waited.saturating_add(time * waiting);
    }

    /// The totals over a time, at the end of which the cluster is in this state.
    pub(crate) fn summary(&self, time: SignedDuration, cluster: &Cluster, now: Timestamp) -> Summary {
        let percent = |part: i128, whole: i128| i64::try_from(part * 100 / whole.max(1)).unwrap_or(0);
        Summary {
            simulated_hours: time.as_hours(),
            nodes_launched: self.launched,
            nodes_most: self.most_at_once,
            nodes_now: self.running.len(),
            node_hours: self.node_time.as_hours(),
            spot_percent: percent(self.spot_time.as_nanos(), self.node_time.as_nanos()),
            cpu_utilisation_percent: percent(self.used_millis, self.had_millis),
            pod_wait_minutes: self.waited.as_mins(),
            cost: self.spent,
            cost_on_demand: self.spent_on_demand,
            spot_evictions: self.spot_evictions,
            refusals: self.refusals,
            collected: self.collected,
            pods_pending: pods_pending(cluster.state()),
            disruption: cluster.measures().figures(now),
            pools: self.pools.iter().map(|(pool, bill)| (Arc::clone(pool), bill.figures())).collect(),
            prices: self.prices.clone(),
        }
    }
}

impl PoolBill {
    fn figures(&self) -> PoolFigures {
        PoolFigures { nodes_launched: self.launched, node_hours: self.node_time.as_hours(), cost: self.spent }
    }
}

/// Pods without a node that are wanted.
fn pods_pending(cluster: &Snapshot) -> usize {
    let waits = |pod: &&Arc<Pod>| pod.node.is_none() && pod.deleting_at.is_none() && !pod.is_terminal();
    cluster.pods().values().filter(waits).count()
}

impl super::World {
    /// The totals so far.
    #[must_use]
    pub fn summary(&self) -> Summary {
        self.accounting.summary(self.now.duration_since(self.started_at), &self.cluster, self.now)
    }
}
