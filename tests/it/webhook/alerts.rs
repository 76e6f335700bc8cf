//! Prometheus can read our alerts, and every metric that they use exists.

use anyhow::{Context, Result, ensure};
use napkeeper_api::yaml;
use napkeeper_tests::manifests::repository;
use napkeeper_tests::wait::eventually;
use napkeeper_tests::webhook::hooks::{bad_pool, certificate, review};
use napkeeper_tests::webhook::{self, Listening};
use promql_parser::parser::{Expr, parse};
use promql_parser::util::{ExprVisitor, walk_expr};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

const STEP: Duration = Duration::from_secs(90);
/// Metrics of the API server, as
/// [Kubernetes documents them](https://kubernetes.io/docs/reference/instrumentation/metrics/).
const OF_THE_API_SERVER: [&str; 1] = ["apiserver_admission_webhook_fail_open_count"];

/// The names of metrics in an expression.
#[derive(Default)]
struct Names(BTreeSet<String>);

impl ExprVisitor for Names {
    type Error = String;

    fn pre_visit(&mut self, expr: &Expr) -> Result<bool, String> {
        let selector = match expr {
            Expr::VectorSelector(selector) => Some(selector),
            Expr::MatrixSelector(matrix) => Some(&matrix.vs),
            _ => None,
        };
        if let Some(selector) = selector {
            let name = selector.name.clone().ok_or_else(|| format!("{selector:?} names no metric"))?;
            self.0.insert(name);
        }
        Ok(true)
    }
}

/// The metrics that the alerts of a component query.
pub(crate) fn queried(component: &str) -> Result<BTreeSet<String>> {
    let text = std::fs::read_to_string(repository("kustomize/components/alerts/rules.yaml"))?;
    let (mut names, mut alerts) = (Names::default(), 0);
    let name = format!("napkeeper-{component}");
    for document in yaml::read("rules.yaml", &text).documents.iter().filter(|d| d.value["metadata"]["name"] == *name) {
        for group in document.value["spec"]["groups"].as_array().context("no groups")? {
            for rule in group["rules"].as_array().context("no rules")? {
                let expr = rule["expr"].as_str().context("a rule without an expression")?;
                let parsed = parse(expr).map_err(|error| anyhow::anyhow!("{}: {error}", rule["alert"]))?;
                walk_expr(&mut names, &parsed).map_err(anyhow::Error::msg)?;
                alerts += 1;
            }
        }
    }
    ensure!(alerts >= 6 && names.0.len() >= 6, "{alerts} alerts, metrics {:?}", names.0);
    Ok(names.0)
}

/// Every queried metric is in what a process exports, or is the API server's own.
pub(crate) fn ensure_exported(queried: &BTreeSet<String>, text: &str) -> Result<()> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let exported: BTreeSet<&str> = samples.filter_map(|line| line.split(['{', ' ']).next()).collect();
    let known = |name: &&String| exported.contains(name.as_str()) || OF_THE_API_SERVER.contains(&name.as_str());
    let missing: Vec<_> = queried.iter().filter(|name| !known(name)).collect();
    ensure!(missing.is_empty(), "alerts ask for {missing:?}, and there are {exported:?}");
    Ok(())
}

#[test]
fn invalid_prometheus_rules_are_detected() {
    for wrong in ["sum(rate(x[10m])", "rate(x[10 m])", "x > on (path) group_left ( y"] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}

/// A webhook exports every metric of an alert after it has served, denied and rejected requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alerts_are_valid_and_query_existing_metrics() -> Result<()> {
    // Another test of this process may have done it before.
    drop(rustls::crypto::ring::default_provider().install_default());
    let queried = queried("webhook")?;
    let folder = tempfile::Builder::new().prefix("alerts-").tempdir()?;
    let ca = certificate(folder.path())?;
    let program = webhook::program(&folder.path().join("nobody"), "127.0.0.1:0", Some(folder.path()))?;
    let Listening { process: _process, admission, metrics, .. } = webhook::listening(&program).await?;
    let (url, metrics) = (format!("https://{admission}/validate"), format!("http://{metrics}/metrics"));
    let ca = reqwest::Certificate::from_pem(ca.as_bytes())?;
    let client = reqwest::Client::builder().no_proxy().add_root_certificate(ca).timeout(STEP).build()?;
    let pool: Value = yaml::read("pool.yaml", &bad_pool("bad")?).documents.remove(0).value;
    let review = review("CREATE", &pool, &Value::Null);
    let answer: Value =
        eventually("an answer", STEP, async || Ok(client.post(&url).body(review.to_string()).send().await.ok()))
            .await?
            .json()
            .await?;
    ensure!(answer["response"]["allowed"] == false, "{answer}");
    let status = client.post(&url).body("{}").send().await?.status();
    ensure!(status.is_client_error(), "{status}");

    let text = client.get(&metrics).send().await?.text().await?;
    ensure_exported(&queried, &text)
}
