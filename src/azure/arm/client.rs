//! Sends every request to Azure Resource Manager.
//!
//! Both the ARM crates and our own requests use it: it rejects other hosts and writes outside of their scope, adds the
//! token, the API version and a request id, applies rate limits and a deadline, logs, and converts failures to a
//! [`CloudError`].
//!
//! Only pages of listings are retried here, within a budget: the whole listing would be lost with one of them. Every
//! other request is sent once. Callers check directly before a write and must check again before a retry, so the effect
//! scripts retry writes.
//!
//! The token is added here and not by the ARM crates: `azure_core` 0.21 logs whole requests, and of their headers it
//! redacts `authorization` alone.

use super::error::{
    correlation, from_operation_url, from_response, invalid, retry_after, unauthenticated, unavailable,
    unreadable_response,
};
use super::rate_limit::{self, RateLimiter};
use super::write_scope::WriteScope;
use crate::auth::Credential;
use crate::transport::{HttpRequest, HttpResponse, Method, Transport, TransportError};
use async_trait::async_trait;
use azure_core::auth::{AccessToken, TokenCredential};
use azure_core::error::ErrorKind;
use azure_core::headers::{HeaderName, HeaderValue, Headers};
use azure_core::{Body, BytesStream, HttpClient, Request, Response, StatusCode, Url};
use jiff::SignedDuration;
use napkeeper_core::model::errors::{CloudError, CloudErrorCode, FailureCause};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

/// Most requests for one page of a listing.
const MAX_TRIES: u32 = 6;
/// Wait before the second try; each further one doubles it.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// Longest wait between two tries, unless Azure names one.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// Longest that a page may take with all its tries.
const PAGE_TIMEOUT: Duration = Duration::from_secs(120);

/// API versions of requests without one, by a part of the path in lower case; the first match counts.
const VERSIONS: [(&str, &str); 4] = [
    ("/providers/microsoft.resources/tags/", "2021-04-01"),
    ("/providers/microsoft.network/", "2024-05-01"),
    ("/providers/microsoft.compute/disks", "2024-03-02"),
    ("/providers/microsoft.compute/", "2024-07-01"),
];

/// The client of Azure Resource Manager.
#[derive(Debug)]
pub(crate) struct ArmClient {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) credential: Credential,
    pub(crate) endpoint: Url,
    /// The scope of tokens.
    pub(crate) audience: String,
    pub(crate) deadline: Duration,
    pub(crate) rate_limiter: RateLimiter,
    pub(crate) write_scope: WriteScope,
}

/// A request without what this client adds.
#[derive(Debug, Clone)]
pub(crate) struct ArmRequest {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) body: Option<Vec<u8>>,
    /// A conditional header and its value.
    pub(crate) condition: Option<(&'static str, String)>,
}

impl ArmRequest {
    fn get(url: Url) -> Self {
        Self { method: Method::GET, url, body: None, condition: None }
    }
}

/// Why a request has no response.
#[derive(Debug)]
pub(crate) enum NoResponse {
    /// There is no token or no connection: no other request would have a response either.
    Unreachable(CloudError),
    /// Any other cause.
    Failed(CloudError),
}

impl From<CloudError> for NoResponse {
    fn from(error: CloudError) -> Self {
        Self::Failed(error)
    }
}

impl From<NoResponse> for CloudError {
    fn from(error: NoResponse) -> Self {
        match error {
            NoResponse::Unreachable(error) | NoResponse::Failed(error) => error,
        }
    }
}

/// Conditional headers that are passed on.
const CONDITIONS: [&str; 2] = ["if-match", "if-none-match"];

impl ArmClient {
    /// Fetches the token for the next request, unless there is one.
    pub(crate) async fn authenticate(&self) -> Result<(), CloudError> {
        self.credential.prepare(&self.audience).await.map_err(|e| unauthenticated(&e))
    }

    /// Sends a request without a condition; the response of a success.
    pub(crate) async fn call(
        &self,
        method: Method,
        url: Url,
        body: Option<Vec<u8>>,
    ) -> Result<HttpResponse, CloudError> {
        self.send(ArmRequest { method, url, body, condition: None }).await
    }

    /// Sends a request; the response of a success.
    pub(crate) async fn send(&self, request: ArmRequest) -> Result<HttpResponse, CloudError> {
        if request.method == Method::GET && rate_limit::is_list(request.url.path()) {
            return self.get_page(request).await;
        }
        self.exchange(&request).await?.map_err(|response| from_response(&response))
    }

    /// Reads a resource at a path below the endpoint.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str, version: Option<&str>) -> Result<T, CloudError> {
        parse_body(&self.call(Method::GET, self.url(path, version), None).await?)
    }

    /// Reads once, without retries; the response, as `Err` where it is no success.
    pub(crate) async fn get_once(&self, url: Url) -> Result<Result<HttpResponse, HttpResponse>, NoResponse> {
        self.exchange(&ArmRequest::get(url)).await
    }

    /// PUTs a resource at a path below the endpoint. With `create_only` Azure rejects it if the resource exists.
    pub(crate) async fn put(
        &self,
        path: &str,
        version: Option<&str>,
        body: &Value,
        create_only: bool,
    ) -> Result<HttpResponse, CloudError> {
        let condition = create_only.then(|| ("if-none-match", "*".to_owned()));
        let body = Some(body.to_string().into_bytes());
        self.send(ArmRequest { method: Method::PUT, url: self.url(path, version), body, condition }).await
    }

    /// Reads an operation's URL; the response of a success.
    pub(crate) async fn poll(&self, url: Url) -> Result<HttpResponse, CloudError> {
        self.exchange(&ArmRequest::get(url)).await?.map_err(|response| from_operation_url(&response))
    }

    /// Requests a page of a listing, several times if need be.
    async fn get_page(&self, request: ArmRequest) -> Result<HttpResponse, CloudError> {
        let began = self.transport.elapsed();
        let mut wait = FIRST_WAIT;
        for left in (0..MAX_TRIES).rev() {
            let error = match self.exchange(&request).await {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(response)) => from_response(&response),
                Err(error) => error.into(),
            };
            let retry_after = error.retry_after.and_then(|wait| Duration::try_from(wait).ok());
            let pause = retry_after.unwrap_or_default().max(jittered(wait));
            let late = self.transport.elapsed() + pause > began + PAGE_TIMEOUT;
            let passing = matches!(error.code, CloudErrorCode::Throttled | CloudErrorCode::Unavailable);
            if left == 0 || late || !passing || !self.rate_limiter.may_retry() {
                return Err(error);
            }
            tracing::info!(path = request.url.path(), ?pause, %error, "retrying a page of a listing");
            self.transport.sleep(pause).await;
            wait = (wait * 2).min(MAX_WAIT);
        }
        Err(unavailable("too many retries for a page of a listing"))
    }

    /// Waits until the rate limits allow such a request. Callers with checks directly before a write wait first.
    pub(crate) async fn wait_for_rate_limit(&self, method: &Method, path: &str) -> Result<(), CloudError> {
        let class = rate_limit::request_class(method, path);
        match self.rate_limiter.reserve(&class, self.transport.elapsed()) {
            Ok(wait) if wait.is_zero() => Ok(()),
            Ok(wait) => {
                tracing::debug!(class, ?wait, "waiting for the rate limiter");
                self.transport.sleep(wait).await;
                Ok(())
            }
            Err(wait) => Err(throttled(&class, wait)),
        }
    }

    /// Sends a request, a read again where its token is rejected; the response, as `Err` where it is no success.
    async fn exchange(&self, request: &ArmRequest) -> Result<Result<HttpResponse, HttpResponse>, NoResponse> {
        let (method, mut url) = (&request.method, request.url.clone());
        if url.origin() != self.endpoint.origin() {
            let host = url.host_str().unwrap_or_default();
            return Err(invalid(format!("{host} is not the Azure endpoint: refusing to send it a token")).into());
        }
        self.write_scope.check(method, &url)?;
        add_api_version(&mut url)?;
        let path = url.path();
        if *method == Method::GET {
            self.wait_for_rate_limit(method, path).await?;
        }
        let class = rate_limit::request_class(method, path);
        if let Some(left) = self.rate_limiter.blocked_for(&class, self.transport.elapsed()) {
            return Err(throttled(&class, left).into());
        }
        let mut response = self.send_once(request, &url).await?;
        if response.status == 401 && self.credential.forget().await {
            // Nothing was done: the token was revoked, or expired in transit. Checks before a write are outdated by the
            // time a new token arrives, so the caller must repeat them.
            if *method != Method::GET {
                return Err(unavailable(format!("{method} {path}: the token is no longer accepted")).into());
            }
            response = self.send_once(request, &url).await?;
        }
        let wait = retry_after(&response).and_then(|wait| Duration::try_from(wait).ok());
        self.rate_limiter.record(&class, &response, wait, self.transport.elapsed());
        if !(200..300).contains(&response.status) {
            return Ok(Err(response));
        }
        // The page of an intermediary, such as a proxy that requires a login, must not count as a success.
        if !response.body.is_empty() && serde_json::from_slice::<IgnoredAny>(&response.body).is_err() {
            let status = response.status;
            return Err(unavailable(format!("{method} {path}: status {status} with a body that is not JSON")).into());
        }
        Ok(Ok(response))
    }

    async fn send_once(&self, request: &ArmRequest, url: &Url) -> Result<HttpResponse, NoResponse> {
        let token = self.credential.token(&self.audience).await;
        let token = token.map_err(|e| NoResponse::Unreachable(unauthenticated(&e)))?;
        let id = Uuid::new_v4().to_string();
        let mut headers = vec![
            ("accept".to_owned(), "application/json".to_owned()),
            ("authorization".to_owned(), format!("Bearer {}", token.secret())),
            ("x-ms-client-request-id".to_owned(), id.clone()),
        ];
        if request.body.is_some() {
            headers.push(("content-type".to_owned(), "application/json".to_owned()));
        }
        headers.extend(request.condition.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        let (method, path) = (request.method.as_str(), url.path());
        let body = request.body.clone().unwrap_or_default();
        let sent = HttpRequest { method: request.method.clone(), url: url.to_string(), headers, body };
        let began = Instant::now();
        let result = timeout(self.deadline, self.transport.send(sent)).await;
        let ms = began.elapsed().as_millis();
        let error = match result {
            Ok(Ok(response)) => {
                let correlation = correlation(&response).unwrap_or_default();
                tracing::debug!(method, path, status = response.status, ms, id, correlation, "request to Azure");
                return Ok(response);
            }
            Ok(Err(error)) => error,
            Err(_) => TransportError::Timeout,
        };
        tracing::debug!(method, path, ms, id, %error, "no response from Azure");
        let failure = unavailable(format!("{method} {path}: {error} (client request id {id})"));
        Err(match error {
            TransportError::Connect(_) => {
                NoResponse::Unreachable(CloudError { cause: FailureCause::Unreachable, ..failure })
            }
            _ => NoResponse::Failed(failure),
        })
    }

    /// The URL of a path below the endpoint. Without a version the provider's own is added when the request is sent.
    pub(crate) fn url(&self, path: &str, version: Option<&str>) -> Url {
        let mut url = self.endpoint.clone();
        url.set_path(path);
        if let Some(version) = version {
            url.query_pairs_mut().append_pair("api-version", version);
        }
        url
    }
}

/// The body of a response, which must be of this type.
pub(crate) fn parse_body<T: DeserializeOwned>(response: &HttpResponse) -> Result<T, CloudError> {
    serde_json::from_slice(&response.body).map_err(unreadable_response)
}

/// The error of a request that is not sent, because Azure throttles.
fn throttled(class: &str, wait: Duration) -> CloudError {
    let message = format!("{class}: throttled by Azure, next request in {} s", wait.as_secs().max(1));
    // In whole seconds, rounded up: an early retry would wait twice.
    let secs = i64::try_from(wait.as_secs()).unwrap_or(i64::MAX).saturating_add(1);
    CloudError {
        retry_after: Some(SignedDuration::from_secs(secs)),
        ..CloudError::new(CloudErrorCode::Throttled, message)
    }
}

/// Between half and all of a wait, so that retries do not coincide.
fn jittered(wait: Duration) -> Duration {
    let half = wait / 2;
    let parts = u32::from(Uuid::new_v4().as_bytes()[0]);
    half + half * parts / 255
}

/// Adds the API version of the provider, unless the URL has one.
fn add_api_version(url: &mut Url) -> Result<(), CloudError> {
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
impl HttpClient for ArmClient {
    /// Errors hold a [`CloudError`], since the crates' own show neither `Retry-After` nor the inner codes.
    async fn execute_request(&self, request: &Request) -> azure_core::Result<Response> {
        let failed = |error: CloudError| azure_core::Error::new(ErrorKind::Other, error);
        let method = request.method().as_ref();
        let method = method.parse().map_err(|_| failed(invalid(format!("{method} is not an HTTP method"))))?;
        let Body::Bytes(bytes) = request.body() else {
            return Err(failed(invalid("streaming bodies are not supported")));
        };
        let body = (!bytes.is_empty()).then(|| without_read_only(bytes));
        let headers = request.headers();
        let condition = |name: &'static str| Some((name, headers.get_optional_string(&HeaderName::from(name))?));
        let condition = CONDITIONS.into_iter().find_map(condition);
        let request = ArmRequest { method, url: request.url().clone(), body, condition };
        let response = self.send(request).await.map_err(failed)?;
        let status = StatusCode::try_from(response.status)
            .map_err(|_| failed(unavailable(format!("{} is not a valid status", response.status))))?;
        let mut headers = Headers::new();
        for (name, value) in response.headers {
            headers.insert(HeaderName::from(name), HeaderValue::from(value));
        }
        Ok(Response::new(status, headers, Box::pin(BytesStream::new(response.body))))
    }
}

/// Maps an error of the ARM crates: the transport's own error, else an unexpected body.
pub(crate) fn cloud_error(error: azure_core::Error) -> CloudError {
    match error.into_downcast::<CloudError>() {
        Ok(error) => error,
        Err(error) => unreadable_response(error),
    }
}

/// A placeholder credential for the ARM crates; [`ArmClient`] adds the real token.
#[derive(Debug)]
pub(crate) struct PlaceholderCredential;

#[async_trait]
impl TokenCredential for PlaceholderCredential {
    async fn get_token(&self, _scopes: &[&str]) -> azure_core::Result<AccessToken> {
        let never = azure_core::date::parse_rfc3339("9999-01-01T00:00:00Z")?;
        Ok(AccessToken::new("placeholder", never))
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
            add_api_version(&mut url).map(|()| url.query().unwrap_or_default().to_owned())
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
