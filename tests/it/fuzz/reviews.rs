//! Hostile reviews: the webhook responds to each without a panic, a 5xx or memory growth.
//!
//! Texts are changed byte by byte, and as JSON: a field is dropped, doubled or replaced by something of another type.
//! `NAPKEEPER_REVIEWS=1000000` tries a million; CI tries fewer.
//!
//! The webhook's router runs in a process of its own, so that its memory can be measured.

use super::mutate::Mutator;
use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::body::{Body, to_bytes};
use http::{Request, StatusCode};
use k8s_openapi::api::core::v1::Pod;
use napkeeper_api::manifests::{Object, object};
use napkeeper_core::catalog::{Catalog, InstanceTypeOptions, instance_types};
use napkeeper_core::model::names::Region;
use napkeeper_core::snapshot::Snapshot;
use napkeeper_sim::random::Random;
use napkeeper_tests::clock::StoppedClock;
use napkeeper_tests::control_plane::{Process, Program};
use napkeeper_tests::options::number;
use napkeeper_tests::webhook::hooks::review;
use napkeeper_webhook::{Limits, Webhook, router};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tower::ServiceExt;

/// Reviews without `NAPKEEPER_REVIEWS`.
const FEW: u64 = 10_000;
/// For a million reviews too.
const LONGEST: Duration = Duration::from_secs(3 * 3600);
/// What the line with the result begins with.
const MEASURED: &str = "measured:";
/// What the process may grow by after the first tenth, in KiB.
const GROWTH_KIB: u64 = 64 << 10;
/// Generous limits: speed is not tested here.
const PATIENT: Limits =
    Limits { max_concurrency: 64, validate_timeout: Duration::from_secs(30), hint_timeout: Duration::from_secs(30) };

fn pool() -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": { "name": "general", "uid": "p1", "annotations": { "napkeeper.io/delete-acknowledged": "1" } },
        "spec": {
            "weight": 10, "limits": { "cpu": "100", "memory": "400Gi" },
            "disruption": {
                "consolidateAfter": "1m",
                "budgets": [{ "nodes": "10%", "schedule": "0 9 * * 1-5", "duration": "8h", "reasons": ["Drifted"] }],
            },
            "template": {
                "metadata": { "labels": { "team": "a" } },
                "spec": {
                    "nodeClassRef": { "group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "default" },
                    "expireAfter": "720h", "taints": [{ "key": "team", "value": "a", "effect": "NoSchedule" }],
                    "requirements": [
                        { "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"] },
                        { "key": "karpenter.azure.com/sku-cpu", "operator": "Gt", "values": ["3"], "minValues": 1 },
                    ],
                },
            },
        },
    })
}

fn class() -> Value {
    json!({
        "apiVersion": "karpenter.azure.com/v1beta1", "kind": "AKSNodeClass", "metadata": { "name": "default", "uid": "c1" },
        "spec": { "imageFamily": "AzureLinux", "osDiskSizeGB": 128, "tags": { "a": "b" } },
    })
}

fn pod() -> Value {
    let term = json!({ "key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"] });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "generateName": "web-", "namespace": "shop", "labels": { "app": "web" }, "annotations": { "a": "b" } },
        "spec": {
            "containers": [{ "name": "web", "image": "nginx", "resources": { "requests": { "cpu": "2", "memory": "4Gi" } } }],
            "initContainers": [{ "name": "in", "restartPolicy": "Always", "resources": { "requests": { "cpu": "1" } } }],
            "tolerations": [{ "key": "team", "operator": "Exists" }],
            "topologySpreadConstraints": [{
                "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": { "matchLabels": { "app": "web" } },
            }],
            "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{ "matchExpressions": [term] }],
            } } },
        },
    })
}

/// The corpus of reviews, each with its path.
fn corpus() -> Vec<(&'static str, Value)> {
    let (pool, class, pod, nothing) = (pool(), class(), pod(), Value::Null);
    let mut other = pool.clone();
    other["spec"]["limits"]["cpu"] = json!("4");
    vec![
        ("/mutate", review("CREATE", &pod, &nothing)),
        ("/validate", review("CREATE", &pool, &nothing)),
        ("/validate", review("UPDATE", &other, &pool)),
        ("/validate", review("DELETE", &nothing, &pool)),
        ("/validate", review("CREATE", &class, &nothing)),
        ("/validate", review("DELETE", &nothing, &class)),
    ]
}

/// A cluster with a pool, a class and the sizes of a region.
fn world() -> Result<Snapshot> {
    let mut snapshot = Snapshot::default();
    let Ok(Object::NodeClass(class)) = object(&class()) else { anyhow::bail!("the class is wrong") };
    let Ok(Object::NodePool(pool)) = object(&pool()) else { anyhow::bail!("the pool is wrong") };
    let region = Catalog::embedded()?.region(&Region::new("westeurope")?).context("a region")?;
    let types = instance_types(&region, &class, &InstanceTypeOptions::default());
    snapshot.instance_types.insert(class.name.clone(), Arc::new(types));
    snapshot.put_class(class.name.clone(), *class);
    snapshot.put_pool(pool.name.clone(), *pool);
    Ok(snapshot)
}

/// Replaces, drops or doubles something in a value, anywhere.
fn change(value: &mut Value, random: &mut Random) {
    let mut below = |n: usize| usize::try_from(random.bits() % n.max(1) as u64).unwrap_or_default();
    let go_on = below(8) > 0;
    match value {
        Value::Object(map) if !map.is_empty() && go_on => {
            let at = below(map.len());
            let key = map.keys().nth(at).cloned().unwrap_or_default();
            match below(12) {
                0 => drop(map.shift_remove(&key)),
                1 => drop(map.insert(format!("{key}~/"), json!("x"))),
                _ => map.values_mut().nth(at).into_iter().for_each(|inner| change(inner, random)),
            }
        }
        Value::Array(list) if !list.is_empty() && go_on => {
            let at = below(list.len());
            match below(10) {
                0 => drop(list.remove(at)),
                1 => list.extend(vec![list[at].clone(); 1 + below(50)]),
                _ => list.get_mut(at).into_iter().for_each(|inner| change(inner, random)),
            }
        }
        other => {
            *other = match below(14) {
                0 => Value::Null,
                1 => json!(true),
                2 => json!(-1),
                3 => json!(i64::MAX),
                4 => json!(1e300),
                5 => json!(""),
                6 => json!("x".repeat(1 + below(5000))),
                7 => json!("\u{0}\u{202e}é/~1"),
                8 => json!([]),
                9 => json!({}),
                10 => json!("999999999999999999999999Ei"),
                11 => json!("0 0 30 2 *"),
                12 => json!([["a"], { "b": null }]),
                _ => json!("In"),
            }
        }
    }
}

fn resident_kib() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).context("VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse()?)
}

/// Sends a review, and checks the invariants of every response.
async fn ask(router: &Router, path: &str, body: String) -> Result<()> {
    let parsed: Option<Value> = serde_json::from_str(&body).ok();
    let uid = parsed.as_ref().and_then(|v| v["request"]["uid"].as_str()).map(ToOwned::to_owned);
    let request = Request::post(path).body(Body::from(body.clone()))?;
    let response = router.clone().oneshot(request).await?;
    let status = response.status();
    ensure!(!status.is_server_error(), "{status} for {body}");
    let answer = to_bytes(response.into_body(), 1 << 20).await?;
    if status != StatusCode::OK {
        return Ok(());
    }
    let answer: Value = serde_json::from_slice(&answer)?;
    ensure!(answer["response"]["uid"].as_str() == uid.as_deref(), "another uid for {body}");
    let warnings = answer["response"]["warnings"].to_string();
    ensure!(!warnings.contains("internal error"), "an internal error for {body}");
    if answer["response"]["patch"].is_string() {
        let object = parsed.map(|mut v| v["request"]["object"].take()).unwrap_or_default();
        ensure!(serde_json::from_value::<Pod>(object).is_ok(), "a patch for what is no pod: {body}");
    }
    Ok(())
}

#[tokio::test]
async fn the_webhook_survives_any_review() -> Result<()> {
    let test = Program::new(std::env::current_exe()?).args([
        "--exact",
        "fuzz::reviews::answers_in_a_process_of_its_own",
        "--ignored",
        "--nocapture",
    ]);
    let process = Process::spawn("reviews", &test)?;
    let exit = process.exited(LONGEST).await?;
    ensure!(exit.success(), "{exit}: {}", process.tail(20));
    println!("{}", process.line(MEASURED, Duration::from_secs(5)).await?);
    Ok(())
}

#[test]
#[ignore = "the_webhook_survives_any_review runs it in a process of its own"]
fn answers_in_a_process_of_its_own() -> Result<()> {
    let reviews = number("NAPKEEPER_REVIEWS", FEW)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut registry = napkeeper_serve::metrics::registry();
    let snapshots = watch::channel(Some(Arc::new(world()?))).1;
    let router =
        router(Arc::new(Webhook::new("napkeeper-system", snapshots, Arc::new(StoppedClock), PATIENT, &mut registry)?));
    let corpus = corpus();
    let texts: Vec<String> = corpus.iter().map(|(_, review)| review.to_string()).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let words = ["\"object\":", "null", "{}", "[]", "\\u0000", "1e400", "\"CREATE\"", "\"uid\":", "-", "}"];
    let (mut mutator, mut random) = (Mutator::new(7, &texts, &words), Random::new(11));
    let (start, mut after_a_tenth) = (Instant::now(), 0);
    for n in 0..reviews {
        let (path, whole) = &corpus[usize::try_from(random.bits() % corpus.len() as u64)?];
        let body = if n % 4 == 0 {
            mutator.next()
        } else {
            let mut review = whole.clone();
            (0..=random.bits() % 4).for_each(|_| change(&mut review["request"], &mut random));
            review.to_string()
        };
        runtime.block_on(ask(&router, path, body))?;
        if n == reviews / 10 {
            after_a_tenth = resident_kib()?;
        }
    }
    let grown = resident_kib()?.saturating_sub(after_a_tenth);
    println!("\n{MEASURED} {reviews} reviews in {:?}, {grown} KiB more after the first tenth", start.elapsed());
    ensure!(grown < GROWTH_KIB, "the process has grown by {grown} KiB");
    Ok(())
}
