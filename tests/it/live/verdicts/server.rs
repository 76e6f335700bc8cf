//! Sends objects to the API server by dry-run, and reads its answers.

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use http::{Method, Request};
use kube::client::Body;
use napkeeper_tests::control_plane::ControlPlane;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

/// Requests at once.
const AT_ONCE: usize = 16;

/// The compared parts: whether an object is accepted, and the fields of the causes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::live) struct Answer {
    /// 200, 400 or 422.
    pub(in crate::live) code: u16,
    /// `causes[].field`.
    pub(in crate::live) fields: BTreeSet<String>,
    /// Fields that are unknown or there twice.
    pub(in crate::live) unknown: BTreeSet<String>,
}

/// An answer, and its message.
#[derive(Debug, Clone)]
pub(in crate::live) struct Response {
    pub(in crate::live) answer: Answer,
    pub(in crate::live) message: String,
}

/// The API server, with dry-run and strict field validation.
#[derive(Clone)]
pub(in crate::live) struct Server {
    client: kube::Client,
}

impl Server {
    pub(in crate::live) async fn of(plane: &ControlPlane) -> Result<Self> {
        Ok(Self { client: plane.client().await? })
    }

    /// Creates this object by dry-run. `like` is an object of the kind and version of the request.
    pub(in crate::live) async fn create(&self, like: &Value, object: &Value) -> Result<Response> {
        let url = format!("{}?dryRun=All&fieldValidation=Strict", path(like)?);
        response(self.ask(Method::POST, &url, Some(object)).await?)
    }

    /// Replaces the stored object of this name by dry-run.
    pub(in crate::live) async fn update(&self, stored: &Value, object: &Value) -> Result<Response> {
        let name = stored["metadata"]["name"].as_str().context("a stored object has a name")?;
        let url = format!("{}/{name}?dryRun=All&fieldValidation=Strict", path(stored)?);
        response(self.ask(Method::PUT, &url, Some(object)).await?)
    }

    /// Stores an object, and returns it as the server has it.
    pub(in crate::live) async fn store(&self, object: &Value) -> Result<Value> {
        let (code, answer) = self.ask(Method::POST, &path(object)?, Some(object)).await?;
        ensure!(code == 201, "storing {object}: {answer}");
        Ok(answer)
    }

    /// A stored object as the server has it now.
    pub(in crate::live) async fn get(&self, stored: &Value) -> Result<Value> {
        let name = stored["metadata"]["name"].as_str().context("a stored object has a name")?;
        let (code, answer) = self.ask(Method::GET, &format!("{}/{name}", path(stored)?), None).await?;
        ensure!(code == 200, "getting {name}: {answer}");
        Ok(answer)
    }

    /// Answers to many questions, in their order.
    pub(in crate::live) async fn all<Q>(
        &self,
        questions: &[Q],
        ask: impl AsyncFn(&Self, &Q) -> Result<Response>,
    ) -> Result<Vec<Response>> {
        stream::iter(questions).map(|question| ask(self, question)).buffered(AT_ONCE).try_collect().await
    }

    /// The status and the body of an answer. A new or changed definition is not served at once.
    async fn ask(&self, method: Method, url: &str, body: Option<&Value>) -> Result<(u16, Value)> {
        let body = body.map(serde_json::to_vec).transpose()?.unwrap_or_default();
        for _ in 0..100 {
            let request = Request::builder().method(method.clone()).uri(url).header("Content-Type", "application/json");
            let answer = self.client.send(request.body(Body::from(body.clone()))?).await;
            let answer = answer.with_context(|| format!("asking {url}"))?;
            let code = answer.status().as_u16();
            let bytes = answer.into_body().collect_bytes().await?;
            if code != 404 && code != 429 && code != 503 {
                let body = serde_json::from_slice(&bytes);
                return Ok((code, body.with_context(|| format!("reading the answer {bytes:?}"))?));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        anyhow::bail!("{url} is still not served")
    }
}

/// The path of a kind.
fn path(object: &Value) -> Result<String> {
    let (api, kind) = (object["apiVersion"].as_str(), object["kind"].as_str());
    let kind = kind.context("an object of a test has a kind")?.to_lowercase();
    let plural = match kind.strip_suffix('y') {
        Some(stem) if !stem.ends_with('a') => format!("{stem}ies"),
        _ if kind.ends_with('s') => format!("{kind}es"),
        _ => format!("{kind}s"),
    };
    Ok(format!("/apis/{}/{plural}", api.context("an object of a test has a version")?))
}

fn response((code, body): (u16, Value)) -> Result<Response> {
    let message = body["message"].as_str().unwrap_or_default().to_owned();
    if code < 300 {
        return Ok(Response { answer: Answer { code: 200, ..Answer::default() }, message });
    }
    let causes = body["details"]["causes"].as_array().into_iter().flatten();
    let fields = causes.filter_map(|cause| cause["field"].as_str()).map(ToOwned::to_owned).collect();
    let answer = Answer { code, fields, unknown: unknown(&message) };
    ensure!(code < 500, "the server failed: {body}");
    Ok(Response { answer, message })
}

/// The names that a refusal of strict decoding lists.
fn unknown(message: &str) -> BTreeSet<String> {
    let Some((_, list)) = message.split_once("strict decoding error: ") else {
        return BTreeSet::new();
    };
    let named = list.split(", ").filter_map(|one| {
        let quoted = one.strip_prefix("unknown field ").or_else(|| one.strip_prefix("duplicate field "))?;
        serde_json::from_str(quoted).ok()
    });
    named.collect()
}
