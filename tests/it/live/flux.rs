//! A companion of managed NAP, installed by kubectl, removed, and installed by Flux, the real kustomize-controller: what it applies,
//! waits for, is refused and leaves alone.

use super::controller::companion::definitions;
use super::install::{STEP, apply_by_kubectl, in_time, nothing_is_left, works};
use super::policies::exported;
use super::uninstall::uninstall;
use anyhow::{Context, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use napkeeper_tests::control_plane::kustomize;
use napkeeper_tests::environment::state::sweep_status;
use napkeeper_tests::environment::{Environment, NAMESPACE};
use napkeeper_tests::flux::Flux;
use napkeeper_tests::installation::{Installation, OVERLAY};
use napkeeper_tests::manifests::{quickstart_file, quickstart_object, repository};
use napkeeper_tests::wait::eventually;
use napkeeper_tests::webhook::hooks::{bad_pool, claim, pools};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// How often the same revision is synced, and how far the clocks are moved before each, so that napkeeper writes meanwhile: more than
/// an hour.
const SYNCS: usize = 6;
const INTERVAL: SignedDuration = SignedDuration::from_mins(15);
/// What is committed, and may change by nothing but a commit.
const KINDS: &str = "customresourcedefinitions,clusterroles,clusterrolebindings,validatingadmissionpolicies,\
                     validatingwebhookconfigurations,mutatingwebhookconfigurations,nodepools,aksnodeclasses";
/// The same in the namespace of napkeeper.
const OWN_KINDS: &str = "configmap,secret,serviceaccount,service,role,rolebinding,networkpolicy";

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
async fn a_companion_is_installed_by_kubectl_removed_and_installed_by_flux() -> Result<()> {
    let mut lab = Installation::start("companion", &definitions().await?).await?;
    let repository = lab.repository().await?;
    let done = async {
        let begun = Instant::now();
        apply_by_kubectl(&lab, &repository).await?;
        works(&lab, "orphansweeps").await?;
        in_time("a companion by kubectl", begun)?;
        remove(&lab, &repository).await?;
        by_flux(&mut lab, &repository).await
    };
    let done = done.await;
    done.with_context(|| lab.kubelet.tails(12))
}

/// Takes it out again, and what the quick start has beside it.
async fn remove(lab: &Installation, repository: &Path) -> Result<()> {
    let plane = &lab.env.plane;
    plane.kubectl(&["delete", "deployment/inflate", "poddisruptionbudget/inflate", "job/training"]).await?;
    plane.kubectl(&["delete", "nodepools,aksnodeclasses", "--all"]).await?;
    uninstall(plane, &["--apply", "--delete-records"]).await?.ended(0)?;
    nothing_is_left(lab, repository).await
}

async fn by_flux(lab: &mut Installation, repository: &Path) -> Result<()> {
    let installed = [kustomize(&repository.join(OVERLAY)).await?, exported(&[])?].join("\n---\n");
    let sweep = quickstart_object("orphansweep")?;
    let mut git = Commits { flux: Flux::start(&lab.env.plane).await?, installed, sweep, syncs: 0 };
    let begun = Instant::now();
    let synced = git.commit(&lab.env, &json!({}), &pools()?).await?;
    ensure!(synced["status"] == "True", "{synced}");
    works(lab, "orphansweeps").await?;
    in_time("a companion by Flux", begun)?;
    nothing_changes_by_syncing(&mut lab.env, &mut git).await?;
    the_switch_survives(&lab.env, &mut git).await?;
    an_approval_in_git_collects_an_orphan(&mut lab.env, &mut git).await?;
    a_bad_pool_is_refused_with_the_reason(&lab.env, &mut git).await?;
    a_pool_in_use_is_not_pruned(&lab.env, &mut git).await?;
    lab.kubelet.check()
}

/// Name and resourceVersion of all that is committed, and the generation of what has a status: that is not Git's.
async fn versions(env: &Environment) -> Result<String> {
    let columns = "--output=custom-columns=K:.kind,N:.metadata.name,V:.metadata.resourceVersion";
    let objects = env.plane.kubectl(&["get", KINDS, columns, "--no-headers"]).await?;
    let own = ["get", OWN_KINDS, "--namespace", NAMESPACE, columns, "--no-headers"];
    let own = env.plane.kubectl(&own).await?;
    let generation = "--output=custom-columns=K:.kind,N:.metadata.name,V:.metadata.generation";
    let with_status = ["get", "orphansweeps,deployments", "--namespace", NAMESPACE, generation, "--no-headers"];
    let with_status = env.plane.kubectl(&with_status).await?;
    // Written while it works.
    let is_own_state = |line: &&str| line.contains("napkeeper-facts") || line.contains("napkeeper-webhook-");
    let all = [objects, own, with_status].join("\n");
    Ok(all.lines().filter(|line| !is_own_state(line)).collect::<Vec<_>>().join("\n"))
}

/// Nothing that napkeeper writes in an hour is a difference to Flux, and nothing that Flux applies again is a change.
async fn nothing_changes_by_syncing(env: &mut Environment, git: &mut Commits) -> Result<()> {
    let before = versions(env).await?;
    for name in ["general-purpose", "napkeeper-pause", "Deployment"] {
        ensure!(before.contains(name), "{before}");
    }
    for _ in 0..SYNCS {
        let last_run = sweep_status(env).await?["lastRun"].clone();
        env.jump(INTERVAL)?;
        let swept = async || Ok((sweep_status(env).await?["lastRun"] != last_run).then_some(()));
        eventually("run of the OrphanSweep", STEP, swept).await?;
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
    let bad = bad_pool("bad")?;
    let refused = git.commit(env, &json!({}), &format!("{}\n---\n{bad}", pools()?)).await?;
    let message = refused["message"].as_str().unwrap_or_default();
    ensure!(refused["status"] == "False" && message.contains("NodePool/bad dry-run failed"), "{refused}");
    ensure!(message.contains("napkeeper") && message.contains("99 8 * * *"), "{message}");
    let events = env.plane.kubectl(&["get", "events", "--output=jsonpath={.items[*].message}"]).await?;
    ensure!(events.contains("99 8 * * *"), "{events}");
    ensure!(!env.plane.kubectl(&["get", "nodepools", "--output=name"]).await?.contains("/bad"));
    Ok(())
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
