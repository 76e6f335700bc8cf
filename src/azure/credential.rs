//! Credentials: with which token does a request go to Azure?
//!
//! The maintained identity crate finds tokens; a token is kept until shortly before it ends. Only
//! [`Credential::default_chain`] reads the environment. Tokens live in real time, whatever the clock of the deciders.

use crate::identity::{self, Way};
use crate::settings::AzureCloud;
use jiff::{SignedDuration, Timestamp};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// A token is not used in its last minutes: requests take time. With [`AHEAD`] it is asked for 300 s before it ends,
/// which is when the identity crate's own cache lets go of it: asked earlier, that would answer the same token again.
const MARGIN: SignedDuration = SignedDuration::from_mins(4);
/// How long before it is used a token is fetched.
const AHEAD: SignedDuration = SignedDuration::from_mins(1);
/// Longest that one way to a token may take.
const LONGEST: Duration = Duration::from_secs(20);
/// How long a failure of all ways is the answer for everybody: many callers must not try them one after another.
const FAILURE_LASTS: Duration = Duration::from_secs(5);

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
        now + MARGIN < self.expires_at
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token(until {})", self.expires_at)
    }
}

/// Where tokens come from.
#[derive(Debug, Clone)]
pub enum Credential {
    /// This token, for ever: simulators and tests.
    Static(Token),
    /// The first way that yields one.
    Chain(Chain),
}

/// Ways to a token, tried in order.
#[derive(Debug, Clone)]
pub struct Chain {
    ways: Vec<Way>,
    kept: Arc<Mutex<Kept>>,
}

/// What the ways have last come to.
#[derive(Debug, Default)]
struct Kept {
    token: Option<Token>,
    failed: Option<(Instant, CredentialError)>,
}

/// There is no token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// No way can be tried at all.
    #[error("no credential: {0}")]
    None(Arc<str>),
    /// Every way failed; what each said, in order.
    #[error("cannot get a token from {0}")]
    Failed(Arc<str>),
}

impl Credential {
    /// Workload identity, then managed identity, then Azure CLI, as the environment of this process offers them
    /// (`AZURE_CLIENT_ID`, `AZURE_TENANT_ID`, `AZURE_FEDERATED_TOKEN_FILE`). Asks for no token yet.
    ///
    /// # Errors
    /// [`CredentialError::None`] where none of them can be tried.
    pub fn default_chain() -> Result<Self, CredentialError> {
        Self::chain_in(AzureCloud::Public)
    }

    /// As [`default_chain`](Self::default_chain), in a cloud: each has its own authority.
    ///
    /// # Errors
    /// [`CredentialError::None`] where none of them can be tried.
    pub fn chain_in(cloud: AzureCloud) -> Result<Self, CredentialError> {
        Ok(Self::Chain(Chain::new(identity::ways(cloud)?)))
    }

    /// A token for a scope.
    pub(crate) async fn token(&self, scope: &str) -> Result<Token, CredentialError> {
        self.token_at(scope, Timestamp::now()).await
    }

    /// Sees to it that [`token`](Self::token) has one at hand for the next minute.
    pub(crate) async fn prepare(&self, scope: &str) -> Result<(), CredentialError> {
        self.token_at(scope, Timestamp::now() + AHEAD).await.map(drop)
    }

    async fn token_at(&self, scope: &str, now: Timestamp) -> Result<Token, CredentialError> {
        match self {
            Self::Static(token) => Ok(token.clone()),
            Self::Chain(chain) => chain.token(scope, now).await,
        }
    }

    /// Forgets the token that Azure has just refused; `true` where another may be had.
    pub(crate) async fn forget(&self) -> bool {
        let Self::Chain(chain) = self else { return false };
        chain.kept.lock().await.token.take().is_some()
    }
}

impl Chain {
    fn new(ways: Vec<Way>) -> Self {
        Self { ways, kept: Arc::default() }
    }

    /// The kept token, else a new one; callers at the same time wait for one answer.
    async fn token(&self, scope: &str, now: Timestamp) -> Result<Token, CredentialError> {
        let mut kept = self.kept.lock().await;
        if let Some(token) = kept.token.as_ref().filter(|token| token.is_fresh(now)) {
            return Ok(token.clone());
        }
        if let Some((_, error)) = kept.failed.as_ref().filter(|(at, _)| at.elapsed() < FAILURE_LASTS) {
            return Err(error.clone());
        }
        let mut failures = Vec::new();
        for (name, way) in &self.ways {
            match tokio::time::timeout(LONGEST, way.get_token(&[scope], None)).await {
                Ok(Ok(found)) => {
                    let expires_at = Timestamp::from_second(found.expires_on.unix_timestamp()).unwrap_or(now);
                    let token = Token::new(found.token.secret(), expires_at);
                    *kept = Kept { token: Some(token.clone()), failed: None };
                    return Ok(token);
                }
                Ok(Err(error)) => failures.push(format!("{name}: {error}")),
                Err(_) => failures.push(format!("{name}: no response within {} s", LONGEST.as_secs())),
            }
        }
        let error = CredentialError::Failed(failures.join("; ").into());
        kept.failed = Some((Instant::now(), error.clone()));
        Err(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azure_core_1::credentials::{AccessToken, TokenCredential, TokenRequestOptions};
    use azure_core_1::error::ErrorKind;
    use azure_core_1::time::OffsetDateTime;
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

    fn way(until: Option<i64>) -> Arc<Fake> {
        Arc::new(Fake(until, AtomicU32::new(0)))
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[tokio::test]
    async fn the_first_way_that_yields_a_token_is_kept_until_shortly_before_its_end() {
        let (bad, good) = (way(None), way(Some(10_000)));
        let chain = Chain::new(vec![("bad", bad.clone()), ("good", good.clone())]);
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
    async fn what_is_prepared_lasts_for_the_next_minute() {
        let ends_soon = Timestamp::now() + MARGIN + AHEAD / 2;
        let good = way(Some(ends_soon.as_second()));
        let credential = Credential::Chain(Chain::new(vec![("good", good.clone())]));
        for _ in 0..3 {
            assert_eq!(credential.token("s").await.unwrap().secret(), "secret-0");
        }
        credential.prepare("s").await.unwrap();
        assert_eq!(credential.token("s").await.unwrap().secret(), "secret-1");
        assert_eq!(good.1.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_failure_is_the_answer_for_some_seconds() {
        let bad = way(None);
        let chain = Chain::new(vec![("bad", bad.clone())]);
        let asks = (0..8).map(|_| chain.token("s", at(0)));
        for answer in futures::future::join_all(asks).await {
            assert_eq!(answer.unwrap_err().to_string(), "cannot get a token from bad: not here");
        }
        assert_eq!(bad.1.load(Ordering::SeqCst), 1);
        let long_ago = Instant::now().checked_sub(FAILURE_LASTS).unwrap();
        chain.kept.lock().await.failed.as_mut().unwrap().0 = long_ago;
        chain.token("s", at(0)).await.unwrap_err();
        assert_eq!(bad.1.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn every_way_that_failed_is_named() {
        let chain = Chain::new(vec![("one", way(None)), ("two", way(None))]);
        let error = chain.token("s", at(0)).await.unwrap_err();
        assert_eq!(error.to_string(), "cannot get a token from one: not here; two: not here");
    }
}
