//! How much a pod takes of a node, and how much scoring takes it for.

use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use napkeeper_core::model::amounts::quantity::Quantity;
use std::collections::BTreeMap;

/// What scoring takes a container for that asks for no CPU, in thousandths of a core.
const USUAL_CPU: i64 = 100;
/// What scoring takes a container for that asks for no memory, in bytes.
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

    /// True when `room` less `used` suffices. What is not asked for may be overcommitted.
    pub(super) fn fits(&self, room: &Self, used: &Self) -> bool {
        let fits = |asked: i64, room: i64, used: i64| asked == 0 || asked <= room - used;
        fits(self.cpu, room.cpu, used.cpu)
            && fits(self.memory, room.memory, used.memory)
            && fits(self.storage, room.storage, used.storage)
            && self.others.iter().all(|(name, asked)| fits(*asked, room.other(name), used.other(name)))
    }
}

/// What a pod asks for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Requests {
    /// In earnest.
    pub(super) asked: Amounts,
    /// CPU where a container that asks for none counts too.
    pub(super) scored_cpu: i64,
    /// Memory where a container that asks for none counts too.
    pub(super) scored_memory: i64,
}

impl Requests {
    pub(super) fn read(spec: &PodSpec) -> Self {
        let scored = total(spec, true);
        let scored = |name| scored.get(name).copied().unwrap_or(0);
        Self { asked: Amounts::of(total(spec, false)), scored_cpu: scored(CPU), scored_memory: scored(MEMORY) }
    }
}

/// Containers run beside each other and beside restartable init containers; other init containers run one after
/// another, each beside the restartable ones that were started before it. What the pod asks for as a whole stands in
/// place of that, and its overhead comes on top.
fn total(spec: &PodSpec, usual: bool) -> List {
    let mut running = List::new();
    for container in &spec.containers {
        add(&mut running, &of_container(container, usual));
    }
    let (mut started, mut highest) = (List::new(), List::new());
    for container in spec.init_containers.iter().flatten() {
        let asked = of_container(container, usual);
        let mut now = started.clone();
        add(&mut now, &asked);
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut running, &asked);
            started.clone_from(&now);
        }
        raise(&mut highest, &now);
    }
    raise(&mut running, &highest);
    let whole = read(spec.resources.as_ref().and_then(|r| r.requests.as_ref()));
    running.extend(whole.into_iter().filter(|(name, _)| {
        // Nothing else may be asked for as a whole.
        name == CPU || name == MEMORY || name.starts_with("hugepages-")
    }));
    add(&mut running, &read(spec.overhead.as_ref()));
    running
}

fn of_container(container: &Container, usual: bool) -> List {
    let mut asked = read(container.resources.as_ref().and_then(|r| r.requests.as_ref()));
    if usual {
        asked.entry(CPU.to_owned()).or_insert(USUAL_CPU);
        asked.entry(MEMORY.to_owned()).or_insert(USUAL_MEMORY);
    }
    asked
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
        let cpu = |init: Value| requests(json!({ "containers": [container("1")], "initContainers": init })).asked.cpu;
        assert_eq!(cpu(json!([container("3")])), 3000);
        assert_eq!(cpu(json!([sidecar("500m")])), 1500);
        // The init container runs beside the sidecar that was started before it, not beside the later one.
        assert_eq!(cpu(json!([sidecar("500m"), container("3"), sidecar("2")])), 3500);
        assert_eq!(cpu(json!([container("3"), sidecar("500m")])), 3000);
    }

    #[test]
    fn overhead_comes_on_top_of_what_the_pod_asks_for_as_a_whole() {
        let whole = json!({
            "containers": [container("1")],
            "resources": { "requests": { "cpu": "2", "memory": "1Gi" } },
            "overhead": { "cpu": "250m" },
        });
        let asked = requests(whole).asked;
        assert_eq!((asked.cpu, asked.memory), (2250, 1 << 30));
    }

    #[test]
    fn scoring_takes_a_container_that_asks_for_nothing_for_a_small_one() {
        let two = requests(json!({ "containers": [container("1"), { "name": "d" }] }));
        assert_eq!((two.asked.cpu, two.asked.memory), (1000, 0));
        assert_eq!((two.scored_cpu, two.scored_memory), (1100, 400 << 20));
        let zero = requests(json!({ "containers": [container("0")] }));
        assert_eq!((zero.scored_cpu, zero.scored_memory), (0, 200 << 20));
    }

    #[test]
    fn what_is_not_asked_for_may_be_overcommitted() {
        let room = Amounts { cpu: 1000, ..Amounts::default() };
        let used = Amounts { cpu: 500, memory: 1, ..Amounts::default() };
        assert!(Amounts { cpu: 500, ..Amounts::default() }.fits(&room, &used));
        assert!(!Amounts { cpu: 501, ..Amounts::default() }.fits(&room, &used));
        let gpu = |n| Amounts { others: vec![("nvidia.com/gpu".to_owned(), n)], ..Amounts::default() };
        assert!(!gpu(1).fits(&room, &used) && gpu(0).fits(&room, &used) && gpu(1).fits(&gpu(2), &gpu(1)));
    }
}
