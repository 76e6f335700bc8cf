//! Constraints of pods beside CPU and memory. Each draw adds one to a pod's spec.

use napkeeper_core::model::labels::{ARCH, CAPACITY_TYPE, HOSTNAME, SKU_CPU, SKU_FAMILY, SKU_GPU_COUNT, ZONE};
use napkeeper_sim::random::Random;
use serde_json::{Value, json};

/// A label that pools give their nodes, some of them.
pub(super) const TIER: &str = "example.com/tier";
/// A label that only existing nodes have; its values are numbers.
pub(super) const RACK: &str = "example.com/rack";
/// The key of the taint of a pool.
pub(super) const DEDICATED: &str = "example.com/dedicated";
/// A PriorityClass and its value.
pub(crate) const URGENT: (&str, i32) = ("urgent", 1000);
/// As [`URGENT`], but for less urgent pods.
pub(crate) const USEFUL: (&str, i32) = ("useful", 10);
/// A RuntimeClass with overhead.
pub(crate) const SANDBOXED: &str = "sandboxed";

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const ZONES: [&str; 3] = ["westeurope-1", "westeurope-2", "westeurope-3"];

/// What the overhead of [`SANDBOXED`] is.
pub(crate) fn overhead() -> Value {
    json!({ "cpu": "120m", "memory": "96Mi" })
}

/// What pods may speak of.
#[derive(Debug)]
pub(super) struct Surroundings {
    pub(super) apps: Vec<String>,
    /// The second has the label `team: red`, the first `team: blue`.
    pub(super) namespaces: [String; 2],
    /// Names of existing nodes.
    pub(super) standing: Vec<String>,
}

/// A spec that grows.
pub(super) struct SpecBuilder<'c> {
    pub(super) chance: &'c mut Random,
    pub(super) scene: &'c Surroundings,
    pub(super) app: &'c str,
    pub(super) spec: Value,
}

/// A draw, and in one of how many apps it is used.
type Draw = (u64, fn(&mut SpecBuilder<'_>));

const DRAWS: &[Draw] = &[
    (6, |d| d.selector()),
    (5, |d| d.required_nodes()),
    (5, |d| d.preferred_nodes()),
    (5, |d| d.neighbours("podAffinity", false)),
    (4, |d| d.neighbours("podAntiAffinity", false)),
    (5, |d| d.neighbours("podAffinity", true)),
    (5, |d| d.neighbours("podAntiAffinity", true)),
    (3, |d| d.spread("DoNotSchedule")),
    (6, |d| d.spread("DoNotSchedule")),
    (4, |d| d.spread("ScheduleAnyway")),
    (4, |d| d.tolerates()),
    (6, |d| d.takes_a_port()),
    (5, |d| d.begins_with_work()),
    (6, |d| d.has_a_sidecar()),
    (8, |d| d.is_sandboxed()),
    (9, |d| d.pod_level_requests()),
    (9, |d| d.computes()),
    (4, |d| d.is_prior()),
    (30, |d| d.requests_too_much()),
];

/// The requests of a container.
pub(super) fn resources(chance: &mut Random) -> Value {
    const CPU: [&str; 8] = ["100m", "0.25", "333m", "500m", "1", "1500m", "2", "3500m"];
    const MEMORY: [&str; 8] = ["64Mi", "200M", "0.5Gi", "1Gi", "1500Mi", "2Gi", "5Gi", "7e9"];
    let mut amounts = json!({ "cpu": chance.pick(&CPU), "memory": chance.pick(&MEMORY) });
    if chance.one_in(10) {
        amounts["ephemeral-storage"] = json!("3Gi");
    }
    match chance.between(0, 9) {
        0 => json!({}),
        1 => json!({ "limits": amounts }),
        2 => json!({ "requests": { "cpu": amounts["cpu"] } }),
        _ => json!({ "requests": amounts }),
    }
}

/// Adds to a list that may not be there yet.
fn push(list: &mut Value, item: Value) {
    match list {
        Value::Array(items) => items.push(item),
        other => *other = json!([item]),
    }
}

impl SpecBuilder<'_> {
    /// Draws all.
    pub(super) fn all(mut self) -> Value {
        for (once_in, draw) in DRAWS {
            if self.chance.one_in(*once_in) {
                draw(&mut self);
            }
        }
        self.spec
    }

    fn any<'t>(&mut self, of: &'t [&'t str]) -> &'t str {
        self.chance.pick(of).copied().unwrap_or_default()
    }

    fn selector(&mut self) {
        let zone = self.any(&ZONES);
        let labels = [(ZONE, zone), (CAPACITY_TYPE, "on-demand"), (ARCH, "amd64"), (TIER, "gold"), (SKU_FAMILY, "D")];
        if let Some((key, value)) = self.chance.pick(&labels) {
            self.spec["nodeSelector"][*key] = json!(value);
        }
    }

    /// A random expression on node labels.
    fn expression(&mut self) -> Value {
        let zone = self.any(&ZONES);
        let expression = |key: &str, operator: &str, values: &[&str]| {
            if values.is_empty() {
                json!({ "key": key, "operator": operator })
            } else {
                json!({ "key": key, "operator": operator, "values": values })
            }
        };
        match self.chance.between(0, 14) {
            0 => expression(ZONE, "In", &ZONES[..2]),
            1 => expression(ZONE, "NotIn", &[zone]),
            2 => expression(SKU_CPU, "Gt", &["3"]),
            3 => expression(SKU_CPU, "Lt", &["9"]),
            4 => expression(CAPACITY_TYPE, "In", &["on-demand"]),
            5 => expression(CAPACITY_TYPE, "NotIn", &["on-demand"]),
            6 => expression(TIER, "Exists", &[]),
            7 => expression(TIER, "DoesNotExist", &[]),
            8 => expression(TIER, "NotIn", &["gold"]),
            9 => expression(TIER, "In", &["gold", "bronze"]),
            10 => expression(SKU_FAMILY, "In", &["E", "F"]),
            11 => expression(SKU_FAMILY, "NotIn", &["D"]),
            12 => expression(SKU_GPU_COUNT, "DoesNotExist", &[]),
            13 => expression(RACK, "Gt", &["0"]),
            _ => expression(RACK, "DoesNotExist", &[]),
        }
    }

    /// A term of node affinity: some expressions, now and then a node's name.
    fn term(&mut self) -> Value {
        let mut term = json!({});
        for _ in 0..self.chance.between(1, 2) {
            let expression = self.expression();
            push(&mut term["matchExpressions"], expression);
        }
        if self.chance.one_in(6) {
            let name = self.chance.pick(&self.scene.standing).map_or("nowhere", String::as_str);
            let operator = if self.chance.one_in(2) { "In" } else { "NotIn" };
            term["matchFields"] = json!([{ "key": "metadata.name", "operator": operator, "values": [name] }]);
        }
        term
    }

    fn required_nodes(&mut self) {
        let terms: Vec<Value> = (0..self.chance.between(1, 3)).map(|_| self.term()).collect();
        self.spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] = json!(terms);
    }

    fn preferred_nodes(&mut self) {
        for _ in 0..self.chance.between(1, 2) {
            let preferred = json!({ "weight": self.chance.between(1, 100), "preference": self.term() });
            push(&mut self.spec["affinity"]["nodeAffinity"][PREFERRED], preferred);
        }
    }

    /// Labels of pods: mostly those of the own app, of another one, or of a tier of apps.
    fn pods(&mut self) -> Value {
        let other = self.chance.pick(&self.scene.apps).cloned().unwrap_or_default();
        match self.chance.between(0, 7) {
            0..=3 => json!({ "matchLabels": { "app": self.app } }),
            4 => json!({ "matchLabels": { "app": other } }),
            5 => json!({ "matchExpressions": [{ "key": "app", "operator": "In", "values": [self.app, other] }] }),
            6 => json!({ "matchLabels": { "layer": "front" } }),
            _ => json!({ "matchExpressions": [{ "key": "layer", "operator": "NotIn", "values": ["front"] }] }),
        }
    }

    /// A term of affinity or of anti-affinity.
    fn neighbours(&mut self, which: &str, is_preferred: bool) {
        let key = self.any(&[HOSTNAME, ZONE, ZONE, CAPACITY_TYPE]);
        let mut term = json!({ "topologyKey": key, "labelSelector": self.pods() });
        match self.chance.between(0, 7) {
            0 => term["namespaces"] = json!(self.scene.namespaces),
            1 => term["namespaceSelector"] = json!({}),
            2 => term["namespaceSelector"] = json!({ "matchLabels": { "team": "red" } }),
            3 => term["namespaces"] = json!([self.scene.namespaces[0]]),
            _ => {}
        }
        match self.chance.between(0, 7) {
            0 => term["matchLabelKeys"] = json!(["release"]),
            1 => term["mismatchLabelKeys"] = json!(["release"]),
            _ => {}
        }
        if is_preferred {
            let weighted = json!({ "weight": self.chance.between(1, 100), "podAffinityTerm": term });
            push(&mut self.spec["affinity"][which][PREFERRED], weighted);
        } else {
            push(&mut self.spec["affinity"][which][REQUIRED], term);
        }
    }

    fn spread(&mut self, when: &str) {
        let key = self.any(&[ZONE, ZONE, HOSTNAME, TIER, CAPACITY_TYPE]);
        let taken = self.spec["topologySpreadConstraints"].as_array();
        if taken.is_some_and(|all| all.iter().any(|c| c["topologyKey"] == key && c["whenUnsatisfiable"] == when)) {
            // Two of the same kind over the same key are refused.
            return;
        }
        let mut spread = json!({ "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": self.pods() });
        spread["maxSkew"] = json!(self.chance.between(1, 3));
        if when == "DoNotSchedule" && self.chance.one_in(4) {
            spread["minDomains"] = json!(self.chance.between(1, 3));
        }
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if self.chance.one_in(3) {
                spread[field] = json!(self.any(&["Honor", "Ignore"]));
            }
        }
        if self.chance.one_in(4) {
            spread["matchLabelKeys"] = json!(["release"]);
        }
        push(&mut self.spec["topologySpreadConstraints"], spread);
    }

    fn tolerates(&mut self) {
        let toleration = match self.chance.between(0, 3) {
            0 => json!({ "operator": "Exists" }),
            1 => json!({ "key": DEDICATED, "operator": "Exists", "effect": "NoSchedule" }),
            _ => json!({ "key": DEDICATED, "value": "gold" }),
        };
        push(&mut self.spec["tolerations"], toleration);
    }

    fn takes_a_port(&mut self) {
        let mut port = json!({ "containerPort": 80, "hostPort": self.chance.between(8080, 8081) });
        match self.chance.between(0, 3) {
            0 => port["protocol"] = json!("UDP"),
            1 => port["hostIP"] = json!("127.0.0.1"),
            _ => {}
        }
        self.spec["containers"][0]["ports"] = json!([port]);
    }

    fn begins_with_work(&mut self) {
        let init = json!({ "name": "init", "image": "none", "resources": resources(self.chance) });
        push(&mut self.spec["initContainers"], init);
    }

    fn has_a_sidecar(&mut self) {
        let resources = resources(self.chance);
        let mut sidecar =
            json!({ "name": "sidecar", "image": "none", "restartPolicy": "Always", "resources": resources });
        if self.chance.one_in(4) {
            sidecar["ports"] = json!([{ "containerPort": 81, "hostPort": 8082 }]);
        }
        push(&mut self.spec["initContainers"], sidecar);
    }

    fn is_sandboxed(&mut self) {
        self.spec["runtimeClassName"] = json!(SANDBOXED);
    }

    fn pod_level_requests(&mut self) {
        self.spec["resources"] = json!({ "requests": { "cpu": "7500m", "memory": "16Gi" } });
    }

    fn computes(&mut self) {
        let gpus = if self.chance.one_in(4) { 2 } else { 1 };
        self.spec["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = json!(gpus.to_string());
        push(&mut self.spec["tolerations"], json!({ "key": "nvidia.com/gpu", "operator": "Exists" }));
    }

    fn is_prior(&mut self) {
        let class = if self.chance.one_in(2) { URGENT } else { USEFUL };
        self.spec["priorityClassName"] = json!(class.0);
    }

    fn requests_too_much(&mut self) {
        match self.chance.between(0, 2) {
            0 => self.spec["nodeSelector"]["example.com/nowhere"] = json!("here"),
            // Neither pod-level requests nor limits may be below the requests of the containers.
            1 if self.spec["resources"].is_null() => {
                self.spec["containers"][0]["resources"] = json!({ "requests": { "memory": "90Ti" } });
            }
            _ => self.spec["containers"][0]["resources"]["limits"]["example.com/dongle"] = json!("1"),
        }
    }
}
