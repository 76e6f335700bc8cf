//! What does a pod's creation cost through a real API server: without a hook, with a ValidatingAdmissionPolicy of five
//! expressions, with a hook that does nothing, and with napkeeper's?
//!
//! All of them are there all the time, each for a namespace of its own, and pods are created in turn: what slows the
//! machine down slows all of them. `dryRun=All`, one client, one request at a time. Hooks are called at an address of
//! loopback, over HTTP/2.

use crate::cluster::node;
use crate::reviews::pod;
use crate::server::{Server, certificate, cpu};
use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use napkeeper_tests::control_plane::{ControlPlane, Mode};
use napkeeper_tests::manifests::repository;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const ROUNDS: usize = 5;
/// Pods created in each namespace in a round.
const CREATES: usize = 1_000;
/// Pods created in a namespace before it is the next one's turn.
const TURN: usize = 25;
const NODES: usize = 100;
/// How much more than a hook that does nothing is promised, at the median.
const MORE: Duration = Duration::from_micros(300);
const WAYS: [&str; 4] = ["none", "policy", "nothing", "napkeeper"];

/// What creating pods in one way has cost.
#[derive(Default)]
struct Cost {
    times: Vec<Duration>,
    apiserver: Duration,
    hook: Duration,
    annotated: usize,
}

/// Prints the table.
pub(crate) async fn measure() -> Result<()> {
    let plane = ControlPlane::start(Mode::Api).await?;
    let folder = tempfile::Builder::new().prefix("admission-").tempdir()?;
    let ca = certificate(folder.path())?;
    furnish(&plane).await?;
    let (napkeeper, _) = Server::napkeeper(folder.path(), &plane.admin_kubeconfig()).await?;
    napkeeper.hints().await?;
    let nothing = Server::nothing(folder.path()).await?;
    for (way, server) in [("napkeeper", &napkeeper), ("nothing", &nothing)] {
        plane.apply(&hook(way, &server.admission, &ca).to_string()).await?;
    }
    plane.apply(&policy().to_string()).await?;
    plane.apply(&binding().to_string()).await?;
    // The API server takes up new configurations within a second or two.
    tokio::time::sleep(Duration::from_secs(5)).await;

    let [_etcd, apiserver, ..] = plane.pids()[..] else { anyhow::bail!("no kube-apiserver") };
    let client = plane.client().await?;
    let mut costs: BTreeMap<&str, Cost> = WAYS.map(|way| (way, Cost::default())).into();
    for way in WAYS {
        let mut warm = Cost::default();
        turn(&client, way, 0, &mut warm).await?;
    }
    for number in 0..ROUNDS * CREATES / TURN {
        for offset in 0..WAYS.len() {
            let way = WAYS[(number + offset) % WAYS.len()];
            let cost = costs.get_mut(way).context("a way")?;
            let hook = || match way {
                "napkeeper" => napkeeper.cpu(),
                "nothing" => nothing.cpu(),
                _ => Ok(Duration::ZERO),
            };
            let (server_before, hook_before) = (cpu(apiserver)?, hook()?);
            turn(&client, way, number, cost).await?;
            cost.apiserver += cpu(apiserver)?.saturating_sub(server_before);
            cost.hook += hook()?.saturating_sub(hook_before);
        }
    }
    report(&mut costs)
}

fn report(costs: &mut BTreeMap<&str, Cost>) -> Result<()> {
    println!("pairs: {ROUNDS} × {CREATES} creates each way, in turns of {TURN}; {NODES} nodes");
    println!("| way | p50 ms | p90 ms | p99 ms | API server CPU µs | hook CPU µs |");
    println!("|---|---|---|---|---|---|");
    let mut medians = BTreeMap::new();
    for way in WAYS {
        let cost = costs.get_mut(way).context("a way")?;
        cost.times.sort();
        let n = cost.times.len();
        let ms = |part: usize| cost.times[(n * part / 100).min(n - 1)].as_secs_f64() * 1e3;
        let us = |all: Duration| all.as_secs_f64() * 1e6 / n as f64;
        println!(
            "| {way} | {:.2} | {:.2} | {:.2} | {:.0} | {:.0} |",
            ms(50),
            ms(90),
            ms(99),
            us(cost.apiserver),
            us(cost.hook)
        );
        medians.insert(way, cost.times[n / 2]);
        if way == "napkeeper" {
            println!("pairs: {} of {n} pods carry a hint", cost.annotated);
        }
    }
    let (napkeeper, baseline) = (medians["napkeeper"], medians["nothing"]);
    let verdict = if napkeeper <= baseline + MORE { "holds" } else { "MISSED" };
    let more = (napkeeper.as_secs_f64() - baseline.as_secs_f64()) * 1e3;
    println!("pairs: {more:.2} ms more than nothing at the median, promised {MORE:?}: {verdict}");
    Ok(())
}

/// Creates a few pods.
async fn turn(client: &kube::Client, way: &str, number: usize, cost: &mut Cost) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), way);
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    for i in 0..TURN {
        let mut wire = pod(number * TURN + i);
        wire["metadata"]["namespace"] = json!(way);
        // The API server makes these itself.
        for field in ["managedFields", "creationTimestamp", "ownerReferences"] {
            wire["metadata"].as_object_mut().context("metadata")?.remove(field);
        }
        let wire = serde_json::from_value(wire)?;
        let begun = Instant::now();
        let made = pods.create(&dry_run, &wire).await.with_context(|| format!("creating a pod in {way}"))?;
        cost.times.push(begun.elapsed());
        let annotations = made.metadata.annotations.unwrap_or_default();
        let expected = match way {
            "napkeeper" => annotations.contains_key("napkeeper.io/placement-hint"),
            "nothing" => annotations.contains_key("nothing"),
            _ => true,
        };
        cost.annotated += usize::from(expected);
        ensure!(way == "napkeeper" || expected, "the hook {way} was not asked");
    }
    Ok(())
}

/// Namespaces, definitions, pools and nodes.
async fn furnish(plane: &ControlPlane) -> Result<()> {
    for way in WAYS {
        let object =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": way, "labels": { "way": way } } });
        plane.apply(&object.to_string()).await?;
        // No controller creates them here.
        let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default", "namespace": way } });
        plane.apply(&account.to_string()).await?;
    }
    let folder = |path: &str| repository(path).display().to_string();
    for crds in ["manifests/crds/karpenter", "manifests/crds/napkeeper"] {
        plane.kubectl(&["apply", "--server-side", "--kustomize", &folder(crds)]).await?;
    }
    plane.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]).await?;
    for file in ["aksnodeclass", "nodepool-general-purpose", "nodepool-gpu", "nodepool-spot-preferred"] {
        let path = folder(&format!("manifests/quickstart/{file}.yaml"));
        plane.kubectl(&["apply", "--filename", &path]).await?;
    }
    let mut nodes = Vec::new();
    for i in 0..NODES {
        let mut node = node(i);
        node["metadata"].as_object_mut().context("metadata")?.retain(|key, _| key == "name" || key == "labels");
        nodes.push(node.to_string());
    }
    let file = tempfile::NamedTempFile::with_suffix(".yaml")?;
    std::fs::write(file.path(), nodes.join("\n---\n"))?;
    let path = file.path().display().to_string();
    for part in [&[][..], &["--subresource=status"]] {
        plane.kubectl(&[&["apply", "--server-side", "--filename", &path], part].concat()).await?;
    }
    Ok(())
}

fn selector(way: &str) -> Value {
    json!({ "matchLabels": { "way": way } })
}

fn hook(way: &str, address: &str, ca: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": { "name": way },
        "webhooks": [{
            "name": format!("{way}.example.com"), "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "failurePolicy": "Ignore", "timeoutSeconds": 2, "namespaceSelector": selector(way),
            "clientConfig": { "url": format!("https://{address}/mutate"), "caBundle": ByteString(ca.as_bytes().to_vec()) },
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"], "scope": "Namespaced" }],
        }],
    })
}

fn policy() -> Value {
    let checks = [
        "object.spec.containers.all(c, has(c.resources))",
        "object.spec.containers.all(c, !c.image.endsWith(':latest'))",
        "object.metadata.?labels.orValue({}).size() < 100",
        "!object.spec.?hostNetwork.orValue(false)",
        "object.spec.containers.all(c, c.name.size() < 64)",
    ];
    let validations: Vec<Value> = checks.iter().map(|check| json!({ "expression": check })).collect();
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": "policy.example.com" },
        "spec": {
            "failurePolicy": "Ignore", "validations": validations,
            "matchConstraints": { "resourceRules": [
                { "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"] },
            ] },
        },
    })
}

fn binding() -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": "policy.example.com" },
        "spec": {
            "policyName": "policy.example.com", "validationActions": ["Deny"],
            "matchResources": { "namespaceSelector": selector("policy") },
        },
    })
}
