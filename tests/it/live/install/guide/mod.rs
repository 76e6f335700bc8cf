//! The commands of the user guide that ask a cluster or Azure, in a cluster with a provisioner.

use super::provisioner::KINDS;
use super::{STEP, apply_by_kubectl, works};
use anyhow::{Context, Result, ensure};
use napkeeper_tests::environment::state::claims;
use napkeeper_tests::guide::{Programs, Reader, pages};
use napkeeper_tests::installation::{Installation, OVERLAY};
use napkeeper_tests::manifests::quickstart_object;
use napkeeper_tests::wait::eventually;
use napkeeper_tests::webhook::hooks::pod;
use napkeeper_webhook::DELETE_ACKNOWLEDGED_ANNOTATION;
use serde_json::{Value, json};
use std::path::Path;

const PROGRAMS: Programs = Programs { napkeeper: include_str!("napkeeper.sh"), kubectl: include_str!("kubectl.sh") };

/// Commands that ask a cluster or Azure.
const ASKS: [&str; 6] = [
    "kubectl",
    "napkeeper audit",
    "napkeeper disruption",
    "napkeeper explain",
    "napkeeper history",
    "napkeeper uninstall",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it takes a minute"]
async fn the_commands_of_the_guide_work_in_a_cluster() -> Result<()> {
    let lab = Installation::start("provisioner", "").await?;
    let repository = lab.repository().await?;
    apply_by_kubectl(&lab, &repository).await?;
    works(&lab, KINDS).await?;
    follow(&lab, &repository).await.with_context(|| lab.kubelet.tails(12))
}

/// Follows the guide from its first page to its last.
async fn follow(lab: &Installation, repository: &Path) -> Result<()> {
    lab.env.plane.apply(&objects()?).await?;
    let ready = ["wait", "--for=condition=Ready", "pods", "--all", "--namespace=shop", "--timeout=120s"];
    lab.env.plane.kubectl(&ready).await?;
    let names = Names::of(lab).await?;
    let (pages, mut wrong, mut run) = (pages()?, Vec::new(), 0);
    for page in &pages {
        let scripts: Vec<String> = page.scripts().iter().map(|script| names.put_into(script)).collect();
        if !scripts.iter().any(|script| ASKS.iter().any(|command| script.contains(command))) {
            continue;
        }
        let reader = reader(lab, repository)?;
        let text = page.text.clone();
        let followed = tokio::task::spawn_blocking(move || reader.follow(&scripts, &text)).await??;
        run += followed.run;
        wrong.extend(followed.problems.iter().map(|problem| format!("{}: {problem}", page.name)));
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    ensure!(run > 100, "{run} commands were run");
    Ok(())
}

/// What pages take for granted: a NodePool `general`, whose nodes run pods of the Deployment `web` and others in `shop`.
fn objects() -> Result<String> {
    let mut pool = quickstart_object("nodepool-general-purpose")?;
    pool["metadata"]["name"] = json!("general");
    pool["spec"]["weight"] = json!(100);
    // A page deletes it.
    pool["metadata"]["annotations"][DELETE_ACKNOWLEDGED_ANNOTATION] = json!("100");
    let mut objects = vec![json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" } }), pool];
    objects.extend(["web-0", "web-1", "web-2"].map(|name| pod("shop", name)));
    objects.push(pod("default", "web"));
    let template = pod("shop", "web");
    objects.push(json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "web", "namespace": "shop" },
        "spec": {
            "selector": { "matchLabels": { "app": "web" } },
            "template": { "metadata": { "labels": { "app": "web" } }, "spec": template["spec"] },
        },
    }));
    objects.push(json!({
        "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": { "name": "general" },
        "spec": {
            "requirements": [{ "key": "karpenter.sh/nodepool", "operator": "In", "values": ["general"] }],
            "priceAdjustment": "-1%",
        },
    }));
    let texts: Vec<String> = objects.iter().map(Value::to_string).collect();
    Ok(texts.join("\n---\n"))
}

/// What something is called here, by what pages call it.
struct Names(Vec<(&'static str, String)>);

impl Names {
    async fn of(lab: &Installation) -> Result<Self> {
        let listed = async || {
            let claims = claims(&lab.env).await?;
            let of_pool = claims.into_iter().find(|claim| {
                claim
                    .metadata
                    .labels
                    .iter()
                    .flatten()
                    .any(|(key, value)| key == "karpenter.sh/nodepool" && value == "general")
            });
            let found = of_pool.and_then(|claim| {
                Some((claim.metadata.name.clone()?, claim.data["status"]["nodeName"].as_str()?.to_owned()))
            });
            Ok(found)
        };
        let (claim, node) = eventually("node of the NodePool general", STEP, listed).await?;
        // What pages have a reader take away again.
        let taint = ["taint", "nodes", &node, "example.com/gone=:PreferNoSchedule"];
        lab.env.plane.kubectl(&taint).await?;
        let list = ["get", "pods", "--namespace=shop", "--selector=app=web", "--output=name"];
        let pods = lab.env.plane.kubectl(&list).await?;
        let pod = pods.lines().next().and_then(|name| name.strip_prefix("pod/")).context("no pod of web")?;
        Ok(Self(vec![
            ("aks-general-x2k9q", claim.clone()),
            ("web-7d4b9c6f5-x2x9k", pod.to_owned()),
            ("pod NAME --namespace NAMESPACE", "pod web-0 --namespace shop".to_owned()),
            ("pod NAME", "pod web-0 --namespace shop".to_owned()),
            ("node NAME", format!("node {node}")),
            ("nodes NAME KEY-", format!("nodes {node} example.com/gone-")),
            ("nodeclaims --all KEY-", "nodeclaims --all example.com/gone-".to_owned()),
            ("node NODE", format!("node {node}")),
            ("nodeclaim NAME", format!("nodeclaim {claim}")),
            ("nodepool NAME", "nodepool general".to_owned()),
            ("orphansweep NAME", "orphansweep default".to_owned()),
            ("[POOL]", "general".to_owned()),
            ("disruption POOL", "disruption general".to_owned()),
            ("history POOL", "history general".to_owned()),
            ("--azure-token-file token", "--azure-token-file $TOKEN".to_owned()),
            ("http://127.0.0.1:8085", lab.env.azure_url.clone()),
        ]))
    }

    fn put_into(&self, script: &str) -> String {
        self.0.iter().fold(script.to_owned(), |script, (word, name)| script.replace(word, name))
    }
}

/// A reader whose kubectl asks this cluster, and whose `napkeeper.yaml` describes it.
fn reader(lab: &Installation, repository: &Path) -> Result<Reader> {
    let mut reader = Reader::new(PROGRAMS)?;
    let work = reader.work();
    let overlay = repository.join(OVERLAY);
    std::os::unix::fs::symlink(&overlay, work.join("napkeeper-system"))?;
    let config = overlay.parent().context("the folder of the cluster")?.join("napkeeper.yaml");
    std::fs::copy(config, work.join("napkeeper.yaml"))?;
    reader.set("AZURE", &lab.env.azure_url);
    reader.set("TOKEN", lab.env.folder().join("token"));
    reader.set("KUBECONFIG", lab.env.plane.admin_kubeconfig());
    reader.set("KUBECACHEDIR", lab.env.plane.folder().join("kubectl"));
    Ok(reader)
}
