//! What a real API server answers to evictions and deletions of pods, and what the writer makes of it.
//!
//! No controller counts PodDisruptionBudgets here: the test writes their status.

use anyhow::{Context, Result, ensure};
use futures::future::join_all;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use napkeeper_core::model::errors::{ClusterError, EffectError};
use napkeeper_core::model::names::{Namespace, ObjectKey, ObjectName, Uid};
use napkeeper_core::plan::{ClusterWrite, Reply};
use napkeeper_kube::Writer;
use napkeeper_tests::clock::SystemClock;
use napkeeper_tests::control_plane::{ControlPlane, Identity, Mode};
use napkeeper_tests::wait::eventually;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

/// The list of a PodDisruptionBudget's disrupted pods is full beyond so many
/// (kubernetes `pkg/registry/core/pod/storage/eviction.go`).
const MAX_DISRUPTED_PODS: usize = 2000;

struct Lab {
    plane: ControlPlane,
    writer: Writer,
    pods: Api<Pod>,
}

impl Lab {
    async fn start() -> Result<Self> {
        drop(rustls::crypto::ring::default_provider().install_default());
        let plane = ControlPlane::start(Mode::Api).await?;
        let client = napkeeper_kube::connect(Some(&plane.admin_kubeconfig())).await?;
        let writer = Writer::new(client.clone(), Arc::new(SystemClock));
        Ok(Self { plane, writer, pods: Api::namespaced(client, "default") })
    }

    /// Creates a pod of this app that runs, ready or not, and returns its UID.
    async fn pod(&self, name: &str, app: &str, is_ready: bool) -> Result<Uid> {
        self.plane
            .apply(&format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{app: {app}}}}}\nspec:\n  nodeName: node-1\n  \
                 automountServiceAccountToken: false\n  terminationGracePeriodSeconds: 40\n  containers: [{{name: c, \
                 image: i}}]\n"
            ))
            .await?;
        let ready = if is_ready { "True" } else { "False" };
        let status = json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": ready }] });
        let patch = Patch::Strategic(json!({ "status": status }));
        let pod = self.pods.patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(Uid::new(pod.metadata.uid.context("it has a UID")?)?)
    }

    /// Creates a PodDisruptionBudget of this app; with a status as if it had been counted.
    async fn budget(&self, name: &str, app: &str, policy: &str, status: Option<Value>) -> Result<()> {
        self.plane
            .apply(&format!(
                "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {{name: {name}}}\nspec: {{minAvailable: 1, \
                 unhealthyPodEvictionPolicy: {policy}, selector: {{matchLabels: {{app: {app}}}}}}}\n"
            ))
            .await?;
        let Some(status) = status else { return Ok(()) };
        let patch = json!({ "status": status }).to_string();
        let args = ["patch", "pdb", name, "--subresource=status", "--type=merge", "--patch", &patch];
        self.plane.kubectl(&args).await.map(drop)
    }

    async fn evict(&self, name: &str, uid: &Uid) -> Result<Reply, EffectError> {
        self.writer.perform(&ClusterWrite::Evict(key(name), uid.clone())).await
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey { namespace: Namespace::new("default").unwrap(), name: ObjectName::new(name).unwrap() }
}

fn refused(error: ClusterError) -> Result<Reply, EffectError> {
    Err(EffectError::Cluster(error))
}

/// The status of a PodDisruptionBudget of one pod.
fn counted(allowed: u32, healthy: u32) -> Value {
    json!({ "observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": healthy, "desiredHealthy": 1,
        "expectedPods": 1 })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn budgets_refuse_evictions_each_in_its_way() -> Result<()> {
    let lab = Lab::start().await?;
    let full: serde_json::Map<String, Value> =
        (0..=MAX_DISRUPTED_PODS).map(|n| (format!("p{n}"), json!("2026-01-01T00:00:00Z"))).collect();
    let mut full_status = counted(1, 1);
    full_status["disruptedPods"] = Value::Object(full);
    let refusal = |retry_after| refused(ClusterError::Budget { retry_after });
    // App, ready, policy, status of its PodDisruptionBudget, answer.
    let table = [
        ("none-allowed", true, "IfHealthyBudget", Some(counted(0, 1)), refusal(0)),
        ("not-counted", true, "IfHealthyBudget", None, refusal(10)),
        ("list-full", true, "IfHealthyBudget", Some(full_status), refusal(0)),
        ("allowed", true, "IfHealthyBudget", Some(counted(1, 2)), Ok(Reply::Done)),
        ("unready-of-healthy", false, "IfHealthyBudget", Some(counted(0, 1)), Ok(Reply::Done)),
        ("unready-of-unhealthy", false, "IfHealthyBudget", Some(counted(0, 0)), refusal(0)),
        ("unready-always", false, "AlwaysAllow", Some(counted(0, 0)), Ok(Reply::Done)),
        ("ready-always", true, "AlwaysAllow", Some(counted(0, 1)), refusal(0)),
    ];
    let mut wrong = String::new();
    for (app, is_ready, policy, status, expected) in table {
        let uid = lab.pod(app, app, is_ready).await?;
        lab.budget(app, app, policy, status).await?;
        let answer = lab.evict(app, &uid).await;
        if answer != expected {
            writeln!(wrong, "{app}: {answer:?} instead of {expected:?}")?;
        }
    }
    ensure!(wrong.is_empty(), "{wrong}");
    let uid = lab.pod("twice", "twice", true).await?;
    for name in ["twice-a", "twice-b"] {
        lab.budget(name, "twice", "IfHealthyBudget", Some(counted(1, 2))).await?;
    }
    ensure!(lab.evict("twice", &uid).await == refused(ClusterError::SeveralBudgets));
    let grace = SignedDuration::from_secs(7);
    let other = Uid::new("other")?;
    let delete = |uid: &Uid| ClusterWrite::DeletePod(key("twice"), uid.clone(), grace);
    ensure!(lab.writer.perform(&delete(&other)).await == refused(ClusterError::Conflict));
    ensure!(lab.writer.perform(&delete(&uid)).await == Ok(Reply::Done), "past all budgets");
    let leaving = lab.pods.get("twice").await?.metadata;
    ensure!(leaving.deletion_grace_period_seconds == Some(7), "{leaving:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_without_a_controller_leave_and_what_has_left_is_told_apart() -> Result<()> {
    let lab = Lab::start().await?;
    let uid = lab.pod("bare", "bare", true).await?;
    ensure!(lab.evict("bare", &Uid::new("other")?).await == refused(ClusterError::Conflict), "another incarnation");
    ensure!(lab.evict("bare", &uid).await == Ok(Reply::Done));
    let leaving = lab.pods.get("bare").await?.metadata;
    ensure!(leaving.deletion_grace_period_seconds == Some(40), "no kubelet ends it: {leaving:?}");
    ensure!(lab.evict("gone", &uid).await == refused(ClusterError::NotFound));
    ensure!(
        lab.writer.perform(&ClusterWrite::DeletePod(key("gone"), uid, SignedDuration::from_secs(1))).await
            == refused(ClusterError::NotFound)
    );
    Ok(())
}

/// Denies every eviction of some pods.
const DENIAL: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-evictions}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods/eviction]}
  validations: [{expression: "!request.name.startsWith('guarded')", message: "guarded pods stay"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-evictions}
spec: {policyName: no-evictions, validationActions: [Deny]}
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denial_by_a_policy_is_no_missing_right() -> Result<()> {
    let lab = Lab::start().await?;
    lab.plane.apply(DENIAL).await?;
    let mut tried = 0;
    // The policy is in force some time after it is created: until then each attempt evicts its pod.
    let denied = async || {
        tried += 1;
        let name = format!("guarded-{tried}");
        let uid = lab.pod(&name, "guarded", true).await?;
        Ok((lab.evict(&name, &uid).await == refused(ClusterError::Denied)).then_some((name, uid)))
    };
    let (name, uid) = eventually("denied eviction", Duration::from_secs(60), denied).await?;
    ensure!(lab.pods.get(&name).await?.metadata.deletion_timestamp.is_none());
    let nobody = lab.plane.kubeconfig(&Identity::user("nobody"))?;
    let writer = Writer::new(napkeeper_kube::connect(Some(&nobody)).await?, Arc::new(SystemClock));
    let answer = writer.perform(&ClusterWrite::DeletePod(key(&name), uid, SignedDuration::from_secs(1))).await;
    ensure!(answer == refused(ClusterError::Forbidden), "{answer:?}");
    Ok(())
}

/// Requests of this user that are sent side by side.
const PARALLEL: usize = 50;

/// Of the requests of this user one at a time is served.
const OVERLOAD: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: busy}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: busy}]
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: closed}
spec:
  type: Limited
  limited: {nominalConcurrencyShares: 0, lendablePercent: 0, borrowingLimitPercent: 0, limitResponse: {type: Reject}}
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: closed}
spec:
  matchingPrecedence: 10
  priorityLevelConfiguration: {name: closed}
  rules:
    - subjects: [{kind: User, user: {name: busy}}]
      resourceRules:
        - {verbs: ["*"], apiGroups: ["*"], resources: ["*"], namespaces: ["*"], clusterScope: true}
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overloaded_api_server_is_no_budget() -> Result<()> {
    let lab = Lab::start().await?;
    let uid = lab.pod("web", "web", true).await?;
    let busy = lab.plane.kubeconfig(&Identity::user("busy"))?;
    let writer = Writer::new(napkeeper_kube::connect(Some(&busy)).await?, Arc::new(SystemClock));
    lab.plane.apply(OVERLOAD).await?;
    // Of another incarnation, so that nothing is evicted. A request that is alone is served all the same.
    let evict = ClusterWrite::Evict(key("web"), Uid::new("other")?);
    let overloaded = refused(ClusterError::Overloaded { retry_after: 1 });
    let closed = async || {
        let answers = join_all((0..PARALLEL).map(|_| writer.perform(&evict))).await;
        let others: Vec<_> = answers.iter().filter(|answer| **answer != overloaded).collect();
        ensure!(others.iter().all(|answer| **answer == refused(ClusterError::Conflict)), "{others:?}");
        Ok((others.len() < answers.len()).then_some(()))
    };
    eventually("limit in force", Duration::from_secs(60), closed).await?;
    ensure!(lab.evict("web", &uid).await == Ok(Reply::Done), "others are served");
    Ok(())
}
