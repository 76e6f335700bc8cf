//! Takes the steps, and waits after each until what it deletes is gone.

use super::cluster::{Cluster, Object};
use super::ours::{CONTROLLER, KUBE_SYSTEM, LEASE, POD, PODS};
use super::report::TakenStep;
use super::steps::{Action, Removal, Step};
use crate::output::printable;
use anyhow::bail;
use kube::ResourceExt;
use kube::api::DynamicObject;
use napkeeper_core::engine::leader_election::LEASE_DURATION;
use std::io::Write;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How often it is asked whether something is gone.
const POLL: Duration = Duration::from_millis(500);
/// How often it is said what is waited for.
const REMIND: Duration = Duration::from_secs(30);

/// How long steps wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// For nodes to be drained.
    pub(super) drain: Duration,
    /// For anything else.
    pub(super) other: Duration,
}

/// What was done, and why not all of it.
pub(super) struct Applied {
    pub(super) steps: Vec<TakenStep>,
    /// What was still there when the wait was over. The steps after it were not taken.
    pub(super) stopped: Option<String>,
}

/// Takes all steps in their order, until one does not end in time.
///
/// # Errors
/// What could not be read or changed. Steps before it have been taken; all may be repeated.
pub(super) async fn apply(removal: &Removal, patience: Patience) -> anyhow::Result<Applied> {
    let mut steps = Vec::new();
    for step in Step::ALL {
        let actions = removal.actions(step).await?;
        if step == Step::Drain && !actions.is_empty() && !controller_runs(&removal.cluster).await? {
            bail!(
                "--drain needs a running controller, and none renews the Lease {KUBE_SYSTEM}/{CONTROLLER}; \
                 start it, or run without --drain, which keeps the nodes"
            );
        }
        if !actions.is_empty() {
            progress(step.title());
        }
        for action in &actions {
            take(removal, action).await?;
            progress(&format!("  {}", action.describe()));
        }
        let limit = if step == Step::Drain { patience.drain } else { patience.other };
        let rest = wait(removal, step, &actions, limit).await?;
        steps.push(TakenStep::new(step, actions));
        if !rest.is_empty() {
            let stopped = format!("after {} s still there: {}", limit.as_secs(), rest.join(", "));
            return Ok(Applied { steps, stopped: Some(stopped) });
        }
    }
    Ok(Applied { steps, stopped: None })
}

async fn take(removal: &Removal, action: &Action) -> anyhow::Result<()> {
    match action {
        Action::Delete { object } => removal.cluster.delete(object).await,
        Action::DeleteAcknowledged { object, .. } => removal.cluster.delete_acknowledged(object).await,
        Action::RemoveFinalizer { object, finalizer } => removal.cluster.remove_finalizer(object, finalizer).await,
    }
}

/// Waits for the end of a step; what is left of it when the time is over.
async fn wait(removal: &Removal, step: Step, actions: &[Action], limit: Duration) -> anyhow::Result<Vec<String>> {
    let deleted = actions.iter().filter(|action| !matches!(action, Action::RemoveFinalizer { .. }));
    let mut waiting: Vec<&Object> = deleted.map(Action::object).collect();
    let (start, mut said) = (Instant::now(), Instant::now());
    loop {
        let mut rest = Vec::new();
        let mut still = Vec::new();
        for object in waiting {
            if removal.cluster.exists(object).await? {
                rest.push(object.to_string());
                still.push(object);
            }
        }
        waiting = still;
        if step == Step::Workloads && rest.is_empty() {
            rest = running(&removal.cluster).await?;
        }
        if rest.is_empty() || start.elapsed() >= limit {
            return Ok(rest);
        }
        if said.elapsed() >= REMIND {
            progress(&format!("  waiting for {}", rest.join(", ")));
            said = Instant::now();
        }
        sleep(POLL).await;
    }
}

/// What still runs of napkeeper: it would put finalizers back.
async fn running(cluster: &Cluster) -> anyhow::Result<Vec<String>> {
    let pods = cluster.select(POD, Some(&cluster.namespace), PODS).await?;
    if !pods.is_empty() {
        return Ok(pods.iter().map(ToString::to_string).collect());
    }
    let still =
        "a controller that renews the Lease kube-system/napkeeper-controller, which is not one of this namespace";
    Ok(if controller_runs(cluster).await? { vec![still.to_owned()] } else { Vec::new() })
}

/// True if a controller holds its Lease: it renews it while this looks at it. No clocks are compared.
async fn controller_runs(cluster: &Cluster) -> anyhow::Result<bool> {
    let lease = async || cluster.get(LEASE, Some(KUBE_SYSTEM), CONTROLLER).await;
    let is_held =
        |lease: &DynamicObject| lease.data["spec"]["holderIdentity"].as_str().is_some_and(|id| !id.is_empty());
    let Some(first) = lease().await?.filter(is_held) else { return Ok(false) };
    let (start, within) = (Instant::now(), Duration::try_from(LEASE_DURATION).unwrap_or_default());
    while start.elapsed() < within {
        sleep(POLL).await;
        match lease().await?.filter(is_held) {
            None => return Ok(false),
            Some(now) if now.resource_version() != first.resource_version() => return Ok(true),
            Some(_) => {}
        }
    }
    Ok(false)
}

/// Says on stderr what is done. That it cannot be written is ignored.
fn progress(line: &str) {
    drop(writeln!(anstream::stderr(), "{}", printable(line)));
}
