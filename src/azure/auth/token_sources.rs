//! The sources of tokens that this process can use: credentials of the identity crate, on our transport.

use crate::settings::AzureCloud;
use crate::transport::{HttpRequest, HttpTransport, Transport};
use async_trait::async_trait;
use azure_core_1::cloud::CloudConfiguration;
use azure_core_1::credentials::TokenCredential;
use azure_core_1::error::{Error, ErrorKind};
use azure_core_1::http::headers::{HeaderName, HeaderValue, Headers};
use azure_core_1::http::{self, AsyncRawResponse, Body, ClientOptions, HttpClient, Request};
use azure_identity::{
    AzureCliCredential, ClientAssertionCredentialOptions, ManagedIdentityCredential, ManagedIdentityCredentialOptions,
    UserAssignedId, WorkloadIdentityCredential, WorkloadIdentityCredentialOptions,
};
use std::sync::Arc;
use std::time::Duration;

/// Longest exchange with a token endpoint.
const DEADLINE: Duration = Duration::from_secs(10);

/// Where a token comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CredentialSource {
    /// A federated token of the pod's ServiceAccount.
    WorkloadIdentity,
    /// The instance metadata service: an identity of the node.
    ManagedIdentity,
    /// `az login`.
    AzureCli,
}

impl CredentialSource {
    /// All of them, in the order in which they are tried.
    pub const ALL: [Self; 3] = [Self::WorkloadIdentity, Self::ManagedIdentity, Self::AzureCli];

    /// Its name for the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::WorkloadIdentity => "workload-identity",
            Self::ManagedIdentity => "managed-identity",
            Self::AzureCli => "azure-cli",
        }
    }

    /// Its name in messages.
    fn title(self) -> &'static str {
        match self {
            Self::WorkloadIdentity => "workload identity",
            Self::ManagedIdentity => "managed identity",
            Self::AzureCli => "Azure CLI",
        }
    }
}

/// A source of tokens, after its name.
pub(super) type NamedSource = (&'static str, Arc<dyn TokenCredential>);

/// There is no token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// No source can be tried at all.
    #[error("no credential: {0}")]
    None(Arc<str>),
    /// Every source failed; the error of each, in order.
    #[error("cannot get a token from {0}")]
    Failed(Arc<str>),
}

/// The sources that can be tried, in order, or this one alone. The cloud sets the authority of workload identity; managed
/// identity uses its own host, and Azure CLI the cloud that it is signed in to.
pub(super) fn token_sources(
    cloud: AzureCloud,
    only: Option<CredentialSource>,
) -> Result<Vec<NamedSource>, CredentialError> {
    let none = |reasons: String| CredentialError::None(reasons.into());
    let transport = HttpTransport::for_tokens(DEADLINE).map_err(|e| none(e.to_string()))?;
    let transport = http::Transport::new(Arc::new(TokenClient(Arc::new(transport))));
    let cloud = match cloud {
        // Without a choice AZURE_AUTHORITY_HOST decides, which AKS sets for pods with workload identity.
        AzureCloud::Public => None,
        AzureCloud::UsGovernment => Some(Arc::new(CloudConfiguration::AzureGovernment)),
        AzureCloud::China => Some(Arc::new(CloudConfiguration::AzureChina)),
    };
    let options =
        || ClientOptions { transport: Some(transport.clone()), cloud: cloud.clone(), ..ClientOptions::default() };
    let (mut sources, mut reasons) = (Vec::<NamedSource>::new(), Vec::new());
    for source in CredentialSource::ALL.into_iter().filter(|source| only.is_none_or(|only| only == *source)) {
        match credential(source, options()) {
            Ok(credential) => sources.push((source.title(), credential)),
            Err(error) => reasons.push(format!("{}: {error}", source.title())),
        }
    }
    if sources.is_empty() { Err(none(reasons.join("; "))) } else { Ok(sources) }
}

fn credential(
    source: CredentialSource,
    client_options: ClientOptions,
) -> azure_core_1::Result<Arc<dyn TokenCredential>> {
    Ok(match source {
        CredentialSource::WorkloadIdentity => {
            WorkloadIdentityCredential::new(Some(WorkloadIdentityCredentialOptions {
                credential_options: ClientAssertionCredentialOptions { client_options },
                ..WorkloadIdentityCredentialOptions::default()
            }))?
        }
        CredentialSource::ManagedIdentity => {
            let user_assigned_id = std::env::var("AZURE_CLIENT_ID").ok().map(UserAssignedId::ClientId);
            ManagedIdentityCredential::new(Some(ManagedIdentityCredentialOptions { user_assigned_id, client_options }))?
        }
        CredentialSource::AzureCli => AzureCliCredential::new(None)?,
    })
}

/// Our transport as an HTTP client of the identity crate.
#[derive(Debug)]
struct TokenClient(Arc<dyn Transport>);

#[async_trait]
impl HttpClient for TokenClient {
    async fn execute_request(&self, request: &Request) -> azure_core_1::Result<AsyncRawResponse> {
        let failed = |kind, message: String| Error::with_message(kind, message);
        let method = request.method().as_ref().parse();
        let method =
            method.map_err(|_| failed(ErrorKind::Other, format!("{} is not an HTTP method", request.method())))?;
        let Body::Bytes(body) = request.body() else {
            return Err(failed(ErrorKind::Other, "streaming token requests are not supported".to_owned()));
        };
        let headers = request.headers().iter().map(|(k, v)| (k.as_str().to_owned(), v.as_str().to_owned()));
        let sent =
            HttpRequest { method, url: request.url().to_string(), headers: headers.collect(), body: body.to_vec() };
        let response = self.0.send(sent).await.map_err(|e| failed(ErrorKind::Io, e.to_string()))?;
        let mut headers = Headers::new();
        for (name, value) in response.headers {
            headers.insert(HeaderName::from(name), HeaderValue::from(value));
        }
        Ok(AsyncRawResponse::from_bytes(response.status.into(), headers, response.body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chosen_source_is_the_only_one() {
        let titles = |only| -> Vec<&str> {
            let sources = token_sources(AzureCloud::Public, only);
            sources.unwrap().into_iter().map(|(title, _)| title).collect()
        };
        assert_eq!(titles(Some(CredentialSource::ManagedIdentity)), ["managed identity"]);
        assert_eq!(titles(Some(CredentialSource::AzureCli)), ["Azure CLI"]);
        assert!(titles(None).ends_with(&["managed identity", "Azure CLI"]));
        // No pod with workload identity runs this test.
        let error = token_sources(AzureCloud::Public, Some(CredentialSource::WorkloadIdentity)).unwrap_err();
        assert!(error.to_string().starts_with("no credential: workload identity: "), "{error}");
    }
}
