//! Scale-up: chooses the node group to grow for pending pods, and by how many nodes.

use super::Autoscaler;
use super::node_groups::{MOST_NODES, NodeGroup};
use crate::cluster::{NodeIndex, SchedulingSimulation};
use napkeeper_core::catalog::CapacityType;
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::cluster::pod::{Pod, PodShape};
use napkeeper_core::model::names::{NameError, NodeName};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What growing one group would do.
#[derive(Debug)]
struct ExpansionOption {
    group: usize,
    nodes: usize,
    /// The pods that it helps.
    pods: Vec<Arc<Pod>>,
}

/// The order of the expanders, best first: spot before on-demand (priority), then the wasted millionths of CPU and of
/// memory (least-waste), then the price.
type ExpanderScore = (Reverse<bool>, i64, i64, HourlyPrice, usize);

impl Autoscaler {
    /// Grows a group if that helps pending pods; true if it did.
    pub(super) fn scale_up(&mut self) -> Result<bool, NameError> {
        let Some(plan) = self.expansion() else { return Ok(false) };
        let before = self.ordered;
        for (group, count) in plan {
            self.order(group, count)?;
        }
        // Groups that Azure refuses to grow are out of the next scan, and another one may help.
        self.wake_at(self.now);
        Ok(self.ordered > before)
    }

    /// By how many nodes each group is to grow.
    fn expansion(&mut self) -> Option<BTreeMap<usize, usize>> {
        let pending = self.pending();
        if pending.is_empty() {
            return None;
        }
        let retry = self.groups.iter().filter_map(|g| g.backed_off(self.now)).min();
        if let Some(at) = retry {
            self.wake_at(at);
        }
        let mut simulation = self.cluster.simulation();
        for vm in self.vms.values().filter(|m| m.phase.is_upcoming()) {
            simulation.add_node(vm.node.clone());
        }
        let unhelped = unplaced(&mut simulation, pending);
        let sizes = self.group_sizes();
        let may_grow: Vec<usize> = (0..self.groups.len())
            .filter(|g| self.groups[*g].backed_off(self.now).is_none() && sizes[*g] < MOST_NODES)
            .collect();
        let options = may_grow.iter().filter_map(|g| self.estimate(*g, MOST_NODES - sizes[*g], &simulation, &unhelped));
        let best = options.min_by_key(|option| self.merit(option))?;
        Some(self.balanced(&best, &may_grow, sizes, &simulation))
    }

    /// Pending pods, in kube-scheduler's order.
    fn pending(&self) -> Vec<Arc<Pod>> {
        let mut pods: Vec<Arc<Pod>> = self.cluster.state().pending_pods().cloned().collect();
        pods.sort_by(|a, b| {
            let order = |p: &Pod| (Reverse(p.shape.priority), p.created_at);
            order(a).cmp(&order(b)).then_with(|| a.key.cmp(&b.key))
        });
        pods
    }

    /// How many nodes each group has or is getting.
    fn group_sizes(&self) -> Vec<usize> {
        let mut sizes = vec![0; self.groups.len()];
        for vm in self.vms.values() {
            sizes[vm.group] += 1;
        }
        sizes
    }

    /// The binpacking estimator: the largest pods first, each on the first new node that takes it, and a new node when
    /// none does. `None` when no pod is helped.
    fn estimate(
        &self,
        group: usize,
        most: usize,
        simulation: &SchedulingSimulation<'_>,
        pods: &[Arc<Pod>],
    ) -> Option<ExpansionOption> {
        let template = &self.groups[group];
        let mut pods: Vec<&Arc<Pod>> = pods.iter().collect();
        pods.sort_by_cached_key(|pod| Reverse(relative_size(&pod.shape, template)));
        let mut trial = simulation.clone();
        let mut new = BTreeSet::new();
        let mut helped = Vec::new();
        let mut hopeless: Vec<&PodShape> = Vec::new();
        for pod in pods {
            if hopeless.contains(&&*pod.shape) {
                continue;
            }
            if trial.place(pod, Some(&new)).is_some() {
                helped.push(Arc::clone(pod));
            } else if new.len() < most
                && let Some(slot) = fits_on_new(&mut trial, template, new.len(), pod)
            {
                new.insert(slot);
                helped.push(Arc::clone(pod));
            } else if pod.volumes.is_empty() {
                hopeless.push(&pod.shape);
            }
        }
        (!new.is_empty()).then_some(ExpansionOption { group, nodes: new.len(), pods: helped })
    }

    fn merit(&self, option: &ExpansionOption) -> ExpanderScore {
        let group = &self.groups[option.group];
        let nodes = i64::try_from(option.nodes).unwrap_or(i64::MAX);
        let had = group.template.capacity.times(nodes);
        let wasted = |of: fn(&napkeeper_core::model::amounts::resources::Resources) -> i64| {
            let used: i128 = option.pods.iter().map(|p| i128::from(of(&p.shape.requests))).sum();
            let had = i128::from(of(&had)).max(1);
            i64::try_from((had - used) * 1_000_000 / had).unwrap_or(i64::MAX)
        };
        let spot = group.offering.capacity_type == CapacityType::Spot;
        (Reverse(spot), wasted(|r| r.cpu_millis), wasted(|r| r.memory), group.price * nodes, option.group)
    }

    /// Spreads the new nodes over the zones that would help the same pods, always to the zone with the fewest
    /// (`--balance-similar-node-groups`).
    fn balanced(
        &self,
        best: &ExpansionOption,
        may_grow: &[usize],
        mut sizes: Vec<usize>,
        simulation: &SchedulingSimulation<'_>,
    ) -> BTreeMap<usize, usize> {
        let mut kinds: Vec<&Arc<Pod>> = Vec::new();
        for pod in &best.pods {
            if !kinds.iter().any(|k| k.shape == pod.shape && k.volumes == pod.volumes) {
                kinds.push(pod);
            }
        }
        let helps =
            |group: &NodeGroup| kinds.iter().all(|pod| fits_on_new(&mut simulation.clone(), group, 0, pod).is_some());
        let is_one = |g: &usize| {
            *g == best.group || (self.groups[*g].is_similar(&self.groups[best.group]) && helps(&self.groups[*g]))
        };
        let similar: Vec<usize> = may_grow.iter().copied().filter(is_one).collect();
        let mut plan = BTreeMap::new();
        for _ in 0..best.nodes {
            if let Some(smallest) = similar.iter().copied().min_by_key(|g| (sizes[*g], *g)) {
                sizes[smallest] += 1;
                *plan.entry(smallest).or_default() += 1;
            }
        }
        plan
    }
}

/// The pods that fit neither on existing nodes nor on those that are being created.
fn unplaced(simulation: &mut SchedulingSimulation<'_>, pending: Vec<Arc<Pod>>) -> Vec<Arc<Pod>> {
    let mut unplaced: Vec<Arc<Pod>> = Vec::new();
    for pod in pending {
        let alike = |other: &Arc<Pod>| other.shape == pod.shape && other.volumes == pod.volumes;
        // Where one pod does not fit, an equal one does not either.
        if unplaced.last().is_some_and(alike) || simulation.place(&pod, None).is_none() {
            unplaced.push(pod);
        }
    }
    unplaced
}

/// Places a pod on a new node of a group; the node is not added if the pod does not fit.
fn fits_on_new(
    simulation: &mut SchedulingSimulation<'_>,
    group: &NodeGroup,
    number: usize,
    pod: &Pod,
) -> Option<NodeIndex> {
    let name = NodeName::new(format!("{}-new{number}", group.name)).ok()?;
    let slot = simulation.add_node(crate::cluster::NewNode { name: name.clone(), ..group.template.clone() });
    let placed = simulation.place(pod, Some(&BTreeSet::from([slot])));
    if placed.is_none() {
        simulation.take_node(&name);
    }
    placed
}

/// How much of a node a pod takes, CPU and memory together, in millionths.
fn relative_size(shape: &PodShape, group: &NodeGroup) -> i128 {
    let has = &group.template.allocatable;
    let share = |part: i64, of: i64| i128::from(part) * 1_000_000 / i128::from(of.max(1));
    share(shape.requests.cpu_millis, has.cpu_millis) + share(shape.requests.memory, has.memory)
}
