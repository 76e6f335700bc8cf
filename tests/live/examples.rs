//! Examples: is what the page of a rule calls bad refused, with the rule's id, and what it calls good taken?
//!
//! Every example goes to a real API server, which asks the webhook: first with definitions that check nothing, so that
//! all of them reach it, then with those that ship, which refuse some themselves. What is expected of each rule stands
//! below; a rule that is in no list fails the test.

use super::definitions::{definitions, established};
use super::hooks::{certificate, claim, hooks};
use super::verdicts::{ours, setting};
use super::{a_lab, eventually, repository};
use anyhow::{Context, Result, ensure};
use http::{Method, Request};
use kube::client::Body;
use napkeeper_api::yaml;
use napkeeper_tests::control_plane::{ControlPlane, Mode, Process};
use napkeeper_tests::lab::{NAMESPACE, install_without_accounts};
use napkeeper_tests::webhook::{self, Listening};
use napkeeper_verdict::{Severity, rules};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use tempfile::TempDir;

const STEP: Duration = Duration::from_secs(90);

/// Kinds that the hook asks about, with their paths.
const ASKED: [(&str, &str); 4] = [
    ("NodePool", "/apis/karpenter.sh/v1/nodepools"),
    ("AKSNodeClass", "/apis/karpenter.azure.com/v1beta1/aksnodeclasses"),
    ("OrphanSweep", "/apis/napkeeper.io/v1alpha1/orphansweeps"),
    ("PlacementPolicy", "/apis/napkeeper.io/v1alpha1/placementpolicies"),
];

/// What the examples of NK9501 are asked beside.
const CLASS: &str =
    "apiVersion: karpenter.azure.com/v1beta1\nkind: AKSNodeClass\nmetadata:\n  name: default\nspec: {}\n";

/// What becomes of an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// The webhook refuses it, and names the rule.
    Denied,
    /// It is taken, with a warning that names the rule.
    Warned,
    /// The API server refuses it before it asks anybody.
    Server,
    /// It is taken, and the rule is not named.
    Silent,
    /// There is nothing in it that the webhook is asked about.
    NotAsked,
}

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
        established(&plane).await?;
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
        // Some rules say something only once the region is known.
        process.line("using published facts", STEP).await?;
        plane.apply(&hooks(&admission, &ca)?).await?;
        let client = plane.client().await?;
        let hooked = Self { plane, client, _process: process, _folder: folder };
        hooked.is_asked().await?;
        Ok(hooked)
    }

    /// Waits until the API server asks the webhook.
    async fn is_asked(&self) -> Result<()> {
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
        let told = answer.headers().get_all("warning").iter();
        let warnings = told.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect();
        let bytes = answer.into_body().collect_bytes().await?;
        let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let message = body["message"].as_str().map_or_else(|| String::from_utf8_lossy(&bytes).into_owned(), Into::into);
        Ok((code, message, warnings))
    }

    /// What becomes of an example of a rule, by the worst of its documents, and what was said.
    async fn outcome(&self, id: &str, example: &str) -> Result<(Outcome, String)> {
        let (mut worst, mut said) = (Outcome::NotAsked, String::new());
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
            for _ in 0..20 {
                if class.is_none() || !answer.2.iter().any(|warning| warning.contains("NK9501")) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                answer = self.create(path, document).await?;
            }
            let (code, message, warnings) = answer;
            ensure!(code < 500, "{id}: {code} {message}");
            let named = |text: &str| text.contains(&format!("{id} ")) || text.contains(&format!("{id}:"));
            let outcome = match code {
                200..300 if warnings.iter().any(|w| named(w)) => Outcome::Warned,
                200..300 => Outcome::Silent,
                _ if message.contains("validate.napkeeper.io") && named(&message) => Outcome::Denied,
                _ if message.contains("validate.napkeeper.io") => Outcome::Silent,
                _ => Outcome::Server,
            };
            if outcome < worst {
                (worst, said) = (outcome, format!("{code} {message} {warnings:?}"));
            }
        }
        if let Some(class) = class.and_then(|text| text.split("name: ").nth(1)?.split_whitespace().next()) {
            self.plane.kubectl(&["delete", "aksnodeclass", class]).await?;
        }
        Ok((worst, said))
    }
}

/// Where a document would be posted; `None` for what the webhook is not asked about.
fn path(document: &str) -> Option<&'static str> {
    let field = |key: &str| document.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
    let kind = field("kind").unwrap_or_default().to_lowercase();
    let path = ASKED.iter().find(|(asked, _)| asked.to_lowercase() == kind)?.1;
    match field("apiVersion") {
        Some("karpenter.azure.com/v1alpha2") => Some("/apis/karpenter.azure.com/v1alpha2/aksnodeclasses"),
        _ => Some(path),
    }
}

/// The examples under a heading of a page.
fn examples<'p>(page: &'p str, heading: &str) -> Vec<String> {
    let section = page.lines().skip_while(|line| line.strip_prefix("## ") != Some(heading)).skip(1);
    let mut lines = section.take_while(|line: &&'p str| !line.starts_with("## "));
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        if line.starts_with("```yaml") {
            found.push(lines.by_ref().take_while(|line| *line != "```").map(|line| format!("{line}\n")).collect());
        }
    }
    found
}

/// The same, with the class that NK9501 is about.
fn beside_class(id: &str, heading: &str, page: &str) -> Vec<String> {
    let class = if id == "NK9501" { format!("{CLASS}---\n") } else { String::new() };
    examples(page, heading).into_iter().map(|example| format!("{class}{example}")).collect()
}

/// The objects in the examples under a heading of a page; none of what is no YAML.
pub(super) fn documents(page: &str, heading: &str) -> Vec<Value> {
    let read = |text: String| yaml::read("example.yaml", &text).documents;
    examples(page, heading).into_iter().flat_map(read).map(|document| document.value).collect()
}

/// Refused by the webhook.
const DENIED: [&str; 9] = ["NK1020", "NK1021", "NK2009", "NK2010", "NK2016", "NK2017", "NK3006", "NK3007", "NK3013"];
/// Refused by the definitions that ship, before the webhook is asked; where they check nothing, by the webhook.
const BY_DEFINITION: [&str; 7] = ["NK1011", "NK1012", "NK1014", "NK1015", "NK1016", "NK1022", "NK1030"];
/// The same, but the webhook only warns: the server's definition may be newer than the one that is built in.
const MAY_BE_NEWER: [&str; 2] = ["NK1010", "NK1013"];
/// Refused by any API server: it reads no such text, serves no such kind, and takes no such metadata.
const BY_SERVER: [&str; 8] = ["NK1001", "NK1002", "NK1003", "NK1004", "NK1005", "NK1017", "NK1018", "NK1019"];
/// Errors of which the webhook warns: Azure, AKS or the subscription may have changed since this program was made.
const MAY_CHANGE: [&str; 8] = ["NK2001", "NK2003", "NK2004", "NK2011", "NK2018", "NK2021", "NK2022", "NK5002"];
/// Warnings.
const WARNED: [&str; 23] = [
    "NK1006", "NK2002", "NK2005", "NK2006", "NK2007", "NK2008", "NK2012", "NK2013", "NK2014", "NK3001", "NK3002",
    "NK3003", "NK3004", "NK3005", "NK3011", "NK3012", "NK3020", "NK3022", "NK3030", "NK5001", "NK5003", "NK5007",
    "NK9501",
];
/// What admission cannot say, and why.
const ELSEWHERE: [(&str, &[&str]); 10] = [
    (
        "of another kind than the hook asks about",
        &[
            "NK1031", "NK2023", "NK2024", "NK2026", "NK3031", "NK3032", "NK3033", "NK4002", "NK6001", "NK6002",
            "NK6010", "NK6011", "NK7004", "NK7005", "NK8001", "NK8002", "NK8003", "NK9003",
        ],
    ),
    (
        "compares objects of an input with each other; of a live cluster NK9501 and NK9502 say it",
        &["NK2019", "NK2020", "NK2025", "NK2027", "NK5004", "NK5005", "NK5006", "NK6003", "NK6012"],
    ),
    ("about files in Git", &["NK4001", "NK4003", "NK4004", "NK4005", "NK4006"]),
    ("reads comments", &["NK3040", "NK5010"]),
    ("asks what a person wrote, and the server has filled in defaults", &["NK3010", "NK3021"]),
    ("is about an older Kubernetes than this server has", &["NK2015"]),
    ("asks for other definitions", &["NK1032"]),
    ("asks for the time: nothing is refused for the clock of a webhook", &["NK9001", "NK9002"]),
    ("asks for policies; live::policies", &["NK7001", "NK7002", "NK7003"]),
    (
        "asks for nodes that run, or a class with a state; live::hooks",
        &["NK9502", "NK9503", "NK9504", "NK9505", "NK9506"],
    ),
];
/// A page whose good example is only as much of an object as it takes to show the point.
const FRAGMENT: &str = "NK7003";

/// What becomes of bad examples of a rule; `None` for one that no list has.
fn expected(id: &str, shipped: bool) -> Option<Outcome> {
    let is = |list: &[&str]| list.contains(&id);
    let elsewhere = ELSEWHERE.iter().any(|(_, ids)| is(ids));
    let lists = [
        (is(&DENIED), Outcome::Denied),
        (is(&BY_DEFINITION), if shipped { Outcome::Server } else { Outcome::Denied }),
        (is(&MAY_BE_NEWER), if shipped { Outcome::Server } else { Outcome::Warned }),
        (is(&BY_SERVER), Outcome::Server),
        (is(&MAY_CHANGE) || is(&WARNED), Outcome::Warned),
        (elsewhere, Outcome::Silent),
    ];
    let mut found = lists.into_iter().filter(|(is, _)| *is).map(|(_, outcome)| outcome);
    found.next().filter(|_| found.next().is_none())
}

#[test]
fn every_rule_is_in_one_list_and_only_what_may_have_changed_is_softened() {
    let unlisted: Vec<_> = rules::all().filter(|rule| expected(rule.id, true).is_none()).map(|rule| rule.id).collect();
    assert!(unlisted.is_empty(), "in no list, or in two: {unlisted:?}");
    let severity = |id: &&str| rules::find(id).map(|rule| rule.severity);
    let refused = DENIED.iter().chain(&BY_DEFINITION).chain(&MAY_BE_NEWER).chain(&BY_SERVER).chain(&MAY_CHANGE);
    assert!(refused.map(severity).all(|s| s == Some(Severity::Error)));
    assert!(WARNED.iter().map(severity).all(|s| s == Some(Severity::Warning)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_bad_example_is_refused_by_its_rule_and_every_good_one_is_taken() -> Result<()> {
    let _turn = a_lab().await?;
    let relaxed = setting::stream(&setting::relaxed(&ours()?));
    let mut wrong = Vec::new();
    for (shipped, definitions) in [(false, relaxed), (true, definitions()?)] {
        let hooked = Hooked::start(&definitions, &[]).await?;
        let (mut met, mut asked) = (BTreeSet::new(), 0);
        for rule in rules::all() {
            let wanted = expected(rule.id, shipped).context("the rule is in no list")?;
            for example in beside_class(rule.id, "Bad", rule.page) {
                let (outcome, said) = hooked.outcome(rule.id, &example).await?;
                asked += usize::from(outcome != Outcome::NotAsked);
                let of_another_kind = outcome == Outcome::NotAsked;
                met.extend((outcome == wanted || wanted == Outcome::Silent).then_some(rule.id));
                if outcome != wanted && !of_another_kind {
                    wrong.push(format!("{} bad, shipped {shipped}: {outcome:?}, not {wanted:?}: {said}", rule.id));
                }
            }
            for example in beside_class(rule.id, "Good", rule.page).iter().filter(|_| rule.id != FRAGMENT) {
                let (outcome, said) = hooked.outcome(rule.id, example).await?;
                if !matches!(outcome, Outcome::Silent | Outcome::NotAsked) {
                    wrong.push(format!("{} good, shipped {shipped}: {outcome:?}: {said}", rule.id));
                }
            }
        }
        let unmet: Vec<_> = rules::all().filter(|rule| !met.contains(rule.id)).map(|rule| rule.id).collect();
        ensure!(unmet.is_empty(), "no example shows {unmet:?}: {}", wrong.join("\n"));
        eprintln!("definitions shipped: {shipped}; {asked} bad examples asked about");
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// The state of classes and budgets is read with the rights that kustomize gives, and reaches whoever changes a pool.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_class_that_is_not_ready_a_budget_that_holds_pods_and_a_policy_are_told() -> Result<()> {
    let _turn = a_lab().await?;
    let policies = format!("--policies={}", repository("policies").display());
    let hooked = Hooked::start(&definitions()?, &[policies]).await?;
    let plane = &hooked.plane;
    let files = ["aksnodeclass", "nodepool-gpu"].map(|file| repository(&format!("manifests/quickstart/{file}.yaml")));
    for file in files {
        plane.apply(&std::fs::read_to_string(file)?).await?;
    }
    let ready = json!({ "status": { "conditions": [{
        "type": "Ready", "status": "False", "reason": "UnhealthyDependents", "message": "SubnetsReady=False",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }] } });
    let patch = ["--subresource=status", "--type=merge", "--patch", &ready.to_string()];
    plane.kubectl(&[&["patch", "aksnodeclass", "default"], &patch[..]].concat()).await?;
    // Which images there are depends on the version that the API server says it has.
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
    let new = std::fs::read_to_string(repository("manifests/quickstart/nodepool-gpu.yaml"))?;
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
        let mut told =
            answer.headers().get_all("warning").iter().map(|w| String::from_utf8_lossy(w.as_bytes()).into_owned());
        let held = |w: String| w.contains("1 currently blocked by a PodDisruptionBudget (such as default/web)");
        Ok(told.any(held).then_some(()))
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
