//! The pods: those of Karpenter's scheduling benchmark, drawn with its seed.
//!
//! Five blocks of a fifth each: pods without constraints, with zone spread, with host spread, with zone affinity to
//! their label, and with host anti-affinity to it. Spread constraints mostly select other pods. The draws are in
//! `pods/`, one row a pod, in the order of creation.

use anyhow::{Context, Result, bail, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod as WirePod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use napkeeper_core::model::cluster::pod::{Pod, PodShape};
use napkeeper_core::model::labels::{HOSTNAME, ZONE};
use napkeeper_core::model::names::ObjectKey;
use napkeeper_tests::fixtures;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

/// How many different labels the pods have: seven values of each of two keys, and one more.
pub(crate) const LABELS: usize = 15;
/// The pods of the mix with preferences.
pub(crate) const PREFERRING: usize = 4_000;

const APP: &str = "my-label";
/// So it is spelt in the benchmark.
const TOGETHER: &str = "my-affininity";
const ALONE: (&str, &str) = ("app", "nginx");

/// The constraints of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Generic,
    /// Zones differ by at most one in pods with this label.
    SpreadZone(usize),
    /// Hosts differ by at most one in pods with this label.
    SpreadHostname(usize),
    /// In the zone of the others with its label.
    AffinityZone,
    /// On a host without others with its label.
    AntiHostname,
}

/// A pod, as little as the peer and the checker need.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) class: Class,
    /// The number of its label, less than [`LABELS`].
    pub(crate) label: usize,
    /// Thousandths of a core.
    pub(crate) cpu: i64,
    /// Bytes.
    pub(crate) memory: i64,
}

/// The same pods three times over, in the order of creation.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub(crate) rows: Vec<Row>,
    /// As kube-scheduler reads them; empty when only napkeeper is measured.
    pub(crate) wire: Vec<WirePod>,
    pub(crate) core: Vec<Arc<Pod>>,
    /// Indices of pods by name.
    pub(crate) index: HashMap<ObjectKey, usize>,
}

/// Adds pods to the work. Equal shapes are stored once, as by the watch.
#[derive(Default)]
struct Builder {
    work: Work,
    shapes: BTreeSet<Arc<PodShape>>,
}

/// The diverse mix of so many pods. The wire's objects are kept only on request.
pub(crate) fn diverse(pods: usize, keep_wire: bool) -> Result<Work> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("benches/scheduling/pods/diverse-{pods}.csv"));
    let text =
        std::fs::read_to_string(&file).with_context(|| format!("there are no {pods} pods: {}", file.display()))?;
    let mut builder = Builder::default();
    for line in text.lines().skip(1) {
        let row = read(line).with_context(|| format!("in {line:?}"))?;
        builder.add(row.clone(), &spec(&row), keep_wire)?;
    }
    ensure!(builder.work.rows.len() == pods, "{} has not {pods} pods", file.display());
    Ok(builder.work)
}

/// The mix with preferences: identical pods, one of whose preferences only three can satisfy.
pub(crate) fn preferring() -> Result<Work> {
    let row = Row { class: Class::Generic, label: LABELS - 1, cpu: 100, memory: 4096 << 20 };
    let selector = json!({ "matchLabels": { (ALONE.0): ALONE.1 } });
    let apart = |weight: i64, key: &str| json!({ "weight": weight, "podAffinityTerm": { "topologyKey": key, "labelSelector": selector } });
    let zone = json!({ "key": ZONE, "operator": "In", "values": ["test-zone-1"] });
    let affinity = json!({
        "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
            { "weight": 1, "preference": { "matchExpressions": [zone] } },
        ] },
        "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [apart(10, ZONE), apart(1, HOSTNAME)] },
    });
    let mut builder = Builder::default();
    for _ in 0..PREFERRING {
        builder.add(row.clone(), &json!({ "affinity": affinity }), false)?;
    }
    Ok(builder.work)
}

impl Builder {
    fn add(&mut self, row: Row, extra: &Value, keep_wire: bool) -> Result<()> {
        let index = self.work.rows.len();
        let wire = wire(index, &row, extra)?;
        let mut pod = napkeeper_api::convert::pod(&wire).map_err(|e| anyhow::anyhow!("{e:?}"))?;
        pod.shape = self.shape(pod.shape);
        self.work.index.insert(pod.key.clone(), index);
        self.work.core.push(Arc::new(pod));
        self.work.rows.push(row);
        self.work.wire.extend(keep_wire.then_some(wire));
        Ok(())
    }

    fn shape(&mut self, shape: Arc<PodShape>) -> Arc<PodShape> {
        if let Some(known) = self.shapes.get(&shape) {
            return Arc::clone(known);
        }
        self.shapes.insert(Arc::clone(&shape));
        shape
    }
}

/// `index,class,label,selector,cpu_millis,memory_mib`.
fn read(line: &str) -> Result<Row> {
    let fields: Vec<&str> = line.split(',').collect();
    let [_, class, label, selector, cpu, memory] = fields[..] else { bail!("six fields are wanted") };
    let letter = |text: &str| match text.as_bytes() {
        [letter @ b'a'..=b'g'] => Ok(usize::from(letter - b'a')),
        _ => bail!("{text:?} is no label"),
    };
    let (class, label) = match class {
        "generic" => (Class::Generic, letter(label)?),
        "spread-zone" => (Class::SpreadZone(letter(selector)?), letter(label)?),
        "spread-hostname" => (Class::SpreadHostname(letter(selector)?), letter(label)?),
        "affinity-zone" => (Class::AffinityZone, 7 + letter(label)?),
        "anti-hostname" => (Class::AntiHostname, LABELS - 1),
        _ => bail!("{class:?} is no class"),
    };
    Ok(Row { class, label, cpu: cpu.parse()?, memory: memory.parse::<i64>()? << 20 })
}

/// The value of a numbered label.
fn value(label: usize) -> &'static str {
    const LETTERS: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];
    if label == LABELS - 1 { ALONE.1 } else { LETTERS[label % LETTERS.len()] }
}

fn key(label: usize) -> &'static str {
    match label {
        0..7 => APP,
        7..14 => TOGETHER,
        _ => ALONE.0,
    }
}

/// The constraints in a pod's spec.
fn spec(row: &Row) -> Value {
    let selector = |label: usize| json!({ "matchLabels": { (key(label)): value(label) } });
    let spread = |topology: &str, label: usize| {
        json!({ "topologySpreadConstraints": [{
            "topologyKey": topology, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector(label),
        }] })
    };
    let required = |topology: &str| {
        json!({ "requiredDuringSchedulingIgnoredDuringExecution": [
            { "topologyKey": topology, "labelSelector": selector(row.label) },
        ] })
    };
    match row.class {
        Class::Generic => json!({}),
        Class::SpreadZone(label) => spread(ZONE, label),
        Class::SpreadHostname(label) => spread(HOSTNAME, label),
        Class::AffinityZone => json!({ "affinity": { "podAffinity": required(ZONE) } }),
        Class::AntiHostname => json!({ "affinity": { "podAntiAffinity": required(HOSTNAME) } }),
    }
}

/// The pod as unschedulable in the API server.
fn wire(index: usize, row: &Row, extra: &Value) -> Result<WirePod> {
    let requests = json!({ "cpu": format!("{}m", row.cpu), "memory": format!("{}Mi", row.memory >> 20) });
    let mut spec = json!({ "containers": [{ "name": "c", "resources": { "requests": requests } }] });
    for (key, value) in extra.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let name = format!("pod-{index:05}");
    let mut pod: WirePod = serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "labels": { "testing/cluster": "unspecified", (key(row.label)): value(row.label) },
        },
        "spec": spec,
        "status": { "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" }] },
    }))?;
    pod.metadata.creation_timestamp = Some(Time(created(index)));
    Ok(pod)
}

fn created(index: usize) -> Timestamp {
    fixtures::instant() + SignedDuration::from_nanos(i64::try_from(index).unwrap_or(i64::MAX))
}
