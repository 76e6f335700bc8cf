//! Families whose load changes in different ways; nodes are bought on demand.

use crate::world::{Load, WorldBuilder, minutes};
use anyhow::Result;
use napkeeper_core::model::amounts::resources::Resources;

/// Load follows the hours of the day.
pub(super) fn diurnal(builder: &mut WorldBuilder) -> Result<()> {
    builder.pool("general", 0, &["on-demand"])?;
    let loads = builder.deployments(20)?;
    builder.follow_the_day(&loads, minutes(30), 3);
    Ok(())
}

/// The autoscaler of half of the pods changes its mind every five minutes.
pub(super) fn hpa_noise(builder: &mut WorldBuilder) -> Result<()> {
    builder.pool("general", 0, &["on-demand"])?;
    let loads = builder.deployments(20)?;
    let (noisy, steady) = loads.split_at(10);
    builder.follow_the_day(noisy, minutes(5), 15);
    builder.follow_the_day(steady, minutes(60), 3);
    Ok(())
}

/// Every Deployment is rolled out four times a day.
pub(super) fn rollouts(builder: &mut WorldBuilder) -> Result<()> {
    builder.pool("general", 0, &["on-demand"])?;
    let loads = builder.deployments(18)?;
    builder.follow_the_day(&loads, minutes(60), 3);
    for load in &loads {
        for rollout in 0..4 * builder.days() {
            let after = builder.minute_of_day(rollout / 4);
            builder.roll_out(after, load, None);
        }
    }
    Ok(())
}

/// Twice a day a random half of the load goes, and comes back five hours later.
pub(super) fn half_scaled_away(builder: &mut WorldBuilder) -> Result<()> {
    builder.pool("general", 0, &["on-demand"])?;
    let loads = builder.deployments(20)?;
    for half_day in 0..2 * builder.days() {
        let drop = minutes(half_day * 12 * 60 + 120 + i64::from(builder.between(0, 120)));
        let back = drop + minutes(300);
        for load in &loads {
            if builder.between(0, 1) == 0 {
                let left = load.replicas * builder.between(0, 20) / 100;
                builder.scale(drop, load, left);
                builder.scale(back, load, load.replicas);
            }
        }
        builder.world.drops.push((drop, back));
    }
    Ok(())
}

/// Every half hour the requests of a Deployment change, which rolls it out.
pub(super) fn requests_patched(builder: &mut WorldBuilder) -> Result<()> {
    builder.pool("general", 0, &["on-demand"])?;
    let loads = builder.deployments(20)?;
    builder.follow_the_day(&loads, minutes(120), 3);
    for half_hour in 1..48 * builder.days() {
        let index = usize::try_from(builder.between(0, 19))?;
        let Some(load) = loads.get(index) else { continue };
        let requests = changed(builder, load);
        builder.roll_out(minutes(half_hour * 30), load, Some(requests));
    }
    Ok(())
}

/// From 60 to 140 % of the first requests, to a hundredth of a core and a MiB; but no more memory than the largest nodes have
/// for a pod.
fn changed(builder: &mut WorldBuilder, load: &Load) -> Resources {
    let percent = i64::from(builder.between(60, 140));
    let cpu_millis = (load.requests.cpu_millis * percent / 1_000 * 10).max(10);
    let memory = ((load.requests.memory * percent / 100) >> 20 << 20).min(24 << 30);
    Resources { cpu_millis, memory, ..load.requests.clone() }
}
