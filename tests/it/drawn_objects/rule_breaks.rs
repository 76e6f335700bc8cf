//! Examples that break each rule across fields, and those that come closest to breaking it.

use super::bases::named;
use serde_json::{Map, Value, json};

/// An example for one rule: a base with something else in some fields.
#[derive(Debug, Clone)]
pub(crate) struct Example {
    pub(crate) base: &'static str,
    /// Dotted path, with `[0]` for an item, and the value; null removes the field.
    pub(crate) changes: Vec<(String, Value)>,
    /// The field that the API server names, or none if the object is sound.
    pub(crate) refused: Option<&'static str>,
}

impl Example {
    /// The object.
    pub(crate) fn object(&self) -> Value {
        let mut object = named(self.base);
        self.changes.iter().for_each(|(path, value)| set(&mut object, path, value));
        object
    }
}

/// Puts a value at a dotted path, where a part in brackets is taken whole: `a[2].b["c.d"]`.
pub(crate) fn set(object: &mut Value, path: &str, value: &Value) {
    let steps = steps(path);
    let Some((last, above)) = steps.split_last() else { return };
    let mut node = object;
    for step in above {
        node = match step.parse::<usize>() {
            Ok(index) if node.is_array() => item(node, index),
            _ => {
                if !node.is_object() {
                    *node = Value::Object(Map::new());
                }
                &mut node[step.as_str()]
            }
        };
    }
    match (last.parse::<usize>(), node) {
        (Ok(index), Value::Array(list)) if index >= list.len() => list.push(value.clone()),
        (Ok(index), Value::Array(list)) if value.is_null() => drop(list.remove(index)),
        (Ok(index), Value::Array(list)) => list[index] = value.clone(),
        (_, Value::Object(map)) if value.is_null() => drop(map.remove(last)),
        (_, node) => {
            if !node.is_object() {
                *node = Value::Object(Map::new());
            }
            node[last.as_str()] = value.clone();
        }
    }
}

/// An item of a list, or one more at its end if it is shorter than that.
fn item(list: &mut Value, index: usize) -> &mut Value {
    let length = list.as_array().map_or(0, Vec::len);
    if index >= length {
        list.as_array_mut().into_iter().for_each(|list| list.push(json!({})));
    }
    &mut list[index.min(length)]
}

fn steps(path: &str) -> Vec<String> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(bracket) = rest.strip_prefix('[') {
            let Some((inner, after)) = bracket.split_once(']') else { break };
            steps.push(inner.trim_matches('"').to_owned());
            rest = after.strip_prefix('.').unwrap_or(after);
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            steps.push(rest[..end].to_owned());
            let after = &rest[end..];
            rest = after.strip_prefix('.').unwrap_or(after);
        }
    }
    steps
}

/// All examples.
pub(crate) fn examples() -> Vec<Example> {
    let mut all = Vec::new();
    for (base, changes, refused) in [pools(), overlays(), classes(), sweeps(), placements()].concat() {
        let changes = changes.as_object().cloned().unwrap_or_default().into_iter().collect();
        all.push(Example { base, changes, refused });
    }
    all.extend(super::keys::examples());
    all.extend(requirements());
    all
}

type Row = (&'static str, Value, Option<&'static str>);

fn pools() -> Vec<Row> {
    let budgets = Some("spec.disruption.budgets");
    let reference = |field: &str| format!("spec.template.spec.nodeClassRef.{field}");
    vec![
        ("pool-static", json!({ "spec.limits": { "nodes": "1", "cpu": "1" } }), Some("spec")),
        ("pool-static", json!({ "spec.limits": { "cpu": "1" } }), Some("spec")),
        ("pool-static", json!({ "spec.limits": {} }), None),
        ("pool-static", json!({ "spec.limits": null }), None),
        ("pool-static", json!({ "spec.weight": 1 }), Some("spec")),
        ("pool-full", json!({ "spec.replicas": 0 }), Some("spec")),
        ("pool-full", json!({ "spec.disruption.budgets[0].schedule": "@daily" }), budgets),
        ("pool-full", json!({ "spec.disruption.budgets[1].schedule": null }), budgets),
        ("pool-full", json!({ "spec.disruption.budgets[1].duration": null }), budgets),
        (
            "pool-full",
            json!({ "spec.disruption.budgets[0].schedule": "@daily", "spec.disruption.budgets[0].duration": "1h" }),
            None,
        ),
        ("pool-full", json!({ reference("group"): "" }), Some("spec.template.spec.nodeClassRef.group")),
        ("pool-full", json!({ reference("kind"): "" }), Some("spec.template.spec.nodeClassRef.kind")),
        ("pool-full", json!({ reference("name"): "" }), Some("spec.template.spec.nodeClassRef.name")),
        ("pool-full", json!({ reference("kind"): " " }), None),
        ("claim-full", json!({ "spec.nodeClassRef.group": "" }), Some("spec.nodeClassRef.group")),
        ("claim-full", json!({ "spec.nodeClassRef.kind": "" }), Some("spec.nodeClassRef.kind")),
        ("claim-full", json!({ "spec.nodeClassRef.name": "" }), Some("spec.nodeClassRef.name")),
    ]
}

fn overlays() -> Vec<Row> {
    let entry = |key: &str, operator: &str, values: Value| {
        let mut entry = json!({ "key": key, "operator": operator });
        if !values.is_null() {
            entry["values"] = values;
        }
        json!({ "spec.requirements[0]": entry })
    };
    let own = "example.com/x";
    let requirements = Some("spec.requirements");
    let key = Some("spec.requirements[0].key");
    let base = "overlay-full";
    vec![
        (base, json!({ "spec.price": "1.5" }), Some("spec")),
        (base, json!({ "spec.price": "1.5", "spec.priceAdjustment": null }), None),
        (base, json!({ "spec.capacity": { "cpu": "1" } }), Some("spec.capacity")),
        (base, json!({ "spec.capacity": { "example.com/cpu": 1 } }), None),
        (base, json!({ "spec.requirements": [] }), None),
        (base, entry(own, "In", json!([])), requirements),
        (base, entry(own, "NotIn", json!([])), requirements),
        (base, entry(own, "NotIn", Value::Null), requirements),
        (base, entry(own, "Gt", json!(["-1"])), requirements),
        (base, entry(own, "Lte", json!(["1"])), None),
        (base, entry("kubernetes.io/hostname", "Exists", Value::Null), key),
        (base, entry("other.karpenter.sh/x", "Exists", Value::Null), key),
        (base, entry("karpenter.sh/nodepool", "Exists", Value::Null), None),
        (base, entry("karpenter.azure.com/other", "Exists", Value::Null), None),
    ]
}

fn requirements() -> Vec<Example> {
    let entry = |operator: &str, values: Value, least: Value| {
        let mut entry = json!({ "key": "example.com/x", "operator": operator });
        for (name, value) in [("values", values), ("minValues", least)] {
            if !value.is_null() {
                entry[name] = value;
            }
        }
        entry
    };
    let mut rows = vec![
        (entry("In", json!([]), Value::Null), true),
        (entry("In", Value::Null, Value::Null), true),
        (entry("In", json!([""]), Value::Null), false),
        (entry("NotIn", json!([]), Value::Null), false),
        (entry("Exists", json!(["x"]), json!(2)), false),
        (entry("In", json!(["a", "b"]), json!(3)), true),
        (entry("In", json!(["a", "b", "b"]), json!(3)), false),
        (entry("NotIn", json!(["a"]), json!(3)), false),
    ];
    for (values, refused) in [
        (json!(["0"]), false),
        (json!(["-0"]), false),
        (json!(["+1"]), false),
        (json!(["007"]), false),
        (json!(["9223372036854775807"]), false),
        (json!(["9223372036854775808"]), true),
        (json!(["-1"]), true),
        (json!(["1.0"]), true),
        (json!([" 1"]), true),
        (json!(["0x10"]), true),
        (json!(["1_000"]), true),
        (json!(["٣"]), true),
        (json!([""]), true),
        (json!(["many"]), true),
        (json!([]), true),
        (json!(["1", "2"]), true),
        (Value::Null, true),
    ] {
        for operator in ["Gt", "Gte", "Lt", "Lte"] {
            rows.push((entry(operator, values.clone(), Value::Null), refused));
        }
    }
    let mut all = Vec::new();
    for (entry, refused) in rows {
        let fields = [
            ("pool-full", "spec.template.spec.requirements[1]", "spec.template.spec.requirements"),
            ("claim-full", "spec.requirements[1]", "spec.requirements"),
        ];
        for (base, path, field) in fields {
            let changes = vec![(path.to_owned(), entry.clone())];
            all.push(Example { base, changes, refused: refused.then_some(field) });
        }
    }
    all
}

fn classes() -> Vec<Row> {
    let mut rows = Vec::new();
    for (base, minimal) in [("class-full", "class-minimal"), ("older-full", "older-minimal")] {
        rows.extend(fips(base, minimal));
        rows.extend(kernel(base));
        rows.extend(local_dns(base));
        rows.extend(tags(minimal));
        let threshold = |high: i32, low: i32| json!({ "spec.kubelet": { "imageGCHighThresholdPercent": high, "imageGCLowThresholdPercent": low } });
        rows.extend([
            (minimal, threshold(80, 80), Some("spec.kubelet")),
            (minimal, threshold(79, 80), Some("spec.kubelet")),
            (minimal, threshold(81, 80), None),
            (minimal, json!({ "spec.kubelet": { "imageGCLowThresholdPercent": 100 } }), None),
        ]);
    }
    rows
}

fn fips(base: &'static str, minimal: &'static str) -> Vec<Row> {
    let class = |family: Value, security: Value| json!({ "spec": { "fipsMode": "FIPS", "imageFamily": family, "security": security } });
    let vtpm = json!({ "trustedLaunch": { "vtpm": true } });
    let boot = json!({ "trustedLaunch": { "secureBoot": true, "vtpm": false } });
    let off = json!({ "trustedLaunch": { "secureBoot": false } });
    let (spec, none) = (Some("spec"), json!({}));
    vec![
        (minimal, class(json!("Ubuntu2404"), none.clone()), spec),
        (minimal, class(json!("Ubuntu2404"), vtpm.clone()), spec),
        (minimal, class(json!("Ubuntu2204"), none.clone()), spec),
        (minimal, class(json!("Ubuntu2204"), off), spec),
        (minimal, class(json!("Ubuntu2204"), vtpm.clone()), None),
        (minimal, class(json!("Ubuntu2204"), boot.clone()), None),
        (minimal, class(json!("AzureLinux"), vtpm.clone()), spec),
        (minimal, class(json!("AzureLinux"), boot.clone()), spec),
        (minimal, class(json!("AzureLinux"), none.clone()), None),
        (minimal, class(json!("Ubuntu"), boot), None),
        (minimal, class(Value::Null, vtpm), None),
        (minimal, class(json!("Ubuntu"), none), None),
        (minimal, json!({ "spec": { "fipsMode": "Disabled", "imageFamily": "Ubuntu2404" } }), None),
        (base, json!({ "spec.kubelet.failSwapOn": true }), spec),
        (base, json!({ "spec.kubelet.failSwapOn": null }), spec),
        (base, json!({ "spec.kubelet": null }), spec),
        (base, json!({ "spec.kubelet": null, "spec.linuxOSConfig.swapFileSize": null }), None),
    ]
}

fn kernel(base: &'static str) -> Vec<Row> {
    let at = |field: &str, value: Value| json!({ format!("spec.linuxOSConfig.sysctls.{field}"): value });
    let bad = Some("spec.linuxOSConfig.sysctls");
    let range = "netIPv4IPLocalPortRange";
    let mut rows = vec![
        (base, at("netCoreRmemDefault", json!(425_985)), bad),
        (base, at("netCoreRmemDefault", json!(425_984)), None),
        (base, at("netCoreWmemDefault", json!(212_993)), bad),
        (base, at("netIPv4NeighDefaultGcThresh1", json!(2_049)), bad),
        (base, at("netIPv4NeighDefaultGcThresh1", json!(2_048)), None),
        (base, at("netIPv4NeighDefaultGcThresh3", json!(2_047)), bad),
        (base, at("netIPv4NeighDefaultGcThresh2", Value::Null), None),
    ];
    for (text, refused) in [
        ("1024 32768", false),
        ("1023 60000", true),
        ("60999 65535", false),
        ("61000 65535", true),
        ("1024 32767", true),
        ("1024 65536", true),
        ("50000 40000", true),
        ("40000 40000", false),
        ("99999999999999999999 40000", true),
    ] {
        rows.push((base, at(range, json!(text)), refused.then_some("spec.linuxOSConfig.sysctls")));
    }
    rows
}

fn local_dns(base: &'static str) -> Vec<Row> {
    let (kube, vnet) = (Some("spec.localDNS.kubeDNSOverrides"), Some("spec.localDNS.vnetDNSOverrides"));
    let mut rows = Vec::new();
    for (list, whole) in [("kubeDNSOverrides", kube), ("vnetDNSOverrides", vnet)] {
        let at = |i: usize, field: &str| format!("spec.localDNS.{list}[{i}].{field}");
        let second = if list.starts_with("kube") {
            "spec.localDNS.kubeDNSOverrides[1]"
        } else {
            "spec.localDNS.vnetDNSOverrides[1]"
        };
        let third = if list.starts_with("kube") {
            "spec.localDNS.kubeDNSOverrides[2]"
        } else {
            "spec.localDNS.vnetDNSOverrides[2]"
        };
        rows.extend([
            (base, json!({ format!("spec.localDNS.{list}[0]"): null }), whole),
            (base, json!({ format!("spec.localDNS.{list}[1]"): null }), whole),
            (base, json!({ format!("spec.localDNS.{list}"): [] }), whole),
            (base, json!({ at(2, "zone"): "a.cluster.local" , at(2, "forwardDestination"): "VnetDNS" }), Some(third)),
            (base, json!({ at(2, "zone"): "a.cluster.local" , at(2, "forwardDestination"): "ClusterCoreDNS" }), None),
            (base, json!({ at(1, "forwardDestination"): "VnetDNS" }), Some(second)),
            (base, json!({ at(1, "protocol"): "ForceTCP" }), Some(second)),
            (base, json!({ at(1, "protocol"): "ForceTCP", at(1, "serveStale"): "Immediate" }), None),
        ]);
    }
    let vnet_at = |i: usize| format!("spec.localDNS.vnetDNSOverrides[{i}].forwardDestination");
    rows.extend([
        (base, json!({ vnet_at(0): "ClusterCoreDNS" }), vnet),
        (base, json!({ vnet_at(2): "ClusterCoreDNS" }), vnet),
        (base, json!({ "spec.localDNS.kubeDNSOverrides[0].forwardDestination": "VnetDNS" }), None),
    ]);
    rows
}

fn tags(base: &'static str) -> Vec<Row> {
    let bad = Some("spec.tags");
    let tag = |key: &str, value: &str| json!({ "spec": { "tags": { key: value } } });
    let mut rows = vec![
        (base, tag(&"k".repeat(513), "v"), bad),
        (base, tag(&"é".repeat(512), "v"), None),
        (base, tag("k", &"v".repeat(257)), bad),
        (base, tag("k", &"é".repeat(256)), None),
        (base, tag("a/b c.d-e_f:g", ""), None),
        (base, tag("", "v"), None),
    ];
    rows.extend(["<", "a>b", "%", "&", "?", "a\\b"].map(|key| (base, tag(key, "v"), bad)));
    rows
}

fn placements() -> Vec<Row> {
    let bound = |time: &str| json!({ "spec.defaults.jobs.doNotDisruptFor": time });
    let at = Some("spec.defaults.jobs.doNotDisruptFor");
    vec![
        ("placement-full", bound("59s"), at),
        ("placement-full", bound("1m"), None),
        ("placement-full", bound("24h"), None),
        ("placement-full", bound("25h"), at),
    ]
}

fn sweeps() -> Vec<Row> {
    let (sweep, record) = ("sweep-full", "record-full");
    let schedule = Some("spec.schedule");
    let mut rows = vec![
        (sweep, json!({ "spec.observeEvery": "59s" }), Some("spec.observeEvery")),
        (sweep, json!({ "spec.observeEvery": "60s" }), None),
        (sweep, json!({ "spec.schedule": "0,60 3 * * 0" }), schedule),
        (sweep, json!({ "spec.schedule": "0 24 * * 0" }), schedule),
        (sweep, json!({ "spec.schedule": "0 3 0 * 0" }), schedule),
        (sweep, json!({ "spec.schedule": "0 3 * dec-jan 0" }), schedule),
        (sweep, json!({ "spec.schedule": "0 3 * * 7" }), schedule),
        (sweep, json!({ "spec.schedule": "0 3 * * 0," }), schedule),
        (sweep, json!({ "spec.schedule": "*/5,07-59/2 ? 1-31 JAN-12 mon-Fri,0" }), None),
        (sweep, json!({ "spec.observeEvery": "9999999999h" }), Some("spec.observeEvery")),
        (sweep, json!({ "spec.kinds": [] }), Some("spec.kinds")),
        (sweep, json!({ "spec.kinds": ["Nic", "Nic"] }), Some("spec.kinds[1]")),
        (sweep, json!({ "spec.approvalRequired": [] }), None),
        (sweep, json!({ "spec.exclusions[0]": {} }), Some("spec.exclusions[0]")),
        (sweep, json!({ "spec.exclusions[0].tag": { "key": "k" } }), Some("spec.exclusions[0]")),
        (sweep, json!({ "spec.exclusions[0].name": "two words" }), Some("spec.exclusions[0].name")),
        (sweep, json!({ "spec.exclusions": [] }), None),
        (sweep, json!({ "spec.approvals[0].id": "/subscriptions/s" }), Some("spec.approvals[0].id")),
        (sweep, json!({ "spec.approvals[0].id": "/SUBSCRIPTIONS/s/resourcegroups/r/PROVIDERS/a.b/c/d" }), None),
        (sweep, json!({ "spec.schedule": "@every 1h" }), Some("spec.schedule")),
        (record, json!({ "spec.sightings[0].id": "d" }), Some("spec.sightings[0].id")),
        (record, json!({ "spec.sightings[0].times": 0 }), Some("spec.sightings[0].times")),
        (record, json!({ "spec.trips[0].owned": -1 }), Some("spec.trips[0].owned")),
        (record, json!({ "spec.trips[0].owned": 4_294_967_296_i64 }), Some("spec.trips[0].owned")),
        (record, json!({ "spec.volumes[0].name": "" }), Some("spec.volumes[0].name")),
    ];
    let trip = json!({ "at": "2026-01-01T00:00:00Z", "kind": "Vm", "owned": 1, "suspects": 1 });
    rows.push((record, json!({ "spec.trips": vec![trip.clone(); 498] }), Some("spec")));
    rows.push((record, json!({ "spec.trips": vec![trip; 497] }), None));
    for (field, path) in [
        ("nic", "spec.minimumAge.nic"),
        ("osDisk", "spec.minimumAge.osDisk"),
        ("vm", "spec.minimumAge.vm"),
        ("dataDisk", "spec.minimumAge.dataDisk"),
    ] {
        rows.push((sweep, json!({ format!("spec.minimumAge.{field}"): "9m59s" }), Some(path)));
        rows.push((sweep, json!({ format!("spec.minimumAge.{field}"): "600s" }), None));
    }
    rows
}
