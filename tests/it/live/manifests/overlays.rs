//! The overlays of kustomize apply, and give no more rights than their mode has.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::api::{Api, PostParams};
use napkeeper_api::yaml;
use napkeeper_tests::control_plane::{
    ControlPlane, Mode, Process, Program, kustomize, napkeeper_binary, upstream_crds,
};
use napkeeper_tests::manifests::repository;
use serde_json::{Value, json};
use std::time::Duration;

/// Groups that AKS owns beside managed NAP.
const KARPENTER: [&str; 2] = ["karpenter.sh", "karpenter.azure.com"];
const READS: [&str; 3] = ["get", "list", "watch"];

async fn overlay(name: &str) -> Result<String> {
    kustomize(&repository("kustomize/overlays").join(name)).await
}

/// All objects of an overlay.
fn objects(text: &str) -> Result<Vec<Value>> {
    let read = yaml::read("overlay", text);
    ensure!(read.problems.is_empty(), "{:?}", read.problems);
    read.documents.iter().map(|document| serde_json::to_value(&document.value).context("reading an object")).collect()
}

fn strings(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// What an overlay has of Karpenter's that only its owner may have: definitions, and rights to write.
fn ownership(objects: &[Value]) -> Vec<String> {
    let mut found = Vec::new();
    for object in objects {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        if object["kind"] == "CustomResourceDefinition"
            && KARPENTER.iter().any(|group| object["spec"]["group"] == *group)
        {
            found.push(format!("definition {name}"));
        }
        for rule in object["rules"].as_array().into_iter().flatten() {
            let is_karpenter =
                strings(&rule["apiGroups"]).iter().any(|group| *group == "*" || KARPENTER.contains(group));
            let writes = strings(&rule["verbs"]).iter().any(|verb| !READS.contains(verb));
            if is_karpenter && writes {
                found.push(format!("{name} may {} {}", rule["verbs"], rule["resources"]));
            }
        }
    }
    found
}

/// Whether a ServiceAccount of ours may do something to all objects of a resource, or with `resource=name`, to that one
/// object, in its own namespace if it is in one.
async fn may(plane: &ControlPlane, who: &str, verb: &str, resource: (&str, &str)) -> Result<bool> {
    let (group, resource) = resource;
    let (resource, name) = resource.split_once('=').unwrap_or((resource, ""));
    let (resource, sub) = resource.split_once('/').unwrap_or((resource, ""));
    let namespace = if name.is_empty() { "" } else { "napkeeper-system" };
    let review = serde_json::from_value(json!({
        "metadata": {},
        "spec": {
            "user": format!("system:serviceaccount:napkeeper-system:napkeeper-{who}"),
            "resourceAttributes": {
                "verb": verb, "group": group, "resource": resource, "subresource": sub,
                "name": name, "namespace": namespace,
            },
        },
    }))?;
    let reviews = Api::<SubjectAccessReview>::all(plane.client().await?);
    let review = reviews.create(&PostParams::default(), &review).await?;
    Ok(review.status.context("an access review without an answer")?.allowed)
}

async fn rights(plane: &ControlPlane, table: &[(&str, &str, (&str, &str), bool)]) -> Result<()> {
    for (who, verb, resource, expected) in table {
        let allowed = may(plane, who, verb, *resource).await?;
        ensure!(allowed == *expected, "may the {who} {verb} {resource:?}? {allowed}");
    }
    Ok(())
}

#[tokio::test]
async fn the_companion_installs_beside_upstream_and_cannot_change_it() -> Result<()> {
    let plane = ControlPlane::start(Mode::Api).await?;
    plane.apply(&upstream_crds().await?).await?;
    plane.established().await?;
    let get_crds = ["get", "crd", "nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "--output=yaml"];
    let before = plane.kubectl(&get_crds).await?;

    let text = overlay("companion").await?;
    let owned = ownership(&objects(&text)?);
    ensure!(owned.is_empty(), "the companion owns: {owned:?}");
    plane.apply(&text).await?;
    plane.established().await?;
    ensure!(plane.kubectl(&get_crds).await? == before, "the companion changed a definition of upstream's");
    rights(
        &plane,
        &[
            ("controller", "watch", ("karpenter.sh", "nodeclaims"), true),
            ("controller", "patch", ("karpenter.sh", "nodeclaims"), false),
            ("controller", "patch", ("karpenter.sh", "nodepools"), false),
            ("controller", "patch", ("karpenter.sh", "nodepools/status"), false),
            ("controller", "patch", ("karpenter.azure.com", "aksnodeclasses/status"), false),
            ("controller", "patch", ("karpenter.sh", "nodeoverlays/status"), false),
            ("controller", "delete", ("", "nodes"), false),
            ("controller", "create", ("", "pods/eviction"), false),
            ("controller", "delete", ("", "pods"), false),
            ("controller", "patch", ("napkeeper.io", "orphansweeps/status"), true),
            ("controller", "patch", ("napkeeper.io", "orphansweeps"), false),
            ("controller", "update", ("napkeeper.io", "orphanrecords"), true),
            ("controller", "patch", ("napkeeper.io", "orphanrecords"), false),
            ("controller", "create", ("napkeeper.io", "noderecords"), false),
            ("controller", "list", ("policy", "poddisruptionbudgets"), false),
            ("controller", "list", ("", "secrets"), false),
        ],
    )
    .await?;
    super::argo_cd::the_companion_does_not_differ_from_git(&plane).await
}

#[tokio::test]
async fn the_provisioner_installs_on_an_empty_cluster_and_may_manage_nodes() -> Result<()> {
    let plane = ControlPlane::start(Mode::Api).await?;
    let text = overlay("provisioner").await?;
    ensure!(!ownership(&objects(&text)?).is_empty(), "somebody must own Karpenter's kinds here");
    for name in ["napkeeper-controller", "napkeeper-webhook"] {
        let (args, _) = container(&objects(&text)?, name)?;
        let is_mode = |pair: &[String]| pair[0] == "--mode" && pair[1] == "provisioner";
        ensure!(args.windows(2).any(is_mode), "{name} runs in another mode: {args:?}");
    }
    plane.apply(&text).await?;
    plane.established().await?;
    rights(
        &plane,
        &[
            ("controller", "create", ("karpenter.sh", "nodeclaims"), true),
            ("controller", "patch", ("karpenter.sh", "nodeclaims/status"), true),
            ("controller", "patch", ("karpenter.sh", "nodepools"), true),
            ("controller", "update", ("karpenter.sh", "nodepools"), false),
            ("controller", "delete", ("karpenter.sh", "nodepools"), false),
            ("controller", "patch", ("karpenter.sh", "nodepools/status"), true),
            ("controller", "patch", ("karpenter.azure.com", "aksnodeclasses/status"), true),
            ("controller", "patch", ("karpenter.sh", "nodeoverlays/status"), true),
            ("controller", "patch", ("karpenter.sh", "nodeoverlays"), false),
            ("controller", "patch", ("karpenter.azure.com", "aksnodeclasses"), false),
            ("controller", "patch", ("", "nodes"), true),
            ("controller", "create", ("napkeeper.io", "noderecords"), true),
            ("controller", "update", ("napkeeper.io", "noderecords"), true),
            ("controller", "delete", ("napkeeper.io", "noderecords"), false),
            ("controller", "create", ("", "pods/eviction"), true),
            ("controller", "watch", ("policy", "poddisruptionbudgets"), true),
            ("controller", "delete", ("", "pods"), true),
            ("controller", "patch", ("", "pods"), false),
            ("webhook", "watch", ("", "pods"), true),
            ("webhook", "watch", ("policy", "poddisruptionbudgets"), true),
            ("webhook", "patch", ("", "pods"), false),
            ("webhook", "create", ("karpenter.sh", "nodeclaims"), false),
            ("webhook", "get", ("", "secrets"), false),
            ("webhook", "create", ("", "secrets"), false),
            ("webhook", "patch", ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"), false),
            ("webhook", "update", ("coordination.k8s.io", "leases"), false),
        ],
    )
    .await
}

/// Who changes the webhook configurations may intercept every write to the cluster: not a process that has a listener.
#[tokio::test]
async fn only_the_process_without_a_listener_may_change_hooks_and_certificates() -> Result<()> {
    const HOOKS: &str = "admissionregistration.k8s.io";
    const LEASES: &str = "coordination.k8s.io";
    let plane = ControlPlane::start(Mode::Api).await?;
    plane.apply(&overlay("companion").await?).await?;
    let mut table = Vec::new();
    for kind in ["validatingwebhookconfigurations=napkeeper", "mutatingwebhookconfigurations=napkeeper"] {
        table.extend(["get", "patch", "update", "delete"].map(|verb| ("webhook", verb, (HOOKS, kind), false)));
        table.extend(["get", "patch"].map(|verb| ("certificates", verb, (HOOKS, kind), true)));
        table.extend(["update", "delete"].map(|verb| ("certificates", verb, (HOOKS, kind), false)));
    }
    table.push(("certificates", "patch", (HOOKS, "validatingwebhookconfigurations=other"), false));
    let (served, authority) = ("secrets=napkeeper-webhook-tls", "secrets=napkeeper-webhook-ca");
    table.extend([
        ("webhook", "get", ("", served), true),
        ("webhook", "update", ("", served), false),
        ("webhook", "patch", ("", served), false),
        ("webhook", "get", ("", authority), false),
        ("webhook", "update", ("", authority), false),
        ("webhook", "get", (LEASES, "leases=napkeeper-webhook"), false),
        ("webhook", "update", (LEASES, "leases=napkeeper-webhook"), false),
        ("webhook", "create", (LEASES, "leases=any"), false),
        ("controller", "get", ("", authority), false),
        ("certificates", "get", ("", served), true),
        ("certificates", "update", ("", served), true),
        ("certificates", "get", ("", authority), true),
        ("certificates", "update", ("", authority), true),
        ("certificates", "update", (LEASES, "leases=napkeeper-webhook"), true),
        ("certificates", "create", (LEASES, "leases=any"), true),
        ("certificates", "get", ("", "secrets=any"), false),
        ("certificates", "create", ("", "secrets=any"), false),
        ("certificates", "get", ("", "configmaps=napkeeper-facts"), false),
    ]);
    rights(&plane, &table).await
}

#[tokio::test]
async fn the_audit_installs_beside_either_and_may_change_nothing() -> Result<()> {
    let plane = ControlPlane::start(Mode::Api).await?;
    let text = overlay("audit").await?;
    let objects = objects(&text)?;
    ensure!(ownership(&objects).is_empty(), "the audit owns: {:?}", ownership(&objects));
    for rule in objects.iter().flat_map(|object| object["rules"].as_array().into_iter().flatten()) {
        ensure!(strings(&rule["verbs"]).iter().all(|verb| READS.contains(verb)), "the audit may write: {rule}");
    }
    plane.apply(&text).await?;
    rights(
        &plane,
        &[
            ("audit", "list", ("karpenter.sh", "nodeclaims"), true),
            ("audit", "list", ("", "nodes"), true),
            ("audit", "list", ("", "pods"), true),
            ("audit", "list", ("snapshot.storage.k8s.io", "volumesnapshotcontents"), true),
            ("audit", "list", ("napkeeper.io", "orphanrecords"), true),
            ("audit", "update", ("napkeeper.io", "orphanrecords"), false),
            ("audit", "list", ("", "secrets"), false),
            ("audit", "list", ("", "configmaps"), false),
            ("audit", "delete", ("", "persistentvolumes"), false),
        ],
    )
    .await?;
    let job = objects.iter().find(|o| o["kind"] == "CronJob").context("no CronJob")?;
    let pod = &job["spec"]["jobTemplate"]["spec"]["template"]["spec"];
    ensure!(pod["serviceAccountName"] == "napkeeper-audit", "{pod}");
    let mut args: Vec<String> = strings(&pod["containers"][0]["args"]).into_iter().map(ToOwned::to_owned).collect();
    // A mounted file that is not here is what it complains of: all arguments have been understood then.
    let file = "/etc/napkeeper/napkeeper.yaml";
    let error = complaint(&args).await?;
    ensure!(error.contains(file) && !error.contains("Usage"), "audit {args:?}: {error}");
    args.push("--no-such-flag".to_owned());
    let error = complaint(&args).await?;
    ensure!(error.contains("--no-such-flag") && !error.contains(file), "audit {args:?}: {error}");
    Ok(())
}

#[tokio::test]
async fn hooks_fail_open_and_leave_the_system_alone() -> Result<()> {
    let objects = objects(&overlay("companion").await?)?;
    let hooks: Vec<_> = objects.iter().flat_map(|object| object["webhooks"].as_array().into_iter().flatten()).collect();
    ensure!(hooks.len() == 2, "there are {} hooks", hooks.len());
    for hook in hooks {
        ensure!(hook["failurePolicy"] == "Ignore" && hook["sideEffects"] == "None", "{hook}");
        ensure!(hook["timeoutSeconds"].as_i64().is_some_and(|seconds| seconds <= 2), "{hook}");
        let excluded = &hook["namespaceSelector"]["matchExpressions"][0];
        ensure!(excluded["operator"] == "NotIn", "{hook}");
        for namespace in ["kube-system", "napkeeper-system"] {
            ensure!(strings(&excluded["values"]).contains(&namespace), "{hook}");
        }
    }
    Ok(())
}

/// The arguments of a Deployment's only container, and the ports that it names.
fn container(objects: &[Value], name: &str) -> Result<(Vec<String>, Vec<i64>)> {
    let deployment = objects.iter().find(|o| o["kind"] == "Deployment" && o["metadata"]["name"] == name);
    let container =
        &deployment.with_context(|| format!("no Deployment {name}"))?["spec"]["template"]["spec"]["containers"][0];
    let args = strings(&container["args"]).into_iter().map(ToOwned::to_owned).collect();
    let ports =
        container["ports"].as_array().into_iter().flatten().filter_map(|p| p["containerPort"].as_i64()).collect();
    Ok((args, ports))
}

/// Where a program that wants a cluster finds none.
const NO_KUBECONFIG: &str = "/no/such/kubeconfig";

/// An overlay with components.
pub(super) async fn with_components(name: &str, components: &[&str]) -> Result<Vec<Value>> {
    let folder = tempfile::tempdir()?;
    // Kustomize takes no absolute paths.
    let up = "../".repeat(folder.path().canonicalize()?.components().count() - 1);
    let path = |part: String| -> Result<String> {
        let whole = repository(&part).canonicalize()?;
        Ok(format!("{up}{}", whole.strip_prefix("/")?.display()))
    };
    let parts: Vec<_> =
        components.iter().map(|part| path(format!("kustomize/components/{part}"))).collect::<Result<_>>()?;
    let text = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": [path(format!("kustomize/overlays/{name}"))?], "components": parts,
    });
    std::fs::write(folder.path().join("kustomization.yaml"), text.to_string())?;
    objects(&kustomize(&folder.path().canonicalize()?).await?)
}

fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> Option<&'a Value> {
    objects.iter().find(|o| o["kind"] == kind && o["metadata"]["name"] == name)
}

/// A webhook must remain available during updates and drains.
fn survives(objects: &[Value]) -> Result<()> {
    let deployment = find(objects, "Deployment", "napkeeper-webhook").context("no Deployment")?;
    let pod = &deployment["spec"]["template"]["spec"];
    ensure!(deployment["spec"]["replicas"].as_i64() >= Some(2), "{deployment}");
    let selector = &deployment["spec"]["selector"];
    let budget = find(objects, "PodDisruptionBudget", "napkeeper-webhook").context("no PodDisruptionBudget")?;
    ensure!(budget["spec"]["minAvailable"] == 1 && &budget["spec"]["selector"] == selector, "{budget}");
    let spread = &pod["topologySpreadConstraints"][0];
    ensure!(spread["topologyKey"] == "kubernetes.io/hostname" && &spread["labelSelector"] == selector, "{spread}");
    ensure!(pod["priorityClassName"] == "system-cluster-critical", "{pod}");
    let waits = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"].as_i64().unwrap_or_default();
    let grace = pod["terminationGracePeriodSeconds"].as_i64().unwrap_or_default();
    ensure!(waits >= 5 && grace >= waits + 25, "it is killed {grace} s after being told, {waits} of which it waits");
    let terms = &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let managed = json!({ "key": "karpenter.sh/nodepool", "operator": "DoesNotExist" });
    let all = terms["nodeSelectorTerms"].as_array().context("no terms")?;
    let kept_off = |term: &Value| term["matchExpressions"].as_array().is_some_and(|all| all.contains(&managed));
    ensure!(!all.is_empty() && all.iter().all(kept_off), "it may run on nodes that are managed: {terms}");
    Ok(())
}

#[tokio::test]
async fn components_change_only_their_subject_and_the_webhook_starts_with_each() -> Result<()> {
    let hook = |objects: &[Value], kind: &str| -> Result<Value> {
        Ok(find(objects, &format!("{kind}WebhookConfiguration"), "napkeeper").context("no hook")?.clone())
    };
    let plain = with_components("companion", &[]).await?;
    survives(&plain)?;
    for name in ["napkeeper-webhook-ca", "napkeeper-webhook-tls"] {
        let secret = find(&plain, "Secret", name).context("no Secret")?;
        ensure!(secret["data"].is_null() && secret["stringData"].is_null(), "Git has a key: {secret}");
    }

    let closed = with_components("companion", &["fail-closed"]).await?;
    survives(&closed)?;
    let (pools, pods) = (hook(&closed, "Validating")?, hook(&closed, "Mutating")?);
    ensure!(pools["webhooks"][0]["failurePolicy"] == "Fail" && pods["webhooks"][0]["failurePolicy"] == "Ignore");
    let conditions = pools["webhooks"][0]["matchConditions"].to_string();
    for exempt in ["aksService", "generic-garbage-collector", "system:serviceaccount:napkeeper-system:"] {
        ensure!(conditions.contains(exempt), "{exempt} could be held up: {conditions}");
    }
    let (args, _) = container(&closed, "napkeeper-webhook")?;
    ensure!(args.windows(2).any(|pair| pair[0] == "--when-unable" && pair[1] == "refuse"), "{args:?}");
    let mut opened = pools.clone();
    opened["webhooks"][0]["failurePolicy"] = json!("Ignore");
    ensure!(opened == hook(&plain, "Validating")?, "more than the policy has changed");

    let managed = with_components("companion", &["cert-manager"]).await?;
    survives(&managed)?;
    let ours = ["napkeeper-webhook-tls", "napkeeper-webhook-ca", "napkeeper-certificates"];
    let left: Vec<_> = managed.iter().filter(|o| ours.iter().any(|name| o["metadata"]["name"] == *name)).collect();
    ensure!(left.is_empty(), "cert-manager owns the Secret, and nothing else writes: {left:?}");
    let (args, _) = container(&managed, "napkeeper-webhook")?;
    ensure!(args.iter().any(|arg| arg == "/tls/tls.crt"), "{args:?}");
    for kind in ["Validating", "Mutating"] {
        let source = &hook(&managed, kind)?["metadata"]["annotations"]["cert-manager.io/inject-ca-from"];
        ensure!(source == "napkeeper-system/napkeeper-webhook", "{kind}: {source}");
    }
    let rights: String = ["ClusterRole", "Role"]
        .iter()
        .filter_map(|kind| find(&managed, kind, "napkeeper-webhook"))
        .map(|role| role["rules"].to_string())
        .collect();
    ensure!(rights.contains("napkeeper-facts") && rights.contains("daemonsets"), "{rights}");
    for lost in ["secrets", "leases", "webhookconfigurations"] {
        ensure!(!rights.contains(lost), "it may still write {lost}: {rights}");
    }

    let alerts = with_components("companion", &["alerts"]).await?;
    let rules = find(&alerts, "PrometheusRule", "napkeeper-webhook").context("no alerts")?["spec"].to_string();
    let code: String = ["webhook/metrics.rs", "src/serve/tls/mod.rs", "webhook/cluster_view.rs"]
        .iter()
        .map(|file| std::fs::read_to_string(repository(file)))
        .collect::<std::io::Result<_>>()?;
    for name in
        rules.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter_map(|w| w.strip_prefix("napkeeper_"))
    {
        let registered = name.trim_end_matches("_total");
        ensure!(code.contains(&format!("\"{registered}\"")), "no metric is called {name}");
    }
    Ok(())
}

/// The error with which the program exits.
async fn complaint(args: &[String]) -> Result<String> {
    let program = Program::new(napkeeper_binary()?).args(args).env("KUBECONFIG", NO_KUBECONFIG);
    let program = Process::spawn("napkeeper", &program)?;
    let exit = program.exited(Duration::from_secs(60)).await?;
    ensure!(exit.code() == Some(2), "{args:?} ended with {exit}");
    Ok(program.tail(20))
}

#[tokio::test]
async fn the_program_takes_the_arguments_of_its_deployments() -> Result<()> {
    for name in ["companion", "provisioner"] {
        let objects = objects(&overlay(name).await?)?;
        // A cluster or a mounted file that is not here is what they complain of: all arguments have been understood
        // then.
        let started = [
            ("webhook", NO_KUBECONFIG),
            ("certificates", NO_KUBECONFIG),
            ("controller", "/etc/napkeeper/napkeeper.yaml"),
        ];
        for (program, file) in started {
            let (mut args, ports) = container(&objects, &format!("napkeeper-{program}"))?;
            ensure!(args.first().is_some_and(|first| first == program), "{program} is started with {args:?}");
            let bound: Vec<i64> = args.iter().filter_map(|a| a.strip_prefix("0.0.0.0:")?.parse().ok()).collect();
            ensure!(bound == ports, "{program} listens on {bound:?}, its container names {ports:?}");
            let error = complaint(&args).await?;
            ensure!(error.contains(file) && !error.contains("Usage"), "{program} {args:?}: {error}");
            args.push("--no-such-flag".to_owned());
            let error = complaint(&args).await?;
            ensure!(error.contains("--no-such-flag") && !error.contains(file), "{program} {args:?}: {error}");
        }
    }
    Ok(())
}
