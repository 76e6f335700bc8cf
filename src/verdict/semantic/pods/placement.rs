//! Workloads whose pods no NodePool of the input can run.
//!
//! The scheduler decides, in a cluster of nothing but the input's NodePools, classes and DaemonSets.

use crate::finding::Issue;
use crate::rules::pods as rules;
use crate::semantic::ManifestSet;
use crate::semantic::facts::Facts;
use crate::semantic::pods::workload::Workload;
use jiff::Timestamp;
use napkeeper_api::manifests::Object;
use napkeeper_core::catalog::live::{CapacityReservation, Fact, InfrastructureFacts};
use napkeeper_core::catalog::{
    CapacityType, InstanceType, RegionCatalog, ReservedZones, instance_types, with_reserved,
};
use napkeeper_core::model::cluster::pod::{Pod, PodOwner};
use napkeeper_core::model::cluster::pool::{DaemonSet, NodeClass, NodePool};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{ArmId, NodeClassName, ObjectKey, ObjectName, Uid};
use napkeeper_core::model::requirements::{Requirement, Requirements};
use napkeeper_core::scheduling::{
    AvailableOfferings, Input, UnavailableOfferings, UnschedulablePods, UnschedulableReason, schedule,
};
use napkeeper_core::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Reasons that a message names.
const MAX_REASONS: usize = 3;

pub(super) fn check(set: &ManifestSet, facts: &Facts, found: &mut Vec<(usize, Issue)>) {
    let objects = || set.objects.iter().enumerate();
    let workloads = objects().filter_map(|(i, d)| Some((i, Workload::of(&d.object)?)));
    let mut waiting: BTreeMap<usize, Workload<'_>> =
        workloads.filter(|(_, w)| w.contradiction().is_none() && !requests_unknown_resources(w)).collect();
    if waiting.is_empty() {
        return;
    }
    too_large(facts, &mut waiting, found);
    let mut parts: BTreeMap<&str, BTreeMap<usize, Workload<'_>>> = BTreeMap::new();
    for (index, workload) in waiting {
        parts.entry(set.cluster_folder(index)).or_default().insert(index, workload);
    }
    let pools = objects().filter(|(_, d)| matches!(d.object, Object::NodePool(_)));
    let with_pools: BTreeSet<&str> = pools.map(|(i, _)| set.cluster_folder(i)).collect();
    for (part, mut waiting) in parts.into_iter().filter(|(part, _)| with_pools.contains(part)) {
        let Some(base) = cluster(set, part) else { continue };
        waiting.retain(|_, workload| {
            !workload.avoids_node_pools() && !base.pools().values().any(|pool| may_name(pool, workload))
        });
        unschedulable(&base, facts, waiting, found);
    }
}

/// True if the pod chooses the value of a custom label that the NodePool leaves open. Karpenter supports this for
/// workload segregation; the scheduler used here knows only values that the NodePool names.
fn may_name(pool: &NodePool, workload: &Workload<'_>) -> bool {
    let shape = workload.shape;
    let required = || shape.alternatives.iter().chain([&shape.selector]).flat_map(Requirements::iter);
    let open = |(key, required): (&Arc<str>, &Requirement)| {
        let offered = pool.requirements.get(key).filter(|r| r.values().is_none_or(|all| all.len() > 1));
        !labels::is_well_known(key) && offered.is_some_and(|offered| offered.intersects(required))
    };
    pool.replicas.is_none() && shape.untolerated(&pool.taints).is_none() && required().any(open)
}

/// Extended resources of a VM size. Others come from device plugins, which manifests do not describe.
const GPU_RESOURCES: [&str; 2] = ["nvidia.com/gpu", "amd.com/gpu"];

/// True if the pods request extended resources of unknown nodes.
fn requests_unknown_resources(workload: &Workload<'_>) -> bool {
    workload.shape.requests.extended.iter().any(|(name, _)| !GPU_RESOURCES.contains(&&**name))
}

/// Takes out the workloads whose pods are larger than every size.
fn too_large(facts: &Facts, unplaced_workloads: &mut BTreeMap<usize, Workload<'_>>, found: &mut Vec<(usize, Issue)>) {
    let Some(class) = NodeClassName::new("default").ok().zip(Uid::new("default").ok()) else { return };
    let class = NodeClass { gpu_drivers: false, ..NodeClass::with_defaults(class.0, class.1) };
    let mut left: BTreeSet<usize> = unplaced_workloads.keys().copied().collect();
    let mut largest: Option<Arc<InstanceType>> = None;
    for region in facts.regions.iter() {
        if left.is_empty() {
            return;
        }
        for size in instance_types(region, &class, &facts.nodes) {
            left.retain(|i| !unplaced_workloads[i].shape.requests.fits(&size.allocatable));
            let more = |l: &Arc<InstanceType>| size.allocatable.memory > l.allocatable.memory;
            if largest.as_ref().is_none_or(more) {
                largest = Some(size);
            }
        }
    }
    for index in left {
        let Some(workload) = unplaced_workloads.remove(&index) else { continue };
        let requests = &workload.shape.requests;
        let most =
            largest.as_ref().map(|l| format!("; the largest, {}, has {} allocatable", l.facts.name, l.allocatable));
        let message = format!("a pod requests {requests}, which no VM size can provide{}", most.unwrap_or_default());
        let fix = "lower the requests, or split the work into more pods".to_owned();
        found.push((index, Issue::new(&rules::TOO_LARGE, &workload.spec(), message).fix(fix)));
    }
}

/// Reports the workloads whose pods no pool takes, in any of the regions.
fn unschedulable(
    base: &Snapshot,
    facts: &Facts,
    mut unplaced_workloads: BTreeMap<usize, Workload<'_>>,
    found: &mut Vec<(usize, Issue)>,
) {
    let mut reasons_of: BTreeMap<usize, String> = BTreeMap::new();
    for region in facts.regions.iter() {
        let pods: BTreeMap<ObjectKey, (usize, Arc<Pod>)> =
            unplaced_workloads.iter().filter_map(|(i, w)| pod(*i, w).map(|pod| (pod.key.clone(), (*i, pod)))).collect();
        if pods.is_empty() {
            break;
        }
        let unplaced = simulate(base, region, facts, pods.values().map(|(_, pod)| Arc::clone(pod)).collect());
        reasons_of.clear();
        for group in unplaced.iter().filter(|u| !is_undecidable(u)) {
            let indices = group.pods.iter().filter_map(|pod| pods.get(&pod.key));
            reasons_of.extend(indices.map(|(i, _)| (*i, reasons(group))));
        }
        unplaced_workloads.retain(|i, _| reasons_of.contains_key(i));
    }
    let scope = match facts.regions.as_slice() {
        [only] => format!("in {}", only.region),
        _ => "in any region".to_owned(),
    };
    for (index, workload) in unplaced_workloads {
        let Some(reasons) = reasons_of.get(&index) else { continue };
        let message = format!("no NodePool in the input can run its pods {scope}: {reasons}");
        let fix =
            "change the pod's constraints, or add a NodePool for it; ignore this if nodes outside the input can run it";
        let issue = Issue::new(&rules::NO_NODE_POOL, &workload.spec(), message).fix(fix.to_owned());
        found.push((index, issue));
    }
}

/// True if the input does not decide: constraints that are not simulated, or that depend on other pods.
fn is_undecidable(unplaced: &UnschedulablePods) -> bool {
    unplaced.reasons.iter().any(|(_, reason)| {
        matches!(
            reason,
            UnschedulableReason::DynamicResources
                | UnschedulableReason::PodAffinity
                | UnschedulableReason::MissingTopologyKey(_)
        )
    })
}

/// The pools, classes and DaemonSets of a part of the input. A missing class has all defaults. `None` if a NodePool has
/// several versions, since it is unknown which one applies.
fn cluster(set: &ManifestSet, part: &str) -> Option<Snapshot> {
    let mut snapshot = Snapshot::default();
    for (_, retained) in set.objects.iter().enumerate().filter(|(i, _)| set.cluster_folder(*i) == part) {
        match &retained.object {
            Object::NodePool(pool) if snapshot.pools().get(&pool.name).is_some() => return None,
            Object::NodePool(pool) => snapshot.put_pool(pool.name.clone(), (**pool).clone()),
            Object::NodeClass(class) => snapshot.put_class(class.name.clone(), (**class).clone()),
            Object::DaemonSet(set) => {
                snapshot.put_daemon_set(set.key.clone(), DaemonSet { shape: Arc::clone(&set.template.shape) });
            }
            _ => {}
        }
    }
    let named: BTreeSet<NodeClassName> = snapshot.pools().values().map(|p| p.class.clone()).collect();
    for name in named {
        if let Some(uid) = Uid::new(name.as_str()).ok().filter(|_| snapshot.classes().get(&name).is_none()) {
            snapshot.put_class(name.clone(), NodeClass::with_defaults(name, uid));
        }
    }
    Some(snapshot)
}

fn simulate(base: &Snapshot, region: &RegionCatalog, facts: &Facts, pods: Vec<Arc<Pod>>) -> Vec<UnschedulablePods> {
    let mut snapshot = base.clone();
    let classes: Vec<_> = snapshot.classes().values().cloned().collect();
    let mut reserved = Vec::new();
    for class in classes {
        let mut types = instance_types(region, &class, &facts.nodes);
        if let Some(group) = &class.reservations {
            types = reserve(types, group, pods.len() as u64, &mut reserved);
        }
        snapshot.instance_types.insert(class.name.clone(), Arc::new(types));
    }
    let reservations = Some(Fact { as_of: Timestamp::UNIX_EPOCH, value: reserved });
    snapshot.set_infrastructure(Arc::new(InfrastructureFacts { reservations, ..InfrastructureFacts::default() }));
    let offerings = AvailableOfferings::new(&snapshot, &UnavailableOfferings::default(), Timestamp::UNIX_EPOCH);
    let (no_nodes, no_claims) = (BTreeSet::new(), BTreeMap::new());
    let input = Input {
        snapshot: &snapshot,
        available: &offerings,
        excluded_nodes: &no_nodes,
        max_new_nodes: pods.len(),
        claim_of_pod: &no_claims,
    };
    schedule(input, &pods).unschedulable
}

/// Reserves capacity of every size: manifests do not contain the sizes of a capacity reservation group.
fn reserve(
    types: Vec<Arc<InstanceType>>,
    group: &ArmId,
    capacity: u64,
    reserved: &mut Vec<CapacityReservation>,
) -> Vec<Arc<InstanceType>> {
    let mut zones_by_size = ReservedZones::new();
    for instance in &types {
        for sold in instance.offerings.iter().filter(|o| o.capacity_type == CapacityType::OnDemand) {
            let (size, zone) = (instance.facts.name.clone(), sold.zone.clone());
            zones_by_size.entry(size.clone()).or_default().insert(zone.clone());
            reserved.push(CapacityReservation { group: group.clone(), size, zone, capacity, used: 0 });
        }
    }
    with_reserved(types, &zones_by_size)
}

/// One pending pod of a workload. A Deployment and a StatefulSet may share a name, so the pod has one of its own.
fn pod(index: usize, workload: &Workload<'_>) -> Option<Arc<Pod>> {
    let name = format!("pod-{index}");
    let key = ObjectKey { namespace: workload.key.namespace.clone(), name: ObjectName::new(&name).ok()? };
    Some(Arc::new(Pod::waiting(key, Uid::new(&name).ok()?, workload.shape, PodOwner::Controller)))
}

fn reasons(unplaced: &UnschedulablePods) -> String {
    let mut shown: Vec<String> = unplaced.reasons().take(MAX_REASONS).collect();
    if let Some(more) = unplaced.reasons.len().checked_sub(MAX_REASONS).filter(|n| *n > 0) {
        shown.push(format!("and {more} more NodePools"));
    }
    shown.join("; ")
}
