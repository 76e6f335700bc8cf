//! Nodes that have drifted, or expire soon: replaced within the budgets of their NodePool.

use super::{STEP, WEB, World};
use super::{WEB_BUDGET, all_replaced, all_stay, events, names_of, rollout};
use anyhow::{Context, Result, ensure};
use jiff::SignedDuration;
use napkeeper_tests::environment::Environment;
use napkeeper_tests::wait::eventually;
use serde_json::{Value, json};

/// Another version of the image of the configuration.
const IMAGE: &str = "/CommunityGalleries/AKSUbuntu-38d80f77/images/2204gen2containerd/versions/202612.1.0";

pub(super) async fn a_label_rolls_within_the_budget(world: &mut World) -> Result<()> {
    let World { env, git, .. } = world;
    let before = names_of(env, "web").await?;
    ensure!(before.len() == WEB, "{before:?}");
    git.tier = "two";
    let synced = git.commit(env, "60s").await?;
    // A roll does not make a commit fail, nor wait.
    ensure!(synced["status"] == "True", "{synced}");
    let most = all_replaced(env, "web", &before).await?;
    ensure!(most == WEB_BUDGET, "{most} nodes went at once, {WEB_BUDGET} may");
    let told = events(env, "NodeClaim", "Drifted").await?;
    let field = "spec.template.metadata.labels[tier]";
    ensure!(told.iter().any(|message| message.contains(field) && message.contains("two")), "{told:?}");
    env.plane.kubectl(&["wait", "--for=condition=NodesUpToDate", "nodepool/web", "--timeout=60s"]).await?;
    let labelled =
        env.plane.kubectl(&["get", "nodes", "--selector=tier=two,karpenter.sh/nodepool=web", "--output=name"]);
    ensure!(labelled.await?.lines().count() == WEB, "the nodes lack the label");
    Ok(())
}

/// The window is the day after tomorrow. The other NodePools follow their own budgets then, so only `web` is looked at.
pub(super) async fn an_image_waits_for_its_window(world: &mut World) -> Result<()> {
    let World { env, controller, .. } = world;
    let day = (env.now() + SignedDuration::from_hours(48)).to_zoned(jiff::tz::TimeZone::UTC);
    let window = json!({ "nodeImage": {
        "schedule": { "weekly": { "intervalWeeks": 1, "dayOfWeek": day.strftime("%A").to_string() } },
        "startTime": format!("{:02}:00", day.hour()), "durationHours": 8,
    } });
    env.configure(|cluster| {
        cluster["nodes"]["image"] = Value::from(IMAGE);
        cluster["maintenanceWindows"] = window;
    })?;
    let before = names_of(env, "web").await?;
    controller.terminate()?;
    controller.exited(STEP).await?;
    *controller = env.controller()?;
    let all = format!("{WEB} of {WEB} nodes are drifted, 0 up to date; {WEB} wait for the maintenance window until ");
    let told = async || Ok(rollout(env, "web").await?.filter(|message| message.starts_with(&all)));
    eventually(&all, STEP, told).await?;
    all_stay(env, "web", &before).await?;

    env.jump(SignedDuration::from_hours(49))?;
    let most = all_replaced(env, "web", &before).await?;
    ensure!(most <= WEB_BUDGET, "{most} nodes went at once, {WEB_BUDGET} may");
    Ok(())
}

/// All nodes are a few minutes old, and are replaced in the last tenth of their 192 hours.
pub(super) async fn nodes_of_one_age_expire_within_the_budget(env: &mut Environment) -> Result<()> {
    let before = names_of(env, "web").await?;
    env.jump(SignedDuration::from_hours(160))?;
    all_stay(env, "web", &before).await.context("before the last tenth")?;
    env.jump(SignedDuration::from_hours(20))?;
    let most = all_replaced(env, "web", &before).await?;
    ensure!(most <= WEB_BUDGET, "{most} nodes went at once, {WEB_BUDGET} may");
    Ok(())
}
