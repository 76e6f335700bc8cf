//! The transport: what happens to every request on its way, whoever made it?
//!
//! It lies below both ARM crates and below our own requests: it refuses other hosts, adds the token, the API version
//! and a request id, keeps a deadline, logs, and turns whatever is no success into a [`CloudError`].
//!
//! The token is added here and not by the ARM crates: `azure_core` 0.21 logs whole requests, and of their headers it
//! shows `authorization` alone.

use crate::credential::Credential;
use crate::error::{invalid, of_operation_url, of_response, unavailable};
use crate::wire::{Method, Wire, WireRequest, WireResponse};
use async_trait::async_trait;
use azure_core::auth::{AccessToken, TokenCredential};
use azure_core::error::ErrorKind;
use azure_core::headers::{HeaderName, HeaderValue, Headers};
use azure_core::{Body, BytesStream, HttpClient, Request, Response, StatusCode, Url};
use napkeeper_core::ports::CloudError;
use serde::de::IgnoredAny;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

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
    pub(crate) deadline: Duration,
}

impl Transport {
    /// Fetches the token for the next request, unless it is at hand.
    pub(crate) async fn authenticate(&self) -> Result<(), CloudError> {
        self.credential.prepare(&self.scope()).await.map_err(|e| unavailable(e.to_string()))
    }

    fn scope(&self) -> String {
        format!("{}/.default", self.endpoint.origin().ascii_serialization())
    }

    /// Sends a request; its success.
    pub(crate) async fn call(
        &self,
        method: Method,
        url: Url,
        body: Option<Vec<u8>>,
    ) -> Result<WireResponse, CloudError> {
        self.answer(method, url, body).await?.map_err(|response| of_response(&response))
    }

    /// Asks an operation's URL; its success.
    pub(crate) async fn poll(&self, url: Url) -> Result<WireResponse, CloudError> {
        self.answer(Method::Get, url, None).await?.map_err(|response| of_operation_url(&response))
    }

    /// Sends a request; the response, as `Err` where it is no success.
    async fn answer(
        &self,
        method: Method,
        mut url: Url,
        body: Option<Vec<u8>>,
    ) -> Result<Result<WireResponse, WireResponse>, CloudError> {
        if url.origin() != self.endpoint.origin() {
            let host = url.host_str().unwrap_or_default();
            return Err(invalid(format!("{host} is not Azure's endpoint: no token is sent to it")));
        }
        put_version(&mut url)?;
        let token = self.credential.token(&self.scope()).await.map_err(|e| unavailable(e.to_string()))?;
        let id = Uuid::new_v4().to_string();
        let mut headers = vec![
            ("accept".to_owned(), "application/json".to_owned()),
            ("authorization".to_owned(), format!("Bearer {}", token.secret())),
            ("x-ms-client-request-id".to_owned(), id.clone()),
        ];
        if body.is_some() {
            headers.push(("content-type".to_owned(), "application/json".to_owned()));
        }
        let path = url.path().to_owned();
        let request = WireRequest { method, url: url.into(), headers, body: body.unwrap_or_default() };
        let began = Instant::now();
        let sent = timeout(self.deadline, self.wire.send(request)).await;
        let ms = began.elapsed().as_millis();
        let method = method.as_str();
        let response = match sent {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                tracing::debug!(method, path, ms, id, %error, "no response of Azure");
                return Err(unavailable(format!("{method} {path}: {error}")));
            }
            Err(_) => {
                tracing::debug!(method, path, ms, id, "Azure was too slow");
                return Err(unavailable(format!("{method} {path}: no response in {:?}", self.deadline)));
            }
        };
        tracing::debug!(method, path, status = response.status, ms, id, "asked Azure");
        if response.status == 401 {
            self.credential.forget().await;
        }
        if !(200..300).contains(&response.status) {
            return Ok(Err(response));
        }
        // A page of something in between, say a proxy that asks for a password, must not pass for a success.
        if !response.body.is_empty() && serde_json::from_slice::<IgnoredAny>(&response.body).is_err() {
            let status = response.status;
            return Err(unavailable(format!("{method} {path}: answered {status} with a body that is no JSON")));
        }
        Ok(Ok(response))
    }

    /// Reads the resource at a path below the endpoint.
    pub(crate) fn url(&self, path: &str) -> Url {
        let mut url = self.endpoint.clone();
        url.set_path(path);
        url
    }
}

/// Adds the API version of the provider, unless the URL has one.
fn put_version(url: &mut Url) -> Result<(), CloudError> {
    if url.query_pairs().any(|(key, _)| key == "api-version") {
        return Ok(());
    }
    let path = url.path().to_ascii_lowercase();
    let Some((_, version)) = VERSIONS.iter().find(|(part, _)| path.contains(part)) else {
        return Err(invalid(format!("{path}: no API version is known for it")));
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
            other => return Err(failed(invalid(format!("{other} is no method of Azure Resource Manager")))),
        };
        let Body::Bytes(bytes) = request.body() else {
            return Err(failed(invalid("a body must be whole, not a stream")));
        };
        let body = (!bytes.is_empty()).then(|| without_read_only(bytes));
        let response = self.call(method, request.url().clone(), body).await.map_err(failed)?;
        let status = StatusCode::try_from(response.status)
            .map_err(|_| failed(unavailable(format!("{} is no status", response.status))))?;
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
        Err(error) => unavailable(format!("Azure's response cannot be understood: {error}")),
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
