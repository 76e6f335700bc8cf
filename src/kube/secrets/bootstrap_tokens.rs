//! Bootstrap tokens, with which new nodes request their certificates.
//!
//! One for each VM, as a Secret of type `bootstrap.kubernetes.io/token` in kube-system: valid for half an hour, deleted
//! when its node has registered or its NodeClaim is deleted, and by Kubernetes when it has expired. Names are derived
//! from the NodeClaim's UID, so that they are found without listing Secrets: napkeeper may create and delete them, but
//! not read them. *Caveats*: a repeated PUT of a VM creates another one, since the first cannot be read again.

use crate::error::{ApiRequest, DEADLINE, call, cluster_error};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use napkeeper_api::bootstrap::JoinToken;
use napkeeper_core::model::errors::{ClusterError, EffectError};
use napkeeper_core::model::names::Uid;
use napkeeper_core::model::support::hash::fnv1a;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use tokio::sync::Mutex;
use uuid::Uuid;

/// Where the API server looks for tokens.
const NAMESPACE: &str = "kube-system";
/// How long a token is good: longer than a launch and a registration may take together.
const LIFETIME: SignedDuration = SignedDuration::from_mins(30);
/// Most tokens of one claim: a launch tries several offerings, and repeats some PUTs.
const MAX_PER_CLAIM: u32 = 24;
/// Most NodeClaims whose tokens are counted.
const MAX_CLAIMS: usize = 10_000;
/// What ids and secrets of tokens consist of.
const LETTERS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// Creates and deletes bootstrap tokens.
#[derive(Clone)]
pub struct BootstrapTokens {
    api: Api<Secret>,
    /// How many tokens each claim has had as far as is known. Lost in a crash, they are found one by one.
    issued: Arc<Mutex<BTreeMap<Uid, u32>>>,
}

impl fmt::Debug for BootstrapTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BootstrapTokens").finish_non_exhaustive()
    }
}

impl BootstrapTokens {
    /// Tokens of this cluster.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { api: Api::namespaced(client, NAMESPACE), issued: Arc::default() }
    }

    /// Makes a token for a NodeClaim's VM.
    ///
    /// # Errors
    /// [`EffectError::Cluster`] as the API server refused it; `Exhausted` when the claim has had too many.
    pub async fn issue(&self, claim: &Uid) -> Result<JoinToken, EffectError> {
        // Tokens expire in real time, not by the simulated clock.
        let until = Timestamp::now().saturating_add(LIFETIME).unwrap_or(Timestamp::MAX);
        let first = self.issued.lock().await.get(claim).copied().unwrap_or_default();
        for n in first..MAX_PER_CLAIM {
            let id = id(claim, n);
            let Some(token) = JoinToken::new(&id, &secret()) else { continue };
            let secret: Secret = serde_json::from_value(body(&token, claim, until))
                .map_err(|_| EffectError::Cluster(ClusterError::Unavailable))?;
            let name = name(&id);
            let request = ApiRequest { verb: "create", kind: "Secret", name: &name };
            match call(request, self.api.create(&PostParams::default(), &secret)).await {
                Ok(_) => {
                    self.note(claim, n + 1).await;
                    return Ok(token);
                }
                Err(ClusterError::Conflict) => {}
                Err(error) => return Err(EffectError::Cluster(error)),
            }
        }
        Err(EffectError::Cluster(ClusterError::NamesExhausted))
    }

    async fn note(&self, claim: &Uid, count: u32) {
        let mut issued = self.issued.lock().await;
        if issued.len() >= MAX_CLAIMS {
            issued.clear();
        }
        issued.insert(claim.clone(), count);
    }

    /// Deletes all tokens of a NodeClaim.
    ///
    /// # Errors
    /// [`EffectError::Cluster`]; they expire on their own then.
    pub async fn revoke(&self, claim: &Uid) -> Result<(), EffectError> {
        self.issued.lock().await.remove(claim);
        for n in 0..MAX_PER_CLAIM {
            match self.delete(&name(&id(claim, n))).await {
                Ok(()) => {}
                // They are made in order, so there is no further one.
                Err(ClusterError::NotFound) => return Ok(()),
                Err(error) => return Err(EffectError::Cluster(error)),
            }
        }
        Ok(())
    }

    /// Not by [`call`], which would log the usual 404 at the end.
    async fn delete(&self, name: &str) -> Result<(), ClusterError> {
        match tokio::time::timeout(DEADLINE, self.api.delete(name, &DeleteParams::default())).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(cluster_error(&error)),
            Err(_) => Err(ClusterError::Unavailable),
        }
    }
}

fn name(id: &str) -> String {
    format!("bootstrap-token-{id}")
}

fn body(token: &JoinToken, claim: &Uid, until: Timestamp) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name(token.id()),
            "labels": {
                "app.kubernetes.io/managed-by": "napkeeper",
                "napkeeper.io/nodeclaim-uid": claim.as_str(),
            },
        },
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "description": "Allows one node launched by napkeeper to join.",
            "token-id": token.id(),
            "token-secret": token.secret(),
            "expiration": until.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "usage-bootstrap-authentication": "true",
        },
    })
}

/// The id of a claim's n-th token.
fn id(claim: &Uid, n: u32) -> String {
    // It need not be hard to guess, the secret is.
    letters(u128::from(fnv1a(claim.as_str().bytes().chain(n.to_le_bytes()))), 6)
}

/// Sixteen letters and digits, 82 random bits.
fn secret() -> String {
    letters(Uuid::new_v4().as_u128() ^ Uuid::new_v4().as_u128().rotate_left(64), 16)
}

fn letters(mut number: u128, count: usize) -> String {
    let mut text = String::with_capacity(count);
    for _ in 0..count {
        let letter = usize::try_from(number % 36).unwrap_or_default();
        text.push(char::from(LETTERS[letter]));
        number /= 36;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{refusal, scripted};
    use std::collections::BTreeSet;

    fn uid(text: &str) -> Uid {
        Uid::new(text).unwrap()
    }

    #[test]
    fn ids_follow_from_the_claim_and_secrets_from_chance() {
        let ids: BTreeSet<String> = (0..MAX_PER_CLAIM).map(|n| id(&uid("a"), n)).collect();
        assert_eq!(ids.len(), usize::try_from(MAX_PER_CLAIM).unwrap());
        assert_eq!(id(&uid("a"), 3), id(&uid("a"), 3));
        assert_ne!(id(&uid("a"), 3), id(&uid("b"), 3));
        let secrets: BTreeSet<String> = (0..100).map(|_| secret()).collect();
        assert_eq!(secrets.len(), 100);
        for (id, secret) in ids.iter().zip(&secrets) {
            assert!(JoinToken::new(id, secret).is_some(), "{id}");
        }
    }

    #[test]
    fn the_secret_is_valid_for_the_api_server() {
        let token = JoinToken::new("abc123", "0123456789abcdef").unwrap();
        let body = body(&token, &uid("u-1"), "2026-11-21T22:00:00.5Z".parse().unwrap());
        assert_eq!(body["metadata"]["name"], "bootstrap-token-abc123");
        assert_eq!(body["stringData"]["expiration"], "2026-11-21T22:00:00Z");
        let secret: Secret = serde_json::from_value(body).unwrap();
        assert_eq!(secret.type_.as_deref(), Some("bootstrap.kubernetes.io/token"));
        assert_eq!(secret.string_data.unwrap()["usage-bootstrap-authentication"], "true");
    }

    #[tokio::test]
    async fn a_token_of_an_earlier_try_is_left_and_another_made() {
        let taken = (409, refusal(409, json!({})));
        let made = (201, json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "x" } }));
        let (client, requests) = scripted([taken, made]);
        let token = BootstrapTokens::new(client).issue(&uid("u")).await.unwrap();
        assert_eq!(token.id(), id(&uid("u"), 1));
        assert_eq!(requests.lock().unwrap().len(), 2);
        // The next one takes one request, and exhausted names are not a conflict.
        let made = || (201, json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "x" } }));
        let (client, requests) = scripted([made(), made()]);
        let tokens = BootstrapTokens::new(client);
        for n in 0..2 {
            assert_eq!(tokens.issue(&uid("u")).await.unwrap().id(), id(&uid("u"), n));
        }
        assert_eq!(requests.lock().unwrap().len(), 2);
        let (client, _) = scripted((0..MAX_PER_CLAIM).map(|_| (409, refusal(409, json!({})))).collect::<Vec<_>>());
        let refused = BootstrapTokens::new(client).issue(&uid("u")).await.unwrap_err();
        assert_eq!(refused, EffectError::Cluster(ClusterError::NamesExhausted));
        let (client, _) = scripted([(403, refusal(403, json!({})))]);
        let refused = BootstrapTokens::new(client).issue(&uid("u")).await.unwrap_err();
        assert_eq!(refused, EffectError::Cluster(ClusterError::Forbidden));
    }

    #[tokio::test]
    async fn all_tokens_of_a_claim_are_deleted() {
        let deleted = || (200, json!({ "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Success" }));
        let (client, requests) = scripted([deleted(), deleted(), (404, refusal(404, json!({})))]);
        BootstrapTokens::new(client).revoke(&uid("u")).await.unwrap();
        assert_eq!(requests.lock().unwrap().len(), 3, "up to the first that was never made");
    }
}
