//! Flux, the real kustomize-controller, syncs a companion of managed NAP: what it applies, waits for, is refused and leaves alone.

use super::controller::companion::definitions;
use super::policies::exported;
use anyhow::{Context, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use napkeeper_tests::environment::state::sweep_status;
use napkeeper_tests::environment::{Environment, NAMESPACE, without_pods};
use napkeeper_tests::flux::Flux;
use napkeeper_tests::manifests::{quickstart_file, quickstart_object, repository};
use napkeeper_tests::wait::eventually;
use napkeeper_tests::webhook::hooks::{bad_pool, certificate, claim, hooks, pools};
use napkeeper_tests::webhook::{listening, program};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Longest that a step may take on a busy machine.
const STEP: Duration = Duration::from_secs(180);
/// From a commit until all of it is Ready.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How often the same revision is synced: as in an hour at the interval of ten minutes, and more.
const SYNCS: usize = 8;
/// What is committed, and may change by nothing but a commit.
const KINDS: &str =
    "customresourcedefinitions,clusterroles,clusterrolebindings,validatingadmissionpolicies,nodepools,aksnodeclasses";

/// A repository with napkeeper's own objects, NodePools, their AKSNodeClass and an OrphanSweep.
struct Commits {
    flux: Flux,
    installed: String,
    sweep: Value,
    syncs: usize,
}

impl Commits {
    /// Commits the installation, its pause switch with these keys, and these NodePools; what Flux says.
    async fn commit(&mut self, env: &Environment, pause: &Value, pools: &str) -> Result<Value> {
        let mut switch: Value =
            serde_saphyr::from_str(&std::fs::read_to_string(repository("kustomize/base/pause.yaml"))?)?;
        if pause.as_object().is_some_and(|keys| !keys.is_empty()) {
            switch["data"] = pause.clone();
        }
        let is_switch =
            |object: &&str| object.contains("name: napkeeper-pause\n") && object.contains("kind: ConfigMap\n");
        let others: Vec<&str> = self.installed.split("\n---\n").filter(|object| !is_switch(object)).collect();
        let all = [&others.join("\n---\n"), &switch.to_string(), pools, &self.sweep.to_string()].join("\n---\n");
        let fields = json!({ "wait": true, "timeout": "60s" });
        let revision = self.flux.commit(&env.plane, &all, &fields).await?;
        eventually("answer of Flux", STEP, async || self.flux.ready(&env.plane, &revision).await).await
    }

    async fn sync_again(&mut self, env: &Environment) -> Result<()> {
        self.syncs += 1;
        self.flux.sync_again(&env.plane, self.syncs).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_companion_is_synced_refused_and_left_alone() -> Result<()> {
    let mut env = Environment::start_with_definitions("companion", &definitions().await?).await?;
    let controller = env.controller()?;
    controller.line("initial listing of the cluster complete", STEP).await?;
    let installed = format!("{}\n---\n{}", without_pods("companion").await?, exported(&[])?);
    let sweep = quickstart_object("orphansweep")?;
    let mut git = Commits { flux: Flux::start(&env.plane).await?, installed, sweep, syncs: 0 };
    let begun = Instant::now();
    let synced = git.commit(&env, &json!({}), &pools()?).await?;
    ensure!(synced["status"] == "True", "{synced}");
    ensure!(begun.elapsed() < READY_WITHIN, "Ready after {:?}", begun.elapsed());
    nothing_changes_by_syncing(&env, &mut git).await?;
    the_switch_survives(&env, &mut git).await?;
    an_approval_in_git_collects_an_orphan(&mut env, &mut git).await?;
    a_bad_pool_is_refused_with_the_reason(&env, &mut git).await?;
    a_pool_in_use_is_not_pruned(&env, &mut git).await?;
    ensure!(controller.exit_status().is_none(), "the controller ended: {}", controller.tail(30));
    Ok(())
}

/// Name and resourceVersion of all that is committed, and of the sweep its generation: its status is napkeeper's.
async fn versions(env: &Environment) -> Result<String> {
    let columns = "--output=custom-columns=K:.kind,N:.metadata.name,V:.metadata.resourceVersion";
    let objects = env.plane.kubectl(&["get", KINDS, columns, "--no-headers"]).await?;
    let names = ["get", "configmap,secret,serviceaccount,role,rolebinding,networkpolicy", "--namespace", NAMESPACE];
    let own = env.plane.kubectl(&[&names[..], &[columns, "--no-headers"]].concat()).await?;
    let generation = "--output=custom-columns=K:.kind,N:.metadata.name,V:.metadata.generation";
    let sweeps = env.plane.kubectl(&["get", "orphansweeps", generation, "--no-headers"]).await?;
    // Written while it works.
    let is_own_state = |line: &&str| line.contains("napkeeper-facts") || line.contains("napkeeper-webhook-");
    let all = [objects, own, sweeps].join("\n");
    Ok(all.lines().filter(|line| !is_own_state(line)).collect::<Vec<_>>().join("\n"))
}

/// Nothing that napkeeper writes is a difference to Flux, and nothing that Flux applies again is a change.
async fn nothing_changes_by_syncing(env: &Environment, git: &mut Commits) -> Result<()> {
    let before = versions(env).await?;
    ensure!(before.contains("general-purpose") && before.contains("napkeeper-pause"), "{before}");
    for _ in 0..SYNCS {
        git.sync_again(env).await?;
    }
    let after = versions(env).await?;
    ensure!(before == after, "before:\n{before}\nafter:\n{after}");
    Ok(())
}

/// What is paused by hand stays so, and so does what is paused in Git.
async fn the_switch_survives(env: &Environment, git: &mut Commits) -> Result<()> {
    let patch = |data: &Value| format!("--patch={}", json!({ "data": data }));
    let switch = ["configmap", "napkeeper-pause", "--namespace", NAMESPACE];
    let set = async |data: &Value| {
        let patch = patch(data);
        let args = [&["patch"], &switch[..], &["--type=merge", &patch]].concat();
        env.plane.kubectl(&args).await.map(drop)
    };
    let keys = async || -> Result<Value> {
        let text = env.plane.kubectl(&[&["get"], &switch[..], &["--output=json"]].concat()).await?;
        Ok(serde_json::from_str::<Value>(&text)?["data"].clone())
    };
    set(&json!({ "delete": "true" })).await?;
    git.sync_again(env).await?;
    ensure!(keys().await? == json!({ "delete": "true" }), "{}", keys().await?);
    let synced = git.commit(env, &json!({ "launch": "true" }), &pools()?).await?;
    ensure!(synced["status"] == "True", "{synced}");
    ensure!(keys().await? == json!({ "delete": "true", "launch": "true" }), "{}", keys().await?);
    // What Git says is restored, what it does not say is left to people.
    set(&json!({ "delete": null, "launch": null })).await?;
    git.sync_again(env).await?;
    ensure!(keys().await? == json!({ "launch": "true" }), "{}", keys().await?);
    Ok(())
}

/// A NIC that may be deleted by approval alone goes once the approval is merged.
async fn an_approval_in_git_collects_an_orphan(env: &mut Environment, git: &mut Commits) -> Result<()> {
    let tags = json!({ "napkeeper.io_cluster": env.cluster() });
    env.tell_azure("stage", &json!({ "leakNic": { "name": "leaked", "tags": tags } })).await?;
    git.sweep["spec"]["approvalRequired"] = json!(["Nic", "Vm", "DataDisk"]);
    let synced = git.commit(env, &json!({}), &pools()?).await?;
    ensure!(synced["status"] == "True", "{synced}");
    let found = until(env, "finding that needs an approval", async |env| {
        let status = sweep_status(env).await?;
        let mut findings = status["findings"].as_array().into_iter().flatten();
        let is_leaked = |one: &&Value| one["id"].as_str().is_some_and(|id| id.ends_with("/leaked"));
        Ok(findings.find(is_leaked).filter(|one| one["refusals"] == json!(["approval"])).cloned())
    })
    .await?;
    let now = env.azure("clock").await?["now"].as_str().context("no time")?.parse::<Timestamp>()?;
    let expires = (now + SignedDuration::from_hours(24)).to_string();
    git.sweep["spec"]["approvals"] =
        json!([{ "id": found["id"], "incarnation": found["incarnation"], "expiresAt": expires }]);
    let synced = git.commit(env, &json!({}), &pools()?).await?;
    ensure!(synced["status"] == "True", "{synced}");
    until(env, "collected NIC", async |env| {
        let left = env.resources().await?;
        Ok((!left.iter().any(|id| id.ends_with("/leaked"))).then_some(()))
    })
    .await
}

/// Lets time pass until there is something.
async fn until<T>(
    env: &mut Environment,
    what: &str,
    mut find: impl AsyncFnMut(&Environment) -> Result<Option<T>>,
) -> Result<T> {
    let end = Instant::now() + STEP;
    loop {
        if let Some(found) = find(env).await? {
            return Ok(found);
        }
        ensure!(Instant::now() < end, "no {what} in time: {:#}", sweep_status(env).await?);
        env.jump(SignedDuration::from_secs(60))?;
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
}

/// The dry run of Flux is refused by the webhook, so nothing of that revision is applied.
async fn a_bad_pool_is_refused_with_the_reason(env: &Environment, git: &mut Commits) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let ca = certificate(folder.path())?;
    let webhook = listening(&program(&env.plane.admin_kubeconfig(), "127.0.0.1:0", Some(folder.path()))?).await?;
    env.plane.apply(&hooks(&webhook.admission, &ca)?).await?;
    let bad = bad_pool("bad")?;
    let file = folder.path().join("bad.yaml");
    std::fs::write(&file, &bad)?;
    let dry = ["apply", "--server-side", "--dry-run=server", "--filename", file.to_str().context("a path")?];
    eventually("hooks in force", STEP, async || Ok(env.plane.kubectl(&dry).await.is_err().then_some(()))).await?;
    let refused = git.commit(env, &json!({}), &format!("{}\n---\n{bad}", pools()?)).await?;
    let message = refused["message"].as_str().unwrap_or_default();
    ensure!(refused["status"] == "False" && message.contains("NodePool/bad dry-run failed"), "{refused}");
    ensure!(message.contains("napkeeper") && message.contains("99 8 * * *"), "{message}");
    let events = env.plane.kubectl(&["get", "events", "--output=jsonpath={.items[*].message}"]).await?;
    ensure!(events.contains("99 8 * * *"), "{events}");
    ensure!(!env.plane.kubectl(&["get", "nodepools", "--output=name"]).await?.contains("/bad"));
    let kinds = "validatingwebhookconfigurations,mutatingwebhookconfigurations";
    env.plane.kubectl(&["delete", kinds, "--all"]).await.map(drop)
}

/// A NodePool that is no longer in Git stays while it has nodes, and Flux says why.
async fn a_pool_in_use_is_not_pruned(env: &Environment, git: &mut Commits) -> Result<()> {
    env.plane.apply(&claim().to_string()).await?;
    let without_gpu: Vec<String> = ["aksnodeclass", "nodepool-general-purpose", "nodepool-spot-preferred"]
        .map(quickstart_file)
        .into_iter()
        .collect::<Result<_>>()?;
    // The shipped NodePools are annotated against being pruned at all.
    let unmarked = pools()?.replace("kustomize.toolkit.fluxcd.io/prune: disabled", "a: b");
    let synced = git.commit(env, &json!({}), &unmarked).await?;
    ensure!(synced["status"] == "True", "{synced}");
    let kept = git.commit(env, &json!({}), &without_gpu.join("\n---\n")).await?;
    let message = kept["message"].as_str().unwrap_or_default();
    ensure!(kept["status"] == "False" && message.contains("NodePool gpu still has nodes"), "{kept}");
    ensure!(env.plane.kubectl(&["get", "nodepools", "--output=name"]).await?.contains("/gpu"));
    Ok(())
}
