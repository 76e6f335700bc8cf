//! Bad examples of a rule's page are denied with the rule's id, and good ones are accepted.
//!
//! Every example is sent to a real API server, which calls the webhook: first with definitions that check nothing, so
//! that all of them reach it, then with the shipped ones, which reject some themselves. A rule that is in no list of
//! `rule_lists` fails the test.

use crate::drawn_objects;
use crate::live::verdicts::setup;
use crate::webhook::rule_lists::{Outcome, expected};
use anyhow::{Context, Result, bail, ensure};
use http::{Method, Request};
use kube::client::Body;
use napkeeper_tests::control_plane::{ControlPlane, Mode, Process};
use napkeeper_tests::environment::{NAMESPACE, install_without_accounts};
use napkeeper_tests::manifests::{self, examples, quickstart_file, repository};
use napkeeper_tests::wait::eventually;
use napkeeper_tests::webhook::hooks::{certificate, claim, hooks};
use napkeeper_tests::webhook::{self, Listening};
use napkeeper_verdict::rules;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use tempfile::TempDir;

const STEP: Duration = Duration::from_secs(90);

/// Kinds of the hook, with their paths.
const KIND_PATHS: [(&str, &str); 4] = [
    ("NodePool", "/apis/karpenter.sh/v1/nodepools"),
    ("AKSNodeClass", "/apis/karpenter.azure.com/v1beta1/aksnodeclasses"),
    ("OrphanSweep", "/apis/napkeeper.io/v1alpha1/orphansweeps"),
    ("PlacementPolicy", "/apis/napkeeper.io/v1alpha1/placementpolicies"),
];

/// The class for the examples of NK9501.
const CLASS: &str =
    "apiVersion: karpenter.azure.com/v1beta1\nkind: AKSNodeClass\nmetadata:\n  name: default\nspec: {}\n";

/// A webhook behind an API server.
struct Hooked {
    plane: ControlPlane,
    client: kube::Client,
    _process: Process,
    _folder: TempDir,
}

impl Hooked {
    /// Starts both, with definitions.
    async fn start(definitions: &str, more: &[String]) -> Result<Self> {
        let plane = ControlPlane::start(Mode::Api).await?;
        install_without_accounts(&plane, "companion").await?;
        plane.apply(definitions).await?;
        plane.established().await?;
        let kubeconfig = plane.service_account_kubeconfig(NAMESPACE, "napkeeper-webhook").await?;
        let prices = json!({ "asOf": jiff::Timestamp::now(), "value": { "Standard_D4s_v5": [192_000_000, null] } });
        let facts = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "napkeeper-facts", "namespace": NAMESPACE },
            "data": { "version": "1", "region": "westeurope", "prices": prices.to_string() },
        });
        plane.apply(&facts.to_string()).await?;
        let folder = tempfile::Builder::new().prefix("examples-").tempdir()?;
        let ca = certificate(folder.path())?;
        let program = webhook::program(&kubeconfig, "127.0.0.1:0", Some(folder.path()))?.args(more);
        let Listening { process, admission, .. } = webhook::listening(&program).await?;
        // Some rules need the region.
        process.line("using published facts", STEP).await?;
        plane.apply(&hooks(&admission, &ca)?).await?;
        let client = plane.client().await?;
        let hooked = Self { plane, client, _process: process, _folder: folder };
        hooked.is_called().await?;
        Ok(hooked)
    }

    /// Waits until the API server calls the webhook.
    async fn is_called(&self) -> Result<()> {
        let pool = rules::find("NK3007").map(|rule| examples(rule.page, "Bad")).unwrap_or_default();
        let pool = pool.first().context("NK3007 has an example")?;
        eventually("a question", STEP, async || {
            Ok((self.outcome("NK3007", pool).await?.0 == Outcome::Denied).then_some(()))
        })
        .await
    }

    /// Status, message and warnings of a create that writes nothing.
    async fn create(&self, path: &str, document: &str) -> Result<(u16, String, Vec<String>)> {
        let url = format!("{path}?dryRun=All&fieldValidation=Strict");
        let request = Request::builder().method(Method::POST).uri(url).header("Content-Type", "application/yaml");
        let request = request.header("Accept", "application/json").body(Body::from(document.as_bytes().to_vec()))?;
        let answer = self.client.send(request).await?;
        let code = answer.status().as_u16();
        let headers = answer.headers().get_all("warning").iter();
        let warnings = headers.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect();
        let bytes = answer.into_body().collect_bytes().await?;
        let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let message = body["message"].as_str().map_or_else(|| String::from_utf8_lossy(&bytes).into_owned(), Into::into);
        Ok((code, message, warnings))
    }

    /// The outcome of an example of a rule, by the worst of its documents, with details.
    async fn outcome(&self, id: &str, example: &str) -> Result<(Outcome, String)> {
        let (mut worst, mut details) = (Outcome::NotCalled, String::new());
        let is = |document: &str, kind: &str| document.lines().any(|line| line == kind);
        let class = example.split("\n---\n").find(|document| is(document, "kind: AKSNodeClass"));
        let class = class.filter(|_| is(example, "kind: NodePool"));
        if let Some(class) = class {
            self.plane.apply(class).await?;
        }
        for document in example.split("\n---\n").filter(|document| Some(*document) != class) {
            let Some(path) = path(document) else { continue };
            let mut answer = self.create(path, document).await?;
            // The webhook hears of the class a moment later, or never, if the pool names another one.
            for _ in 0..10 {
                if class.is_none() || !answer.2.iter().any(|warning| warning.contains("NK9501")) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                answer = self.create(path, document).await?;
            }
            let (code, message, warnings) = answer;
            let named = |text: &str| text.contains(&format!("{id} ")) || text.contains(&format!("{id}:"));
            let outcome = match code {
                200..300 if warnings.iter().any(|w| named(w)) => Outcome::Warned,
                200..300 => Outcome::Silent,
                _ if message.contains("validate.napkeeper.io") && named(&message) => Outcome::Denied,
                _ if message.contains("validate.napkeeper.io") => Outcome::Silent,
                // Not valid by the definition, or not even decoded.
                400 | 422 => Outcome::Server,
                _ => bail!("{id}: neither the webhook nor the definition refuses it: {code} {message}"),
            };
            if outcome < worst {
                (worst, details) = (outcome, format!("{code} {message} {warnings:?}"));
            }
        }
        if let Some(class) = class.and_then(|text| text.split("name: ").nth(1)?.split_whitespace().next()) {
            self.plane.kubectl(&["delete", "aksnodeclass", class]).await?;
        }
        Ok((worst, details))
    }
}

/// The URL path of a document; `None` for other kinds.
fn path(document: &str) -> Option<&'static str> {
    let field = |key: &str| document.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
    let kind = field("kind").unwrap_or_default().to_lowercase();
    let path = KIND_PATHS.iter().find(|(name, _)| name.to_lowercase() == kind)?.1;
    match field("apiVersion") {
        Some("karpenter.azure.com/v1alpha2") => Some("/apis/karpenter.azure.com/v1alpha2/aksnodeclasses"),
        _ => Some(path),
    }
}

/// The examples, with the class for NK9501.
fn beside_class(id: &str, heading: &str, page: &str) -> Vec<String> {
    let class = if id == "NK9501" { format!("{CLASS}---\n") } else { String::new() };
    examples(page, heading).into_iter().map(|example| format!("{class}{example}")).collect()
}

/// A page whose good example is only a part of an object.
const FRAGMENT: &str = "NK7003";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_bad_example_is_denied_by_its_rule_and_every_good_one_is_accepted() -> Result<()> {
    let relaxed = setup::stream(&setup::relaxed(&drawn_objects::definitions()?));
    let mut wrong = Vec::new();
    for (shipped, definitions) in [(false, relaxed), (true, manifests::definitions()?)] {
        let hooked = Hooked::start(&definitions, &[]).await?;
        let (mut met, mut sent) = (BTreeSet::new(), 0);
        for rule in rules::all() {
            let wanted = expected(rule.id, shipped).context("the rule is in no list")?;
            for example in beside_class(rule.id, "Bad", rule.page) {
                let (outcome, details) = hooked.outcome(rule.id, &example).await?;
                sent += usize::from(outcome != Outcome::NotCalled);
                let of_another_kind = outcome == Outcome::NotCalled;
                met.extend((outcome == wanted || wanted == Outcome::Silent).then_some(rule.id));
                if outcome != wanted && !of_another_kind {
                    wrong.push(format!("{} bad, shipped {shipped}: {outcome:?}, not {wanted:?}: {details}", rule.id));
                }
            }
            for example in beside_class(rule.id, "Good", rule.page).iter().filter(|_| rule.id != FRAGMENT) {
                let (outcome, details) = hooked.outcome(rule.id, example).await?;
                if !matches!(outcome, Outcome::Silent | Outcome::NotCalled) {
                    wrong.push(format!("{} good, shipped {shipped}: {outcome:?}: {details}", rule.id));
                }
            }
        }
        let unmet: Vec<_> = rules::all().filter(|rule| !met.contains(rule.id)).map(|rule| rule.id).collect();
        ensure!(unmet.is_empty(), "no example shows {unmet:?}: {}", wrong.join("\n"));
        eprintln!("definitions shipped: {shipped}; {sent} bad examples asked about");
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// The state of classes and budgets is read with the rights that kustomize gives, and is reported on changes of a pool.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unready_classes_blocking_budgets_and_policies_are_reported() -> Result<()> {
    let policies = format!("--policies={}", repository("policies").display());
    let hooked = Hooked::start(&manifests::definitions()?, &[policies]).await?;
    let plane = &hooked.plane;
    for file in ["aksnodeclass", "nodepool-gpu"] {
        plane.apply(&quickstart_file(file)?).await?;
    }
    let ready = json!({ "status": { "conditions": [{
        "type": "Ready", "status": "False", "reason": "UnhealthyDependents", "message": "SubnetsReady=False",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }] } });
    let patch = ["--subresource=status", "--type=merge", "--patch", &ready.to_string()];
    plane.kubectl(&[&["patch", "aksnodeclass", "default"], &patch[..]].concat()).await?;
    // The available images depend on the version of the API server.
    let old = CLASS.replace("name: default", "name: old").replace("spec: {}", "spec: {imageFamily: Ubuntu2204}");
    let (_, _, warnings) = hooked.create("/apis/karpenter.azure.com/v1beta1/aksnodeclasses", &old).await?;
    ensure!(warnings.iter().any(|w| w.contains("NK2015") && w.contains("with Kubernetes 1.")), "{warnings:?}");
    let (claim, node, pod, budget) = running();
    for object in [&claim, &node, &pod, &budget] {
        plane.apply(&object.to_string()).await?;
    }
    for (kind, name, status) in [("nodeclaim", "gpu-1", &claim), ("poddisruptionbudget", "web", &budget)] {
        let patch = json!({ "status": status["status"] }).to_string();
        plane.kubectl(&["patch", kind, name, "--subresource=status", "--type=merge", "--patch", &patch]).await?;
    }
    let new = quickstart_file("nodepool-gpu")?;
    let new = new.replace("name: gpu", "name: other");
    eventually("word of the class", STEP, async || {
        let (_, _, warnings) = hooked.create("/apis/karpenter.sh/v1/nodepools", &new).await?;
        let owner = warnings.iter().any(|w| w.contains("NK7002") && w.contains("policy nodepool-owner: "));
        ensure!(owner, "the team's own policies say nothing: {warnings:?}");
        Ok(warnings.iter().any(|w| w.contains("NK9506") && w.contains("SubnetsReady=False")).then_some(()))
    })
    .await?;
    let change = json!({ "spec": { "template": { "spec": { "terminationGracePeriod": "1h23m" } } } });
    eventually("word of the budget", STEP, async || {
        let url = "/apis/karpenter.sh/v1/nodepools/gpu?dryRun=All";
        let request = Request::builder().method(Method::PATCH).uri(url);
        let request = request.header("Content-Type", "application/merge-patch+json");
        let answer = hooked.client.send(request.body(Body::from(change.to_string().into_bytes()))?).await?;
        let mut warnings =
            answer.headers().get_all("warning").iter().map(|w| String::from_utf8_lossy(w.as_bytes()).into_owned());
        let held = |w: String| w.contains("1 currently blocked by a PodDisruptionBudget (such as default/web)");
        Ok(warnings.any(held).then_some(()))
    })
    .await
}

/// A node of the pool `gpu`, with a pod, and a budget that lets it not go.
fn running() -> (Value, Value, Value, Value) {
    let id = "azure:///subscriptions/5f2c1d3e-8a4b-4c6d-9e0f-1a2b3c4d5e6f/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/gpu-1";
    let mut claim = claim();
    claim["status"] = json!({ "providerID": id, "nodeName": "gpu-1", "capacity": { "cpu": "4", "memory": "16Gi" } });
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": "gpu-1", "labels": { "karpenter.sh/nodepool": "gpu" } }, "spec": { "providerID": id },
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "web", "namespace": "default", "labels": { "app": "web" } },
        "spec": { "nodeName": "gpu-1", "containers": [{ "name": "main", "image": "example.com/main:1" }] },
    });
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "web", "namespace": "default" },
        "spec": { "maxUnavailable": 0, "selector": { "matchLabels": { "app": "web" } } },
        "status": { "currentHealthy": 1, "desiredHealthy": 1, "disruptionsAllowed": 0, "expectedPods": 1, "observedGeneration": 1 },
    });
    (claim, node, pod, budget)
}
