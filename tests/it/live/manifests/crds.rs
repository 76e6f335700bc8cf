//! A real API server takes our CustomResourceDefinitions, and the quick start by them.

use crate::drawn_objects::bases;
use crate::drawn_objects::rule_breaks::{Example, examples, set};
use crate::live::verdicts::server::{Response, Server};
use anyhow::{Context, Result, ensure};
use napkeeper_tests::control_plane::{ControlPlane, Mode, upstream_crds};
use napkeeper_tests::manifests::{quickstart_file, repository};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::time::Instant;

/// What belongs to the embedded world, not to a cluster.
const NOT_OF_A_CLUSTER: &str = "scenario.yaml";

#[tokio::test]
async fn the_definitions_install_and_the_quick_start_applies() -> Result<()> {
    let start = Instant::now();
    let plane = ControlPlane::start(Mode::Api).await?;
    println!("etcd and kube-apiserver served after {:?}", start.elapsed());
    plane.install_definitions().await?;
    let quirks = plane
        .kubectl(&[
            "get",
            "crd",
            "--output",
            "jsonpath={.items[*].status.conditions[?(@.type==\"NonStructuralSchema\")]}",
        ])
        .await?;
    ensure!(quirks.is_empty(), "a schema is not structural: {quirks}");

    let mut applied = 0;
    for entry in fs::read_dir(repository("manifests/quickstart"))? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name != NOT_OF_A_CLUSTER) {
            let text = fs::read_to_string(&path)?;
            plane.apply(&text).await.with_context(|| format!("applying {}", path.display()))?;
            applied += 1;
        }
    }
    ensure!(applied > 5, "the quick start has only {applied} files");
    let pools = plane.kubectl(&["get", "nodepools", "--output=name"]).await?;
    ensure!(pools.contains("nodepool.karpenter.sh/general-purpose"), "{pools}");
    Ok(())
}

#[tokio::test]
async fn mistakes_in_a_node_pool_are_refused_by_its_schema() -> Result<()> {
    let plane = ControlPlane::start(Mode::Api).await?;
    plane.install_definitions().await?;
    let good = quickstart_file("nodepool-gpu")?;
    plane.apply(&good).await?;
    for (right, wrong, complaint) in [
        ("operator: In", "operator: Near", "Unsupported value"),
        ("consolidateAfter: 1m", "consolidateAfter: soon", "should match"),
        ("consolidationPolicy: WhenEmpty", "consolidationPolicy: Now", "Unsupported value"),
        ("kind: AKSNodeClass", "kind: \"\"", "kind of nodeClassRef must not be empty"),
        ("limits:", "limit:", "field not declared in schema"),
    ] {
        let bad = good.replacen(right, wrong, 1).replace("name: gpu", "name: bad");
        ensure!(bad != good, "the quick start has no {right:?} to spoil");
        let answer = plane.apply(&bad).await;
        ensure!(
            answer.as_ref().is_err_and(|e| format!("{e:#}").contains(complaint)),
            "{wrong:?} should be refused with {complaint:?}: {answer:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn foreign_definitions_are_detected() -> Result<()> {
    drop(rustls::crypto::ring::default_provider().install_default());
    let plane = ControlPlane::start(Mode::Api).await?;
    let client = plane.client().await?;
    assert_eq!(
        napkeeper_kube::CrdOwner::new(client.clone()).foreign_definitions().await?,
        None,
        "what is not there belongs to nobody"
    );
    plane.apply(&upstream_crds().await?).await?;
    let foreign = napkeeper_kube::CrdOwner::new(client.clone()).foreign_definitions().await?;
    assert_eq!(foreign.as_deref(), Some("nodepools.karpenter.sh, nodeclaims.karpenter.sh"));
    let folder = repository("manifests/crds/karpenter").display().to_string();
    plane.kubectl(&["apply", "--server-side", "--force-conflicts", "--kustomize", &folder]).await?;
    assert_eq!(napkeeper_kube::CrdOwner::new(client.clone()).foreign_definitions().await?, None);
    Ok(())
}

#[tokio::test]
async fn each_rule_rejects_violations_and_accepts_valid_objects() -> Result<()> {
    let plane = ControlPlane::start(Mode::Api).await?;
    plane.install_definitions().await?;
    let server = Server::of(&plane).await?;
    let examples = examples();
    let answers = server
        .all(&examples, async |server, example| server.create(&bases::named(example.base), &example.object()).await);
    let answers = answers.await?;
    let wrong: Vec<_> =
        examples.iter().zip(&answers).filter_map(|(example, response)| not_as_expected(example, response)).collect();
    ensure!(wrong.is_empty(), "{} of {} examples:\n{}", wrong.len(), examples.len(), wrong.join("\n"));
    for base in bases::all() {
        let response = server.create(&base.object, &base.object).await?;
        ensure!(response.answer.code == 200, "{}: {}", base.name, response.message);
    }

    let mut messages: Vec<_> = answers.into_iter().map(|response| response.message).collect();
    for (base, path, value, field) in [
        ("pool-full", "spec.replicas", json!(1), "spec"),
        ("pool-static", "spec.replicas", Value::Null, "spec"),
        ("pool-full", "spec.template.spec.nodeClassRef.group", json!("example.com"), "spec.template.spec.nodeClassRef"),
        ("pool-full", "spec.template.spec.nodeClassRef.kind", json!("Other"), "spec.template.spec.nodeClassRef"),
        ("pool-full", "spec.template.spec.nodeClassRef.name", json!("other"), ""),
        ("claim-full", "spec.expireAfter", json!("1h"), "spec"),
        ("claim-full", "metadata.labels", json!({ "a": "b" }), ""),
    ] {
        let base = bases::named(base);
        let stored = match server.get(&base).await {
            Ok(stored) => stored,
            Err(_) => server.store(&base).await?,
        };
        let mut changed = stored.clone();
        set(&mut changed, path, &value);
        let response = server.update(&stored, &changed).await?;
        let expected: BTreeSet<_> = (!field.is_empty()).then(|| field.to_owned()).into_iter().collect();
        ensure!(response.answer.fields == expected, "{path} to {value}: {response:?}");
        messages.push(response.message);
    }
    let unmet: Vec<_> =
        rules()?.into_iter().filter(|rule| !messages.iter().any(|response| response.contains(rule))).collect();
    ensure!(unmet.is_empty(), "no example breaks the rules {unmet:#?}");
    Ok(())
}

fn not_as_expected(example: &Example, response: &Response) -> Option<String> {
    let expected: BTreeSet<_> = example.refused.into_iter().map(ToOwned::to_owned).collect();
    let as_expected = response.answer.fields == expected && (response.answer.code == 200) == expected.is_empty();
    (!as_expected).then(|| format!("{example:?}: {response:?}"))
}

/// The messages of all rules of our definitions.
fn rules() -> Result<BTreeSet<String>> {
    fn collect(schema: &Value, into: &mut BTreeSet<String>) {
        match schema {
            Value::Object(map) => {
                let rules = map.get("x-kubernetes-validations").and_then(Value::as_array);
                let messages = rules.into_iter().flatten().filter_map(|rule| rule["message"].as_str());
                into.extend(messages.map(ToOwned::to_owned));
                map.values().for_each(|below| collect(below, into));
            }
            Value::Array(list) => list.iter().for_each(|below| collect(below, into)),
            _ => {}
        }
    }
    let mut all = BTreeSet::new();
    napkeeper_api::crds::all()?.iter().for_each(|crd| collect(&crd.definition, &mut all));
    ensure!(all.len() > 40, "only {} rules", all.len());
    Ok(all)
}
