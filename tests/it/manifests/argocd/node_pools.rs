//! The health of NodePools and AKSNodeClasses in each state that napkeeper decides.

use super::node_claims::{after, drifted, now, offering, steps};
use super::{Health, expect, health_of};
use anyhow::{Context, Result, ensure};
use napkeeper_api::convert;
use napkeeper_core::disruption::{DriftDetector, ReplacementCause};
use napkeeper_core::engine::decide::{Memory, decide};
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::cluster::claim::{Claim, PlannedOffering};
use napkeeper_core::model::cluster::launch_hold::LaunchHold;
use napkeeper_core::model::cluster::pool::{NodeClass, NodePool};
use napkeeper_core::model::cluster::replacement::Replacement;
use napkeeper_core::model::cluster::status::{
    ConditionType, Conditions, InvalidClass, InvalidPool, PoolDeletion, PoolStatus, StatusCondition,
};
use napkeeper_core::model::names::{NodePoolName, Uid};
use napkeeper_core::plan::Command;
use napkeeper_core::snapshot::Snapshot;
use napkeeper_tests::fixtures::{class, empty_cluster, pool, settings};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What must be True or False in one of the states that are checked: a new condition needs its health.
type Seen = BTreeSet<(ConditionType, bool)>;

/// What has been decided about the NodePool `general` and the AKSNodeClass `default` of a cluster.
struct Cluster {
    pool: Value,
    class: Value,
    conditions: Conditions,
}

impl Cluster {
    /// Decides about a cluster in which both can be used, after changes to it.
    fn new(change: impl FnOnce(&mut Snapshot) -> Result<()>) -> Result<Self> {
        let mut snapshot = empty_cluster();
        change(&mut snapshot)?;
        let plan = decide(&snapshot, &mut Memory::default(), &settings(), now()?, 1);
        let mut decided = Self { pool: Value::Null, class: Value::Null, conditions: Conditions::default() };
        for planned in &plan.commands {
            match &planned.command {
                Command::ReportPool(report) => {
                    let status = convert::pool_status(None, &report.status, now()?);
                    let generation = report.status.conditions.observed_generation;
                    decided.pool = object("karpenter.sh/v1", "NodePool", generation, json!(status));
                    decided.conditions = report.status.conditions.clone();
                }
                Command::ReportClass(report) => {
                    let conditions = convert::merged_conditions(&[], &report.conditions, now()?);
                    let (version, status) = ("karpenter.azure.com/v1beta1", json!({ "conditions": conditions }));
                    decided.class = object(version, "AKSNodeClass", report.conditions.observed_generation, status);
                }
                _ => {}
            }
        }
        ensure!(decided.pool.is_object(), "nothing is to be written on the NodePool");
        Ok(decided)
    }

    /// Checks the health of the NodePool.
    fn expect(&self, seen: &mut Seen, status: &str, words: &str) -> Result<()> {
        seen.extend(self.conditions.by_type.iter().map(|(kind, condition)| (*kind, condition.holds)));
        expect(&self.pool, status, words)
    }
}

fn object(version: &str, kind: &str, generation: Option<i64>, status: Value) -> Value {
    json!({ "apiVersion": version, "kind": kind, "metadata": { "generation": generation }, "status": status })
}

fn general() -> Result<NodePoolName> {
    Ok(NodePoolName::new("general")?)
}

fn put_pool(snapshot: &mut Snapshot, change: impl FnOnce(&mut NodePool)) -> Result<()> {
    let mut pool = pool("general");
    change(&mut pool);
    snapshot.put_pool(general()?, pool);
    Ok(())
}

fn unsupported() -> NodeClass {
    NodeClass { unhonoured: vec![Arc::from("kubelet.cpuManagerPolicy")], generation: 5, ..class() }
}

/// A node that has drifted.
fn drifting(name: &str) -> Result<Claim> {
    let object = after(name, &[&steps(name)?[..], &[drifted()]].concat())?;
    Ok(convert::claim(&serde_json::from_value(object)?)?)
}

/// The conditions that are only there once they have been False, with this status.
fn known(holds: bool) -> PoolStatus {
    use ConditionType::{LaunchesAllowed, NodeRegistrationHealthy, ReplacementsEffective};
    let condition = StatusCondition { holds, reason: Arc::from("Known"), message: Arc::from("the last 2 nodes") };
    let by_type =
        [LaunchesAllowed, NodeRegistrationHealthy, ReplacementsEffective].map(|kind| (kind, condition.clone()));
    let conditions = Conditions { by_type: by_type.into(), observed_generation: Some(1) };
    PoolStatus { conditions, ..PoolStatus::default() }
}

fn unusable_pools(seen: &mut Seen) -> Result<()> {
    let name = class().name;
    let refused = Cluster::new(|snapshot| {
        snapshot.put_class(name.clone(), unsupported());
        Ok(())
    })?;
    refused.expect(seen, "Degraded", "NodeClassReady: AKSNodeClass default: spec.kubelet.cpuManagerPolicy")?;
    expect(&refused.class, "Degraded", "ValidationSucceeded: spec.kubelet.cpuManagerPolicy")?;
    let missing = Cluster::new(|snapshot| {
        snapshot.remove_class(&name);
        Ok(())
    })?;
    missing.expect(seen, "Degraded", "AKSNodeClass default does not exist")?;
    let invalid = Cluster::new(|snapshot| {
        let (name, uid) = (general()?, Uid::new("general")?);
        let (reason, status) = (Arc::from("spec.weight: must be 1 to 100"), PoolStatus::default());
        let deletion = PoolDeletion::default();
        snapshot.put_invalid_pool(InvalidPool { name, uid, generation: 2, reason, status, deletion });
        Ok(())
    })?;
    invalid.expect(seen, "Degraded", "ValidationSucceeded: spec.weight: must be 1 to 100")
}

fn held_pools(seen: &mut Seen) -> Result<()> {
    let held = Cluster::new(|snapshot| {
        snapshot.launch_hold = Some(LaunchHold::NoAgentNode { group: settings().cluster.node_resource_group });
        Ok(())
    })?;
    held.expect(seen, "Degraded", "LaunchesAllowed: ")?;
    let failing = Cluster::new(|snapshot| put_pool(snapshot, |pool| pool.status = known(false)))?;
    failing.expect(seen, "Degraded", "NodeRegistrationHealthy: the last 2 nodes did not come up")?;
    let recovered = Cluster::new(|snapshot| put_pool(snapshot, |pool| pool.status = known(true)))?;
    recovered.expect(seen, "Healthy", "")
}

fn rolling_pools(seen: &mut Seen) -> Result<()> {
    let rolling = Cluster::new(|snapshot| {
        snapshot.put_claim(drifting("general-a")?);
        Ok(())
    })?;
    rolling.expect(seen, "Healthy", "NodesUpToDate: 1 of 1 nodes is drifted")?;
    let looping = Cluster::new(|snapshot| {
        put_pool(snapshot, |pool| drop(pool.labels.insert("team".into(), "a".into())))?;
        let pool = snapshot.pools().get(&general()?).context("the NodePool")?.clone();
        let mut claim = drifting("general-a")?;
        let drift = DriftDetector::new(&pool, snapshot, now()?).drift_of(&claim).context("no drift")?;
        let cause = ReplacementCause::Drift(drift).recurring(&pool).context("no cause")?;
        claim.spec.replacement = Some(Replacement::new(cause, 3));
        // One that napkeeper has planned.
        claim.spec.planned = vec![PlannedOffering { key: offering()?, price: HourlyPrice::ZERO }];
        snapshot.put_claim(claim);
        Ok(())
    })?;
    looping.expect(seen, "Healthy", "ReplacementsEffective: 3 replacements in a row")?;
    let mut deleted = Cluster::new(|snapshot| {
        snapshot.put_claim(drifting("general-a")?);
        let requested_at = Some(now()?);
        put_pool(snapshot, |pool| {
            pool.deletion = PoolDeletion { requested_at, has_finalizer: true, keeps_nodes: false };
        })
    })?;
    deleted.pool["metadata"]["deletionTimestamp"] = json!(now()?.to_string());
    deleted.expect(seen, "Progressing", "NodesRemoved: 1 node is left")
}

#[test]
fn a_node_pool_is_degraded_only_where_nothing_is_launched_for_it() -> Result<()> {
    let mut seen = Seen::new();
    let usable = Cluster::new(|_| Ok(()))?;
    usable.expect(&mut seen, "Healthy", "")?;
    ensure!(health_of(&usable.pool)? == Health { status: "Healthy".into(), message: String::new() });
    expect(&usable.class, "Healthy", "")?;
    unusable_pools(&mut seen)?;
    held_pools(&mut seen)?;
    rolling_pools(&mut seen)?;
    // It is gone when they are.
    let mut all: Seen = ConditionType::ALL.into_iter().flat_map(|kind| [(kind, true), (kind, false)]).collect();
    all.remove(&(ConditionType::NodesRemoved, true));
    let missing: Vec<_> = all.difference(&seen).collect();
    ensure!(missing.is_empty(), "the health of these is not checked: {missing:?}");
    Ok(())
}

#[test]
fn an_aks_node_class_that_cannot_be_used_is_degraded() -> Result<()> {
    let invalid = Cluster::new(|snapshot| {
        let (name, uid, reason) =
            (class().name, Uid::new("class")?, Arc::from("spec.osDiskSizeGB: must be 30 to 2048"));
        let status = Conditions::default();
        snapshot.put_invalid_class(InvalidClass { name, uid, generation: 6, reason, status, deletion: () });
        Ok(())
    })?;
    expect(&invalid.class, "Degraded", "ValidationSucceeded: spec.osDiskSizeGB")?;
    expect(&invalid.pool, "Degraded", "spec.osDiskSizeGB")
}

/// Right after a commit the status is still about the version before.
#[test]
fn a_status_about_an_earlier_version_says_nothing() -> Result<()> {
    let refused = Cluster::new(|snapshot| {
        snapshot.put_class(class().name, unsupported());
        Ok(())
    })?;
    let failing = Cluster::new(|snapshot| put_pool(snapshot, |pool| pool.status = known(false)))?;
    let usable = Cluster::new(|_| Ok(()))?;
    for object in [refused.pool, refused.class, failing.pool, usable.pool, usable.class] {
        let mut changed = object.clone();
        changed["metadata"]["generation"] = json!(7);
        expect(&changed, "Progressing", "Waiting for the controller to check this version")?;
        // A condition without it is about any version.
        for condition in changed["status"]["conditions"].as_array_mut().context("conditions")? {
            condition["observedGeneration"] = Value::Null;
        }
        ensure!(health_of(&changed)? == health_of(&object)?, "{object}");
    }
    Ok(())
}
