//! Writes a kubeconfig for an identity.

use super::pki::Pair;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// By what a client proves who it is.
pub(crate) enum Credential<'a> {
    Certificate(&'a Pair),
    Token(&'a str),
}

impl Credential<'_> {
    fn user(&self) -> Value {
        match self {
            Self::Certificate(pair) => json!({ "client-certificate": pair.certificate, "client-key": pair.key }),
            Self::Token(token) => json!({ "token": token }),
        }
    }
}

/// Writes a kubeconfig, as JSON, which is YAML too.
pub(crate) fn write(path: &Path, server: &str, ca: &Path, credential: &Credential<'_>) -> Result<()> {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "test", "cluster": {
            "server": server,
            "certificate-authority": ca,
        }}],
        "users": [{ "name": "test", "user": credential.user() }],
        "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
        "current-context": "test",
    });
    fs::write(path, config.to_string()).with_context(|| format!("writing {}", path.display()))
}
