//! How much a pod takes of a node, and how much scoring takes it for.

use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use napkeeper_core::model::amounts::quantity::Quantity;
use std::collections::BTreeMap;

/// The CPU that scoring assumes for a container without a request, in thousandths of a core.
const USUAL_CPU: i64 = 100;
/// The memory that scoring assumes for a container without a request, in bytes.
const USUAL_MEMORY: i64 = 200 << 20;

const CPU: &str = "cpu";
const MEMORY: &str = "memory";
const STORAGE: &str = "ephemeral-storage";
const PODS: &str = "pods";

/// Amounts by resource, CPU in thousandths.
type List = BTreeMap<String, i64>;

/// Amounts of resources, `pods` aside: CPU in thousandths of a core, bytes, whole units.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Amounts {
    pub(super) cpu: i64,
    pub(super) memory: i64,
    pub(super) storage: i64,
    /// Extended resources and huge pages.
    pub(super) others: Vec<(String, i64)>,
}

impl Amounts {
    fn of(mut list: List) -> Self {
        let mut take = |name| list.remove(name).unwrap_or(0);
        let (cpu, memory, storage) = (take(CPU), take(MEMORY), take(STORAGE));
        take(PODS);
        Self { cpu, memory, storage, others: list.into_iter().collect() }
    }

    /// What a node offers, and how many pods it may run.
    pub(super) fn of_node(wire: Option<&BTreeMap<String, Wire>>) -> (Self, i64) {
        let list = read(wire);
        let pods = list.get(PODS).copied().unwrap_or(0);
        (Self::of(list), pods)
    }

    pub(super) fn add(&mut self, more: &Self) {
        self.cpu += more.cpu;
        self.memory += more.memory;
        self.storage += more.storage;
        for (name, amount) in &more.others {
            match self.others.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum += amount,
                None => self.others.push((name.clone(), *amount)),
            }
        }
    }

    /// What there is of a resource that is neither CPU, memory nor storage.
    fn other(&self, name: &str) -> i64 {
        self.others.iter().find(|(known, _)| known == name).map_or(0, |(_, amount)| *amount)
    }

    /// True if `room` less `used` suffices. Resources without a request may be overcommitted.
    pub(super) fn fits(&self, room: &Self, used: &Self) -> bool {
        let fits = |requested: i64, room: i64, used: i64| requested == 0 || requested <= room - used;
        fits(self.cpu, room.cpu, used.cpu)
            && fits(self.memory, room.memory, used.memory)
            && fits(self.storage, room.storage, used.storage)
            && self.others.iter().all(|(name, requested)| fits(*requested, room.other(name), used.other(name)))
    }
}

/// The requests of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Requests {
    /// Without defaults, as filters count them.
    pub(super) requested: Amounts,
    /// CPU with the default for containers without a request.
    pub(super) scored_cpu: i64,
    /// Memory with the default for containers without a request.
    pub(super) scored_memory: i64,
    /// CPU with the defaults, without pod-level requests: what kube-scheduler 1.36 counts of the pod that it scores.
    /// NodeResourcesFit makes its scorer without that feature (`NewFit` in `noderesources/fit.go`).
    pub(super) incoming_cpu: i64,
    /// As [`Self::incoming_cpu`].
    pub(super) incoming_memory: i64,
}

impl Requests {
    pub(super) fn read(spec: &PodSpec) -> Self {
        let cpu_and_memory = |list: List| [CPU, MEMORY].map(|name| list.get(name).copied().unwrap_or(0));
        let with_defaults = of_containers(spec, true);
        let [incoming_cpu, incoming_memory] = cpu_and_memory(with_overhead(spec, with_defaults.clone()));
        let [scored_cpu, scored_memory] = cpu_and_memory(with_pod_level(spec, with_defaults));
        let requested = Amounts::of(with_pod_level(spec, of_containers(spec, false)));
        Self { requested, scored_cpu, scored_memory, incoming_cpu, incoming_memory }
    }
}

/// Containers run beside each other and beside restartable init containers; other init containers run one after
/// another, each beside the restartable ones that were started before it.
fn of_containers(spec: &PodSpec, usual: bool) -> List {
    let mut running = List::new();
    for container in &spec.containers {
        add(&mut running, &of_container(container, usual));
    }
    let (mut started, mut highest) = (List::new(), List::new());
    for container in spec.init_containers.iter().flatten() {
        let requested = of_container(container, usual);
        let mut now = started.clone();
        add(&mut now, &requested);
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut running, &requested);
            started.clone_from(&now);
        }
        raise(&mut highest, &now);
    }
    raise(&mut running, &highest);
    running
}

/// Pod-level requests replace those of the containers, and the overhead is added.
fn with_pod_level(spec: &PodSpec, mut requests: List) -> List {
    let whole = read(spec.resources.as_ref().and_then(|r| r.requests.as_ref()));
    requests.extend(whole.into_iter().filter(|(name, _)| {
        // Other resources have no pod-level requests.
        name == CPU || name == MEMORY || name.starts_with("hugepages-")
    }));
    with_overhead(spec, requests)
}

fn with_overhead(spec: &PodSpec, mut requests: List) -> List {
    add(&mut requests, &read(spec.overhead.as_ref()));
    requests
}

fn of_container(container: &Container, usual: bool) -> List {
    let mut requested = read(container.resources.as_ref().and_then(|r| r.requests.as_ref()));
    if usual {
        requested.entry(CPU.to_owned()).or_insert(USUAL_CPU);
        requested.entry(MEMORY.to_owned()).or_insert(USUAL_MEMORY);
    }
    requested
}

fn add(sum: &mut List, more: &List) {
    for (name, amount) in more {
        *sum.entry(name.clone()).or_insert(0) += amount;
    }
}

fn raise(all: &mut List, to: &List) {
    for (name, amount) in to {
        let present = all.entry(name.clone()).or_insert(0);
        *present = (*present).max(*amount);
    }
}

/// No API server takes a quantity that cannot be read, so here it counts nothing.
fn read(wire: Option<&BTreeMap<String, Wire>>) -> List {
    let amount = |name: &str, quantity: &Wire| {
        let quantity = Quantity::parse(&quantity.0).ok()?;
        Some(if name == CPU { quantity.milli_ceil() } else { quantity.ceil() })
    };
    let entries = wire.into_iter().flatten();
    entries.filter_map(|(name, quantity)| Some((name.clone(), amount(name, quantity)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn requests(spec: Value) -> Requests {
        Requests::read(&serde_json::from_value(spec).unwrap())
    }

    fn container(cpu: &str) -> Value {
        json!({ "name": "c", "resources": { "requests": { "cpu": cpu } } })
    }

    fn sidecar(cpu: &str) -> Value {
        json!({ "name": "s", "restartPolicy": "Always", "resources": { "requests": { "cpu": cpu } } })
    }

    #[test]
    fn init_containers_raise_and_sidecars_add() {
        let cpu =
            |init: Value| requests(json!({ "containers": [container("1")], "initContainers": init })).requested.cpu;
        assert_eq!(cpu(json!([container("3")])), 3000);
        assert_eq!(cpu(json!([sidecar("500m")])), 1500);
        // The init container runs beside the sidecar that was started before it, not beside the later one.
        assert_eq!(cpu(json!([sidecar("500m"), container("3"), sidecar("2")])), 3500);
        assert_eq!(cpu(json!([container("3"), sidecar("500m")])), 3000);
    }

    #[test]
    fn overhead_is_added_to_pod_level_requests() {
        let whole = json!({
            "containers": [container("1")],
            "resources": { "requests": { "cpu": "2", "memory": "1Gi" } },
            "overhead": { "cpu": "250m" },
        });
        let requests = requests(whole);
        assert_eq!((requests.requested.cpu, requests.requested.memory), (2250, 1 << 30));
        assert_eq!((requests.scored_cpu, requests.scored_memory), (2250, 1 << 30));
        assert_eq!((requests.incoming_cpu, requests.incoming_memory), (1250, 200 << 20), "scored by its containers");
    }

    #[test]
    fn scoring_assumes_default_requests() {
        let two = requests(json!({ "containers": [container("1"), { "name": "d" }] }));
        assert_eq!((two.requested.cpu, two.requested.memory), (1000, 0));
        assert_eq!((two.scored_cpu, two.scored_memory), (1100, 400 << 20));
        let zero = requests(json!({ "containers": [container("0")] }));
        assert_eq!((zero.scored_cpu, zero.scored_memory), (0, 200 << 20));
    }

    #[test]
    fn resources_without_requests_may_be_overcommitted() {
        let room = Amounts { cpu: 1000, ..Amounts::default() };
        let used = Amounts { cpu: 500, memory: 1, ..Amounts::default() };
        assert!(Amounts { cpu: 500, ..Amounts::default() }.fits(&room, &used));
        assert!(!Amounts { cpu: 501, ..Amounts::default() }.fits(&room, &used));
        let gpu = |n| Amounts { others: vec![("nvidia.com/gpu".to_owned(), n)], ..Amounts::default() };
        assert!(!gpu(1).fits(&room, &used) && gpu(0).fits(&room, &used) && gpu(1).fits(&gpu(2), &gpu(1)));
    }
}
