//! Tokens from a chain of sources, cached until shortly before they expire.
//!
//! Only [`Credential::from_environment`] reads the environment. Tokens expire in real time, not by a simulated clock.

use super::token_sources::{CredentialError, CredentialSource, NamedSource, token_sources};
use crate::settings::AzureCloud;
use jiff::{SignedDuration, Timestamp};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// A token is not used in its last minutes: requests take time. With [`PREPARE_AHEAD`] it is renewed 300 s before it
/// expires, which is when the identity crate's own cache drops it: earlier, that would return the same token again.
const EXPIRY_MARGIN: SignedDuration = SignedDuration::from_mins(4);
/// How long before it is used a token is fetched.
const PREPARE_AHEAD: SignedDuration = SignedDuration::from_mins(1);
/// Longest wait for one source.
const SOURCE_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a failure of all sources is the answer for everybody: many callers must not try them one after another.
const FAILURE_TTL: Duration = Duration::from_secs(5);

/// A bearer token. Its `Debug` does not show it.
#[derive(Clone)]
pub struct Token {
    secret: Arc<str>,
    expires_at: Timestamp,
}

impl Token {
    /// A token that is good until a time.
    #[must_use]
    pub fn new(secret: &str, expires_at: Timestamp) -> Self {
        Self { secret: Arc::from(secret), expires_at }
    }

    /// The secret itself.
    pub(crate) fn secret(&self) -> &str {
        &self.secret
    }

    fn is_fresh(&self, now: Timestamp) -> bool {
        now + EXPIRY_MARGIN < self.expires_at
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token(until {})", self.expires_at)
    }
}

/// The source of tokens.
#[derive(Debug, Clone)]
pub enum Credential {
    /// Always this token: simulators and tests.
    Static(Token),
    /// The first source that yields one.
    Chain(CredentialChain),
}

/// Sources of tokens, tried in order.
#[derive(Debug, Clone)]
pub struct CredentialChain {
    sources: Vec<NamedSource>,
    cache: Arc<Mutex<TokenCache>>,
}

/// The last token, or the last failure.
#[derive(Debug, Default)]
struct TokenCache {
    token: Option<Token>,
    failed: Option<(Instant, CredentialError)>,
}

impl Credential {
    /// Workload identity, then managed identity, then Azure CLI, as the environment of this process configures them
    /// (`AZURE_CLIENT_ID`, `AZURE_TENANT_ID`, `AZURE_FEDERATED_TOKEN_FILE`), or one of them alone. Each asks the authority
    /// of the cloud. Requests no token yet.
    ///
    /// # Errors
    /// [`CredentialError::None`] if none of them can be tried.
    pub fn from_environment(cloud: AzureCloud, only: Option<CredentialSource>) -> Result<Self, CredentialError> {
        Ok(Self::Chain(CredentialChain::new(token_sources(cloud, only)?)))
    }

    /// A token for a scope.
    pub(crate) async fn token(&self, scope: &str) -> Result<Token, CredentialError> {
        self.token_at(scope, Timestamp::now()).await
    }

    /// Fetches a token for [`token`](Self::token) that lasts for the next minute, unless there is one.
    pub(crate) async fn prepare(&self, scope: &str) -> Result<(), CredentialError> {
        self.token_at(scope, Timestamp::now() + PREPARE_AHEAD).await.map(drop)
    }

    async fn token_at(&self, scope: &str, now: Timestamp) -> Result<Token, CredentialError> {
        match self {
            Self::Static(token) => Ok(token.clone()),
            Self::Chain(chain) => chain.token(scope, now).await,
        }
    }

    /// Forgets the token that Azure has just rejected; `true` where another may be had.
    pub(crate) async fn forget(&self) -> bool {
        let Self::Chain(chain) = self else { return false };
        chain.cache.lock().await.token.take().is_some()
    }
}

impl CredentialChain {
    fn new(sources: Vec<NamedSource>) -> Self {
        Self { sources, cache: Arc::default() }
    }

    /// The cached token, else a new one; callers at the same time wait for one answer.
    async fn token(&self, scope: &str, now: Timestamp) -> Result<Token, CredentialError> {
        let mut cache = self.cache.lock().await;
        if let Some(token) = cache.token.as_ref().filter(|token| token.is_fresh(now)) {
            return Ok(token.clone());
        }
        if let Some((_, error)) = cache.failed.as_ref().filter(|(at, _)| at.elapsed() < FAILURE_TTL) {
            return Err(error.clone());
        }
        let mut failures = Vec::new();
        for (name, source) in &self.sources {
            match tokio::time::timeout(SOURCE_TIMEOUT, source.get_token(&[scope], None)).await {
                Ok(Ok(found)) => {
                    let expires_at = Timestamp::from_second(found.expires_on.unix_timestamp()).unwrap_or(now);
                    let token = Token::new(found.token.secret(), expires_at);
                    *cache = TokenCache { token: Some(token.clone()), failed: None };
                    return Ok(token);
                }
                Ok(Err(error)) => failures.push(format!("{name}: {error}")),
                Err(_) => failures.push(format!("{name}: no response within {} s", SOURCE_TIMEOUT.as_secs())),
            }
        }
        let error = CredentialError::Failed(failures.join("; ").into());
        cache.failed = Some((Instant::now(), error.clone()));
        Err(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::{HttpRequest, HttpResponse, Transport, TransportError};
    use crate::{Azure, AzureSettings};
    use azure_core_1::credentials::{AccessToken, TokenCredential, TokenRequestOptions};
    use azure_core_1::error::ErrorKind;
    use azure_core_1::time::OffsetDateTime;
    use napkeeper_core::model::azure::cloud::ResourceKind;
    use napkeeper_core::model::errors::FailureCause;
    use napkeeper_core::model::names::{ArmId, Region};
    use napkeeper_core::plan::CloudRequest;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Yields tokens that are good until a second, or fails.
    #[derive(Debug)]
    struct Fake(Option<i64>, AtomicU32);

    #[async_trait::async_trait]
    impl TokenCredential for Fake {
        async fn get_token(&self, _: &[&str], _: Option<TokenRequestOptions<'_>>) -> azure_core_1::Result<AccessToken> {
            let n = self.1.fetch_add(1, Ordering::SeqCst);
            let error = || azure_core_1::Error::with_message(ErrorKind::Credential, "not here");
            let until = OffsetDateTime::from_unix_timestamp(self.0.ok_or_else(error)?).unwrap();
            Ok(AccessToken::new(format!("secret-{n}"), until))
        }
    }

    fn source(until: Option<i64>) -> Arc<Fake> {
        Arc::new(Fake(until, AtomicU32::new(0)))
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[tokio::test]
    async fn the_token_of_the_first_source_that_yields_one_is_cached_until_shortly_before_it_expires() {
        let (bad, good) = (source(None), source(Some(10_000)));
        let chain = CredentialChain::new(vec![("bad", bad.clone()), ("good", good.clone())]);
        for now in [0, 9_000, 9_759] {
            assert_eq!(chain.token("s", at(now)).await.unwrap().secret(), "secret-0", "{now}");
        }
        assert_eq!(chain.token("s", at(9_760)).await.unwrap().secret(), "secret-1");
        let credential = Credential::Chain(chain.clone());
        assert!(credential.forget().await);
        assert_eq!(chain.token("s", at(0)).await.unwrap().secret(), "secret-2");
        assert_eq!(bad.1.load(Ordering::SeqCst), 3);
        assert!(!format!("{credential:?}").contains("secret"), "{credential:?}");
    }

    #[tokio::test]
    async fn a_prepared_token_is_valid_for_a_minute() {
        let ends_soon = Timestamp::now() + EXPIRY_MARGIN + PREPARE_AHEAD / 2;
        let good = source(Some(ends_soon.as_second()));
        let credential = Credential::Chain(CredentialChain::new(vec![("good", good.clone())]));
        for _ in 0..3 {
            assert_eq!(credential.token("s").await.unwrap().secret(), "secret-0");
        }
        credential.prepare("s").await.unwrap();
        assert_eq!(credential.token("s").await.unwrap().secret(), "secret-1");
        assert_eq!(good.1.load(Ordering::SeqCst), 2);
    }

    /// A wire that nothing must be sent on.
    #[derive(Debug)]
    struct Unused;

    #[async_trait::async_trait]
    impl Transport for Unused {
        async fn send(&self, request: HttpRequest) -> Result<HttpResponse, TransportError> {
            panic!("{} is sent without a token", request.url)
        }
    }

    fn settings() -> AzureSettings {
        AzureSettings {
            group: ArmId::new("/subscriptions/s/resourceGroups/g").unwrap(),
            region: Region::new("westeurope").unwrap(),
            aks: None,
            vms: None,
            endpoint: Arc::from("https://management.azure.com"),
            deadline: Duration::from_secs(5),
        }
    }

    #[tokio::test]
    async fn without_a_token_the_group_cannot_be_reached_and_nothing_is_sent() {
        let credential = Credential::Chain(CredentialChain::new(vec![("bad", source(None))]));
        let azure = Azure::new(settings(), Arc::new(Unused), credential).unwrap();
        let error = azure.reach().await.unwrap_err();
        assert_eq!(error.cause, FailureCause::Unauthenticated);
        assert!(error.message.contains("not here"), "{error:?}");
    }

    #[tokio::test]
    async fn a_write_outside_of_the_group_is_not_sent() {
        let token = Credential::Static(Token::new("secret", Timestamp::MAX));
        let azure = Azure::new(settings(), Arc::new(Unused), token).unwrap();
        let nic = "providers/Microsoft.Network/networkInterfaces/n";
        for group in ["/subscriptions/s/resourceGroups/other", "/subscriptions/other/resourceGroups/g"] {
            let id = ArmId::new(format!("{group}/{nic}")).unwrap();
            let error = azure.perform(&CloudRequest::Delete(id, ResourceKind::Nic)).await.unwrap_err();
            assert!(error.to_string().contains("not sent"), "{error}");
        }
    }

    #[test]
    fn the_chosen_source_alone_is_tried() {
        // No pod with workload identity runs this test.
        let only = |source| Credential::from_environment(AzureCloud::Public, source);
        assert!(only(Some(CredentialSource::WorkloadIdentity)).is_err());
        let Ok(Credential::Chain(chain)) = only(Some(CredentialSource::AzureCli)) else { panic!("no chain") };
        assert_eq!(chain.sources.len(), 1);
    }

    #[tokio::test]
    async fn a_failure_is_the_answer_for_some_seconds() {
        let bad = source(None);
        let chain = CredentialChain::new(vec![("bad", bad.clone())]);
        let requests = (0..8).map(|_| chain.token("s", at(0)));
        for answer in futures::future::join_all(requests).await {
            assert_eq!(answer.unwrap_err().to_string(), "cannot get a token from bad: not here");
        }
        assert_eq!(bad.1.load(Ordering::SeqCst), 1);
        let long_ago = Instant::now().checked_sub(FAILURE_TTL).unwrap();
        chain.cache.lock().await.failed.as_mut().unwrap().0 = long_ago;
        chain.token("s", at(0)).await.unwrap_err();
        assert_eq!(bad.1.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn every_source_that_failed_is_named() {
        let chain = CredentialChain::new(vec![("one", source(None)), ("two", source(None))]);
        let error = chain.token("s", at(0)).await.unwrap_err();
        assert_eq!(error.to_string(), "cannot get a token from one: not here; two: not here");
    }
}
