//! Identity: which ways to a token does this process have?
//!
//! The identity crate's own credentials, with our HTTP client below them.

use crate::credential::CredentialError;
use crate::settings::AzureCloud;
use crate::wire::{HttpWire, Method, Wire, WireRequest};
use async_trait::async_trait;
use azure_core_1::cloud::CloudConfiguration;
use azure_core_1::credentials::TokenCredential;
use azure_core_1::error::{Error, ErrorKind};
use azure_core_1::http::headers::{HeaderName, HeaderValue, Headers};
use azure_core_1::http::{self, AsyncRawResponse, Body, ClientOptions, HttpClient, Request, Transport};
use azure_identity::{
    AzureCliCredential, ClientAssertionCredentialOptions, ManagedIdentityCredential, ManagedIdentityCredentialOptions,
    UserAssignedId, WorkloadIdentityCredential, WorkloadIdentityCredentialOptions,
};
use std::sync::Arc;
use std::time::Duration;

/// Longest exchange with a token endpoint.
const DEADLINE: Duration = Duration::from_secs(10);

/// A way to a token, and what it is called.
pub(crate) type Way = (&'static str, Arc<dyn TokenCredential>);

/// The ways that can be tried, in order. The cloud names the authority of workload identity; managed identity asks its
/// own host, and Azure CLI the cloud that it is signed in to.
pub(crate) fn ways(cloud: AzureCloud) -> Result<Vec<Way>, CredentialError> {
    let none = |why: String| CredentialError::None(why.into());
    let wire = HttpWire::for_tokens(DEADLINE).map_err(|e| none(e.to_string()))?;
    let transport = Transport::new(Arc::new(TokenClient(Arc::new(wire))));
    let cloud = match cloud {
        // Without a choice AZURE_AUTHORITY_HOST decides, which AKS sets for pods with workload identity.
        AzureCloud::Public => None,
        AzureCloud::UsGovernment => Some(Arc::new(CloudConfiguration::AzureGovernment)),
        AzureCloud::China => Some(Arc::new(CloudConfiguration::AzureChina)),
    };
    let options =
        || ClientOptions { transport: Some(transport.clone()), cloud: cloud.clone(), ..ClientOptions::default() };
    let workload = WorkloadIdentityCredential::new(Some(WorkloadIdentityCredentialOptions {
        credential_options: ClientAssertionCredentialOptions { client_options: options() },
        ..WorkloadIdentityCredentialOptions::default()
    }));
    let user_assigned_id = std::env::var("AZURE_CLIENT_ID").ok().map(UserAssignedId::ClientId);
    let managed = ManagedIdentityCredential::new(Some(ManagedIdentityCredentialOptions {
        user_assigned_id,
        client_options: options(),
    }));
    let mut ways: Vec<Way> = Vec::new();
    let mut why = Vec::new();
    match workload {
        Ok(way) => ways.push(("workload identity", way)),
        Err(e) => why.push(format!("workload identity: {e}")),
    }
    match managed {
        Ok(way) => ways.push(("managed identity", way)),
        Err(e) => why.push(format!("managed identity: {e}")),
    }
    match AzureCliCredential::new(None) {
        Ok(way) => ways.push(("Azure CLI", way)),
        Err(e) => why.push(format!("Azure CLI: {e}")),
    }
    if ways.is_empty() { Err(none(why.join("; "))) } else { Ok(ways) }
}

/// Our wire, as the identity crate wants an HTTP client.
#[derive(Debug)]
struct TokenClient(Arc<dyn Wire>);

#[async_trait]
impl HttpClient for TokenClient {
    async fn execute_request(&self, request: &Request) -> azure_core_1::Result<AsyncRawResponse> {
        let failed = |kind, what: String| Error::with_message(kind, what);
        let method = match request.method() {
            http::Method::Get => Method::Get,
            http::Method::Post => Method::Post,
            other => {
                return Err(failed(ErrorKind::Other, format!("{other} is not a supported method for token requests")));
            }
        };
        let Body::Bytes(body) = request.body() else {
            return Err(failed(ErrorKind::Other, "streaming token requests are not supported".to_owned()));
        };
        let headers = request.headers().iter().map(|(k, v)| (k.as_str().to_owned(), v.as_str().to_owned()));
        let sent =
            WireRequest { method, url: request.url().to_string(), headers: headers.collect(), body: body.to_vec() };
        let response = self.0.send(sent).await.map_err(|e| failed(ErrorKind::Io, e.to_string()))?;
        let mut headers = Headers::new();
        for (name, value) in response.headers {
            headers.insert(HeaderName::from(name), HeaderValue::from(value));
        }
        Ok(AsyncRawResponse::from_bytes(response.status.into(), headers, response.body))
    }
}
