//! Values that are wrong for a field, or only just right.

use super::fields::Edit;
use super::random::Random;
use serde_json::{Value, json};

/// Words that mean something somewhere, and nothing elsewhere.
const WORDS: &[&str] = &[
    "",
    " ",
    "x",
    "X",
    "é",
    "日本",
    "-1",
    "0",
    "1",
    "1.5",
    "1e3",
    "true",
    "null",
    "Never",
    "10%",
    "101%",
    "1Gi",
    "1d",
    "1h",
    "5m10s",
    "@daily",
    "@every 1h",
    "* * * *",
    "0 9 * * 1-5",
    "a/b/c",
    "/x",
    "x/",
    "bad value!",
    "a\n",
    "a\tb",
    "\u{0}",
    "WhenEmpty",
    "In",
    "NoSchedule",
    "Ubuntu2404",
    "FIPS",
    "karpenter.sh/nodepool",
    "karpenter.azure.com/foo",
    "agentpool",
    "2026-01-02T03:04:05Z",
    "cluster.local",
    "{}",
    "[]",
    "😀",
];

const DURATIONS: &[&str] = &[
    "0s",
    "1h30m",
    "90s",
    "1h1h",
    "1.5h",
    "-1h",
    "never",
    "Never",
    "NEVER",
    "1h ",
    " 1h",
    "1h\n",
    "h",
    "1",
    "1ms",
    "99999999999999999999h",
    "١h",
    "1H",
    "8h30m0s",
    "30m0s",
    "8h0s",
    "0h0m",
    "10m",
    "9m59s",
    "59s",
];
const NUMBERS: &[&str] = &[
    "0%", "9%", "09%", "99%", "100%", "101%", "1000%", "007", "-1", "1.5", "50 %", "%", "٣", "1Ki", "1ki", "1.5Gi",
    ".5", "5.", ".", "+1", "1e5", "1E-5", "1e", "1m", "1n", "1u", "1M", "1k", "1K", "100", "1Mi", "50MiB", "50 Mi",
    "١Mi", "1Zi", "-5Gi",
];
const NAMES: &[&str] = &[
    "a",
    "A",
    "a-",
    "-a",
    "a.b",
    "a..b",
    "a_b",
    ".a",
    "a/b",
    "a.b/c",
    "A.b/c",
    "a_b/c",
    "a/-b",
    "a/b-",
    "a b",
    "Ready",
    "Ready,Now",
    "9a",
    "aé",
    "karpenter.sh/x",
    "mykarpenter.sh/x",
    "kubernetes.io/hostname",
    "storagetier",
    "example.com/ok",
];
const TIMES: &[&str] = &[
    "2026-01-02T03:04:05Z",
    "2026-01-02t03:04:05z",
    "2026-01-02 03:04:05Z",
    "2026-01-02T03:04:05",
    "2026-01-02T03:04:05+02:00",
    "2026-13-02T03:04:05Z",
    "2026-02-30T03:04:05Z",
    "2026-01-02T03:04:60Z",
    "2026-01-02T24:00:00Z",
    "2026-01-02T03:04:05.123456789Z",
    "2026-01-02",
    "now",
    "2026-01-02T03:04:05+25:00",
    "2026-1-2T3:4:5Z",
    "0000-01-01T00:00:00Z",
];
const CRONS: &[&str] = &[
    "@daily",
    "@dailyx",
    "@every 1h",
    "x@daily",
    "0 9 * * 1-5",
    "0 9 * *",
    "0 9 * * 1-5 2026",
    "99 99 99 99 99",
    "a b c d e",
    "0\t9 * * *",
    "0 9 * * *\n",
    " 0 9 * * *",
    "@Hourly",
    "@midnight",
];
const PATHS: &[&str] = &[
    "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network/virtualNetworks/v/subnets/s",
    "/SUBSCRIPTIONS/s/resourcegroups/rg/PROVIDERS/microsoft.network/virtualnetworks/v/SUBNETS/s",
    "/subscriptions/s/resourceGroups/rg./providers/Microsoft.Network/virtualNetworks/v/subnets/s",
    "/subscriptions/s/resourceGroups/rg/providers/MicrosoftXNetwork/virtualNetworks/v/subnets/s",
    "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network/virtualNetworks/v/subnets/s/",
    "subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/disks/d",
    "/subscriptions/",
    "/subscriptions",
];
const ZONES: &[&str] = &[
    ".",
    "..",
    "example.com",
    "example.com.",
    "a_b.example",
    "-a.example",
    "a-.example",
    "cluster.local",
    "mycluster.local",
    "cluster.local.",
    "Example.COM",
    "a b",
];
const RANGES: &[&str] = &[
    "32768 60999",
    "1024 65535",
    "1023 65535",
    "1024 32767",
    "61000 61000",
    "1024  60999",
    "1024 60999 1",
    "1024",
    "",
    "a b",
    "1024 60999\n",
    "１０２４ 60999",
    "50000 40000",
    "99999999999999999999 60999",
    "1024-60999",
];

/// Texts that a pattern may have been written for.
fn texts_for(pattern: &str) -> &'static [&'static str] {
    match pattern {
        p if p.contains("subscriptions") => PATHS,
        p if p.contains("daily") => CRONS,
        p if p.contains("\\d+ \\d+") => RANGES,
        p if p.contains("\\.|[A-Za-z0-9]([A-Za-z0-9_-]{0,61}") => ZONES,
        p if p.contains("(s|m|h)") || p.contains("(h|m)") => DURATIONS,
        p if p.contains("[0-9]") || p.contains("\\d") => {
            if p.contains("[A-Za-z") {
                NAMES
            } else {
                NUMBERS
            }
        }
        _ => NAMES,
    }
}

/// All edits at a field of this schema, given its current value.
pub(crate) fn edits(schema: &Value, current: Option<&Value>, chance: &mut Random) -> Vec<Edit> {
    let mut puts = vec![Value::Null];
    let kind =
        if schema["x-kubernetes-int-or-string"] == true { "either" } else { schema["type"].as_str().unwrap_or("any") };
    match kind {
        "string" => texts(schema, current, chance, &mut puts),
        "integer" | "number" => numbers(schema, current, &mut puts),
        "boolean" => puts.extend([json!(true), json!(false), json!("true"), json!(1), json!([])]),
        "either" => {
            puts.extend([
                json!(5),
                json!(-5),
                json!(1.0),
                json!(1.5),
                json!(true),
                json!({}),
                json!([]),
                json!(9_223_372_036_854_775_807_u64),
                json!(1e30),
            ]);
            puts.extend(NUMBERS.iter().chain(&["", "x", "1 Gi"]).map(|text| json!(text)));
        }
        "array" => lists(schema, current, &mut puts),
        _ => objects(schema, current, &mut puts),
    }
    let mut edits: Vec<Edit> = puts.into_iter().map(Edit::Put).collect();
    edits.push(Edit::Remove);
    if kind == "object" {
        edits.extend([
            Edit::Add("unknownField", json!(1)),
            Edit::Add("unknownField", Value::Null),
            Edit::Add("", json!("x")),
        ]);
        edits.extend([
            Edit::Add("a.b", json!({ "c": 1 })),
            Edit::Add("Spec", json!({})),
            Edit::Add("metadata", json!({ "name": "x" })),
        ]);
    }
    edits
}

fn texts(schema: &Value, current: Option<&Value>, chance: &mut Random, puts: &mut Vec<Value>) {
    puts.extend([json!(""), json!(5), json!(1.5), json!(true), json!([]), json!({}), json!(["x"])]);
    for value in schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        puts.extend([json!(value), json!(value.to_lowercase()), json!(format!("{value} "))]);
    }
    if let Some(text) = current.and_then(Value::as_str) {
        puts.extend([json!(text.to_uppercase()), json!(format!("{text}\n")), json!(format!(" {text}"))]);
    }
    if let Some(pattern) = schema["pattern"].as_str() {
        puts.extend(texts_for(pattern).iter().map(|text| json!(text)));
    }
    if schema["format"] == "date-time" {
        puts.extend(TIMES.iter().map(|text| json!(text)));
    }
    if let Some(most) =
        schema["maxLength"].as_u64().and_then(|most| usize::try_from(most).ok()).filter(|most| *most < 2_000)
    {
        puts.extend(["a", "é"].iter().flat_map(|c| [c.repeat(most), c.repeat(most + 1)]).map(Value::String));
    }
    for _ in 0..4 {
        puts.extend(chance.one(WORDS).map(|word| json!(word)));
    }
}

fn numbers(schema: &Value, current: Option<&Value>, puts: &mut Vec<Value>) {
    for (keyword, beyond) in [("minimum", -1), ("maximum", 1)] {
        if let Some(bound) = schema[keyword].as_i64() {
            #[expect(clippy::cast_precision_loss, reason = "bounds are small")]
            let float = bound as f64;
            puts.extend([json!(bound), json!(bound + beyond), json!(float)]);
        }
    }
    let current = current.and_then(Value::as_f64).unwrap_or(64.0);
    puts.extend([
        json!(current),
        json!(current + 0.5),
        json!("64"),
        json!(""),
        json!(true),
        json!([]),
        json!({}),
        json!([1]),
    ]);
    puts.extend([json!(0), json!(-1), json!(i32::MAX), json!(i64::from(i32::MAX) + 1), json!(i64::from(i32::MIN) - 1)]);
    puts.extend([json!(i64::MAX), json!(i64::MIN), json!(u64::MAX), json!(1e20), json!(-1e300), json!(1e-9)]);
}

fn lists(schema: &Value, current: Option<&Value>, puts: &mut Vec<Value>) {
    puts.extend([
        json!([]),
        json!([null]),
        json!([[]]),
        json!([{}]),
        json!(["x"]),
        json!([5]),
        json!({}),
        json!("x"),
        json!(5),
        json!({ "0": "x" }),
    ]);
    let Some(list) = current.and_then(Value::as_array) else { return };
    let mut reversed = list.clone();
    reversed.reverse();
    puts.push(Value::Array(reversed));
    let Some(first) = list.first().cloned() else { return };
    let with = |extra: Vec<Value>| Value::Array(list.iter().cloned().chain(extra).collect());
    puts.extend([
        with(vec![first.clone()]),
        with(vec![first.clone(), first.clone()]),
        with(vec![Value::Null]),
        with(vec![json!("x")]),
    ]);
    if let Some(most) =
        schema["maxItems"].as_u64().and_then(|most| usize::try_from(most).ok()).filter(|most| *most <= 100)
    {
        puts.extend([most, most + 1].map(|n| json!(vec![first.clone(); n])));
    }
    for key in schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        // The same key with other content, no key, a key of a wrong type.
        let mut same = json!({});
        same[key] = first.get(key).cloned().unwrap_or_default();
        if !first.is_object() {
            continue;
        }
        let mut keyless = first.clone();
        keyless.as_object_mut().map(|map| map.remove(key));
        let mut odd = first.clone();
        odd[key] = json!(7);
        puts.extend([with(vec![same]), with(vec![keyless.clone(), keyless]), with(vec![odd.clone(), odd])]);
    }
}

fn objects(schema: &Value, current: Option<&Value>, puts: &mut Vec<Value>) {
    puts.extend([json!({}), json!([]), json!([{}]), json!("x"), json!(""), json!(5), json!(true)]);
    if let Some(value) = schema.get("additionalProperties").filter(|s| s.is_object()) {
        puts.extend([
            json!({ "k": null }),
            json!({ "k": 1 }),
            json!({ "k": 1.5 }),
            json!({ "k": {} }),
            json!({ "k": "v", "": "v" }),
        ]);
        puts.extend([
            json!({ "bad key!": "1" }),
            json!({ "k": "bad value!" }),
            json!({ "Ünï/x": "1" }),
            json!({ "nodes": "1" }),
        ]);
        if let Some(most) = schema["maxProperties"].as_u64() {
            puts.extend(
                [most, most + 1]
                    .map(|n| (0..n).map(|i| (format!("k{i}"), json!("1"))).collect::<serde_json::Map<_, _>>().into()),
            );
        }
        if value["maxLength"].is_number() {
            puts.extend([63, 64].map(|n| json!({ "k": "v".repeat(n) })));
        }
    }
    if let Some(map) = current.and_then(Value::as_object) {
        // Another case of a name that is known.
        if let Some((key, value)) = map.iter().next() {
            let mut cased = map.clone();
            cased.insert(key.to_uppercase(), value.clone());
            puts.push(Value::Object(cased));
        }
    }
}
