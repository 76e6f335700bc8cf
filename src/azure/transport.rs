//! The transport: what happens to every request on its way, whoever made it?
//!
//! It lies below both ARM crates and below our own requests: it refuses other hosts, adds the token, the API version
//! and a request id, keeps the pace and a deadline, logs, and turns whatever is no success into a [`CloudError`].
//!
//! Only pages of listings are tried again here, within a budget: the whole listing would be lost with one of them.
//! Every other request is sent once. Writes above all: whoever asked for one has looked right before, and must look
//! again before the next try, so their retries are the scripts'.
//!
//! The token is added here and not by the ARM crates: `azure_core` 0.21 logs whole requests, and of their headers it
//! shows `authorization` alone.

use crate::credential::Credential;
use crate::error::{correlation, invalid, of_operation_url, of_response, retry_after, unavailable};
use crate::pace::{self, Pace};
use crate::wire::{Method, Wire, WireError, WireRequest, WireResponse};
use async_trait::async_trait;
use azure_core::auth::{AccessToken, TokenCredential};
use azure_core::error::ErrorKind;
use azure_core::headers::{HeaderName, HeaderValue, Headers};
use azure_core::{Body, BytesStream, HttpClient, Request, Response, StatusCode, Url};
use jiff::SignedDuration;
use napkeeper_core::model::errors::{CloudError, CloudErrorCode};
use serde::de::IgnoredAny;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

/// Most times that a page of a listing is asked for.
const MOST_TRIES: u32 = 6;
/// Wait before the second try; each further one doubles it.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// Longest wait between two tries, unless Azure names one.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Longest that a page may take with all its tries.
const LONGEST_PAGE: Duration = Duration::from_secs(120);

/// API versions of requests that come without one, by a part of the path in lower case; the first that is in it counts.
const VERSIONS: [(&str, &str); 4] = [
    ("/providers/microsoft.resources/tags/", "2021-04-01"),
    ("/providers/microsoft.network/", "2024-05-01"),
    ("/providers/microsoft.compute/disks", "2024-03-02"),
    ("/providers/microsoft.compute/", "2024-07-01"),
];

/// The one way to Azure Resource Manager.
#[derive(Debug)]
pub(crate) struct Transport {
    pub(crate) wire: Arc<dyn Wire>,
    pub(crate) credential: Credential,
    pub(crate) endpoint: Url,
    /// For whom tokens are made out.
    pub(crate) audience: String,
    pub(crate) deadline: Duration,
    pub(crate) pace: Pace,
}

/// A request, as its sender has it.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) body: Option<Vec<u8>>,
    /// Under which condition it holds: a header and its value.
    pub(crate) condition: Option<(&'static str, String)>,
}

/// Headers of conditions that are passed on.
const CONDITIONS: [&str; 2] = ["if-match", "if-none-match"];

impl Transport {
    /// Fetches the token for the next request, unless it is at hand.
    pub(crate) async fn authenticate(&self) -> Result<(), CloudError> {
        self.credential.prepare(&self.audience).await.map_err(|e| unavailable(e.to_string()))
    }

    /// Sends a request without a condition; its success.
    pub(crate) async fn call(
        &self,
        method: Method,
        url: Url,
        body: Option<Vec<u8>>,
    ) -> Result<WireResponse, CloudError> {
        self.ask(Ask { method, url, body, condition: None }).await
    }

    /// Sends a request; its success.
    pub(crate) async fn ask(&self, ask: Ask) -> Result<WireResponse, CloudError> {
        if ask.method == Method::Get && pace::is_list(ask.url.path()) {
            return self.page(ask).await;
        }
        self.answer(ask).await?.map_err(|response| of_response(&response))
    }

    /// Reads once; the answer, whatever it is.
    pub(crate) async fn once(&self, url: Url) -> Result<Result<WireResponse, WireResponse>, CloudError> {
        self.answer(Ask { method: Method::Get, url, body: None, condition: None }).await
    }

    /// Asks an operation's URL; its success.
    pub(crate) async fn poll(&self, url: Url) -> Result<WireResponse, CloudError> {
        let ask = Ask { method: Method::Get, url, body: None, condition: None };
        self.answer(ask).await?.map_err(|response| of_operation_url(&response))
    }

    /// Asks for a page of a listing, several times if need be.
    async fn page(&self, ask: Ask) -> Result<WireResponse, CloudError> {
        let began = self.wire.elapsed();
        let mut wait = FIRST_WAIT;
        for left in (0..MOST_TRIES).rev() {
            let answer = self.answer(ask.clone()).await;
            let error = match answer {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(response)) => of_response(&response),
                Err(error) => error,
            };
            let asked = error.retry_after.and_then(|wait| Duration::try_from(wait).ok());
            let pause = asked.unwrap_or_default().max(jittered(wait));
            let late = self.wire.elapsed() + pause > began + LONGEST_PAGE;
            let passing = matches!(error.code, CloudErrorCode::Throttled | CloudErrorCode::Unavailable);
            if left == 0 || late || !passing || !self.pace.may_retry() {
                return Err(error);
            }
            tracing::info!(path = ask.url.path(), ?pause, %error, "retrying a page of a listing");
            self.wire.rest(pause).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
        Err(unavailable("too many retries for a page of a listing"))
    }

    /// Waits until a request of this kind may leave. Whoever has to check something right before a write waits first.
    pub(crate) async fn take_turn(&self, method: Method, path: &str) -> Result<(), CloudError> {
        let kind = pace::kind(method, path);
        match self.pace.turn(&kind, self.wire.elapsed()) {
            Ok(wait) if wait.is_zero() => Ok(()),
            Ok(wait) => {
                tracing::debug!(kind, ?wait, "waiting for the rate limiter");
                self.wire.rest(wait).await;
                Ok(())
            }
            Err(wait) => Err(held_back(&kind, wait)),
        }
    }

    /// Sends a request; the response, as `Err` where it is no success.
    async fn answer(&self, mut ask: Ask) -> Result<Result<WireResponse, WireResponse>, CloudError> {
        if ask.url.origin() != self.endpoint.origin() {
            let host = ask.url.host_str().unwrap_or_default();
            return Err(invalid(format!("{host} is not the Azure endpoint: refusing to send it a token")));
        }
        put_version(&mut ask.url)?;
        let (method, path) = (ask.method, ask.url.path().to_owned());
        if method == Method::Get {
            self.take_turn(method, &path).await?;
        }
        let kind = pace::kind(method, &path);
        if let Some(rest) = self.pace.held(&kind, self.wire.elapsed()) {
            return Err(held_back(&kind, rest));
        }
        let mut response = self.send(&ask).await?;
        if response.status == 401 && self.credential.forget().await {
            // Nothing has been done: the token had been taken back, or ended on the way. What was checked right before
            // a write is old by the time that a new token is there, so whoever writes has to check again.
            if method != Method::Get {
                return Err(unavailable(format!("{} {path}: the token is no longer accepted", method.as_str())));
            }
            response = self.send(&ask).await?;
        }
        let wait = retry_after(&response).and_then(|wait| Duration::try_from(wait).ok());
        self.pace.heard(&kind, &response, wait, self.wire.elapsed());
        if !(200..300).contains(&response.status) {
            return Ok(Err(response));
        }
        // A page of something in between, say a proxy that asks for a password, must not pass for a success.
        if !response.body.is_empty() && serde_json::from_slice::<IgnoredAny>(&response.body).is_err() {
            let (method, status) = (method.as_str(), response.status);
            return Err(unavailable(format!("{method} {path}: status {status} with a body that is not JSON")));
        }
        Ok(Ok(response))
    }

    /// Sends a request once.
    async fn send(&self, ask: &Ask) -> Result<WireResponse, CloudError> {
        let token = self.credential.token(&self.audience).await.map_err(|e| unavailable(e.to_string()))?;
        let id = Uuid::new_v4().to_string();
        let mut headers = vec![
            ("accept".to_owned(), "application/json".to_owned()),
            ("authorization".to_owned(), format!("Bearer {}", token.secret())),
            ("x-ms-client-request-id".to_owned(), id.clone()),
        ];
        if ask.body.is_some() {
            headers.push(("content-type".to_owned(), "application/json".to_owned()));
        }
        headers.extend(ask.condition.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        let (method, path) = (ask.method.as_str(), ask.url.path());
        let body = ask.body.clone().unwrap_or_default();
        let request = WireRequest { method: ask.method, url: ask.url.to_string(), headers, body };
        let began = Instant::now();
        let sent = timeout(self.deadline, self.wire.send(request)).await;
        let ms = began.elapsed().as_millis();
        let error = match sent {
            Ok(Ok(response)) => {
                let correlation = correlation(&response).unwrap_or_default();
                tracing::debug!(method, path, status = response.status, ms, id, correlation, "request to Azure");
                return Ok(response);
            }
            Ok(Err(error)) => error,
            Err(_) => WireError::Timeout,
        };
        tracing::debug!(method, path, ms, id, %error, "no response from Azure");
        Err(unavailable(format!("{method} {path}: {error} (client request id {id})")))
    }

    /// Reads the resource at a path below the endpoint.
    pub(crate) fn url(&self, path: &str) -> Url {
        let mut url = self.endpoint.clone();
        url.set_path(path);
        url
    }
}

/// A request that is not sent yet, for Azure has asked to wait.
fn held_back(kind: &str, wait: Duration) -> CloudError {
    let message = format!("{kind}: throttled by Azure, next request in {} s", wait.as_secs().max(1));
    // In whole seconds, rounded up: whoever comes back too early would wait twice.
    let secs = i64::try_from(wait.as_secs()).unwrap_or(i64::MAX).saturating_add(1);
    CloudError {
        retry_after: Some(SignedDuration::from_secs(secs)),
        ..CloudError::new(CloudErrorCode::Throttled, message)
    }
}

/// Between half and all of a wait, so that many do not come back at once.
fn jittered(wait: Duration) -> Duration {
    let half = wait / 2;
    let parts = u32::from(Uuid::new_v4().as_bytes()[0]);
    half + half * parts / 255
}

/// Adds the API version of the provider, unless the URL has one.
fn put_version(url: &mut Url) -> Result<(), CloudError> {
    if url.query_pairs().any(|(key, _)| key == "api-version") {
        return Ok(());
    }
    let path = url.path().to_ascii_lowercase();
    let Some((_, version)) = VERSIONS.iter().find(|(part, _)| path.contains(part)) else {
        return Err(invalid(format!("{path}: no known API version")));
    };
    url.query_pairs_mut().append_pair("api-version", version);
    Ok(())
}

/// The body without nulls that a model writes for what only Azure sets.
fn without_read_only(body: &[u8]) -> Vec<u8> {
    let Ok(mut json) = serde_json::from_slice::<Value>(body) else { return body.to_vec() };
    let properties = json.get_mut("properties").and_then(Value::as_object_mut);
    if let Some(properties) = properties.filter(|p| p.get("timeCreated").is_some_and(Value::is_null)) {
        properties.remove("timeCreated");
        return serde_json::to_vec(&json).unwrap_or_else(|_| body.to_vec());
    }
    body.to_vec()
}

#[async_trait]
impl HttpClient for Transport {
    /// Errors hold a [`CloudError`], since the crates' own show neither `Retry-After` nor the inner codes.
    async fn execute_request(&self, request: &Request) -> azure_core::Result<Response> {
        let failed = |error: CloudError| azure_core::Error::new(ErrorKind::Other, error);
        let method = match request.method() {
            azure_core::Method::Get => Method::Get,
            azure_core::Method::Put => Method::Put,
            azure_core::Method::Patch => Method::Patch,
            azure_core::Method::Delete => Method::Delete,
            azure_core::Method::Post => Method::Post,
            other => return Err(failed(invalid(format!("{other} is not supported by Azure Resource Manager")))),
        };
        let Body::Bytes(bytes) = request.body() else {
            return Err(failed(invalid("streaming bodies are not supported")));
        };
        let body = (!bytes.is_empty()).then(|| without_read_only(bytes));
        let headers = request.headers();
        let condition = |name: &'static str| Some((name, headers.get_optional_string(&HeaderName::from(name))?));
        let condition = CONDITIONS.into_iter().find_map(condition);
        let ask = Ask { method, url: request.url().clone(), body, condition };
        let response = self.ask(ask).await.map_err(failed)?;
        let status = StatusCode::try_from(response.status)
            .map_err(|_| failed(unavailable(format!("{} is not a valid status", response.status))))?;
        let mut headers = Headers::new();
        for (name, value) in response.headers {
            headers.insert(HeaderName::from(name), HeaderValue::from(value));
        }
        Ok(Response::new(status, headers, Box::pin(BytesStream::new(response.body))))
    }
}

/// What an error of the ARM crates means: the transport's own error, else a body that is not what the crate expects.
pub(crate) fn meant(error: azure_core::Error) -> CloudError {
    match error.into_downcast::<CloudError>() {
        Ok(error) => error,
        Err(error) => unavailable(format!("Azure's response cannot be read: {error}")),
    }
}

/// Stands where the ARM crates want a credential; the transport adds the real token.
#[derive(Debug)]
pub(crate) struct AddedBelow;

#[async_trait]
impl TokenCredential for AddedBelow {
    async fn get_token(&self, _scopes: &[&str]) -> azure_core::Result<AccessToken> {
        let never = azure_core::date::parse_rfc3339("9999-01-01T00:00:00Z")?;
        Ok(AccessToken::new("added below", never))
    }

    async fn clear_cache(&self) -> azure_core::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_provider_gets_its_own_api_version() {
        let put = |path: &str| {
            let mut url = Url::parse(&format!("https://a{path}")).unwrap();
            put_version(&mut url).map(|()| url.query().unwrap_or_default().to_owned())
        };
        let group = "/subscriptions/s/resourceGroups/g/providers";
        let nic = format!("{group}/Microsoft.Network/networkInterfaces/n");
        assert_eq!(put(&nic).unwrap(), "api-version=2024-05-01");
        assert_eq!(put(&format!("{nic}?api-version=1")).unwrap(), "api-version=1");
        let tags = format!("{nic}/providers/Microsoft.Resources/tags/default");
        assert_eq!(put(&tags).unwrap(), "api-version=2021-04-01");
        assert_eq!(put(&format!("{group}/Microsoft.Compute/disks/d")).unwrap(), "api-version=2024-03-02");
        assert!(put("/elsewhere").is_err());
    }

    #[test]
    fn only_nulls_that_azure_sets_are_left_out() {
        let clean = |text: &str| String::from_utf8(without_read_only(text.as_bytes())).unwrap();
        assert_eq!(clean(r#"{"properties":{"timeCreated":null,"b":null}}"#), r#"{"properties":{"b":null}}"#);
        assert_eq!(clean(r#"{"properties":{"timeCreated":"t"}}"#), r#"{"properties":{"timeCreated":"t"}}"#);
        assert_eq!(clean("no json"), "no json");
    }
}
